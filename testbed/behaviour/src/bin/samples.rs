//! Compares the simulated KubeRay operator with the real one on the samples of KubeRay's module.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use behaviour::environment::{connect, run_id};
use behaviour::samples::server::Server;
use behaviour::samples::{self, Outcome, Sample};
use clap::Parser;
use differential::allowed::Page;

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
    // Differences that a second run does not show are due to timing: how often an operator reconciles before an object exists.
    let mut retried = samples.clone();
    retried.retain(|sample| {
        let outcome = outcomes.iter().find(|outcome| outcome.name == sample.name);
        outcome.is_some_and(|outcome| !page.unexplained(&outcome.name, &outcome.differences).is_empty())
    });
    let mut flaky = 0;
    if !retried.is_empty() {
        let names: Vec<&str> = retried.iter().map(|sample| &*sample.name).collect();
        for outcome in outcomes.extract_if(.., |outcome| names.contains(&&*outcome.name)) {
            println!("first run: {}", described(&mut page, &outcome).1);
        }
        for outcome in samples::run(&real, &simulated, &retried, &run_id()).await? {
            if page.unexplained(&outcome.name, &outcome.differences).is_empty() {
                println!("flaky: {}", outcome.name);
                flaky += 1;
            }
            outcomes.push(outcome);
        }
    }
    let mut differ = 0;
    for outcome in outcomes {
        let (alike, text) = described(&mut page, &outcome);
        println!("{text}");
        differ += usize::from(!alike);
    }
    let mut unused = if arguments.names.is_empty() { page.unused() } else { Vec::new() };
    unused.retain(|row| !row.reason.starts_with("by chance"));
    for row in &unused {
        println!("no difference needs this row of the page: {row:?}");
    }
    let told = if flaky == 0 { String::new() } else { format!(" ({flaky} flaky)") };
    println!("{} samples alike, {differ} differ{told}", samples.len() - differ);
    Ok(if differ == 0 && unused.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Whether both operators did the same, and what they did differently, in lines.
fn described(page: &mut Page, outcome: &Outcome) -> (bool, String) {
    let report = page.unexplained(&outcome.name, &outcome.differences);
    let mut text = format!("{} {}", if report.is_empty() { "alike  " } else { "DIFFERS" }, outcome.name);
    let left_out = outcome.left_out.iter().map(|document| format!("left out: {document}"));
    for line in left_out.chain(report.iter().cloned()) {
        text.push_str("\n        ");
        text.push_str(&line.replace('\n', "\n        "));
    }
    (report.is_empty(), text)
}
