//! Who is stopped by the rules of quota trees, one screen each. Kueue's rules and reasons: KEPs 83, 1337, 79 and 1714.

#![allow(clippy::needless_raw_string_hashes, reason = "this is how expect-test writes what it updates")]

mod common;

use common::check;
use expect_test::expect;

#[test]
fn within_its_queue_a_gang_stops_only_whom_the_queue_says() {
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
fn gangs_of_one_tree_go_by_its_rules_and_not_by_those_of_the_cluster() {
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
fn lent_quota_is_taken_back_from_who_borrows() {
    for (rule, expected) in [
        (
            "reclaim=never",
            expect![[r#"
            owner  wait  needs 6 cpu; quota mine has 0 of at most 16 left
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
fn a_borrower_is_left_what_it_owns() {
    // The right to a borrower ends when it uses no more than it owns: one of three may be stopped.
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
            greedy  wait  needs 6 cpu; quota mine has 0 of at most 10 left
        "#]],
    );
}

#[test]
fn who_would_borrow_takes_nothing_back_unless_that_is_allowed() {
    for (rule, expected) in [
        (
            "",
            expect![[r#"
        two-fit  wait  needs 6 cpu; quota mine has 0 of at most 12 left
        one-fits  wait  needs 4 cpu; quota mine has 0 of at most 12 left
    "#]],
        ),
        (
            "borrowing",
            expect![[r#"
        two-fit  preempt  four(while-borrowing), two(while-borrowing): main on a
        one-fits  wait  needs 4 cpu; quota mine has 0 of at most 12 left
    "#]],
        ),
        (
            "borrowing=3",
            expect![[r#"
        two-fit  wait  needs 6 cpu; quota mine has 0 of at most 12 left
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
fn victims_of_other_queues_come_before_those_of_its_own() {
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
fn own_gangs_make_room_where_the_others_cannot() {
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
fn quota_is_taken_back_along_the_tree() {
    // What the team's subtree owns is taken back from outside of it, whatever the priority; within it priority decides.
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
            h  wait  needs 4 cpu; quota one has 0 of at most 8 left
        "#]],
    );
}

#[test]
fn what_a_subtree_keeps_to_itself_is_not_taken_back() {
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
fn only_those_count_who_use_what_is_short() {
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
fn rights_are_not_used_up_on_gangs_that_are_of_no_use() {
    // Only one of the two may be stopped; the cheaper one is on the wrong node.
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
fn a_small_borrower_goes_first_where_nobody_could_be_stopped_after_the_large_one() {
    // The large one has lost less, but with it gone its queue borrows nothing any more.
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
fn quota_may_be_left_while_places_are_not() {
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
fn a_flavor_in_which_nobody_of_its_own_is_stopped_is_better() {
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
