//! Rounds of the built-in controllers, the two functions through which every write and deletion reaches the
//! store, and the garbage collector.
//!
//! Owner references are handled like in the garbage collector of kube-controller-manager.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::delete::{DeleteOptions, FOREGROUND, ORPHAN, Propagation};
use crate::managed_fields::track_system_update;
use crate::object;
use crate::quotas;
use crate::registry::Resource;
use crate::server::{ApiServer, WorkItem};
use crate::store::{Location, Object, Owner, key_of};
use crate::strategy::definitions;

/// Work items in one round of the controllers; bounds the time for which requests wait for the server.
const WORK_ITEMS_PER_ROUND: usize = 1000;

impl ApiServer {
    /// Runs one round of the built-in controllers: expiry of events, garbage collection, namespaces and custom resource
    /// definitions. Returns whether the work queue is not empty.
    pub fn run_controllers(&mut self, now: Timestamp) -> bool {
        self.boot(now);
        self.expire(now);
        let mut left = std::mem::take(&mut self.work_queue);
        for _ in 0..WORK_ITEMS_PER_ROUND {
            let Some(work) = left.pop_first() else { break };
            match work {
                WorkItem::GarbageCollect(location) => self.collect_garbage(now, &location),
                WorkItem::Namespace(name) => self.reconcile_namespace(now, &name),
                WorkItem::Definition(name) => self.reconcile_definition(now, &name),
            }
        }
        self.work_queue.append(&mut left);
        !self.work_queue.is_empty()
    }

    /// The time of the next expiry, when the controllers have work without a preceding write.
    pub fn next_expiry(&self) -> Option<Timestamp> {
        self.expiring.first().map(|(at, _)| *at)
    }

    fn expire(&mut self, now: Timestamp) {
        for _ in 0..WORK_ITEMS_PER_ROUND {
            let Some((at, location)) = self.expiring.first().cloned() else { return };
            if at > now {
                return;
            }
            self.expiring.pop_first();
            self.expires_at.remove(&location);
            let Some(resource) = self.registry.by_storage(&location.storage).cloned() else { continue };
            self.delete_if_present(&resource, &location.key);
        }
    }

    /// Writes an object to the store, and queues the work that follows from the write. Every write calls this function.
    pub(crate) fn commit(&mut self, resource: &Arc<Resource>, value: Value, now: Timestamp) -> Arc<Object> {
        let counted = self.has_quotas(object::namespace(&value)).then(|| {
            let key = key_of(object::namespace(&value), object::name(&value));
            (self.store.get(&resource.storage, &key).map(|old| old.value()), value.clone())
        });
        let object = self.store.put(&resource.storage, value, |value| resource.field_values(value));
        if let Some((old, new)) = counted {
            self.charge_quotas(resource, object.namespace(), old.as_ref(), Some(&new));
        }
        let location = Location { storage: resource.storage.clone(), key: object.key.clone() };
        let lost_owner = object.owners.iter().any(|o| self.store.by_uid(&o.uid).is_none());
        let waits = object.deleting && object.finalizers.iter().any(|f| &**f == ORPHAN || &**f == FOREGROUND);
        if lost_owner || waits {
            self.work_queue.insert(WorkItem::GarbageCollect(location.clone()));
        }
        match &*resource.storage {
            quotas::STORAGE if self.config.counts_quotas => self.count_quota(&object.key),
            "namespaces" => {
                if object.deleting {
                    self.terminating_namespaces.insert(object.name().into());
                }
                self.work_queue.insert(WorkItem::Namespace(object.name().into()));
            }
            definitions::STORAGE => {
                self.work_queue.insert(WorkItem::Definition(object.name().into()));
            }
            "events" => {
                let ttl = SignedDuration::from_secs(self.config.event_ttl_seconds);
                let at = now.checked_add(ttl).unwrap_or(Timestamp::MAX);
                if let Some(before) = self.expires_at.insert(location.clone(), at) {
                    self.expiring.remove(&(before, location.clone()));
                }
                self.expiring.insert((at, location));
            }
            _ => {}
        }
        object
    }

