//! The arithmetic of quota trees.

use std::collections::BTreeMap;

use model::{Amount, Event, FlavorIx, FlavorResource, Limits, QuotaIx, QuotaNode, ResourceIx, QuotaUsage, World};
use proptest::prelude::*;

const GPU: FlavorResource = FlavorResource { flavor: FlavorIx::ANY, resource: ResourceIx(3) };

type Limit = (i64, Option<i64>, Option<i64>);

/// A world with these nodes: name, parent, and nominal quota with borrowing and lending limit.
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
fn a_queue_may_use_its_own_and_what_others_lend() {
    let cases = [
        Case {
            name: "alone",
            one: (4, None, None),
            other: (4, None, None),
            used_by_other: 0,
            available: 8,
            potential: 8,
        },
        Case {
            name: "the other uses its own",
            one: (4, None, None),
            other: (4, None, None),
            used_by_other: 4,
            available: 4,
            potential: 8,
        },
        Case {
            name: "the other borrows",
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
            name: "what is kept is used first",
            one: (4, None, None),
            other: (4, None, Some(1)),
            used_by_other: 3,
            available: 5,
            potential: 5,
        },
        Case {
            name: "and then what is lent",
            one: (4, None, None),
            other: (4, None, Some(1)),
            used_by_other: 4,
            available: 4,
            potential: 5,
        },
        Case {
            name: "its own kept part is safe",
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
        assert!(usage.is_empty(), "{}: giving back undoes charging", case.name);
    }
}

#[test]
fn the_borrowing_level_is_the_height_of_the_lowest_subtree_that_is_enough() {
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
fn nodes_on_a_cycle_own_nothing_and_harm_nobody() {
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

/// A tree written down plainly: node 0 is the root, each other node is below an earlier one.
#[derive(Debug, Clone)]
struct Plain {
    parents: Vec<usize>,
    limits: Vec<Limit>,
    charged: Vec<i64>,
}

impl Plain {
    fn children(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
        (1..self.parents.len()).filter(move |child| self.parents[*child] == node)
    }

    /// What the subtree owns of which others may use at most its lending limit; and that part.
    fn owned_and_lent(&self, node: usize) -> (i64, i64) {
        let below: i64 = self.children(node).map(|child| self.owned_and_lent(child).1).sum();
        let (nominal, _, lending) = self.limits[node];
        let owned = nominal + below;
        (owned, lending.map_or(owned, |lending| lending.min(owned)))
    }

    /// What is charged to the node, and what its children cannot serve from what they keep to themselves.
    fn used(&self, node: usize) -> i64 {
        let overflow = |child| {
            let (owned, lent) = self.owned_and_lent(child);
            (self.used(child) - (owned - lent)).max(0)
        };
        self.charged[node] + self.children(node).map(overflow).sum::<i64>()
    }

    /// Whether every node uses what it may: the root what it owns, others what they own and may borrow.
    fn is_kept(&self) -> bool {
        (0..self.parents.len()).all(|node| {
            let (owned, _) = self.owned_and_lent(node);
            let borrowing = if node == 0 { Some(0) } else { self.limits[node].1 };
            borrowing.is_none_or(|borrowing| self.used(node) <= owned + borrowing)
        })
    }

    fn charge(&mut self, node: usize, amount: i64) -> bool {
        self.charged[node] += amount;
        let is_kept = self.is_kept();
        if !is_kept {
            self.charged[node] -= amount;
        }
        is_kept
    }
}

fn plain() -> impl Strategy<Value = (Plain, Vec<(usize, i64)>)> {
    let limit = (0i64..6, prop::option::of(0i64..6), prop::option::of(0i64..6));
    let nodes = prop::collection::vec((any::<prop::sample::Index>(), limit), 1..8);
    let charges = prop::collection::vec((any::<prop::sample::Index>(), 1i64..8), 0..12);
    (nodes, charges).prop_map(|(nodes, charges)| {
        let parents = nodes.iter().enumerate().map(|(at, (parent, _))| parent.index(at.max(1))).collect();
        let limits = nodes.iter().map(|(_, limit)| *limit).collect();
        let charges = charges.into_iter().map(|(at, amount)| (at.index(nodes.len()), amount)).collect();
        (Plain { parents, limits, charged: vec![0; nodes.len()] }, charges)
    })
}

proptest! {
    #[test]
    fn what_is_left_is_the_most_that_breaks_no_limit_of_the_tree((mut plain, charges) in plain()) {
        let names: Vec<String> = (0..plain.parents.len()).map(|node| format!("n{node}")).collect();
        let nodes: Vec<_> = plain.limits.iter().enumerate().map(|(node, limit)| {
            (&*names[node], (node > 0).then(|| &*names[plain.parents[node]]), *limit)
        }).collect();
        let mut world = world(&nodes);
        let ixs: Vec<QuotaIx> = names.iter().map(|name| world.quota_ix(name)).collect();
        let mut usage: BTreeMap<(QuotaIx, FlavorResource), i128> = BTreeMap::new();
        for (node, amount) in charges {
            let left = world.forest().available(&usage, ixs[node], GPU);
            let fits = plain.charge(node, amount);
            prop_assert_eq!(i128::from(amount) <= left, fits, "{} at {}: {} left", amount, &names[node], left);
            if fits {
                world.forest().charge(&mut usage, ixs[node], GPU, amount.into());
            }
            for (node, ix) in ixs.iter().enumerate() {
                prop_assert_eq!(usage.used(*ix, GPU), i128::from(plain.used(node)), "used at {}", &names[node]);
            }
        }
    }
}
