//! Measures the controller on the cluster of a kubeconfig.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use behaviour::environment::{ExternalController, connect, run_id};
use behaviour::faults::NoFaults;
use behaviour::process::Process;
use behaviour::scale::{Sizes, measure};
use behaviour::{Controller as _, Environment, Fixture};
use clap::Parser;

/// Measure the controller on a cluster without nodes: `testbed/up --node count=0`. The cluster is not cleaned up.
#[derive(Parser)]
struct Arguments {
    /// The kubeconfig of the cluster.
    #[arg(long, value_name = "FILE")]
    kubeconfig: PathBuf,
    /// The program `muster`, whose controller is measured.
    #[arg(long, value_name = "FILE", default_value = "target/release/muster")]
    muster: PathBuf,
    /// The folder for the log and the kubeconfig of the controller.
    #[arg(long, value_name = "DIR", default_value = ".testbed/scale")]
    dir: PathBuf,
    /// The number of nodes.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    nodes: usize,
    /// The number of CPUs of each node; every pod requests one.
    #[arg(long, value_name = "N", default_value_t = 8)]
    node_cpus: usize,
    /// The number of AppWrappers of two pods, created at once.
    #[arg(long, value_name = "N", default_value_t = 5000)]
    wrappers: usize,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let dir = &arguments.dir;
    std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let client = connect(&arguments.kubeconfig).await?;
    behaviour::rbac::grant(&client).await?;
    let process = Process::new(arguments.muster, client.clone(), dir.join("controller.log")).await?;
    let environment = Environment {
        client: client.clone(),
        controller: Box::new(ExternalController::new(client.clone())),
        faults: Box::new(NoFaults),
        run_id: run_id(),
        timeout: Duration::from_mins(5),
        stable_period: Duration::from_secs(1),
        poll_interval: Duration::from_millis(200),
        write_interval: Duration::from_millis(200),
    };
    let fixture = Fixture::open(&environment, "scale").await?;
    let sizes =
        Sizes { nodes: arguments.nodes, node_cpus: arguments.node_cpus, wrappers: arguments.wrappers };
    measure(client, &fixture, &process, &sizes).await?;
    process.kill().await?;
    println!("load of this machine at the end: {}", std::fs::read_to_string("/proc/loadavg")?.trim());
    Ok(())
}