    /// Deletes an object from the store, and queues the work that follows. Every deletion calls this function. `last`
    /// is the final state for the response and the watch event; by default the stored state.
    ///
    /// # Panics
    /// If the object does not exist.
    pub(crate) fn delete_immediately(
        &mut self,
        resource: &Arc<Resource>,
        key: &str,
        last: Option<Value>,
    ) -> Arc<Object> {
        let stored = self.store.get(&resource.storage, key).expect("the object exists");
        let counted = self.has_quotas(stored.namespace()).then(|| stored.value());
        let gone = self.store.delete(&resource.storage, key, last).expect("the object exists");
        if let Some(old) = counted {
            self.charge_quotas(resource, gone.namespace(), Some(&old), None);
        }
        let dependents: Vec<Location> = self.store.dependents(&gone.uid).cloned().collect();
        self.work_queue.extend(dependents.into_iter().map(WorkItem::GarbageCollect));
        for owner in &gone.owners {
            let waiting = self.store.by_uid(&owner.uid).filter(|location| {
                self.store.get(&location.storage, &location.key).is_some_and(|object| object.deleting)
            });
            if let Some(location) = waiting {
                self.work_queue.insert(WorkItem::GarbageCollect(location.clone()));
            }
        }
        let namespace = gone.namespace();
        if self.terminating_namespaces.contains(namespace) {
            self.work_queue.insert(WorkItem::Namespace(namespace.into()));
        }
        if let Some(custom) = &resource.custom {
            self.work_queue.insert(WorkItem::Definition(custom.definition.clone()));
        }
        crate::strategy::on_deleted(self, resource, &gone);
        if !self.expires_at.is_empty() {
            let location = Location { storage: resource.storage.clone(), key: gone.key.clone() };
            if let Some(at) = self.expires_at.remove(&location) {
                self.expiring.remove(&(at, location));
            }
        }
        match &*resource.storage {
            "namespaces" => {
                self.terminating_namespaces.remove(gone.name());
            }
            definitions::STORAGE => self.unregister_definition(&gone.value()),
            _ => {}
        }
        gone
    }

    pub(crate) fn delete_if_present(&mut self, resource: &Arc<Resource>, key: &str) {
        if self.store.get(&resource.storage, key).is_some() {
            self.delete_immediately(resource, key, None);
        }
    }

    /// Processes one object, like `attemptToDeleteItem` of the garbage collector: deletes an object whose owners are
    /// all deleted, removes dangling owner references, and completes orphaning and foreground deletion.
    fn collect_garbage(&mut self, now: Timestamp, location: &Location) {
        let Some(object) = self.store.get(&location.storage, &location.key).cloned() else { return };
        let Some(resource) = self.registry.by_storage(&location.storage).cloned() else { return };
        let has = |finalizer: &str| object.finalizers.iter().any(|f| &**f == finalizer);
        if object.deleting {
            if has(ORPHAN) {
                self.orphan_dependents(now, &object);
                self.remove_finalizer(now, &resource, &object, ORPHAN);
            } else if has(FOREGROUND) {
                self.delete_dependents(now, &resource, &object);
            }
            return;
        }
        let (mut solid, mut dangling, mut waiting) = (false, Vec::new(), Vec::new());
        for owner in &object.owners {
            match self.owner_state(&object, owner) {
                OwnerState::Solid => solid = true,
                OwnerState::Dangling => dangling.push(owner.uid.clone()),
                OwnerState::WaitingForDependents => waiting.push(owner.uid.clone()),
            }
        }
        if dangling.is_empty() && waiting.is_empty() {
            return;
        }
        if solid {
            dangling.append(&mut waiting);
            self.remove_owner_references(now, &resource, &object, &dangling);
            return;
        }
        let has_dependents = self.store.dependents(&object.uid).next().is_some();
        let propagation = match () {
            () if !waiting.is_empty() && has_dependents => Propagation::Foreground,
            () if has(ORPHAN) => Propagation::Orphan,
            () if has(FOREGROUND) => Propagation::Foreground,
            () => Propagation::Background,
        };
        let options = DeleteOptions { propagation, ..DeleteOptions::default() };
        // Fails only on preconditions, and there are none.
        let _ = self.delete_object(now, &resource, &object, &options);
    }

