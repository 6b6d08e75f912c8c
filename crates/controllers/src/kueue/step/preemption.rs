//! Workloads that are preempted.

use api::kueue::workload::JOB_UID;
use index::{Eviction, WorkloadRow};

use super::super::texts;
use super::{About, Decision, WorkloadEvent};

/// The reason of the Event about a Workload that preempts others.
pub(crate) const PREEMPTED_ANOTHER: &str = "PreemptedWorkload";

impl Decision<'_> {
    /// Evicts the Workload for another gang.
    pub(super) fn preempt(&mut self, eviction: &Eviction) {
        let (reason, words) = texts::preemption_reason(eviction.reason);
        let preemptor = self.index.workload(&eviction.preemptor);
        let job = preemptor
            .and_then(|row| row.object.metadata.labels.get(JOB_UID))
            .map_or("UNKNOWN", String::as_str);
        let path = |queue: Option<String>| queue.and_then(|queue| self.index.queue_path(&queue));
        let of_gang = |uid: &str| {
            let world = self.index.world();
            world.gang(uid).map(|gang| world.queue_name(gang.queue).to_owned())
        };
        let unknown = || "UNKNOWN".to_owned();
        let own_path = path(of_gang(self.row.uid())).unwrap_or_else(unknown);
        let wrapper = self.index.world().gang(&eviction.preemptor).filter(|_| preemptor.is_none());
        let text = match wrapper {
            // Kueue knows no preemptor outside of its queues.
            Some(gang) => format!(
                "Preempted to accommodate the AppWrapper {} (UID: {}) due to its higher priority; preemptee path: {own_path}",
                gang.key, gang.uid
            ),
            None => format!(
                "Preempted to accommodate a workload (UID: {}, JobUID: {job}) due to {words}; preemptor path: {}; \
                 preemptee path: {own_path}",
                eviction.preemptor,
                path(of_gang(&eviction.preemptor)).unwrap_or_else(unknown),
            ),
        };
        self.transition().preempt(reason, &text);
        let priority = |row: Option<&WorkloadRow>| {
            let base = row.map_or(0, |row| row.object.spec.priority);
            let boost = row.map_or(0, |row| self.index.priority_boost(row));
            format!("effective priority: {} (base: {base}, boost: {boost})", base.saturating_add(boost))
        };
        let of_preemptor = match wrapper {
            Some(gang) => format!("priority: {}", gang.priority.div_euclid(1_000)),
            None => priority(preemptor),
        };
        let priorities = format!("preemptor {of_preemptor}; preemptee {}", priority(Some(self.row)));
        let meta = &self.row.object.metadata;
        let queue = self.status.admission.as_ref().map_or("", |admission| &admission.cluster_queue);
        let told = WorkloadEvent {
            is_warning: false,
            reason: PREEMPTED_ANOTHER.into(),
            text: format!(
                "Preempted workload {}/{} (UID: {}) in ClusterQueue {queue}; {priorities}",
                meta.namespace, meta.name, meta.uid
            ),
            about: About::Other(eviction.preemptor.clone()),
        };
        self.event(false, "EvictedDueToPreempted", text.clone());
        let named = preemptor.map_or_else(String::new, |row| {
            let meta = &row.object.metadata;
            format!("; preemptor workload: {}/{}", meta.namespace, meta.name)
        });
        self.event(false, "Preempted", format!("{text}; {priorities}{named}"));
        self.events.push(told);
    }
}
