//! Decides the next write about a job: a pure function of what was observed.

use api::MicroTime;
use api::kueue::FINALIZER;
use api::kueue::jobs::{
    ELASTIC, GATED_BY, Injection, JobKind, PRIORITY_CLASS, Priority, annotation, prebuilt_workload,
    queue_name,
};
use api::kueue::status::{
    ADMITTED, Condition, EVICTED, FINISHED, PODS_READY, QUOTA_RESERVED, ReclaimablePods, Status, Transition,
};
use api::kueue::workload::{JOB_UID, Workload};
use serde_json::{Map, Value, json};

use super::objects::{JobKey, Objects};
use super::owner::Ancestor;
use super::write::{Write, decoded};
use super::{JobsConfig, pods, sets};
use crate::events::Subject;
use crate::kueue::write::without_finalizer;
use crate::watched::Whole;

/// What is to be done about a job.
pub(super) enum JobStep {
    /// Nothing until something changes, or until this time.
    Await(Option<MicroTime>),
    /// Nothing until something changes, and this Event.
    Tell(JobEvent),
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
}

/// A job with what decides about it.
pub(super) struct View<'a> {
    pub(super) kind: &'static JobKind,
    pub(super) job: &'a Whole,
    pub(super) objects: &'a Objects,
    pub(super) config: &'a JobsConfig,
    pub(super) now: MicroTime,
}

/// A Workload of the job.
pub(super) struct Owned<'a> {
    pub(super) whole: &'a Whole,
    pub(super) workload: Workload,
    /// What its admission adds to the pods; `None` without admission, or if a flavor is missing.
    injections: Option<Vec<Injection>>,
}

pub(super) const AWAIT: JobStep = JobStep::Await(None);

pub(super) fn event(reason: &'static str, text: impl Into<String>) -> JobEvent {
    JobEvent { about: None, is_warning: false, reason, text: text.into() }
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
    let uid = match key {
        JobKey::Job(uid) => uid,
        JobKey::Group { namespace, name } => return pods::decide(objects, config, namespace, name, now),
    };
    let Some((at, job)) = objects.jobs.get(uid) else {
        let left: Vec<&Whole> = objects.workloads_of(uid).collect();
        return (!left.is_empty()).then(|| left_behind(config, &left, now));
    };
    let view = View { kind: config.kinds[*at], job, objects, config, now };
    Some(match view.kind {
        kind if kind.is_pod() => pods::decide_alone(view),
        kind if kind.is_set_of_pods() => sets::decide(&view),
        _ => view.decide(),
    })
}

/// Ends the Workloads of a job that is gone: their quota is released.
pub(super) fn left_behind(config: &JobsConfig, left: &[&Whole], now: MicroTime) -> JobStep {
    for whole in left {
        let Some(owner) = whole.metadata.controller() else { continue };
        let is_kind = |kind: &&&JobKind| kind.kind == owner.kind && owner.api_version == kind.api_version;
        let Some(kind) = config.kinds.iter().find(is_kind) else { continue };
        let Ok(workload) = decoded(whole) else { continue };
        let is_ended = workload.status.is(FINISHED) || whole.metadata.is_deleting();
        if !is_ended {
            let status = finished(&workload, "OwnerNotFound", "The workload's owner no longer exists", now);
            return silently(Write::Orphan(kind, Box::new((*whole).clone()), Some(Box::new(status))));
        }
        if whole.metadata.has_finalizer(FINALIZER) {
            return silently(Write::Orphan(kind, Box::new((*whole).clone()), None));
        }
    }
    AWAIT
}

/// The status of a Workload that has ended.
fn finished(workload: &Workload, reason: &str, message: &str, now: MicroTime) -> Status {
    let mut status = workload.status.clone();
    let generation = workload.metadata.generation;
    Transition { status: &mut status, generation, now }.finish(reason, message);
    status
}

impl<'a> View<'a> {
    /// Whether the job is managed: it has a queue, or needs none.
    pub(super) fn is_managed(&self) -> bool {
        self.manages(self.job)
    }

    /// Whether a job is managed.
    pub(super) fn manages(&self, job: &Whole) -> bool {
        let is_selected = |labels| self.config.namespaces.matches(labels);
        (self.config.manages_unnamed || !queue_name(&job.value).is_empty())
            && self.objects.namespace_labels(&job.metadata.namespace).is_some_and(is_selected)
    }

