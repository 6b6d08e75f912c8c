//! Comparison of two versions of an object. The result is a set of fields.

use serde_json::Value;

use super::set::{Set, field};
use super::walk::{Branch, branch, fields, item_element, items, same};
use crate::typeinfo::{ListKind, TypeInfo};

/// Fields that differ between two versions of an object.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Comparison {
    pub(super) removed: Set,
    pub(super) modified: Set,
    pub(super) added: Set,
}

impl Comparison {
    pub(super) fn of(old: &Value, new: &Value, types: &dyn TypeInfo) -> Self {
        let mut walk = Walk { path: Vec::new(), found: Self::default() };
        walk.node(Some(old), Some(new), types);
        walk.found
    }

    pub(super) fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.modified.is_empty() && self.added.is_empty()
    }

    /// Excludes fields and everything below them.
    pub(super) fn ignore(&mut self, fields: &Set) {
        self.removed.subtract_trees(fields);
        self.modified.subtract_trees(fields);
        self.added.subtract_trees(fields);
    }

    /// Fields with a new value: the modified and the added ones.
    pub(super) fn written(&self) -> Set {
        let mut written = self.modified.clone();
        written.add(&self.added);
        written
    }
}

struct Walk {
    path: Vec<String>,
    found: Comparison,
}

impl Walk {
    fn below(&mut self, element: String, old: Option<&Value>, new: Option<&Value>, types: &dyn TypeInfo) {
        self.path.push(element);
        self.node(old, new, types);
        self.path.pop();
    }

    fn node(&mut self, old: Option<&Value>, new: Option<&Value>, types: &dyn TypeInfo) {
        let unchanged = match (old, new) {
            (Some(old), Some(new)) => same(old, new),
            (old, new) => old.is_none() && new.is_none(),
        };
        if unchanged {
            return;
        }
        let branches = (old.map(|old| branch(types, old)), new.map(|new| branch(types, new)));
        let both = match branches {
            (Some(Branch::Map), Some(Branch::Leaf)) => {
                self.map(old, None, types);
                Branch::Leaf
            }
            (Some(Branch::Leaf), Some(Branch::Map)) => {
                self.map(None, new, types);
                Branch::Leaf
            }
            (_, Some(branch)) | (Some(branch), None) => branch,
            (None, None) => return,
        };
        let descended = match both {
            Branch::Leaf => false,
            Branch::Map => self.map(old, new, types),
            Branch::List(kind) => self.list(old, new, kind, types),
        };
        match (old, new) {
            (None, _) => self.found.added.insert(&self.path),
            (_, None) => self.found.removed.insert(&self.path),
            _ if !descended => self.found.modified.insert(&self.path),
            _ => {}
        }
    }

    /// Compares two objects field by field. Returns false if both are empty; the object is then a leaf.
    fn map(&mut self, old: Option<&Value>, new: Option<&Value>, types: &dyn TypeInfo) -> bool {
        let (old, new) = (fields(old), fields(new));
        if old.is_none() && new.is_none() {
            return false;
        }
        for (name, old) in old.into_iter().flatten() {
            let new = new.and_then(|new| new.get(name));
            if let Some(child) = types.field(name) {
                self.below(field(name), Some(old), new, child);
            }
        }
        for (name, new) in new.into_iter().flatten() {
            if old.is_none_or(|old| !old.contains_key(name))
                && let Some(child) = types.field(name)
            {
                self.below(field(name), None, Some(new), child);
            }
        }
        true
    }

    /// Compares two lists item by item. Returns false if both are empty or an item has no key; the list is then a
    /// leaf.
    fn list(
        &mut self,
        old: Option<&Value>,
        new: Option<&Value>,
        kind: ListKind<'_>,
        types: &dyn TypeInfo,
    ) -> bool {
        let child = types.items();
        let (Some(old), Some(new)) =
            (Grouped::of(items(old), kind, child), Grouped::of(items(new), kind, child))
        else {
            return false;
        };
        if old.groups.is_empty() && new.groups.is_empty() {
            return false;
        }
        for (element, before) in &old.groups {
            self.item(element, before, new.get(element), child);
        }
        for (element, after) in &new.groups {
            if old.get(element).is_empty() {
                self.item(element, &[], after, child);
            }
        }
        true
    }

    /// Compares the items with one key. Duplicate items with the same key are owned as one.
    fn item(&mut self, element: &str, old: &[&Value], new: &[&Value], child: &dyn TypeInfo) {
        match (old, new) {
            ([_, _, ..], [_, _, ..]) => {
                if old.len() != new.len() || !old.iter().zip(new).all(|(old, new)| same(old, new)) {
                    self.mark(element, |found| &mut found.modified);
                }
            }
            ([_, _, ..], _) => {
                self.below(element.to_owned(), None, new.first().copied(), child);
                self.mark(element, |found| &mut found.removed);
            }
            (_, [_, _, ..]) => {
                self.below(element.to_owned(), old.first().copied(), None, child);
                self.mark(element, |found| &mut found.added);
            }
            _ => self.below(element.to_owned(), old.first().copied(), new.first().copied(), child),
        }
    }

    fn mark(&mut self, element: &str, of: impl Fn(&mut Comparison) -> &mut Set) {
        self.path.push(element.to_owned());
        of(&mut self.found).insert(&self.path);
        self.path.pop();
    }
}

/// List items grouped by key, in the order of first occurrence.
struct Grouped<'v> {
    groups: Vec<(String, Vec<&'v Value>)>,
    index: std::collections::BTreeMap<String, usize>,
}

impl<'v> Grouped<'v> {
    fn of(items: &'v [Value], kind: ListKind<'_>, types: &dyn TypeInfo) -> Option<Self> {
        let mut grouped =
            Self { groups: Vec::with_capacity(items.len()), index: std::collections::BTreeMap::new() };
        for item in items {
            let element = item_element(kind, types, item).ok()?;
            if let Some(&at) = grouped.index.get(&element) {
                grouped.groups[at].1.push(item);
            } else {
                grouped.index.insert(element.clone(), grouped.groups.len());
                grouped.groups.push((element, vec![item]));
            }
        }
        Some(grouped)
    }

    fn get(&self, element: &str) -> &[&'v Value] {
        self.index.get(element).map_or(&[], |&at| self.groups[at].1.as_slice())
    }
}
