//! The data of the page: serialized at `/api/view`, and rendered as HTML by `page`.

use std::collections::BTreeMap;

use jiff::Timestamp;
use model::{Gang, GangKey, GangState, GangStatus, Node, Quantity, ResourceNames, ResourceVec, Time, World};
use serde::Serialize;

use crate::gang_status::{GangStatusView, state_name};

/// The cluster at one generation of the World.
#[derive(Debug, Serialize)]
pub struct View {
    /// Number of events that the World has applied.
    pub generation: u64,
    /// The nodes, ordered by name.
    pub nodes: Vec<NodeView>,
    /// The gangs: waiting gangs in queue order, those that are not queued, then reserved gangs by name.
    pub gangs: Vec<GangView>,
    /// What has ended and is not among the gangs: its number by kind.
    pub ended: BTreeMap<String, u64>,
}

/// What the World does not have, since no plan is made for it.
#[derive(Debug, Clone, Default)]
pub struct Unplanned {
    /// Objects that are not queued.
    pub unqueued: Vec<Unqueued>,
    /// The number of objects that have ended, by kind.
    pub ended: BTreeMap<String, u64>,
}

/// An object that cannot be queued, or that something holds back.
#[derive(Debug, Clone, Default)]
pub struct Unqueued {
    /// Its name.
    pub key: GangKey,
    /// Its state, as `muster why -o json` names it.
    pub state: String,
    /// Why, one sentence each.
    pub causes: Vec<String>,
    /// Priority, rounded down.
    pub priority: i64,
    /// Number of pods; `None`: it is not known.
    pub pods: Option<u64>,
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
    pub state: String,
    /// Whether it waits for capacity.
    pub waits: bool,
    /// Whether a plan is made for it.
    pub planned: bool,
    /// Priority, rounded down.
    pub priority: i64,
    /// Number of pods; absent if it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pods: Option<u64>,
    /// Assignment or shortage, as text.
    pub detail: String,
    /// The status as data, with position and expected start.
    #[serde(rename = "standing")]
    pub status: GangStatusView,
}

impl View {
    /// The view of the World at `now`, with what it does not have. Visits all nodes and gangs.
    pub fn of(world: &World, unplanned: Unplanned, now: Timestamp) -> Self {
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
        let (waiting, others) =
            gangs.split_at(gangs.partition_point(|gang| gang.state == GangState::Waiting));
        let Unplanned { mut unqueued, ended } = unplanned;
        unqueued.sort_by(|a, b| a.key.cmp(&b.key));
        let unqueued = unqueued.into_iter().map(unqueued_view);
        let gangs = waiting.iter().map(view).chain(unqueued).chain(others.iter().map(view)).collect();
        Self { generation: world.generation(), nodes, gangs, ended }
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
        state: state_name(status).into(),
        waits: gang.state == GangState::Waiting,
        planned: true,
        priority: gang.priority.div_euclid(1000),
        pods: Some(gang.pod_sets.iter().map(|pod_set| u64::from(pod_set.count)).sum()),
        detail: detail(status),
        status: GangStatusView::of(status),
    }
}

fn unqueued_view(unqueued: Unqueued) -> GangView {
    let Unqueued { key: GangKey { kind, namespace, name }, state, causes, priority, pods } = unqueued;
    let (detail, waits, planned) = (causes.join("; "), false, false);
    let status = GangStatusView { state: state.clone().into(), causes, ..GangStatusView::default() };
    GangView { kind, namespace, name, state, waits, planned, priority, pods, detail, status }
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
