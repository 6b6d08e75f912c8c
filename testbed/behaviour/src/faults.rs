//! What can befall a cluster, as far as each of them can be made to suffer it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::Client;
use tokio::process::Command;
use tokio::time::{Instant, sleep};

use crate::link::Link;
use crate::process::signal;

/// What can befall a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The API server ends and starts again with all that is stored. It cannot tell any more what changed before.
    ApiServerRestarts,
    /// So does what it stores in.
    StoreRestarts,
}

/// Makes a cluster suffer.
pub trait Faults: Send + Sync {
    /// Lets this happen, and returns when the cluster answers again.
    fn strike(&self, fault: Fault) -> BoxFuture<'_, Result<()>>;
}

/// A cluster that is spared.
pub struct Spared;

impl Faults for Spared {
    fn strike(&self, fault: Fault) -> BoxFuture<'_, Result<()>> {
        async move { bail!("{fault:?} cannot be played here: give --cluster or --api-server") }.boxed()
    }
}

/// A cluster that `testbed/up` has started.
pub struct Testbed {
    /// Its folder.
    pub dir: PathBuf,
    /// The cluster.
    pub client: Client,
}

impl Faults for Testbed {
    fn strike(&self, fault: Fault) -> BoxFuture<'_, Result<()>> {
        let program = match fault {
            Fault::ApiServerRestarts => "kube-apiserver",
            Fault::StoreRestarts => "etcd",
        };
        async move {
            let restart = Path::new(env!("CARGO_MANIFEST_DIR")).join("../restart");
            let status = Command::new(restart).arg("--dir").arg(&self.dir).arg(program).status().await?;
            ensure!(status.success(), "{program} was not started again");
            ready(&self.client).await
        }
        .boxed()
    }
}

/// Waits until an API server says that it is ready, and that what it stores in is.
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

/// An API server in memory, `muster up --api-only`. It cannot end without losing all; to its clients a signal looks the same: all watches
/// end, and what changed before is forgotten. It is its own store.
pub struct InMemory {
    /// Its process.
    pub process: u32,
    /// The way of the controller, for which nobody answers meanwhile.
    pub link: Link,
}

impl Faults for InMemory {
    fn strike(&self, _: Fault) -> BoxFuture<'_, Result<()>> {
        async move { outage(&self.link, signal("HUP", self.process)).await }.boxed()
    }
}

/// How long a controller is without answers while a server in memory seems to restart.
const OUTAGE: Duration = Duration::from_secs(2);

/// Lets something happen while nobody answers to a controller.
pub async fn outage(link: &Link, what: impl Future<Output = Result<()>>) -> Result<()> {
    let was_open = link.is_open();
    link.cut();
    what.await?;
    sleep(OUTAGE).await;
    if was_open {
        link.mend();
    }
    Ok(())
}
