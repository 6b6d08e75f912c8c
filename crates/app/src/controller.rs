//! `muster controller`: the controller for the cluster of a kubeconfig.

use anyhow::{Context, Result};
use api::appwrapper::Group;
use clap::builder::BoolishValueParser;
use controllers::{Controller, LeaderElectionConfig, Packing};
use tokio::sync::watch;

use crate::connection::Connection;
use crate::election::LeaderElection;
use crate::endpoint::EndpointArgs;
use crate::groups::parse_group;
use crate::packing;
use crate::signal::Termination;

/// Flags of `muster controller`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    connection: Connection,
    /// Manage the AppWrappers of this API group only; may be repeated. Default: mcad.ibm.com and
    /// workload.codeflare.dev.
    #[arg(long = "appwrapper-group", value_name = "GROUP", value_parser = parse_group)]
    appwrapper_groups: Vec<Group>,
    /// Enable preemption: a gang may preempt whole gangs of lower priority, which return to the queue.
    #[arg(long, env = "PREEMPTION", num_args = 0..=1, require_equals = true, default_value_t = false,
        default_missing_value = "true", value_name = "BOOL", action = clap::ArgAction::Set, value_parser = BoolishValueParser::new())]
    preemption: bool,
    /// Enable priority aging: the priority of a waiting gang rises by its `priorityslope` each second. Disables
    /// preemption.
    #[arg(long, alias = "dynamicpriority", env = "DYNAMICPRIORITY", num_args = 0..=1, require_equals = true, default_value_t = false,
        default_missing_value = "true", value_name = "BOOL", action = clap::ArgAction::Set, value_parser = BoolishValueParser::new())]
    dynamic_priority: bool,
    /// How the planner scores the nodes on which a pod fits.
    #[arg(long, default_value = Packing::default().name(), value_name = "NAME", value_parser = packing::parser())]
    packing: Packing,
    /// Enable quota: charge AppWrappers to MCAD's quota trees, defined by `QuotaSubtree` objects.
    #[arg(long, alias = "quotaEnabled", env = "QUOTA_ENABLED", num_args = 0..=1, require_equals = true, default_value_t = false,
        default_missing_value = "true", value_name = "BOOL", action = clap::ArgAction::Set, value_parser = BoolishValueParser::new())]
    quota: bool,
    /// Add a scheduling gate to the pods of known kinds. The controller removes it when it has set the node of the pod.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = true,
        default_missing_value = "true", value_name = "BOOL", action = clap::ArgAction::Set)]
    gates: bool,
    /// Do not install missing CRDs.
    #[arg(long)]
    no_install: bool,
    #[command(flatten)]
    leader: LeaderElection,
    #[command(flatten)]
    endpoint: EndpointArgs,
}

/// Runs until SIGINT or SIGTERM.
pub(crate) async fn run(args: Args) -> Result<()> {
    let mut termination = Termination::listen()?;
    let election = args.leader.election()?;
    let (client, version) = args.connection.open().await?;
    let groups = if args.appwrapper_groups.is_empty() { Group::ALL.to_vec() } else { args.appwrapper_groups };
    if !args.no_install {
        controllers::install_crds(client.clone(), &groups)
            .await
            .context("cannot install the AppWrapper resources")?;
        if args.quota {
            let installed = controllers::install_quota_crd(client.clone()).await;
            installed.context("cannot install the QuotaSubtree resource")?;
        }
    }
    if args.preemption && args.dynamic_priority {
        eprintln!("muster: --dynamic-priority disables preemption");
    }
    let config = controllers::Config {
        groups,
        preemption: args.preemption,
        dynamic_priority: args.dynamic_priority,
        packing: args.packing,
        quota: args.quota,
        gates: args.gates,
        ..controllers::Config::default()
    };
    let (stop, mut stopping) = watch::channel(());
    let endpoint = args.endpoint.bind().await?;
    let controller = Controller::new(client.clone(), config);
    if let Some(endpoint) = endpoint {
        tokio::spawn(endpoint.serve(client, controller.reports()));
    }
    let stopped = async move {
        stopping.changed().await.ok();
    };
    let mut controlling = match election {
        None => {
            println!("muster controls a cluster of version {version}");
            tokio::spawn(controller.publish_config_and_run(stopped))
        }
        Some(election) => {
            let LeaderElectionConfig { namespace, name, .. } = &election;
            println!(
                "muster controls a cluster of version {version} while it holds lease {namespace}/{name}"
            );
            tokio::spawn(controller.run_elected(election, stopped))
        }
    };

    tokio::select! {
        () = termination.received() => {
            drop(stop);
            controlling.await.context("the controller failed to shut down")?.context("the controller failed to shut down")
        }
        ended = &mut controlling => {
            ended.context("the controller ended")?.context("the controller ended")
        }
    }
}
