//! The spec of an AppWrapper: wrapped objects and queueing parameters.

use serde_json::Value;

use super::limits::{self, LimitError};
use super::{canonical, legacy};
use crate::amounts::{AmountError, Amounts};
use crate::quantity::Quantity;
use crate::value::{at, integer, list, text};

/// Default time in seconds before a gang without enough running pods is requeued.
const REQUEUE_DEFAULT_S: i64 = 300;

/// A spec in canonical form.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Spec {
    /// Priority in thousandths; higher is dispatched first.
    pub priority_milli: i64,
    /// Priority aging: increase of the priority per second of waiting, in millionths.
    pub slope_micro: i64,
    /// Minimum number of running or succeeded pods; a gang with fewer is requeued. 0: not checked.
    pub min_available: i64,
    /// Requeueing of a gang with too few running pods.
    pub requeuing: Requeuing,
    /// Expected run time in seconds. 0: unknown.
    pub dispatch_expected_s: i64,
    /// Seconds after the first dispatch until the gang is stopped and fails. 0: no limit.
    pub dispatch_limit_s: i64,
    /// The items, in order of creation.
    pub items: Vec<Item>,
    /// The defaults that were filled in; empty for a complete spec.
    pub notes: Vec<String>,
}

/// How long a gang may lack running pods before it is requeued, and how this time grows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requeuing {
    /// First time, seconds.
    pub time_s: i64,
    /// Maximum time, seconds. 0: no limit.
    pub max_time_s: i64,
    /// Growth with each requeue.
    pub growth: Growth,
    /// Maximum number of requeues; then the gang ends in the state `Deleted`. 0: no limit.
    pub max_times: i64,
}

/// How the requeue time grows with each requeue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Growth {
    /// It doubles.
    Exponential,
    /// It grows by the first time.
    Linear,
    /// It stays constant.
    None,
}

/// One item: a wrapped object, or several in a `kind: List`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Item {
    /// The objects to create, in canonical form.
    pub objects: Vec<Value>,
    /// The declared resources of its pods: `custompodresources`.
    pub custom_pod_resources: Vec<CustomPodResources>,
    /// The item is complete when a condition type contains one of these words. Empty: never.
    pub completion: Vec<String>,
}

/// One entry of `custompodresources`: the declared resources of some pods.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CustomPodResources {
    /// Number of pods.
    pub replicas: u32,
    /// Request of each pod, without `pods: 1`.
    pub request: Amounts,
}

/// An invalid spec.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// An item without a template.
    #[error("resources.GenericItems[{item}] has no generictemplate; write the object to create there")]
    NoTemplate {
        /// Index of the item.
        item: usize,
    },
    /// An object without `apiVersion` or `kind`, or a list entry that is not an object.
    #[error(
        "resources.GenericItems[{item}].generictemplate: {field} is missing; every object needs apiVersion, kind and metadata.name"
    )]
    Incomplete {
        /// Index of the item.
        item: usize,
        /// The missing field.
        field: &'static str,
    },
    /// An invalid amount in `custompodresources`.
    #[error("resources.GenericItems[{item}].custompodresources[{row}]: {cause}")]
    CustomPodResources {
        /// Index of the item.
        item: usize,
        /// Index of the entry.
        row: usize,
        /// Cause.
        #[source]
        cause: AmountError,
    },
    /// A legacy item of an unsupported type.
    #[error("resources.Items[{item}]: type {kind:?} is not supported; wrap the object in GenericItems")]
    LegacyType {
        /// Index of the item.
        item: usize,
        /// The type.
        kind: String,
    },
    /// A number exceeds its limit.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// A legacy item without a name.
    #[error("resources.Items[{item}].template: metadata.name is missing; give the object a name")]
    LegacyName {
        /// Index of the item.
        item: usize,
    },
}

impl Spec {
    /// Parses a spec, fills in defaults for the condensed form, and lists them in [`Self::notes`].
    ///
    /// `wrapper` is the name of the AppWrapper: the default name of the object in condensed form.
    pub fn read(spec: &Value, wrapper: &str) -> Result<Self, SpecError> {
        let scheduling = at(spec, &["schedulingSpec"]);
        let whole = |path: &[&str]| integer(at(scheduling, path)).unwrap_or(0).max(0);
        let mut notes = Vec::new();
        let resources = at(spec, &["resources"]);
        limits::check(resources)?;
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
            notes: limits::first_of(notes),
        })
    }

    /// All objects, in order of creation.
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

    /// The next value of `status.requeueingTimeInSeconds` when a gang is requeued. 0 counts as the first time and
    /// becomes the first time, so that the first two times are equal, as in MCAD 1.40.0 (`PreemptQueueJobs`).
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

/// Parses a decimal number: `9`, `0.5` and `"9"` are valid.
fn decimal(value: &Value) -> Option<Quantity> {
    let text = match value {
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return None,
    };
    Quantity::parse(&text).ok()
}

/// Parses `custompodresources`.
pub(super) fn custom_pod_resources(
    declared: &[Value],
    item: usize,
) -> Result<Vec<CustomPodResources>, SpecError> {
    let read = |(row, value): (usize, &Value)| {
        let amounts = |key| {
            Amounts::read(at(value, &[key])).map_err(|cause| SpecError::CustomPodResources {
                item,
                row,
                cause,
            })
        };
        let mut request = amounts("requests")?;
        request.fill_from(&amounts("limits")?);
        Ok(CustomPodResources { replicas: crate::value::count(value, &["replicas"], 1), request })
    };
    declared.iter().enumerate().map(read).collect()
}
