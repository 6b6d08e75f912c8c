//! What the page shows, as plain values: the JSON of `/api/view`, and what the page is made from.

use model::{Gang, GangState, Node, Quantity, ResourceNames, ResourceVec, Verdict, World};
use serde::Serialize;

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
    /// Its nodes, or why it waits.
    pub detail: String,
}

impl View {
    /// Reads the world; costs a pass over all nodes and gangs.
    pub fn of(world: &World) -> Self {
        let names = world.resources();
        let nodes = world.nodes().map(|node| node_view(world, names, node)).collect();
        let mut gangs: Vec<_> = world.gangs().collect();
        gangs.sort_by_cached_key(|gang| {
            let holds = gang.state != GangState::Waiting;
            let order = if holds { (0, model::Time::default()) } else { (-gang.priority, gang.queued_at) };
            (holds, order, gang.key.clone())
        });
        let gangs = gangs.into_iter().map(|gang| gang_view(world, gang)).collect();
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

fn gang_view(world: &World, gang: &Gang) -> GangView {
    let (state, detail) = match &gang.state {
        GangState::Waiting => waiting(world, gang),
        GangState::Reserved(assignment) => ("placed", places(world, &gang.uid, assignment)),
        GangState::Nominated(preemption) => ("takes over", places(world, &gang.uid, &preemption.assignment)),
        GangState::Unplaced => {
            ("placed", "started by another controller; its nodes are not known yet".to_owned())
        }
    };
    GangView {
        kind: gang.key.kind.clone(),
        namespace: gang.key.namespace.clone(),
        name: gang.key.name.clone(),
        state,
        waits: gang.state == GangState::Waiting,
        priority: gang.priority.div_euclid(1000),
        pods: gang.pod_sets.iter().map(|pod_set| u64::from(pod_set.count)).sum(),
        detail,
    }
}

fn waiting(world: &World, gang: &Gang) -> (&'static str, String) {
    match world.verdict(&gang.uid) {
        Some(Verdict::Wait(shortage)) => ("waits", shortage.to_string()),
        Some(Verdict::Never(shortage)) => ("never fits", shortage.to_string()),
        Some(Verdict::Admit(_) | Verdict::Preempt(_)) | None => ("new", String::new()),
    }
}

/// `gpu: 2 pods, cpu: 1 pod`: where its pods are once they are bound, where they are meant to go before.
fn places(world: &World, gang: &str, assignment: &model::Assignment) -> String {
    let mut pods = std::collections::BTreeMap::<&str, u64>::new();
    for node in world.pods_of(gang).filter_map(|pod| pod.node.as_deref()) {
        *pods.entry(node).or_default() += 1;
    }
    if pods.is_empty() {
        for (node, count) in assignment.pod_sets.iter().flatten() {
            *pods.entry(node).or_default() += u64::from(*count);
        }
    }
    let text = |(node, count)| format!("{node}: {count} {}", if count == 1 { "pod" } else { "pods" });
    pods.into_iter().map(text).collect::<Vec<_>>().join(", ")
}
