//! What planning costs: a burst of gangs on empty nodes, one event in a world where very many wait, and a look ahead.

#![allow(missing_docs, reason = "criterion's macros make public items without any")]

mod common;

use std::hint::black_box;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

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

/// What it costs to forecast the starts of the first thousand who wait: the copy, which holds up planning, and the look, which does not.
fn look_ahead(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("look ahead");
    group.sample_size(10);
    for (nodes, waiting, shapes) in
        [(100, 1_000, 10), (1_000, 100_000, 10), (10_000, 100_000, 10), (10_000, 100_000, 100)]
    {
        let mut crowd = Crowd::full(nodes, 0);
        crowd.crowd(waiting, shapes);
        let size = format!("{waiting} waiting, {shapes} shapes, {nodes} nodes");
        group.bench_function(BenchmarkId::new("copy", &size), |bench| {
            bench.iter(|| black_box(&crowd.world).excerpt(1_000, NOW));
        });
        let copy = crowd.world.excerpt(1_000, NOW);
        group.bench_function(BenchmarkId::new("look", &size), |bench| {
            bench.iter_batched(|| copy.clone(), |copy| planner::forecast(copy, NOW), BatchSize::PerIteration);
        });
    }
}

criterion_group!(benches, burst, one_event, look_ahead);
criterion_main!(benches);
