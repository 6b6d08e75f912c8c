//! The gate that keeps pods from the scheduler until each of them has been told its node.
//!
//! One template cannot pin many pods to many nodes, so it only gets a scheduling gate (KEP-3521). Pods are told their node
//! when they exist, by a node selector, in the same write that lifts the gate.

use serde_json::{Value, json};

use crate::appwrapper::ray_cluster_mut;
use crate::value::{at, integer, list, text};

/// Name of the scheduling gate.
pub const GATE: &str = "muster.dev/placement";
/// Label by which a pod is told its node.
pub const HOSTNAME: &str = "kubernetes.io/hostname";

/// Puts the gate into every pod template of an object that is about to be created. Templates of kinds whose pods could not
/// be told from others stay as they are, and so do those with rules that a plan does not know: a planned node might break
/// them. Where the object's definition knows no gates, the API server drops it.
pub fn close(object: &mut Value) {
    for spec in pod_specs(object).into_iter().filter(|spec| !has_rules_beyond_nodes(spec)) {
        let Some(fields) = spec.as_object_mut() else { continue };
        let gates = fields.entry("schedulingGates").or_insert_with(|| json!([]));
        if let Some(gates) = gates.as_array_mut()
            && !gates.iter().any(|gate| text(gate, &["name"]) == Some(GATE))
        {
            gates.push(json!({ "name": GATE }));
        }
    }
}

/// Whether pods depend on more than labels, taints and free amounts of their node: on other pods, on ports of the host, or on
/// where a volume or a claimed device is.
fn has_rules_beyond_nodes(spec: &Value) -> bool {
    let is_filled = |value: &Value| value.as_array().is_some_and(|list| !list.is_empty());
    let required = |kind: &str| {
        is_filled(at(spec, &["affinity", kind, "requiredDuringSchedulingIgnoredDuringExecution"]))
    };
    let on_host = at(spec, &["hostNetwork"]) == true;
    let takes_port = |container: &Value| {
        let mut ports = list(container, &["ports"]).iter();
        ports.any(|port| on_host || integer(at(port, &["hostPort"])).is_some_and(|port| port > 0))
    };
    let is_bound =
        |volume: &Value| ["persistentVolumeClaim", "ephemeral"].iter().any(|kind| volume.get(kind).is_some());
    required("podAffinity")
        || required("podAntiAffinity")
        || list(spec, &["topologySpreadConstraints"])
            .iter()
            .any(|rule| text(rule, &["whenUnsatisfiable"]) != Some("ScheduleAnyway"))
        || list(spec, &["containers"]).iter().chain(list(spec, &["initContainers"])).any(takes_port)
        || list(spec, &["volumes"]).iter().any(is_bound)
        || is_filled(at(spec, &["resourceClaims"]))
}

/// The strategic merge patch that lifts the gate of the pod with this identity, and pins it to nodes with this value of
/// [`HOSTNAME`], if one is given.
pub fn remove_gate(uid: &str, host: Option<&str>) -> Value {
    let mut spec = json!({ "schedulingGates": [{ "name": GATE, "$patch": "delete" }] });
    if let Some(host) = host {
        spec["nodeSelector"] = json!({ HOSTNAME: host });
    }
    json!({ "metadata": { "uid": uid }, "spec": spec })
}

/// The specifications of pods in an object, where its controller reads them; see `demand`, which counts those pods.
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
        // What is made of others, and by whom, is not known: nobody would find their pods to lift the gate.
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
    fn every_pod_template_that_is_counted_gets_the_gate() {
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
            close(&mut object);
            close(&mut object);
            assert_eq!(object.to_string().matches(GATE).count(), gates, "{name}");
        }
    }
    #[test]
    fn pods_that_depend_on_more_than_their_node_choose_it_themselves() {
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
        for (field, value, is_free) in cases {
            let mut pod = json!({ "apiVersion": "v1", "kind": "Pod", "spec": { field: value } });
            close(&mut pod);
            assert_eq!(pod["spec"].get("schedulingGates").is_none(), is_free, "{pod}");
        }
        let mut on_host = json!({ "apiVersion": "v1", "kind": "Pod",
            "spec": { "hostNetwork": true, "containers": port(json!({ "containerPort": 80 })) } });
        close(&mut on_host);
        assert!(on_host["spec"].get("schedulingGates").is_none());
    }
}
