//! The pods of Ray clusters, with the containers that KubeRay adds.

use serde_json::Value;

use super::{PodSet, role};
use crate::amounts::{AmountError, Amounts};
use crate::appwrapper::ray_cluster;
use crate::pod::{PodShape, container_request, string_map};
use crate::pod_rules::HostPort;
use crate::value::{at, count, list, text};

/// Role of the submitter pod of a `RayJob`.
pub const SUBMITTER: &str = "submitter";
/// Role of the head pod.
pub const HEAD: &str = "head";

const MI: i64 = 1 << 20;
/// The port for metrics that `KubeRay` adds to the Ray container.
const METRICS_PORT: u16 = 8080;

/// Default request of the autoscaler sidecar of the head pod.
fn autoscaler() -> Amounts {
    Amounts::from_iter([("cpu", 500), ("memory", 512 * MI)])
}

/// Request of the init container of a worker that waits for the head (`wait-gcs-ready`).
fn wait_gcs_ready() -> Amounts {
    Amounts::from_iter([("cpu", 200), ("memory", 256 * MI)])
}

/// Default request of the submitter container.
fn submitter() -> Amounts {
    Amounts::from_iter([("cpu", 500), ("memory", 200 * MI)])
}

/// Pods of a `RayCluster`, `RayJob` or `RayService`; `None` for a job that selects an existing cluster.
pub(super) fn pod_sets(object: &Value) -> Result<Option<Vec<PodSet>>, AmountError> {
    let Some(cluster) = ray_cluster(object) else { return Ok(None) };
    let is_job = text(object, &["kind"]) == Some("RayJob");
    let mode = text(object, &["spec", "submissionMode"]).unwrap_or("K8sJobMode");
    let mut head = group_pod(at(cluster, &["headGroupSpec"]))?;
    if at(cluster, &["enableInTreeAutoscaling"]).as_bool() == Some(true) {
        let options = at(cluster, &["autoscalerOptions"]);
        let has_resources = options.get("resources").is_some_and(Value::is_object);
        head = head.with_sidecar(&if has_resources { container_request(options)? } else { autoscaler() });
    }
    if is_job && mode == "SidecarMode" {
        head = head.with_sidecar(&submitter());
    }
    let mut sets = vec![role(HEAD, 1, head)];
    for group in list(cluster, &["workerGroupSpecs"]) {
        let shape = group_pod(group)?.with_init(&wait_gcs_ready());
        let WorkerGroup { name, pods } = WorkerGroup::read(group);
        sets.push(role(&name, pods, shape));
    }
    if is_job && mode == "K8sJobMode" {
        let template = at(object, &["spec", "submitterPodTemplate"]);
        let shape =
            if at(template, &["spec"]).is_object() { PodShape::read(template)? } else { default_submitter() };
        sets.push(role(SUBMITTER, 1, shape));
    }
    Ok(Some(sets))
}

/// A pod of the head or of a worker group. `KubeRay` adds the labels of the group, and a port for metrics, which is a host
/// port in the network of the host.
fn group_pod(group: &Value) -> Result<PodShape, AmountError> {
    let mut shape = PodShape::read(at(group, &["template"]))?;
    shape.labels.extend(string_map(at(group, &["labels"])));
    let spec = at(group, &["template", "spec"]);
    let ray = list(spec, &["containers"]).first().unwrap_or(&Value::Null);
    let has_port = list(ray, &["ports"]).iter().any(|port| text(port, &["name"]) == Some("metrics"));
    if at(spec, &["hostNetwork"]) == true && !has_port {
        let port = HostPort { port: METRICS_PORT, protocol: "TCP".into(), address: None };
        shape.rules.host_ports.insert(port);
    }
    Ok(shape)
}

fn default_submitter() -> PodShape {
    let mut shape = PodShape { request: submitter(), ..PodShape::default() };
    shape.request.set("pods", 1);
    shape
}

/// The size of a worker group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerGroup {
    /// `groupName`: the role of its pods.
    pub name: String,
    /// Number of pods: replicas within `minReplicas` and `maxReplicas`, times `numOfHosts`; 0 if suspended.
    pub pods: u32,
}

impl WorkerGroup {
    /// Reads an entry of `workerGroupSpecs`.
    pub fn read(group: &Value) -> Self {
        let name = text(group, &["groupName"]).unwrap_or("worker").to_owned();
        if at(group, &["suspend"]).as_bool() == Some(true) {
            return Self { name, pods: 0 };
        }
        let min = count(group, &["minReplicas"], 0);
        let max = count(group, &["maxReplicas"], u32::MAX).max(min);
        let replicas = count(group, &["replicas"], min).clamp(min, max);
        Self { name, pods: replicas.saturating_mul(count(group, &["numOfHosts"], 1).max(1)) }
    }
}
