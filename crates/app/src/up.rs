//! `muster up`: a cluster in one process, or a hub with its workers.
//!
//! - `member`: a simulated cluster with its controller
//! - `worker`: a worker of a hub; `hub`: the objects of the hub that name its workers, and the queues
//! - `profile`: the controller as the chart starts it; `roles`: the roles of tenants
//! - `definitions`: the definition of AppWrappers in both versions; `endpoint`: addresses

mod definitions;
mod endpoint;
mod hub;
mod member;
mod profile;
mod roles;
mod worker;

use std::fmt::{Display, Write as _};
use std::fs;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use api::appwrapper::Group;
use apiserver::{ApiServer, Service};
use clusters::ClustersConfig;
use controllers::{Controller, LeaderElectionConfig, LeaseKeeper, Packing};
use jiff::Timestamp;
use sandbox::{NodeGroup, NodePool};
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};

use crate::clusters_loop::beside;
use crate::embedded_kueue::{self, Queues};
use crate::groups::{PrinterColumns, parse_group};
use crate::kubeconfig;
use crate::kueue::{Kueue, declared};
use crate::packing;
use crate::page;
use crate::signal::Termination;
use crate::table::put;
use crate::workdir::WorkDir;
use endpoint::{Endpoint, bind};
use member::{Member, Shape};
use profile::Profile;
pub(crate) use worker::ClusterShape;
use worker::Worker;

