//! Sets of pods that wait for Workloads as groups: `StatefulSets`, and what `LeaderWorkerSets` have in common with them. After
//! `pkg/controller/jobs/statefulset` of Kueue v0.19.
//!
//! The webhook marks the template of a set, so its pods are held back. A `StatefulSet` has one Workload; its pods become a group of
//! that name, which starts and stops them. One with zero replicas keeps its Workload, without quota.

use serde_json::{Map, Value, json};

use super::pods::{
    ADMISSION_GATE, FAST_ADMISSION, GROUP_INDEX_LABEL, GROUP_NAME, GROUP_TOTAL, IS_GROUP, MANAGED, ROLE_HASH,
    SERVING, SUSPENDED_BY, group_name, is_ended, is_gated,
};
use super::{
    Finished, Integration, JobKind, MAIN, PREBUILT, PRIORITY_CLASS, Priority, QUEUE_NAME, TOPOLOGY_GATE,
    annotation, copied_annotations, queue_name, set_at, topology,
};
use crate::kueue::FINALIZER;
use crate::kueue::workload::{API_VERSION, JOB_UID};
use crate::scheduling_gate;
use crate::value::count;

/// The label of the pods of a set with their index.
const INDEX: &str = "apps.kubernetes.io/pod-index";
/// The label of the pods of a set with the revision of their template.
const REVISION: &str = "controller-revision-hash";
/// The annotations of a Workload with the kind and the name of the set.
const OWNER_KIND: &str = "kueue.x-k8s.io/job-owner-gvk";
const OWNER_NAME: &str = "kueue.x-k8s.io/job-owner-name";

/// The row of `StatefulSets`.
pub(crate) const STATEFUL_SET: JobKind = JobKind {
    framework: super::pods::STATEFUL_SET,
    api_version: "apps/v1",
    kind: "StatefulSet",
    plural: "statefulsets",
    integration: &SetOfPods { hold_back, pod_sets },
};

/// A set that is not suspended itself: its pods are, as members of groups, and what they do is asked of their groups.
#[derive(Debug)]
pub(super) struct SetOfPods {
    /// Marks the templates, so that the pods are held back.
    pub(super) hold_back: fn(&mut Value),
    /// The pod sets of a group.
    pub(super) pod_sets: fn(&Value) -> Vec<Value>,
}

impl Integration for SetOfPods {
    fn is_suspended(&self, set: &Value) -> bool {
        count(set, &["status", "readyReplicas"], 0) == 0
    }

    fn set_suspended(&self, set: &mut Value, is_suspended: bool) {
        if is_suspended {
            (self.hold_back)(set);
        }
    }

    fn pod_sets(&self, set: &Value) -> Vec<Value> {
        (self.pod_sets)(set)
    }

    fn templates(&self, _: &Value) -> Vec<String> {
        Vec::new()
    }

    fn is_active(&self, _: &Value) -> bool {
        false
    }

    fn are_pods_ready(&self, _: &Value) -> bool {
        false
    }

    fn finished(&self, _: &Value) -> Option<Finished> {
        None
    }
}

fn hold_back(set: &mut Value) {
    let path = ["spec", "template", "metadata", "annotations", SUSPENDED_BY];
    set_at(set, &path, STATEFUL_SET.framework.into());
}

fn pod_sets(set: &Value) -> Vec<Value> {
    let template = &set["spec"]["template"];
    let mut main = json!({"name": MAIN, "count": replicas(set), "template": {"spec": template["spec"]}});
    if let Some(request) = topology::request(template, Some(INDEX)) {
        main["topologyRequest"] = request;
    }
    vec![main]
}

/// The number of pods of a set.
pub fn replicas(set: &Value) -> u32 {
    count(set, &["spec", "replicas"], 1)
}

/// The names that the Workload of a set may have: the present one, and the one that older versions of Kueue gave.
pub fn workload_names(set: &Value) -> [String; 2] {
    let [name, uid] = ["name", "uid"].map(|field| set["metadata"][field].as_str().unwrap_or_default());
    [uid, ""].map(|uid| STATEFUL_SET.workload_name(name, uid))
}

impl JobKind {
    /// The Workload of a group of a set of pods, as it is created.
    pub fn group_workload(&self, set: &Value, name: &str, priority: &Priority) -> Value {
        let mut annotations = copied_annotations(set);
        annotations.insert(IS_GROUP.into(), "true".into());
        annotations.extend(self.owner_annotations(set));
        json!({
            "apiVersion": API_VERSION,
            "kind": "Workload",
            "metadata": {
                "name": name,
                "namespace": set["metadata"]["namespace"],
                "labels": {JOB_UID: set["metadata"]["uid"]},
                "annotations": annotations,
                "finalizers": [FINALIZER],
                "ownerReferences": [self.group_owner(set)],
            },
            "spec": self.workload_spec(set, priority),
        })
    }

    /// The owner reference of a Workload to its set of pods: one of several.
    pub fn group_owner(&self, set: &Value) -> Value {
        let meta = &set["metadata"];
        json!({"apiVersion": self.api_version, "kind": self.kind, "name": meta["name"], "uid": meta["uid"]})
    }

    /// The annotations of a Workload with what its set of pods is.
    pub fn owner_annotations(&self, set: &Value) -> Map<String, Value> {
        let kind = format!("{}, Kind={}", self.api_version, self.kind);
        Map::from_iter([
            (OWNER_KIND.to_owned(), kind.into()),
            (OWNER_NAME.to_owned(), set["metadata"]["name"].clone()),
        ])
    }
}

/// The pod of a set as a member of the group with this name; `None` if it is one, or is none of the pods that wait.
pub fn member(set: &Value, pod: &Value, group: &str) -> Option<Value> {
    if annotation(pod, SUSPENDED_BY) != Some(STATEFUL_SET.framework) || is_ended(pod) {
        return None;
    }
    let queue = queue_name(set);
    let mut member = pod.clone();
    let mut put =
        |field: &str, key: &str, value: Value| set_at(&mut member, &["metadata", field, key], value);
    if !queue.is_empty() {
        put("labels", QUEUE_NAME, queue.into());
    }
    if group_name(pod) != Some(group) {
        put("labels", MANAGED, "true".into());
        let class = set["metadata"]["labels"][PRIORITY_CLASS].as_str().filter(|class| !class.is_empty());
        if let Some(class) = class {
            put("labels", PRIORITY_CLASS, class.into());
        }
        // Kueue before 0.18 reads the labels.
        for key in [GROUP_NAME, PREBUILT] {
            put("annotations", key, group.into());
        }
        put("annotations", GROUP_TOTAL, replicas(set).to_string().into());
        put("annotations", FAST_ADMISSION, "true".into());
        put("annotations", SERVING, "true".into());
        put("annotations", GROUP_INDEX_LABEL, INDEX.into());
        put("annotations", ROLE_HASH, MAIN.into());
    }
    if is_outdated(set, pod) && is_gated(pod) {
        for gate in [ADMISSION_GATE, TOPOLOGY_GATE] {
            scheduling_gate::remove_from(&mut member["spec"], gate);
        }
    }
    (member != *pod).then_some(member)
}

/// Whether a pod has the old template of a set that changes: the set replaces it, and waits until it runs before it goes on.
fn is_outdated(set: &Value, pod: &Value) -> bool {
    let [current, next] = ["currentRevision", "updateRevision"].map(|field| &set["status"][field]);
    current != next && *current == pod["metadata"]["labels"][REVISION]
}
