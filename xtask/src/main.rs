//! Development tasks: `cargo run -p xtask -- TASK`.

mod chart;
mod check;
mod dashboard;
mod definitions;
mod image;
mod kueue_crds;
mod kueue_functions;
mod picture;
mod reference;
mod release;
mod schemas;
mod story;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser;

/// Development tasks of the workspace.
#[derive(Parser)]
enum Task {
    /// Check formatting, lints and tests of the crates that a change affects.
    Check {
        /// The commit to compare with; by default where the upstream branch began, or else the last commit.
        #[arg(long, value_name = "COMMIT")]
        base: Option<String>,
        /// Only print what would run.
        #[arg(long)]
        print: bool,
    },
    /// Generate the schemas of built-in kinds that the API server embeds. Needs `go` and a module proxy.
    Schemas {
        /// The version of Kubernetes.
        #[arg(long, default_value = "1.36.3")]
        version: String,
        /// The directory to write to.
        #[arg(long, value_name = "DIR", default_value = "crates/apiserver/assets")]
        out: PathBuf,
    },
    /// Compare the definitions of Kueue's kinds with those of Kueue's module. Needs `go` and a module proxy.
    KueueCrds {
        /// The version of Kueue.
        #[arg(long, default_value = "v0.19.1")]
        version: String,
    },
    /// Compare the conversion and validation of Kueue's kinds with the output of testbed/kueue-functions on standard input.
    KueueFunctions,
    /// Make the Grafana dashboard, or evaluate its queries with promtool on recorded metrics.
    Dashboard {
        /// The file to write.
        #[arg(long, value_name = "FILE", default_value = "charts/muster/files/dashboard.json")]
        out: PathBuf,
        /// Write nothing: evaluate the queries on the scrapes in this folder (testbed/dashboard records them).
        #[arg(long, value_name = "DIR")]
        check: Option<PathBuf>,
        /// Seconds between two scrapes.
        #[arg(long, value_name = "SECONDS", default_value_t = 5)]
        interval: u64,
        /// The program promtool of Prometheus.
        #[arg(long, value_name = "FILE", default_value = "promtool")]
        promtool: PathBuf,
    },
    /// Build the container image of `muster`, as an archive of an OCI image layout: DIR/muster.tar.
    Image {
        /// The directory to write to.
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        /// The processor.
        #[arg(long, value_enum, default_value_t = image::Platform::Amd64)]
        platform: image::Platform,
        /// A static program that is built already.
        #[arg(long, value_name = "FILE")]
        program: Option<PathBuf>,
    },
    /// Compare the objects of `muster install` with those that Helm renders from charts/muster.
    Chart {
        /// A program `helm`; may be repeated.
        #[arg(long = "helm", value_name = "FILE", required = true)]
        helms: Vec<PathBuf>,
    },
    /// Generate the custom resource definitions of charts/muster, and the files of deploy/ that are parts of the chart.
    Deploy,
    /// Write the page with every field of the API, docs/reference/api.md.
    Reference,
    /// Draw docs/images/overview.svg from a run of `muster up`: a gang that runs, and one that fits in total and on no nodes.
    Picture {
        /// The program.
        #[arg(long, value_name = "FILE")]
        muster: PathBuf,
        /// The file to write.
        #[arg(long, value_name = "FILE", default_value = "docs/images/overview.svg")]
        out: PathBuf,
    },
    /// Make the files of a release: programs, images, chart, manifests, completions, man pages, SBOM, checksums.
    Release(release::Args),
    /// Run the console transcripts of Markdown pages with a real kubectl, and compare the output.
    Story {
        /// The program to run for `cargo run --release --` in the pages.
        #[arg(long, value_name = "FILE")]
        muster: PathBuf,
        /// The program to run for `kubectl` in the pages.
        #[arg(long, value_name = "FILE", default_value = "kubectl")]
        kubectl: PathBuf,
        /// How many pages run at the same time.
        #[arg(long, value_name = "N", default_value_t = 1)]
        jobs: u8,
        /// Repeat a page that fails, once and alone. If it passes then, it is flaky and not failed. This folder gets both outputs.
        #[arg(long, value_name = "DIR")]
        flaky: Option<PathBuf>,
        /// The pages, in this order. Each page starts with a fresh environment.
        #[arg(required = true)]
        pages: Vec<PathBuf>,
    },
}

/// The folder of the workspace.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is in the workspace")
}

fn main() -> anyhow::Result<ExitCode> {
    match Task::parse() {
        Task::Check { base, print } => check::run(base.as_deref(), print),
        Task::Schemas { version, out } => schemas::generate(&version, &out).map(|()| ExitCode::SUCCESS),
        Task::Image { out, platform, program } => {
            image::build(&out, platform, program).map(|()| ExitCode::SUCCESS)
        }
        Task::Chart { helms } => chart::compare(&helms),
        Task::Deploy => chart::deploy().map(|()| ExitCode::SUCCESS),
        Task::Reference => {
            std::fs::write(reference::PAGE, reference::text())
                .with_context(|| format!("cannot write {}", reference::PAGE))?;
            Ok(ExitCode::SUCCESS)
        }
        Task::Picture { muster, out } => picture::make(&muster, &out).map(|()| ExitCode::SUCCESS),
        Task::Release(args) => release::make(&args).map(|()| ExitCode::SUCCESS),
        Task::KueueCrds { version } => kueue_crds::compare(&version),
        Task::KueueFunctions => kueue_functions::compare(std::io::stdin().lock()),
        Task::Dashboard { check: Some(recording), interval, promtool, .. } => {
            dashboard::check(&recording, &promtool, interval)
        }
        Task::Dashboard { out, .. } => {
            std::fs::write(&out, dashboard::text())
                .with_context(|| format!("cannot write {}", out.display()))?;
            Ok(ExitCode::SUCCESS)
        }
        Task::Story { muster, kubectl, jobs, flaky, pages } => {
            story::follow(&story::Options { muster, kubectl, jobs, flaky, pages })
        }
    }
}
