//! The preemption history: which gang was preempted for which. It prevents two gangs from preempting each other
//! forever; see `docs/planner/preemption.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::World;

/// The preemptors of each victim.
#[derive(Clone, Debug, Default)]
pub(super) struct PreemptionHistory {
    by_victim: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
}

impl PreemptionHistory {
    /// Records a preemption.
    pub(super) fn record(&mut self, victim: &str, by: &str) {
        self.by_victim.entry(victim.into()).or_default().insert(by.into());
    }

    /// Removes a gang that was deleted or changed. Returns whether it had entries.
    pub(super) fn forget(&mut self, uid: &str) -> bool {
        let mut found = self.by_victim.remove(uid).is_some();
        self.by_victim.retain(|_, by| {
            found |= by.remove(uid);
            !by.is_empty()
        });
        found
    }

    /// Removes all entries, after a change of the rules.
    pub(super) fn clear(&mut self) {
        self.by_victim.clear();
    }
}

impl World {
    /// The recorded preemptions as victim and preemptor, by uid. Entries end with either gang, or when the rules
    /// change.
    pub fn preemption_history(&self) -> impl Iterator<Item = (&str, &str)> {
        let rows = self.preemptions.by_victim.iter();
        rows.flat_map(|(victim, by)| by.iter().map(|by| (&**victim, &**by)))
    }

    /// The direct and indirect preemptors of a gang, by uid. The gang must not preempt them.
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
