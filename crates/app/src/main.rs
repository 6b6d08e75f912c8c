//! The binary `muster`: flags, wiring and exit codes.

mod change;
mod cluster;
mod clusters_loop;
mod connection;
mod controller;
mod describe;
mod device_tolerations;
mod election;
mod embedded_kueue;
mod endpoint;
mod gang;
mod get;
mod groups;
mod install;
mod kubeconfig;
mod kueue;
mod lease_thread;
mod migrate;
mod packing;
mod page;
mod plan;
#[cfg(test)]
mod reference;
mod release;
mod replay;
mod report;
mod shell;
mod signal;
mod table;
mod telemetry;
mod trace_export;
mod uninstall;
mod up;
mod visibility;
mod why;
mod workdir;

use std::io::IsTerminal as _;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser};
use mimalloc::MiMalloc;
use tracing_subscriber::EnvFilter;

/// With the allocator of musl, the C library of the image, `muster up` needs 1.6 times the CPU time for the same AppWrappers;
/// with that of glibc 1.2 times.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Gang scheduling for Kubernetes: queues AppWrappers and creates the objects of each one only when all its pods fit.
#[derive(Parser)]
#[command(name = "muster", version)]
struct Cli {
    /// Log filter: `level` or `target=level,…`. Default: warnings; of `muster controller` also its decisions
    /// (`decision=info`) and who leads (`leadership=info`).
    #[arg(long, global = true, env = "MUSTER_LOG", value_name = "FILTER", value_parser = log_filter)]
    log: Option<EnvFilter>,
    /// Log format.
    #[arg(long, global = true, env = "MUSTER_LOG_FORMAT", default_value = "text", value_name = "FORMAT")]
    log_format: LogFormat,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Run a cluster in this process: API server, simulated nodes and operators, controller, dashboard.
    Up(up::Args),
    /// Run the controller for the cluster of a kubeconfig.
    Controller(Box<controller::Args>),
    /// Print the status of an AppWrapper: its assignment, or why it is pending and its expected start.
    Why(why::Args),
    /// List gangs, queues or nodes.
    Get(get::Args),
    /// Print all about one gang, queue or node.
    Describe(describe::Args),
    /// Stop a gang and keep it from starting: its Workload becomes inactive.
    Hold(change::Gang),
    /// Let a gang that is held wait in its queue again.
    Unhold(change::Gang),
    /// Stop a gang and let it wait in its queue again.
    Requeue(change::Requeue),
    /// Change the priority of a gang.
    Prioritize(change::Prioritize),
    /// Stop and start the admission of a queue.
    Queue(change::QueueArgs),
    /// Add worker clusters to a hub.
    Cluster(cluster::Args),
    /// Print what the controller would decide about AppWrappers, Workloads, jobs and pods if they were created now. Creates nothing.
    Plan(plan::Args),
    /// Say what would happen to what Kueue or MCAD runs in a cluster, if Muster took their place.
    Migrate(migrate::Args),
    /// Remove Muster's scheduling gates from pods and pod templates, when Muster is given up.
    Release(release::Args),
    /// Print the objects that install Muster in a cluster: those of the Helm chart.
    Install(Box<install::Args>),
    /// Stop Muster in a cluster and remove its webhooks, gates and finalizers. Deletes no workload.
    Uninstall(uninstall::Args),
    /// Replay a job trace in virtual time, without a cluster.
    Replay(replay::Args),
    /// Print the completions for a shell.
    Completion(shell::Completion),
    /// Write a man page for each command.
    Man(shell::Man),
}

impl Command {
    /// What is logged by default. Errors of requests are told by who made them.
    fn logged(&self) -> &'static str {
        if let Self::Controller(_) = self {
            return "warn,decision=info,leadership=info,kube_runtime::watcher=error,kube_client::client=off";
        }
        "warn,kube_runtime::watcher=error,kube_client::client=off"
    }
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

/// A log filter. What it does not understand is an error, not left out.
fn log_filter(text: &str) -> Result<EnvFilter, String> {
    let why =
        |error| format!("{error}; write a level (error, warn, info, debug, trace), or `target=level,…`");
    EnvFilter::builder().parse(text).map_err(why)
}

fn main() -> ExitCode {
    shell::complete_line(command);
    run(parsed())
}

/// The command line.
fn command() -> clap::Command {
    shell::called_as(Cli::command())
}

#[tokio::main]
async fn run(cli: Cli) -> ExitCode {
    let filter = cli.log.unwrap_or_else(|| EnvFilter::new(cli.command.logged()));
    let has_colours =
        std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty());
    let logs =
        tracing_subscriber::fmt().with_env_filter(filter).with_ansi(has_colours).with_writer(std::io::stderr);
    match cli.log_format {
        LogFormat::Text => logs.init(),
        LogFormat::Json => logs.json().init(),
    }
    let result = match cli.command {
        Command::Up(args) => done(up::run(args).await),
        Command::Controller(args) => done(controller::run(*args).await),
        Command::Why(args) => why::run(args).await,
        Command::Get(args) => get::run(args).await,
        Command::Describe(args) => describe::run(args).await,
        Command::Hold(args) => change::hold(args).await,
        Command::Unhold(args) => change::unhold(args).await,
        Command::Requeue(args) => change::requeue(args).await,
        Command::Prioritize(args) => change::prioritize(args).await,
        Command::Queue(args) => change::run_queue(args).await,
        Command::Cluster(args) => done(cluster::run(args).await),
        Command::Plan(args) => plan::run(args).await,
        Command::Migrate(args) => migrate::run(args).await,
        Command::Release(args) => done(release::run(args).await),
        Command::Install(args) => done(install::run(*args)),
        Command::Uninstall(args) => done(uninstall::run(args).await),
        Command::Replay(args) => done(replay::run(&args)),
        Command::Completion(args) => done(shell::print_script(&args)),
        Command::Man(args) => done(shell::write_pages(&args, Cli::command())),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("muster: {}", visibility::line(&error));
            ExitCode::FAILURE
        }
    }
}

/// The flags; ends the process if they are wrong, or if help is asked for.
fn parsed() -> Cli {
    let mut command = command();
    let matches = command.try_get_matches_from_mut(std::env::args_os());
    let cli = matches.and_then(|matches| Cli::from_arg_matches(&matches));
    cli.unwrap_or_else(|error| shell::with_suggestion(error, &command).exit())
}

/// The exit code of a command that has no other one.
fn done(result: anyhow::Result<()>) -> anyhow::Result<ExitCode> {
    result.map(|()| ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_all_commands_are_consistent() {
        Cli::command().debug_assert();
    }
}
