//! GCS fault tolerance: the settings of the head pod, and the Job that removes the cluster's data from Redis.

use serde_json::{Value, json};

use super::containers::{Role, list, map, push_if_absent};
use super::pods;
use super::types::RayCluster;
use crate::wire::Owner;

/// Keeps a deleted cluster until its data is removed from Redis.
pub(super) const FINALIZER: &str = "ray.io/gcs-ft-redis-cleanup-finalizer";
const STORAGE: &str = "ray.io/external-storage-namespace";

/// Whether GCS fault tolerance is enabled.
pub(super) fn is_on(cluster: &RayCluster) -> bool {
    let annotation = cluster.metadata.annotation("ray.io/ft-enabled");
    !cluster.spec.gcs_fault_tolerance_options.is_null()
        || annotation.is_some_and(|text| text.eq_ignore_ascii_case("true"))
}

/// Adds annotations and environment variables to a Ray pod; `pod` has metadata and spec.
pub(super) fn configure_pod(cluster: &RayCluster, role: Role, pod: &mut Value) {
    let is_on = is_on(cluster);
    let options = &cluster.spec.gcs_fault_tolerance_options;
    if role == Role::Head {
        map(&mut pod["metadata"], "annotations")
            .insert("ray.io/ft-enabled".to_owned(), json!(is_on.to_string()));
    }
    if !is_on {
        return;
    }
    let stated = options["externalStorageNamespace"].as_str().filter(|name| !name.is_empty());
    let storage = stated.or(cluster.metadata.annotation(STORAGE)).unwrap_or(&cluster.metadata.uid);
    if role == Role::Head {
        map(&mut pod["metadata"], "annotations").insert(STORAGE.to_owned(), json!(storage));
    }
    let env = list(&mut pod["spec"]["containers"][0], "env");
    if role == Role::Worker {
        push_if_absent(env, json!({ "name": "RAY_gcs_rpc_server_reconnect_timeout_s", "value": "600" }));
        return;
    }
    push_if_absent(env, json!({ "name": "RAY_external_storage_namespace", "value": storage }));
    if options.is_null() {
        if let Some(password) = cluster.spec.head_group_spec.ray_start_params.get("redis-password") {
            push_if_absent(env, json!({ "name": "REDIS_PASSWORD", "value": password }));
        }
        return;
    }
    env.push(json!({ "name": "RAY_REDIS_ADDRESS", "value": options["redisAddress"] }));
    for (field, name) in [("redisUsername", "REDIS_USERNAME"), ("redisPassword", "REDIS_PASSWORD")] {
        if !options[field].is_null() {
            let mut variable = options[field].clone();
            variable["name"] = json!(name);
            env.push(variable);
        }
    }
}

/// Name of the Redis cleanup Job.
pub(super) fn cleanup_name(cluster: &RayCluster) -> String {
    pods::label_value(&format!("{}-redis-cleanup", cluster.metadata.name))
}

/// The Job that removes the data of a deleted cluster from Redis.
pub(super) fn cleanup(cluster: &RayCluster) -> Value {
    let mut pod = pods::head(cluster);
    map(&mut pod["metadata"], "labels").insert("ray.io/node-type".to_owned(), json!("redis-cleanup"));
    let amounts = json!({ "cpu": "200m", "memory": "256Mi" });
    let mut container = pod["spec"]["containers"][0].clone();
    container["command"] = json!(["/bin/bash", "-c", "--"]);
    container["args"] = json!(["python -c 'remove what this cluster keeps in Redis'"]);
    container["resources"] = json!({ "requests": amounts, "limits": amounts });
    for probe in ["livenessProbe", "readinessProbe"] {
        container[probe] = Value::Null;
    }
    list(&mut container, "env").extend([
        json!({ "name": "RAY_redis_db_connect_retries", "value": "120" }),
        json!({ "name": "RAY_redis_db_connect_wait_milliseconds", "value": "500" }),
    ]);
    pod["spec"]["containers"] = json!([container]);
    pod["spec"]["restartPolicy"] = json!("Never");
    let meta = &pod["metadata"];
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": cleanup_name(cluster),
            "namespace": cluster.metadata.namespace,
            "labels": meta["labels"],
            "annotations": meta["annotations"],
            "ownerReferences": [Owner::controller_of("ray.io/v1", "RayCluster", &cluster.metadata)],
        },
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": 300,
            "template": { "metadata": { "labels": meta["labels"], "annotations": meta["annotations"] }, "spec": pod["spec"] },
        },
    })
}
