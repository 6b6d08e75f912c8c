//! The worlds of the benchmarks.

#![allow(dead_code, reason = "each bench uses some of it")]

use std::collections::BTreeMap;

use model::{
    Amount, Assignment, Event, FlavorIx, FlavorResource, Gang, GangKey, GangState, Limits, Node, PodSet,
    Queue, QueueIx, QuotaNode, ResourceGroup, ResourceIx, ResourceVec, Time, World,
};

/// The time of all plans.
pub(crate) const NOW: Time = Time(1_000_000_000);

const GPU: ResourceIx = ResourceIx(3);
/// The GPUs of a node.
const GPUS: u32 = 8;
/// Running gangs are numbered from here, pending ones from 0.
const RUNNING: u32 = 10_000_000;
/// The number of queues in a cohort.
const COHORT: u32 = 10;

fn amounts(cpu: i64, gpu: i64, pods: i64) -> ResourceVec {
    ResourceVec::new().with(ResourceIx::CPU, cpu * 1000).with(GPU, gpu).with(ResourceIx::PODS, pods)
}

/// A gang with a head, and workers with one GPU each.
pub(crate) fn gang(at: u32, workers: u32) -> Gang {
    let pod_set =
        |name: &str, count, request| PodSet { name: name.into(), count, request, ..PodSet::default() };
    let name = format!("gang-{at:08}");
    Gang {
        key: GangKey { kind: "gangs".into(), namespace: "default".into(), name: name.clone() },
        uid: name,
        queued_at: Time(i64::from(at)),
        pod_sets: [pod_set("head", 1, amounts(2, 0, 1)), pod_set("worker", workers, amounts(4, 1, 1))].into(),
        ..Gang::default()
    }
}

/// A gang that fills `node`.
fn running(at: u32, node: u32) -> Gang {
    let node = node_name(node);
    let pod_sets = vec![vec![(node.clone(), 1)], vec![(node, GPUS)]];
    Gang {
        state: GangState::Reserved(Assignment { pod_sets, ..Assignment::default() }),
        ..gang(RUNNING + at, GPUS)
    }
}

fn node_name(at: u32) -> String {
    format!("node-{at:06}")
}

/// Nodes with 64 CPUs and 8 GPUs.
pub(crate) fn nodes(count: u32) -> World {
    let mut world = World::new();
    world.resources_mut().intern("nvidia.com/gpu");
    for at in 0..count {
        let name = node_name(at);
        let labels = [("kubernetes.io/hostname".to_owned(), name.clone())].into();
        let allocatable = amounts(64, GPUS.into(), 110);
        world.apply(Event::NodeUpserted(Node { name, labels, ready: true, allocatable, ..Node::default() }));
    }
    world
}

/// Gangs of one pod with one CPU, and one node that holds all of them: resource arithmetic only.
pub(crate) fn one_resource_group(gangs: u32) -> World {
    let mut world = World::new();
    let allocatable = ResourceVec::new()
        .with(ResourceIx::CPU, 1000 * i64::from(gangs))
        .with(ResourceIx::PODS, gangs.into());
    world.apply(Event::NodeUpserted(Node {
        name: "pool".into(),
        ready: true,
        allocatable,
        ..Node::default()
    }));
    let request = ResourceVec::new().with(ResourceIx::CPU, 1000).with(ResourceIx::PODS, 1);
    let pod_set = PodSet { name: "main".into(), count: 1, request, ..PodSet::default() };
    for at in 0..gangs {
        world.apply(Event::GangUpserted(Gang { pod_sets: [pod_set.clone()].into(), ..gang(at, 1) }));
    }
    world
}

/// Pending gangs of two pods, and empty nodes.
pub(crate) fn burst(node_count: u32, gangs: u32) -> World {
    let mut world = nodes(node_count);
    for at in 0..gangs {
        world.apply(Event::GangUpserted(gang(at, 1)));
    }
    world
}

