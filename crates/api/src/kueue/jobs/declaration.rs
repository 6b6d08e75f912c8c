//! Kinds of jobs that a file declares: where the fields of their objects are. What can be declared is what
//! [`declared`](super::declared) describes. A kind lasts as long as the process.

use serde::Deserialize;
use serde_json::Value;

use super::declared::{Declared, Ended, PodSets, Ready};
use super::{JOB_KINDS, JobKind};
use crate::wrapped_kinds::group;

/// Maximum length of a DNS label.
const LABEL_MAX: usize = 63;

/// The document.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    kinds: Vec<Declaration>,
}

/// A kind. All paths are JSON pointers.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Declaration {
    api_version: String,
    kind: String,
    /// The name of the resource.
    resource: String,
    #[serde(default = "suspend")]
    suspend: String,
    pod_sets: Sets,
    index_label: Option<String>,
    priority_class: Option<String>,
    active: String,
    ready: Readiness,
    succeeded: String,
    ended: Option<EndedUnits>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Sets {
    at: String,
    #[serde(default)]
    keys: Vec<String>,
    #[serde(default)]
    count: Vec<Vec<String>>,
    template: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
enum Readiness {
    Condition(String),
    Numbers(Numbers),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Numbers {
    wanted: String,
    ready: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct EndedUnits {
    at: String,
    field: String,
}

/// Whether a text is a DNS label.
fn is_label(text: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.len() <= LABEL_MAX
        && text.starts_with(is_inner)
        && text.ends_with(is_inner)
        && text.chars().all(|c| is_inner(c) || c == '-')
}

/// Whether a text is a DNS label that begins with a letter.
fn is_name(text: &str) -> bool {
    is_label(text) && text.starts_with(|c: char| c.is_ascii_lowercase())
}

fn suspend() -> String {
    "/spec/suspend".into()
}

/// Reads the kinds of jobs that a document declares. They stay in memory until the process ends.
///
/// # Errors
///
/// A text that names the field: it is unknown, is missing or has another type, a path is no JSON pointer, a name cannot be served, or the kind is served already.
pub fn declare(document: &Value) -> Result<Vec<&'static JobKind>, String> {
    if document.is_null() {
        return Err("it is empty: write a list of kinds".into());
    }
    let document: Document = serde_path_to_error::deserialize(document)
        .map_err(|error| format!("{}: {}", error.path(), error.inner()))?;
    let mut kinds: Vec<&'static JobKind> = Vec::new();
    for (at, kind) in document.kinds.into_iter().enumerate() {
        kind.check().map_err(|why| format!("kinds[{at}].{why}"))?;
        let is_known = |known: &JobKind| known.is_kind_of(&kind.api_version, &kind.kind);
        if JOB_KINDS.iter().any(is_known) || kinds.iter().any(|known| is_known(known)) {
            return Err(format!(
                "kinds[{at}]: {} of {} is served already: leave it out",
                kind.kind, kind.api_version
            ));
        }
        kinds.push(kind.leak());
    }
    Ok(kinds)
}

impl Declaration {
    fn check(&self) -> Result<(), String> {
        self.check_names()?;
        let sets = &self.pod_sets;
        let mut paths = vec![("suspend", &self.suspend), ("active", &self.active)];
        paths.extend([("podSets.at", &sets.at), ("podSets.template", &sets.template)]);
        paths.extend(sets.count.iter().flatten().map(|path| ("podSets.count", path)));
        paths.extend(self.priority_class.iter().map(|path| ("priorityClass", path)));
        if let Readiness::Numbers(numbers) = &self.ready {
            paths.push(("ready.numbers.wanted", &numbers.wanted));
            paths.extend(numbers.ready.iter().map(|path| ("ready.numbers.ready", path)));
        }
        if let Some(ended) = &self.ended {
            paths.extend([("ended.at", &ended.at), ("ended.field", &ended.field)]);
        }
        match paths.iter().find(|(_, path)| !path.starts_with('/')) {
            Some((field, path)) => Err(format!("{field}: {path:?} is no JSON pointer: it begins with /")),
            None => Ok(()),
        }
    }

    /// An API server serves no other names.
    fn check_names(&self) -> Result<(), String> {
        let wrong = |field: &str, value: &str, form: &str| {
            Err(format!("{field}: {value:?} is no {field}: write {form}"))
        };
        let is_version = |text: &str| {
            text.split_once('/')
                .is_some_and(|(group, version)| group.split('.').all(is_label) && is_name(version))
        };
        if !is_version(&self.api_version) {
            return wrong("apiVersion", &self.api_version, "GROUP/VERSION, such as example.com/v1");
        }
        if !is_name(&self.kind.to_ascii_lowercase()) {
            return wrong("kind", &self.kind, "letters and digits, such as TrainingRun");
        }
        if !is_name(&self.resource) {
            return wrong("resource", &self.resource, "the plural in lower case, such as trainingruns");
        }
        Ok(())
    }

    /// The kind, for the life of the process.
    fn leak(self) -> &'static JobKind {
        let framework = format!("{}/{}", group(&self.api_version), self.kind.to_lowercase());
        let sets = self.pod_sets;
        let declared = Declared {
            suspend: text(self.suspend),
            pod_sets: PodSets {
                at: text(sets.at),
                keys: texts(sets.keys),
                count: sets.count.into_iter().map(texts).collect::<Vec<_>>().leak(),
                template: text(sets.template),
            },
            index_label: self.index_label.map(text),
            sub_group_label: None,
            priority_class: self.priority_class.map(text),
            active: text(self.active),
            ready: match self.ready {
                Readiness::Condition(name) => Ready::Condition(text(name)),
                Readiness::Numbers(numbers) => {
                    Ready::Numbers { wanted: text(numbers.wanted), ready: texts(numbers.ready) }
                }
            },
            succeeded: text(self.succeeded),
            ended: self.ended.map(|ended| Ended { at: text(ended.at), field: text(ended.field) }),
        };
        Box::leak(Box::new(JobKind {
            framework: text(framework),
            api_version: text(self.api_version),
            kind: text(self.kind),
            plural: text(self.resource),
            integration: Box::leak(Box::new(declared)),
        }))
    }
}

fn text(text: String) -> &'static str {
    text.leak()
}

fn texts(all: Vec<String>) -> &'static [&'static str] {
    all.into_iter().map(text).collect::<Vec<_>>().leak()
}
