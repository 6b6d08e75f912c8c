//! The admission plugin `LimitRanger`: default requests and limits of containers, and the limits of a namespace for
//! containers, pods and claims. After `plugin/pkg/admission/limitranger` of Kubernetes.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::object;
use crate::openapi::quantity;
use crate::server::ApiServer;

/// Annotation of a pod that names the values that were set.
const ANNOTATION: &str = "kubernetes.io/limit-ranger";

/// Quantities by resource, in their canonical form.
type Amounts = BTreeMap<String, String>;

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
            let Some(containers) = pod["spec"][list].as_array_mut() else { continue };
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
            "Pod" => vec![(total(pod, "requests"), total(pod, "limits"))],
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
        if object::text(&limit, &["type"]) != "PersistentVolumeClaim" {
            continue;
        }
        let kind = "PersistentVolumeClaim";
        errors.extend(
            listed(&limit["min"])
                .iter()
                .filter_map(|(resource, least)| below(kind, resource, least, requests.get(resource), None)),
        );
        errors.extend(listed(&limit["max"]).iter().filter_map(|(resource, most)| {
            let usage = format!("maximum {resource} usage per {kind} is {most}");
            match requests.get(resource) {
                None => Some(format!("{usage}.  No request is specified")),
                Some(asked) => {
                    is(asked, Ordering::Greater, most).then(|| format!("{usage}, but request is {asked}"))
                }
            }
        }));
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
    for (resource, least) in &listed(&limit["min"]) {
        errors.extend(below(kind, resource, least, requests.get(resource), limits.get(resource)));
    }
    for (resource, most) in &listed(&limit["max"]) {
        errors.extend(above(kind, resource, most, requests.get(resource), limits.get(resource)));
    }
    for (resource, ratio) in &listed(&limit["maxLimitRequestRatio"]) {
        errors.extend(exceeds_ratio(kind, resource, ratio, requests.get(resource), limits.get(resource)));
    }
    errors
}

fn below(
    kind: &str,
    resource: &str,
    least: &str,
    request: Option<&String>,
    limit: Option<&String>,
) -> Option<String> {
    let usage = format!("minimum {resource} usage per {kind} is {least}");
    let Some(request) = request else { return Some(format!("{usage}.  No request is specified")) };
    if is(request, Ordering::Less, least) {
        return Some(format!("{usage}, but request is {request}"));
    }
    let limit = limit.filter(|limit| is(limit, Ordering::Less, least));
    limit.map(|limit| format!("{usage}, but limit is {limit}"))
}

fn above(
    kind: &str,
    resource: &str,
    most: &str,
    request: Option<&String>,
    limit: Option<&String>,
) -> Option<String> {
    let usage = format!("maximum {resource} usage per {kind} is {most}");
    let Some(limit) = limit else { return Some(format!("{usage}.  No limit is specified")) };
    if is(limit, Ordering::Greater, most) {
        return Some(format!("{usage}, but limit is {limit}"));
    }
    let request = request.filter(|request| is(request, Ordering::Greater, most));
    request.map(|request| format!("{usage}, but request is {request}"))
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

/// The quantities of an object.
fn listed(amounts: &Value) -> Amounts {
    let entries = amounts.as_object().into_iter().flat_map(Map::iter);
    entries.map(|(resource, amount)| (resource.clone(), text_of(amount))).collect()
}

fn text_of(amount: &Value) -> String {
    let text = amount.as_str().map_or_else(|| amount.to_string(), str::to_owned);
    quantity::canonical(&text).unwrap_or(text)
}

/// The requests or limits of a whole pod: the containers and sidecars, or an init container with the sidecars before it if
/// that is more. Amounts of the pod level have priority.
fn total(pod: &Value, field: &str) -> Amounts {
    let of = |container: &Value| listed(&container["resources"][field]);
    let mut total = Amounts::new();
    for container in object::items(pod, &["spec", "containers"]) {
        add(&mut total, &of(container));
    }
    let (mut sidecars, mut init) = (Amounts::new(), Amounts::new());
    for container in object::items(pod, &["spec", "initContainers"]) {
        let mut together = sidecars.clone();
        add(&mut together, &of(container));
        if object::text(container, &["restartPolicy"]) == "Always" {
            add(&mut total, &of(container));
            sidecars.clone_from(&together);
        }
        raise(&mut init, &together);
    }
    raise(&mut total, &init);
    total.extend(listed(&json!(object::get(pod, &["spec", "resources", field]))));
    total
}

fn add(total: &mut Amounts, other: &Amounts) {
    for (resource, amount) in other {
        let sum = total.get(resource).and_then(|old| quantity::sum(old, amount));
        total.insert(resource.clone(), sum.unwrap_or_else(|| amount.clone()));
    }
}

fn raise(total: &mut Amounts, other: &Amounts) {
    for (resource, amount) in other {
        if total.get(resource).is_none_or(|old| is(old, Ordering::Less, amount)) {
            total.insert(resource.clone(), amount.clone());
        }
    }
}
