//! All metrics with the prefix `muster_`: `docs/metrics.md` lists the same, and every series that is counted is one of
//! them.

/// A metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// Its name without the prefix `muster_`.
    pub name: &'static str,
    /// Its type.
    pub of: MetricType,
    /// Its labels, in alphabetical order.
    pub labels: &'static [&'static str],
    /// What it says.
    pub meaning: &'static str,
}

/// The type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricType {
    /// A total since the start of the process.
    Counter,
    /// A present figure.
    Gauge,
    /// Durations by bucket.
    Histogram,
}

use MetricType::{Counter, Gauge, Histogram};

const fn metric(
    name: &'static str,
    of: MetricType,
    labels: &'static [&'static str],
    meaning: &'static str,
) -> Metric {
    Metric { name, of, labels, meaning }
}

/// All metrics, by name.
pub const METRICS: &[Metric] = &[
    metric(
        "api_request_duration_seconds",
        Histogram,
        &["verb"],
        "Time from sending a request to the API server until its answer begins. Each attempt counts.",
    ),
    metric(
        "api_requests_in_flight",
        Gauge,
        &[],
        "Requests to the API server that are not answered yet. At most 128; further ones wait.",
    ),
    metric(
        "api_requests_total",
        Counter,
        &["code", "resource", "verb"],
        "Requests to the API server by result. The code is that of HTTP: 409 is a conflict, 429 too many requests. 0: no answer.",
    ),
    metric("build_info", Gauge, &["version"], "The version of the program. The value is always 1."),
    metric(
        "cluster_connected",
        Gauge,
        &["cluster"],
        "Whether a worker cluster of this hub is connected: 1, or 0 while it is away or its kubeconfig is refused.",
    ),
    metric(
        "cluster_gangs",
        Gauge,
        &["cluster"],
        "Gangs of this hub for which a worker cluster is chosen, and that have not ended.",
    ),
    metric(
        "events_dropped_total",
        Counter,
        &[],
        "Kubernetes Events that were not recorded because too many waited.",
    ),
    metric(
        "evictions_total",
        Counter,
        &["kind", "reason"],
        "Gangs that lost their admission, by cause. Most return to their queue.",
    ),
    metric(
        "gang_wait_seconds",
        Histogram,
        &["kind"],
        "Time from the creation of a gang, or from its requeuing, until its admission: of an AppWrapper until its objects exist.",
    ),
    metric("leader", Gauge, &[], "1 if this process acts: it holds the lease, or needs none."),
    metric(
        "misplaced_pods",
        Gauge,
        &["namespace"],
        "Pods of gangs that run on another node than the planned one.",
    ),
    metric(
        "oldest_pending_gang_seconds",
        Gauge,
        &["queue"],
        "How long the gang that waits longest in a queue has been pending.",
    ),
    metric(
        "pending_gangs",
        Gauge,
        &["namespace", "queue", "state"],
        "Gangs that wait: new (not tried yet), waiting (until others end), never_fits (on no nodes and no free quota of this cluster), preempting (until its victims are gone), refused (not queued: its status says why).",
    ),
    metric("plan_duration_seconds", Histogram, &[], "Duration of one call of the planner."),
    metric(
        "preemptions_total",
        Counter,
        &["reason"],
        "Gangs that were selected to stop for another one, by the rule that permits it.",
    ),
    metric(
        "queue_depth",
        Gauge,
        &["queue"],
        "What waits for a loop: watch events, results of writes, changed jobs, changed provisioning requests.",
    ),
    metric(
        "reserved_starts",
        Gauge,
        &[],
        "Pending gangs with a reserved start, which backfilled gangs must not delay.",
    ),
    metric(
        "retries_total",
        Counter,
        &["cause", "of"],
        "Writes that failed and are repeated: of steps of AppWrappers, Workloads, jobs, provisioning requests or pods.",
    ),
    metric(
        "round_duration_seconds",
        Histogram,
        &[],
        "Duration of one round of the loop: observations are applied, a plan is made, writes are started.",
    ),
    metric("running_gangs", Gauge, &["namespace", "queue"], "Gangs that hold their capacity."),
    metric("slips_total", Counter, &[], "Reserved starts that moved later than promised."),
    metric(
        "started_gangs_total",
        Counter,
        &["kind"],
        "Gangs that were admitted: of AppWrappers, all objects exist.",
    ),
    metric("steps_in_flight", Gauge, &[], "Writes of AppWrappers and Workloads that are under way."),
    metric(
        "unschedulable_pods",
        Gauge,
        &["namespace"],
        "Pods of gangs that kube-scheduler finds no node for, although they have a planned one.",
    ),
    metric(
        "verdicts_total",
        Counter,
        &["verdict"],
        "New decisions of the planner: admit, preempt, wait (until others end), never (it does not fit even alone).",
    ),
    metric(
        "watch_failures_total",
        Counter,
        &["code", "resource"],
        "Failures of a watch or of its list. Code 0: no answer.",
    ),
    metric(
        "watch_lag_seconds",
        Histogram,
        &[],
        "Time from the answer to a status write until the watch shows the written object.",
    ),
    metric(
        "watch_lists_total",
        Counter,
        &["resource"],
        "Complete lists with which a watch began. After the first: restarts.",
    ),
];

/// Checks in tests that a series is in the catalogue.
pub(super) fn check(name: &str, labels: &[(&str, &str)]) {
    let has_labels = |metric: &Metric| {
        metric.labels.len() == labels.len() && labels.iter().all(|(label, _)| metric.labels.contains(label))
    };
    debug_assert!(
        METRICS.iter().any(|metric| metric.name == name && has_labels(metric)),
        "the metric {name} with the labels {labels:?} is not in the catalogue"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_catalogue_is_sorted() {
        assert!(METRICS.is_sorted_by_key(|metric| metric.name));
        assert!(METRICS.iter().all(|metric| metric.labels.is_sorted()));
    }

    #[test]
    fn no_label_is_the_name_of_an_object() {
        let allowed = [
            "cause",
            "cluster",
            "code",
            "kind",
            "namespace",
            "of",
            "queue",
            "reason",
            "resource",
            "state",
            "verb",
            "verdict",
            "version",
        ];
        for metric in METRICS {
            assert!(metric.labels.iter().all(|label| allowed.contains(label)), "{metric:?}");
            let is_forgotten = metric.of == Gauge || !metric.labels.contains(&"namespace");
            assert!(is_forgotten, "{} would keep the series of deleted namespaces", metric.name);
        }
    }
}
