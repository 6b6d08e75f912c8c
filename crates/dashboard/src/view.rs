//! What the page shows, as plain values: the JSON of `/api/view`, and what the page is made from.

use jiff::Timestamp;
use model::{Gang, GangState, GangStatus, Node, Quantity, ResourceNames, ResourceVec, Time, World};
use serde::Serialize;

use crate::gang_status::{GangStatusView, word};

/// The cluster at one generation of the world.
#[derive(Debug, Serialize)]
pub struct View {
    /// Counts the events that were folded.
    pub generation: u64,
    /// Nodes, by name.
    pub nodes: Vec<NodeView>,
    /// Gangs: those that wait in their order, then those that hold capacity, by name.
    pub gangs: Vec<GangView>,
}

/// One node.
#[derive(Debug, Serialize)]
pub struct NodeView {
    /// Its name.
    pub name: String,
    /// Why nothing new is placed on it, if so.
    pub trouble: Option<&'static str>,
    /// What it holds, resource by resource.
    pub resources: Vec<ResourceView>,
}

/// One resource of a node; amounts as people write them.
#[derive(Debug, Serialize)]
pub struct ResourceView {
    /// The resource's name.
    pub name: String,
    /// Bound or promised.
    pub used: String,
    /// What pods may ask for in total.
    pub allocatable: String,
    /// `used` in percent of `allocatable`, at most 100.
    pub used_percent: i64,
}

/// One gang.
#[derive(Debug, Serialize)]
pub struct GangView {
    /// The full resource name of its kind.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// What it does, in one word.
    pub state: &'static str,
    /// Whether it waits for capacity.
    pub waits: bool,
    /// In whole units, rounded down.
    pub priority: i64,
    /// How many pods it has.
    pub pods: u64,
    /// Where it is, or why it waits, in words.
    pub detail: String,
    /// The same in figures, and when it could start.
    pub status: GangStatusView,
}

impl View {
    /// Reads the world at a time; costs a pass over all nodes and gangs.
    pub fn of(world: &World, now: Timestamp) -> Self {
        let snapshot = world.snapshot(Time(now.as_microsecond()));
        let names = world.resources();
        let nodes = world.nodes().map(|node| node_view(world, names, node)).collect();
        let mut gangs: Vec<_> = world.gangs().collect();
        let positions = world.positions(gangs.iter().map(|gang| &*gang.uid), snapshot.now);
        gangs.sort_by_cached_key(|gang| {
            let place = positions.get(&*gang.uid).map_or(0, |position| position.place);
            (gang.state != GangState::Waiting, gang.queue, place, gang.key.clone())
        });
        let view = |gang: &&Gang| {
            let status = GangStatus::at(&snapshot, &gang.uid, positions.get(&*gang.uid));
            gang_view(gang, &status.unwrap_or(GangStatus::New))
        };
        let gangs = gangs.iter().map(view).collect();
        Self { generation: world.generation(), nodes, gangs }
    }
}

fn node_view(world: &World, names: &ResourceNames, node: &Node) -> NodeView {
    let trouble = match (node.ready, node.unschedulable) {
        (false, _) => Some("not ready"),
        (true, true) => Some("cordoned"),
        (true, false) => None,
    };
    let free = world.usage(&node.name).map(|usage| usage.free).unwrap_or_default();
    NodeView { name: node.name.clone(), trouble, resources: resource_views(names, &node.allocatable, &free) }
}

fn resource_views(names: &ResourceNames, allocatable: &ResourceVec, free: &ResourceVec) -> Vec<ResourceView> {
    let view = |(ix, holds): (model::ResourceIx, model::Amount)| {
        let name = names.name(ix);
        let used = holds.0.saturating_sub(free.get(ix).0);
        let figure = |amount| Quantity::new(name, model::Amount(amount)).figure();
        let percent = i128::from(used) * 100 / i128::from(holds.0.max(1));
        ResourceView {
            name: name.to_owned(),
            used: figure(used),
            allocatable: figure(holds.0),
            used_percent: i64::try_from(percent.clamp(0, 100)).expect("a percentage fits"),
        }
    };
    allocatable.iter().map(view).collect()
}

fn gang_view(gang: &Gang, status: &GangStatus) -> GangView {
    GangView {
        kind: gang.key.kind.clone(),
        namespace: gang.key.namespace.clone(),
        name: gang.key.name.clone(),
        state: word(status),
        waits: gang.state == GangState::Waiting,
        priority: gang.priority.div_euclid(1000),
        pods: gang.pod_sets.iter().map(|pod_set| u64::from(pod_set.count)).sum(),
        detail: detail(status),
        status: GangStatusView::of(status),
    }
}

/// The words for a status; position and start of one that waits are shown beside them.
fn detail(status: &GangStatus) -> String {
    match status {
        GangStatus::Pending(wait) => wait.shortage.to_string(),
        GangStatus::New
        | GangStatus::Preempting { .. }
        | GangStatus::Preempted { .. }
        | GangStatus::Running { .. } => status.to_string(),
    }
}
