//! Decides the next write of a Workload: a pure function of the observed state.
//!
//! Conditions, reasons, texts and Events after `pkg/scheduler/scheduler.go` and
//! `pkg/controller/core/workload_controller.go` of Kueue v0.19.

use api::MicroTime;
use api::kueue::objects::{ClusterQueue, LocalQueue};
use api::kueue::quantity::canonical;
use api::kueue::status::{
    ADMITTED, Admission, CheckState, Condition, DEACTIVATION_TARGET, EVICTED, FINISHED, PodSetAssignment,
    QUOTA_RESERVED, REQUEUED, Status, Transition,
};
use api::kueue::workload::JOB_UID;
use index::{Eviction, Index, WorkloadPhase, WorkloadRow};
use model::Assignment;

use super::texts;

/// How long a Workload waits before its status says why, in microseconds. One that is admitted meanwhile costs one write.
const PENDING_DELAY_US: i64 = 1_000_000;

/// The next step of a Workload.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum WorkloadStep {
    /// Nothing to do until something changes, or until this time.
    Await(Option<MicroTime>),
    /// Write the admission status, then record the Events.
    Write(Box<Status>, Vec<WorkloadEvent>),
    /// Withdraw an admission that is not written: the places went to another gang.
    Withdraw,
    /// Set `spec.active` to false.
    Deactivate,
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
}

/// Decides the next step. `pending_since` is when this process saw the Workload pending first.
pub(crate) fn decide(
    index: &Index,
    row: &WorkloadRow,
    now: MicroTime,
    pending_since: MicroTime,
) -> WorkloadStep {
    let object = &row.object;
    let status = &object.status;
    if status.is(FINISHED) || object.metadata.is_deleting() {
        return WorkloadStep::Await(None);
    }
    let mut decision = Decision { row, index, now, status: status.clone(), events: Vec::new() };
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
    match &row.phase {
        WorkloadPhase::Inactive => {}
        WorkloadPhase::Starting(_) if row.eviction.is_some() => return WorkloadStep::Withdraw,
        WorkloadPhase::Starting(assignment) => decision.reserve(assignment),
        WorkloadPhase::Reserved(_) => decision.hold(),
        WorkloadPhase::Inadmissible(why) => decision.report("Inadmissible", why),
        WorkloadPhase::Waiting | WorkloadPhase::Nominated(_) => {
            decision.require_checks(|rule| rule.on_flavors.is_empty());
            let Some(why) = decision.pending_message() else { return decision.step() };
            let due = MicroTime(pending_since.0 + PENDING_DELAY_US);
            if decision.status == *status && due > now {
                return WorkloadStep::Await(Some(due));
            }
            decision.report("Pending", &why);
        }
    }
    decision.step()
}

/// A decision about a Workload: its status and Events so far.
struct Decision<'a> {
    row: &'a WorkloadRow,
    index: &'a Index,
    now: MicroTime,
    status: Status,
    events: Vec<WorkloadEvent>,
}

