//! Compares what the simulated KubeRay operator makes of the samples of KubeRay's module with what the real one makes of them.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use behaviour::environment::{connect, word};
use behaviour::samples::server::Server;
use behaviour::samples::{Sample, play};
use clap::Parser;
use differential::allowed::Page;

/// Gives the samples of KubeRay's module to the real operator and to the simulated one, and compares what they make.
#[derive(Parser)]
struct Arguments {
    /// The folder of the samples: `samples` beside the program that `testbed/build kuberay` prints.
    #[arg(long, value_name = "DIR")]
    samples: PathBuf,
    /// A cluster with the real operator: `testbed/up --node count=0 --with kuberay`.
    #[arg(long, value_name = "FILE")]
    real: PathBuf,
    /// A cluster with the simulated operator: `muster up`.
    #[arg(long, value_name = "FILE")]
    simulated: PathBuf,
    /// How long all samples together may take, in seconds.
    #[arg(long, value_name = "N", default_value_t = 600)]
    patience: u64,
    /// Samples, by the names of their files without `.yaml`; all if none is named. Rows that nothing needs fail with all of them only.
    names: Vec<String>,
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let samples = Sample::read(&arguments.samples, &arguments.names)?;
    let patience = Duration::from_secs(arguments.patience);
    let real = Server::new(connect(&arguments.real).await?, patience);
    let simulated = Server::new(connect(&arguments.simulated).await?, patience);
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/compat/kuberay-samples.md");
    let mut page = Page::read(&std::fs::read_to_string(page)?);
    let mut outcomes = play(&real, &simulated, &samples, &word()).await?;
    // What another play does not show again was chance: how often an operator looked before something was there.
    let mut doubtful = samples.clone();
    doubtful.retain(|sample| {
        let outcome = outcomes.iter().find(|outcome| outcome.name == sample.name);
        outcome.is_some_and(|outcome| !page.unexplained(&outcome.name, &outcome.differences).is_empty())
    });
    if !doubtful.is_empty() {
        let names: Vec<&str> = doubtful.iter().map(|sample| &*sample.name).collect();
        println!("again   {}", names.join(" "));
        outcomes.retain(|outcome| !names.contains(&&*outcome.name));
        outcomes.extend(play(&real, &simulated, &doubtful, &word()).await?);
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
    let mut idle = if arguments.names.is_empty() { page.idle() } else { Vec::new() };
    idle.retain(|row| !row.reason.starts_with("by chance"));
    for row in &idle {
        println!("nothing differs there any more, this row can go: {row:?}");
    }
    println!("{} samples alike, {differ} differ", samples.len() - differ);
    Ok(if differ == 0 && idle.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
