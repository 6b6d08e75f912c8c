//! Parsing of scenario text.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{
    Amount, Assignment, Backfill, DeviceShare, Effect, Event, FlavorIx, Gang, GangKey, GangState, Node,
    Operator, Packing, Places, Pod, PodSet, Policy, Preemption, PreemptionPolicy, Replaced, Requirement,
    ResourceIx, ResourceNames, ResourceVec, Taint, Term, Time, Toleration, TolerationOperator, Victim, World,
};

use crate::{pod_rules, preemption, quantity, quota, topology, usage_order};

/// A line that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct Error {
    /// The number of the line, from 1.
    pub line: usize,
    /// The error in the line.
    pub problem: Problem,
}

/// The error in a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The first word is not one of those known.
    #[error(
        "`{0}` is neither node, pod, policy, flavor, quota, queue, stopped, served, clock, pending, running, nominated nor foreign"
    )]
    /// The first word is not a kind of object.
    Kind(String),
    /// The name is missing.
    #[error("a name is missing")]
    NoName,
    /// A word that is not valid for this kind of object.
    #[error("`{0}` is not valid here")]
    Word(String),
    /// An invalid value.
    #[error("`{0}` has an invalid value")]
    Value(String),
}

/// Parses a world.
pub fn parse(text: &str) -> Result<World, Error> {
    let mut world = World::new();
    for (at, line) in text.lines().enumerate() {
        let events = line_events(&mut world, at, line).map_err(|problem| Error { line: at + 1, problem })?;
        for event in events {
            world.apply(event);
        }
    }
    Ok(world)
}

/// Parses lines about gangs. Resources, queues and quota nodes are looked up in an existing world.
pub fn gangs(world: &mut World, text: &str) -> Result<Vec<Gang>, Error> {
    let mut gangs = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let words = words(line);
        let problem = |problem| Error { line: at + 1, problem };
        if let [kind, rest @ ..] = words.as_slice() {
            gangs.push(gang(world, at, kind, rest).map_err(problem)?);
        }
    }
    Ok(gangs)
}

fn words(line: &str) -> Vec<&str> {
    line.split('#').next().unwrap_or_default().split_whitespace().collect()
}

fn line_events(world: &mut World, at: usize, line: &str) -> Result<Vec<Event>, Problem> {
    let words = words(line);
    let [kind, rest @ ..] = words.as_slice() else { return Ok(Vec::new()) };
    let (old, names) = (world.policy().clone(), world.resources_mut());
    Ok(match *kind {
        "flavor" => vec![Event::FlavorUpserted(quota::flavor(rest)?)],
        "quota" => vec![Event::QuotaUpserted(quota::node(world, rest)?)],
        "served" => vec![usage_order::served(world, rest)?],
        "clock" => vec![usage_order::clock(rest)?],
        "queue" => vec![Event::QueueUpserted(quota::queue(world, rest)?)],
        "node" => nodes(names, rest)?.into_iter().map(Event::NodeUpserted).collect(),
        "pod" => vec![Event::PodUpserted(pod(names, rest)?)],
        "policy" => vec![Event::PolicySet(policy(old, rest)?)],
        "stopped" => {
            let [gang, words @ ..] = rest else { return Err(Problem::NoName) };
            let by = |word: &&str| {
                word.strip_prefix("for=")
                    .map(|by| preemption::preemption_events(gang, by))
                    .ok_or_else(|| Problem::Word((*word).to_owned()))
            };
            words.iter().map(by).collect::<Result<Vec<_>, _>>()?.concat()
        }
        kind => vec![Event::GangUpserted(gang(world, at, kind, rest)?)],
    })
}

