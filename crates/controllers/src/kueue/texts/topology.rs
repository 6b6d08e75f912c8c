//! What the nodes of a topology lack for a pod set. After `pkg/cache/scheduler/tas_flavor_snapshot.go` of Kueue v0.19.

use std::collections::BTreeMap;

use api::scheduling_gate::HOSTNAME;
use index::Index;
use model::{Cause, Effect, Flavor, Gang, Node, Obstacle, PodSet, ResourceVec, TopologyMode, World};

/// The first pod set for which a topology has no room, and why. `None`: Kueue has no words for what is lacking.
pub(super) fn lacking_places(index: &Index, gang: &Gang, causes: &[&Cause]) -> Option<(usize, String)> {
    let world = index.world();
    let sets = gang.pod_sets.iter().enumerate().filter(|(_, set)| set.count > 0);
    let mut lacking = sets.filter_map(|(at, set)| {
        let flavor = flavor_of(world, gang, at, causes)?;
        let topology = index.topology_name(&flavor.name)?;
        Some((at, Room::of(world, flavor, set).message(topology, set)?))
    });
    lacking.next()
}

/// The flavor with a topology in which a pod set gets its places.
fn flavor_of<'w>(world: &'w World, gang: &Gang, at: usize, causes: &[&Cause]) -> Option<&'w Flavor> {
    let given = gang.state.assignment().and_then(|given| given.flavors.get(at));
    if let Some(given) = given.filter(|given| !given.is_empty()) {
        return given.values().find_map(|ix| world.flavors().get(ix)).filter(|flavor| has_topology(flavor));
    }
    let flavors = |cause: &&Cause| {
        if let Cause::WithFlavors { flavors, .. } = cause { flavors.clone() } else { Vec::new() }
    };
    let named: Vec<String> = causes.iter().flat_map(flavors).collect();
    let queue = world.queues().get(&gang.queue)?;
    let listed = queue.groups.iter().flat_map(|group| &group.flavors);
    let known = listed.filter_map(|ix| world.flavors().get(ix)).filter(|flavor| has_topology(flavor));
    let mut fitting = known.filter(|flavor| named.is_empty() || named.contains(&flavor.name));
    fitting.next()
}

fn has_topology(flavor: &Flavor) -> bool {
    !flavor.topology.is_empty()
}

/// The room for pods in the lowest domains of a topology.
#[derive(Default)]
struct Room {
    /// By the values of the levels: the number of pods that fit.
    domains: BTreeMap<Vec<String>, u64>,
    levels: Vec<String>,
    nodes: usize,
    /// The number of nodes that take no pod, by reason.
    excluded: BTreeMap<String, usize>,
}

impl Room {
    fn of(world: &World, flavor: &Flavor, set: &PodSet) -> Self {
        let mut room = Self { levels: flavor.topology.clone(), ..Self::default() };
        let are_nodes = flavor.topology.last().is_some_and(|lowest| lowest == HOSTNAME);
        let mut free: BTreeMap<Vec<String>, ResourceVec> = BTreeMap::new();
        let is_inside = |node: &&Node| {
            let mut wanted = flavor.node_labels.iter();
            node.is_open() && wanted.all(|(key, value)| node.labels.get(key) == Some(value))
        };
        for node in world.nodes().filter(is_inside) {
            let values: Option<Vec<String>> =
                flavor.topology.iter().map(|level| node.labels.get(level).cloned()).collect();
            let (Some(values), Some(ix)) = (values, world.node_ix(&node.name)) else { continue };
            if are_nodes {
                room.nodes += 1;
                if let Some(reason) = exclusion(world, flavor, set, node) {
                    *room.excluded.entry(reason).or_default() += 1;
                    continue;
                }
            }
            free.entry(values).or_default().add(&world.free(ix).amounts);
        }
        if !are_nodes {
            room.nodes = free.len();
        }
        for (values, free) in free {
            let fits = set.request.copies_in(&free, set.count);
            if let Some(name) = (fits == 0).then(|| scarce(world, set, &free)).flatten() {
                *room.excluded.entry(format!("resource {name:?}")).or_default() += 1;
            }
            room.domains.insert(values, u64::from(fits));
        }
        room
    }

