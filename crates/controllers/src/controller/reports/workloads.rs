//! The report about a Workload of Kueue.

use api::MicroTime;
use api::kueue::status::{
    ADMITTED, Condition, DEACTIVATION_TARGET, EVICTED, FINISHED, PodSetAssignment, QUOTA_RESERVED, REQUEUED,
    Status,
};
use index::{Index, WorkloadPhase, WorkloadRow};
use model::{Cause, GangKey, GangStatus, PodsPerNode, Position, QuotaCause, Time, Verdict};

use super::GangObject;
use crate::config::KueueOptions;
use crate::kueue::step::{self, WorkloadStep};

/// The status of one Workload, as this controller would report it.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkloadReport {
    /// Name of the Workload.
    pub key: GangKey,
    /// What it is, beside its status.
    pub object: GangObject,
    /// The `LocalQueue` that it names; empty for none.
    pub local_queue: String,
    /// The `ClusterQueue` of its admission, else that of its local queue.
    pub cluster_queue: Option<String>,
    /// Its phase.
    pub phase: WorkloadReportPhase,
    /// Why and when it was evicted last, if it was.
    pub stopped: Option<String>,
    /// What a name that does not exist resembles.
    pub meant: Option<String>,
}

/// The phase of a Workload in its report.
#[derive(Debug, Clone, PartialEq)]
pub enum WorkloadReportPhase {
    /// It waits for quota or for its victims. `None`: another program admits Workloads.
    Pending(Option<GangStatus>),
    /// It cannot be queued; the causes.
    NotQueued(Vec<String>),
    /// It holds quota.
    Holds(WorkloadPlaces),
    /// It is to stop and holds its quota until its pods are gone; the cause.
    Stopping(String),
    /// It has ended; the cause.
    Ended(String),
}

/// What a Workload holds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WorkloadPlaces {
    /// Whether its pods may start: all its admission checks are ready.
    pub is_admitted: bool,
    /// Since when, as its status says. `None`: the status is not written yet.
    pub since: Option<Time>,
    /// When it must have ended, if its run time is limited.
    pub ends: Option<Time>,
    /// Its pod sets with their flavors.
    pub pod_sets: Vec<PodSetAssignment>,
    /// The nodes of its pods, or those of its assignment before a pod is bound. Empty: kube-scheduler has not chosen any.
    pub nodes: PodsPerNode,
    /// The admission checks that are not ready: name, state, message.
    pub open_checks: Vec<(String, String, String)>,
    /// The cluster that runs it, if that is another one.
    pub cluster: Option<String>,
    /// The clusters that were asked for room for it, while none is chosen.
    pub asked: Vec<String>,
    /// What its places lack, if they are all that it waits for; empty before they were planned.
    pub awaits_places: Option<String>,
}

/// Reports one Workload, which has this position in its queue.
pub(super) fn workload_report(
    index: &Index,
    row: &WorkloadRow,
    position: Option<&Position>,
    now: MicroTime,
) -> WorkloadReport {
    let phase = phase(index, row, position, now);
    let evicted = row
        .object
        .status
        .condition(EVICTED)
        .filter(|_| matches!(phase, WorkloadReportPhase::Pending(_) | WorkloadReportPhase::Holds(_)));
    WorkloadReport {
        key: row.key(),
        object: GangObject::of_workload(row),
        local_queue: row.object.spec.queue_name.clone(),
        cluster_queue: index.cluster_queue_of(row).map(str::to_owned),
        meant: meant(index, row, &phase),
        stopped: evicted.map(|evicted| {
            let text = evicted.message.trim_start_matches("Previously: ");
            dated(&with_names(index, text), evicted)
        }),
        phase,
    }
}

/// The text of an eviction with the name of the preemptor in place of the UIDs by which Kueue names it, if it is still there.
fn with_names(index: &Index, text: &str) -> String {
    const BEFORE: &str = "a workload (UID: ";
    let named = || {
        let (start, rest) = text.split_once(BEFORE)?;
        let (uids, end) = rest.split_once(')')?;
        let (uid, _) = uids.split_once(',')?;
        let meta = &index.workload(uid)?.object.metadata;
        Some(format!("{start}Workload {}/{}{end}", meta.namespace, meta.name))
    };
    named().unwrap_or_else(|| text.to_owned())
}

/// The resource that was meant by one for which the queue has no quota.
fn meant(index: &Index, row: &WorkloadRow, phase: &WorkloadReportPhase) -> Option<String> {
    let WorkloadReportPhase::Pending(Some(GangStatus::Pending(wait))) = phase else { return None };
    wait.shortage.causes.iter().find_map(|cause| {
        let Cause::Quota(QuotaCause::Undeclared { resource, .. }) = cause else { return None };
        let meant = index.meant_resource(row, resource)?;
        Some(format!("did you mean {meant}, for which it has quota?"))
    })
}

