//! Records the answers of a real API server, compares a server with the recordings, or two servers with each other.

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
#[command(about = "The same requests to two Kubernetes API servers")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Keeps the answers of a server beside the cases.
    Record {
        /// The server.
        #[arg(long)]
        kubeconfig: PathBuf,
        /// Cases; all if none is named.
        cases: Vec<String>,
    },
    /// Compares a server with the recordings, or with another server.
    Compare {
        /// The server.
        #[arg(long)]
        kubeconfig: PathBuf,
        /// The oracle, instead of recordings.
        #[arg(long)]
        with: Option<PathBuf>,
        /// Seeds of random cases, as 1-100; needs an oracle.
        #[arg(long, requires = "with")]
        seeds: Option<String>,
        /// Cases; all if none is named.
        cases: Vec<String>,
    },
    /// Prints the case of a seed.
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
                let answers = run::run(&client, &read(&path)?, &word()).await?;
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
                    (Some(oracle), _) => run::run(oracle, &case, &word()).await?,
                    (None, Some(recording)) => serde_json::from_str(&std::fs::read_to_string(recording)?)?,
                    (None, None) => bail!("a random case has no recording"),
                };
                let found = run::run(&client, &case, &word()).await?;
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

/// A word that no earlier run on the same server has used.
fn word() -> String {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("r{:x}", elapsed.as_millis())
}

async fn connect(path: &Path) -> Result<Client> {
    let kubeconfig =
        Kubeconfig::read_from(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    // A refusal that asks for patience is an answer like any other here.
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

/// The files of these cases, or of all, in order.
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
