//! The specification: what is wrapped, how it is queued.

use serde_json::Value;

use super::{canonical, legacy};
use crate::amounts::{AmountError, Amounts};
use crate::quantity::Quantity;
use crate::value::{at, integer, list, text};

/// Seconds before a gang that lacks running pods may be requeued, when its author says nothing.
const REQUEUE_DEFAULT_S: i64 = 300;

/// A specification in canonical form.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Spec {
    /// Rank in the queue, in thousandths; higher first.
    pub priority_milli: i64,
    /// By how much the rank rises with each second of waiting, in millionths of a priority.
    pub slope_micro: i64,
    /// Pods that have to run or have succeeded, from [`Requeuing`]'s point of view. 0: not checked.
    pub min_available: i64,
    /// When a gang with too few running pods is taken back.
    pub requeuing: Requeuing,
    /// Seconds for which the gang is expected to run. 0: unknown.
    pub dispatch_expected_s: i64,
    /// Seconds after its first dispatch when a gang is stopped for good. 0: never.
    pub dispatch_limit_s: i64,
    /// What is wrapped, in order of creation.
    pub items: Vec<Item>,
    /// What was filled in to get here; empty for an author who wrote everything.
    pub notes: Vec<String>,
}

/// How long a gang may lack running pods, and how that grows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requeuing {
    /// First wait, seconds.
    pub time_s: i64,
    /// Longest wait, seconds. 0: no limit.
    pub max_time_s: i64,
    /// How each wait grows.
    pub growth: Growth,
    /// After so many times the gang is given up. 0: never.
    pub max_times: i64,
}

/// How the wait grows with each requeueing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Growth {
    /// Doubles.
    Exponential,
    /// Adds the first wait.
    Linear,
    /// Stays.
    None,
}

/// One wrapped object, or several in a `kind: List`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Item {
    /// The objects to create, in canonical form.
    pub objects: Vec<Value>,
    /// Pods that the author declares beside the object: how many, and what each asks for.
    pub rows: Vec<Row>,
    /// Words of which a condition type must contain one for the item to be complete. Empty: it never completes.
    pub completion: Vec<String>,
}

/// A declared group of pods.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Row {
    /// How many pods.
    pub replicas: u32,
    /// What each asks for, `pods: 1` excluded: authors do not write it.
    pub request: Amounts,
}

/// Why a specification cannot be carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// An item without a template.
    #[error("resources.GenericItems[{item}] has no generictemplate; write the object to create there")]
    NoTemplate {
        /// Position of the item.
        item: usize,
    },
    /// An object without `apiVersion` or `kind`, or a list entry that is no object.
    #[error(
        "resources.GenericItems[{item}].generictemplate: {field} is missing; every object needs apiVersion, kind and metadata.name"
    )]
    Incomplete {
        /// Position of the item.
        item: usize,
        /// What is missing.
        field: &'static str,
    },
    /// A declared row holds no readable amount.
    #[error("resources.GenericItems[{item}].custompodresources[{row}]: {cause}")]
    Row {
        /// Position of the item.
        item: usize,
        /// Position of the row.
        row: usize,
        /// What is wrong with it.
        #[source]
        cause: AmountError,
    },
    /// A legacy item of a type that cannot be created.
    #[error("resources.Items[{item}]: type {kind:?} is not supported; wrap the object in GenericItems")]
    LegacyType {
        /// Position of the item.
        item: usize,
        /// What its author wrote.
        kind: String,
    },
    /// A legacy item that lists too many pods.
    #[error(
        "resources.Items[{item}]: {replicas} pods are too many to list one by one; wrap a Job in GenericItems"
    )]
    LegacyPods {
        /// Position of the item.
        item: usize,
        /// What its author wrote.
        replicas: u32,
    },
}

impl Spec {
    /// Reads what a client wrote, fills in what the condensed shape leaves out, and says what was filled in.
    ///
    /// `wrapper` is the name of the AppWrapper, which stands in for a missing name of the wrapped object.
    pub fn read(spec: &Value, wrapper: &str) -> Result<Self, SpecError> {
        let scheduling = at(spec, &["schedulingSpec"]);
        let whole = |path: &[&str]| integer(at(scheduling, path)).unwrap_or(0).max(0);
        let mut notes = Vec::new();
        let resources = at(spec, &["resources"]);
        let mut items = legacy::items(list(resources, &["Items"]), wrapper)?;
        items.extend(canonical::items(resources, wrapper, &mut notes)?);
        Ok(Self {
            priority_milli: decimal(at(spec, &["priority"])).map_or(0, Quantity::milli),
            slope_micro: decimal(at(spec, &["priorityslope"])).map_or(0, Quantity::micro),
            min_available: whole(&["minAvailable"]),
            requeuing: Requeuing::read(at(scheduling, &["requeuing"])),
            dispatch_expected_s: whole(&["dispatchDuration", "expected"]),
            dispatch_limit_s: whole(&["dispatchDuration", "limit"]),
            items,
            notes,
        })
    }

    /// All objects to create, in order.
    pub fn objects(&self) -> impl Iterator<Item = &Value> {
        self.items.iter().flat_map(|item| &item.objects)
    }
}

impl Default for Requeuing {
    fn default() -> Self {
        Self { time_s: REQUEUE_DEFAULT_S, max_time_s: 0, growth: Growth::Exponential, max_times: 0 }
    }
}

impl Requeuing {
    fn read(requeuing: &Value) -> Self {
        let positive = |key| integer(at(requeuing, &[key])).filter(|value| *value > 0);
        Self {
            time_s: positive("initialTimeInSeconds")
                .or(positive("timeInSeconds"))
                .unwrap_or(REQUEUE_DEFAULT_S),
            max_time_s: positive("maxTimeInSeconds").unwrap_or(0),
            growth: match text(requeuing, &["growthType"]) {
                Some("exponential") | None => Growth::Exponential,
                Some("linear") => Growth::Linear,
                Some(_) => Growth::None,
            },
            max_times: positive("maxNumRequeuings").unwrap_or(0),
        }
    }

    /// What `status.requeueingTimeInSeconds` becomes when a gang is taken back. 0 stands for the first wait and grows to it, so that the
    /// first two waits are equal, as in MCAD 1.40.0 (`PreemptQueueJobs`).
    pub fn grown_s(&self, current_s: i64) -> i64 {
        let grown = match self.growth {
            Growth::Exponential if current_s == 0 => self.time_s,
            Growth::Exponential => current_s.saturating_mul(2),
            Growth::Linear => current_s.saturating_add(self.time_s),
            Growth::None => current_s,
        };
        if self.max_time_s > 0 { grown.min(self.max_time_s) } else { grown }
    }
}

/// A decimal number: `9`, `0.5` and `"9"` are all accepted.
fn decimal(value: &Value) -> Option<Quantity> {
    let text = match value {
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return None,
    };
    Quantity::parse(&text).ok()
}

/// Reads declared rows of pods.
pub(super) fn rows(declared: &[Value], item: usize) -> Result<Vec<Row>, SpecError> {
    let read = |(row, value): (usize, &Value)| {
        let amounts =
            |key| Amounts::read(at(value, &[key])).map_err(|cause| SpecError::Row { item, row, cause });
        let mut request = amounts("requests")?;
        request.fill_from(&amounts("limits")?);
        Ok(Row { replicas: crate::value::count(value, &["replicas"], 1), request })
    };
    declared.iter().enumerate().map(read).collect()
}
