//! Decides the next step of an AppWrapper: a pure function of the observed state.

mod disruption;
mod message;
mod quota;
mod shortfall;

use api::MicroTime;
use api::appwrapper::transition;
use api::appwrapper::{QueuePlace, State, Status};
use index::{
    CachedPods, GangPod, Index, ObjectKey, Phase, Preemptor, ReservedPlaces, StopReason, Wrapper,
    assignment_to_json,
};
use model::{
    Cause, ExpectedStart, GangStatus, PendingStatus, Position, PreemptionReason, Slip, Time, milli_text,
};

pub(crate) use self::message::{NOT_PLANNED, unplanned};
use self::message::{first_events, message, without_figures};
pub(crate) use self::shortfall::{OpenShortfall, Shortfall, shortfall};
use crate::forbidden::ForbiddenRequest;

/// Start of each message about a scale-up that waits.
const SCALE_UP_WAITS: &str = "a pod of a scale-up waits for a place: ";

/// Prefix of all texts about an object that is not admitted. A status message with this prefix is recognized again.
pub(crate) const NOT_ADMITTED: &str = "not admitted, retrying: ";

/// Prefix of the message about objects that are not deleted.
const NOT_DELETED: &str = "waits for the deletion of ";
/// For so many seconds a stopped gang keeps its places while its objects are being deleted.
pub(crate) const STUCK_AFTER_S: i64 = 60;

/// The next step of an AppWrapper.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Step {
    /// Nothing to do until something changes, or until this time.
    AwaitChange(Option<MicroTime>),
    /// Write the status and record the events.
    WriteStatus(Status, Vec<NewEvent>),
    /// Write the status, in which only pod counts have changed. The write may be delayed, so that it includes the
    /// next changes.
    WritePodCounts(Status),
    /// Write the intent unless the status already shows it, create all objects, write the outcome.
    Dispatch {
        /// The status before the first object is created.
        intent: Status,
        /// The planned nodes of the gang, for the annotation of its objects.
        assignment: Option<String>,
        /// The message of the status after the dispatch.
        message: String,
        /// The events to record after the dispatch.
        events: Vec<NewEvent>,
    },
    /// Write the status, which requeues a running gang that lacks pods, if the API server knows no more pods of it.
    Requeue(Status, CachedPods),
    /// Read the Events about the objects with these uids: they may say why pods are missing.
    ReadEvents(Vec<String>),
    /// Ask the API server whether these objects of a running gang are deleted.
    ConfirmDeletions(Vec<ObjectKey>),
    /// Stop the gang: its objects are removed by the next steps.
    Stop(StopReason),
    /// Remove the objects.
    Remove,
}

/// Input of the decision that is not in the index, or that several decisions share.
#[derive(Debug, Default)]
pub(crate) struct StatusInput<'a> {
    /// The pods of the gang.
    pub(crate) pods: &'a [GangPod<'a>],
    /// Position of the gang in its queue.
    pub(crate) position: Option<Position>,
    /// Write the status even if only figures of its message have changed.
    pub(crate) refresh_figures: bool,
    /// A permission that the controller lacked in the last attempts.
    pub(crate) missing_permission: Option<MissingPermission>,
    /// Since when the stopped gang waits for the deletion of its objects.
    pub(crate) removing_since: Option<MicroTime>,
    /// What the running gang lacks.
    pub(crate) shortfall: Option<OpenShortfall>,
}

/// A permission that the controller lacked in the last attempts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MissingPermission {
    /// Description of the permission.
    pub(crate) text: String,
    /// When the first of these attempts failed.
    pub(crate) since: MicroTime,
}

/// An Event to be recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NewEvent {
    /// Whether the type of the Event is `Warning`.
    pub(crate) is_warning: bool,
    /// The reason, in CamelCase.
    pub(crate) reason: &'static str,
    /// The message.
    pub(crate) text: String,
}

