//! Ungates orphans: gated pods whose AppWrapper does not exist any more, or that the index cannot follow to it.
//!
//! `kubectl delete appwrapper --cascade=orphan` leaves objects whose templates have the gate, also for pods that are
//! created later. A watch may lag behind, so the owners of each orphan are read from the API server first.

use std::collections::{BTreeMap, BTreeSet};

use api::MicroTime;
use index::{Index, KindState, OrphanOwner};

use super::State;
use crate::observations::Observation;
use crate::owners::Owners;

/// How long orphans wait for the watches of their owners, and the interval between two checks, in seconds.
const INTERVAL_S: i64 = 3;
/// How long an orphan stays gated whose AppWrapper may exist, or that garbage collection is about to delete, in seconds.
const PATIENCE_S: i64 = 30;

/// The orphans that wait for a check, by their controller.
#[derive(Debug, Default)]
pub(super) struct Orphans {
    since: BTreeMap<OrphanOwner, MicroTime>,
    checking: BTreeSet<OrphanOwner>,
    due: Option<MicroTime>,
}

impl Orphans {
    /// When the next check is due.
    pub(super) fn due(&self) -> Option<MicroTime> {
        self.due
    }
}

impl State {
    /// Reads the owners of orphans that were orphans at the last check already.
    pub(super) fn check_orphans(&mut self) {
        let shared = self.index.clone();
        let index = Self::index(&shared);
        if !self.has_synced || !index.has_orphans() {
            self.orphans.since.clear();
            self.orphans.due = None;
            return;
        }
        let now = self.now();
        if *self.orphans.due.get_or_insert(now.plus_s(INTERVAL_S)) > now {
            return;
        }
        self.orphans.due = Some(now.plus_s(INTERVAL_S));
        let owners = index.orphan_owners();
        self.orphans.since.retain(|owner, _| owners.contains(owner));
        for owner in owners {
            if self.orphans.since.contains_key(owner) {
                self.check_orphans_of(&index, owner);
            } else {
                self.orphans.since.insert(owner.clone(), now);
            }
        }
    }

    /// Reads the owners of one of the orphans of a controller; the others have the same.
    fn check_orphans_of(&mut self, index: &Index, owner: &OrphanOwner) {
        let Some(pod) = index.orphans_of(owner).next() else { return };
        if !self.orphans.checking.insert(owner.clone()) {
            return;
        }
        let (uid, namespace, name) = (pod.uid.clone(), pod.namespace.clone(), pod.name.clone());
        let (client, permits) = (self.client.clone(), self.ungatings.clone());
        let (observations, owner) = (self.observations.clone(), owner.clone());
        self.tasks.spawn(async move {
            // The semaphore is never closed.
            let permit = permits.acquire_owned().await.ok();
            let owners = Owners::read(&client, &namespace, &name, &uid).await;
            drop(permit);
            // The receiver is gone when the controller has ended.
            drop(observations.send(Observation::OrphansChecked(owner, owners)));
        });
    }

    /// Applies the answer to a check: ungates the orphans that nothing else ungates.
    pub(super) fn orphans_checked(&mut self, index: &mut Index, owner: &OrphanOwner, owners: &Owners) {
        self.orphans.checking.remove(owner);
        let Some(since) = self.orphans.since.get(owner) else { return };
        let is_overdue = since.plus_s(PATIENCE_S) <= self.now();
        let is_alone = match owners {
            Owners::WithoutAppWrapper => true,
            Owners::NothingToDo => false,
            Owners::Deleted | Owners::Unknown(_) => is_overdue,
            // While a kind cannot be watched, its AppWrappers say so, and their pods wait.
            Owners::AppWrapper(kinds) => {
                is_overdue
                    && kinds.iter().all(|kind| {
                        !matches!(index.kind(kind), Some(KindState::Unknown | KindState::Unavailable { .. }))
                    })
            }
        };
        if !is_alone {
            return;
        }
        for ungating in index.ungate_orphans(owner) {
            tracing::info!(
                pod = %format!("{}/{}", ungating.namespace, ungating.name),
                ?owners,
                "removing the scheduling gate of a pod without a gang"
            );
            self.ungate(ungating, None);
        }
    }
}
