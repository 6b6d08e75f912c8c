//! Jobs that change their size in tests.

use api::kueue::jobs::{JOB_KINDS, JobKind};
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use super::Cluster;
use super::gang_pods::pods;
use super::jobs::{job, jobs, merge};
use super::kueue::*;

/// A Job of so many pods of one CPU that may change its size.
pub(crate) fn elastic(name: &str, pods: u32) -> Value {
    let mut job = job(name, pods);
    job["metadata"]["annotations"] = json!({"kueue.x-k8s.io/elastic-job": "true"});
    job["spec"]["completions"] = json!(100);
    job
}

/// Gives a Job another size. Returns its generation.
pub(crate) async fn resize(cluster: &Cluster, name: &str, pods: u32) -> i64 {
    merge(cluster, &jobs(), name, json!({"spec": {"parallelism": pods}})).await;
    cluster.api(&jobs(), "default").get(name).await.unwrap().metadata.generation.unwrap()
}

/// The name of the Workload of a job of this generation.
pub(crate) fn slice_of(framework: &str, job: &DynamicObject, child: Option<&DynamicObject>) -> String {
    let value = |object: &DynamicObject| serde_json::to_value(object).unwrap();
    let kind = JobKind::of_framework(framework).unwrap();
    kind.slice_name(&value(job), child.map(value).as_ref())
}

/// The Workload that a Job got at this generation.
pub(crate) async fn slice(
    cluster: &Cluster,
    job: &str,
    generation: i64,
    is_met: impl Fn(&DynamicObject) -> bool,
) -> DynamicObject {
    let mut job = serde_json::to_value(cluster.api(&jobs(), "default").get(job).await.unwrap()).unwrap();
    job["metadata"]["generation"] = generation.into();
    let name = JOB_KINDS[0].slice_name(&job, None);
    cluster.wait(&workloads(), "default", &name, is_met).await
}

pub(crate) fn is_admitted(workload: &DynamicObject) -> bool {
    is(workload, "Admitted", "True", "Admitted") && condition(workload, "Finished").is_none()
}

pub(crate) fn is_replaced(workload: &DynamicObject) -> bool {
    is(workload, "Finished", "True", "WorkloadSliceReplaced")
}

pub(crate) fn has_quota(workload: &DynamicObject) -> bool {
    is(workload, "QuotaReserved", "True", "QuotaReserved")
        && !is(workload, "Evicted", "True", "AdmissionCheck")
}

/// The pods that a Workload of one pod set asks for.
pub(crate) fn count(workload: &DynamicObject) -> u64 {
    workload.data["spec"]["podSets"][0]["count"].as_u64().unwrap()
}

/// Creates a Workload that continues another one with so many pods of one CPU.
pub(crate) async fn replace(cluster: &Cluster, name: &str, replaced: &str, pods: u32) {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": 1}}});
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
    let annotations = json!({"kueue.x-k8s.io/workload-slice-replacement-for": format!("default/{replaced}")});
    let body = json!({"apiVersion": VERSION, "kind": "Workload",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"queueName": "team", "active": true, "podSets": [{"name": "main", "count": pods, "template": template}]}});
    cluster.create_as(&workloads(), "default", body).await;
}

/// Answers the check `budget` of a Workload.
pub(crate) async fn answer(cluster: &Cluster, name: &str, state: &str) {
    let now = (cluster.clock)().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let check = json!({"name": "budget", "state": state, "message": "", "lastTransitionTime": now});
    let patch = Patch::Merge(json!({"status": {"admissionChecks": [check]}}));
    cluster.api(&workloads(), "default").patch_status(name, &PatchParams::default(), &patch).await.unwrap();
}

/// The Job controller creates a pod of a started Job.
pub(crate) async fn create_pod(cluster: &Cluster, job: &DynamicObject, name: &str) {
    let template = &job.data["spec"]["template"];
    let owner = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": job.metadata.name, "uid": job.metadata.uid,
        "controller": true, "blockOwnerDeletion": true}]);
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": template["metadata"], "spec": template["spec"]});
    pod["metadata"]["name"] = name.into();
    pod["metadata"]["ownerReferences"] = owner;
    cluster.create_as(&pods(), "default", pod).await;
}

/// Whether the scheduler may bind a pod.
pub(crate) fn is_free(pod: &DynamicObject) -> bool {
    pod.data["spec"]["schedulingGates"].as_array().is_none_or(Vec::is_empty)
}
