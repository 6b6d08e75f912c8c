//! `muster up`: a cluster in one process.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use api::appwrapper::{Group, PLURAL};
use apiserver::{AggregatedApi, AggregatedResource, ApiServer, Auth, Service, Tls, User, ValidatingWebhook};
use controllers::{Controller, LeaderElectionConfig, LeaseKeeper, Packing};
use jiff::Timestamp;
use sandbox::{NodeGroup, NodePool, Sandbox};
use serde_json::Value;
use server::admission::{Admission, WEBHOOK};
use server::{pending_workloads, visibility};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinError;

use crate::groups::{PrinterColumns, parse_group};
use crate::kubeconfig;
use crate::kueue::Kueue;
use crate::packing;
use crate::page;
use crate::signal::Termination;
use crate::table::put;
use crate::workdir::WorkDir;
use crate::{device_tolerations, embedded_kueue};

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
    #[arg(long, default_value_t = 1.0, value_name = "N")]
    speed: f64,
    /// Install the AppWrapper CRD of this API group only; may be repeated. Default: mcad.ibm.com and
    /// workload.codeflare.dev.
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
    /// Seed of generated names and of all random choices of the simulated components.
    #[arg(long, default_value_t = 1, value_name = "SEED")]
    seed: u64,
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
pub(crate) async fn run(args: Args) -> Result<()> {
    let started = Instant::now();
    let mut termination = Termination::listen()?;
    let nodes = nodes(&args)?;
    let pools = pools(&args)?;
    let kueue = args.config.as_deref().map(Kueue::embedded).transpose()?;
    let duties = embedded_kueue::duties(kueue.as_ref())?;
    let dir = WorkDir::lock(&args.dir)?;
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
    let client = kube::Client::new(service.as_user(User::admin()), "default");
    let groups = if args.appwrapper_groups.is_empty() { Group::ALL.to_vec() } else { args.appwrapper_groups };
    controllers::install_crds(client.clone(), &groups, args.appwrapper_columns.columns())
        .await
        .context("cannot install the AppWrapper resources")?;
    if args.quota {
        let installed = controllers::install_quota_crd(client.clone()).await;
        installed.context("cannot install the QuotaSubtree resource")?;
    }
    // Before the webhooks: the role of a pod depends on its tolerations.
    device_tolerations::install(&service);
    let watches = embedded_kueue::install(&service, client.clone(), kueue.as_ref()).await?;
    tokio::spawn(watches);
    controllers::install_provisioning_crd(client.clone())
        .await
        .context("cannot install the resource ProvisioningRequest")?;
    let logs = service.clone();
    let simulated = sandbox::Config {
        nodes,
        pools: Some(pools),
        speed: args.speed,
        seed: args.seed,
        logs: Some(Arc::new(move |pod, container, text| {
            logs.with(|server, now| server.append_log(now, pod, container, text));
        })),
        ..sandbox::Config::default()
    };
    let sandbox =
        Sandbox::start(client.clone(), simulated).await.context("cannot start the simulated cluster")?;

    let (stop, stopping) = watch::channel(());
    let config = controllers::Config {
        groups,
        preemption: args.preemption,
        dynamic_priority: args.dynamic_priority,
        packing: args.packing,
        guessed_hold_us: i64::from(args.guessed_hold) * 1_000_000,
        quota: args.quota,
        kueue: duties.acts,
        kueue_options: duties.options,
        jobs: duties.jobs,
        provisioning: duties.provisioning,
        provisioning_classes: args.provisioning_classes,
        ..controllers::Config::default()
    };
    publish(&client, &config).await.context("cannot publish the configuration of the controller")?;
    let controller = Controller::new(client.clone(), config);
    serve_visibility(&service, &controller);
    authorize_authors(&service);
    let view = page::source(&controller);
    let pages = dashboard::router(view, controller.changes());
    let mut controlling = tokio::spawn(lead(client, controller, stopped_by(stopping.clone())));
    let mut serving = tokio::spawn(apiserver::serve(
        api.listener,
        service,
        endpoint.tls.clone(),
        stopped_by(stopping.clone()),
    ));
    let mut showing = tokio::spawn(async move { axum::serve(page.listener, pages).await });

    kubeconfig::write(&dir.kubeconfig(), &endpoint.kubeconfig())?;
    print(&format!(
        "muster is ready after {:.2} s\n  kubeconfig  {}\n  API server  {}\n  dashboard   http://{}\n",
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
    };
    stop.send_replace(());
    drop(stop);
    sandbox.shutdown().await;
    result
}

/// Runs the controller while it holds the lease, which keeps another controller of the same cluster waiting.
async fn lead(
    client: kube::Client,
    controller: Controller,
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
    let act = |client, shutdown| controller.with_client(client).run(shutdown);
    let led = leadership.lead(&client, stopped, act).await;
    keeping.await.ok();
    led
}

/// Publishes how AppWrappers and Workloads are planned.
async fn publish(client: &kube::Client, config: &controllers::Config) -> Result<(), controllers::Error> {
    controllers::publish_config(client, config).await?;
    controllers::publish_kueue_options(client, &config.kueue_options).await
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

/// Serves the reports of the controller as an aggregated API, as a real cluster does.
fn serve_visibility(service: &Service, controller: &Controller) {
    let resources =
        visibility::RESOURCES.map(|visibility::Resource { plural, singular, kind, verbs, .. }| {
            AggregatedResource { namespaced: true, plural, singular, kind, verbs, subresource: None }
        });
    let queues = pending_workloads::RESOURCES.map(|queue| AggregatedResource {
        namespaced: queue.is_namespaced,
        plural: queue.plural,
        singular: queue.singular,
        kind: pending_workloads::KIND,
        verbs: &[],
        subresource: Some((pending_workloads::SUBRESOURCE, pending_workloads::VERBS)),
    });
    let router = visibility::router(controller.reports(), true);
    let api = AggregatedApi::new(move |request| Box::pin(visibility::answer(router.clone(), request)));
    service.with(|server, _| {
        for version in pending_workloads::VERSIONS {
            server.aggregate(pending_workloads::GROUP, version, &queues, api.clone());
        }
        server.aggregate(visibility::GROUP, visibility::VERSION, &resources, api);
    });
}

/// Reviews AppWrappers, as the webhook of the controller does on a real cluster.
fn authorize_authors(service: &Service) {
    let admission = Admission::new(kube::Client::new(service.as_user(User::admin()), "default"));
    for group in Group::ALL {
        let admission = admission.clone();
        let webhook = ValidatingWebhook::new(WEBHOOK, group.name(), PLURAL, move |review| {
            let admission = admission.clone();
            Box::pin(async move { admission.review(&review).await })
        });
        service.with(|server, _| server.validate_with(webhook));
    }
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

/// The URL of the API server and its authentication.
struct Endpoint {
    url: String,
    tls: Option<Tls>,
    token: Option<String>,
    auth: Auth,
}

impl Endpoint {
    /// Plain HTTP without authentication, on loopback addresses only; or TLS with a token of an administrator.
    fn new(tls: bool, address: SocketAddr) -> Result<Self> {
        if !tls && !address.ip().is_loopback() {
            bail!(
                "{address} is not a loopback address, and the API server has no authentication without --tls: add --tls"
            );
        }
        if !tls {
            return Ok(Self { url: format!("http://{address}"), tls: None, token: None, auth: Auth::Open });
        }
        let names = apiserver::names_for(address.ip());
        let tls = Tls::generate(&names.iter().map(String::as_str).collect::<Vec<_>>())
            .context("cannot generate a certificate")?;
        let token = kubeconfig::token()?;
        let auth = Auth::Tokens(BTreeMap::from([(token.clone(), User::admin())]));
        Ok(Self { url: format!("https://{address}"), tls: Some(tls), token: Some(token), auth })
    }

    fn kubeconfig(&self) -> String {
        apiserver::kubeconfig("muster", &self.url, self.tls.as_ref(), self.token.as_deref())
    }
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

/// A bound address and its listener.
struct Bound {
    address: SocketAddr,
    listener: TcpListener,
}

async fn bind(address: SocketAddr, what: &str, flag: &str) -> Result<Bound> {
    let listener = TcpListener::bind(address).await.with_context(|| {
        format!("cannot listen on {address} for the {what}: choose another address with {flag}, such as 127.0.0.1:0")
    })?;
    Ok(Bound { address: listener.local_addr()?, listener })
}
