//! Who goes first of several queues that share a tree of quota.

#![allow(clippy::needless_raw_string_hashes, reason = "this is how expect-test writes what it updates")]

mod common;

use common::check;
use expect_test::expect;

#[test]
fn who_stays_within_its_own_quota_goes_before_who_borrows() {
    // Of 8, two run. Greedy came first and has the higher priority, but would have to borrow.
    check(
        "node     a        cpu=8
         quota    all
         quota    greedy   in=all cpu=2
         quota    modest   in=all cpu=4
         quota    idle     in=all cpu=2
         queue    greedy   quota=greedy :cpu
         queue    modest   quota=modest :cpu
         running  r        queue=greedy main 1x cpu=2 flavor:cpu= on=a
         pending  g-1      queue=greedy priority=9 main 1x cpu=3
         pending  m-1      queue=modest main 1x cpu=2
         pending  m-2      queue=modest main 1x cpu=2",
        &expect![[r#"
            m-1  admit  main on a
            m-2  admit  main on a
            g-1  wait  needs 3 cpu; quota greedy has 2 of at most 8 left
        "#]],
    );
}

#[test]
fn with_fair_sharing_the_smaller_share_after_admission_goes_first() {
    // One and other own nothing; 12 are lent by all. Each start counts before the next is chosen.
    check(
        "policy   fair-sharing=final-or-initial-share
         node     a        cpu=12
         quota    all      cpu=12
         quota    one      in=all
         quota    other    in=all
         queue    one      quota=one :cpu
         queue    other    quota=other :cpu
         pending  one-1    queue=one   main 1x cpu=2
         pending  one-2    queue=one   main 1x cpu=2
         pending  one-3    queue=one   main 1x cpu=2
         pending  one-4    queue=one   main 1x cpu=2
         pending  other-1  queue=other main 1x cpu=3
         pending  other-2  queue=other main 1x cpu=3",
        &expect![[r#"
            one-1  admit  main on a
            other-1  admit  main on a
            one-2  admit  main on a
            one-3  admit  main on a
            other-2  admit  main on a
            one-4  wait  needs 2 cpu; quota one has 0 of at most 12 left
        "#]],
    );
}

#[test]
fn a_weight_of_two_counts_for_twice_the_share() {
    check(
        "policy   fair-sharing=final-or-initial-share
         node     a        cpu=6
         quota    all      cpu=6
         quota    one      in=all weight=1
         quota    two      in=all weight=2
         queue    one      quota=one :cpu
         queue    two      quota=two :cpu
         pending  one-1    queue=one main 1x cpu=1
         pending  one-2    queue=one main 1x cpu=1
         pending  one-3    queue=one main 1x cpu=1
         pending  two-1    queue=two main 1x cpu=1
         pending  two-2    queue=two main 1x cpu=1
         pending  two-3    queue=two main 1x cpu=1
         pending  two-4    queue=two main 1x cpu=1",
        &expect![[r#"
            two-1  admit  main on a
            one-1  admit  main on a
            two-2  admit  main on a
            two-3  admit  main on a
            one-2  admit  main on a
            two-4  admit  main on a
            one-3  wait  needs 1 cpu; quota one has 0 of at most 6 left
        "#]],
    );
}

#[test]
fn shares_are_compared_level_by_level() {
    // The left cohort as a whole uses much, so the right one goes first, although left-b uses nothing.
    check(
        "policy   fair-sharing=final-or-initial-share
         node     a        cpu=10
         quota    all      cpu=10
         quota    left     in=all
         quota    right    in=all
         quota    left-a   in=left
         quota    left-b   in=left
         quota    right-a  in=right
         queue    left-a   quota=left-a :cpu
         queue    left-b   quota=left-b :cpu
         queue    right-a  quota=right-a :cpu
         running  l        queue=left-a main 1x cpu=4 flavor:cpu= on=a
         running  r        queue=right-a main 1x cpu=1 flavor:cpu= on=a
         pending  la       queue=left-a main 1x cpu=1
         pending  lb       queue=left-b main 1x cpu=1
         pending  ra-1     queue=right-a main 1x cpu=2
         pending  ra-2     queue=right-a main 1x cpu=2",
        &expect![[r#"
            ra-1  admit  main on a
            lb  admit  main on a
            ra-2  admit  main on a
            la  wait  needs 1 cpu; quota left-a has 0 of at most 10 left
        "#]],
    );
}

#[test]
fn one_that_does_not_fit_keeps_nobody_of_its_queue_from_competing() {
    check(
        "policy   fair-sharing=final-or-initial-share
         node     a 2x     cpu=4
         quota    all      cpu=8
         quota    one      in=all
         quota    other    in=all
         queue    one      quota=one :cpu
         queue    other    quota=other :cpu
         running  r        queue=other main 1x cpu=2 flavor:cpu= on=a-1
         pending  wide     queue=one main 1x cpu=5
         pending  small    queue=one main 1x cpu=1
         pending  other-1  queue=other main 1x cpu=1",
        &expect![[r#"
            wide  never  main: needs 5 cpu on one node; 2 nodes have 4 in all
            small  admit  main on a-1
            other-1  admit  main on a-1
        "#]],
    );
}
