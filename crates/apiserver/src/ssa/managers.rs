//! The entries of `metadata.managedFields`: decoding, encoding, sorting, and the limit on `Update` entries.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::set::Set;

/// Operation through which a manager owns its fields.
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

/// Key of an entry. An apply entry keeps its identity when its manager moves to another API version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ManagerIdentifier {
    pub(super) operation: Operation,
    pub(super) manager: String,
    /// Empty for apply entries.
    pub(super) api_version: String,
    pub(super) subresource: String,
}

impl ManagerIdentifier {
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

    /// Formats the manager for conflict messages: `"kubectl" using apps/v1`.
    pub(super) fn display_name(&self) -> String {
        let mut display_name = format!("{:?}", self.manager);
        if !self.subresource.is_empty() {
            display_name = format!("{display_name} with subresource {:?}", self.subresource);
        }
        if self.operation == Operation::Update {
            display_name = format!("{display_name} using {}", self.api_version);
        }
        display_name
    }
}

/// The fields that a manager owns.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ManagedFieldsEntry {
    pub(super) api_version: String,
    /// RFC 3339 with seconds. Empty if the apply that created the entry changed nothing, and for updates of `scale`.
    pub(super) time: String,
    pub(super) fields: Set,
}

/// All entries of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Managers(pub(super) BTreeMap<ManagerIdentifier, ManagedFieldsEntry>);

/// Maximum number of `Update` entries. The oldest entries above it are merged into one.
const UPDATERS_MAX: usize = 10;
const ANCIENT_CHANGES: &str = "ancient-changes";

impl Managers {
    /// Decodes the entries of an object. Field sets are validated unless they are `trusted`, that is, stored by this
    /// server.
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
            let identity =
                ManagerIdentifier::new(operation, text("manager"), text("apiVersion"), subresource);
            let (api_version, time) = (text("apiVersion").to_owned(), text("time").to_owned());
            managers.0.insert(identity, ManagedFieldsEntry { api_version, time, fields });
        }
        Ok(managers)
    }

    /// Encodes the entries in the order of kube-apiserver: apply entries first, then by time, manager, version and
    /// subresource.
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

    /// Merges the oldest `Update` entries of each version while there are too many.
    pub(super) fn cap_updaters(&mut self) {
        let mut updaters: Vec<_> = self
            .0
            .iter()
            .filter(|(identity, _)| identity.operation == Operation::Update)
            .map(|(identity, owned)| (owned.time.clone(), identity.clone()))
            .collect();
        updaters.sort();
        let mut left = updaters.len();
        let mut first_of = BTreeMap::<String, ManagerIdentifier>::new();
        for (_, identity) in updaters {
            if left <= UPDATERS_MAX {
                return;
            }
            let version = identity.api_version.clone();
            let Some(first) = first_of.get(&version) else {
                first_of.insert(version, identity);
                continue;
            };
            let bucket = ManagerIdentifier::new(Operation::Update, ANCIENT_CHANGES, &version, None);
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

/// Formats a time for an entry.
pub(super) fn stamp(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Whether the client asks to clear all entries: `[]`, or a single empty entry.
pub(super) fn is_reset(entries: &Value) -> bool {
    match entries.as_array().map(Vec::as_slice) {
        Some([]) => true,
        Some([only]) => *only == json!({}) || only.is_null(),
        _ => false,
    }
}