/// Flags of `muster up`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Directory of the kubeconfig. Each directory serves one running cluster.
    #[arg(long, default_value = ".muster", value_name = "DIR")]
    dir: PathBuf,
    /// Address of the API server; port 0 selects a free port.
    #[arg(long, default_value = "127.0.0.1:7443", value_name = "ADDRESS", value_parser = address)]
    listen: SocketAddr,
    /// Address of the dashboard; port 0 selects a free port.
    #[arg(long, default_value = "127.0.0.1:7480", value_name = "ADDRESS", value_parser = address)]
    dashboard: SocketAddr,
    /// Serve TLS with a generated CA, and require the bearer token of the kubeconfig.
    #[arg(long)]
    tls: bool,
    /// Simulated nodes of equal shape:
    /// `count=N,name=NAME,RESOURCE=QUANTITY,…[,label.KEY=VALUE][,taint.KEY=VALUE:EFFECT]`. May be repeated; replaces
    /// the default nodes.
    #[arg(long = "node", value_name = "SHAPE")]
    nodes: Vec<NodeGroup>,
    /// File with Node manifests to simulate; may be repeated; replaces the default nodes.
    #[arg(long = "nodes", value_name = "FILE")]
    node_files: Vec<PathBuf>,
    /// Simulated node pool, which an autoscaler enlarges and reduces:
    /// `name=gpu,min=0,max=10,cpu=4,memory=16Gi,nvidia.com/gpu=1,boot=40s,fail=0.1[,queued=true]`, with labels and taints as
    /// those of --node. May be repeated. Default: a pool of GPU nodes with queued provisioning beside the default nodes.
    #[arg(long = "pool", value_name = "SHAPE")]
    pools: Vec<NodePool>,
    /// File with one node pool per line, in the form of --pool; may be repeated.
    #[arg(long = "pools", value_name = "FILE")]
    pool_files: Vec<PathBuf>,
    /// Speed-up of the simulated components: divides their delays and the run times of their pods.
    #[arg(long, default_value_t = 1.0, value_name = "N", value_parser = speed)]
    speed: f64,
    /// Serve the AppWrappers of this API group beside those of workload.codeflare.dev, which are always served: mcad.ibm.com, for
    /// manifests from before 2023. `kubectl get appwrappers` shows one group; with several, name it: appwrappers.mcad.ibm.com.
    #[arg(long = "appwrapper-group", value_name = "GROUP", value_parser = parse_group)]
    appwrapper_groups: Vec<Group>,
    /// What `kubectl get appwrappers` prints, where Muster installs the definition.
    #[arg(long, value_enum, default_value_t, value_name = "COLUMNS")]
    appwrapper_columns: PrinterColumns,
    /// Enable preemption: a gang may preempt whole gangs of lower priority, which return to the queue.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = true,
        default_missing_value = "true", value_name = "BOOL", action = clap::ArgAction::Set)]
    preemption: bool,
    /// Enable priority aging: the priority of a waiting gang rises by its `priorityslope` each second. Disables
    /// preemption.
    #[arg(long)]
    dynamic_priority: bool,
    /// How the planner scores the nodes on which a pod fits.
    #[arg(long, default_value = Packing::default().name(), value_name = "NAME", value_parser = packing::parser())]
    packing: Packing,
    /// For how many seconds a gang may hold others back whose reserved start relies on an end that nobody declared. 0: never.
    #[arg(long, default_value_t = 600, value_name = "SECONDS")]
    guessed_hold: u32,
    /// Enable quota: charge AppWrappers to MCAD's quota trees, defined by `QuotaSubtree` objects.
    #[arg(long)]
    quota: bool,
    /// Kueue's configuration file: a Configuration of config.kueue.x-k8s.io/v1beta1 or v1beta2, such as one with
    /// waitForPodsReady. All kinds of jobs are managed unless it names integrations.frameworks. What it says of servers,
    /// certificates and leader election has no effect.
    #[arg(long, value_name = "FILE", conflicts_with = "api_only")]
    config: Option<PathBuf>,
    /// Kinds of jobs that this file declares (docs/compat/kueue-job-kinds.md): their definitions are installed, their jobs wait in
    /// queues, and their pods are simulated. May not name a kind that Muster knows.
    #[arg(long = "job-kinds", value_name = "FILE", conflicts_with = "api_only")]
    job_kinds: Option<PathBuf>,
    /// Whose defaults the controller has: `chart` for those of `muster install` and the Helm chart, without the parts that they leave
    /// out.
    #[arg(long, value_enum, value_name = "NAME", conflicts_with_all = ["appwrapper_groups", "appwrapper_columns", "preemption",
        "dynamic_priority", "packing", "guessed_hold", "quota", "config", "job_kinds", "provisioning_classes", "clusters", "api_only"])]
    profile: Option<Profile>,
    /// The provisioning classes by which AppWrappers may ask the simulated autoscaler for nodes; the first is that of
    /// AppWrappers without the annotation muster.dev/provisioning-class.
    #[arg(
        long = "provisioning-class",
        value_delimiter = ',',
        value_name = "NAMES",
        default_value = "none,check-capacity.autoscaling.x-k8s.io,best-effort-atomic-scale-up.autoscaling.x-k8s.io,queued-provisioning.gke.io"
    )]
    provisioning_classes: Vec<String>,
    /// Run only the API server: no nodes, no simulated components, no controller, no dashboard.
    #[arg(long)]
    api_only: bool,
    /// A worker cluster of this one, which is their hub: `NAME,count=N,RESOURCE=QUANTITY,…`, with the shape of its nodes as for
    /// --node. May be repeated. Jobs in the queue `main` of the hub run in one of the workers; each has a kubeconfig of its own
    /// in the directory.
    #[arg(long = "cluster", value_name = "SHAPE",
        conflicts_with_all = ["nodes", "node_files", "pools", "pool_files", "api_only"])]
    clusters: Vec<ClusterShape>,
    /// Seed of generated names and of all random choices of the simulated components.
    #[arg(long, default_value_t = 1, value_name = "SEED")]
    seed: u64,
}

impl Args {
    /// The groups of AppWrappers: those of the profile, or the current one and those that are asked for.
    fn groups(&self) -> Vec<Group> {
        let is_served = |group: &Group| {
            self.appwrapper_groups.contains(group) || (self.profile.is_none() && *group == Group::Codeflare)
        };
        Group::ALL.into_iter().filter(is_served).collect()
    }
}

/// A speed-up.
fn speed(text: &str) -> Result<f64, String> {
    let speed = text.parse().ok().filter(|speed: &f64| speed.is_finite() && *speed > 0.0);
    speed.ok_or_else(|| "it is no number above 0; write a factor, such as 10 or 0.5".into())
}

