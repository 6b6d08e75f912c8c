//! Muster's own metrics: what the process counts and measures. Kueue's are in `kueue::metrics`.
//!
//! No label has a value that an author of objects chooses, apart from namespaces, which admins grant. The series with a
//! namespace are gauges: they are computed from the index when they are read, and end with the gangs of the namespace.
//! So nobody makes the process, or Prometheus, remember more and more series.
//!
//! - `catalogue`: all metrics with their types, labels and meanings;
//! - `clusters`: what is counted about other clusters, as `MultiKueue` does;
//! - `gauges`: gauges, computed from the index when they are read;
//! - `requests`: measures the requests of a client, bounds and repeats them;
//! - `store`, `series`: counters and histograms; the text format of Prometheus.

mod catalogue;
mod clusters;
mod gauges;
mod requests;
pub(crate) mod series;
pub(crate) mod store;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use index::Index;
use opentelemetry::global::BoxedTracer;
use tokio::time::Instant;

pub use catalogue::{METRICS, Metric, MetricType};

use crate::config::Clock;
use crate::kueue::metrics::KueueMetrics;
use crate::traces::Traces;
use series::{CALLS_US, Families, Labels, WAITS_US};
use store::Store;

/// Writes of statuses whose watch events are awaited, at most. Further ones are not measured.
const AWAITED_MAX: usize = 256;

/// Counters, histograms and figures of one process. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Meter {
    figures: Arc<Mutex<Figures>>,
    pub(crate) traces: Traces,
}

#[derive(Debug, Default)]
struct Figures {
    store: Store,
    /// Counters with the prefix `multikueue_`.
    multikueue: Store,
    /// Gauges that the process sets.
    gauges: BTreeMap<&'static str, BTreeMap<Labels, u64>>,
    /// Versions of objects that were written, by uid, and when the answers arrived.
    awaited: BTreeMap<String, (String, Instant)>,
}

impl Meter {
    fn figures(&self) -> MutexGuard<'_, Figures> {
        self.figures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One that also makes traces with this tracer.
    pub fn tracing(tracer: BoxedTracer) -> Self {
        Self { traces: Traces::of(tracer), ..Self::default() }
    }

    /// Increases a counter of the catalogue.
    pub(crate) fn count(&self, name: &'static str, labels: &[(&str, &str)]) {
        self.add(name, labels, 1);
    }

    /// Increases a counter of the catalogue by a number.
    pub(crate) fn add(&self, name: &'static str, labels: &[(&str, &str)], by: u64) {
        catalogue::check(name, labels);
        self.figures().store.count(name, owned(labels), by);
    }

    /// Adds a wait to a histogram of the catalogue.
    pub(crate) fn waited(&self, name: &'static str, labels: &[(&str, &str)], us: i64) {
        catalogue::check(name, labels);
        let us = u64::try_from(us).unwrap_or_default();
        self.figures().store.observe(name, owned(labels), &WAITS_US, us);
    }

    /// Adds the duration of a request or a computation to a histogram of the catalogue.
    pub(crate) fn took(&self, name: &'static str, labels: &[(&str, &str)], took: Duration) {
        catalogue::check(name, labels);
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.figures().store.observe(name, owned(labels), &CALLS_US, us);
    }

    /// Sets a gauge of the catalogue.
    pub(crate) fn set(&self, name: &'static str, labels: &[(&str, &str)], value: usize) {
        catalogue::check(name, labels);
        let value = u64::try_from(value).unwrap_or(u64::MAX);
        self.figures().gauges.entry(name).or_default().insert(owned(labels), value);
    }

    /// Changes a gauge of the catalogue without labels by one.
    fn step(&self, name: &'static str, is_up: bool) {
        catalogue::check(name, &[]);
        let mut figures = self.figures();
        let value = figures.gauges.entry(name).or_default().entry(Labels::new()).or_default();
        *value = if is_up { *value + 1 } else { value.saturating_sub(1) };
    }

    /// An object was written: the time until a watch shows this version of it is the lag of the watch. `known` is the
    /// version that the watch has shown.
    pub(crate) fn written(&self, uid: &str, version: &str, known: &str) {
        let mut figures = self.figures();
        if !index::is_newer(version, known) {
            figures.store.observe("watch_lag_seconds", Labels::new(), &CALLS_US, 0);
        } else if figures.awaited.len() < AWAITED_MAX {
            figures.awaited.insert(uid.to_owned(), (version.to_owned(), Instant::now()));
        }
    }