fn policy(mut policy: Policy, words: &[&str]) -> Result<Policy, Problem> {
    for word in words {
        match *word {
            "preemption=lower-priority" => policy.preemption = PreemptionPolicy::LowerPriority,
            "backfill=reserve" => policy.backfill = Backfill::Reserve,
            word if word.starts_with("backfill=conservative:") => {
                let heads = word["backfill=conservative:".len()..].parse();
                let heads = heads.map_err(|_| Problem::Value(word.to_owned()))?;
                policy.backfill = Backfill::Conservative { depth: heads };
            }
            word if word.starts_with("packing=") => {
                let packing = Packing::from_name(&word["packing=".len()..]);
                policy.packing = packing.ok_or_else(|| Problem::Word(word.to_owned()))?;
            }
            word if word.starts_with("guessed-hold=") => {
                let seconds: Result<i64, _> = word["guessed-hold=".len()..].parse();
                let seconds = seconds.map_err(|_| Problem::Value(word.to_owned()))?;
                policy.guessed_hold_us = seconds.saturating_mul(1_000_000);
            }
            "topology=balanced" => policy.topology.balances = true,
            "topology=best-fit" => policy.topology.fills_gaps = false,
            "backfill=best-effort" => policy.backfill = Backfill::BestEffort,
            "preemption=never" => policy.preemption = PreemptionPolicy::Never,
            word => {
                let rule = word.strip_prefix("fair-sharing=").and_then(preemption::fair_sharing);
                policy.fair_sharing = Some(rule.ok_or_else(|| Problem::Word(word.to_owned()))?);
            }
        }
    }
    Ok(policy)
}

fn nodes(names: &mut ResourceNames, words: &[&str]) -> Result<Vec<Node>, Problem> {
    let [name, words @ ..] = words else { return Err(Problem::NoName) };
    let mut count = None;
    let mut node = Node { ready: true, ..Node::default() };
    node.allocatable.set(ResourceIx::PODS, Amount(110));
    for word in words {
        if let Some(times) = times(word) {
            count = Some(times);
        } else if let Some(label) = word.strip_prefix("label:") {
            let (key, value) = label.split_once('=').ok_or_else(|| Problem::Value((*word).to_owned()))?;
            node.labels.insert(key.to_owned(), value.to_owned());
        } else if let Some(text) = word.strip_prefix("taint:") {
            node.taints.push(taint(text).ok_or_else(|| Problem::Value((*word).to_owned()))?);
        } else if *word == "cordoned" {
            node.unschedulable = true;
        } else if *word == "notready" {
            node.ready = false;
        } else {
            resource(names, word, &mut node.allocatable)?;
        }
    }
    let named = |name: String| Node { name, ..node.clone() };
    Ok(match count {
        None => vec![named((*name).to_owned())],
        Some(count) => (1..=count).map(|at| named(format!("{name}-{at}"))).collect(),
    })
}

pub(crate) fn taint(text: &str) -> Option<Taint> {
    let (rest, effect) = text.rsplit_once(':')?;
    let (key, value) = rest.split_once('=').unwrap_or((rest, ""));
    Some(Taint { key: key.to_owned(), value: value.to_owned(), effect: effect_of(effect)? })
}

fn effect_of(text: &str) -> Option<Effect> {
    [Effect::NoSchedule, Effect::PreferNoSchedule, Effect::NoExecute]
        .into_iter()
        .find(|effect| effect.to_string() == text)
}

fn pod(names: &mut ResourceNames, words: &[&str]) -> Result<Pod, Problem> {
    let [name, words @ ..] = words else { return Err(Problem::NoName) };
    let mut pod = Pod {
        uid: (*name).to_owned(),
        name: (*name).to_owned(),
        namespace: "default".into(),
        ..Pod::default()
    };
    pod.request.set(ResourceIx::PODS, Amount(1));
    for word in words {
        if let Some(node) = word.strip_prefix("on=") {
            let (node, device) = place(node).ok_or_else(|| Problem::Value((*word).to_owned()))?;
            (pod.node, pod.device) = (Some(node), device);
        } else if let Some(share) = word.strip_prefix("share:") {
            pod.share = Some(self::share(names, share).ok_or_else(|| Problem::Value((*word).to_owned()))?);
        } else if let Some(gang) = word.strip_prefix("of=") {
            let bad = || Problem::Value((*word).to_owned());
            let (gang, set) = gang.rsplit_once('/').ok_or_else(bad)?;
            pod.gang = Some((gang.to_owned(), set.parse().map_err(|_| bad())?));
        } else if *word == "leaving" {
            pod.is_leaving = true;
        } else {
            match pod_rules::read(word, &mut pod.rules) {
                Some(true) => {}
                Some(false) => return Err(Problem::Value((*word).to_owned())),
                None => resource(names, word, &mut pod.request)?,
            }
        }
    }
    Ok(pod)
}

