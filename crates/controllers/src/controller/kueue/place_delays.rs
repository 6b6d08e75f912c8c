//! What is done about the places of Workloads after a while: other places than those on failed nodes, pods that cannot run where they
//! have to, and Events about places that are not found.

use std::collections::{BTreeMap, BTreeSet};

use api::MicroTime;
use index::{Index, PodRow, WorkloadRow};

use super::subject;
use crate::controller::State;
use crate::kueue::step::WorkloadEvent;

/// How long other nodes may follow one that has failed, before its places are replaced, and how long a pod may wait where it cannot run.
/// The first delay of Kueue's second pass (`pkg/cache/queue/second_pass_queue.go`, v0.19).
const SETTLING_US: i64 = 1_000_000;

/// The longest pause between two Events about the same Workload, in seconds.
const PAUSE_MAX_S: i64 = 30;

/// See the module.
#[derive(Default)]
pub(super) struct PlaceDelays {
    /// When the next node has not been ready for too long.
    pub(super) unready_due: Option<MicroTime>,
    /// Since when nodes of Workloads have failed, as long as others may follow, by uid.
    settling: BTreeMap<String, MicroTime>,
    /// Since when pods cannot run where they have to, by the uids of their Workload and theirs.
    stuck: BTreeMap<String, BTreeMap<String, MicroTime>>,
    /// Workloads that get no places after their checks, by uid.
    unplaced: BTreeMap<String, Unplaced>,
}

/// A Workload that gets no places after its checks.
struct Unplaced {
    /// How often an Event has told it.
    told: u32,
    /// When it is told next.
    due: MicroTime,
}

impl PlaceDelays {
    pub(super) fn forget(&mut self, workload: &str) {
        self.settling.remove(workload);
        self.stuck.remove(workload);
        self.unplaced.remove(workload);
    }
}

impl State {
    /// Asks for other places than those on failed nodes when no other node has followed for a while.
    pub(super) fn settle_failures(
        &mut self,
        index: &mut Index,
        uid: &str,
        is_settling: bool,
        now: MicroTime,
    ) {
        if !is_settling {
            self.kueue.places.settling.remove(uid);
            return;
        }
        let since = *self.kueue.places.settling.entry(uid.to_owned()).or_insert(now);
        let due = after(since, SETTLING_US);
        if due > now {
            self.kueue.due.insert((due, uid.to_owned()));
        } else {
            self.kueue.places.settling.remove(uid);
            index.end_settling(uid);
        }
    }

    /// Lets pods fail that have not been able to run where they have to for a while.
    pub(super) fn fail_stuck_pods(&mut self, index: &Index, row: &WorkloadRow, now: MicroTime) {
        let stuck = index.stuck_pods(row);
        if stuck.is_empty() {
            self.kueue.places.stuck.remove(row.uid());
            return;
        }
        let uids: BTreeSet<&str> = stuck.iter().map(|pod| pod.uid.as_str()).collect();
        let since = self.kueue.places.stuck.entry(row.uid().to_owned()).or_default();
        since.retain(|uid, _| uids.contains(uid.as_str()));
        let mut failed: Vec<PodRow> = Vec::new();
        for pod in stuck {
            let due = after(*since.entry(pod.uid.clone()).or_insert(now), SETTLING_US);
            if due > now {
                self.kueue.due.insert((due, row.uid().to_owned()));
            } else {
                failed.push(pod.clone());
            }
        }
        self.fail_pods(&failed, now);
    }

    /// Records the Event about a Workload without places after its checks: after 1 s, then after 2 s and so on up to 30 s, as
    /// Kueue does at each attempt (`pkg/cache/queue/second_pass_queue.go`, v0.19).
    pub(super) fn tell_second_pass(
        &mut self,
        index: &Index,
        uid: &str,
        failed: Option<WorkloadEvent>,
        now: MicroTime,
    ) {
        let Some(failed) = failed else {
            self.kueue.places.unplaced.remove(uid);
            return;
        };
        let pause = |told: u32| after(now, (1 << told.min(5)).min(PAUSE_MAX_S) * 1_000_000);
        let unplaced = self.kueue.places.unplaced.entry(uid.to_owned());
        let unplaced = unplaced.or_insert_with(|| Unplaced { told: 0, due: pause(0) });
        let is_due = unplaced.due <= now;
        if is_due {
            unplaced.told = unplaced.told.saturating_add(1);
            unplaced.due = pause(unplaced.told);
        }
        self.kueue.due.insert((unplaced.due, uid.to_owned()));
        if let Some(row) = index.workload(uid).filter(|_| is_due) {
            self.recorder.record_event(
                &subject(&row.object),
                failed.is_warning,
                &failed.reason,
                &failed.text,
            );
        }
    }
}

fn after(since: MicroTime, pause_us: i64) -> MicroTime {
    MicroTime(since.0.saturating_add(pause_us))
}
