//! Decides the next write of a Workload: a pure function of the observed state.
//!
//! Conditions, reasons, texts and Events after `pkg/scheduler/scheduler.go` and
//! `pkg/controller/core/workload_controller.go` of Kueue v0.19.

mod admission;
mod delayed_places;
mod failed_nodes;
mod preemption;
mod slices;
mod waiting;

pub(crate) use delayed_places::second_pass_failed;
pub(crate) use preemption::PREEMPTED_ANOTHER;
pub(crate) use slices::is_replaced;

use std::collections::BTreeSet;

use api::MicroTime;
use api::kueue::objects::{CheckRule, ClusterQueue, LocalQueue};
use api::kueue::status::{
    ADMITTED, CheckState, Condition, DEACTIVATION_TARGET, EVICTED, FINISHED, PODS_READY, QUOTA_RESERVED,
    REQUEUED, Status, Transition,
};
use api::kueue::workload::Workload;
use index::{Index, WorkloadPhase, WorkloadRow};
use model::Assignment;

use crate::config::KueueOptions;

/// The reason of the deactivation of a Workload whose run lasted too long.
const RUN_ENDED: &str = "MaximumExecutionTimeExceeded";

/// The next step of a Workload.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum WorkloadStep {
    /// Nothing to do until something changes, or until this time.
    Await(Option<MicroTime>),
    /// Write the admission status, then record the Events.
    Write(Box<Status>, Vec<WorkloadEvent>),
    /// Say why it waits, once it may.
    Report,
    /// Withdraw an admission that is not written: the places went to another gang.
    Withdraw,
    /// Set `spec.active` to false.
    Deactivate,
    /// Set `spec.priority` to that of its class.
    Reprioritize(i32),
    /// Delete it: it ended long ago.
    Delete,
}

/// An Event about a Workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WorkloadEvent {
    /// Whether the type of the Event is `Warning`.
    pub(crate) is_warning: bool,
    /// The reason, in CamelCase.
    pub(crate) reason: String,
    /// The message.
    pub(crate) text: String,
    /// What it is about.
    pub(crate) about: About,
}

/// What an Event of a Workload is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum About {
    /// The Workload.
    Workload,
    /// Its job.
    Owner,
    /// The Workload with this uid.
    Other(String),
}

/// The Event about a Workload that is deleted after its retention.
pub(crate) fn deleted() -> WorkloadEvent {
    let text = "Deleted finished workload due to elapsed retention";
    WorkloadEvent { is_warning: false, reason: "Deleted".into(), text: text.into(), about: About::Workload }
}

/// Decides the next step. `pending_since` is when this process saw the Workload pending first. What a Workload lacks is found out
/// only if `may_report`.
pub(crate) fn decide(
    index: &Index,
    row: &WorkloadRow,
    now: MicroTime,
    pending_since: MicroTime,
    may_report: bool,
    options: &KueueOptions,
) -> WorkloadStep {
    let object = &row.object;
    let status = &object.status;
    if object.metadata.is_deleting() {
        return WorkloadStep::Await(None);
    }
    if let Some(finished) = status.condition(FINISHED).filter(|finished| finished.is_true()) {
        let ended = finished.since().unwrap_or(now);
        return match options.retention_us.map(|retention| MicroTime(ended.0.saturating_add(retention))) {
            Some(due) if due <= now => WorkloadStep::Delete,
            due => WorkloadStep::Await(due),
        };
    }
    let mut decision = Decision {
        row,
        index,
        now,
        may_report,
        options,
        status: status.clone(),
        events: Vec::new(),
        due: None,
    };
    // While the other one has checks to pass, the job runs with this one.
    if let Some(by) = index.replacement(row).filter(|by| by.object.status.is(ADMITTED)) {
        decision.replace(by);
        return decision.step();
    }
    if let Some(priority) = index.new_priority(row) {
        return WorkloadStep::Reprioritize(priority);
    }
    if !object.is_active() {
        decision.deactivate();
        return decision.step();
    }
    if status.is(DEACTIVATION_TARGET) {
        return WorkloadStep::Deactivate;
    }
    if let Some(wait) = decision.reactivate() {
        return wait;
    }
    if decision.status != *status {
        return decision.step();
    }
    decision.sync_checks();
    match &row.phase {
        WorkloadPhase::Inactive => {}
        WorkloadPhase::Starting(_) if row.eviction.is_some() => return WorkloadStep::Withdraw,
        WorkloadPhase::Starting(assignment) => {
            if !decision.reserve(assignment) {
                return WorkloadStep::Withdraw;
            }
        }
        WorkloadPhase::Reserved(_) => decision.hold(),
        WorkloadPhase::Inadmissible(blocker) => decision.block(blocker),
        WorkloadPhase::Waiting | WorkloadPhase::Nominated(_) | WorkloadPhase::AwaitsPods => {
            if let Some(later) = decision.wait(pending_since) {
                return later;
            }
        }
    }
    decision.step()
}

