//! Defaults of kinds that make no pods.

use base64::Engine as _;
use serde_json::{Value, json};

use crate::builtin::fields::{absent, items_mut, object_mut};
use crate::object;

/// A `Service`. Addresses are allocated elsewhere.
pub(super) fn service(service: &mut Value) {
    let Some(spec) = object_mut(service, "spec") else { return };
    absent(spec, &["sessionAffinity"], "None");
    if spec["sessionAffinity"] == "None" {
        object::remove(spec, &["sessionAffinityConfig"]);
    } else if spec["sessionAffinity"] == "ClientIP"
        && spec["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"].is_null()
    {
        object::set(spec, &["sessionAffinityConfig"], json!({ "clientIP": { "timeoutSeconds": 10_800 } }));
    }
    absent(spec, &["type"], "ClusterIP");
    let kind = spec["type"].as_str().unwrap_or_default().to_owned();
    for port in items_mut(spec, "ports") {
        absent(port, &["protocol"], "TCP");
        if port["targetPort"].is_null() || port["targetPort"] == 0 || port["targetPort"] == "" {
            object::carry(&json!({ "targetPort": port["port"] }), port, &["targetPort"]);
        }
    }
    let has_external = spec["externalIPs"].as_array().is_some_and(|ips| !ips.is_empty());
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer") || kind == "ClusterIP" && has_external {
        absent(spec, &["externalTrafficPolicy"], "Cluster");
    }
    if kind == "LoadBalancer" {
        absent(spec, &["allocateLoadBalancerNodePorts"], true);
    }
    if kind != "ExternalName" {
        absent(spec, &["internalTrafficPolicy"], "Cluster");
        // Nothing selects pods for it, so it may have addresses of either family.
        let manual = spec["clusterIP"] == "None" && spec["selector"].is_null();
        absent(spec, &["ipFamilyPolicy"], if manual { "RequireDualStack" } else { "SingleStack" });
        absent(spec, &["ipFamilies"], if manual { json!(["IPv4", "IPv6"]) } else { json!(["IPv4"]) });
        if let Some(address) = spec.get("clusterIP").filter(|address| address.is_string()).cloned() {
            absent(spec, &["clusterIPs"], json!([address]));
        }
    }
}

/// A `Secret`: texts given in `stringData` become data.
pub(super) fn secret(secret: &mut Value) {
    absent(secret, &["type"], "Opaque");
    if let Some(Value::Object(texts)) = object::remove(secret, &["stringData"]) {
        for (key, text) in texts {
            let encoded = base64::engine::general_purpose::STANDARD.encode(text.as_str().unwrap_or_default());
            object::set(secret, &["data", &key], encoded);
        }
    }
}

/// A `Namespace`.
pub(super) fn namespace(namespace: &mut Value) {
    let name = object::name(namespace).to_owned();
    object::set(namespace, &["metadata", "labels", "kubernetes.io/metadata.name"], name);
}

/// A new `Namespace` is held until it has been drained.
pub(super) fn generate_namespace(namespace: &mut Value) {
    let finalizers = object::map_mut(namespace, &["spec"]).entry("finalizers").or_insert_with(|| json!([]));
    if let Some(finalizers) = finalizers.as_array_mut()
        && !finalizers.iter().any(|one| one == "kubernetes")
    {
        finalizers.push("kubernetes".into());
    }
    object::set(namespace, &["status"], json!({ "phase": "Active" }));
}

/// A `Node`: what it has can all be used, unless it says otherwise.
pub(super) fn node(node: &mut Value) {
    if let Some(range) = object::get(node, &["spec", "podCIDR"]).cloned() {
        absent(node, &["spec", "podCIDRs"], json!([range]));
    }
    if let Some(capacity) =
        object::get(node, &["status", "capacity"]).filter(|capacity| capacity.is_object()).cloned()
    {
        absent(node, &["status", "allocatable"], capacity);
    }
}

/// A `PersistentVolume`.
pub(super) fn volume(volume: &mut Value) {
    absent(volume, &["spec", "hostPath", "type"], "");
    absent(volume, &["spec", "persistentVolumeReclaimPolicy"], "Retain");
    absent(volume, &["spec", "volumeMode"], "Filesystem");
}

/// A `PersistentVolumeClaim`.
pub(super) fn claim(claim: &mut Value) {
    absent(claim, &["spec", "volumeMode"], "Filesystem");
}

/// Volumes and claims begin unbound.
pub(super) fn phase(object: &mut Value) {
    if object["status"]["phase"].is_null() {
        object::set(object, &["status", "phase"], "Pending");
    }
}

/// A `LimitRange`: limits of containers are their defaults as well.
pub(super) fn limit_range(range: &mut Value) {
    let Some(spec) = object_mut(range, "spec") else { return };
    for item in items_mut(spec, "limits").filter(|item| item["type"] == "Container") {
        for (from, to) in [("max", "default"), ("default", "defaultRequest"), ("min", "defaultRequest")] {
            let Some(from) = item[from].as_object().cloned() else { continue };
            absent(item, &[to], json!({}));
            for (name, value) in from {
                absent(item, &[to, &name], value);
            }
        }
    }
}

/// `Endpoints`.
pub(super) fn endpoints(endpoints: &mut Value) {
    for port in items_mut(endpoints, "subsets").flat_map(|subset| items_mut(subset, "ports")) {
        absent(port, &["protocol"], "TCP");
    }
}

