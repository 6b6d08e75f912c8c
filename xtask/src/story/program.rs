//! A program that keeps running while the other commands of a page run.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::compare;
use super::page::Step;

/// The timeout for the first lines of the program, and for its exit after SIGTERM.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A running program; killed on drop.
pub(super) struct Program {
    step: Step,
    child: Child,
}

impl Program {
    /// Starts the program and compares its first lines.
    pub(super) fn start(mut command: Command, step: &Step) -> Result<(Self, Result<(), String>)> {
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().context("the program starts")?;
        let lines = lines_of(child.stdout.take().expect("standard output is piped"));
        let mut printed = String::new();
        let deadline = Instant::now() + TIMEOUT;
        let result = loop {
            let result = compare::first_lines(&step.expected, &printed);
            if result.is_ok() {
                break result;
            }
            match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => printed.extend([line.as_str(), "\n"]),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break result,
            }
        };
        Ok((Self { step: step.clone(), child }, result))
    }

    /// Sends SIGTERM; the program must exit with 0.
    pub(super) fn end(mut self) -> Result<(Step, Result<(), String>)> {
        let mut step = self.step.clone();
        step.command = format!("kill -TERM ({})", step.command);
        Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().context("kill runs")?;
        let deadline = Instant::now() + TIMEOUT;
        loop {
            if let Some(status) = self.child.try_wait()? {
                let result = if status.success() {
                    Ok(())
                } else {
                    Err(format!("    the program ended with {status}\n"))
                };
                return Ok((step, result));
            }
            if Instant::now() >= deadline {
                return Ok((
                    step,
                    Err(format!("    the program still runs {} s after SIGTERM\n", TIMEOUT.as_secs())),
                ));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.child.kill().ok();
            self.child.wait().ok();
        }
    }
}

/// Reads the whole output in a thread, so that the program never blocks on a full pipe.
fn lines_of(output: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            sender.send(line).ok();
        }
    });
    receiver
}
