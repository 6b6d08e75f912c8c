//! What becomes of a gang, printed: for people, or as JSON.

use controllers::{Account, Fate};
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
pub(crate) fn print(accounts: &[Account], mood: Mood, output: Output) {
    match output {
        Output::Text => accounts.iter().for_each(|account| say(&text(account, mood))),
        Output::Json => {
            let accounts: Vec<Value> = accounts.iter().map(value).collect();
            say(&format!("{:#}\n", Value::from(accounts)));
        }
    }
}

fn text(account: &Account, mood: Mood) -> String {
    let Account { key, fate, stopped, moved, denied } = account;
    let said = match (fate, mood) {
        (Fate::Queued(status), Mood::Is) => status.describe(),
        (Fate::Queued(status), Mood::WouldBe) => status.describe_outcome(),
        (Fate::NotQueued(problems), _) => format!("cannot be queued: {}", problems.join(". ")),
        (Fate::Fails(cause), Mood::Is) => format!("fails: {cause}"),
        (Fate::Fails(cause), Mood::WouldBe) => format!("would fail: {cause}"),
        (Fate::Stopping(cause), _) => format!("is being stopped: {cause}"),
        (Fate::Ended(state, cause), _) => format!("is {state:?}: {cause}"),
    };
    let stopped = match (fate, stopped) {
        (Fate::Queued(_) | Fate::NotQueued(_), Some(stopped)) => format!("\n  stopped before: {stopped}"),
        (Fate::Fails(_) | Fate::Stopping(_) | Fate::Ended(..), _) | (_, None) => String::new(),
    };
    let line = |text: &Option<String>| text.as_ref().map_or(String::new(), |text| format!("\n  {text}"));
    let (denied, moved) = (line(denied), line(moved));
    format!("{key} {said}{denied}{moved}{stopped}\n")
}

fn value(account: &Account) -> Value {
    let Account { key, fate, stopped, moved, denied } = account;
    let mut value = match fate {
        Fate::Queued(status) => json!(GangStatusView::of(status)),
        Fate::NotQueued(problems) => json!({"state": "not queued", "causes": problems}),
        Fate::Fails(cause) => json!({"state": "fails", "causes": [cause]}),
        Fate::Stopping(cause) => json!({"state": "stopping", "causes": [cause]}),
        Fate::Ended(state, cause) => {
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
