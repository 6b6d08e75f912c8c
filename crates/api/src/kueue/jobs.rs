//! Jobs that wait for a Workload, on the wire: which pods they ask for, how they are suspended, started and restored, and how
//! they end. After `pkg/controller/jobframework` of Kueue v0.19.
//!
//! A kind of jobs is one row of [`JOB_KINDS`]; all functions are pure and work on untyped JSON, so fields that this version
//! does not know survive.

mod app_wrapper;
mod batch_job;
mod declaration;
mod declared;
mod injection;
mod integration;
pub mod leader_worker_sets;
pub mod operator;
mod pod_group;
pub mod pods;
mod ray;
pub mod remote;
pub(crate) mod role_hash;
pub mod sets;
pub mod slices;
pub(crate) mod spark;
pub(crate) mod topology;
pub(crate) mod train_job;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use sha1::{Digest as _, Sha1};

pub use batch_job::{COMPLETIONS_FOLLOW, LEAST_PARALLELISM};
pub use declaration::declare;
pub use injection::{
    ELASTIC_GATE, Flavor, Injection, InjectionError, POD_SET, SLICE_NAME, TOPOLOGY_GATE, WORKLOAD,
};
pub use integration::{Finished, Integration, REFERENCED, Reference, ReferencedKind};
pub use operator::Operator;
pub use pod_group::{GROUP_PODS_MAX, Incomplete, Membership, PodGroup};

use super::provisioning::PARAMETER_PREFIX;
use super::workload::{API_VERSION, JOB_UID};
use super::{FINALIZER, GROUP};
use crate::annotations::OF_GANGS;
use crate::wrapped_kinds::group;

/// The label of a job with the name of its `LocalQueue`.
pub const QUEUE_NAME: &str = "kueue.x-k8s.io/queue-name";
/// The label of a job with the name of its `WorkloadPriorityClass`.
pub const PRIORITY_CLASS: &str = "kueue.x-k8s.io/priority-class";
/// The label of a job with its longest run, in seconds.
pub const LONGEST_RUN: &str = "kueue.x-k8s.io/max-exec-time-seconds";
/// The annotation (or label) of a job with the name of a Workload that is there already.
pub const PREBUILT: &str = "kueue.x-k8s.io/prebuilt-workload-name";
/// The annotation of jobs and Workloads that change their size while they run.
pub const ELASTIC: &str = "kueue.x-k8s.io/elastic-job";
/// The annotation of jobs and Workloads with the names of the controllers that hold them back, separated by commas.
pub const GATED_BY: &str = "kueue.x-k8s.io/admission-gated-by";
/// The annotation of a batch Job that is being stopped.
pub const STOPPING: &str = "kueue.x-k8s.io/stopping";
/// The condition of a job that gets no Workload as it is. It is removed when the job gets one. Muster's own.
pub const QUEUEING_BLOCKED: &str = "QueueingBlocked";
/// The name of the pod set of a job with one.
pub const MAIN: &str = "main";

/// The longest name of a Workload without its hash.
const NAME_MAX: usize = 247;
/// The digits of the hash in the name of a Workload.
const HASH_DIGITS: usize = 5;
/// The longest value of a label.
const LABEL_VALUE_MAX: usize = 63;

/// A kind of jobs.
#[derive(Debug)]
pub struct JobKind {
    /// Its name in `integrations.frameworks`.
    pub framework: &'static str,
    /// Group and version.
    pub api_version: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// Name of the resource.
    pub plural: &'static str,
    /// How its jobs are read and changed.
    pub integration: &'static dyn Integration,
}

