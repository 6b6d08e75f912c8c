//! What to do next about one wrapper: a plain function of what was observed.

use std::fmt;

use api::MicroTime;
use api::appwrapper::transition::{self, TakeBack};
use api::appwrapper::{State, Status};
use index::{Evidence, Index, Phase, PodPhase, PodRow, Preemptor, Stop, Wrapper, assignment_to_json};
use model::{Cause, ExpectedStart, GangStatus, PendingStatus, Position, PreemptionReason, Time};

use crate::forbidden::ForbiddenRequest;

/// The next thing to do.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Step {
    /// Nothing until something changes, or until this time.
    AwaitChange(Option<MicroTime>),
    /// Write the status.
    WriteStatus(Status, Vec<NewEvent>),
    /// Write the status, which tells only what pods do. More of them will do something in a moment, so this may wait for them.
    WritePodCounts(Status),
    /// Write the intent if the status does not show it yet, make all objects, write the outcome.
    Dispatch {
        /// The status before any object exists.
        intent: Status,
        /// Where the plan placed the gang, to be written on its objects.
        assignment: Option<String>,
        /// What the status says to people when it is done.
        message: String,
        /// What to tell when it is done.
        events: Vec<NewEvent>,
    },
    /// Write the status, which takes a running gang back for pods that it requeue_cause, if the API server knows no more of them.
    Requeue(Status, Evidence),
    /// Begin to remove the objects.
    Stop(Stop),
    /// Remove the objects.
    Remove,
}

/// What a gang may be input beside what can be seen of it.
#[derive(Debug, Default)]
pub(crate) struct StatusInput {
    /// Its place in its queue.
    pub(crate) position: Option<Position>,
    /// Its turn has come to be input figures, even if nothing else has changed.
    pub(crate) refresh_figures: bool,
    /// A right that the last tries lacked.
    pub(crate) missing_permission: Option<MissingPermission>,
}

/// A right that the last tries lacked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MissingPermission {
    /// Which, in words.
    pub(crate) text: String,
    /// Since when.
    pub(crate) since: MicroTime,
}

/// An event for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NewEvent {
    /// Whether something is wrong.
    pub(crate) is_warning: bool,
    /// One word.
    pub(crate) reason: &'static str,
    /// The details.
    pub(crate) text: String,
}

/// Decides what to do next. A message of which only figures changed is left as it is unless `input` asks for fresh ones.
pub(crate) fn decide(index: &Index, wrapper: &Wrapper, now: MicroTime, input: &StatusInput) -> Step {
    match &wrapper.phase {
        Phase::Unknown | Phase::Ended => Step::AwaitChange(None),
        Phase::Starting(_) | Phase::Running(_) if wrapper.is_deleting => Step::AwaitChange(None),
        Phase::Held(problems) => not_queued(wrapper, problems, now),
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
                Step::Stop(Stop::NotAllowed(text.clone()))
            }
            missing_permission => dispatch(
                wrapper,
                assignment.as_ref().map(assignment_to_json),
                missing_permission.as_ref(),
                now,
            ),
        },
        Phase::Running(_) => running(index, wrapper, now),
        Phase::Stopping(Stop::Preempt(by), _) if wrapper.being_stopped().is_none() => {
            preempted(index, wrapper, by.as_ref(), now)
        }
        Phase::Stopping(Stop::NotAllowed(text), _) if wrapper.being_stopped().is_none() => {
            stop_without_permission(wrapper, text, now)
        }
        Phase::Stopping(..) => removing(wrapper, input.missing_permission.as_ref()),
        Phase::Leaving(..) if !index.has_left(&wrapper.uid) => Step::AwaitChange(None),
        Phase::Leaving(stop, _) => removed(wrapper, stop, now),
    }
}

/// The gang cannot be queued: an item stands for nothing, or what it stands for would be ignored or refused.
fn not_queued(wrapper: &Wrapper, problems: &[String], now: MicroTime) -> Step {
    let mut status = wrapper.status.clone();
    transition::arrive(&mut status, &wrapper.summary.spec, wrapper.key.group, wrapper.seen);
    if let Some(flaw) = &wrapper.summary.flaw {
        transition::head_of_line(&mut status, now);
        transition::creation_failed(&mut status, &wrapper.key.to_string(), flaw, now);
        return write(wrapper, status, Vec::new());
    }
    let text = problems.join(". ");
    status.canrun = false;
    status.message = message(wrapper, Some(&text));
    let mut events = first_events(wrapper);
    if wrapper.status.message != status.message {
        let reason = if ForbiddenRequest::in_message(&text).is_some() { "NotAllowed" } else { "NotQueued" };
        events.push(NewEvent { is_warning: true, reason, text });
    }
    write(wrapper, status, events)
}

