//! Roles and role bindings.

use serde_json::Value;

use super::{Errors, items, text};
use crate::field_error::{FieldError, FieldErrorKind, Path};
use crate::names;

const GROUP: &str = "rbac.authorization.k8s.io";

/// All kinds of the group `rbac.authorization.k8s.io`.
pub(super) fn check(kind: &str, new: &Value, old: Option<&Value>, errors: &mut Errors) {
    match kind {
        "Role" | "ClusterRole" => {
            let rules = Path::Root("rules");
            for (index, one) in items(new, "rules").iter().enumerate() {
                rule(one, kind == "Role", rules.index(index), errors);
            }
        }
        "RoleBinding" | "ClusterRoleBinding" => binding(new, old, kind == "RoleBinding", errors),
        _ => {}
    }
}

fn rule(rule: &Value, namespaced: bool, path: Path<'_>, errors: &mut Errors) {
    let any = |name: &str| !items(rule, name).is_empty();
    if !any("verbs") {
        errors.push(FieldError::required(path.child("verbs"), "verbs must contain at least one value"));
    }
    if any("nonResourceURLs") {
        let at = path.child("nonResourceURLs");
        let urls = rule["nonResourceURLs"].clone();
        if namespaced {
            errors.push(FieldError::invalid(
                at,
                urls.clone(),
                "namespaced rules cannot apply to non-resource URLs",
            ));
        }
        if any("apiGroups") || any("resources") || any("resourceNames") {
            let detail = "rules cannot apply to both regular resources and non-resource URLs";
            errors.push(FieldError::invalid(at, urls, detail));
        }
        return;
    }
    if !any("apiGroups") {
        errors.push(FieldError::required(
            path.child("apiGroups"),
            "resource rules must supply at least one api group",
        ));
    }
    if !any("resources") {
        errors.push(FieldError::required(
            path.child("resources"),
            "resource rules must supply at least one resource",
        ));
    }
}

fn binding(new: &Value, old: Option<&Value>, namespaced: bool, errors: &mut Errors) {
    let role = &new["roleRef"];
    let at = Path::Root("roleRef");
    let group = text(role, "apiGroup");
    if group != GROUP {
        errors.push(FieldError::not_supported(at.child("apiGroup"), group, &[GROUP]));
    }
    let kinds: &[&str] = if namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    let kind = text(role, "kind");
    if !kinds.contains(&kind) {
        errors.push(FieldError::not_supported(at.child("kind"), kind, kinds));
    }
    let name = text(role, "name");
    if name.is_empty() {
        errors.push(FieldError::required(at.child("name"), ""));
    } else if let Err(reason) = names::path_segment(name) {
        errors.push(FieldError::invalid(at.child("name"), name, &reason));
    }
    let subjects = Path::Root("subjects");
    for (index, one) in items(new, "subjects").iter().enumerate() {
        subject(one, namespaced, subjects.index(index), errors);
    }
    if let Some(old) = old
        && old["roleRef"] != new["roleRef"]
    {
        let printed =
            format!(r#"{{"APIGroup":{},"Kind":{},"Name":{}}}"#, role["apiGroup"], role["kind"], role["name"]);
        errors.push(FieldError::printed(FieldErrorKind::Invalid, at, &printed, "cannot change roleRef"));
    }
}

fn subject(subject: &Value, namespaced: bool, path: Path<'_>, errors: &mut Errors) {
    let name = text(subject, "name");
    if name.is_empty() {
        errors.push(FieldError::required(path.child("name"), ""));
    }
    let group = text(subject, "apiGroup");
    let must = match text(subject, "kind") {
        "ServiceAccount" => {
            if !name.is_empty()
                && let Err(reason) = names::subdomain(name)
            {
                errors.push(FieldError::invalid(path.child("name"), name, &reason));
            }
            if !namespaced && text(subject, "namespace").is_empty() {
                errors.push(FieldError::required(path.child("namespace"), ""));
            }
            ""
        }
        "User" | "Group" => GROUP,
        kind => {
            let known = ["ServiceAccount", "User", "Group"];
            errors.push(FieldError::not_supported(path.child("kind"), kind, &known));
            return;
        }
    };
    if group != must {
        errors.push(FieldError::not_supported(path.child("apiGroup"), group, &[must]));
    }
}
