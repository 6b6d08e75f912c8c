//! Installs the Helm chart on the cluster of a kubeconfig, uses it, upgrades it and uninstalls it.

use std::fs::File;
use std::io::{BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use behaviour::installation::{Options, Part, hold, run};
use clap::Parser;
use flate2::read::GzDecoder;
use serde_json::Value;

/// Install, upgrade and uninstall the Helm chart on a cluster without nodes: `testbed/up --node count=0`.
#[derive(Parser)]
struct Arguments {
    /// The kubeconfig of the cluster.
    #[arg(long, value_name = "FILE")]
    kubeconfig: PathBuf,
    /// The program `helm`, of version 3 or 4.
    #[arg(long, value_name = "FILE")]
    helm: PathBuf,
    /// The image, whose program runs: `cargo run -p xtask -- image --out DIR`.
    #[arg(long, value_name = "FILE", conflicts_with = "muster")]
    image: Option<PathBuf>,
    /// The program, instead of that of an image.
    #[arg(long, value_name = "FILE", default_value = "target/release/muster")]
    muster: PathBuf,
    /// The folder of the chart, or its archive.
    #[arg(long, value_name = "DIR", default_value = "charts/muster")]
    chart: PathBuf,
    /// The objects of the default values in a file, which kubectl installs: `install.yaml` of a release.
    #[arg(long, value_name = "FILE")]
    manifest: Option<PathBuf>,
    /// The folder of the chart's previous version, which is installed first.
    #[arg(long, value_name = "DIR")]
    previous: Option<PathBuf>,
    /// Kueue's manager, in whose place the chart is installed: `testbed/build kueue-manager`.
    #[arg(long, value_name = "FILE")]
    kueue: Option<PathBuf>,
    /// MCAD's controller, in whose place the chart is installed: `testbed/build mcad`.
    #[arg(long, value_name = "FILE")]
    mcad: Option<PathBuf>,
    /// Run these parts only, separated by commas.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PARTS")]
    only: Vec<Part>,
    /// Only install the chart, and run its pods until SIGINT or SIGTERM.
    #[arg(long, conflicts_with_all = ["only", "previous"])]
    hold: bool,
    /// A value of the chart, as for Helm: `--set-json kueue.enabled=true`.
    #[arg(long, value_name = "NAME=JSON", requires = "hold")]
    set_json: Vec<String>,
    /// The folder for the logs of the replicas.
    #[arg(long, value_name = "DIR", default_value = ".testbed/installation")]
    dir: PathBuf,
    /// How many seconds an expected state may take.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    timeout: u64,
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let Arguments { kubeconfig, helm, chart, manifest, previous, kueue, mcad, only: parts, dir, .. } =
        arguments;
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let program = match arguments.image {
        Some(image) => unpack(&image, &dir).with_context(|| format!("cannot unpack {}", image.display()))?,
        None => arguments.muster,
    };
    let timeout = Duration::from_secs(arguments.timeout);
    let options =
        Options { kubeconfig, helm, chart, manifest, previous, program, kueue, mcad, parts, dir, timeout };
    if arguments.hold {
        hold(options, &arguments.set_json).await?;
        return Ok(ExitCode::SUCCESS);
    }
    run(options).await?;
    println!("the chart is installed, upgraded and uninstalled");
    Ok(ExitCode::SUCCESS)
}

/// Unpacks the only layer of an image, and returns its entry point.
fn unpack(image: &Path, dir: &Path) -> Result<PathBuf> {
    let index = json(image, "index.json")?;
    let manifest = json(image, &blob(&index["manifests"][0]["digest"]))?;
    let config = json(image, &blob(&manifest["config"]["digest"]))?;
    ensure!(config["config"]["User"] == "65532:65532", "the image has the user {}", config["config"]["User"]);
    let layers = manifest["layers"].as_array().context("the image has no layers")?;
    ensure!(layers.len() == 1, "the image has {} layers", layers.len());
    let root = dir.join("root");
    std::fs::create_dir_all(&root)?;
    let layer = read(image, &blob(&layers[0]["digest"]))?;
    tar::Archive::new(GzDecoder::new(layer.as_slice())).unpack(&root)?;
    let entry = config["config"]["Entrypoint"][0].as_str().context("the image has no entry point")?;
    Ok(root.join(entry.trim_start_matches('/')))
}

fn blob(digest: &Value) -> String {
    format!("blobs/{}", digest.as_str().unwrap_or_default().replace(':', "/"))
}

fn json(image: &Path, name: &str) -> Result<Value> {
    serde_json::from_slice(&read(image, name)?).with_context(|| format!("{name} is no JSON"))
}

fn read(image: &Path, name: &str) -> Result<Vec<u8>> {
    let mut archive = tar::Archive::new(BufReader::new(File::open(image)?));
    for entry in archive.entries()? {
        let mut entry = entry?;
        if entry.path()?.as_os_str() == name {
            let mut content = Vec::new();
            entry.read_to_end(&mut content)?;
            return Ok(content);
        }
    }
    anyhow::bail!("the image has no {name}")
}
