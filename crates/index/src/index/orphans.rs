//! Orphans: gated pods that no AppWrapper of the index owns. An AppWrapper may be deleted without its objects, and an
//! author may set the gate. Without a gang nothing assigns a place to such a pod.

use std::collections::BTreeSet;

use super::{Index, Ungating};
use crate::pods::PodRow;

/// Gated pods without an AppWrapper: the uid of the controller of the pod (of the pod if it has none), and of the pod.
pub(super) type Orphans = BTreeSet<(String, String)>;

impl Index {
    /// Whether there are orphans.
    pub fn has_orphans(&self) -> bool {
        !self.orphans.is_empty()
    }

    /// The uids of the controllers of the orphans. An orphan without a controller stands for itself.
    pub fn orphan_owners(&self) -> BTreeSet<&str> {
        self.orphans.iter().map(|(owner, _)| owner.as_str()).collect()
    }

    /// The orphans of one controller.
    pub fn orphans_of<'a>(&'a self, owner: &'a str) -> impl Iterator<Item = &'a PodRow> {
        let from = (owner.to_owned(), String::new());
        let of_owner = self.orphans.range(from..).take_while(move |(other, _)| other == owner);
        of_owner.filter_map(|(_, pod)| self.pods.get(pod))
    }

    /// Ungates the orphans of one controller: they run on any node.
    pub fn ungate_orphans(&mut self, owner: &str) -> Vec<Ungating> {
        let ungatings: Vec<_> = self.orphans_of(owner).map(Ungating::anywhere).collect();
        self.place_pods(&ungatings);
        for ungating in &ungatings {
            self.orphans.remove(&(owner.to_owned(), ungating.uid.clone()));
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

fn orphan_key(row: &PodRow) -> (String, String) {
    (row.owner.clone().unwrap_or_else(|| row.uid.clone()), row.uid.clone())
}
