//! Scheduling rules between pods: inter-pod affinity and anti-affinity, topology spread constraints, and host ports.
//!
//! The rules name other pods by label selector. Selectors are resolved outside: the model knows an index for each
//! selector, and for each pod the selectors that select it.

use std::collections::BTreeSet;
use std::fmt;

/// A label selector with the namespaces in which it selects pods, as a dense index. Equal selectors have equal indices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SelectorIx(pub u32);

/// The rules of identical pods that concern other pods, and the rules of other pods that concern them.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodRules {
    /// The selectors of required affinity terms, anti-affinity terms and spread constraints in the cluster that select
    /// these pods. Spread constraints have selectors of their own, which do not select pods that are being deleted.
    pub selected_by: BTreeSet<SelectorIx>,
    /// Required anti-affinity: no selected pod may be in the domain of a pod with such a term. The rule holds in both
    /// directions: neither may join the other.
    pub anti_affinity: BTreeSet<PodTerm>,
    /// Required affinity.
    pub affinity: Option<PodAffinity>,
    /// Topology spread constraints with `DoNotSchedule`.
    pub spread: Vec<SpreadConstraint>,
    /// Ports that the pods occupy on their node.
    pub host_ports: BTreeSet<HostPort>,
}

/// A required anti-affinity term.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodTerm {
    /// The pods to keep away from.
    pub selector: SelectorIx,
    /// The label key whose value names the domain of a node. A node without the label is in no domain, and the term
    /// does not concern it. [`Self::CLUSTER`]: one domain has all nodes.
    pub topology_key: String,
}

/// The required affinity of a pod: a selected pod must be in its domain for each of the keys. A pod that the selector
/// selects too may be the first one: it is allowed anywhere while no selected pod exists. After kube-scheduler
/// (`plugins/interpodaffinity`), where only pods that all terms select count.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodAffinity {
    /// The pods that all terms select.
    pub selector: SelectorIx,
    /// The label keys of the terms. A node must have all of them.
    pub topology_keys: BTreeSet<String>,
}

/// A topology spread constraint with `DoNotSchedule`: a domain may have at most `max_skew` selected pods more than the
/// eligible domain that has the fewest. After kube-scheduler (`plugins/podtopologyspread`).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpreadConstraint {
    /// The pods that are counted.
    pub selector: SelectorIx,
    /// The label key whose value names the domain of a node. A node needs the keys of all constraints of the pod.
    pub topology_key: String,
    /// At least 1.
    pub max_skew: u32,
    /// With fewer eligible domains the fewest pods count as 0. At least 1.
    pub min_domains: u32,
    /// Only nodes that match the pod's node selector and node affinity count as domains (`nodeAffinityPolicy: Honor`).
    pub honors_affinity: bool,
    /// Only nodes whose taints the pod tolerates count as domains (`nodeTaintsPolicy: Honor`).
    pub honors_taints: bool,
}

/// A port of a node. Two pods on one node conflict when protocol and port are equal and their addresses are equal, or
/// one of them has every address.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPort {
    /// 1 to 65535.
    pub port: u16,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// The address on the node. `None`: every address.
    pub address: Option<String>,
}

/// What a pod on a node means for the rules of other pods.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PodMark {
    /// A selector selects it.
    Selected(SelectorIx),
    /// The same, and it is bound to the node, not only planned there.
    BoundAndSelected(SelectorIx),
    /// It has an anti-affinity term.
    KeepsAway(PodTerm),
    /// It occupies a port of the node.
    Occupies(HostPort),
    /// It is planned there and not bound yet, and has required affinity to pods that its own selector selects.
    Joins(PodAffinity),
    /// It is planned there and not bound yet, and has a spread constraint with this selector that depends on other
    /// nodes even when the pod is pinned.
    Spreads(SelectorIx),
}

impl PodTerm {
    /// The topology key of the domain that has all nodes: only one of the pods may exist in the cluster. Kubernetes does
    /// not accept it as a label key.
    pub const CLUSTER: &str = "";
}

impl PodRules {
    /// What such a pod means for the rules of other pods, when it is bound or only planned.
    pub fn marks(&self, is_bound: bool) -> impl Iterator<Item = PodMark> {
        let selected = self.selected_by.iter().map(|selector| PodMark::Selected(*selector));
        let bound = self.selected_by.iter().filter(move |_| is_bound);
        let bound = bound.map(|selector| PodMark::BoundAndSelected(*selector));
        let away = self.anti_affinity.iter().cloned().map(PodMark::KeepsAway);
        let ports = self.host_ports.iter().cloned().map(PodMark::Occupies);
        let joins = self.affinity.iter().filter(move |_| !is_bound);
        let joins = joins.filter(|affinity| self.selected_by.contains(&affinity.selector));
        let spreads = self.spread.iter().filter(move |constraint| !is_bound && constraint.exceeds_pin());
        let spreads = spreads.map(|constraint| PodMark::Spreads(constraint.selector));
        let joins = joins.cloned().map(PodMark::Joins);
        selected.chain(bound).chain(away).chain(ports).chain(joins).chain(spreads)
    }

    /// Whether the rules of such a pod depend on other pods with this mark.
    pub fn concerns(&self, mark: &PodMark) -> bool {
        match mark {
            PodMark::Selected(selector) => {
                self.anti_affinity.iter().any(|term| term.selector == *selector)
                    || self.affinity.iter().any(|affinity| affinity.selector == *selector)
                    || self.spread.iter().any(|constraint| constraint.selector == *selector)
            }
            PodMark::BoundAndSelected(selector) => {
                self.affinity.iter().any(|affinity| affinity.selector == *selector)
            }
            PodMark::KeepsAway(term) => self.selected_by.contains(&term.selector),
            PodMark::Occupies(port) => self.host_ports.iter().any(|other| other.conflicts(port)),
            PodMark::Joins(affinity) => self.selected_by.contains(&affinity.selector),
            PodMark::Spreads(selector) => self.selected_by.contains(selector),
        }
    }

    /// Whether the pods have a rule of their own.
    pub fn has_rules(&self) -> bool {
        let Self { selected_by: _, anti_affinity, affinity, spread, host_ports } = self;
        !anti_affinity.is_empty() || affinity.is_some() || !spread.is_empty() || !host_ports.is_empty()
    }

    /// Whether the pods have no rule and no rule concerns them.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl SpreadConstraint {
    /// Whether kube-scheduler may refuse a pod with this constraint on the node that it is pinned to. The only domain
    /// of such a pod is that of its node, unless the constraint ignores its node selector. With one domain, each pod is
    /// admitted, unless more domains are required.
    pub fn exceeds_pin(&self) -> bool {
        !self.honors_affinity || self.min_domains > 1
    }
}

impl HostPort {
    /// Whether two pods with these ports cannot run on one node.
    pub fn conflicts(&self, other: &Self) -> bool {
        let any = self.address.is_none() || other.address.is_none();
        self.port == other.port && self.protocol == other.protocol && (any || self.address == other.address)
    }
}

impl fmt::Display for HostPort {
    /// Writes the port as `8080/TCP`, or as `10.0.0.1:8080/TCP` with an address.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self.address.as_ref().map_or(String::new(), |address| format!("{address}:"));
        write!(f, "{address}{}/{}", self.port, self.protocol)
    }
}
