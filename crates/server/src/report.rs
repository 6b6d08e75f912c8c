//! A report about one AppWrapper or Workload, as text and as JSON.
//!
//! - `workload`: of a Workload

mod workload;

use controllers::{GangObject, GangReport, WrapperPhase, WrapperReport};
use dashboard::GangStatusView;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Whether a report describes the actual status, or a simulated one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The status of an object of the cluster.
    Actual,
    /// What would happen to an object if it were created now.
    Simulated,
}

/// A report in both forms.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Lines for a reader; they end with a line feed.
    pub text: String,
    /// The fields that `-o json` prints.
    pub status: Value,
}

impl Report {
    /// Writes a report of the controller in both forms.
    pub fn new(report: &GangReport, mode: Mode) -> Self {
        let (text, mut status) = match report {
            GangReport::Wrapper(report) => (text(report, mode), value(report)),
            GangReport::Workload(report) => (workload::text(report, mode), workload::value(report)),
        };
        describe(&mut status, report.object());
        Self { text, status }
    }
}

/// Adds what the object is.
fn describe(status: &mut Value, object: &GangObject) {
    let GangObject { named: (kind, name), created, priority, pods } = object;
    status["object"] = json!(format!("{kind}/{name}"));
    status["priority"] = json!(priority);
    status["pods"] = json!(pods);
    if let Some(created) = created {
        status["created"] = json!(created.to_string());
    }
}

fn text(report: &WrapperReport, mode: Mode) -> String {
    let WrapperReport { key, phase, stopped, moved, denied, unplanned, object: _ } = report;
    let status_text = match (phase, mode) {
        (WrapperPhase::Queued(status), Mode::Actual) => status.describe(),
        (WrapperPhase::Queued(status), Mode::Simulated) => status.describe_outcome(),
        (WrapperPhase::NotQueued(problems), _) => format!("cannot be queued: {}", problems.join(". ")),
        (WrapperPhase::Fails(cause), Mode::Actual) => format!("fails: {cause}"),
        (WrapperPhase::Fails(cause), Mode::Simulated) => format!("would fail: {cause}"),
        (WrapperPhase::Stopping(cause), _) => format!("is being stopped: {cause}"),
        (WrapperPhase::Ended(state, cause), _) => format!("is {state:?}: {cause}"),
    };
    let stopped = match (phase, stopped) {
        (WrapperPhase::Queued(_) | WrapperPhase::NotQueued(_), Some(stopped)) => {
            format!("\n  stopped before: {stopped}")
        }
        (WrapperPhase::Fails(_) | WrapperPhase::Stopping(_) | WrapperPhase::Ended(..), _) | (_, None) => {
            String::new()
        }
    };
    let line = |text: &Option<String>| text.as_ref().map_or(String::new(), |text| format!("\n  {text}"));
    let (denied, moved, unplanned) = (line(denied), line(moved), line(unplanned));
    format!("{key} {status_text}{denied}{moved}{unplanned}{stopped}\n")
}

fn value(report: &WrapperReport) -> Value {
    let WrapperReport { key, phase, stopped, moved, denied, unplanned, object: _ } = report;
    let mut value = match phase {
        WrapperPhase::Queued(status) => json!(GangStatusView::of(status)),
        WrapperPhase::NotQueued(problems) => json!({"state": "not queued", "causes": problems}),
        WrapperPhase::Fails(cause) => json!({"state": "fails", "causes": [cause]}),
        WrapperPhase::Stopping(cause) => json!({"state": "stopping", "causes": [cause]}),
        WrapperPhase::Ended(state, cause) => {
            json!({"state": format!("{state:?}").to_lowercase(), "causes": [cause]})
        }
    };
    value["kind"] = json!(key.kind);
    value["namespace"] = json!(key.namespace);
    value["name"] = json!(key.name);
    if let Some(denied) = denied {
        value["denied"] = json!(denied);
    }
    if let Some(moved) = moved {
        value["moved"] = json!(moved);
    }
    if let Some(unplanned) = unplanned {
        value["notPlanned"] = json!(unplanned);
    }
    if let Some(stopped) = stopped {
        value["stopped"] = json!(stopped);
    }
    value
}
