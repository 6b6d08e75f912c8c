//! The chart for Kueue's API: quota follows pods, and what an author writes proves nothing. With the webhooks and the garbage
//! collector of the cluster.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::cluster::text;
use super::kueues_place::queued;
use super::release::Release;
use super::{JOBS, PODS, Progress};
use crate::objects;

const QUEUE: &str = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/all";
const WORKLOADS: &str = "/apis/kueue.x-k8s.io/v1beta2/namespaces/team/workloads";
const SETS: &str = "/apis/apps/v1/namespaces/team/statefulsets";
const QUEUE_NAME: &str = "kueue.x-k8s.io/queue-name";
/// The CPUs of the queue.
const CPUS: usize = 4;
/// For so long, nothing that is wrong may happen.
const STABLE: Duration = Duration::from_secs(5);

/// Runs the checks.
pub(super) async fn run(release: &Release, done: &Progress) -> Result<()> {
    release.clear().await?;
    let flags = [
        "--set",
        "kueue.enabled=true",
        "--set",
        "kueue.jobs={batch/job,pod,statefulset}",
        "--create-namespace",
    ];
    release.helm(&["install", "muster"], Some(&release.options.chart), &flags).await?;
    release.ready(2).await?;
    release.queues(&CPUS.to_string()).await?;
    release.webhooks_answer().await?;
    release.orphaned_pods_keep_their_quota().await?;
    done.say("pods of an orphaned Job keep their quota until they are gone");
    release.labels_are_no_way_out().await?;
    done.say("a Job that loses the label of its queue gives back what it holds, and not before");
    release.scaled_sets_stay_within_their_quota().await?;
    done.say("a StatefulSet that is scaled by its subresource starts no pod without quota");
    release.forged_owners_gain_nothing().await?;
    done.say("made-up owners and Workloads of another namespace change no Job");
    release.helm(&["uninstall", "muster"], None, &["--timeout", "3m"]).await?;
    release.nothing_is_registered().await
}

impl Release {
    /// Deletes what other checks have left.
    async fn clear(&self) -> Result<()> {
        const KUEUE: &str = "/apis/kueue.x-k8s.io/v1beta2";
        let kinds =
            ["namespaces/team/workloads", "namespaces/team/localqueues", "clusterqueues", "resourceflavors"];
        let kinds = kinds.map(|kind| format!("{KUEUE}/{kind}"));
        for collection in [JOBS, PODS].into_iter().chain(kinds.iter().map(String::as_str)) {
            self.cluster.delete(&format!("{collection}?propagationPolicy=Background")).await?;
            self.cluster
                .until(&format!("nothing in {collection}"), async || {
                    Ok(self.cluster.list(collection).await?.is_empty().then_some(()))
                })
                .await?;
        }
        Ok(())
    }

    /// Waits until the API server asks the webhooks about Jobs. An installation before this one has left the definitions, so nothing
    /// else waits for the registration.
    async fn webhooks_answer(&self) -> Result<()> {
        let dry = format!("{JOBS}?dryRun=All");
        let job = queued(objects::job("dry", 1, "cpu=1", "1h"));
        let suspended = async || {
            let job = self.cluster.create(&dry, &job).await?;
            Ok((job["spec"]["suspend"] == true).then_some(()))
        };
        self.cluster.until("a webhook suspends Jobs in queues", suspended).await
    }

    async fn queued_job(&self, name: &str, pods: u32) -> Result<()> {
        let job = self.cluster.create(JOBS, &queued(objects::job(name, pods, "cpu=1", "1h"))).await?;
        ensure!(job["spec"]["suspend"] == true, "the webhook has not suspended the Job: {job}");
        Ok(())
    }

