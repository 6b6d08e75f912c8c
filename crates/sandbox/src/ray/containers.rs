//! What the operator puts into containers: the `ray start` command, environment, probes, and the containers it adds.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::types::{Group, RayCluster};
use crate::wire::{Container, Quantity};

/// Flags of `ray start` that have no value.
const SWITCHES: [&str; 7] = [
    "block",
    "no-monitor",
    "log-color",
    "no-redirect-output",
    "include-log-monitor",
    "disable-usage-stats",
    "verbose",
];
/// The first version of Ray with a single health endpoint for head and workers.
const HTTP_PROBES_SINCE: (u32, u32) = (2, 53);
/// The first version of Ray for which the second autoscaler is the default.
const AUTOSCALER_V2_SINCE: (u32, u32) = (2, 47);
const AGENT_PORT: u16 = 52365;

/// Which part of a cluster a pod is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Head,
    Worker,
}

/// Name of the Service of the head.
pub(super) fn head_service(cluster: &str) -> String {
    // Names of Services end after 63 characters; the original cuts the stem to 50.
    format!("{}-head-svc", &cluster[..cluster.len().min(50)])
}

/// The name under which workers reach the head.
pub(super) fn head_address(cluster: &RayCluster) -> String {
    format!("{}.{}.svc.cluster.local", head_service(&cluster.metadata.name), cluster.metadata.namespace)
}

/// Whether the cluster uses the second autoscaler, whose pods are never restarted in place.
pub(super) fn autoscaler_v2(cluster: &RayCluster) -> bool {
    cluster.spec.enable_in_tree_autoscaling
        && match cluster.spec.autoscaler_options["version"].as_str() {
            Some(version) => version == "v2",
            None => at_least(&cluster.spec.ray_version, AUTOSCALER_V2_SINCE),
        }
}

fn at_least(version: &str, bound: (u32, u32)) -> bool {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().ok());
    matches!((parts.next().flatten(), parts.next().flatten()), (Some(major), Some(minor)) if (major, minor) >= bound)
}

/// Turns the first container of a template into one that runs Ray.
pub(super) fn dress(
    container: &mut Value,
    cluster: &RayCluster,
    group: &Group,
    role: Role,
    group_name: &str,
) {
    let slim: Container = serde_json::from_value(container.clone()).unwrap_or_default();
    let start = start_command(cluster, group, role, &slim);
    let overwritten = cluster.metadata.annotation("ray.io/overwrite-container-cmd") == Some("true");
    let words = |field: &str| -> Vec<String> {
        container[field]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect()
    };
    // The original sets each word between two spaces.
    let user = [words("command"), words("args")].concat().join("  ");
    if !overwritten {
        let line = if user.is_empty() {
            format!("ulimit -n 65536; {start}")
        } else {
            format!(" {user}  && ulimit -n 65536; {start}")
        };
        container["command"] = json!(["/bin/bash", "-c", "--"]);
        container["args"] = json!([line]);
    }
    environment(container, cluster, role, group_name, &start);
    probes(container, cluster, role);
    let mounts = list(container, "volumeMounts");
    if !mounts.iter().any(|mount| mount["mountPath"] == "/dev/shm") {
        mounts.push(json!({ "name": "shared-mem", "mountPath": "/dev/shm" }));
    }
    let ports = list(container, "ports");
    if !ports.iter().any(|port| port["name"] == "metrics") {
        ports.push(json!({ "name": "metrics", "containerPort": 8080, "protocol": "TCP" }));
    }
}

/// The volume behind the shared memory of a Ray container, as large as the memory it asks for.
pub(super) fn shared_memory(container: &Value) -> Value {
    let slim: Container = serde_json::from_value(container.clone()).unwrap_or_default();
    let size = slim.resources.limits.get("memory").or(slim.resources.requests.get("memory"));
    let mut medium = json!({ "medium": "Memory" });
    if let Some(size) = size {
        medium["sizeLimit"] = json!(size);
    }
    json!({ "name": "shared-mem", "emptyDir": medium })
}

fn start_command(cluster: &RayCluster, group: &Group, role: Role, container: &Container) -> String {
    let mut params: BTreeMap<String, String> = group.ray_start_params.clone();
    let mut default = |name: &str, value: String| {
        params.entry(name.to_owned()).or_insert(value);
    };
    default("block", "true".to_owned());
    default("dashboard-agent-listen-port", AGENT_PORT.to_string());
    default("metrics-export-port", "8080".to_owned());
    match role {
        Role::Head => {
            default("dashboard-host", "0.0.0.0".to_owned());
            if cluster.spec.enable_in_tree_autoscaling {
                default("no-monitor", "true".to_owned());
            }
        }
        Role::Worker => default("address", format!("{}:6379", head_address(cluster))),
    }
    let given = |name: &str| {
        let limit = container.resources.limits.get(name).or(container.resources.requests.get(name));
        group.resources.get(name).and_then(|amount| amount.parse().ok()).or(limit.copied())
    };
    if let Some(cpu) = given("CPU").or_else(|| given("cpu")).filter(|amount| *amount != Quantity::default()) {
        default("num-cpus", cpu.ceil().to_string());
    }
    if let Some(memory) = given("memory").filter(|amount| *amount != Quantity::default()) {
        default("memory", memory.ceil().to_string());
    }
    if let Some(gpus) = gpus(&container.resources.limits).or(gpus(&container.resources.requests)) {
        default("num-gpus", gpus.to_string());
    }
    let mut flags = String::new();
    for (name, value) in &params {
        match value.to_ascii_lowercase().as_str() {
            "true" if SWITCHES.contains(&&**name) => flags.extend([" --", name, " "]),
            "false" if SWITCHES.contains(&&**name) => {}
            _ => flags.extend([" --", name, "=", value, " "]),
        }
    }
    match role {
        Role::Head => format!("ray start --head {flags}"),
        Role::Worker => format!("ray start {flags}"),
    }
}

