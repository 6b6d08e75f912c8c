//! Jobs of Kueue's API in tests. The tests play the controller of the jobs.

use api::kueue::jobs::{JOB_KINDS, JobKind};
use controllers::JobsConfig;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::ApiResource;
use serde_json::{Value, json};

use super::kueue::*;
use super::{Cluster, resource};

pub(crate) fn jobs() -> ApiResource {
    resource("batch/v1", "Job", "jobs")
}

pub(crate) fn all_kinds() -> JobsConfig {
    JobsConfig { kinds: JOB_KINDS.iter().collect(), ..JobsConfig::default() }
}

/// A cluster with the queue of [`gpu_queue`].
pub(crate) async fn cluster_with_queue(cpus: u32, more: Value) -> Cluster {
    let cluster = kueue_cluster().await;
    gpu_queue(&cluster, cpus, more).await;
    cluster
}

/// A flavor of labelled, tainted nodes, and the queue `team` with so many CPUs of it.
pub(crate) async fn gpu_queue(cluster: &Cluster, cpus: u32, more: Value) {
    let toleration = json!({"key": "gpu", "operator": "Exists", "effect": "NoSchedule"});
    let spec = json!({"nodeLabels": {"pool": "gpu"}, "tolerations": [toleration]});
    create(cluster, "ResourceFlavor", "resourceflavors", "gpu", spec).await;
    let flavor = json!({"name": "gpu", "resources": [{"name": "cpu", "nominalQuota": cpus}]});
    let mut spec = json!({"resourceGroups": [{"coveredResources": ["cpu"], "flavors": [flavor]}]});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    queue(cluster, "team", cpus, spec).await;
}

pub(crate) async fn priority_class(cluster: &Cluster, name: &str, value: i32) {
    let class = json!({"apiVersion": VERSION, "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value});
    cluster.create_as(&kind("WorkloadPriorityClass", "workloadpriorityclasses"), "", class).await;
}

/// A Job of so many pods of one CPU in the queue `team`.
pub(crate) fn job(name: &str, pods: u32) -> Value {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}});
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
    json!({"apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": "team"}},
        "spec": {"parallelism": pods, "completions": pods, "suspend": true, "template": template}})
}

pub(crate) async fn submit_job(cluster: &Cluster, job: Value) {
    cluster.create_as(&jobs(), "default", job).await;
}

pub(crate) async fn status(cluster: &Cluster, name: &str, status: Value) {
    let patch = Patch::Merge(json!({ "status": status }));
    cluster.api(&jobs(), "default").patch_status(name, &PatchParams::default(), &patch).await.unwrap();
}

pub(crate) async fn merge(cluster: &Cluster, kind: &ApiResource, name: &str, patch: Value) {
    let api = cluster.api(kind, "default");
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

pub(crate) async fn running(cluster: &Cluster, name: &str) -> DynamicObject {
    cluster.wait(&jobs(), "default", name, |job| job.data["spec"]["suspend"] == false).await
}

/// Waits until a Job is suspended and no step of stopping it is left to do.
pub(crate) async fn stopped(cluster: &Cluster, name: &str) -> DynamicObject {
    let is_stopped = |job: &DynamicObject| {
        let annotations = job.metadata.annotations.clone().unwrap_or_default();
        job.data["spec"]["suspend"] == true && !annotations.contains_key("kueue.x-k8s.io/stopping")
    };
    cluster.wait(&jobs(), "default", name, is_stopped).await
}

/// The Workload of a Job.
pub(crate) async fn workload_of(
    cluster: &Cluster,
    job: &str,
    is_met: impl Fn(&DynamicObject) -> bool,
) -> DynamicObject {
    let uid = cluster.api(&jobs(), "default").get(job).await.unwrap().metadata.uid.unwrap();
    let name = JOB_KINDS[0].workload_name(job, &uid);
    cluster.wait(&workloads(), "default", &name, is_met).await
}

/// Jobs of a kind. The test plays their controller.
pub(crate) struct Jobs<'a> {
    cluster: &'a Cluster,
    kind: &'static JobKind,
}

impl<'a> Jobs<'a> {
    /// The kind of this name in `integrations.frameworks`.
    pub(crate) fn of(cluster: &'a Cluster, framework: &str) -> Self {
        Self { cluster, kind: JobKind::of_framework(framework).unwrap() }
    }

    pub(crate) fn of_kind(cluster: &'a Cluster, kind: &'static JobKind) -> Self {
        Self { cluster, kind }
    }