/// A full cluster with many pending gangs.
pub(crate) struct FullCluster {
    pub(crate) world: World,
    pub(crate) queues: u32,
    pub(crate) shapes: u32,
    /// The uids of the running gangs.
    pub(crate) running: Vec<String>,
    created: u32,
}

impl FullCluster {
    /// Each node is filled by one running gang. With 0 queues, all gangs use the implicit queue. Cohorts of
    /// ten queues share unused quota, and all quota is in use.
    pub(crate) fn full(node_count: u32, queues: u32) -> Self {
        let mut cluster =
            Self { world: nodes(node_count), queues, shapes: 1, running: Vec::new(), created: 0 };
        for at in 0..queues {
            cluster.add_queue(at, node_count / queues);
        }
        for at in 0..node_count {
            let gang = Gang { queue: cluster.queue(at), ..running(at, at) };
            cluster.running.push(gang.uid.clone());
            cluster.world.apply(Event::GangUpserted(gang));
        }
        cluster
    }

    /// Adds a queue that owns the quota of a number of nodes.
    fn add_queue(&mut self, at: u32, nodes: u32) {
        let owned = |amount: u32| Limits { nominal: Amount(amount.into()), ..Limits::default() };
        let of = |resource| FlavorResource { flavor: FlavorIx::ANY, resource };
        let limits = BTreeMap::from([
            (of(ResourceIx::CPU), owned(nodes * 64_000)),
            (of(GPU), owned(nodes * GPUS)),
            (of(ResourceIx::PODS), owned(nodes * 110)),
        ]);
        let (name, parent) = (format!("queue-{at:05}"), format!("cohort-{:05}", at / COHORT));
        self.world.apply(Event::QuotaUpserted(QuotaNode { name: parent.clone(), ..QuotaNode::default() }));
        self.world.apply(Event::QuotaUpserted(QuotaNode {
            name: name.clone(),
            parent: Some(parent),
            limits,
            ..QuotaNode::default()
        }));
        let group = ResourceGroup {
            resources: vec![ResourceIx::CPU, GPU, ResourceIx::PODS],
            flavors: vec![FlavorIx::ANY],
        };
        let queue = Queue { quota: Some(name.clone()), name, groups: vec![group], ..Queue::default() };
        self.world.apply(Event::QueueUpserted(queue));
    }

    /// Adds pending gangs of a number of shapes, spread over the queues, and plans, so that each has a
    /// verdict.
    pub(crate) fn add_pending(&mut self, waiting: u32, shapes: u32) {
        self.shapes = shapes;
        for _ in 0..waiting {
            let next = self.next_gang();
            self.world.apply(Event::GangUpserted(next));
        }
        let plan = planner::plan(&self.world.snapshot(NOW));
        self.world.apply(Event::Planned(plan));
    }

    fn queue(&mut self, at: u32) -> QueueIx {
        at.checked_rem(self.queues)
            .map_or_else(QueueIx::default, |at| self.world.queue_ix(&format!("queue-{at:05}")))
    }

    fn next_gang(&mut self) -> Gang {
        let at = self.created;
        self.created += 1;
        let shape = at.checked_div(self.queues).unwrap_or(at) % self.shapes;
        Gang { queue: self.queue(at), ..gang(at, 1 + shape) }
    }

    /// Ends the running gang at index `at`, plans, and returns the number of gangs that started.
    pub(crate) fn end_and_plan(&mut self, at: usize) -> usize {
        let ended = self.running.swap_remove(at);
        self.world.apply(Event::GangRemoved(ended));
        let plan = planner::plan(&self.world.snapshot(NOW));
        let before = self.running.len();
        let starts = plan.verdicts.iter().filter(|(_, verdict)| verdict.shortage().is_none());
        self.running.extend(starts.map(|(uid, _)| uid.clone()));
        self.world.apply(Event::Planned(plan));
        self.running.len() - before
    }

    /// Adds as many pending gangs, so that the size of the world stays the same.
    pub(crate) fn refill(&mut self, count: usize) {
        for _ in 0..count {
            let next = self.next_gang();
            self.world.apply(Event::GangUpserted(next));
        }
    }
}