/// The gang does not fit.
fn back_off(wrapper: &Wrapper, wait: &PendingStatus, now: MicroTime, refresh_figures: bool) -> Step {
    let mut status = wrapper.status.clone();
    transition::arrive(&mut status, &wrapper.summary.spec, wrapper.key.group, wrapper.seen);
    transition::head_of_line(&mut status, now);
    if matches!(wait.shortage.causes.first(), Some(Cause::Quota(_))) {
        transition::back_off_for_quota(&mut status, wrapper.key.group, now);
    } else {
        transition::back_off(&mut status, wrapper.key.group, now);
    }
    status.message.clone_from(&wrapper.status.message);
    let changes_message_only = status == wrapper.status;
    let text = wait.to_string();
    status.message = message(wrapper, Some(&text));
    let same_but_figures = without_figures(&wrapper.status.message) == without_figures(&status.message);
    let slip = wait.slip.as_ref().filter(|slip| !wrapper.status.message.contains(&slip.reminder()));
    let is_news = wait.start.as_ref().is_some_and(|_| !ExpectedStart::is_told_in(&wrapper.status.message));
    if changes_message_only && same_but_figures && slip.is_none() && !is_news && !refresh_figures {
        return Step::AwaitChange(None);
    }
    let mut events = first_events(wrapper);
    if !same_but_figures {
        let reason = if wait.is_never { "NeverFits" } else { "Waiting" };
        events.push(NewEvent { is_warning: wait.is_never, reason, text });
    }
    if let Some(slip) = slip {
        events.push(NewEvent { is_warning: false, reason: "StartMoved", text: slip.to_string() });
    }
    write(wrapper, status, events)
}

/// The gang was admitted.
fn dispatch(
    wrapper: &Wrapper,
    assignment: Option<String>,
    missing_permission: Option<&MissingPermission>,
    now: MicroTime,
) -> Step {
    let mut intent = wrapper.status.clone();
    transition::arrive(&mut intent, &wrapper.summary.spec, wrapper.key.group, wrapper.seen);
    if !intent.canrun {
        transition::head_of_line(&mut intent, now);
        transition::can_run(&mut intent);
    }
    intent.message = message(wrapper, missing_permission.map(|missing_permission| &*missing_permission.text));
    let mut events = first_events(wrapper);
    let waits = [transition::NOT_RUNNABLE, transition::QUOTA_EXCEEDED];
    let has_waited = waits.into_iter().any(|reason| intent.condition(transition::BACKOFF, reason).is_some());
    if has_waited || missing_permission.is_some() {
        let text = "all pods have a place, all objects were created".into();
        events.push(NewEvent { is_warning: false, reason: "Dispatched", text });
    }
    Step::Dispatch { intent, assignment, message: message(wrapper, None), events }
}

/// Others are being stopped for the gang. It requeue_cause nothing that an autoscaler could bring, so it does not back off.
fn preempting(wrapper: &Wrapper, text: &str, now: MicroTime) -> Step {
    let mut status = wrapper.status.clone();
    transition::arrive(&mut status, &wrapper.summary.spec, wrapper.key.group, wrapper.seen);
    transition::head_of_line(&mut status, now);
    status.message = message(wrapper, Some(text));
    let mut events = first_events(wrapper);
    if wrapper.status.message != status.message {
        events.push(NewEvent { is_warning: false, reason: "PreemptionPolicy", text: text.to_owned() });
    }
    write(wrapper, status, events)
}

/// The gang is to be stopped for another one; unless its work is done by now.
fn preempted(index: &Index, wrapper: &Wrapper, by: Option<&Preemptor>, now: MicroTime) -> Step {
    if wrapper.is_dispatched() && is_complete(index, wrapper) {
        return running(index, wrapper, now);
    }
    let own = wrapper.summary.spec.priority_milli;
    let (reason, text) =
        by.map_or((transition::HIGHER_PRIORITY, String::new()), |by| preempted_because(by, own));
    let mut status = wrapper.status.clone();
    transition::arrive(&mut status, &wrapper.summary.spec, wrapper.key.group, wrapper.seen);
    transition::preempted(&mut status, reason, &text, now);
    status.message = message(wrapper, Some(&text));
    Step::WriteStatus(status, vec![NewEvent { is_warning: false, reason: "Preempted", text }])
}