fn gang(world: &mut World, at: usize, kind: &str, words: &[&str]) -> Result<Gang, Problem> {
    if !["pending", "running", "nominated", "foreign"].contains(&kind) {
        return Err(Problem::Kind(kind.to_owned()));
    }
    let [name, words @ ..] = words else { return Err(Problem::NoName) };
    let seconds = i64::try_from(at).unwrap_or(i64::MAX).saturating_add(1);
    let mut gang = Gang {
        key: GangKey { kind: "gangs".into(), namespace: "default".into(), name: (*name).to_owned() },
        queued_at: Time(seconds.saturating_mul(1_000_000)),
        ..Gang::default()
    };
    let mut sets: Vec<(PodSet, AssignedPods)> = Vec::new();
    let mut reclaimable = Vec::new();
    let mut unplaced: Vec<u32> = Vec::new();
    let mut victims = Vec::new();
    let mut words = words.iter().copied().peekable();
    while let Some(word) = words.next() {
        if let Some(count) = words.peek().and_then(|next| times(next)) {
            words.next();
            let mut pod_set = PodSet { name: word.to_owned(), count, ..PodSet::default() };
            pod_set.request.set(ResourceIx::PODS, Amount(1));
            sets.push((pod_set, AssignedPods::default()));
        } else if let Some((pod_set, places)) = sets.last_mut() {
            if let Some(done) = word.strip_prefix("done=") {
                let done = done.parse().map_err(|_| Problem::Value(word.to_owned()))?;
                reclaimable.resize(sets.len(), 0);
                reclaimable[sets.len() - 1] = done;
            } else if let Some(count) = word.strip_prefix("unplaced=") {
                let count = count.parse().map_err(|_| Problem::Value(word.to_owned()))?;
                unplaced.resize(sets.len(), 0);
                unplaced[sets.len() - 1] = count;
            } else {
                in_pod_set(world, word, pod_set, places)?;
            }
        } else {
            in_gang(world, word, &mut gang, &mut victims)?;
        }
    }
    let (pod_sets, places): (Vec<_>, Vec<_>) = sets.into_iter().unzip();
    let (places, mut flavors): (Vec<_>, Vec<_>) = places.into_iter().unzip();
    if flavors.iter().all(BTreeMap::is_empty) {
        flavors.clear();
    }
    if let Some(replaced) = gang.replaces.as_mut().map(Arc::make_mut) {
        replaced.flavors.clone_from(&flavors);
    }
    unplaced.truncate(pod_sets.len());
    let assignment = Assignment { flavors, unplaced, ..assignment(&places) };
    gang.pod_sets = pod_sets.into();
    gang.reclaimable = reclaimable;
    gang.uid = if gang.key.namespace == "default" { gang.key.name.clone() } else { gang.key.to_string() };
    gang.state = match kind {
        "running" => GangState::Reserved(assignment),
        "nominated" => GangState::Nominated(Preemption { victims, assignment }),
        "foreign" => GangState::Unplaced,
        _ => GangState::Waiting,
    };
    Ok(gang)
}

/// The word for when the pods of a gang get nodes.
pub(crate) fn places_word(places: Places) -> &'static str {
    match places {
        Places::AtAdmission => "",
        Places::Open => "open",
        Places::Requested => "requested",
    }
}

/// The assigned nodes of the pods of a set, and their flavors.
type AssignedPods = (Vec<Place>, BTreeMap<ResourceIx, FlavorIx>);

