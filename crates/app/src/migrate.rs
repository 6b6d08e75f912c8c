//! `muster migrate check`: what would happen to what runs in a cluster today, if Muster took the place of Kueue or MCAD. Writes nothing.
//!
//! - `read`: lists what decides about it, page by page; `cluster`: what was read
//! - `finding`: what is found about one object or setting
//! - `systems`: which systems are there, and what of them stays registered
//! - `settings`: Kueue's configuration; `objects`: the objects of its API and the jobs in its queues
//! - `mcad`: MCAD's settings; `wrappers`: AppWrappers
//! - `forecast`: what a controller would decide now
//! - `commands`: what to run; `report`: the text and the exit code

mod cluster;
mod commands;
mod finding;
mod forecast;
mod mcad;
mod objects;
mod read;
mod report;
mod settings;
mod systems;
#[cfg(test)]
mod tests;
mod wrappers;

use std::process::ExitCode;

use anyhow::{Context, Result};
use controllers::Config;
use kube::Client;

use crate::connection::Connection;
use crate::kueue::Kueue;
use crate::table::put;
use cluster::Cluster;
use commands::{Commands, Plan};
use finding::{Finding, Subject};
use forecast::Forecast;
use mcad::McadSettings;
use settings::Settings;
use systems::{Software, System, find};
use wrappers::Wrappers;

/// Flags of `muster migrate`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Say object by object what will happen, what is not served, and which command follows. Writes nothing. Exits with 4 if
    /// something is not served, and with 3 if something is to be done first or could not be checked.
    Check(CheckArgs),
}

#[derive(clap::Args)]
struct CheckArgs {
    /// Output format. Text names only the objects of which there is something to say; JSON has all.
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    output: Format,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Short lines.
    #[default]
    Text,
    /// A JSON object.
    Json,
}

/// Checks a cluster and prints what was found.
pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let What::Check(args) = args.what;
    let (client, _) = args.connection.open().await?;
    let cluster = read::cluster(&client).await.context("cannot read the cluster")?;
    let mut checked = Checked::of(cluster);
    checked.predict(client).await;
    put(&match args.output {
        Format::Text => checked.text(),
        Format::Json => format!("{:#}\n", checked.value()),
    })?;
    Ok(checked.exit_code().into())
}

/// A cluster with all that was found.
struct Checked {
    cluster: Cluster,
    systems: Vec<System>,
    findings: Vec<Finding>,
    commands: Option<Commands>,
    kueue: Option<Settings>,
    mcad: McadSettings,
    wrappers: Wrappers,
    /// `None`: there is nothing to plan.
    forecast: Option<Forecast>,
}

impl Checked {
    /// What is found about a cluster, of what was read of it.
    fn of(cluster: Cluster) -> Self {
        let systems = systems::systems(&cluster);
        let mut findings = systems::findings(&cluster, &systems);
        let deployment = |software| find(&systems, software).and_then(|found| found.deployment.as_ref());
        let kueue = find(&systems, Software::Kueue)
            .map(|_| settings::settings(&cluster, deployment(Software::Kueue)));
        if let Some(settings) = &kueue {
            findings.extend(settings.findings.iter().cloned());
            findings.extend(objects::findings(&cluster, settings));
        }
        let mcad =
            deployment(Software::Mcad).map(|found| mcad::settings(&cluster, found)).unwrap_or_default();
        findings.extend(mcad.findings.iter().cloned());
        let queued = "workload.codeflare.dev/appwrapper";
        let is_queued_kind =
            kueue.as_ref().is_some_and(|settings| settings.jobs.iter().any(|kind| kind == queued));
        let wrappers = wrappers::wrappers(&cluster, &systems, is_queued_kind);
        findings.extend(wrappers.findings.iter().cloned());
        let is_codeflare = wrappers.groups.contains(&api::appwrapper::Group::Codeflare);
        let manages_wrappers = wrappers.are_there || deployment(Software::Mcad).is_some();
        if is_queued_kind && is_codeflare && manages_wrappers {
            let what =
                "is a kind of jobs of Kueue, and MCAD manages the same group: one controller cannot do both";
            let remedy =
                "take it out of kueue.jobs, or move the AppWrappers of MCAD to the group mcad.ibm.com";
            findings.push(Finding::not_served(Subject::new("Setting", queued), what, remedy));
        }
        findings.sort_by(|a, b| (a.outcome, &a.subject).cmp(&(b.outcome, &b.subject)));
        let plan = Plan {
            cluster: &cluster,
            systems: &systems,
            kueue: kueue.as_ref(),
            provisions: objects::provisions(&cluster),
            mcad: &mcad,
            has_wrappers: wrappers.are_there,
            groups: &wrappers.groups,
            wraps: &wrappers.wraps,
        };
        let commands = plan.commands();
        Self { systems, findings, commands, kueue, mcad, wrappers, forecast: None, cluster }
    }

    /// Plans the cluster as Muster would, if there is something to plan.
    async fn predict(&mut self, client: Client) {
        let has_mcad = find(&self.systems, Software::Mcad).is_some();
        if self.kueue.is_none() && !has_mcad {
            return;
        }
        self.forecast = Some(match self.config() {
            Ok(config) => Forecast::of(client, config, &self.cluster, &self.wrappers.failing).await,
            Err(why) => Forecast::Skipped(format!("{why:#}")),
        });
    }

    /// The configuration of a controller that the commands would install.
    fn config(&self) -> Result<Config> {
        let mut config = match &self.kueue {
            Some(settings) => {
                let document = settings.document.clone();
                Kueue::planning(document.context("Kueue's configuration is refused")?)?
            }
            None => Config::default(),
        };
        config.groups = self.wrappers.groups.iter().copied().collect();
        config.quota = self.mcad.quota;
        config.preemption = self.mcad.preemption;
        config.dynamic_priority = self.mcad.dynamic_priority;
        Ok(config)
    }
}