/// How many GPUs, by the first resource that is one and not zero.
fn gpus(amounts: &BTreeMap<String, Quantity>) -> Option<i64> {
    let is_gpu = |name: &str| name.ends_with("gpu") || name.contains("/mig-");
    amounts
        .iter()
        .find(|(name, amount)| is_gpu(name) && **amount != Quantity::default())
        .map(|(_, amount)| amount.ceil())
}

fn environment(container: &mut Value, cluster: &RayCluster, role: Role, group: &str, start: &str) {
    let label = |name: &str| json!({ "fieldRef": { "apiVersion": "v1", "fieldPath": format!("metadata.labels['{name}']") } });
    let field = |path: &str| json!({ "fieldRef": { "apiVersion": "v1", "fieldPath": path } });
    let head = head_address(cluster);
    let mut wanted = match role {
        Role::Head => Vec::new(),
        Role::Worker => vec![
            ("FQ_RAY_IP", json!({ "value": head })),
            ("RAY_IP", json!({ "value": head_service(&cluster.metadata.name) })),
        ],
    };
    wanted.extend([
        ("RAY_CLUSTER_NAME", json!({ "valueFrom": label("ray.io/cluster") })),
        ("RAY_CLUSTER_NAMESPACE", json!({ "valueFrom": field("metadata.namespace") })),
        ("RAY_CLOUD_INSTANCE_ID", json!({ "valueFrom": field("metadata.name") })),
        ("RAY_NODE_TYPE_NAME", json!({ "valueFrom": label("ray.io/group") })),
        ("KUBERAY_GEN_RAY_START_CMD", json!({ "value": start })),
        ("RAY_PORT", json!({ "value": "6379" })),
    ]);
    let address = if role == Role::Head { "127.0.0.1".to_owned() } else { head };
    wanted.push(("RAY_ADDRESS", json!({ "value": format!("{address}:6379") })));
    wanted.push(("RAY_USAGE_STATS_KUBERAY_IN_USE", json!({ "value": "1" })));
    if role == Role::Head {
        let tags = format!("kuberay_version=v1.6.0;kuberay_crd={}", crd_of(cluster));
        wanted.push(("RAY_USAGE_STATS_EXTRA_TAGS", json!({ "value": tags })));
    }
    wanted.push(("RAY_DASHBOARD_ENABLE_K8S_DISK_USAGE", json!({ "value": "1" })));
    let _ = group;
    let env = list(container, "env");
    for (name, mut variable) in wanted {
        if !env.iter().any(|given| given["name"] == name) {
            variable["name"] = json!(name);
            env.push(variable);
        }
    }
}

fn crd_of(cluster: &RayCluster) -> &str {
    cluster.metadata.label("ray.io/originated-from-crd").unwrap_or("RayCluster")
}

fn probes(container: &mut Value, cluster: &RayCluster, role: Role) {
    let probe = |delay: u32, period: u32, timeout: u32, failures: u32| {
        let action = if at_least(&cluster.spec.ray_version, HTTP_PROBES_SINCE) {
            json!({ "httpGet": { "path": "/api/healthz", "port": AGENT_PORT } })
        } else {
            let ask = |port: u16, path: &str, timeout: u32| {
                format!("wget --tries 1 -T {timeout} -q -O- http://localhost:{port}/{path} | grep success")
            };
            let raylet = ask(AGENT_PORT, "api/local_raylet_healthz", 2);
            let command = match role {
                Role::Head => format!("{raylet} && {}", ask(8265, "api/gcs_healthz", 10)),
                Role::Worker => raylet,
            };
            json!({ "exec": { "command": ["bash", "-c", command] } })
        };
        let mut probe = json!({
            "initialDelaySeconds": delay,
            "periodSeconds": period,
            "timeoutSeconds": timeout,
            "successThreshold": 1,
            "failureThreshold": failures,
        });
        for (field, value) in action.as_object().into_iter().flatten() {
            probe[field] = value.clone();
        }
        probe
    };
    let timeout = if role == Role::Head { 5 } else { 2 };
    if container["readinessProbe"].is_null() {
        container["readinessProbe"] = probe(10, 5, timeout, 10);
    }
    if container["livenessProbe"].is_null() {
        container["livenessProbe"] = probe(30, 5, timeout, 120);
    }
}

