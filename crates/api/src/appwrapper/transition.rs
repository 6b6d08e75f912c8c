//! The transitions of an AppWrapper's status, as pure functions.
//!
//! A controller may apply several transitions before one write; the time stamps keep their order. Condition types,
//! reasons, messages (with their dots) and senders are those of MCAD, because scripts and autoscalers match on them.

use super::Group;
use super::limits;
use super::spec::Spec;
use super::status::{Condition, PendingPod, State, Status};
use crate::time::MicroTime;

/// Condition type of a new gang.
pub const INIT: &str = "Init";
/// Condition type: the gang is queued.
pub const QUEUEING: &str = "Queueing";
/// Condition type: the gang is considered for dispatch.
pub const HEAD_OF_LINE: &str = "HeadOfLine";
/// Condition type: the gang does not fit.
pub const BACKOFF: &str = "Backoff";
/// Condition type: the quota that the gang is charged until it is requeued; after Kueue. MCAD has no such type.
pub const QUOTA_RESERVED: &str = "QuotaReserved";
/// Condition type: a digest of the places that the gang got when it was admitted. MCAD has no such type.
pub const PLACES_RESERVED: &str = "PlacesReserved";
/// Reason of a [`QUOTA_RESERVED`] and of a [`PLACES_RESERVED`].
pub const ADMITTED: &str = "Admitted";
/// Condition type: nodes that the gang avoids after its pods found no place there, each until a time. MCAD has no such type.
pub const NODES_AVOIDED: &str = "NodesAvoided";
/// Reason of a [`NODES_AVOIDED`].
pub const UNSCHEDULABLE: &str = "PodsUnschedulable";
/// Condition type: all objects exist.
pub const DISPATCHED: &str = "Dispatched";
/// Condition type: a tracked pod runs.
pub const RUNNING: &str = "Running";
/// Condition type: the gang is being requeued, or it exceeded its deadline.
pub const PREEMPT_CANDIDATE: &str = "PreemptCandidate";
/// Condition type: the gang is preempted. MCAD declares this type but never sets it.
pub const PREEMPTED: &str = "Preempted";
/// Condition type: the gang failed.
pub const FAILED: &str = "Failed";
/// Condition type: the gang is complete.
pub const COMPLETED: &str = "Completed";
/// Condition type: all items are complete, but pods still run.
pub const RUNNING_HOLD_COMPLETION: &str = "RunningHoldCompletion";

/// Reason of a [`BACKOFF`] for lack of resources; autoscalers match on it and on the message.
pub const NOT_RUNNABLE: &str = "AppWrapperNotRunnable.";
/// Message of a [`BACKOFF`] for lack of resources.
pub const INSUFFICIENT: &str = "Insufficient resources to dispatch AppWrapper.";
/// Reason of a [`BACKOFF`] after a gang was requeued.
pub const PREEMPTION_TRIGGERED: &str = "PreemptionTriggered";

/// Reason of a [`BACKOFF`] for lack of quota.
pub const QUOTA_EXCEEDED: &str = "quota limit exceeded";
/// Message of a [`BACKOFF`] for lack of quota.
pub const INSUFFICIENT_QUOTA: &str = "Insufficient quota and/or resources to dispatch AppWrapper.";

/// Reason of a [`PREEMPTED`] for a gang of higher priority.
pub const HIGHER_PRIORITY: &str = "HigherPriority";
/// Reason of a [`PREEMPTED`] for a gang that reclaims quota.
pub const QUOTA_RECLAIMED: &str = "QuotaReclaimed";
/// Reason of a [`PREEMPTED`] without a preemptor: the controller has no permission to create the objects.
pub const NOT_ALLOWED: &str = "NotAllowed";

/// Why a running gang is requeued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequeueReason {
    /// Fewer pods run or have succeeded than `minAvailable`.
    MinPodsNotRunning {
        /// `minAvailable`.
        minimum: i64,
        /// Pods that run.
        running: i64,
        /// Pods that succeeded.
        completed: i64,
    },
    /// Pods are unschedulable.
    PodsFailedScheduling {
        /// Unschedulable pods.
        failed: i64,
        /// Pods that run.
        running: i64,
    },
    /// Disruptions ended wrapped Pods, such as the loss of a node or an eviction.
    PodsDisrupted {
        /// Pods that ended.
        disrupted: i64,
        /// Pods that run.
        running: i64,
    },
    /// Planned pods do not exist.
    PodsNotCreated {
        /// Pods that do not exist.
        missing: i64,
        /// Pods that run.
        running: i64,
    },
}

