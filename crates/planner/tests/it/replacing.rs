//! Gangs that take the place of running ones: they are the increase alone, in the flavors of the running ones.

#![allow(clippy::needless_raw_string_hashes, reason = "this is how expect-test writes what it updates")]

use crate::common::check;
use expect_test::expect;

#[test]
fn an_increase_gets_the_flavor_of_the_running_gang_although_another_one_is_free() {
    check(
        "flavor   on-demand
         flavor   spot
         quota    team      cpu@on-demand=4 cpu@spot=9
         queue    q         quota=team on-demand,spot:cpu
         node     a         cpu=64
         running  old       queue=q main 2x cpu=1 on=a*2 flavor:cpu=on-demand
         pending  fits      queue=q replaces=old main 2x cpu=1 flavor:cpu=on-demand
         pending  waits     queue=q replaces=old main 1x cpu=1 flavor:cpu=on-demand",
        &expect![[r#"
            fits  admit  main on a*2 in on-demand
            waits  wait  needs 1 cpu in flavor on-demand; quota team has 0 of at most 4 left. main: runs in flavor on-demand and cannot grow in flavor spot
        "#]],
    );
}

#[test]
fn an_increase_preempts_others_but_not_the_gang_whose_place_it_takes() {
    check(
        "quota    team      cpu=4 within=lower-or-newer
         queue    q         quota=team :cpu
         node     a         cpu=64
         running  old       queue=q at=1 main 2x cpu=1 on=a*2
         running  low       queue=q at=2 main 2x cpu=1 on=a*2
         pending  larger    queue=q at=0 priority=1 replaces=old main 2x cpu=1
         pending  huge      queue=q at=0 priority=1 replaces=old main 3x cpu=1",
        &expect![[r#"
            huge  wait  needs 3 cpu; quota team has 0 of at most 4 left
            larger  preempt  low(in-queue): main on a*2
        "#]],
    );
}

#[test]
fn a_larger_slice_takes_the_turn_of_its_queue() {
    // `next` borrows, and `mine` does not. Each queue has one turn in a round: `slice` and `first`, then `next` and `mine`.
    check(
        "flavor   default  quota-only
         quota    borrows  in=all cpu@default=3
         quota    owns     in=all cpu@default=100
         queue    borrows  quota=borrows default:cpu
         queue    owns     quota=owns default:cpu
         running  old      queue=borrows main 3x cpu=1 unplaced=3 flavor:cpu=default
         pending  slice    queue=borrows priority=9 replaces=old main 4x cpu=1 flavor:cpu=default
         pending  next     queue=borrows at=1 main 3x cpu=1
         pending  first    queue=owns at=2 main 1x cpu=1
         pending  mine     queue=owns at=3 main 1x cpu=1",
        &expect![[r#"
            first  admit  main 1x without node in default; no room: main: there is no node
            slice  admit  main 4x without node in default; no room: main: there is no node
            mine  admit  main 1x without node in default; no room: main: there is no node
            next  admit  main 3x without node in default; no room: main: there is no node
        "#]],
    );
}
