//! Updates `metadata.managedFields` on create, update and patch.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::Write;
use super::compare::Comparison;
use super::managers::{ManagerIdentifier, Managers, Operation, is_reset, stamp};
use super::set::{Set, field};

/// Fields that no manager owns (`stripSet` in kube-apiserver).
pub(super) static NEVER_OWNED: LazyLock<Set> = LazyLock::new(|| {
    let mut set = Set::default();
    let fields = "apiVersion kind metadata metadata.name metadata.namespace metadata.creationTimestamp \
                  metadata.selfLink metadata.uid metadata.clusterName metadata.generation \
                  metadata.managedFields metadata.resourceVersion";
    for path in fields.split_whitespace() {
        set.insert(&path.split('.').map(field).collect::<Vec<_>>());
    }
    set
});

/// Updates `metadata.managedFields` of `new` after a create (`old` is `None`), update or patch.
///
/// `new` may carry entries of its own. On the main resource they replace the entries of `old`, unless they are absent
/// or invalid; `[]` and `[{}]` clear all entries. On a subresource they are ignored. An object without entries stays
/// without entries until it is applied.
pub fn track(old: Option<&Value>, new: &mut Value, write: &Write<'_>) {
    let asked = take_entries(new).filter(|_| write.subresource.is_none()).unwrap_or_default();
    let known = old.map_or(&Value::Null, entries);
    let zero = old.is_none().then(|| write.types.zero());
    let before = old.or(zero.as_ref()).unwrap_or(&Value::Null);
    let mut changes = Comparison::of(before, new, write.types);
    changes.ignore(&reset_fields(write));
    let unasked = asked.is_null() || asked == *known;
    if unasked && changes.is_empty() {
        put_entries(new, Some(known.clone()).filter(|known| !known.is_null()));
        return;
    }
    let live = || Managers::read(known.clone(), true).unwrap_or_default();
    let mut managers = if asked.is_null() {
        live()
    } else if is_reset(&asked) {
        Managers::default()
    } else {
        Managers::read(asked, unasked).ok().filter(|managers| !managers.0.is_empty()).unwrap_or_else(live)
    };
    if managers.0.is_empty() && old.is_some() {
        return;
    }
    record(&mut managers, &changes, write.manager, write);
    put_entries(new, managers.write());
}

/// Removes the changed fields from their owners and adds the new and modified ones to the `Update` entry of the
/// manager.
pub(super) fn record(managers: &mut Managers, changes: &Comparison, manager: &str, write: &Write<'_>) {
    let mut written = changes.written();
    for owned in managers.0.values_mut() {
        owned.fields.subtract(&written);
        owned.fields.subtract(&changes.removed);
    }
    written.subtract(&NEVER_OWNED);
    if !written.is_empty() {
        let identity =
            ManagerIdentifier::new(Operation::Update, manager, write.api_version, write.subresource);
        let owned = managers.0.entry(identity).or_default();
        owned.fields.add(&written);
        write.api_version.clone_into(&mut owned.api_version);
        // kube-apiserver leaves the time out of entries that a `scale` write creates.
        owned.time = if write.subresource == Some("scale") { String::new() } else { stamp(write.now) };
    }
    managers.0.retain(|_, owned| !owned.fields.is_empty());
    managers.cap_updaters();
}

/// The reset fields of a write as a set.
pub(super) fn reset_fields(write: &Write<'_>) -> Set {
    let mut set = Set::default();
    for path in write.reset {
        set.insert(&path.iter().copied().map(field).collect::<Vec<_>>());
    }
    set
}

pub(super) fn entries(object: &Value) -> &Value {
    object.pointer("/metadata/managedFields").unwrap_or(&Value::Null)
}

pub(super) fn take_entries(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata")?.as_object_mut()?.remove("managedFields")
}

pub(super) fn put_entries(object: &mut Value, entries: Option<Value>) {
    let (Some(entries), Some(object)) = (entries, object.as_object_mut()) else { return };
    let metadata = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.insert("managedFields".into(), entries);
    }
}
