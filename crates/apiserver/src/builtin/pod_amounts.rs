//! What a pod requests, and its limits: of its containers together, and of the whole pod. After `pkg/api/v1/resource` and
//! `defaultPodRequests` of Kubernetes.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::fields::set_default;
use crate::object;
use crate::openapi::quantity;

/// Quantities by resource, in their canonical form.
pub(crate) type Amounts = BTreeMap<String, String>;

/// The quantities of an object.
pub(crate) fn listed(amounts: &Value) -> Amounts {
    let entries = amounts.as_object().into_iter().flat_map(Map::iter);
    entries.map(|(resource, amount)| (resource.clone(), text_of(amount))).collect()
}

fn text_of(amount: &Value) -> String {
    let text = amount.as_str().map_or_else(|| amount.to_string(), str::to_owned);
    quantity::canonical(&text).unwrap_or(text)
}

/// The `requests` or `limits` of a whole pod. Amounts of the pod level have priority.
pub(crate) fn of_pod(spec: &Value, field: &str) -> Amounts {
    let mut total = of_containers(spec, field);
    total.extend(listed(&spec["resources"][field]));
    total
}

/// The `requests` or `limits` of the containers and sidecars, or of an init container with the sidecars before it if that is more.
fn of_containers(spec: &Value, field: &str) -> Amounts {
    let of = |container: &Value| listed(&container["resources"][field]);
    let mut total = Amounts::new();
    for container in object::items(spec, &["containers"]) {
        add(&mut total, &of(container));
    }
    let (mut sidecars, mut init) = (Amounts::new(), Amounts::new());
    for container in object::items(spec, &["initContainers"]) {
        let mut together = sidecars.clone();
        add(&mut together, &of(container));
        if object::text(container, &["restartPolicy"]) == "Always" {
            add(&mut total, &of(container));
            sidecars.clone_from(&together);
        }
        raise(&mut init, &together);
    }
    raise(&mut total, &init);
    total
}

/// Sets the pod-level requests of a pod with pod-level limits: what its containers request, or the limit where they request nothing.
pub(super) fn default_requests(spec: &mut Value) {
    let limits = listed(&spec["resources"]["limits"]);
    if limits.is_empty() {
        return;
    }
    set_default(spec, &["resources", "requests"], json!({}));
    // Huge pages cannot be overcommitted: their request is their limit.
    let of_containers = of_containers(spec, "requests").into_iter();
    let requested = of_containers.filter(|(name, _)| matches!(name.as_str(), "cpu" | "memory"));
    for (name, amount) in requested.chain(limits) {
        set_default(spec, &["resources", "requests", &name], amount);
    }
}

fn add(total: &mut Amounts, other: &Amounts) {
    for (resource, amount) in other {
        let sum = total.get(resource).and_then(|old| quantity::sum(old, amount));
        total.insert(resource.clone(), sum.unwrap_or_else(|| amount.clone()));
    }
}

fn raise(total: &mut Amounts, other: &Amounts) {
    let nanos = |amount: &String| quantity::nanos(amount).unwrap_or(0);
    for (resource, amount) in other {
        if total.get(resource).is_none_or(|old| nanos(old) < nanos(amount)) {
            total.insert(resource.clone(), amount.clone());
        }
    }
}
