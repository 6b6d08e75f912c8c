//! RayJobs, RayClusters and `RayServices`. After `pkg/controller/jobs/{rayjob,raycluster,rayservice}` of Kueue v0.19.
//!
//! A worker group asks for its replicas as they are written: `minReplicas`, `maxReplicas` and the init container that `KubeRay`
//! adds to workers do not count.

use serde_json::{Map, Value, json};

use super::{Finished, Integration, JobKind, annotation};
use crate::demand::ray::{HEAD, SUBMITTER, add_container, autoscaler, ray_image, submitter};
use crate::kueue::quantity::millionths;
use crate::value::{at, count, list, text};

/// The annotation that asks for fault tolerance of the head.
const FAULT_TOLERANCE: &str = "ray.io/ft-enabled";
/// The name of the container that submits a job.
const SUBMITTER_CONTAINER: &str = "ray-job-submitter";
/// The submission mode with a pod of its own, the default.
const JOB_MODE: &str = "K8sJobMode";
/// The submission mode with a container in the head.
const SIDECAR_MODE: &str = "SidecarMode";

/// The row of RayJobs.
pub(super) const RAY_JOB: JobKind = JobKind {
    framework: "ray.io/rayjob",
    api_version: "ray.io/v1",
    kind: "RayJob",
    plural: "rayjobs",
    integration: &RayJob,
};

/// The row of RayClusters.
pub(super) const RAY_CLUSTER: JobKind = JobKind {
    framework: "ray.io/raycluster",
    api_version: "ray.io/v1",
    kind: "RayCluster",
    plural: "rayclusters",
    integration: &RayCluster,
};

/// The row of `RayServices`.
pub(super) const RAY_SERVICE: JobKind = JobKind {
    framework: "ray.io/rayservice",
    api_version: "ray.io/v1",
    kind: "RayService",
    plural: "rayservices",
    integration: &RayService,
};

/// RayJobs with a cluster of their own.
#[derive(Debug)]
struct RayJob;

impl Integration for RayJob {
    fn pod_sets(&self, job: &Value) -> Vec<Value> {
        let mut sets = cluster_pod_sets(job, &job["spec"]["rayClusterSpec"]);
        match submission_mode(job) {
            JOB_MODE => {
                sets.push(json!({"name": SUBMITTER, "count": 1, "template": submitter_template(job)}));
            }
            SIDECAR_MODE => {
                let container = json!({"name": SUBMITTER_CONTAINER, "resources": submitter()});
                add_container(&mut sets[0]["template"], "containers", container);
            }
            _ => {}
        }
        sets
    }

    fn can_grow(&self) -> bool {
        true
    }

    fn cluster<'a>(&self, job: &'a Value) -> Option<&'a str> {
        text(job, &["status", "rayClusterName"])
    }

    fn follow_cluster(&self, job: &Value, cluster: &Value, sets: &mut [Value]) {
        follow(&job["spec"]["rayClusterSpec"], cluster, sets);
    }

    fn templates(&self, job: &Value) -> Vec<String> {
        let mut templates = cluster_templates(job, "/spec/rayClusterSpec");
        if submission_mode(job) == JOB_MODE {
            templates.push("/spec/submitterPodTemplate".into());
        }
        templates
    }

    fn add_templates(&self, job: &mut Value) {
        if submission_mode(job) == JOB_MODE {
            let template = submitter_template(job);
            if let Some(spec) = job.get_mut("spec").and_then(Value::as_object_mut) {
                spec.insert("submitterPodTemplate".into(), template);
            }
        }
    }

    /// A job that uses a cluster which is there has no pods of its own.
    fn is_skipped(&self, job: &Value) -> bool {
        job["spec"]["clusterSelector"].as_object().is_some_and(|selector| !selector.is_empty())
    }

    /// `KubeRay` has refused it, and leaves the pods that run.
    fn is_on_hold(&self, job: &Value) -> bool {
        job["status"]["jobDeploymentStatus"] == "ValidationFailed"
    }

    fn is_active(&self, job: &Value) -> bool {
        text(job, &["status", "jobDeploymentStatus"]).is_some_and(|state| state != "Suspended")
    }

    fn are_pods_ready(&self, job: &Value) -> bool {
        job["status"]["rayClusterStatus"]["state"] == "ready"
    }

    fn finished(&self, job: &Value) -> Option<Finished> {
        let status = &job["status"];
        let has_ended = ["Complete", "Failed"].iter().any(|state| status["jobDeploymentStatus"] == *state);
        has_ended.then(|| Finished {
            succeeded: status["jobStatus"] == "SUCCEEDED",
            message: status["message"].as_str().unwrap_or_default().to_owned(),
        })
    }
}

/// RayClusters. They never end by themselves.
#[derive(Debug)]
struct RayCluster;

impl Integration for RayCluster {
    fn pod_sets(&self, cluster: &Value) -> Vec<Value> {
        cluster_pod_sets(cluster, &cluster["spec"])
    }

    fn can_grow(&self) -> bool {
        true
    }

    fn templates(&self, cluster: &Value) -> Vec<String> {
        cluster_templates(cluster, "/spec")
    }

    fn has_conditions(&self) -> bool {
        true
    }

    fn is_active(&self, cluster: &Value) -> bool {
        cluster["status"]["state"] == "ready"
    }

    fn are_pods_ready(&self, cluster: &Value) -> bool {
        self.is_active(cluster)
    }

    fn finished(&self, _: &Value) -> Option<Finished> {
        None
    }
}

