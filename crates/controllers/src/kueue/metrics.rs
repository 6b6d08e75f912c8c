//! Kueue's metrics: names, types and labels after `pkg/metrics/metrics.go` of Kueue v0.19.
//!
//! - `gauges`: gauges, computed from the index when they are read;
//! - `totals`: counters and histograms, which increase with each write of a Workload.

mod gauges;
mod totals;

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use api::Meta;
use api::kueue::config::{CustomLabel, LabelSource, SourceKind};
use api::selector::LabelSelector;
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
#[derive(Clone)]
pub struct KueueMetrics {
    config: Arc<MetricsConfig>,
    index: Arc<RwLock<Index>>,
    totals: Arc<Mutex<Totals>>,
}

impl KueueMetrics {
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
        self.totals.lock().unwrap_or_else(PoisonError::into_inner).write(&mut families);
        families.text()
    }
}
