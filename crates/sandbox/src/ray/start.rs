//! The `ray start` command of a pod: parameters from the group and from the resources of its container.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::containers::{Role, head_address};
use super::types::{Group, RayCluster};
use crate::wire::{Container, Quantity};

/// Parameters that take `true` or `false` as a value instead of being flags.
const VALUED_BOOLEANS: [&str; 2] = ["log-color", "include-dashboard"];
/// Extended resources and their names in Ray. Only the first one that a container requests is passed on.
const DEVICES: [(&str, &str); 2] = [("aws.amazon.com/neuroncore", "neuron_cores"), ("google.com/tpu", "TPU")];
/// Default port of the dashboard agent.
const AGENT_PORT: &str = "52365";

/// The GCS port of the head.
pub(super) fn gcs_port(cluster: &RayCluster) -> &str {
    cluster.spec.head_group_spec.ray_start_params.get("port").map_or("6379", String::as_str)
}

/// All parameters for a pod of the group.
pub(super) fn params(
    cluster: &RayCluster,
    group: &Group,
    role: Role,
    container: &Container,
) -> BTreeMap<String, String> {
    let mut params = group.ray_start_params.clone();
    group_resources(group, &mut params);
    if !group.labels.is_empty() {
        let labels: Vec<String> =
            group.labels.iter().map(|(label, value)| format!("{label}={value}")).collect();
        params.insert("labels".to_owned(), labels.join(","));
    }
    let mut default = |name: &str, value: &str| {
        params.entry(name.to_owned()).or_insert_with(|| value.to_owned());
    };
    default("dashboard-agent-listen-port", AGENT_PORT);
    default("metrics-export-port", "8080");
    match role {
        Role::Head => default("dashboard-host", "0.0.0.0"),
        Role::Worker => default("address", &format!("{}:{}", head_address(cluster), gcs_port(cluster))),
    }
    params.insert("block".to_owned(), "true".to_owned());
    if role == Role::Head {
        if cluster.spec.enable_in_tree_autoscaling {
            params.insert("no-monitor".to_owned(), "true".to_owned());
        }
        let redis = &cluster.spec.gcs_fault_tolerance_options;
        for (field, param) in [("redisUsername", "redis-username"), ("redisPassword", "redis-password")] {
            if !redis[field].is_null() {
                let variable = format!("${}", param.replace('-', "_").to_ascii_uppercase());
                params.insert(param.to_owned(), variable);
            }
        }
    }
    container_resources(container, &mut params);
    params
}

/// Sets the resources of the group, which take precedence over the container's.
fn group_resources(group: &Group, params: &mut BTreeMap<String, String>) {
    let mut others = Map::new();
    for (name, amount) in &group.resources {
        let Ok(amount) = amount.parse::<Quantity>() else { continue };
        let param = match name.to_ascii_lowercase().as_str() {
            "cpu" => "num-cpus",
            "memory" => "memory",
            other if is_gpu(other) => "num-gpus",
            _ => {
                others.insert(name.clone(), float(amount));
                continue;
            }
        };
        params.insert(param.to_owned(), amount.ceil().to_string());
    }
    if !others.is_empty() {
        params.insert("resources".to_owned(), format!("'{}'", Value::Object(others)));
    }
}

/// Sets defaults from the container's limits; for CPUs also from its requests.
fn container_resources(container: &Container, params: &mut BTreeMap<String, String>) {
    let (limits, requests) = (&container.resources.limits, &container.resources.requests);
    let some = |amount: Option<&Quantity>| amount.copied().filter(|amount| amount.milli() != 0);
    let mut default = |name: &str, amount: Option<Quantity>| {
        if let Some(amount) = amount {
            params.entry(name.to_owned()).or_insert_with(|| amount.ceil().to_string());
        }
    };
    default("num-cpus", some(limits.get("cpu")).or_else(|| some(requests.get("cpu"))));
    default("memory", some(limits.get("memory")));
    let gpus = limits.iter().find(|(name, amount)| is_gpu(name) && amount.milli() != 0);
    default("num-gpus", gpus.map(|(_, amount)| *amount));
    let stated = params.get("resources").map(|text| text.trim_matches(['\'', '"', '`', ' ']));
    let Ok(mut resources) = serde_json::from_str::<Map<String, Value>>(stated.unwrap_or("{}")) else {
        return;
    };
    if DEVICES.iter().any(|(_, ray)| resources.contains_key(*ray)) {
        return;
    }
    let device = DEVICES.iter().find_map(|(name, ray)| Some((*ray, some(limits.get(*name))?)));
    if let Some((ray, amount)) = device {
        resources.insert(ray.to_owned(), float(amount));
        params.insert("resources".to_owned(), format!("'{}'", Value::Object(resources)));
    }
}