/// The reason for which a gang of priority `own` is stopped, as a word and as a sentence.
fn preempted_because(by: &Preemptor, own: i64) -> (&'static str, String) {
    let (key, priority) = (&by.key, Priority(by.priority_milli));
    match by.reason {
        PreemptionReason::Priority
        | PreemptionReason::InClusterQueue
        | PreemptionReason::InCohortReclaimWhileBorrowing => (
            transition::HIGHER_PRIORITY,
            format!("Preempted for {key}, whose priority is {priority}; this one has {}", Priority(own)),
        ),
        PreemptionReason::InCohortReclamation => (
            transition::QUOTA_RECLAIMED,
            format!("Preempted for {key}, which takes back quota that this one had borrowed"),
        ),
        PreemptionReason::InCohortFairSharing => {
            (transition::QUOTA_RECLAIMED, format!("Preempted for {key}, whose share of the quota is smaller"))
        }
    }
}

/// The gang lacked a right for too long to keep its places.
fn stop_without_permission(wrapper: &Wrapper, text: &str, now: MicroTime) -> Step {
    let mut status = wrapper.status.clone();
    transition::preempted(&mut status, transition::NOT_ALLOWED, text, now);
    status.message = message(wrapper, Some(text));
    Step::WriteStatus(status, Vec::new())
}

/// The objects are to be removed. That a right is missing for that is input first.
fn removing(wrapper: &Wrapper, missing_permission: Option<&MissingPermission>) -> Step {
    let Some(missing_permission) = missing_permission else { return Step::Remove };
    let mut status = wrapper.status.clone();
    status.message = message(wrapper, Some(&missing_permission.text));
    if status == wrapper.status { Step::Remove } else { Step::WriteStatus(status, Vec::new()) }
}

/// Nothing of the gang exists any more.
fn removed(wrapper: &Wrapper, stop: &Stop, now: MicroTime) -> Step {
    let (spec, group) = (&wrapper.summary.spec, wrapper.key.group);
    let mut status = wrapper.status.clone();
    match stop {
        Stop::Requeue => transition::requeued(&mut status, spec, now),
        Stop::Deadline => transition::deadline_exceeded(&mut status, spec.dispatch_limit_s, now),
        Stop::Preempt(_) | Stop::NotAllowed(_) => transition::queued_again(&mut status, spec, group, now),
    }
    if ForbiddenRequest::in_message(&status.message).is_some() {
        status.message = message(wrapper, None);
    }
    Step::WriteStatus(status, Vec::new())
}

/// All objects exist.
fn running(index: &Index, wrapper: &Wrapper, now: MicroTime) -> Step {
    let (spec, group) = (&wrapper.summary.spec, wrapper.key.group);
    let pods = index.pods_of(wrapper);
    let mut status = wrapper.status.clone();
    transition::count_pods(&mut status, &index.tracked_counts(wrapper), group, now);
    if is_complete(index, wrapper) {
        if !pods.iter().any(|pod| pod.is_live()) {
            transition::completed(&mut status, now);
        } else if status.state != State::RunningHoldCompletion {
            transition::hold_completion(&mut status, now);
        }
        return write(wrapper, status, Vec::new());
    }
    let deadline = status.controllerfirstdispatchtimestamp.filter(|_| spec.dispatch_limit_s > 0);
    let deadline = deadline.map(|first| first.plus_s(spec.dispatch_limit_s));
    if deadline.is_some_and(|deadline| deadline <= now) {
        return Step::Stop(Stop::Deadline);
    }
    let mut wake = deadline;
    if let Some(why) = requeue_cause(index, wrapper, &pods) {
        let due = requeue_due(wrapper);
        if due <= now {
            transition::take_back(&mut status, spec, group, why, now);
            return Step::Requeue(status, index.evidence(wrapper));
        }
        wake = Some(wake.map_or(due, |wake| wake.min(due)));
    }
    if status == wrapper.status { Step::AwaitChange(wake) } else { Step::WritePodCounts(status) }
}

