//! Reconciles a RayJob: observes, decides with `job_rules`, and carries out the steps. Also simulates the job inside
//! Ray: how long it runs and how it ends.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::job_rules::{self, Decision, Observed, RayInfo, Step, Submitter};
use super::submitter::{self, SUBMITTER};
use super::types::{RayCluster, RayJob};
use super::{services, status};
use crate::cluster::{
    Cluster, Delete, Error, Kind, Precondition, Queue, Recorder, Resource, Store, merge_patch,
};
use crate::kubelet::{FAIL, RUN_TIME, run_time};
use crate::pace::Pace;
use crate::wire::{Job, Key, Pod, Stamp, condition};

const FINALIZER: &str = "ray.io/rayjob-finalizer";
const OPERATOR: &str = "ray.io/kuberay-operator";
/// How long a job is pending after its submission.
const PENDING: Duration = Duration::from_secs(1);

/// Status and message of a finished job, as in Ray's dashboard.
const SUCCEEDED: (&str, &str) = ("SUCCEEDED", "Job finished successfully.");
const FAILED: (&str, &str) = ("FAILED", "Job entrypoint command failed.");

/// The RayJob controller.
pub(crate) struct JobOperator {
    cluster: Cluster,
    store: Arc<Store<RayJob>>,
    clusters: Arc<Store<RayCluster>>,
    submitters: Arc<Store<Job>>,
    pods: Arc<Store<Pod>>,
    recorder: Recorder,
    pace: Pace,
    /// The jobs that Ray runs, by job id.
    running: Mutex<BTreeMap<String, SimulatedRun>>,
    serial: AtomicU64,
    pub(crate) queue: Queue<Key>,
}

/// A job inside Ray.
#[derive(Clone, Debug)]
struct SimulatedRun {
    since: Instant,
    start: Stamp,
    /// The head pod on which the job runs. The job fails when this pod is replaced.
    head: String,
    end: Option<(Stamp, &'static str, &'static str)>,
}

/// The stores that the RayJob controller reads.
pub(crate) struct Caches {
    pub(crate) jobs: Arc<Store<RayJob>>,
    pub(crate) clusters: Arc<Store<RayCluster>>,
    pub(crate) submitters: Arc<Store<Job>>,
    pub(crate) pods: Arc<Store<Pod>>,
}

impl JobOperator {
    pub(crate) fn new(cluster: Cluster, caches: Caches, recorder: &Recorder, pace: Pace) -> Self {
        let Caches { jobs, clusters, submitters, pods } = caches;
        let recorder = recorder.for_component("rayjob-controller");
        let running = Mutex::default();
        Self {
            cluster,
            store: jobs,
            clusters,
            submitters,
            pods,
            recorder,
            pace,
            running,
            serial: AtomicU64::new(0),
            queue: Queue::new(),
        }
    }

    /// Queues the RayJob that controls a changed object.
    pub(crate) fn child_changed<K: Resource>(&self, child: &K) {
        if let Some(owner) = child.meta().controller().filter(|owner| owner.kind == "RayJob") {
            self.queue.add(Key::new(&*child.meta().namespace, &*owner.name));
        }
    }

    /// Queues the RayJob of a changed pod: its submitter, or the head of its cluster.
    pub(crate) fn pod_changed(&self, pod: &Pod) {
        if let Some(job) = pod.metadata.label("ray.io/originated-from-cr-name") {
            self.queue.add(Key::new(&*pod.metadata.namespace, job));
        }
        if let Some(name) = pod.metadata.label("ray.io/cluster").filter(|_| status::is_head(pod))
            && let Some(cluster) = self.clusters.get(&Key::new(&*pod.metadata.namespace, name))
        {
            self.child_changed(&*cluster);
        }
    }

