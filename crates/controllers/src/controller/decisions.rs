//! Counts the decisions about gangs, and logs each with one line: the target is `decision`.

use std::time::Duration;

use api::MicroTime;
use api::appwrapper::transition::{PREEMPT_CANDIDATE, PREEMPTED};
use api::kueue::status::{self, Condition, Status};
use api::kueue::workload::Workload;
use index::{AppliedPlan, Index, Phase, StopReason, WORKLOADS, Wrapper, WrapperKey};
use model::{GangKey, Plan, PreemptionReason, Verdict};

use crate::kueue::step::queued_at;
use crate::meter::Meter;

/// The kinds of gangs, as values of the label `kind`.
const APP_WRAPPER: &str = "AppWrapper";
const WORKLOAD: &str = "Workload";

/// Logs one decision about a gang.
fn log(decision: &str, of: (&str, &str, &str), reason: &str, text: &str) {
    let (kind, namespace, name) = of;
    tracing::info!(target: "decision", decision, kind, namespace, name, reason, "{text}");
}

fn of_wrapper(key: &WrapperKey) -> (&'static str, &str, &str) {
    (APP_WRAPPER, &key.namespace, &key.name)
}

fn of_workload(workload: &Workload) -> (&'static str, &str, &str) {
    (WORKLOAD, &workload.metadata.namespace, &workload.metadata.name)
}

fn of_gang(key: &GangKey) -> (&'static str, &str, &str) {
    (if key.kind == WORKLOADS { WORKLOAD } else { APP_WRAPPER }, &key.namespace, &key.name)
}

/// What a plan decides, before it is applied.
pub(super) fn planned(meter: &Meter, index: &Index, plan: &Plan, took: Duration) {
    if !plan.slips.is_empty() {
        meter.add("slips_total", &[], plan.slips.len().try_into().unwrap_or(u64::MAX));
    }
    for (uid, verdict) in &plan.verdicts {
        let name = match verdict {
            Verdict::Admit(_) => "admit",
            Verdict::Preempt(_) => "preempt",
            Verdict::Wait(_) => "wait",
            Verdict::Never(_) => "never",
        };
        meter.count("verdicts_total", &[("verdict", name)]);
        if matches!(verdict, Verdict::Admit(_)) {
            meter.traces.planned(uid, took);
        }
        if let Verdict::Preempt(preemption) = verdict {
            for victim in &preemption.victims {
                meter.count("preemptions_total", &[("reason", rule(victim.reason))]);
            }
        }
        if let (Verdict::Never(shortage), Some(gang)) = (verdict, index.world().gang(uid)) {
            log("rejected", of_gang(&gang.key), "NeverFits", &shortage.to_string());
        }
    }
}

/// The AppWrappers that a plan stops, after it is applied.
pub(super) fn applied(meter: &Meter, index: &Index, applied: &AppliedPlan) {
    for wrapper in applied.stopped.iter().filter_map(|uid| index.wrapper(uid)) {
        if let Phase::Stopping(stop, _) = &wrapper.phase {
            stopped(meter, wrapper, stop);
        }
    }
}

/// A running AppWrapper is to be stopped.
pub(super) fn stopped(meter: &Meter, wrapper: &Wrapper, stop: &StopReason) {
    let (decision, reason, text) = match stop {
        StopReason::Requeue => ("requeued", "PodsMissing", requeue_text(wrapper)),
        StopReason::Deadline => ("stopped", "DeadlineExceeded", "its dispatch limit is exceeded".to_owned()),
        StopReason::Preempt(Some(by)) => ("preempted", rule(by.reason), format!("preempted by {}", by.key)),
        StopReason::Preempt(None) => ("preempted", "Preempted", "an earlier leader preempted it".to_owned()),
        StopReason::Forbidden(text) => ("requeued", "NotAllowed", text.clone()),
    };
    let reason_of_stop = match stop {
        StopReason::Preempt(_) => "Preempted",
        StopReason::Requeue | StopReason::Deadline | StopReason::Forbidden(_) => reason,
    };
    meter.count("evictions_total", &[("kind", APP_WRAPPER), ("reason", reason_of_stop)]);
    log(decision, of_wrapper(&wrapper.key), reason, &text);
}

