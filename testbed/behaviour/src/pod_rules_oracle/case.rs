//! The cases: nodes, bound pods of others, and gangs.

use std::fmt;

use fastrand::Rng;

/// What the gangs of a case have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// One pod set with anti-affinity to itself by host name.
    AntiAffinityByHost,
    /// One pod set with host ports.
    HostPorts,
    /// One pod set with one spread constraint.
    OneSpread,
    /// One pod set with any rules.
    OneSet,
    /// Two or three pod sets with any rules.
    SeveralSets,
    /// Two gangs with any rules.
    TwoGangs,
    /// Pod sets with any rules, volumes and node names.
    Volumes,
}

/// A random cluster with its gangs.
#[derive(Clone, Debug)]
pub struct Case {
    /// The seed, which is part of all names.
    pub seed: u64,
    /// What its gangs have.
    pub family: Family,
    /// The nodes.
    pub nodes: Vec<Node>,
    /// Bound pods without a gang, with the index of their node.
    pub others: Vec<(usize, Pods)>,
    /// The pod sets of each gang.
    pub gangs: Vec<Vec<Pods>>,
    /// The zones of the storage class; none: any node.
    pub class_zones: Vec<u8>,
}

/// A node.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its zone; a node without a zone has no such label.
    pub zone: Option<u8>,
    /// Its CPUs.
    pub cpus: u32,
    /// Whether it has a taint.
    pub is_tainted: bool,
}

/// The kind of object that creates the pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A Job.
    Job,
    /// A Deployment.
    Deployment,
    /// The only pod itself.
    Pod,
}

/// Identical pods.
#[derive(Clone, Debug)]
pub struct Pods {
    /// The kind of the object.
    pub kind: Kind,
    /// Their number.
    pub count: u32,
    /// The CPUs of each.
    pub cpus: u32,
    /// The value of the label `app`.
    pub app: u8,
    /// The value of the label `version`, if they have it.
    pub version: Option<u8>,
    /// Whether they are in the second namespace.
    pub is_away: bool,
    /// Whether they tolerate the taint.
    pub tolerates: bool,
    /// The zone of their node selector.
    pub zone: Option<u8>,
    /// The node of `nodeName`.
    pub node_name: Option<usize>,
    /// Their volume.
    pub volume: Option<Volume>,
    /// Their rules.
    pub rules: Rules,
}

/// A volume of pods.
#[derive(Clone, Copy, Debug)]
pub enum Volume {
    /// All use one volume, which nodes of a zone can mount.
    InZone(u8),
    /// All use one volume, which one node can mount.
    OnNode(usize),
    /// The only pod uses a claim that waits for its first consumer.
    Waiting,
    /// A claim is created for each pod, which waits for its first consumer.
    Created,
}

/// Rules between pods.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// Required anti-affinity.
    pub anti_affinity: Vec<Term>,
    /// Required affinity.
    pub affinity: Vec<Term>,
    /// Topology spread constraints with `DoNotSchedule`.
    pub spread: Vec<Spread>,
    /// Host ports.
    pub ports: Vec<Port>,
}

/// A label selector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selector {
    /// The pods of one app.
    App(u8),
    /// The pods of other apps.
    NotApp(u8),
    /// The pods with the label `version`.
    Versioned,
    /// A selector without requirements.
    Empty,
    /// No selector.
    Absent,
}

/// The namespaces of an affinity term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Namespaces {
    /// That of the pod.
    Own,
    /// The second one, by name.
    Away,
    /// The second one, by its label.
    LabelledAway,
    /// All.
    All,
}

/// A term of required affinity or anti-affinity.
#[derive(Clone, Debug)]
pub struct Term {
    /// The pods.
    pub selector: Selector,
    /// Where they are.
    pub namespaces: Namespaces,
    /// The domains.
    pub key: Key,
    /// `matchLabelKeys`.
    pub match_keys: Vec<&'static str>,
    /// `mismatchLabelKeys`.
    pub mismatch_keys: Vec<&'static str>,
}

/// A topology key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// `kubernetes.io/hostname`.
    HostName,
    /// Another label with the name of the node, which only the nodes of the case have.
    Host,
    /// The zone.
    Zone,
}

/// A topology spread constraint with `DoNotSchedule`.
#[derive(Clone, Debug)]
pub struct Spread {
    /// The pods that count.
    pub selector: Selector,
    /// The domains.
    pub key: Key,
    /// `maxSkew`.
    pub max_skew: u32,
    /// `minDomains`.
    pub min_domains: Option<u32>,
    /// Whether `nodeAffinityPolicy` is `Honor`.
    pub honors_affinity: bool,
    /// Whether `nodeTaintsPolicy` is `Honor`.
    pub honors_taints: bool,
    /// `matchLabelKeys`.
    pub match_keys: Vec<&'static str>,
}

/// A host port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// The port.
    pub port: u16,
    /// The protocol.
    pub protocol: &'static str,
    /// The address.
    pub address: Option<&'static str>,
}

