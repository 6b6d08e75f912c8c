//! The status on the wire. Field names are those of MCAD; zero values are omitted, as in MCAD.

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
    /// Whether the gang is admitted and not finished: its objects may exist.
    #[serde(skip_serializing_if = "is_false")]
    pub canrun: bool,
    /// State.
    #[serde(skip_serializing_if = "State::is_none")]
    pub state: State,
    /// Why the gang is pending, with amounts, and the defaults that were filled in.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Its place in the queue while the gang is pending, for the printer columns. MCAD has no such field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueuePlace>,
    /// Priority in thousandths; a plain number on the wire.
    #[serde(rename = "systempriority", with = "thousandths", skip_serializing_if = "is_zero")]
    pub priority_milli: i64,
    /// Type of the current condition.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub queuejobstate: String,
    /// Time when a controller first saw the gang.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controllerfirsttimestamp: Option<MicroTime>,
    /// Time of the first dispatch; set only if the run time is limited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controllerfirstdispatchtimestamp: Option<MicroTime>,
    /// Whether the gang has been queued.
    #[serde(skip_serializing_if = "is_false")]
    pub filterignore: bool,
    /// The step that wrote this status, as MCAD names it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub sender: String,
    /// Conditions, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Unschedulable tracked pods.
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
    /// Time before the next requeue, seconds.
    #[serde(rename = "requeueingTimeInSeconds", skip_serializing_if = "is_zero")]
    pub requeueing_s: i64,
    /// Number of requeues.
    #[serde(rename = "numberOfRequeueings", skip_serializing_if = "is_zero")]
    pub requeueings: i64,
}

/// The place of a pending gang in its queue. Both fields are always written: a merge patch keeps fields that are absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct QueuePlace {
    /// Its position, such as `1 of 3`.
    pub position: String,
    /// Its start: a time, `unknown`, or nothing as long as none was computed.
    pub start: String,
}

/// A condition. Its status is always `True`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Time of the last transition.
    #[serde(default)]
    pub last_transition_micro_time: MicroTime,
    /// Time of the last update, just before the transition.
    #[serde(default)]
    pub last_update_micro_time: MicroTime,
    /// Message; autoscalers match on some messages.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Reason; some reasons end with a dot, as in MCAD, and users match on it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Always `True`.
    #[serde(default)]
    pub status: String,
    /// Type.
    #[serde(rename = "type", default)]
    pub kind: String,
}

/// An unschedulable tracked pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PendingPod {
    /// Name of the pod.
    pub podname: String,
    /// Conditions of the pod.
    pub conditions: Vec<Value>,
}

/// The state of a gang.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// Queued, or starting.
    Pending,
    /// Dispatched: all objects exist.
    Running,
    /// All items are complete, but pods still run.
    RunningHoldCompletion,
    /// All items are complete and no pod runs.
    Completed,
    /// Failed, with a reason.
    Failed,
    /// Requeued too often.
    Deleted,
    /// Not queued yet, or an unknown state.
    #[default]
    #[serde(other, rename = "")]
    None,
}

impl State {
    /// Whether the gang is finished.
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

    /// A source of time stamps later than all time stamps of this status.
    pub(super) fn timestamps(&self) -> MonotonicTimestamps {
        let mut timestamps = MonotonicTimestamps::default();
        let marks = [self.controllerfirsttimestamp, self.controllerfirstdispatchtimestamp];
        let conditions = self.conditions.iter().map(|condition| condition.last_transition_micro_time);
        timestamps.next(conditions.chain(marks.into_iter().flatten()).max().unwrap_or_default());
        timestamps
    }

    /// Sets the message. The place in the queue is that of the message, so it is cleared.
    pub fn tell(&mut self, message: String) {
        self.message = message;
        self.queue = None;
    }

    /// The merge patch from `old` to this status; it removes fields that are absent now. `None` if nothing changed.
    pub fn merge_patch_from(&self, old: &Self) -> Option<Value> {
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

    /// The JSON patch (RFC 6902) of an AppWrapper from `old` to this status. It keeps concurrent writes of other
    /// clients, such as labels and additional conditions. It fails if the state on the server is not that of `old`.
    pub fn json_patch_from(&self, old: &Self) -> Vec<Value> {
        let (new, known) = (fields(self), fields(old));
        let test = |key: &str| {
            Some(json!({"op": "test", "path": format!("/status/{key}"), "value": known.get(key)?}))
        };
        let mut patch: Vec<Value> =
            ["state", "queuejobstate", "canrun"].into_iter().filter_map(test).collect();
        for key in known.keys().filter(|key| !new.contains_key(*key)) {
            patch.push(json!({"op": "remove", "path": format!("/status/{key}")}));
        }
        for (key, value) in new.iter().filter(|(key, value)| known.get(*key) != Some(value)) {
            match (key.as_str(), value.as_array(), known.get(key).and_then(Value::as_array)) {
                ("conditions", Some(new), Some(old)) if new.len() >= old.len() => {
                    patch.extend(condition_patch(new, old));
                }
                _ => patch.push(json!({"op": "add", "path": format!("/status/{key}"), "value": value})),
            }
        }
        patch
    }
}

/// The patch operations for conditions that were replaced in place or appended.
fn condition_patch(new: &[Value], old: &[Value]) -> Vec<Value> {
    let mut patch = Vec::new();
    for (at, (new, old)) in new.iter().zip(old).enumerate().filter(|(_, (new, old))| new != old) {
        let path = format!("/status/conditions/{at}");
        patch.push(json!({"op": "test", "path": format!("{path}/type"), "value": old["type"]}));
        patch.push(json!({"op": "replace", "path": path, "value": new}));
    }
    let append = |condition| json!({"op": "add", "path": "/status/conditions/-", "value": condition});
    patch.extend(new.iter().skip(old.len()).map(append));
    patch
}

fn fields(status: &Status) -> Map<String, Value> {
    match serde_json::to_value(status) {
        Ok(Value::Object(fields)) => fields,
        other => unreachable!("a struct with text keys serialises to an object, not {other:?}"),
    }
}

/// Decodes a status; an invalid status counts as absent.
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

/// Converts a number with up to three decimals to an integer number of thousandths.
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
