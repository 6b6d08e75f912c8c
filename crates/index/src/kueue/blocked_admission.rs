//! Admission one by one: while the pods of a Workload with quota are not ready, no other Workload is admitted. After
//! `waitForPodsReady.blockAdmission` of Kueue.

use std::collections::BTreeSet;

use api::kueue::status::PODS_READY;

use super::{WorkloadPhase, WorkloadRow};
use crate::Index;

/// What blocks admission, and what waits for its end.
#[derive(Clone, Debug, Default)]
pub(super) struct BlockedAdmission {
    /// The uids of Workloads with quota whose pods are not ready.
    unready: BTreeSet<String>,
    /// The uids of Workloads that fit and wait.
    waiting: BTreeSet<String>,
}

impl Index {
    /// Whether no Workload is admitted now.
    pub(super) fn is_admission_blocked(&self) -> bool {
        self.kueue.rules.blocks_admission && !self.kueue.blocked.unready.is_empty()
    }

    /// Applies that the phase of a Workload, or the readiness of its pods, may have changed. When all are ready, the Workloads
    /// that wait for it are planned again.
    pub(super) fn note_pods_ready(&mut self, uid: &str) {
        if !self.kueue.rules.blocks_admission {
            return;
        }
        let row = self.kueue.workloads.get(uid);
        let is_unready = |row: &WorkloadRow| row.holds_quota() && !row.object.status.is(PODS_READY);
        let (unready, waits) =
            row.map_or((false, false), |row| (is_unready(row), row.phase == WorkloadPhase::AwaitsPods));
        let blocked = &mut self.kueue.blocked;
        set(&mut blocked.unready, uid, unready);
        set(&mut blocked.waiting, uid, waits);
        if blocked.unready.is_empty() {
            for uid in std::mem::take(&mut blocked.waiting) {
                self.publish_workload(&uid);
            }
        }
    }
}

fn set(uids: &mut BTreeSet<String>, uid: &str, is_in: bool) {
    if is_in {
        uids.insert(uid.to_owned());
    } else {
        uids.remove(uid);
    }
}
