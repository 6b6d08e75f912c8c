//! Builders of the objects that cases create, and readers of their fields.

use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

/// A namespaced kind: API version and kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind(pub &'static str, pub &'static str);

/// Pods.
pub const POD: Kind = Kind("v1", "Pod");
/// Nodes; they have no namespace.
pub const NODE: Kind = Kind("v1", "Node");
/// Services.
pub const SERVICE: Kind = Kind("v1", "Service");
/// `ConfigMaps`.
pub const CONFIG_MAP: Kind = Kind("v1", "ConfigMap");
/// Events.
pub const EVENT: Kind = Kind("v1", "Event");
/// Jobs.
pub const JOB: Kind = Kind("batch/v1", "Job");
/// Deployments.
pub const DEPLOYMENT: Kind = Kind("apps/v1", "Deployment");
/// `DaemonSets`.
pub const DAEMON_SET: Kind = Kind("apps/v1", "DaemonSet");
/// `StatefulSets`.
pub const STATEFUL_SET: Kind = Kind("apps/v1", "StatefulSet");
/// Ingresses.
pub const INGRESS: Kind = Kind("networking.k8s.io/v1", "Ingress");
/// `RayClusters`.
pub const RAY_CLUSTER: Kind = Kind("ray.io/v1", "RayCluster");
/// `RayJobs`.
pub const RAY_JOB: Kind = Kind("ray.io/v1", "RayJob");
/// Workloads of Kueue's API.
pub const WORKLOAD: Kind = Kind("kueue.x-k8s.io/v1beta2", "Workload");
/// Kueue's local queues.
pub const LOCAL_QUEUE: Kind = Kind("kueue.x-k8s.io/v1beta2", "LocalQueue");
/// Kueue's cluster queues; they have no namespace.
pub const CLUSTER_QUEUE: Kind = Kind("kueue.x-k8s.io/v1beta2", "ClusterQueue");
/// Kueue's flavors; they have no namespace.
pub const RESOURCE_FLAVOR: Kind = Kind("kueue.x-k8s.io/v1beta2", "ResourceFlavor");
/// Kueue's priority classes; they have no namespace.
pub const PRIORITY_CLASS: Kind = Kind("kueue.x-k8s.io/v1beta2", "WorkloadPriorityClass");
/// `AppWrappers` of the group `workload.codeflare.dev`.
pub const WRAPPER: Kind = Kind("workload.codeflare.dev/v1beta1", "AppWrapper");
/// `AppWrappers` of the older group `mcad.ibm.com`.
pub const OLD_WRAPPER: Kind = Kind("mcad.ibm.com/v1beta1", "AppWrapper");

/// A manifest of the folder `examples`, without its namespace.
pub fn example(name: &str) -> Result<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut manifest: Value =
        serde_saphyr::from_str(&text).with_context(|| format!("cannot read {}", path.display()))?;
    remove_namespace(&mut manifest);
    for item in manifest["spec"]["resources"]["GenericItems"].as_array_mut().into_iter().flatten() {
        if item["generictemplate"]["metadata"]["namespace"] == "default" {
            remove_namespace(&mut item["generictemplate"]);
        }
    }
    Ok(manifest)
}

fn remove_namespace(object: &mut Value) {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("namespace");
    }
}

/// The wrapper and its first object with other names.
pub fn renamed(mut wrapper: Value, name: &str, object: &str) -> Value {
    wrapper["metadata"]["name"] = json!(name);
    wrapper["spec"]["resources"]["GenericItems"][0]["generictemplate"]["metadata"]["name"] = json!(object);
    wrapper
}

/// An AppWrapper of these objects.
pub fn wrap(name: &str, objects: impl IntoIterator<Item = Value>) -> Value {
    let items = objects.into_iter().map(|object| json!({"replicas": 1, "generictemplate": object}));
    json!({
        "apiVersion": WRAPPER.0, "kind": WRAPPER.1, "metadata": {"name": name},
        "spec": {"resources": {"GenericItems": items.collect::<Vec<_>>()}},
    })
}

/// The object with another value at a JSON pointer.
pub fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    let mut at = &mut object;
    for key in pointer.split('/').skip(1) {
        at = match key.parse::<usize>() {
            Ok(index) if at.is_array() => &mut at[index],
            _ => &mut at[key],
        };
    }
    *at = value;
    object
}

/// The wrapper with this `completionstatus` for its first object.
pub fn done_with(wrapper: Value, condition: &str) -> Value {
    with(wrapper, "/spec/resources/GenericItems/0/completionstatus", json!(condition))
}

