//! Compares the simulated KubeRay operator with the real one on the samples of KubeRay's module.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use behaviour::environment::{connect, run_id};
use behaviour::samples::server::Server;
use behaviour::samples::{self, Sample};
use clap::Parser;
use differential::allowed::Page;

/// How often a sample with differences is run again.
const RETRIES: usize = 3;

/// Apply the samples of KubeRay's module to a cluster with the real operator and to one with the simulated operator, and compare the
/// resulting objects.
#[derive(Parser)]
struct Arguments {
    /// The folder of the samples: `samples` beside the program that `testbed/build kuberay` prints.
    #[arg(long, value_name = "DIR")]
    samples: PathBuf,
    /// The kubeconfig of a cluster with the real operator: `testbed/up --node count=0 --with kuberay`.
    #[arg(long, value_name = "FILE")]
    real: PathBuf,
    /// The kubeconfig of a cluster with the simulated operator: `muster up`.
    #[arg(long, value_name = "FILE")]
    simulated: PathBuf,
    /// The timeout for all samples together, in seconds.
    #[arg(long, value_name = "N", default_value_t = 600)]
    patience: u64,
    /// File names of samples without `.yaml`; all samples by default. Unused rows of the page fail only a run of all samples.
    names: Vec<String>,
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let samples = Sample::read(&arguments.samples, &arguments.names)?;
    let timeout = Duration::from_secs(arguments.patience);
    let real = Server::new(connect(&arguments.real).await?, timeout);
    let simulated = Server::new(connect(&arguments.simulated).await?, timeout);
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/compat/kuberay-samples.md");
    let mut page = Page::read(&std::fs::read_to_string(page)?);
    let mut outcomes = samples::run(&real, &simulated, &samples, &run_id()).await?;
    // Differences that a later run does not show are due to timing: how often an operator reconciles before an object exists.
    for _ in 0..RETRIES {
        let mut retried = samples.clone();
        retried.retain(|sample| {
            let outcome = outcomes.iter().find(|outcome| outcome.name == sample.name);
            outcome.is_some_and(|outcome| !page.unexplained(&outcome.name, &outcome.differences).is_empty())
        });
        if retried.is_empty() {
            break;
        }
        let names: Vec<&str> = retried.iter().map(|sample| &*sample.name).collect();
        println!("retry   {}", names.join(" "));
        outcomes.retain(|outcome| !names.contains(&&*outcome.name));
        outcomes.extend(samples::run(&real, &simulated, &retried, &run_id()).await?);
    }
    let mut differ = 0;
    for outcome in outcomes {
        let report = page.unexplained(&outcome.name, &outcome.differences);
        println!("{} {}", if report.is_empty() { "alike  " } else { "DIFFERS" }, outcome.name);
        let left_out = outcome.left_out.iter().map(|document| format!("left out: {document}"));
        for text in left_out.chain(report.iter().cloned()) {
            println!("        {}", text.replace('\n', "\n        "));
        }
        differ += usize::from(!report.is_empty());
    }
    let mut unused = if arguments.names.is_empty() { page.unused() } else { Vec::new() };
    unused.retain(|row| !row.reason.starts_with("by chance"));
    for row in &unused {
        println!("no difference needs this row of the page: {row:?}");
    }
    println!("{} samples alike, {differ} differ", samples.len() - differ);
    Ok(if differ == 0 && unused.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
