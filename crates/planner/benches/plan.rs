//! Wall time of planning: a burst of gangs on empty nodes, one event with many pending gangs, and a forecast.

#![allow(missing_docs, reason = "criterion's macros make public items without any")]

mod common;

use std::hint::black_box;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

use common::{FullCluster, NOW};

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
        let mut cluster = FullCluster::full(nodes, queues);
        cluster.add_pending(waiting, shapes);
        let id = BenchmarkId::new(
            "end and plan",
            format!("{waiting} waiting, {shapes} shapes, {queues} queues, {nodes} nodes"),
        );
        group.bench_function(id, |bench| {
            bench.iter(|| {
                let started = cluster.end_and_plan(0);
                cluster.refill(started);
            });
        });
    }
}

/// The cost of a forecast for the first 1,000 pending gangs: the copy, which blocks planning, and the
/// simulation, which does not.
fn forecast(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("forecast");
    group.sample_size(10);
    for (nodes, waiting, shapes) in
        [(100, 1_000, 10), (1_000, 100_000, 10), (10_000, 100_000, 10), (10_000, 100_000, 100)]
    {
        let mut cluster = FullCluster::full(nodes, 0);
        cluster.add_pending(waiting, shapes);
        let size = format!("{waiting} waiting, {shapes} shapes, {nodes} nodes");
        group.bench_function(BenchmarkId::new("copy", &size), |bench| {
            bench.iter(|| black_box(&cluster.world).forecast_copy(1_000, NOW));
        });
        let copy = cluster.world.forecast_copy(1_000, NOW);
        group.bench_function(BenchmarkId::new("simulate", &size), |bench| {
            bench.iter_batched(|| copy.clone(), |copy| planner::forecast(copy, NOW), BatchSize::PerIteration);
        });
    }
}

criterion_group!(benches, burst, one_event, forecast);
criterion_main!(benches);
