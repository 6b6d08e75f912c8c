//! The scheduling gate of gang pods (KEP-3521): keeps a pod from kube-scheduler until the controller has set its node.
//!
//! One pod template cannot assign many pods to many nodes, so the template only gets the gate. When a pod exists, one
//! patch sets its node selector and removes the gate.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::kueue::jobs::pods::ADMISSION_GATE;
use crate::kueue::jobs::{ELASTIC_GATE, TOPOLOGY_GATE};
use crate::pod_rules::PodRules;
use crate::value::{list, text};
use crate::volumes::{self, ClaimUses};
use crate::wrapped_kinds::pod_specs_mut;

/// Name of the scheduling gate.
pub const GATE: &str = "muster.dev/placement";
/// All gates that Muster adds to pods and templates, and that nothing removes without it or, but for the first, Kueue.
pub const GATES: [&str; 4] = [GATE, ADMISSION_GATE, TOPOLOGY_GATE, ELASTIC_GATE];
/// Label that the node selector of an ungated pod refers to.
pub const HOSTNAME: &str = "kubernetes.io/hostname";

/// Adds the gate to every pod template of an object before its creation. Three kinds of templates are not gated: those of
/// kinds whose pods are not followed ([`crate::wrapped_kinds`]), those with `nodeName`, which the API server refuses with
/// a gate, and those with constraints that the planner does not evaluate ([`unplanned`]), because the planned node might
/// violate them. `are_references_planned`: the planner knows the nodes of claims. If the schema of the object has no
/// gates, the API server prunes the gate.
pub fn add_gate(object: &mut Value, are_references_planned: bool) {
    let has_claims = !volumes::templates(object).is_empty();
    let is_gated = |spec: &&mut Value| {
        text(spec, &["nodeName"]).is_none()
            && unplanned(spec, &PodRules::read(spec)).is_empty()
            && (are_references_planned || !has_claims && ClaimUses::read(spec).is_empty())
    };
    for spec in pod_specs_mut(object).into_iter().filter(is_gated) {
        add_to(spec, GATE);
    }
}

/// Whether a pod spec has a gate.
pub(crate) fn is_in(spec: &Value, gate: &str) -> bool {
    list(spec, &["schedulingGates"]).iter().any(|found| text(found, &["name"]) == Some(gate))
}

/// Adds a gate to a pod spec, if it lacks it.
pub(crate) fn add_to(spec: &mut Value, gate: &str) {
    if is_in(spec, gate) {
        return;
    }
    let Some(fields) = spec.as_object_mut() else { return };
    let gates = fields.entry("schedulingGates").or_insert_with(|| json!([]));
    if let Some(gates) = gates.as_array_mut() {
        gates.push(json!({ "name": gate }));
    }
}

/// Removes a gate from a pod spec. Returns whether it had it.
pub(crate) fn remove_from(spec: &mut Value, gate: &str) -> bool {
    let Some(Value::Array(gates)) = spec.get_mut("schedulingGates") else { return false };
    let before = gates.len();
    gates.retain(|found| text(found, &["name"]) != Some(gate));
    let is_removed = gates.len() < before;
    if gates.is_empty()
        && let Some(fields) = spec.as_object_mut()
    {
        fields.remove("schedulingGates");
    }
    is_removed
}

/// The constraints of a pod with these rules that the planner does not evaluate.
pub(crate) fn unplanned(spec: &Value, rules: &PodRules) -> Vec<&'static str> {
    let found = [
        (!rules.is_planned(), "more than 100 affinity terms and topology spread constraints"),
        (!list(spec, &["resourceClaims"]).is_empty(), "resource claims"),
    ];
    found.into_iter().filter(|(is_found, _)| *is_found).map(|(_, text)| text).collect()
}

/// Removes these gates from every pod template of an object. Returns how many templates had one.
pub fn remove_gates(object: &mut Value, gates: &[&str]) -> usize {
    let remove = |spec: &mut Value| {
        let removed: Vec<bool> = gates.iter().map(|gate| remove_from(spec, gate)).collect();
        removed.contains(&true)
    };
    pod_specs_mut(object).into_iter().map(|spec| usize::from(remove(spec))).sum()
}

