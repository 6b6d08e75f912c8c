//! `muster controller`: the controller for the cluster of a kubeconfig.

use std::time::Duration;

use anyhow::{Context, Result};
use api::appwrapper::{Columns, Group};
use clap::builder::BoolishValueParser;
use clusters::ClustersConfig;
use controllers::{Controller, Meter, Packing, Shutdown};
use kube::Client;
use server::{BoundEndpoint, Planned, Readiness, Registrar};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::clusters_loop::beside;
use crate::connection::{Connection, Unreachable};
use crate::election::LeaderElection;
use crate::endpoint::EndpointArgs;
use crate::groups::{PrinterColumns, parse_group};
use crate::kueue::{self, Duties, Kueue, KueueArgs, SharedController, is_read, takes_part};
use crate::lease_thread::LeaseThread;
use crate::packing;
use crate::signal::Termination;
use crate::telemetry::{Activity, Telemetry, TelemetryArgs};
use crate::trace_export::TraceArgs;

/// Flags of `muster controller`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    pub(crate) dispatch: DispatchArgs,
    #[command(flatten)]
    endpoint: EndpointArgs,
    #[command(flatten)]
    pub(crate) kueue: KueueArgs,
    #[command(flatten)]
    telemetry: TelemetryArgs,
    #[command(flatten)]
    traces: TraceArgs,
}

/// Flags of the part `appwrappers`.
#[derive(clap::Args)]
#[command(next_help_heading = "AppWrappers")]
pub(crate) struct DispatchArgs {
    /// Manage the AppWrappers of this API group only; may be repeated. Default: mcad.ibm.com and
    /// workload.codeflare.dev.
    #[arg(long = "appwrapper-group", value_name = "GROUP", value_parser = parse_group)]
    pub(crate) appwrapper_groups: Vec<Group>,
    /// What `kubectl get appwrappers` prints, where Muster installs the definition.
    #[arg(long, value_enum, default_value_t, value_name = "COLUMNS")]
    pub(crate) appwrapper_columns: PrinterColumns,
    /// Enable preemption: a gang may preempt whole gangs of lower priority, which return to the queue.
    #[arg(long, env = "PREEMPTION", num_args = 0..=1, require_equals = true, default_value_t = false,
        default_missing_value = "true", value_name = "BOOL", action = clap::ArgAction::Set, value_parser = BoolishValueParser::new())]
    pub(crate) preemption: bool,
    /// Enable priority aging: the priority of a waiting gang rises by its `priorityslope` each second. Disables
    /// preemption.
    #[arg(long, alias = "dynamicpriority", env = "DYNAMICPRIORITY", num_args = 0..=1, require_equals = true, default_value_t = false,
        default_missing_value = "true", value_name = "BOOL", action = clap::ArgAction::Set, value_parser = BoolishValueParser::new())]
    pub(crate) dynamic_priority: bool,
    /// How the planner scores the nodes on which a pod fits.
    #[arg(long, default_value = Packing::default().name(), value_name = "NAME", value_parser = packing::parser())]
    pub(crate) packing: Packing,
    /// For how many seconds a gang may hold others back whose reserved start relies on an end that nobody declared. 0: never.
    #[arg(long, default_value_t = 600, value_name = "SECONDS")]
    pub(crate) guessed_hold: u32,
    /// Enable quota: charge AppWrappers to MCAD's quota trees, defined by `QuotaSubtree` objects.
    #[arg(long, alias = "quotaEnabled", env = "QUOTA_ENABLED", num_args = 0..=1, require_equals = true, default_value_t = false,
        default_missing_value = "true", value_name = "BOOL", action = clap::ArgAction::Set, value_parser = BoolishValueParser::new())]
    pub(crate) quota: bool,
    /// Add a scheduling gate to the pods of known kinds. The controller removes it when it has set the node of the pod.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = true,
        default_missing_value = "true", value_name = "BOOL", action = clap::ArgAction::Set)]
    gates: bool,
    /// Let AppWrappers that fit on no nodes ask a node autoscaler for nodes by a `ProvisioningRequest` of one of these classes,
    /// which the annotation muster.dev/provisioning-class selects. The first is that of AppWrappers without the annotation: `none`
    /// for no request.
    #[arg(long = "provisioning-class", value_delimiter = ',', value_name = "NAMES")]
    pub(crate) provisioning_classes: Vec<String>,
    /// Do not install missing CRDs, nor update those of an earlier version of Muster.
    #[arg(long)]
    no_install: bool,
    #[command(flatten)]
    leader: LeaderElection,
}

