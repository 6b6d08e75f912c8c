//! What a report says about a gang, for tables and exit codes. It is read from the JSON of the report, as `-o json` prints it, because
//! the controller that answers may be of another version.

use controllers::PodsPerNode;
use jiff::Timestamp;
use serde_json::Value;

/// The state of a gang, as exit codes tell it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    /// It runs, or has ended.
    Runs,
    /// It waits.
    Waits,
    /// It can never start as it is.
    Never,
}

impl Outcome {
    /// The exit code of a command with --exit-code.
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Self::Runs => 0,
            Self::Waits => 3,
            Self::Never => 4,
        }
    }
}

/// A report about one gang.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Gang(pub(crate) Value);

impl Gang {
    fn text(&self, field: &str) -> &str {
        self.0[field].as_str().unwrap_or_default()
    }

    /// The namespace of the object.
    pub(crate) fn namespace(&self) -> &str {
        self.text("namespace")
    }

    /// The name of the AppWrapper or Workload.
    pub(crate) fn name(&self) -> &str {
        self.text("name")
    }

    /// The resource of the AppWrapper or Workload, with its group.
    pub(crate) fn resource(&self) -> &str {
        self.text("kind")
    }

    /// Kind and name of what its author created: `job/train`. A controller of another version may not tell it.
    pub(crate) fn object(&self) -> String {
        let object = self.text("object");
        if object.is_empty() { format!("{}/{}", self.resource(), self.name()) } else { object.to_owned() }
    }

    /// The same in two parts.
    pub(crate) fn kind_and_name(&self) -> (String, String) {
        let object = self.object();
        object.split_once('/').map(|(kind, name)| (kind.to_owned(), name.to_owned())).unwrap_or_default()
    }

    /// The state as one word: `never fits` is `NeverFits`.
    pub(crate) fn state(&self) -> String {
        let capital = |word: &str| {
            let mut chars = word.chars();
            chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
        };
        self.text("state").split(' ').map(capital).collect()
    }

    /// The local queue that it names.
    pub(crate) fn queue(&self) -> &str {
        self.text("localQueue")
    }

    /// The cluster queue.
    pub(crate) fn cluster_queue(&self) -> &str {
        self.text("clusterQueue")
    }

    /// The position in its queue, and the number of gangs there.
    pub(crate) fn position(&self) -> Option<(u64, u64)> {
        let position = &self.0["position"];
        Some((position["place"].as_u64()?, position["of"].as_u64()?))
            .filter(|_| self.text("state") != "never fits")
    }

    /// The expected start, if it relies on declared run times only.
    pub(crate) fn start(&self) -> Option<&str> {
        let start = &self.0["start"];
        start["at"].as_str().filter(|_| start["declared"] == true)
    }

    /// The start as text: that which is expected of a gang that waits, that which was of one that runs.
    pub(crate) fn start_text(&self) -> String {
        match (self.start(), self.0["since"].as_str()) {
            (Some(start), _) => start.to_owned(),
            (None, Some(since)) => since.to_owned(),
            (None, None) if self.position().is_some() => "unknown".into(),
            (None, None) => String::new(),
        }
    }

    /// When it was created.
    pub(crate) fn created(&self) -> Option<Timestamp> {
        self.text("created").parse().ok()
    }

    /// A number, such as `priority` or `pods`.
    pub(crate) fn number(&self, field: &str) -> String {
        self.0[field].as_i64().map_or_else(String::new, |number| number.to_string())
    }

    /// Why it is in its state, in one line.
    pub(crate) fn reason(&self) -> String {
        let list = |field: &str| -> Vec<&str> {
            self.0[field].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
        };
        let mut parts: Vec<String> = list("causes").iter().map(|cause| (*cause).to_owned()).collect();
        let victims = list("victims");
        if !victims.is_empty() {
            parts.push(format!("preempts {}", victims.join(", ")));
        }
        let told =
            [("gives_way_to", "is preempted by "), ("awaitsPlaces", ""), ("denied", ""), ("notPlanned", "")];
        let told = told.iter().map(|(field, says)| (self.text(field), says));
        parts.extend(told.filter(|(text, _)| !text.is_empty()).map(|(text, says)| format!("{says}{text}")));
        parts.extend(self.0["openChecks"].as_array().into_iter().flatten().map(|check| {
            let of = |field: &str| check[field].as_str().unwrap_or_default();
            format!("check {} is {}: {}", of("name"), of("state"), of("message"))
                .trim_end_matches(": ")
                .to_owned()
        }));
        if parts.is_empty() {
            parts.extend(self.places());
        }
        parts.join("; ")
    }

    /// Where its pods are.
    fn places(&self) -> Option<String> {
        let places = self.0["places"].as_object()?.iter();
        let places = places.filter_map(|(node, pods)| Some((node.as_str().into(), pods.as_u64()?))).collect();
        let places = PodsPerNode(places);
        (!places.0.is_empty()).then(|| format!("on {places}"))
    }

    /// What exit codes tell about it.
    pub(crate) fn outcome(&self) -> Outcome {
        match self.text("state") {
            "placed" | "admitted" | "ended" | "completed" | "failed" | "deleted" => Outcome::Runs,
            "never fits" | "fails" => Outcome::Never,
            _ => Outcome::Waits,
        }
    }

    /// Whether it will not change any more.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.text("state"), "ended" | "completed" | "failed" | "deleted")
    }
}