    pub(crate) async fn reconcile(&self, key: Key) -> Result<Option<Instant>, Error> {
        let Some(job) = self.store.get(&key) else { return Ok(None) };
        if job.spec.managed_by.as_deref().is_some_and(|manager| manager != OPERATOR) {
            return Ok(None);
        }
        if job.metadata.is_deleting() {
            return self.finalize(&job, false).await.map(|()| None);
        }
        let name = job.status.ray_cluster_name.clone().unwrap_or_default();
        let cluster = self.clusters.get(&Key::new(&*key.namespace, name));
        let own = |held: &Job| held.metadata.controller().is_some_and(|owner| owner.uid == job.metadata.uid);
        let held = self.submitters.get(&key).filter(|held| own(held));
        let (submitter, until) = self.submitter(&job, held.as_deref());
        let now = Instant::now();
        let (ray_info, wake) = self.ray_info(&job, submitter, now);
        let decision = job_rules::decide(&Observed {
            job: &job,
            cluster: cluster.as_deref(),
            submitter,
            submitter_exists: held.is_some(),
            submitter_ended_at: until,
            ray_info,
            serial: self.serial.fetch_add(1, Ordering::Relaxed),
            now: self.cluster.now(),
            pace: self.pace,
        });
        let first = job.status.job_deployment_status.is_none();
        if first && decision.warning.is_none() {
            self.finalize(&job, true).await?;
        }
        let later = decision.wake.map(|pause| now + pause);
        self.run_steps(&job, cluster, decision).await?;
        Ok([later, wake].into_iter().flatten().min())
    }

    async fn run_steps(
        &self,
        job: &Arc<RayJob>,
        cluster: Option<Arc<RayCluster>>,
        decision: Decision,
    ) -> Result<(), Error> {
        if let Some((reason, message)) = decision.warning {
            self.recorder.warning(&**job, reason, message);
        }
        // The new status is needed before it is written: the submitter's command contains the job id and the address.
        let next = RayJob { status: decision.status, ..(**job).clone() };
        for step in decision.steps {
            self.act(&next, cluster.as_deref(), step).await?;
        }
        if next.status == job.status {
            return Ok(());
        }
        let patch = merge_patch(&json!(job.status), &json!(next.status));
        self.cluster.patch_status(&self.store, &job.metadata, patch, Precondition::Uid).await.map(drop)
    }

