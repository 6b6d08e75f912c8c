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
    /// AppWrappers and Workloads that are not queued, and why.
    pub unqueued: Vec<GangReport>,
    /// The number of AppWrappers and Workloads that have ended, by their resource.
    pub ended: BTreeMap<String, u64>,
    /// Jobs that get no Workload as they are.
    pub blocked_jobs: Vec<BlockedJob>,
}

/// What has no gang in the World.
pub(super) fn unplanned(index: &Index, now: MicroTime) -> Unplanned {
    let mut found = Unplanned::default();
    let mut add = |uid: &str, kind: &dyn Fn() -> String, is_ended: bool| {
        if is_ended {
            *found.ended.entry(kind()).or_default() += 1;
        } else if index.world().gang(uid).is_none() {
            found.unqueued.extend(of_uid(index, uid, now));
        }
    };
    for wrapper in index.wrappers() {
        add(&wrapper.uid, &|| wrapper.key.group.resource(), wrapper.phase == Phase::Finished);
    }
    for row in index.workloads() {
        add(row.uid(), &|| WORKLOADS.to_owned(), row.object.status.is(FINISHED));
    }
    found
}
