//! Jobs and RayJobs in queues of Kueue's API, without webhooks: the controller suspends what it finds running.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::environment::{Controller, Flags};
use crate::fixture::Fixture;
use crate::objects::{
    CLUSTER_QUEUE, JOB, Kind, LOCAL_QUEUE, POD, PRIORITY_CLASS, RAY_CLUSTER, RAY_JOB, RESOURCE_FLAVOR,
    WORKLOAD, has_condition, job, name, ray_cluster,
};
use crate::rbac;

/// The path of the collection of definitions.
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// The priority class of urgent jobs.
const URGENT: &str = "urgent";

/// A controller with queues. Its queues have the name of the namespace as a prefix, because they have no namespace.
struct Queues<'a> {
    fixture: &'a Fixture<'a>,
    controller: Box<dyn Controller>,
    names: Vec<String>,
}

impl<'a> Queues<'a> {
    /// Serves Kueue's kinds, and starts a controller with queues in the place of the other one.
    async fn start(fixture: &'a Fixture<'a>) -> Result<Self> {
        // The cases read and write one version, so nothing is converted.
        let unused = json!({"url": "https://127.0.0.1:9/convert"});
        for definition in api::kueue::crds(&unused) {
            create_missing(fixture, DEFINITIONS, &definition).await?;
            let path = format!("{DEFINITIONS}/{}", name(&definition));
            fixture
                .eventually("a served definition", async || {
                    let found = fixture.call("GET", &path, None).await?;
                    Ok(has_condition(&found, "Established").then_some(()))
                })
                .await?;
        }
        for (collection, role) in rbac::queue_roles()? {
            create_missing(fixture, &collection, &role).await?;
        }
        fixture.controller().kill().await?;
        let controller = fixture.controller().replica(Flags { queues: true, ..Flags::default() }).await?;
        controller.start().await?;
        let queues = Self { fixture, controller, names: Vec::new() };
        queues.define(RESOURCE_FLAVOR, "", "spec", json!({})).await?;
        queues.define(PRIORITY_CLASS, URGENT, "value", json!(100)).await?;
        Ok(queues)
    }

    /// The name of an object without a namespace.
    fn full(&self, name: &str) -> String {
        format!("{}{name}", self.fixture.namespace())
    }

    async fn define(&self, kind: Kind, name: &str, field: &str, value: Value) -> Result<()> {
        let mut object = json!({"apiVersion": kind.0, "kind": kind.1, "metadata": {"name": self.full(name)}});
        object[field] = value;
        self.fixture.create(&object).await.map(drop)
    }

