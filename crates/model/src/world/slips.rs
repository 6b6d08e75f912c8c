//! Slips of reserved starts by gang, until the gang starts or gets its reserved start back.

use std::collections::BTreeMap;

use crate::amount::Time;
use crate::plan::{Plan, Reservation};
use crate::slip::Slip;

/// See the module. Successive slips of a gang count as one: from the first reserved start, with the last cause.
#[derive(Clone, Debug, Default)]
pub(super) struct Slips(BTreeMap<String, Slip>);

impl Slips {
    /// The slip of this gang, if there is one.
    pub(super) fn of(&self, gang: &str) -> Option<&Slip> {
        self.0.get(gang)
    }

    /// Drops the slip of a gang that changed or was deleted.
    pub(super) fn forget(&mut self, gang: &str) {
        self.0.remove(gang);
    }

    /// Folds the slips of a plan; `before` are the reservations of the previous plan. A reserved start that depended
    /// on undeclared run times was an estimate, so it cannot slip. Starts are reported in seconds, so a move within
    /// the same second is no slip.
    pub(super) fn fold(&mut self, plan: &Plan, before: &[Reservation]) {
        for slip in &plan.slips {
            let was_reserved = before.iter().any(|reserved| reserved.gang == slip.gang && reserved.declared);
            match self.0.get_mut(&slip.gang) {
                Some(merged) => (merged.to, merged.cause) = (slip.to, slip.cause.clone()),
                None if was_reserved && slip.to.is_none_or(|to| second(to) > second(slip.from)) => {
                    self.0.insert(slip.gang.clone(), slip.clone());
                }
                None => {}
            }
        }
        if self.0.is_empty() {
            return;
        }
        for reserved in &plan.reserved {
            if self.of(&reserved.gang).is_some_and(|slip| second(reserved.start) <= second(slip.from)) {
                self.forget(&reserved.gang);
            }
        }
        for (uid, _) in plan.verdicts.iter().filter(|(_, verdict)| verdict.shortage().is_none()) {
            self.forget(uid);
        }
    }
}

/// The second in which a time is reported.
fn second(time: Time) -> i64 {
    time.0.div_euclid(1_000_000)
}
