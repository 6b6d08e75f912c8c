//! The chart for AppWrappers: it is used, its leader is killed, it is upgraded and uninstalled.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::cluster::text;
use super::release::Release;
use super::{PODS, Progress, WRAPPERS};
use crate::objects;

const GATE: &str = "muster.dev/placement";

/// Runs the checks.
pub(super) async fn run(release: &Release, done: &Progress) -> Result<()> {
    let first = release.options.previous.clone().unwrap_or_else(|| release.options.chart.clone());
    release.helm(&["install", "muster"], Some(&first), &["--create-namespace"]).await?;
    release.ready(2).await?;
    release.one_leads().await?;
    done.say("two replicas are ready and one of them leads");
    release.tenants_are_checked().await?;
    done.say("an author can wrap only what the author may create");
    release.dispatches("first").await?;
    done.say("a gang runs on the planned nodes");
    release.answers().await?;
    done.say("the endpoint answers through the API server");
    release.second_install_is_refused().await?;
    done.say("a second installation is refused and changes nothing");
    release.survives_a_killed_leader().await?;
    done.say("the standby takes over from a killed leader");
    release.upgrades_under_load().await?;
    done.say("an upgrade refuses no AppWrapper");
    release.uninstalls().await?;
    done.say("nothing is left but workloads and definitions, and no pod is gated");
    Ok(())
}

impl Release {
    async fn one_leads(&self) -> Result<()> {
        let leader = self.leader().await?;
        let names: Vec<_> =
            self.pods().await?.iter().map(|pod| text(&pod["metadata"]["name"]).to_owned()).collect();
        ensure!(names.contains(&leader), "{leader} leads, but the replicas are {names:?}");
        Ok(())
    }

    async fn tenants_are_checked(&self) -> Result<()> {
        let wrapped = objects::wrap("stolen", [objects::config_map("stolen")]);
        let wrapped = of_codeflare(wrapped);
        // The leader registers the webhook a moment after it leads.
        self.cluster
            .until("a refusal by the webhook", async || {
                match self.cluster.create_as(WRAPPERS, &wrapped, Some("tenant")).await {
                    Ok(_) => {
                        self.cluster.delete(&format!("{WRAPPERS}/stolen")).await?;
                        Ok(None)
                    }
                    Err(error) => {
                        let error = format!("{error:#}");
                        Ok(error.contains("user \"tenant\" cannot create configmaps").then_some(()))
                    }
                }
            })
            .await
    }

    /// A gang of two pods starts.
    pub(super) async fn dispatches(&self, name: &str) -> Result<()> {
        let wrapper = of_codeflare(objects::wrap(name, [objects::job(name, 2, "cpu=1", "10m")]));
        // A client tries again: for a moment after a crash, the Service still leads to the replica that is gone.
        self.cluster
            .until(&format!("the creation of {name}"), async || {
                self.cluster.create(WRAPPERS, &wrapper).await.map(Some)
            })
            .await?;
        self.running(name, 2).await
    }

    async fn answers(&self) -> Result<()> {
        let path = "/apis/visibility.muster.dev/v1beta1/namespaces/team/appwrapperreports";
        self.cluster
            .until("reports of the endpoint", async || {
                let reports = self.cluster.list(path).await?;
                Ok(reports.iter().any(|report| report["metadata"]["name"] == "first").then_some(()))
            })
            .await
    }

    async fn second_install_is_refused(&self) -> Result<()> {
        let again = self.try_helm(&["install", "again"], Some(&self.options.chart), &[]).await?;
        let Err(error) = again else { bail!("the second installation was not refused") };
        ensure!(error.contains("invalid ownership metadata") || error.contains("exists"), "{error}");
        self.ready(2).await?;
        Ok(())
    }

