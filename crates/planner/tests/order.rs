//! Whose turn it is.

#![allow(clippy::needless_raw_string_hashes, reason = "this is how expect-test writes what it updates")]

mod common;

use common::check;
use expect_test::expect;
use model::{Position, Time};

#[test]
fn a_slope_lifts_those_who_have_waited_long_over_a_higher_priority() {
    // It is 1000 s. A hundredth of a priority a second: old has risen by 9.9, young by 0.1.
    check(
        "node     a        cpu=2
         pending  high     at=1   priority=5  main 1x cpu=1
         pending  young    at=990 priority=0  slope=10000 main 1x cpu=1
         pending  old      at=10  priority=0  slope=10000 main 1x cpu=1",
        &expect![[r#"
            old  admit  main on a
            high  admit  main on a
            young  wait  main: needs 1 cpu on one node; the only eligible node has none free
        "#]],
    );
}

#[test]
fn a_falling_slope_lets_the_newer_go_first() {
    check(
        "node     a        cpu=1
         pending  old      at=10  slope=-1 main 1x cpu=1
         pending  young    at=990 slope=-1 main 1x cpu=1",
        &expect![[r#"
            young  admit  main on a
            old  wait  main: needs 1 cpu on one node; the only eligible node has none free
        "#]],
    );
}

#[test]
fn a_position_names_who_goes_first_and_who_is_just_ahead() {
    let world = scenario::parse(
        "pending  steady   at=0 priority=5 main 1x cpu=1
         pending  rising   at=0 priority=0 slope=1000000 main 1x cpu=1
         pending  last     at=9 priority=0 main 1x cpu=1
         running  other    at=0 main 1x cpu=1",
    )
    .unwrap_or_else(|error| panic!("{error}"));
    let at = |uid: &str, second: i64| world.position(uid, Time(second * 1_000_000));
    let position = |place, first: Option<&str>, ahead: Option<&str>| {
        Some(Position { place, of: 3, first: first.map(str::to_owned), ahead: ahead.map(str::to_owned) })
    };
    assert_eq!(at("rising", 4), position(2, Some("steady"), Some("steady")));
    assert_eq!(at("rising", 6), position(1, None, None));
    assert_eq!(at("last", 6), position(3, Some("rising"), Some("steady")));
    assert_eq!(at("other", 6), None);
}