/// A number as Go prints a float: without a fraction if it is zero.
fn float(amount: Quantity) -> Value {
    if amount.milli() % 1000 == 0 {
        return json!(amount.milli() / 1000);
    }
    #[expect(clippy::cast_precision_loss, reason = "amounts of devices are small")]
    let amount = amount.milli() as f64 / 1000.0;
    json!(amount)
}

/// Whether a resource counts as GPUs: a whole GPU, or an NVIDIA MIG partition.
pub(super) fn is_gpu(resource: &str) -> bool {
    let is_partition = |profile: &str| {
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let parts = profile.strip_suffix("gb").and_then(|profile| profile.split_once("g."));
        parts.is_some_and(|(slices, memory)| digits(slices) && digits(memory))
    };
    resource.ends_with("gpu") || resource.strip_prefix("nvidia.com/mig-").is_some_and(is_partition)
}

/// The command with its sorted parameters.
pub(super) fn command(role: Role, params: &BTreeMap<String, String>) -> String {
    let mut flags = String::new();
    for (name, value) in params {
        match value.to_ascii_lowercase().as_str() {
            "true" if !VALUED_BOOLEANS.contains(&&**name) => flags.extend([" --", name, " "]),
            "false" if !VALUED_BOOLEANS.contains(&&**name) => {}
            _ => flags.extend([" --", name, "=", value, " "]),
        }
    }
    match role {
        Role::Head => format!("ray start --head {flags}"),
        Role::Worker => format!("ray start {flags}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(group: &Value, limits: &Value, expected: &str) {
        let group: Group = serde_json::from_value(group.clone()).unwrap();
        let container = serde_json::from_value(json!({ "resources": { "limits": limits } })).unwrap();
        let mut params = params(&RayCluster::default(), &group, Role::Worker, &container);
        for usual in ["address", "block", "dashboard-agent-listen-port", "metrics-export-port"] {
            params.remove(usual);
        }
        assert_eq!(command(Role::Worker, &params), expected);
    }

    #[test]
    fn extended_resources_become_ray_resources() {
        let limits = json!({ "cpu": "1500m", "memory": "1Ki", "google.com/tpu": "4", "nvidia.com/gpu": "0" });
        check(&json!({}), &limits, "ray start  --memory=1024  --num-cpus=2  --resources='{\"TPU\":4}' ");
        let partition = json!({ "nvidia.com/mig-2g.32gb": "3", "example.com/mig-x": "1" });
        check(&json!({}), &partition, "ray start  --num-gpus=3 ");
        let stated = json!({ "rayStartParams": { "resources": "'{\"TPU\": 8}'" } });
        check(&stated, &limits, "ray start  --memory=1024  --num-cpus=2  --resources='{\"TPU\": 8}' ");
    }

    #[test]
    fn group_resources_take_precedence_over_container_resources() {
        let group = json!({
            "resources": { "CPU": "3", "nvidia.com/gpu": "2", "Custom": "1500m" },
            "labels": { "zone": "a", "kind": "spot" },
            "rayStartParams": { "no-reuse": "TRUE", "verbose": "false", "include-dashboard": "false" },
        });
        let flags = "ray start  --include-dashboard=false  --labels=kind=spot,zone=a  --no-reuse  --num-cpus=3  \
                     --num-gpus=2  --resources='{\"Custom\":1.5}' ";
        check(&group, &json!({ "cpu": "1" }), flags);
    }
}