fn in_gang(world: &mut World, word: &str, gang: &mut Gang, victims: &mut Vec<Victim>) -> Result<(), Problem> {
    let bad = || Problem::Value(word.to_owned());
    if let Some(declared) = word.strip_prefix("declared:") {
        return resource(world.resources_mut(), declared, gang.declared.get_or_insert_default());
    }
    if word == "protected" {
        gang.protected = true;
        return Ok(());
    }
    if word == "gated" {
        gang.gated = true;
        return Ok(());
    }
    if word == "elastic" {
        gang.elastic = true;
        return Ok(());
    }
    let (key, value) = word.split_once('=').ok_or_else(|| Problem::Word(word.to_owned()))?;
    let scaled = |unit: i64| value.parse().map(|number: i64| number.saturating_mul(unit)).map_err(|_| bad());
    match key {
        "priority" => gang.priority = scaled(1000)?,
        "slope" => gang.slope = scaled(1)?,
        "at" => gang.queued_at = Time(scaled(1_000_000)?),
        "started" => gang.started_at = Some(Time(scaled(1_000_000)?)),
        "runs" => gang.runs_us = Some(scaled(1_000_000)?),
        "checkpointed" => gang.checkpointed_at = Some(Time(scaled(1_000_000)?)),
        "excluded" => gang.excluded = Arc::new(value.split(',').map(str::to_owned).collect()),
        "replaces" => gang.replaces = Some(Arc::new(Replaced { uid: value.to_owned(), flavors: Vec::new() })),
        "unhealthy" => gang.unhealthy = Arc::new(value.split(',').map(str::to_owned).collect()),
        "places" => {
            let all = [Places::Open, Places::Requested];
            gang.places = all.into_iter().find(|places| places_word(*places) == value).ok_or_else(bad)?;
        }
        "victims" => victims.extend(preemption::victims(value)),
        "queue" => gang.queue = world.queue_ix(value),
        "from" => gang.local_queue = world.local_queue_ix(value),
        "charge" => gang.charges = value.split(',').map(|name| world.quota_ix(name)).collect(),
        "kind" => value.clone_into(&mut gang.key.kind),
        "namespace" => value.clone_into(&mut gang.key.namespace),
        _ => return Err(Problem::Word(word.to_owned())),
    }
    Ok(())
}

fn in_pod_set(
    world: &mut World,
    word: &str,
    pod_set: &mut PodSet,
    (places, flavors): &mut AssignedPods,
) -> Result<(), Problem> {
    let bad = || Problem::Value(word.to_owned());
    let constraints = &mut pod_set.constraints;
    if let Some(nodes) = word.strip_prefix("on=") {
        for text in nodes.split(',') {
            let (text, count) = text.split_once('*').unwrap_or((text, "1"));
            let (node, device) = place(text).ok_or_else(bad)?;
            places.push(Place { node, device, count: count.parse().map_err(|_| bad())? });
        }
    } else if let Some(text) = word.strip_prefix("share:") {
        pod_set.share = Some(share(world.resources_mut(), text).ok_or_else(bad)?);
    } else if let Some(counted) = word.strip_prefix("quota:") {
        let one = || ResourceVec::new().with(ResourceIx::PODS, 1).into();
        resource(world.resources_mut(), counted, Arc::make_mut(pod_set.charged.get_or_insert_with(one)))?;
    } else if let Some(label) = word.strip_prefix("select:") {
        let (key, value) = label.split_once('=').ok_or_else(bad)?;
        constraints.node_selector.insert(key.to_owned(), value.to_owned());
    } else if let Some(wanted) = word.strip_prefix("affinity:") {
        last_term(&mut constraints.node_affinity).expressions.push(requirement(wanted));
    } else if let Some(wanted) = word.strip_prefix("field:") {
        last_term(&mut constraints.node_affinity).fields.push(requirement(wanted));
    } else if let Some(text) = word.strip_prefix("prefer:") {
        let term = preferred(text).ok_or_else(bad)?;
        pod_set.preferred = pod_set.preferred.iter().cloned().chain([term]).collect();
    } else if let Some(least) = word.strip_prefix("min=") {
        pod_set.min_count = Some(least.parse().map_err(|_| bad())?);
    } else if let Some(group) = word.strip_prefix("group=") {
        pod_set.group = Some(group.to_owned());
    } else if word == "or" {
        constraints.node_affinity.push(Term::default());
    } else if let Some(text) = word.strip_prefix("tolerate:") {
        constraints.tolerations.push(toleration(text));
    } else if let Some(given) = word.strip_prefix("flavor:") {
        let (resource, flavor) = given.split_once('=').ok_or_else(bad)?;
        flavors.insert(world.resources_mut().intern(resource), world.flavor_ix(flavor));
    } else {
        let rule = pod_rules::read(word, &mut pod_set.rules);
        match rule.or_else(|| topology::read(word, pod_set)) {
            Some(true) => {}
            Some(false) => return Err(bad()),
            None => resource(world.resources_mut(), word, &mut pod_set.request)?,
        }
    }
    Ok(())
}