    /// The pods of the tenant that run or may start.
    async fn live_pods(&self) -> Result<Vec<Value>> {
        let mut pods = self.cluster.list(PODS).await?;
        pods.retain(|pod| {
            let is_over = ["Succeeded", "Failed"].iter().any(|phase| pod["status"]["phase"] == *phase);
            let is_gated = pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty());
            !is_over && !is_gated
        });
        Ok(pods)
    }

    async fn wait_live(&self, count: usize) -> Result<()> {
        self.cluster
            .until(&format!("{count} pods that run"), async || {
                let pods = self.live_pods().await?;
                let runs = |pod: &Value| pod["status"]["phase"] == "Running";
                Ok((pods.len() == count && pods.iter().all(runs)).then_some(()))
            })
            .await
    }

    /// Waits until so much of the queue is used.
    async fn wait_used(&self, cpus: usize) -> Result<()> {
        self.cluster
            .until(&format!("{cpus} CPUs in use"), async || {
                let queue = self.cluster.get(QUEUE).await?.unwrap_or_default();
                let used = text(&queue["status"]["flavorsUsage"][0]["resources"][0]["total"]).to_owned();
                Ok((used == cpus.to_string()).then_some(()))
            })
            .await
    }

    /// For a while no more pods run than the queue has quota for, and this Job waits.
    async fn stays_within_quota(&self, waits: &str) -> Result<()> {
        let end = tokio::time::Instant::now() + STABLE;
        while tokio::time::Instant::now() < end {
            let live = self.live_pods().await?.len();
            ensure!(live <= CPUS, "{live} CPUs run with a quota of {CPUS}");
            let job =
                self.cluster.get(&format!("{JOBS}/{waits}")).await?.context("a Job that waits is gone")?;
            ensure!(job["spec"]["suspend"] == true, "{waits} does not wait: {job}");
            sleep(Duration::from_millis(200)).await;
        }
        Ok(())
    }

    async fn delete_jobs(&self, names: &[&str]) -> Result<()> {
        for name in names {
            self.cluster.delete(&format!("{JOBS}/{name}?propagationPolicy=Background")).await?;
        }
        self.wait_used(0).await
    }

    async fn orphaned_pods_keep_their_quota(&self) -> Result<()> {
        self.queued_job("orphaned", 4).await?;
        self.wait_live(4).await?;
        self.queued_job("next", 4).await?;
        self.cluster.delete(&format!("{JOBS}/orphaned?propagationPolicy=Orphan")).await?;
        self.stays_within_quota("next").await?;
        self.wait_used(4).await?;
        for pod in self.live_pods().await? {
            self.cluster.delete(&format!("{PODS}/{}", text(&pod["metadata"]["name"]))).await?;
        }
        self.running("next", 4).await
    }

    async fn labels_are_no_way_out(&self) -> Result<()> {
        self.queued_job("waits", 4).await?;
        let unlabelled = json!({"metadata": {"labels": {QUEUE_NAME: null}}});
        // The webhook may refuse it, as that of Kueue does for jobs that run.
        self.cluster.patch(&format!("{JOBS}/next"), &unlabelled).await.ok();
        self.stays_within_quota("waits").await?;
        self.wait_used(4).await?;
        self.cluster.patch(&format!("{JOBS}/waits"), &unlabelled).await?;
        self.cluster
            .until("no Workload of the Job that has left", async || {
                let all = self.cluster.list(WORKLOADS).await?;
                let is_left = all.iter().any(|of| of["metadata"]["ownerReferences"][0]["name"] == "waits");
                Ok((!is_left).then_some(()))
            })
            .await?;
        self.delete_jobs(&["next", "waits"]).await
    }

    async fn scaled_sets_stay_within_their_quota(&self) -> Result<()> {
        self.cluster.create(SETS, &queued(objects::stateful_set("set", 3, "cpu=1"))).await?;
        self.wait_live(3).await?;
        self.queued_job("waits", 2).await?;
        let scale = format!("{SETS}/set/scale");
        self.cluster.patch(&scale, &json!({"spec": {"replicas": 6}})).await?;
        self.stays_within_quota("waits").await?;
        self.cluster.patch(&scale, &json!({"spec": {"replicas": 3}})).await?;
        self.wait_live(3).await?;
        self.wait_used(3).await?;
        self.cluster.delete(&format!("{SETS}/set?propagationPolicy=Background")).await?;
        self.running("waits", 2).await?;
        self.delete_jobs(&["waits"]).await
    }

    async fn forged_owners_gain_nothing(&self) -> Result<()> {
        self.queued_job("victim", 4).await?;
        self.wait_live(4).await?;
        self.queued_job("waits", 1).await?;
        let victim = self.cluster.get(&format!("{JOBS}/victim")).await?.context("the Job is gone")?;
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "intruder"}});
        self.cluster.create("/api/v1/namespaces", &namespace).await?;
        let mut template = victim["spec"]["template"].clone();
        template["metadata"] = json!({});
        let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "victim", "controller": true,
            "uid": victim["metadata"]["uid"]});
        let forged = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
            "metadata": {"name": "forged", "ownerReferences": [owner]},
            "spec": {"queueName": "q", "podSets": [{"name": "main", "count": 4, "template": template}]}});
        let theirs = "/apis/kueue.x-k8s.io/v1beta2/namespaces/intruder/workloads";
        self.cluster.create(theirs, &forged).await?;
        // A controller that nobody knows, and a kind that is not installed.
        for (at, kind) in ["AppWrapper", "Train"].into_iter().enumerate() {
            let mut job = queued(objects::job(&format!("owned-{at}"), 1, "cpu=1", "1h"));
            job["metadata"]["ownerReferences"] = json!([{"apiVersion": "made.up/v1", "kind": kind, "name": "none",
                "uid": "8a6b3c1e-2222-4444-8888-000000000000", "controller": true}]);
            let job = self.cluster.create(JOBS, &job).await?;
            ensure!(job["spec"]["suspend"] == true, "a made-up {kind} takes a Job past its queue: {job}");
        }
        self.stays_within_quota("waits").await?;
        self.wait_live(4).await?;
        let now = self.cluster.get(&format!("{JOBS}/victim")).await?.context("the victim's Job is gone")?;
        ensure!(now["spec"]["suspend"] == false, "the victim's Job was stopped: {now}");
        self.cluster.delete("/api/v1/namespaces/intruder").await?;
        self.delete_jobs(&["victim", "waits", "owned-0", "owned-1"]).await
    }
}
