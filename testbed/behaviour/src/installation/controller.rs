//! The replicas of a release as the controller under test of cases.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::config::Kubeconfig;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::release::Release;
use super::{Options, serve};
use crate::environment::{Controller, Flags, connect_without_credentials};
use crate::objects;
use crate::process::Process;
use crate::proxy::Proxy;
use crate::rbac;

/// The label and the taint of the node of the replicas, so that cases do not see it. It tolerates no pod of theirs.
const NODE: &str = "behaviour.muster.dev/installation";
/// That of the service account in `rbac::ACCOUNT`.
const NAMESPACE: &str = "muster";
const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/muster/deployments/muster";
const REPLICAS: usize = 2;

/// A release of the chart whose replicas run as processes, and are killed and started together.
pub struct Installed {
    release: Release,
    /// Between the replicas and the API server.
    proxy: Proxy,
    /// Controllers with other flags are processes beside the release, with the service account of the release.
    process: Process,
    serving: Mutex<JoinSet<Result<()>>>,
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
        if release.cluster.get("/api/v1/nodes/installation").await?.is_none() {
            release.cluster.create("/api/v1/nodes", &node()).await?;
        }
        let values = values();
        let mut flags = vec!["--install", "--create-namespace"];
        flags.extend(values.iter().flat_map(|value| ["--set-json", value]));
        release.helm(&["upgrade", "muster"], Some(&release.options.chart), &flags).await?;
        rbac::wait_wrapped(&release.cluster.client).await?;
        let installed = Self { release, proxy, process, serving: Mutex::new(serving) };
        installed.start().await?;
        Ok(installed)
    }

    async fn scale(&self, replicas: usize) -> Result<()> {
        self.release.cluster.patch(DEPLOYMENT, &json!({"spec": {"replicas": replicas}})).await?;
        let ready = async {
            while self.release.ready_now(replicas).await?.is_none() {
                sleep(Duration::from_millis(50)).await;
            }
            Ok(())
        };
        let within = self.release.options.timeout;
        timeout(within, ready)
            .await
            .with_context(|| format!("not within {within:?}: {replicas} ready replicas"))?
    }
}

/// The node of the replicas.
fn node() -> Value {
    let mut node = objects::node("installation", "cpu=8");
    node["metadata"]["labels"][NODE] = "true".into();
    node["spec"]["taints"] = json!([{"key": NODE, "effect": "NoSchedule"}]);
    node
}

/// The values of the release: those of the default flags, and a node.
fn values() -> [String; 5] {
    [
        r#"appWrappers.groups=["workload.codeflare.dev", "mcad.ibm.com"]"#.to_owned(),
        r#"appWrappers.authorization="none""#.to_owned(),
        // With its permissions, processes of the same account review authors.
        "metrics.enabled=true".to_owned(),
        format!("nodeSelector={}", json!({NODE: "true"})),
        format!("tolerations={}", json!([{"key": NODE, "operator": "Exists"}])),
    ]
}

impl Controller for Installed {
    fn start(&self) -> BoxFuture<'_, Result<()>> {
        async move {
            if let Some(ended) = self.serving.lock().await.try_join_next() {
                ended?.context("the pods of the release are not served any more")?;
                bail!("the pods of the release are not served any more");
            }
            self.release.node.restore();
            self.scale(REPLICAS).await
        }
        .boxed()
    }

    fn kill(&self) -> BoxFuture<'_, Result<()>> {
        self.release.node.kill().boxed()
    }

    fn terminate(&self) -> BoxFuture<'_, Result<()>> {
        self.scale(0).boxed()
    }

    fn is_running(&self) -> BoxFuture<'_, Result<bool>> {
        futures::future::ok(!self.release.node.processes().is_empty()).boxed()
    }

    fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    fn replica(&self, flags: Flags) -> BoxFuture<'_, Result<Box<dyn Controller>>> {
        self.process.replica(flags)
    }
}
