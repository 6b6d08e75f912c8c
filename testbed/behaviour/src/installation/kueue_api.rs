//! The chart for Kueue's API, where Kueue is not installed.

use anyhow::{Result, ensure};

use super::kueues_place::queued;
use super::release::Release;
use super::{JOBS, PODS, Progress};
use crate::objects;

/// Runs the checks.
pub(super) async fn run(release: &Release, done: &Progress) -> Result<()> {
    release.kueue().await?;
    done.say("Kueue's Workloads are admitted, and after the end nothing holds them");
    Ok(())
}

impl Release {
    /// Jobs and a pod in a queue, under a release that is uninstalled then.
    async fn kueue(&self) -> Result<()> {
        let flags = [
            "--set",
            "kueue.enabled=true",
            "--set",
            "appWrappers.enabled=false",
            "--set",
            "kueue.jobs={batch/job,pod}",
            "--create-namespace",
        ];
        let chart = self.options.chart.clone();
        self.helm(&["install", "muster"], Some(&chart), &flags).await?;
        self.ready(2).await?;
        let kueue = "/apis/kueue.x-k8s.io/v1beta2";
        // The leader creates the definitions after it leads.
        self.queues("3").await?;
        for name in ["runs", "waits"] {
            self.cluster.create(JOBS, &queued(objects::job(name, 2, "cpu=1", "10m"))).await?;
            if name == "runs" {
                self.running("runs", 2).await?;
            }
        }
        let pod = self.cluster.create(PODS, &queued(objects::pod("waits", "cpu=2"))).await?;
        ensure!(!pod["spec"]["schedulingGates"].is_null(), "the pod does not wait in its queue: {pod}");
        let waits = self.cluster.get(&format!("{JOBS}/waits")).await?.unwrap_or_default();
        ensure!(waits["spec"]["suspend"] == true, "the webhook has not suspended the Job: {waits}");
        self.helm(&["uninstall", "muster"], None, &["--timeout", "3m"]).await?;
        self.nothing_is_registered().await?;
        self.running("runs", 2).await?;
        let waits = self.cluster.get(&format!("{JOBS}/waits")).await?.unwrap_or_default();
        ensure!(waits["spec"]["suspend"] == true, "a Job that waits was started: {waits}");
        let held = [
            PODS.to_owned(),
            format!("{kueue}/workloads"),
            format!("{kueue}/clusterqueues"),
            format!("{kueue}/resourceflavors"),
        ];
        for path in held {
            for object in self.cluster.list(&path).await? {
                let finalizers = object["metadata"]["finalizers"].to_string();
                let gates = object["spec"]["schedulingGates"].to_string();
                ensure!(
                    !finalizers.contains("kueue") && !gates.contains("kueue"),
                    "{path}: {object} is held"
                );
            }
        }
        Ok(())
    }
}
