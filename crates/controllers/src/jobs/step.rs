//! Decides the next write about a job: a pure function of what was observed.

use std::collections::BTreeMap;

use api::kueue::FINALIZER;
use api::kueue::jobs::{InjectionError, JobKind, QUEUE_NAME, prebuilt_workload, queue_name};
use api::kueue::status::{
    ADMITTED, Condition, EVICTED, FINISHED, PODS_READY, ReclaimablePods, Status, Transition,
};
use api::kueue::workload::{PodSet, Workload};
use api::{MicroTime, OwnerKey};
use serde_json::{Value, json};

use super::left::{earliest, left_behind, suspend_left};
use super::objects::{JobKey, Objects, has_quota};
use super::orphan::is_used;
use super::owner::{Ancestor, Question};
use super::workload::{Owned, delete_unmatched};
use super::write::{Write, decoded};
use super::{JobsConfig, pods, sets};
use crate::events::Subject;
use crate::kueue::metrics::GateRemoval;
use crate::kueue::write::without_finalizer;
use crate::watched::Whole;

/// What is to be done about a job.
pub(super) enum JobStep {
    /// Nothing until something changes, or until this time.
    Await(Option<MicroTime>),
    /// Nothing until something changes, and this Event.
    Tell(JobEvent),
    /// A question to the API server, which decides about the next step.
    Ask(Box<Question>),
    /// One write, then these Events.
    Write(Write, Vec<JobEvent>),
}

/// An Event.
pub(super) struct JobEvent {
    /// The object that it is about; `None`: the job.
    pub(super) about: Option<Box<Subject>>,
    pub(super) is_warning: bool,
    pub(super) reason: &'static str,
    pub(super) text: String,
    /// The gate that the write has removed.
    pub(super) ungated: Option<GateRemoval>,
}

/// A job with what decides about it.
pub(super) struct View<'a> {
    pub(super) kind: &'static JobKind,
    pub(super) job: &'a Whole,
    pub(super) objects: &'a Objects,
    pub(super) config: &'a JobsConfig,
    pub(super) now: MicroTime,
}

pub(super) const AWAIT: JobStep = JobStep::Await(None);
/// Why an admitted job is not started at once.
const SUSPENDED_BY_OTHERS: &str = "something else suspends the job although it is admitted: it is started again after a pause, which is longer each time";

pub(super) fn event(reason: &'static str, text: impl Into<String>) -> JobEvent {
    JobEvent { about: None, is_warning: false, reason, text: text.into(), ungated: None }
}

/// Tells the author of a job what keeps it from going on.
pub(super) fn warn(reason: &'static str, text: impl Into<String>) -> JobStep {
    JobStep::Tell(JobEvent { is_warning: true, ..event(reason, text) })
}

pub(super) fn silently(write: Write) -> JobStep {
    JobStep::Write(write, Vec::new())
}

pub(super) fn key(workload: &Whole) -> String {
    format!("{}/{}", workload.metadata.namespace, workload.metadata.name)
}

/// The next step about a job, or about the Workloads that it leaves behind. `None`: it is gone without a trace.
pub(super) fn decide(
    objects: &Objects,
    config: &JobsConfig,
    key: &JobKey,
    now: MicroTime,
) -> Option<JobStep> {
    let of = match key {
        JobKey::Job(of) => of,
        JobKey::Group { namespace, name } => return pods::decide(objects, config, namespace, name, now),
        JobKey::Orphan(uid) => {
            let left = objects.workloads.get(uid)?;
            return Some(left_behind(objects, config, &[left], now));
        }
    };
    let Some((at, job)) = objects.job(of) else {
        let left: Vec<&Whole> = objects.workloads_of(of).collect();
        return (!left.is_empty()).then(|| left_behind(objects, config, &left, now));
    };
    let kind = config.kind(at)?;
    let described = objects.described(at, kind, job);
    let view = View { kind, job: described.as_ref().unwrap_or(job), objects, config, now };
    Some(match view.kind {
        kind if kind.is_pod() => pods::decide_alone(view),
        kind if kind.is_set_of_pods() => sets::decide(&view),
        _ => view.keep_blocked(view.decide()),
    })
}

/// The text of the Event about a job that starts.
pub(super) fn started_text(workload: &Workload) -> String {
    let queue = workload.status.admission.as_ref().map_or("", |admission| &admission.cluster_queue);
    format!("Admitted by clusterQueue {queue}")
}

/// Whether a Workload has ended.
fn is_finished(whole: &Whole) -> bool {
    decoded(whole).is_ok_and(|workload| workload.status.is(FINISHED))
}

