//! The admission plugin `LimitRanger`: default requests and limits of containers, and the limits of a namespace for
//! containers, pods and claims. After `plugin/pkg/admission/limitranger` of Kubernetes.

use std::cmp::Ordering;

use serde_json::Value;

use crate::builtin::pod_amounts::{Amounts, listed, of_pod};
use crate::object;
use crate::openapi::quantity;
use crate::server::ApiServer;

/// Annotation of a pod that names the values that were set.
const ANNOTATION: &str = "kubernetes.io/limit-ranger";

/// Type of the limits for claims.
const CLAIM: &str = "PersistentVolumeClaim";

/// The limits of a namespace, each of all its `LimitRange` objects.
fn limits(server: &ApiServer, namespace: &str) -> Vec<Value> {
    let ranges = server.store.range("limitranges", Some(namespace), None).map(|range| range.value());
    ranges.flat_map(|range| object::items(&range, &["spec", "limits"]).to_vec()).collect()
}

/// Sets the default requests and limits of containers, and notes them in an annotation.
pub(super) fn set_defaults(server: &ApiServer, pod: &mut Value) {
    let limits = limits(server, object::namespace(pod));
    let mut notes = Vec::new();
    for limit in limits.iter().filter(|limit| object::text(limit, &["type"]) == "Container") {
        for (list, what) in [("containers", "container"), ("initContainers", "init container")] {
            let containers =
                pod.get_mut("spec").and_then(|spec| spec.get_mut(list)).and_then(Value::as_array_mut);
            let Some(containers) = containers else { continue };
            for container in containers {
                for (default, field, name) in
                    [("defaultRequest", "requests", "request"), ("default", "limits", "limit")]
                {
                    let set = set_missing(container, field, &limit[default]);
                    if !set.is_empty() {
                        let of = object::text(container, &["name"]);
                        notes.push(format!("{} {name} for {what} {of}", set.join(", ")));
                    }
                }
            }
        }
    }
    if !notes.is_empty() {
        let note = format!("LimitRanger plugin set: {}", notes.join("; "));
        object::set(pod, &["metadata", "annotations", ANNOTATION], note);
    }
}

/// Sets the amounts that a container does not have. Returns the names of the resources.
fn set_missing(container: &mut Value, field: &str, defaults: &Value) -> Vec<String> {
    let mut set = Vec::new();
    for (resource, amount) in defaults.as_object().into_iter().flatten() {
        if object::get(container, &["resources", field, resource]).is_none() {
            object::set(container, &["resources", field, resource], amount.clone());
            set.push(resource.clone());
        }
    }
    set
}

/// Why the limits of its namespace forbid a pod, if they do.
pub(super) fn check_pod(server: &ApiServer, pod: &Value) -> Result<(), String> {
    let mut errors = Vec::new();
    for limit in limits(server, object::namespace(pod)) {
        let amounts = |container: &Value| {
            (listed(&container["resources"]["requests"]), listed(&container["resources"]["limits"]))
        };
        let holders = match object::text(&limit, &["type"]) {
            "Container" => {
                let containers = object::items(pod, &["spec", "containers"]).iter();
                containers.chain(object::items(pod, &["spec", "initContainers"])).map(amounts).collect()
            }
            "Pod" => vec![(of_pod(&pod["spec"], "requests"), of_pod(&pod["spec"], "limits"))],
            _ => Vec::new(),
        };
        for (requests, limits) in holders {
            errors.extend(violations(&limit, &requests, &limits));
        }
    }
    aggregate(errors)
}

/// Why the limits of its namespace forbid a claim, if they do.
pub(super) fn check_claim(server: &ApiServer, claim: &Value) -> Result<(), String> {
    let requests = listed(&claim["spec"]["resources"]["requests"]);
    let mut errors = Vec::new();
    for limit in limits(server, object::namespace(claim)) {
        if object::text(&limit, &["type"]) != CLAIM {
            continue;
        }
        // A claim has no limits.
        for (bound, ordering) in [("min", Ordering::Less), ("max", Ordering::Greater)] {
            errors.extend(listed(&limit[bound]).iter().filter_map(|(resource, bound)| {
                let request = ("request", requests.get(resource));
                beyond(CLAIM, resource, (ordering, bound), request, ("limit", None))
            }));
        }
    }
    aggregate(errors)
}

fn aggregate(mut errors: Vec<String>) -> Result<(), String> {
    match errors.len() {
        0 => Ok(()),
        1 => Err(errors.remove(0)),
        _ => Err(format!("[{}]", errors.join(", "))),
    }
}

/// The violations of one limit by these requests and limits.
fn violations(limit: &Value, requests: &Amounts, limits: &Amounts) -> Vec<String> {
    let kind = object::text(limit, &["type"]);
    let mut errors = Vec::new();
    for (bound, ordering) in [("min", Ordering::Less), ("max", Ordering::Greater)] {
        for (resource, bound) in &listed(&limit[bound]) {
            let request = ("request", requests.get(resource));
            let limit = ("limit", limits.get(resource));
            let (needed, other) =
                if ordering == Ordering::Less { (request, limit) } else { (limit, request) };
            errors.extend(beyond(kind, resource, (ordering, bound), needed, other));
        }
    }
    for (resource, ratio) in &listed(&limit["maxLimitRequestRatio"]) {
        errors.extend(exceeds_ratio(kind, resource, ratio, requests.get(resource), limits.get(resource)));
    }
    errors
}

/// An amount and what it is called.
type Named<'a> = (&'static str, Option<&'a String>);

/// Why amounts are below a minimum (`Less`) or above a maximum (`Greater`). The first of them must be there.
fn beyond(
    kind: &str,
    resource: &str,
    (ordering, bound): (Ordering, &str),
    needed: Named<'_>,
    other: Named<'_>,
) -> Option<String> {
    let what = if ordering == Ordering::Less { "minimum" } else { "maximum" };
    let usage = format!("{what} {resource} usage per {kind} is {bound}");
    if needed.1.is_none() {
        return Some(format!("{usage}.  No {} is specified", needed.0));
    }
    let mut amounts = [needed, other].into_iter().filter_map(|(name, amount)| Some((name, amount?)));
    let (name, amount) = amounts.find(|(_, amount)| is(amount, ordering, bound))?;
    Some(format!("{usage}, but {name} is {amount}"))
}

fn exceeds_ratio(
    kind: &str,
    resource: &str,
    ratio: &str,
    request: Option<&String>,
    limit: Option<&String>,
) -> Option<String> {
    let usage = format!("{resource} max limit to request ratio per {kind} is {ratio}");
    let positive = |amount: Option<&String>| amount.map(|amount| nanos(amount)).filter(|nanos| *nanos > 0);
    let Some(request) = positive(request) else {
        return Some(format!("{usage}, but no request is specified or request is 0"));
    };
    let Some(limit) = positive(limit) else {
        return Some(format!("{usage}, but no limit is specified or limit is 0"));
    };
    let is_exceeded = limit.saturating_mul(NANO) > nanos(ratio).saturating_mul(request);
    #[allow(clippy::cast_precision_loss, reason = "the message shows six digits")]
    let provided = limit as f64 / request as f64;
    is_exceeded.then(|| format!("{usage}, but provided ratio is {provided:.6}"))
}

/// One unit, in the unit of [`nanos`].
const NANO: i128 = 1_000_000_000;

fn nanos(amount: &str) -> i128 {
    quantity::nanos(amount).unwrap_or(0)
}

fn is(one: &str, ordering: Ordering, other: &str) -> bool {
    nanos(one).cmp(&nanos(other)) == ordering
}
