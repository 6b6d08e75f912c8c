//! When a job may be started again that something else suspends while it is admitted, such as the controller of an owner that is not
//! in a queue. Each start makes pods, and each stop removes them: a job that does not stay started is started less and less often.

use std::collections::BTreeMap;
use std::time::Duration;

use api::{MicroTime, OwnerKey};

use crate::backoff::ExponentialBackoff;

/// The pauses after the starts. The longest one is that of a container that crashes.
const PAUSES: ExponentialBackoff = ExponentialBackoff::new(Duration::from_secs(1), Duration::from_mins(5));
/// So long after its last start, a job counts as one that stays started, in microseconds: 10 min.
const FORGOTTEN_US: i64 = 600_000_000;

/// The starts of jobs, by what an owner reference to the job names.
#[derive(Debug, Default)]
pub(super) struct Restarts(BTreeMap<OwnerKey, Starts>);

/// The starts of a job with the same admission.
#[derive(Debug)]
struct Starts {
    /// When the Workload was admitted. A job that is admitted again starts at once.
    admitted: MicroTime,
    /// The pauses that are left.
    pauses: ExponentialBackoff,
    last: MicroTime,
    /// From when on it may be started again.
    due: MicroTime,
}

impl Restarts {
    /// From when on a job may be started with the quota that it got then. `None`: it has not been started.
    pub(super) fn due(&self, job: &OwnerKey, admitted: MicroTime) -> Option<MicroTime> {
        self.0.get(job).filter(|starts| starts.admitted == admitted).map(|starts| starts.due)
    }

    /// A job has been started. Returns from when on it may be started again.
    pub(super) fn note(&mut self, job: OwnerKey, admitted: MicroTime, now: MicroTime) -> MicroTime {
        let goes_on = |starts: &Starts| starts.admitted == admitted && now.0 - starts.last.0 <= FORGOTTEN_US;
        let known = self.0.remove(&job).filter(goes_on);
        let mut pauses = known.map_or(PAUSES, |starts| starts.pauses);
        let pause = pauses.next().map_or(0, |pause| i64::try_from(pause.as_micros()).unwrap_or(i64::MAX));
        let due = MicroTime(now.0.saturating_add(pause));
        self.0.insert(job, Starts { admitted, pauses, last: now, due });
        due
    }

    /// A job is gone.
    pub(super) fn forget(&mut self, job: &OwnerKey) {
        self.0.remove(job);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;

    fn job() -> OwnerKey {
        let meta = api::Meta { name: "j".into(), uid: "u".into(), ..api::Meta::default() };
        meta.key("batch/v1", "Job")
    }

    #[test]
    fn a_job_that_does_not_stay_started_is_started_less_and_less_often() {
        let (mut restarts, admitted) = (Restarts::default(), MicroTime(0));
        assert_eq!(restarts.due(&job(), admitted), None);
        let mut now = MicroTime(0);
        let mut pauses = Vec::new();
        for _ in 0..11 {
            let due = restarts.note(job(), admitted, now);
            assert_eq!(restarts.due(&job(), admitted), Some(due));
            pauses.push((due.0 - now.0) / SECOND);
            now = due;
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
    }

    #[test]
    fn a_job_that_is_admitted_again_or_has_stayed_started_is_started_at_once() {
        let (mut restarts, admitted) = (Restarts::default(), MicroTime(0));
        for _ in 0..5 {
            restarts.note(job(), admitted, MicroTime(0));
        }
        assert_eq!(restarts.due(&job(), MicroTime(SECOND)), None, "it is admitted again");
        let later = MicroTime(3_600 * SECOND);
        assert!(restarts.due(&job(), admitted).is_some_and(|due| due < later));
        let due = restarts.note(job(), admitted, later);
        assert_eq!(due, MicroTime(later.0 + SECOND), "the earlier starts are forgotten");
    }
}
