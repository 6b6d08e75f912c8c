//! What the operator adds to containers: environment, probes, shared volumes, and whole containers.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::types::{Group, RayCluster};
use super::{auth, start};
use crate::wire::Container;

/// The first Ray version with one HTTP health endpoint for head and workers.
const HTTP_PROBES_SINCE: (u32, u32) = (2, 53);

/// The role of a pod in its Ray cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Head,
    Worker,
}

/// Name of the head Service.
pub(super) fn head_service(cluster: &RayCluster) -> String {
    let named = cluster.spec.head_group_spec.head_service["metadata"]["name"].as_str();
    let usual = || format!("{}-head-svc", cluster.metadata.name);
    named.filter(|name| !name.is_empty()).map_or_else(usual, str::to_owned)
}

/// DNS name of the head Service.
pub(super) fn head_address(cluster: &RayCluster) -> String {
    format!("{}.{}.svc.cluster.local", head_service(cluster), cluster.metadata.namespace)
}

/// Whether the cluster uses autoscaler v2. Its pods are not restarted in place.
pub(super) fn autoscaler_v2(cluster: &RayCluster) -> bool {
    cluster.spec.enable_in_tree_autoscaling && cluster.spec.autoscaler_options["version"] == "v2"
}

fn at_least(version: &str, bound: (u32, u32)) -> bool {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().ok());
    matches!((parts.next().flatten(), parts.next().flatten()), (Some(major), Some(minor)) if (major, minor) >= bound)
}

/// Turns the first container of a pod into the Ray container. All other fields of the pod must be set before.
pub(super) fn configure_ray_container(pod: &mut Value, cluster: &RayCluster, group: &Group, role: Role) {
    let slim: Container = serde_json::from_value(pod["spec"]["containers"][0].clone()).unwrap_or_default();
    let params = start::params(cluster, group, role, &slim);
    let spec = &mut pod["spec"];
    if !params.contains_key("plasma-directory") {
        let size = slim.resources.limits.get("memory").or(slim.resources.requests.get("memory"));
        let mut directory = json!({ "medium": "Memory" });
        if let Some(size) = size {
            directory["sizeLimit"] = json!(size);
        }
        share(spec, 0, "shared-mem", "/dev/shm", &directory);
    }
    if role == Role::Head && cluster.spec.enable_in_tree_autoscaling {
        let containers = spec["containers"].as_array().into_iter().flatten();
        let scaler = containers.into_iter().position(|container| container["name"] == "autoscaler");
        for at in [Some(0), scaler].into_iter().flatten() {
            share(spec, at, "ray-logs", "/tmp/ray", &json!({}));
        }
    }
    let start = start::command(role, &params);
    let overwritten = pod["metadata"]["annotations"]["ray.io/overwrite-container-cmd"].as_str();
    let overwritten = overwritten.is_some_and(|text| text.eq_ignore_ascii_case("true"));
    let container = &mut pod["spec"]["containers"][0];
    let words = |field: &str| -> String {
        let words = container[field].as_array().into_iter().flatten().filter_map(Value::as_str);
        words.flat_map(|word| [" ", word, " "]).collect()
    };
    let user = words("command") + &words("args");
    if !overwritten && !user.contains("ray start") {
        let line = if user.is_empty() {
            format!("ulimit -n 65536; {start}")
        } else {
            format!("{user} && ulimit -n 65536; {start}")
        };
        container["command"] = json!(["/bin/bash", "-c", "--"]);
        container["args"] = json!([line]);
    }
    environment(container, cluster, role, &start);
    probes(container, cluster, role, &params);
    let inits = pod["spec"]["initContainers"].as_array_mut().into_iter().flatten();
    inits.for_each(|container| list(container, "env").extend(addresses(cluster)));
}

/// Adds an item unless the list has one with the same name.
pub(super) fn push_if_absent(items: &mut Vec<Value>, item: Value) {
    if !items.iter().any(|given| given["name"] == item["name"]) {
        items.push(item);
    }
}

/// Mounts a shared volume into a container, unless another volume has this mount path.
fn share(spec: &mut Value, at: usize, name: &str, path: &str, directory: &Value) {
    let mounts = list(&mut spec["containers"][at], "volumeMounts");
    if mounts.iter().any(|mount| mount["mountPath"] == path) {
        return;
    }
    mounts.push(json!({ "name": name, "mountPath": path }));
    push_if_absent(list(spec, "volumes"), json!({ "name": name, "emptyDir": directory }));
}

/// Adds the metrics port to the Ray container.
pub(super) fn expose_metrics(container: &mut Value) {
    let metrics = json!({ "name": "metrics", "containerPort": 8080, "protocol": "TCP" });
    push_if_absent(list(container, "ports"), metrics);
}

/// Environment variables with the address of the head, for all containers except the Ray container of the head.
fn addresses(cluster: &RayCluster) -> [Value; 2] {
    let address = head_address(cluster);
    let service = address.split('.').next().unwrap_or_default();
    [json!({ "name": "FQ_RAY_IP", "value": address }), json!({ "name": "RAY_IP", "value": service })]
}