/// The pause between two attempts to reach a cluster that does not answer.
const UNREACHABLE_PAUSE: Duration = Duration::from_secs(2);

/// Runs until SIGINT or SIGTERM.
pub(crate) async fn run(args: Args) -> Result<()> {
    let mut termination = Termination::listen()?;
    let Args { connection, dispatch, endpoint, kueue, telemetry, traces } = args;
    let dispatches = kueue.dispatches();
    let kueue = kueue.load(!dispatch.no_install, endpoint.issuer())?;
    let connection = connection.config().await?;
    let traces = traces.start()?;
    let meter = traces.meter();
    let (client, version) = tokio::select! {
        () = termination.received() => return Ok(()),
        opened = open(&connection, &meter) => opened?,
    };
    let (stop, stopping) = watch::channel(());
    let mut running = JoinSet::new();
    let schedules = kueue.as_ref().is_some_and(Kueue::schedules);
    let plans = Planned { wrappers: dispatches, queues: kueue.as_ref().is_some_and(Kueue::shows_queues) };
    let mut endpoint = if dispatches || schedules { endpoint.bind(plans).await? } else { None };
    let duties = kueue.as_ref().map(Kueue::duties).transpose()?.unwrap_or_default();
    let telemetry = telemetry.over(kueue.as_ref().map_or_else(Telemetry::default, Kueue::telemetry));
    let mut shared = None;
    if dispatches {
        let cluster =
            Cluster { connection: connection.clone(), client: client.clone(), version, meter: meter.clone() };
        shared = Some(dispatch.start(&mut running, cluster, &stopping, duties, endpoint.take())?);
    } else {
        println!("muster serves a cluster of version {version}");
    }
    if let Some(kueue) = kueue {
        let cluster = kueue::Cluster { connection, client, meter, endpoint };
        running.spawn(kueue.run(cluster, shared, telemetry, stopping.clone()));
    } else if let Some(shared) = shared {
        running.spawn(serve(telemetry, client, shared, until_dropped(&stopping)));
    }
    drop(stopping);
    let ended = tokio::select! {
        () = termination.received() => {
            drop(stop);
            let mut result = Ok(());
            while let Some(ended) = running.join_next().await {
                result = result.and(ended.context("the controller failed to shut down")?);
            }
            result.context("the controller failed to shut down")
        }
        Some(ended) = running.join_next() => {
            ended.context("the controller ended")?.context("the controller ended")
        }
    };
    traces.end().await;
    ended
}

/// Connects to the cluster. One that does not answer is waited for: an API server may start after its controllers.
async fn open(connection: &kube::Config, meter: &Meter) -> Result<(Client, String)> {
    let mut told = String::new();
    loop {
        let failed = match Connection::open_with(connection.clone(), meter).await {
            Err(failed) if failed.is::<Unreachable>() => failed.to_string(),
            opened => return opened,
        };
        if failed != told {
            eprintln!("muster: {failed}; waiting for it");
            told = failed;
        }
        tokio::time::sleep(UNREACHABLE_PAUSE).await;
    }
}

/// Serves metrics and probes of the controller of AppWrappers until `stopped` completes.
async fn serve(
    telemetry: Telemetry,
    client: Client,
    shared: SharedController,
    stopped: Shutdown,
) -> Result<()> {
    let SharedController { metrics, conditions, elects, leads } = shared;
    let mut servers = telemetry.serve(client, metrics, Activity { elects, leads, conditions }).await?;
    tokio::select! {
        () = stopped => Ok(()),
        Some(ended) = servers.join_next() => ended.context("a server failed")?.context("a server failed"),
    }
}

/// Completes when the sender is dropped.
pub(crate) fn until_dropped(stopping: &watch::Receiver<()>) -> Shutdown {
    let mut stopping = stopping.clone();
    Box::pin(async move {
        stopping.changed().await.ok();
    })
}

/// A cluster, and how it is reached.
struct Cluster {
    connection: kube::Config,
    client: Client,
    version: String,
    meter: Meter,
}

