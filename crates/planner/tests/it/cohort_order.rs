//! The admission order of queues that share a cohort tree.

#![allow(clippy::needless_raw_string_hashes, reason = "this is how expect-test writes what it updates")]

use crate::common::check;
use expect_test::expect;

#[test]
fn a_gang_within_nominal_quota_is_admitted_before_one_that_borrows() {
    // Of 8 CPUs, 2 are in use. `greedy` is first in queue order and has the higher priority, but has to borrow.
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
            g-1  wait  needs 3 cpu; quota greedy has 2 of at most 8 left (2 of its own, 6 to borrow)
        "#]],
    );
}

#[test]
fn with_fair_sharing_the_smaller_share_after_admission_is_admitted_first() {
    // The nominal quota of `one` and `other` is zero; `all` lends 12. Each admission counts before the next gang is
    // selected.
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
            one-4  wait  needs 2 cpu; quota one has 0 of at most 12 left (0 of its own, 12 to borrow)
        "#]],
    );
}

#[test]
fn a_queue_of_weight_two_gets_twice_the_share() {
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
            one-3  wait  needs 1 cpu; quota one has 0 of at most 6 left (0 of its own, 6 to borrow)
        "#]],
    );
}

#[test]
fn shares_are_compared_at_every_level_of_the_cohort_tree() {
    // The `left` cohort as a whole uses much. So the `right` cohort is admitted first, although `left-b` uses
    // nothing.
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
            la  wait  needs 1 cpu; quota left-a has 0 of at most 10 left (0 of its own, 10 to borrow)
        "#]],
    );
}

#[test]
fn a_gang_that_does_not_fit_does_not_block_the_next_gang_of_its_queue() {
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
            wide  never  main: needs 5 cpu on one node; 2 nodes have 4 even when empty
            small  admit  main on a-1
            other-1  admit  main on a-1
        "#]],
    );
}
