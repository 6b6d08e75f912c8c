//! What is counted about other clusters. Names and labels of the counters are those of `MultiKueue` (`pkg/metrics` of Kueue v0.19). Admins
//! name clusters and queues; the series of both end with the cluster.

use super::series::{Families, Labels};
use super::{Meter, owned};

/// The gauges of a cluster.
const CONNECTED: &str = "cluster_connected";
const GANGS: &str = "cluster_gangs";

/// The counters, and what they mean.
const DISPATCHED: (&str, &str) =
    ("workloads_dispatched_total", "Workloads of the hub that were created in a worker cluster.");
const ADMITTED: (&str, &str) = (
    "workloads_admitted_total",
    "Workloads of the hub that began to run in a worker cluster. Each time counts, so that of one that was evicted, too.",
);

impl Meter {
    /// A Workload of a queue was created in a worker cluster.
    pub fn dispatched(&self, queue: &str, cluster: &str) {
        self.of_cluster(DISPATCHED.0, queue, cluster);
    }

    /// A Workload of a queue runs in a worker cluster.
    pub fn admitted_in(&self, queue: &str, cluster: &str) {
        self.of_cluster(ADMITTED.0, queue, cluster);
    }

    fn of_cluster(&self, name: &'static str, queue: &str, cluster: &str) {
        let labels = owned(&[("cluster_queue", queue), ("cluster", cluster)]);
        self.figures().multikueue.count(name, labels, 1);
    }

    /// Whether a worker cluster is connected, and how many gangs of the hub run there.
    pub fn set_cluster(&self, cluster: &str, is_connected: bool, gangs: usize) {
        self.set(CONNECTED, &[("cluster", cluster)], usize::from(is_connected));
        self.set(GANGS, &[("cluster", cluster)], gangs);
    }

    /// A cluster is no worker any more.
    pub fn forget_cluster(&self, cluster: &str) {
        let is_kept =
            |labels: &Labels| !labels.iter().any(|(name, value)| name == "cluster" && value == cluster);
        let mut figures = self.figures();
        figures.multikueue.retain(is_kept);
        for name in [CONNECTED, GANGS] {
            figures.gauges.entry(name).or_default().retain(|labels, _| is_kept(labels));
        }
    }

    /// The counters as text.
    pub(super) fn multikueue(&self, role: &str) -> String {
        let mut families = Families::new("multikueue_", owned(&[("replica_role", role)]));
        for (name, meaning) in [DISPATCHED, ADMITTED] {
            families.describe(name, meaning);
        }
        self.figures().multikueue.write(&mut families);
        families.text()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_series_of_a_cluster_end_with_it() {
        let meter = Meter::default();
        for cluster in ["east", "west"] {
            meter.dispatched("team", cluster);
            meter.admitted_in("team", cluster);
            meter.set_cluster(cluster, true, 1);
        }
        meter.dispatched("team", "west");
        meter.forget_cluster("east");
        let text = meter.multikueue("leader");
        let west = "{cluster_queue=\"team\",cluster=\"west\",replica_role=\"leader\"}";
        assert!(text.contains(&format!("\nmultikueue_workloads_dispatched_total{west} 2\n")), "{text}");
        assert!(text.contains(&format!("\nmultikueue_workloads_admitted_total{west} 1\n")), "{text}");
        let mut families = Families::new("muster_", Labels::new());
        meter.write(&mut families);
        let all = text + &families.text();
        assert!(all.contains("\nmuster_cluster_gangs{cluster=\"west\"} 1\n"), "{all}");
        assert!(!all.contains("east"), "{all}");
    }
}
