//! Plays cases on the cluster of a kubeconfig.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use behaviour::environment::{Foreign, connect, word};
use behaviour::faults::{InMemory, Spared, Testbed};
use behaviour::process::Process;
use behaviour::{Case, Controller as _, Environment, Faults, all, oracle, rights};
use clap::Parser;

/// What users of AppWrappers rely on, played on a cluster that has no nodes: `testbed/up --node count=0 --with kuberay`.
#[derive(Parser)]
struct Arguments {
    /// The cluster.
    #[arg(long, value_name = "FILE")]
    kubeconfig: PathBuf,
    /// The program whose controller is tested.
    #[arg(long, value_name = "FILE", default_value = "target/release/muster")]
    muster: PathBuf,
    /// The folder of the cluster, if `testbed/up` has started it: its API server and its store are restarted.
    #[arg(long, value_name = "DIR", conflicts_with = "api_server")]
    cluster: Option<PathBuf>,
    /// The process of the API server, if it is one of `muster up --api-only`: it is told to forget what changed and to end all watches.
    #[arg(long, value_name = "PID")]
    api_server: Option<u32>,
    /// Where the controller logs. Its kubeconfig is written beside it.
    #[arg(long, value_name = "FILE", default_value = "muster-controller.log")]
    log: PathBuf,
    /// Multiplies all deadlines.
    #[arg(long, value_name = "N", default_value_t = 1)]
    patience: u32,
    /// Keeps what MCAD makes of the oracle's inputs instead: `testbed/up --node count=0 --with kuberay,mcad`. Names are of inputs then.
    #[arg(long)]
    record: bool,
    /// Cases; all if none is named.
    cases: Vec<String>,
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    if arguments.record {
        record(&arguments).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let cases = named(&arguments.cases)?;
    let client = connect(&arguments.kubeconfig).await?;
    rights::grant(&client).await.context("cannot grant the controller its rights")?;
    let controller = Process::new(arguments.muster, client.clone(), arguments.log).await?;
    let faults: Box<dyn Faults> = match (arguments.cluster, arguments.api_server) {
        (Some(dir), _) => Box::new(Testbed { dir, client: client.clone() }),
        (None, Some(process)) => Box::new(InMemory { process, link: controller.link().clone() }),
        (None, None) => Box::new(Spared),
    };
    let environment = Environment {
        client,
        controller: Box::new(controller),
        faults,
        word: word(),
        patience: Duration::from_mins(1) * arguments.patience,
        quiet: Duration::from_secs(1),
        pause: Duration::from_millis(50),
        haste: Duration::from_millis(10),
    };
    let mut failed = 0;
    for case in &cases {
        let started = Instant::now();
        let result = case.run(&environment).await;
        let took = started.elapsed().as_secs_f64();
        match result {
            Ok(()) => println!("ok      {} ({took:.1} s)", case.name),
            Err(error) => {
                failed += 1;
                println!("FAILED  {} ({took:.1} s)", case.name);
                error.chain().for_each(|cause| println!("        {cause}"));
            }
        }
    }
    environment.controller.kill().await?;
    if arguments.cases.is_empty() {
        let unused = rights::unused(&environment.controller.link().rights())?;
        let unused: Vec<String> = unused.iter().map(ToString::to_string).collect();
        println!("rights of its own that the controller never used: {}", unused.join(", "));
    }
    println!("{} passed, {failed} failed", cases.len() - failed);
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Keeps what the dispatcher on the cluster makes of the oracle's inputs.
async fn record(arguments: &Arguments) -> Result<()> {
    let client = connect(&arguments.kubeconfig).await?;
    let environment = Environment {
        controller: Box::new(Foreign::new(client.clone())),
        client,
        faults: Box::new(Spared),
        word: word(),
        patience: Duration::from_secs(40) * arguments.patience,
        // Shorter than the pause between its tries, which show in the status.
        quiet: Duration::from_secs(12),
        pause: Duration::from_millis(200),
        haste: Duration::from_millis(200),
    };
    for input in oracle::inputs()? {
        if arguments.cases.is_empty() || arguments.cases.iter().any(|name| name == input.name) {
            let looks = input.play(&environment).await.with_context(|| format!("input {}", input.name))?;
            std::fs::write(input.recording(), serde_json::to_string_pretty(&looks)? + "\n")?;
            println!("{}: {} looks", input.recording().display(), looks.len());
        }
    }
    Ok(())
}

fn named(names: &[String]) -> Result<Vec<Case>> {
    if names.is_empty() {
        return Ok(all().to_vec());
    }
    let find = |name: &String| behaviour::cases::named(name).with_context(|| format!("no case {name}"));
    names.iter().map(find).collect()
}