/// An IP address or a host name, with a port.
fn address(text: &str) -> Result<SocketAddr, String> {
    let example = "write a host and a port, such as 127.0.0.1:7443 or localhost:7443";
    let (host, port) = text.rsplit_once(':').ok_or_else(|| format!("it has no port; {example}"))?;
    port.parse::<u16>().map_err(|_| format!("{port:?} is no port; {example}"))?;
    let mut found = text.to_socket_addrs().map_err(|error| format!("{host:?}: {error}; {example}"))?;
    found.next().ok_or_else(|| format!("{host:?} has no address; {example}"))
}

/// Runs until SIGINT or SIGTERM.
pub(crate) async fn run(mut args: Args) -> Result<()> {
    let started = Instant::now();
    let mut termination = Termination::listen()?;
    let is_hub = !args.clusters.is_empty();
    let (nodes, pools) = if is_hub { (Vec::new(), Vec::new()) } else { (nodes(&args)?, pools(&args)?) };
    let queues = queues(&mut args, is_hub)?;
    let mut duties = embedded_kueue::duties(&queues)?;
    let kinds = args.job_kinds.as_deref().map(declared).transpose()?.unwrap_or_default();
    let clusters = duties.clusters.take().or_else(|| is_hub.then(ClustersConfig::default));
    let mut dir = WorkDir::lock(&args.dir)?;
    let api = bind(args.listen, "API server", "--listen").await?;
    let endpoint = Endpoint::new(args.tls, api.address)?;
    let server = ApiServer::new(apiserver::Config {
        seed: args.seed,
        auth: endpoint.auth.clone(),
        // As kube-apiserver without kube-controller-manager.
        counts_quotas: !args.api_only,
        ..apiserver::Config::default()
    });
    let service = Service::new(server, Arc::new(Timestamp::now));
    restart_on_sighup(&service)?;
    if args.api_only {
        let serving = apiserver::serve(api.listener, service, endpoint.tls.clone(), termination.received());
        kubeconfig::write(&dir.kubeconfig(), &endpoint.kubeconfig())?;
        print(&format!(
            "muster serves the Kubernetes API\n  kubeconfig  {}\n  API server  {}\n",
            dir.kubeconfig().display(),
            endpoint.url
        ));
        return serving.await.context("the API server failed");
    }
    let page = bind(args.dashboard, "dashboard", "--dashboard").await?;
    let shape = Shape { nodes, pools, kinds: kinds.clone(), is_hub };
    let member = Member::start(&service, &args, shape, &queues, duties);
    let Member { client, controller, sandbox } = member.await?;
    let (stop, stopping) = watch::channel(());
    let mut workers = JoinSet::new();
    let mut told = String::new();
    for (shape, number) in args.clusters.iter().zip(1..) {
        let seed = args.seed.wrapping_add(number);
        let worker = Worker::start(shape, seed, &args, &queues, &kinds).await?;
        hub::join(&client, shape, &worker.endpoint.kubeconfig()).await?;
        let file = dir.add(&shape.name);
        kubeconfig::write(&file, &worker.endpoint.kubeconfig())?;
        writeln!(told, "  cluster {:<8} {}", shape.name, file.display())?;
        workers.spawn(worker.run(stopping.clone()));
    }
    if is_hub {
        hub::set_up(&client, &args.clusters).await?;
        writeln!(told, "  queue       {} in namespace default", hub::QUEUE)?;
    }
    let view = page::source(&controller);
    let pages = dashboard::router(view, controller.changes());
    let mut controlling = tokio::spawn(lead(client, controller, clusters, stopped_by(stopping.clone())));
    let mut serving = tokio::spawn(apiserver::serve(
        api.listener,
        service,
        endpoint.tls.clone(),
        stopped_by(stopping.clone()),
    ));
    let mut showing = tokio::spawn(async move { axum::serve(page.listener, pages).await });

    kubeconfig::write(&dir.kubeconfig(), &endpoint.kubeconfig())?;
    print(&format!(
        "muster is ready after {:.2} s\n  kubeconfig  {}\n  API server  {}\n  dashboard   http://{}\n{told}",
        started.elapsed().as_secs_f64(),
        dir.kubeconfig().display(),
        endpoint.url,
        page.address,
    ));

    let result = tokio::select! {
        () = termination.received() => Ok(()),
        ended = &mut controlling => Err(ended_early("controller", ended)),
        ended = &mut serving => Err(ended_early("API server", ended)),
        ended = &mut showing => Err(ended_early("dashboard", ended)),
        Some(ended) = workers.join_next() => Err(match ended {
            Ok(Err(error)) => error,
            Ok(Ok(())) | Err(_) => anyhow!("a worker cluster ended unexpectedly"),
        }),
    };
    stop.send_replace(());
    drop(stop);
    while workers.join_next().await.is_some() {}
    sandbox.shutdown().await;
    result
}

