//! The status on the wire. Zero values are absent, as MCAD wrote them; names and capitals are MCAD's.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value, json};

use crate::time::{MicroTime, MonotonicTimestamps};

/// Status of an AppWrapper.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", default)]
pub struct Status {
    /// Tracked pods that are pending.
    #[serde(skip_serializing_if = "is_zero")]
    pub pending: i64,
    /// Tracked pods that run.
    #[serde(skip_serializing_if = "is_zero")]
    pub running: i64,
    /// Tracked pods that succeeded.
    #[serde(rename = "Succeeded", skip_serializing_if = "is_zero")]
    pub succeeded: i64,
    /// Tracked pods that failed.
    #[serde(skip_serializing_if = "is_zero")]
    pub failed: i64,
    /// Whether the gang may have objects: decided, and not ended.
    #[serde(skip_serializing_if = "is_false")]
    pub canrun: bool,
    /// Where the gang is, in one word.
    #[serde(skip_serializing_if = "State::is_none")]
    pub state: State,
    /// Why the gang waits, in figures; what was filled in for its author.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Rank in the queue, in thousandths; a plain number on the wire.
    #[serde(rename = "systempriority", with = "thousandths", skip_serializing_if = "is_zero")]
    pub priority_milli: i64,
    /// Type of the condition that rules now.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub queuejobstate: String,
    /// When the gang was first seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controllerfirsttimestamp: Option<MicroTime>,
    /// When the gang was first dispatched; kept where its run time is limited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controllerfirstdispatchtimestamp: Option<MicroTime>,
    /// Set once the gang has been queued.
    #[serde(skip_serializing_if = "is_false")]
    pub filterignore: bool,
    /// The step that wrote this status, in MCAD's words.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub sender: String,
    /// What has happened, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Pods that cannot be scheduled.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pendingpodconditions: Vec<PendingPod>,
    /// CPU of tracked pods that run or succeeded, milli.
    #[serde(skip_serializing_if = "is_zero")]
    pub totalcpu: i64,
    /// Memory of the same pods, bytes.
    #[serde(skip_serializing_if = "is_zero")]
    pub totalmemory: i64,
    /// GPUs of the same pods.
    #[serde(skip_serializing_if = "is_zero")]
    pub totalgpu: i64,
    /// Wait before the next requeueing, seconds.
    #[serde(rename = "requeueingTimeInSeconds", skip_serializing_if = "is_zero")]
    pub requeueing_s: i64,
    /// How often the gang was taken back.
    #[serde(rename = "numberOfRequeueings", skip_serializing_if = "is_zero")]
    pub requeueings: i64,
}

/// One thing that happened. Its status is always `True`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// When the condition last changed.
    #[serde(default)]
    pub last_transition_micro_time: MicroTime,
    /// When it was last confirmed, just before the transition stamp.
    #[serde(default)]
    pub last_update_micro_time: MicroTime,
    /// Details for people and autoscalers.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Cause, one word, at times with a dot that users match on.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Always `True`.
    #[serde(default)]
    pub status: String,
    /// What happened.
    #[serde(rename = "type", default)]
    pub kind: String,
}

/// A tracked pod that the scheduler could not place.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PendingPod {
    /// Name of the pod.
    pub podname: String,
    /// Its conditions, as Kubernetes wrote them.
    pub conditions: Vec<Value>,
}

/// Where a gang is, in one word.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// Queued, or being started.
    Pending,
    /// Its objects exist.
    Running,
    /// Its items are complete, pods still run.
    RunningHoldCompletion,
    /// Everything is done.
    Completed,
    /// Given up with a reason.
    Failed,
    /// Requeued too often.
    Deleted,
    /// Not queued yet, or a word nobody knows.
    #[default]
    #[serde(other, rename = "")]
    None,
}

impl State {
    /// Whether nothing will happen any more.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Deleted)
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
    fn is_none(&self) -> bool {
        *self == Self::None
    }
}

impl Status {
    /// The newest condition of a type and reason.
    pub fn condition(&self, kind: &str, reason: &str) -> Option<&Condition> {
        self.conditions.iter().rev().find(|c| c.kind == kind && c.reason == reason)
    }

