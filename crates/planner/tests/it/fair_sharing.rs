//! Preemption with fair sharing and in MCAD's quota trees, and the absence of preemption cycles.

#![allow(clippy::needless_raw_string_hashes, reason = "this is how expect-test writes what it updates")]

use crate::common::{audited, check, evictions, parse_world};
use expect_test::expect;
use model::{Event, Gang, GangState, World};

#[test]
fn fair_sharing_preempts_until_shares_are_equal() {
    // Of 12 CPUs, one of two queues without nominal quota uses all. 4 CPUs are a share of one third, 6 are one half.
    for (rule, expected) in [
        (
            "final-share",
            expect![[r#"
                half  wait  needs 6 cpu; quota mine has 0 of at most 12 left (0 of its own, 12 to borrow)
                third  preempt  y3(fair-share): main on a
                another  wait  needs 4 cpu; quota mine has 0 of at most 12 left (0 of its own, 12 to borrow)
            "#]],
        ),
        (
            "initial-share",
            expect![[r#"
                half  preempt  y2(fair-share), y3(fair-share): main on a
                third  wait  needs 4 cpu; quota mine has 0 of at most 12 left (0 of its own, 12 to borrow)
                another  wait  needs 4 cpu; quota mine has 0 of at most 12 left (0 of its own, 12 to borrow)
            "#]],
        ),
        (
            "final-or-initial-share",
            expect![[r#"
                half  preempt  y2(fair-share), y3(fair-share): main on a
                third  wait  needs 4 cpu; quota mine has 0 of at most 12 left (0 of its own, 12 to borrow)
                another  wait  needs 4 cpu; quota mine has 0 of at most 12 left (0 of its own, 12 to borrow)
            "#]],
        ),
    ] {
        check(
            &format!(
                "policy   fair-sharing={rule}
                 node     a        cpu=64
                 quota    all      cpu=12
                 quota    mine     in=all reclaim=any
                 quota    yours    in=all
                 queue    mine     quota=mine :cpu
                 queue    yours    quota=yours :cpu
                 running  y1       queue=yours main 1x cpu=4 on=a
                 running  y2       queue=yours main 1x cpu=4 on=a
                 running  y3       queue=yours main 1x cpu=4 on=a
                 pending  half     queue=mine priority=2 main 1x cpu=6
                 pending  third    queue=mine priority=1 main 1x cpu=4
                 pending  another  queue=mine main 1x cpu=4"
            ),
            &expected,
        );
    }
}

#[test]
fn the_largest_weighted_share_is_preempted_first() {
    check(
        "policy   fair-sharing=final-share
         node     a        cpu=64
         quota    all      cpu=12
         quota    mine     in=all reclaim=any
         quota    light    in=all
         quota    heavy    in=all weight=4
         queue    mine     quota=mine :cpu
         queue    light    quota=light :cpu
         queue    heavy    quota=heavy :cpu
         running  l1       queue=light started=0 main 1x cpu=2 on=a
         running  l2       queue=light started=0 main 1x cpu=2 on=a
         running  h1       queue=heavy started=900 main 1x cpu=4 on=a
         running  h2       queue=heavy started=900 main 1x cpu=4 on=a
         pending  g        queue=mine main 1x cpu=2",
        &expect![[r#"
            g  preempt  l1(fair-share): main on a
        "#]],
    );
}

#[test]
fn nominal_quota_is_reclaimed_whatever_the_shares() {
    check(
        "policy   fair-sharing=final-share
         node     a        cpu=64
         quota    all
         quota    mine     in=all reclaim=any cpu=6
         quota    yours    in=all reclaim=any cpu=6
         queue    mine     quota=mine :cpu
         queue    yours    quota=yours :cpu
         running  y1       queue=yours priority=9 main 1x cpu=6 on=a
         running  y2       queue=yours priority=9 main 1x cpu=6 on=a
         pending  g        queue=mine main 1x cpu=6",
        &expect![[r#"
            g  preempt  y2(reclaimed): main on a
        "#]],
    );
}

#[test]
fn shares_are_compared_below_the_lowest_common_ancestor() {
    // The two queues of one cohort have equal shares. The cohort as a whole has twice the share of the other one.
    check(
        "policy   fair-sharing=final-share
         node     a        cpu=64
         quota    root     cpu=12
         quota    red      in=root
         quota    red-1    in=red
         quota    red-2    in=red
         quota    blue     in=root
         quota    blue-1   in=blue reclaim=any
         queue    red-1    quota=red-1 :cpu
         queue    red-2    quota=red-2 :cpu
         queue    blue-1   quota=blue-1 :cpu
         running  r1       queue=red-1 started=0 main 1x cpu=2 on=a
         running  r2       queue=red-1 started=0 main 1x cpu=2 on=a
         running  r3       queue=red-2 started=900 main 1x cpu=2 on=a
         running  r4       queue=red-2 started=900 main 1x cpu=2 on=a
         running  b1       queue=blue-1 main 1x cpu=4 on=a
         pending  g        queue=blue-1 main 1x cpu=2
         pending  h        queue=blue-1 main 1x cpu=2",
        &expect![[r#"
            g  preempt  r3(fair-share): main on a
            h  wait  needs 2 cpu; quota blue-1 has 0 of at most 12 left (0 of its own, 12 to borrow)
        "#]],
    );
}

#[test]
fn nominal_quota_is_reclaimed_from_borrowers_and_priority_decides_the_rest() {
    // An MCAD quota tree: the root lends its own quota to all its groups.
    check(
        "node     a        cpu=64
         quota    context  cpu=4
         quota    gold     in=context within=lower-priority reclaim=any borrowing cpu=4
         quota    silver   in=context within=lower-priority reclaim=any borrowing cpu=2
         running  s9       charge=silver priority=9 main 1x cpu=4 on=a
         running  s1       charge=silver priority=1 main 1x cpu=4 on=a
         pending  owner    charge=gold priority=5 main 1x cpu=4
         pending  borrower charge=gold priority=4 main 1x cpu=4
         pending  strong   charge=gold priority=10 main 1x cpu=4",
        &expect![[r#"
            strong  preempt  s1(reclaimed): main on a
            owner  wait  needs 4 cpu; quota gold has 0 of at most 10 left (4 of its own, 6 to borrow)
            borrower  wait  needs 4 cpu; quota gold has 0 of at most 10 left (4 of its own, 6 to borrow)
        "#]],
    );
}

#[test]
fn preemption_never_exceeds_a_hard_limit() {
    check(
        "node     a        cpu=64
         quota    context  cpu=8
         quota    hard     in=context within=lower-priority reclaim=any borrowing cpu=4 borrow:cpu=0
         quota    soft     in=context within=lower-priority reclaim=any borrowing cpu=4
         running  s        charge=soft priority=1 main 1x cpu=12 on=a
         pending  within   charge=hard priority=5 main 1x cpu=4
         pending  beyond   charge=hard priority=9 main 1x cpu=6
         pending  soft     charge=soft priority=5 main 1x cpu=8",
        &expect![[r#"
            beyond  never  needs 6 cpu; quota hard has at most 4
            within  admit  main on a
            soft  preempt  s(in-queue): main on a
        "#]],
    );
}

#[test]
fn each_quota_tree_preempts_by_its_own_rules() {
    // Each tree is short of quota for one of the gangs. Every tree has to have enough, or no gang is preempted.
    check(
        "node     a        cpu=64
         quota    context  cpu=0
         quota    gold     in=context reclaim=any cpu=4
         quota    bronze   in=context cpu=4
         quota    site     cpu=0
         quota    north    in=site within=lower-priority cpu=8
         running  lender   charge=bronze priority=9 main 1x cpu=8 on=a
         running  mate     charge=north priority=1 main 1x cpu=8 on=a
         pending  both     charge=gold,north priority=5 main 1x cpu=4
         pending  first    charge=bronze,north priority=5 main 1x cpu=8",
        &expect![[r#"
            both  preempt  lender(reclaimed), mate(in-queue): main on a
            first  wait  needs 8 cpu; quota bronze has 0 of at most 8 left (4 of its own, 4 to borrow)
        "#]],
    );
}

/// Plans and applies the plans until nothing changes. Returns the verdicts of each round.
fn until_stable(world: &mut World) -> String {
    let mut output = Vec::new();
    for _ in 0..20 {
        let plan = audited(world);
        let has_admissions = plan.verdicts.iter().any(|(_, verdict)| verdict.shortage().is_none());
        output.push(scenario::verdicts(world, &plan));
        world.apply(Event::Planned(plan));
        let stopped = evictions(world);
        if !has_admissions && stopped.is_empty() {
            return output.join("--\n");
        }
        for event in stopped {
            world.apply(event);
        }
    }
    panic!("not stable:\n{}", output.join("--\n"))
}

/// kueue#14543: own gangs counted as preempted, which made preemption of other queues fair; then the own gangs were
/// kept.
#[test]
fn a_victim_that_is_kept_after_all_does_not_justify_the_other_victims() {
    let mut world = parse_world(
        "policy   fair-sharing=final-or-initial-share
         node     a        cpu=64
         quota    all      cpu=12
         quota    mine     in=all within=lower-priority reclaim=any
         quota    yours    in=all within=lower-priority reclaim=any
         queue    mine     quota=mine :cpu
         queue    yours    quota=yours :cpu
         running  own      queue=mine main 1x cpu=2 on=a
         running  y1       queue=yours priority=1 main 1x cpu=4 on=a
         running  y2       queue=yours priority=1 main 1x cpu=4 on=a
         pending  g        queue=mine priority=5 main 1x cpu=6",
    );
    expect![[r#"
        g  preempt  own(in-queue), y2(fair-share): main on a
        --
        g  admit  main on a
        y2  wait  needs 4 cpu; quota yours has 2 of at most 12 left (0 of its own, 12 to borrow)
        own  admit  main on a
        --
        y2  wait  needs 4 cpu; quota yours has 0 of at most 12 left (0 of its own, 12 to borrow)
    "#]]
    .assert_eq(&until_stable(&mut world));
}

/// kueue#3779: a cohort with guaranteed quota reclaims what a best-effort queue borrowed, and that queue borrows it
/// again.
#[test]
fn guaranteed_and_best_effort_queues_do_not_preempt_each_other_in_a_cycle() {
    let mut world = parse_world(
        "policy   fair-sharing=final-or-initial-share
         node     a          cpu=64
         quota    root
         quota    guaranteed in=root cpu=300m
         quota    tenant     in=guaranteed within=lower-priority reclaim=any borrowing
         quota    best-a     in=root reclaim=lower-priority
         quota    best-b     in=root reclaim=lower-priority
         queue    tenant     quota=tenant :cpu
         queue    best-a     quota=best-a :cpu
         queue    best-b     quota=best-b :cpu
         running  a1         queue=best-a at=1 main 1x cpu=100m on=a
         running  a2         queue=best-a at=2 main 1x cpu=100m on=a
         running  b1         queue=best-b at=3 main 1x cpu=50m on=a
         running  b2         queue=best-b at=4 main 1x cpu=50m on=a
         pending  g1         queue=tenant priority=9 at=5 main 1x cpu=50m
         pending  g2         queue=tenant priority=9 at=6 main 1x cpu=100m",
    );
    expect![[r#"
        g1  preempt  b2(fair-share): main on a
        g2  preempt  a2(fair-share): main on a
        --
        g1  admit  main on a
        g2  admit  main on a
        a2  wait  needs 100m cpu; quota best-a has 0 of at most 300m left (0 of its own, 300m to borrow)
        b2  wait  needs 50m cpu; quota best-b has 0 of at most 300m left (0 of its own, 300m to borrow)
        --
    "#]]
    .assert_eq(&until_stable(&mut world));
    // The smaller case of the same issue: the queue with the larger share preempts nothing, whatever the priority.
    let mut world = parse_world(
        "policy   fair-sharing=final-or-initial-share
         node     a          cpu=64
         quota    testing
         quota    one        in=testing within=lower-priority reclaim=any borrowing cpu=150m
         quota    two        in=testing cpu=150m
         quota    best       in=testing
         queue    one        quota=one :cpu
         queue    best       quota=best :cpu
         running  one-1      queue=one priority=9 at=1 main 1x cpu=250m on=a
         running  best-1     queue=best at=2 main 1x cpu=50m on=a
         pending  one-2      queue=one priority=9 at=3 main 1x cpu=50m",
    );
    expect![[r#"
        one-2  wait  needs 50m cpu; quota one has 0 of at most 300m left (150m of its own, 150m to borrow)
    "#]]
    .assert_eq(&until_stable(&mut world));
}

/// kueue#2821: the victim is older, so it is first in queue order and preempts its preemptor.
#[test]
fn an_older_victim_does_not_preempt_its_preemptor() {
    let mut world = parse_world(
        "node     a        cpu=64
         quota    all      cpu=4
         quota    one      in=all within=lower-priority reclaim=any borrowing cpu=4
         quota    two      in=all within=lower-priority reclaim=any borrowing cpu=4
         queue    one      quota=one :cpu
         queue    two      quota=two :cpu
         running  low      queue=one priority=1 at=1 main 1x cpu=6 on=a
         running  b1       queue=two priority=5 at=2 main 1x cpu=6 on=a
         pending  b2       queue=two priority=5 at=3 main 1x cpu=6",
    );
    expect![[r#"
        b2  preempt  low(while-borrowing): main on a
        --
        b2  admit  main on a
        low  wait  needs 6 cpu; quota one has 0 of at most 12 left (4 of its own, 8 to borrow)
        --
    "#]]
    .assert_eq(&until_stable(&mut world));
}

/// kueue#13662: the first of two victims terminates earlier, and fits again while the second one still terminates.
#[test]
fn a_victim_that_terminates_first_is_not_readmitted_before_its_preemptor() {
    let mut world = parse_world(
        "node     a        cpu=64
         quota    all
         quota    owner    in=all reclaim=any cpu=4
         quota    lender   in=all reclaim=any cpu=2
         queue    owner    quota=owner :cpu
         queue    lender   quota=lender :cpu
         running  a1       queue=lender priority=9 at=1 main 1x cpu=3 on=a
         running  a2       queue=lender priority=9 at=2 main 1x cpu=3 on=a
         pending  p        queue=owner at=3 main 1x cpu=4",
    );
    let mut output = Vec::new();
    for terminated in ["", "a1", "a2", ""] {
        if let Some(gang) = world.gang(terminated).cloned() {
            world.apply(Event::GangUpserted(Gang { state: GangState::Waiting, ..gang }));
        }
        let plan = audited(&world);
        output.push(scenario::verdicts(&world, &plan));
        world.apply(Event::Planned(plan));
    }
    expect![[r#"
        p  preempt  a1(reclaimed), a2(reclaimed): main on a
        --
        a1  wait  needs 3 cpu; quota lender has 0 of at most 6 left (2 of its own, 4 to borrow)
        --
        p  admit  main on a
        a1  wait  needs 3 cpu; quota lender has 2 of at most 6 left (2 of its own, 4 to borrow)
        a2  wait  needs 3 cpu; quota lender has 2 of at most 6 left (2 of its own, 4 to borrow)
        --
        a1  wait  needs 3 cpu; quota lender has 2 of at most 6 left (2 of its own, 4 to borrow)
        a2  wait  needs 3 cpu; quota lender has 2 of at most 6 left (2 of its own, 4 to borrow)
    "#]]
    .assert_eq(&output.join("--\n"));
}

#[test]
fn of_queues_with_equal_shares_the_one_with_the_victim_of_lowest_priority_gives() {
    check(
        "policy   fair-sharing=final-or-initial-share
         node     a        cpu=64
         quota    all
         quota    mine     in=all reclaim=any cpu=8
         quota    one      in=all
         quota    two      in=all
         queue    mine     quota=mine :cpu
         queue    one      quota=one :cpu
         queue    two      quota=two :cpu
         running  high     queue=one priority=2 main 1x cpu=4 on=a
         running  low      queue=two priority=1 main 1x cpu=4 on=a
         pending  owner    queue=mine main 1x cpu=4",
        &expect![[r#"
            owner  preempt  low(reclaimed): main on a
        "#]],
    );
}

#[test]
fn a_gang_that_waits_for_its_victim_counts_in_no_share_yet() {
    let world = parse_world(
        "flavor    spot   quota-only
         quota     all
         quota     one    in=all cpu@spot=2
         quota     two    in=all cpu@spot=2 within=lower-priority
         queue     two    quota=two spot:cpu
         running   weak   queue=two main 3x cpu=1 unplaced=3 flavor:cpu=spot
         nominated strong priority=1 victims=weak(in-queue) queue=two main 4x cpu=1 unplaced=4 flavor:cpu=spot",
    );
    let two = *world.quota_nodes().keys().find(|ix| world.quota_name(**ix) == "two").unwrap();
    assert_eq!(world.quota_share(two).thousandths(), Some(250));
}