impl DispatchArgs {
    /// Starts to dispatch AppWrappers, and to do `duties` for Kueue's objects, until the sender of `stopping` is dropped.
    fn start(
        self,
        running: &mut JoinSet<Result<()>>,
        Cluster { connection, client, version, meter }: Cluster,
        stopping: &watch::Receiver<()>,
        duties: Duties,
        endpoint: Option<BoundEndpoint>,
    ) -> Result<SharedController> {
        let election = self.leader.election(duties.lease)?;
        let groups =
            if self.appwrapper_groups.is_empty() { Group::ALL.to_vec() } else { self.appwrapper_groups };
        if self.preemption && self.dynamic_priority {
            eprintln!("muster: --dynamic-priority disables preemption");
        }
        let config = controllers::Config {
            groups: groups.clone(),
            preemption: self.preemption,
            dynamic_priority: self.dynamic_priority,
            packing: self.packing,
            guessed_hold_us: i64::from(self.guessed_hold) * 1_000_000,
            quota: self.quota,
            gates: self.gates,
            kueue: duties.acts,
            metrics: duties.metrics,
            meter,
            kueue_options: duties.options,
            jobs: duties.jobs,
            provisioning: duties.provisioning,
            provisioning_classes: self.provisioning_classes,
            ..controllers::Config::default()
        };
        let controller = Controller::new(client.clone(), config);
        let (server, registrar) =
            endpoint.map(|endpoint| endpoint.open(client.clone(), controller.reports())).unzip();
        let mut conditions = Vec::new();
        if let Some(server) = server {
            conditions.push(server.serves());
            let stopped = until_dropped(stopping);
            running.spawn(async move {
                server.run(stopped).await;
                Ok(())
            });
        }
        let install = (!self.no_install).then_some(Install {
            groups,
            columns: self.appwrapper_columns.columns(),
            quota: self.quota,
        });
        let (metrics, elects, leads) = (controller.metrics(), election.is_some(), Readiness::default());
        let setup = Setup { install, registrar, leads: leads.clone(), clusters: duties.clusters };
        let stopped = until_dropped(stopping);
        match election {
            None => {
                println!("muster controls a cluster of version {version}");
                conditions.push(is_read(&controller));
                running.spawn(control(controller, client, setup, stopped));
            }
            Some(election) => {
                println!("muster controls a cluster of version {version} while it holds {election}");
                let named = election.to_string();
                let lease = LeaseThread::start(connection, election)?;
                conditions.push(takes_part(&named, &lease));
                running.spawn(control_as_leader(lease, controller, client, setup, stopped));
            }
        }
        Ok(SharedController { metrics, conditions, elects, leads })
    }
}

/// What the leader does beside running the controller.
struct Setup {
    install: Option<Install>,
    registrar: Option<Registrar>,
    leads: Readiness,
    clusters: Option<ClustersConfig>,
}

/// The CRDs to install.
struct Install {
    groups: Vec<Group>,
    columns: Columns,
    quota: bool,
}

/// Waits for leadership, then controls the cluster, then releases the lease.
async fn control_as_leader(
    lease: LeaseThread,
    controller: Controller,
    client: Client,
    setup: Setup,
    stopped: Shutdown,
) -> Result<()> {
    let act =
        |client: Client, shutdown| control(controller.with_client(client.clone()), client, setup, shutdown);
    let led = lease.leadership().lead(&client, stopped, act).await;
    let released = lease.end().await;
    led.and(released)
}

/// Installs the CRDs, registers the endpoint and runs the controller.
async fn control(controller: Controller, client: Client, setup: Setup, shutdown: Shutdown) -> Result<()> {
    let Setup { install, registrar, leads, clusters } = setup;
    leads.set();
    if let Some(Install { groups, columns, quota }) = install {
        controllers::install_crds(client.clone(), &groups, columns)
            .await
            .context("cannot install the AppWrapper resources")?;
        if quota {
            let installed = controllers::install_quota_crd(client.clone()).await;
            installed.context("cannot install the QuotaSubtree resource")?;
        }
    }
    if let Some(registrar) = registrar {
        tokio::spawn(registrar.run(client.clone()));
    } else if let Err(error) = server::remove_webhook(&client).await {
        eprintln!(
            "muster: cannot remove the webhook of an earlier controller, which may refuse AppWrappers: {error}"
        );
    }
    Ok(beside(controller.publish_config_and_run(shutdown), &client, clusters).await?)
}
