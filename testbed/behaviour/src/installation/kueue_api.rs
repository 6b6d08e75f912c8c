//! The chart for Kueue's API, where Kueue is not installed.

use anyhow::{Result, ensure};
use serde_json::json;

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
    /// The same for Kueue's API.
    async fn kueue(&self) -> Result<()> {
        let flags = [
            "--set",
            "kueue.enabled=true",
            "--set",
            "appWrappers.enabled=false",
            "--set",
            "kueue.jobs={batch/job,pod}",
        ];
        let chart = self.options.chart.clone();
        self.helm(&["install", "muster"], Some(&chart), &flags).await?;
        self.ready(2).await?;
        let kueue = "/apis/kueue.x-k8s.io/v1beta2";
        let flavor = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "default"}});
        let queue = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "all"},
            "spec": {"namespaceSelector": {}, "resourceGroups": [{"coveredResources": ["cpu"],
                "flavors": [{"name": "default", "resources": [{"name": "cpu", "nominalQuota": "3"}]}]}]}});
        let local = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"name": "q"},
            "spec": {"clusterQueue": "all"}});
        let paths = [
            format!("{kueue}/resourceflavors"),
            format!("{kueue}/clusterqueues"),
            format!("{kueue}/namespaces/team/localqueues"),
        ];
        for (path, object) in paths.iter().zip([flavor, queue, local]) {
            // The leader creates the definitions after it leads.
            self.cluster
                .until(path, async || {
                    self.cluster.create(path, &object).await?;
                    Ok(Some(()))
                })
                .await?;
        }
        for name in ["runs", "waits"] {
            let mut job = objects::job(name, 2, "cpu=1", "10m");
            job["metadata"]["labels"] = json!({"kueue.x-k8s.io/queue-name": "q"});
            self.cluster.create(JOBS, &job).await?;
            if name == "runs" {
                self.running("runs", 2).await?;
            }
        }
        let mut pod = objects::pod("waits", "cpu=2");
        pod["metadata"]["labels"] = json!({"kueue.x-k8s.io/queue-name": "q"});
        let pod = self.cluster.create(PODS, &pod).await?;
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
