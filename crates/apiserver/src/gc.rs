//! Housekeeping: what the server does by itself after a write. Here are the two doors to the store that note such work,
//! and garbage collection by owner references as the garbage collector of a real cluster does it.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::delete::{DeleteOptions, FOREGROUND, ORPHAN, Propagation};
use crate::object;
use crate::registry::Resource;
use crate::server::ApiServer;
use crate::store::{Object, Owner, Place};
use crate::write::track_own;

/// Pieces of work in one round, so that requests do not wait long for the server.
const ROUND: usize = 1000;

/// Work that a write left to do.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Work {
    /// An object may be garbage, or may wait for its dependents to go.
    Collect(Place),
    /// A namespace may be drained or finished.
    Namespace(String),
    /// A custom resource definition may be established or finished.
    Definition(String),
}

impl ApiServer {
    /// Does one round of what the server does by itself: garbage collection, draining of namespaces, establishing of
    /// custom resources, expiry of events. True if there may be more to do at once.
    pub fn housekeep(&mut self, now: Timestamp) -> bool {
        self.boot(now);
        self.expire(now);
        let mut left = std::mem::take(&mut self.work);
        for _ in 0..ROUND {
            let Some(work) = left.pop_first() else { break };
            match work {
                Work::Collect(place) => self.collect(now, &place),
                Work::Namespace(name) => self.drain_namespace(now, &name),
                Work::Definition(name) => self.settle_definition(now, &name),
            }
        }
        self.work.append(&mut left);
        !self.work.is_empty()
    }

    /// When housekeeping has something to do without a write before: the next expiry.
    pub fn next_expiry(&self) -> Option<Timestamp> {
        self.expiring.first().map(|(at, _)| *at)
    }

    fn expire(&mut self, now: Timestamp) {
        for _ in 0..ROUND {
            let Some((at, place)) = self.expiring.first().cloned() else { return };
            if at > now {
                return;
            }
            self.expiring.pop_first();
            self.expires_at.remove(&place);
            let Some(resource) = self.registry.by_storage(&place.storage).cloned() else { continue };
            self.erase_if_there(&resource, &place.key);
        }
    }

    /// Writes an object; every write of a stored object comes through here.
    pub(crate) fn commit(&mut self, resource: &Arc<Resource>, value: Value, now: Timestamp) -> Arc<Object> {
        let object = self.store.put(&resource.storage, value, |value| resource.field_values(value));
        let place = Place { storage: resource.storage.clone(), key: object.key.clone() };
        let lost_owner = object.owners.iter().any(|o| self.store.by_uid(&o.uid).is_none());
        let waits = object.deleting && object.finalizers.iter().any(|f| &**f == ORPHAN || &**f == FOREGROUND);
        if lost_owner || waits {
            self.work.insert(Work::Collect(place.clone()));
        }
        match &*resource.storage {
            "namespaces" => {
                if object.deleting {
                    self.terminating_namespaces.insert(object.name().into());
                }
                self.work.insert(Work::Namespace(object.name().into()));
            }
            crate::crds::STORAGE => {
                self.work.insert(Work::Definition(object.name().into()));
            }
            "events" => {
                let ttl = SignedDuration::from_secs(self.config.event_ttl_seconds);
                let at = now.checked_add(ttl).unwrap_or(Timestamp::MAX);
                if let Some(before) = self.expires_at.insert(place.clone(), at) {
                    self.expiring.remove(&(before, place.clone()));
                }
                self.expiring.insert((at, place));
            }
            _ => {}
        }
        object
    }

    /// Deletes an object; every deletion of a stored object comes through here. `last` is the state to report.
    ///
    /// # Panics
    /// When there is no such object.
    pub(crate) fn erase(&mut self, resource: &Arc<Resource>, key: &str, last: Option<Value>) -> Arc<Object> {
        let gone = self.store.delete(&resource.storage, key, last).expect("an object is erased once");
        let dependents: Vec<Place> = self.store.dependents(&gone.uid).cloned().collect();
        self.work.extend(dependents.into_iter().map(Work::Collect));
        for owner in &gone.owners {
            let waiting = self.store.by_uid(&owner.uid).filter(|place| {
                self.store.get(&place.storage, &place.key).is_some_and(|object| object.deleting)
            });
            if let Some(place) = waiting {
                self.work.insert(Work::Collect(place.clone()));
            }
        }
        let namespace = gone.namespace();
        if self.terminating_namespaces.contains(namespace) {
            self.work.insert(Work::Namespace(namespace.into()));
        }
        if let Some(custom) = &resource.custom {
            self.work.insert(Work::Definition(custom.definition.clone()));
        }
        crate::strategy::on_gone(self, resource, &gone);
        if !self.expires_at.is_empty() {
            let place = Place { storage: resource.storage.clone(), key: gone.key.clone() };
            if let Some(at) = self.expires_at.remove(&place) {
                self.expiring.remove(&(at, place));
            }
        }
        match &*resource.storage {
            "namespaces" => {
                self.terminating_namespaces.remove(gone.name());
            }
            crate::crds::STORAGE => self.drop_definition(&gone.value()),
            _ => {}
        }
        gone
    }

