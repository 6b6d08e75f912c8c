//! Pods: the admission plugins `LimitRanger`, `ServiceAccount`, `Priority` and `RuntimeClass`, and the fields that pod
//! subresources may write.
//!
//! The token volume of the service account is not added.

use serde_json::{Value, json};

use super::{limit_ranges, runtime_classes};
use crate::object;
use crate::server::ApiServer;
use crate::status::Status;
use crate::store::key_of;

const PRIORITY_CLASSES: &str = "priorityclasses.scheduling.k8s.io";

pub(super) fn on_create(server: &ApiServer, pod: &mut Value) -> Result<(), Status> {
    resolve_priority(server, pod)?;
    check_account(server, pod)?;
    runtime_classes::apply(server, pod).map_err(|why| refuse(pod, &why))?;
    limit_ranges::check_pod(server, pod).map_err(|why| refuse(pod, &why))?;
    if !object::items(pod, &["spec", "schedulingGates"]).is_empty() {
        let gated = json!([{
            "type": "PodScheduled",
            "status": "False",
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
            "lastProbeTime": null,
            "lastTransitionTime": object::text(pod, &["metadata", "creationTimestamp"]),
        }]);
        object::set(pod, &["status", "conditions"], gated);
    }
    Ok(())
}

/// Keeps `status.qosClass`, which the server sets, if a status update omits it.
pub(super) fn on_status(old: &Value, new: &mut Value) {
    if object::text(new, &["status", "qosClass"]).is_empty() {
        object::carry(old, new, &["status", "qosClass"]);
    }
}

fn refuse(pod: &Value, why: &str) -> Status {
    // kube-apiserver runs admission before it generates the name, so the message contains `generateName`.
    let (name, stem) = (object::name(pod), object::text(pod, &["metadata", "generateName"]));
    let drawn = !stem.is_empty() && name.starts_with(stem);
    Status::forbidden("", "pods", if drawn { stem } else { name }, why)
}

fn resolve_priority(server: &ApiServer, pod: &mut Value) -> Result<(), Status> {
    let named = object::text(pod, &["spec", "priorityClassName"]).to_owned();
    let class = if named.is_empty() {
        let all = server.store.range(PRIORITY_CLASSES, None, None).map(|object| object.value());
        all.filter(|class| object::flag(class, &["globalDefault"])).min_by_key(|c| object::int(c, &["value"]))
    } else {
        let found = server.store.get(PRIORITY_CLASSES, &named).map(|object| object.value());
        let why = || refuse(pod, &format!("no PriorityClass with name {named} was found"));
        Some(found.ok_or_else(why)?)
    };
    let priority = class.as_ref().and_then(|c| object::int(c, &["value"])).unwrap_or(0);
    let policy = class.as_ref().map(|c| object::text(c, &["preemptionPolicy"])).filter(|p| !p.is_empty());
    let policy = policy.unwrap_or("PreemptLowerPriority").to_owned();
    if let Some(class) = &class {
        object::set(pod, &["spec", "priorityClassName"], object::name(class));
    }
    let why = "the integer value of priority (%d) must not be provided in pod spec; priority admission controller computed";
    if let Some(given) = object::int(pod, &["spec", "priority"])
        && given != priority
    {
        let why = why.replace("%d", &given.to_string());
        return Err(refuse(pod, &format!("{why} {priority} from the given PriorityClass name")));
    }
    object::set(pod, &["spec", "priority"], priority);
    if object::text(pod, &["spec", "preemptionPolicy"]).is_empty() {
        object::set(pod, &["spec", "preemptionPolicy"], policy);
    }
    Ok(())
}

fn check_account(server: &ApiServer, pod: &Value) -> Result<(), Status> {
    let account = object::text(pod, &["spec", "serviceAccountName"]);
    let namespace = object::namespace(pod);
    if server.store.get("serviceaccounts", &key_of(namespace, account)).is_none() {
        let why = format!(
            "error looking up service account {namespace}/{account}: serviceaccount \"{account}\" not found"
        );
        return Err(refuse(pod, &why));
    }
    Ok(())
}

/// The fields of the pod spec that a subresource may write.
pub(super) fn writable(pod: &Value, subresource: &str) -> Vec<(&'static str, Value)> {
    let parts: &[&'static str] = match subresource {
        "ephemeralcontainers" => &["ephemeralContainers"],
        _ => &["containers", "initContainers"],
    };
    parts
        .iter()
        .filter_map(|part| object::get(pod, &["spec", part]).map(|value| (*part, value.clone())))
        .collect()
}