/// The container that scales the cluster, beside the head.
pub(super) fn autoscaler(cluster: &RayCluster, head: &Value) -> Value {
    let options = &cluster.spec.autoscaler_options;
    let or =
        |field: &str, default: Value| if options[field].is_null() { default } else { options[field].clone() };
    let usual = json!({ "cpu": "500m", "memory": "512Mi" });
    let mut env = vec![
        json!({ "name": "RAY_CLUSTER_NAME", "valueFrom": { "fieldRef": { "apiVersion": "v1", "fieldPath": "metadata.labels['ray.io/cluster']" } } }),
        json!({ "name": "RAY_CLUSTER_NAMESPACE", "valueFrom": { "fieldRef": { "apiVersion": "v1", "fieldPath": "metadata.namespace" } } }),
        json!({ "name": "RAY_HEAD_POD_NAME", "valueFrom": { "fieldRef": { "apiVersion": "v1", "fieldPath": "metadata.name" } } }),
        json!({ "name": "KUBERAY_CRD_VER", "value": "v1" }),
    ];
    if autoscaler_v2(cluster) {
        env.push(json!({ "name": "RAY_enable_autoscaler_v2", "value": "1" }));
    }
    env.extend(options["env"].as_array().cloned().unwrap_or_default());
    let mut mounts = vec![json!({ "name": "ray-logs", "mountPath": "/tmp/ray" })];
    mounts.extend(options["volumeMounts"].as_array().cloned().unwrap_or_default());
    let mut container = json!({
        "name": "autoscaler",
        "image": or("image", head["image"].clone()),
        "imagePullPolicy": or("imagePullPolicy", json!("IfNotPresent")),
        "command": ["/bin/bash", "-c", "--"],
        "args": ["ray kuberay-autoscaler --cluster-name $(RAY_CLUSTER_NAME) --cluster-namespace $(RAY_CLUSTER_NAMESPACE)"],
        "env": env,
        "resources": or("resources", json!({ "requests": usual, "limits": usual })),
        "volumeMounts": mounts,
    });
    for field in ["envFrom", "securityContext"] {
        if !options[field].is_null() {
            container[field] = options[field].clone();
        }
    }
    container
}

/// What the operator tells Ray containers, but not the init container of a worker.
const OPERATOR_VARIABLES: &[&str] = &[
    "RAY_CLUSTER_NAME",
    "RAY_CLUSTER_NAMESPACE",
    "RAY_CLOUD_INSTANCE_ID",
    "RAY_NODE_TYPE_NAME",
    "KUBERAY_GEN_RAY_START_CMD",
    "RAY_PORT",
    "RAY_ADDRESS",
    "RAY_USAGE_STATS_KUBERAY_IN_USE",
    "RAY_DASHBOARD_ENABLE_K8S_DISK_USAGE",
];

/// The init container by which a worker waits for the head.
pub(super) fn wait_for_head(cluster: &RayCluster, worker: &Value) -> Value {
    let head = head_address(cluster);
    let amounts = json!({ "cpu": "200m", "memory": "256Mi" });
    // Of what the operator itself adds to the worker, only the address of the head.
    let own = |field: &str| worker[field].as_array().cloned().unwrap_or_default();
    let given = |variable: &Value| !OPERATOR_VARIABLES.iter().any(|name| variable["name"] == *name);
    let env: Vec<Value> = own("env").into_iter().filter(given).collect();
    let mounts: Vec<Value> = own("volumeMounts").into_iter().filter(|m| m["name"] != "shared-mem").collect();
    let script = format!(
        "until ray health-check --address {head}:6379 > /dev/null 2>&1; do echo waiting for the head of the cluster; sleep 5; done"
    );
    let mut container = json!({
        "name": "wait-gcs-ready",
        "image": worker["image"],
        "command": ["/bin/bash", "-c", "--"],
        "args": [script],
        "env": env,
        "resources": { "requests": amounts, "limits": amounts },
        "volumeMounts": mounts,
    });
    for field in ["imagePullPolicy", "securityContext"] {
        if !worker[field].is_null() {
            container[field] = worker[field].clone();
        }
    }
    container
}

/// The list under a field, made if it is absent.
pub(super) fn list<'a>(value: &'a mut Value, field: &str) -> &'a mut Vec<Value> {
    let slot = &mut value[field];
    if !slot.is_array() {
        *slot = json!([]);
    }
    slot.as_array_mut().expect("just made a list")
}

/// The map under a field, made if it is absent.
pub(super) fn map<'a>(value: &'a mut Value, field: &str) -> &'a mut Map<String, Value> {
    let slot = &mut value[field];
    if !slot.is_object() {
        *slot = json!({});
    }
    slot.as_object_mut().expect("just made a map")
}
