//! Strategic merge patch: a merge patch that merges lists by the merge keys of their types.
//!
//! Directives in a patch:
//!
//! | directive | effect |
//! | --- | --- |
//! | `$patch: replace` or `delete` in an object | replaces the object by the rest of the patch, or empties it |
//! | `$patch: delete` in a list item | deletes the items with the same merge key |
//! | `$patch: replace` in a list item | replaces the list by the other items of the patch |
//! | `$retainKeys: [..]` in an object | deletes all fields that it does not list |
//! | `$deleteFromPrimitiveList/f: [..]` | deletes these scalars from the list `f` |
//! | `$setElementOrder/f: [..]` | sets the order of the list `f` |

mod order;

use serde_json::{Map, Value};

use self::order::{Identity, arrange, check_order};
use super::{PatchError, go_value, json_kind};
use crate::typeinfo::{PatchRule, Shape, TypeInfo};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList";
const SET_ORDER: &str = "$setElementOrder";

type Object = Map<String, Value>;

/// Applies a strategic merge patch to a document of type `types`.
///
/// A malformed directive is a bad request. A field that the type does not have and an item without its merge key are
/// internal errors, as in kube-apiserver.
pub fn strategic(doc: &Value, patch: &Value, types: &dyn TypeInfo) -> Result<Value, PatchError> {
    if types.shape() == Shape::Deduced {
        return Err(PatchError::Malformed("strategic merge patch format is not supported".into()));
    }
    let Value::Object(patch) = patch else {
        return Err(PatchError::Malformed(format!(
            "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            json_kind(patch)
        )));
    };
    let original = doc.as_object().cloned().unwrap_or_default();
    merge_object(original, patch.clone(), types).map(Value::Object)
}

fn merge_object(mut original: Object, mut patch: Object, types: &dyn TypeInfo) -> Result<Object, PatchError> {
    if let Some(directive) = patch.remove(DIRECTIVE) {
        return match directive.as_str() {
            Some("replace") => Ok(patch),
            Some("delete") => Ok(Object::new()),
            _ => Err(unknown_directive(&directive, patch)),
        };
    }
    retain_keys(&mut original, &mut patch)?;
    merge_ordered_lists(&mut original, &mut patch, types)?;
    for (key, value) in patch {
        if let Some(list) = directed_list(&key, DELETE_FROM, PRIMITIVE_LIST)? {
            delete_scalars(&mut original, list, value);
            continue;
        }
        if value.is_null() {
            original.remove(&key);
            continue;
        }
        let merged = match (original.remove(&key), value) {
            (Some(Value::Object(old)), Value::Object(new)) => {
                let child = child(types, &key)?;
                Some(Value::Object(if child.patch().replace { new } else { merge_object(old, new, child)? }))
            }
            (Some(Value::Array(old)), Value::Array(new)) => {
                let child = child(types, &key)?;
                Some(Value::Array(merge_list(old, new, child)?))
            }
            (_, value) => without_directives(value),
        };
        if let Some(merged) = merged {
            original.insert(key, merged);
        }
    }
    Ok(original)
}

const PRIMITIVE_LIST: &str = "invalid patch format of primitive list";
const ORDER_LIST: &str = "invalid patch format of setElementOrder list";

/// The list to which a key such as `$setElementOrder/containers` refers.
fn directed_list<'a>(key: &'a str, prefix: &str, malformed: &str) -> Result<Option<&'a str>, PatchError> {
    let Some(rest) = key.strip_prefix(prefix) else { return Ok(None) };
    match rest.strip_prefix('/') {
        Some(list) => Ok(Some(list)),
        None => Err(PatchError::Malformed(malformed.into())),
    }
}

fn child<'t>(types: &'t dyn TypeInfo, key: &str) -> Result<&'t dyn TypeInfo, PatchError> {
    if let Some(child) = types.field(key) {
        return Ok(child);
    }
    let name = types.name().and_then(|name| name.rsplit('.').next()).unwrap_or_default();
    Err(PatchError::Internal(format!("unable to find api field in struct {name} for the json field {key:?}")))
}

