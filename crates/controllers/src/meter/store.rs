//! Counters and histograms by name and labels.

use std::collections::BTreeMap;

use super::series::{Families, Histogram, Labels};

/// All counters and histograms of one prefix.
#[derive(Debug, Default)]
pub(crate) struct Store {
    counters: BTreeMap<&'static str, BTreeMap<Labels, u64>>,
    histograms: BTreeMap<&'static str, BTreeMap<Labels, Histogram>>,
}

impl Store {
    /// Increases a counter.
    pub(crate) fn count(&mut self, name: &'static str, labels: Labels, by: u64) {
        *self.counters.entry(name).or_default().entry(labels).or_default() += by;
    }

    /// Adds a duration in microseconds to a histogram, whose buckets have these bounds.
    pub(crate) fn observe(&mut self, name: &'static str, labels: Labels, bounds_us: &'static [u64], us: u64) {
        let series = self.histograms.entry(name).or_default();
        series.entry(labels).or_insert_with(|| Histogram::new(bounds_us)).observe(us);
    }

    /// Forgets all series without these labels.
    pub(crate) fn retain(&mut self, is_kept: impl Fn(&Labels) -> bool) {
        for series in self.counters.values_mut() {
            series.retain(|labels, _| is_kept(labels));
        }
        for series in self.histograms.values_mut() {
            series.retain(|labels, _| is_kept(labels));
        }
    }

    /// The labels of all counters.
    pub(crate) fn counter_labels(&self) -> impl Iterator<Item = &Labels> {
        self.counters.values().flat_map(BTreeMap::keys)
    }

    /// Adds all series.
    pub(crate) fn write(&self, families: &mut Families) {
        for (name, series) in &self.counters {
            for (labels, value) in series {
                families.counter(name, labels, *value);
            }
        }
        for (name, series) in &self.histograms {
            for (labels, histogram) in series {
                families.histogram(name, labels, histogram);
            }
        }
    }
}