fn requeue_text(wrapper: &Wrapper) -> String {
    let latest = wrapper.status.conditions.iter().rev().find(|condition| condition.kind == PREEMPT_CANDIDATE);
    latest.map_or(String::new(), |condition| {
        let separator = if condition.message.is_empty() { "" } else { ": " };
        format!("{}{separator}{}", condition.reason, condition.message)
    })
}

/// All objects of an AppWrapper exist.
pub(super) fn dispatched(meter: &Meter, wrapper: &Wrapper, now: MicroTime) {
    let requeued = wrapper.status.conditions.iter();
    let requeued = requeued.filter(|condition| [PREEMPTED, PREEMPT_CANDIDATE].contains(&&*condition.kind));
    let since = requeued.map(|condition| condition.last_transition_micro_time).max();
    let since = since.map_or(wrapper.first_seen, |since| since.max(wrapper.first_seen));
    admitted(meter, &wrapper.uid, of_wrapper(&wrapper.key), now.0.saturating_sub(since.0));
}

fn admitted(meter: &Meter, uid: &str, of: (&str, &str, &str), waited_us: i64) {
    let kind = [("kind", of.0)];
    meter.count("started_gangs_total", &kind);
    meter.waited("gang_wait_seconds", &kind, waited_us);
    meter.traces.admitted(uid, of, waited_us);
    log("admitted", of, "Admitted", &format!("after {} s", waited_us.max(0) / 1_000_000));
}

/// An AppWrapper is not queued; the Events that say so.
pub(super) fn refused(key: &WrapperKey, reason: &str, text: &str) {
    if ["NotQueued", "NotAllowed"].contains(&reason) {
        log("rejected", of_wrapper(key), reason, text);
    }
}

/// The status of a Workload was written.
pub(super) fn workload(meter: &Meter, workload: &Workload, before: &Status, now: MicroTime) {
    let (of, after) = (of_workload(workload), &workload.status);
    let becomes = |kind| after.is(kind) && !before.is(kind);
    if becomes(status::ADMITTED) {
        admitted(meter, &workload.metadata.uid, of, now.0.saturating_sub(queued_at(workload, now).0));
    }
    if becomes(status::EVICTED)
        && let Some(Condition { reason, message, .. }) = after.condition(status::EVICTED)
    {
        meter.count("evictions_total", &[("kind", WORKLOAD), ("reason", eviction(reason))]);
        let decision = if reason == "Preempted" { "preempted" } else { "evicted" };
        log(decision, of, reason, message);
    }
    let refusal = |status: &Status| {
        let reserved = status.condition(status::QUOTA_RESERVED)?;
        (reserved.reason == "Inadmissible").then(|| reserved.message.clone())
    };
    if let Some(text) = refusal(after).filter(|_| refusal(before).is_none()) {
        log("rejected", of, "Inadmissible", &text);
    }
}

/// The reasons of evictions, as Kueue names them. A client with access to the status could write any other text.
fn eviction(reason: &str) -> &'static str {
    let known = [
        "Preempted",
        "PodsReadyTimeout",
        "AdmissionCheck",
        "ClusterQueueStopped",
        "LocalQueueStopped",
        "NodeFailures",
        "Deactivated",
        "MaximumExecutionTimeExceeded",
    ];
    known.into_iter().find(|known| reason.starts_with(known)).unwrap_or("Other")
}

/// The name of a rule, after Kueue's reasons of preemptions.
fn rule(reason: PreemptionReason) -> &'static str {
    match reason {
        PreemptionReason::Priority => "Priority",
        PreemptionReason::InClusterQueue => "InClusterQueue",
        PreemptionReason::InCohortReclamation => "InCohortReclamation",
        PreemptionReason::InCohortFairSharing => "InCohortFairSharing",
        PreemptionReason::InCohortReclaimWhileBorrowing => "InCohortReclaimWhileBorrowing",
    }
}
