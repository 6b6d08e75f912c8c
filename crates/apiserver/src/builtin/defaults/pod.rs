//! Defaults of pods and pod templates.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::builtin::fields::{compare, items_mut, object_mut, set_default};
use crate::builtin::pod_amounts;
use crate::object;

/// Default toleration of the taints `not-ready` and `unreachable`, in seconds.
const TOLERATION_SECONDS: i64 = 300;

/// `Pod`.
pub(super) fn pod(pod: &mut Value) {
    let Some(spec) = object_mut(pod, "spec") else { return };
    for kind in ["containers", "initContainers"] {
        for container in items_mut(spec, kind) {
            requests_from_limits(container);
        }
    }
    pod_amounts::default_requests(spec);
    set_default(spec, &["enableServiceLinks"], true);
    if spec["hostNetwork"] == true {
        for kind in ["containers", "initContainers"] {
            for port in items_mut(spec, kind).flat_map(|container| items_mut(container, "ports")) {
                let number = port["containerPort"].clone();
                set_default(port, &["hostPort"], number);
            }
        }
    }
    pod_spec(spec);
}

/// Sets the fields that the default admission plugins set on a new pod, and its initial status.
pub(super) fn generate(pod: &mut Value) {
    let Some(spec) = object_mut(pod, "spec") else { return };
    apply_admission_defaults(spec);
    let class = qos_class(spec);
    object::set(pod, &["status"], json!({ "phase": "Pending", "qosClass": class }));
}

/// The pod template in the field `template` of `owner`.
pub(super) fn template_of(owner: &mut Value) {
    if let Some(spec) = owner.get_mut("template").and_then(|template| object_mut(template, "spec")) {
        pod_spec(spec);
    }
}

/// Sets the default service account and the default tolerations, as the admission plugins `ServiceAccount` and
/// `DefaultTolerationSeconds` do.
fn apply_admission_defaults(spec: &mut Value) {
    if spec["serviceAccountName"].is_null() {
        let deprecated = spec["serviceAccount"].as_str().unwrap_or("default").to_owned();
        set_default(spec, &["serviceAccountName"], deprecated);
    }
    if let Some(name) = spec.get("serviceAccountName").cloned() {
        object::set(spec, &["serviceAccount"], name);
    }
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerations = object::items(spec, &["tolerations"]);
        let tolerated = tolerations.iter().any(|one| {
            let same_key = one["key"].is_null() || one["key"] == key;
            same_key && (one["effect"].is_null() || one["effect"] == "NoExecute")
        });
        if !tolerated {
            set_default(spec, &["tolerations"], json!([]));
            if let Some(tolerations) = spec["tolerations"].as_array_mut() {
                tolerations.push(json!({
                    "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERATION_SECONDS,
                }));
            }
        }
    }
}

fn requests_from_limits(container: &mut Value) {
    let Some(limits) = object::map(container, &["resources", "limits"]).cloned() else { return };
    set_default(container, &["resources", "requests"], json!({}));
    for (name, limit) in limits {
        set_default(container, &["resources", "requests", &name], limit);
    }
}

fn pod_spec(spec: &mut Value) {
    set_default(spec, &["dnsPolicy"], "ClusterFirst");
    set_default(spec, &["restartPolicy"], "Always");
    set_default(spec, &["securityContext"], json!({}));
    set_default(spec, &["terminationGracePeriodSeconds"], 30);
    set_default(spec, &["schedulerName"], "default-scheduler");
    // The deprecated field `serviceAccount` mirrors `serviceAccountName`.
    if let Some(name) = spec.get("serviceAccount").cloned() {
        set_default(spec, &["serviceAccountName"], name);
    }
    if let Some(name) = spec.get("serviceAccountName").cloned() {
        object::set(spec, &["serviceAccount"], name);
    }
    for kind in ["initContainers", "containers", "ephemeralContainers"] {
        items_mut(spec, kind).for_each(container);
    }
    items_mut(spec, "volumes").for_each(volume);
}

