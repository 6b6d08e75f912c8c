//! Bootstrap objects of a cluster, other than namespaces.

use serde_json::{Value, json};

const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// The system priority classes, the default cluster roles, and the service `kubernetes`.
pub(crate) fn objects() -> Vec<Value> {
    let mut all = vec![
        priority("system-cluster-critical", 2_000_000_000, "cluster"),
        priority("system-node-critical", 2_000_001_000, "node"),
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                "name": "kubernetes",
                "namespace": "default",
                "labels": { "component": "apiserver", "provider": "kubernetes" },
            },
            "spec": {
                "type": "ClusterIP",
                "clusterIP": "10.96.0.1",
                "ports": [{ "name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443 }],
                "sessionAffinity": "None",
                "internalTrafficPolicy": "Cluster",
            },
        }),
        role(
            "cluster-admin",
            &json!([
                { "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] },
                { "nonResourceURLs": ["*"], "verbs": ["*"] },
            ]),
        ),
        json!({
            "apiVersion": RBAC,
            "kind": "ClusterRoleBinding",
            "metadata": { "name": "cluster-admin", "labels": labels() },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
            "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:masters" }],
        }),
    ];
    let read = &["get", "list", "watch"][..];
    let write = &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"][..];
    let workloads = |verbs: &[&str]| {
        vec![
            json!({
                "apiGroups": [""],
                "resources": [
                    "configmaps", "endpoints", "events", "persistentvolumeclaims", "pods", "pods/log", "pods/status",
                    "replicationcontrollers", "replicationcontrollers/scale", "serviceaccounts", "services",
                ],
                "verbs": verbs,
            }),
            json!({
                "apiGroups": ["apps", "autoscaling", "batch", "discovery.k8s.io", "networking.k8s.io", "policy"],
                "resources": ["*"],
                "verbs": verbs,
            }),
            json!({
                "apiGroups": [""],
                "resources": ["limitranges", "namespaces", "resourcequotas"],
                "verbs": read,
            }),
        ]
    };
    let secrets = json!({ "apiGroups": [""], "resources": ["secrets"], "verbs": write });
    let part = json!({ "apiGroups": [""], "resources": ["pods/eviction", "serviceaccounts/token"], "verbs": ["create"] });
    let access = json!({
        "apiGroups": ["rbac.authorization.k8s.io"],
        "resources": ["rolebindings", "roles"],
        "verbs": write,
    });
    let view = workloads(read);
    let mut edit = workloads(write);
    edit.extend([secrets, part]);
    let mut admin = edit.clone();
    admin.push(access);
    all.extend([role("admin", &json!(admin)), role("edit", &json!(edit)), role("view", &json!(view))]);
    all
}

fn labels() -> Value {
    json!({ "kubernetes.io/bootstrapping": "rbac-defaults" })
}

fn role(name: &str, rules: &Value) -> Value {
    json!({
        "apiVersion": RBAC,
        "kind": "ClusterRole",
        "metadata": { "name": name, "labels": labels() },
        "rules": rules,
    })
}

fn priority(name: &str, value: i64, scope: &str) -> Value {
    let description = match scope {
        "node" => "Used for system critical pods that must not be moved from their current node.",
        _ => {
            "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary."
        }
    };
    json!({
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": { "name": name },
        "value": value,
        "preemptionPolicy": "PreemptLowerPriority",
        "description": description,
    })
}