impl Decision<'_> {
    fn step(self) -> WorkloadStep {
        if self.status == self.row.object.status {
            return WorkloadStep::Await(None);
        }
        WorkloadStep::Write(Box::new(self.status), self.events)
    }

    fn transition(&mut self) -> Transition<'_> {
        let generation = self.row.object.metadata.generation;
        Transition { status: &mut self.status, generation, now: self.now }
    }

    fn event(&mut self, is_warning: bool, reason: impl Into<String>, text: impl Into<String>) {
        self.events.push(WorkloadEvent { is_warning, reason: reason.into(), text: text.into() });
    }

    /// Evicts, with the Event that names the reason and the cause.
    fn evict(&mut self, reason: &str, text: &str) {
        let had_admission = self.status.admission.is_some();
        self.transition().evict(reason, "", text);
        if had_admission {
            self.event(false, format!("EvictedDueTo{reason}"), text);
        }
    }

    /// Stops a Workload that its author has deactivated.
    fn deactivate(&mut self) {
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
        let requeued = self.status.condition(REQUEUED).filter(|requeued| !requeued.is_true())?.clone();
        let (local, cluster) = self.queues();
        match &*requeued.reason {
            "Deactivated" => self.transition().requeue(true, "Reactivated", "The workload was reactivated"),
            "LocalQueueStopped" if local.is_some_and(|queue| !queue.is_stopped()) => {
                let text = "The LocalQueue was restarted after being stopped";
                self.transition().requeue(true, "LocalQueueRestarted", text);
            }
            "ClusterQueueStopped" if cluster.is_some_and(|queue| !queue.is_stopped()) => {
                let text = "The ClusterQueue was restarted after being stopped";
                self.transition().requeue(true, "ClusterQueueRestarted", text);
            }
            "PodsReadyTimeout" | "AdmissionCheck" => {
                let state = self.status.requeue_state.as_ref();
                let at = state.and_then(|state| MicroTime::parse(state["requeueAt"].as_str()?));
                if let Some(at) = at.filter(|at| *at > self.now) {
                    return Some(WorkloadStep::Await(Some(at)));
                }
                if let Some(state) =
                    self.status.requeue_state.as_mut().and_then(|state| state.as_object_mut())
                {
                    state.remove("requeueAt");
                }
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

    /// Adds the admission checks of the queue that these rules need and the Workload does not have.
    fn require_checks(&mut self, is_needed: impl Fn(&api::kueue::objects::CheckRule) -> bool) {
        let rules = self.queues().1.map(|queue| &queue.spec.admission_checks_strategy.admission_checks);
        let mut names: Vec<String> = rules
            .into_iter()
            .flatten()
            .filter(|rule| is_needed(rule))
            .map(|rule| rule.name.clone())
            .collect();
        names.sort();
        let now = self.now;
        for name in names {
            let checks = &mut self.status.admission_checks;
            if !checks.iter().any(|check| check.name == name) {
                checks.push(CheckState::pending(name, now));
            }
        }
    }

    /// Writes the admission.
    fn reserve(&mut self, assignment: &Assignment) {
        let Some(admission) = admission(self.index, self.row, assignment) else { return };
        let queue = admission.cluster_queue.clone();
        let flavors: Vec<String> =
            admission.pod_set_assignments.iter().flat_map(|set| set.flavors.values()).cloned().collect();
        self.require_checks(|rule| {
            rule.on_flavors.is_empty() || rule.on_flavors.iter().any(|flavor| flavors.contains(flavor))
        });
        let waited_s = (self.now.0 - self.queued_at().0).max(0) / 1_000_000;
        self.transition().reserve(admission);
        let text = format!("Quota reserved in ClusterQueue {queue}, wait time since queued was {waited_s}s");
        self.event(false, QUOTA_RESERVED, text);
        if self.status.is(ADMITTED) {
            let text = format!("Admitted by ClusterQueue {queue}, wait time since reservation was 0s");
            self.event(false, ADMITTED, text);
        }
    }

    /// Since when it counts as queued.
    fn queued_at(&self) -> MicroTime {
        let requeued = self.row.object.status.condition(REQUEUED).and_then(Condition::since);
        let created = || MicroTime::parse(&self.row.object.metadata.creation_timestamp);
        requeued.or_else(created).unwrap_or(self.now)
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
        if self.fail_checks() || self.stop_with_its_queues() {
            return;
        }
        let was_admitted = self.status.is(ADMITTED);
        self.transition().sync_admitted();
        if self.status.is(ADMITTED) && !was_admitted {
            let queue =
                self.status.admission.as_ref().map_or("", |admission| &admission.cluster_queue).to_owned();
            let since = self.status.condition(QUOTA_RESERVED).and_then(Condition::since).unwrap_or(self.now);
            let waited_s = (self.now.0 - since.0).max(0) / 1_000_000;
            let text =
                format!("Admitted by ClusterQueue {queue}, wait time since reservation was {waited_s}s");
            self.event(false, ADMITTED, text);
        }
    }

    fn preempt(&mut self, eviction: &Eviction) {
        let (reason, words) = texts::preemption_reason(eviction.reason);
        let preemptor = self.index.workload(&eviction.preemptor);
        let job = preemptor
            .and_then(|row| row.object.metadata.labels.get(JOB_UID))
            .map_or("UNKNOWN", String::as_str);
        let path = |queue: Option<String>| queue.and_then(|queue| self.index.queue_path(&queue));
        let of_gang = |uid: &str| {
            let world = self.index.world();
            world.gang(uid).map(|gang| world.queue_name(gang.queue).to_owned())
        };
        let unknown = || "UNKNOWN".to_owned();
        let text = format!(
            "Preempted to accommodate a workload (UID: {}, JobUID: {job}) due to {words}; preemptor path: {}; preemptee path: {}",
            eviction.preemptor,
            path(of_gang(&eviction.preemptor)).unwrap_or_else(unknown),
            path(of_gang(self.row.uid())).unwrap_or_else(unknown),
        );
        self.transition().preempt(reason, &text);
        self.event(false, "EvictedDueToPreempted", text.clone());
        self.event(false, "Preempted", text);
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
        self.evict("AdmissionCheck", &format!("Evicted due to {text}"));
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
                    self.evict(&format!("{kind}Stopped"), &format!("The {kind} is stopped"));
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

    /// Why the planner does not admit the Workload; `None` before it was planned.
    fn pending_message(&self) -> Option<String> {
        let world = self.index.world();
        let gang = world.gang(self.row.uid())?;
        if let WorkloadPhase::Nominated(preemption) = &self.row.phase {
            return Some(texts::pending_preemption(world, gang, preemption));
        }
        let shortage = world.verdict(self.row.uid())?.shortage()?;
        Some(texts::no_fit(world, gang, shortage))
    }

    /// Says why the Workload holds no quota.
    fn report(&mut self, reason: &str, text: &str) {
        let known = self.status.condition(QUOTA_RESERVED);
        if known.is_some_and(|known| !known.is_true() && known.reason == reason && known.message == text) {
            return;
        }
        self.transition().unreserve(reason, text);
        if reason == "Pending" {
            self.event(true, reason, text);
        }
    }
}

/// The admission of a Workload with this assignment.
fn admission(index: &Index, row: &WorkloadRow, assignment: &Assignment) -> Option<Admission> {
    let world = index.world();
    let gang = world.gang(row.uid())?;
    let sets = row.pod_sets().iter().enumerate().map(|(at, set)| {
        let count = u32::try_from(assignment.count(at)).unwrap_or(u32::MAX);
        let flavors = assignment.flavors.get(at).into_iter().flatten();
        let named = flavors.map(|(resource, flavor)| (world.resources().name(*resource), *resource, *flavor));
        let named: Vec<_> = named.collect();
        let usage = named.iter().map(|(name, resource, _)| {
            let amount = set.request.get(*resource).0.saturating_mul(i64::from(count));
            ((*name).to_owned(), canonical(name, amount).into())
        });
        let flavors =
            named.iter().map(|(name, _, flavor)| ((*name).to_owned(), world.flavor_name(*flavor).to_owned()));
        PodSetAssignment {
            name: set.name.clone(),
            flavors: flavors.collect(),
            resource_usage: usage.collect(),
            count: Some(count),
            ..PodSetAssignment::default()
        }
    });
    Some(Admission {
        cluster_queue: world.queue_name(gang.queue).to_owned(),
        pod_set_assignments: sets.collect(),
    })
}