/// The kinds of jobs that are served.
pub const JOB_KINDS: &[JobKind] = &[
    batch_job::KIND,
    ray::RAY_JOB,
    ray::RAY_CLUSTER,
    ray::RAY_SERVICE,
    declared::JOB_SET,
    declared::JAX_JOB,
    declared::MPI_JOB,
    declared::PADDLE_JOB,
    declared::PYTORCH_JOB,
    declared::TF_JOB,
    declared::XGBOOST_JOB,
    pods::POD,
    sets::STATEFUL_SET,
    leader_worker_sets::LEADER_WORKER_SET,
    app_wrapper::APP_WRAPPER,
    train_job::TRAIN_JOB,
    spark::SPARK_APPLICATION,
];

/// The keys of what a Workload gets from its job, beside what has a meaning.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CopiedKeys {
    /// Those of labels.
    pub labels: BTreeSet<String>,
    /// Those of annotations.
    pub annotations: BTreeSet<String>,
}

/// The priority of a Workload, and the class that it comes from: `(group, kind, name)`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Priority {
    /// Value.
    pub value: i32,
    /// Class.
    pub class: Option<(String, String, String)>,
}

/// The class that decides about the priority of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NamedClass {
    /// The `WorkloadPriorityClass` that its label names.
    Workload(String),
    /// The `PriorityClass` of its pods.
    Pod(String),
    /// The default `PriorityClass`, if there is one: it names none.
    Default,
}

