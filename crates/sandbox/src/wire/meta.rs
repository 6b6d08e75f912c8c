//! Fields that all objects have: metadata, owner references, conditions and timestamps.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

/// Namespace and name; the namespace of cluster-scoped objects is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Key {
    pub(crate) fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

/// A timestamp with the precision of `metav1.Time`: whole seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stamp(pub(crate) Timestamp);

impl Stamp {
    /// `now`, truncated to seconds.
    pub(crate) fn of(now: Timestamp) -> Self {
        Self(Timestamp::from_second(now.as_second()).expect("a time stamp without its fraction is in range"))
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.strftime("%Y-%m-%dT%H:%M:%SZ"))
    }
}

impl Serialize for Stamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Stamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map(Self).map_err(serde::de::Error::custom)
    }
}

/// `now` as a `metav1.MicroTime`.
pub(crate) fn micro_time(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

/// Metadata: the fields that components read.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Meta {
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) uid: String,
    pub(crate) resource_version: String,
    pub(crate) generation: i64,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) annotations: BTreeMap<String, String>,
    pub(crate) owner_references: Vec<Owner>,
    pub(crate) finalizers: Vec<String>,
    pub(crate) creation_timestamp: Option<Stamp>,
    pub(crate) deletion_timestamp: Option<Stamp>,
    pub(crate) deletion_grace_period_seconds: Option<i64>,
}

impl Meta {
    pub(crate) fn key(&self) -> Key {
        Key::new(&*self.namespace, &*self.name)
    }

    /// The resource version as a number; 0 if it is not one.
    pub(crate) fn version(&self) -> u64 {
        self.resource_version.parse().unwrap_or(0)
    }

    pub(crate) fn controller(&self) -> Option<&Owner> {
        self.owner_references.iter().find(|owner| owner.controller)
    }

    /// The key of its controller, if that is of this kind.
    pub(crate) fn controller_of_kind(&self, kind: &str) -> Option<Key> {
        let owner = self.controller().filter(|owner| owner.kind == kind)?;
        Some(Key::new(&*self.namespace, &*owner.name))
    }

    pub(crate) fn is_deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    pub(crate) fn annotation(&self, name: &str) -> Option<&str> {
        self.annotations.get(name).map(String::as_str)
    }

    pub(crate) fn label(&self, name: &str) -> Option<&str> {
        self.labels.get(name).map(String::as_str)
    }
}

/// An owner reference.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Owner {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) controller: bool,
}

/// A condition of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Condition {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) status: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) observed_generation: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_probe_time: Option<Stamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_heartbeat_time: Option<Stamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_update_time: Option<Stamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_transition_time: Option<Stamp>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) message: String,
}

impl Condition {
    /// A condition with the transition time `now`.
    pub(crate) fn new(
        kind: &str,
        status: bool,
        reason: &str,
        message: impl Into<String>,
        now: Stamp,
    ) -> Self {
        Self {
            kind: kind.to_owned(),
            status: if status { "True" } else { "False" }.to_owned(),
            reason: reason.to_owned(),
            message: message.into(),
            last_transition_time: Some(now),
            ..Self::default()
        }
    }

    /// Sets the condition in a list. Keeps the transition time if the status is the same. Returns whether the list
    /// changed.
    pub(crate) fn set_in(mut self, list: &mut Vec<Self>) -> bool {
        if let Some(old) = list.iter_mut().find(|old| old.kind == self.kind) {
            if old.status == self.status {
                self.last_transition_time = old.last_transition_time;
            }
            let changed = (&old.status, &old.reason, &old.message, old.observed_generation)
                != (&self.status, &self.reason, &self.message, self.observed_generation);
            if changed {
                *old = self;
            }
            changed
        } else {
            list.push(self);
            true
        }
    }
}

/// The condition of this type.
pub(crate) fn condition<'a>(list: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    list.iter().find(|condition| condition.kind == kind)
}

impl Owner {
    /// The owner reference of an object that a controller creates for `owner`.
    pub(crate) fn controller_of(api_version: &str, kind: &str, owner: &Meta) -> Value {
        json!({
            "apiVersion": api_version,
            "kind": kind,
            "name": owner.name,
            "uid": owner.uid,
            "controller": true,
            "blockOwnerDeletion": true,
        })
    }
}