    /// A watch shows this version of an object; an empty version: it is gone.
    pub(crate) fn seen(&self, uid: &str, version: &str) {
        let mut figures = self.figures();
        let Some((awaited, since)) = figures.awaited.get(uid) else { return };
        let is_shown = awaited == version || index::is_newer(version, awaited);
        let lag = u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX);
        if is_shown || version.is_empty() {
            figures.awaited.remove(uid);
        }
        if is_shown {
            figures.store.observe("watch_lag_seconds", Labels::new(), &CALLS_US, lag);
        }
    }

    fn write(&self, families: &mut Families) {
        let figures = self.figures();
        figures.store.write(families);
        for (name, series) in &figures.gauges {
            for (labels, value) in series {
                families.gauge(name, &[], labels, *value);
            }
        }
    }
}

fn owned(labels: &[(&str, &str)]) -> Labels {
    labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// Whether a process acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It needs no lease.
    Standalone,
    /// It holds the lease.
    Leader,
    /// Another process holds the lease.
    Follower,
}

impl Role {
    /// The value of the label `replica_role`.
    fn name(self) -> &'static str {
        match self {
            Self::Standalone => "standalone",
            Self::Leader => "leader",
            Self::Follower => "follower",
        }
    }
}

/// All metrics of a controller. Clones share them.
#[derive(Clone)]
pub struct Metrics {
    pub(crate) meter: Meter,
    pub(crate) index: Arc<RwLock<Index>>,
    pub(crate) clock: Clock,
    /// `None`: nothing is done about Kueue's objects.
    pub(crate) kueue: Option<KueueMetrics>,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    /// The metrics in the text format of Prometheus.
    pub fn text(&self, role: Role) -> String {
        let mut families = Families::new("muster_", Labels::new());
        for Metric { name, meaning, .. } in METRICS {
            families.describe(name, meaning);
        }
        families.gauge("build_info", &[("version", env!("CARGO_PKG_VERSION"))], &Labels::new(), true);
        families.gauge("leader", &[], &Labels::new(), role != Role::Follower);
        {
            let now = api::MicroTime::from((self.clock)());
            let index = self.index.read().unwrap_or_else(PoisonError::into_inner);
            gauges::write(&index, now, &mut families);
        }
        self.meter.write(&mut families);
        let kueue = self.kueue.as_ref().map(|kueue| build_info_of_kueue() + &kueue.text(role.name()));
        families.text() + &kueue.unwrap_or_default() + &self.meter.multikueue(role.name())
    }
}

/// `kueue_build_info`, with the labels that Kueue's has.
fn build_info_of_kueue() -> String {
    let version = concat!("muster-", env!("CARGO_PKG_VERSION"));
    let platform = format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH);
    let labels = [
        ("git_version", version),
        ("git_commit", ""),
        ("build_date", ""),
        ("go_version", ""),
        ("compiler", "rustc"),
        ("platform", &platform),
    ];
    let mut families = Families::new("kueue_", Labels::new());
    families.describe("build_info", "The version of the controller. The value is always 1.");
    families.gauge("build_info", &labels, &Labels::new(), true);
    families.text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_lag_of_a_watch_is_from_the_answer_until_its_event() {
        let meter = Meter::default();
        meter.written("a", "7", "5");
        meter.written("c", "7", "8"); // The watch was faster than the answer.
        tokio::time::advance(Duration::from_millis(30)).await;
        meter.seen("a", "6"); // An older event.
        meter.seen("b", "8");
        tokio::time::advance(Duration::from_millis(30)).await;
        meter.seen("a", "9"); // A later version shows the awaited one, too.
        meter.seen("a", "10");
        let mut families = Families::new("muster_", Labels::new());
        meter.write(&mut families);
        let text = families.text();
        assert!(text.contains("muster_watch_lag_seconds_sum 0.06\n"), "{text}");
        assert!(text.contains("muster_watch_lag_seconds_count 2\n"), "{text}");
    }

    #[test]
    fn versions_that_no_watch_shows_are_not_kept_without_end() {
        let meter = Meter::default();
        for uid in 0..10_000 {
            meter.written(&uid.to_string(), "2", "1");
        }
        assert_eq!(meter.figures().awaited.len(), AWAITED_MAX);
        for uid in 0..10_000 {
            meter.seen(&uid.to_string(), "");
        }
        assert!(meter.figures().awaited.is_empty());
    }
}
