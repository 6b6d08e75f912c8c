//! Instruction counts of the main paths of a scheduling cycle, which do not depend on the load of the
//! machine.
//!
//! `cargo bench -p planner --bench instructions` needs valgrind, and `gungraun-runner` in the version of
//! `Cargo.lock`.

#![allow(missing_docs, reason = "gungraun's macros make public items without any")]
#![expect(clippy::disallowed_macros, reason = "and print when the runner is missing")]

mod common;

use std::hint::black_box;

use gungraun::{library_benchmark, library_benchmark_group, main};
use model::{
    Backfill, Event, Gang, Node, Plan, Policy, PreemptionPolicy, Time, TopologyMode, TopologyRequest, World,
};

use common::{FullCluster, NOW};

/// The world and its plan. The world is returned so that its drop is not measured.
type Planned = (World, Plan);

fn plan(world: World) -> Planned {
    let plan = planner::plan(&black_box(&world).snapshot(NOW));
    (world, plan)
}

/// 1,000 full nodes, 10,000 pending gangs of 10 shapes in one queue or in 100, and one gang that has ended.
fn ended(queues: u32) -> World {
    let mut cluster = FullCluster::full(1_000, queues);
    cluster.add_pending(10_000, 10);
    let ended = cluster.running.swap_remove(0);
    cluster.world.apply(Event::GangRemoved(ended));
    cluster.world
}

#[library_benchmark]
#[bench::one_queue(args = (0), setup = ended)]
#[bench::queues_that_lend(args = (100), setup = ended)]
fn one_event(world: World) -> Planned {
    plan(world)
}

#[library_benchmark]
#[bench::gangs_of_two_pods(args = (1_000, 1_000), setup = common::burst)]
fn burst(world: World) -> Planned {
    plan(world)
}

/// 1,000 full nodes, and a gang of 65 pods that may preempt any other gang.
fn urgent() -> World {
    let mut world = FullCluster::full(1_000, 0).world;
    world
        .apply(Event::PolicySet(Policy { preemption: PreemptionPolicy::LowerPriority, ..Policy::default() }));
    world.apply(Event::GangUpserted(Gang { priority: 10, ..common::gang(0, 64) }));
    world
}

#[library_benchmark]
#[bench::of_eight_gangs(setup = urgent)]
fn preemption(world: World) -> Planned {
    plan(world)
}

/// As [`ended`], but all gangs declare their run time, and pending gangs get reserved starts.
fn ended_with_reservations(heads: u32) -> World {
    let mut cluster = FullCluster::full(1_000, 0);
    let backfill = Backfill::Conservative { depth: heads };
    cluster.world.apply(Event::PolicySet(Policy { backfill, ..Policy::default() }));
    for (at, uid) in (0..).zip(&cluster.running) {
        let runs_us = Some(NOW.0 + at * 1_000_000);
        let gang = cluster.world.gang(uid).expect("it runs").clone();
        cluster.world.apply(Event::GangUpserted(Gang { started_at: Some(Time(0)), runs_us, ..gang }));
    }
    for at in 0..1_000 {
        let runs_us = Some(i64::from(1 + at % 20) * 60_000_000);
        cluster.world.apply(Event::GangUpserted(Gang { runs_us, ..common::gang(at, 1 + at % 10) }));
    }
    let plan = planner::plan(&cluster.world.snapshot(NOW));
    cluster.world.apply(Event::Planned(plan));
    cluster.world.apply(Event::GangRemoved(cluster.running.swap_remove(0)));
    cluster.world
}

#[library_benchmark]
#[bench::one_head(args = (1), setup = ended_with_reservations)]
#[bench::eight_heads(args = (8), setup = ended_with_reservations)]
fn backfill(world: World) -> Planned {
    plan(world)
}

/// 1,000 nodes in racks of 20, and 8 gangs of 129 pods whose workers require one rack.
fn racks() -> World {
    let mut world = common::nodes(1_000);
    let nodes: Vec<Node> = world.nodes().cloned().collect();
    for (at, mut node) in (0..).zip(nodes) {
        node.labels.insert("rack".into(), format!("rack-{:02}", at / 20));
        world.apply(Event::NodeUpserted(node));
    }
    let in_rack = TopologyRequest { mode: TopologyMode::Required("rack".into()), slices: Vec::new() };
    for at in 0..8 {
        let gang = common::gang(at, 128);
        let mut pod_sets = gang.pod_sets.to_vec();
        pod_sets[1].topology = Some(in_rack.clone());
        world.apply(Event::GangUpserted(Gang { pod_sets: pod_sets.into(), ..gang }));
    }
    world
}

#[library_benchmark]
#[bench::gangs_in_racks(setup = racks)]
fn topology(world: World) -> Planned {
    plan(world)
}

library_benchmark_group!(name = planning, benchmarks = [one_event, burst, preemption, backfill, topology]);
main!(library_benchmark_groups = planning);
