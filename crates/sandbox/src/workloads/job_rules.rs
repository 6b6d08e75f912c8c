//! The decisions of the Job controller: a pure function of the Job, its pods and the time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::template;
use crate::pace::Pace;
use crate::wire::{Condition, Job, JobStatus, Pod, Stamp, condition};

/// The finalizer that keeps a pod until it is counted.
pub(super) const TRACKING: &str = "batch.kubernetes.io/job-tracking";
/// Annotation and label with the completion index of a pod.
pub(super) const INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// Shortest and longest back-off before a failed pod is replaced.
const BACK_OFF: (Duration, Duration) = (Duration::from_secs(10), Duration::from_mins(10));

/// Reason and message of the final conditions of a Job.
type End = (&'static str, &'static str);
const COMPLETED: End = ("CompletionsReached", "Reached expected number of succeeded pods");
const EXCEEDED: End = ("BackoffLimitExceeded", "Job has reached the specified backoff limit");
const DEADLINE: End = ("DeadlineExceeded", "Job was active longer than specified deadline");

/// The result of one reconciliation.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Decision {
    /// The new status.
    pub(super) status: JobStatus,
    /// Finished pods whose finalizer is to be removed.
    pub(super) release: Vec<Arc<Pod>>,
    /// Pods to delete.
    pub(super) delete: Vec<Arc<Pod>>,
    /// Whether deleted pods count as failed. Pods of a suspended Job and pods above the parallelism do not.
    pub(super) counted_deletes: bool,
    /// Pods to create, with their completion index.
    pub(super) create: Vec<Option<i64>>,
    /// When time alone changes the decision.
    pub(super) wake: Option<Duration>,
    /// Events to record: whether it is a warning, reason, message.
    pub(super) events: Vec<(bool, &'static str, &'static str)>,
    /// Whether the time to live has expired and the Job is to be deleted.
    pub(super) expired: bool,
}

impl Decision {
    fn set(&mut self, kind: &str, holds: bool, (reason, message): End, now: Stamp) {
        Condition::new(kind, holds, reason, message, now).set_in(&mut self.status.conditions);
    }

    fn wake_after(&mut self, pause: Duration) {
        self.wake = Some(self.wake.map_or(pause, |other| other.min(pause)));
    }

    /// Numbers of succeeded and failed pods in `uncountedTerminatedPods`.
    fn uncounted(&self) -> (i64, i64) {
        let number = |list: &[String]| i64::try_from(list.len()).unwrap_or(i64::MAX);
        let uncounted = self.status.uncounted_terminated_pods.as_ref();
        uncounted.map_or((0, 0), |pods| (number(&pods.succeeded), number(&pods.failed)))
    }
}

fn holds(status: &JobStatus, kind: &str) -> bool {
    condition(&status.conditions, kind).is_some_and(|condition| condition.status == "True")
}

fn index_of(pod: &Arc<Pod>) -> Option<i64> {
    pod.metadata.annotation(INDEX)?.parse().ok()
}

fn tracked(pod: &Pod) -> bool {
    pod.metadata.finalizers.iter().any(|finalizer| finalizer == TRACKING)
}

fn is_terminating(pod: &Pod) -> bool {
    pod.metadata.is_deleting() && !pod.is_finished()
}

/// Decides one reconciliation.
pub(super) fn decide(job: &Job, pods: &[Arc<Pod>], now: Timestamp, pace: Pace) -> Decision {
    let mut decision = Decision { status: job.status.clone(), counted_deletes: true, ..Decision::default() };
    let stamp = Stamp::of(now);
    let active: Vec<Arc<Pod>> = pods.iter().filter(|pod| pod.is_active()).cloned().collect();
    if holds(&job.status, "Complete") || holds(&job.status, "Failed") {
        let ended = |pod: &&Arc<Pod>| tracked(pod) && (pod.is_finished() || pod.metadata.is_deleting());
        decision.release = pods.iter().filter(ended).cloned().collect();
        decision.delete = active;
        expire(job, now, pace, &mut decision);
        return decision;
    }
    let indexed = job.spec.completion_mode.as_deref() == Some("Indexed");
    count_finished(job, pods, indexed, &mut decision);
    let all_pods_gone =
        active.is_empty() && !pods.iter().any(|pod| is_terminating(pod)) && decision.uncounted() == (0, 0);

    if let Some(end) = failure(job, pods, now, pace, &mut decision) {
        if !holds(&decision.status, "FailureTarget") {
            decision.set("FailureTarget", true, end, stamp);
            decision.events.push((true, end.0, end.1));
        }
        decision.delete = active;
        if all_pods_gone {
            decision.set("Failed", true, end, stamp);
        }
    } else if succeeded(job, &decision, active.len()) {
        if !holds(&decision.status, "SuccessCriteriaMet") {
            decision.set("SuccessCriteriaMet", true, COMPLETED, stamp);
        }
        decision.delete = active;
        if all_pods_gone {
            decision.set("Complete", true, COMPLETED, stamp);
            decision.status.completion_time = Some(stamp);
            decision.events.push((false, "Completed", "Job completed"));
        }
    } else if job.spec.suspend {
        decision.delete = active;
        decision.counted_deletes = false;
        if !holds(&decision.status, "Suspended") {
            decision.set("Suspended", true, ("JobSuspended", "Job suspended"), stamp);
            decision.events.push((false, "Suspended", "Job suspended"));
        }
    } else {
        if holds(&decision.status, "Suspended") {
            decision.set("Suspended", false, ("JobResumed", "Job resumed"), stamp);
            decision.status.start_time = Some(stamp);
            decision.events.push((false, "Resumed", "Job resumed"));
        }
        let start = *decision.status.start_time.get_or_insert(stamp);
        if let Some(remaining) =
            deadline(job).and_then(|seconds| remaining(pace.deadline(seconds), start, now))
        {
            decision.wake_after(remaining);
        }
        manage_pods(job, pods, &active, indexed, now, pace, &mut decision);
    }
    count_pods(pods, &mut decision);
    decision
}

