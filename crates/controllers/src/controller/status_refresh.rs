//! When waiting gangs are told figures again of which nothing but the figures has changed: position, what is free, when they
//! could start. They change with every gang that comes or goes, for all that wait; so each gang is told once in a while, and
//! only so many at a time.

use std::collections::BTreeSet;

use api::MicroTime;
use index::{Index, Phase};

/// How long figures may lag behind while few gangs wait, seconds.
const EVERY_S: i64 = 10;
/// How many gangs are told at once; the others have to wait for the next turns.
const AT_ONCE: usize = 200;

/// Goes round all waiting gangs while anything changes.
#[derive(Debug, Default)]
pub(super) struct StatusRefresh {
    due: Option<MicroTime>,
    /// The gang that was told last, in this round.
    last: String,
    /// Generation of the world when this round began.
    began: u64,
    /// Generation as of which all have been told.
    told: u64,
}

impl StatusRefresh {
    /// When the next turn comes.
    pub(super) fn due(&self) -> Option<MicroTime> {
        self.due
    }

    /// The gangs whose turn it is.
    pub(super) fn turn(&mut self, index: &Index, now: MicroTime) -> BTreeSet<String> {
        let generation = index.world().generation();
        match self.due {
            Some(due) if due <= now => {}
            Some(_) => return BTreeSet::new(),
            None => {
                if generation != self.told {
                    self.due = Some(now.plus_s(EVERY_S));
                }
                return BTreeSet::new();
            }
        }
        if self.last.is_empty() {
            self.began = generation;
        }
        let waiting = index.wrappers_after(&self.last).filter(|wrapper| wrapper.phase == Phase::Waiting);
        let turn: Vec<String> = waiting.take(AT_ONCE).map(|wrapper| wrapper.uid.clone()).collect();
        self.due = None;
        self.last.clear();
        if turn.len() == AT_ONCE {
            self.last.clone_from(&turn[AT_ONCE - 1]);
            self.due = Some(now.plus_s(EVERY_S));
        } else {
            self.told = self.began;
        }
        turn.into_iter().collect()
    }
}
