//! Workloads whose place others with more pods take.

use api::kueue::status::{FINISHED, Status};
use api::kueue::workload::JOB_UID;
use index::WorkloadRow;

use super::Decision;

/// The reason of the end of a Workload whose place another one has taken.
const REPLACED: &str = "WorkloadSliceReplaced";

/// Whether another Workload has taken the place of one with this status.
pub(crate) fn is_replaced(status: &Status) -> bool {
    status.condition(FINISHED).is_some_and(|ended| ended.is_true() && ended.reason == REPLACED)
}

impl Decision<'_> {
    /// Ends a Workload whose place another one has taken.
    pub(super) fn replace(&mut self, by: &WorkloadRow) {
        let job = by.object.metadata.labels.get(JOB_UID).map_or("", String::as_str);
        let text = format!(
            "Replaced to accommodate a workload (UID: {}, JobUID: {job}) due to workload slice aggregation",
            by.uid()
        );
        self.transition().finish(REPLACED, &text);
        self.event(false, REPLACED, text);
    }
}
