//! The decisions of the Job controller: a pure function of the Job, its pods and the time.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::job_policies::{self, Action};
use super::template;
use crate::pace::Pace;
use crate::wire::{Condition, Job, JobStatus, Pod, Stamp, condition};

/// The finalizer that keeps a pod until it is counted.
pub(super) const TRACKING: &str = "batch.kubernetes.io/job-tracking";
/// Annotation and label with the completion index of a pod.
pub(super) const INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// The pause before a pod that terminates is replaced, from its creation: kube-controller-manager looks at a Job once a second when
/// its pods change (`syncJobBatchPeriod`).
const BATCH: Duration = Duration::from_secs(1);
/// Shortest and longest back-off before a failed pod is replaced.
const BACK_OFF: (Duration, Duration) = (Duration::from_secs(10), Duration::from_mins(10));

/// Reason and message of the final conditions of a Job.
type End = (Cow<'static, str>, Cow<'static, str>);
const COMPLETED: End = end("CompletionsReached", "Reached expected number of succeeded pods");
const EXCEEDED: End = end("BackoffLimitExceeded", "Job has reached the specified backoff limit");
const DEADLINE: End = end("DeadlineExceeded", "Job was active longer than specified deadline");
const TOO_MANY_INDEXES: End =
    end("MaxFailedIndexesExceeded", "Job has exceeded the specified maximal number of failed indexes");
const FAILED_INDEXES: End = end("FailedIndexes", "Job has failed indexes");

const fn end(reason: &'static str, message: &'static str) -> End {
    (Cow::Borrowed(reason), Cow::Borrowed(message))
}

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
    /// The failures of the indexes of these pods so far, with a limit per index: those that count, and those that do not.
    pub(super) index_failures: BTreeMap<i64, (i64, i64)>,
    /// When time alone changes the decision.
    pub(super) wake: Option<Duration>,
    /// Events to record: whether it is a warning, reason, message.
    pub(super) events: Vec<(bool, Cow<'static, str>, Cow<'static, str>)>,
    /// Whether the time to live has expired and the Job is to be deleted.
    pub(super) expired: bool,
}

impl Decision {
    fn set(&mut self, kind: &str, holds: bool, (reason, message): &End, now: Stamp) {
        Condition::new(kind, holds, reason, &**message, now).set_in(&mut self.status.conditions);
    }

