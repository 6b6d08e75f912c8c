//! Installs, upgrades and uninstalls the Helm chart on a cluster with simulated nodes, and uses what is installed as a user does.
//!
//! - `app_wrappers`, `kueue_api`, `claims`: on an empty cluster
//! - `manifest`: the objects of a release by kubectl instead of Helm
//! - `kueues_place`, `mcads_place`: in the place of Kueue and of MCAD, and back; `racks`: Jobs in racks meanwhile
//! - `controller`: the replicas of a release as the controller under test of cases
//! - `release`: Helm and the replicas
//! - `node`: pods of releases run as processes, with the program of their image and the token of their service account
//! - `services`: cluster addresses lead to these processes
//! - `cluster`: requests

mod app_wrappers;
mod claims;
mod cluster;
mod controller;
mod kueue_api;
mod kueues_place;
mod manifest;
mod mcads_place;
mod node;
mod racks;
mod release;
mod services;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use kube::config::Kubeconfig;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::cluster::Cluster;
pub use self::controller::Installed;
use self::node::{Node, Program};
use self::release::Release;
use crate::environment::connect;

/// What is installed, and where.
#[derive(Debug, Clone)]
pub struct Options {
    /// The kubeconfig of the cluster.
    pub kubeconfig: PathBuf,
    /// The program `helm`.
    pub helm: PathBuf,
    /// The chart: a folder, or an archive.
    pub chart: PathBuf,
    /// A chart of an earlier version, from which the release is upgraded.
    pub previous: Option<PathBuf>,
    /// A file with the objects of the chart's default values, such as `install.yaml` of a release.
    pub manifest: Option<PathBuf>,
    /// The program of the image.
    pub program: PathBuf,
    /// Kueue's manager, beside the folder `kueue` with its chart.
    pub kueue: Option<PathBuf>,
    /// MCAD's controller, beside the folder `mcad-controller` with its chart.
    pub mcad: Option<PathBuf>,
    /// The parts to run; none: all whose programs are given.
    pub parts: Vec<Part>,
    /// The folder for logs and kubeconfigs.
    pub dir: PathBuf,
    /// How long an expected state may take.
    pub timeout: Duration,
}

/// Checks that belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// In the place of Kueue, and back.
    KueuesPlace,
    /// In the place of MCAD, and back.
    McadsPlace,
    /// AppWrappers.
    AppWrappers,
    /// AppWrappers, with the objects of a file.
    Manifest,
    /// Kueue's API without Kueue.
    KueueApi,
    /// Kueue's API, and authors who leave queues and claim what is not theirs.
    Claims,
}

/// The namespace of tenants.
const TENANT: &str = "team";
const WRAPPERS: &str = "/apis/workload.codeflare.dev/v1beta1/namespaces/team/appwrappers";
const PODS: &str = "/api/v1/namespaces/team/pods";
const JOBS: &str = "/apis/batch/v1/namespaces/team/jobs";

/// Prints what holds, with the time since the begin.
struct Progress(Instant);

impl Progress {
    fn say(&self, what: &str) {
        println!("ok      {what} ({:.1} s)", self.0.elapsed().as_secs_f64());
    }
}

/// Runs all checks, and prints one line for each.
///
/// # Errors
/// A check failed.
pub async fn run(options: Options) -> Result<()> {
    let namespace = format!("muster-{}", crate::environment::run_id());
    let kubeconfig = Kubeconfig::read_from(&options.kubeconfig)?;
    let (release, mut running) = serve(options, namespace, kubeconfig).await?;
    let result = tokio::select! {
        result = parts(&release) => result,
        // Pods and Services are served without an end.
        Some(ended) = running.join_next() => ended?,
    };
    running.shutdown().await;
    result
}

