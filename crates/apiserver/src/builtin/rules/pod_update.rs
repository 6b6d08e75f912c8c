//! Updates of the spec of a pod.

use serde_json::Value;

use super::{Errors, SPEC, items, text};
use crate::field_error::FieldError;
use crate::object;

const MUTABLE_FIELDS_ONLY: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// Compares the spec of a pod with its previous version.
pub(super) fn check(new: &Value, old: &Value, errors: &mut Errors) {
    if new == old {
        return;
    }
    for kind in ["containers", "initContainers"] {
        if items(new, kind).len() != items(old, kind).len() {
            errors.push(FieldError::forbidden(
                SPEC.child(kind),
                "pod updates may not add or remove containers",
            ));
            return;
        }
    }
    deadline(new, old, errors);
    let kept = items(old, "tolerations").iter().all(|old| {
        items(new, "tolerations")
            .iter()
            .any(|new| without(old, "tolerationSeconds") == without(new, "tolerationSeconds"))
    });
    if !kept {
        let detail = "existing toleration can not be modified except its tolerationSeconds";
        errors.push(FieldError::forbidden(SPEC.child("tolerations"), detail));
    }
    let gates = SPEC.child("schedulingGates");
    for (index, gate) in items(new, "schedulingGates").iter().enumerate() {
        let name = text(gate, "name");
        if !items(old, "schedulingGates").iter().any(|old| text(old, "name") == name) {
            let detail = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            let at = gates.index(index);
            errors.push(FieldError::forbidden(at.child("name"), &detail));
        }
    }
    let mut munged = new.clone();
    for kind in ["containers", "initContainers"] {
        for (new, old) in
            munged.get_mut(kind).and_then(Value::as_array_mut).into_iter().flatten().zip(items(old, kind))
        {
            object::carry(old, new, &["image"]);
        }
    }
    for field in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        object::carry(old, &mut munged, &[field]);
    }
    if old["terminationGracePeriodSeconds"].as_i64() < Some(0) && munged["terminationGracePeriodSeconds"] == 1
    {
        object::carry(old, &mut munged, &["terminationGracePeriodSeconds"]);
    }
    if !items(old, "schedulingGates").is_empty() {
        gated(&mut munged, old, errors);
    }
    if munged != *old {
        errors.push(FieldError::forbidden(SPEC, MUTABLE_FIELDS_ONLY));
    }
}

fn without(toleration: &Value, field: &str) -> Value {
    let mut rest = toleration.clone();
    object::remove(&mut rest, &[field]);
    rest
}

fn deadline(new: &Value, old: &Value, errors: &mut Errors) {
    let at = SPEC.child("activeDeadlineSeconds");
    match (new["activeDeadlineSeconds"].as_i64(), old["activeDeadlineSeconds"].as_i64()) {
        (Some(new), Some(old)) if new > old => {
            errors.push(FieldError::invalid(at, new, "must be less than or equal to previous value"));
        }
        (None, Some(_)) => {
            errors.push(FieldError::invalid(
                at,
                Value::Null,
                "must not update from a positive integer to nil value",
            ));
        }
        _ => {}
    }
}

/// While a pod has scheduling gates, its node selector and required node affinity may become stricter.
fn gated(munged: &mut Value, old: &Value, errors: &mut Errors) {
    let widened = object::map(old, &["nodeSelector"])
        .is_some_and(|old| old.iter().any(|(key, value)| munged["nodeSelector"].get(key) != Some(value)));
    if widened {
        let detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        errors.push(FieldError::invalid(SPEC.child("nodeSelector"), munged["nodeSelector"].clone(), detail));
    }
    object::carry(old, munged, &["nodeSelector"]);
    let required = ["affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"];
    if object::get(old, &required).is_none()
        || narrowed(object::get(munged, &required), object::get(old, &required))
    {
        object::carry(old, munged, &["affinity", "nodeAffinity"]);
        if object::get(old, &["affinity"]).is_none() {
            let empty = object::map(munged, &["affinity"]).is_some_and(serde_json::Map::is_empty);
            if empty {
                object::remove(munged, &["affinity"]);
            }
        }
    }
}

/// Whether `new` only adds expressions to the existing terms.
fn narrowed(new: Option<&Value>, old: Option<&Value>) -> bool {
    let terms = |selector: Option<&Value>| {
        selector.map(|selector| items(selector, "nodeSelectorTerms").to_vec()).unwrap_or_default()
    };
    let (new, old) = (terms(new), terms(old));
    new.len() == old.len()
        && new.iter().zip(&old).all(|(new, old)| {
            ["matchExpressions", "matchFields"]
                .iter()
                .all(|name| items(old, name).iter().all(|old| items(new, name).contains(old)))
        })
}