/// Counts finished pods in three steps: list their uids in the status, remove their finalizers, then increase the
/// counters.
fn count_finished(job: &Job, pods: &[Arc<Pod>], indexed: bool, decision: &mut Decision) {
    let status = &mut decision.status;
    let mut uncounted = status.uncounted_terminated_pods.take().unwrap_or_default();
    let held: BTreeSet<&str> = pods.iter().filter(|pod| tracked(pod)).map(|pod| &*pod.metadata.uid).collect();
    let settle = |list: &mut Vec<String>, counter: &mut i64| {
        let before = list.len();
        list.retain(|uid| held.contains(&**uid));
        *counter += i64::try_from(before - list.len()).unwrap_or(0);
    };
    settle(&mut uncounted.succeeded, &mut status.succeeded);
    settle(&mut uncounted.failed, &mut status.failed);
    for pod in pods.iter().filter(|pod| tracked(pod)) {
        let uid = &pod.metadata.uid;
        let known = uncounted.succeeded.contains(uid) || uncounted.failed.contains(uid);
        // A deleted pod counts as failed, but only after its kubelet has terminated it.
        let failed = pod.status.phase == "Failed" || (pod.metadata.is_deleting() && !waits_for_node(pod));
        if pod.status.phase == "Succeeded" && !known {
            uncounted.succeeded.push(uid.clone());
        } else if failed && !known {
            uncounted.failed.push(uid.clone());
        } else if !known {
            continue;
        }
        decision.release.push(pod.clone());
    }
    if indexed {
        let mut done = indexes(status.completed_indexes.as_deref().unwrap_or_default());
        let finished = pods.iter().filter(|pod| pod.status.phase == "Succeeded").filter_map(index_of);
        done.extend(finished.filter(|index| (0..job.spec.completions.unwrap_or(0)).contains(index)));
        status.succeeded = i64::try_from(done.len()).unwrap_or(0);
        status.completed_indexes = (!done.is_empty()).then(|| intervals(&done));
        // The counter of an indexed Job is derived from the indexes, so there are no uncounted successes.
        uncounted.succeeded.clear();
    }
    status.uncounted_terminated_pods = Some(uncounted);
}

fn waits_for_node(pod: &Pod) -> bool {
    let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or(0);
    is_terminating(pod) && !pod.spec.node_name.is_empty() && grace > 0
}

fn succeeded(job: &Job, decision: &Decision, active: usize) -> bool {
    let succeeded = decision.status.succeeded + decision.uncounted().0;
    match job.spec.completions {
        Some(completions) => succeeded >= completions,
        // A work queue Job: one success means that the work is done.
        None => succeeded > 0 && active == 0,
    }
}

/// Reason and message of the failure, if the Job has failed.
fn failure(job: &Job, pods: &[Arc<Pod>], now: Timestamp, pace: Pace, decision: &mut Decision) -> Option<End> {
    if let Some(target) = condition(&job.status.conditions, "FailureTarget") {
        return Some(if target.reason == DEADLINE.0 { DEADLINE } else { EXCEEDED });
    }
    let limit = job.spec.backoff_limit.unwrap_or(6);
    if decision.status.failed + decision.uncounted().1 > limit {
        return Some(EXCEEDED);
    }
    if job.spec.template["spec"]["restartPolicy"] == "OnFailure" {
        let alive = pods.iter().filter(|pod| !pod.is_finished());
        let restarts: u32 =
            alive.flat_map(|pod| &pod.status.container_statuses).map(|c| c.restart_count).sum();
        if restarts > 0 && i64::from(restarts) >= limit {
            return Some(EXCEEDED);
        }
    }
    let start = job.status.start_time.filter(|_| !job.spec.suspend)?;
    remaining(pace.deadline(deadline(job)?), start, now).is_none().then_some(DEADLINE)
}

