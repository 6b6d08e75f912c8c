//! Follows the transcripts of Markdown pages: what a page shows is run and compared, so that no page can show what
//! does not happen.
//!
//! A fenced block `console` holds commands (lines that open with `$ `) and what each prints. A block `console up`
//! holds the command of a program that keeps running: it is started, its first lines are compared, and it is ended
//! by SIGTERM before the next such block and at the end of the page, when it must exit with 0. How lines are compared
//! is in [`compare`]; reading a page is in [`page`].

mod compare;
mod page;
mod program;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use page::{Block, Step};
use program::Program;

/// How long a command that only reads is repeated until it prints what the page shows.
const PATIENCE: Duration = Duration::from_mins(1);
/// Pause between two tries of such a command.
const PAUSE: Duration = Duration::from_millis(100);

/// Follows all pages and prints a line a step; success when every step printed what its page shows.
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
    /// Tells and counts a step; whether it passed.
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

/// What stands for the programs that a page names.
struct Tools {
    muster: PathBuf,
    /// A folder with links named `kubectl` and `muster`, first on the PATH.
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

    /// The shell that runs one command line of a page, after the page's `export` lines.
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

/// Follows a page up to its end or to the first step that fails: what comes after stands on what came before.
fn follow_page(tools: &Tools, blocks: &[Block], tally: &mut Tally) -> Result<()> {
    let mut running: Option<Program> = None;
    let mut cache = tempfile::tempdir()?; // What kubectl remembers of discovery: nothing, of another server.
    let mut exports = vec![export_cache(&cache)];
    for block in blocks {
        if block.keeps_running {
            end(running.take(), tally)?;
            cache = tempfile::tempdir()?;
            exports[0] = export_cache(&cache);
            let [step] = block.steps.as_slice() else { bail!("a block `console up` holds one command") };
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

/// Runs one command; one that only reads is repeated until it prints what is expected, or patience ends.
fn run(tools: &Tools, exports: &[String], step: &Step) -> Result<Result<(), String>> {
    let deadline = Instant::now() + if step.only_reads() { PATIENCE } else { Duration::ZERO };
    loop {
        let output = tools.shell(exports, &step.command).output().context("bash starts")?;
        let mut printed = String::from_utf8_lossy(&output.stdout).into_owned();
        printed.push_str(&String::from_utf8_lossy(&output.stderr));
        let result = compare::lines(&step.expected, &printed);
        if result.is_ok() || Instant::now() >= deadline {
            return Ok(result);
        }
        std::thread::sleep(PAUSE);
    }
}
