//! What a running gang lacks of what its author demands: reported after seconds, and the gang is requeued after its
//! patience.

use std::collections::BTreeSet;

use api::MicroTime;
use api::appwrapper::Status;
use api::appwrapper::status::PendingPod;
use api::appwrapper::transition::{self, RequeueReason};
use index::{GangPod, Index, MissingPods, Phase, PodPhase, Wrapper};
use model::{Time, Verdict};

use super::{NewEvent, Step, message, requeue_after_s};

/// A pod that lacks a node for so many seconds is reported in the status; shorter gaps are part of a replacement.
const WITHOUT_NODE_AFTER_S: i64 = 3;
/// Pods that do not exist for so many seconds are reported in the status.
const NOT_CREATED_AFTER_S: i64 = 30;
/// Maximum number of characters of a message of the scheduler.
const REFUSAL_CHARACTERS_MAX: usize = 300;
/// Part of each message about planned pods without a node.
const WITHOUT_NODE: &str = "without a node";
/// Part of each message about planned pods that do not exist.
const NOT_CREATED: &str = "not created";

/// What a dispatched gang lacks of what its author demands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shortfall {
    /// Why the gang is requeued if this lasts.
    pub(crate) cause: RequeueReason,
    /// The planned pods without a node, by uid.
    pub(crate) pods: BTreeSet<String>,
    /// What the scheduler says about one of these pods, if it has said something.
    pub(crate) refusal: Option<String>,
    /// The planned pods that do not exist, also when too few pods run.
    pub(crate) missing: Vec<MissingPods>,
}

/// What a gang lacks, and since when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OpenShortfall {
    /// What it lacks now.
    pub(crate) shortfall: Shortfall,
    /// Since when it has lacked the oldest part of it.
    pub(crate) since: MicroTime,
    /// Why pods are missing, by the Events about the objects; empty if they do not say it. None: not read yet.
    pub(crate) explanation: Option<String>,
}

