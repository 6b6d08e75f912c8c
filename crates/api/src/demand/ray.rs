//! The pods of Ray clusters, with the containers that KubeRay adds.

use serde_json::{Map, Value, json};

use super::{PodSet, role};
use crate::amounts::AmountError;
use crate::appwrapper::ray_cluster;
use crate::value::{at, count, list, text};

/// Role of the submitter pod of a `RayJob`.
pub const SUBMITTER: &str = "submitter";
/// Role of the head pod.
pub const HEAD: &str = "head";

/// The port for metrics that `KubeRay` adds to the Ray container.
const METRICS_PORT: u16 = 8080;

/// Default resources of the autoscaler sidecar of the head pod.
pub(crate) fn autoscaler() -> Value {
    let amounts = json!({ "cpu": "500m", "memory": "512Mi" });
    json!({ "requests": amounts, "limits": amounts })
}

/// Resources of the init container of a worker that waits for the head.
fn wait_gcs_ready() -> Value {
    let amounts = json!({ "cpu": "200m", "memory": "256Mi" });
    json!({ "requests": amounts, "limits": amounts })
}

/// Default resources of the submitter container.
pub(crate) fn submitter() -> Value {
    json!({ "requests": { "cpu": "500m", "memory": "200Mi" }, "limits": { "cpu": "1", "memory": "1Gi" } })
}

/// Pods of a `RayCluster`, `RayJob` or `RayService`; `None` for a job that selects an existing cluster.
pub(super) fn pod_sets(object: &Value) -> Result<Option<Vec<PodSet>>, AmountError> {
    let Some(cluster) = ray_cluster(object) else { return Ok(None) };
    let is_job = text(object, &["kind"]) == Some("RayJob");
    let mode = text(object, &["spec", "submissionMode"]).unwrap_or("K8sJobMode");
    let head = at(cluster, &["headGroupSpec"]);
    let image = ray_image(head);
    let mut template = group_template(head);
    if at(cluster, &["enableInTreeAutoscaling"]).as_bool() == Some(true) {
        let options = at(cluster, &["autoscalerOptions", "resources"]);
        let resources = if options.is_object() { options.clone() } else { autoscaler() };
        add_container(&mut template, "containers", container("autoscaler", image, &resources));
    }
    if is_job && mode == "SidecarMode" {
        add_container(&mut template, "containers", container("ray-job-submitter", image, &submitter()));
    }
    let mut sets = vec![role(HEAD, 1, template)?];
    for group in list(cluster, &["workerGroupSpecs"]) {
        let mut template = group_template(group);
        let waits = container("wait-gcs-ready", ray_image(group), &wait_gcs_ready());
        add_container(&mut template, "initContainers", waits);
        let WorkerGroup { name, pods } = WorkerGroup::read(group);
        sets.push(role(&name, pods, template)?);
    }
    if is_job && mode == "K8sJobMode" {
        let template = at(object, &["spec", "submitterPodTemplate"]);
        let has_template = at(template, &["spec"]).is_object();
        let default = || {
            json!({ "spec": { "restartPolicy": "Never",
            "containers": [container("ray-job-submitter", image, &submitter())] } })
        };
        sets.push(role(SUBMITTER, 1, if has_template { template.clone() } else { default() })?);
    }
    Ok(Some(sets))
}

/// The template of the head or of a worker group. `KubeRay` adds the labels of the group, and a port for metrics to the Ray
/// container.
fn group_template(group: &Value) -> Value {
    let mut template = at(group, &["template"]).clone();
    let labels = at(group, &["labels"]).as_object().into_iter().flatten();
    for (key, value) in labels {
        if let Some(labels) = fields_at(&mut template, &["metadata", "labels"]) {
            labels.insert(key.clone(), value.clone());
        }
    }
    let ray = template.pointer_mut("/spec/containers/0");
    if let Some(ray) = ray.filter(|ray| !list(ray, &["ports"]).iter().any(is_metrics_port))
        && let Some(fields) = ray.as_object_mut()
        && let Some(ports) = fields.entry("ports").or_insert_with(|| json!([])).as_array_mut()
    {
        ports.push(json!({ "name": "metrics", "containerPort": METRICS_PORT }));
    }
    template
}

fn is_metrics_port(port: &Value) -> bool {
    text(port, &["name"]) == Some("metrics")
}

/// The image of the Ray container of a group, which the containers of `KubeRay` use too.
pub(crate) fn ray_image(group: &Value) -> &Value {
    list(group, &["template", "spec", "containers"]).first().map_or(&Value::Null, |ray| at(ray, &["image"]))
}

fn container(name: &str, image: &Value, resources: &Value) -> Value {
    json!({ "name": name, "image": image, "resources": resources })
}

/// Adds a container at the end of a list of a pod spec.
pub(crate) fn add_container(template: &mut Value, list: &str, container: Value) {
    let spec = fields_at(template, &["spec"]);
    if let Some(containers) =
        spec.and_then(|spec| spec.entry(list).or_insert_with(|| json!([])).as_array_mut())
    {
        containers.push(container);
    }
}

/// The fields of the object at a path, which is created; `None` if a value on the path is no object.
fn fields_at<'a>(value: &'a mut Value, path: &[&str]) -> Option<&'a mut Map<String, Value>> {
    let mut value = value;
    for key in path {
        if value.is_null() {
            *value = json!({});
        }
        value = value.as_object_mut()?.entry(*key).or_insert(Value::Null);
    }
    if value.is_null() {
        *value = json!({});
    }
    value.as_object_mut()
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
