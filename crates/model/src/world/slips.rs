//! Promised starts that moved later, by gang, until the gang starts or is promised its time again.

use std::collections::BTreeMap;

use crate::amount::Time;
use crate::plan::{Plan, Reservation};
use crate::slip::Slip;

/// See the module. A start that moves on and on stays one move: from the time that was promised at first, for the last cause.
#[derive(Clone, Debug, Default)]
pub(super) struct Slips(BTreeMap<String, Slip>);

impl Slips {
    /// How the promise of this gang moved, if it did.
    pub(super) fn of(&self, gang: &str) -> Option<&Slip> {
        self.0.get(gang)
    }

    /// The gang is another one now, or gone.
    pub(super) fn forget(&mut self, gang: &str) {
        self.0.remove(gang);
    }

    /// Folds what a plan says of the starts that were reserved before it. A start that counted on guessed ends was no promise, and as starts
    /// are told to the second, one that moves within its second is kept.
    pub(super) fn accept(&mut self, plan: &Plan, before: &[Reservation]) {
        for slip in &plan.slips {
            let promised = before.iter().any(|reserved| reserved.gang == slip.gang && reserved.declared);
            match self.0.get_mut(&slip.gang) {
                Some(known) => (known.to, known.cause) = (slip.to, slip.cause.clone()),
                None if promised && slip.to.is_none_or(|to| second(to) > second(slip.from)) => {
                    self.0.insert(slip.gang.clone(), slip.clone());
                }
                None => {}
            }
        }
        if self.0.is_empty() {
            return;
        }
        for reserved in &plan.reserved {
            if self.of(&reserved.gang).is_some_and(|known| second(reserved.start) <= second(known.from)) {
                self.forget(&reserved.gang);
            }
        }
        for (uid, _) in plan.verdicts.iter().filter(|(_, verdict)| verdict.shortage().is_none()) {
            self.forget(uid);
        }
    }
}

/// The second that is told of a time.
fn second(time: Time) -> i64 {
    time.0.div_euclid(1_000_000)
}