    /// Why the pods do not fit; `None` if there is enough room in all.
    fn message(&self, topology: &str, set: &PodSet) -> Option<String> {
        let slices = set.topology.as_ref().map_or(&[][..], |request| &request.slices);
        if slices.len() > 1 {
            return None;
        }
        let (size, unit) = match slices.first().map(|slice| u64::from(slice.size.max(1))) {
            Some(size) if size > 1 => (size, "slice"),
            Some(_) | None => (1, "pod"),
        };
        let level_of = |level: &String| self.levels.iter().position(|known| known == level);
        let slice_level =
            slices.first().and_then(|slice| level_of(&slice.level)).unwrap_or(self.levels.len() - 1);
        let slices =
            summed(&self.domains, slice_level).into_iter().map(|(values, pods)| (values, pods / size));
        let slices: BTreeMap<Vec<String>, u64> = slices.collect();
        let required = match set.topology.as_ref().map(|request| &request.mode) {
            Some(TopologyMode::Required(level)) => level_of(level),
            Some(TopologyMode::Preferred(_) | TopologyMode::Unconstrained) | None => None,
        };
        let fitting = match required {
            Some(level) => summed(&slices, level.min(slice_level)).into_values().max().unwrap_or_default(),
            None => slices.into_values().sum(),
        };
        let wanted = u64::from(set.count) / size;
        if fitting >= wanted {
            return None;
        }
        let text = if fitting == 0 {
            format!("topology {topology:?} doesn't allow to fit any of {wanted} {unit}(s)")
        } else {
            format!("topology {topology:?} allows to fit only {fitting} out of {wanted} {unit}(s)")
        };
        if self.excluded.is_empty() {
            return Some(text);
        }
        let reasons = self.excluded.iter().map(|(reason, count)| format!("{reason}: {count}"));
        let reasons = reasons.collect::<Vec<_>>().join(", ");
        Some(format!("{text}. Total nodes: {}; excluded: {reasons}", self.nodes))
    }
}

/// The sums of numbers in the domains of a level.
fn summed(domains: &BTreeMap<Vec<String>, u64>, level: usize) -> BTreeMap<Vec<String>, u64> {
    let mut sums: BTreeMap<Vec<String>, u64> = BTreeMap::new();
    for (values, count) in domains {
        *sums.entry(values.iter().take(level + 1).cloned().collect()).or_default() += count;
    }
    sums
}

/// Why a node takes no pod of a set, whatever is free on it.
fn exclusion(world: &World, flavor: &Flavor, set: &PodSet, node: &Node) -> Option<String> {
    let keeps_off = |taint: &&model::Taint| {
        let mut tolerations = set.constraints.tolerations.iter().chain(&flavor.tolerations);
        taint.effect != Effect::PreferNoSchedule && !tolerations.any(|toleration| toleration.covers(taint))
    };
    if let Some(taint) = node.taints.iter().find(keeps_off) {
        let value = if taint.value.is_empty() { String::new() } else { format!("={}", taint.value) };
        return Some(format!("taint {:?}", format!("{}{value}:{}", taint.key, taint.effect)));
    }
    let class = world.node_ix(&node.name).and_then(|ix| world.class_of(ix))?;
    match set.constraints.obstacle(&world.class(class).class)? {
        Obstacle::Selector { .. } => Some("nodeSelector".into()),
        Obstacle::Affinity => Some("affinity".into()),
        Obstacle::Taint(_) | Obstacle::NotReady | Obstacle::Unschedulable | Obstacle::Excluded => None,
    }
}

/// The first resource, by name, of which there is too little for one pod.
fn scarce<'w>(world: &'w World, set: &PodSet, free: &ResourceVec) -> Option<&'w str> {
    let short = set.request.iter().filter(|(ix, amount)| amount.0 > 0 && free.get(*ix) < *amount);
    short.map(|(ix, _)| world.resources().name(ix)).min()
}
