//! Waits until a gang runs or has ended, and prints what changes meanwhile.

use std::time::Duration;

use anyhow::{Result, bail};
use server::Report;
use tokio::time::{Instant, sleep};

use crate::gang::{Gang, Outcome};
use crate::report::{self, Output};

/// Between two answers.
const PAUSE: Duration = Duration::from_secs(1);

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Condition {
    /// It runs, or has ended.
    Runs,
    /// It has ended.
    Ends,
}

impl Condition {
    fn is_met(self, report: &Report) -> bool {
        let gang = Gang(report.status.clone());
        match self {
            Self::Runs => gang.outcome() == Outcome::Runs,
            Self::Ends => gang.has_ended(),
        }
    }
}

/// Asks until all reports meet the condition, which may be the first ones. Prints those whose state or reason changes.
///
/// # Errors
///
/// The time is over, or the gang is not there any more.
pub(super) async fn until(
    condition: Condition,
    timeout: Option<Duration>,
    mut reports: Vec<Report>,
    answer: impl AsyncFn() -> Result<Vec<Report>>,
    output: Output,
) -> Result<Vec<Report>> {
    let begin = Instant::now();
    while !reports.iter().all(|report| condition.is_met(report)) {
        if timeout.is_some_and(|timeout| begin.elapsed() + PAUSE > timeout) {
            let waits = |report: &Report| {
                let gang = Gang(report.status.clone());
                format!("{} is in state {}", gang.object(), gang.state())
            };
            let states: Vec<String> = reports.iter().map(waits).collect();
            bail!("the condition is not met after {} s: {}", begin.elapsed().as_secs(), states.join(", "));
        }
        sleep(PAUSE).await;
        let now = answer().await?;
        if now.len() != reports.len()
            || now.iter().zip(&reports).any(|(now, before)| said(now) != said(before))
        {
            report::print(&now, output)?;
        }
        reports = now;
    }
    Ok(reports)
}

/// What a change of is told.
fn said(report: &Report) -> (String, String) {
    let gang = Gang(report.status.clone());
    (gang.state(), gang.reason())
}