    async fn act(&self, job: &RayJob, cluster: Option<&RayCluster>, step: Step) -> Result<(), Error> {
        let namespace = &job.metadata.namespace;
        let key = job.metadata.key();
        match (step, cluster) {
            (Step::CreateCluster(name), _) => {
                match self.cluster.create(&self.clusters, namespace, &submitter::cluster(job, &name)).await {
                    Err(error) if error.is_conflict() => {}
                    Err(error) => {
                        let message =
                            format!("Failed to create RayCluster {namespace}/{name}: {}", error.reason());
                        self.recorder.warning(job, "FailedToCreateRayCluster", message);
                        return Err(error);
                    }
                    Ok(_) => {
                        let message = format!("Created RayCluster {namespace}/{name}");
                        self.recorder.normal(job, "CreatedRayCluster", message);
                    }
                }
            }
            (Step::CreateSubmitter, Some(cluster)) => {
                match self
                    .cluster
                    .create(&self.submitters, namespace, &submitter::submitter(job, cluster))
                    .await
                {
                    Err(error) if error.is_conflict() => {}
                    Err(error) => {
                        let message =
                            format!("Failed to create new Kubernetes Job {key}: {}", error.reason());
                        self.recorder.warning(job, "FailedToCreateRayJobSubmitter", message);
                        return Err(error);
                    }
                    Ok(_) => {
                        let message = format!("Created Kubernetes Job {key}");
                        self.recorder.normal(job, "CreatedRayJobSubmitter", message);
                    }
                }
            }
            (Step::CreateService, Some(cluster)) => {
                let service = services::of_job(job, cluster);
                if self.cluster.create_if_absent(Kind::SERVICE, namespace, &service).await? {
                    let message = format!("Created the service {key}-head-svc");
                    self.recorder.normal(job, "CreatedService", message);
                }
            }
            (Step::Submit, Some(cluster)) => self.submit(job, cluster),
            (Step::DeleteCluster, Some(cluster)) => {
                self.cluster.delete(&self.clusters, &cluster.metadata, Delete::default()).await?;
                let message = format!("Deleted cluster {}", cluster.metadata.key());
                self.recorder.normal(job, "DeletedRayCluster", message);
            }
            (Step::DeleteWorkers, Some(cluster)) => self.suspend_workers(job, cluster).await?,
            (Step::DeleteSubmitter, _) => {
                if let Some(held) = self.submitters.get(&key).filter(|held| !held.metadata.is_deleting()) {
                    self.cluster.delete(&self.submitters, &held.metadata, Delete::default()).await?;
                    self.recorder.normal(
                        job,
                        "DeletedRayJobSubmitter",
                        format!("Deleted submitter K8s Job {key}"),
                    );
                }
            }
            (Step::DeleteSelf, _) => {
                self.cluster.delete(&self.store, &job.metadata, Delete::default()).await?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Suspends all worker groups of the cluster.
    async fn suspend_workers(&self, job: &RayJob, cluster: &RayCluster) -> Result<(), Error> {
        let Some(mut object) = self.cluster.get(RayCluster::KIND, &cluster.metadata.key()).await? else {
            return Ok(());
        };
        let groups = &mut object["spec"]["workerGroupSpecs"];
        for group in groups.as_array_mut().into_iter().flatten() {
            group["suspend"] = json!(true);
        }
        let patch = json!({ "spec": { "workerGroupSpecs": groups } });
        self.cluster.patch(&self.clusters, &cluster.metadata, patch, Precondition::ResourceVersion).await?;
        let what = "Set the `suspend` field to true for all worker groups in cluster";
        self.recorder.normal(job, "UpdatedRayCluster", format!("{what} {}", cluster.metadata.key()));
        Ok(())
    }

    /// Adds or removes the finalizer.
    async fn finalize(&self, job: &RayJob, wanted: bool) -> Result<(), Error> {
        let mut finalizers = job.metadata.finalizers.clone();
        if finalizers.iter().any(|finalizer| finalizer == FINALIZER) == wanted {
            return Ok(());
        }
        finalizers.retain(|finalizer| finalizer != FINALIZER);
        if wanted {
            finalizers.push(FINALIZER.to_owned());
        }
        let finalizers = if finalizers.is_empty() { Value::Null } else { json!(finalizers) };
        let patch = json!({ "metadata": { "finalizers": finalizers } });
        match self.cluster.patch(&self.store, &job.metadata, patch, Precondition::ResourceVersion).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }

    /// The state of the submitter, and when it finished.
    fn submitter(&self, job: &RayJob, held: Option<&Job>) -> (Option<Submitter>, Option<Stamp>) {
        match job.spec.submission_mode.as_str() {
            "" | "K8sJobMode" => {
                let Some(held) = held else { return (Some(Submitter::Absent), None) };
                let ended = |kind: &str| {
                    let condition =
                        condition(&held.status.conditions, kind).filter(|c| c.status == "True")?;
                    condition.last_transition_time
                };
                match (ended("Complete"), ended("Failed")) {
                    (Some(at), _) => (Some(Submitter::Succeeded), Some(at)),
                    (None, Some(at)) => (Some(Submitter::Failed), Some(at)),
                    (None, None) => (Some(Submitter::Active), None),
                }
            }
            "SidecarMode" => {
                let ended = self.head(job).and_then(|head| {
                    let statuses = &head.status.container_statuses;
                    statuses.iter().find(|status| status.name == SUBMITTER)?.state.terminated.clone()
                });
                match ended {
                    None => (Some(Submitter::Active), None),
                    Some(end) if end.exit_code == 0 => (Some(Submitter::Succeeded), end.finished_at),
                    Some(end) => (Some(Submitter::Failed), end.finished_at),
                }
            }
            _ => (None, None),
        }
    }

    fn head(&self, job: &RayJob) -> Option<Arc<Pod>> {
        let (namespace, name) = (&job.metadata.namespace, job.status.ray_cluster_name.as_ref()?);
        self.pods.indexed(&format!("ray/{namespace}/{name}")).into_iter().find(|pod| status::is_head(pod))
    }

    /// Starts the simulated job.
    fn submit(&self, job: &RayJob, cluster: &RayCluster) {
        let Some(id) = job.status.job_id.clone() else { return };
        let (since, start) = (Instant::now(), self.cluster.stamp());
        let head = cluster.status.head.pod_name.clone();
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.entry(id).or_insert(SimulatedRun { since, start, head, end: None });
        drop(running);
        self.queue.add(job.metadata.key());
    }

    /// The state of the job inside Ray, and when time alone changes it.
    fn ray_info(
        &self,
        job: &RayJob,
        submitter: Option<Submitter>,
        now: Instant,
    ) -> (RayInfo, Option<Instant>) {
        let Some(id) = job
            .status
            .job_id
            .as_ref()
            .filter(|_| job.status.job_deployment_status.as_deref() == Some("Running"))
        else {
            return (RayInfo::NotFound, None);
        };
        let head = self.head(job).map(|head| head.metadata.name.clone()).unwrap_or_default();
        let mut all = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if submitter.is_some() && !all.contains_key(id) {
            let Some(start) = self.submitted(job) else { return (RayInfo::NotFound, None) };
            all.insert(id.clone(), SimulatedRun { since: now, start, head: head.clone(), end: None });
        }
        let Some(run) = all.get_mut(id) else { return (RayInfo::NotFound, None) };
        let stamp = self.cluster.stamp();
        let running = run.since + self.pace.scaled(PENDING);
        let over = run.since + self.pace.scaled(run_time(job.metadata.annotation(RUN_TIME)));
        let result = match submitter {
            Some(Submitter::Succeeded) => Some(SUCCEEDED),
            Some(Submitter::Failed) => Some(FAILED),
            Some(Submitter::Absent | Submitter::Active) => None,
            None if now < over => None,
            None => Some(if job.metadata.annotation(FAIL).is_some() { FAILED } else { SUCCEEDED }),
        };
        if run.end.is_none() {
            if run.head != head {
                run.end = Some((stamp, "FAILED", "The head on which the job ran is gone."));
            } else if let Some((status, message)) = result {
                run.end = Some((stamp, status, message));
            }
        }
        let (status, message, wake) = match run.end {
            Some((_, status, message)) => (status, message, None),
            None if now < running => ("PENDING", "Job has not started yet.", Some(running)),
            None => ("RUNNING", "Job is currently running.", Some(over).filter(|_| submitter.is_none())),
        };
        let end = run.end.map(|(at, ..)| at);
        (RayInfo::Found { status, message: message.to_owned(), start: run.start, end }, wake)
    }

    /// When the submitter's container started.
    fn submitted(&self, job: &RayJob) -> Option<Stamp> {
        let key = job.metadata.key();
        let sidecar = self.head(job).filter(|_| job.spec.submission_mode == "SidecarMode");
        let pods = match sidecar {
            Some(head) => vec![head],
            None => self.pods.indexed(&format!("job/{}/{}", key.namespace, key.name)),
        };
        let statuses = pods.iter().flat_map(|pod| {
            let sidecar = pod.metadata.label("ray.io/node-type").is_some();
            pod.status.container_statuses.iter().filter(move |status| !sidecar || status.name == SUBMITTER)
        });
        let started = statuses.filter_map(|status| {
            let running = status.state.running.as_ref().and_then(|running| running.started_at);
            running.or_else(|| status.state.terminated.as_ref().and_then(|end| end.started_at))
        });
        started.min()
    }
}
