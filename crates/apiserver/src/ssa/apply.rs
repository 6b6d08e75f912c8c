//! Apply: merges a configuration into the live object, removes fields that the manager no longer applies, and detects
//! conflicts.

use serde_json::Value;

use super::check::check;
use super::compare::Comparison;
use super::managers::{ManagedFieldsEntry, ManagerIdentifier, Managers, Operation, stamp};
use super::objects::{field_set, merge, remove};
use super::reconcile::reconcile;
use super::set::{Set, display};
use super::track::{NEVER_OWNED, entries, put_entries, record, reset_fields, take_entries};
use super::walk::same;
use super::{ApplyError, Conflict, Write};

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Maximum total size of the annotations of an object.
const ANNOTATIONS_BYTES_MAX: usize = 256 * 1024;
/// Manager that owns the existing fields of an object without `managedFields` when it is first applied.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";
/// Manager that may take over the fields of its own client-side apply without a conflict.
const KUBECTL: &str = "kubectl";

/// Applies a configuration and returns the new object, with `metadata.managedFields` up to date.
///
/// Fields that the manager applied before and no longer applies are removed unless another manager owns them. A field
/// that another manager owns with another value is a conflict, unless `force` is set. `live` is `None` when the apply
/// creates the object.
pub fn apply(
    live: Option<&Value>,
    config: &Value,
    force: bool,
    write: &Write<'_>,
) -> Result<Value, ApplyError> {
    check_config(config, write)?;
    let mut zero = write.types.zero();
    zero["apiVersion"] = write.api_version.into();
    zero["kind"] = write.kind.into();
    let live = live.unwrap_or(&zero);
    let mut managers = Managers::read(entries(live).clone(), true)
        .map_err(|error| ApplyError::Internal(format!("failed to decode managed fields: {error}")))?;
    let mut live = live.clone();
    take_entries(&mut live);
    if managers.0.is_empty() {
        let mut changes = Comparison::of(&zero, &live, write.types);
        changes.ignore(&reset_fields(write));
        record(&mut managers, &changes, BEFORE_FIRST_APPLY, write);
    }
    for owned in managers.0.values_mut() {
        reconcile(&mut owned.fields, write.types);
    }
    let merged_result = MergeResult::of(&live, config, managers, write);
    let mut conflicts = if force { Vec::new() } else { merged_result.conflicts.clone() };
    if write.manager == KUBECTL && !conflicts.is_empty() {
        let allowed = last_applied_fields(&live, write);
        conflicts.retain(|(_, path)| !allowed.contains(path));
    }
    if !conflicts.is_empty() {
        let mut conflicts: Vec<_> = conflicts
            .into_iter()
            .map(|(identity, path)| Conflict { manager: identity.display_name(), field: display(&path) })
            .collect();
        conflicts.sort_by(|a, b| a.manager.cmp(&b.manager));
        return Err(ApplyError::Conflicts(conflicts));
    }
    let MergeResult { mut object, managers, .. } = merged_result;
    if write.manager == KUBECTL {
        refresh_last_applied(&mut object, config);
    }
    put_entries(&mut object, managers.write());
    Ok(object)
}

fn check_config(config: &Value, write: &Write<'_>) -> Result<(), ApplyError> {
    let text = |path: &str| config.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("/apiVersion"), text("/kind"));
    let gvk = |api_version: &str| {
        let group_version =
            if api_version.contains('/') { api_version.to_owned() } else { format!("/{api_version}") };
        format!("{group_version}, Kind={kind}")
    };
    if api_version != write.api_version || kind != write.kind {
        return Err(ApplyError::BadRequest(format!("invalid object type: {}", gvk(api_version))));
    }
    if !entries(config).is_null() {
        return Err(ApplyError::BadRequest("metadata.managedFields must be nil".into()));
    }
    check(config, write.types).map_err(|error| {
        let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
        let gvk = gvk(api_version);
        ApplyError::Internal(format!(
            "failed to create typed patch object ({namespace}/{name}; {gvk}): {error}"
        ))
    })
}

/// Result of an apply with all conflicts forced, and the list of these conflicts.
struct MergeResult {
    object: Value,
    managers: Managers,
    conflicts: Vec<(ManagerIdentifier, Vec<String>)>,
}