    /// MonotonicTimestamps that come after every stamp in here.
    pub(super) fn stamps(&self) -> MonotonicTimestamps {
        let mut stamps = MonotonicTimestamps::default();
        let marks = [self.controllerfirsttimestamp, self.controllerfirstdispatchtimestamp];
        let conditions = self.conditions.iter().map(|condition| condition.last_transition_micro_time);
        stamps.next(conditions.chain(marks.into_iter().flatten()).max().unwrap_or_default());
        stamps
    }

    /// The merge patch that turns `old` into this status; fields that became absent are removed. `None`: nothing changed.
    pub fn patch_from(&self, old: &Self) -> Option<Value> {
        let (new, old) = (fields(self), fields(old));
        let mut patch = Map::new();
        for key in old.keys().filter(|key| !new.contains_key(*key)) {
            patch.insert(key.clone(), Value::Null);
        }
        for (key, value) in new {
            if old.get(&key) != Some(&value) {
                patch.insert(key, value);
            }
        }
        (!patch.is_empty()).then_some(Value::Object(patch))
    }

    /// The JSON patch (RFC 6902) of a wrapper that turns `old` into this status on top of what others have written meanwhile: labels,
    /// conditions of their own. It fails if where the wrapper is in its queue is not what `old` tells.
    pub fn edits_from(&self, old: &Self) -> Vec<Value> {
        let (new, known) = (fields(self), fields(old));
        let test = |key: &str| {
            Some(json!({"op": "test", "path": format!("/status/{key}"), "value": known.get(key)?}))
        };
        let mut edits: Vec<Value> =
            ["state", "queuejobstate", "canrun"].into_iter().filter_map(test).collect();
        for key in known.keys().filter(|key| !new.contains_key(*key)) {
            edits.push(json!({"op": "remove", "path": format!("/status/{key}")}));
        }
        for (key, value) in new.iter().filter(|(key, value)| known.get(*key) != Some(value)) {
            match (key.as_str(), value.as_array(), known.get(key).and_then(Value::as_array)) {
                ("conditions", Some(new), Some(old)) if new.len() >= old.len() => {
                    edits.extend(conditions_from(new, old));
                }
                _ => edits.push(json!({"op": "add", "path": format!("/status/{key}"), "value": value})),
            }
        }
        edits
    }
}

/// Edits of the conditions that were replaced where they stand or were appended.
fn conditions_from(new: &[Value], old: &[Value]) -> Vec<Value> {
    let mut edits = Vec::new();
    for (at, (new, old)) in new.iter().zip(old).enumerate().filter(|(_, (new, old))| new != old) {
        let path = format!("/status/conditions/{at}");
        edits.push(json!({"op": "test", "path": format!("{path}/type"), "value": old["type"]}));
        edits.push(json!({"op": "replace", "path": path, "value": new}));
    }
    let append = |condition| json!({"op": "add", "path": "/status/conditions/-", "value": condition});
    edits.extend(new.iter().skip(old.len()).map(append));
    edits
}

fn fields(status: &Status) -> Map<String, Value> {
    match serde_json::to_value(status) {
        Ok(Value::Object(fields)) => fields,
        other => unreachable!("a struct with text keys serialises to an object, not {other:?}"),
    }
}

/// Decodes a status; one that cannot be read counts as absent.
pub(super) fn lenient<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Status, D::Error> {
    Ok(serde_json::from_value(Value::deserialize(deserializer)?).unwrap_or_default())
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_false(flag: &bool) -> bool {
    !flag
}

/// A number with up to three decimals, kept as an integer.
mod thousandths {
    use super::{Deserialize, Deserializer, Serialize, Serializer, Value};
    use crate::quantity::Quantity;

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
    #[expect(clippy::cast_precision_loss, reason = "priorities are 32 bits wide on the wire")]
    pub(super) fn serialize<S: Serializer>(milli: &i64, serializer: S) -> Result<S::Ok, S::Error> {
        if milli % 1000 == 0 {
            (milli / 1000).serialize(serializer)
        } else {
            (*milli as f64 / 1000.0).serialize(serializer)
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
        let number = Value::deserialize(deserializer)?;
        Ok(Quantity::parse(&number.to_string()).map_or(0, Quantity::milli))
    }
}
