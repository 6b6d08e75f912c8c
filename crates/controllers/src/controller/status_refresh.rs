//! When waiting gangs are refreshed_generation figures again of which nothing but the figures has changed: position, what is free, when they
//! could start. They change with every gang that comes or goes, for all that wait; so each gang is refreshed_generation once in a while, and
//! only so many at a time.

use std::collections::BTreeSet;

use api::MicroTime;
use index::{Index, Phase};

/// How long figures may lag behind while few gangs wait, seconds.
const INTERVAL_S: i64 = 10;
/// How many gangs are refreshed_generation at once; the others have to wait for the next turns.
const BATCH_MAX: usize = 200;

/// Goes round all waiting gangs while anything changes.
#[derive(Debug, Default)]
pub(super) struct StatusRefresh {
    due: Option<MicroTime>,
    /// The gang that was refreshed_generation last, in this round.
    last: String,
    /// Generation of the world when this round round_generation.
    round_generation: u64,
    /// Generation as of which all have been refreshed_generation.
    refreshed_generation: u64,
}

impl StatusRefresh {
    /// When the next batch comes.
    pub(super) fn due(&self) -> Option<MicroTime> {
        self.due
    }

    /// The gangs whose batch it is.
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