    fn tell(&mut self, is_warning: bool, reason: &'static str, message: &'static str) {
        self.events.push((is_warning, reason.into(), message.into()));
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

/// Reason and message of a condition that holds.
fn told(status: &JobStatus, kind: &str) -> Option<End> {
    let found = condition(&status.conditions, kind).filter(|condition| condition.status == "True")?;
    Some((found.reason.clone().into(), found.message.clone().into()))
}

/// The completion index of a pod.
pub(super) fn index_of(pod: &Arc<Pod>) -> Option<i64> {
    pod.metadata.annotation(INDEX)?.parse().ok()
}

/// Whether a pod is not counted yet.
pub(super) fn tracked(pod: &Pod) -> bool {
    pod.metadata.finalizers.iter().any(|finalizer| finalizer == TRACKING)
}

/// Whether a pod has failed. A deleted pod has, but only after its kubelet has terminated it.
pub(super) fn is_failed(pod: &Pod) -> bool {
    pod.status.phase == "Failed"
        || (pod.metadata.is_deleting() && pod.status.phase != "Succeeded" && !waits_for_node(pod))
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

    let decided = told(&decision.status, "SuccessCriteriaMet");
    let failed = if decided.is_none() { failure(job, pods, now, pace, &decision) } else { None };
    if let Some(end) = failed {
        if !holds(&decision.status, "FailureTarget") {
            decision.set("FailureTarget", true, &end, stamp);
            decision.events.push((true, end.0.clone(), end.1.clone()));
        }
        decision.delete = active;
        if all_pods_gone {
            decision.set("Failed", true, &end, stamp);
        }
    } else if let Some(end) = decided.or_else(|| success(job, &decision, active.len())) {
        if !holds(&decision.status, "SuccessCriteriaMet") {
            decision.set("SuccessCriteriaMet", true, &end, stamp);
        }
        decision.delete = active;
        if all_pods_gone {
            decision.set("Complete", true, &end, stamp);
            decision.status.completion_time = Some(stamp);
            decision.tell(false, "Completed", "Job completed");
        }
    } else if job.spec.suspend {
        decision.delete = active;
        decision.counted_deletes = false;
        if !holds(&decision.status, "Suspended") {
            decision.set("Suspended", true, &end("JobSuspended", "Job suspended"), stamp);
            decision.tell(false, "Suspended", "Job suspended");
        }
    } else {
        if holds(&decision.status, "Suspended") {
            decision.set("Suspended", false, &end("JobResumed", "Job resumed"), stamp);
            decision.status.start_time = Some(stamp);
            decision.tell(false, "Resumed", "Job resumed");
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
        if pod.status.phase == "Succeeded" && !known {
            uncounted.succeeded.push(uid.clone());
        } else if is_failed(pod) && !known {
            if job_policies::action(job, pod) != Action::Ignore {
                uncounted.failed.push(uid.clone());
            }
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
        // The pods that a Job deletes at its end are no failures of their indexes.
        if told(&job.status, "FailureTarget").or_else(|| told(&job.status, "SuccessCriteriaMet")).is_none() {
            status.failed_indexes = job_policies::failed_indexes(job, pods).map(|failed| intervals(&failed));
        }
    }
    status.uncounted_terminated_pods = Some(uncounted);
}

fn waits_for_node(pod: &Pod) -> bool {
    let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or(0);
    is_terminating(pod) && !pod.spec.node_name.is_empty() && grace > 0
}

/// Reason and message of the success, if the Job has succeeded.
fn success(job: &Job, decision: &Decision, active: usize) -> Option<End> {
    let done = indexes(decision.status.completed_indexes.as_deref().unwrap_or_default());
    if let Some(rule) = job_policies::success(job, &done) {
        return Some(("SuccessPolicy".into(), rule.into()));
    }
    let succeeded = decision.status.succeeded + decision.uncounted().0;
    let has_succeeded = match job.spec.completions {
        Some(completions) => succeeded >= completions,
        // A work queue Job: one success means that the work is done.
        None => succeeded > 0 && active == 0,
    };
    has_succeeded.then_some(COMPLETED)
}

/// Reason and message of the failure, if the Job has failed.
fn failure(job: &Job, pods: &[Arc<Pod>], now: Timestamp, pace: Pace, decision: &Decision) -> Option<End> {
    if let Some(target) = told(&job.status, "FailureTarget") {
        return Some(target);
    }
    if let Some(why) = job_policies::fails_job(job, pods) {
        return Some(("PodFailurePolicy".into(), why.into()));
    }
    let is_per_index = job.spec.backoff_limit_per_index.is_some();
    let limit = job.spec.backoff_limit.unwrap_or(if is_per_index { i64::from(i32::MAX) } else { 6 });
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
    let start = job.status.start_time.filter(|_| !job.spec.suspend);
    let left =
        start.zip(deadline(job)).map(|(start, deadline)| remaining(pace.deadline(deadline), start, now));
    if left.is_some_and(|left| left.is_none()) {
        return Some(DEADLINE);
    }
    let count = |text: &Option<String>| {
        i64::try_from(indexes(text.as_deref().unwrap_or_default()).len()).unwrap_or(i64::MAX)
    };
    let failed = count(&decision.status.failed_indexes);
    if job.spec.max_failed_indexes.is_some_and(|max| failed > max) {
        return Some(TOO_MANY_INDEXES);
    }
    let ended = failed + count(&decision.status.completed_indexes);
    (failed > 0 && ended >= job.spec.completions.unwrap_or(0)).then_some(FAILED_INDEXES)
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
    let is_per_index = job.spec.backoff_limit_per_index.is_some();
    if !is_per_index && let Some(pause) = back_off(pods, now, pace) {
        decision.wake_after(pause);
        return;
    }
    let waits_for_end = job_policies::replaces_ended_only(job);
    let created = |pod: &&Arc<Pod>| pod.metadata.creation_timestamp.filter(|_| is_terminating(pod));
    let newest = pods.iter().filter_map(|pod| created(&pod)).max();
    if !waits_for_end && let Some(pause) = newest.and_then(|at| remaining(pace.scaled(BATCH), at, now)) {
        decision.wake_after(pause);
        return;
    }
    let leaving = if waits_for_end { template::count(pods, is_terminating) } else { 0 };
    let missing = usize::try_from(wanted - running - leaving).unwrap_or(0);
    if indexed {
        let mut taken = indexes(decision.status.completed_indexes.as_deref().unwrap_or_default());
        taken.extend(indexes(decision.status.failed_indexes.as_deref().unwrap_or_default()));
        let holds = |pod: &&Arc<Pod>| pod.is_active() || (waits_for_end && is_terminating(pod));
        taken.extend(pods.iter().filter(holds).filter_map(index_of));
        let free = (0..job.spec.completions.unwrap_or(0)).filter(|index| !taken.contains(index));
        let free: Vec<i64> = free.take(missing).collect();
        decision.create = if is_per_index {
            let ready = free.into_iter().filter(|index| is_due(job, pods, *index, now, pace, decision));
            ready.map(Some).collect()
        } else {
            free.into_iter().map(Some).collect()
        };
    } else {
        decision.create = vec![None; missing];
    }
}

/// Whether an index with its own limit may get a pod now. Notes its failures, or when it may.
fn is_due(
    job: &Job,
    pods: &[Arc<Pod>],
    index: i64,
    now: Timestamp,
    pace: Pace,
    decision: &mut Decision,
) -> bool {
    let (failures, ignored, last) = job_policies::failures(job, pods, index);
    let pause = last.and_then(|last| pause_after(failures + ignored, last, now, pace));
    match pause {
        Some(pause) => decision.wake_after(pause),
        None => drop(decision.index_failures.insert(index, (failures, ignored))),
    }
    pause.is_none()
}

/// The rest of the back-off after this many failures, of which the last one was at `last`.
fn pause_after(failures: i64, last: Stamp, now: Timestamp, pace: Pace) -> Option<Duration> {
    let doublings = u32::try_from(failures - 1).unwrap_or(0).min(6);
    remaining(pace.scaled((BACK_OFF.0 * 2u32.pow(doublings)).min(BACK_OFF.1)), last, now)
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
    pause_after(i64::try_from(failures.len()).unwrap_or(i64::MAX), last, now, pace)
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

/// The largest index that a status may list: an author may write any text there.
const INDEX_MAX: i64 = 1_000_000;

/// Parses indexes such as `0,2-4`.
pub(super) fn indexes(text: &str) -> BTreeSet<i64> {
    ranges(text).flat_map(|range| *range.start()..=INDEX_MAX.min(*range.end())).collect()
}

/// The ranges of a text such as `0,2-4`; none of them is empty.
pub(super) fn ranges(text: &str) -> impl Iterator<Item = RangeInclusive<i64>> {
    text.split(',').filter_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse().ok()?).filter(|range| !range.is_empty())
    })
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
