//! `muster replay`: replays a job trace in virtual time.

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
    /// Audit every plan, which takes much longer. A violation ends the replay with an error.
    #[arg(long, global = true)]
    audit: bool,
}

/// The trace format. Files may be compressed with gzip.
#[derive(clap::Subcommand)]
enum Format {
    /// Fill a cluster as in the experiments of FGD: tasks arrive in random order and never end, until their requests
    /// sum up to all GPUs.
    Openb {
        /// Table of nodes, with the columns `sn`, `cpu_milli`, `memory_mib`, `gpu` and `model`.
        #[arg(long, value_name = "FILE")]
        nodes: PathBuf,
        /// Table of tasks, with the columns `cpu_milli`, `memory_mib`, `num_gpu`, `gpu_milli` and optionally
        /// `gpu_spec`.
        #[arg(long, value_name = "FILE")]
        pods: PathBuf,
        /// How nodes are scored.
        #[arg(long, default_value = "least-fragmentation", value_name = "NAME", value_parser = packing::parser())]
        policy: Packing,
        /// Number of random orders: seeds 42, 43 and so on.
        #[arg(long, default_value = "10", value_name = "N")]
        seeds: NonZeroU32,
    },
    /// Replay a log in the Standard Workload Format on a machine of identical processors.
    Swf {
        /// Log file.
        file: PathBuf,
        /// Number of processors.
        #[arg(long, value_name = "N")]
        procs: NonZeroU32,
        /// Queue policy.
        #[arg(long, default_value = "backfill", value_name = "NAME")]
        policy: QueuePolicy,
    },
    /// Replay the jobs of the Philly clusters, from a table with the columns `timestamp`, `duration` and `num_gpus`.
    Philly {
        /// Table file.
        file: PathBuf,
        /// Number of nodes. With the default, the trace uses 73 % of the GPUs.
        #[arg(long, default_value = "64", value_name = "N")]
        nodes: NonZeroU32,
        /// Number of GPUs per node.
        #[arg(long, default_value = "8", value_name = "N")]
        gpus: NonZeroU32,
        /// Queue policy.
        #[arg(long, default_value = "backfill", value_name = "NAME")]
        policy: QueuePolicy,
    },
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum QueuePolicy {
    /// Strict FIFO: no job passes a blocked job.
    Strict,
    /// Best effort: each job that fits starts, in order of arrival.
    BestEffort,
    /// Backfill: the first blocked job gets a reserved start; other jobs pass it only if they do not delay that start.
    Backfill,
}

impl From<QueuePolicy> for Order {
    fn from(policy: QueuePolicy) -> Self {
        match policy {
            QueuePolicy::Strict => Self::Strict,
            QueuePolicy::BestEffort => Self::BestEffort,
            QueuePolicy::Backfill => Self::Backfill,
        }
    }
}

/// Replays a trace and prints the results.
pub(crate) fn run(args: &Args) -> Result<()> {
    match &args.format {
        Format::Openb { nodes, pods, policy, seeds } => {
            let workload = Workload::read(&Source::open(nodes)?, &Source::open(pods)?)?;
            print(args.json, &fill(&workload, *policy, seeds.get(), args.audit)?)
        }
        Format::Swf { file, procs, policy } => {
            let trace = swf::read(&Source::open(file)?, procs.get())?;
            print(args.json, &replay_trace(&trace, (*policy).into(), args.audit)?)
        }
        Format::Philly { file, nodes, gpus, policy } => {
            let trace = philly::read(&Source::open(file)?, philly::Shape { nodes: *nodes, gpus: *gpus })?;
            print(args.json, &replay_trace(&trace, (*policy).into(), args.audit)?)
        }
    }
}

fn print(json: bool, report: &(impl Serialize + Display)) -> Result<()> {
    let text = if json { serde_json::to_string(report)? + "\n" } else { report.to_string() };
    std::io::stdout().lock().write_all(text.as_bytes()).context("cannot print the result")
}

/// Fills a cluster once for each seed. The first seed is that of the experiments of FGD.
fn fill(workload: &Workload, packing: Packing, seeds: u32, audit: bool) -> Result<FillReport> {
    const FIRST_SEED: u64 = 42;
    let capacity = workload.gpus * 1000;
    let bar = bar(capacity * u64::from(seeds), "thousandths of a GPU requested");
    let mut filled = Vec::new();
    for at in 0..u64::from(seeds) {
        let outcome = workload
            .fill(packing, FIRST_SEED + at, audit, |requested| bar.set_position(at * capacity + requested))?;
        filled.push((FIRST_SEED + at, outcome));
    }
    bar.finish_and_clear();
    Ok(FillReport::of(workload, packing, &filled))
}

fn replay_trace(trace: &Trace, order: Order, audit: bool) -> Result<Report> {
    let bar = bar(trace.jobs.len() as u64, "jobs started");
    let outcome = replay::replay(trace, order, audit, |started| bar.set_position(started as u64))?;
    bar.finish_and_clear();
    Ok(Report::of(trace, order, &outcome))
}

/// A progress bar; hidden if standard error is not a terminal.
fn bar(length: u64, what: &'static str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {msg}, {elapsed} elapsed, {eta} left")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(length).with_style(style).with_message(what);
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}
