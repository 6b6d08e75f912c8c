//! The charges of all gangs, by gang and by quota node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::World;
use super::quotas::Charges;
use crate::gang::Gang;
use crate::quota::QuotaIx;

/// See the module. Gangs without charges are left out.
#[derive(Clone, Debug, Default)]
pub(super) struct Charged {
    by_gang: BTreeMap<Arc<str>, Charges>,
    by_node: BTreeMap<QuotaIx, BTreeSet<Arc<str>>>,
}

impl Charged {
    pub(super) fn get(&self, uid: &str) -> Option<&Charges> {
        self.by_gang.get(uid)
    }

    /// The charges of all gangs.
    pub(super) fn all(&self) -> impl Iterator<Item = &Charges> {
        self.by_gang.values()
    }

    /// The uids of the gangs that are charged to each node, by node.
    pub(super) fn by_node(&self) -> impl Iterator<Item = (QuotaIx, &BTreeSet<Arc<str>>)> {
        self.by_node.iter().map(|(node, uids)| (*node, uids))
    }

    /// Replaces the charges of a gang, and returns the former ones.
    pub(super) fn replace(&mut self, uid: &str, charges: &Charges) -> Charges {
        if self.by_gang.get(uid).is_some_and(|old| old == charges) {
            return charges.clone();
        }
        let old = self.by_gang.remove(uid).unwrap_or_default();
        for (node, _) in old.keys() {
            if let Some(uids) = self.by_node.get_mut(node) {
                uids.remove(uid);
            }
        }
        if !charges.is_empty() {
            let uid: Arc<str> = uid.into();
            for (node, _) in charges.keys() {
                self.by_node.entry(*node).or_default().insert(uid.clone());
            }
            self.by_gang.insert(uid, charges.clone());
        }
        old
    }
}

impl World {
    /// The gangs that hold capacity in the trees with these roots, by uid.
    pub fn charged_in(&self, roots: &BTreeSet<QuotaIx>) -> impl Iterator<Item = &Gang> {
        let in_trees =
            self.quotas.charged.by_node().filter(|(node, _)| roots.contains(&self.forest().root(*node)));
        let uids: BTreeSet<&Arc<str>> = in_trees.flat_map(|(_, uids)| uids).collect();
        uids.into_iter().filter_map(|uid| self.gang(uid))
    }
}
