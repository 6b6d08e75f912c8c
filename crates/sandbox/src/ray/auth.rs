//! Token authentication of a Ray cluster: the Secret with the token, and the environment of the containers.

use serde_json::{Value, json};

use super::containers::{list, push_if_absent};
use super::types::RayCluster;
use crate::pace::Pace;
use crate::wire::Owner;

/// Volume and mount path of the service account token.
const VOLUME: &str = "ray-token";
const MOUNT: &str = "/var/run/secrets/ray.io/serviceaccount";

/// Whether the cluster requires a token.
pub(super) fn is_on(cluster: &RayCluster) -> bool {
    cluster.spec.auth_options["mode"] == "token"
}

/// Whether the token is a Kubernetes service account token.
pub(super) fn is_kubernetes(cluster: &RayCluster) -> bool {
    cluster.spec.auth_options["enableK8sTokenAuth"] == true
}

/// The Secret that the spec names.
fn named(cluster: &RayCluster) -> Option<&str> {
    cluster.spec.auth_options["secretName"].as_str().filter(|name| !name.is_empty())
}

/// The Secret with a generated token, unless the spec names one or uses service account tokens.
pub(super) fn secret(cluster: &RayCluster, pace: Pace) -> Option<Value> {
    if !is_on(cluster) || is_kubernetes(cluster) || named(cluster).is_some() {
        return None;
    }
    let draw = |part: usize| format!("{:016x}", pace.draw((&cluster.metadata.uid, "token", part)));
    Some(json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": cluster.metadata.name,
            "namespace": cluster.metadata.namespace,
            "labels": { "ray.io/cluster": cluster.metadata.name },
            "ownerReferences": [Owner::controller_of("ray.io/v1", "RayCluster", &cluster.metadata)],
        },
        "stringData": { "auth_token": (0..3).map(draw).collect::<String>() },
    }))
}

/// Adds the authentication settings to the environment of a container.
pub(super) fn add_environment(cluster: &RayCluster, container: &mut Value) {
    if !is_on(cluster) {
        return;
    }
    let env = list(container, "env");
    push_if_absent(env, json!({ "name": "RAY_AUTH_MODE", "value": "token" }));
    if is_kubernetes(cluster) {
        push_if_absent(env, json!({ "name": "RAY_ENABLE_K8S_TOKEN_AUTH", "value": "true" }));
        let mount = json!({ "name": VOLUME, "mountPath": MOUNT, "readOnly": true });
        push_if_absent(list(container, "volumeMounts"), mount);
    } else {
        let name = named(cluster).unwrap_or(&cluster.metadata.name);
        let secret = json!({ "name": name, "key": "auth_token" });
        push_if_absent(env, json!({ "name": "RAY_AUTH_TOKEN", "valueFrom": { "secretKeyRef": secret } }));
    }
}

/// Adds the authentication settings to all containers of a Ray pod, and the volume with the service account token.
pub(super) fn configure_pod(cluster: &RayCluster, spec: &mut Value) {
    if !is_on(cluster) {
        return;
    }
    add_environment(cluster, &mut spec["containers"][0]);
    let waits = spec["initContainers"].as_array_mut().into_iter().flatten();
    waits
        .filter(|container| container["name"] == "wait-gcs-ready")
        .for_each(|container| add_environment(cluster, container));
    if is_kubernetes(cluster) {
        let token = json!({ "serviceAccountToken": { "path": "token" } });
        push_if_absent(list(spec, "volumes"), json!({ "name": VOLUME, "projected": { "sources": [token] } }));
    }
}
