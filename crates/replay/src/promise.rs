//! Promised starts: what was told to whom, and whether it was kept.
//!
//! A start is promised to the gang that others must not delay, when every end that the start counts on was declared.
//! It may come earlier; when it moves later, that is a slip, and it needs a cause.

use std::collections::{BTreeMap, BTreeSet};

use model::Time;

/// How promises were kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Promises {
    /// How many jobs were promised a start.
    pub made: usize,
    /// Every time that a promised start moved later.
    pub slips: Vec<Slip>,
}

/// A promised start that moved later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slip {
    /// The job, by its index in the trace.
    pub job: usize,
    /// By how much, in microseconds.
    pub by_us: i64,
    /// Since the promise was made, a job ran longer than it had declared.
    pub overrun: bool,
}

/// Watches the plans of a replay.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    promises: Promises,
    /// By job: the start that it was promised last, and when.
    open: BTreeMap<usize, Promised>,
    /// The last time at which a job went on beyond its declared end.
    overran: Option<Time>,
    /// Who was ever promised a start.
    heard: BTreeSet<usize>,
}

#[derive(Clone, Copy, Debug)]
struct Promised {
    start: Time,
    at: Time,
}

impl Watch {
    /// A job goes on although it declared to have ended by now.
    pub(crate) fn overran(&mut self, now: Time) {
        self.overran = Some(now);
    }

    /// A start is computed for a job: a promise if it counts on declared ends only.
    pub(crate) fn told(&mut self, job: usize, now: Time, start: Time, declared: bool) {
        self.compare(job, now, start);
        if declared {
            self.promises.made += usize::from(self.heard.insert(job));
            self.open.insert(job, Promised { start, at: now });
        }
    }

    /// A job starts.
    pub(crate) fn started(&mut self, job: usize, now: Time) {
        self.compare(job, now, now);
        self.open.remove(&job);
    }

    pub(crate) fn into_promises(self) -> Promises {
        self.promises
    }

    fn compare(&mut self, job: usize, now: Time, start: Time) {
        let Some(promised) = self.open.get(&job).copied() else { return };
        if start > promised.start {
            let overrun = self.overran.is_some_and(|overran| overran >= promised.at && overran <= now);
            self.promises.slips.push(Slip { job, by_us: start.since(promised.start), overrun });
            self.open.remove(&job); // A slip is counted once; what is told next is a new promise.
        }
    }
}
