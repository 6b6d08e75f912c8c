//! The revisioned store: objects by resource and key, one global revision, and a log of recent changes for each
//! resource. Watches replay the log; lists at an older revision are rebuilt from it.
//!
//! Objects are stored as encoded bytes, with the decoded fields that selectors and garbage collection need. So an
//! object takes about its encoded size in memory, and a list concatenates bytes. The store does not validate objects.

mod object;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use serde_json::Value;

pub(crate) use self::object::{Object, Owner, key_of};

/// Identifies a stored resource, e.g. `pods` or `deployments.apps`. All versions of the resource share it.
pub(crate) type StorageId = Arc<str>;

/// Resource and key of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Location {
    pub(crate) storage: StorageId,
    pub(crate) key: Arc<str>,
}

/// The type of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChangeKind {
    Created,
    Updated,
    Deleted,
}

/// One entry of the change log. For a deletion, `object` is the last state with the revision of the deletion.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) revision: u64,
    pub(crate) kind: ChangeKind,
    pub(crate) object: Arc<Object>,
    pub(crate) previous: Option<Arc<Object>>,
}

/// Limits of the change log of each resource.
#[derive(Debug, Clone, Copy)]
pub(crate) struct History {
    pub(crate) changes: usize,
    pub(crate) bytes: usize,
}

#[derive(Debug, Default)]
struct Collection {
    objects: BTreeMap<Arc<str>, Arc<Object>>,
    log: VecDeque<Change>,
    log_bytes: usize,
    /// Revision of the newest change that is compacted.
    compact_revision: u64,
    /// The resource is no longer served. Its log stays until it is served again, for watches that are behind.
    closed: bool,
}

/// Error: the requested revision is compacted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Compacted {
    pub(crate) compact_revision: u64,
}

#[derive(Debug)]
pub(crate) struct Store {
    revision: u64,
    history: History,
    collections: BTreeMap<StorageId, Collection>,
    by_uid: BTreeMap<Arc<str>, Location>,
    dependents: BTreeMap<Arc<str>, BTreeSet<Location>>,
    changed: BTreeSet<StorageId>,
}

impl Store {
    pub(crate) fn new(history: History) -> Self {
        Self {
            revision: 1,
            history,
            collections: BTreeMap::new(),
            by_uid: BTreeMap::new(),
            dependents: BTreeMap::new(),
            changed: BTreeSet::new(),
        }
    }

    /// The revision of the last write.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// The resources that changed since the last call.
    pub(crate) fn take_changed(&mut self) -> BTreeSet<StorageId> {
        std::mem::take(&mut self.changed)
    }

    pub(crate) fn has(&self, storage: &str) -> bool {
        self.collections.get(storage).is_some_and(|c| !c.closed)
    }

    /// Starts to serve a resource.
    pub(crate) fn open(&mut self, storage: &StorageId) {
        let fresh = Collection { compact_revision: self.revision, ..Collection::default() };
        match self.collections.get_mut(storage) {
            Some(collection) if collection.closed => *collection = fresh,
            Some(_) => {}
            None => {
                self.collections.insert(storage.clone(), fresh);
            }
        }
    }

    /// Stops serving an empty resource; its watches end.
    pub(crate) fn close(&mut self, storage: &StorageId) {
        if let Some(collection) = self.collections.get_mut(storage) {
            collection.closed = true;
        }
        self.changed.insert(storage.clone());
    }

    pub(crate) fn get(&self, storage: &str, key: &str) -> Option<&Arc<Object>> {
        self.collections.get(storage)?.objects.get(key)
    }

    /// The resource and key of the object with this uid.
    pub(crate) fn by_uid(&self, uid: &str) -> Option<&Location> {
        self.by_uid.get(uid)
    }

    /// The objects with an owner reference to `uid`.
    pub(crate) fn dependents(&self, uid: &str) -> impl Iterator<Item = &Location> {
        self.dependents.get(uid).into_iter().flatten()
    }

    pub(crate) fn len(&self, storage: &str) -> usize {
        self.collections.get(storage).map_or(0, |c| c.objects.len())
    }