/// What is done for Kueue's API. A profile changes the flags.
fn queues(args: &mut Args, is_hub: bool) -> Result<Queues> {
    match (args.profile, &args.config) {
        (Some(Profile::Chart), _) => profile::apply(args, []),
        (None, Some(file)) => Ok(Queues::Configured(Box::new(Kueue::embedded(file, is_hub)?))),
        (None, None) => Ok(Queues::Everything),
    }
}

/// Runs the controller while it holds the lease, which keeps another controller of the same cluster waiting.
async fn lead(
    client: kube::Client,
    controller: Controller,
    clusters: Option<ClustersConfig>,
    stopped: impl Future<Output = ()> + Send + 'static,
) -> Result<(), controllers::Error> {
    // The API server is in this process, so only a process that stands still can lose the lease.
    let election = LeaderElectionConfig {
        lease_duration: Duration::from_mins(10),
        renew_deadline: Duration::from_mins(9),
        retry_period: Duration::from_secs(10),
        ..LeaderElectionConfig::new(format!("muster-up-{}", std::process::id()))
    };
    let keeper = LeaseKeeper::new(Arc::new(Timestamp::now), election);
    let leadership = keeper.leadership();
    let keeping = tokio::spawn(keeper.run(client.clone()));
    let act = |client: kube::Client, shutdown| async move {
        beside(controller.with_client(client.clone()).run(shutdown), &client, clusters).await
    };
    let led = leadership.lead(&client, stopped, act).await;
    keeping.await.ok();
    led
}

/// Simulates a restart of the API server on SIGHUP: all watches end, and clients must list again.
fn restart_on_sighup(service: &Service) -> Result<()> {
    let service = service.clone();
    let mut hangups = signal(SignalKind::hangup()).context("cannot listen for SIGHUP")?;
    tokio::spawn(async move {
        while hangups.recv().await.is_some() {
            service.with(|server, _| server.restart());
        }
    });
    Ok(())
}

/// The error for a component that ended before the shutdown.
fn ended_early<E: Display>(part: &str, ended: Result<Result<(), E>, JoinError>) -> anyhow::Error {
    match ended {
        Ok(Ok(())) => anyhow!("the {part} ended unexpectedly"),
        Ok(Err(error)) => anyhow!("the {part} failed: {error}"),
        Err(error) => anyhow!("the {part} failed: {error}"),
    }
}

/// Writes text to standard output. Ignores errors, such as a closed pipe.
pub(crate) fn print(text: &str) {
    put(text).ok();
}

/// Completes when the sender sends or is dropped.
async fn stopped_by(mut stopping: watch::Receiver<()>) {
    stopping.changed().await.ok();
}

/// The nodes to simulate: those of the flags, or the default nodes.
fn nodes(args: &Args) -> Result<Vec<Value>> {
    if args.nodes.is_empty() && args.node_files.is_empty() {
        return Ok(sandbox::Config::default().nodes);
    }
    let mut nodes: Vec<Value> = args.nodes.iter().flat_map(NodeGroup::manifests).collect();
    for file in &args.node_files {
        let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        let manifests = sandbox::nodes_from_manifests(&text)
            .with_context(|| format!("{} has no valid Node manifests", file.display()))?;
        nodes.extend(manifests);
    }
    Ok(nodes)
}

/// The node pools: those of the flags, or the default pool beside the default nodes.
fn pools(args: &Args) -> Result<Vec<NodePool>> {
    let mut pools = args.pools.clone();
    for file in &args.pool_files {
        let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        let read = NodePool::from_lines(&text);
        pools.extend(read.with_context(|| format!("{} has no valid node pools", file.display()))?);
    }
    let is_default = [&args.node_files, &args.pool_files].iter().all(|files| files.is_empty());
    if is_default && args.nodes.is_empty() && pools.is_empty() {
        return Ok(NodePool::defaults());
    }
    Ok(pools)
}
