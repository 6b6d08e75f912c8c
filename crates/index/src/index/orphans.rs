//! Orphans: gated pods that no AppWrapper of the index owns. An AppWrapper may be deleted without its objects, and an
//! author may set the gate. Without a gang nothing assigns a place to such a pod.

use std::collections::BTreeSet;

use super::{Index, Ungating};
use crate::pods::PodRow;

/// The controller of an orphan: its namespace, which is that of the pod, and its uid. An orphan without a controller stands for itself.
pub type OrphanOwner = (String, String);

/// Gated pods without an AppWrapper: the controller of the pod, and the uid of the pod.
pub(super) type Orphans = BTreeSet<(OrphanOwner, String)>;

impl Index {
    /// Whether there are orphans.
    pub fn has_orphans(&self) -> bool {
        !self.orphans.is_empty()
    }

    /// The controllers of the orphans.
    pub fn orphan_owners(&self) -> BTreeSet<&OrphanOwner> {
        self.orphans.iter().map(|(owner, _)| owner).collect()
    }

    /// The orphans of one controller.
    pub fn orphans_of<'a>(&'a self, owner: &'a OrphanOwner) -> impl Iterator<Item = &'a PodRow> {
        let from = (owner.clone(), String::new());
        let of_owner = self.orphans.range(from..).take_while(move |(other, _)| other == owner);
        of_owner.filter_map(|(_, pod)| self.pods.get(pod))
    }

    /// Ungates the orphans of one controller: they run on any node.
    pub fn ungate_orphans(&mut self, owner: &OrphanOwner) -> Vec<Ungating> {
        let ungatings: Vec<_> = self.orphans_of(owner).map(Ungating::anywhere).collect();
        self.place_pods(&ungatings);
        for ungating in &ungatings {
            self.orphans.remove(&(owner.clone(), ungating.uid.clone()));
        }
        ungatings
    }

    /// Updates whether a pod is an orphan, after a change of the pod, of its owners or of its wrapper.
    pub(super) fn update_orphan(&mut self, uid: &str) {
        let Some(row) = self.pods.get(uid) else { return };
        let key = orphan_key(row);
        let has_wrapper =
            || self.ownership(row).is_some_and(|ownership| self.wrappers.contains_key(&ownership.wrapper));
        if row.awaits_placement() && !row.is_deleting && !has_wrapper() {
            self.orphans.insert(key);
        } else {
            self.orphans.remove(&key);
        }
    }

    /// Applies that a pod was deleted or replaced by a newer version.
    pub(super) fn forget_orphan(&mut self, row: &PodRow) {
        self.orphans.remove(&orphan_key(row));
    }
}

fn orphan_key(row: &PodRow) -> (OrphanOwner, String) {
    let owner = row.owner.clone().unwrap_or_else(|| row.uid.clone());
    ((row.namespace.clone(), owner), row.uid.clone())
}