/// `RayServices`. They never end by themselves.
#[derive(Debug)]
struct RayService;

impl Integration for RayService {
    fn suspend_field(&self) -> &'static str {
        "/spec/rayClusterConfig/suspend"
    }

    fn pod_sets(&self, service: &Value) -> Vec<Value> {
        cluster_pod_sets(service, &service["spec"]["rayClusterConfig"])
    }

    fn can_grow(&self) -> bool {
        true
    }

    fn cluster<'a>(&self, service: &'a Value) -> Option<&'a str> {
        text(service, &["status", "activeServiceStatus", "rayClusterName"])
    }

    fn follow_cluster(&self, service: &Value, cluster: &Value, sets: &mut [Value]) {
        follow(&service["spec"]["rayClusterConfig"], cluster, sets);
    }

    fn templates(&self, service: &Value) -> Vec<String> {
        cluster_templates(service, "/spec/rayClusterConfig")
    }

    fn has_conditions(&self) -> bool {
        true
    }

    fn is_active(&self, service: &Value) -> bool {
        let conditions = list(service, &["status", "conditions"]);
        conditions.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
    }

    fn are_pods_ready(&self, service: &Value) -> bool {
        self.is_active(service)
    }

    fn finished(&self, _: &Value) -> Option<Finished> {
        None
    }
}

/// How a job is submitted. The definition of `KubeRay` has the default.
fn submission_mode(job: &Value) -> &str {
    text(job, &["spec", "submissionMode"]).unwrap_or(JOB_MODE)
}

/// The pod sets of a cluster: the head, with the container that `KubeRay` adds, and the worker groups.
fn cluster_pod_sets(object: &Value, cluster: &Value) -> Vec<Value> {
    let mut head = cluster["headGroupSpec"]["template"].clone();
    if is_fault_tolerant(object, cluster) {
        add_cleanup(&mut head);
    }
    if cluster["enableInTreeAutoscaling"] == true {
        let given = at(cluster, &["autoscalerOptions", "resources"]);
        let resources = if given.is_object() { given.clone() } else { autoscaler() };
        add_container(&mut head, "containers", json!({"name": "autoscaler", "resources": resources}));
    }
    let mut sets = vec![json!({"name": HEAD, "count": 1, "template": head})];
    sets.extend(list(cluster, &["workerGroupSpecs"]).iter().map(
        |group| json!({"name": set_name(group), "count": workers(group), "template": group["template"]}),
    ));
    sets
}

/// The name of the pod set of a worker group.
fn set_name(group: &Value) -> String {
    group["groupName"].as_str().unwrap_or_default().to_lowercase()
}

/// The pods of a worker group.
fn workers(group: &Value) -> u32 {
    count(group, &["replicas"], 1).saturating_mul(count(group, &["numOfHosts"], 1).max(1))
}

/// A cluster that changes its size by itself says how many workers there are to be.
fn follow(wanted: &Value, cluster: &Value, sets: &mut [Value]) {
    if wanted["enableInTreeAutoscaling"] != true {
        return;
    }
    for group in
        list(cluster, &["spec", "workerGroupSpecs"]).iter().filter(|group| !group["replicas"].is_null())
    {
        if let Some(set) = sets.iter_mut().find(|set| set["name"] == set_name(group).as_str()) {
            set["count"] = workers(group).into();
        }
    }
}

/// The templates of the head and of the worker groups of the cluster at a JSON pointer.
fn cluster_templates(object: &Value, cluster: &str) -> Vec<String> {
    let groups = object.pointer(&format!("{cluster}/workerGroupSpecs")).and_then(Value::as_array);
    let workers =
        (0..groups.map_or(0, Vec::len)).map(|at| format!("{cluster}/workerGroupSpecs/{at}/template"));
    std::iter::once(format!("{cluster}/headGroupSpec/template")).chain(workers).collect()
}

/// The template of the pod that submits a job: that of its author, or the one that `KubeRay` makes.
fn submitter_template(job: &Value) -> Value {
    let given = &job["spec"]["submitterPodTemplate"];
    if given.is_object() {
        return given.clone();
    }
    let mut container = json!({"name": SUBMITTER_CONTAINER, "resources": submitter()});
    let image = ray_image(&job["spec"]["rayClusterSpec"]["headGroupSpec"]);
    if image.is_string() {
        container["image"] = image.clone();
    }
    json!({"spec": {"containers": [container], "restartPolicy": "Never"}})
}

fn is_fault_tolerant(object: &Value, cluster: &Value) -> bool {
    let is_asked = annotation(object, FAULT_TOLERANCE).is_some_and(|text| text.eq_ignore_ascii_case("true"));
    is_asked || cluster["gcsFaultToleranceOptions"].is_object()
}

/// The job that cleans up Redis runs when the head is gone: the head asks for its requests at least.
fn add_cleanup(head: &mut Value) {
    let Some(ray) = head.pointer_mut("/spec/containers/0").and_then(Value::as_object_mut) else { return };
    let resources = ray.entry("resources").or_insert_with(|| json!({}));
    let Some(resources) = resources.as_object_mut() else { return };
    let requests = resources.entry("requests").or_insert_with(|| Map::new().into());
    let Some(requests) = requests.as_object_mut() else { return };
    for (name, least) in [("cpu", "200m"), ("memory", "256Mi")] {
        let least = Value::from(least);
        if requests.get(name).is_none_or(|given| millionths(name, given) < millionths(name, &least)) {
            requests.insert(name.into(), least);
        }
    }
}
