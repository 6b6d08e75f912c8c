//! The hash of what decides where a pod can run. Pods of a group with the same hash are one pod set. After
//! `pkg/util/pod/pod.go` of Kueue v0.19: hashes of pods that Kueue has gated stay valid, so the text that is hashed is the same,
//! byte by byte. It is the JSON of Go: fields in the order of their declaration, keys of maps in alphabetical order.

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// The digits of a hash.
const DIGITS: usize = 8;

/// A type of `k8s.io/api/core/v1`: its fields in the order of their declaration. A type without fields is written as it is, with
/// its keys in alphabetical order.
struct Type(&'static [(&'static str, &'static Type)]);

const PLAIN: Type = Type(&[]);
const REQUIREMENT: Type = Type(&[("key", &PLAIN), ("operator", &PLAIN), ("values", &PLAIN)]);
const LABEL_SELECTOR: Type = Type(&[("matchLabels", &PLAIN), ("matchExpressions", &REQUIREMENT)]);
const NODE_TERM: Type = Type(&[("matchExpressions", &REQUIREMENT), ("matchFields", &REQUIREMENT)]);
const NODE_SELECTOR: Type = Type(&[("nodeSelectorTerms", &NODE_TERM)]);
const PREFERRED_NODES: Type = Type(&[("weight", &PLAIN), ("preference", &NODE_TERM)]);
const POD_TERM: Type = Type(&[
    ("labelSelector", &LABEL_SELECTOR),
    ("namespaces", &PLAIN),
    ("topologyKey", &PLAIN),
    ("namespaceSelector", &LABEL_SELECTOR),
    ("matchLabelKeys", &PLAIN),
    ("mismatchLabelKeys", &PLAIN),
]);
const WEIGHTED_POD_TERM: Type = Type(&[("weight", &PLAIN), ("podAffinityTerm", &POD_TERM)]);
const NODE_AFFINITY: Type = Type(&[
    ("requiredDuringSchedulingIgnoredDuringExecution", &NODE_SELECTOR),
    ("preferredDuringSchedulingIgnoredDuringExecution", &PREFERRED_NODES),
]);
const POD_AFFINITY: Type = Type(&[
    ("requiredDuringSchedulingIgnoredDuringExecution", &POD_TERM),
    ("preferredDuringSchedulingIgnoredDuringExecution", &WEIGHTED_POD_TERM),
]);
const AFFINITY: Type = Type(&[
    ("nodeAffinity", &NODE_AFFINITY),
    ("podAffinity", &POD_AFFINITY),
    ("podAntiAffinity", &POD_AFFINITY),
]);
const TOLERATION: Type = Type(&[
    ("key", &PLAIN),
    ("operator", &PLAIN),
    ("value", &PLAIN),
    ("effect", &PLAIN),
    ("tolerationSeconds", &PLAIN),
]);
const SPREAD: Type = Type(&[
    ("maxSkew", &PLAIN),
    ("topologyKey", &PLAIN),
    ("whenUnsatisfiable", &PLAIN),
    ("labelSelector", &LABEL_SELECTOR),
    ("minDomains", &PLAIN),
    ("nodeAffinityPolicy", &PLAIN),
    ("nodeTaintsPolicy", &PLAIN),
    ("matchLabelKeys", &PLAIN),
]);
const PORT: Type = Type(&[
    ("name", &PLAIN),
    ("hostPort", &PLAIN),
    ("containerPort", &PLAIN),
    ("protocol", &PLAIN),
    ("hostIP", &PLAIN),
]);
const CLAIM: Type =
    Type(&[("name", &PLAIN), ("resourceClaimName", &PLAIN), ("resourceClaimTemplateName", &PLAIN)]);
const RESOURCES: Type = Type(&[("requests", &PLAIN)]);
const CONTAINER: Type = Type(&[("ports", &PORT), ("resources", &RESOURCES)]);
/// The fields that count, in alphabetical order: a map in Kueue.
const SHAPE: Type = Type(&[
    ("affinity", &AFFINITY),
    ("containers", &CONTAINER),
    ("initContainers", &CONTAINER),
    ("nodeSelector", &PLAIN),
    ("overhead", &PLAIN),
    ("priority", &PLAIN),
    ("resourceClaims", &CLAIM),
    ("resources", &PLAIN),
    ("runtimeClassName", &PLAIN),
    ("tolerations", &TOLERATION),
    ("topologySpreadConstraints", &SPREAD),
]);

/// The fields of the spec of a pod that decide where it can run.
pub(crate) fn shape(spec: &Value) -> Value {
    let containers = |field: &str| -> Value {
        let all = spec[field].as_array().filter(|all| !all.is_empty());
        let shape = |container: &Value| json!({"ports": container["ports"], "resources": {"requests": container["resources"]["requests"]}});
        all.map_or(Value::Null, |all| all.iter().map(shape).collect())
    };
    let mut shape =
        json!({"containers": containers("containers"), "initContainers": containers("initContainers")});
    for (field, _) in SHAPE.0.iter().filter(|(field, _)| !field.ends_with("ontainers")) {
        shape[field] = spec[field].clone();
    }
    match spec.get("resources").filter(|resources| !resources.is_null()) {
        Some(resources) => shape["resources"] = resources["requests"].clone(),
        None => drop(shape.as_object_mut().and_then(|shape| shape.remove("resources"))),
    }
    shape
}

/// The hash of the spec of a pod, with quantities in their canonical form.
pub(super) fn role_hash(spec: &Value) -> String {
    let mut text = String::from(r#"{"spec":"#);
    write(&shape(spec), &SHAPE, &mut text);
    text.push('}');
    let mut digits = format!("{:x}", Sha256::digest(text));
    digits.truncate(DIGITS);
    digits
}

/// Writes a value of a type, or of a list of it.
fn write(value: &Value, of: &Type, text: &mut String) {
    let mut separator = "";
    match value {
        Value::Array(items) => {
            text.push('[');
            for item in items {
                text.push_str(std::mem::replace(&mut separator, ","));
                write(item, of, text);
            }
            text.push(']');
        }
        Value::Object(fields) => {
            let mut ordered: Vec<_> = fields
                .iter()
                .map(|(key, value)| {
                    let at = of.0.iter().position(|(known, _)| known == key);
                    (at.unwrap_or(of.0.len()), key, value, at.map_or(&PLAIN, |at| of.0[at].1))
                })
                .collect();
            ordered.sort_by_key(|(at, key, ..)| (*at, *key));
            text.push('{');
            for (_, key, value, of) in ordered {
                text.push_str(std::mem::replace(&mut separator, ","));
                escape(key, text);
                text.push(':');
                write(value, of, text);
            }
            text.push('}');
        }
        Value::String(string) => escape(string, text),
        Value::Null | Value::Bool(_) | Value::Number(_) => text.push_str(&value.to_string()),
    }
}

/// A string as Go writes it: with escapes for HTML, too.
fn escape(string: &str, text: &mut String) {
    let mut plain = Value::from(string).to_string();
    for (sign, escaped) in [
        ("<", "\\u003c"),
        (">", "\\u003e"),
        ("&", "\\u0026"),
        ("\u{2028}", "\\u2028"),
        ("\u{2029}", "\\u2029"),
    ] {
        plain = plain.replace(sign, escaped);
    }
    text.push_str(&plain);
}
