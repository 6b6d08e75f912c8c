//! New pods: what the admission plugins of a real server do to them.
//!
//! Of those, priority, service account (its existence, not the token volume) and default tolerations are here. Quotas
//! and limit ranges are stored but not enforced.

use serde_json::{Value, json};

use crate::object;
use crate::server::ApiServer;
use crate::status::Status;
use crate::store::key_of;

/// Seconds that a pod stays on a node that is not ready or not reachable, unless it says otherwise.
const STAYS_SECONDS: i64 = 300;
const PRIORITY_CLASSES: &str = "priorityclasses.scheduling.k8s.io";

pub(super) fn on_create(server: &ApiServer, pod: &mut Value) -> Result<(), Status> {
    resolve_priority(server, pod)?;
    resolve_account(server, pod)?;
    tolerate_by_default(pod);
    let class = quality(pod);
    object::set(pod, &["status"], json!({ "phase": "Pending", "qosClass": class }));
    if !object::items(pod, &["spec", "schedulingGates"]).is_empty() {
        let gated = json!([{
            "type": "PodScheduled",
            "status": "False",
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
            "lastProbeTime": null,
            "lastTransitionTime": null,
        }]);
        object::set(pod, &["status", "conditions"], gated);
    }
    Ok(())
}

fn refuse(pod: &Value, why: &str) -> Status {
    Status::forbidden("", "pods", object::name(pod), why)
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

fn resolve_account(server: &ApiServer, pod: &mut Value) -> Result<(), Status> {
    let account = match object::text(pod, &["spec", "serviceAccountName"]) {
        "" => "default".to_owned(),
        named => named.to_owned(),
    };
    let namespace = object::namespace(pod);
    if server.store.get("serviceaccounts", &key_of(namespace, &account)).is_none() {
        let why = format!(
            "error looking up service account {namespace}/{account}: serviceaccount \"{account}\" not found"
        );
        return Err(refuse(pod, &why));
    }
    object::set(pod, &["spec", "serviceAccountName"], account.as_str());
    object::set(pod, &["spec", "serviceAccount"], account);
    Ok(())
}

fn tolerate_by_default(pod: &mut Value) {
    let mut all = object::items(pod, &["spec", "tolerations"]).to_vec();
    for taint in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = all.iter().any(|toleration| {
            let key = object::text(toleration, &["key"]);
            let effect = object::text(toleration, &["effect"]);
            let any = key.is_empty() && object::text(toleration, &["operator"]) == "Exists";
            (key == taint || any) && (effect.is_empty() || effect == "NoExecute")
        });
        if !tolerated {
            all.push(json!({
                "key": taint,
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": STAYS_SECONDS,
            }));
        }
    }
    object::set(pod, &["spec", "tolerations"], all);
}

/// Quality of service: guaranteed when every container's limits equal its requests for both cpu and memory, best
/// effort when no container asks for either.
fn quality(pod: &Value) -> &'static str {
    let containers = || {
        ["containers", "initContainers"].into_iter().flat_map(|key| object::items(pod, &["spec", key])).map(
            |c| move |side: &str, resource: &str| object::get(c, &["resources", side, resource]).cloned(),
        )
    };
    let both = ["cpu", "memory"];
    let asks =
        containers().any(|at| both.iter().any(|r| at("requests", r).is_some() || at("limits", r).is_some()));
    if !asks {
        return "BestEffort";
    }
    let guaranteed = containers().all(|at| {
        both.iter().all(|r| {
            let limit = at("limits", r);
            limit.is_some() && at("requests", r).is_none_or(|request| Some(request) == limit)
        })
    });
    if guaranteed { "Guaranteed" } else { "Burstable" }
}

/// The parts of a pod's spec that a subresource may write.
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
