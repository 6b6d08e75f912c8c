//! The chart in the place of MCAD, with the steps of `docs/install.md`, and the way back. MCAD is that of its own chart.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::cluster::text;
use super::release::Release;
use super::{JOBS, PODS, Progress, WRAPPERS};
use crate::objects;

const NAMESPACE: &str = "kube-system";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const DEFINITION: &str =
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/appwrappers.workload.codeflare.dev";

/// Runs the checks. `chart` is MCAD's. Its pod requests two of the sixteen CPUs.
pub(super) async fn run(release: &Release, chart: &Path, done: &Progress) -> Result<()> {
    let mcad = Release { namespace: NAMESPACE.to_owned(), ..release.clone() };
    mcad.helm(&["install", "mcad"], Some(chart), &[]).await?;
    mcad.mcad_is_ready(1).await?;
    release.wraps("first", 6, 0).await?;
    release.running("first", 2).await?;
    release.wraps("second", 4, 0).await?;
    release.running("second", 2).await?;
    release.wraps("old", 6, 0).await?;
    release.wraps("urgent", 6, 5).await?;
    for name in ["old", "urgent"] {
        release.is_queued(name).await?;
    }
    let definition = release.cluster.get(DEFINITION).await?.unwrap_or_default();
    let before = release.pods_of_tenants().await?;
    done.say("MCAD runs AppWrappers, and others are queued");

    mcad.scale_mcad(0).await?;
    release.helm(&["install", "muster"], Some(&release.options.chart), &["--create-namespace"]).await?;
    release.ready(2).await?;
    release.leader().await?;
    for name in ["first", "second"] {
        release.has_state(name, "Running").await?;
    }
    ensure!(release.pods_of_tenants().await? == before, "pods were restarted");
    let now = release.cluster.get(DEFINITION).await?.unwrap_or_default();
    ensure!(
        now["metadata"]["generation"] == definition["metadata"]["generation"],
        "MCAD's definition was changed"
    );
    done.say("in MCAD's place, running AppWrappers run on");
    release.gives_up("first").await?;
    release.running("urgent", 2).await?;
    release.is_queued("old").await?;
    done.say("AppWrappers that MCAD has dispatched are ended, and what is queued is dispatched in its order");

    let before = release.pods_of_tenants().await?;
    release.helm(&["uninstall", "muster"], None, &["--timeout", "3m"]).await?;
    release.nothing_is_registered().await?;
    mcad.scale_mcad(1).await?;
    mcad.mcad_is_ready(1).await?;
    release.wraps("small", 2, 0).await?;
    release.running("small", 2).await?;
    release.gives_up("urgent").await?;
    release.running("old", 2).await?;
    let now = release.pods_of_tenants().await?;
    ensure!(now.intersection(&before).count() == 2, "{before:?} ran under Muster, {now:?} run under MCAD");
    done.say("after the way back, MCAD ends what Muster has dispatched, and dispatches what is queued");
    for name in ["second", "small", "old"] {
        release.gives_up(name).await?;
    }
    mcad.helm(&["uninstall", "mcad"], None, &[]).await?;
    for definition in release.cluster.list(DEFINITIONS).await? {
        let name = text(&definition["metadata"]["name"]);
        if name.ends_with(".codeflare.dev") {
            release.cluster.delete(&format!("{DEFINITIONS}/{name}")).await?;
        }
    }
    Ok(())
}

impl Release {
    /// Waits until so many pods of MCAD are there, and all are ready.
    async fn mcad_is_ready(&self, count: usize) -> Result<()> {
        self.cluster
            .until(&format!("{count} pods of MCAD"), async || {
                let pods = self.cluster.list(&format!("/api/v1/namespaces/{NAMESPACE}/pods")).await?;
                let is_mcad = |pod: &&Value| pod["metadata"]["labels"]["app"] == "custom-metrics-apiserver";
                let pods: Vec<_> = pods.iter().filter(is_mcad).collect();
                let are_ready = pods.iter().all(|pod| self.node.is_ready(text(&pod["status"]["podIP"])));
                Ok((pods.len() == count && are_ready).then_some(()))
            })
            .await
    }

    async fn scale_mcad(&self, replicas: usize) -> Result<()> {
        let path = "/apis/apps/v1/namespaces/kube-system/deployments/mcad-controller/scale";
        self.cluster.patch(path, &json!({"spec": {"replicas": replicas}})).await?;
        self.mcad_is_ready(replicas).await
    }

    /// Creates an AppWrapper of a Job with two pods. It is older than later ones: the API server counts whole seconds.
    async fn wraps(&self, name: &str, cpus: u32, priority: i32) -> Result<()> {
        let mut wrapper = objects::wrap(name, [objects::job(name, 2, &format!("cpu={}", cpus / 2), "10m")]);
        wrapper["spec"]["priority"] = priority.into();
        // MCAD would count one pod of the Job.
        let declared = json!([{"replicas": 2, "requests": {"cpu": cpus / 2}}]);
        wrapper["spec"]["resources"]["GenericItems"][0]["custompodresources"] = declared;
        let created = self.cluster.create(WRAPPERS, &wrapper).await?;
        let created: jiff::Timestamp = text(&created["metadata"]["creationTimestamp"]).parse()?;
        self.cluster
            .until("the next second", async || {
                Ok((created.as_second() < jiff::Timestamp::now().as_second()).then_some(()))
            })
            .await
    }

    async fn has_state(&self, name: &str, state: &str) -> Result<()> {
        self.cluster
            .until(&format!("the state {state} of {name}"), async || {
                let wrapper = self.cluster.get(&format!("{WRAPPERS}/{name}")).await?.unwrap_or_default();
                Ok((wrapper["status"]["state"] == state).then_some(()))
            })
            .await
    }

    /// Whether an AppWrapper waits, and none of its objects exists.
    async fn is_queued(&self, name: &str) -> Result<()> {
        self.has_state(name, "Pending").await?;
        ensure!(self.cluster.get(&format!("{JOBS}/{name}")).await?.is_none(), "{name} is dispatched");
        Ok(())
    }

    /// Deletes an AppWrapper, and waits until its objects and pods are gone.
    async fn gives_up(&self, name: &str) -> Result<()> {
        self.cluster.delete(&format!("{WRAPPERS}/{name}")).await?;
        self.cluster
            .until(&format!("the end of {name}"), async || {
                let is_gone = self.cluster.get(&format!("{JOBS}/{name}")).await?.is_none();
                Ok((is_gone && self.pods_of(name).await?.is_empty()).then_some(()))
            })
            .await
    }

    /// The identities of all pods of tenants.
    async fn pods_of_tenants(&self) -> Result<BTreeSet<String>> {
        let pods = self.cluster.list(PODS).await?;
        Ok(pods.iter().map(|pod| text(&pod["metadata"]["uid"]).to_owned()).collect())
    }
}