impl JobKind {
    /// The kind with this name in `integrations.frameworks`.
    pub fn of_framework(name: &str) -> Option<&'static Self> {
        JOB_KINDS.iter().find(|kind| kind.framework == name)
    }

    /// Whether its jobs are pods.
    pub fn is_pod(&self) -> bool {
        self.framework == pods::POD.framework
    }

    /// Whether its jobs are sets of pods, which wait as groups.
    pub fn is_set_of_pods(&self) -> bool {
        self.framework == sets::STATEFUL_SET.framework || self.has_groups()
    }

    /// Whether its jobs are sets of groups of pods, each of which waits by itself.
    pub fn has_groups(&self) -> bool {
        self.framework == leader_worker_sets::LEADER_WORKER_SET.framework
    }

    /// The group; empty for the core group.
    pub fn group(&self) -> &'static str {
        group(self.api_version)
    }

    /// Whether an owner reference names a job of this kind, in any version.
    pub fn is_kind_of(&self, api_version: &str, kind: &str) -> bool {
        kind == self.kind && group(api_version) == self.group()
    }

    /// Whether jobs without the label of a queue are watched, too: they own jobs, or are owned. The kinds of Kubernetes itself
    /// are watched by label, because there may be many objects that no queue is for.
    pub fn is_watched_unlabelled(&self) -> bool {
        self.group().contains('.')
    }

    /// The name of the Workload of a job, after `pkg/controller/jobframework/workload_names.go`.
    pub fn workload_name(&self, name: &str, uid: &str) -> String {
        self.workload_name_of(name, uid, None)
    }

    /// The same, with something more in its hash.
    fn workload_name_of(&self, name: &str, uid: &str, extra: Option<&str>) -> String {
        let parts: Vec<&str> = [self.kind, self.group(), name, uid].into_iter().chain(extra).collect();
        let hash = Sha1::digest(parts.join("\n"));
        let digits = format!("{hash:x}");
        format!("{}{}", workload_prefix(self.kind, name), &digits[..HASH_DIGITS])
    }

    /// Whether the job is suspended, and no step of stopping it is left to do.
    pub fn is_suspended(&self, job: &Value) -> bool {
        self.integration.is_suspended(job) && !self.is_stopping(job)
    }

    /// Whether steps of stopping the job are left to do. The first of them suspends it: of a job that runs, the annotation is a claim
    /// of its author, and says nothing.
    pub fn is_stopping(&self, job: &Value) -> bool {
        self.integration.stops_in_steps()
            && self.integration.is_suspended(job)
            && annotation(job, STOPPING) == Some("true")
    }

    /// Suspends a job, or lets it run.
    pub fn set_suspended(&self, job: &mut Value, is_suspended: bool) {
        self.integration.set_suspended(job, is_suspended);
    }

    /// The Workload of a job, as it is created.
    pub fn workload(&self, job: &Value, priority: &Priority, kept: &CopiedKeys) -> Value {
        let meta = &job["metadata"];
        let [name, uid, namespace] =
            ["name", "uid", "namespace"].map(|field| meta[field].as_str().unwrap_or_default());
        let copied = entries(&meta["labels"]).filter(|(key, _)| kept.labels.contains(key));
        let mut copied: serde_json::Map<String, Value> = copied.collect();
        if uid.len() <= LABEL_VALUE_MAX {
            copied.insert(JOB_UID.into(), uid.into());
        }
        let mut annotations = copied_annotations(job);
        annotations.extend(entries(&meta["annotations"]).filter(|(key, _)| kept.annotations.contains(key)));
        let owner = json!({"apiVersion": self.api_version, "kind": self.kind, "name": name, "uid": uid,
            "controller": true, "blockOwnerDeletion": true});
        json!({
            "apiVersion": API_VERSION,
            "kind": "Workload",
            "metadata": {
                "name": self.workload_name(name, uid),
                "namespace": namespace,
                "labels": copied,
                "annotations": annotations,
                "finalizers": [FINALIZER],
                "ownerReferences": [owner],
            },
            "spec": self.workload_spec(job, priority),
        })
    }

    /// The class that decides about the priority of a job: that of its label, or else that of its pods.
    pub fn named_class(&self, job: &Value) -> NamedClass {
        let class = job["metadata"]["labels"][PRIORITY_CLASS].as_str().unwrap_or_default();
        if !class.is_empty() {
            return NamedClass::Workload(class.into());
        }
        let sets = self.integration.pod_sets(job);
        let mut of_pods = sets.iter().filter_map(|set| set["template"]["spec"]["priorityClassName"].as_str());
        let of_job = self.integration.priority_class(job);
        match of_job.or_else(|| of_pods.find(|name| !name.is_empty())) {
            Some(name) => NamedClass::Pod(name.into()),
            None => NamedClass::Default,
        }
    }

    /// The spec of the Workload of a job.
    pub fn workload_spec(&self, job: &Value, priority: &Priority) -> Value {
        self.workload_spec_of(job, self.pod_sets(job), priority)
    }

    /// The pod sets of a job, as a Workload may have them: of environment variables with the same name, the last one, which is the
    /// one that counts in the container.
    fn pod_sets(&self, job: &Value) -> Vec<Value> {
        let mut sets = self.integration.pod_sets(job);
        for set in &mut sets {
            for list in ["/template/spec/containers", "/template/spec/initContainers"] {
                let containers = set.pointer_mut(list).and_then(Value::as_array_mut);
                containers.into_iter().flatten().for_each(name_variables_once);
            }
        }
        sets
    }

    /// States the topology requests of pod sets.
    fn add_topology_requests(&self, sets: &mut [Value]) {
        for set in sets {
            if set.get("topologyRequest").is_none()
                && let Some(request) = topology::request(&set["template"], self.integration.index_label())
            {
                set["topologyRequest"] = request;
            }
        }
    }

    /// The spec of a Workload with these pod sets.
    fn workload_spec_of(&self, job: &Value, mut sets: Vec<Value>, priority: &Priority) -> Value {
        self.add_topology_requests(&mut sets);
        let mut spec = json!({
            "podSets": sets,
            "priority": priority.value,
        });
        // The definition refuses an empty name.
        if !queue_name(job).is_empty() {
            spec["queueName"] = queue_name(job).into();
        }
        if let Some(reference) = priority.reference() {
            spec["priorityClassRef"] = reference;
        }
        if let Some(seconds) = longest_run(job) {
            spec["maximumExecutionTimeSeconds"] = seconds.into();
        }
        spec
    }

    /// Whether a job still is what its Workload says. `injections` are those of its admission: a running job has them in its
    /// templates. While there is none, the topology that the pods ask for counts, too.
    pub fn is_equivalent(
        &self,
        job: &Value,
        workload: &Value,
        injections: Option<&[Injection]>,
        is_admitted: bool,
    ) -> bool {
        if controller(workload)["uid"] != job["metadata"]["uid"]
            || workload["spec"]["maximumExecutionTimeSeconds"].as_i64() != longest_run(job)
        {
            return false;
        }
        let mut of_job = self.pod_sets(job);
        let has_quota = injections.is_some();
        if !has_quota {
            self.add_topology_requests(&mut of_job);
        }
        let as_queued = workload["spec"]["podSets"].as_array().map_or(&[][..], Vec::as_slice);
        let is_same = |expected: &[Value]| {
            let mut pairs = of_job.iter().zip(expected);
            of_job.len() == expected.len()
                && pairs.all(|(one, other)| {
                    is_same_set(one, other, is_admitted)
                        && (has_quota
                            || topology::is_same(&one["topologyRequest"], &other["topologyRequest"]))
                })
        };
        let injections = injections.filter(|_| !self.integration.injects_beside_templates());
        let running = injections.and_then(|injections| injection::running(as_queued, injections));
        match running {
            Some(running) => is_same(&running) || (self.is_suspended(job) && is_same(as_queued)),
            None => is_same(as_queued),
        }
    }

    /// The job as it is when it starts.
    ///
    /// # Errors
    ///
    /// A template has another value where the admission demands one.
    pub fn start(&self, job: &Value, injections: &[Injection]) -> Result<Value, InjectionError> {
        let mut started = job.clone();
        self.integration.add_templates(&mut started);
        let counts: Vec<u32> = injections.iter().map(|injection| injection.count).collect();
        self.integration.set_counts(&mut started, &counts);
        self.integration.inject(&mut started, injections)?;
        self.set_suspended(&mut started, false);
        Ok(started)
    }

    /// The job with the templates that its Workload was made of.
    pub fn restore(&self, job: &Value, workload: &Value) -> Value {
        let mut restored = job.clone();
        let sets = workload["spec"]["podSets"].as_array().map_or(&[][..], Vec::as_slice);
        if sets.is_empty() {
            return restored;
        }
        let count =
            |set: &Value| set["count"].as_u64().and_then(|count| u32::try_from(count).ok()).unwrap_or(1);
        self.integration.set_counts(&mut restored, &sets.iter().map(count).collect::<Vec<_>>());
        self.integration.restore(&mut restored, sets);
        restored
    }
}