impl MergeResult {
    fn of(live: &Value, config: &Value, mut managers: Managers, write: &Write<'_>) -> Self {
        let reset = reset_fields(write);
        let applier =
            ManagerIdentifier::new(Operation::Apply, write.manager, write.api_version, write.subresource);
        let mut fields = field_set(config, write.types);
        fields.subtract_trees(&reset);
        let before = managers.0.remove(&applier);
        let (before, time) = before.map_or((None, String::new()), |owned| (Some(owned.fields), owned.time));
        let owned = ManagedFieldsEntry { api_version: write.api_version.to_owned(), time, fields };
        managers.0.insert(applier.clone(), owned);

        let merged = merge(Some(live), Some(config), write.types).unwrap_or_default();
        let object = match before.filter(|before| !before.is_empty()) {
            Some(before) => prune(&merged, before, &managers, write),
            None => merged,
        };

        let mut changes = Comparison::of(live, &object, write.types);
        changes.ignore(&reset);
        let written = changes.written();
        let mut conflicts = Vec::new();
        for (identity, owned) in managers.0.iter_mut().filter(|(identity, _)| **identity != applier) {
            let lost = owned.fields.intersection(&written);
            conflicts.extend(lost.paths().into_iter().map(|path| (identity.clone(), path)));
            owned.fields.subtract(&lost);
            owned.fields.subtract(&changes.removed);
        }
        if let Some(owned) = managers.0.get_mut(&applier) {
            owned.fields.subtract(&NEVER_OWNED);
            if !same(live, &object) {
                owned.time = stamp(write.now);
            }
        }
        managers.0.retain(|_, owned| !owned.fields.is_empty());
        Self { object, managers, conflicts }
    }
}

/// Removes the fields that the manager applied before and no longer applies, unless another manager owns them.
fn prune(merged: &Value, before: Set, managers: &Managers, write: &Write<'_>) -> Value {
    let types = write.types;
    let before = before.with_named_fields(types);
    let present = field_set(merged, types).with_named_fields(types);
    let mut owned = Set::default();
    for manager in managers.0.values() {
        owned.add(&manager.fields);
    }
    // Removing the old fields of the manager also removes everything below them. Fields that other managers own are
    // added back first, then fields that the manager never applied.
    let mut keep = field_set(&remove(merged, &before, types), types).with_named_fields(types);
    keep.add(&owned.with_named_fields(types));
    let mut gone = present.clone();
    gone.subtract(&keep);
    let pruned = remove(merged, &gone, types);

    let mut gone = present;
    gone.subtract(&field_set(&pruned, types).with_named_fields(types));
    remove(merged, &gone.intersection(&before), types)
}

/// Fields of the last client-side apply of `kubectl` whose live values are still the applied ones.
fn last_applied_fields(live: &Value, write: &Write<'_>) -> Set {
    let Some(applied) = last_applied(live).and_then(|text| serde_json::from_str::<Value>(text).ok()) else {
        return Set::default();
    };
    let same_version = applied.get("apiVersion").and_then(Value::as_str) == Some(write.api_version);
    if !same_version || check(&applied, write.types).is_err() {
        return Set::default();
    }
    let changes = Comparison::of(&applied, live, write.types);
    let mut fields = field_set(&applied, write.types);
    fields.subtract(&changes.written());
    fields.subtract(&changes.removed);
    fields
}

fn last_applied(object: &Value) -> Option<&str> {
    object.get("metadata")?.get("annotations")?.get(LAST_APPLIED)?.as_str().filter(|text| !text.is_empty())
}

/// Updates the `last-applied-configuration` annotation if the object has one, so that clients can return to
/// client-side apply.
fn refresh_last_applied(object: &mut Value, config: &Value) {
    if last_applied(object).is_none() {
        return;
    }
    let mut config = config.clone();
    if let Some(Value::Object(annotations)) = config.pointer_mut("/metadata/annotations") {
        annotations.remove(LAST_APPLIED);
    }
    let Some(Value::Object(annotations)) = object.pointer_mut("/metadata/annotations") else { return };
    annotations.insert(LAST_APPLIED.into(), format!("{config}\n").into());
    let bytes: usize =
        annotations.iter().map(|(name, value)| name.len() + value.as_str().map_or(0, str::len)).sum();
    if bytes > ANNOTATIONS_BYTES_MAX {
        annotations.remove(LAST_APPLIED);
    }
}
