//! The scheduling gate of gang pods (KEP-3521): keeps a pod from kube-scheduler until the controller has set its node.
//!
//! One pod template cannot assign many pods to many nodes, so the template only gets the gate. When a pod exists, one
//! patch sets its node selector and removes the gate.

use serde_json::{Value, json};

use crate::value::{at, integer, list, text};
use crate::wrapped_kinds::pod_specs_mut;

/// Name of the scheduling gate.
pub const GATE: &str = "muster.dev/placement";
/// Label that the node selector of an ungated pod refers to.
pub const HOSTNAME: &str = "kubernetes.io/hostname";

/// Adds the gate to every pod template of an object before its creation. Three kinds of templates are not gated: those of
/// kinds whose pods are not followed ([`crate::wrapped_kinds`]), those with `nodeName`, which the API server refuses with
/// a gate, and those with scheduling constraints that the planner does not evaluate, because the planned node might
/// violate them. If the schema of the object has no gates, the API
/// server prunes the gate.
pub fn add_gate(object: &mut Value) {
    for spec in pod_specs_mut(object).into_iter().filter(|spec| may_be_gated(spec)) {
        let Some(fields) = spec.as_object_mut() else { continue };
        let gates = fields.entry("schedulingGates").or_insert_with(|| json!([]));
        if let Some(gates) = gates.as_array_mut()
            && !gates.iter().any(|gate| text(gate, &["name"]) == Some(GATE))
        {
            gates.push(json!({ "name": GATE }));
        }
    }
}

/// Whether a pod with the gate is created, and can run on its planned node.
fn may_be_gated(spec: &Value) -> bool {
    text(spec, &["nodeName"]).is_none() && !has_unsupported_constraints(spec)
}

/// Whether a pod has scheduling constraints beyond labels, taints and free resources of its node: inter-pod affinity,
/// topology spread constraints, host ports, volumes with topology, or resource claims.
fn has_unsupported_constraints(spec: &Value) -> bool {
    let is_filled = |value: &Value| value.as_array().is_some_and(|list| !list.is_empty());
    let required = |kind: &str| {
        is_filled(at(spec, &["affinity", kind, "requiredDuringSchedulingIgnoredDuringExecution"]))
    };
    let on_host = at(spec, &["hostNetwork"]) == true;
    let uses_host_port = |container: &Value| {
        let mut ports = list(container, &["ports"]).iter();
        ports.any(|port| on_host || integer(at(port, &["hostPort"])).is_some_and(|port| port > 0))
    };
    let has_topology =
        |volume: &Value| ["persistentVolumeClaim", "ephemeral"].iter().any(|kind| volume.get(kind).is_some());
    required("podAffinity")
        || required("podAntiAffinity")
        || list(spec, &["topologySpreadConstraints"])
            .iter()
            .any(|rule| text(rule, &["whenUnsatisfiable"]) != Some("ScheduleAnyway"))
        || list(spec, &["containers"]).iter().chain(list(spec, &["initContainers"])).any(uses_host_port)
        || list(spec, &["volumes"]).iter().any(has_topology)
        || is_filled(at(spec, &["resourceClaims"]))
}

/// Removes the gate from every pod template of an object. Returns from how many.
pub fn remove_gates(object: &mut Value) -> usize {
    let mut removed = 0;
    for spec in pod_specs_mut(object) {
        let Some(Value::Array(gates)) = spec.get_mut("schedulingGates") else { continue };
        let before = gates.len();
        gates.retain(|gate| text(gate, &["name"]) != Some(GATE));
        removed += usize::from(gates.len() < before);
        if gates.is_empty()
            && let Some(fields) = spec.as_object_mut()
        {
            fields.remove("schedulingGates");
        }
    }
    removed
}

/// The strategic merge patch that removes the gate of the pod with this uid. With a `host`, it also sets a node
/// selector on [`HOSTNAME`].
pub fn remove_gate(uid: &str, host: Option<&str>) -> Value {
    let mut spec = json!({ "schedulingGates": [{ "name": GATE, "$patch": "delete" }] });
    if let Some(host) = host {
        spec["nodeSelector"] = json!({ HOSTNAME: host });
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
            add_gate(&mut object);
            add_gate(&mut object);
            assert_eq!(object.to_string().matches(GATE).count(), gates, "{name}");
            assert_eq!(remove_gates(&mut object), gates, "{name}");
            assert_eq!(remove_gates(&mut object), 0, "{name}");
            assert!(!object.to_string().contains("schedulingGates"), "{name}");
        }
    }

    #[test]
    fn pods_with_unsupported_constraints_are_not_gated() {
        let apart = |when: &str| json!({ "podAntiAffinity": { when: [{ "topologyKey": HOSTNAME }] } });
        let port = |port: Value| json!([{ "name": "c", "ports": [port] }]);
        let cases = [
            ("affinity", apart("requiredDuringSchedulingIgnoredDuringExecution"), true),
            ("affinity", apart("preferredDuringSchedulingIgnoredDuringExecution"), false),
            ("topologySpreadConstraints", json!([{ "whenUnsatisfiable": "DoNotSchedule" }]), true),
            ("topologySpreadConstraints", json!([{ "whenUnsatisfiable": "ScheduleAnyway" }]), false),
            ("containers", port(json!({ "containerPort": 80, "hostPort": 80 })), true),
            ("containers", port(json!({ "containerPort": 80 })), false),
            ("volumes", json!([{ "name": "v", "persistentVolumeClaim": { "claimName": "data" } }]), true),
            ("volumes", json!([{ "name": "v", "emptyDir": {} }]), false),
            ("resourceClaims", json!([{ "name": "gpu" }]), true),
            ("nodeName", json!("n"), true),
            ("nodeName", json!(""), false),
        ];
        for (field, value, is_ungated) in cases {
            let mut pod = json!({ "apiVersion": "v1", "kind": "Pod", "spec": { field: value } });
            add_gate(&mut pod);
            assert_eq!(pod["spec"].get("schedulingGates").is_none(), is_ungated, "{pod}");
        }
        let mut on_host = json!({ "apiVersion": "v1", "kind": "Pod",
            "spec": { "hostNetwork": true, "containers": port(json!({ "containerPort": 80 })) } });
        add_gate(&mut on_host);
        assert!(on_host["spec"].get("schedulingGates").is_none());
    }
}
