//! The watched objects of wrappers: the wrapped objects, and the objects that operators create between them and the
//! pods.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use api::appwrapper::ASSIGNMENT_ANNOTATION;

use crate::kinds::Kind;
use crate::wire::{Condition, Object, ObjectSpec};

/// The `backoffLimit` of a Job that does not set it.
const BACKOFF_LIMIT: u32 = 6;

/// Kind and name of an object. Keys that differ only in the API version are equal: an object is served in all versions of
/// its kind, and each version in use has a watch.
#[derive(Debug, Clone)]
pub struct ObjectKey {
    /// Kind.
    pub kind: Kind,
    /// Name; the namespace is that of the wrapper.
    pub name: String,
}

impl ObjectKey {
    /// What identifies the object: group, kind and name.
    fn identity(&self) -> (&str, &str, &str) {
        (self.kind.group(), &self.kind.kind, &self.name)
    }
}

impl PartialEq for ObjectKey {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }
}

impl Eq for ObjectKey {}

impl PartialOrd for ObjectKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ObjectKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.identity().cmp(&other.identity())
    }
}

/// A watched object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectRow {
    /// Kind and name.
    pub key: ObjectKey,
    /// Namespace.
    pub namespace: String,
    /// Uid.
    pub uid: String,
    /// Uid of its controller (the owner reference with `controller: true`).
    pub owner: Option<String>,
    /// Whether it is being deleted.
    pub is_deleting: bool,
    /// Its finalizers: it is not deleted before they are removed.
    pub finalizers: Vec<String>,
    /// Conditions.
    pub conditions: Vec<Condition>,
    /// The number of pods that it keeps at present.
    pub spec: ObjectSpec,
    /// The number of pods of a Job that have succeeded.
    pub succeeded: u32,
    /// The number of pods of a Job that have failed.
    pub failed: u32,
    /// Value of the annotation with the assignment of its gang.
    pub assignment: Option<String>,
}

/// All watched objects, indexed by owner.
#[derive(Clone, Debug, Default)]
pub(crate) struct Objects {
    rows: BTreeMap<String, ObjectRow>,
    /// By the namespace and the uid of the owner: key and uid. An owner is in the namespace of the object: a reference to
    /// an owner elsewhere has no meaning.
    children: BTreeMap<(String, String), BTreeSet<(ObjectKey, String)>>,
}

impl ObjectRow {
    /// Converts an object.
    pub fn of(kind: &Kind, object: Object) -> Self {
        let meta = object.metadata;
        Self {
            owner: meta.controller().map(|owner| owner.uid.clone()),
            is_deleting: meta.is_deleting(),
            finalizers: meta.finalizers,
            key: ObjectKey { kind: kind.clone(), name: meta.name },
            namespace: meta.namespace,
            uid: meta.uid,
            conditions: object.status.conditions,
            spec: object.spec,
            succeeded: object.status.succeeded,
            failed: object.status.failed,
            assignment: meta.annotations.get(ASSIGNMENT_ANNOTATION).cloned(),
        }
    }

    /// How many more pods may fail or be deleted before the object fails; `None` if it is no Job.
    pub(crate) fn failures_left(&self) -> Option<u32> {
        let Kind { api_version, kind } = &self.key.kind;
        let limit = self.spec.backoff_limit.unwrap_or(BACKOFF_LIMIT).saturating_sub(self.failed);
        let of_index = self.spec.backoff_limit_per_index.unwrap_or(u32::MAX);
        (api_version == "batch/v1" && kind == "Job").then(|| limit.min(of_index))
    }

    /// Whether a condition with the status `True` has a type that contains one of `words`, ignoring case.
    pub fn is_complete(&self, words: &[String]) -> bool {
        let holding = self.conditions.iter().filter(|condition| condition.status == "True");
        holding.into_iter().any(|condition| {
            let kind = condition.kind.to_lowercase();
            words.iter().any(|word| kind.contains(&word.to_lowercase()))
        })
    }
}

impl Objects {
    /// Adds or replaces an object. Returns whether its owner is new or changed.
    pub(crate) fn upsert(&mut self, row: ObjectRow) -> bool {
        let owner_changed = self.rows.get(&row.uid).is_none_or(|old| old.owner != row.owner);
        if owner_changed {
            self.remove(&row.uid);
            if let Some(owner) = &row.owner {
                let child = (row.key.clone(), row.uid.clone());
                self.children.entry((row.namespace.clone(), owner.clone())).or_default().insert(child);
            }
        }
        self.rows.insert(row.uid.clone(), row);
        owner_changed
    }

    /// Removes an object and returns its row.
    pub(crate) fn remove(&mut self, uid: &str) -> Option<ObjectRow> {
        let row = self.rows.remove(uid)?;
        let owner = row.owner.clone().map(|owner| (row.namespace.clone(), owner));
        if let Some(owner) = owner
            && let Some(siblings) = self.children.get_mut(&owner)
        {
            siblings.remove(&(row.key.clone(), row.uid.clone()));
            if siblings.is_empty() {
                self.children.remove(&owner);
            }
        }
        Some(row)
    }

    pub(crate) fn get(&self, uid: &str) -> Option<&ObjectRow> {
        self.rows.get(uid)
    }

    /// The uids of all objects of a kind.
    pub(crate) fn of_kind(&self, kind: &Kind) -> Vec<String> {
        let of_kind = self.rows.values().filter(|row| row.key.kind == *kind);
        of_kind.map(|row| row.uid.clone()).collect()
    }

    /// Attributes the objects of a kind to another version of it.
    pub(crate) fn change_version(&mut self, from: &Kind, to: &Kind) {
        for row in self.rows.values_mut().filter(|row| row.key.kind == *from) {
            row.key.kind.clone_from(to);
        }
    }

    /// The objects in a namespace whose controller is `owner`.
    pub(crate) fn of_owner(&self, namespace: &str, owner: &str) -> impl Iterator<Item = &ObjectRow> {
        let owner = (namespace.to_owned(), owner.to_owned());
        self.children.get(&owner).into_iter().flatten().filter_map(|(_, uid)| self.rows.get(uid))
    }

    /// The objects in a namespace with this key whose controller is `owner`.
    pub(crate) fn of_key(
        &self,
        namespace: &str,
        owner: &str,
        key: &ObjectKey,
    ) -> impl Iterator<Item = &ObjectRow> {
        let children = self.children.get(&(namespace.to_owned(), owner.to_owned())).into_iter();
        let from = (key.clone(), String::new());
        let of_key =
            children.flat_map(move |all| all.range(from.clone()..)).take_while(move |(k, _)| k == key);
        of_key.filter_map(|(_, uid)| self.rows.get(uid))
    }
}
