//! `muster replay`: a trace of jobs in virtual time.

use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use controllers::Packing;
use indicatif::{ProgressBar, ProgressStyle};
use replay::openb::Workload;
use replay::{FillReport, Order, Report, Source, Trace, philly, swf};
use serde::Serialize;

use crate::packing;

/// Flags of `muster replay`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    format: Format,
    /// Print one JSON object instead of a table.
    #[arg(long, global = true)]
    json: bool,
    /// Have every plan checked by the auditor, which takes much longer. A plan that breaks a rule ends the replay.
    #[arg(long, global = true)]
    audit: bool,
}

/// Where the jobs come from. Files may be compressed with gzip.
#[derive(clap::Subcommand)]
enum Format {
    /// Fill a cluster as in FGD's experiments: tasks come in random order and stay, until all GPUs have been asked for.
    Openb {
        /// The table of nodes, with the columns `sn`, `cpu_milli`, `memory_mib`, `gpu` and `model`.
        #[arg(long, value_name = "FILE")]
        nodes: PathBuf,
        /// The table of tasks, with the columns `cpu_milli`, `memory_mib`, `num_gpu`, `gpu_milli` and perhaps `gpu_spec`.
        #[arg(long, value_name = "FILE")]
        pods: PathBuf,
        /// Which nodes are preferred.
        #[arg(long, default_value = "least-fragmentation", value_name = "NAME", value_parser = packing::parser())]
        policy: Packing,
        /// How many orders are tried: from seed 42 on.
        #[arg(long, default_value = "10", value_name = "N")]
        seeds: NonZeroU32,
    },
    /// A log in the Standard Workload Format, on a machine of processors that are all alike.
    Swf {
        /// The log.
        file: PathBuf,
        /// How many processors the machine has.
        #[arg(long, value_name = "N")]
        procs: NonZeroU32,
        /// Who may pass whom.
        #[arg(long, default_value = "backfill", value_name = "NAME")]
        policy: Discipline,
    },
    /// The jobs of the Philly clusters, as a table with the columns `timestamp`, `duration` and `num_gpus`.
    Philly {
        /// The table.
        file: PathBuf,
        /// How many nodes the cluster has. With the default, the trace keeps 73 % of the GPUs busy.
        #[arg(long, default_value = "64", value_name = "N")]
        nodes: NonZeroU32,
        /// How many GPUs each node has.
        #[arg(long, default_value = "8", value_name = "N")]
        gpus: NonZeroU32,
        /// Who may pass whom.
        #[arg(long, default_value = "backfill", value_name = "NAME")]
        policy: Discipline,
    },
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Discipline {
    /// Nobody passes the first that has to wait.
    Strict,
    /// Whoever fits starts, in order of arrival.
    BestEffort,
    /// The first that has to wait is promised a start; others pass it only if they do not delay that.
    Backfill,
}

impl From<Discipline> for Order {
    fn from(discipline: Discipline) -> Self {
        match discipline {
            Discipline::Strict => Self::Strict,
            Discipline::BestEffort => Self::BestEffort,
            Discipline::Backfill => Self::Backfill,
        }
    }
}

/// Replays, and prints what came of it.
pub(crate) fn run(args: &Args) -> Result<()> {
    match &args.format {
        Format::Openb { nodes, pods, policy, seeds } => {
            let workload = Workload::read(&Source::open(nodes)?, &Source::open(pods)?)?;
            print(args.json, &fill(&workload, *policy, seeds.get(), args.audit)?)
        }
        Format::Swf { file, procs, policy } => {
            let trace = swf::read(&Source::open(file)?, procs.get())?;
            print(args.json, &in_time(&trace, (*policy).into(), args.audit)?)
        }
        Format::Philly { file, nodes, gpus, policy } => {
            let trace = philly::read(&Source::open(file)?, philly::Shape { nodes: *nodes, gpus: *gpus })?;
            print(args.json, &in_time(&trace, (*policy).into(), args.audit)?)
        }
    }
}

fn print(json: bool, report: &(impl Serialize + Display)) -> Result<()> {
    let text = if json { serde_json::to_string(report)? + "\n" } else { report.to_string() };
    std::io::stdout().lock().write_all(text.as_bytes()).context("cannot print the result")
}

/// Fills a cluster once for each seed. The first is the one of FGD's own experiments.
fn fill(workload: &Workload, packing: Packing, seeds: u32, audit: bool) -> Result<FillReport> {
    const FIRST: u64 = 42;
    let capacity = workload.gpus * 1000;
    let bar = bar(capacity * u64::from(seeds), "thousandths of a GPU asked for");
    let mut filled = Vec::new();
    for at in 0..u64::from(seeds) {
        let outcome =
            workload.fill(packing, FIRST + at, audit, |asked| bar.set_position(at * capacity + asked))?;
        filled.push((FIRST + at, outcome));
    }
    bar.finish_and_clear();
    Ok(FillReport::of(workload, packing, &filled))
}

fn in_time(trace: &Trace, order: Order, audit: bool) -> Result<Report> {
    let bar = bar(trace.jobs.len() as u64, "jobs started");
    let outcome = replay::replay(trace, order, audit, |started| bar.set_position(started as u64))?;
    bar.finish_and_clear();
    Ok(Report::of(trace, order, &outcome))
}

/// A progress bar on a terminal; silence elsewhere.
fn bar(length: u64, what: &'static str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {msg}, {elapsed} gone, {eta} to go")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(length).with_style(style).with_message(what);
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}
