//! What becomes of a gang, printed: for people, or as JSON.

use controllers::{WrapperPhase, WrapperReport};
use dashboard::GangStatusView;
use serde_json::{Value, json};

use crate::up::say;

/// How to print.
#[derive(Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Output {
    /// For people.
    #[default]
    Text,
    /// One JSON array.
    Json,
}

/// Whether an account tells what is, or what would be.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mood {
    Is,
    WouldBe,
}

/// Prints accounts.
pub(crate) fn print(accounts: &[WrapperReport], mood: Mood, output: Output) {
    match output {
        Output::Text => accounts.iter().for_each(|account| say(&text(account, mood))),
        Output::Json => {
            let accounts: Vec<Value> = accounts.iter().map(value).collect();
            say(&format!("{:#}\n", Value::from(accounts)));
        }
    }
}

fn text(account: &WrapperReport, mood: Mood) -> String {
    let WrapperReport { key, phase, stopped, moved, denied } = account;
    let said = match (phase, mood) {
        (WrapperPhase::Queued(status), Mood::Is) => status.describe(),
        (WrapperPhase::Queued(status), Mood::WouldBe) => status.describe_outcome(),
        (WrapperPhase::NotQueued(problems), _) => format!("cannot be queued: {}", problems.join(". ")),
        (WrapperPhase::Fails(cause), Mood::Is) => format!("fails: {cause}"),
        (WrapperPhase::Fails(cause), Mood::WouldBe) => format!("would fail: {cause}"),
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
    format!("{key} {said}{denied}{moved}{stopped}\n")
}

fn value(account: &WrapperReport) -> Value {
    let WrapperReport { key, phase, stopped, moved, denied } = account;
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
