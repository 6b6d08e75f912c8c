//! The scheduling gate of gang pods (KEP-3521): keeps a pod from kube-scheduler until the controller has set its node.
//!
//! One pod template cannot assign many pods to many nodes, so the template only gets the gate. When a pod exists, one
//! patch sets its node selector and removes the gate.

use serde_json::{Value, json};

use crate::appwrapper::ray_cluster_mut;
use crate::value::{at, integer, list, text};

/// Name of the scheduling gate.
pub const GATE: &str = "muster.dev/placement";
/// Label that the node selector of an ungated pod refers to.
pub const HOSTNAME: &str = "kubernetes.io/hostname";

/// Adds the gate to every pod template of an object before its creation. Two kinds of templates are not gated: those of
/// kinds whose pods cannot be mapped to pod sets, and those with scheduling constraints that the planner does not
/// evaluate, because the planned node might violate them. If the schema of the object has no gates, the API server
/// prunes the gate.
pub fn add_gate(object: &mut Value) {
    for spec in pod_specs(object).into_iter().filter(|spec| !has_unsupported_constraints(spec)) {
        let Some(fields) = spec.as_object_mut() else { continue };
        let gates = fields.entry("schedulingGates").or_insert_with(|| json!([]));
        if let Some(gates) = gates.as_array_mut()
            && !gates.iter().any(|gate| text(gate, &["name"]) == Some(GATE))
        {
            gates.push(json!({ "name": GATE }));
        }
    }
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

/// The strategic merge patch that removes the gate of the pod with this uid. With a `host`, it also sets a node
/// selector on [`HOSTNAME`].
pub fn remove_gate(uid: &str, host: Option<&str>) -> Value {
    let mut spec = json!({ "schedulingGates": [{ "name": GATE, "$patch": "delete" }] });
    if let Some(host) = host {
        spec["nodeSelector"] = json!({ HOSTNAME: host });
    }
    json!({ "metadata": { "uid": uid }, "spec": spec })
}

/// The pod specs of an object, at the paths that its controller reads; `demand` counts the same pods.
fn pod_specs(object: &mut Value) -> Vec<&mut Value> {
    let api_version = text(object, &["apiVersion"]).unwrap_or_default();
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    let kind = text(object, &["kind"]).unwrap_or_default();
    match (group, kind) {
        ("ray.io", "RayJob") => {
            let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return Vec::new() };
            let mut specs = Vec::new();
            for (key, value) in spec.iter_mut() {
                match key.as_str() {
                    "rayClusterSpec" => specs.extend(of_ray_cluster(value)),
                    "submitterPodTemplate" => specs.extend(value.get_mut("spec")),
                    _ => {}
                }
            }
            specs
        }
        ("ray.io", _) => ray_cluster_mut(object).map(of_ray_cluster).unwrap_or_default(),
        ("", "Pod") => object.get_mut("spec").into_iter().collect(),
        ("jobset.x-k8s.io", "JobSet") => {
            let jobs = object.pointer_mut("/spec/replicatedJobs").and_then(Value::as_array_mut);
            jobs.into_iter()
                .flatten()
                .filter_map(|job| job.pointer_mut("/template/spec/template/spec"))
                .collect()
        }
        ("kubeflow.org", _) => {
            let spec = object.get_mut("spec").and_then(Value::as_object_mut);
            let types = spec.into_iter().flatten().filter(|(key, _)| key.ends_with("ReplicaSpecs"));
            let replicas = types.filter_map(|(_, types)| types.as_object_mut()).flatten();
            replicas.filter_map(|(_, replica)| replica.pointer_mut("/template/spec")).collect()
        }
        ("apps" | "batch", _) => object.pointer_mut("/spec/template/spec").into_iter().collect(),
        // The pods of other kinds cannot be mapped to the gang, so their gate would never be removed.
        _ => Vec::new(),
    }
}

fn of_ray_cluster(cluster: &mut Value) -> Vec<&mut Value> {
    let Some(cluster) = cluster.as_object_mut() else { return Vec::new() };
    let mut specs = Vec::new();
    for (key, value) in cluster.iter_mut() {
        match (key.as_str(), value) {
            ("headGroupSpec", head) => specs.extend(head.pointer_mut("/template/spec")),
            ("workerGroupSpecs", Value::Array(groups)) => {
                specs.extend(groups.iter_mut().filter_map(|group| group.pointer_mut("/template/spec")));
            }
            _ => {}
        }
    }
    specs
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
        ];
        for (mut object, gates) in cases {
            let name = object["kind"].clone();
            add_gate(&mut object);
            add_gate(&mut object);
            assert_eq!(object.to_string().matches(GATE).count(), gates, "{name}");
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