/// Whether every item that tells when it is complete is, and at least one tells.
fn is_complete(index: &Index, wrapper: &Wrapper) -> bool {
    let mut with_conditions =
        wrapper.summary.items.iter().filter(|item| !item.completion.is_empty()).peekable();
    with_conditions.peek().is_some()
        && with_conditions.all(|item| {
            item.objects.iter().all(|key| {
                index.object(wrapper, key).is_some_and(|object| object.is_complete(&item.completion))
            })
        })
}

/// Why a dispatched gang is not what its author demands, if it is not.
fn requeue_cause(index: &Index, wrapper: &Wrapper, pods: &[&PodRow]) -> Option<TakeBack> {
    let count =
        |phase| i64::try_from(pods.iter().filter(|pod| pod.phase == phase).count()).unwrap_or(i64::MAX);
    let (running, completed) = (count(PodPhase::Running), count(PodPhase::Succeeded));
    let minimum = wrapper.summary.spec.min_available;
    if running + completed < minimum {
        return Some(TakeBack::MinPodsNotRunning { minimum, running, completed });
    }
    let failed =
        i64::try_from(pods.iter().filter(|pod| pod.unschedulable.is_some()).count()).unwrap_or(i64::MAX);
    // Who demands nothing less gets all or nothing: a gang of which a planned pod is refused is not left status.
    let is_half_started = || minimum <= 0 && index.unschedulable_pods(wrapper).pods > 0;
    (failed > 0 && (running + completed == 0 || is_half_started()))
        .then_some(TakeBack::PodsFailedScheduling { failed, running })
}

/// Until when a gang may missing_permission pods.
fn requeue_due(wrapper: &Wrapper) -> MicroTime {
    let conditions = wrapper.status.conditions.iter();
    let last = conditions.map(|condition| condition.last_transition_micro_time).max();
    last.unwrap_or(wrapper.seen).plus_s(requeue_after_s(wrapper))
}

/// For how many seconds a gang may hold places without being what its author demands.
fn requeue_after_s(wrapper: &Wrapper) -> i64 {
    let grown = wrapper.status.requeueing_s;
    if grown > 0 { grown } else { wrapper.summary.spec.requeuing.time_s }
}

fn write(wrapper: &Wrapper, status: Status, events: Vec<NewEvent>) -> Step {
    if status == wrapper.status { Step::AwaitChange(None) } else { Step::WriteStatus(status, events) }
}

/// What is input once, when a wrapper is first looked at: what was filled in for its author, and what could not be read.
fn first_events(wrapper: &Wrapper) -> Vec<NewEvent> {
    if !wrapper.status.conditions.is_empty() {
        return Vec::new();
    }
    let flaws = wrapper.hints.flaws.iter().cloned();
    let mut events: Vec<_> =
        flaws.map(|text| NewEvent { is_warning: true, reason: "AnnotationIgnored", text }).collect();
    if !wrapper.summary.spec.notes.is_empty() {
        events.push(NewEvent { is_warning: false, reason: "CanonicalForm", text: defaulted(wrapper) });
    }
    events
}

/// The message of a status: why it waits, and what was filled in. Empty for most.
fn message(wrapper: &Wrapper, reason: Option<&str>) -> String {
    match (reason, wrapper.summary.spec.notes.is_empty()) {
        (Some(reason), true) => reason.into(),
        (Some(reason), false) => format!("{reason}. {}", defaulted(wrapper)),
        (None, true) => String::new(),
        (None, false) => defaulted(wrapper),
    }
}

fn defaulted(wrapper: &Wrapper) -> String {
    format!("filled in: {}", wrapper.summary.spec.notes.join(", "))
}

/// A priority as people write it.
struct Priority(i64);

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, milli) = (if self.0 < 0 { "-" } else { "" }, self.0.unsigned_abs());
        match milli % 1000 {
            0 => write!(f, "{sign}{}", milli / 1000),
            part => write!(f, "{sign}{}.{}", milli / 1000, format!("{part:03}").trim_end_matches('0')),
        }
    }
}

/// A reason without its figures. Position and start are figures as a whole, whoever they name.
fn without_figures(text: &str) -> String {
    let (reason, _) = text.split_once(". Position ").unwrap_or((text, ""));
    reason.chars().filter(|c| !c.is_ascii_digit()).collect()
}
