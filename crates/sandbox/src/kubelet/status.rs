//! Renders the pod status that a kubelet writes.

use serde_json::{Value, json};

use super::pod_state::{Now, PodState};
use super::process::{Process, State, Terminated};
use crate::pace::Pace;
use crate::wire::{Condition, Pod};

/// IP addresses of a pod and its node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PodAddresses {
    pub(super) pod_ip: String,
    pub(super) host_ip: String,
}

/// The conditions that the kubelet owns. All other conditions of the pod are kept.
const KUBELET_CONDITIONS: [&str; 4] =
    ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady"];

/// Reason of the status of a pod that the kubelet evicts from its node.
pub(super) const EVICTED: &str = "Evicted";

/// The complete status, as a merge patch.
pub(super) fn render(pod_state: &mut PodState, pod: &Pod, addresses: &PodAddresses, now: Now) -> Value {
    let phase = pod_state.phase();
    set_conditions(pod_state, now, !addresses.pod_ip.is_empty());
    let mut conditions: Vec<Value> = pod_state.conditions.iter().map(condition_json).collect();
    let foreign =
        pod.status.conditions.iter().filter(|condition| !KUBELET_CONDITIONS.contains(&&*condition.kind));
    conditions.extend(foreign.map(condition_json));
    if let Some((EVICTED, message)) = &pod_state.failure
        && pod.condition("DisruptionTarget").is_none()
    {
        let stamp = now.stamp_at(now.instant);
        let disrupted = Condition::new("DisruptionTarget", true, "TerminationByKubelet", message, stamp);
        conditions.push(condition_json(&disrupted));
    }
    let statuses = |list: &[Process]| -> Vec<Value> {
        list.iter().map(|process| container(process, pod_state, now)).collect()
    };
    let mut status = json!({
        "phase": phase,
        "conditions": conditions,
        "startTime": now.stamp_at(pod_state.started),
        "hostIP": addresses.host_ip,
        "hostIPs": [{ "ip": addresses.host_ip }],
        "containerStatuses": statuses(&pod_state.apps),
        "qosClass": qos_class(pod),
    });
    if !pod_state.inits.is_empty() {
        status["initContainerStatuses"] = json!(statuses(&pod_state.inits));
    }
    if !addresses.pod_ip.is_empty() {
        status["podIP"] = json!(addresses.pod_ip);
        status["podIPs"] = json!([{ "ip": addresses.pod_ip }]);
    }
    if let Some(started) = pod.status.start_time {
        status["startTime"] = json!(started);
    }
    if let Some((reason, message)) = &pod_state.failure {
        status["reason"] = json!(reason);
        status["message"] = json!(message);
    }
    status
}

fn set_conditions(pod_state: &mut PodState, now: Now, has_address: bool) {
    let stamp = now.stamp_at(now.instant);
    let phase = pod_state.phase();
    let over = match phase {
        "Succeeded" => Some("PodCompleted"),
        "Failed" => Some("PodFailed"),
        _ => None,
    };
    let waiting: Vec<&str> =
        pod_state.inits.iter().filter(|init| !initialized(init)).map(|init| &*init.name).collect();
    let unready: Vec<&str> = pod_state
        .apps
        .iter()
        .chain(pod_state.inits.iter().filter(|init| init.sidecar))
        .filter(|process| !matches!(process.state, State::Running { ready: true, .. }))
        .map(|process| &*process.name)
        .collect();
    let list = |what: &str, names: &[&str]| format!("containers with {what} status: [{}]", names.join(" "));
    let initialized = if phase == "Succeeded" {
        Condition::new("Initialized", true, "PodCompleted", "", stamp)
    } else if waiting.is_empty() {
        Condition::new("Initialized", true, "", "", stamp)
    } else {
        Condition::new("Initialized", false, "ContainersNotInitialized", list("incomplete", &waiting), stamp)
    };
    let ready = |kind: &str| match over {
        Some(reason) => Condition::new(kind, false, reason, "", stamp),
        None if unready.is_empty() => Condition::new(kind, true, "", "", stamp),
        None => Condition::new(kind, false, "ContainersNotReady", list("unready", &unready), stamp),
    };
    let up = has_address && over.is_none();
    let new = [
        Condition::new(KUBELET_CONDITIONS[0], up, "", "", stamp),
        initialized,
        ready("Ready"),
        ready("ContainersReady"),
    ];
    for condition in new {
        condition.set_in(&mut pod_state.conditions);
    }
}

fn initialized(init: &Process) -> bool {
    match init.state {
        State::Terminated(ended) => ended.code == 0,
        State::Running { .. } => init.sidecar,
        State::Waiting { .. } => false,
    }
}

fn condition_json(condition: &Condition) -> Value {
    let mut condition_json = json!(condition);
    condition_json["lastProbeTime"] = Value::Null;
    condition_json
}

fn container(process: &Process, pod_state: &PodState, now: Now) -> Value {
    let id = |restarts: u32| {
        let [a, b, c, d] =
            [0u64, 1, 2, 3].map(|part| Pace::new(1.0, part).draw((&pod_state.uid, &process.name, restarts)));
        format!("containerd://{a:016x}{b:016x}{c:016x}{d:016x}")
    };
    let ended = |ended: &Terminated, restarts: u32| {
        json!({ "terminated": {
            "exitCode": ended.code,
            "reason": ended.reason,
            "startedAt": now.stamp_at(ended.since),
            "finishedAt": now.stamp_at(ended.at),
            "containerID": id(restarts),
        } })
    };
    let mut status = json!({
        "name": process.name,
        "image": process.image,
        "imageID": "",
        "restartCount": process.restarts,
        "ready": false,
        "started": false,
        "lastState": process.last.as_ref().map_or(json!({}), |last| ended(last, process.restarts.saturating_sub(1))),
    });
    match &process.state {
        State::Waiting { reason, message, .. } => {
            status["state"] = json!({ "waiting": { "reason": reason } });
            if !message.is_empty() {
                status["state"]["waiting"]["message"] = json!(message);
            }
            return status;
        }
        State::Running { since, ready, .. } => {
            status["state"] = json!({ "running": { "startedAt": now.stamp_at(*since) } });
            status["ready"] = json!(ready);
            status["started"] = json!(true);
        }
        State::Terminated(end) => {
            status["state"] = ended(end, process.restarts);
            status["ready"] = json!(end.code == 0 && process.field_path.starts_with("spec.initContainers"));
        }
    }
    status["containerID"] = json!(id(process.restarts));
    status["imageID"] =
        json!(format!("{}@sha256:{:064x}", process.image, Pace::new(1.0, 0).draw(&process.image)));
    status
}

/// The quality-of-service class, from the CPU and memory of all containers.
fn qos_class(pod: &Pod) -> &'static str {
    let containers = || pod.spec.containers.iter().chain(&pod.spec.init_containers);
    let given = |name: &str| {
        containers().any(|c| c.resources.requests.contains_key(name) || c.resources.limits.contains_key(name))
    };
    if !given("cpu") && !given("memory") {
        return "BestEffort";
    }
    let guaranteed = containers().all(|container| {
        ["cpu", "memory"].iter().all(|name| {
            let limit = container.resources.limits.get(*name);
            limit.is_some()
                && container.resources.requests.get(*name).is_none_or(|request| Some(request) == limit)
        })
    });
    if guaranteed { "Guaranteed" } else { "Burstable" }
}
