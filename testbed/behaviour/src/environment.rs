//! Where cases run.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

/// A cluster without nodes and without AppWrappers, and the controller that looks after it.
pub struct Environment {
    /// The cluster.
    pub client: Client,
    /// Starts and stops the controller.
    pub controller: Box<dyn Controller>,
    /// Keeps namespaces of runs on the same cluster apart.
    pub word: String,
    /// How long a condition may take to be met.
    pub patience: Duration,
    /// For how long something must not happen to count as never happening.
    pub quiet: Duration,
    /// Between two looks.
    pub pause: Duration,
}

/// A controller that can be switched on and off.
pub trait Controller: Send + Sync {
    /// Starts it; nothing happens if it runs.
    fn start(&self) -> BoxFuture<'_, Result<()>>;

    /// Ends it at once, as a crash would; nothing happens if it does not run.
    fn kill(&self) -> BoxFuture<'_, Result<()>>;
}

/// A controller that runs by itself, such as MCAD on the testbed.
pub struct Foreign;

impl Controller for Foreign {
    fn start(&self) -> BoxFuture<'_, Result<()>> {
        futures::future::ok(()).boxed()
    }

    fn kill(&self) -> BoxFuture<'_, Result<()>> {
        async { bail!("the controller is not ours to end") }.boxed()
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