/// Clears the fields that `$retainKeys` does not list. It must list every field of the patch.
fn retain_keys(original: &mut Object, patch: &mut Object) -> Result<(), PatchError> {
    let Some(retained) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let malformed = || PatchError::Malformed("invalid patch format of retainKeys".into());
    let retained = retained.as_array().ok_or_else(malformed)?;
    let is_retained = |key: &str| retained.iter().any(|name| name == key);
    let unnamed = patch.iter().any(|(key, value)| {
        !value.is_null() && !key.starts_with(DELETE_FROM) && !key.starts_with(SET_ORDER) && !is_retained(key)
    });
    if unnamed {
        return Err(malformed());
    }
    original.retain(|key, _| is_retained(key));
    Ok(())
}

/// Merges the lists with a `$setElementOrder` directive, and removes these lists and directives from the patch.
fn merge_ordered_lists(
    original: &mut Object,
    patch: &mut Object,
    types: &dyn TypeInfo,
) -> Result<(), PatchError> {
    let directives: Vec<_> = patch.keys().filter(|key| key.starts_with(SET_ORDER)).cloned().collect();
    for directive in directives {
        let order = list_of(patch.remove(&directive).unwrap_or_default())?;
        let Some(list) = directed_list(&directive, SET_ORDER, ORDER_LIST)? else { continue };
        let live = original.get(list).cloned().map(list_of).transpose()?;
        let wanted = patch.remove(list).map(list_of).transpose()?;
        let child = child(types, list)?;
        let rule = child.patch();
        check_order(wanted.as_deref().unwrap_or_default(), &order, rule.merge_key)?;
        let server_order = live.clone().unwrap_or_default();
        let empty = server_order.is_empty() && wanted.as_ref().is_none_or(Vec::is_empty);
        if empty && (live.is_some() || wanted.is_some()) {
            return Err(PatchError::Internal("no elements in any of the given slices".into()));
        }
        let merged = match (live, wanted) {
            (None, None) => continue,
            (Some(live), None) => live,
            (None, Some(wanted)) => wanted.into_iter().filter_map(without_directives).collect(),
            (Some(live), Some(wanted)) => merge_list(live, wanted, child)?,
        };
        let identity = Identity::of(rule.merge_key);
        let merged = arrange(merged, &order, &server_order, identity)?;
        original.insert(list.to_owned(), Value::Array(merged));
    }
    Ok(())
}

fn list_of(value: Value) -> Result<Vec<Value>, PatchError> {
    match value {
        Value::Array(items) => Ok(items),
        other => Err(PatchError::Internal(format!(
            "expected a []interface {{}}, but received a {}",
            match other {
                Value::Object(_) => "map[string]interface {}",
                Value::String(_) => "string",
                Value::Bool(_) => "bool",
                Value::Number(_) => "float64",
                Value::Null | Value::Array(_) => "%!s(<nil>)",
            }
        ))),
    }
}

fn delete_scalars(original: &mut Object, list: &str, deleted: Value) {
    if let (Some(Value::Array(items)), Value::Array(deleted)) = (original.get_mut(list), deleted) {
        items.retain(|item| !deleted.contains(item));
    }
}

/// Merges or replaces a list according to the patch strategy of its field.
fn merge_list(
    original: Vec<Value>,
    patch: Vec<Value>,
    types: &dyn TypeInfo,
) -> Result<Vec<Value>, PatchError> {
    let rule = types.patch();
    if !rule.merge {
        return Ok(patch);
    }
    let Some(first) = original.first().or(patch.first()) else { return Ok(original) };
    let of_objects = first.is_object();
    check_element_kinds(&original, &patch)?;
    if of_objects {
        merge_objects(original, patch, types, rule)
    } else {
        let mut merged = Vec::with_capacity(original.len() + patch.len());
        for item in original.iter().chain(&patch) {
            if !merged.contains(item) {
                merged.push(item.clone());
            }
        }
        arrange(merged, &patch, &original, Identity::Whole)
    }
}