    /// The objects of one namespace (`None`: all namespaces) with a key after `after`, in key order.
    pub(crate) fn range<'a>(
        &'a self,
        storage: &str,
        namespace: Option<&str>,
        after: Option<&str>,
    ) -> impl Iterator<Item = &'a Arc<Object>> + use<'a> {
        let (from, to) = namespace.map_or((None, None), |n| (Some(format!("{n}/")), Some(format!("{n}0"))));
        let from = match (after, &from) {
            (Some(after), Some(from)) if after >= from.as_str() => Bound::Excluded(after),
            (Some(after), None) => Bound::Excluded(after),
            (_, Some(from)) => Bound::Included(from.as_str()),
            (None, None) => Bound::Unbounded,
        };
        let to = to.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let sane =
            !matches!((from, to), (Bound::Excluded(a) | Bound::Included(a), Bound::Excluded(b)) if a >= b);
        let objects = self.collections.get(storage).filter(|_| sane);
        let found = objects.map(|c| c.objects.range::<str, _>((from, to)));
        found.into_iter().flatten().map(|(_, object)| object)
    }

    /// The states at `revision` of the objects that changed since then; `None` for an object that did not exist.
    pub(crate) fn previous_states(
        &self,
        storage: &str,
        revision: u64,
    ) -> Result<BTreeMap<Arc<str>, Option<Arc<Object>>>, Compacted> {
        let mut past = BTreeMap::new();
        for change in self.changes_after(storage, revision)? {
            past.entry(change.object.key.clone()).or_insert_with(|| change.previous.clone());
        }
        Ok(past)
    }

    /// The changes after `revision`, oldest first.
    pub(crate) fn changes_after(
        &self,
        storage: &str,
        revision: u64,
    ) -> Result<impl Iterator<Item = &Change>, Compacted> {
        let collection = self.collections.get(storage);
        if let Some(Collection { compact_revision, .. }) = collection
            && revision < *compact_revision
        {
            return Err(Compacted { compact_revision: *compact_revision });
        }
        Ok(collection.into_iter().flat_map(move |c| {
            let from = c.log.partition_point(|change| change.revision <= revision);
            c.log.range(from..)
        }))
    }

    /// Writes an object at a new revision, and sets its `resourceVersion`.
    pub(crate) fn put(
        &mut self,
        storage: &StorageId,
        mut value: Value,
        fields: impl FnOnce(&Value) -> Box<[Box<str>]>,
    ) -> Arc<Object> {
        self.revision += 1;
        let fields = fields(&value);
        let object = Arc::new(Object::new(self.revision, &mut value, fields));
        self.open(storage);
        let collection = self.collections.get_mut(storage).expect("opened above");
        let previous = collection.objects.insert(object.key.clone(), object.clone());
        self.unlink(storage, previous.as_deref());
        self.link(storage, &object);
        let kind = if previous.is_some() { ChangeKind::Updated } else { ChangeKind::Created };
        self.log(storage, Change { revision: self.revision, kind, object: object.clone(), previous });
        object
    }

    /// Deletes an object at a new revision. Returns its last state (`value` if given) with the revision of the
    /// deletion.
    pub(crate) fn delete(
        &mut self,
        storage: &StorageId,
        key: &str,
        value: Option<Value>,
    ) -> Option<Arc<Object>> {
        let previous = self.collections.get_mut(storage)?.objects.remove(key)?;
        self.revision += 1;
        let mut value = value.unwrap_or_else(|| previous.value());
        let object = Arc::new(Object::new(self.revision, &mut value, previous.fields.clone()));
        self.unlink(storage, Some(&previous));
        let change = Change {
            revision: self.revision,
            kind: ChangeKind::Deleted,
            object: object.clone(),
            previous: Some(previous),
        };
        self.log(storage, change);
        Some(object)
    }

    /// Replaces an object without a new revision, for the defaults of a changed schema.
    pub(crate) fn replace_without_revision(
        &mut self,
        storage: &StorageId,
        mut value: Value,
        fields: Box<[Box<str>]>,
        revision: u64,
    ) {
        let object = Arc::new(Object::new(revision, &mut value, fields));
        if let Some(collection) = self.collections.get_mut(storage) {
            collection.objects.insert(object.key.clone(), object);
        }
    }

    /// Compacts the change logs at the current revision; the objects stay.
    pub(crate) fn compact(&mut self) {
        for (storage, collection) in &mut self.collections {
            collection.log.clear();
            collection.log_bytes = 0;
            collection.compact_revision = self.revision;
            self.changed.insert(storage.clone());
        }
    }

    fn link(&mut self, storage: &StorageId, object: &Object) {
        let location = Location { storage: storage.clone(), key: object.key.clone() };
        for owner in &object.owners {
            self.dependents.entry(owner.uid.clone()).or_default().insert(location.clone());
        }
        self.by_uid.insert(object.uid.clone(), location);
    }

    fn unlink(&mut self, storage: &StorageId, object: Option<&Object>) {
        let Some(object) = object else { return };
        let location = Location { storage: storage.clone(), key: object.key.clone() };
        for owner in &object.owners {
            if let Some(dependents) = self.dependents.get_mut(&owner.uid) {
                dependents.remove(&location);
                if dependents.is_empty() {
                    self.dependents.remove(&owner.uid);
                }
            }
        }
        self.by_uid.remove(&object.uid);
    }

    fn log(&mut self, storage: &StorageId, change: Change) {
        let collection = self.collections.get_mut(storage).expect("written objects have an open collection");
        collection.log_bytes += change.object.bytes.len();
        collection.log.push_back(change);
        while collection.log.len() > self.history.changes || collection.log_bytes > self.history.bytes {
            let Some(oldest) = collection.log.pop_front() else { break };
            collection.log_bytes -= oldest.object.bytes.len();
            collection.compact_revision = oldest.revision;
        }
        self.changed.insert(storage.clone());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn store() -> (Store, StorageId) {
        (Store::new(History { changes: 4, bytes: 1 << 20 }), "pods".into())
    }

    fn put(store: &mut Store, storage: &StorageId, namespace: &str, name: &str, label: &str) -> u64 {
        let value = json!({"metadata": {"namespace": namespace, "name": name, "labels": {"l": label}}});
        store.put(storage, value, |_| Box::default()).revision
    }

    #[test]
    fn a_range_over_a_namespace_excludes_other_namespaces() {
        let (mut store, pods) = store();
        for (namespace, name) in [("a", "x"), ("a-b", "y"), ("a", "z"), ("b", "x")] {
            put(&mut store, &pods, namespace, name, "");
        }
        let keys = |namespace, after| -> Vec<String> {
            store.range("pods", namespace, after).map(|o| o.key.to_string()).collect()
        };
        assert_eq!(keys(Some("a"), None), ["a/x", "a/z"]);
        assert_eq!(keys(Some("a"), Some("a/x")), ["a/z"]);
        assert_eq!(keys(Some("a"), Some("b/x")), Vec::<String>::new());
        assert_eq!(keys(None, None), ["a-b/y", "a/x", "a/z", "b/x"]);
    }

    #[test]
    fn previous_states_are_available_until_their_revision_is_compacted() {
        let (mut store, pods) = store();
        let first = put(&mut store, &pods, "a", "x", "1");
        put(&mut store, &pods, "a", "x", "2");
        put(&mut store, &pods, "a", "y", "1");
        store.delete(&pods, "a/x", None);
        let past = store.previous_states("pods", first).unwrap();
        assert_eq!(past.get("a/x").unwrap().as_ref().unwrap().revision, first);
        assert!(past.get("a/y").unwrap().is_none());
        put(&mut store, &pods, "a", "z", "1");
        put(&mut store, &pods, "a", "z", "2");
        assert_eq!(
            store.previous_states("pods", first).err(),
            Some(Compacted { compact_revision: first + 1 })
        );
    }

    #[test]
    fn a_deleted_object_leaves_the_uid_and_owner_indexes() {
        let (mut store, pods) = store();
        let child = json!({"metadata": {"namespace": "a", "name": "x", "uid": "child",
            "ownerReferences": [{"uid": "parent", "kind": "Job", "name": "j", "apiVersion": "batch/v1"}]}});
        store.put(&pods, child, |_| Box::default());
        assert_eq!(store.dependents("parent").count(), 1);
        assert!(store.by_uid("child").is_some());
        store.delete(&pods, "a/x", None);
        assert_eq!(store.dependents("parent").count(), 0);
        assert!(store.by_uid("child").is_none());
    }
}
