//! What is in the cluster and in no plan: AppWrappers and Workloads that are not queued or have ended, and jobs that get no Workload.

use std::collections::BTreeMap;

use api::MicroTime;
use api::kueue::status::FINISHED;
use index::{Index, Phase, WORKLOADS};

use super::{GangReport, of_uid};
use crate::jobs::BlockedJob;

/// What is in no plan.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Unplanned {
    /// What is not queued.
    pub unqueued: Vec<Unqueued>,
    /// The number of AppWrappers and Workloads that have ended, by their resource.
    pub ended: BTreeMap<String, u64>,
    /// Jobs that get no Workload as they are.
    pub blocked_jobs: Vec<BlockedJob>,
}

/// An AppWrapper or a Workload that is not queued.
#[derive(Debug, Clone, PartialEq)]
pub struct Unqueued {
    /// Why it is not.
    pub report: GangReport,
    /// Its priority, rounded down.
    pub priority: i64,
    /// The number of its pods.
    pub pods: u64,
}

/// What has no gang in the World.
pub(super) fn unplanned(index: &Index, now: MicroTime) -> Unplanned {
    let mut found = Unplanned::default();
    let mut add = |uid: &str, kind: &dyn Fn() -> String, is_ended: bool, priority: i64, pods: u64| {
        if is_ended {
            *found.ended.entry(kind()).or_default() += 1;
        } else if let Some(report) =
            Some(uid).filter(|uid| index.world().gang(uid).is_none()).and_then(|uid| of_uid(index, uid, now))
        {
            found.unqueued.push(Unqueued { report, priority, pods });
        }
    };
    for wrapper in index.wrappers() {
        let pods = wrapper.summary.pod_sets.iter().map(|set| u64::from(set.count)).sum();
        let priority = wrapper.priority_milli().div_euclid(1000);
        let is_ended = wrapper.phase == Phase::Finished;
        add(&wrapper.uid, &|| wrapper.key.group.resource(), is_ended, priority, pods);
    }
    for row in index.workloads() {
        let pods = row.object.spec.pod_sets.iter().map(|set| u64::from(set.count)).sum();
        let is_ended = row.object.status.is(FINISHED);
        add(row.uid(), &|| WORKLOADS.to_owned(), is_ended, row.object.spec.priority.into(), pods);
    }
    found
}