/// Decides the next step. If only figures of the message have changed, the status is not written unless `input`
/// requests it.
pub(crate) fn decide(index: &Index, wrapper: &Wrapper, now: MicroTime, input: &StatusInput<'_>) -> Step {
    match &wrapper.phase {
        Phase::Unknown | Phase::Finished => Step::AwaitChange(None),
        Phase::Starting(_) | Phase::Running(_) if wrapper.is_deleting => Step::AwaitChange(None),
        Phase::Inadmissible(problems) => not_queued(index, wrapper, problems, now),
        Phase::Waiting | Phase::Nominated(_) => {
            let snapshot = index.world().snapshot(Time(now.0));
            match GangStatus::at(&snapshot, &wrapper.uid, input.position.as_ref()) {
                Some(GangStatus::Pending(wait)) => back_off(wrapper, &wait, now, input.refresh_figures),
                Some(status @ GangStatus::Preempting { .. }) => preempting(wrapper, &status.to_string(), now),
                Some(GangStatus::New | GangStatus::Preempted { .. } | GangStatus::Running { .. }) | None => {
                    Step::AwaitChange(None)
                }
            }
        }
        Phase::Starting(assignment) => match &input.missing_permission {
            Some(MissingPermission { text, since }) if since.plus_s(requeue_after_s(wrapper)) <= now => {
                Step::Stop(StopReason::Forbidden(text.clone()))
            }
            missing_permission => dispatch(
                index,
                wrapper,
                assignment.as_ref().map(assignment_to_json),
                missing_permission.as_ref(),
                now,
            ),
        },
        Phase::Running(_) if !wrapper.disappeared.is_empty() => {
            Step::ConfirmDeletions(wrapper.disappeared.keys().cloned().collect())
        }
        Phase::Running(_) => running(index, wrapper, input.pods, input.shortfall.as_ref(), now),
        Phase::Stopping(StopReason::Preempt(by), _) if wrapper.stop_reason().is_none() => {
            preempted(index, wrapper, input.pods, by.as_ref(), now)
        }
        Phase::Stopping(StopReason::Forbidden(text), _) if wrapper.stop_reason().is_none() => {
            stop_without_permission(wrapper, text, now)
        }
        Phase::Stopping(..) => removing(wrapper, input.missing_permission.as_ref()),
        Phase::Stopped(..) if !index.is_removed(&wrapper.uid) => match input.removing_since {
            Some(since) if is_stuck(since, now) => stuck(index, wrapper),
            since => Step::AwaitChange(since.map(|since| since.plus_s(STUCK_AFTER_S))),
        },
        Phase::Stopped(stop, _) => removed(wrapper, stop, now),
    }
}

/// The gang cannot be queued: an item has no valid template, or the API server would ignore or reject its object.
fn not_queued(index: &Index, wrapper: &Wrapper, problems: &[String], now: MicroTime) -> Step {
    let mut status = wrapper.status.clone();
    transition::enqueue(&mut status, &wrapper.summary.spec, wrapper.key.group, wrapper.first_seen);
    if let Some(flaw) = &wrapper.summary.error {
        transition::head_of_line(&mut status, now);
        transition::creation_failed(&mut status, &wrapper.key.to_string(), flaw, now);
        return write(wrapper, status, Vec::new());
    }
    let text = problems.join(". ");
    // Objects of a kind that cannot be listed may exist already.
    status.canrun &= index.has_failing_kinds(wrapper);
    status.tell(message(wrapper, Some(&text)));
    let mut events = first_events(wrapper);
    if wrapper.status.message != status.message {
        let reason = if ForbiddenRequest::in_message(&text).is_some() { "NotAllowed" } else { "NotQueued" };
        if !text.starts_with(NOT_ADMITTED) {
            events.push(NewEvent { is_warning: true, reason, text }); // Otherwise recorded while it was retried.
        }
    }
    write(wrapper, status, events)
}

