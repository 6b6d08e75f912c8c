//! The report about a Workload of Kueue.

use std::collections::BTreeMap;

use api::kueue::status::PodSetAssignment;
use controllers::{GangStatus, PendingStatus, WorkloadPlaces, WorkloadReport, WorkloadReportPhase};
use dashboard::GangStatusView;
use serde_json::{Value, json};

use super::Mode;

/// Lines for a reader.
pub(super) fn text(report: &WorkloadReport, mode: Mode) -> String {
    let WorkloadReport { key, local_queue, cluster_queue, phase, stopped, meant, object: _ } = report;
    let is_actual = mode == Mode::Actual;
    let mut lines = match phase {
        WorkloadReportPhase::Pending(None) => {
            vec!["waits; this controller admits no Workloads, another program does".into()]
        }
        WorkloadReportPhase::Pending(Some(GangStatus::Pending(wait))) => pending(wait, is_actual),
        WorkloadReportPhase::Pending(Some(status)) if is_actual => vec![status.describe()],
        WorkloadReportPhase::Pending(Some(GangStatus::Preempting { victims, .. })) => {
            let names: Vec<String> = victims.iter().map(ToString::to_string).collect();
            vec![format!("would start after preempting {}", names.join(", "))]
        }
        WorkloadReportPhase::Pending(Some(status)) => vec![status.describe_outcome()],
        WorkloadReportPhase::NotQueued(causes) => {
            vec![format!(
                "{} be queued: {}",
                if is_actual { "cannot" } else { "could not" },
                causes.join("; ")
            )]
        }
        WorkloadReportPhase::Holds(places) => holds(places, mode),
        WorkloadReportPhase::Stopping(cause) => vec![
            format!("is to stop: {cause}"),
            "it holds its quota until the controller of its job reports that its pods are gone".into(),
        ],
        WorkloadReportPhase::Ended(cause) => vec![format!("has ended: {cause}")],
    };
    lines.extend(meant.clone());
    lines.push(match (local_queue.as_str(), cluster_queue) {
        ("", _) => "it names no LocalQueue".into(),
        (local, Some(cluster)) => format!("LocalQueue {local} of ClusterQueue {cluster}"),
        (local, None) => format!("LocalQueue {local}"),
    });
    lines.extend(stopped.as_ref().map(|stopped| format!("stopped before: {stopped}")));
    format!("Workload {key} {}\n", lines.join("\n  "))
}

fn pending(wait: &PendingStatus, is_actual: bool) -> Vec<String> {
    let verb = if is_actual { "is" } else { "would be" };
    if wait.is_never {
        return vec![
            format!("{verb} pending: it can never start with this quota and these nodes"),
            wait.shortage.to_string(),
        ];
    }
    let behind = wait.behind.as_ref().map_or_else(String::new, |gang| format!(", behind {gang}"));
    let (place, of) = (wait.position.place, wait.position.of);
    let mut lines =
        vec![format!("{verb} pending, at position {place} of {of}{behind}"), wait.shortage.to_string()];
    lines.extend(wait.start.as_ref().map(ToString::to_string));
    if let Some(slip) = &wait.slip {
        lines.push(slip.status_text());
    }
    lines
}