/// The pod counts and totals in the status.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodCounts {
    /// Pods that are pending.
    pub pending: i64,
    /// Pods that run.
    pub running: i64,
    /// Pods that succeeded.
    pub succeeded: i64,
    /// Pods that failed.
    pub failed: i64,
    /// CPU of pods that run or succeeded, milli.
    pub cpu_milli: i64,
    /// Memory of the same pods, bytes.
    pub memory_bytes: i64,
    /// GPUs of the same pods.
    pub gpus: i64,
    /// Unschedulable pods.
    pub unschedulable: Vec<PendingPod>,
}

/// Queues a new gang (`Init`, then `Queueing`), or a gang that was requeued or preempted. Idempotent.
pub fn enqueue(status: &mut Status, spec: &Spec, group: Group, now: MicroTime) {
    if !status.canrun {
        status.priority_milli = spec.priority_milli;
    }
    if status.queuejobstate.is_empty() {
        if status.controllerfirsttimestamp.is_none() {
            status.controllerfirsttimestamp = Some(now);
        }
        append(status, INIT, "", "", now);
        status.queuejobstate = INIT.into();
    }
    let queued = status.condition(QUEUEING, "AwaitingHeadOfLine").map(|c| c.last_transition_micro_time);
    let at = |kind, reason| status.condition(kind, reason).map(|c| c.last_transition_micro_time);
    let preempted = [HIGHER_PRIORITY, QUOTA_RECLAIMED, NOT_ALLOWED].map(|reason| at(PREEMPTED, reason));
    let returned = preempted.into_iter().max().flatten().max(at(BACKOFF, PREEMPTION_TRIGGERED));
    if queued.is_none() || returned > queued {
        replace(status, QUEUEING, "AwaitingHeadOfLine", "", now);
        status.queuejobstate = QUEUEING.into();
        status.state = State::Pending;
        status.filterignore = true;
        set_sender(
            status,
            match group {
                Group::Mcad => "manageQueueJob - setQueueing",
                Group::Codeflare => "worker - setQueueing",
            },
        );
    }
}

/// The gang is considered for dispatch.
pub fn head_of_line(status: &mut Status, now: MicroTime) {
    append_once(status, HEAD_OF_LINE, "FrontOfQueue.", "", now);
    status.queuejobstate = HEAD_OF_LINE.into();
    status.state = State::Pending;
    set_sender(status, "ScheduleNext - setHOL");
}

/// The gang is admitted: its objects may be created.
pub fn can_run(status: &mut Status) {
    status.canrun = true;
    set_sender(status, "ScheduleNext - setCanRun");
}

/// Records what the gang is charged until it is requeued. `charge` names the quota nodes and the total.
pub fn reserve_quota(status: &mut Status, charge: &str, now: MicroTime) {
    reserve(status, QUOTA_RESERVED, charge, now);
}

/// Records the places of the gang. `digest` identifies them.
pub fn reserve_places(status: &mut Status, digest: &str, now: MicroTime) {
    reserve(status, PLACES_RESERVED, digest, now);
}

fn reserve(status: &mut Status, kind: &str, record: &str, now: MicroTime) {
    let known = status.condition(kind, ADMITTED);
    if known.is_none_or(|known| known.message != record) {
        replace(status, kind, ADMITTED, record, now);
    }
}

/// The gang does not fit. The state between two attempts depends on the API group, as in MCAD.
pub fn back_off(status: &mut Status, group: Group, now: MicroTime) {
    back_off_for(status, group, (NOT_RUNNABLE, INSUFFICIENT), now);
}

/// The gang exceeds its quota. The texts differ from those for missing nodes, which trigger autoscalers.
pub fn back_off_for_quota(status: &mut Status, group: Group, now: MicroTime) {
    back_off_for(status, group, (QUOTA_EXCEEDED, INSUFFICIENT_QUOTA), now);
}

fn back_off_for(status: &mut Status, group: Group, (reason, message): (&str, &str), now: MicroTime) {
    append_once(status, BACKOFF, reason, message, now);
    status.canrun = false;
    status.state = State::Pending;
    match group {
        Group::Mcad => {
            status.queuejobstate = HEAD_OF_LINE.into();
            set_sender(status, "ScheduleNext - setHOL");
        }
        Group::Codeflare => {
            status.queuejobstate = BACKOFF.into();
            set_sender(status, "[backoff] - Rejoining");
        }
    }
}

