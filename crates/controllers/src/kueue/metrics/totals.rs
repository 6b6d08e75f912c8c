//! Counters and histograms, which increase with each write of a Workload.

use std::collections::BTreeSet;

use api::MicroTime;
use api::kueue::config::SourceKind;
use api::kueue::status::{ADMITTED, Condition, EVICTED, PODS_READY, QUOTA_RESERVED, Status};
use api::kueue::workload::Workload;
use index::{Index, QueueKey, WorkloadRow};

use super::{GateRemoval, MetricsConfig};
use crate::kueue::step::queued_at;
use crate::meter::series::{Families, Labels, WAITS_US};
use crate::meter::store::Store;

/// All counters and histograms, by name and labels.
#[derive(Debug, Default)]
pub(crate) struct Totals(Store);

/// A written change of a Workload.
pub(crate) struct WorkloadChange<'a> {
    /// The Workload as written.
    pub(crate) workload: &'a Workload,
    /// Its status before.
    pub(crate) before: &'a Status,
    /// The queue of the Workload that preempts it, and the reason of the preemption.
    pub(crate) preemption: Option<(String, &'static str)>,
    /// When.
    pub(crate) now: MicroTime,
}

/// The labels of the queues of a Workload.
struct QueueLabels {
    cluster: Labels,
    /// `None` if the metrics of its local queue are not served.
    local: Option<Labels>,
}

impl Totals {
    /// Counts what a write has changed.
    pub(crate) fn written(&mut self, index: &Index, config: &MetricsConfig, change: &WorkloadChange<'_>) {
        let (before, after) = (change.before, &change.workload.status);
        let outcome = |status: &Status| {
            let known = status.condition(QUOTA_RESERVED)?;
            Some((known.is_true(), known.reason.clone(), known.message.clone()))
        };
        if let Some((is_reserved, ..)) = outcome(after).filter(|new| outcome(before).as_ref() != Some(new)) {
            let result = if is_reserved { "success" } else { "inadmissible" };
            self.count("admission_attempts_total", vec![("result".into(), result.into())]);
        }
        let Some(admission) = after.admission.as_ref().or(before.admission.as_ref()) else { return };
        let queue = admission.cluster_queue.clone();
        let labels = queue_labels(index, config, change.workload, &queue);
        let class = ("priority_class".to_owned(), change.workload.priority_class().to_owned());
        let now = change.now;
        let waited =
            |since: Option<MicroTime>| u64::try_from(now.0 - since.unwrap_or(now).0).unwrap_or_default();
        let becomes = |kind| after.is(kind) && !before.is(kind);
        let queued = waited(Some(queued_at(change.workload, now)));
        if becomes(QUOTA_RESERVED) {
            let names = ["quota_reserved_workloads_total", "local_queue_quota_reserved_workloads_total"];
            self.count_both(names, &labels, &[&class]);
            let names = ["quota_reserved_wait_time_seconds", "local_queue_quota_reserved_wait_time_seconds"];
            self.observe_both(names, &labels, &class, queued);
        }
        if becomes(ADMITTED) {
            let names = ["admitted_workloads_total", "local_queue_admitted_workloads_total"];
            self.count_both(names, &labels, &[&class]);
            let names = ["admission_wait_time_seconds", "local_queue_admission_wait_time_seconds"];
            self.observe_both(names, &labels, &class, queued);
            if !after.admission_checks.is_empty() {
                let names =
                    ["admission_checks_wait_time_seconds", "local_queue_admission_checks_wait_time_seconds"];
                let since = after.condition(QUOTA_RESERVED).and_then(Condition::since);
                self.observe_both(names, &labels, &class, waited(since));
            }
            for cohort in index.cohorts_of(&queue).into_iter().filter(|_| config.cohorts) {
                let meta = index.cohort(cohort).map(|cohort| &cohort.metadata);
                let mut labels = config.custom(SourceKind::Cohort, meta);
                labels.extend([("cohort".into(), cohort.to_owned()), class.clone()]);
                self.count("cohort_subtree_admitted_workloads_total", labels);
            }
        }
        if crate::kueue::step::is_replaced(after) && !crate::kueue::step::is_replaced(before) {
            self.count("replaced_workload_slices_total", labels.cluster.clone());
        }
        if before.admission.is_some() {
            self.count_evictions(before, after, &labels, &class);
        }
        if let Some((preemptor, reason)) = &change.preemption {
            let meta = index.cluster_queue(preemptor).map(|queue| &queue.metadata);
            let mut labels = config.custom(SourceKind::ClusterQueue, meta);
            labels.extend([
                ("preempting_cluster_queue".into(), preemptor.clone()),
                ("reason".into(), (*reason).to_owned()),
            ]);
            self.count("preempted_workloads_total", labels);
        }
    }