fn holds(places: &WorkloadPlaces, mode: Mode) -> Vec<String> {
    let WorkloadPlaces {
        is_admitted,
        since,
        ends,
        pod_sets,
        nodes,
        open_checks,
        cluster,
        asked,
        awaits_places,
    } = places;
    let since = since.map_or_else(String::new, |since| format!(" since {since}"));
    let place = match cluster {
        Some(cluster) => format!(" in cluster {cluster}"),
        None if nodes.0.is_empty() => String::new(),
        None => format!(" on {nodes}"),
    };
    let first = match (mode, is_admitted) {
        (Mode::Actual, true) => format!("is admitted{since}{place}"),
        (Mode::Actual, false) if awaits_places.is_some() => {
            format!("holds quota{since} and waits for places of its pods")
        }
        (Mode::Actual, false) if open_checks.is_empty() => format!("holds quota{since}{place}"),
        (Mode::Actual, false) => format!("holds quota{since} and waits for its admission checks"),
        (Mode::Simulated, true) if place.is_empty() => "would be admitted now".into(),
        (Mode::Simulated, true) => format!("would be admitted now,{place}"),
        (Mode::Simulated, false) => "would get quota now and wait for its admission checks".into(),
    };
    let mut lines = vec![first];
    lines.extend(pod_sets.iter().map(pod_set));
    lines.extend(open_checks.iter().map(|(name, state, message)| {
        let message = if message.is_empty() { String::new() } else { format!(": {message}") };
        format!("check {name} is {state}{message}")
    }));
    if !asked.is_empty() {
        lines.push(format!("clusters asked for room: {}", asked.join(", ")));
    }
    lines.extend(awaits_places.iter().filter(|lacks| !lacks.is_empty()).cloned());
    lines.extend(ends.map(|end| format!("must have ended at {end}")));
    lines
}

/// A pod set with its flavors: `main: 3 pods, cpu in on-demand`.
fn pod_set(set: &PodSetAssignment) -> String {
    let pods = set.count.unwrap_or_default();
    let noun = if pods == 1 { "pod" } else { "pods" };
    let mut resources: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (resource, flavor) in &set.flavors {
        resources.entry(flavor).or_default().push(resource);
    }
    let flavors = resources.iter().map(|(flavor, names)| format!(", {} in {flavor}", names.join(" and ")));
    format!("{}: {pods} {noun}{}", set.name, flavors.collect::<String>())
}

/// The fields of `-o json`.
pub(super) fn value(report: &WorkloadReport) -> Value {
    let WorkloadReport { key, local_queue, cluster_queue, phase, stopped, meant, object: _ } = report;
    let mut value = match phase {
        WorkloadReportPhase::Pending(status) => {
            json!(status.as_ref().map_or_else(|| GangStatusView::of(&GangStatus::New), GangStatusView::of))
        }
        WorkloadReportPhase::NotQueued(causes) => json!({"state": "not queued", "causes": causes}),
        WorkloadReportPhase::Holds(places) => held(places),
        WorkloadReportPhase::Stopping(cause) => json!({"state": "stopping", "causes": [cause]}),
        WorkloadReportPhase::Ended(cause) => json!({"state": "ended", "causes": [cause]}),
    };
    value["kind"] = json!(key.kind);
    value["namespace"] = json!(key.namespace);
    value["name"] = json!(key.name);
    value["localQueue"] = json!(local_queue);
    if let Some(queue) = cluster_queue {
        value["clusterQueue"] = json!(queue);
    }
    if let Some(stopped) = stopped {
        value["stopped"] = json!(stopped);
    }
    if let Some(meant) = meant {
        value["meant"] = json!(meant);
    }
    value
}

fn held(places: &WorkloadPlaces) -> Value {
    let WorkloadPlaces {
        is_admitted,
        since,
        ends,
        pod_sets,
        nodes,
        open_checks,
        cluster,
        asked,
        awaits_places,
    } = places;
    let state = if *is_admitted { "admitted" } else { "quota reserved" };
    let mut value = json!({"state": state, "podSets": pod_sets});
    if !nodes.0.is_empty() {
        value["places"] = json!(nodes.0);
    }
    if let Some(since) = since {
        value["since"] = json!(since.to_string());
    }
    if let Some(ends) = ends {
        value["ends"] = json!(ends.to_string());
    }
    if let Some(cluster) = cluster {
        value["cluster"] = json!(cluster);
    }
    if !asked.is_empty() {
        value["askedClusters"] = json!(asked);
    }
    if let Some(lacks) = awaits_places {
        value["awaitsPlaces"] = json!(lacks);
    }
    if !open_checks.is_empty() {
        let check = |(name, state, message): &(String, String, String)| json!({"name": name, "state": state, "message": message});
        value["openChecks"] = open_checks.iter().map(check).collect();
    }
    value
}