    fn decide(&self) -> JobStep {
        if self.kind.integration.is_skipped(&self.job.value) {
            return AWAIT;
        }
        match self.objects.ancestor(self.job, self.config) {
            Ancestor::Other => return AWAIT,
            Ancestor::Job(ancestor) => return self.follow_ancestor(ancestor),
            Ancestor::Absent => {}
        }
        if !self.is_managed() {
            return AWAIT;
        }
        if self.job.metadata.is_deleting() {
            let left: Vec<&Whole> = self.objects.workloads_of(&self.job.metadata.uid).collect();
            return left_behind(self.config, &left, self.now);
        }
        if annotation(&self.job.value, ELASTIC) == Some("true") {
            return self.refuse_elastic();
        }
        match self.one_workload() {
            Ok(Some(owned)) => self.follow(&owned),
            Ok(None) => self.begin(),
            Err(step) => step,
        }
    }

    /// An elastic job is kept suspended: it would start without quota for the pods that it adds.
    fn refuse_elastic(&self) -> JobStep {
        if self.kind.is_suspended(&self.job.value) {
            return AWAIT;
        }
        let text = format!(
            "Muster does not serve elastic jobs yet: remove the annotation {ELASTIC} to start this job"
        );
        self.stop(None, &text)
    }

    pub(super) fn owned<'w>(&self, whole: &'w Whole) -> Option<Owned<'w>> {
        let workload = decoded(whole).ok()?;
        let injections = self.injections(&workload).ok().filter(|found| !found.is_empty());
        Some(Owned { whole, workload, injections })
    }

    pub(super) fn injections(
        &self,
        workload: &Workload,
    ) -> Result<Vec<Injection>, api::kueue::jobs::InjectionError> {
        let counts: Vec<u32> = workload.spec.pod_sets.iter().map(|set| set.count).collect();
        let (name, queue) = (&workload.metadata.name, &workload.spec.queue_name);
        Injection::of_admission(name, queue, &workload.status, &counts, |flavor| self.objects.flavor(flavor))
    }

    pub(super) fn is_equivalent(&self, owned: &Owned<'_>) -> bool {
        let is_admitted = owned.workload.status.is(ADMITTED);
        let injections = owned.injections.as_deref().filter(|_| owned.workload.status.is(QUOTA_RESERVED));
        self.kind.is_equivalent(&self.job.value, &owned.whole.value, injections, is_admitted)
    }

    /// The Workload of the job, or the step that leaves one at most.
    pub(super) fn one_workload(&self) -> Result<Option<Owned<'a>>, JobStep> {
        if let Some(name) = prebuilt_workload(&self.job.value) {
            return self.prebuilt(name);
        }
        let all: Vec<Owned<'_>> =
            self.objects.workloads_of(&self.job.metadata.uid).filter_map(|whole| self.owned(whole)).collect();
        let (mut matching, mut others) = (None, Vec::new());
        for owned in all {
            if matching.is_none() && self.is_equivalent(&owned) {
                matching = Some(owned);
            } else {
                others.push(owned);
            }
        }
        let is_suspended = self.kind.is_suspended(&self.job.value);
        if matching.is_none() {
            if is_suspended
                && let Some(first) = others.first().filter(|first| !first.workload.status.is(QUOTA_RESERVED))
            {
                return Err(self.update(first));
            }
            if !is_suspended && self.kind.integration.finished(&self.job.value).is_none() {
                let known = if let [one] = &others[..] { Some(one.whole) } else { None };
                let text = match known {
                    Some(_) => "No matching Workload; restoring pod templates according to existent Workload",
                    None => "Missing Workload; unable to restore pod templates",
                };
                return Err(self.stop(known, text));
            }
        }
        if let Some(extra) = others.first() {
            let told =
                event("DeletedWorkload", format!("Deleted not matching Workload: {}", key(extra.whole)));
            return Err(JobStep::Write(Write::DeleteWorkload(Box::new(extra.whole.clone())), vec![told]));
        }
        match matching {
            Some(owned) => self.propagate(&owned).map_or(Ok(Some(owned)), Err),
            None => Ok(None),
        }
    }

    /// A Workload that another author has made for the job.
    pub(super) fn prebuilt(&self, name: &str) -> Result<Option<Owned<'a>>, JobStep> {
        let meta = &self.job.metadata;
        let Some(whole) = self.objects.workload(&meta.namespace, name) else { return Ok(None) };
        match whole.metadata.controller() {
            Some(owner) if owner.uid == meta.uid => {}
            Some(_) => return Ok(None),
            None => {
                let mut owners =
                    whole.value["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
                owners.push(
                    json!({"apiVersion": self.kind.api_version, "kind": self.kind.kind, "name": meta.name,
                    "uid": meta.uid, "controller": true, "blockOwnerDeletion": true}),
                );
                let mut labels = Map::new();
                labels.insert(JOB_UID.into(), meta.uid.clone().into());
                let patch = json!({"metadata": {"resourceVersion": whole.metadata.resource_version,
                    "ownerReferences": owners, "labels": labels}});
                return Err(silently(Write::Workload(Box::new(whole.clone()), patch)));
            }
        }
        let Some(owned) = self.owned(whole) else { return Ok(None) };
        if !owned.workload.status.is(FINISHED) && !self.is_equivalent(&owned) {
            let text = "The prebuilt workload is out of sync with its user job";
            return Err(self.finish(&owned, "OutOfSync", text, Vec::new()));
        }
        Ok(Some(owned))
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

    /// A job that changed before it was admitted keeps its Workload, and its place in the queue.
    pub(super) fn update(&self, owned: &Owned<'_>) -> JobStep {
        let priority = match self.priority() {
            Ok(priority) => priority,
            Err(step) => return step,
        };
        let mut spec = self.kind.workload_spec(&self.job.value, &priority);
        for field in ["queueName", "priorityClassRef", "maximumExecutionTimeSeconds"] {
            spec.as_object_mut().map(|spec| spec.entry(field).or_insert(Value::Null));
        }
        let patch =
            json!({"metadata": {"resourceVersion": owned.whole.metadata.resource_version}, "spec": spec});
        let text = format!("Updated not matching Workload for suspended job: {}", key(owned.whole));
        JobStep::Write(
            Write::Workload(Box::new(owned.whole.clone()), patch),
            vec![event("UpdatedWorkload", text)],
        )
    }

    /// Brings what a job may change at any time into its Workload: its priority class and the controllers that hold it back.
    pub(super) fn propagate(&self, owned: &Owned<'_>) -> Option<JobStep> {
        let whole = owned.whole;
        let version = &whole.metadata.resource_version;
        let gates = annotation(&self.job.value, GATED_BY).unwrap_or_default();
        if self.config.gates_admission && gates != annotation(&whole.value, GATED_BY).unwrap_or_default() {
            let value = if gates.is_empty() { Value::Null } else { gates.into() };
            let patch = json!({"metadata": {"resourceVersion": version, "annotations": {GATED_BY: value}}});
            let text = format!("Updated workload AdmissionGatedBy to {gates:?}");
            return Some(JobStep::Write(
                Write::Workload(Box::new(whole.clone()), patch),
                vec![event("UpdatedWorkload", text)],
            ));
        }
        let class = self.job.value["metadata"]["labels"][PRIORITY_CLASS].as_str().unwrap_or_default();
        let known = &owned.workload.spec.priority_class_ref;
        let is_pods = known.as_ref().is_some_and(|known| known.kind != "WorkloadPriorityClass");
        let is_fixed = known.is_none() && owned.workload.status.is(QUOTA_RESERVED);
        if class.is_empty() || is_pods || is_fixed || owned.workload.priority_class() == class {
            return None;
        }
        let priority = Priority::of_workload_class(class, self.objects.workload_class(class)?);
        let spec = json!({"priorityClassRef": priority.reference(), "priority": priority.value});
        let patch = json!({"metadata": {"resourceVersion": version}, "spec": spec});
        let text = format!("Updated workload priority class: {}", key(whole));
        Some(JobStep::Write(
            Write::Workload(Box::new(whole.clone()), patch),
            vec![event("UpdatedWorkload", text)],
        ))
    }

    /// The priority of a job: of its class, of the class of its pods, or of the default class. A class may still come.
    pub(super) fn priority(&self) -> Result<Priority, JobStep> {
        let missing = |kind: &str, name: &str| {
            tracing::debug!(job = self.job.metadata.name, "waits for the {kind} {name}");
            AWAIT
        };
        let class = self.job.value["metadata"]["labels"][PRIORITY_CLASS].as_str().unwrap_or_default();
        if !class.is_empty() {
            let value = self.objects.workload_class(class);
            return value
                .map(|value| Priority::of_workload_class(class, value))
                .ok_or_else(|| missing("WorkloadPriorityClass", class));
        }
        let sets = self.kind.integration.pod_sets(&self.job.value);
        let of_pods = sets.iter().filter_map(|set| set["template"]["spec"]["priorityClassName"].as_str());
        let of_job = self.kind.integration.priority_class(&self.job.value);
        match of_job.or_else(|| of_pods.into_iter().find(|name| !name.is_empty())) {
            Some(name) => {
                let value = self.objects.pod_class(name);
                value
                    .map(|value| Priority::of_pod_class(name, value))
                    .ok_or_else(|| missing("PriorityClass", name))
            }
            None => Ok(self
                .objects
                .default_pod_class()
                .map_or_else(Priority::default, |(name, value)| Priority::of_pod_class(name, value))),
        }
    }

    /// A job without a Workload gets one when its pods are gone.
    pub(super) fn begin(&self) -> JobStep {
        let job = &self.job.value;
        if self.kind.integration.finished(job).is_some() || self.kind.integration.is_on_hold(job) {
            return AWAIT;
        }
        if let Some(name) = prebuilt_workload(job) {
            if !self.kind.is_suspended(job) {
                return self.stop(None, "missing workload");
            }
            tracing::debug!(job = self.job.metadata.name, "waits for the Workload {name}");
            return AWAIT;
        }
        if self.kind.integration.is_active(job) {
            return AWAIT;
        }
        let priority = match self.priority() {
            Ok(priority) => priority,
            Err(step) => return step,
        };
        let workload = self.kind.workload(job, &priority, &self.config.copied_labels);
        let name = workload["metadata"]["name"].as_str().unwrap_or_default();
        let text = format!("Created Workload: {}/{name}", self.job.metadata.namespace);
        JobStep::Write(Write::Create(Box::new(workload)), vec![event("CreatedWorkload", text)])
    }

    /// Brings the job and its Workload to each other's state.
    fn follow(&self, owned: &Owned<'_>) -> JobStep {
        let (job, status) = (&self.job.value, &owned.workload.status);
        let has_finalizer = owned.whole.metadata.has_finalizer(FINALIZER);
        let release = || {
            silently(Write::Workload(Box::new(owned.whole.clone()), without_finalizer(&owned.whole.metadata)))
        };
        if status.is(FINISHED) {
            return if has_finalizer { release() } else { AWAIT };
        }
        if owned.whole.metadata.is_deleting() {
            return match self.kind.is_suspended(job) {
                false => self.stop(Some(owned.whole), "Workload is deleted"),
                true if has_finalizer => release(),
                true => AWAIT,
            };
        }
        if let Some(step) = self.hold(owned) {
            return step;
        }
        if let Some(ended) = self.kind.integration.finished(job) {
            let reason = if ended.succeeded { "Succeeded" } else { "Failed" };
            let text = format!("Workload '{}' is declared finished", key(owned.whole));
            return self.finish(owned, reason, &ended.message, vec![event("FinishedWorkload", text)]);
        }
        let integration = self.kind.integration;
        let reclaimed = self.reclaim(owned, integration.reclaimable(job));
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
            (false, true) => AWAIT,
        }
    }

    /// Gives back the quota of pods that have ended.
    pub(super) fn reclaim(&self, owned: &Owned<'_>, mut ended: Vec<ReclaimablePods>) -> Option<JobStep> {
        for pods in &mut ended {
            let set = owned.workload.spec.pod_sets.iter().find(|set| set.name == pods.name);
            pods.count = pods.count.min(set.map_or(0, |set| set.count));
        }
        if !self.config.reclaims_pods || ended == owned.workload.status.reclaimable_pods {
            return None;
        }
        let list: Vec<Value> =
            ended.iter().map(|pods| json!({"name": pods.name, "count": pods.count})).collect();
        Some(silently(Write::Reclaimable(Box::new(owned.whole.clone()), list.into())))
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
        match started {
            Ok(job) => {
                let queue =
                    owned.workload.status.admission.as_ref().map_or("", |admission| &admission.cluster_queue);
                let told = event("Started", format!("Admitted by clusterQueue {queue}"));
                JobStep::Write(Write::Job(self.kind, Box::new(job)), vec![told])
            }
            Err(error) if error.is_permanent() => {
                self.finish(owned, "FailedToStart", &error.to_string(), Vec::new())
            }
            Err(error) => {
                tracing::debug!(job = self.job.metadata.name, %error, "waits for the flavor");
                AWAIT
            }
        }
    }

    pub(super) fn rename_queue(&self, owned: &Owned<'_>) -> JobStep {
        let name = queue_name(&self.job.value);
        if owned.workload.spec.queue_name == name {
            return AWAIT;
        }
        let name = (!name.is_empty()).then_some(name);
        let patch = json!({"metadata": {"resourceVersion": owned.whole.metadata.resource_version},
            "spec": {"queueName": name}});
        silently(Write::Workload(Box::new(owned.whole.clone()), patch))
    }
}
