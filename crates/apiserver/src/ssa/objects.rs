//! Operations on typed objects: field sets, merging, and removal of fields.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::set::{Set, field, has_children, is_member};
use super::walk::{Branch, branch, fields, item_element, items};
use crate::typeinfo::{ListKind, TypeInfo};

/// Every field that the object sets.
pub(super) fn field_set(object: &Value, types: &dyn TypeInfo) -> Set {
    let mut set = Set::default();
    collect(object, types, &mut Vec::new(), &mut set);
    set
}

fn collect(value: &Value, types: &dyn TypeInfo, path: &mut Vec<String>, set: &mut Set) {
    match branch(types, value) {
        Branch::Leaf => set.insert(path),
        Branch::Map => {
            for (name, below) in fields(Some(value)).into_iter().flatten() {
                let Some(child) = types.field(name) else { continue };
                path.push(field(name));
                collect(below, child, path, set);
                let empty = below.is_null() || below.as_object().is_some_and(Map::is_empty);
                if empty || !types.declares(name) {
                    set.insert(path);
                }
                path.pop();
            }
        }
        Branch::List(kind) => {
            let mut seen = BTreeMap::<String, usize>::new();
            let named: Vec<_> = items(Some(value))
                .iter()
                .filter_map(|item| Some((item_element(kind, types.items(), item).ok()?, item)))
                .inspect(|(element, _)| *seen.entry(element.clone()).or_default() += 1)
                .collect();
            for (element, item) in named {
                let duplicate = seen[&element] > 1;
                path.push(element);
                if !duplicate {
                    collect(item, types.items(), path, set);
                }
                set.insert(path);
                path.pop();
            }
        }
    }
}

/// Merges `over` into `under`. For leaves `over` wins; objects and keyed lists are merged recursively.
pub(super) fn merge(under: Option<&Value>, over: Option<&Value>, types: &dyn TypeInfo) -> Option<Value> {
    let leaf = || over.or(under).cloned();
    let branches = (under.map(|under| branch(types, under)), over.map(|over| branch(types, over)));
    let merged = match branches {
        // A null has the shape of the other value.
        (Some(branch), Some(_)) if over.is_some_and(Value::is_null) => branch,
        (_, Some(branch)) | (Some(branch), None) => branch,
        (None, None) => return None,
    };
    match merged {
        Branch::Leaf => leaf(),
        Branch::Map => {
            let (under, over) = (fields(under), fields(over));
            if under.is_none() && over.is_none() {
                return leaf();
            }
            let mut merged = Map::new();
            let names: BTreeSet<_> =
                under.into_iter().flatten().chain(over.into_iter().flatten()).map(|(name, _)| name).collect();
            for name in names {
                let (under, over) = (under.and_then(|map| map.get(name)), over.and_then(|map| map.get(name)));
                let below = match types.field(name) {
                    Some(child) => merge(under, over, child),
                    None => over.or(under).cloned(),
                };
                if let Some(below) = below {
                    merged.insert(name.clone(), below);
                }
            }
            Some(Value::Object(merged))
        }
        Branch::List(kind) => {
            if items(under).is_empty() && items(over).is_empty() {
                return leaf();
            }
            merge_lists(items(under), items(over), kind, types.items()).map(Value::Array).or_else(leaf)
        }
    }
}

/// Merges two keyed lists. Items of `over` keep their own order; items that only `under` has keep their position
/// between the shared items. Returns `None` if an item has no key.
fn merge_lists(
    under: &[Value],
    over: &[Value],
    kind: ListKind<'_>,
    types: &dyn TypeInfo,
) -> Option<Vec<Value>> {
    let names = |list: &[Value]| -> Option<Vec<String>> {
        list.iter().map(|item| item_element(kind, types, item).ok()).collect()
    };
    let (under_names, over_names) = (names(under)?, names(over)?);
    let mut under_by_name = BTreeMap::<&str, Option<&Value>>::new();
    for (name, item) in under_names.iter().zip(under) {
        // Duplicate items with the same key are not merged with the item of `over`.
        under_by_name.entry(name).and_modify(|known| *known = None).or_insert(Some(item));
    }
    let over_index: BTreeMap<&str, &Value> = over_names.iter().map(String::as_str).zip(over).collect();
    let mut shared = over_names.iter().filter(|name| under_by_name.contains_key(name.as_str())).peekable();
    let mut emitted = BTreeSet::<&str>::new();
    let mut merged = Vec::with_capacity(under.len().max(over.len()));
    let mut left = 0;
    for name in &over_names {
        // Items that only `under` has come first, up to the next shared item.
        while let Some(under_name) = under_names.get(left) {
            if !over_index.contains_key(under_name.as_str()) {
                merged.push(under[left].clone());
            } else if emitted.contains(under_name.as_str()) {
            } else if under_name == name || shared.peek() == Some(&under_name) {
                break;
            }
            left += 1;
        }
        let below = under_by_name.get(name.as_str()).copied().flatten();
        merged.extend(merge(below, over_index.get(name.as_str()).copied(), types));
        emitted.insert(name);
        if shared.peek() == Some(&name) {
            shared.next();
        }
        if under_names.get(left) == Some(name) {
            left += 1;
        }
    }
    for (name, item) in under_names.iter().zip(under).skip(left) {
        if !over_index.contains_key(name.as_str()) {
            merged.push(item.clone());
        }
    }
    Some(merged)
}

/// Removes the fields of a set from an object. Objects and lists that become empty stay in place.
pub(super) fn remove(object: &Value, set: &Set, types: &dyn TypeInfo) -> Value {
    without(object, set.root(), types)
}

fn without(value: &Value, set: &Map<String, Value>, types: &dyn TypeInfo) -> Value {
    match (branch(types, value), value) {
        (Branch::Map, Value::Object(fields)) => {
            let mut rest = Map::new();
            for (name, below) in fields {
                let kept = match (set.get(&field(name)).and_then(Value::as_object), types.field(name)) {
                    (Some(node), _) if is_member(node) => continue,
                    (Some(node), Some(child)) if has_children(node) => without(below, node, child),
                    _ => below.clone(),
                };
                rest.insert(name.clone(), kept);
            }
            Value::Object(rest)
        }
        (Branch::List(kind), Value::Array(items)) => {
            let mut rest = Vec::with_capacity(items.len());
            for item in items {
                let node = item_element(kind, types.items(), item)
                    .ok()
                    .and_then(|element| set.get(&element))
                    .and_then(Value::as_object);
                match node {
                    Some(node) if is_member(node) => {}
                    Some(node) if has_children(node) => rest.push(without(item, node, types.items())),
                    _ => rest.push(item.clone()),
                }
            }
            Value::Array(rest)
        }
        // An atomic value is kept whole.
        (_, whole) => whole.clone(),
    }
}
