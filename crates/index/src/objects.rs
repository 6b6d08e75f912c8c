//! Objects that exist for wrappers: the wrapped ones, and those that operators make on the way to pods.

use std::collections::{BTreeMap, BTreeSet};

use api::appwrapper::ASSIGNMENT_ANNOTATION;

use crate::kinds::Kind;
use crate::wire::{Condition, Object};

/// An object's place among all objects.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectKey {
    /// Its kind.
    pub kind: Kind,
    /// Its name; the namespace is its wrapper's.
    pub name: String,
}

/// An observed object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectRow {
    /// Kind and name.
    pub key: ObjectKey,
    /// Namespace.
    pub namespace: String,
    /// Identity.
    pub uid: String,
    /// Identity of the owner that manages it.
    pub owner: Option<String>,
    /// Whether it is being deleted.
    pub is_deleting: bool,
    /// Its conditions.
    pub conditions: Vec<Condition>,
    /// Where the plan placed its gang, as written on it.
    pub assignment: Option<String>,
}

/// All observed objects, and who owns whom.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    rows: BTreeMap<String, ObjectRow>,
    children: BTreeMap<String, BTreeSet<String>>,
}

impl ObjectRow {
    /// The row of a watched object.
    pub fn of(kind: &Kind, object: Object) -> Self {
        let meta = object.metadata;
        Self {
            owner: meta.controller().map(|owner| owner.uid.clone()),
            is_deleting: meta.is_deleting(),
            key: ObjectKey { kind: kind.clone(), name: meta.name },
            namespace: meta.namespace,
            uid: meta.uid,
            conditions: object.status.conditions,
            assignment: meta.annotations.get(ASSIGNMENT_ANNOTATION).cloned(),
        }
    }

    /// Whether a condition that holds has a type which contains one of `words`, whatever its capitals.
    pub fn is_complete(&self, words: &[String]) -> bool {
        let holds = self.conditions.iter().filter(|condition| condition.status == "True");
        holds.into_iter().any(|condition| {
            let kind = condition.kind.to_lowercase();
            words.iter().any(|word| kind.contains(&word.to_lowercase()))
        })
    }
}

impl Objects {
    /// Keeps a row; says whether its owner is new.
    pub(crate) fn upsert(&mut self, row: ObjectRow) -> bool {
        let owner_changed = self.rows.get(&row.uid).is_none_or(|old| old.owner != row.owner);
        if owner_changed {
            self.remove(&row.uid);
            if let Some(owner) = &row.owner {
                self.children.entry(owner.clone()).or_default().insert(row.uid.clone());
            }
        }
        self.rows.insert(row.uid.clone(), row);
        owner_changed
    }

    /// Forgets a row and returns it.
    pub(crate) fn remove(&mut self, uid: &str) -> Option<ObjectRow> {
        let row = self.rows.remove(uid)?;
        if let Some(owner) = &row.owner
            && let Some(siblings) = self.children.get_mut(owner)
        {
            siblings.remove(uid);
            if siblings.is_empty() {
                self.children.remove(owner);
            }
        }
        Some(row)
    }

    pub(crate) fn get(&self, uid: &str) -> Option<&ObjectRow> {
        self.rows.get(uid)
    }

    /// Objects that `owner` manages.
    pub(crate) fn of_owner(&self, owner: &str) -> impl Iterator<Item = &ObjectRow> {
        self.children.get(owner).into_iter().flatten().filter_map(|uid| self.rows.get(uid))
    }
}