/// What a running gang lacks, if anything: nothing when all its objects with pods have succeeded.
pub(crate) fn shortfall(index: &Index, wrapper: &Wrapper, pods: &[GangPod<'_>]) -> Option<Shortfall> {
    lacking(index, wrapper, pods).filter(|_| !index.has_succeeded(wrapper))
}

fn lacking(index: &Index, wrapper: &Wrapper, pods: &[GangPod<'_>]) -> Option<Shortfall> {
    if !matches!(wrapper.phase, Phase::Running(_)) || wrapper.is_deleting {
        return None;
    }
    let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    let count = |phase| number(pods.iter().filter(|pod| pod.phase == phase).count());
    let (running, completed) = (count(PodPhase::Running), count(PodPhase::Succeeded));
    let minimum = wrapper.summary.spec.min_available;
    if running + completed < minimum {
        let cause = RequeueReason::MinPodsNotRunning { minimum, running, completed };
        let missing = index.missing_pods(wrapper, pods);
        return Some(Shortfall { cause, pods: BTreeSet::new(), refusal: None, missing });
    }
    let refused = pods.iter().filter(|pod| pod.unschedulable.is_some() && !pod.is_deleting);
    let refused: BTreeSet<String> = refused.map(|pod| pod.uid.clone()).collect();
    let planned = index.unschedulable_pods(wrapper, pods).pods;
    let failed = number(refused.union(&planned).count());
    let cause = RequeueReason::PodsFailedScheduling { failed, running };
    if running + completed == 0 && failed > 0 {
        let without_node: BTreeSet<String> = refused.union(&planned).cloned().collect();
        return Some(without_a_node(cause, without_node, pods));
    }
    // Without `minAvailable` a gang runs whole or not at all: no planned pod may stay without a node, or not exist.
    if minimum > 0 {
        return None;
    }
    if !planned.is_empty() {
        return Some(without_a_node(cause, planned, pods));
    }
    let missing = index.missing_pods(wrapper, pods);
    let count = missing.iter().map(|of_object| of_object.missing).sum::<u64>();
    let cause = RequeueReason::PodsNotCreated { missing: i64::try_from(count).unwrap_or(i64::MAX), running };
    (count > 0).then_some(Shortfall { cause, pods: BTreeSet::new(), refusal: None, missing })
}

fn without_a_node(cause: RequeueReason, without_node: BTreeSet<String>, pods: &[GangPod<'_>]) -> Shortfall {
    let mut refused = pods.iter().filter(|pod| without_node.contains(&pod.uid));
    let refusal = refused.find_map(|pod| refusal(pod.unschedulable.as_ref()?));
    Shortfall { cause, pods: without_node, refusal, missing: Vec::new() }
}

/// What the scheduler says about a pod, cut after a maximum number of characters.
fn refusal(pod: &PendingPod) -> Option<String> {
    let mut conditions = pod.conditions.iter();
    let scheduled = conditions.find(|condition| condition["type"] == "PodScheduled")?;
    let text = scheduled["message"].as_str().filter(|text| !text.is_empty())?;
    Some(text.trim_end_matches('.').chars().take(REFUSAL_CHARACTERS_MAX).collect())
}

/// Whether the message of a status is about a shortfall.
pub(super) fn is_reported(message: &str) -> bool {
    message.contains(WITHOUT_NODE) || message.contains(NOT_CREATED)
}

/// The step of a gang that lacks something. `status` has its current pod counts. `deadline`: its dispatch limit.
pub(super) fn step(
    index: &Index,
    wrapper: &Wrapper,
    mut status: Status,
    open: &OpenShortfall,
    deadline: Option<MicroTime>,
    now: MicroTime,
) -> Step {
    let OpenShortfall { shortfall, since, explanation } = open;
    let due = since.plus_s(requeue_after_s(wrapper));
    if due <= now {
        requeue(index, wrapper, &mut status, shortfall.cause, now);
        return Step::Requeue(status, index.cached_pods(wrapper));
    }
    let report = since.plus_s(shortfall.report_after_s()).min(due);
    let next = if report <= now { due } else { report };
    let wake = deadline.map_or(next, |deadline| deadline.min(next));
    if report > now || shortfall.pods.is_empty() && shortfall.missing.is_empty() {
        let is_same = status == wrapper.status;
        return if is_same { Step::AwaitChange(Some(wake)) } else { Step::WritePodCounts(status) };
    }
    let unexplained = shortfall.missing.iter().filter(|missing| missing.cause.is_none());
    let uids: Vec<String> = unexplained.flat_map(|missing| missing.uids.clone()).collect();
    if explanation.is_none() && !uids.is_empty() {
        return Step::ReadEvents(uids);
    }
    report_shortfall(index, wrapper, status, open, (due, wake))
}

/// The gang has lost places before any pod of it started, and no others are free: it is requeued at once.
pub(super) fn take_back(
    index: &Index,
    wrapper: &Wrapper,
    mut status: Status,
    pods: usize,
    now: MicroTime,
) -> Step {
    let failed = i64::try_from(pods).unwrap_or(i64::MAX);
    let cause = RequeueReason::PodsFailedScheduling { failed, running: 0 };
    requeue(index, wrapper, &mut status, cause, now);
    Step::Requeue(status, index.cached_pods(wrapper))
}

/// The gang is requeued, and avoids the nodes that refused its pods.
pub(super) fn requeue(
    index: &Index,
    wrapper: &Wrapper,
    status: &mut Status,
    cause: RequeueReason,
    now: MicroTime,
) {
    transition::requeue(status, &wrapper.summary.spec, wrapper.key.group, cause, now);
    if let Some(record) = index.record_of_failed_nodes(wrapper, status, now) {
        transition::avoid_nodes(status, &record, now);
    }
}

/// The status says what the gang lacks, why, and when the gang is requeued.
fn report_shortfall(
    index: &Index,
    wrapper: &Wrapper,
    mut status: Status,
    open: &OpenShortfall,
    (due, wake): (MicroTime, MicroTime),
) -> Step {
    let OpenShortfall { shortfall, explanation, .. } = open;
    let (reason, marker, lack, remedy) = if shortfall.pods.is_empty() {
        let lack = missing_text(&shortfall.missing, explanation.as_deref().unwrap_or_default());
        ("PodsNotCreated", NOT_CREATED, lack, "they are created")
    } else {
        let lack = unplaced_text(shortfall, index.verdict(&wrapper.uid));
        ("PodsWithoutNode", WITHOUT_NODE, lack, "it gets one")
    };
    let text = format!("{lack}. The gang is requeued at {} unless {remedy}", Time(due.0));
    let is_new = !wrapper.status.message.contains(marker);
    status.tell(message(wrapper, Some(&text)));
    if !is_new && figures(&status.message) == figures(&wrapper.status.message) {
        status.message.clone_from(&wrapper.status.message);
    }
    if status == wrapper.status {
        return Step::AwaitChange(Some(wake));
    }
    let event = NewEvent { is_warning: true, reason, text };
    Step::WriteStatus(status, if is_new { vec![event] } else { Vec::new() })
}

fn unplaced_text(shortfall: &Shortfall, verdict: Option<&Verdict>) -> String {
    let (pods, verb) = match shortfall.pods.len() {
        1 => ("1 pod".to_owned(), "is"),
        count => (format!("{count} pods"), "are"),
    };
    let shortage = verdict.and_then(Verdict::shortage).map(|shortage| format!(": {shortage}"));
    let refusal = || shortfall.refusal.as_ref().map(|text| format!(": the scheduler says: {text}"));
    format!("{pods} {verb} {WITHOUT_NODE}{}", shortage.or_else(refusal).unwrap_or_default())
}

fn missing_text(missing: &[MissingPods], explanation: &str) -> String {
    let count = |of_object: &MissingPods| {
        let MissingPods { object, missing, needed, .. } = of_object;
        format!("{missing} of {needed} pods of {} {} are {NOT_CREATED}", object.kind.kind, object.name)
    };
    let counts: Vec<_> = missing.iter().map(count).collect();
    let causes = missing.iter().filter_map(|of_object| of_object.cause.as_deref());
    let causes: Vec<_> = causes.chain((!explanation.is_empty()).then_some(explanation)).collect();
    let why = if causes.is_empty() { String::new() } else { format!(": {}", causes.join("; ")) };
    format!("{}{why}", counts.join(", "))
}

/// A message about a shortfall up to its cause.
fn figures(message: &str) -> &str {
    message.split_once(':').map_or(message, |(start, _)| start)
}

impl Shortfall {
    fn report_after_s(&self) -> i64 {
        if self.pods.is_empty() { NOT_CREATED_AFTER_S } else { WITHOUT_NODE_AFTER_S }
    }
}
