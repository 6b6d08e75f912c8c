//! What a gang lacks that gets its flavors one after another: the reasons of its last attempt.

use std::collections::BTreeSet;

use model::{GangState, Snapshot};

use crate::flavors::{Attempts, Lack, is_stepwise};
use crate::ledger::Ledger;
use crate::nomination;
use crate::preemption::{Choice, Chooser, Holders, ReleasedHolders};
use crate::request::GangRequest;

/// What each pod set of a pending gang lacks, flavor by flavor, as far as pod sets are looked at. `None` if quota alone does
/// not decide about the gang, or if it lacks nothing: then it may start, or wait for gangs that end.
pub fn lacks(snapshot: &Snapshot<'_>, gang: &str) -> Option<Vec<Lack>> {
    let world = snapshot.world;
    let gang = world.gang(gang)?;
    let shape = gang.shape();
    let request = GangRequest::of_gang(gang, &shape);
    if gang.state != GangState::Waiting || !is_stepwise(world, &request) {
        return None;
    }
    let mut ledger = Ledger::of(world);
    let awaiting: Vec<_> =
        nomination::stepwise(world).filter_map(|other| world.charged(&other.uid)).cloned().collect();
    let present = nomination::without(&ledger.quotas, &awaiting);
    let holders = Holders::of(world);
    let victims = BTreeSet::new();
    let released = ReleasedHolders::of(&mut ledger, &holders, &victims);
    let chooser = Chooser {
        snapshot,
        holders: &holders,
        gang,
        request: &request,
        present: &present,
        preemptors: &world.preemptors_of(&gang.uid),
        is_spared: &|uid| uid == gang.uid,
    };
    let mut attempts = Attempts::default();
    let lacks = loop {
        match chooser.choose(&mut ledger, &attempts.from) {
            Ok(Choice::Lacks(attempt, _)) if attempts.may_continue_at(&attempt.next) => {
                attempts.continue_at(attempt.next);
            }
            Ok(Choice::Lacks(attempt, _)) => break Some(attempt.lacks),
            Ok(Choice::Fits(_) | Choice::Preempts(..)) | Err(_) => break None,
        }
    };
    released.undo(&mut ledger, &[]);
    lacks
}
