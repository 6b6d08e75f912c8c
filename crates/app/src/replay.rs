//! `muster replay`: a trace of jobs in virtual time.

use std::io::{IsTerminal, Write};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use replay::{Order, Report, Source, Trace, philly, swf};

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
        /// How many nodes the cluster has. With the default, the trace keeps 84 % of the GPUs busy.
        #[arg(long, default_value = "56", value_name = "N")]
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
    /// Whoever fits starts, in order of arrival.
    BestEffort,
    /// The first that has to wait is promised a start; others pass it only if they do not delay that.
    Backfill,
}

impl From<Discipline> for Order {
    fn from(discipline: Discipline) -> Self {
        match discipline {
            Discipline::BestEffort => Self::BestEffort,
            Discipline::Backfill => Self::Backfill,
        }
    }
}

/// Replays, and prints what came of it.
pub(crate) fn run(args: &Args) -> Result<()> {
    let report = match &args.format {
        Format::Swf { file, procs, policy } => {
            let trace = swf::read(&open(file)?, procs.get())?;
            in_time(&trace, (*policy).into(), args.audit)?
        }
        Format::Philly { file, nodes, gpus, policy } => {
            let trace = philly::read(&open(file)?, philly::Shape { nodes: *nodes, gpus: *gpus })?;
            in_time(&trace, (*policy).into(), args.audit)?
        }
    };
    let text = if args.json { format!("{}\n", serde_json::to_string(&report)?) } else { report.to_string() };
    std::io::stdout().lock().write_all(text.as_bytes()).context("cannot print the result")
}

fn open(file: &Path) -> Result<Source> {
    Ok(Source::open(file)?)
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