/// All objects of the gang exist.
pub fn dispatched(status: &mut Status, spec: &Spec, now: MicroTime) {
    let at = replace(status, DISPATCHED, "AppWrapperRunnable", "", now);
    if spec.dispatch_limit_s > 0 && status.controllerfirstdispatchtimestamp.is_none() {
        status.controllerfirstdispatchtimestamp = Some(at);
    }
    status.pendingpodconditions.clear();
    status.queuejobstate = DISPATCHED.into();
    status.state = State::Running;
    status.canrun = true;
    set_sender(status, "manageQueueJob - afterEtcdDispatching");
}

/// Updates the pod counts. The first running pod makes the gang `Running`.
pub fn count_pods(status: &mut Status, counts: &PodCounts, group: Group, now: MicroTime) {
    status.pending = counts.pending;
    status.running = counts.running;
    status.succeeded = counts.succeeded;
    status.failed = counts.failed;
    status.totalcpu = counts.cpu_milli;
    status.totalmemory = counts.memory_bytes;
    status.totalgpu = counts.gpus;
    status.pendingpodconditions = limits::first_pods(&counts.unschedulable);
    if counts.running > 0 && status.queuejobstate == DISPATCHED {
        replace(status, RUNNING, "PodsRunning", "", now);
        status.queuejobstate = RUNNING.into();
        status.state = State::Running;
        set_sender(
            status,
            match group {
                Group::Mcad => "[syncQueueJob] setRunning",
                Group::Codeflare => "[syncQueueJob] Update pod counts",
            },
        );
    }
}

/// All items are complete, but pods still run.
pub fn hold_completion(status: &mut Status, now: MicroTime) {
    replace(status, RUNNING_HOLD_COMPLETION, "SomeItemsCompleted", "", now);
    status.queuejobstate = RUNNING_HOLD_COMPLETION.into();
    status.state = State::RunningHoldCompletion;
    set_sender(status, "[UpdateQueueJobs]  setRunningHoldCompletion");
}

/// All items are complete and no pod runs. The objects remain, the resources are released.
pub fn completed(status: &mut Status, now: MicroTime) {
    replace(status, COMPLETED, "PodsCompleted", "", now);
    status.queuejobstate = COMPLETED.into();
    status.state = State::Completed;
    status.canrun = false;
    set_sender(status, "[UpdateQueueJobs] setCompleted");
}

/// Starts to requeue the gang: its objects will be deleted.
pub fn requeue(status: &mut Status, spec: &Spec, group: Group, reason: RequeueReason, now: MicroTime) {
    let (reason, message) = reason.texts(group);
    replace(status, PREEMPT_CANDIDATE, reason, &message, now);
    status.requeueing_s = spec.requeuing.grown_s(status.requeueing_s);
    status.requeueings = status.requeueings.saturating_add(1);
    status.queuejobstate = PREEMPT_CANDIDATE.into();
    status.canrun = false;
    status.running = 0;
    set_sender(status, &format!("PreemptQueueJobs - CanRun: false -- {reason}"));
}

/// Records the nodes that a requeued gang avoids. `record` names them, as the index reads it back.
pub fn avoid_nodes(status: &mut Status, record: &str, now: MicroTime) {
    replace(status, NODES_AVOIDED, UNSCHEDULABLE, record, now);
}

/// The objects of a requeued gang are deleted: it returns to the queue, or ends after too many requeues.
pub fn requeued(status: &mut Status, spec: &Spec, now: MicroTime) {
    clear_pods(status);
    if spec.requeuing.max_times > 0 && status.requeueings >= spec.requeuing.max_times {
        status.state = State::Deleted;
        return;
    }
    let message =
        status.conditions.iter().rev().find(|c| c.kind == PREEMPT_CANDIDATE).map(|c| c.message.clone());
    replace(status, BACKOFF, PREEMPTION_TRIGGERED, &message.unwrap_or_default(), now);
    status.queuejobstate = BACKOFF.into();
    status.state = State::Pending;
    set_sender(status, "[backoff] - Rejoining");
}

/// The gang is preempted: its objects will be deleted. `message` names the preemptor and the reason.
pub fn preempted(status: &mut Status, reason: &str, message: &str, now: MicroTime) {
    replace(status, PREEMPTED, reason, message, now);
    status.queuejobstate = PREEMPTED.into();
    status.canrun = false;
    status.running = 0;
    set_sender(status, "preemptAWJobs - CanRun: false");
}