    pub(crate) fn erase_if_there(&mut self, resource: &Arc<Resource>, key: &str) {
        if self.store.get(&resource.storage, key).is_some() {
            self.erase(resource, key, None);
        }
    }

    /// Decides what an object's owners and its own deletion mean for it.
    fn collect(&mut self, now: Timestamp, place: &Place) {
        let Some(object) = self.store.get(&place.storage, &place.key).cloned() else { return };
        let Some(resource) = self.registry.by_storage(&place.storage).cloned() else { return };
        let has = |finalizer: &str| object.finalizers.iter().any(|f| &**f == finalizer);
        if object.deleting {
            if has(ORPHAN) {
                self.orphan_dependents(now, &object);
                self.drop_finalizer(now, &resource, &object, ORPHAN);
            } else if has(FOREGROUND) {
                self.delete_dependents_first(now, &resource, &object);
            }
            return;
        }
        let (mut solid, mut lost, mut waiting) = (false, Vec::new(), Vec::new());
        for owner in &object.owners {
            match self.owner_state(&object, owner) {
                OwnerState::Solid => solid = true,
                OwnerState::Lost => lost.push(owner.uid.clone()),
                OwnerState::WaitsForDependents => waiting.push(owner.uid.clone()),
            }
        }
        if lost.is_empty() && waiting.is_empty() {
            return;
        }
        if solid {
            lost.append(&mut waiting);
            self.cut_owners(now, &resource, &object, &lost);
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
        // Fails for preconditions alone, and there are none.
        let _ = self.remove(now, &resource, &object, &options);
    }

    fn owner_state(&self, object: &Object, owner: &Owner) -> OwnerState {
        let found =
            self.store.by_uid(&owner.uid).and_then(|place| self.store.get(&place.storage, &place.key));
        let Some(found) = found else {
            // Of a kind that is not served nothing is known, as long as it may come.
            let known = self.registry.by_kind(&owner.api_version, &owner.kind).is_some();
            return if known { OwnerState::Lost } else { OwnerState::Solid };
        };
        if !found.namespace().is_empty() && found.namespace() != object.namespace() {
            return OwnerState::Lost;
        }
        if *found.name() != *owner.name {
            return OwnerState::Lost;
        }
        let foreground = found.deleting && found.finalizers.iter().any(|f| &**f == FOREGROUND);
        if foreground && owner.block { OwnerState::WaitsForDependents } else { OwnerState::Solid }
    }

    fn delete_dependents_first(&mut self, now: Timestamp, resource: &Arc<Resource>, object: &Arc<Object>) {
        let dependents: Vec<Place> = self.store.dependents(&object.uid).cloned().collect();
        let mut blocked = false;
        for place in dependents {
            let Some(dependent) = self.store.get(&place.storage, &place.key) else { continue };
            if dependent.owners.iter().any(|o| o.uid == object.uid && o.block) {
                blocked = true;
            }
            if !dependent.deleting {
                self.work.insert(Work::Collect(place));
            }
        }
        if !blocked {
            self.drop_finalizer(now, resource, object, FOREGROUND);
        }
    }

    fn orphan_dependents(&mut self, now: Timestamp, object: &Arc<Object>) {
        let dependents: Vec<Place> = self.store.dependents(&object.uid).cloned().collect();
        for place in dependents {
            let Some(dependent) = self.store.get(&place.storage, &place.key).cloned() else { continue };
            let Some(resource) = self.registry.by_storage(&place.storage).cloned() else { continue };
            self.cut_owners(now, &resource, &dependent, std::slice::from_ref(&object.uid));
        }
    }

    fn cut_owners(&mut self, now: Timestamp, resource: &Arc<Resource>, object: &Object, uids: &[Arc<str>]) {
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
        track_own(now, resource, &object.value(), &mut value, ("kube-controller-manager", ""));
        self.commit(resource, value, now);
    }

    pub(crate) fn drop_finalizer(
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
                self.erase(resource, &object.key, Some(value));
                return;
            }
        } else {
            let kept = json!(kept);
            object::set(&mut value, &["metadata", "finalizers"], kept);
        }
        track_own(now, resource, &object.value(), &mut value, ("kube-controller-manager", ""));
        self.commit(resource, value, now);
    }
}

enum OwnerState {
    Solid,
    Lost,
    WaitsForDependents,
}
