//! Until when gangs hold others back for a guessed start, until they start or are deleted.

use std::collections::BTreeMap;

use crate::amount::Time;
use crate::plan::Plan;

/// See the module. A gang that loses its reservation, or changes, does not get the time anew.
#[derive(Clone, Debug, Default)]
pub(super) struct Holds(BTreeMap<String, Time>);

impl Holds {
    /// The end of the time of this gang, if it has begun.
    pub(super) fn until(&self, gang: &str) -> Option<Time> {
        self.0.get(gang).copied()
    }

    /// All gangs whose time has begun.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, Time)> {
        self.0.iter().map(|(gang, until)| (gang.as_str(), *until))
    }

    /// Drops the time of a gang that was deleted.
    pub(super) fn forget(&mut self, gang: &str) {
        self.0.remove(gang);
    }

    /// Folds a plan: the times that begin with it, and the gangs that start.
    pub(super) fn fold(&mut self, plan: &Plan) {
        for reserved in &plan.reserved {
            if let Some(until) = reserved.hold.until() {
                self.0.insert(reserved.gang.clone(), until);
            }
        }
        if !self.0.is_empty() {
            for (uid, _) in plan.verdicts.iter().filter(|(_, verdict)| verdict.shortage().is_none()) {
                self.forget(uid);
            }
        }
    }
}
