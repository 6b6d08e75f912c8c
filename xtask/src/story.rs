//! Runs the console transcripts of Markdown pages and compares the output with the pages.
//!
//! A fenced block `console` has commands (lines that begin with `$ `) and the expected output of each. A block `console up`
//! has one command that keeps running. The command is started and its first lines are compared. It is ended with SIGTERM
//! before the next such block and at the end of the page, and must exit with 0. [`compare`] compares lines; [`page`] parses
//! pages.

mod compare;
mod page;
mod place;
mod program;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use page::{Block, Step};
use place::Place;
use program::Program;

/// How long a read-only command is repeated until it prints the expected output.
const TIMEOUT: Duration = Duration::from_mins(1);
/// The interval between two tries of a read-only command.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// What to run, and how.
pub(crate) struct Options {
    pub(crate) muster: PathBuf,
    pub(crate) kubectl: PathBuf,
    /// How many pages run at the same time.
    pub(crate) jobs: u8,
    /// The folder for the output of pages that failed and passed when they were repeated. Without it, no page is repeated.
    pub(crate) flaky: Option<PathBuf>,
    pub(crate) pages: Vec<PathBuf>,
}

/// Runs all pages and prints one line for each step. Succeeds when every step prints the expected output.
///
/// With [`Options::flaky`], a page that fails is repeated alone. If it passes then, it is told as `flaky: PAGE`.
pub(crate) fn follow(options: &Options) -> Result<ExitCode> {
    let open = Mutex::new(options.pages.iter());
    let done = Mutex::new(Vec::new());
    let next = || open.lock().expect("no page panics").next();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (1..=options.jobs.max(1))
            .map(|number| {
                let (next, done) = (&next, &done);
                scope.spawn(move || -> Result<()> {
                    let place = Place::new(number, &options.muster, &options.kubectl)?;
                    while let Some(page) = next() {
                        let transcript = follow_page(&place, page)?;
                        print!("{}", transcript.text);
                        done.lock().expect("no page panics").push((page, transcript));
                    }
                    Ok(())
                })
            })
            .collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("no page panics"))
    })?;

    let (mut passed, mut failed, mut flaky) = (0, 0, 0);
    let place = Place::new(1, &options.muster, &options.kubectl)?;
    for (page, mut transcript) in done.into_inner().expect("no page panics") {
        if let (Some(dir), true) = (&options.flaky, transcript.failed > 0) {
            println!("again, alone:");
            let second = follow_page(&place, page)?;
            print!("{}", second.text);
            keep(dir, page, [("first", &transcript), ("second", &second)])?;
            if second.failed == 0 {
                println!("flaky: {}, both outputs in {}", page.display(), dir.display());
                flaky += 1;
            }
            transcript = second;
        }
        passed += transcript.passed;
        failed += transcript.failed;
    }
    let told = if flaky == 0 { String::new() } else { format!(" ({flaky} flaky pages)") };
    println!("{passed} passed, {failed} failed{told}");
    Ok(if failed == 0 && passed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Writes the outputs of a page to a folder.
fn keep(dir: &Path, page: &Path, runs: [(&str, &Transcript); 2]) -> Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let stem = page.file_stem().unwrap_or_default().to_string_lossy();
    for (run, transcript) in runs {
        let to = dir.join(format!("{stem}.{run}.log"));
        std::fs::write(&to, &transcript.text).with_context(|| format!("cannot write {}", to.display()))?;
    }
    Ok(())
}

/// What a page printed, and its steps by outcome.
#[derive(Default)]
struct Transcript {
    text: String,
    passed: u32,
    failed: u32,
}

impl Transcript {
    /// Adds and counts the result of a step, and returns whether it passed.
    fn count(&mut self, step: &Step, result: &Result<(), String>) -> bool {
        let line = match result {
            Ok(()) => format!("  ok      $ {}", step.command),
            Err(difference) => {
                format!("  FAILED  $ {} (line {})\n{difference}", step.command, step.line)
            }
        };
        writeln!(self.text, "{line}").expect("a string takes all text");
        *if result.is_ok() { &mut self.passed } else { &mut self.failed } += 1;
        result.is_ok()
    }
}

/// Runs a page until its end or the first failed step: later steps depend on earlier ones.
fn follow_page(place: &Place, page: &Path) -> Result<Transcript> {
    let text = std::fs::read_to_string(page).with_context(|| format!("cannot read {}", page.display()))?;
    let mut transcript = Transcript { text: format!("page {}\n", page.display()), ..Transcript::default() };
    follow_blocks(place, &page::read(&text), &mut transcript)
        .with_context(|| format!("in {}", page.display()))?;
    Ok(transcript)
}

fn follow_blocks(place: &Place, blocks: &[Block], transcript: &mut Transcript) -> Result<()> {
    let mut running: Option<Program> = None;
    let mut cache = tempfile::tempdir()?; // A new discovery cache of kubectl for each server.
    let mut exports = vec![export_cache(&cache)];
    for block in blocks {
        if block.keeps_running {
            end(running.take(), transcript)?;
            cache = tempfile::tempdir()?;
            exports[0] = export_cache(&cache);
            let [step] = block.steps.as_slice() else {
                bail!("a block `console up` must have exactly one command")
            };
            let command = format!("exec {}", place.with_addresses(&step.command));
            let (program, result) = Program::start(place.shell(&exports, &command), step)?;
            running = Some(program);
            if !transcript.count(step, &result) {
                return end(running, transcript);
            }
        } else {
            for step in &block.steps {
                if !transcript.count(step, &run(place, &exports, step)?) {
                    return end(running, transcript);
                }
                exports.extend(step.command.starts_with("export ").then(|| step.command.clone()));
            }
        }
    }
    end(running, transcript)
}

fn export_cache(cache: &tempfile::TempDir) -> String {
    format!("export KUBECACHEDIR='{}'", cache.path().display())
}

fn end(running: Option<Program>, transcript: &mut Transcript) -> Result<()> {
    if let Some(program) = running {
        let (step, result) = program.end()?;
        transcript.count(&step, &result);
    }
    Ok(())
}

/// Runs one command. A read-only command is repeated until it prints the expected output, or until the timeout.
fn run(place: &Place, exports: &[String], step: &Step) -> Result<Result<(), String>> {
    let deadline = Instant::now() + if step.is_read_only() { TIMEOUT } else { Duration::ZERO };
    loop {
        let output = place.shell(exports, &step.command).output().context("bash starts")?;
        let mut printed = String::from_utf8_lossy(&output.stdout).into_owned();
        printed.push_str(&String::from_utf8_lossy(&output.stderr));
        let result = compare::lines(&step.expected, &printed);
        if result.is_ok() || Instant::now() >= deadline {
            return Ok(result);
        }
        std::thread::sleep(RETRY_INTERVAL);
    }
}
