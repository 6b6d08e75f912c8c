//! The printer for pods. The status column summarizes phase, conditions and containers.

use jiff::Timestamp;
use serde_json::Value;

use super::{Printer, age, age_of, name, or, text, wide};
use crate::object;

pub(super) const PODS: Printer = Printer {
    columns: &[
        text("Name"),
        text("Ready"),
        text("Status"),
        text("Restarts"),
        text("Age"),
        wide("IP"),
        wide("Node"),
        wide("Nominated Node"),
        wide("Readiness Gates"),
    ],
    cells,
};

fn cells(pod: &Value, now: Timestamp) -> Vec<Value> {
    let summary = summary(pod);
    let restarts = match summary.last_restart {
        Some(last) if summary.restarts > 0 => format!("{} ({} ago)", summary.restarts, age(&last, now)),
        _ => summary.restarts.to_string(),
    };
    vec![
        name(pod),
        format!("{}/{}", summary.ready, summary.total).into(),
        summary.reason.into(),
        restarts.into(),
        age_of(pod, now),
        or(pod, &["status", "podIP"], "<none>").into(),
        or(pod, &["spec", "nodeName"], "<none>").into(),
        or(pod, &["status", "nominatedNodeName"], "<none>").into(),
        readiness_gates(pod).into(),
    ]
}

#[derive(Default)]
struct Summary {
    ready: usize,
    total: usize,
    reason: String,
    restarts: i64,
    last_restart: Option<String>,
}

impl Summary {
    fn count_restarts(&mut self, status: &Value) {
        self.restarts += object::int(status, &["restartCount"]).unwrap_or(0);
        let ended = object::text(status, &["lastState", "terminated", "finishedAt"]);
        if !ended.is_empty() && self.last_restart.as_deref().is_none_or(|last| last < ended) {
            self.last_restart = Some(ended.to_owned());
        }
    }
}

fn condition<'a>(pod: &'a Value, kind: &str) -> Option<&'a Value> {
    object::items(pod, &["status", "conditions"]).iter().find(|c| object::text(c, &["type"]) == kind)
}

fn is_true(pod: &Value, kind: &str) -> bool {
    condition(pod, kind).is_some_and(|c| object::text(c, &["status"]) == "True")
}

/// Follows `printPod` of kube-apiserver step by step, to keep its precedence of reasons.
fn summary(pod: &Value) -> Summary {
    let phase = object::text(pod, &["status", "phase"]);
    let own_reason = object::text(pod, &["status", "reason"]);
    let init_specs = object::items(pod, &["spec", "initContainers"]);
    let sidecar = |name: &str| {
        init_specs
            .iter()
            .any(|c| object::text(c, &["name"]) == name && object::text(c, &["restartPolicy"]) == "Always")
    };
    let sidecars = init_specs.iter().filter(|c| object::text(c, &["restartPolicy"]) == "Always").count();
    let mut all = Summary {
        total: object::items(pod, &["spec", "containers"]).len() + sidecars,
        reason: if own_reason.is_empty() { phase } else { own_reason }.to_owned(),
        ..Summary::default()
    };
    if condition(pod, "PodScheduled").is_some_and(|c| object::text(c, &["reason"]) == "SchedulingGated") {
        all.reason = "SchedulingGated".into();
    }
    let mut from_sidecars = Summary::default();
    let mut initializing = false;
    for (at, status) in object::items(pod, &["status", "initContainerStatuses"]).iter().enumerate() {
        all.count_restarts(status);
        let is_sidecar = sidecar(object::text(status, &["name"]));
        if is_sidecar {
            from_sidecars.count_restarts(status);
        }
        let terminated = object::get(status, &["state", "terminated"]);
        if terminated.is_some_and(|t| object::int(t, &["exitCode"]).unwrap_or(0) == 0) {
            continue;
        }
        if is_sidecar && object::flag(status, &["started"]) {
            all.ready += usize::from(object::flag(status, &["ready"]));
            continue;
        }
        let waiting = object::text(status, &["state", "waiting", "reason"]);
        all.reason = match terminated {
            Some(terminated) => format!("Init:{}", termination_reason(terminated)),
            None if !waiting.is_empty() && waiting != "PodInitializing" => format!("Init:{waiting}"),
            None => format!("Init:{at}/{}", init_specs.len()),
        };
        initializing = true;
        break;
    }
    if !initializing || is_true(pod, "Initialized") {
        all.restarts = from_sidecars.restarts;
        all.last_restart = from_sidecars.last_restart;
        summarize_containers(pod, &mut all);
    }
    if object::get(pod, &["metadata", "deletionTimestamp"]).is_some() {
        if own_reason == "NodeLost" {
            all.reason = "Unknown".into();
        } else if !matches!(phase, "Succeeded" | "Failed") {
            all.reason = "Terminating".into();
        }
    }
    all
}