/// Sets environment variables. The operator overrides some values of the user; others are defaults.
fn environment(container: &mut Value, cluster: &RayCluster, role: Role, start: &str) {
    let field = |name: &str, path: &str| json!({ "name": name, "valueFrom": { "fieldRef": { "apiVersion": "v1", "fieldPath": path } } });
    let port = start::gcs_port(cluster);
    let env = list(container, "env");
    if role == Role::Worker {
        env.extend(addresses(cluster));
    }
    env.extend([
        field("RAY_CLUSTER_NAME", "metadata.labels['ray.io/cluster']"),
        field("RAY_CLUSTER_NAMESPACE", "metadata.namespace"),
        field("RAY_CLOUD_INSTANCE_ID", "metadata.name"),
        field("RAY_NODE_TYPE_NAME", "metadata.labels['ray.io/group']"),
        json!({ "name": "KUBERAY_GEN_RAY_START_CMD", "value": start }),
    ]);
    let default = |env: &mut Vec<Value>, name: &str, value: &str| {
        push_if_absent(env, json!({ "name": name, "value": value }));
    };
    default(env, "RAY_PORT", port);
    let address = if role == Role::Head { "127.0.0.1".to_owned() } else { head_address(cluster) };
    default(env, "RAY_ADDRESS", &format!("{address}:{port}"));
    default(env, "RAY_USAGE_STATS_KUBERAY_IN_USE", "1");
    if role == Role::Head {
        let tags = format!("kuberay_version=v1.6.2;kuberay_crd={}", crd_of(cluster));
        env.push(json!({ "name": "RAY_USAGE_STATS_EXTRA_TAGS", "value": tags }));
    }
    default(env, "RAY_DASHBOARD_ENABLE_K8S_DISK_USAGE", "1");
}

fn crd_of(cluster: &RayCluster) -> &str {
    cluster.metadata.label("ray.io/originated-from-crd").unwrap_or("RayCluster")
}

fn probes(container: &mut Value, cluster: &RayCluster, role: Role, params: &BTreeMap<String, String>) {
    let port =
        |param: &str, usual: u16| params.get(param).and_then(|port| port.parse().ok()).unwrap_or(usual);
    let (agent, dashboard) = (port("dashboard-agent-listen-port", 52365), port("dashboard-port", 8265));
    let probe = |delay: u32, period: u32, timeout: u32, failures: u32| {
        let action = if at_least(&cluster.spec.ray_version, HTTP_PROBES_SINCE) {
            json!({ "httpGet": { "path": "/api/healthz", "port": agent } })
        } else {
            let ask = |port: u16, path: &str, timeout: u32| {
                format!("wget --tries 1 -T {timeout} -q -O- http://localhost:{port}/{path} | grep success")
            };
            let raylet = ask(agent, "api/local_raylet_healthz", 2);
            let command = match role {
                Role::Head => format!("{raylet} && {}", ask(dashboard, "api/gcs_healthz", 10)),
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

/// The autoscaler sidecar of the head pod.
pub(super) fn autoscaler(cluster: &RayCluster, head: &Value) -> Value {
    let options = &cluster.spec.autoscaler_options;
    let or =
        |field: &str, default: Value| if options[field].is_null() { default } else { options[field].clone() };
    let usual = json!({ "cpu": "500m", "memory": "512Mi" });
    let env = [
        json!({ "name": "RAY_CLUSTER_NAME", "valueFrom": { "fieldRef": { "apiVersion": "v1", "fieldPath": "metadata.labels['ray.io/cluster']" } } }),
        json!({ "name": "RAY_CLUSTER_NAMESPACE", "valueFrom": { "fieldRef": { "apiVersion": "v1", "fieldPath": "metadata.namespace" } } }),
        json!({ "name": "RAY_HEAD_POD_NAME", "valueFrom": { "fieldRef": { "apiVersion": "v1", "fieldPath": "metadata.name" } } }),
        json!({ "name": "KUBERAY_CRD_VER", "value": "v1" }),
    ];
    let mut container = json!({
        "name": "autoscaler",
        "image": or("image", head["image"].clone()),
        "imagePullPolicy": or("imagePullPolicy", json!("IfNotPresent")),
        "command": ["/bin/bash", "-c", "--"],
        "args": ["ray kuberay-autoscaler --cluster-name $(RAY_CLUSTER_NAME) --cluster-namespace $(RAY_CLUSTER_NAMESPACE)"],
        "env": env,
        "resources": or("resources", json!({ "requests": usual, "limits": usual })),
    });
    auth::add_environment(cluster, &mut container);
    for field in ["env", "volumeMounts"] {
        let more = options[field].as_array().cloned().unwrap_or_default();
        list(&mut container, field).extend(more);
    }
    for field in ["envFrom", "securityContext"] {
        if !options[field].is_null() {
            container[field] = options[field].clone();
        }
    }
    container
}

/// The init container of a worker, which waits until the GCS of the head is ready. It inherits image, environment,
/// mounts and security context of the Ray container.
pub(super) fn wait_for_head(cluster: &RayCluster, worker: &Value) -> Value {
    let address = format!("{}:{}", head_address(cluster), start::gcs_port(cluster));
    let amounts = json!({ "cpu": "200m", "memory": "256Mi" });
    let script = format!(
        "until ray health-check --address {address} > /dev/null 2>&1; do echo waiting for the head of the cluster; sleep 5; done"
    );
    let mut container = json!({
        "name": "wait-gcs-ready",
        "image": worker["image"],
        "command": ["/bin/bash", "-c", "--"],
        "args": [script],
        "resources": { "requests": amounts, "limits": amounts },
    });
    for field in ["imagePullPolicy", "securityContext", "env", "volumeMounts"] {
        if !worker[field].is_null() {
            container[field] = worker[field].clone();
        }
    }
    container
}

/// The list in a field, created if it is absent.
pub(super) fn list<'a>(value: &'a mut Value, field: &str) -> &'a mut Vec<Value> {
    let slot = &mut value[field];
    if !slot.is_array() {
        *slot = json!([]);
    }
    slot.as_array_mut().expect("the field was just set to a list")
}

/// The map in a field, created if it is absent.
pub(super) fn map<'a>(value: &'a mut Value, field: &str) -> &'a mut Map<String, Value> {
    let slot = &mut value[field];
    if !slot.is_object() {
        *slot = json!({});
    }
    slot.as_object_mut().expect("the field was just set to an object")
}