    async fn survives_a_killed_leader(&self) -> Result<()> {
        let leader = self.leader().await?;
        let process = self.node.processes().get(&leader).copied();
        let process = process.with_context(|| format!("{leader} has no process"))?;
        let begin = Instant::now();
        crate::process::signal("KILL", process).await?;
        self.dispatches("after-the-crash").await?;
        println!(
            "        a gang that came after the crash runs after {:.1} s",
            begin.elapsed().as_secs_f64()
        );
        self.ready(2).await?;
        Ok(())
    }

    /// AppWrappers are created while all replicas are replaced.
    async fn upgrades_under_load(&self) -> Result<()> {
        let before: BTreeSet<_> = self.ready(2).await?.into_iter().collect();
        let upgrade = self.helm(
            &["upgrade", "muster"],
            Some(&self.options.chart),
            &["--set", "podAnnotations.upgrade=yes"],
        );
        let created = AtomicUsize::new(0);
        let replaced = async {
            upgrade.await?;
            self.cluster
                .until("replaced replicas", async || {
                    let now: BTreeSet<_> = self.ready(2).await?.into_iter().collect();
                    Ok(now.is_disjoint(&before).then_some(()))
                })
                .await
        };
        tokio::select! {
            result = replaced => result?,
            result = self.load(&created) => { result?; }
        }
        println!("        {} AppWrappers were created meanwhile", created.into_inner());
        self.dispatches("after-the-upgrade").await
    }

    /// Creates AppWrappers for ever, and counts them.
    async fn load(&self, created: &AtomicUsize) -> Result<Infallible> {
        loop {
            let name = format!("load-{}", created.fetch_add(1, Ordering::Relaxed));
            let wrapper = of_codeflare(objects::wrap(&name, [objects::config_map(&name)]));
            self.cluster.create(WRAPPERS, &wrapper).await.context("during the upgrade")?;
            sleep(Duration::from_millis(200)).await;
        }
    }

    /// With a running gang, a waiting one, and a pod that is still gated.
    async fn uninstalls(&self) -> Result<()> {
        let large = of_codeflare(objects::wrap("large", [objects::job("large", 40, "cpu=1", "10m")]));
        self.cluster.create(WRAPPERS, &large).await?;
        let mut gated = objects::pod("gated", "cpu=1");
        gated["spec"]["schedulingGates"] = json!([{"name": GATE}]);
        self.cluster.create(PODS, &gated).await?;
        let uids = async || -> Result<BTreeSet<String>> {
            let pods = self.cluster.list(PODS).await?;
            Ok(pods.iter().map(|pod| text(&pod["metadata"]["uid"]).to_owned()).collect())
        };
        let before = uids().await?;
        let wrappers = self.cluster.list(WRAPPERS).await?.len();
        self.helm(&["uninstall", "muster"], None, &["--timeout", "3m"]).await?;
        ensure!(self.pods().await?.is_empty(), "replicas are left");
        self.nothing_is_registered().await?;
        let pods = self.cluster.list(PODS).await?;
        let gated: Vec<_> = pods
            .iter()
            .filter(|pod| pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()))
            .map(|pod| text(&pod["metadata"]["name"]))
            .collect();
        ensure!(gated.is_empty(), "pods are gated: {gated:?}");
        ensure!(uids().await? == before, "pods of workloads were touched");
        ensure!(self.cluster.list(WRAPPERS).await?.len() == wrappers, "AppWrappers were touched");
        // Without a webhook, AppWrappers can be created and deleted again.
        let later = of_codeflare(objects::wrap("later", [objects::config_map("later")]));
        self.cluster.create(WRAPPERS, &later).await?;
        for name in ["later", "large"] {
            self.cluster.delete(&format!("{WRAPPERS}/{name}")).await?;
        }
        Ok(())
    }
}

/// An AppWrapper of the newer group.
pub(super) fn of_codeflare(mut wrapper: Value) -> Value {
    wrapper["apiVersion"] = "workload.codeflare.dev/v1beta1".into();
    wrapper
}
