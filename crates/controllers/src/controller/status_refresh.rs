//! Refreshes the status of pending gangs of which only figures have changed: queue position, free resources, expected
//! start. These figures change for all pending gangs whenever a gang starts or ends. So each gang is refreshed at
//! intervals, and a limited number of gangs at a time.

use std::collections::BTreeSet;

use api::MicroTime;
use index::{Index, Phase};

/// Interval between two batches, in seconds: maximum age of the figures while few gangs are pending.
const INTERVAL_S: i64 = 10;
/// Maximum number of gangs in a batch; the others follow in the next batches.
const BATCH_MAX: usize = 200;

/// Iterates over all pending gangs in batches while the world changes.
#[derive(Debug, Default)]
pub(super) struct StatusRefresh {
    due: Option<MicroTime>,
    /// The uid of the last gang of the previous batch in this round.
    last: String,
    /// Generation of the world at the start of this round.
    round_generation: u64,
    /// Generation of the world that all gangs show.
    refreshed_generation: u64,
}

impl StatusRefresh {
    /// When the next batch is due.
    pub(super) fn due(&self) -> Option<MicroTime> {
        self.due
    }

    /// The gangs to refresh now, by uid.
    pub(super) fn next_batch(&mut self, index: &Index, now: MicroTime) -> BTreeSet<String> {
        let generation = index.world().generation();
        match self.due {
            Some(due) if due <= now => {}
            Some(_) => return BTreeSet::new(),
            None => {
                if generation != self.refreshed_generation {
                    self.due = Some(now.plus_s(INTERVAL_S));
                }
                return BTreeSet::new();
            }
        }
        if self.last.is_empty() {
            self.round_generation = generation;
        }
        let waiting = index.wrappers_after(&self.last).filter(|wrapper| wrapper.phase == Phase::Waiting);
        let batch: Vec<String> = waiting.take(BATCH_MAX).map(|wrapper| wrapper.uid.clone()).collect();
        self.due = None;
        self.last.clear();
        if batch.len() == BATCH_MAX {
            self.last.clone_from(&batch[BATCH_MAX - 1]);
            self.due = Some(now.plus_s(INTERVAL_S));
        } else {
            self.refreshed_generation = self.round_generation;
        }
        batch.into_iter().collect()
    }
}
