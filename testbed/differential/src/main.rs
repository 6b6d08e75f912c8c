//! Records the responses of a real API server, compares a server with the recordings, or compares two servers.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};
use clap::{Parser, Subcommand};
use differential::allowed::Page;
use differential::answer::{Answer, compare};
use differential::case::Case;
use differential::{random, run};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

#[derive(Parser)]
#[command(about = "Send the same requests to two Kubernetes API servers and compare the responses")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Record the responses of a server beside the cases.
    Record {
        /// The kubeconfig of the server.
        #[arg(long)]
        kubeconfig: PathBuf,
        /// The names of the cases; all cases by default.
        cases: Vec<String>,
    },
    /// Compare a server with the recordings, or with another server.
    Compare {
        /// The kubeconfig of the server under test.
        #[arg(long)]
        kubeconfig: PathBuf,
        /// The kubeconfig of the oracle; the recordings by default.
        #[arg(long)]
        with: Option<PathBuf>,
        /// Run random cases with these seeds, such as 1-100, instead of the files.
        #[arg(long, requires = "with")]
        seeds: Option<String>,
        /// The names of the cases; all cases by default.
        cases: Vec<String>,
    },
    /// Print the random case for a seed.
    Random {
        /// The seed.
        seed: u64,
    },
}

#[tokio::main]
async fn main() -> Result<()> {
    match Arguments::parse().command {
        Command::Random { seed } => print!("{}", random::text(seed)),
        Command::Record { kubeconfig, cases } => {
            let client = connect(&kubeconfig).await?;
            for path in named(&cases)? {
                let answers = run::run(&client, &read(&path)?, &run_id()).await?;
                let text = serde_json::to_string_pretty(&answers)?;
                std::fs::write(path.with_extension("json"), text + "\n")?;
                println!("{}: {} answers", path.display(), answers.len());
            }
        }
        Command::Compare { kubeconfig, with, seeds, cases } => {
            let client = connect(&kubeconfig).await?;
            let oracle = match with {
                Some(path) => Some(connect(&path).await?),
                None => None,
            };
            let mut all = Vec::new();
            if let Some(seeds) = seeds {
                let (first, last) = seeds.split_once('-').unwrap_or((&seeds, &seeds));
                for seed in first.parse()?..=last.parse()? {
                    all.push((Case::parse(&format!("random-{seed}"), &random::text(seed))?, None));
                }
            } else {
                for path in named(&cases)? {
                    all.push((read(&path)?, Some(path.with_extension("json"))));
                }
            }
            let page =
                std::fs::read_to_string(root().join("../../docs/compat/apiserver.md")).unwrap_or_default();
            let mut page = Page::read(&page);
            let (mut count, mut answers, cases) = (0, 0, all.len());
            for (case, recording) in all {
                let expected: Vec<Answer> = match (&oracle, recording) {
                    (Some(oracle), _) => run::run(oracle, &case, &run_id()).await?,
                    (None, Some(recording)) => serde_json::from_str(&std::fs::read_to_string(recording)?)?,
                    (None, None) => bail!("a random case has no recording"),
                };
                let found = run::run(&client, &case, &run_id()).await?;
                answers += found.len();
                for difference in page.unexplained(&case.name, &compare(&expected, &found)) {
                    println!("{difference}");
                    count += 1;
                }
            }
            println!("{answers} answers in {cases} cases, {count} differences");
            if count > 0 {
                bail!("{count} differences");
            }
        }
    }
    Ok(())
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A suffix that no earlier run on the same server has used.
fn run_id() -> String {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("r{:x}", elapsed.as_millis())
}

async fn connect(path: &Path) -> Result<Client> {
    let kubeconfig =
        Kubeconfig::read_from(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    // Responses with status 429 or 5xx are compared like any other.
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

/// The files of these cases, or of all cases, sorted.
fn named(cases: &[String]) -> Result<Vec<PathBuf>> {
    let folder = root().join("cases");
    if !cases.is_empty() {
        return Ok(cases.iter().map(|name| folder.join(name).with_extension("http")).collect());
    }
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|suffix| suffix == "http") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn read(path: &Path) -> Result<Case> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    Case::parse(&name, &text)
}
