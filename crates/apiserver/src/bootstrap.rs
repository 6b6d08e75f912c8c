//! Bootstrap objects of a cluster, other than namespaces.

use serde_json::{Value, json};

const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// The system priority classes, the default cluster roles with what aggregates to them, the priority levels of requests, and the service
/// `kubernetes`.
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
    // Each is a part of the one that may more.
    for (name, part_of, rules) in
        [("admin", None, admin), ("edit", Some("admin"), edit), ("view", Some("edit"), view)]
    {
        let mut role = role(name, &json!(rules));
        let label = |name: &str| format!("rbac.authorization.k8s.io/aggregate-to-{name}");
        role["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {label(name): "true"}}]});
        if let Some(other) = part_of {
            role["metadata"]["labels"][label(other)] = "true".into();
        }
        all.push(role);
    }
    all.extend(priority_levels());
    all
}

/// The priority levels that kube-apiserver creates, with the schemas that are mandatory. They have no effect: no request waits.
fn priority_levels() -> Vec<Value> {
    const LEVELS: [(&str, u32, u32); 7] = [
        ("system", 30, 33),
        ("node-high", 40, 25),
        ("leader-election", 10, 0),
        ("workload-high", 40, 50),
        ("workload-low", 100, 90),
        ("global-default", 20, 50),
        ("catch-all", 5, 0),
    ];
    let level = |(name, shares, lendable): (&str, u32, u32)| {
        let response = if name == "catch-all" { "Reject" } else { "Queue" };
        flow_control(
            "PriorityLevelConfiguration",
            name,
            &json!({"type": "Limited", "limited": {
            "nominalConcurrencyShares": shares, "lendablePercent": lendable, "limitResponse": {"type": response}}}),
        )
    };
    let mut all: Vec<Value> = LEVELS.map(level).into();
    let exempt = json!({"type": "Exempt", "exempt": {}});
    all.push(flow_control("PriorityLevelConfiguration", "exempt", &exempt));
    let everything = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"], "namespaces": ["*"], "clusterScope": true}]);
    let paths = json!([{"nonResourceURLs": ["*"], "verbs": ["*"]}]);
    for (name, precedence, groups) in [
        ("exempt", 1, &["system:masters"][..]),
        ("catch-all", 10_000, &["system:unauthenticated", "system:authenticated"][..]),
    ] {
        let subjects: Vec<Value> =
            groups.iter().map(|group| json!({"kind": "Group", "group": {"name": group}})).collect();
        let rule = json!({"subjects": subjects, "resourceRules": everything, "nonResourceRules": paths});
        all.push(flow_control(
            "FlowSchema",
            name,
            &json!({"priorityLevelConfiguration": {"name": name},
            "matchingPrecedence": precedence, "rules": [rule]}),
        ));
    }
    all
}

fn flow_control(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
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