/// The assigned node and device of pods of a set.
struct Place {
    node: String,
    device: Option<u32>,
    count: u32,
}

/// Parses `NODE` or `NODE/DEVICE`.
fn place(text: &str) -> Option<(String, Option<u32>)> {
    match text.split_once('/') {
        Some((node, device)) => Some((node.to_owned(), Some(device.parse().ok()?))),
        None => Some((text.to_owned(), None)),
    }
}

fn assignment(sets: &[Vec<Place>]) -> Assignment {
    let mut assignment = Assignment::default();
    for places in sets {
        let mut nodes: Vec<(String, u32)> = Vec::new();
        for Place { node, count, .. } in places {
            match nodes.last_mut().filter(|(last, _)| last == node) {
                Some((_, before)) => *before = before.saturating_add(*count),
                None => nodes.push((node.clone(), *count)),
            }
        }
        assignment.pod_sets.push(nodes);
        let device = |place: &Place| Some((place.node.clone(), place.device?, place.count));
        assignment.devices.push(places.iter().filter_map(device).collect());
    }
    if assignment.devices.iter().all(Vec::is_empty) {
        assignment.devices.clear();
    }
    assignment
}

/// Parses `RESOURCE=MILLIm`.
fn share(names: &mut ResourceNames, text: &str) -> Option<DeviceShare> {
    let (name, value) = text.split_once('=')?;
    DeviceShare::new(names.intern(name), value.strip_suffix('m')?.parse().ok()?).ok()
}

fn last_term(terms: &mut Vec<Term>) -> &mut Term {
    if terms.is_empty() {
        terms.push(Term::default());
    }
    terms.last_mut().expect("one was pushed if there was none")
}

/// A weight and the requirements of a term, joined by `&`.
fn preferred(text: &str) -> Option<(u32, Term)> {
    let (weight, wanted) = text.split_once(':')?;
    let mut term = Term::default();
    for wanted in wanted.split('&') {
        match wanted.strip_prefix("field:") {
            Some(field) => term.fields.push(requirement(field)),
            None => term.expressions.push(requirement(wanted)),
        }
    }
    Some((weight.parse().ok()?, term))
}

fn requirement(text: &str) -> Requirement {
    let operators = [("!=", Operator::NotIn), ("=", Operator::In), (">", Operator::Gt), ("<", Operator::Lt)];
    let found =
        operators.iter().find_map(|(sign, operator)| text.split_once(sign).map(|parts| (parts, *operator)));
    let (key, operator, values) = match found {
        Some(((key, values), operator)) => (key, operator, values.split('|').map(str::to_owned).collect()),
        None => match text.strip_prefix('!') {
            Some(key) => (key, Operator::DoesNotExist, Vec::new()),
            None => (text, Operator::Exists, Vec::new()),
        },
    };
    Requirement { key: key.to_owned(), operator, values }
}

pub(crate) fn toleration(text: &str) -> Toleration {
    let with_effect = text.rsplit_once(':').and_then(|(rest, effect)| Some((rest, Some(effect_of(effect)?))));
    let (rest, effect) = with_effect.unwrap_or((text, None));
    let (key, operator, value) = match rest.split_once('=') {
        Some((key, value)) => (key, TolerationOperator::Equal, value),
        None => (rest, TolerationOperator::Exists, ""),
    };
    let key = (!key.is_empty()).then(|| key.to_owned());
    Toleration { key, operator, value: value.to_owned(), effect }
}

fn resource(names: &mut ResourceNames, word: &str, to: &mut ResourceVec) -> Result<(), Problem> {
    let (name, value) = word.split_once('=').ok_or_else(|| Problem::Word(word.to_owned()))?;
    let amount = quantity::parse(name, value).ok_or_else(|| Problem::Value(word.to_owned()))?;
    to.set(names.intern(name), amount);
    Ok(())
}

fn times(word: &str) -> Option<u32> {
    word.strip_suffix('x').and_then(|digits| digits.parse().ok())
}
