//! `muster up`: a whole cluster in one process.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};
use api::appwrapper::Group;
use apiserver::{ApiServer, Auth, Service, Tls, User};
use controllers::{Controller, Packing};
use dashboard::View;
use jiff::Timestamp;
use sandbox::{NodeGroup, Sandbox};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinError;

use crate::groups::parse_group;
use crate::kubeconfig;
use crate::packing;
use crate::signal::Termination;
use crate::workdir::WorkDir;

/// Flags of `muster up`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folder for the kubeconfig; one cluster a folder.
    #[arg(long, default_value = ".muster", value_name = "DIR")]
    dir: PathBuf,
    /// Address of the API server; port 0 takes any free one.
    #[arg(long, default_value = "127.0.0.1:7443", value_name = "ADDRESS")]
    listen: SocketAddr,
    /// Address of the dashboard; port 0 takes any free one.
    #[arg(long, default_value = "127.0.0.1:7480", value_name = "ADDRESS")]
    dashboard: SocketAddr,
    /// Serve TLS, with an authority of its own, and ask for the token that the kubeconfig carries.
    #[arg(long)]
    tls: bool,
    /// Simulated nodes of one shape: `count=N,name=NAME,RESOURCE=QUANTITY,…[,label.KEY=VALUE][,taint.KEY=VALUE:EFFECT]`.
    /// May be repeated; replaces the default nodes.
    #[arg(long = "node", value_name = "SHAPE")]
    nodes: Vec<NodeGroup>,
    /// File with Node manifests to simulate; may be repeated; replaces the default nodes.
    #[arg(long = "nodes", value_name = "FILE")]
    node_files: Vec<PathBuf>,
    /// Divides every duration inside the simulated components, and the run time of their pods.
    #[arg(long, default_value_t = 1.0, value_name = "N")]
    speed: f64,
    /// Install the AppWrapper resource of this group only; may be repeated. Default: mcad.ibm.com and
    /// workload.codeflare.dev.
    #[arg(long = "appwrapper-group", value_name = "GROUP", value_parser = parse_group)]
    appwrapper_groups: Vec<Group>,
    /// Let a gang take the place of gangs of lower priority, which are stopped as a whole and queued again.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = true,
        default_missing_value = "true", value_name = "BOOL", action = clap::ArgAction::Set)]
    preemption: bool,
    /// Let ranks rise by `priorityslope` with each second of waiting. Nobody is preempted then.
    #[arg(long)]
    dynamic_priority: bool,
    /// Which of the nodes that have room a pod goes to.
    #[arg(long, default_value = Packing::default().name(), value_name = "NAME", value_parser = packing::parser())]
    packing: Packing,
    /// Charge AppWrappers to MCAD's quota trees, which `QuotaSubtree` objects describe.
    #[arg(long)]
    quota: bool,
    /// Serve the Kubernetes API and nothing else: no nodes, no simulated controllers, no controller of AppWrappers, no dashboard.
    #[arg(long)]
    api_only: bool,
    /// Seed of generated names and of every other choice that the simulated components make.
    #[arg(long, default_value_t = 1, value_name = "SEED")]
    seed: u64,
}

