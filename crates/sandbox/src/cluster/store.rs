//! A cache of all objects of one kind, with indexes and event handlers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use tokio::sync::watch;

use super::kinds::{Cached, Kind, Resource};
use crate::wire::Key;

/// A change of one object. At least one of the states is set.
pub(crate) struct Change<'a, K> {
    pub(crate) old: Option<&'a Arc<K>>,
    pub(crate) new: Option<&'a Arc<K>>,
}

impl<K> Clone for Change<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Change<'_, K> {}

impl<K> Change<'_, K> {
    /// The new state, or the last state of a deleted object.
    pub(crate) fn latest(&self) -> &Arc<K> {
        self.new.or(self.old).expect("a change has an old or a new object")
    }
}

type Handler<K> = Box<dyn Fn(Change<'_, K>) + Send + Sync>;

/// The cached objects of one kind.
///
/// Handlers run one at a time, under a lock. They must be fast and must not write to the same store.
pub(crate) struct Store<K> {
    pub(super) kind: Kind,
    inner: RwLock<Inner<K>>,
    handlers: OnceLock<Vec<Handler<K>>>,
    handler_lock: Mutex<()>,
    synced: watch::Sender<bool>,
}

struct Inner<K> {
    objects: BTreeMap<Key, Arc<K>>,
    index: BTreeMap<String, BTreeSet<Key>>,
    /// The watch has delivered all changes up to this resource version.
    synced_version: u64,
}

impl<K: Resource> Store<K> {
    pub(crate) fn new() -> Self {
        Self::of(K::KIND)
    }
}

impl<K: Cached> Store<K> {
    /// A store of the objects of one of several kinds of the same type.
    pub(crate) fn of(kind: Kind) -> Self {
        Self {
            kind,
            inner: RwLock::new(Inner { objects: BTreeMap::new(), index: BTreeMap::new(), synced_version: 0 }),
            handlers: OnceLock::new(),
            handler_lock: Mutex::new(()),
            synced: watch::Sender::new(false),
        }
    }

    /// Sets the event handlers. Must be called once, before the first change.
    pub(crate) fn on_change(&self, handlers: Vec<Handler<K>>) {
        assert!(self.handlers.set(handlers).is_ok(), "the handlers of a store are set only once");
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.read(|inner| inner.objects.get(key).cloned())
    }

    pub(crate) fn all(&self) -> Vec<Arc<K>> {
        self.read(|inner| inner.objects.values().cloned().collect())
    }

    /// Objects with this index key, ordered by name.
    pub(crate) fn indexed(&self, name: &str) -> Vec<Arc<K>> {
        self.read(|inner| {
            let keys = inner.index.get(name).into_iter().flatten();
            keys.filter_map(|key| inner.objects.get(key).cloned()).collect()
        })
    }

    /// Waits until the first complete list is stored.
    pub(crate) async fn synced(&self) {
        let mut synced = self.synced.subscribe();
        // The sender belongs to `self`, so waiting cannot fail.
        drop(synced.wait_for(|done| *done).await);
    }

    /// Stores the object that a write returned, unless the watch has already delivered this version.
    pub(crate) fn observe_write(&self, object: K) -> Arc<K> {
        let object = Arc::new(object);
        let _guard = self.handler_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let synced_version = self.read(|inner| inner.synced_version);
        if object.meta().version() > synced_version {
            self.put(&object);
        }
        object
    }

    /// Removes an object after a delete request has removed it.
    pub(crate) fn observe_delete(&self, key: &Key, uid: &str) {
        let _guard = self.handler_lock.lock().unwrap_or_else(PoisonError::into_inner);
        if self.get(key).is_some_and(|held| held.meta().uid == uid) {
            self.remove_entry(key);
        }
    }

    /// Stores an object from the watch.
    pub(super) fn upsert(&self, object: K) {
        let _guard = self.handler_lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.advance(object.meta().version());
        self.put(&Arc::new(object));
    }

    /// Removes an object after a `DELETED` event.
    pub(super) fn remove(&self, object: &K) {
        let _guard = self.handler_lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.advance(object.meta().version());
        let key = object.meta().key();
        if self.get(&key).is_some_and(|held| held.meta().uid == object.meta().uid) {
            self.remove_entry(&key);
        }
    }

    /// Replaces the content by a complete list at `version`. Objects that were written after this version stay.
    pub(super) fn replace(&self, objects: Vec<K>, version: u64) {
        let handler_lock = self.handler_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let listed: BTreeSet<Key> = objects.iter().map(|object| object.meta().key()).collect();
        for object in objects {
            self.put(&Arc::new(object));
        }
        for held in self.all() {
            if !listed.contains(&held.meta().key()) && held.meta().version() <= version {
                self.remove_entry(&held.meta().key());
            }
        }
        self.advance(version);
        drop(handler_lock);
        self.synced.send_replace(true);
    }

    pub(super) fn advance(&self, version: u64) {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        inner.synced_version = inner.synced_version.max(version);
    }

    /// Stores an object unless a newer version is cached, and calls the handlers.
    fn put(&self, object: &Arc<K>) {
        let key = object.meta().key();
        let old = {
            let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
            let old = inner.objects.get(&key).cloned();
            if let Some(held) = &old {
                if held.meta().version() >= object.meta().version() {
                    return;
                }
                held.index(&mut |name| inner.unindex(&name, &key));
            }
            object.index(&mut |name| {
                inner.index.entry(name).or_default().insert(key.clone());
            });
            inner.objects.insert(key.clone(), object.clone());
            old
        };
        // The same name with another uid is another object: handlers first see the deletion of the old one.
        match old {
            Some(held) if held.meta().uid != object.meta().uid => {
                self.notify_handlers(Change { old: Some(&held), new: None });
                self.notify_handlers(Change { old: None, new: Some(object) });
            }
            held => self.notify_handlers(Change { old: held.as_ref(), new: Some(object) }),
        }
    }

    fn remove_entry(&self, key: &Key) {
        let held = {
            let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
            let Some(held) = inner.objects.remove(key) else { return };
            held.index(&mut |name| inner.unindex(&name, key));
            held
        };
        self.notify_handlers(Change { old: Some(&held), new: None });
    }

    fn notify_handlers(&self, change: Change<'_, K>) {
        for handler in self.handlers.get().into_iter().flatten() {
            handler(change);
        }
    }

    fn read<T>(&self, look: impl FnOnce(&Inner<K>) -> T) -> T {
        look(&self.inner.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<K> Inner<K> {
    fn unindex(&mut self, name: &str, key: &Key) {
        if let Some(keys) = self.index.get_mut(name) {
            keys.remove(key);
            if keys.is_empty() {
                self.index.remove(name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Pod;

    fn pod(name: &str, uid: &str, version: u64, node: &str) -> Pod {
        let mut pod = Pod::default();
        pod.metadata.name = name.to_owned();
        pod.metadata.uid = uid.to_owned();
        pod.metadata.resource_version = version.to_string();
        pod.spec.node_name = node.to_owned();
        pod
    }

    #[test]
    fn a_late_write_response_does_not_restore_a_deleted_object() {
        let store = Store::new();
        store.upsert(pod("a", "1", 5, ""));
        store.remove(&pod("a", "1", 7, ""));
        store.observe_write(pod("a", "1", 5, ""));
        assert_eq!(store.all().len(), 0);
    }

    #[test]
    fn a_write_is_cached_before_its_watch_event_and_is_not_overwritten_by_older_events() {
        let store = Store::new();
        store.upsert(pod("a", "1", 5, ""));
        store.observe_write(pod("a", "1", 9, "n"));
        store.upsert(pod("a", "1", 7, ""));
        assert_eq!(store.indexed("node/n").len(), 1);
    }

    #[test]
    fn a_new_list_removes_absent_objects_but_keeps_later_writes() {
        let store = Store::new();
        store.upsert(pod("old", "1", 5, ""));
        store.observe_write(pod("new", "2", 12, ""));
        store.replace(vec![], 10);
        assert_eq!(store.all().iter().map(|p| p.metadata.name.clone()).collect::<Vec<_>>(), ["new"]);
    }
}