    pub(crate) fn resource(&self) -> ApiResource {
        resource(self.kind.api_version, self.kind.kind, self.kind.plural)
    }

    /// Installs the kind, unless the cluster has it.
    pub(crate) async fn install(&self) {
        let version = self.kind.api_version.split('/').nth(1).unwrap();
        let (group, kind, plural) = (self.kind.group(), self.kind.kind, self.kind.plural);
        match kind {
            "Job" | "RayCluster" => {}
            // The planner watches the older version meanwhile.
            "AppWrapper" => {
                let definitions = resource(
                    "apiextensions.k8s.io/v1",
                    "CustomResourceDefinition",
                    "customresourcedefinitions",
                );
                let name = format!("{plural}.{group}");
                self.cluster.delete(&definitions, "", &name).await;
                self.cluster.wait_gone(&definitions, "", &name).await;
                self.cluster.define(group, kind, plural, &["v1beta1", version]).await;
            }
            _ => self.cluster.define(group, kind, plural, &[version]).await,
        }
        for referenced in self.kind.integration.references() {
            self.cluster.define(group, referenced.kind, referenced.plural, &[version]).await;
        }
    }

    /// Creates a job in the queue `team`.
    pub(crate) async fn submit(&self, name: &str, spec: Value) -> DynamicObject {
        self.submit_with(name, json!({}), spec).await
    }

    /// Creates a job in the queue `team`, with further metadata.
    pub(crate) async fn submit_with(&self, name: &str, more: Value, spec: Value) -> DynamicObject {
        let mut metadata = json!({"name": name, "labels": {"kueue.x-k8s.io/queue-name": "team"}});
        for (field, value) in more.as_object().unwrap() {
            metadata[field] = value.clone();
        }
        let mut job = json!({"apiVersion": self.kind.api_version, "kind": self.kind.kind,
            "metadata": metadata, "spec": spec});
        self.kind.set_suspended(&mut job, true);
        self.cluster.create_as(&self.resource(), "default", job).await
    }

    pub(crate) async fn status(&self, name: &str, status: &Value) {
        let patch = Patch::Merge(json!({ "status": status }));
        let api = self.cluster.api(&self.resource(), "default");
        api.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }

    pub(crate) async fn merge(&self, name: &str, patch: Value) {
        merge(self.cluster, &self.resource(), name, patch).await;
    }

    pub(crate) async fn get(&self, name: &str) -> DynamicObject {
        self.cluster.api(&self.resource(), "default").get(name).await.unwrap()
    }

    fn suspended(&self, job: &DynamicObject) -> Option<bool> {
        job.data.pointer(self.kind.integration.suspend_field())?.as_bool()
    }

    pub(crate) async fn running(&self, name: &str) -> DynamicObject {
        let is_running = |job: &DynamicObject| self.suspended(job) == Some(false);
        self.cluster.wait(&self.resource(), "default", name, is_running).await
    }

    /// Waits until a job is suspended and no step of stopping it is left to do.
    pub(crate) async fn stopped(&self, name: &str) -> DynamicObject {
        let is_stopped = |job: &DynamicObject| {
            let annotations = job.metadata.annotations.clone().unwrap_or_default();
            self.suspended(job) == Some(true) && !annotations.contains_key("kueue.x-k8s.io/stopping")
        };
        self.cluster.wait(&self.resource(), "default", name, is_stopped).await
    }

    /// The Workload of a job.
    pub(crate) async fn workload(&self, job: &str, is_met: impl Fn(&DynamicObject) -> bool) -> DynamicObject {
        let name = self.kind.workload_name(job, &self.get(job).await.metadata.uid.unwrap());
        self.cluster.wait(&workloads(), "default", &name, is_met).await
    }
}

/// A pod template with one CPU.
pub(crate) fn template() -> Value {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}});
    json!({"spec": {"restartPolicy": "Never", "containers": [container]}})
}

/// The spec of a Ray cluster of a head and so many workers, each with one CPU.
pub(crate) fn ray_cluster(workers: u32) -> Value {
    let group = json!({"groupName": "Small", "replicas": workers, "numOfHosts": 1, "template": template()});
    json!({"headGroupSpec": {"template": template()}, "workerGroupSpecs": [group]})
}

/// The spec of a RayJob that is submitted without a pod, on such a cluster.
pub(crate) fn ray_job(workers: u32) -> Value {
    json!({"entrypoint": "python train.py", "submissionMode": "HTTPMode", "shutdownAfterJobFinishes": true,
        "rayClusterSpec": ray_cluster(workers)})
}