/// Runs until SIGINT or SIGTERM.
pub(crate) async fn run(args: Args) -> Result<()> {
    let started = Instant::now();
    let mut termination = Termination::listen()?;
    let nodes = nodes(&args)?;
    let dir = WorkDir::hold(&args.dir)?;
    let api = bind(args.listen, "API server", "--listen").await?;
    let door = Door::new(args.tls, api.address)?;
    let server = ApiServer::new(apiserver::Config {
        seed: args.seed,
        auth: door.auth.clone(),
        ..apiserver::Config::default()
    });
    let service = Service::new(server, Arc::new(Timestamp::now));
    seem_to_restart(&service)?;
    if args.api_only {
        let serving = apiserver::serve(api.listener, service, door.tls.clone(), termination.received());
        kubeconfig::write(&dir.kubeconfig(), &door.kubeconfig())?;
        say(&format!(
            "muster serves an API\n  kubeconfig  {}\n  API server  {}\n",
            dir.kubeconfig().display(),
            door.url
        ));
        return serving.await.context("the API server failed");
    }
    let page = bind(args.dashboard, "dashboard", "--dashboard").await?;
    let client = kube::Client::new(service.as_user(User::admin()), "default");
    let groups = if args.appwrapper_groups.is_empty() { Group::ALL.to_vec() } else { args.appwrapper_groups };
    controllers::install_crds(client.clone(), &groups)
        .await
        .context("cannot install the AppWrapper resources")?;
    if args.quota {
        let installed = controllers::install_quota_crd(client.clone()).await;
        installed.context("cannot install the QuotaSubtree resource")?;
    }
    let logs = service.clone();
    let simulated = sandbox::Config {
        nodes,
        speed: args.speed,
        seed: args.seed,
        logs: Some(Arc::new(move |pod, container, text| {
            logs.with(|server, now| server.append_log(now, pod, container, text));
        })),
        ..sandbox::Config::default()
    };
    let sandbox =
        Sandbox::start(client.clone(), simulated).await.context("cannot start the simulated cluster")?;

    let (end, ended) = watch::channel(());
    let config = controllers::Config {
        groups,
        preemption: args.preemption,
        dynamic_priority: args.dynamic_priority,
        packing: args.packing,
        quota: args.quota,
        ..controllers::Config::default()
    };
    controllers::publish_config(&client, &config).await.context("cannot write the controller's rules")?;
    let controller = Controller::new(client, config);
    let view = source(&controller);
    let pages = dashboard::router(view, controller.changes());
    let mut controlling = tokio::spawn(controller.run(until(ended.clone())));
    let mut serving =
        tokio::spawn(apiserver::serve(api.listener, service, door.tls.clone(), until(ended.clone())));
    let mut showing = tokio::spawn(async move { axum::serve(page.listener, pages).await });

    kubeconfig::write(&dir.kubeconfig(), &door.kubeconfig())?;
    say(&format!(
        "muster is ready after {:.2} s\n  kubeconfig  {}\n  API server  {}\n  dashboard   http://{}\n",
        started.elapsed().as_secs_f64(),
        dir.kubeconfig().display(),
        door.url,
        page.address,
    ));

    let result = tokio::select! {
        () = termination.received() => Ok(()),
        ended = &mut controlling => Err(stopped("controller", ended)),
        ended = &mut serving => Err(stopped("API server", ended)),
        ended = &mut showing => Err(stopped("dashboard", ended)),
    };
    end.send_replace(());
    drop(end);
    sandbox.shutdown().await;
    result
}

/// On SIGHUP, clients see an API server that ends and starts again: their watches end, and they have to list anew.
fn seem_to_restart(service: &Service) -> Result<()> {
    let service = service.clone();
    let mut hangups = signal(SignalKind::hangup()).context("cannot listen for SIGHUP")?;
    tokio::spawn(async move {
        while hangups.recv().await.is_some() {
            service.with(|server, _| server.restart());
        }
    });
    Ok(())
}

/// What the dashboard shows.
fn source(controller: &Controller) -> dashboard::Source {
    let index = controller.index();
    Arc::new(move || View::of(index.read().unwrap_or_else(PoisonError::into_inner).world(), Timestamp::now()))
}

/// A part that should have run to the end did not.
fn stopped<E: Display>(part: &str, ended: Result<Result<(), E>, JoinError>) -> anyhow::Error {
    match ended {
        Ok(Ok(())) => anyhow!("the {part} ended by itself"),
        Ok(Err(error)) => anyhow!("the {part} failed: {error}"),
        Err(error) => anyhow!("the {part} failed: {error}"),
    }
}

/// Prints for people; a reader that has gone away is no reason to end.
pub(crate) fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).ok();
}

/// Completes when the sender is used or gone.
async fn until(mut ended: watch::Receiver<()>) {
    ended.changed().await.ok();
}

/// How clients come in.
struct Door {
    url: String,
    tls: Option<Tls>,
    token: Option<String>,
    auth: Auth,
}

impl Door {
    /// Plain and open to all who reach the address, or with TLS and an administrator's token.
    fn new(tls: bool, address: SocketAddr) -> Result<Self> {
        if !tls && !address.ip().is_loopback() {
            bail!(
                "{address} can be reached from elsewhere, and whoever reaches it may do everything: add --tls"
            );
        }
        if !tls {
            return Ok(Self { url: format!("http://{address}"), tls: None, token: None, auth: Auth::Open });
        }
        let names = apiserver::names_for(address.ip());
        let tls = Tls::generate(&names.iter().map(String::as_str).collect::<Vec<_>>())
            .context("cannot serve TLS")?;
        let token = kubeconfig::token()?;
        let auth = Auth::Tokens(BTreeMap::from([(token.clone(), User::admin())]));
        Ok(Self { url: format!("https://{address}"), tls: Some(tls), token: Some(token), auth })
    }

    fn kubeconfig(&self) -> String {
        apiserver::kubeconfig("muster", &self.url, self.tls.as_ref(), self.token.as_deref())
    }
}

/// The nodes to simulate: those that were described, or the default ones.
fn nodes(args: &Args) -> Result<Vec<Value>> {
    if args.nodes.is_empty() && args.node_files.is_empty() {
        return Ok(sandbox::Config::default().nodes);
    }
    let mut nodes: Vec<Value> = args.nodes.iter().flat_map(NodeGroup::manifests).collect();
    for file in &args.node_files {
        let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        let manifests = sandbox::nodes_from_manifests(&text)
            .with_context(|| format!("{} describes no nodes", file.display()))?;
        nodes.extend(manifests);
    }
    Ok(nodes)
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