fn phase(
    index: &Index,
    row: &WorkloadRow,
    position: Option<&Position>,
    now: MicroTime,
) -> WorkloadReportPhase {
    let status = &row.object.status;
    let gang = || GangStatus::at(&index.world().snapshot(Time(now.0)), row.uid(), position);
    if let Some(finished) = status.condition(FINISHED).filter(|finished| finished.is_true()) {
        let text = if finished.message.is_empty() { &finished.reason } else { &finished.message };
        return WorkloadReportPhase::Ended(dated(text, finished));
    }
    if let Some(evicted) = status.condition(EVICTED).filter(|evicted| evicted.is_true())
        && status.is(QUOTA_RESERVED)
    {
        return WorkloadReportPhase::Stopping(dated(&with_names(index, &evicted.message), evicted));
    }
    if let Some(by) = row.eviction.as_ref().and_then(|eviction| index.world().gang(&eviction.preemptor)) {
        return WorkloadReportPhase::Stopping(format!("it is preempted by {}", by.key));
    }
    match &row.phase {
        WorkloadPhase::Inactive => WorkloadReportPhase::NotQueued(withheld(row, now)),
        WorkloadPhase::Inadmissible(blocker) => {
            let mut causes = vec![blocker.text.clone()];
            causes.extend(blocker.remedy.clone());
            WorkloadReportPhase::NotQueued(causes)
        }
        WorkloadPhase::Waiting | WorkloadPhase::Nominated(_) => WorkloadReportPhase::Pending(gang()),
        WorkloadPhase::AwaitsPods => WorkloadReportPhase::NotQueued(vec![
            "it fits, and waits until the pods of all admitted Workloads are ready".into(),
        ]),
        WorkloadPhase::Starting(_) => {
            let step = step::decide(index, row, now, now, false, &KueueOptions::default());
            let WorkloadStep::Write(decided, _) = step else {
                return WorkloadReportPhase::Holds(held(index, row, status));
            };
            let held = held(index, row, &decided);
            WorkloadReportPhase::Holds(WorkloadPlaces { since: None, ends: None, ..held })
        }
        WorkloadPhase::Reserved(_) => WorkloadReportPhase::Holds(held(index, row, status)),
    }
}

/// Why a Workload that no queue blocks is not queued.
fn withheld(row: &WorkloadRow, now: MicroTime) -> Vec<String> {
    let status = &row.object.status;
    if row.object.metadata.is_deleting() {
        return vec!["it is being deleted".into()];
    }
    let mut causes = Vec::new();
    if !row.object.is_active() {
        causes.push("it is deactivated: spec.active is false".into());
    }
    let mut told =
        [DEACTIVATION_TARGET, EVICTED, REQUEUED].into_iter().filter_map(|kind| status.condition(kind));
    let is_cause =
        |known: &&Condition| (known.kind == REQUEUED) != known.is_true() && !known.message.is_empty();
    causes.extend(told.find(is_cause).map(|known| dated(&known.message, known)));
    if let Some(at) = status.requeue_at().filter(|at| *at > now) {
        causes.push(format!("it is tried again at {}", Time(at.0)));
    }
    causes
}

/// What a Workload holds by this status.
fn held(index: &Index, row: &WorkloadRow, status: &Status) -> WorkloadPlaces {
    let lacks = || {
        let verdict = index.world().verdict(row.uid()).filter(|_| row.lacks_replacement());
        verdict.and_then(Verdict::shortage).map(ToString::to_string).unwrap_or_default()
    };
    let since = |kind| status.condition(kind).filter(|known| known.is_true()).and_then(Condition::since);
    let is_admitted = status.is(ADMITTED);
    let since = since(if is_admitted { ADMITTED } else { QUOTA_RESERVED });
    let before_s = status.accumulated_past_execution_time_seconds.unwrap_or_default();
    let longest_s = row.object.spec.maximum_execution_time_seconds.filter(|_| is_admitted);
    let left_us = longest_s.map(|longest_s| (i64::from(longest_s) - before_s).saturating_mul(1_000_000));
    let open = status.admission_checks.iter().filter(|check| check.state != "Ready");
    let assignment = index.world().gang(row.uid()).and_then(|gang| gang.state.assignment());
    WorkloadPlaces {
        nodes: PodsPerNode::of(index.world(), row.uid(), assignment),
        is_admitted,
        since: since.map(|since| Time(since.0)),
        ends: since.zip(left_us).map(|(since, left_us)| Time(since.0.saturating_add(left_us))),
        pod_sets: status
            .admission
            .as_ref()
            .map_or_else(Vec::new, |admission| admission.pod_set_assignments.clone()),
        open_checks: open
            .map(|check| (check.name.clone(), check.state.clone(), check.message.clone()))
            .collect(),
        cluster: status.cluster_name.clone(),
        asked: status.nominated_cluster_names.clone(),
        awaits_places: status.awaits_places().then(lacks),
    }
}

/// A text with the time of its condition.
fn dated(text: &str, condition: &Condition) -> String {
    let text = text.trim_end_matches('.');
    condition.since().map_or_else(|| text.to_owned(), |since| format!("{text}, at {}", Time(since.0)))
}
