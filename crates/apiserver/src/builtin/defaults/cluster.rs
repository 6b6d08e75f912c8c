//! Defaults of kinds without a pod template.

use base64::Engine as _;
use serde_json::{Value, json};

use crate::builtin::fields::{items_mut, object_mut, set_default};
use crate::object;

/// `Service`. Addresses are allocated elsewhere.
pub(super) fn service(service: &mut Value) {
    let Some(spec) = object_mut(service, "spec") else { return };
    set_default(spec, &["sessionAffinity"], "None");
    if spec["sessionAffinity"] == "None" {
        object::remove(spec, &["sessionAffinityConfig"]);
    } else if spec["sessionAffinity"] == "ClientIP"
        && spec["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"].is_null()
    {
        object::set(spec, &["sessionAffinityConfig"], json!({ "clientIP": { "timeoutSeconds": 10_800 } }));
    }
    set_default(spec, &["type"], "ClusterIP");
    let kind = spec["type"].as_str().unwrap_or_default().to_owned();
    for port in items_mut(spec, "ports") {
        set_default(port, &["protocol"], "TCP");
        if port["targetPort"].is_null() || port["targetPort"] == 0 || port["targetPort"] == "" {
            object::carry(&json!({ "targetPort": port["port"] }), port, &["targetPort"]);
        }
    }
    let has_external = spec["externalIPs"].as_array().is_some_and(|ips| !ips.is_empty());
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer") || kind == "ClusterIP" && has_external {
        set_default(spec, &["externalTrafficPolicy"], "Cluster");
    }
    if kind == "LoadBalancer" {
        set_default(spec, &["allocateLoadBalancerNodePorts"], true);
    }
    if kind != "ExternalName" {
        set_default(spec, &["internalTrafficPolicy"], "Cluster");
        // A headless service without a selector may have addresses of both families.
        let manual = spec["clusterIP"] == "None" && spec["selector"].is_null();
        set_default(spec, &["ipFamilyPolicy"], if manual { "RequireDualStack" } else { "SingleStack" });
        set_default(spec, &["ipFamilies"], if manual { json!(["IPv4", "IPv6"]) } else { json!(["IPv4"]) });
        if let Some(address) = spec.get("clusterIP").filter(|address| address.is_string()).cloned() {
            set_default(spec, &["clusterIPs"], json!([address]));
        }
    }
}

/// `Secret`: moves the values of `stringData` to `data`.
pub(super) fn secret(secret: &mut Value) {
    set_default(secret, &["type"], "Opaque");
    if let Some(Value::Object(texts)) = object::remove(secret, &["stringData"]) {
        for (key, text) in texts {
            let encoded = base64::engine::general_purpose::STANDARD.encode(text.as_str().unwrap_or_default());
            object::set(secret, &["data", &key], encoded);
        }
    }
}

/// `Namespace`.
pub(super) fn namespace(namespace: &mut Value) {
    let name = object::name(namespace).to_owned();
    object::set(namespace, &["metadata", "labels", "kubernetes.io/metadata.name"], name);
}

/// Adds the finalizer `kubernetes` to a new `Namespace`. It is removed when the namespace is empty.
pub(super) fn generate_namespace(namespace: &mut Value) {
    let finalizers = object::map_mut(namespace, &["spec"]).entry("finalizers").or_insert_with(|| json!([]));
    if let Some(finalizers) = finalizers.as_array_mut()
        && !finalizers.iter().any(|one| one == "kubernetes")
    {
        finalizers.push("kubernetes".into());
    }
    object::set(namespace, &["status"], json!({ "phase": "Active" }));
}

/// `Node`: allocatable resources default to the capacity.
pub(super) fn node(node: &mut Value) {
    if let Some(range) = object::get(node, &["spec", "podCIDR"]).cloned() {
        set_default(node, &["spec", "podCIDRs"], json!([range]));
    }
    if let Some(capacity) =
        object::get(node, &["status", "capacity"]).filter(|capacity| capacity.is_object()).cloned()
    {
        set_default(node, &["status", "allocatable"], capacity);
    }
}

/// `PersistentVolume`.
pub(super) fn volume(volume: &mut Value) {
    set_default(volume, &["spec", "hostPath", "type"], "");
    set_default(volume, &["spec", "persistentVolumeReclaimPolicy"], "Retain");
    set_default(volume, &["spec", "volumeMode"], "Filesystem");
}

/// `PersistentVolumeClaim`.
pub(super) fn claim(claim: &mut Value) {
    set_default(claim, &["spec", "volumeMode"], "Filesystem");
}

/// Sets the initial phase `Pending` of volumes and claims.
pub(super) fn initial_phase(object: &mut Value) {
    if object["status"]["phase"].is_null() {
        object::set(object, &["status", "phase"], "Pending");
    }
}

