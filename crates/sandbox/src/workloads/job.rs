//! The Job controller: carries out the decisions of `job_rules`.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::job_policies::{FAILURES, IGNORED_FAILURES};
use super::job_rules::{self, Decision, INDEX, TRACKING};
use super::template;
use crate::cluster::{Cluster, Delete, Error, Precondition, Queue, Recorder, Store, merge_patch};
use crate::pace::Pace;
use crate::wire::{Job, Key, Pod};

/// The value of `managedBy` for the built-in controller.
const CONTROLLER: &str = "kubernetes.io/job-controller";

/// The controller of Jobs.
pub(crate) struct Jobs {
    cluster: Cluster,
    store: Arc<Store<Job>>,
    pods: Arc<Store<Pod>>,
    recorder: Recorder,
    pace: Pace,
    pub(crate) queue: Queue<Key>,
}

impl Jobs {
    pub(crate) fn new(
        cluster: Cluster,
        store: Arc<Store<Job>>,
        pods: Arc<Store<Pod>>,
        recorder: &Recorder,
        pace: Pace,
    ) -> Self {
        Self {
            cluster,
            store,
            pods,
            recorder: recorder.for_component("job-controller"),
            pace,
            queue: Queue::new(),
        }
    }

    /// Queues the Job of a changed pod.
    pub(crate) fn pod_changed(&self, pod: &Pod) {
        if let Some(key) = pod.metadata.controller_of_kind("Job") {
            self.queue.add(key);
        }
    }

    pub(crate) async fn reconcile(&self, key: Key) -> Result<Option<Instant>, Error> {
        let all = self.pods.indexed(&format!("job/{}/{}", key.namespace, key.name));
        let job = self.store.get(&key).filter(|job| !job.metadata.is_deleting());
        let uid = job.as_ref().map_or("", |job| &job.metadata.uid);
        let (pods, orphans): (Vec<Arc<Pod>>, Vec<Arc<Pod>>) =
            all.into_iter().partition(|pod| pod.metadata.controller().is_some_and(|owner| owner.uid == uid));
        // The Job is gone, so no controller counts its pods: remove their finalizer.
        for pod in &orphans {
            self.remove_finalizer(pod).await?;
        }
        let Some(job) = job else { return Ok(None) };
        if job.spec.managed_by.as_deref().is_some_and(|manager| manager != CONTROLLER) {
            return Ok(None);
        }
        let job = self.cluster.limit(job, &self.recorder);
        let decision = job_rules::decide(&job, &pods, self.cluster.now(), self.pace);
        self.run_steps(&job, decision).await
    }

    async fn run_steps(&self, job: &Arc<Job>, decision: Decision) -> Result<Option<Instant>, Error> {
        if decision.expired {
            let how = Delete { grace: None, propagation: Some("Foreground") };
            return self.cluster.delete(&self.store, &job.metadata, how).await.map(|()| None);
        }
        // Write the status first: finished pods are listed as uncounted before they lose their finalizer, so that
        // every pod is counted exactly once.
        if decision.status != job.status {
            let status = merge_patch(&json!(job.status), &json!(decision.status));
            self.cluster
                .patch_status(&self.store, &job.metadata, status, Precondition::ResourceVersion)
                .await?;
        }
        for (is_warning, reason, message) in decision.events {
            self.recorder.tell(&**job, is_warning, &reason, message);
        }
        for pod in &decision.release {
            self.remove_finalizer(pod).await?;
        }
        for pod in &decision.delete {
            if !decision.counted_deletes {
                self.remove_finalizer(pod).await?;
            }
            self.cluster.delete(&self.pods, &pod.metadata, Delete::default()).await?;
            self.recorder.normal(&**job, "SuccessfulDelete", format!("Deleted pod: {}", pod.metadata.name));
        }
        for index in decision.create {
            let mut pod = pod(job, index);
            if let Some((failures, ignored)) = index.and_then(|index| decision.index_failures.get(&index)) {
                let counts = [(FAILURES, failures), (IGNORED_FAILURES, ignored)].into_iter();
                // The number of failures that do not count is told if there are any.
                let told = counts.filter(|(name, count)| *name == FAILURES || **count > 0);
                template::set_metadata(
                    &mut pod,
                    "annotations",
                    told.map(|(name, count)| (name, count.to_string())),
                );
            }
            match self.cluster.create(&self.pods, &job.metadata.namespace, &pod).await {
                Ok(pod) => {
                    self.recorder.normal(
                        &**job,
                        "SuccessfulCreate",
                        format!("Created pod: {}", pod.metadata.name),
                    );
                }
                Err(error) => {
                    self.recorder.warning(
                        &**job,
                        "FailedCreate",
                        format!("Error creating: {}", error.reason()),
                    );
                    return Err(error);
                }
            }
        }
        Ok(decision.wake.map(|wake| Instant::now() + wake))
    }

    /// Removes the finalizer of a pod.
    async fn remove_finalizer(&self, pod: &Arc<Pod>) -> Result<(), Error> {
        let finalizers = &pod.metadata.finalizers;
        if !finalizers.iter().any(|finalizer| finalizer == TRACKING) {
            return Ok(());
        }
        let rest: Vec<&String> = finalizers.iter().filter(|finalizer| *finalizer != TRACKING).collect();
        let rest = if rest.is_empty() { Value::Null } else { json!(rest) };
        let patch = json!({ "metadata": { "finalizers": rest } });
        match self.cluster.patch(&self.pods, &pod.metadata, patch, Precondition::Uid).await {
            Err(error) if !error.is_not_found() && !error.is_conflict() => Err(error),
            _ => Ok(()),
        }
    }
}

/// A pod of the Job, with its completion index if the Job is indexed.
fn pod(job: &Job, index: Option<i64>) -> Value {
    let mut pod = template::pod(&job.spec.template, job);
    let (name, uid) = (&job.metadata.name, &job.metadata.uid);
    let labels = [
        ("batch.kubernetes.io/controller-uid", uid.clone()),
        ("batch.kubernetes.io/job-name", name.clone()),
        ("controller-uid", uid.clone()),
        ("job-name", name.clone()),
    ];
    template::set_metadata(&mut pod, "labels", labels);
    pod["metadata"]["finalizers"] = json!([TRACKING]);
    let Some(index) = index else { return pod };
    pod["metadata"]["generateName"] = json!(format!("{name}-{index}-"));
    template::set_metadata(&mut pod, "annotations", [(INDEX, index.to_string())]);
    template::set_metadata(&mut pod, "labels", [(INDEX, index.to_string())]);
    if pod["spec"]["hostname"].is_null() {
        pod["spec"]["hostname"] = json!(format!("{name}-{index}"));
    }
    let variable = json!({
        "name": "JOB_COMPLETION_INDEX",
        "valueFrom": { "fieldRef": { "apiVersion": "v1", "fieldPath": format!("metadata.labels['{INDEX}']") } },
    });
    for list in ["initContainers", "containers"] {
        for container in pod["spec"][list].as_array_mut().into_iter().flatten() {
            match container["env"].as_array_mut() {
                Some(env) if env.iter().any(|given| given["name"] == variable["name"]) => {}
                Some(env) => env.push(variable.clone()),
                None => container["env"] = json!([variable]),
            }
        }
    }
    pod
}