impl Priority {
    /// The field `priorityClassRef` of a Workload.
    pub fn reference(&self) -> Option<Value> {
        let (group, kind, name) = self.class.as_ref()?;
        Some(json!({"group": group, "kind": kind, "name": name}))
    }

    /// Of a `WorkloadPriorityClass`.
    pub fn of_workload_class(name: &str, value: i32) -> Self {
        Self { value, class: Some((GROUP.into(), "WorkloadPriorityClass".into(), name.into())) }
    }

    /// Of a `PriorityClass` of pods.
    pub fn of_pod_class(name: &str, value: i32) -> Self {
        Self { value, class: Some(("scheduling.k8s.io".into(), "PriorityClass".into(), name.into())) }
    }
}

/// The name of the `LocalQueue` of a job; empty for none.
pub fn queue_name(job: &Value) -> &str {
    job["metadata"]["labels"][QUEUE_NAME].as_str().unwrap_or_default()
}

/// The name of the Workload that a job wants to use; `None` for its own.
pub fn prebuilt_workload(job: &Value) -> Option<&str> {
    let label = || job["metadata"]["labels"][PREBUILT].as_str();
    annotation(job, PREBUILT).or_else(label).filter(|name| !name.is_empty())
}

/// The owner reference of an object with `controller: true`; null for none.
pub fn controller(object: &Value) -> &Value {
    let owners = object["metadata"]["ownerReferences"].as_array();
    owners.into_iter().flatten().find(|owner| owner["controller"] == true).unwrap_or(&Value::Null)
}