fn summarize_containers(pod: &Value, all: &mut Summary) {
    let mut running = false;
    for status in object::items(pod, &["status", "containerStatuses"]).iter().rev() {
        all.count_restarts(status);
        let waiting = object::text(status, &["state", "waiting", "reason"]);
        if !waiting.is_empty() {
            waiting.clone_into(&mut all.reason);
        } else if let Some(terminated) = object::get(status, &["state", "terminated"]) {
            all.reason = termination_reason(terminated);
        } else if object::flag(status, &["ready"]) && object::get(status, &["state", "running"]).is_some() {
            running = true;
            all.ready += 1;
        }
    }
    if all.reason == "Completed" && running {
        all.reason = if is_true(pod, "Ready") { "Running" } else { "NotReady" }.into();
    }
}

/// The reason why a container terminated, or else its signal, or else its exit code.
fn termination_reason(terminated: &Value) -> String {
    let signal = object::int(terminated, &["signal"]).unwrap_or(0);
    match object::text(terminated, &["reason"]) {
        "" if signal != 0 => format!("Signal:{signal}"),
        "" => format!("ExitCode:{}", object::int(terminated, &["exitCode"]).unwrap_or(0)),
        reason => reason.to_owned(),
    }
}

fn readiness_gates(pod: &Value) -> String {
    let gates = object::items(pod, &["spec", "readinessGates"]);
    if gates.is_empty() {
        return "<none>".into();
    }
    let passed = gates.iter().filter(|gate| is_true(pod, object::text(gate, &["conditionType"]))).count();
    format!("{passed}/{}", gates.len())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_pod_status_column_matches_kubectl_get() {
        let waiting = |reason: &str| json!({ "name": "c", "state": { "waiting": { "reason": reason } } });
        let running = json!({ "name": "c", "ready": true, "state": { "running": {} } });
        let ended = |reason: &str, code: i64| json!({ "name": "c", "state": { "terminated": { "reason": reason, "exitCode": code } } });
        let cases = [
            ("fresh", json!({}), json!({ "phase": "Pending" }), "0/2 Pending 0"),
            (
                "gated",
                json!({}),
                json!({ "phase": "Pending",
                    "conditions": [{ "type": "PodScheduled", "reason": "SchedulingGated" }] }),
                "0/2 SchedulingGated 0",
            ),
            (
                "initializing",
                json!({}),
                json!({ "phase": "Pending", "initContainerStatuses": [{ "name": "i", "state": { "running": {} } }],
                        "containerStatuses": [waiting("PodInitializing")] }),
                "0/2 Init:0/1 0",
            ),
            (
                "init failed",
                json!({}),
                json!({ "phase": "Pending", "initContainerStatuses": [ended("Error", 1)] }),
                "0/2 Init:Error 0",
            ),
            (
                "creating",
                json!({}),
                json!({ "phase": "Pending", "containerStatuses": [waiting("ContainerCreating")] }),
                "0/2 ContainerCreating 0",
            ),
            (
                "running",
                json!({}),
                json!({ "phase": "Running", "containerStatuses": [running, running] }),
                "2/2 Running 0",
            ),
            (
                "one done",
                json!({}),
                json!({ "phase": "Running", "containerStatuses": [ended("Completed", 0), running],
                        "conditions": [{ "type": "Ready", "status": "False" }] }),
                "1/2 NotReady 0",
            ),
            (
                "done",
                json!({}),
                json!({ "phase": "Succeeded", "containerStatuses": [ended("Completed", 0)] }),
                "0/2 Completed 0",
            ),
            (
                "crashing",
                json!({}),
                json!({ "phase": "Running", "containerStatuses": [
                    { "name": "c", "restartCount": 3, "state": { "waiting": { "reason": "CrashLoopBackOff" } },
                      "lastState": { "terminated": { "finishedAt": "2026-01-01T00:00:00Z" } } }] }),
                "0/2 CrashLoopBackOff 3 (10s ago)",
            ),
            (
                "killed",
                json!({}),
                json!({ "phase": "Failed", "containerStatuses": [ended("", 137)] }),
                "0/2 ExitCode:137 0",
            ),
            (
                "going",
                json!({ "deletionTimestamp": "2026-01-01T00:00:00Z" }),
                json!({ "phase": "Running", "containerStatuses": [running, running] }),
                "2/2 Terminating 0",
            ),
            ("evicted", json!({}), json!({ "phase": "Failed", "reason": "Evicted" }), "0/2 Evicted 0"),
        ];
        for (name, metadata, status, expected) in cases {
            let spec = json!({ "initContainers": [{ "name": "i" }], "containers": [{ "name": "c" }, { "name": "d" }] });
            let pod = json!({ "metadata": metadata, "spec": spec, "status": status });
            let row = cells(&pod, "2026-01-01T00:00:10Z".parse().unwrap());
            let printed: Vec<&str> = row[1..4].iter().map(|cell| cell.as_str().unwrap()).collect();
            assert_eq!(printed.join(" "), expected, "{name}");
        }
    }
}
