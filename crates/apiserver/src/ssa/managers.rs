//! The entries of `metadata.managedFields`: reading, writing, order, and the cap on updaters.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::set::Set;

/// How a manager came by its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    Apply,
    Update,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// What makes two entries one. An applier stays the same when it moves to another version of the API.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Identity {
    pub(super) operation: Operation,
    pub(super) manager: String,
    /// Empty for appliers.
    pub(super) api_version: String,
    pub(super) subresource: String,
}

impl Identity {
    pub(super) fn new(
        operation: Operation,
        manager: &str,
        api_version: &str,
        subresource: Option<&str>,
    ) -> Self {
        Self {
            operation,
            manager: if manager.is_empty() { "unknown" } else { manager }.to_owned(),
            api_version: if operation == Operation::Apply { "" } else { api_version }.to_owned(),
            subresource: subresource.unwrap_or_default().to_owned(),
        }
    }

    /// As conflicts show it: `"kubectl" using apps/v1`.
    pub(super) fn shown(&self) -> String {
        let mut shown = format!("{:?}", self.manager);
        if !self.subresource.is_empty() {
            shown = format!("{shown} with subresource {:?}", self.subresource);
        }
        if self.operation == Operation::Update {
            shown = format!("{shown} using {}", self.api_version);
        }
        shown
    }
}

/// What one manager owns.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Owned {
    pub(super) api_version: String,
    /// RFC 3339 in seconds; empty if nothing changed when the entry came to be.
    pub(super) time: String,
    pub(super) fields: Set,
}

/// All managers of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Managers(pub(super) BTreeMap<Identity, Owned>);

/// Updaters that an object keeps apart; older ones are joined.
const UPDATERS_MAX: usize = 10;
const JOINED: &str = "ancient-changes";

impl Managers {
    /// Reads the entries of an object; sets are checked unless this server wrote them.
    pub(super) fn read(entries: Value, trusted: bool) -> Result<Self, String> {
        let mut managers = Self::default();
        let Value::Array(entries) = entries else { return Ok(managers) };
        for (index, mut entry) in entries.into_iter().enumerate() {
            let fields = entry.get_mut("fieldsV1").map(Value::take).unwrap_or_default();
            let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default();
            let operation = match text("operation") {
                "Apply" => Operation::Apply,
                "Update" => Operation::Update,
                _ => return Err("operation must be `Apply` or `Update`".into()),
            };
            if text("apiVersion").is_empty() {
                return Err("apiVersion must not be empty".into());
            }
            match text("fieldsType") {
                "FieldsV1" => {}
                "" => return Err(format!("missing fieldsType in managed fields entry {index}")),
                other => return Err(format!("invalid fieldsType {other:?} in managed fields entry {index}")),
            }
            let fields = match fields {
                Value::Null => Set::default(),
                fields if trusted => Set::trusted(fields),
                fields => Set::parse(&fields).map_err(|error| format!("error decoding set: {error}"))?,
            };
            let subresource = Some(text("subresource"));
            let identity = Identity::new(operation, text("manager"), text("apiVersion"), subresource);
            let (api_version, time) = (text("apiVersion").to_owned(), text("time").to_owned());
            managers.0.insert(identity, Owned { api_version, time, fields });
        }
        Ok(managers)
    }

    /// The entries in the order of the wire: appliers first, then by time, manager, version and subresource.
    pub(super) fn write(self) -> Option<Value> {
        if self.0.is_empty() {
            return None;
        }
        let mut entries: Vec<_> = self.0.into_iter().collect();
        entries.sort_by(|(p, a), (q, b)| {
            (p.operation, &a.time, &p.manager, &a.api_version, &p.subresource).cmp(&(
                q.operation,
                &b.time,
                &q.manager,
                &b.api_version,
                &q.subresource,
            ))
        });
        let entries = entries.into_iter().map(|(identity, owned)| {
            let mut entry = Map::new();
            entry.insert("manager".into(), identity.manager.into());
            entry.insert("operation".into(), identity.operation.name().into());
            entry.insert("apiVersion".into(), owned.api_version.into());
            if !owned.time.is_empty() {
                entry.insert("time".into(), owned.time.into());
            }
            entry.insert("fieldsType".into(), "FieldsV1".into());
            entry.insert("fieldsV1".into(), owned.fields.into_value());
            if !identity.subresource.is_empty() {
                entry.insert("subresource".into(), identity.subresource.into());
            }
            Value::Object(entry)
        });
        Some(Value::Array(entries.collect()))
    }

    /// Joins the oldest updaters of a version when there are too many.
    pub(super) fn cap_updaters(&mut self) {
        let mut updaters: Vec<_> = self
            .0
            .iter()
            .filter(|(identity, _)| identity.operation == Operation::Update)
            .map(|(identity, owned)| (owned.time.clone(), identity.clone()))
            .collect();
        updaters.sort();
        let mut left = updaters.len();
        let mut first_of = BTreeMap::<String, Identity>::new();
        for (_, identity) in updaters {
            if left <= UPDATERS_MAX {
                return;
            }
            let version = identity.api_version.clone();
            let Some(first) = first_of.get(&version) else {
                first_of.insert(version, identity);
                continue;
            };
            let bucket = Identity::new(Operation::Update, JOINED, &version, None);
            if !self.0.contains_key(&bucket)
                && let Some(owned) = self.0.remove(first)
            {
                self.0.insert(bucket.clone(), owned);
            }
            if let (Some(newer), Some(joined)) = (self.0.remove(&identity), self.0.get_mut(&bucket)) {
                joined.fields.add(&newer.fields);
                joined.time = newer.time;
            }
            left -= 1;
        }
    }
}

/// A time as entries carry it.
pub(super) fn stamp(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Whether a client asks to forget all managers: `[]`, or one entry that says nothing.
pub(super) fn is_reset(entries: &Value) -> bool {
    match entries.as_array().map(Vec::as_slice) {
        Some([]) => true,
        Some([only]) => *only == json!({}) || only.is_null(),
        _ => false,
    }
}