/// Installs the chart with values as of Helm's `--set-json`, and runs its pods until SIGINT or SIGTERM. What they have used is printed then.
///
/// # Errors
/// The chart cannot be installed, or its pods cannot run.
pub async fn hold(options: Options, values: &[String]) -> Result<()> {
    let kubeconfig = Kubeconfig::read_from(&options.kubeconfig)?;
    let (release, mut running) = serve(options, "muster".to_owned(), kubeconfig).await?;
    release.prepare_node().await?;
    release.install(values).await?;
    release.ready(release::REPLICAS).await?;
    println!("{} replicas are ready", release::REPLICAS);
    let mut terminated = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminated.recv() => {}
        Some(ended) = running.join_next() => ended??,
    }
    let usage = release.node.usage()?;
    println!("CPU time {:.0} s, memory {} MiB", usage.cpu.as_secs_f64(), usage.memory_mib);
    running.shutdown().await;
    Ok(())
}

/// A release that is not installed yet. Its pods and Services are served while the tasks run. Pods find the API server in a kubeconfig.
async fn serve(
    options: Options,
    namespace: String,
    kubeconfig: Kubeconfig,
) -> Result<(Release, JoinSet<Result<()>>)> {
    std::fs::create_dir_all(&options.dir)
        .with_context(|| format!("cannot create {}", options.dir.display()))?;
    let client = connect(&options.kubeconfig).await?;
    let cluster = Cluster { client, timeout: options.timeout };
    let node = Node {
        cluster: cluster.clone(),
        programs: programs(&options)?,
        dir: options.dir.canonicalize()?,
        kubeconfig,
        network: fastrand::u8(100..250),
        ready: Arc::default(),
        processes: Arc::default(),
        is_down: Arc::default(),
    };
    let mut running = JoinSet::new();
    running.spawn(node.clone().run());
    running.spawn(services::run(cluster.clone(), node.clone()));
    Ok((Release { options: Arc::new(options), cluster, node, namespace }, running))
}

async fn parts(release: &Release) -> Result<()> {
    let done = Progress(Instant::now());
    let Options { kueue, mcad, parts, .. } = &*release.options;
    let is_wanted = |part| parts.is_empty() || parts.contains(&part);
    release.prepare().await?;
    if let Some(kueue) = kueue.as_deref().filter(|_| is_wanted(Part::KueuesPlace)) {
        kueues_place::run(release, &beside(kueue, "kueue")?, &done).await?;
    }
    if let Some(mcad) = mcad.as_deref().filter(|_| is_wanted(Part::McadsPlace)) {
        mcads_place::run(release, &beside(mcad, "mcad-controller")?, &done).await?;
    }
    if is_wanted(Part::AppWrappers) {
        app_wrappers::run(release, &done).await?;
    }
    if let Some(manifest) = release.options.manifest.as_deref().filter(|_| is_wanted(Part::Manifest)) {
        manifest::run(release, manifest, &done).await?;
    }
    if is_wanted(Part::KueueApi) {
        kueue_api::run(release, &done).await?;
    }
    if is_wanted(Part::Claims) {
        claims::run(release, &done).await?;
    }
    Ok(())
}

/// What runs for which image.
fn programs(options: &Options) -> Result<BTreeMap<String, Program>> {
    let found =
        |path: &Path| path.canonicalize().with_context(|| format!("there is no program {}", path.display()));
    let of = |path, arguments, has_root| Program { path, arguments, has_root };
    let mut programs =
        BTreeMap::from([("muster".to_owned(), of(found(&options.program)?, Vec::new(), false))]);
    if let Some(kueue) = &options.kueue {
        programs.insert("kueue".to_owned(), of(found(kueue)?, Vec::new(), true));
    }
    if let Some(mcad) = &options.mcad {
        // Its chart has no values for these.
        let arguments = [
            "--healthProbeListenAddr=0.0.0.0:8081",
            "--kubeconfig=/var/run/secrets/kubernetes.io/serviceaccount/kubeconfig",
        ];
        let arguments = arguments.map(str::to_owned).to_vec();
        programs.insert("mcad-controller".to_owned(), of(found(mcad)?, arguments, false));
    }
    Ok(programs)
}

/// The chart beside a program.
fn beside(program: &Path, chart: &str) -> Result<PathBuf> {
    let chart = program.canonicalize()?.parent().context("a program has no folder")?.join(chart);
    chart.canonicalize().with_context(|| format!("there is no chart {}", chart.display()))
}
