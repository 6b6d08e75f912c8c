//! When Workloads say why they wait. This costs the API server as much as an admission, so it waits while Workloads come, start
//! and end.

use api::MicroTime;
use index::{Index, KueueChange};

/// How long no Workload has changed when the rest is written, in microseconds.
const QUIET_US: i64 = 250_000;

/// How often a Workload says why it waits under load, in microseconds, even if the load never ends.
const REPORT_INTERVAL_US: i64 = 1_000_000;

/// The number of changes of Workloads for each further report: reports are one percent of all writes.
const CHANGES_PER_REPORT: u32 = 100;

/// The changes of Workloads by anyone, except what they say while they wait.
#[derive(Debug, Default)]
pub(super) struct Load {
    /// The number of Workloads that are being started or stopped.
    in_flight: u32,
    /// When a Workload changed last.
    changed: Option<MicroTime>,
    /// When the last report began.
    reported: Option<MicroTime>,
    /// The number of changes since.
    since_report: u32,
}

impl Load {
    /// A Workload is being started or stopped.
    pub(super) fn begin(&mut self) {
        self.in_flight += 1;
    }

    /// A write that starts or stops a Workload has ended.
    pub(super) fn end(&mut self, now: MicroTime) {
        self.in_flight -= 1;
        self.change(now);
    }

    /// Notes a change of a Workload that this process has not written itself.
    pub(super) fn observe(&mut self, index: &Index, change: &KueueChange, now: MicroTime) {
        if let KueueChange::Workload(new) = change {
            let (uid, version) = (&new.metadata.uid, &new.metadata.resource_version);
            if index.workload(uid).is_none_or(|known| known.object.metadata.resource_version != *version) {
                self.change(now);
            }
        }
    }

    fn change(&mut self, now: MicroTime) {
        self.changed = Some(now);
        self.since_report = self.since_report.saturating_add(1);
    }

    /// A report is being written.
    pub(super) fn report(&mut self, now: MicroTime) {
        self.reported = Some(now);
        self.since_report = 0;
    }

    /// When a Workload may say why it waits, if no other one changes until then.
    pub(super) fn reports_from(&self) -> MicroTime {
        let Some(reported) = self.reported.filter(|_| self.since_report < CHANGES_PER_REPORT) else {
            return MicroTime::default();
        };
        let latest = later(reported, REPORT_INTERVAL_US);
        self.quiet_from().map_or(latest, |from| from.min(latest))
    }

    /// When the rest may be written if no Workload changes until then; `None` while one is being started or stopped.
    fn quiet_from(&self) -> Option<MicroTime> {
        let from = self.changed.map_or_else(MicroTime::default, |changed| later(changed, QUIET_US));
        (self.in_flight == 0).then_some(from)
    }
}

fn later(time: MicroTime, us: i64) -> MicroTime {
    MicroTime(time.0.saturating_add(us))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_wait_while_workloads_change_but_not_for_ever() {
        let mut load = Load::default();
        let now = MicroTime(1_000);
        assert!(load.reports_from() <= now);
        load.report(now);
        assert!(load.reports_from() <= now);
        load.begin();
        assert_eq!(load.reports_from(), later(now, REPORT_INTERVAL_US));
        load.end(now);
        assert_eq!(load.reports_from(), later(now, QUIET_US));
        load.begin();
        for _ in 1..CHANGES_PER_REPORT {
            load.change(now);
        }
        assert!(load.reports_from() <= now);
        load.report(now);
        assert_eq!(load.reports_from(), later(now, REPORT_INTERVAL_US));
    }
}
