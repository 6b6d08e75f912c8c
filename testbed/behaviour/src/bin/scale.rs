//! Measures Muster on the cluster of a kubeconfig.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use behaviour::environment::{Foreign, connect, word};
use behaviour::faults::Spared;
use behaviour::process::Process;
use behaviour::scale::{Sizes, measure};
use behaviour::{Controller as _, Environment, Scene};
use clap::Parser;

/// Measures Muster on a cluster that has no nodes and is ended afterwards: `testbed/up --node count=0`.
#[derive(Parser)]
struct Arguments {
    /// The cluster.
    #[arg(long, value_name = "FILE")]
    kubeconfig: PathBuf,
    /// The program whose controller is measured.
    #[arg(long, value_name = "FILE", default_value = "target/release/muster")]
    muster: PathBuf,
    /// Where the controller logs, and finds its kubeconfig.
    #[arg(long, value_name = "DIR", default_value = ".testbed/scale")]
    dir: PathBuf,
    /// Nodes, which are created first.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    nodes: usize,
    /// CPUs of each node; every pod takes one.
    #[arg(long, value_name = "N", default_value_t = 8)]
    node_cpus: usize,
    /// AppWrappers of two pods, created at once.
    #[arg(long, value_name = "N", default_value_t = 5000)]
    wrappers: usize,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let dir = &arguments.dir;
    std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let client = connect(&arguments.kubeconfig).await?;
    behaviour::rights::grant(&client).await?;
    let process = Process::new(arguments.muster, client.clone(), dir.join("controller.log")).await?;
    let environment = Environment {
        client: client.clone(),
        controller: Box::new(Foreign::new(client.clone())),
        faults: Box::new(Spared),
        word: word(),
        patience: Duration::from_mins(5),
        quiet: Duration::from_secs(1),
        pause: Duration::from_millis(200),
        haste: Duration::from_millis(200),
    };
    let scene = Scene::open(&environment, "scale").await?;
    let sizes =
        Sizes { nodes: arguments.nodes, node_cpus: arguments.node_cpus, wrappers: arguments.wrappers };
    measure(client, &scene, &process, &sizes).await?;
    process.kill().await?;
    println!("load of this machine at the end: {}", std::fs::read_to_string("/proc/loadavg")?.trim());
    Ok(())
}
