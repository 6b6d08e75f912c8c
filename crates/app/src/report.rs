//! Prints reports about AppWrappers, as text or JSON.

use controllers::{WrapperPhase, WrapperReport};
use dashboard::GangStatusView;
use serde_json::{Value, json};

use crate::up;

/// Output format.
#[derive(Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Output {
    /// Text.
    #[default]
    Text,
    /// A JSON array.
    Json,
}

/// Whether a report describes the actual status, or a simulated one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Actual,
    Simulated,
}

/// Prints reports.
pub(crate) fn print(reports: &[WrapperReport], mode: Mode, output: Output) {
    match output {
        Output::Text => reports.iter().for_each(|report| up::print(&text(report, mode))),
        Output::Json => {
            let reports: Vec<Value> = reports.iter().map(value).collect();
            up::print(&format!("{:#}\n", Value::from(reports)));
        }
    }
}

fn text(report: &WrapperReport, mode: Mode) -> String {
    let WrapperReport { key, phase, stopped, moved, denied } = report;
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
    let (denied, moved) = (line(denied), line(moved));
    format!("{key} {status_text}{denied}{moved}{stopped}\n")
}

fn value(report: &WrapperReport) -> Value {
    let WrapperReport { key, phase, stopped, moved, denied } = report;
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
    if let Some(stopped) = stopped {
        value["stopped"] = json!(stopped);
    }
    value
}
