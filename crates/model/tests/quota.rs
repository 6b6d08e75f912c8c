//! The arithmetic of quota trees.

use std::collections::BTreeMap;

use model::{Amount, Event, FlavorIx, FlavorResource, Limits, QuotaIx, QuotaNode, ResourceIx, Usage, World};

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
        assert_eq!(world.forest().potential(one, GPU), case.potential, "{}", case.name);
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
    assert_eq!([one, below, apart].map(|ix| forest.is_sound(ix)), [false, false, true]);
    assert_eq!([one, below, apart].map(|ix| forest.available(&usage, ix, GPU)), [0, 0, 4]);
    assert_eq!(usage.used(one, GPU), 0);
}
