//! The scopes of a quota: which objects it counts.

use serde_json::Value;

use crate::object;

/// Whether an object is in all scopes of a quota. Scopes are for pods, and one is for claims; a quota with others counts no
/// object of another kind.
pub(super) fn match_all(storage: &str, quota: &Value, value: &Value) -> bool {
    let spec = &quota["spec"];
    let scopes = object::texts(spec, &["scopes"]).map(|scope| (scope, "Exists", &[][..]));
    let selected = object::items(spec, &["scopeSelector", "matchExpressions"]).iter().map(|term| {
        (
            object::text(term, &["scopeName"]),
            object::text(term, &["operator"]),
            object::items(term, &["values"]),
        )
    });
    scopes.chain(selected).all(|(scope, operator, values)| match (storage, scope) {
        ("pods", "PriorityClass") => {
            compare(object::text(value, &["spec", "priorityClassName"]), operator, values)
        }
        ("pods", _) => is_in(scope, value),
        ("persistentvolumeclaims", "VolumeAttributesClass") => {
            compare(object::text(value, &["spec", "volumeAttributesClassName"]), operator, values)
        }
        _ => false,
    })
}

/// Whether a class satisfies a requirement of the selector.
fn compare(class: &str, operator: &str, values: &[Value]) -> bool {
    let is_listed = values.iter().any(|value| value == class);
    match operator {
        "Exists" => !class.is_empty(),
        "DoesNotExist" => class.is_empty(),
        "In" => !class.is_empty() && is_listed,
        "NotIn" => !is_listed,
        _ => false,
    }
}

fn is_in(scope: &str, pod: &Value) -> bool {
    let ends = object::int(pod, &["spec", "activeDeadlineSeconds"]).is_some_and(|seconds| seconds >= 0);
    let is_best_effort = object::text(pod, &["status", "qosClass"]) == "BestEffort";
    match scope {
        "Terminating" => ends,
        "NotTerminating" => !ends,
        "BestEffort" => is_best_effort,
        "NotBestEffort" => !is_best_effort,
        "CrossNamespacePodAffinity" => crosses_namespaces(pod),
        _ => false,
    }
}

/// Whether an affinity term of the pod names namespaces.
fn crosses_namespaces(pod: &Value) -> bool {
    let names = |term: &Value| {
        !object::items(term, &["namespaces"]).is_empty() || term["namespaceSelector"].is_object()
    };
    ["podAffinity", "podAntiAffinity"].iter().any(|kind| {
        let terms = |field| object::items(pod, &["spec", "affinity", kind, field]).iter();
        terms("requiredDuringSchedulingIgnoredDuringExecution").any(names)
            || terms("preferredDuringSchedulingIgnoredDuringExecution")
                .any(|term| names(&term["podAffinityTerm"]))
    })
}