    fn count_evictions(
        &mut self,
        before: &Status,
        after: &Status,
        labels: &QueueLabels,
        class: &(String, String),
    ) {
        for eviction in &after.scheduling_stats.evictions {
            let known = before.scheduling_stats.evictions.iter().find(|known| {
                known.reason == eviction.reason && known.underlying_cause == eviction.underlying_cause
            });
            if known.is_some_and(|known| known.count >= eviction.count) {
                continue;
            }
            let reason = ("reason".to_owned(), eviction.reason.clone());
            let cause = ("underlying_cause".to_owned(), eviction.underlying_cause.clone());
            let more = [class, &reason, &cause];
            let names = ["evicted_workloads_total", "local_queue_evicted_workloads_total"];
            self.count_both(names, labels, &more);
            if known.is_none() {
                self.count("evicted_workloads_once_total", with(&labels.cluster, &more));
            }
            let ready = after.condition(PODS_READY).filter(|ready| ready.is_true());
            let since =
                ready.and_then(Condition::since).zip(after.condition(EVICTED).and_then(Condition::since));
            if let Some((ready, evicted)) = since {
                let labels = with(&labels.cluster, &[&reason, &cause]);
                self.observe("pods_ready_to_evicted_time_seconds", labels, us_between(ready, evicted));
            }
        }
    }

    /// Measures how long the pods of a Workload took to become ready, since it queued and since its admission.
    pub(crate) fn pods_ready(&mut self, index: &Index, config: &MetricsConfig, workload: &Workload) {
        let status = &workload.status;
        let since = |kind| status.condition(kind).and_then(Condition::since);
        let (Some(ready), Some(admitted)) = (since(PODS_READY), since(ADMITTED)) else { return };
        let Some(admission) = &status.admission else { return };
        let labels = queue_labels(index, config, workload, &admission.cluster_queue);
        let class = ("priority_class".to_owned(), workload.priority_class().to_owned());
        let names = ["ready_wait_time_seconds", "local_queue_ready_wait_time_seconds"];
        self.observe_both(names, &labels, &class, us_between(queued_at(workload, ready), ready));
        let names =
            ["admitted_until_ready_wait_time_seconds", "local_queue_admitted_until_ready_wait_time_seconds"];
        self.observe_both(names, &labels, &class, us_between(admitted, ready));
    }

    /// Measures how long after the admission a gate of a pod was removed.
    pub(super) fn gate_removed(
        &mut self,
        index: &Index,
        config: &MetricsConfig,
        removal: &GateRemoval,
        now: MicroTime,
    ) {
        let meta = index.cluster_queue(&removal.cluster_queue).map(|queue| &queue.metadata);
        let mut labels = config.custom(SourceKind::ClusterQueue, meta);
        labels.extend([
            ("name".into(), removal.gate.to_owned()),
            ("cluster_queue".into(), removal.cluster_queue.clone()),
            ("is_group".into(), removal.is_group.to_string()),
        ]);
        self.observe("pod_scheduling_gate_removal_seconds", labels, us_between(removal.admitted, now));
    }

    /// Counts that a Workload has ended.
    pub(crate) fn finished(&mut self, index: &Index, config: &MetricsConfig, row: &WorkloadRow) {
        let workload = &row.object;
        let admission = workload.status.admission.as_ref();
        let queue = admission.map(|admission| admission.cluster_queue.as_str());
        // An evicted one may end without quota.
        let queue = queue.or_else(|| index.cluster_queue_of(row)).unwrap_or_default();
        let labels = queue_labels(index, config, workload, queue);
        let class = ("priority_class".to_owned(), workload.priority_class().to_owned());
        let names = ["finished_workloads_total", "local_queue_finished_workloads_total"];
        self.count_both(names, &labels, &[&class]);
    }

