//! The dominant resource share of the nodes of a quota tree.

use std::collections::BTreeMap;

use model::{
    Amount, DominantShare, Event, FlavorIx, FlavorResource, Limits, QuotaIx, QuotaNode, ResourceIx, World,
};
use proptest::prelude::*;

const CPU: ResourceIx = ResourceIx::CPU;
const GPU: ResourceIx = ResourceIx(3);

fn of(resource: ResourceIx) -> FlavorResource {
    FlavorResource { flavor: FlavorIx::ANY, resource }
}

/// A quota node with nominal quota for both resources.
fn node(name: &str, parent: Option<&str>, cpu: i64, gpu: i64, weight_milli: Option<u32>) -> Event {
    let owns = |amount| Limits { nominal: Amount(amount), ..Limits::default() };
    Event::QuotaUpserted(QuotaNode {
        name: name.to_owned(),
        parent: parent.map(str::to_owned),
        limits: BTreeMap::from([(of(CPU), owns(cpu)), (of(GPU), owns(gpu))]),
        weight_milli,
        ..QuotaNode::default()
    })
}

/// The shares of two teams with a quota of 4 CPUs (in milli) and 2 GPUs each, for this usage.
fn shares(weights: [Option<u32>; 2], used: [(i128, i128); 2]) -> [DominantShare; 2] {
    let mut world = World::new();
    world.apply(node("all", None, 2000, 0, None));
    world.apply(node("one", Some("all"), 4000, 2, weights[0]));
    world.apply(node("other", Some("all"), 4000, 2, weights[1]));
    let nodes = [world.quota_ix("one"), world.quota_ix("other")];
    let mut usage: BTreeMap<(QuotaIx, FlavorResource), i128> = BTreeMap::new();
    for (node, (cpu, gpu)) in nodes.into_iter().zip(used) {
        world.forest().charge(&mut usage, node, of(CPU), cpu);
        world.forest().charge(&mut usage, node, of(GPU), gpu);
    }
    nodes.map(|node| world.forest().share(&usage, node))
}

#[test]
fn the_share_is_the_largest_borrowed_fraction_divided_by_weight() {
    struct Case {
        name: &'static str,
        weights: [Option<u32>; 2],
        used: [(i128, i128); 2],
        thousandths: [Option<u128>; 2],
    }
    let cases = [
        Case {
            name: "a node within its quota has no share",
            weights: [None, Some(0)],
            used: [(4000, 2), (0, 2)],
            thousandths: [Some(0), Some(0)],
        },
        Case {
            name: "the dominant resource counts",
            weights: [None, None],
            used: [(5000, 3), (5000, 0)],
            thousandths: [Some(250), Some(100)],
        },
        Case {
            name: "rounded up",
            weights: [Some(3000), Some(500)],
            used: [(5000, 0), (5000, 0)],
            thousandths: [Some(34), Some(200)],
        },
        Case {
            name: "a weight of zero gives an unbounded share",
            weights: [Some(0), None],
            used: [(4001, 0), (10_000, 4)],
            thousandths: [None, Some(600)],
        },
    ];
    for case in cases {
        let shares = shares(case.weights, case.used);
        assert_eq!(shares.map(|share| share.thousandths()), case.thousandths, "{}", case.name);
    }
}

#[test]
fn shares_compare_exactly_and_unbounded_shares_come_last() {
    let [one, other] = shares([None, None], [(4001, 0), (4002, 0)]);
    assert_eq!(one.thousandths(), other.thousandths());
    assert!(one < other);
    let [one, other] = shares([Some(2000), None], [(6000, 0), (5000, 0)]);
    assert_eq!(one, other);
    let [one, other] = shares([Some(0), None], [(4001, 0), (10_000, 4)]);
    assert!(one > other);
    let [one, other] = shares([Some(0), Some(0)], [(4002, 0), (4001, 0)]);
    assert!(one > other);
}

#[test]
fn the_share_is_relative_to_what_the_parent_could_use() {
    let mut world = World::new();
    world.apply(node("all", None, 0, 4, None));
    world.apply(node("team", Some("all"), 0, 4, None));
    world.apply(node("one", Some("team"), 0, 0, None));
    let mut usage: BTreeMap<(QuotaIx, FlavorResource), i128> = BTreeMap::new();
    let [all, team, one] = ["all", "team", "one"].map(|name| world.quota_ix(name));
    world.forest().charge(&mut usage, one, of(GPU), 5);
    let shares = [all, team, one].map(|node| world.forest().share(&usage, node).thousandths());
    assert_eq!(shares, [Some(0), Some(125), Some(625)]);
}

proptest! {
    /// Cross products of small numbers give the same order.
    #[test]
    fn shares_are_ordered_like_their_fractions(used in (0..9000_i128, 0..9000_i128), weights in (1..5000_u32, 1..5000_u32)) {
        let [one, other] = shares([Some(weights.0), Some(weights.1)], [(used.0, 0), (used.1, 0)]);
        let beyond = |used: i128| (used - 4000).max(0);
        let expected = (beyond(used.0) * i128::from(weights.1)).cmp(&(beyond(used.1) * i128::from(weights.0)));
        prop_assert_eq!(one.cmp(&other), expected);
    }
}
