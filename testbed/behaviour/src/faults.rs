//! Faults that cases inject, for each type of cluster.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::Client;
use tokio::process::Command;
use tokio::time::{Instant, sleep};

use crate::process::signal;
use crate::proxy::Proxy;

/// A fault of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The API server restarts with its stored objects, but without its watch history.
    ApiServerRestarts,
    /// The store of the API server (etcd) restarts.
    StoreRestarts,
}

/// Injects faults into a cluster.
pub trait FaultInjector: Send + Sync {
    /// Injects a fault, and returns when the API server answers again.
    fn inject(&self, fault: Fault) -> BoxFuture<'_, Result<()>>;
}

/// A cluster without fault injection.
pub struct NoFaults;

impl FaultInjector for NoFaults {
    fn inject(&self, fault: Fault) -> BoxFuture<'_, Result<()>> {
        async move { bail!("cannot inject {fault:?}: set --cluster or --api-server") }.boxed()
    }
}

/// A cluster of `testbed/up`.
pub struct Testbed {
    /// The folder of the cluster.
    pub dir: PathBuf,
    /// A client of the cluster.
    pub client: Client,
}

impl FaultInjector for Testbed {
    fn inject(&self, fault: Fault) -> BoxFuture<'_, Result<()>> {
        let program = match fault {
            Fault::ApiServerRestarts => "kube-apiserver",
            Fault::StoreRestarts => "etcd",
        };
        async move {
            let restart = Path::new(env!("CARGO_MANIFEST_DIR")).join("../restart");
            let status = Command::new(restart).arg("--dir").arg(&self.dir).arg(program).status().await?;
            ensure!(status.success(), "cannot restart {program}");
            ready(&self.client).await
        }
        .boxed()
    }
}

/// Waits until `/readyz` succeeds, which includes the check of etcd.
async fn ready(client: &Client) -> Result<()> {
    let begin = Instant::now();
    loop {
        let answer = client.request_text(http::Request::get("/readyz").body(Vec::new())?).await;
        match answer {
            Ok(_) => return Ok(()),
            Err(error) if begin.elapsed() > Duration::from_mins(1) => return Err(error.into()),
            Err(_) => sleep(Duration::from_millis(50)).await,
        }
    }
}

/// An API server in memory, `muster up --api-only`.
///
/// The process cannot restart without losing its objects. On SIGHUP it ends all watches and drops its watch history, which clients
/// cannot distinguish from a restart. It has no separate store.
pub struct InMemoryServer {
    /// The id of the process.
    pub process: u32,
    /// The controller's proxy, which is disconnected during the fault.
    pub proxy: Proxy,
}

impl FaultInjector for InMemoryServer {
    fn inject(&self, _: Fault) -> BoxFuture<'_, Result<()>> {
        async move { outage(&self.proxy, signal("HUP", self.process)).await }.boxed()
    }
}

/// How long the controller is disconnected during a simulated restart.
const OUTAGE: Duration = Duration::from_secs(2);

/// Runs a future while the controller is disconnected from the API server.
pub async fn outage(proxy: &Proxy, what: impl Future<Output = Result<()>>) -> Result<()> {
    let was_connected = proxy.is_connected();
    proxy.disconnect();
    what.await?;
    sleep(OUTAGE).await;
    if was_connected {
        proxy.reconnect();
    }
    Ok(())
}
