//! Changes of quota, queues and policy: which gangs are requeued, and which nominations are lost.

#![allow(clippy::needless_raw_string_hashes, reason = "this is how expect-test writes what it updates")]

use crate::common::{audited, parse_world};
use expect_test::{Expect, expect};
use model::{Event, World};

/// Plans, applies the plan, makes a change, and compares the verdicts of the next plan.
fn check_after(text: &str, change: impl FnOnce(&mut World), expected: &Expect) {
    let mut world = parse_world(text);
    let plan = audited(&world);
    world.apply(Event::Planned(plan));
    change(&mut world);
    expected.assert_eq(&scenario::verdicts(&world, &audited(&world)));
}

/// A change, as a line of a scenario.
fn scenario_line(line: &str) -> impl FnOnce(&mut World) {
    let line = line.to_owned();
    move |world| {
        let text = format!("{}\n{line}", scenario::render(world));
        let other = parse_world(&text);
        let queues = other.queues().values().cloned().map(Event::QueueUpserted);
        let quotas = other.quota_nodes().values().cloned().map(Event::QuotaUpserted);
        let policy = Event::PolicySet(other.policy().clone());
        queues.chain(quotas).chain([policy]).for_each(|event| world.apply(event));
    }
}

#[test]
fn a_changed_preemption_policy_requeues_gangs_short_of_quota() {
    check_after(
        "node     a        cpu=64
         quota    team     cpu=8
         queue    q        quota=team :cpu
         running  r        queue=q main 1x cpu=8 on=a
         pending  g        queue=q priority=1 main 1x cpu=8",
        scenario_line("quota team cpu=8 within=lower-priority"),
        &expect![[r#"
            g  preempt  r(in-queue): main on a
        "#]],
    );
}

#[test]
fn a_nomination_is_lost_when_its_queue_no_longer_offers_its_flavor() {
    let text = "policy    preemption=lower-priority
         node      a        cpu=8 label:kind=spot
         node      b        cpu=8 label:kind=firm
         flavor    spot     label:kind=spot
         flavor    firm     label:kind=firm
         quota     team     cpu@spot=8 cpu@firm=8
         queue     q        quota=team spot:cpu
         pending   r        queue=q main 1x cpu=8
         nominated g        queue=q victims=r priority=1 main 1x cpu=8 on=a flavor:cpu=spot";
    check_after(text, |_| {}, &expect![[""]]);
    let firm = text.replace("team spot:cpu", "team firm:cpu");
    let world = parse_world(&firm);
    let plan = audited(&world);
    expect![[r#"
        g  wait  1 gang was preempted for it, but the nodes are taken or gone
        r  admit  main on b in firm
    "#]]
    .assert_eq(&scenario::verdicts(&world, &plan));
}