/// An `EndpointSlice`.
pub(super) fn endpoint_slice(slice: &mut Value) {
    for port in items_mut(slice, "ports") {
        absent(port, &["name"], "");
        absent(port, &["protocol"], "TCP");
    }
}

/// A `HorizontalPodAutoscaler`, in either version.
pub(super) fn autoscaler(autoscaler: &mut Value, version: &str) {
    let Some(spec) = object_mut(autoscaler, "spec") else { return };
    absent(spec, &["minReplicas"], 1);
    if version == "v1" {
        absent(spec, &["targetCPUUtilizationPercentage"], 80);
        return;
    }
    let target = json!({ "type": "Utilization", "averageUtilization": 80 });
    absent(
        spec,
        &["metrics"],
        json!([{ "type": "Resource", "resource": { "name": "cpu", "target": target } }]),
    );
    if spec["behavior"].is_object() {
        let percent = json!({ "type": "Percent", "value": 100, "periodSeconds": 15 });
        let pods = json!({ "type": "Pods", "value": 4, "periodSeconds": 15 });
        for (name, window, policies) in
            [("scaleUp", Some(0), json!([pods, percent])), ("scaleDown", None, json!([percent]))]
        {
            absent(spec, &["behavior", name], json!({}));
            absent(spec, &["behavior", name, "selectPolicy"], "Max");
            absent(spec, &["behavior", name, "policies"], policies);
            if let Some(window) = window {
                absent(spec, &["behavior", name, "stabilizationWindowSeconds"], window);
            }
        }
    }
}

/// A `PriorityClass`.
pub(super) fn priority_class(class: &mut Value) {
    absent(class, &["preemptionPolicy"], "PreemptLowerPriority");
}

const RBAC: &str = "rbac.authorization.k8s.io";

/// A `RoleBinding` or `ClusterRoleBinding`.
pub(super) fn role_binding(binding: &mut Value) {
    if let Some(role) = object_mut(binding, "roleRef") {
        if role["apiGroup"] == "" {
            object::remove(role, &["apiGroup"]);
        }
        absent(role, &["apiGroup"], RBAC);
    }
    for subject in items_mut(binding, "subjects") {
        if matches!(subject["kind"].as_str(), Some("User" | "Group")) {
            absent(subject, &["apiGroup"], RBAC);
        }
    }
}

/// A `NetworkPolicy`.
pub(super) fn network_policy(policy: &mut Value) {
    let Some(spec) = object_mut(policy, "spec") else { return };
    let has_egress = spec["egress"].as_array().is_some_and(|rules| !rules.is_empty());
    absent(
        spec,
        &["policyTypes"],
        if has_egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) },
    );
    for rules in ["ingress", "egress"] {
        for port in items_mut(spec, rules).flat_map(|rule| items_mut(rule, "ports")) {
            absent(port, &["protocol"], "TCP");
        }
    }
}

/// An `IngressClass`.
pub(super) fn ingress_class(class: &mut Value) {
    absent(class, &["spec", "parameters", "scope"], "Cluster");
}

/// A `StorageClass`.
pub(super) fn storage_class(class: &mut Value) {
    absent(class, &["reclaimPolicy"], "Delete");
    absent(class, &["volumeBindingMode"], "Immediate");
}

/// Webhook configurations and admission policies.
pub(super) fn admission(kind: &str, object: &mut Value) {
    for webhook in items_mut(object, "webhooks") {
        absent(webhook, &["failurePolicy"], "Fail");
        absent(webhook, &["matchPolicy"], "Equivalent");
        absent(webhook, &["namespaceSelector"], json!({}));
        absent(webhook, &["objectSelector"], json!({}));
        absent(webhook, &["timeoutSeconds"], 10);
        if kind == "MutatingWebhookConfiguration" {
            absent(webhook, &["reinvocationPolicy"], "Never");
        }
        absent(webhook, &["clientConfig", "service", "port"], 443);
        for rule in items_mut(webhook, "rules") {
            absent(rule, &["scope"], "*");
        }
    }
    if matches!(kind, "ValidatingAdmissionPolicy" | "MutatingAdmissionPolicy") {
        absent(object, &["spec", "failurePolicy"], "Fail");
    }
}

/// A `CustomResourceDefinition`.
pub(super) fn definition(definition: &mut Value) {
    let stored =
        object::items(definition, &["spec", "versions"]).iter().find(|version| version["storage"] == true);
    if let Some(name) = stored.and_then(|version| version["name"].as_str()).map(str::to_owned)
        && object::items(definition, &["status", "storedVersions"]).is_empty()
    {
        object::set(definition, &["status", "storedVersions"], json!([name]));
    }
    let Some(spec) = object_mut(definition, "spec") else { return };
    if let Some(kind) = spec["names"]["kind"].as_str().filter(|kind| !kind.is_empty()).map(str::to_owned) {
        absent(spec, &["names", "singular"], kind.to_lowercase());
        absent(spec, &["names", "listKind"], format!("{kind}List"));
    }
    absent(spec, &["conversion"], json!({ "strategy": "None" }));
    absent(spec, &["conversion", "webhook", "clientConfig", "service", "port"], 443);
}