/// The gang does not fit and stays pending.
fn back_off(wrapper: &Wrapper, wait: &PendingStatus, now: MicroTime, refresh_figures: bool) -> Step {
    let mut status = wrapper.status.clone();
    transition::enqueue(&mut status, &wrapper.summary.spec, wrapper.key.group, wrapper.first_seen);
    transition::head_of_line(&mut status, now);
    if matches!(wait.shortage.causes.first(), Some(Cause::Quota(_))) {
        transition::back_off_for_quota(&mut status, wrapper.key.group, now);
    } else {
        transition::back_off(&mut status, wrapper.key.group, now);
    }
    status.message.clone_from(&wrapper.status.message);
    let changes_message_only = status == wrapper.status;
    let text = wait.to_string();
    status.tell(message(wrapper, Some(&text)));
    if changes_message_only && status.message == wrapper.status.message {
        return Step::AwaitChange(None);
    }
    if !wait.is_never {
        let Position { place, of, .. } = wait.position;
        let start = wait.start.as_ref().map(ExpectedStart::short).unwrap_or_default();
        status.queue = Some(QueuePlace { position: format!("{place} of {of}"), start });
    }
    let same_but_figures = without_figures(&wrapper.status.message) == without_figures(&status.message);
    let slip = wait.slip.as_ref().filter(|slip| !wrapper.status.message.contains(&slip.status_text()));
    let has_new_start = wait.start.as_ref().is_some_and(|_| !ExpectedStart::is_in(&wrapper.status.message));
    if changes_message_only && same_but_figures && slip.is_none() && !has_new_start && !refresh_figures {
        return Step::AwaitChange(None);
    }
    let mut events = first_events(wrapper);
    if !same_but_figures {
        let reason = if wait.is_never { "NeverFits" } else { "Waiting" };
        events.push(NewEvent { is_warning: wait.is_never, reason, text });
    }
    if let Some(slip) = slip {
        // A start that nobody knows is none to which the reserved one could have moved.
        let to = slip.to.filter(|_| wait.start.as_ref().is_some_and(|start| start.at().is_some()));
        let text = Slip { to, ..slip.clone() }.to_string();
        events.push(NewEvent { is_warning: false, reason: "StartMoved", text });
    }
    write(wrapper, status, events)
}

/// The gang is admitted.
fn dispatch(
    index: &Index,
    wrapper: &Wrapper,
    assignment: Option<String>,
    missing_permission: Option<&MissingPermission>,
    now: MicroTime,
) -> Step {
    let mut intent = wrapper.status.clone();
    transition::enqueue(&mut intent, &wrapper.summary.spec, wrapper.key.group, wrapper.first_seen);
    if !intent.canrun {
        transition::head_of_line(&mut intent, now);
        quota::record(index, wrapper, &mut intent, now);
    }
    let has_pods = !wrapper.summary.pod_sets.is_empty();
    let reserves_places = has_pods && (!intent.canrun || !index.has_recorded_places(wrapper));
    // Objects that exist keep the assignment with which they were created.
    if let Some(assignment) = assignment.as_deref().filter(|_| reserves_places) {
        transition::reserve_places(&mut intent, &ReservedPlaces::of(assignment).to_string(), now);
    }
    if !intent.canrun {
        transition::can_run(&mut intent);
    }
    intent.tell(message(wrapper, missing_permission.map(|missing_permission| &*missing_permission.text)));
    let mut events = first_events(wrapper);
    let waits = [transition::NOT_RUNNABLE, transition::QUOTA_EXCEEDED];
    let has_waited = waits.into_iter().any(|reason| intent.condition(transition::BACKOFF, reason).is_some());
    if has_waited || missing_permission.is_some() {
        let text = "all pods have a node, all objects were created".into();
        events.push(NewEvent { is_warning: false, reason: "Dispatched", text });
    }
    Step::Dispatch { intent, assignment, message: message(wrapper, None), events }
}

/// The gang preempts other gangs and waits for their nodes. It gets no `Backoff` condition: it needs no node from an
/// autoscaler.
fn preempting(wrapper: &Wrapper, text: &str, now: MicroTime) -> Step {
    let mut status = wrapper.status.clone();
    transition::enqueue(&mut status, &wrapper.summary.spec, wrapper.key.group, wrapper.first_seen);
    transition::head_of_line(&mut status, now);
    status.tell(message(wrapper, Some(text)));
    let mut events = first_events(wrapper);
    if wrapper.status.message != status.message {
        events.push(NewEvent { is_warning: false, reason: "Preempting", text: text.to_owned() });
    }
    write(wrapper, status, events)
}