impl Family {
    /// All families.
    pub const ALL: [Self; 7] = [
        Self::AntiAffinityByHost,
        Self::HostPorts,
        Self::OneSpread,
        Self::OneSet,
        Self::SeveralSets,
        Self::TwoGangs,
        Self::Volumes,
    ];

    /// Whether `docs/planner/rules.md` promises that no gang is refused that fits.
    pub fn is_exact(self) -> bool {
        matches!(self, Self::AntiAffinityByHost | Self::HostPorts | Self::OneSpread)
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::AntiAffinityByHost => "one pod set, anti-affinity by host name",
            Self::HostPorts => "one pod set, host ports",
            Self::OneSpread => "one pod set, one spread constraint",
            Self::OneSet => "one pod set, any rules",
            Self::SeveralSets => "two or three pod sets, any rules",
            Self::TwoGangs => "two gangs, any rules",
            Self::Volumes => "any rules, volumes and node names",
        })
    }
}

impl Case {
    /// The case of a seed.
    pub fn new(seed: u64) -> Self {
        let families = Family::ALL;
        let family = families[usize::try_from(seed).unwrap_or_default() % families.len()];
        let mut random = Random(Rng::with_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        let nodes: Vec<Node> = (0..random.0.usize(3..=4)).map(|_| random.node()).collect();
        let mut others: Vec<(usize, Pods)> = Vec::new();
        for _ in 0..random.0.usize(0..=3) {
            let (node, mut pods) = random.other(nodes.len());
            let used: u32 = others.iter().filter(|(on, _)| *on == node).map(|(_, other)| other.cpus).sum();
            pods.cpus = pods.cpus.min(nodes[node].cpus.saturating_sub(used));
            others.push((node, pods));
        }
        let gangs = (0..if family == Family::TwoGangs { 2 } else { 1 })
            .map(|_| random.gang(family, nodes.len()))
            .collect();
        let class_zones = (0..3).filter(|_| random.percent(50)).collect();
        Self { seed, family, nodes, others, gangs, class_zones }
    }
}

/// The random choices.
struct Random(Rng);

impl Random {
    fn percent(&mut self, share: u32) -> bool {
        self.0.u32(0..100) < share
    }

    fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.0.usize(0..of.len())].clone()
    }

    fn node(&mut self) -> Node {
        let zone = self.percent(85).then(|| self.0.u8(0..3));
        Node { zone, cpus: self.0.u32(2..=8), is_tainted: self.percent(20) }
    }

    fn other(&mut self, nodes: usize) -> (usize, Pods) {
        let rules = self.rules();
        let pods =
            Pods { count: 1, kind: Kind::Pod, zone: None, is_away: self.percent(30), ..self.pods(rules) };
        (self.0.usize(0..nodes), Pods { cpus: self.0.u32(0..=1), ..pods })
    }

    fn gang(&mut self, family: Family, nodes: usize) -> Vec<Pods> {
        let sets = match family {
            Family::SeveralSets => self.0.usize(2..=3),
            Family::TwoGangs | Family::Volumes => self.0.usize(1..=2),
            Family::AntiAffinityByHost | Family::HostPorts | Family::OneSpread | Family::OneSet => 1,
        };
        (0..sets).map(|_| self.set(family, nodes)).collect()
    }

    fn set(&mut self, family: Family, nodes: usize) -> Pods {
        let app = self.0.u8(0..2);
        let rules = match family {
            Family::AntiAffinityByHost => {
                let term = Term { selector: Selector::App(app), key: Key::HostName, ..Term::default() };
                Rules { anti_affinity: vec![term], ..Rules::default() }
            }
            Family::HostPorts => Rules { ports: self.ports(), ..Rules::default() },
            Family::OneSpread => Rules { spread: vec![self.spread()], ..Rules::default() },
            Family::OneSet | Family::SeveralSets | Family::TwoGangs | Family::Volumes => self.rules(),
        };
        let pods = Pods { app, ..self.pods(rules) };
        if family == Family::Volumes { self.with_volume(pods, nodes) } else { pods }
    }

    fn pods(&mut self, rules: Rules) -> Pods {
        let count = self.0.u32(1..=4);
        let kind = if count == 1 {
            self.one(&[Kind::Pod, Kind::Job])
        } else {
            self.one(&[Kind::Job, Kind::Deployment])
        };
        Pods {
            kind,
            count,
            cpus: if self.percent(25) { 2 } else { 1 },
            app: self.0.u8(0..2),
            version: self.percent(50).then(|| self.0.u8(0..2)),
            is_away: false,
            tolerates: self.percent(50),
            zone: self.percent(8).then(|| self.0.u8(0..3)),
            node_name: None,
            volume: None,
            rules,
        }
    }

    fn with_volume(&mut self, pods: Pods, nodes: usize) -> Pods {
        match self.0.u32(0..6) {
            0 => Pods { node_name: Some(self.0.usize(0..nodes)), ..pods },
            1 => Pods { volume: Some(Volume::InZone(self.0.u8(0..3))), ..pods },
            2 => Pods { volume: Some(Volume::OnNode(self.0.usize(0..nodes))), ..pods },
            3 => Pods { volume: Some(Volume::Waiting), count: 1, kind: Kind::Pod, ..pods },
            4 => Pods { volume: Some(Volume::Created), ..pods },
            _ => pods,
        }
    }

    /// Any rules; each kind in about a third of the cases.
    fn rules(&mut self) -> Rules {
        Rules {
            anti_affinity: if self.percent(30) { vec![self.term(false)] } else { Vec::new() },
            affinity: if self.percent(25) {
                (0..self.0.usize(1..=2)).map(|_| self.term(true)).collect()
            } else {
                Vec::new()
            },
            spread: self.spreads(),
            ports: if self.percent(25) { self.ports() } else { Vec::new() },
        }
    }

    /// Constraints with different topology keys.
    fn spreads(&mut self) -> Vec<Spread> {
        let mut spreads: Vec<Spread> = Vec::new();
        for _ in 0..if self.percent(35) { self.0.usize(1..=2) } else { 0 } {
            let spread = self.spread();
            if spreads.iter().all(|other| other.key != spread.key) {
                spreads.push(spread);
            }
        }
        spreads
    }

    fn key(&mut self) -> Key {
        self.one(&[Key::HostName, Key::Host, Key::Zone, Key::Zone])
    }

    /// A term. That of an affinity selects an app, because pods of other cases must not count.
    fn term(&mut self, is_affinity: bool) -> Term {
        let app = Selector::App(self.0.u8(0..2));
        let any = [
            app,
            app,
            app,
            Selector::NotApp(self.0.u8(0..2)),
            Selector::Versioned,
            Selector::Empty,
            Selector::Absent,
        ];
        let selector = if is_affinity { app } else { self.one(&any) };
        let namespaces = match selector {
            Selector::App(_) => self.one(&[
                Namespaces::Own,
                Namespaces::Own,
                Namespaces::Away,
                Namespaces::LabelledAway,
                Namespaces::All,
            ]),
            Selector::NotApp(_) | Selector::Versioned | Selector::Empty | Selector::Absent => {
                self.one(&[Namespaces::Own, Namespaces::LabelledAway])
            }
        };
        let (match_keys, mismatch_keys) = match (selector, self.0.u32(0..5)) {
            (Selector::Versioned | Selector::Absent, _) => (Vec::new(), Vec::new()),
            (_, 0) => (vec![self.label_key()], Vec::new()),
            (_, 1) => (Vec::new(), vec![self.label_key()]),
            _ => (Vec::new(), Vec::new()),
        };
        Term { selector, namespaces, key: self.key(), match_keys, mismatch_keys }
    }

    fn label_key(&mut self) -> &'static str {
        self.one(&["version", "version", "pod-template-hash", "job-name"])
    }

    fn spread(&mut self) -> Spread {
        let app = Selector::App(self.0.u8(0..2));
        let other = [Selector::NotApp(0), Selector::Versioned, Selector::Empty, Selector::Absent];
        let selector = if self.percent(75) { app } else { self.one(&other) };
        let honors_affinity = self.percent(80);
        let key = self.key();
        let has_keys = matches!(selector, Selector::App(_) | Selector::NotApp(_)) && self.percent(20);
        Spread {
            selector,
            // Hosts of other cases must not count.
            key: if key == Key::HostName && !honors_affinity { Key::Host } else { key },
            max_skew: self.0.u32(1..=2),
            min_domains: self.percent(20).then(|| self.0.u32(1..=3)),
            honors_affinity,
            honors_taints: self.percent(50),
            match_keys: if has_keys { vec![self.label_key()] } else { Vec::new() },
        }
    }

    fn ports(&mut self) -> Vec<Port> {
        let mut ports: Vec<Port> = Vec::new();
        for _ in 0..self.0.usize(1..=2) {
            let port = Port {
                port: self.0.u16(8080..=8081),
                protocol: self.one(&["TCP", "TCP", "UDP"]),
                address: self.one(&[None, None, Some("0.0.0.0"), Some("10.0.0.1"), Some("10.0.0.2")]),
            };
            if !ports.contains(&port) {
                ports.push(port);
            }
        }
        ports
    }
}

impl Default for Term {
    fn default() -> Self {
        Self {
            selector: Selector::Absent,
            namespaces: Namespaces::Own,
            key: Key::HostName,
            match_keys: Vec::new(),
            mismatch_keys: Vec::new(),
        }
    }
}

impl Port {
    /// Whether two pods with these ports cannot run on one node.
    pub fn conflicts(&self, other: &Self) -> bool {
        let is_any = |port: &Self| port.address.is_none_or(|address| address == "0.0.0.0");
        let at_one_address = is_any(self) || is_any(other) || self.address == other.address;
        self.port == other.port && self.protocol == other.protocol && at_one_address
    }
}
