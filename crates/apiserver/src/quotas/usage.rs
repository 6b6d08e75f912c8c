//! What an object uses of the resources that quotas limit. After `pkg/quota/v1/evaluator/core` of Kubernetes.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::builtin::pod_amounts;
use crate::object;
use crate::openapi::quantity;

/// Quantities by resource.
pub(super) use crate::builtin::pod_amounts::{Amounts, listed};

/// The kinds of objects of which more than the number may be limited, or whose number has a short name.
pub(super) const TYPED: [&str; 7] = [
    "pods",
    "services",
    "persistentvolumeclaims",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "configmaps",
];

const OF_CLASS: &str = ".storageclass.storage.k8s.io/";

/// Whether an update can change what an object uses.
pub(super) fn changes(storage: &str) -> bool {
    matches!(storage, "pods" | "services" | "persistentvolumeclaims")
}

/// Whether objects of this kind use a resource of a quota.
pub(super) fn covers(storage: &str, name: &str) -> bool {
    if name == storage || name.strip_prefix("count/") == Some(storage) {
        return true;
    }
    let is_of_claims = name == "requests.storage" || name.contains(OF_CLASS);
    match storage {
        "pods" => {
            !is_of_claims
                && (matches!(name, "cpu" | "memory" | "ephemeral-storage")
                    || ["requests.", "limits.", "hugepages-"].iter().any(|prefix| name.starts_with(prefix)))
        }
        "services" => matches!(name, "services.nodeports" | "services.loadbalancers"),
        "persistentvolumeclaims" => is_of_claims,
        _ => false,
    }
}

/// What an object uses. A pod that has ended uses nothing but its place in the count of objects.
pub(super) fn of(storage: &str, value: &Value) -> Amounts {
    let mut used = Amounts::new();
    used.insert(format!("count/{storage}"), "1".to_owned());
    if !TYPED.contains(&storage) {
        return used;
    }
    if storage == "pods" {
        if !matches!(object::text(value, &["status", "phase"]), "Succeeded" | "Failed") {
            used.insert(storage.to_owned(), "1".to_owned());
            of_pod(&value["spec"], &mut used);
        }
        return used;
    }
    used.insert(storage.to_owned(), "1".to_owned());
    match storage {
        "services" => of_service(&value["spec"], &mut used),
        "persistentvolumeclaims" => of_claim(&value["spec"], &mut used),
        _ => {}
    }
    used
}

fn of_pod(spec: &Value, used: &mut Amounts) {
    let overhead = listed(&spec["overhead"]);
    let mut requests = pod_amounts::of_pod(spec, "requests");
    add(&mut requests, &overhead);
    let mut limits = pod_amounts::of_pod(spec, "limits");
    for (resource, amount) in &overhead {
        // What has no limit gets none by the overhead.
        if let Some(limit) = limits.get(resource).and_then(|limit| quantity::sum(limit, amount)) {
            limits.insert(resource.clone(), limit);
        }
    }
    for (resource, amount) in requests {
        if matches!(&*resource, "cpu" | "memory" | "ephemeral-storage") || resource.starts_with("hugepages-")
        {
            used.insert(resource.clone(), amount.clone());
        }
        used.insert(format!("requests.{resource}"), amount);
    }
    let limits = limits.into_iter();
    let limits = limits.filter(|(resource, _)| matches!(&**resource, "cpu" | "memory" | "ephemeral-storage"));
    used.extend(limits.map(|(resource, amount)| (format!("limits.{resource}"), amount)));
}

fn of_service(spec: &Value, used: &mut Amounts) {
    let ports = object::items(spec, &["ports"]).len().to_string();
    let kind = object::text(spec, &["type"]);
    let has_ports = spec["allocateLoadBalancerNodePorts"] != false;
    if kind == "LoadBalancer" {
        used.insert("services.loadbalancers".to_owned(), "1".to_owned());
    }
    if kind == "NodePort" || (kind == "LoadBalancer" && has_ports) {
        used.insert("services.nodeports".to_owned(), ports);
    }
}

fn of_claim(spec: &Value, used: &mut Amounts) {
    let class = object::text(spec, &["storageClassName"]);
    let storage = listed(&spec["resources"]["requests"]).remove("storage");
    if !class.is_empty() {
        used.insert(format!("{class}{OF_CLASS}persistentvolumeclaims"), "1".to_owned());
    }
    if let Some(amount) = storage {
        if !class.is_empty() {
            used.insert(format!("{class}{OF_CLASS}requests.storage"), amount.clone());
        }
        used.insert("requests.storage".to_owned(), amount);
    }
}

pub(super) fn add(total: &mut Amounts, other: &Amounts) {
    for (resource, amount) in other {
        let sum = total.get(resource).and_then(|old| quantity::sum(old, amount));
        total.insert(resource.clone(), sum.unwrap_or_else(|| amount.clone()));
    }
}

/// Subtracts amounts of resources that are in the total.
pub(super) fn subtract(total: &mut Amounts, other: &Amounts) {
    for (resource, amount) in other {
        let rest = total.get(resource).and_then(|old| quantity::sum(old, &format!("-{amount}")));
        if let Some(rest) = rest {
            let rest = if nanos(&rest) < 0 { "0".to_owned() } else { rest };
            total.insert(resource.clone(), rest);
        }
    }
}

pub(super) fn nanos(amount: &str) -> i128 {
    quantity::nanos(amount).unwrap_or(0)
}

/// Amounts as messages show them.
pub(super) fn shown(amounts: &BTreeMap<String, String>) -> String {
    amounts.iter().map(|(resource, amount)| format!("{resource}={amount}")).collect::<Vec<_>>().join(",")
}
