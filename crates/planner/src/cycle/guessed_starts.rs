//! Reserved starts that rely on guessed ends: when their time begins, and what becomes of those that a gang passes.

use model::{Cause, Hold, Snapshot};

use super::Cycle;

impl Cycle<'_> {
    /// Reserves other starts for the gangs whose reserved start an admission has passed.
    pub(super) fn renew_passed_starts(&mut self) {
        let Some(backfill) = &mut self.backfill else { return };
        for next in backfill.reservations.renew_passed(&mut self.ledger, &backfill.timeline) {
            self.activate_held_back(&next);
        }
    }

    /// The time of a guessed start begins with the first gang that it holds back.
    pub(super) fn begin_holds(&mut self) {
        let Snapshot { world, now } = self.snapshot;
        for reserved in self.plan.reserved.iter_mut().filter(|reserved| reserved.hold == Hold::Unused) {
            let Some(key) = world.gang(&reserved.gang).map(|gang| &gang.key) else { continue };
            let delays = |cause: &Cause| matches!(cause, Cause::WouldDelay { gang } if gang == key);
            let mut shortages = self.plan.verdicts.iter().filter_map(|(_, verdict)| verdict.shortage());
            if shortages.any(|shortage| shortage.causes.iter().any(delays)) {
                reserved.hold = Hold::Until(now.after(world.policy().guessed_hold_us));
            }
        }
    }
}
