//! Plays random gangs with rules between pods on the cluster of a kubeconfig.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use behaviour::environment::{connect, run_id};
use behaviour::faults::NoFaults;
use behaviour::pod_rules_oracle::{Options, run};
use behaviour::process::Process;
use behaviour::{Environment, Fixture};
use clap::Parser;

/// Play random gangs with rules between pods on a cluster without nodes: `testbed/up --node count=0`.
#[derive(Parser)]
struct Arguments {
    /// The kubeconfig of the cluster.
    #[arg(long, value_name = "FILE")]
    kubeconfig: PathBuf,
    /// The program `muster`, whose controller is tested.
    #[arg(long, value_name = "FILE", default_value = "target/release/muster")]
    muster: PathBuf,
    /// The folder for the log and the kubeconfig of the controller.
    #[arg(long, value_name = "DIR", default_value = ".testbed/pod-rules")]
    dir: PathBuf,
    /// The seed of the first case.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// The number of cases.
    #[arg(long, value_name = "N", default_value_t = 350)]
    cases: u64,
    /// The number of cases that share the cluster at one time.
    #[arg(long, value_name = "N", default_value_t = 35)]
    at_once: usize,
    /// Add no case after this time.
    #[arg(long, value_name = "SECONDS")]
    limit: Option<u64>,
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let dir = &arguments.dir;
    std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let client = connect(&arguments.kubeconfig).await?;
    behaviour::rbac::grant(&client).await.context("cannot apply deploy/rbac.yaml")?;
    let process = Process::new(arguments.muster, client.clone(), dir.join("controller.log")).await?;
    let environment = Environment {
        client,
        controller: Box::new(process),
        faults: Box::new(NoFaults),
        run_id: run_id(),
        timeout: Duration::from_mins(1),
        stable_period: Duration::from_secs(2),
        poll_interval: Duration::from_millis(150),
        write_interval: Duration::from_millis(10),
    };
    let fixture = Fixture::open(&environment, "pod_rules").await?;
    let options = Options {
        seed: arguments.seed,
        cases: arguments.cases,
        at_once: arguments.at_once.max(1),
        limit: arguments.limit.map(Duration::from_secs),
    };
    let faults = run(&fixture, &options).await?;
    fixture.close().await?;
    environment.controller.kill().await?;
    println!("{faults} cases with a fault");
    Ok(if faults == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
