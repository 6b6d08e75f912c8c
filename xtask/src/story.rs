//! Runs the console transcripts of Markdown pages and compares the output with the pages.
//!
//! A fenced block `console` has commands (lines that begin with `$ `) and the expected output of each. A block `console up`
//! has one command that keeps running. The command is started and its first lines are compared. It is ended with SIGTERM
//! before the next such block and at the end of the page, and must exit with 0. [`compare`] compares lines; [`page`] parses
//! pages.

mod compare;
mod page;
mod program;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use page::{Block, Step};
use program::Program;

/// How long a read-only command is repeated until it prints the expected output.
const TIMEOUT: Duration = Duration::from_mins(1);
/// The interval between two tries of a read-only command.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Runs all pages and prints one line for each step. Succeeds when every step prints the expected output.
pub(crate) fn follow(muster: &Path, kubectl: &Path, pages: &[PathBuf]) -> Result<ExitCode> {
    let tools = Tools::new(muster, kubectl)?;
    let mut tally = Tally::default();
    for page in pages {
        println!("page {}", page.display());
        let text =
            std::fs::read_to_string(page).with_context(|| format!("cannot read {}", page.display()))?;
        follow_page(&tools, &page::read(&text), &mut tally)?;
    }
    println!("{} passed, {} failed", tally.passed, tally.failed);
    Ok(if tally.failed == 0 && tally.passed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[derive(Default)]
struct Tally {
    passed: u32,
    failed: u32,
}

impl Tally {
    /// Prints and counts the result of a step, and returns whether it passed.
    fn count(&mut self, step: &Step, result: Result<(), String>) -> bool {
        match result {
            Ok(()) => {
                self.passed += 1;
                println!("  ok      $ {}", step.command);
                true
            }
            Err(difference) => {
                self.failed += 1;
                println!("  FAILED  $ {} (line {})\n{difference}", step.command, step.line);
                false
            }
        }
    }
}

/// The programs that the commands of a page run.
struct Tools {
    muster: PathBuf,
    /// A folder with symbolic links named `kubectl` and `muster`, first on the PATH.
    bin: tempfile::TempDir,
}

impl Tools {
    fn new(muster: &Path, kubectl: &Path) -> Result<Self> {
        let muster = muster.canonicalize().with_context(|| format!("no program {}", muster.display()))?;
        let bin = tempfile::tempdir()?;
        std::os::unix::fs::symlink(&muster, bin.path().join("muster"))?;
        if kubectl.components().count() > 1 {
            std::os::unix::fs::symlink(kubectl.canonicalize()?, bin.path().join("kubectl"))?;
        }
        Ok(Self { muster, bin })
    }

    /// The shell command for one command line of a page, preceded by the page's `export` lines.
    fn shell(&self, exports: &[String], command: &str) -> Command {
        let command = command.replace("cargo run --release --", &format!("'{}'", self.muster.display()));
        let path = std::env::var("PATH").unwrap_or_default();
        let mut shell = Command::new("bash");
        shell
            .args(["-c", &[exports, &[command]].concat().join("\n")])
            .env("PATH", format!("{}:{path}", self.bin.path().display()))
            .env("NO_COLOR", "1")
            .stdin(Stdio::null());
        shell
    }
}

/// Runs a page until its end or the first failed step: later steps depend on earlier ones.
fn follow_page(tools: &Tools, blocks: &[Block], tally: &mut Tally) -> Result<()> {
    let mut running: Option<Program> = None;
    let mut cache = tempfile::tempdir()?; // A new discovery cache of kubectl for each server.
    let mut exports = vec![export_cache(&cache)];
    for block in blocks {
        if block.keeps_running {
            end(running.take(), tally)?;
            cache = tempfile::tempdir()?;
            exports[0] = export_cache(&cache);
            let [step] = block.steps.as_slice() else {
                bail!("a block `console up` must have exactly one command")
            };
            let (program, result) =
                Program::start(tools.shell(&exports, &format!("exec {}", step.command)), step)?;
            running = Some(program);
            if !tally.count(step, result) {
                return end(running, tally);
            }
        } else {
            for step in &block.steps {
                if !tally.count(step, run(tools, &exports, step)?) {
                    return end(running, tally);
                }
                exports.extend(step.command.starts_with("export ").then(|| step.command.clone()));
            }
        }
    }
    end(running, tally)
}

fn export_cache(cache: &tempfile::TempDir) -> String {
    format!("export KUBECACHEDIR='{}'", cache.path().display())
}

fn end(running: Option<Program>, tally: &mut Tally) -> Result<()> {
    if let Some(program) = running {
        let (step, result) = program.end()?;
        tally.count(&step, result);
    }
    Ok(())
}

/// Runs one command. A read-only command is repeated until it prints the expected output, or until the timeout.
fn run(tools: &Tools, exports: &[String], step: &Step) -> Result<Result<(), String>> {
    let deadline = Instant::now() + if step.is_read_only() { TIMEOUT } else { Duration::ZERO };
    loop {
        let output = tools.shell(exports, &step.command).output().context("bash starts")?;
        let mut printed = String::from_utf8_lossy(&output.stdout).into_owned();
        printed.push_str(&String::from_utf8_lossy(&output.stderr));
        let result = compare::lines(&step.expected, &printed);
        if result.is_ok() || Instant::now() >= deadline {
            return Ok(result);
        }
        std::thread::sleep(RETRY_INTERVAL);
    }
}
