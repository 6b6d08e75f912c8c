//! Preemption by the rules of quota trees. Kueue's rules and reasons: KEPs 83, 1337, 79 and 1714.

#![allow(clippy::needless_raw_string_hashes, reason = "this is how expect-test writes what it updates")]

use crate::common::{check, parse_world, step};
use expect_test::expect;
use model::{Event, Time};

#[test]
fn within_a_queue_a_gang_preempts_only_what_within_cluster_queue_allows() {
    for (rule, expected) in [
        (
            "within=never",
            expect![[r#"
            one  wait  needs 4 cpu; quota team has 0 of at most 8 left
            two  wait  needs 4 cpu; quota team has 0 of at most 8 left
            three  wait  needs 4 cpu; quota team has 0 of at most 8 left
        "#]],
        ),
        (
            "within=lower-priority",
            expect![[r#"
            one  preempt  low(in-queue): main on a
            two  wait  needs 4 cpu; quota team has 0 of at most 8 left
            three  wait  needs 4 cpu; quota team has 0 of at most 8 left
        "#]],
        ),
        (
            "within=lower-or-newer",
            expect![[r#"
            one  preempt  low(in-queue): main on a
            two  preempt  newer(in-queue): main on a
            three  wait  needs 4 cpu; quota team has 0 of at most 8 left
        "#]],
        ),
    ] {
        check(
            &format!(
                "node     a        cpu=64
                 quota    team     {rule} cpu=8
                 queue    q        quota=team :cpu
                 running  low      queue=q priority=1 at=50 main 1x cpu=4 on=a
                 running  newer    queue=q priority=5 at=50 main 1x cpu=4 on=a
                 pending  one      queue=q priority=5 at=10 main 1x cpu=4
                 pending  two      queue=q priority=5 at=20 main 1x cpu=4
                 pending  three    queue=q priority=5 at=60 main 1x cpu=4"
            ),
            &expected,
        );
    }
}

#[test]
fn a_running_gang_that_counts_as_newer_since_is_preempted_by_one_that_waits() {
    let mut world = parse_world(
        "node     a        cpu=64
         quota    team     within=lower-or-newer cpu=4
         queue    q        quota=team :cpu
         running  runs     queue=q at=10 main 1x cpu=4 on=a
         pending  waits    queue=q at=20 main 1x cpu=4",
    );
    let mut output = vec![step(&mut world)];
    let mut runs = world.gang("runs").unwrap().clone();
    runs.queued_at = Time(30_000_000);
    world.apply(Event::GangUpserted(runs));
    output.push(step(&mut world));
    expect![[r#"
        waits  wait  needs 4 cpu; quota team has 0 of at most 4 left
        --
        waits  preempt  runs(in-queue): main on a
    "#]]
    .assert_eq(&output.join("--\n"));
}

#[test]
fn a_gang_that_joins_equal_ones_before_the_first_of_them_is_tried() {
    let mut world = parse_world(
        "node     a        cpu=64
         quota    team     within=lower-or-newer cpu=4
         queue    q        quota=team :cpu
         running  runs     queue=q at=10 main 1x cpu=4 on=a
         pending  late     queue=q at=20 main 2x cpu=2
         pending  early    queue=q at=5 main 6x cpu=2",
    );
    let mut output = vec![step(&mut world)];
    let mut early = world.gang("early").unwrap().clone();
    early.pod_sets = world.gang("late").unwrap().pod_sets.clone();
    world.apply(Event::GangUpserted(early));
    output.push(step(&mut world));
    expect![[r#"
        early  never  needs 12 cpu; quota team has at most 4
        late  wait  needs 4 cpu; quota team has 0 of at most 4 left
        --
        early  preempt  runs(in-queue): main on a*2
        late  wait  needs 4 cpu; quota team has 0 of at most 4 left
    "#]]
    .assert_eq(&output.join("--\n"));
}

#[test]
fn a_gang_whose_pods_are_gone_is_tried_although_one_behind_it_waits() {
    let mut world = parse_world(
        "node     a        cpu=64
         quota    team     within=lower-or-newer cpu=4
         queue    q        quota=team :cpu
         pending  early    queue=q at=5 main 2x cpu=2
         pod      old      cpu=2 on=a of=early/0
         running  runs     queue=q at=10 main 1x cpu=4 on=a
         pending  late     queue=q at=20 main 2x cpu=2",
    );
    let mut output = vec![step(&mut world)];
    world.apply(Event::PodRemoved("old".into()));
    output.push(step(&mut world));
    expect![[r#"
        early  wait  1 of its pods is still terminating
        late  wait  needs 4 cpu; quota team has 0 of at most 4 left
        --
        early  preempt  runs(in-queue): main on a*2
        late  wait  needs 4 cpu; quota team has 0 of at most 4 left
    "#]]
    .assert_eq(&output.join("--\n"));
}

#[test]
fn the_rules_of_a_shared_tree_override_the_cluster_policy() {
    check(
        "policy   preemption=lower-priority
         node     a        cpu=8
         quota    team     cpu=64
         queue    q        quota=team :cpu
         running  mate     queue=q main 1x cpu=4 on=a
         running  stranger main 1x cpu=4 on=a
         pending  urgent   queue=q priority=9 main 1x cpu=4
         pending  second   queue=q priority=9 main 1x cpu=4",
        &expect![[r#"
            urgent  preempt  stranger: main on a
            second  wait  main: needs 4 cpu on one node; the only eligible node has none free
        "#]],
    );
}

#[test]
fn lent_quota_is_reclaimed_from_borrowers() {
    for (rule, expected) in [
        (
            "reclaim=never",
            expect![[r#"
                owner  wait  needs 6 cpu; quota mine has 0 of at most 16 left (10 of its own, 6 to borrow)
            "#]],
        ),
        (
            "reclaim=lower-priority",
            expect![[r#"
            owner  preempt  weak(reclaimed): main on a
        "#]],
        ),
        (
            "reclaim=any",
            expect![[r#"
            owner  preempt  weak(reclaimed): main on a
        "#]],
        ),
    ] {
        check(
            &format!(
                "node     a        cpu=64
                 quota    all
                 quota    mine     in=all {rule} cpu=10
                 quota    yours    in=all cpu=2
                 quota    theirs   in=all cpu=4
                 queue    mine     quota=mine :cpu
                 queue    yours    quota=yours :cpu
                 queue    theirs   quota=theirs :cpu
                 running  strong   queue=yours priority=9 main 1x cpu=6 on=a
                 running  weak     queue=yours main 1x cpu=6 on=a
                 running  at-home  queue=theirs main 1x cpu=4 on=a
                 pending  owner    queue=mine priority=5 main 1x cpu=6"
            ),
            &expected,
        );
    }
}

#[test]
fn reclaim_leaves_a_borrower_its_nominal_quota() {
    // Reclaim from a queue ends when it no longer borrows: one of three gangs may be preempted.
    check(
        "node     a        cpu=64
         quota    all
         quota    mine     in=all reclaim=any cpu=6
         quota    yours    in=all cpu=4
         quota    idle     in=all lend:cpu=0 cpu=4
         queue    mine     quota=mine :cpu
         queue    yours    quota=yours :cpu
         running  y1       queue=yours main 1x cpu=2 on=a
         running  y2       queue=yours main 1x cpu=2 on=a
         running  y3       queue=yours main 1x cpu=2 on=a
         running  m1       queue=mine main 1x cpu=2 on=a
         pending  fits     queue=mine main 1x cpu=4
         pending  greedy   queue=mine main 1x cpu=6",
        &expect![[r#"
            fits  preempt  y3(reclaimed): main on a
            greedy  wait  needs 6 cpu; quota mine has 0 of at most 10 left (6 of its own, 4 to borrow)
        "#]],
    );
}

#[test]
fn a_gang_that_borrows_reclaims_nothing_unless_borrow_within_cohort_allows_it() {
    for (rule, expected) in [
        (
            "",
            expect![[r#"
                two-fit  wait  needs 6 cpu; quota mine has 0 of at most 12 left (2 of its own, 10 to borrow)
                one-fits  wait  needs 4 cpu; quota mine has 0 of at most 12 left (2 of its own, 10 to borrow)
            "#]],
        ),
        (
            "borrowing",
            expect![[r#"
                two-fit  preempt  four(while-borrowing), two(while-borrowing): main on a
                one-fits  wait  needs 4 cpu; quota mine has 0 of at most 12 left (2 of its own, 10 to borrow)
            "#]],
        ),
        (
            "borrowing=3",
            expect![[r#"
                two-fit  wait  needs 6 cpu; quota mine has 0 of at most 12 left (2 of its own, 10 to borrow)
                one-fits  preempt  two(while-borrowing): main on a
            "#]],
        ),
    ] {
        check(
            &format!(
                "node     a        cpu=64
                 quota    all      cpu=8
                 quota    mine     in=all reclaim=lower-priority {rule} cpu=2
                 quota    yours    in=all cpu=2
                 queue    mine     quota=mine :cpu
                 queue    yours    quota=yours :cpu
                 running  two      queue=yours priority=2 main 1x cpu=4 on=a
                 running  four     queue=yours priority=4 main 1x cpu=4 on=a
                 running  six      queue=yours priority=6 main 1x cpu=4 on=a
                 pending  two-fit  queue=mine priority=5 main 1x cpu=6
                 pending  one-fits queue=mine priority=5 main 1x cpu=4"
            ),
            &expected,
        );
    }
}

#[test]
fn victims_of_other_queues_are_preferred_to_those_of_the_own_queue() {
    check(
        "node     a        cpu=64
         quota    all
         quota    mine     in=all within=lower-priority reclaim=any cpu=8
         quota    yours    in=all cpu=4
         queue    mine     quota=mine :cpu
         queue    yours    quota=yours :cpu
         running  own      queue=mine started=900 main 1x cpu=4 on=a
         running  guest    queue=yours priority=8 started=0 main 1x cpu=8 on=a
         pending  g        queue=mine priority=5 main 1x cpu=4",
        &expect![[r#"
            g  preempt  guest(reclaimed): main on a
        "#]],
    );
}

#[test]
fn gangs_of_the_own_queue_are_preempted_when_other_queues_may_not_be() {
    check(
        "node     a        cpu=64
         quota    all
         quota    mine     in=all within=lower-priority reclaim=lower-priority cpu=8
         quota    yours    in=all cpu=4
         queue    mine     quota=mine :cpu
         queue    yours    quota=yours :cpu
         running  own      queue=mine main 1x cpu=4 on=a
         running  guest    queue=yours priority=8 main 1x cpu=8 on=a
         pending  g        queue=mine priority=5 main 1x cpu=4",
        &expect![[r#"
            g  preempt  own(in-queue): main on a
        "#]],
    );
}

#[test]
fn quota_of_a_subtree_is_reclaimed_from_outside_of_it() {
    // The quota of the `team` subtree is reclaimed from outside, whatever the priority. Within the subtree, priority
    // decides.
    check(
        "node     a        cpu=64
         quota    root
         quota    team     in=root cpu=8
         quota    one      in=team reclaim=lower-priority
         quota    two      in=team
         quota    guest    in=root
         queue    one      quota=one :cpu
         queue    two      quota=two :cpu
         queue    guest    quota=guest :cpu
         running  mate     queue=two priority=9 main 1x cpu=4 on=a
         running  guest    queue=guest priority=2 main 1x cpu=4 on=a
         pending  g        queue=one priority=5 main 1x cpu=4
         pending  h        queue=one priority=5 main 1x cpu=4",
        &expect![[r#"
            g  preempt  guest(reclaimed): main on a
            h  wait  needs 4 cpu; quota one has 0 of at most 8 left (0 of its own, 8 to borrow)
        "#]],
    );
}

#[test]
fn a_queue_whose_cohort_does_not_borrow_is_not_reclaimed_from() {
    check(
        "node     a        cpu=64
         quota    root
         quota    mine     in=root reclaim=any cpu=4
         quota    club     in=root cpu=4
         quota    member   in=club cpu=2
         quota    outside  in=root cpu=4
         queue    mine     quota=mine :cpu
         queue    member   quota=member :cpu
         queue    outside  quota=outside :cpu
         running  member   queue=member main 1x cpu=6 on=a
         running  outside  queue=outside main 1x cpu=6 on=a
         pending  g        queue=mine main 1x cpu=4",
        &expect![[r#"
            g  preempt  outside(reclaimed): main on a
        "#]],
    );
}

#[test]
fn only_gangs_that_use_the_short_resource_are_preempted() {
    check(
        "node     a        cpu=64 memory=64Gi
         quota    all
         quota    mine     in=all within=lower-priority cpu=4 memory=4Gi
         queue    mine     quota=mine :cpu,memory
         running  hungry   queue=mine started=0 main 1x memory=1Gi cpu=4 on=a
         running  cheap    queue=mine started=999 main 1x memory=1Gi on=a
         pending  g        queue=mine priority=5 main 1x cpu=1",
        &expect![[r#"
            g  preempt  hungry(in-queue): main on a
        "#]],
    );
}

#[test]
fn reclaim_skips_victims_whose_nodes_do_not_help() {
    // Only one of the two gangs may be preempted. The cheaper one is on the wrong node.
    check(
        "node     a        cpu=4
         node     b        cpu=8
         quota    all
         quota    mine     in=all reclaim=any cpu=8
         quota    yours    in=all cpu=4
         queue    mine     quota=mine :cpu
         queue    yours    quota=yours :cpu
         running  useless  queue=yours started=999 main 1x cpu=4 on=a
         running  useful   queue=yours started=0 main 1x cpu=4 on=b
         pending  g        queue=mine main 1x cpu=8",
        &expect![[r#"
            g  preempt  useful(reclaimed): main on b
        "#]],
    );
}

#[test]
fn a_small_borrower_is_preempted_first_when_the_large_one_would_end_the_borrowing() {
    // Gang `large` loses less work. But once it is gone, its queue no longer borrows.
    check(
        "node     a        cpu=8
         quota    own      in=all cpu=8 reclaim=any
         quota    lent     in=all cpu=2
         queue    own      quota=own :cpu
         queue    lent     quota=lent :cpu
         running  large    queue=lent started=900 main 1x cpu=4 on=a
         running  small    queue=lent started=100 main 1x cpu=2 on=a
         pending  owner    queue=own main 1x cpu=8",
        &expect![[r#"
            owner  preempt  large(reclaimed), small(reclaimed): main on a
        "#]],
    );
}

#[test]
fn with_free_quota_a_gang_still_reclaims_nodes_from_borrowers() {
    check(
        "node     a        cpu=8
         quota    all      cpu=64
         quota    mine     in=all within=lower-priority reclaim=any cpu=8
         quota    yours    in=all cpu=2
         quota    theirs   in=all cpu=8
         queue    mine     quota=mine :cpu
         queue    yours    quota=yours :cpu
         queue    theirs   quota=theirs :cpu
         running  borrower queue=yours main 1x cpu=4 on=a
         running  at-home  queue=theirs main 1x cpu=4 on=a
         pending  g        queue=mine main 1x cpu=4
         pending  h        queue=mine main 1x cpu=4",
        &expect![[r#"
            g  preempt  borrower(reclaimed): main on a
            h  wait  main: needs 4 cpu on one node; the only eligible node has none free
        "#]],
    );
}

#[test]
fn a_flavor_that_only_needs_reclaim_is_preferred_to_one_that_preempts_own_gangs() {
    check(
        "node     a        cpu=64
         flavor   first
         flavor   second
         quota    all
         quota    mine     in=all within=lower-priority reclaim=any cpu@first=4 cpu@second=4
         quota    yours    in=all cpu@second=1
         queue    mine     quota=mine first,second:cpu
         queue    stop     quota=mine when-can-preempt=stop first,second:cpu
         queue    yours    quota=yours second:cpu
         running  own      queue=mine main 1x cpu=4 on=a flavor:cpu=first
         running  guest    queue=yours main 1x cpu=5 on=a flavor:cpu=second
         pending  g        queue=mine priority=5 main 1x cpu=4
         pending  h        queue=stop priority=5 main 1x cpu=4",
        &expect![[r#"
            g  preempt  guest(reclaimed): main on a in second
            h  preempt  own(in-queue): main on a in first
        "#]],
    );
}