/// The objects of a preempted gang are deleted: it returns to the queue. This does not count as a requeue.
pub fn return_to_queue(status: &mut Status, spec: &Spec, group: Group, now: MicroTime) {
    clear_pods(status);
    enqueue(status, spec, group, now);
}

/// The gang exceeded its dispatch limit, and its objects are deleted: it fails.
pub fn deadline_exceeded(status: &mut Status, limit_s: i64, now: MicroTime) {
    let message = format!("Dispatch deadline exceeded. allowed to run for {limit_s} seconds");
    replace(status, PREEMPT_CANDIDATE, "DispatchDeadlineExceeded", &message, now);
    clear_pods(status);
    status.queuejobstate = FAILED.into();
    status.state = State::Failed;
    status.canrun = false;
    set_sender(status, "PreemptQueueJobs - CanRun: false -- DispatchDeadlineExceeded");
}

/// An object could not be created, and the created ones are deleted again: the gang fails. `wrapper` is its namespace
/// and name.
pub fn creation_failed(status: &mut Status, wrapper: &str, cause: &str, now: MicroTime) {
    append(status, FAILED, "ItemCreationFailure.", &format!("{wrapper} creation failure: {cause}"), now);
    clear_pods(status);
    status.queuejobstate = FAILED.into();
    status.state = State::Failed;
    status.canrun = false;
    set_sender(status, "manageQueueJob - afterEtcdDispatching");
}

/// All objects with pods were deleted while the gang ran: it fails. `message` names them.
pub fn objects_deleted(status: &mut Status, message: &str, now: MicroTime) {
    append(status, FAILED, "ObjectsDeleted", message, now);
    clear_pods(status);
    status.queuejobstate = FAILED.into();
    status.state = State::Failed;
    status.canrun = false;
    set_sender(status, "[UpdateQueueJobs] setFailed");
}

impl RequeueReason {
    fn texts(self, group: Group) -> (&'static str, String) {
        match (self, group) {
            (Self::MinPodsNotRunning { minimum, running, completed }, Group::Codeflare) => (
                "MinPodsNotRunning",
                format!(
                    "Insufficient number of Running and Completed pods, minimum={minimum}, running={running}, completed={completed}."
                ),
            ),
            (Self::MinPodsNotRunning { minimum, running, .. }, Group::Mcad) => (
                "MinPodsNotRunning",
                format!("Insufficient number of Running pods, minimum={minimum}, running={running}."),
            ),
            (Self::PodsFailedScheduling { failed, running }, _) => (
                "PodsFailedScheduling",
                format!("Pods failed scheduling failed={failed}, running={running}."),
            ),
            (Self::PodsDisrupted { disrupted, running }, _) => {
                ("PodsDisrupted", format!("Pods disrupted disrupted={disrupted}, running={running}."))
            }
            (Self::PodsNotCreated { missing, running }, _) => {
                ("PodsNotCreated", format!("Pods not created missing={missing}, running={running}."))
            }
        }
    }
}

fn clear_pods(status: &mut Status) {
    status.pending = 0;
    status.running = 0;
    status.pendingpodconditions.clear();
}

fn set_sender(status: &mut Status, step: &str) {
    status.sender = format!("before {step}");
}

fn condition(status: &Status, kind: &str, reason: &str, message: &str, now: MicroTime) -> Condition {
    let mut timestamps = status.timestamps();
    let update = timestamps.next(now);
    Condition {
        last_update_micro_time: update,
        last_transition_micro_time: timestamps.next(update),
        message: message.into(),
        reason: reason.into(),
        status: "True".into(),
        kind: kind.into(),
    }
}

fn append(status: &mut Status, kind: &str, reason: &str, message: &str, now: MicroTime) {
    let condition = condition(status, kind, reason, message, now);
    status.conditions.push(condition);
}

/// Appends a condition unless the latest one of this type and reason has the same message.
fn append_once(status: &mut Status, kind: &str, reason: &str, message: &str, now: MicroTime) {
    if status.condition(kind, reason).is_none_or(|old| old.message != message) {
        append(status, kind, reason, message, now);
    }
}

/// Replaces the condition of this type and reason in place, with new time stamps, or appends it.
fn replace(status: &mut Status, kind: &str, reason: &str, message: &str, now: MicroTime) -> MicroTime {
    let condition = condition(status, kind, reason, message, now);
    let at = condition.last_transition_micro_time;
    match status.conditions.iter_mut().rev().find(|old| old.kind == kind && old.reason == reason) {
        Some(old) => *old = condition,
        None => status.conditions.push(condition),
    }
    at
}
