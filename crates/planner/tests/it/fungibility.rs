//! Flavor fungibility: which flavor a gang gets when it fits in one and could preempt in another.

#![allow(clippy::needless_raw_string_hashes, reason = "this is how expect-test writes what it updates")]

use crate::common::{audited, check, parse_world};
use expect_test::expect;
use model::{GangState, Verdict};

/// Two flavors; the first one is used by a gang of lower priority, the second one is free.
fn world(queue: &str) -> String {
    format!(
        "flavor   spot     quota-only
         flavor   owned    quota-only
         quota    all
         quota    team     in=all cpu@spot=4 cpu@owned=4 within=lower-priority reclaim=any
         quota    other    in=all cpu@spot=4 cpu@owned=4
         queue    q        quota=team {queue} spot,owned:cpu
         queue    o        quota=other spot,owned:cpu
         running  low      queue=q main 4x cpu=1 unplaced=4 flavor:cpu=spot
         running  busy     queue=o main 4x cpu=1 unplaced=4 flavor:cpu=spot
         running  lent     queue=o main 4x cpu=1 unplaced=4 flavor:cpu=owned
         pending  high     priority=1 queue=q main 4x cpu=1"
    )
}

#[test]
fn the_next_flavor_is_tried_before_preemption_by_default() {
    check(
        &world(""),
        &expect![[r#"
        high  admit  main 4x without node in owned; no room: main: there is no node
    "#]],
    );
}

#[test]
fn when_can_preempt_may_stop_search_preempts_although_a_later_flavor_fits() {
    check(
        &world("when-can-preempt=stop"),
        &expect![[r#"
        high  preempt  low(in-queue): main 4x without node in spot
    "#]],
    );
}

#[test]
fn a_flavor_without_candidates_does_not_stop_the_search() {
    check(
        &world("when-can-preempt=stop").replace("priority=1", "priority=0"),
        &expect![[r#"
        high  admit  main 4x without node in owned; no room: main: there is no node
    "#]],
    );
}

#[test]
fn a_gang_waits_for_what_terminates_in_the_first_flavor() {
    check(
        &world("when-can-preempt=stop")
            .replace("high     priority=1 queue=q main 4x", "high     priority=1 queue=q main 2x")
            .replace(
                "pending  high ",
                "queue    other    quota=team spot:cpu
         nominated first priority=3 victims=low(in-queue) queue=other main 2x cpu=1 unplaced=2 flavor:cpu=spot
         pending  high ",
            ),
        &expect![[r#"
            high  preempt  : main 2x without node in spot
        "#]],
    );
}

/// In the first flavor a gang can be preempted within the nominal quota, in the second one the gang would borrow.
fn borrowing(queue: &str) -> String {
    format!(
        "flavor   spot     quota-only
         flavor   owned    quota-only
         quota    all
         quota    team     in=all cpu@spot=4 cpu@owned=2 within=lower-priority
         quota    other    in=all cpu@owned=4
         queue    q        quota=team {queue} spot,owned:cpu
         running  low      queue=q main 4x cpu=1 unplaced=4 flavor:cpu=spot
         pending  high     priority=1 queue=q main 4x cpu=1"
    )
}

#[test]
fn borrowing_goes_before_preemption_by_default() {
    check(
        &borrowing("when-can-borrow=try"),
        &expect![[r#"
        high  admit  main 4x without node in owned; no room: main: there is no node
    "#]],
    );
}

#[test]
fn preemption_goes_before_borrowing_where_the_queue_prefers_it() {
    check(
        &borrowing("when-can-borrow=try prefer=preemption"),
        &expect![[r#"
        high  preempt  low(in-queue): main 4x without node in spot
    "#]],
    );
}

#[test]
fn a_flavor_that_borrows_and_preempts_does_not_stop_the_search_for_one_that_does_not_borrow() {
    check(
        "flavor   spot     quota-only
         flavor   owned    quota-only
         quota    all
         quota    team     in=all cpu@spot=2 cpu@owned=4 within=lower-priority
         quota    other    in=all cpu@spot=2
         queue    q        quota=team when-can-preempt=stop when-can-borrow=try spot,owned:cpu
         running  low      queue=q main 4x cpu=1 unplaced=4 flavor:cpu=spot
         pending  high     priority=1 queue=q main 4x cpu=1",
        &expect![[r#"
            high  admit  main 4x without node in owned; no room: main: there is no node
        "#]],
    );
}

#[test]
fn nodes_are_freed_in_the_first_flavor_too() {
    check(
        "node     a        cpu=4 label:pool=spot
         node     b        cpu=4 label:pool=owned
         flavor   spot     label:pool=spot
         flavor   owned    label:pool=owned
         quota    team     cpu@spot=8 cpu@owned=8 within=lower-priority
         queue    q        quota=team when-can-preempt=stop spot,owned:cpu
         running  low      queue=q main 4x cpu=1 on=a*4 flavor:cpu=spot
         pending  high     priority=1 queue=q main 4x cpu=1",
        &expect![[r#"
            high  preempt  low(in-queue): main on a*4 in spot
        "#]],
    );
}

/// Against the rule itself: for every fungibility and every state of two flavors, the choice is the one that comes
/// first when flavors are tried in order and ranked as the policy says, or the one at which the search stops.
#[test]
fn every_choice_of_two_flavors_follows_the_policy() {
    #[derive(Clone, Copy, PartialEq)]
    enum State {
        Free,
        /// A gang of lower priority uses it.
        Used,
        /// A gang of the same priority uses it.
        Taken,
    }
    let states = [State::Free, State::Used, State::Taken];
    let mut cases = 0;
    for policy in 0..8 {
        let (stop, try_borrow, prefer) = (policy & 1 > 0, policy & 2 > 0, policy & 4 > 0);
        if prefer && (stop || !try_borrow) {
            continue; // Kueue does not accept this combination.
        }
        let words = [
            if stop { "when-can-preempt=stop" } else { "" },
            if try_borrow { "when-can-borrow=try" } else { "" },
            if prefer { "prefer=preemption" } else { "" },
        ];
        for choice in 0..36 {
            let (first, second) = (states[choice % 3], states[choice / 3 % 3]);
            let borrows = [choice / 9 % 2 > 0, choice / 18 % 2 > 0];
            let own = |borrows: bool| if borrows { 2 } else { 4 };
            let user = |state: State, flavor: &str| match state {
                State::Free => String::new(),
                State::Used | State::Taken => {
                    let priority = i32::from(state == State::Taken);
                    format!(
                        "running {flavor}-user priority={priority} queue=q main 4x cpu=1 unplaced=4 flavor:cpu={flavor}\n"
                    )
                }
            };
            let text = format!(
                "flavor one quota-only\nflavor two quota-only\nquota all\n\
                 quota team in=all cpu@one={} cpu@two={} within=lower-priority\n\
                 quota other in=all cpu@one={} cpu@two={}\n\
                 queue q quota=team {} one,two:cpu\n{}{}pending g priority=1 queue=q main 4x cpu=1",
                own(borrows[0]),
                own(borrows[1]),
                4 - own(borrows[0]),
                4 - own(borrows[1]),
                words.join(" "),
                user(first, "one"),
                user(second, "two"),
            );
            let mut best: Option<((u32, u32), &str)> = None;
            for (state, borrows, flavor) in [(first, borrows[0], "one"), (second, borrows[1], "two")] {
                let (mode, level) = match state {
                    State::Free => (0, u32::from(borrows)),
                    // Beyond what its queue owns, a gang preempts in lower subtrees alone, or with `borrowWithinCohort`.
                    State::Used if borrows => continue,
                    State::Used => (2, 0),
                    State::Taken => continue,
                };
                let rank = if prefer { (level, mode) } else { (mode, level) };
                // The flavor at which the search stops is taken, also behind a better one.
                let ends = (mode == 0 || stop) && (level == 0 || !try_borrow);
                if ends || best.is_none_or(|(least, _)| rank < least) {
                    best = Some((rank, flavor));
                }
                if ends {
                    break;
                }
            }
            let mut world = parse_world(&text);
            let plan = audited(&world);
            world.apply(model::Event::Planned(plan.clone()));
            let chosen = world.gang("g").and_then(|gang| match &gang.state {
                GangState::Reserved(assignment) => Some(assignment.clone()),
                GangState::Nominated(preemption) => Some(preemption.assignment.clone()),
                GangState::Waiting | GangState::Unplaced => None,
            });
            let chosen = chosen.and_then(|chosen| chosen.flavors[0].values().next().copied());
            let chosen = chosen.map(|ix| world.flavor_name(ix).to_owned());
            assert_eq!(chosen.as_deref(), best.map(|(_, flavor)| flavor), "{text}\n{:?}", plan.verdicts);
            assert_eq!(
                plan.verdicts.iter().filter(|(_, verdict)| matches!(verdict, Verdict::Preempt(_))).count(),
                usize::from(best.is_some_and(|((one, two), _)| if prefer { two } else { one } > 0)),
                "{text}"
            );
            cases += 1;
        }
    }
    assert_eq!(cases, 180);
}
