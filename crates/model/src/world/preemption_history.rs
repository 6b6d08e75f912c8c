//! Who was stopped for whom: what keeps two gangs from stopping each other for ever; see `docs/planner/preemption.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::World;

/// For each gang, those that it was stopped for.
#[derive(Clone, Debug, Default)]
pub(super) struct PreemptionHistory {
    by_victim: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
}

impl PreemptionHistory {
    /// Notes that one gang was stopped for another.
    pub(super) fn record(&mut self, victim: &str, by: &str) {
        self.by_victim.entry(victim.into()).or_default().insert(by.into());
    }

    /// Forgets a gang that is gone or is no longer what it was. True if there was anything to forget.
    pub(super) fn forget(&mut self, uid: &str) -> bool {
        let mut found = self.by_victim.remove(uid).is_some();
        self.by_victim.retain(|_, by| {
            found |= by.remove(uid);
            !by.is_empty()
        });
        found
    }

    /// Forgets all: the rules have changed.
    pub(super) fn clear(&mut self) {
        self.by_victim.clear();
    }
}

impl World {
    /// Who was stopped for whom, as far as both exist and the rules are still the same: victim and preemptor, by uid.
    pub fn preemption_history(&self) -> impl Iterator<Item = (&str, &str)> {
        let rows = self.preemptions.by_victim.iter();
        rows.flat_map(|(victim, by)| by.iter().map(|by| (&**victim, &**by)))
    }

    /// The gangs that one was stopped for, directly or because those were stopped for others, by uid. It may not take their
    /// places.
    pub fn preemptors_of(&self, uid: &str) -> BTreeSet<&str> {
        let by = |uid: &str| self.preemptions.by_victim.get(uid).into_iter().flatten().map(|by| &**by);
        let mut found: BTreeSet<&str> = by(uid).collect();
        let mut next: Vec<&str> = found.iter().copied().collect();
        while let Some(uid) = next.pop() {
            next.extend(by(uid).filter(|by| found.insert(*by)));
        }
        found
    }
}