/// The gang is preempted, unless it has completed by now.
fn preempted(
    index: &Index,
    wrapper: &Wrapper,
    pods: &[GangPod<'_>],
    by: Option<&Preemptor>,
    now: MicroTime,
) -> Step {
    if wrapper.is_dispatched() && is_complete(index, wrapper) && index.is_over(wrapper, pods) {
        return running(index, wrapper, pods, None, now);
    }
    let own = wrapper.priority_milli();
    let (reason, text) =
        by.map_or((transition::HIGHER_PRIORITY, String::new()), |by| preempted_because(by, own));
    let mut status = wrapper.status.clone();
    transition::enqueue(&mut status, &wrapper.summary.spec, wrapper.key.group, wrapper.first_seen);
    transition::preempted(&mut status, reason, &text, now);
    status.tell(message(wrapper, Some(&text)));
    Step::WriteStatus(status, vec![NewEvent { is_warning: false, reason: "Preempted", text }])
}

/// The reason and the message of the preemption of a gang with priority `own`.
fn preempted_because(by: &Preemptor, own: i64) -> (&'static str, String) {
    let (key, priority) = (&by.key, milli_text(by.priority_milli));
    match by.reason {
        PreemptionReason::Priority
        | PreemptionReason::InClusterQueue
        | PreemptionReason::InCohortReclaimWhileBorrowing => (
            transition::HIGHER_PRIORITY,
            format!(
                "Preempted by {key}, whose priority is {priority}; the priority of this gang is {}",
                milli_text(own)
            ),
        ),
        PreemptionReason::InCohortReclamation => (
            transition::QUOTA_RECLAIMED,
            format!("Preempted by {key}, which reclaims quota that this gang borrowed"),
        ),
        PreemptionReason::InCohortFairSharing => {
            (transition::QUOTA_RECLAIMED, format!("Preempted by {key}, whose share of the quota is smaller"))
        }
    }
}

/// The gang was admitted, but could not start because a permission was missing for too long. It releases its nodes.
fn stop_without_permission(wrapper: &Wrapper, text: &str, now: MicroTime) -> Step {
    let mut status = wrapper.status.clone();
    transition::preempted(&mut status, transition::NOT_ALLOWED, text, now);
    status.tell(message(wrapper, Some(text)));
    Step::WriteStatus(status, Vec::new())
}

/// The objects are to be removed. A missing permission is written to the status first.
fn removing(wrapper: &Wrapper, missing_permission: Option<&MissingPermission>) -> Step {
    let Some(missing_permission) = missing_permission else { return Step::Remove };
    let mut status = wrapper.status.clone();
    status.tell(message(wrapper, Some(&missing_permission.text)));
    if status == wrapper.status { Step::Remove } else { Step::WriteStatus(status, Vec::new()) }
}

/// Whether a gang whose objects have been deleted since this time releases its places.
pub(crate) fn is_stuck(since: MicroTime, now: MicroTime) -> bool {
    since.plus_s(STUCK_AFTER_S) <= now
}

/// The objects of the gang are not deleted: the status names what keeps them.
fn stuck(index: &Index, wrapper: &Wrapper) -> Step {
    let held = index.objects_of(&wrapper.uid).map(|row| {
        let finalizers = match row.finalizers.as_slice() {
            [] => "its deletion does not end".to_owned(),
            finalizers => format!("finalizer {}", finalizers.join(", ")),
        };
        format!("{} {} ({finalizers})", row.key.kind.kind, row.key.name)
    });
    let held: Vec<_> = held.collect();
    if held.is_empty() {
        return Step::AwaitChange(None);
    }
    let text = format!("{NOT_DELETED}{}; its places are released", held.join(", "));
    let mut status = wrapper.status.clone();
    status.tell(message(wrapper, Some(&text)));
    write(wrapper, status, vec![NewEvent { is_warning: true, reason: "NotDeleted", text }])
}

/// All objects and pods of the gang are gone.
fn removed(wrapper: &Wrapper, stop: &StopReason, now: MicroTime) -> Step {
    let (spec, group) = (&wrapper.summary.spec, wrapper.key.group);
    let mut status = wrapper.status.clone();
    match stop {
        StopReason::Requeue => transition::requeued(&mut status, spec, now),
        StopReason::Deadline => transition::deadline_exceeded(&mut status, spec.dispatch_limit_s, now),
        StopReason::Preempt(_) | StopReason::Forbidden(_) => {
            transition::return_to_queue(&mut status, spec, group, now);
        }
    }
    let is_over = |text: &str| {
        ForbiddenRequest::in_message(text).is_some()
            || text.starts_with(NOT_ADMITTED)
            || text.starts_with(NOT_DELETED)
            || shortfall::is_reported(text)
    };
    if is_over(&status.message) {
        status.tell(message(wrapper, None));
    }
    Step::WriteStatus(status, Vec::new())
}

/// All objects of the gang exist.
fn running(
    index: &Index,
    wrapper: &Wrapper,
    pods: &[GangPod<'_>],
    shortfall: Option<&OpenShortfall>,
    now: MicroTime,
) -> Step {
    let (spec, group) = (&wrapper.summary.spec, wrapper.key.group);
    let mut status = wrapper.status.clone();
    transition::count_pods(&mut status, &index.tracked_counts(wrapper, pods), group, now);
    quota::record(index, wrapper, &mut status, now); // It may have been dispatched before there was a quota tree.
    if is_complete(index, wrapper) {
        if index.is_over(wrapper, pods) {
            transition::completed(&mut status, now);
        } else if status.state != State::RunningHoldCompletion {
            transition::hold_completion(&mut status, now);
        }
        return write(wrapper, status, Vec::new());
    }
    let deadline = status.controllerfirstdispatchtimestamp.filter(|_| spec.dispatch_limit_s > 0);
    let deadline = deadline.map(|first| first.plus_s(spec.dispatch_limit_s));
    if deadline.is_some_and(|deadline| deadline <= now) {
        return Step::Stop(StopReason::Deadline);
    }
    let disrupted = index.disrupted_pods(wrapper);
    if spec.min_available <= 0 && !disrupted.is_empty() {
        return disruption::requeue(index, wrapper, status, &disrupted, now);
    }
    let without_place = index.pods_lost_before_start(wrapper, pods);
    if without_place > 0 {
        return shortfall::take_back(index, wrapper, status, without_place, now);
    }
    let deleted = disruption::deleted_text(index, wrapper);
    if let Some(text) =
        deleted.as_deref().filter(|_| spec.min_available <= 0 && index.has_nothing_left(wrapper, pods))
    {
        transition::objects_deleted(&mut status, text, now);
        status.tell(message(wrapper, Some(text)));
        return write(wrapper, status, vec![disruption::deletion_event(text)]);
    }
    if let Some(open) = shortfall {
        return shortfall::step(index, wrapper, status, open, deadline, now);
    }
    if let Some(text) = deleted {
        status.tell(message(wrapper, Some(&text)));
        if status.message != wrapper.status.message {
            return Step::WriteStatus(status, vec![disruption::deletion_event(&text)]);
        }
    } else if let Some(text) = waiting_scale_up(index, wrapper, pods) {
        status.tell(message(wrapper, Some(&text)));
        if without_figures(&status.message) != without_figures(&wrapper.status.message) {
            let event = NewEvent { is_warning: false, reason: "ScaleUpWaits", text };
            return Step::WriteStatus(status, vec![event]);
        }
        status.message.clone_from(&wrapper.status.message);
    } else if let Some(text) = quota::ignored_labels(index, wrapper) {
        status.tell(message(wrapper, Some(&text)));
        if status.message != wrapper.status.message {
            let event = NewEvent { is_warning: true, reason: "QuotaLabelIgnored", text };
            return Step::WriteStatus(status, vec![event]);
        }
    } else if shortfall::is_reported(&wrapper.status.message)
        || wrapper.status.message.contains(SCALE_UP_WAITS)
        || quota::is_reported(&wrapper.status.message)
    {
        status.tell(message(wrapper, None));
    }
    if status == wrapper.status { Step::AwaitChange(deadline) } else { Step::WritePodCounts(status) }
}

/// Why the scale-up of a running gang waits, if it does.
fn waiting_scale_up(index: &Index, wrapper: &Wrapper, pods: &[GangPod<'_>]) -> Option<String> {
    let why = match index.unschedulable_pods_of_scale_ups(wrapper, pods) {
        0 => {
            wrapper.growing.and_then(|_| index.verdict(&wrapper.uid)?.shortage()).map(ToString::to_string)?
        }
        1 => "the scheduler finds no node for 1 pod".to_owned(),
        count => format!("the scheduler finds no node for {count} pods"),
    };
    Some(format!("{SCALE_UP_WAITS}{why}"))
}

/// Whether all items with a completion status are complete, and there is at least one such item.
fn is_complete(index: &Index, wrapper: &Wrapper) -> bool {
    let mut with_conditions =
        wrapper.summary.items.iter().filter(|item| !item.completion.is_empty()).peekable();
    with_conditions.peek().is_some()
        && with_conditions
            .all(|item| item.objects.iter().all(|key| index.is_complete(wrapper, key, &item.completion)))
}

/// How many seconds the gang may hold nodes without satisfying its spec: `requeuing.timeInSeconds`, or its grown
/// value in the status.
fn requeue_after_s(wrapper: &Wrapper) -> i64 {
    let grown = wrapper.status.requeueing_s;
    if grown > 0 { grown } else { wrapper.summary.spec.requeuing.time_s }
}

fn write(wrapper: &Wrapper, status: Status, events: Vec<NewEvent>) -> Step {
    if status == wrapper.status { Step::AwaitChange(None) } else { Step::WriteStatus(status, events) }
}
