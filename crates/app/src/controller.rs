//! `muster controller`: the controller alone, against the cluster of a kubeconfig.

use anyhow::{Context, Result};
use api::appwrapper::Group;
use clap::builder::BoolishValueParser;
use controllers::{Controller, LeaderElectionConfig, Packing};
use tokio::sync::watch;

use crate::connection::Connection;
use crate::election::LeaderElection;
use crate::groups::parse_group;
use crate::packing;
use crate::signal::Termination;

/// Flags of `muster controller`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    connection: Connection,
    /// Look after the AppWrappers of this group only; may be repeated. Default: mcad.ibm.com and
    /// workload.codeflare.dev.
    #[arg(long = "appwrapper-group", value_name = "GROUP", value_parser = parse_group)]
    appwrapper_groups: Vec<Group>,
    /// Let a gang take the place of gangs of lower priority, which are stopped as a whole and queued again.
    #[arg(long, env = "PREEMPTION", num_args = 0..=1, require_equals = true, default_value_t = false,
        default_missing_value = "true", value_name = "BOOL", action = clap::ArgAction::Set, value_parser = BoolishValueParser::new())]
    preemption: bool,
    /// Let ranks rise by `priorityslope` with each second of waiting. Nobody is preempted then.
    #[arg(long, alias = "dynamicpriority", env = "DYNAMICPRIORITY", num_args = 0..=1, require_equals = true, default_value_t = false,
        default_missing_value = "true", value_name = "BOOL", action = clap::ArgAction::Set, value_parser = BoolishValueParser::new())]
    dynamic_priority: bool,
    /// Which of the nodes that have room a pod goes to.
    #[arg(long, default_value = Packing::default().name(), value_name = "NAME", value_parser = packing::parser())]
    packing: Packing,
    /// Charge AppWrappers to MCAD's quota trees, which `QuotaSubtree` objects describe.
    #[arg(long, alias = "quotaEnabled", env = "QUOTA_ENABLED", num_args = 0..=1, require_equals = true, default_value_t = false,
        default_missing_value = "true", value_name = "BOOL", action = clap::ArgAction::Set, value_parser = BoolishValueParser::new())]
    quota: bool,
    /// Keep the pods of known kinds from the scheduler until each was told the node that it was planned on.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = true,
        default_missing_value = "true", value_name = "BOOL", action = clap::ArgAction::Set)]
    gates: bool,
    /// Do not install AppWrapper resources that are missing.
    #[arg(long)]
    no_install: bool,
    #[command(flatten)]
    leader: LeaderElection,
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
        eprintln!("muster: nobody is preempted while --dynamic-priority is on");
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
    let (end, mut ended) = watch::channel(());
    let controller = Controller::new(client, config);
    let ended = async move {
        ended.changed().await.ok();
    };
    let mut controlling = match election {
        None => {
            println!("muster controls a cluster of version {version}");
            tokio::spawn(controller.publish_config_and_run(ended))
        }
        Some(election) => {
            let LeaderElectionConfig { namespace, name, .. } = &election;
            println!(
                "muster controls a cluster of version {version} while it holds lease {namespace}/{name}"
            );
            tokio::spawn(controller.run_elected(election, ended))
        }
    };

    tokio::select! {
        () = termination.received() => {
            drop(end);
            controlling.await.context("the controller ended in disorder")?.context("the controller ended in disorder")
        }
        ended = &mut controlling => {
            ended.context("the controller ended")?.context("the controller ended")
        }
    }
}