/// An annotation of an object.
pub fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object["metadata"]["annotations"][key].as_str()
}

/// Keeps the last of the environment variables of a container with the same name, in the place of the first.
fn name_variables_once(container: &mut Value) {
    let Some(variables) = container.get_mut("env").and_then(Value::as_array_mut) else { return };
    let mut kept: Vec<Value> = Vec::with_capacity(variables.len());
    let mut places = BTreeMap::new();
    for variable in variables.drain(..) {
        match places.entry(variable["name"].as_str().unwrap_or_default().to_owned()) {
            Entry::Occupied(place) => kept[*place.get()] = variable,
            Entry::Vacant(place) => {
                place.insert(kept.len());
                kept.push(variable);
            }
        }
    }
    *variables = kept;
}

/// What the name of the Workload of a job begins with, before the hash: kind and name of the job, which may be cut.
pub fn workload_prefix(kind: &str, name: &str) -> String {
    let mut prefix: String = format!("{}-{name}", kind.to_lowercase()).chars().take(NAME_MAX).collect();
    prefix.push('-');
    prefix
}

/// How long a job may run, in seconds.
fn longest_run(job: &Value) -> Option<i64> {
    job["metadata"]["labels"][LONGEST_RUN].as_str()?.parse().ok()
}

/// The annotations of a job that its Workload has, too, because they have a meaning.
fn copied_annotations(job: &Value) -> Map<String, Value> {
    let is_copied = |key: &str, value: &Value| {
        key.starts_with(PARAMETER_PREFIX) || (key == GATED_BY && value != "") || OF_GANGS.contains(&key)
    };
    entries(&job["metadata"]["annotations"]).filter(|(key, value)| is_copied(key, value)).collect()
}

/// The annotations of a job that the planner uses and its Workload lacks; null for those that the job has no more. A Workload that was
/// there before its job keeps those that it has of its own.
pub fn new_gang_annotations(job: &Value, workload: &Value) -> Map<String, Value> {
    let of = |object: &Value, key: &str| object["metadata"]["annotations"][key].clone();
    let is_prebuilt = prebuilt_workload(job).is_some();
    let all = OF_GANGS.iter().map(|key| ((*key).to_owned(), of(job, key)));
    all.filter(|(key, value)| of(workload, key) != *value && !(is_prebuilt && value.is_null())).collect()
}

fn entries(map: &Value) -> impl Iterator<Item = (String, Value)> {
    map.as_object().into_iter().flatten().map(|(key, value)| (key.clone(), value.clone()))
}

/// Sets a field, with the objects around it. An object of another type stays: the API server refuses it.
pub(super) fn set_at(object: &mut Value, path: &[&str], value: Value) {
    let Some((field, rest)) = path.split_first() else {
        *object = value;
        return;
    };
    if object.is_null() {
        *object = Value::Object(Map::new());
    }
    if let Some(fields) = object.as_object_mut() {
        set_at(fields.entry(*field).or_insert(Value::Null), rest, value);
    }
}

/// Whether two pod sets are the same as far as a Workload goes: counts, what they ask for, and tolerations, after `ComparePodSets`
/// of Kueue, and with the resources of whole pods.
fn is_same_set(one: &Value, other: &Value, ignores_tolerations: bool) -> bool {
    let list = |set: &Value, field: &str| -> Vec<Value> {
        set["template"]["spec"][field].as_array().cloned().unwrap_or_default()
    };
    let is_same = |field: &str| list(one, field) == list(other, field);
    let resources = |set: &Value| set["template"]["spec"]["resources"].clone();
    one["count"] == other["count"]
        && one["minCount"] == other["minCount"]
        && resources(one) == resources(other)
        && is_same("resourceClaims")
        && is_same("containers")
        && is_same("initContainers")
        && (ignores_tolerations || is_same("tolerations"))
}
