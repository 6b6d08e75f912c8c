//! Pods that wait for a Workload, one by one or as a group. After `pkg/controller/jobs/pod` of Kueue v0.19.
//!
//! A pod is held back by a scheduling gate, and stopped by its deletion. Groups of pods are in `pod_group`.

use serde_json::{Value, json};

use super::role_hash::role_hash;
use super::{
    Finished, Injection, InjectionError, Integration, JobKind, MAIN, TOPOLOGY_GATE, annotation, topology,
};
use crate::value::list;
use crate::{MicroTime, scheduling_gate};

/// The label and the finalizer of pods that wait for a Workload.
pub const MANAGED: &str = "kueue.x-k8s.io/managed";
/// The scheduling gate of pods whose Workload is not admitted.
pub const ADMISSION_GATE: &str = "kueue.x-k8s.io/admission";
/// The annotation of pods that another object of Kueue's API holds back, with its kind.
pub const SUSPENDED_BY: &str = "kueue.x-k8s.io/pod-suspending-parent";
/// What holds back the pods of a Deployment, which wait one by one.
pub const DEPLOYMENT: &str = "deployment";
/// What holds back the pods of a `StatefulSet`, which start together.
pub const STATEFUL_SET: &str = "statefulset";
/// The annotation (or label) of pods with the name of their group.
pub const GROUP_NAME: &str = "kueue.x-k8s.io/pod-group-name";
/// The annotation of pods with the number of pods of their group.
pub const GROUP_TOTAL: &str = "kueue.x-k8s.io/pod-group-total-count";
/// The annotation of a group whose Workload is made from its first pod.
pub const FAST_ADMISSION: &str = "kueue.x-k8s.io/pod-group-fast-admission";
/// The annotation of a group that never ends.
pub const SERVING: &str = "kueue.x-k8s.io/pod-group-serving";
/// The annotation of pods with the name of their pod set.
pub const ROLE_HASH: &str = "kueue.x-k8s.io/role-hash";
/// The annotation of pods; with `false`, no pod of their group is replaced.
pub const RETRIABLE: &str = "kueue.x-k8s.io/retriable-in-group";
/// The label of pods with their index in the group.
pub const GROUP_INDEX: &str = "kueue.x-k8s.io/pod-group-pod-index";
/// The annotation of pods with the name of another label that has their index.
pub const GROUP_INDEX_LABEL: &str = "kueue.x-k8s.io/pod-group-pod-index-label";
/// The annotation of the Workload of a group.
pub const IS_GROUP: &str = "kueue.x-k8s.io/is-group-workload";
/// The condition of a pod that is being stopped, with the reason.
pub const TERMINATION_TARGET: &str = "TerminationTarget";

/// The row of pods.
pub(crate) const POD: JobKind =
    JobKind { framework: "pod", api_version: "v1", kind: "Pod", plural: "pods", integration: &Pod };

/// A pod that is no member of a group.
#[derive(Debug)]
struct Pod;

impl Integration for Pod {
    fn is_suspended(&self, pod: &Value) -> bool {
        is_gated(pod) || is_ended(pod)
    }

    /// Only a pod that is not stored yet can be held back.
    fn set_suspended(&self, pod: &mut Value, is_suspended: bool) {
        let spec = &mut pod["spec"];
        if is_suspended {
            scheduling_gate::add_to(spec, ADMISSION_GATE);
        } else {
            scheduling_gate::remove_from(spec, ADMISSION_GATE);
        }
    }

    fn pod_sets(&self, pod: &Value) -> Vec<Value> {
        vec![pod_set(pod, MAIN, 1)]
    }

    fn templates(&self, _: &Value) -> Vec<String> {
        vec![String::new()]
    }

    /// A pod is deleted when it is stopped.
    fn is_active(&self, _: &Value) -> bool {
        false
    }

    fn are_pods_ready(&self, pod: &Value) -> bool {
        is_ready(pod)
    }

    fn finished(&self, pod: &Value) -> Option<Finished> {
        let message = || pod["status"]["message"].as_str().unwrap_or_default().to_owned();
        is_ended(pod).then(|| Finished { succeeded: phase(pod) == "Succeeded", message: message() })
    }
}

/// The name of the group of a pod; `None` for a pod alone.
pub fn group_name(pod: &Value) -> Option<&str> {
    let label = || pod["metadata"]["labels"][GROUP_NAME].as_str();
    annotation(pod, GROUP_NAME).filter(|name| !name.is_empty()).or_else(label).filter(|name| !name.is_empty())
}