/// All items of a list must have the same JSON type, and none may be a list.
fn check_element_kinds(original: &[Value], patch: &[Value]) -> Result<(), PatchError> {
    let mut items = original.iter().chain(patch);
    let Some(first) = items.next() else { return Ok(()) };
    if first.is_array() {
        return Err(PatchError::Unprocessable("lists of lists are not supported".into()));
    }
    if items.any(|item| std::mem::discriminant(item) != std::mem::discriminant(first)) {
        let lists = [original, patch].map(|list| go_value(&Value::Array(list.to_vec()))).join(" ");
        return Err(PatchError::Internal(format!("list element types are not identical: [{lists}]")));
    }
    Ok(())
}

fn merge_objects(
    original: Vec<Value>,
    patch: Vec<Value>,
    types: &dyn TypeInfo,
    rule: PatchRule<'_>,
) -> Result<Vec<Value>, PatchError> {
    let Some(merge_key) = rule.merge_key else {
        let name = types.items().name().unwrap_or_default();
        return Err(PatchError::Internal(format!("cannot merge lists without merge key for {name}")));
    };
    let (original, patch) = apply_item_directives(original, patch, merge_key)?;
    let mut merged = original.clone();
    for item in &patch {
        let Value::Object(fields) = item else { continue };
        let Some(key) = fields.get(merge_key) else { return Err(no_merge_key(item, merge_key)) };
        match merged.iter_mut().find(|live| live.get(merge_key) == Some(key)) {
            Some(slot) => {
                let live = slot.as_object().cloned().unwrap_or_default();
                *slot = Value::Object(merge_object(live, fields.clone(), types.items())?);
            }
            None => merged.extend(without_directives(item.clone())),
        }
    }
    arrange(merged, &patch, &original, Identity::Key(merge_key))
}

/// Applies the `$patch` directives in list items. Returns the list without deleted items, and the patch without
/// directives.
fn apply_item_directives(
    mut original: Vec<Value>,
    patch: Vec<Value>,
    merge_key: &str,
) -> Result<(Vec<Value>, Vec<Value>), PatchError> {
    let mut rest = Vec::with_capacity(patch.len());
    let mut replace = false;
    for item in patch {
        match item.get(DIRECTIVE) {
            None => rest.push(item),
            Some(Value::String(directive)) if directive == "replace" => replace = true,
            Some(Value::String(directive)) if directive == "delete" => {
                let Some(key) = item.get(merge_key) else { return Err(no_merge_key(&item, merge_key)) };
                original.retain(|live| live.get(merge_key) != Some(key));
            }
            Some(Value::String(directive)) if directive == "merge" => {
                return Err(PatchError::Internal(
                    "merging lists cannot yet be specified in the patch".into(),
                ));
            }
            Some(directive) => {
                let directive = directive.clone();
                return Err(unknown_directive(&directive, item.as_object().cloned().unwrap_or_default()));
            }
        }
    }
    Ok(if replace { (rest, Vec::new()) } else { (original, rest) })
}

/// A value that is not in the document yet: its directives and nulls are dropped.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(fields) if fields.contains_key(DIRECTIVE) => None,
        Value::Object(fields) => Some(Value::Object(
            fields
                .into_iter()
                .filter(|(key, value)| {
                    let directive =
                        key == RETAIN_KEYS || key.starts_with(SET_ORDER) || key.starts_with(DELETE_FROM);
                    !value.is_null() && !directive
                })
                .filter_map(|(key, value)| without_directives(value).map(|value| (key, value)))
                .collect(),
        )),
        Value::Array(items) => Some(Value::Array(items.into_iter().filter_map(without_directives).collect())),
        scalar => Some(scalar),
    }
}

fn no_merge_key(item: &Value, merge_key: &str) -> PatchError {
    PatchError::Internal(format!("map: {} does not contain declared merge key: {merge_key}", go_value(item)))
}

fn unknown_directive(directive: &Value, mut patch: Object) -> PatchError {
    patch.insert(DIRECTIVE.into(), directive.clone());
    let patch = go_value(&Value::Object(patch));
    PatchError::Internal(format!("unknown patch type: {} in map: {patch}", go_value(directive)))
}
