//! Where cases run.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::faults::Faults;
use crate::link::Link;

/// A cluster without nodes and without AppWrappers, and the controller that looks after it.
pub struct Environment {
    /// The cluster.
    pub client: Client,
    /// Starts and stops the controller.
    pub controller: Box<dyn Controller>,
    /// Lets things happen to the cluster.
    pub faults: Box<dyn Faults>,
    /// Keeps namespaces of runs on the same cluster apart.
    pub word: String,
    /// How long a condition may take to be met.
    pub patience: Duration,
    /// For how long something must not happen to count as never happening.
    pub quiet: Duration,
    /// Between two looks.
    pub pause: Duration,
    /// Between two writes of somebody who gets in the controller's way: longer than an answer to it takes.
    pub haste: Duration,
}

/// A controller that can be switched on and off.
pub trait Controller: Send + Sync {
    /// Starts it; nothing happens if it runs.
    fn start(&self) -> BoxFuture<'_, Result<()>>;

    /// Ends it at once, as a crash would; nothing happens if it does not run.
    fn kill(&self) -> BoxFuture<'_, Result<()>>;

    /// Asks it to end, and waits until it has.
    fn end(&self) -> BoxFuture<'_, Result<()>>;

    /// Whether it runs.
    fn runs(&self) -> BoxFuture<'_, Result<bool>>;

    /// Its way to the API server.
    fn link(&self) -> &Link;

    /// A second one for the same cluster, with a way of its own. It does not run yet, and ends when it is dropped.
    fn another(&self, manner: Manner) -> BoxFuture<'_, Result<Box<dyn Controller>>>;
}

/// How a controller minds others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// It does not: it acts as if there was no other.
    Alone,
    /// It acts when it is elected. A lease takes 6 s; who leads gives up after 4 s; all try every second.
    Elected,
}

/// A controller that runs by itself, such as MCAD on the testbed.
pub struct Foreign(Link);

impl Foreign {
    /// The controller of the cluster of a client.
    pub fn new(client: Client) -> Self {
        Self(Link::new(client))
    }
}

impl Controller for Foreign {
    fn start(&self) -> BoxFuture<'_, Result<()>> {
        futures::future::ok(()).boxed()
    }

    fn kill(&self) -> BoxFuture<'_, Result<()>> {
        async { bail!("the controller is not ours to end") }.boxed()
    }

    fn end(&self) -> BoxFuture<'_, Result<()>> {
        self.kill()
    }

    fn runs(&self) -> BoxFuture<'_, Result<bool>> {
        futures::future::ok(true).boxed()
    }

    fn link(&self) -> &Link {
        &self.0
    }

    fn another(&self, _: Manner) -> BoxFuture<'_, Result<Box<dyn Controller>>> {
        async { bail!("the controller is not ours to start") }.boxed()
    }
}

/// A word that no earlier run on the same server has used.
pub fn word() -> String {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{:x}", elapsed.as_secs())
}

/// A client of the cluster that a kubeconfig names.
pub async fn connect(path: &Path) -> Result<Client> {
    if !path.exists() {
        bail!("there is no kubeconfig {}", path.display());
    }
    let kubeconfig = Kubeconfig::read_from(path)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}
