//! The arithmetic of quota trees.

use std::collections::BTreeMap;

use model::{
    Amount, Event, FlavorIx, FlavorResource, Limits, QuotaIx, QuotaNode, QuotaUsage, ResourceIx, World,
};
use proptest::prelude::*;

const GPU: FlavorResource = FlavorResource { flavor: FlavorIx::ANY, resource: ResourceIx(3) };

type Limit = (i64, Option<i64>, Option<i64>);

/// A world with these quota nodes: name, parent, and nominal quota with borrowing and lending limit.
fn world(nodes: &[(&str, Option<&str>, Limit)]) -> World {
    let mut world = World::new();
    for (name, parent, (nominal, borrowing, lending)) in nodes {
        let limits = Limits {
            nominal: Amount(*nominal),
            borrowing: borrowing.map(Amount),
            lending: lending.map(Amount),
            ..Limits::default()
        };
        world.apply(Event::QuotaUpserted(QuotaNode {
            name: (*name).to_owned(),
            parent: parent.map(str::to_owned),
            limits: BTreeMap::from([(GPU, limits)]),
            ..QuotaNode::default()
        }));
    }
    world
}

struct Case {
    name: &'static str,
    one: Limit,
    other: Limit,
    used_by_other: i128,
    available: i128,
    potential: i128,
}

#[test]
fn a_node_uses_its_own_quota_and_what_siblings_lend() {
    let cases = [
        Case {
            name: "no usage",
            one: (4, None, None),
            other: (4, None, None),
            used_by_other: 0,
            available: 8,
            potential: 8,
        },
        Case {
            name: "the sibling uses its own quota",
            one: (4, None, None),
            other: (4, None, None),
            used_by_other: 4,
            available: 4,
            potential: 8,
        },
        Case {
            name: "the sibling borrows",
            one: (4, None, None),
            other: (4, None, None),
            used_by_other: 6,
            available: 2,
            potential: 8,
        },
        Case {
            name: "borrowing is limited",
            one: (4, Some(1), None),
            other: (4, None, None),
            used_by_other: 0,
            available: 5,
            potential: 5,
        },
        Case {
            name: "lending is limited",
            one: (4, None, None),
            other: (4, None, Some(1)),
            used_by_other: 0,
            available: 5,
            potential: 5,
        },
        Case {
            name: "local quota is used first",
            one: (4, None, None),
            other: (4, None, Some(1)),
            used_by_other: 3,
            available: 5,
            potential: 5,
        },
        Case {
            name: "then lendable quota is used",
            one: (4, None, None),
            other: (4, None, Some(1)),
            used_by_other: 4,
            available: 4,
            potential: 5,
        },
        Case {
            name: "local quota is not lent",
            one: (4, None, Some(0)),
            other: (4, None, None),
            used_by_other: 4,
            available: 4,
            potential: 8,
        },
    ];
    for case in cases {
        let mut world = world(&[
            ("all", None, (0, None, None)),
            ("one", Some("all"), case.one),
            ("other", Some("all"), case.other),
        ]);
        let (one, other) = (world.quota_ix("one"), world.quota_ix("other"));
        let mut usage: BTreeMap<(QuotaIx, FlavorResource), i128> = BTreeMap::new();
        world.forest().charge(&mut usage, other, GPU, case.used_by_other);
        assert_eq!(world.forest().available(&usage, one, GPU), case.available, "{}", case.name);
        assert_eq!(world.forest().potential_available(one, GPU), case.potential, "{}", case.name);
        world.forest().charge(&mut usage, other, GPU, -case.used_by_other);
        assert!(usage.is_empty(), "{}: releasing undoes charging", case.name);
    }
}

#[test]
fn the_borrowing_level_is_the_height_of_the_lowest_subtree_with_enough_quota() {
    let mut world = world(&[
        ("all", None, (8, None, None)),
        ("team", Some("all"), (2, None, None)),
        ("one", Some("team"), (2, None, None)),
    ]);
    let one = world.quota_ix("one");
    let usage: BTreeMap<(QuotaIx, FlavorResource), i128> = BTreeMap::new();
    let levels = [2, 3, 4, 5, 12, 13].map(|more| world.forest().borrowing_level(&usage, one, GPU, more));
    assert_eq!(levels, [0, 1, 1, 2, 2, 2]);
}