/// A Job with this number of parallel pods, their requests such as `cpu=1 memory=1Gi`, and their run time.
pub fn job(name: &str, pods: u32, requests: &str, run_time: &str) -> Value {
    let mut template = template(name, requests);
    template["spec"]["restartPolicy"] = json!("Never");
    template["metadata"]["annotations"] = json!({"sandbox.muster.dev/run-time": run_time});
    json!({
        "apiVersion": JOB.0, "kind": JOB.1, "metadata": {"name": name},
        "spec": {"parallelism": pods, "completions": pods, "backoffLimit": 0, "template": template},
    })
}

/// A pod that never completes.
pub fn pod(name: &str, requests: &str) -> Value {
    let template = template(name, requests);
    json!({
        "apiVersion": POD.0, "kind": POD.1, "spec": template["spec"],
        "metadata": {"name": name, "labels": template["metadata"]["labels"]},
    })
}

/// A node with these resources, such as `cpu=4 nvidia.com/gpu=1`. KWOK simulates its kubelet.
pub fn node(name: &str, resources: &str) -> Value {
    let mut resources = amounts(&format!("memory=64Gi pods=110 {resources}"));
    resources["ephemeral-storage"] = json!("100Gi");
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name, "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"},
        },
        "status": {"capacity": resources, "allocatable": resources},
    })
}

/// Whether a node is ready and has no taints.
pub fn is_ready_node(node: &Value) -> bool {
    has_condition(node, "Ready") && node["spec"]["taints"].is_null()
}

/// A Deployment.
pub fn deployment(name: &str, replicas: u32, requests: &str) -> Value {
    json!({
        "apiVersion": DEPLOYMENT.0, "kind": DEPLOYMENT.1, "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template(name, requests)},
    })
}

/// A `StatefulSet`.
pub fn stateful_set(name: &str, replicas: u32, requests: &str) -> Value {
    json!({
        "apiVersion": STATEFUL_SET.0, "kind": STATEFUL_SET.1, "metadata": {"name": name},
        "spec": {"replicas": replicas, "serviceName": name, "selector": {"matchLabels": {"app": name}},
            "template": template(name, requests)},
    })
}

/// A `RayCluster` of a head and a group `small` of workers, all with the same requests.
pub fn ray_cluster(name: &str, requests: &str, workers: u32) -> Value {
    let mut template = template(name, requests);
    template["spec"]["containers"][0]["image"] = json!("rayproject/ray:2.46.0");
    json!({
        "apiVersion": RAY_CLUSTER.0, "kind": RAY_CLUSTER.1, "metadata": {"name": name},
        "spec": {
            "rayVersion": "2.46.0",
            "headGroupSpec": {"rayStartParams": {}, "template": template},
            "workerGroupSpecs": [{"groupName": "small", "replicas": workers, "minReplicas": 0, "maxReplicas": 9,
                "rayStartParams": {}, "template": template}],
        },
    })
}

/// A Service for the pods with this `app` label.
pub fn service(name: &str) -> Value {
    json!({
        "apiVersion": SERVICE.0, "kind": SERVICE.1, "metadata": {"name": name},
        "spec": {"selector": {"app": name}, "ports": [{"port": 80}]},
    })
}

/// A `ConfigMap`.
pub fn config_map(name: &str) -> Value {
    json!({"apiVersion": CONFIG_MAP.0, "kind": CONFIG_MAP.1, "metadata": {"name": name}, "data": {"key": "value"}})
}

fn template(name: &str, requests: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": name}},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "work", "image": "busybox:1.36",
                "resources": {"requests": amounts(requests), "limits": amounts(requests)}}],
        },
    })
}

/// Parses resources such as `cpu=1 memory=1Gi`.
pub fn amounts(text: &str) -> Value {
    text.split_whitespace()
        .filter_map(|pair| pair.split_once('='))
        .map(|(key, value)| (key, json!(value)))
        .collect()
}

/// The conditions of a wrapper that MCAD has, too: type, reason and message on one line each.
pub fn condition_lines(wrapper: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let line = |c: &Value| format!("{} {} {}", text(&c["type"]), text(&c["reason"]), text(&c["message"]));
    let conditions = wrapper["status"]["conditions"].as_array();
    let of_mcad = conditions
        .into_iter()
        .flatten()
        .filter(|c| c["type"] != "PlacesReserved" && c["type"] != "NodesAvoided");
    of_mcad.map(|c| line(c).trim_end().to_owned()).collect()
}

/// The status of a wrapper without conditions and time stamps.
pub fn summary(wrapper: &Value) -> Value {
    let mut status = wrapper["status"].clone();
    if let Some(fields) = status.as_object_mut() {
        fields.retain(|key, _| key != "conditions" && !key.ends_with("timestamp"));
    }
    status
}

/// The name of an object.
pub fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// Whether a condition of this type is true.
pub fn has_condition(object: &Value, condition: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|c| c["type"] == condition && c["status"] == "True")
}
