//! What a Ray cluster has besides pods: services, and the rights of its autoscaler.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::containers::head_service;
use super::types::RayCluster;
use crate::cluster::Kind;
use crate::wire::Owner;

/// Ports of a head that declares none.
const DEFAULT_PORTS: [(&str, u16); 4] =
    [("client", 10001), ("dashboard", 8265), ("gcs-server", 6379), ("serve", 8000)];

/// Ports of the head by name.
pub(super) fn head_ports(cluster: &RayCluster) -> BTreeMap<String, u16> {
    let container = &cluster.spec.head_group_spec.template["spec"]["containers"][0];
    let declared = container["ports"].as_array().into_iter().flatten();
    let mut ports: BTreeMap<String, u16> = declared
        .filter_map(|port| {
            let number = u16::try_from(port["containerPort"].as_u64()?).ok()?;
            Some((port["name"].as_str()?.to_owned(), number))
        })
        .collect();
    if ports.is_empty() {
        ports = DEFAULT_PORTS.map(|(name, port)| (name.to_owned(), port)).into();
    }
    ports.entry("metrics".to_owned()).or_insert(8080);
    ports
}

/// The Services of a cluster, in the order in which they are made.
pub(super) fn services(cluster: &RayCluster) -> Vec<Value> {
    let name = &cluster.metadata.name;
    let mut services = vec![head(cluster, &head_service(name), &[])];
    if cluster.spec.worker_group_specs.iter().any(|group| group.hosts() > 1) {
        services.push(json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                "name": format!("{name}-headless"),
                "namespace": cluster.metadata.namespace,
                "labels": { "ray.io/headless-worker-svc": name },
                "ownerReferences": [Owner::controller_of("ray.io/v1", "RayCluster", &cluster.metadata)],
            },
            "spec": {
                "clusterIP": "None",
                "publishNotReadyAddresses": true,
                "selector": { "ray.io/cluster": name, "ray.io/node-type": "worker" },
                "type": "ClusterIP",
            },
        }));
    }
    services
}

/// A Service in front of the head, owned by the cluster unless another owner is given.
pub(super) fn head(cluster: &RayCluster, name: &str, owner: &[Value]) -> Value {
    let ports: Vec<Value> = head_ports(cluster)
        .into_iter()
        .map(|(name, port)| {
            json!({ "name": name, "port": port, "targetPort": port, "protocol": "TCP", "appProtocol": "tcp" })
        })
        .collect();
    let owner = match owner {
        [] => vec![Owner::controller_of("ray.io/v1", "RayCluster", &cluster.metadata)],
        given => given.to_vec(),
    };
    let mut selector = labels(cluster, "kuberay");
    selector["ray.io/node-type"] = json!("head");
    let mut spec = json!({ "ports": ports, "selector": selector, "publishNotReadyAddresses": true });
    match cluster.spec.head_group_spec.service_type.as_str() {
        "" | "ClusterIP" => {
            spec["type"] = json!("ClusterIP");
            spec["clusterIP"] = json!("None");
        }
        other => spec["type"] = json!(other),
    }
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "namespace": cluster.metadata.namespace,
            "labels": selector,
            "annotations": cluster.spec.head_service_annotations,
            "ownerReferences": owner,
        },
        "spec": spec,
    })
}

fn labels(cluster: &RayCluster, name: &str) -> Value {
    let stem = &cluster.metadata.name;
    json!({
        "app.kubernetes.io/created-by": "kuberay-operator",
        "app.kubernetes.io/name": name,
        "ray.io/cluster": stem,
        "ray.io/identifier": format!("{stem}-head"),
    })
}

/// What the autoscaler needs to do its work: account, role, binding, with the names of the events that tell of them.
pub(super) fn rights(cluster: &RayCluster) -> Vec<(Kind, &'static str, Value)> {
    if !cluster.spec.enable_in_tree_autoscaling {
        return Vec::new();
    }
    let name = &cluster.metadata.name;
    let meta = json!({
        "name": name,
        "namespace": cluster.metadata.namespace,
        "labels": {
            "app.kubernetes.io/created-by": "kuberay-operator",
            "app.kubernetes.io/name": "kuberay",
            "ray.io/cluster": name,
        },
        "ownerReferences": [Owner::controller_of("ray.io/v1", "RayCluster", &cluster.metadata)],
    });
    let rbac = "rbac.authorization.k8s.io";
    vec![
        (
            Kind::SERVICE_ACCOUNT,
            "CreatedServiceAccount",
            json!({
                "apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta,
            }),
        ),
        (
            Kind::ROLE,
            "CreatedRole",
            json!({
                "apiVersion": Kind::ROLE.api_version, "kind": "Role", "metadata": meta,
                "rules": [
                    { "apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "patch"] },
                    { "apiGroups": [""], "resources": ["pods/resize"], "verbs": ["patch"] },
                    { "apiGroups": ["ray.io"], "resources": ["rayclusters"], "verbs": ["get", "patch"] },
                ],
            }),
        ),
        (
            Kind::ROLE_BINDING,
            "CreatedRoleBinding",
            json!({
                "apiVersion": Kind::ROLE_BINDING.api_version, "kind": "RoleBinding", "metadata": meta,
                "subjects": [{ "kind": "ServiceAccount", "name": name, "namespace": cluster.metadata.namespace }],
                "roleRef": { "apiGroup": rbac, "kind": "Role", "name": name },
            }),
        ),
    ]
}