#[test]
fn nodes_on_a_cycle_have_no_quota_and_do_not_affect_others() {
    let mut world = world(&[
        ("one", Some("other"), (4, None, None)),
        ("other", Some("one"), (4, None, None)),
        ("below", Some("one"), (4, None, None)),
        ("apart", None, (4, None, None)),
    ]);
    let [one, below, apart] = ["one", "below", "apart"].map(|name| world.quota_ix(name));
    let usage: BTreeMap<(QuotaIx, FlavorResource), i128> = BTreeMap::new();
    let forest = world.forest();
    assert_eq!([one, below, apart].map(|ix| forest.has_root(ix)), [false, false, true]);
    assert_eq!([one, below, apart].map(|ix| forest.available(&usage, ix, GPU)), [0, 0, 4]);
    assert_eq!(usage.used(one, GPU), 0);
}

/// A quota tree as a reference model: node 0 is the root, the parent of each other node is an earlier one.
#[derive(Debug, Clone)]
struct ReferenceTree {
    parents: Vec<usize>,
    limits: Vec<Limit>,
    charged: Vec<i64>,
}

impl ReferenceTree {
    fn children(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
        (1..self.parents.len()).filter(move |child| self.parents[*child] == node)
    }

    /// The quota of the subtree, and the part of it that the lending limit allows others to use.
    fn quota_and_lendable(&self, node: usize) -> (i64, i64) {
        let below: i64 = self.children(node).map(|child| self.quota_and_lendable(child).1).sum();
        let (nominal, _, lending) = self.limits[node];
        let owned = nominal + below;
        (owned, lending.map_or(owned, |lending| lending.min(owned)))
    }

    /// The charges of the node, plus the usage of its children beyond their local quota.
    fn used(&self, node: usize) -> i64 {
        let overflow = |child| {
            let (owned, lent) = self.quota_and_lendable(child);
            (self.used(child) - (owned - lent)).max(0)
        };
        self.charged[node] + self.children(node).map(overflow).sum::<i64>()
    }

    /// Whether every node stays within its limits: the root within its quota, other nodes within quota and borrowing limit.
    fn is_within_limits(&self) -> bool {
        (0..self.parents.len()).all(|node| {
            let (owned, _) = self.quota_and_lendable(node);
            let borrowing = if node == 0 { Some(0) } else { self.limits[node].1 };
            borrowing.is_none_or(|borrowing| self.used(node) <= owned + borrowing)
        })
    }

    fn charge(&mut self, node: usize, amount: i64) -> bool {
        self.charged[node] += amount;
        let is_within_limits = self.is_within_limits();
        if !is_within_limits {
            self.charged[node] -= amount;
        }
        is_within_limits
    }
}

fn reference() -> impl Strategy<Value = (ReferenceTree, Vec<(usize, i64)>)> {
    let limit = (0i64..6, prop::option::of(0i64..6), prop::option::of(0i64..6));
    let nodes = prop::collection::vec((any::<prop::sample::Index>(), limit), 1..8);
    let charges = prop::collection::vec((any::<prop::sample::Index>(), 1i64..8), 0..12);
    (nodes, charges).prop_map(|(nodes, charges)| {
        let parents = nodes.iter().enumerate().map(|(at, (parent, _))| parent.index(at.max(1))).collect();
        let limits = nodes.iter().map(|(_, limit)| *limit).collect();
        let charges = charges.into_iter().map(|(at, amount)| (at.index(nodes.len()), amount)).collect();
        (ReferenceTree { parents, limits, charged: vec![0; nodes.len()] }, charges)
    })
}

proptest! {
    #[test]
    fn available_quota_is_the_most_that_breaks_no_limit_of_the_tree((mut reference, charges) in reference()) {
        let names: Vec<String> = (0..reference.parents.len()).map(|node| format!("n{node}")).collect();
        let nodes: Vec<_> = reference.limits.iter().enumerate().map(|(node, limit)| {
            (&*names[node], (node > 0).then(|| &*names[reference.parents[node]]), *limit)
        }).collect();
        let mut world = world(&nodes);
        let ixs: Vec<QuotaIx> = names.iter().map(|name| world.quota_ix(name)).collect();
        let mut usage: BTreeMap<(QuotaIx, FlavorResource), i128> = BTreeMap::new();
        for (node, amount) in charges {
            let left = world.forest().available(&usage, ixs[node], GPU);
            let fits = reference.charge(node, amount);
            prop_assert_eq!(i128::from(amount) <= left, fits, "{} at {}: {} left", amount, &names[node], left);
            if fits {
                world.forest().charge(&mut usage, ixs[node], GPU, amount.into());
            }
            for (node, ix) in ixs.iter().enumerate() {
                prop_assert_eq!(usage.used(*ix, GPU), i128::from(reference.used(node)), "used at {}", &names[node]);
            }
        }
    }
}
