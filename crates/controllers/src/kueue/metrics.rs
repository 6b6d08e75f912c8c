//! Kueue's metrics: names, types and labels after `pkg/metrics/metrics.go` of Kueue v0.19.
//!
//! - `gauges`: gauges, computed from the index when they are read;
//! - `totals`: counters and histograms, which increase with each write of a Workload.

mod gauges;
mod totals;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use api::kueue::config::{CustomLabel, LabelSource, SourceKind};
use api::kueue::status::{ADMITTED, Condition};
use api::kueue::workload::Workload;
use api::selector::LabelSelector;
use api::{Meta, MicroTime};
use index::Index;

use crate::meter::series::{Families, Labels};

pub(crate) use totals::{Totals, WorkloadChange};

/// The value of a further label that is not told apart.
const UNTRACKED: &str = "kueue.x-k8s.io/_UNTRACKED_VALUE_";

/// Which of Kueue's metrics are served.
#[derive(Debug, Clone, Default)]
pub struct MetricsConfig {
    /// Quota and usage of each cluster queue.
    pub cluster_queue_resources: bool,
    /// Metrics of the local queues with these labels; `None`: of none.
    pub local_queues: Option<LabelSelector>,
    /// Metrics of cohorts.
    pub cohorts: bool,
    /// Shares of queues and cohorts.
    pub shares: bool,
    /// The causes why Workloads are not admitted.
    pub causes: bool,
    /// Further labels, from labels or annotations of objects.
    pub custom_labels: Vec<CustomLabel>,
}

impl MetricsConfig {
    /// The further labels of an object; their values are empty if there is no object.
    fn custom(&self, kind: SourceKind, meta: Option<&Meta>) -> Labels {
        let of_kind = |label: &&CustomLabel| label.source_kind.unwrap_or(SourceKind::ClusterQueue) == kind;
        let labels = self.custom_labels.iter().filter(of_kind).map(|label| {
            let value = meta.and_then(|meta| match label.source() {
                LabelSource::Annotation(key) => meta.annotations.get(key),
                LabelSource::Label(key) => meta.labels.get(key),
            });
            let value = value.map_or("", String::as_str);
            let is_tracked = |values: &Vec<String>| values.is_empty() || values.iter().any(|of| of == value);
            let value = if label.tracked_values.as_ref().is_none_or(is_tracked) { value } else { UNTRACKED };
            (format!("custom_{}", label.name), value.to_owned())
        });
        labels.collect()
    }

    /// Whether the metrics of a local queue are served.
    fn shows(&self, queue: &Meta) -> bool {
        self.local_queues.as_ref().is_some_and(|selector| selector.matches(&queue.labels))
    }
}

/// Kueue's metrics of a controller. Clones share them.
#[derive(Clone, Default)]
pub struct KueueMetrics {
    config: Arc<MetricsConfig>,
    index: Arc<RwLock<Index>>,
    totals: Arc<Mutex<Totals>>,
}

/// A gate of a pod that is removed since its Workload is admitted.
#[derive(Debug, Clone)]
pub(crate) struct GateRemoval {
    gate: &'static str,
    cluster_queue: String,
    is_group: bool,
    admitted: MicroTime,
}

impl GateRemoval {
    /// `None` if the Workload is not admitted.
    pub(crate) fn of(gate: &'static str, workload: &Workload) -> Option<Self> {
        let admitted = workload.status.condition(ADMITTED).filter(|admitted| admitted.is_true());
        let (admitted, admission) =
            admitted.and_then(Condition::since).zip(workload.status.admission.as_ref())?;
        let is_group = workload.is_of_pod_group();
        Some(Self { gate, cluster_queue: admission.cluster_queue.clone(), is_group, admitted })
    }
}

impl KueueMetrics {
    /// Measures how long after the admission a gate was removed.
    pub(crate) fn gate_removed(&self, removal: &GateRemoval, now: MicroTime) {
        let index = self.index.read().unwrap_or_else(PoisonError::into_inner);
        self.totals().gate_removed(&index, &self.config, removal, now);
    }

    /// The counters and histograms.
    pub(crate) fn totals(&self) -> MutexGuard<'_, Totals> {
        self.totals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn new(config: MetricsConfig, index: Arc<RwLock<Index>>, totals: Arc<Mutex<Totals>>) -> Self {
        Self { config: Arc::new(config), index, totals }
    }

    /// The metrics in the text format of Prometheus. `role` is the value of the label `replica_role`.
    pub fn text(&self, role: &str) -> String {
        let mut families = Families::new("kueue_", vec![("replica_role".into(), role.into())]);
        {
            let index = self.index.read().unwrap_or_else(PoisonError::into_inner);
            gauges::write(&index, &self.config, &mut families);
        }
        self.totals().write(&mut families);
        families.text()
    }
}