fn deadline(job: &Job) -> Option<Duration> {
    job.spec.active_deadline_seconds.map(|seconds| Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

/// The rest of a duration that began at `since`; `None` if it has elapsed.
fn remaining(duration: Duration, since: Stamp, now: Timestamp) -> Option<Duration> {
    let elapsed = Duration::try_from(now.duration_since(since.0)).unwrap_or_default();
    duration.checked_sub(elapsed).filter(|remaining| !remaining.is_zero())
}

/// Creates or deletes pods to reach the wanted number of active pods.
fn manage_pods(
    job: &Job,
    pods: &[Arc<Pod>],
    active: &[Arc<Pod>],
    indexed: bool,
    now: Timestamp,
    pace: Pace,
    decision: &mut Decision,
) {
    let parallelism = job.spec.parallelism.unwrap_or(1);
    let succeeded = decision.status.succeeded + decision.uncounted().0;
    let running = i64::try_from(active.len()).unwrap_or(i64::MAX);
    let wanted = match job.spec.completions {
        Some(completions) => parallelism.min(completions - succeeded),
        None if succeeded > 0 => running.min(parallelism),
        None => parallelism,
    };
    let wanted = wanted.max(0);
    if running >= wanted {
        let mut surplus = active.to_vec();
        template::sort_by_deletion_priority(&mut surplus);
        surplus.truncate(usize::try_from(running - wanted).unwrap_or(0));
        decision.delete = surplus;
        decision.counted_deletes = false;
        return;
    }
    if let Some(pause) = back_off(pods, now, pace) {
        decision.wake_after(pause);
        return;
    }
    let missing = usize::try_from(wanted - running).unwrap_or(0);
    if indexed {
        let mut taken = indexes(decision.status.completed_indexes.as_deref().unwrap_or_default());
        // An index stays in use until its terminating pod is gone.
        taken.extend(pods.iter().filter(|pod| !pod.is_finished()).filter_map(index_of));
        let free = (0..job.spec.completions.unwrap_or(0)).filter(|index| !taken.contains(index));
        decision.create = free.take(missing).map(Some).collect();
    } else {
        decision.create = vec![None; missing];
    }
}

/// The rest of the back-off after the failures since the last success: 10 s, doubled with every failure.
fn back_off(pods: &[Arc<Pod>], now: Timestamp, pace: Pace) -> Option<Duration> {
    let ends = |phase: &'static str| {
        pods.iter().filter(move |pod| pod.status.phase == phase && !pod.metadata.is_deleting()).filter_map(
            |pod| {
                let statuses = pod.status.container_statuses.iter();
                statuses.filter_map(|status| status.state.terminated.as_ref()?.finished_at).max()
            },
        )
    };
    let success = ends("Succeeded").max();
    let failures: Vec<Stamp> =
        ends("Failed").filter(|at| success.is_none_or(|success| *at > success)).collect();
    let last = *failures.iter().max()?;
    let doublings = u32::try_from(failures.len() - 1).unwrap_or(6).min(6);
    remaining(pace.scaled((BACK_OFF.0 * 2u32.pow(doublings)).min(BACK_OFF.1)), last, now)
}

/// Sets the counts of active, ready and terminating pods.
fn count_pods(pods: &[Arc<Pod>], decision: &mut Decision) {
    let leaving: BTreeSet<&str> = decision.delete.iter().map(|pod| &*pod.metadata.uid).collect();
    let stays = |pod: &Pod| pod.is_active() && !leaving.contains(&*pod.metadata.uid);
    let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    decision.status.active = template::count(pods, stays) + number(decision.create.len());
    decision.status.ready = Some(template::count(pods, |pod| stays(pod) && pod.is_ready()));
    decision.status.terminating = Some(template::count(pods, is_terminating) + number(leaving.len()));
}

fn expire(job: &Job, now: Timestamp, pace: Pace, decision: &mut Decision) {
    let Some(seconds) = job.spec.ttl_seconds_after_finished else { return };
    let ended = |c: &&Condition| matches!(&*c.kind, "Complete" | "Failed") && c.status == "True";
    let Some(at) = job.status.conditions.iter().find(ended).and_then(|c| c.last_transition_time) else {
        return;
    };
    let kept = pace.scaled(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)));
    match remaining(kept, at, now) {
        Some(remaining) => decision.wake_after(remaining),
        None => decision.expired = true,
    }
}

/// Parses indexes such as `0,2-4`.
fn indexes(text: &str) -> BTreeSet<i64> {
    let mut set = BTreeSet::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<i64>(), last.parse::<i64>()) {
            set.extend(first..=last);
        }
    }
    set
}

/// Formats indexes as `0,2-4`.
fn intervals(set: &BTreeSet<i64>) -> String {
    let mut parts: Vec<(i64, i64)> = Vec::new();
    for index in set {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == *index => *last = *index,
            _ => parts.push((*index, *index)),
        }
    }
    let print = |(first, last): &(i64, i64)| match last - first {
        0 => first.to_string(),
        1 => format!("{first},{last}"),
        _ => format!("{first}-{last}"),
    };
    parts.iter().map(print).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
#[path = "job_tests.rs"]
mod tests;
