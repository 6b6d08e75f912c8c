//! The Workload of a job: found, made, and kept as the job asks for.

use api::kueue::jobs::pods::IS_GROUP;
use api::kueue::jobs::{
    GATED_BY, Injection, InjectionError, NamedClass, PRIORITY_CLASS, Priority, Reference, SLICE_NAME,
    annotation, new_gang_annotations, prebuilt_workload, queue_name, remote,
};
use api::kueue::status::{ADMITTED, FINISHED, QUOTA_RESERVED};
use api::kueue::workload::{JOB_UID, REPLACES, Workload};
use serde_json::{Map, Value, json};

use super::limits;
use super::objects::{has_quota, is_orphan};
use super::step::{AWAIT, JobStep, View, event, key, silently, warn};
use super::write::{self, Write, decoded};
use crate::watched::Whole;

/// A Workload of the job.
pub(super) struct Owned<'a> {
    pub(super) whole: &'a Whole,
    pub(super) workload: Workload,
    /// What its admission adds to the pods, or only their number if the rest is unknown, because a flavor is gone; `None` without
    /// admission.
    injections: Option<Vec<Injection>>,
}

/// Why a job is stopped that runs without a Workload for it. `known` is the only one that there is.
pub(super) fn unmatched(known: Option<&Whole>) -> &'static str {
    match known {
        Some(_) => "No matching Workload; restoring pod templates according to existent Workload",
        None => "Missing Workload; unable to restore pod templates",
    }
}

/// Why a prebuilt Workload ends whose job asks for something else.
pub(super) const OUT_OF_SYNC: &str = "The prebuilt workload is out of sync with its user job";

/// Deletes a Workload that is not for the job.
pub(super) fn delete_unmatched(whole: &Whole) -> JobStep {
    let told = event("DeletedWorkload", format!("Deleted not matching Workload: {}", key(whole)));
    JobStep::Write(Write::DeleteWorkload(Box::new(whole.clone())), vec![told])
}

/// Says why a job gets no Workload.
pub(super) fn refuse(problem: String) -> JobStep {
    warn("WorkloadRefused", problem)
}

/// Waits for the name of a Workload that is not the job's.
pub(super) fn await_name(known: &Whole) -> JobStep {
    // Somebody has removed its owner. It goes when its pods are gone.
    if is_orphan(known) {
        return AWAIT;
    }
    let name = &known.metadata.name;
    refuse(format!("the name of the job's Workload, '{name}', is taken: delete that Workload"))
}

/// Says which prebuilt Workload a job waits for.
pub(super) fn prebuilt_missing(name: &str) -> JobStep {
    warn(
        "WorkloadNotFound",
        format!("the Workload {name}, which the job names as its own, does not exist: create it"),
    )
}

/// Tells the author of a job that the Workload which it names is not for it.
pub(super) fn tell_taken(name: &str) -> JobStep {
    let text = format!("the Workload '{name}' is that of another job: name one without an owner");
    warn("ErrWorkloadCompose", text)
}

/// Whether a Workload says that it is that of a group of pods.
pub(super) fn is_group(workload: &Value) -> bool {
    annotation(workload, IS_GROUP) == Some("true")
}

/// Why the Workload of a job, as it would be created, cannot hold what the job asks for; none if it can.
pub fn workload_problem(workload: &Value) -> Option<String> {
    limits::problem(workload, is_group(workload))
}

/// Creates Workloads, if they can hold what the job asks for.
pub(super) fn create(workloads: Vec<Value>) -> JobStep {
    if let Some(problem) = workloads.iter().find_map(workload_problem) {
        return refuse(problem);
    }
    let told = |workload: &Value| {
        let (namespace, name) = write::name_of(workload);
        event("CreatedWorkload", format!("Created Workload: {namespace}/{name}"))
    };
    let told = workloads.iter().map(told).collect();
    JobStep::Write(Write::Create(workloads), told)
}

/// The number of pods that a Workload asks for, by pod set.
fn counts_of(workload: &Workload) -> Vec<u32> {
    workload.spec.pod_sets.iter().map(|set| set.count).collect()
}

