//! Random histories of queues that share cohort trees. The auditor finds no admission out of fair order. The
//! incremental plan equals the plan of a rebuilt world.

#![allow(clippy::format_push_string, reason = "the scenario is built line by line")]

use crate::common::{admitted, audited, parse_world, rebuilt};
use model::{Backfill, Event, FairSharing, Policy, World};
use proptest::prelude::*;

/// A quota node: its parent (0 is the root), nominal quota, borrowing limit, lending limit and weight.
type QuotaSpec = (usize, i64, Option<i64>, Option<i64>, u32);

/// A gang: its queue, its priority, its number of pods, and the request of each pod.
type GangSpec = (usize, i64, u32, i64);

#[derive(Clone, Debug)]
enum Step {
    Add(Vec<GangSpec>),
    Remove(usize),
    Plan,
}

fn members() -> impl Strategy<Value = Vec<QuotaSpec>> {
    let limit = || prop::option::weighted(0.2, 0..6_i64);
    prop::collection::vec(
        (0..4_usize, 0..6_i64, limit(), limit(), prop_oneof![Just(1000), 0..3000_u32]),
        2..7,
    )
}

fn step() -> impl Strategy<Value = Step> {
    let spec = (0..6_usize, 0..2_i64, 1..3_u32, 1..4_i64);
    prop_oneof![
        3 => prop::collection::vec(spec, 1..8).prop_map(Step::Add),
        2 => (0..40_usize).prop_map(Step::Remove),
        3 => Just(Step::Plan),
    ]
}

/// A tree with a queue at every node but the root, and four nodes.
fn world(members: &[QuotaSpec], policy: Policy) -> World {
    let mut text = "node a 4x cpu=8\nquota root cpu=4\n".to_owned();
    let name = |at: usize| if at == 0 { "root".to_owned() } else { format!("q{at}") };
    for (at, (above, owns, borrows, lends, weight)) in members.iter().enumerate() {
        let above = name((*above).min(at));
        text.push_str(&format!("quota {} in={above} cpu={owns} weight={weight}m", name(at + 1)));
        text.extend(borrows.map(|limit| format!(" borrow:cpu={limit}")));
        text.extend(lends.map(|limit| format!(" lend:cpu={limit}")));
        text.push_str(&format!("\nqueue {0} quota={0} :cpu\n", name(at + 1)));
    }
    let mut world = parse_world(&text);
    world.apply(Event::PolicySet(policy));
    world
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn shared_quota_is_admitted_in_fair_order_and_equals_the_full_recomputation(
        members in members(),
        fair in prop::bool::ANY,
        heads in prop_oneof![2 => Just(0), 1 => 1..5_u32],
        steps in prop::collection::vec(step(), 1..16),
    ) {
        let fair_sharing = fair.then_some(FairSharing::FinalOrInitialShare);
        let backfill = Backfill::Conservative { depth: heads };
        let mut world = world(&members, Policy { fair_sharing, backfill, ..Policy::default() });
        let mut names = 0..;
        for step in steps.iter().chain([&Step::Plan]) {
            match step {
                Step::Add(spec) => for (queue, priority, pods, cpu) in spec {
                    let queue = queue % members.len() + 1;
                    let name = names.next().unwrap_or_default();
                    let text = format!("pending g{name} at={name} queue=q{queue} priority={priority} main {pods}x cpu={cpu}");
                    for gang in scenario::gangs(&mut world, &text).unwrap_or_default() {
                        world.apply(Event::GangUpserted(gang));
                    }
                },
                Step::Remove(name) => world.apply(Event::GangRemoved(format!("g{name}"))),
                Step::Plan => {
                    let plan = audited(&world);
                    let full = audited(&rebuilt(&world));
                    prop_assert_eq!(admitted(&plan), admitted(&full), "{}", scenario::render(&world));
                    world.apply(Event::Planned(plan));
                }
            }
        }
    }
}
