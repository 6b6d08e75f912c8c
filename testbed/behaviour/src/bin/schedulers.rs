//! Compares the simulated scheduler with kube-scheduler by random pods.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use behaviour::environment::connect;
use behaviour::samples::server::Server;
use behaviour::schedulers::case::Case;
use behaviour::schedulers::run::Clusters;
use clap::Parser;

/// Schedule random pods on a cluster with kube-scheduler and on one with the simulated scheduler, and compare what happens to them. Both
/// clusters lose all their nodes and pods.
#[derive(Parser)]
struct Arguments {
    /// The kubeconfig of a cluster with kube-scheduler: `testbed/up --node count=0`.
    #[arg(long, value_name = "FILE")]
    real: PathBuf,
    /// The kubeconfig of a cluster with the simulated scheduler: `muster up` without nodes of its own.
    #[arg(long, value_name = "FILE")]
    simulated: PathBuf,
    /// The seed of the first case.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// The number of cases.
    #[arg(long, value_name = "N", default_value_t = 60)]
    cases: u64,
    /// The timeout for an expected state, in seconds.
    #[arg(long, value_name = "N", default_value_t = 30)]
    patience: u64,
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let timeout = Duration::from_secs(arguments.patience);
    let clusters = Clusters {
        real: Server::new(connect(&arguments.real).await?, timeout),
        simulated: Server::new(connect(&arguments.simulated).await?, timeout),
    };
    clusters.prepare().await?;
    let (mut probes, mut bound, mut refused, mut repeated, mut differences) = (0, 0, 0, 0, 0);
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    for seed in arguments.seed..arguments.seed.saturating_add(arguments.cases) {
        let case = Case::new(seed);
        let found = clusters.play(&case).await.with_context(|| format!("seed {seed}"))?;
        probes += found.probes;
        bound += found.bound;
        refused += found.refused;
        repeated += found.repeated;
        differences += found.differences.len();
        for (reason, number) in found.reasons {
            *reasons.entry(reason).or_default() += number;
        }
        for difference in &found.differences {
            let pod = serde_saphyr::to_string(&difference.pod)?;
            println!("DIFFERS --seed {seed} --cases 1: {}", difference.pod["metadata"]["name"]);
            println!(
                "  real:      {}\n  simulated: {}\n{}",
                difference.real,
                difference.simulated,
                pod.trim_end()
            );
        }
        if !found.differences.is_empty() {
            println!("# the other objects of seed {seed}");
            for object in case.nodes.iter().chain(&case.storage).chain(&case.fixed) {
                println!("---\n{}", serde_saphyr::to_string(object)?.trim_end());
            }
        }
    }
    println!("reasons that both tell, with the number of nodes:");
    for (reason, number) in &reasons {
        println!("{number:8}  {reason}");
    }
    println!(
        "{bound} probes bound by both, {refused} refused by both API servers, {repeated} alike only when repeated"
    );
    println!("{} cases, {probes} probes, {differences} differences", arguments.cases);
    Ok(if differences == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