fn container(container: &mut Value) {
    if !container.is_object() {
        return;
    }
    let policy = if tag(container["image"].as_str().unwrap_or_default()) == "latest" {
        "Always"
    } else {
        "IfNotPresent"
    };
    set_default(container, &["imagePullPolicy"], policy);
    set_default(container, &["terminationMessagePath"], "/dev/termination-log");
    set_default(container, &["terminationMessagePolicy"], "File");
    for port in items_mut(container, "ports") {
        set_default(port, &["protocol"], "TCP");
    }
    for variable in items_mut(container, "env") {
        set_default(variable, &["valueFrom", "fieldRef", "apiVersion"], "v1");
        set_default(variable, &["valueFrom", "resourceFieldRef", "divisor"], "0");
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = object_mut(container, name) {
            set_default(probe, &["timeoutSeconds"], 1);
            set_default(probe, &["periodSeconds"], 10);
            set_default(probe, &["successThreshold"], 1);
            set_default(probe, &["failureThreshold"], 3);
            handler(probe);
        }
    }
    for name in ["postStart", "preStop"] {
        if let Some(hook) = container.get_mut("lifecycle").and_then(|lifecycle| lifecycle.get_mut(name)) {
            handler(hook);
        }
    }
}

fn handler(handler: &mut Value) {
    if let Some(get) = object_mut(handler, "httpGet") {
        set_default(get, &["path"], "/");
        set_default(get, &["scheme"], "HTTP");
    }
    if let Some(grpc) = object_mut(handler, "grpc") {
        set_default(grpc, &["service"], "");
    }
}

/// The tag of an image: `latest` without tag and digest, empty with only a digest.
fn tag(image: &str) -> &str {
    if image.is_empty() {
        return "";
    }
    let (name, digest) = image.split_once('@').map_or((image, false), |(name, _)| (name, true));
    let last = name.rsplit('/').next().unwrap_or_default();
    match last.split_once(':') {
        Some((_, tag)) => tag,
        None if digest => "",
        None => "latest",
    }
}

fn volume(volume: &mut Value) {
    let Some(fields) = volume.as_object_mut() else { return };
    if fields.keys().all(|name| name == "name") {
        fields.insert("emptyDir".to_owned(), json!({}));
    }
    for name in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = object_mut(volume, name) {
            set_default(source, &["defaultMode"], 420);
        }
    }
    if let Some(path) = object_mut(volume, "hostPath") {
        set_default(path, &["type"], "");
    }
    set_default(volume, &["ephemeral", "volumeClaimTemplate", "spec", "volumeMode"], "Filesystem");
    for source in
        volume.get_mut("projected").into_iter().flat_map(|projected| items_mut(projected, "sources"))
    {
        set_default(source, &["serviceAccountToken", "expirationSeconds"], 3600);
        field_references(source.get_mut("downwardAPI"));
    }
    field_references(volume.get_mut("downwardAPI"));
}

fn field_references(projection: Option<&mut Value>) {
    for item in projection.into_iter().flat_map(|projection| items_mut(projection, "items")) {
        set_default(item, &["fieldRef", "apiVersion"], "v1");
    }
}

/// The class is `Guaranteed` if all containers have limits for CPU and memory that equal their requests, `BestEffort`
/// if no container has CPU or memory requests or limits, otherwise `Burstable`.
fn qos_class(spec: &Value) -> &'static str {
    let mut totals: BTreeMap<&str, bool> = BTreeMap::new();
    let mut guaranteed = true;
    let empty = Map::new();
    let containers =
        object::items(spec, &["containers"]).iter().chain(object::items(spec, &["initContainers"]));
    for container in containers {
        let requests = object::map(container, &["resources", "requests"]).unwrap_or(&empty);
        let limits = object::map(container, &["resources", "limits"]).unwrap_or(&empty);
        for name in ["cpu", "memory"] {
            let is_set = |map: &Map<String, Value>| map.get(name).is_some_and(|value| value != "0");
            totals.insert(name, totals.get(name) == Some(&true) || is_set(requests) || is_set(limits));
            let equal = match (requests.get(name), limits.get(name)) {
                (Some(request), Some(limit)) => is_set(limits) && compare(request, limit).is_eq(),
                _ => false,
            };
            guaranteed &= equal;
        }
    }
    match (totals.values().any(|asked| *asked), guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_tag_defaults_to_latest_unless_the_image_has_a_digest() {
        for (image, expected) in [
            ("busybox", "latest"),
            ("busybox:latest", "latest"),
            ("busybox:1.36", "1.36"),
            ("registry:5000/team/app", "latest"),
            ("registry:5000/team/app:v1", "v1"),
            ("app@sha256:0123", ""),
            ("app:v1@sha256:0123", "v1"),
            ("", ""),
        ] {
            assert_eq!(tag(image), expected, "{image}");
        }
    }
}
