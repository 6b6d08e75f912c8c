//! Limits of an AppWrapper: what it takes in memory and in requests stays in proportion to its length.
//!
//! They are checked on the manifest, before anything is expanded or created.

use std::collections::BTreeSet;

use serde_json::Value;

use super::ASSIGNMENT_ANNOTATION;
use super::status::PendingPod;
use crate::demand::Demand;
use crate::value::{at, count, list, text};

/// Maximum number of objects of an AppWrapper, those of lists and the pods of `Items` included.
pub const OBJECTS_MAX: usize = 1_000;
/// Maximum number of bytes of the pods that `Items` stands for.
pub const EXPANDED_BYTES_MAX: usize = 16 << 20;
/// Maximum number of rows of `custompodresources`, over all items.
pub const ROWS_MAX: usize = 1_000;
/// Maximum number of words of a `completionstatus`.
pub const COMPLETION_WORDS_MAX: usize = 64;
/// Maximum nesting depth of a template.
pub const DEPTH_MAX: usize = 100;
/// Maximum number of pod sets of a gang.
pub const POD_SETS_MAX: usize = 1_000;
/// Maximum number of pods of a gang: the size of cluster that Kubernetes supports.
pub const PODS_MAX: u64 = 150_000;
/// Maximum number of different resources that a gang requests.
pub const RESOURCES_MAX: usize = 64;
/// Maximum number of entries of a list of texts or pods in the status.
pub const REPORTED_MAX: usize = 20;
/// Maximum number of bytes of the annotations of one object, in Kubernetes.
pub const ANNOTATIONS_BYTES_MAX: usize = 256 << 10;

/// A number in a manifest exceeds its limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {count} {what} exceed the limit of {max}; {remedy}")]
pub struct LimitError {
    /// Path of the field.
    pub place: String,
    /// The number.
    pub count: u64,
    /// What is counted.
    pub what: &'static str,
    /// The limit.
    pub max: u64,
    /// What the author can do.
    pub remedy: &'static str,
}

impl LimitError {
    fn check(
        place: &str,
        count: usize,
        max: usize,
        (what, remedy): (&'static str, &'static str),
    ) -> Result<(), Self> {
        if count <= max {
            return Ok(());
        }
        Err(Self { place: place.into(), count: wide(count), what, max: wide(max), remedy })
    }
}

fn wide(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// Checks `resources` of a manifest without expanding it.
pub(super) fn check(resources: &Value) -> Result<(), LimitError> {
    let generic = list(resources, &["GenericItems"]);
    let legacy = list(resources, &["Items"]);
    let items = || generic.iter().chain(std::iter::once(resources));
    let templates = || items().map(|item| at(item, &["generictemplate"]));
    let (pods, bytes) = legacy
        .iter()
        .map(expanded)
        .fold((0, 0), |(pods, bytes), (more, size)| (add(pods, more), add(bytes, size)));
    let objects = templates().map(objects).fold(pods, add);
    let split = ("objects", "split it into several AppWrappers, or wrap a Job that creates the pods");
    LimitError::check("resources", objects, OBJECTS_MAX, split)?;
    let job = ("bytes of pods", "wrap a Job in GenericItems instead");
    LimitError::check("resources.Items", bytes, EXPANDED_BYTES_MAX, job)?;
    let rows = items().map(|item| list(item, &["custompodresources"]).len()).fold(0, add);
    let merge = ("rows of custompodresources", "use replicas for equal rows");
    LimitError::check("resources", rows, ROWS_MAX, merge)?;
    for item in items() {
        let words = text(item, &["completionstatus"]).map_or(0, |words| words.split(',').count());
        let fewer = ("words of completionstatus", "name the condition types only");
        LimitError::check("resources", words, COMPLETION_WORDS_MAX, fewer)?;
    }
    let depth = templates().chain(legacy).map(depth).max().unwrap_or(0);
    LimitError::check("resources", depth, DEPTH_MAX, ("nested levels", "write a flatter template"))
}

fn add(sum: usize, more: usize) -> usize {
    sum.saturating_add(more)
}

/// The number of objects of a template: those of a list, recursively, or itself.
fn objects(template: &Value) -> usize {
    match template.get("items").and_then(Value::as_array) {
        Some(inner) if text(template, &["kind"]).is_some_and(|kind| kind.ends_with("List")) => {
            inner.iter().map(objects).fold(0, add)
        }
        _ => usize::from(!template.is_null()),
    }
}

/// The number of objects of a legacy item, and their bytes.
fn expanded(item: &Value) -> (usize, usize) {
    let template = at(item, &["template"]);
    let is_pod = text(item, &["type"]).or_else(|| text(template, &["kind"])) == Some("Pod");
    let copies = if is_pod { count(item, &["replicas"], 1) } else { 1 };
    let copies = usize::try_from(copies).unwrap_or(usize::MAX);
    (copies, copies.saturating_mul(bytes(template)))
}

/// The approximate memory of a value.
fn bytes(value: &Value) -> usize {
    let inner = match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(entries) => entries.iter().map(bytes).sum(),
        Value::Object(fields) => fields.iter().map(|(key, value)| key.len() + bytes(value)).sum(),
    };
    inner.saturating_add(size_of::<Value>())
}

