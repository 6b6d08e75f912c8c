//! When to write what only informs people: waiting Workloads that say why, and the figures of queues. Every write costs the
//! API server as much as an admission, so they wait while Workloads start and stop.

use api::MicroTime;

/// How long nothing has started or stopped when the rest is written, in microseconds.
const QUIET_US: i64 = 100_000;

/// The number of writes that start or stop Workloads for each report under load: a Workload is told why it waits
/// even if the load never ends, and reports are a small part of all writes.
const STEPS_PER_REPORT: u32 = 16;

/// How often the figures of a queue are written under load, in microseconds.
const FIGURES_INTERVAL_US: i64 = 5_000_000;

/// The writes that start or stop Workloads.
#[derive(Debug, Default)]
pub(super) struct Load {
    in_flight: u32,
    /// When the last one ended.
    ended: Option<MicroTime>,
    /// Their number since the last report.
    since_report: u32,
}

impl Load {
    /// A Workload is being started or stopped.
    pub(super) fn begin(&mut self) {
        self.in_flight += 1;
        self.since_report += 1;
    }

    /// One of these writes has ended.
    pub(super) fn end(&mut self, now: MicroTime) {
        self.in_flight -= 1;
        self.ended = Some(now);
    }

    /// A report is being written.
    pub(super) fn report(&mut self) {
        self.since_report = 0;
    }

    /// Whether a Workload may say now why it waits.
    pub(super) fn permits_report(&self, now: MicroTime) -> bool {
        self.since_report >= STEPS_PER_REPORT || self.quiet_from().is_some_and(|from| from <= now)
    }

    /// When the rest may be written if nothing starts or stops until then; `None` while something does.
    pub(super) fn quiet_from(&self) -> Option<MicroTime> {
        (self.in_flight == 0)
            .then(|| self.ended.map_or(MicroTime(i64::MIN), |ended| MicroTime(ended.0 + QUIET_US)))
    }

    /// When figures are to be written that are due at a time and were written last at another one.
    pub(super) fn figures_due(&self, due: MicroTime, last: Option<MicroTime>) -> MicroTime {
        let Some(last) = last else { return due };
        let latest = MicroTime(last.0.saturating_add(FIGURES_INTERVAL_US));
        due.max(self.quiet_from().map_or(latest, |from| from.min(latest)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_and_figures_wait_while_workloads_start_but_not_for_ever() {
        let mut load = Load::default();
        let (now, due) = (MicroTime(0), MicroTime(10));
        assert!(load.permits_report(now));
        assert_eq!(load.figures_due(due, Some(now)), due);
        load.begin();
        assert!(!load.permits_report(now));
        assert_eq!(load.figures_due(due, None), due);
        assert_eq!(load.figures_due(due, Some(now)), MicroTime(FIGURES_INTERVAL_US));
        load.end(now);
        assert!(!load.permits_report(now));
        assert_eq!(load.figures_due(due, Some(now)), MicroTime(QUIET_US));
        assert!(load.permits_report(MicroTime(QUIET_US)));
        for _ in 1..STEPS_PER_REPORT {
            load.begin();
        }
        assert!(load.permits_report(now));
        load.report();
        assert!(!load.permits_report(now));
    }
}
