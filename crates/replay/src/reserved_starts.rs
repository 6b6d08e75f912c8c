//! Reserved starts of pending jobs, and their slips.
//!
//! The planner reserves a start for a blocked gang, which backfilled gangs must not delay. The reservation is firm when all
//! completions that it relies on have a declared run time. A firm start may move earlier; a move to later is a slip.

use std::collections::{BTreeMap, BTreeSet};

use model::Time;

/// The firm reservations of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReservedStarts {
    /// The number of jobs that received a firm reserved start.
    pub jobs: usize,
    /// All slips of firm reserved starts.
    pub slips: Vec<Slip>,
}

/// A firm reserved start that moved later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slip {
    /// The job, by its index in the trace.
    pub job: usize,
    /// The length of the move, in microseconds.
    pub by_us: i64,
    /// Whether a job exceeded its declared run time since the reservation was made.
    pub overrun: bool,
}

/// Records the slips of reserved starts, from one plan to the next.
#[derive(Debug, Default)]
pub(crate) struct SlipTracker {
    reserved_starts: ReservedStarts,
    /// The current firm reservation of each pending job.
    current: BTreeMap<usize, Reservation>,
    /// The last time at which a running job reached its declared end without completing.
    last_overrun: Option<Time>,
    /// The jobs that ever received a firm reservation.
    ever_reserved: BTreeSet<usize>,
}

#[derive(Clone, Copy, Debug)]
struct Reservation {
    start: Time,
    /// When the reservation was made.
    made_at: Time,
}

impl SlipTracker {
    /// Records that a running job has reached its declared end without completing.
    pub(crate) fn job_overran(&mut self, now: Time) {
        self.last_overrun = Some(now);
    }

    /// Records the start that a plan reserves for a job. The reservation is firm when `declared` is set.
    pub(crate) fn start_reserved(&mut self, job: usize, now: Time, start: Time, declared: bool) {
        self.record_slip(job, now, start);
        if declared {
            self.reserved_starts.jobs += usize::from(self.ever_reserved.insert(job));
            self.current.insert(job, Reservation { start, made_at: now });
        }
    }

    /// Records the start of a job.
    pub(crate) fn job_started(&mut self, job: usize, now: Time) {
        self.record_slip(job, now, now);
        self.current.remove(&job);
    }

    pub(crate) fn into_reserved_starts(self) -> ReservedStarts {
        self.reserved_starts
    }

    fn record_slip(&mut self, job: usize, now: Time, start: Time) {
        let Some(reservation) = self.current.get(&job).copied() else { return };
        if start > reservation.start {
            let overrun = self.last_overrun.is_some_and(|last| last >= reservation.made_at && last <= now);
            self.reserved_starts.slips.push(Slip { job, by_us: start.since(reservation.start), overrun });
            // A slip counts once. The next firm start is a new reservation.
            self.current.remove(&job);
        }
    }
}