impl<'a> View<'a> {
    pub(super) fn owned<'w>(&self, whole: &'w Whole) -> Option<Owned<'w>> {
        let workload = decoded(whole).ok()?;
        let known = self.injections(&workload);
        let known = known.unwrap_or_else(|_| Injection::of_counts(&workload.status, &counts_of(&workload)));
        let injections = Some(known).filter(|found| !found.is_empty());
        Some(Owned { whole, workload, injections })
    }

    pub(super) fn injections(&self, workload: &Workload) -> Result<Vec<Injection>, InjectionError> {
        let counts = counts_of(workload);
        let (name, queue) = (&workload.metadata.name, &workload.spec.queue_name);
        let mut all = Injection::of_admission(name, queue, &workload.status, &counts, |flavor| {
            self.objects.flavor(flavor)
        })?;
        if self.is_elastic() {
            let first = workload.metadata.annotations.get(SLICE_NAME).unwrap_or(name);
            for injection in &mut all {
                injection.gate_growth(first);
            }
        }
        Ok(all)
    }

    fn is_equivalent(&self, owned: &Owned<'_>) -> bool {
        let is_admitted = owned.workload.status.is(ADMITTED);
        let injections = owned.injections.as_deref().filter(|_| owned.workload.status.is(QUOTA_RESERVED));
        self.kind.is_equivalent(&self.job.value, &owned.whole.value, injections, is_admitted)
    }

    /// The Workload of the job, or the step that leaves one at most. `stop` is the step that stops a job that runs without a
    /// Workload for it: it gets the only one that there is, and why.
    pub(super) fn one_workload(
        &self,
        stop: impl Fn(Option<&Whole>, &'static str) -> JobStep,
    ) -> Result<Option<Owned<'a>>, JobStep> {
        if let Some(name) = prebuilt_workload(&self.job.value) {
            return self.prebuilt(name, stop);
        }
        let all: Vec<Owned<'_>> =
            self.objects.workloads_of(&self.key()).filter_map(|whole| self.owned(whole)).collect();
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
            // One that somebody deletes goes, and another one is made.
            let is_kept = |owned: &&Owned<'_>| {
                !owned.workload.status.is(QUOTA_RESERVED) && !owned.whole.metadata.is_deleting()
            };
            if is_suspended && let Some(first) = others.first().filter(is_kept) {
                return Err(self.update(first));
            }
            if self.runs() {
                let known = if let [one] = &others[..] { Some(one.whole) } else { None };
                return Err(stop(known, unmatched(known)));
            }
        }
        if let Some(extra) = others.first() {
            // The pods of a job that has stopped may run for a while.
            let waits = self.await_pods(extra.whole).filter(|_| has_quota(extra.whole) && matching.is_none());
            return Err(waits.unwrap_or_else(|| delete_unmatched(extra.whole)));
        }
        match matching {
            Some(owned) => self.propagate(&owned).map_or(Ok(Some(owned)), Err),
            None => Ok(None),
        }
    }

    /// A Workload that another author has made for the job.
    fn prebuilt(
        &self,
        name: &str,
        stop: impl Fn(Option<&Whole>, &'static str) -> JobStep,
    ) -> Result<Option<Owned<'a>>, JobStep> {
        let meta = &self.job.metadata;
        let Some(whole) = self.objects.workload(&meta.namespace, name) else { return Ok(None) };
        match whole.metadata.controller_key() {
            Some(owner) if owner == self.key() => {}
            Some(_) => return Ok(None),
            // The Workload of pods, or of a set of pods.
            None if self.objects.is_of_others(whole, |_| false) => return Ok(None),
            // Somebody has removed its owner, which gets it back.
            None if self.objects.has_made(whole).is_some_and(|maker| maker != self.key()) => return Ok(None),
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
        let has_grown = self.is_elastic() && owned.workload.metadata.annotations.contains_key(REPLACES);
        if !owned.workload.status.is(FINISHED) && !has_grown && !self.is_equivalent(&owned) {
            if self.runs() {
                return Err(stop(Some(whole), OUT_OF_SYNC));
            }
            let finish = || self.finish(&owned, "OutOfSync", OUT_OF_SYNC, Vec::new());
            return Err(self.await_pods(whole).unwrap_or_else(finish));
        }
        Ok(Some(owned))
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
        if let Some(problem) = limits::problem(&patch, is_group(&owned.whole.value)) {
            return refuse(problem);
        }
        let text = format!("Updated not matching Workload for suspended job: {}", key(owned.whole));
        JobStep::Write(
            Write::Workload(Box::new(owned.whole.clone()), patch),
            vec![event("UpdatedWorkload", text)],
        )
    }

    /// Brings what a job may change at any time into its Workload: its priority class, the controllers that hold it back, and the
    /// annotations that the planner uses.
    pub(super) fn propagate(&self, owned: &Owned<'_>) -> Option<JobStep> {
        let whole = owned.whole;
        let version = &whole.metadata.resource_version;
        if let Some(gates) = self.new_gates(&whole.value) {
            let patch = json!({"metadata": {"resourceVersion": version, "annotations": {GATED_BY: gates}}});
            let text =
                format!("Updated workload AdmissionGatedBy to {:?}", gates.as_str().unwrap_or_default());
            return Some(JobStep::Write(
                Write::Workload(Box::new(whole.clone()), patch),
                vec![event("UpdatedWorkload", text)],
            ));
        }
        let annotations = new_gang_annotations(&self.job.value, &whole.value);
        if !annotations.is_empty() {
            let patch = json!({"metadata": {"resourceVersion": version, "annotations": annotations}});
            return Some(silently(Write::Workload(Box::new(whole.clone()), patch)));
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

    /// The controllers that hold back the job, as an annotation of its Workload; null for none. `None`: the Workload has them.
    pub(super) fn new_gates(&self, workload: &Value) -> Option<Value> {
        let gates = annotation(&self.job.value, GATED_BY).unwrap_or_default();
        let is_new = gates != annotation(workload, GATED_BY).unwrap_or_default();
        let value = if gates.is_empty() { Value::Null } else { gates.into() };
        (self.config.gates_admission && is_new).then_some(value)
    }

    /// The priority of a job: of its class, of the class of its pods, or of the default class. A class may still come.
    pub(super) fn priority(&self) -> Result<Priority, JobStep> {
        let missing = |what: &str, kind: &str, name: &str| {
            let text =
                format!("{what} the {kind} {name}, which does not exist: create it, or name another one");
            warn("PriorityClassNotFound", text)
        };
        match self.kind.named_class(&self.job.value) {
            NamedClass::Workload(name) => {
                let value = self.objects.workload_class(&name);
                value
                    .map(|value| Priority::of_workload_class(&name, value))
                    .ok_or_else(|| missing("its label names", "WorkloadPriorityClass", &name))
            }
            NamedClass::Pod(name) => {
                let value = self.objects.pod_class(&name);
                value
                    .map(|value| Priority::of_pod_class(&name, value))
                    .ok_or_else(|| missing("its pods name", "PriorityClass", &name))
            }
            NamedClass::Default => Ok(self
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
            if self.objects.workload(&self.job.metadata.namespace, name).is_some() {
                return tell_taken(name);
            }
            return prebuilt_missing(name);
        }
        if self.kind.integration.is_active(job) {
            return self.forget_remote_pods();
        }
        let priority = match self.priority() {
            Ok(priority) => priority,
            Err(step) => return step,
        };
        let workload = self.kind.workload(job, &priority, &self.config.copied);
        let (namespace, name) = write::name_of(&workload);
        match self.objects.workload(&namespace, &name) {
            Some(known) => await_name(known),
            None => create(vec![workload]),
        }
    }

    /// The pods of a job in another cluster go with its Workload, and nobody else says so in its status. Its next Workload starts
    /// nowhere before they are gone.
    fn forget_remote_pods(&self) -> JobStep {
        let job = &self.job.value;
        if !remote::is_handed_over(self.kind, job) {
            return AWAIT;
        }
        self.next_stop(None, "missing workload").unwrap_or_else(|| {
            let left = remote::without_pods(self.kind, &job["status"]);
            let fields = job["status"].as_object().into_iter().flatten().map(|(field, _)| field.clone());
            let gone = fields.filter(|field| left[field].is_null()).map(|field| (field, Value::Null));
            silently(Write::JobStatus(self.kind, Box::new(self.job.clone()), Value::Object(gone.collect())))
        })
    }

    /// Says which object has to describe the pods of the job.
    pub(super) fn undescribed(&self) -> JobStep {
        let (kind, job) = (self.kind.integration, &self.job.value);
        let Some(Reference { at, namespace, name }) = kind.reference(job) else { return AWAIT };
        let named = kind.references().get(at).map_or("object", |named| named.kind);
        let place = if namespace.is_empty() { String::new() } else { format!("{namespace}/") };
        let text = format!(
            "the {named} {place}{name}, which describes the pods of the job, does not exist: create it, or name another one"
        );
        warn("PodsNotDescribed", text)
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