/// `LimitRange`: for containers, `default` defaults to `max`, and `defaultRequest` to `default`, then to `min`.
pub(super) fn limit_range(range: &mut Value) {
    let Some(spec) = object_mut(range, "spec") else { return };
    for item in items_mut(spec, "limits").filter(|item| item["type"] == "Container") {
        for (from, to) in [("max", "default"), ("default", "defaultRequest"), ("min", "defaultRequest")] {
            let Some(from) = item[from].as_object().cloned() else { continue };
            set_default(item, &[to], json!({}));
            for (name, value) in from {
                set_default(item, &[to, &name], value);
            }
        }
    }
}

/// `Endpoints`.
pub(super) fn endpoints(endpoints: &mut Value) {
    for port in items_mut(endpoints, "subsets").flat_map(|subset| items_mut(subset, "ports")) {
        set_default(port, &["protocol"], "TCP");
    }
}

/// `EndpointSlice`.
pub(super) fn endpoint_slice(slice: &mut Value) {
    for port in items_mut(slice, "ports") {
        set_default(port, &["name"], "");
        set_default(port, &["protocol"], "TCP");
    }
}

/// `HorizontalPodAutoscaler`, `v1` and `v2`.
pub(super) fn autoscaler(autoscaler: &mut Value, version: &str) {
    let Some(spec) = object_mut(autoscaler, "spec") else { return };
    set_default(spec, &["minReplicas"], 1);
    if version == "v1" {
        set_default(spec, &["targetCPUUtilizationPercentage"], 80);
        return;
    }
    let target = json!({ "type": "Utilization", "averageUtilization": 80 });
    set_default(
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
            set_default(spec, &["behavior", name], json!({}));
            set_default(spec, &["behavior", name, "selectPolicy"], "Max");
            set_default(spec, &["behavior", name, "policies"], policies);
            if let Some(window) = window {
                set_default(spec, &["behavior", name, "stabilizationWindowSeconds"], window);
            }
        }
    }
}

/// `PriorityClass`.
pub(super) fn priority_class(class: &mut Value) {
    set_default(class, &["preemptionPolicy"], "PreemptLowerPriority");
}

const RBAC: &str = "rbac.authorization.k8s.io";

/// `RoleBinding` and `ClusterRoleBinding`.
pub(super) fn role_binding(binding: &mut Value) {
    if let Some(role) = object_mut(binding, "roleRef") {
        if role["apiGroup"] == "" {
            object::remove(role, &["apiGroup"]);
        }
        set_default(role, &["apiGroup"], RBAC);
    }
    for subject in items_mut(binding, "subjects") {
        if matches!(subject["kind"].as_str(), Some("User" | "Group")) {
            set_default(subject, &["apiGroup"], RBAC);
        }
    }
}

/// `NetworkPolicy`.
pub(super) fn network_policy(policy: &mut Value) {
    let Some(spec) = object_mut(policy, "spec") else { return };
    let has_egress = spec["egress"].as_array().is_some_and(|rules| !rules.is_empty());
    set_default(
        spec,
        &["policyTypes"],
        if has_egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) },
    );
    for rules in ["ingress", "egress"] {
        for port in items_mut(spec, rules).flat_map(|rule| items_mut(rule, "ports")) {
            set_default(port, &["protocol"], "TCP");
        }
    }
}

/// `IngressClass`.
pub(super) fn ingress_class(class: &mut Value) {
    set_default(class, &["spec", "parameters", "scope"], "Cluster");
}

/// `StorageClass`.
pub(super) fn storage_class(class: &mut Value) {
    set_default(class, &["reclaimPolicy"], "Delete");
    set_default(class, &["volumeBindingMode"], "Immediate");
}

/// Webhook configurations and admission policies.
pub(super) fn admission(kind: &str, object: &mut Value) {
    for webhook in items_mut(object, "webhooks") {
        set_default(webhook, &["failurePolicy"], "Fail");
        set_default(webhook, &["matchPolicy"], "Equivalent");
        set_default(webhook, &["namespaceSelector"], json!({}));
        set_default(webhook, &["objectSelector"], json!({}));
        set_default(webhook, &["timeoutSeconds"], 10);
        if kind == "MutatingWebhookConfiguration" {
            set_default(webhook, &["reinvocationPolicy"], "Never");
        }
        set_default(webhook, &["clientConfig", "service", "port"], 443);
        for rule in items_mut(webhook, "rules") {
            set_default(rule, &["scope"], "*");
        }
    }
    if matches!(kind, "ValidatingAdmissionPolicy" | "MutatingAdmissionPolicy") {
        set_default(object, &["spec", "failurePolicy"], "Fail");
    }
}

/// `CustomResourceDefinition`.
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
        set_default(spec, &["names", "singular"], kind.to_lowercase());
        set_default(spec, &["names", "listKind"], format!("{kind}List"));
    }
    set_default(spec, &["conversion"], json!({ "strategy": "None" }));
    set_default(spec, &["conversion", "webhook", "clientConfig", "service", "port"], 443);
}