    fn owner_state(&self, object: &Object, owner: &Owner) -> OwnerState {
        let found = self
            .store
            .by_uid(&owner.uid)
            .and_then(|location| self.store.get(&location.storage, &location.key));
        let Some(found) = found else {
            // If the kind of the owner is not served, the owner may still exist: its definition may be established
            // later.
            let known = self.registry.by_kind(&owner.api_version, &owner.kind).is_some();
            return if known { OwnerState::Dangling } else { OwnerState::Solid };
        };
        if !found.namespace().is_empty() && found.namespace() != object.namespace() {
            return OwnerState::Dangling;
        }
        if *found.name() != *owner.name {
            return OwnerState::Dangling;
        }
        let foreground = found.deleting && found.finalizers.iter().any(|f| &**f == FOREGROUND);
        if foreground && owner.block { OwnerState::WaitingForDependents } else { OwnerState::Solid }
    }

    fn delete_dependents(&mut self, now: Timestamp, resource: &Arc<Resource>, object: &Arc<Object>) {
        let dependents: Vec<Location> = self.store.dependents(&object.uid).cloned().collect();
        let mut blocked = false;
        for location in dependents {
            let Some(dependent) = self.store.get(&location.storage, &location.key) else { continue };
            if dependent.owners.iter().any(|o| o.uid == object.uid && o.block) {
                blocked = true;
            }
            if !dependent.deleting {
                self.work_queue.insert(WorkItem::GarbageCollect(location));
            }
        }
        if !blocked {
            self.remove_finalizer(now, resource, object, FOREGROUND);
        }
    }

    fn orphan_dependents(&mut self, now: Timestamp, object: &Arc<Object>) {
        let dependents: Vec<Location> = self.store.dependents(&object.uid).cloned().collect();
        for location in dependents {
            let Some(dependent) = self.store.get(&location.storage, &location.key).cloned() else { continue };
            let Some(resource) = self.registry.by_storage(&location.storage).cloned() else { continue };
            self.remove_owner_references(now, &resource, &dependent, std::slice::from_ref(&object.uid));
        }
    }

    fn remove_owner_references(
        &mut self,
        now: Timestamp,
        resource: &Arc<Resource>,
        object: &Object,
        uids: &[Arc<str>],
    ) {
        let mut value = object.value();
        let owners = object::items(&value, &["metadata", "ownerReferences"]);
        let kept: Vec<Value> = owners
            .iter()
            .filter(|o| !uids.iter().any(|uid| **uid == *object::text(o, &["uid"])))
            .cloned()
            .collect();
        if kept.is_empty() {
            object::remove(&mut value, &["metadata", "ownerReferences"]);
        } else {
            object::set(&mut value, &["metadata", "ownerReferences"], kept);
        }
        track_system_update(now, resource, &object.value(), &mut value, ("kube-controller-manager", ""));
        self.commit(resource, value, now);
    }

    pub(crate) fn remove_finalizer(
        &mut self,
        now: Timestamp,
        resource: &Arc<Resource>,
        object: &Object,
        finalizer: &str,
    ) {
        let mut value = object.value();
        let kept: Vec<&str> = object.finalizers.iter().map(|f| &**f).filter(|f| *f != finalizer).collect();
        let grace = object::int(&value, &["metadata", "deletionGracePeriodSeconds"]).unwrap_or(0);
        if kept.is_empty() {
            object::remove(&mut value, &["metadata", "finalizers"]);
            if grace == 0 && object::items(&value, &["spec", "finalizers"]).is_empty() {
                self.delete_immediately(resource, &object.key, Some(value));
                return;
            }
        } else {
            let kept = json!(kept);
            object::set(&mut value, &["metadata", "finalizers"], kept);
        }
        track_system_update(now, resource, &object.value(), &mut value, ("kube-controller-manager", ""));
        self.commit(resource, value, now);
    }
}

enum OwnerState {
    Solid,
    Dangling,
    WaitingForDependents,
}