/// The strategic merge patch that removes gates of the pod with this uid and adds to its node selector.
pub fn remove_gate(uid: &str, gates: &[&str], node_selector: &BTreeMap<String, String>) -> Value {
    let removed: Vec<Value> = gates.iter().map(|gate| json!({ "name": gate, "$patch": "delete" })).collect();
    let mut spec = json!({ "schedulingGates": removed });
    if !node_selector.is_empty() {
        spec["nodeSelector"] = json!(node_selector);
    }
    json!({ "metadata": { "uid": uid }, "spec": spec })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pod_template_of_a_known_kind_is_gated_once() {
        let pod = || json!({ "spec": { "containers": [{ "name": "c" }] } });
        let template = || json!({ "template": pod() });
        let cluster = || json!({ "headGroupSpec": template(), "workerGroupSpecs": [template(), template()] });
        let cases = [
            (json!({ "apiVersion": "v1", "kind": "Pod", "spec": pod()["spec"] }), 1),
            (json!({ "apiVersion": "apps/v1", "kind": "Deployment", "spec": template() }), 1),
            (json!({ "apiVersion": "ray.io/v1", "kind": "RayCluster", "spec": cluster() }), 3),
            (
                json!({ "apiVersion": "ray.io/v1", "kind": "RayService", "spec": { "rayClusterConfig": cluster() } }),
                3,
            ),
            (
                json!({ "apiVersion": "ray.io/v1", "kind": "RayJob",
                    "spec": { "rayClusterSpec": cluster(), "submitterPodTemplate": pod() } }),
                4,
            ),
            (
                json!({ "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
                    "spec": { "replicatedJobs": [{ "template": { "spec": template() } }] } }),
                1,
            ),
            (
                json!({ "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
                    "spec": { "pytorchReplicaSpecs": { "Master": template(), "Worker": template() } } }),
                2,
            ),
            (json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": {} }), 0),
            (
                json!({ "apiVersion": "apps/v1", "kind": "Deployment", "spec": { "template": { "spec": 3 } } }),
                0,
            ),
            (json!({ "apiVersion": "example.com/v1", "kind": "Foreign", "spec": template() }), 0),
            // Their operators set the nodes of the pods, or create objects that are not followed.
            (json!({ "apiVersion": "apps/v1", "kind": "DaemonSet", "spec": template() }), 0),
            (
                json!({ "apiVersion": "kubeflow.org/v1", "kind": "Other", "spec": { "replicaSpecs": { "A": template() } } }),
                0,
            ),
            (json!({ "apiVersion": "apps/v1", "kind": "Deployment", "spec": [{ "template": 1 }] }), 0),
        ];
        for (mut object, gates) in cases {
            let name = object["kind"].clone();
            add_gate(&mut object, true);
            add_gate(&mut object, true);
            assert_eq!(object.to_string().matches(GATE).count(), gates, "{name}");
            assert_eq!(remove_gates(&mut object, &[GATE]), gates, "{name}");
            assert_eq!(remove_gates(&mut object, &[GATE]), 0, "{name}");
            assert!(!object.to_string().contains("schedulingGates"), "{name}");
        }
    }

    #[test]
    fn pods_with_unplanned_constraints_are_not_gated() {
        let apart = |count: usize| {
            let terms: Vec<Value> = (0..count).map(|_| json!({ "topologyKey": HOSTNAME })).collect();
            json!({ "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": terms } })
        };
        let cases = [
            ("affinity", apart(1), false),
            ("affinity", apart(101), true),
            ("topologySpreadConstraints", json!([{ "whenUnsatisfiable": "DoNotSchedule" }]), false),
            (
                "containers",
                json!([{ "name": "c", "ports": [{ "containerPort": 80, "hostPort": 80 }] }]),
                false,
            ),
            ("volumes", json!([{ "name": "v", "persistentVolumeClaim": { "claimName": "data" } }]), true),
            ("volumes", json!([{ "name": "v", "emptyDir": {} }]), false),
            ("resourceClaims", json!([{ "name": "gpu" }]), true),
            ("nodeName", json!("n"), true),
            ("nodeName", json!(""), false),
        ];
        for ((field, value, is_ungated), are_planned) in
            cases.into_iter().flat_map(|case| [(case.clone(), false), (case, true)])
        {
            let is_ungated = is_ungated && !(are_planned && field == "volumes");
            let mut pod = json!({ "apiVersion": "v1", "kind": "Pod", "spec": { field: value } });
            add_gate(&mut pod, are_planned);
            assert_eq!(pod["spec"].get("schedulingGates").is_none(), is_ungated, "{pod}");
        }
    }
}
