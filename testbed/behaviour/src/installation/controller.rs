//! The replicas of a release as the controller under test of cases.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::config::Kubeconfig;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::release::{REPLICAS, Release};
use super::{Options, serve};
use crate::environment::{Controller, Flags, LeaderElection, connect_without_credentials};
use crate::process::Process;
use crate::proxy::Proxy;
use crate::rbac;

/// That of the service account in `rbac::ACCOUNT`.
const NAMESPACE: &str = "muster";
const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/muster/deployments/muster";

/// A release of the chart with the values of some flags. Its replicas run as processes, and are killed and started together.
pub struct Installed {
    shared: Arc<Shared>,
    values: Vec<String>,
}

/// The release, for all flags.
struct Shared {
    release: Release,
    /// Between the replicas and the API server.
    proxy: Proxy,
    /// Starts controllers beside the release, with its service account.
    process: Process,
    serving: Mutex<JoinSet<Result<()>>>,
    /// What the release has now.
    values: Mutex<Vec<String>>,
}

impl Installed {
    /// Installs the chart so that its replicas behave as a controller with default [`Flags`] does, and leader election. What an earlier
    /// run has installed is upgraded.
    ///
    /// # Errors
    /// The chart cannot be installed, or its replicas are not ready in time.
    pub async fn install(options: Options, process: Process) -> Result<Self> {
        let proxy = process.proxy().of_pods(connect_without_credentials(&options.kubeconfig).await?);
        let kubeconfig = Kubeconfig::from_yaml(&proxy.listen().await?)?;
        let (release, serving) = serve(options, NAMESPACE.to_owned(), kubeconfig).await?;
        let values = values(Flags::default());
        release.prepare_node().await?;
        release.install(&values).await?;
        rbac::wait_wrapped(&release.cluster.client).await?;
        let (serving, installed) = (Mutex::new(serving), Mutex::new(values.clone()));
        let shared = Arc::new(Shared { release, proxy, process, serving, values: installed });
        let installed = Self { shared, values };
        installed.start().await?;
        Ok(installed)
    }

    async fn scale(&self, replicas: usize) -> Result<()> {
        let release = &self.shared.release;
        release.cluster.patch(DEPLOYMENT, &json!({"spec": {"replicas": replicas}})).await?;
        let ready = async {
            while !is_rolled_out(&release.cluster.get(DEPLOYMENT).await?.unwrap_or_default(), replicas)
                || release.ready_now(replicas).await?.is_none()
            {
                sleep(Duration::from_millis(50)).await;
            }
            Ok(())
        };
        let within = release.options.timeout;
        timeout(within, ready)
            .await
            .with_context(|| format!("not within {within:?}: {replicas} ready replicas"))?
    }
}

/// Whether a Deployment has this number of pods, and all have its newest template.
fn is_rolled_out(deployment: &Value, replicas: usize) -> bool {
    let status = &deployment["status"];
    let is_count = |field: &str| status[field].as_u64().unwrap_or_default() == replicas as u64;
    status["observedGeneration"] == deployment["metadata"]["generation"]
        && is_count("replicas")
        && is_count("updatedReplicas")
}

/// The values of the chart for flags. Leader election is on with all of them.
fn values(flags: Flags) -> Vec<String> {
    let Flags { leader_election: _, preemption, quota, queues: _, review } = flags;
    let authorization = if review.is_some() { "webhook" } else { "none" };
    vec![
        r#"appWrappers.groups=["workload.codeflare.dev", "mcad.ibm.com"]"#.to_owned(),
        format!("appWrappers.authorization={authorization:?}"),
        format!("appWrappers.preemption={preemption}"),
        format!("appWrappers.quota={quota}"),
        // With its permissions, processes of the same account review authors.
        "metrics.enabled=true".to_owned(),
    ]
}

impl Controller for Installed {
    fn start(&self) -> BoxFuture<'_, Result<()>> {
        async move {
            let Shared { release, serving, values, .. } = &*self.shared;
            if let Some(ended) = serving.lock().await.try_join_next() {
                ended?.context("the pods of the release are not served any more")?;
                bail!("the pods of the release are not served any more");
            }
            release.node.restore();
            let mut values = values.lock().await;
            if *values != self.values {
                release.install(&self.values).await?;
                values.clone_from(&self.values);
            }
            self.scale(REPLICAS).await
        }
        .boxed()
    }

    fn kill(&self) -> BoxFuture<'_, Result<()>> {
        self.shared.release.node.kill().boxed()
    }

    fn terminate(&self) -> BoxFuture<'_, Result<()>> {
        self.scale(0).boxed()
    }

    fn is_running(&self) -> BoxFuture<'_, Result<bool>> {
        futures::future::ok(!self.shared.release.node.processes().is_empty()).boxed()
    }

    fn proxy(&self) -> &Proxy {
        &self.shared.proxy
    }

    /// A controller that acts alone in the place of the release is the release with other values. Those that act beside others, with
    /// proxies of their own, are processes, and those with queues, because their cases define Kueue's kinds and permissions.
    fn replica(&self, flags: Flags) -> BoxFuture<'_, Result<Box<dyn Controller>>> {
        let Flags { leader_election, preemption, quota, queues, .. } = flags;
        let is_alone = leader_election == LeaderElection::Disabled && (preemption || quota) && !queues;
        if !is_alone {
            return self.shared.process.replica(flags);
        }
        let other = Self { shared: self.shared.clone(), values: values(flags) };
        futures::future::ok(Box::new(other) as Box<dyn Controller>).boxed()
    }
}