/// The status of a Workload that has ended.
pub(super) fn finished(workload: &Workload, reason: &str, message: &str, now: MicroTime) -> Status {
    let mut status = workload.status.clone();
    let generation = workload.metadata.generation;
    Transition { status: &mut status, generation, now }.finish(reason, message);
    status
}

impl View<'_> {
    /// What an owner reference to the job names.
    pub(super) fn key(&self) -> OwnerKey {
        self.job.metadata.key(self.kind.api_version, self.kind.kind)
    }

    /// Whether the job is managed: it has a queue, or needs none.
    pub(super) fn is_managed(&self) -> bool {
        self.manages(self.job)
    }

    /// Whether a job is managed: its author asks for it, or it has quota.
    pub(super) fn manages(&self, job: &Whole) -> bool {
        self.is_asked(job)
            || self.objects.holds_quota(&job.metadata.key(self.kind.api_version, self.kind.kind))
    }

    fn is_asked(&self, job: &Whole) -> bool {
        let is_selected = |labels| self.config.namespaces.matches(labels);
        (self.config.manages_unnamed || !queue_name(&job.value).is_empty())
            && self.objects.namespace_labels(&job.metadata.namespace).is_some_and(is_selected)
    }

    /// Deletes a Workload of a job that has left its queue. One whose quota is in use stays until the job has stopped, and a job that
    /// is found by the label gets it back.
    fn leave_queue(&self) -> Option<JobStep> {
        if self.is_asked(self.job) || self.kind.integration.finished(&self.job.value).is_some() {
            return None;
        }
        let unused = self.objects.workloads_of(&self.key()).find(|whole| {
            let has_pods = self.pods_until(whole).is_some();
            !has_quota(whole) && !is_finished(whole)
                || has_quota(whole) && !is_used(self.kind, self.job, has_pods)
        });
        let is_found = self.config.manages_unnamed || self.kind.is_watched_unlabelled();
        let used = || {
            let mut held = self.objects.workloads_of(&self.key()).filter(|whole| has_quota(whole));
            let queue = held.next()?.value["spec"]["queueName"].as_str().filter(|name| !name.is_empty())?;
            let mut job = self.job.value.clone();
            job["metadata"]["labels"][QUEUE_NAME] = queue.into();
            Some(silently(Write::Job(self.kind, Box::new(job))))
        };
        let is_unlabelled = !is_found && queue_name(&self.job.value).is_empty();
        let end = |whole: &Whole| {
            suspend_left(self.objects, self.config, whole).unwrap_or_else(|| delete_unmatched(whole))
        };
        unused.map(end).or_else(|| if is_unlabelled { used() } else { None })
    }

    /// Until when a Workload has pods: for ever, or until their deletion should have ended.
    pub(super) fn pods_until(&self, whole: &Whole) -> Option<MicroTime> {
        self.objects.started.until(whole, self.now, self.config.frees_deleted_pods)
    }

    /// Waits while a Workload has pods: they keep its quota.
    pub(super) fn await_pods(&self, whole: &Whole) -> Option<JobStep> {
        let until = self.pods_until(whole)?;
        Some(JobStep::Await(earliest(Some(until), None)))
    }

    /// The same for a job that has been stopped, with the jobs that it owned once.
    pub(super) fn await_all_pods(&self, whole: &Whole) -> Option<JobStep> {
        suspend_left(self.objects, self.config, whole).or_else(|| self.await_pods(whole))
    }

    fn decide(&self) -> JobStep {
        if self.kind.integration.is_skipped(&self.job.value) {
            return AWAIT;
        }
        match self.objects.ancestor(self.key(), self.job, self.config) {
            Ancestor::Unseen(question) => return JobStep::Ask(question),
            Ancestor::Absent => {}
            // It got its owner later, and goes on as a job of its own until it has lost its quota, or its owner has stopped it.
            Ancestor::Other | Ancestor::Job(_)
                if self.objects.holds_quota(&self.key()) && !self.is_stopped_by_others() => {}
            owner @ (Ancestor::Other | Ancestor::Job(_)) => {
                let mut own = self.objects.workloads_of(&self.key());
                return match (own.next(), owner) {
                    (Some(own), _) => self.give_up(own),
                    (None, Ancestor::Job(ancestor)) => self.follow_ancestor(&ancestor),
                    (None, _) => AWAIT,
                };
            }
        }
        if self.job.metadata.is_deleting() {
            let left: Vec<&Whole> = self.objects.workloads_of(&self.key()).collect();
            return left_behind(self.objects, self.config, &left, self.now);
        }
        if let Some(step) = self.leave_queue() {
            return step;
        }
        if !self.is_managed() {
            return AWAIT;
        }
        if !self.kind.integration.is_described(&self.job.value) {
            return self.undescribed();
        }
        if self.is_elastic()
            && prebuilt_workload(&self.job.value).is_none()
            && let Some(step) = self.decide_elastic()
        {
            return step;
        }
        match self.one_workload(|known, text| self.stop(known, text)) {
            Ok(Some(owned)) => self.follow(&owned),
            Ok(None) => self.begin(),
            Err(step) => step,
        }
    }

    pub(super) fn finish(
        &self,
        owned: &Owned<'_>,
        reason: &str,
        text: &str,
        events: Vec<JobEvent>,
    ) -> JobStep {
        let status = finished(&owned.workload, reason, text, self.now);
        JobStep::Write(Write::Admission(Box::new(owned.workload.clone()), Box::new(status)), events)
    }

    /// Whether the job is neither suspended nor over.
    pub(super) fn runs(&self) -> bool {
        !self.kind.is_suspended(&self.job.value) && self.kind.integration.finished(&self.job.value).is_none()
    }

    /// Brings the job and its Workload to each other's state.
    pub(super) fn follow(&self, owned: &Owned<'_>) -> JobStep {
        let (job, status) = (&self.job.value, &owned.workload.status);
        let has_finalizer = owned.whole.metadata.has_finalizer(FINALIZER);
        let release = || {
            silently(Write::Workload(
                Box::new(owned.whole.clone()),
                without_finalizer(&owned.whole.metadata, FINALIZER),
            ))
        };
        if status.is(FINISHED) {
            // Its quota is that of others now.
            return match (self.runs(), has_finalizer) {
                (true, _) => self.stop(Some(owned.whole), "Workload is finished"),
                (false, true) => release(),
                (false, false) => AWAIT,
            };
        }
        if owned.whole.metadata.is_deleting() {
            return match self.kind.is_suspended(job) {
                false => self.stop(Some(owned.whole), "Workload is deleted"),
                true if has_finalizer && self.may_run_elsewhere(owned) => AWAIT,
                true if has_finalizer => self.await_all_pods(owned.whole).unwrap_or_else(release),
                true => AWAIT,
            };
        }
        if let Some(step) = self.hold(owned) {
            return step;
        }
        if let Some(ended) = self.kind.integration.finished(job) {
            // A Ray cluster may outlive its job.
            if let Some(step) = self.await_pods(owned.whole) {
                return step;
            }
            let reason = if ended.succeeded { "Succeeded" } else { "Failed" };
            let text = format!("Workload '{}' is declared finished", key(owned.whole));
            return self.finish(owned, reason, &ended.message, vec![event("FinishedWorkload", text)]);
        }
        let integration = self.kind.integration;
        let reclaimed = self.reclaim(owned, &integration.reclaimable(job));
        if let Some(step) = reclaimed.or_else(|| self.report_pods(owned, integration.are_pods_ready(job))) {
            return step;
        }
        if let Some(evicted) = status.condition(EVICTED).filter(|evicted| evicted.is_true()) {
            return self.evict(owned, evicted);
        }
        match (self.kind.is_suspended(job), status.is(ADMITTED)) {
            (true, true) => self.start(owned),
            (true, false) => self.rename_queue(owned),
            (false, false) => self.stop(Some(owned.whole), "Not admitted by cluster queue"),
            // Its Workload was admitted between two steps of stopping it.
            (false, true) if self.kind.is_stopping(job) => self.stop(Some(owned.whole), "Stopping"),
            (false, true) => AWAIT,
        }
    }

    /// Gives back the quota of pods that have ended. The counts are parts of the pod set: of one that is admitted in part, the
    /// pods that were not admitted end with the first one that does, and stay so, also when a Job that starts with the pods it still
    /// needs has none to spare.
    pub(super) fn reclaim(&self, owned: &Owned<'_>, ended: &[ReclaimablePods]) -> Option<JobStep> {
        let Workload { spec, status, .. } = &owned.workload;
        let admitted = status.admission.as_ref().map_or(&[][..], |admission| &admission.pod_set_assignments);
        let of = |list: &[ReclaimablePods], name: &str| {
            list.iter().find(|pods| pods.name == name).map_or(0, |pods| pods.count)
        };
        let count = |set: &PodSet| {
            let assigned = admitted.iter().find(|assigned| assigned.name == set.name);
            let assigned = assigned.and_then(|assigned| assigned.count).unwrap_or(set.count);
            let (absent, ended) = (self.absent(set, assigned), of(ended, &set.name));
            let count = match (absent, ended) {
                (0, ended) => ended,
                (_, 0) => of(&status.reclaimable_pods, &set.name),
                (absent, ended) => ended.saturating_add(absent),
            };
            count.min(set.count)
        };
        let counts = spec.pod_sets.iter().map(|set| (&*set.name, count(set)));
        let counts: BTreeMap<&str, u32> = counts.filter(|(_, count)| *count > 0).collect();
        let known = status.reclaimable_pods.iter().map(|pods| (&*pods.name, pods.count));
        if !self.config.reclaims_pods || known.collect::<BTreeMap<_, _>>() == counts {
            return None;
        }
        let list: Vec<Value> =
            counts.iter().map(|(name, count)| json!({"name": name, "count": count})).collect();
        Some(silently(Write::Reclaimable(Box::new(owned.whole.clone()), list.into())))
    }

    /// The pods of a pod set that the job does not have at present because not all were admitted. One that has stopped has them again.
    fn absent(&self, set: &PodSet, assigned: u32) -> u32 {
        let not_admitted = set.count.saturating_sub(assigned);
        if not_admitted == 0 {
            return 0;
        }
        let own = self.kind.integration.pod_sets(&self.job.value);
        let own = own.iter().find(|own| own["name"] == *set.name).and_then(|own| own["count"].as_u64());
        let own = own.and_then(|own| u32::try_from(own).ok()).unwrap_or(set.count);
        not_admitted.min(set.count.saturating_sub(own))
    }

    /// Keeps the condition `PodsReady`.
    pub(super) fn report_pods(&self, owned: &Owned<'_>, are_ready: bool) -> Option<JobStep> {
        if !self.config.waits_for_pods {
            return None;
        }
        let status = &owned.workload.status;
        let known = status.condition(PODS_READY);
        let is_ready = status.is(ADMITTED) && are_ready;
        let has_recovered =
            known.is_some_and(|known| ["WaitForRecovery", "Recovered"].contains(&&*known.reason));
        let was_ready = known.is_some_and(Condition::is_true)
            || known.is_some_and(|known| known.reason == "WaitForRecovery");
        let (reason, message) = match (is_ready, status.is(ADMITTED)) {
            (true, _) if has_recovered => {
                ("Recovered", "All pods reached readiness and the workload is running")
            }
            (true, _) => ("Started", "All pods reached readiness and the workload is running"),
            (false, true) if was_ready => {
                ("WaitForRecovery", "At least one pod has failed, waiting for recovery")
            }
            (false, _) => ("WaitForStart", "Not all pods are ready or succeeded"),
        };
        if known.is_some_and(|known| known.is_true() == is_ready && known.reason == reason) {
            return None;
        }
        let generation = owned.whole.metadata.generation;
        let mut condition = Condition::new(PODS_READY, is_ready, reason, message, generation, self.now);
        if let Some(known) = known.filter(|known| known.is_true() == is_ready) {
            condition.last_transition_time.clone_from(&known.last_transition_time);
        }
        Some(silently(Write::Condition(Box::new(owned.whole.clone()), Box::new(condition))))
    }

    /// Starts the job with what its admission adds to its pods.
    fn start(&self, owned: &Owned<'_>) -> JobStep {
        let started =
            self.injections(&owned.workload).and_then(|added| self.kind.start(&self.job.value, &added));
        match self.startable(owned, started) {
            Ok(job) => {
                if self.kind.integration.changes_suspended_only() {
                    let mut prepared = job.clone();
                    self.kind.set_suspended(&mut prepared, true);
                    if prepared != self.job.value {
                        return self.write(prepared, Vec::new());
                    }
                }
                let admitted = owned.workload.status.condition(ADMITTED).and_then(Condition::since);
                let admitted = admitted.unwrap_or_default();
                let due = self.objects.restarts.due(&self.key(), admitted);
                if due.is_some_and(|due| due > self.now) {
                    return warn("SuspendedByOthers", SUSPENDED_BY_OTHERS);
                }
                let told = event("Started", started_text(&owned.workload));
                JobStep::Write(Write::Start(self.kind, Box::new(job), admitted), vec![told])
            }
            Err(step) => step,
        }
    }

    /// What starts, or the step if it cannot: a flavor may still come, and what contradicts the admission never starts.
    pub(super) fn startable<T>(
        &self,
        owned: &Owned<'_>,
        started: Result<T, InjectionError>,
    ) -> Result<T, JobStep> {
        started.map_err(|error| {
            if error.is_permanent() {
                return self.finish(owned, "FailedToStart", &error.to_string(), Vec::new());
            }
            warn("ResourceFlavorNotFound", format!("the admitted job cannot start yet: {error}"))
        })
    }
}