/// The number of pods of the group of a pod.
///
/// # Errors
///
/// The annotation is missing, or no number of pods.
pub fn group_total(pod: &Value) -> Result<u32, String> {
    let text = annotation(pod, GROUP_TOTAL)
        .ok_or_else(|| format!("failed to extract '{GROUP_TOTAL}' annotation"))?;
    let total: i64 = text.parse().map_err(|_| format!("strconv.Atoi: parsing {text:?}: invalid syntax"))?;
    u32::try_from(total).ok().filter(|total| *total > 0).ok_or_else(|| {
        format!(
            "incorrect annotation value '{GROUP_TOTAL}={text}': group total count should be greater than zero"
        )
    })
}

/// The name of the pod set of a pod: its role.
pub fn role(pod: &Value) -> String {
    annotation(pod, ROLE_HASH).map_or_else(|| role_hash(&pod["spec"]), str::to_owned)
}

/// Whether the scheduling gate of Workloads holds a pod back.
pub fn is_gated(pod: &Value) -> bool {
    scheduling_gate::is_in(&pod["spec"], ADMISSION_GATE)
}

/// Whether a pod has ended.
pub fn is_ended(pod: &Value) -> bool {
    ["Succeeded", "Failed"].contains(&phase(pod))
}

/// Whether a pod keeps the finalizer of Workloads.
pub(super) fn has_finalizer(pod: &Value) -> bool {
    list(pod, &["metadata", "finalizers"]).iter().any(|finalizer| finalizer == MANAGED)
}

/// The pod as it runs: with what its admission adds, and without the gate.
///
/// # Errors
///
/// The pod has another value where the admission demands one.
pub fn start(pod: &Value, injection: &Injection) -> Result<Value, InjectionError> {
    let mut started = pod.clone();
    injection.inject(&mut started)?;
    let spec = &mut started["spec"];
    scheduling_gate::remove_from(spec, ADMISSION_GATE);
    // The API server refuses gates that a pod did not have from the beginning.
    if !scheduling_gate::is_in(&pod["spec"], TOPOLOGY_GATE) || !injection.has_places() {
        scheduling_gate::remove_from(spec, TOPOLOGY_GATE);
    }
    Ok(started)
}

/// Until when a pod that has not ended counts: for ever, or until its deletion should have ended. `None`: no longer. One that is
/// deleted before it runs does not start, and with `is_fast`, none that is deleted counts.
pub fn active_until(pod: &Value, now: MicroTime, is_fast: bool) -> Option<MicroTime> {
    if is_deleting(pod) && (is_fast || phase(pod) != "Running") {
        return None;
    }
    let meta = &pod["metadata"];
    let deleted = time(&meta["deletionTimestamp"]).zip(meta["deletionGracePeriodSeconds"].as_i64());
    let end = deleted
        .map_or(i64::MAX, |(deleted, grace)| deleted.0.saturating_add(grace.saturating_mul(1_000_000)));
    (end > now.0).then_some(MicroTime(end))
}

pub(super) fn phase(pod: &Value) -> &str {
    pod["status"]["phase"].as_str().unwrap_or_default()
}

pub(super) fn is_ready(pod: &Value) -> bool {
    let conditions = list(pod, &["status", "conditions"]);
    conditions
        .iter()
        .find(|condition| condition["type"] == "Ready")
        .is_some_and(|ready| ready["status"] == "True")
}

pub(super) fn is_deleting(pod: &Value) -> bool {
    !pod["metadata"]["deletionTimestamp"].is_null()
}

/// Whether a pod runs, may run, or has succeeded. One that is deleted before it has a node will not.
pub(super) fn is_runnable_or_succeeded(pod: &Value) -> bool {
    let has_node = pod["spec"]["nodeName"].as_str().is_some_and(|name| !name.is_empty());
    (!is_deleting(pod) || has_node) && phase(pod) != "Failed"
}

/// The pod set of pods like this one.
pub(super) fn pod_set(pod: &Value, name: &str, count: u32) -> Value {
    let mut set = json!({"name": name, "count": count, "template": {"spec": pod["spec"]}});
    if let Some(request) = topology::request(pod, Some(GROUP_INDEX)) {
        set["topologyRequest"] = request;
    }
    set
}

pub(super) fn time(value: &Value) -> Option<MicroTime> {
    MicroTime::parse(value.as_str()?)
}
