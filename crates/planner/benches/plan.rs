//! What planning costs: a burst of gangs on empty nodes, and one event in a world where very many wait.

#![allow(missing_docs, reason = "criterion's macros make public items without any")]

mod common;

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

use common::{Crowd, NOW};

fn burst(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("burst");
    group.sample_size(10);
    let worlds = [
        ("one pod", 10_000, 1, common::one_resource_group(10_000)),
        ("two pods", 800, 100, common::burst(100, 800)),
        ("two pods", 8_000, 1_000, common::burst(1_000, 8_000)),
        ("two pods", 10_000, 10_000, common::burst(10_000, 10_000)),
    ];
    for (what, gangs, nodes, world) in &worlds {
        group.throughput(Throughput::Elements(*gangs));
        let id = BenchmarkId::new(*what, format!("{gangs} gangs, {nodes} nodes"));
        group.bench_function(id, |bench| bench.iter(|| planner::plan(&black_box(world).snapshot(NOW))));
    }
}

fn one_event(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("one event");
    group.sample_size(10);
    for (nodes, queues, waiting, shapes) in [
        (1_000, 0, 1_000, 10),
        (1_000, 0, 100_000, 10),
        (1_000, 0, 100_000, 1_000),
        (1_000, 1_000, 100_000, 10),
    ] {
        let mut crowd = Crowd::full(nodes, queues);
        crowd.crowd(waiting, shapes);
        let id = BenchmarkId::new(
            "end and plan",
            format!("{waiting} waiting, {shapes} shapes, {queues} queues, {nodes} nodes"),
        );
        group.bench_function(id, |bench| {
            bench.iter(|| {
                let started = crowd.end_and_plan(0);
                crowd.refill(started);
            });
        });
    }
}

criterion_group!(benches, burst, one_event);
criterion_main!(benches);