    /// Counts that an evicted Workload has released its quota, so many microseconds after its eviction.
    pub(crate) fn released(
        &mut self,
        index: &Index,
        config: &MetricsConfig,
        queue: &str,
        reason: &str,
        us: u64,
    ) {
        let meta = index.cluster_queue(queue).map(|queue| &queue.metadata);
        let mut labels = config.custom(SourceKind::ClusterQueue, meta);
        labels.extend([("cluster_queue".into(), queue.to_owned()), ("reason".into(), reason.to_owned())]);
        self.observe("workload_eviction_latency_seconds", labels, us);
    }

    /// Forgets the series of a queue that is deleted.
    pub(crate) fn forget(&mut self, key: &QueueKey) {
        let is_of = |labels: &Labels| {
            let has =
                |name: &str, value: &str| labels.iter().any(|label| label.0 == name && label.1 == value);
            match key {
                QueueKey::Cluster(queue) => {
                    has("cluster_queue", queue) || has("preempting_cluster_queue", queue)
                }
                QueueKey::Local(namespace, name) => has("namespace", namespace) && has("name", name),
                QueueKey::Cohort(cohort) => has("cohort", cohort),
                QueueKey::Flavor(_) | QueueKey::Topology(_) | QueueKey::Check(_) => false,
            }
        };
        self.0.retain(|labels| !is_of(labels));
    }

    /// The cohorts with series.
    pub(crate) fn cohorts(&self) -> BTreeSet<String> {
        self.0
            .counter_labels()
            .flatten()
            .filter(|(name, _)| name == "cohort")
            .map(|(_, cohort)| cohort.clone())
            .collect()
    }

    fn count(&mut self, name: &'static str, labels: Labels) {
        self.0.count(name, labels, 1);
    }

    fn observe(&mut self, name: &'static str, labels: Labels, us: u64) {
        self.0.observe(name, labels, &WAITS_US, us);
    }

    /// Counts for the cluster queue and for the local queue.
    fn count_both(&mut self, names: [&'static str; 2], labels: &QueueLabels, more: &[&(String, String)]) {
        self.count(names[0], with(&labels.cluster, more));
        if let Some(local) = &labels.local {
            self.count(names[1], with(local, more));
        }
    }

    fn observe_both(
        &mut self,
        names: [&'static str; 2],
        labels: &QueueLabels,
        class: &(String, String),
        us: u64,
    ) {
        self.observe(names[0], with(&labels.cluster, &[class]), us);
        if let Some(local) = &labels.local {
            self.observe(names[1], with(local, &[class]), us);
        }
    }

    /// Adds all series.
    pub(super) fn write(&self, families: &mut Families) {
        self.0.write(families);
    }
}

/// The time from one moment to another one, in microseconds; zero if it is not later.
fn us_between(from: MicroTime, to: MicroTime) -> u64 {
    u64::try_from(to.0 - from.0).unwrap_or_default()
}

fn with(labels: &Labels, more: &[&(String, String)]) -> Labels {
    labels.iter().chain(more.iter().copied()).cloned().collect()
}

fn queue_labels(index: &Index, config: &MetricsConfig, workload: &Workload, queue: &str) -> QueueLabels {
    let meta = index.cluster_queue(queue).map(|queue| &queue.metadata);
    let mut cluster = config.custom(SourceKind::ClusterQueue, meta);
    cluster.push(("cluster_queue".into(), queue.to_owned()));
    let (namespace, name) = (&workload.metadata.namespace, &workload.spec.queue_name);
    let local = index.local_queue(namespace, name).filter(|queue| config.shows(&queue.metadata));
    let local = local.map(|queue| {
        let mut labels = config.custom(SourceKind::LocalQueue, Some(&queue.metadata));
        labels.extend([("name".into(), name.clone()), ("namespace".into(), namespace.clone())]);
        labels
    });
    QueueLabels { cluster, local }
}