    /// Adds a queue with these CPUs and GPUs in the cohort of the case, and a local queue of the same name. A job preempts those
    /// of lower priority, and the queue reclaims what it has lent.
    async fn add(&mut self, name: &str, cpus: u32, gpus: u32) -> Result<()> {
        let quota = |resource: &str, amount: &str| json!({"name": resource, "nominalQuota": amount});
        let [cpus, gpus] = [cpus, gpus].map(|amount| amount.to_string());
        // KubeRay's pod that submits a job asks for memory.
        let quotas = [quota("cpu", &cpus), quota("memory", "64Gi"), quota("nvidia.com/gpu", &gpus)];
        let spec = json!({
            "cohortName": self.full(""), "namespaceSelector": {},
            "preemption": {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"},
            "resourceGroups": [{"coveredResources": ["cpu", "memory", "nvidia.com/gpu"], "flavors": [
                {"name": self.full(""), "resources": quotas}]}],
        });
        self.define(CLUSTER_QUEUE, name, "spec", spec).await?;
        let local = json!({"apiVersion": LOCAL_QUEUE.0, "kind": LOCAL_QUEUE.1, "metadata": {"name": name},
            "spec": {"clusterQueue": self.full(name)}});
        self.fixture.create(&local).await?;
        self.names.push(name.to_owned());
        Ok(())
    }

    /// Waits until nothing is charged to any queue, deletes the queues, and stops the controller.
    async fn close(self) -> Result<()> {
        for queue in &self.names {
            let full = self.full(queue);
            let what = "it is charged with nothing";
            self.fixture.wait(CLUSTER_QUEUE, &full, what, |queue| charges(queue) == 0).await?;
        }
        for queue in &self.names {
            self.fixture.delete(CLUSTER_QUEUE, &self.full(queue)).await?;
        }
        for queue in &self.names {
            self.fixture.wait_gone(CLUSTER_QUEUE, &self.full(queue)).await?;
        }
        self.fixture.delete(RESOURCE_FLAVOR, &self.full("")).await?;
        self.fixture.delete(PRIORITY_CLASS, &self.full(URGENT)).await?;
        self.fixture.wait_gone(RESOURCE_FLAVOR, &self.full("")).await?;
        self.controller.terminate().await
    }
}

/// Creates an object that another case may have left.
async fn create_missing(fixture: &Fixture<'_>, collection: &str, object: &Value) -> Result<()> {
    match fixture.call("POST", collection, Some(object)).await {
        Ok(_) => Ok(()),
        Err(error) => match error.downcast_ref::<kube::Error>() {
            Some(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            _ => Err(error),
        },
    }
}

/// How many Workloads have quota, and how many flavors of resources are used.
fn charges(queue: &Value) -> usize {
    let reserving = queue["status"]["reservingWorkloads"].as_u64().unwrap_or_default();
    let flavors = queue["status"]["flavorsUsage"].as_array().into_iter().flatten();
    let used = flavors.flat_map(|flavor| flavor["resources"].as_array().into_iter().flatten());
    let used = used.filter(|resource| resource["total"].as_str().is_some_and(|total| total != "0"));
    usize::try_from(reserving).unwrap_or(usize::MAX).saturating_add(used.count())
}

/// The object in a queue.
fn queued(mut object: Value, queue: &str) -> Value {
    object["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = json!(queue);
    object
}

/// A RayJob of a head with one GPU, whose cluster ends with it.
fn ray_job(job: &str, queue: &str) -> Value {
    let mut cluster = ray_cluster(job, "cpu=1 nvidia.com/gpu=1", 0)["spec"].take();
    cluster["workerGroupSpecs"] = json!([]);
    let spec =
        json!({"shutdownAfterJobFinishes": true, "entrypoint": "python train.py", "rayClusterSpec": cluster});
    queued(
        json!({"apiVersion": RAY_JOB.0, "kind": RAY_JOB.1, "metadata": {"name": job}, "spec": spec}),
        queue,
    )
}

async fn wait_ray_job(fixture: &Fixture<'_>, name: &str, state: &str) -> Result<Value> {
    fixture.wait(RAY_JOB, name, state, |job| job["status"]["jobDeploymentStatus"] == state).await
}

/// Waits until a RayJob has succeeded.
async fn wait_succeeded(fixture: &Fixture<'_>, job: &str) -> Result<()> {
    let ended = wait_ray_job(fixture, job, "Complete").await?;
    ensure!(ended["status"]["jobStatus"] == "SUCCEEDED", "{job} is {}", ended["status"]["jobStatus"]);
    Ok(())
}

/// Deletes RayJobs, and waits until the clusters of deleted and of ended ones are gone, running or suspended.
async fn end(fixture: &Fixture<'_>, jobs: &[&str]) -> Result<()> {
    for job in jobs {
        fixture.delete(RAY_JOB, job).await?;
    }
    let of_them = |cluster: &Value| jobs.iter().any(|job| name(cluster).starts_with(job));
    fixture
        .wait_all(RAY_CLUSTER, "those of ended jobs are gone", |all| !all.iter().any(of_them))
        .await
        .map(drop)
}

/// The Workload of a job.
async fn workload_of(fixture: &Fixture<'_>, job: &str) -> Result<Value> {
    fixture
        .eventually(&format!("the Workload of {job}"), async || {
            Ok(fixture.list(WORKLOAD).await?.iter().find(|workload| is_of(workload, job)).cloned())
        })
        .await
}

fn is_of(workload: &Value, job: &str) -> bool {
    workload["metadata"]["ownerReferences"][0]["name"] == job
}

/// Waits until a job is admitted: without webhooks it may run for a moment before its controller stops it and queues it.
async fn wait_admitted(fixture: &Fixture<'_>, job: &str) -> Result<()> {
    fixture
        .eventually(&format!("the admission of {job}"), async || {
            let workloads = fixture.list(WORKLOAD).await?;
            let is_admitted = |workload: &Value| is_of(workload, job) && has_condition(workload, "Admitted");
            Ok(workloads.iter().any(is_admitted).then_some(()))
        })
        .await
}

pub(super) async fn a_job_in_a_queue_waits_until_its_quota_is_free(fixture: &Fixture<'_>) -> Result<()> {
    fixture.node("one", "cpu=16").await?;
    let mut queues = Queues::start(fixture).await?;
    queues.add("team", 4, 0).await?;
    fixture.submit([queued(job("first", 3, "cpu=1", "1h"), "team")]).await?;
    wait_admitted(fixture, "first").await?;
    fixture.wait_pods("first", 3).await?;
    // Nobody but the controller suspends it.
    fixture.submit([queued(job("second", 3, "cpu=1", "1h"), "team")]).await?;
    fixture.wait(JOB, "second", "it is suspended", |job| has_condition(job, "Suspended")).await?;
    fixture
        .eventually("why the second one waits", async || {
            let workload = workload_of(fixture, "second").await?;
            let conditions = workload["status"]["conditions"].as_array().into_iter().flatten();
            let mut messages = conditions.filter_map(|condition| condition["message"].as_str());
            Ok(messages.find(|text| text.contains("insufficient unused quota for cpu")).map(drop))
        })
        .await?;
    let of_first = |pods: &[Value]| pods.iter().filter(|pod| name(pod).starts_with("first")).count();
    fixture.wait_all(POD, "those of the first job", |pods| pods.len() == 3 && of_first(pods) == 3).await?;
    fixture.keeps(POD, "the second job has no pod", |pods| pods.len() == 3).await?;
    fixture.delete(JOB, "first").await?;
    fixture.wait_pods("second", 3).await?;
    fixture.delete(JOB, "second").await?;
    queues.close().await
}

pub(super) async fn two_ray_jobs_take_turns_on_one_gpu(fixture: &Fixture<'_>) -> Result<()> {
    fixture.node("gpu", "cpu=16 nvidia.com/gpu=2").await?;
    let mut queues = Queues::start(fixture).await?;
    queues.add("team", 16, 1).await?;
    fixture.submit([ray_job("first", "team")]).await?;
    wait_admitted(fixture, "first").await?;
    fixture.submit([ray_job("second", "team")]).await?;
    wait_ray_job(fixture, "first", "Running").await?;
    wait_ray_job(fixture, "second", "Suspended").await?;
    let clusters = fixture.list(RAY_CLUSTER).await?;
    ensure!(clusters.len() == 1, "{} clusters run", clusters.len());
    wait_succeeded(fixture, "first").await?;
    wait_ray_job(fixture, "second", "Running").await?;
    end(fixture, &["first", "second"]).await?;
    queues.close().await
}

pub(super) async fn a_preempted_ray_job_comes_back_and_leaves_no_suspended_cluster(
    fixture: &Fixture<'_>,
) -> Result<()> {
    fixture.node("gpu", "cpu=16 nvidia.com/gpu=2").await?;
    let mut queues = Queues::start(fixture).await?;
    queues.add("team", 16, 1).await?;
    fixture.submit([ray_job("low", "team")]).await?;
    wait_admitted(fixture, "low").await?;
    wait_ray_job(fixture, "low", "Running").await?;
    let mut urgent = ray_job("high", "team");
    urgent["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!(queues.full(URGENT));
    fixture.submit([urgent]).await?;
    wait_ray_job(fixture, "high", "Running").await?;
    let low = wait_ray_job(fixture, "low", "Suspended").await?;
    ensure!(low["spec"]["suspend"] == true, "the preempted job is not suspended");
    end(fixture, &["high"]).await?;
    wait_ray_job(fixture, "low", "Running").await?;
    let workload = workload_of(fixture, "low").await?;
    let evictions = &workload["status"]["schedulingStats"]["evictions"];
    ensure!(evictions[0]["reason"] == "Preempted" && evictions[0]["count"] == 1, "evictions: {evictions}");
    end(fixture, &["low"]).await?;
    queues.close().await
}

pub(super) async fn a_borrowed_gpu_is_reclaimed_by_its_team(fixture: &Fixture<'_>) -> Result<()> {
    fixture.node("gpu", "cpu=16 nvidia.com/gpu=4").await?;
    let mut queues = Queues::start(fixture).await?;
    queues.add("team-a", 8, 1).await?;
    queues.add("team-b", 8, 1).await?;
    fixture.submit([ray_job("a-1", "team-a")]).await?;
    wait_admitted(fixture, "a-1").await?;
    wait_ray_job(fixture, "a-1", "Running").await?;
    fixture.submit([ray_job("a-2", "team-a")]).await?;
    wait_admitted(fixture, "a-2").await?;
    wait_ray_job(fixture, "a-2", "Running").await?;
    fixture.submit([ray_job("b-1", "team-b")]).await?;
    wait_ray_job(fixture, "b-1", "Running").await?;
    fixture
        .eventually("the eviction of a job that has borrowed", async || {
            let mut evicted = 0;
            for job in ["a-1", "a-2"] {
                let workload = workload_of(fixture, job).await?;
                evicted += usize::from(!workload["status"]["schedulingStats"]["evictions"].is_null());
            }
            Ok((evicted == 1).then_some(()))
        })
        .await?;
    let of_owner = workload_of(fixture, "b-1").await?;
    ensure!(
        of_owner["status"]["schedulingStats"]["evictions"].is_null(),
        "a job within its own quota was evicted"
    );
    end(fixture, &["a-1", "a-2", "b-1"]).await?;
    queues.close().await
}

pub(super) async fn jobs_in_a_queue_outlive_killed_controllers(fixture: &Fixture<'_>) -> Result<()> {
    fixture.node("one", "cpu=16").await?;
    let mut queues = Queues::start(fixture).await?;
    queues.add("team", 4, 0).await?;
    let jobs: Vec<String> = (0..6).map(|at| format!("job-{at}")).collect();
    for job_name in &jobs {
        fixture.submit([queued(job(job_name, 2, "cpu=1", "3s"), "team")]).await?;
        queues.controller.kill().await?;
        queues.controller.start().await?;
    }
    for job_name in &jobs {
        fixture.wait(JOB, job_name, "it is complete", |job| has_condition(job, "Complete")).await?;
    }
    let workloads = fixture.list(WORKLOAD).await?;
    ensure!(workloads.len() == jobs.len(), "{} Workloads for {} Jobs", workloads.len(), jobs.len());
    queues.close().await
}
