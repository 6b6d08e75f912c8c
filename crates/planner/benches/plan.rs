//! What planning costs: a burst of gangs on empty nodes, and one event in a world where very many wait.

#![allow(missing_docs, reason = "criterion's macros make public items without any")]

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use model::{
    Assignment, Event, Gang, GangKey, GangState, Node, PodSet, ResourceIx, ResourceVec, Time, World,
};

const GPU: ResourceIx = ResourceIx(3);
const NOW: Time = Time(1_000_000_000);

fn amounts(cpu: i64, gpu: i64, pods: i64) -> ResourceVec {
    ResourceVec::new().with(ResourceIx::CPU, cpu * 1000).with(GPU, gpu).with(ResourceIx::PODS, pods)
}

fn gang(at: u32, workers: u32, gpu: i64) -> Gang {
    let pod_set =
        |name: &str, count, request| PodSet { name: name.into(), count, request, ..PodSet::default() };
    let name = format!("gang-{at:07}");
    Gang {
        key: GangKey { kind: "gangs".into(), namespace: "default".into(), name: name.clone() },
        uid: name,
        queued_at: Time(i64::from(at)),
        pod_sets: [pod_set("head", 1, amounts(2, 0, 1)), pod_set("worker", workers, amounts(4, gpu, 1))]
            .into(),
        ..Gang::default()
    }
}

/// Nodes of 64 CPUs and 8 GPUs.
fn nodes(count: u32) -> World {
    let mut world = World::new();
    world.resources_mut().intern("nvidia.com/gpu");
    for at in 0..count {
        let name = format!("node-{at:06}");
        let labels = [("kubernetes.io/hostname".to_owned(), name.clone())].into();
        let node = Node { name, labels, ready: true, allocatable: amounts(64, 8, 110), ..Node::default() };
        world.apply(Event::NodeUpserted(node));
    }
    world
}

/// Every node is full with one running gang, and `waiting` gangs of `shapes` shapes wait and know why.
fn crowded(node_count: u32, waiting: u32, shapes: u32) -> World {
    let mut world = nodes(node_count);
    for at in 0..node_count {
        let node = format!("node-{at:06}");
        let assignment =
            Assignment { pod_sets: vec![vec![(node.clone(), 1)], vec![(node, 8)]], ..Assignment::default() };
        world.apply(Event::GangUpserted(Gang {
            state: GangState::Reserved(assignment),
            ..gang(10_000_000 + at, 8, 1)
        }));
    }
    for at in 0..waiting {
        world.apply(Event::GangUpserted(gang(at, 1 + at % shapes, 1)));
    }
    let plan = planner::plan(&world.snapshot(NOW));
    world.apply(Event::Planned(plan));
    world
}

fn burst(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("burst");
    group.sample_size(10);
    for (node_count, gangs) in [(100, 800), (1_000, 8_000), (10_000, 10_000)] {
        let mut world = nodes(node_count);
        for at in 0..gangs {
            world.apply(Event::GangUpserted(gang(at, 1, 1)));
        }
        group.throughput(Throughput::Elements(u64::from(gangs)));
        let id = BenchmarkId::new("two pods", format!("{gangs} gangs on {node_count} nodes"));
        group.bench_function(id, |bench| bench.iter(|| planner::plan(&black_box(&world).snapshot(NOW))));
    }
}

fn one_event(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("one event");
    group.sample_size(10);
    for (node_count, waiting, shapes) in [
        (1_000, 1_000, 10),
        (1_000, 100_000, 10),
        (10_000, 100_000, 10),
        (10_000, 100_000, 1_000),
        (10_000, 1_000_000, 10),
    ] {
        let mut world = crowded(node_count, waiting, shapes);
        let id = BenchmarkId::new(
            "end and plan",
            format!("{waiting} waiting, {shapes} shapes, {node_count} nodes"),
        );
        let mut next = waiting;
        // A running gang ends, those who fit start, as many come to wait: the world stays as crowded as it is.
        group.bench_function(id, |bench| {
            bench.iter(|| {
                let ended = world.holding().next().map(|gang| gang.uid.clone()).expect("somebody runs");
                world.apply(Event::GangRemoved(ended));
                let plan = planner::plan(&world.snapshot(NOW));
                let started =
                    plan.verdicts.iter().filter(|(_, verdict)| verdict.shortage().is_none()).count();
                world.apply(Event::Planned(plan));
                for _ in 0..started {
                    next += 1;
                    world.apply(Event::GangUpserted(gang(next, 1 + next % shapes, 1)));
                }
            });
        });
    }
}

criterion_group!(benches, burst, one_event);
criterion_main!(benches);
