//! The auditor reports violations in invalid plans.

use audit::violations;
use model::{Assignment, Plan, QueueingHint, Shortage, Time, Verdict, World};

const WORLD: &str = "
    node     a        cpu=4 label:zone=a
    node     b        cpu=4 taint:t:NoSchedule
    node     c        cpu=4 cordoned
    foreign  f        main 2x cpu=1 select:zone=a
    running  r        main 1x cpu=1 on=a
    pending  first    main 2x cpu=1
    pending  second   main 1x cpu=3 tolerate:t
    pending  huge     main 1x cpu=5
";

type Places<'a> = &'a [(&'a str, u32)];

fn admit(uid: &str, places: Places<'_>) -> (String, Verdict) {
    let places = places.iter().map(|(node, count)| ((*node).to_owned(), *count)).collect();
    (uid.to_owned(), Verdict::Admit(Assignment { pod_sets: vec![places], ..Assignment::default() }))
}

fn shortage() -> Shortage {
    Shortage { causes: Vec::new().into(), queueing_hint: QueueingHint::EligibleNodeFreed }
}

fn wait(uid: &str) -> (String, Verdict) {
    (uid.to_owned(), Verdict::Wait(shortage()))
}

fn never(uid: &str) -> (String, Verdict) {
    (uid.to_owned(), Verdict::Never(shortage()))
}

fn found(verdicts: Vec<(String, Verdict)>) -> Vec<String> {
    let world: World = scenario::parse(WORLD).unwrap_or_else(|error| panic!("{error}"));
    let plan = Plan { generation: world.generation(), verdicts, ..Plan::default() };
    violations(&world.snapshot(Time(0)), &plan).iter().map(ToString::to_string).collect()
}

#[test]
fn a_valid_plan_has_no_violations() {
    assert_eq!(found(vec![wait("first"), admit("second", &[("b", 1)]), never("huge")]), Vec::<String>::new());
}

#[test]
fn every_violation_is_reported() {
    let rest = || vec![admit("second", &[("b", 1)]), never("huge")];
    let with = |first: (String, Verdict)| [vec![first], rest()].concat();
    let cases = [
        (with(admit("first", &[("a", 1)])), "default/first has 2 pods in main, 1 are placed"),
        (with(admit("first", &[("a", 1), ("x", 1)])), "default/first is placed on x, which does not exist"),
        (
            with(admit("first", &[("a", 1), ("b", 1)])),
            "main of default/first is placed on b, which is not eligible for it",
        ),
        (
            with(admit("first", &[("a", 1), ("c", 1)])),
            "main of default/first is placed on c, which is not eligible for it",
        ),
        (
            with(admit("first", &[("a", 2)])),
            "admitting default/first uses 1000 of resource 0 that is reserved for other gangs",
        ),
        (
            vec![wait("first"), admit("second", &[("a", 1)]), never("huge")],
            "admitting default/second uses 2000 of resource 0 that is reserved for other gangs",
        ),
        (vec![wait("first"), wait("second"), never("huge")], "default/second stays pending although it fits"),
        (
            vec![wait("first"), never("second"), never("huge")],
            "default/second has the verdict never, but fits on empty nodes",
        ),
        (vec![admit("second", &[("b", 1)]), never("huge")], "default/first is pending without a verdict"),
        (with(admit("r", &[("a", 1)])), "the plan decides default/r, which is not pending"),
        (with(wait("nobody")), "a verdict names the unknown gang nobody"),
        (
            [rest(), vec![wait("first"), wait("first")]].concat(),
            "the plan has two verdicts for default/first",
        ),
        (
            vec![wait("first"), never("second"), admit("huge", &[("b", 1)])],
            "main of default/huge is placed on b, which is not eligible for it",
        ),
    ];
    for (verdicts, message) in cases {
        let found = found(verdicts);
        assert!(found.iter().any(|text| text == message), "{message}: {found:?}");
    }
}

#[test]
fn an_overcommitted_node_is_reported() {
    let world = scenario::parse(
        "node     a  cpu=4
         running  r  main 2x cpu=1 on=a*2
         pod      p  on=a cpu=2 of=r/0
         pending  g  main 2x cpu=1",
    )
    .unwrap_or_else(|error| panic!("{error}"));
    let plan =
        Plan { generation: world.generation(), verdicts: vec![admit("g", &[("a", 2)])], ..Plan::default() };
    let found: Vec<_> = violations(&world.snapshot(Time(0)), &plan).iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        [
            "admitting default/g uses 1000 of resource 0 that is reserved for other gangs",
            "admitting default/g overcommits resource 0 on a by 1000"
        ]
    );
}

#[test]
fn an_admission_out_of_order_in_a_quota_tree_is_reported() {
    let admit = |uid: &str| {
        let flavors = vec![[(model::ResourceIx::CPU, model::FlavorIx::ANY)].into()];
        let assignment =
            Assignment { pod_sets: vec![vec![("a".to_owned(), 1)]], flavors, ..Assignment::default() };
        (uid.to_owned(), Verdict::Admit(assignment))
    };
    for (policy, owned) in [("policy fair-sharing=final-share", 0), ("", 1)] {
        // Fair sharing: `one` would have twice the share. Without: `one` would borrow, and `other` would not.
        let world = scenario::parse(&format!(
            "{policy}
             node     a        cpu=4
             quota    all      cpu=4
             quota    one      in=all
             quota    other    in=all cpu={owned}
             queue    one      quota=one :cpu
             queue    other    quota=other :cpu
             pending  one      queue=one main 1x cpu=2
             pending  other    queue=other main 1x cpu=1"
        ));
        let world = world.unwrap_or_else(|error| panic!("{error}"));
        let verdicts = vec![admit("one"), admit("other")];
        let plan = Plan { generation: world.generation(), verdicts, ..Plan::default() };
        let found: Vec<_> =
            violations(&world.snapshot(Time(0)), &plan).iter().map(ToString::to_string).collect();
        let unfair = "default/one is admitted before default/other, which precedes it in their quota tree";
        assert_eq!(found, [unfair], "{policy}");
    }
}

#[test]
fn a_broken_rule_between_pods_is_reported() {
    let nodes = "
        node     a        cpu=9 label:zone=a
        node     b        cpu=9 label:zone=b
        node     none     cpu=9\n";
    let cases: [(&str, Places<'_>, &[&str]); 9] = [
        ("main 2x selected:1 apart:1=zone", &[("a", 1), ("b", 1)], &[]),
        (
            "main 2x selected:1 apart:1=zone",
            &[("a", 2)],
            &["main of default/g on a breaks anti-affinity by zone"],
        ),
        ("main 2x selected:1 apart:1=zone", &[("none", 2)], &[]),
        ("main 1x apart:2=zone", &[("b", 1)], &["main of default/g on b breaks anti-affinity by zone"]),
        ("main 1x port:80/TCP", &[("b", 1)], &["a host port of main of default/g is taken on b"]),
        (
            "main 3x selected:1 spread:1=zone:1",
            &[("a", 3)],
            &["main of default/g is not spread by zone as required"],
        ),
        (
            "main 2x near:2=zone",
            &[("a", 1), ("b", 1)],
            &["main of default/g on a has no pod beside it that its affinity requires"],
        ),
        (
            "main 2x selected:1 near:1=zone",
            &[("a", 1), ("b", 1)],
            &[
                "main of default/g on a has no pod beside it that its affinity requires",
                "main of default/g on b has no pod beside it that its affinity requires",
            ],
        ),
        ("main 2x selected:1 near:1=zone", &[("b", 2)], &[]),
    ];
    for (gang, places, expected) in cases {
        let text = format!("{nodes} pod other on=b selected:2 port:10.0.0.1:80/TCP\n pending g {gang}");
        let world = scenario::parse(&text).unwrap_or_else(|error| panic!("{error}"));
        let plan =
            Plan { generation: world.generation(), verdicts: vec![admit("g", places)], ..Plan::default() };
        let found: Vec<_> =
            violations(&world.snapshot(Time(0)), &plan).iter().map(ToString::to_string).collect();
        assert_eq!(found, expected, "{gang} on {places:?}");
    }
}