/// A decision about a Workload: its status and Events so far.
struct Decision<'a> {
    row: &'a WorkloadRow,
    index: &'a Index,
    now: MicroTime,
    /// Whether the Workload may say now why it waits.
    may_report: bool,
    options: &'a KueueOptions,
    status: Status,
    events: Vec<WorkloadEvent>,
    /// When to decide again.
    due: Option<MicroTime>,
}

impl Decision<'_> {
    fn step(mut self) -> WorkloadStep {
        if self.options.names_causes {
            self.transition().name_causes();
        }
        if self.status == self.row.object.status {
            return WorkloadStep::Await(self.due);
        }
        if self.row.is_pending() && !self.may_report {
            return WorkloadStep::Report;
        }
        if self.row.object.status.conditions.is_empty() {
            self.report_flaws();
        }
        WorkloadStep::Write(Box::new(self.status), self.events)
    }

    /// Says with the first status which annotations have no effect, and what the namespace does not allow.
    fn report_flaws(&mut self) {
        for text in &self.row.annotations.errors {
            self.event(true, "AnnotationIgnored", text);
        }
        for (reason, text) in self.index.disallowed(self.row) {
            self.event(true, reason, text);
        }
    }

    fn transition(&mut self) -> Transition<'_> {
        let generation = self.row.object.metadata.generation;
        Transition { status: &mut self.status, generation, now: self.now }
    }

    fn event(&mut self, is_warning: bool, reason: impl Into<String>, text: impl Into<String>) {
        self.events.push(WorkloadEvent {
            is_warning,
            reason: reason.into(),
            text: text.into(),
            about: About::Workload,
        });
    }

    /// Evicts, with the Event that names the reason.
    fn evict(&mut self, reason: &str, cause: &str, text: &str) {
        let had_admission = self.status.admission.is_some();
        self.transition().evict(reason, cause, text);
        if had_admission {
            self.event(false, format!("EvictedDueTo{reason}"), text);
        }
    }

    /// Stops a Workload that its author has deactivated.
    fn deactivate(&mut self) {
        if self.options.names_causes && !self.status.is(QUOTA_RESERVED) {
            self.report("Deactivated", "The workload is deactivated", false);
        }
        if self.status.is(EVICTED) {
            self.status.requeue_state = None;
            return;
        }
        let had_admission = self.status.admission.is_some();
        self.transition().deactivate();
        let evicted = self.status.condition(EVICTED).cloned().unwrap_or_default();
        if had_admission {
            self.event(false, format!("EvictedDueTo{}", evicted.reason), evicted.message);
        }
    }

    /// Ends what kept the Workload from being tried again. Returns until when it still does.
    fn reactivate(&mut self) -> Option<WorkloadStep> {
        if let Some(at) = self.status.requeue_at().filter(|_| !self.status.is(QUOTA_RESERVED)) {
            if at > self.now {
                return Some(WorkloadStep::Await(Some(at)));
            }
            self.transition().end_wait();
        }
        let requeued = self.status.condition(REQUEUED).filter(|requeued| !requeued.is_true())?.clone();
        let (local, cluster) = self.queues();
        match &*requeued.reason {
            reason if reason.starts_with("Deactivated") => {
                if reason.ends_with(RUN_ENDED) {
                    self.status.accumulated_past_execution_time_seconds = None; // It may run as long again.
                }
                self.transition().requeue(true, "Reactivated", "The workload was reactivated");
            }
            "LocalQueueStopped" if local.is_some_and(|queue| !queue.is_stopped()) => {
                let text = "The LocalQueue was restarted after being stopped";
                self.transition().requeue(true, "LocalQueueRestarted", text);
            }
            "ClusterQueueStopped" if cluster.is_some_and(|queue| !queue.is_stopped()) => {
                let text = "The ClusterQueue was restarted after being stopped";
                self.transition().requeue(true, "ClusterQueueRestarted", text);
            }
            "PodsReadyTimeout" | "AdmissionCheck" => {
                if let Some(at) = self.status.requeue_at().filter(|at| *at > self.now) {
                    return Some(WorkloadStep::Await(Some(at)));
                }
                self.transition().end_wait();
                self.transition().requeue(true, "BackoffFinished", "The workload backoff was finished");
            }
            _ => {}
        }
        None
    }

    fn queues(&self) -> (Option<&LocalQueue>, Option<&ClusterQueue>) {
        let local = self.index.local_queue(self.row.namespace(), &self.row.object.spec.queue_name);
        let admitted = self.row.object.status.admission.as_ref().map(|admission| &admission.cluster_queue);
        let name = admitted.or_else(|| local.map(|queue| &queue.spec.cluster_queue));
        (local, name.and_then(|name| self.index.cluster_queue(name)))
    }

    /// Adds the admission checks that the queue requires, and removes others. Before quota is reserved, only checks for
    /// all flavors are required.
    fn sync_checks(&mut self) {
        let Some(queue) = self.queues().1 else { return };
        let all: BTreeSet<&str> = queue
            .spec
            .resource_groups
            .iter()
            .flat_map(|group| &group.flavors)
            .map(|flavor| flavor.name.as_str())
            .collect();
        let used: Option<BTreeSet<&str>> = self.status.admission.as_ref().map(|admission| {
            admission
                .pod_set_assignments
                .iter()
                .flat_map(|set| set.flavors.values())
                .map(String::as_str)
                .collect()
        });
        let is_needed = |rule: &&CheckRule| {
            let of: BTreeSet<&str> = match &*rule.on_flavors {
                [] => all.clone(),
                flavors => flavors.iter().map(String::as_str).collect(),
            };
            match &used {
                Some(used) => used.iter().any(|flavor| of.contains(flavor)),
                None => of.is_superset(&all),
            }
        };
        let rules = &queue.spec.admission_checks_strategy.admission_checks;
        let needed: BTreeSet<String> = rules.iter().filter(is_needed).map(|rule| rule.name.clone()).collect();
        let checks = &mut self.status.admission_checks;
        checks.retain(|check| needed.contains(&check.name));
        let now = self.now;
        let missing: Vec<String> =
            needed.into_iter().filter(|name| checks.iter().all(|check| check.name != *name)).collect();
        checks.extend(missing.into_iter().map(|name| CheckState::pending(name, now)));
        checks.sort_by(|one, other| one.name.cmp(&other.name));
    }

    /// Writes the admission, unless it has become impossible.
    fn reserve(&mut self, assignment: &Assignment) -> bool {
        let Some(admission) = admission::of(self.index, self.row, assignment) else { return false };
        let queue = admission.cluster_queue.clone();
        self.status.admission = Some(admission.clone());
        self.sync_checks();
        let waited_s = (self.now.0 - queued_at(&self.row.object, self.now).0).max(0) / 1_000_000;
        self.transition().reserve(admission);
        let text = format!("Quota reserved in ClusterQueue {queue}, wait time since queued was {waited_s}s");
        self.event(false, QUOTA_RESERVED, text);
        if self.status.is(ADMITTED) {
            let text = format!("Admitted by ClusterQueue {queue}, wait time since reservation was 0s");
            self.event(false, ADMITTED, text);
        }
        true
    }

    /// A Workload that holds quota: checks, stopped queues, preemption.
    fn hold(&mut self) {
        if self.status.is(EVICTED) {
            return;
        }
        if let Some(eviction) = self.row.eviction.clone() {
            self.preempt(&eviction);
            return;
        }
        if self.fail_checks() {
            return;
        }
        let was_admitted = self.status.is(ADMITTED);
        self.write_delayed_places();
        self.transition().sync_admitted();
        if was_admitted == self.status.is(ADMITTED) {
            if !self.stop_with_its_queues() {
                self.end_run();
            }
            if self.status == self.row.object.status {
                self.await_pods();
            }
            if self.status == self.row.object.status {
                self.replace_nodes();
            }
            return;
        }
        if self.status.is(ADMITTED) {
            let queue =
                self.status.admission.as_ref().map_or("", |admission| &admission.cluster_queue).to_owned();
            let since = self.status.condition(QUOTA_RESERVED).and_then(Condition::since).unwrap_or(self.now);
            let waited_s = (self.now.0 - since.0).max(0) / 1_000_000;
            let text =
                format!("Admitted by ClusterQueue {queue}, wait time since reservation was {waited_s}s");
            self.event(false, ADMITTED, text);
        }
    }

    /// Ends a run that has lasted too long.
    fn end_run(&mut self) {
        let Some(longest_s) = self.row.object.spec.maximum_execution_time_seconds else { return };
        let admitted = self.status.condition(ADMITTED).filter(|admitted| admitted.is_true());
        let Some(since) = admitted.and_then(Condition::since) else { return };
        let before_s = self.status.accumulated_past_execution_time_seconds.unwrap_or_default();
        let left_us = (i64::from(longest_s) - before_s).saturating_mul(1_000_000);
        let due = MicroTime(since.0.saturating_add(left_us));
        if due > self.now {
            self.due = Some(due);
            return;
        }
        self.transition().target_deactivation(RUN_ENDED, "exceeding the maximum execution time");
        self.status.accumulated_past_execution_time_seconds = None;
        self.event(true, RUN_ENDED, format!("The maximum execution time ({longest_s}s) exceeded"));
    }

    /// Evicts an admitted Workload whose pods are not ready in time, or deactivates it after too many retries.
    fn await_pods(&mut self) {
        let Some(rules) = &self.options.pods_ready else { return };
        let Some(admitted) = self.status.condition(ADMITTED).filter(|admitted| admitted.is_true()) else {
            return;
        };
        let (cause, since, timeout_us) = match self.status.condition(PODS_READY) {
            Some(ready) if ready.is_true() => return,
            Some(ready) if ready.reason == "WaitForRecovery" => {
                let Some(recovery_us) = rules.recovery_us else { return };
                ("WaitForRecovery", ready.since(), recovery_us)
            }
            Some(_) | None => ("WaitForStart", admitted.since(), rules.timeout_us),
        };
        let due = MicroTime(since.unwrap_or(self.now).0.saturating_add(timeout_us));
        if due > self.now {
            self.due = Some(self.due.map_or(due, |known| known.min(due)));
            return;
        }
        let retries = self.status.retries();
        if rules.retries_max.is_some_and(|most| retries >= most) {
            let text = "exceeding the maximum number of re-queuing retries";
            self.transition().target_deactivation("RequeuingLimitExceeded", text);
            return;
        }
        let factor = 1_i64.checked_shl(u32::try_from(retries).unwrap_or(u32::MAX)).unwrap_or(i64::MAX);
        let pause_s = rules.pause_s.saturating_mul(factor.max(1)).min(rules.pause_max_s);
        let until = MicroTime(self.now.0.saturating_add(pause_s.saturating_mul(1_000_000)));
        self.transition().wait_until(until);
        self.transition().count_retry();
        let meta = &self.row.object.metadata;
        let text = format!("Exceeded the PodsReady timeout {}/{}", meta.namespace, meta.name);
        self.evict("PodsReadyTimeout", cause, &text);
    }

    /// Evicts a Workload with a check in the state `Retry`, and deactivates one with a check in the state `Rejected`.
    fn fail_checks(&mut self) -> bool {
        let in_state = |state: &str| {
            let mut checks: Vec<&CheckState> =
                self.status.admission_checks.iter().filter(|check| check.state == state).collect();
            checks.sort_by_key(|check| &check.name);
            let names: Vec<String> = checks
                .iter()
                .map(|check| match &*check.message {
                    "" => format!("{:?}", check.name),
                    message => format!("{:?} ({message})", check.name),
                })
                .collect();
            let noun = if names.len() > 1 { "AdmissionChecks" } else { "AdmissionCheck" };
            (!names.is_empty()).then(|| format!("{noun} in {state} state: {}", names.join("; ")))
        };
        if let Some(text) = in_state("Rejected") {
            self.transition().target_deactivation("AdmissionCheck", &text);
            self.event(true, "AdmissionCheckRejected", format!("Deactivated due to {text}"));
            return true;
        }
        let Some(text) = in_state("Retry") else { return false };
        let waits =
            self.status.admission_checks.iter().filter(|check| check.state == "Retry").filter_map(|check| {
                let since = MicroTime::parse(&check.last_transition_time)?;
                Some(MicroTime(
                    since.0.saturating_add(check.requeue_after_seconds?.saturating_mul(1_000_000)),
                ))
            });
        if let Some(until) = waits.max().filter(|until| *until > self.now) {
            self.transition().wait_until(until);
        }
        self.evict("AdmissionCheck", "", &format!("Evicted due to {text}"));
        true
    }

    /// A queue that drains evicts admitted Workloads. A queue that is held, deleted or missing releases the quota of others.
    fn stop_with_its_queues(&mut self) -> bool {
        let (local, cluster) = self.queues();
        let name = &self.row.object.spec.queue_name;
        let of_local = local.map(|queue| (queue.spec.stop_policy.clone(), queue.metadata.is_deleting()));
        let of_cluster = cluster.map(|queue| (queue.spec.stop_policy.clone(), queue.metadata.is_deleting()));
        let queue = self.status.admission.as_ref().map_or("", |admission| &admission.cluster_queue);
        let levels = [("LocalQueue", name.clone(), of_local), ("ClusterQueue", queue.to_owned(), of_cluster)];
        for (kind, name, state) in levels {
            let policy = state.as_ref().map_or("", |(policy, _)| policy);
            if self.status.is(ADMITTED) {
                if policy == "HoldAndDrain" {
                    self.evict(&format!("{kind}Stopped"), "", &format!("The {kind} is stopped"));
                    return true;
                }
                continue;
            }
            let why = match &state {
                None | Some((_, true)) => format!("{kind} {name} is terminating or missing"),
                Some((policy, false)) if !matches!(&**policy, "" | "None") => {
                    format!("{kind} {name} is stopped")
                }
                Some(_) => continue,
            };
            self.transition().unreserve("Inadmissible", &why);
            return true;
        }
        false
    }
}

/// Since when a Workload counts as queued.
pub(crate) fn queued_at(workload: &Workload, now: MicroTime) -> MicroTime {
    let requeued = workload.status.condition(REQUEUED).and_then(Condition::since);
    let created = || MicroTime::parse(&workload.metadata.creation_timestamp);
    requeued.or_else(created).unwrap_or(now)
}