/// The number of nested arrays and objects.
fn depth(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
        Value::Array(entries) => 1 + entries.iter().map(depth).max().unwrap_or(0),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or(0),
    }
}

/// Checks the pods of a gang.
pub fn check_demand(demand: &Demand) -> Result<(), LimitError> {
    let sets = &demand.pod_sets;
    let merge = ("pod sets", "use replicas for equal pods");
    LimitError::check("resources", sets.len(), POD_SETS_MAX, merge)?;
    let pods = sets.iter().map(|set| u64::from(set.count)).fold(0, u64::saturating_add);
    if pods > PODS_MAX {
        let remedy = "Kubernetes supports no larger cluster; reduce replicas or parallelism";
        return Err(LimitError {
            place: "resources".into(),
            count: pods,
            what: "pods",
            max: PODS_MAX,
            remedy,
        });
    }
    let amounts = sets.iter().map(|set| &set.shape.request).chain(&demand.declared);
    let names: BTreeSet<&str> = amounts.flat_map(|amounts| amounts.iter().map(|(name, _)| name)).collect();
    let fewer = ("different resources", "request fewer resources");
    LimitError::check("resources", names.len(), RESOURCES_MAX, fewer)
}

/// The first texts of a list, and how many more there are.
pub fn first_of(mut texts: Vec<String>) -> Vec<String> {
    let more = texts.len().saturating_sub(REPORTED_MAX);
    if more > 0 {
        texts.truncate(REPORTED_MAX);
        texts.push(format!("{more} more"));
    }
    texts
}

/// The first unschedulable pods, and an entry with the number of the others.
pub(super) fn first_pods(pods: &[PendingPod]) -> Vec<PendingPod> {
    let mut first: Vec<_> = pods.iter().take(REPORTED_MAX).cloned().collect();
    let more = pods.len().saturating_sub(REPORTED_MAX);
    if more > 0 {
        first.push(PendingPod { podname: format!("{more} more"), conditions: Vec::new() });
    }
    first
}

/// Whether the object at `position` gets the assignment annotation. The first object always does. The others do while
/// the copies are small in total.
pub fn has_assignment(position: usize, objects: usize, assignment: &str) -> bool {
    position == 0 || assignment.len().saturating_mul(objects) <= ANNOTATIONS_BYTES_MAX
}

/// Checks that the assignment fits in the annotations of an object.
pub fn check_assignment(template: &Value, assignment: &str) -> Result<(), LimitError> {
    let own = at(template, &["metadata", "annotations"]).as_object().into_iter().flatten();
    let own = own.map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).fold(0, add);
    let total = add(own, ASSIGNMENT_ANNOTATION.len() + assignment.len());
    let remedy = "its pods run on too many nodes; use fewer and larger pods, or several AppWrappers";
    LimitError::check("metadata.annotations", total, ANNOTATIONS_BYTES_MAX, ("bytes", remedy))
}
