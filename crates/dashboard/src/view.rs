//! The data of the page: serialized at `/api/view`, and rendered as HTML by `page`.

use jiff::Timestamp;
use model::{Gang, GangState, GangStatus, Node, Quantity, ResourceNames, ResourceVec, Time, World};
use serde::Serialize;

use crate::gang_status::{GangStatusView, state_name};

/// The cluster at one generation of the World.
#[derive(Debug, Serialize)]
pub struct View {
    /// Number of events that the World has applied.
    pub generation: u64,
    /// The nodes, ordered by name.
    pub nodes: Vec<NodeView>,
    /// The gangs: waiting gangs in queue order, then reserved gangs by name.
    pub gangs: Vec<GangView>,
}

/// One node.
#[derive(Debug, Serialize)]
pub struct NodeView {
    /// Name.
    pub name: String,
    /// Why the node accepts no new pods, if so.
    pub trouble: Option<&'static str>,
    /// The resources of the node.
    pub resources: Vec<ResourceView>,
}

/// One resource of a node; amounts are formatted as quantities.
#[derive(Debug, Serialize)]
pub struct ResourceView {
    /// Name.
    pub name: String,
    /// Amount of bound pods and of reserved places.
    pub used: String,
    /// Allocatable amount.
    pub allocatable: String,
    /// `used` in percent of `allocatable`, at most 100.
    pub used_percent: i64,
}

/// One gang.
#[derive(Debug, Serialize)]
pub struct GangView {
    /// The resource of its kind, with the API group.
    pub kind: String,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// State, as in [`GangStatusView`].
    pub state: &'static str,
    /// Whether it waits for capacity.
    pub waits: bool,
    /// Priority, rounded down.
    pub priority: i64,
    /// Number of pods.
    pub pods: u64,
    /// Assignment or shortage, as text.
    pub detail: String,
    /// The status as data, with position and expected start.
    #[serde(rename = "standing")]
    pub status: GangStatusView,
}

impl View {
    /// The view of the World at `now`. Visits all nodes and gangs.
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
        let quantity = |amount| Quantity::new(name, model::Amount(amount)).amount_text();
        let percent = i128::from(used) * 100 / i128::from(holds.0.max(1));
        ResourceView {
            name: name.to_owned(),
            used: quantity(used),
            allocatable: quantity(holds.0),
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
        state: state_name(status),
        waits: gang.state == GangState::Waiting,
        priority: gang.priority.div_euclid(1000),
        pods: gang.pod_sets.iter().map(|pod_set| u64::from(pod_set.count)).sum(),
        detail: detail(status),
        status: GangStatusView::of(status),
    }
}

/// The status as text; the position and start of a waiting gang have columns of their own.
fn detail(status: &GangStatus) -> String {
    match status {
        GangStatus::Pending(wait) => wait.shortage.to_string(),
        GangStatus::New
        | GangStatus::Preempting { .. }
        | GangStatus::Preempted { .. }
        | GangStatus::Running { .. } => status.to_string(),
    }
}
