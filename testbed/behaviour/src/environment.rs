//! The clusters and controllers that cases run on.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::faults::FaultInjector;
use crate::proxy::Proxy;

/// A cluster without nodes and AppWrappers, and the controller under test.
pub struct Environment {
    /// A client of the cluster.
    pub client: Client,
    /// The controller under test.
    pub controller: Box<dyn Controller>,
    /// Injects faults into the cluster.
    pub faults: Box<dyn FaultInjector>,
    /// A suffix that makes namespaces unique among runs on the same cluster.
    pub run_id: String,
    /// The timeout for an expected state.
    pub timeout: Duration,
    /// How long an unexpected state must not appear.
    pub stable_period: Duration,
    /// The interval between two polls.
    pub poll_interval: Duration,
    /// The interval between two writes of a client that competes with the controller; longer than the latency of the controller's
    /// requests.
    pub write_interval: Duration,
}

/// A controller that a case can start and stop.
pub trait Controller: Send + Sync {
    /// Starts the controller if it does not run.
    fn start(&self) -> BoxFuture<'_, Result<()>>;

    /// Kills the controller, like a crash, if it runs.
    fn kill(&self) -> BoxFuture<'_, Result<()>>;

    /// Asks the controller to shut down, and waits until it has.
    fn terminate(&self) -> BoxFuture<'_, Result<()>>;

    /// Whether the controller runs.
    fn is_running(&self) -> BoxFuture<'_, Result<bool>>;

    /// The controller's proxy to the API server.
    fn proxy(&self) -> &Proxy;

    /// Another controller for the same cluster, with its own flags and its own proxy. It is not started, and is killed on drop.
    fn replica(&self, flags: Flags) -> BoxFuture<'_, Result<Box<dyn Controller>>>;
}

/// The flags of a controller. The controller of the environment runs with the default.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flags {
    /// Whether it uses leader election.
    pub leader_election: LeaderElection,
    /// Whether gangs preempt gangs of lower priority: `--preemption`.
    pub preemption: bool,
    /// Whether quota trees apply: `--quota`.
    pub quota: bool,
    /// Whether it admits the Workloads of Kueue's API, and starts and stops Jobs, RayJobs and RayClusters: `--parts`.
    pub queues: bool,
    /// How it reviews the authors of AppWrappers; `None`: not at all.
    pub review: Option<Review>,
}

/// Whether a controller uses leader election.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LeaderElection {
    /// The controller acts without a lease.
    #[default]
    Disabled,
    /// The controller acts only while it holds the lease: lease duration 6 s, renew deadline 4 s, retry period 1 s.
    Enabled,
}

/// How a controller serves the webhook that reviews authors. On the sandbox, the webhook is a function in the same process.
#[derive(Clone, Copy, Debug)]
pub struct Review {
    /// The port of this replica.
    pub port: u16,
    /// The port of the Service of all replicas.
    pub service_port: u16,
    /// Life of the certificate.
    pub certificate_life: Duration,
}

/// A controller that cases cannot start or stop, such as MCAD on the testbed.
pub struct ExternalController(Proxy);

impl ExternalController {
    /// The controller of the client's cluster.
    pub fn new(client: Client) -> Self {
        Self(Proxy::new(client))
    }
}

impl Controller for ExternalController {
    fn start(&self) -> BoxFuture<'_, Result<()>> {
        futures::future::ok(()).boxed()
    }

    fn kill(&self) -> BoxFuture<'_, Result<()>> {
        async { bail!("cannot stop an external controller") }.boxed()
    }

    fn terminate(&self) -> BoxFuture<'_, Result<()>> {
        self.kill()
    }

    fn is_running(&self) -> BoxFuture<'_, Result<bool>> {
        futures::future::ok(true).boxed()
    }

    fn proxy(&self) -> &Proxy {
        &self.0
    }

    fn replica(&self, _: Flags) -> BoxFuture<'_, Result<Box<dyn Controller>>> {
        async { bail!("cannot start a replica of an external controller") }.boxed()
    }
}

/// A suffix that no earlier run on the same server has used.
pub fn run_id() -> String {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{:x}", elapsed.as_secs())
}

/// A client for a kubeconfig.
pub async fn connect(path: &Path) -> Result<Client> {
    client(read(path)?).await
}

/// A client for the cluster of a kubeconfig, without its credentials.
pub(crate) async fn connect_without_credentials(path: &Path) -> Result<Client> {
    let mut kubeconfig = read(path)?;
    for user in &mut kubeconfig.auth_infos {
        user.auth_info = Some(AuthInfo::default());
    }
    client(kubeconfig).await
}

fn read(path: &Path) -> Result<Kubeconfig> {
    if !path.exists() {
        bail!("no kubeconfig {}", path.display());
    }
    Ok(Kubeconfig::read_from(path)?)
}

async fn client(kubeconfig: Kubeconfig) -> Result<Client> {
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}
