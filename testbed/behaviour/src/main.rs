//! Runs cases on the cluster of a kubeconfig.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use behaviour::environment::{ExternalController, connect, run_id};
use behaviour::faults::{InMemoryServer, NoFaults, Testbed};
use behaviour::installation::{Installed, Options};
use behaviour::process::Process;
use behaviour::{Case, Controller, Environment, FaultInjector, all, oracle, rbac};
use clap::Parser;
use kube::Client;

/// Run end-to-end tests of AppWrappers on a cluster without nodes: `testbed/up --node count=0 --with kuberay`.
#[derive(Parser)]
struct Arguments {
    /// The kubeconfig of the cluster.
    #[arg(long, value_name = "FILE")]
    kubeconfig: PathBuf,
    /// The program `muster`, whose controller is tested.
    #[arg(long, value_name = "FILE", default_value = "target/release/muster")]
    muster: PathBuf,
    /// The folder of a cluster of `testbed/up`. Cases restart its kube-apiserver and etcd.
    #[arg(long, value_name = "DIR", conflicts_with = "api_server")]
    cluster: Option<PathBuf>,
    /// The process of an API server of `muster up --api-only`. Cases make it drop its watch history and end all watches.
    #[arg(long, value_name = "PID")]
    api_server: Option<u32>,
    /// The log file of the controller. Its kubeconfig is written to the same folder.
    #[arg(long, value_name = "FILE", default_value = "muster-controller.log")]
    log: PathBuf,
    /// The program `helm`: it installs the chart, and the controller under test is what runs in the pods of its release.
    #[arg(long, value_name = "FILE")]
    helm: Option<PathBuf>,
    /// The folder of the chart.
    #[arg(long, value_name = "DIR", default_value = "charts/muster")]
    chart: PathBuf,
    /// Multiply all timeouts by this factor.
    #[arg(long, value_name = "N", default_value_t = 1)]
    patience: u32,
    /// Repeat a case that fails, once and alone. If it passes then, it is flaky and not failed. This folder gets what both runs logged.
    #[arg(long, value_name = "DIR")]
    flaky: Option<PathBuf>,
    /// Record the oracle's inputs under MCAD instead of running cases: `testbed/up --node count=0 --with kuberay,mcad`. The names
    /// are then names of inputs.
    #[arg(long)]
    record: bool,
    /// The names of the cases to run; all cases by default.
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
    let controller = controller(&arguments, &client).await?;
    let faults: Box<dyn FaultInjector> = match (arguments.cluster, arguments.api_server) {
        (Some(dir), _) => Box::new(Testbed { dir, client: client.clone() }),
        (None, Some(process)) => Box::new(InMemoryServer { process, proxy: controller.proxy().clone() }),
        (None, None) => Box::new(NoFaults),
    };
    let mut environment = Environment {
        client,
        controller,
        faults,
        run_id: run_id(),
        timeout: Duration::from_mins(1) * arguments.patience,
        stable_period: Duration::from_secs(1),
        poll_interval: Duration::from_millis(50),
        write_interval: Duration::from_millis(10),
    };
    let mut outcomes = Outcomes::default();
    for case in &cases {
        if run(case, &environment).await {
            outcomes.passed += 1;
            continue;
        }
        let Some(dir) = &arguments.flaky else {
            outcomes.failed += 1;
            continue;
        };
        keep_log(&arguments.log, dir, case, "first")?;
        environment.run_id = run_id();
        let passes = run(case, &environment).await;
        keep_log(&arguments.log, dir, case, "second")?;
        if passes {
            println!("flaky: {}, logs in {}", case.name, dir.display());
            outcomes.flaky += 1;
        } else {
            outcomes.failed += 1;
        }
    }
    environment.controller.kill().await?;
    if arguments.cases.is_empty() {
        let unused = rbac::unused(&environment.controller.proxy().permissions())?;
        let unused: Vec<String> = unused.iter().map(ToString::to_string).collect();
        println!("permissions that the controller never used: {}", unused.join(", "));
    }
    let Outcomes { passed, failed, flaky } = outcomes;
    let told = if flaky == 0 { String::new() } else { format!(" ({flaky} flaky)") };
    println!("{} passed, {failed} failed{told}", passed + flaky);
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// How many cases ended in each way.
#[derive(Default)]
struct Outcomes {
    passed: usize,
    failed: usize,
    /// Failed, and passed when they were repeated.
    flaky: usize,
}

/// Runs a case, prints its outcome, and returns whether it passed.
async fn run(case: &Case, environment: &Environment) -> bool {
    let started = Instant::now();
    let result = case.run(environment).await;
    let took = started.elapsed().as_secs_f64();
    match &result {
        Ok(()) => println!("ok      {} ({took:.1} s)", case.name),
        Err(error) => {
            println!("FAILED  {} ({took:.1} s)", case.name);
            error.chain().for_each(|cause| println!("        {cause}"));
        }
    }
    result.is_ok()
}

/// Copies the log of the controller as it is now.
fn keep_log(log: &Path, dir: &Path, case: &Case, run: &str) -> Result<()> {
    let to = dir.join(format!("{}.{run}.log", case.name));
    std::fs::create_dir_all(dir)
        .and_then(|()| std::fs::copy(log, &to))
        .with_context(|| format!("cannot copy {} to {}", log.display(), to.display()))?;
    Ok(())
}

/// The controller under test, as a process or as a release of the chart.
async fn controller(arguments: &Arguments, client: &Client) -> Result<Box<dyn Controller>> {
    let Arguments { muster, log, .. } = arguments;
    let process = Process::new(muster.clone(), client.clone(), log.clone()).await?;
    let Some(helm) = arguments.helm.clone() else {
        rbac::grant(client).await.context("cannot apply deploy/rbac.yaml")?;
        return Ok(Box::new(process));
    };
    let options = Options {
        kubeconfig: arguments.kubeconfig.clone(),
        helm,
        chart: arguments.chart.clone(),
        manifest: None,
        previous: None,
        program: muster.clone(),
        kueue: None,
        mcad: None,
        parts: Vec::new(),
        dir: log.with_extension("pods"),
        timeout: Duration::from_mins(1) * arguments.patience,
    };
    let installed = Installed::install(options, process).await.context("cannot install the chart")?;
    Ok(Box::new(installed))
}

/// Records the oracle's inputs under the dispatcher that runs on the cluster.
async fn record(arguments: &Arguments) -> Result<()> {
    let client = connect(&arguments.kubeconfig).await?;
    let environment = Environment {
        controller: Box::new(ExternalController::new(client.clone())),
        client,
        faults: Box::new(NoFaults),
        run_id: run_id(),
        timeout: Duration::from_secs(40) * arguments.patience,
        // Shorter than the interval between MCAD's dispatch attempts, which change the status.
        stable_period: Duration::from_secs(12),
        poll_interval: Duration::from_millis(200),
        write_interval: Duration::from_millis(200),
    };
    for input in oracle::inputs()? {
        if arguments.cases.is_empty() || arguments.cases.iter().any(|name| name == input.name) {
            let records = input.run(&environment).await.with_context(|| format!("input {}", input.name))?;
            std::fs::write(input.recording(), serde_json::to_string_pretty(&records)? + "\n")?;
            println!("{}: {} records", input.recording().display(), records.len());
        }
    }
    Ok(())
}

fn named(names: &[String]) -> Result<Vec<Case>> {
    if names.is_empty() {
        return Ok(all().copied().collect());
    }
    let find = |name: &String| behaviour::cases::named(name).with_context(|| format!("no case {name}"));
    names.iter().map(find).collect()
}
