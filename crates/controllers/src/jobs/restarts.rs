//! When a job may be started again that something else suspends while it is admitted, such as the controller of an owner that is not
//! in a queue. Each start makes pods, and each stop removes them: a job that does not stay started is started less and less often.

use std::collections::BTreeMap;

use api::{MicroTime, OwnerKey};

/// The pause after the first start, in microseconds. It doubles with each start.
const PAUSE_MIN_US: i64 = 1_000_000;
/// The longest pause, in microseconds: 5 min, as of a container that crashes.
const PAUSE_MAX_US: i64 = 300_000_000;
/// So long after its last start, a job counts as one that stays started, in microseconds.
const FORGOTTEN_US: i64 = 2 * PAUSE_MAX_US;

/// The starts of jobs, by what an owner reference to the job names.
#[derive(Debug, Default)]
pub(super) struct Restarts(BTreeMap<OwnerKey, Starts>);

/// The starts of a job with the same admission.
#[derive(Debug)]
struct Starts {
    /// When the Workload was admitted. A job that is admitted again starts at once.
    admitted: MicroTime,
    count: u32,
    last: MicroTime,
}

impl Starts {
    fn due(&self) -> MicroTime {
        let doublings = self.count.saturating_sub(1).min(16);
        MicroTime(self.last.0 + PAUSE_MAX_US.min(PAUSE_MIN_US << doublings))
    }
}

impl Restarts {
    /// From when on a job may be started with the quota that it got then. `None`: it has not been started.
    pub(super) fn due(&self, job: &OwnerKey, admitted: MicroTime) -> Option<MicroTime> {
        self.0.get(job).filter(|starts| starts.admitted == admitted).map(Starts::due)
    }

    /// A job has been started. Returns from when on it may be started again.
    pub(super) fn note(&mut self, job: OwnerKey, admitted: MicroTime, now: MicroTime) -> MicroTime {
        let starts = self.0.entry(job).or_insert(Starts { admitted, count: 0, last: now });
        let is_other = starts.admitted != admitted || now.0 - starts.last.0 > FORGOTTEN_US;
        let count = if is_other { 1 } else { starts.count.saturating_add(1) };
        *starts = Starts { admitted, count, last: now };
        starts.due()
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
