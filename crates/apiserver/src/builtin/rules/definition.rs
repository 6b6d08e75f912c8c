//! Custom resource definitions.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Errors, SPEC, immutable, items, require_ok, text};
use crate::field_error::{FieldError, FieldErrorKind, Path};
use crate::names::{self, NameRule};
use crate::object;
use crate::schema::Structural;

fn label_1035(text: &str) -> Result<(), String> {
    NameRule::Label1035.check(text, false)
}

/// `CustomResourceDefinition`.
pub(super) fn check(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    let spec = &new["spec"];
    let group = text(spec, "group");
    let plural = text(&spec["names"], "plural");
    let name = object::name(new);
    if name != format!("{plural}.{group}") {
        let detail = "must be spec.names.plural+\".\"+spec.group";
        errors.push(FieldError::invalid(Path::Root("metadata.name"), name, detail));
    }
    let at = SPEC.child("group");
    if group.is_empty() {
        errors.push(FieldError::required(at, ""));
    } else if let Err(reason) = names::subdomain(group) {
        errors.push(FieldError::invalid(at, group, &reason));
    } else if !group.contains('.') {
        errors.push(FieldError::invalid(at, group, "should be a domain with at least one dot"));
    }
    super::require_one_of(spec, "scope", &["Cluster", "Namespaced"], SPEC, errors);
    if spec["preserveUnknownFields"] == true {
        let at = SPEC.child("preserveUnknownFields");
        let detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        errors.push(FieldError::invalid(at, true, detail));
    }
    let stored = items(&new["status"], "storedVersions");
    versions(items(spec, "versions"), old.map(|old| items(&old["spec"], "versions")), stored, errors);
    resource_names(&spec["names"], SPEC.child("names"), errors);
    conversion(&spec["conversion"], SPEC.child("conversion"), errors);
    approval(new, old, group, errors);
    if let Some(old) = old {
        let old = &old["spec"];
        immutable(&spec["scope"], &old["scope"], SPEC.child("scope"), errors);
        immutable(&spec["group"], &old["group"], SPEC.child("group"), errors);
        let at = SPEC.child("names");
        for name in ["kind", "plural"] {
            immutable(&spec["names"][name], &old["names"][name], at.child(name), errors);
        }
    }
}

fn versions(versions: &[Value], old: Option<&[Value]>, stored: &[Value], errors: &mut Errors) {
    let path = SPEC.child("versions");
    if versions.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    // Fields that are equal in all versions are validated once, at their path in `apiextensions.k8s.io/v1beta1`.
    let shared = |name: &str| versions.iter().all(|version| version[name] == versions[0][name]);
    let mut seen = BTreeSet::new();
    let mut unique = true;
    for (index, version) in versions.iter().enumerate() {
        let at = path.index(index);
        let place = |name: &str| if shared(name) { SPEC } else { at };
        let first = |name: &str| index == 0 || !shared(name);
        let name = text(version, "name");
        require_ok(label_1035(name), name, at.child("name"), errors);
        if index == 0 {
            require_ok(label_1035(name), name, SPEC.child("version"), errors);
        }
        unique &= seen.insert(name);
        let schema_path = at.child("schema");
        let schema_path = schema_path.child("openAPIV3Schema");
        let schema = &version["schema"]["openAPIV3Schema"];
        // A schema that is already stored is not validated again.
        let unchanged = old.into_iter().flatten().any(|old| old["schema"]["openAPIV3Schema"] == *schema);
        if schema.is_null() {
            errors.push(FieldError::required(schema_path, ""));
        } else if !unchanged && first("schema") {
            let prefix = if shared("schema") {
                "spec.validation.openAPIV3Schema".to_owned()
            } else {
                schema_path.to_string()
            };
            match Structural::parse_at(schema, &prefix) {
                Ok(structural) if first("selectableFields") => {
                    let at = place("selectableFields");
                    selectable(version, &structural, at.child("selectableFields"), errors);
                }
                Ok(_) => {}
                Err(found) => errors.extend(found),
            }
        }
        if first("subresources") {
            let at = place("subresources");
            subresources(&version["subresources"], at.child("subresources"), errors);
        }
        if first("additionalPrinterColumns") {
            let at = place("additionalPrinterColumns");
            let columns = at.child("additionalPrinterColumns");
            for (index, one) in items(version, "additionalPrinterColumns").iter().enumerate() {
                column(one, columns.index(index), errors);
            }
        }
    }
    let mut refuse =
        |detail| errors.push(FieldError::printed(FieldErrorKind::Invalid, path, &shown(versions), detail));
    if !unique {
        refuse("must contain unique version names");
    }
    if versions.iter().filter(|version| version["storage"] == true).count() != 1 {
        refuse("must have exactly one version marked as storage version");
    }
    stored_versions(versions, stored, errors);
}

/// Formats versions as kube-apiserver does, without the fields that are moved to the top level.
fn shown(versions: &[Value]) -> String {
    let one = |version: &Value| {
        format!(
            r#"{{"Name":{},"Served":{},"Storage":{},"Deprecated":{},"DeprecationWarning":{},"Schema":null,"Subresources":null,"AdditionalPrinterColumns":null,"SelectableFields":null}}"#,
            version["name"],
            version["served"] == true,
            version["storage"] == true,
            version["deprecated"] == true,
            version["deprecationWarning"],
        )
    };
    format!("[{}]", versions.iter().map(one).collect::<Vec<_>>().join(","))
}

/// `status.storedVersions` must be versions of the spec, because objects may still be stored in them.
fn stored_versions(versions: &[Value], stored: &[Value], errors: &mut Errors) {
    let at = Path::Root("status.storedVersions");
    if stored.is_empty() {
        errors.push(FieldError::invalid(at, Value::Null, "must have at least one stored version"));
        return;
    }
    let mut left: BTreeSet<&str> = stored.iter().filter_map(Value::as_str).collect();
    for version in versions {
        let name = text(version, "name");
        if !left.remove(name) && version["storage"] == true {
            let detail = format!("must have the storage version {name}");
            errors.push(FieldError::invalid(at, stored.to_vec(), &detail));
        }
    }
    for (index, name) in stored.iter().enumerate().filter_map(|(index, name)| Some((index, name.as_str()?))) {
        if left.contains(name) {
            let detail = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
            );
            errors.push(FieldError::invalid(at.index(index), name, &detail));
        }
    }
}

/// Selectable fields must be scalars that the schema specifies.
fn selectable(version: &Value, schema: &Structural, path: Path<'_>, errors: &mut Errors) {
    for (index, field) in items(version, "selectableFields").iter().enumerate() {
        let json_path = text(field, "jsonPath");
        let at = path.index(index);
        if json_path.is_empty() {
            errors.push(FieldError::required(at.child("jsonPath"), ""));
        } else if json_path.starts_with(".metadata") {
            let detail = "must not point to fields in metadata";
            errors.push(FieldError::invalid(at.child("jsonPath"), json_path, detail));
        } else if !schema.declares_scalar(json_path) {
            let detail = "is an invalid path: does not refer to a valid field";
            errors.push(FieldError::invalid(at.child("jsonPath"), json_path, detail));
        }
    }
}

fn subresources(subresources: &Value, path: Path<'_>, errors: &mut Errors) {
    let scale = &subresources["scale"];
    if !scale.is_object() {
        return;
    }
    let at = path.child("scale");
    for (name, roots, wanted) in [
        ("specReplicasPath", &[".spec."][..], "should be a json path under .spec"),
        ("statusReplicasPath", &[".status."], "should be a json path under .status"),
        ("labelSelectorPath", &[".spec.", ".status."], "should be a json path under either .spec or .status"),
    ] {
        let value = text(scale, name);
        if value.is_empty() {
            if name != "labelSelectorPath" {
                errors.push(FieldError::required(at.child(name), ""));
            }
        } else if !roots.iter().any(|root| value.starts_with(root)) {
            errors.push(FieldError::invalid(at.child(name), value, wanted));
        }
    }
}

fn column(column: &Value, path: Path<'_>, errors: &mut Errors) {
    const TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
    const FORMATS: [&str; 8] = ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
    if text(column, "name").is_empty() {
        errors.push(FieldError::required(path.child("name"), ""));
    }
    let kind = text(column, "type");
    let known = format!("must be one of {}", TYPES.join(","));
    if kind.is_empty() {
        errors.push(FieldError::required(path.child("type"), &known));
    } else if !TYPES.contains(&kind) {
        errors.push(FieldError::invalid(path.child("type"), kind, &known));
    }
    let format = text(column, "format");
    if !format.is_empty() && !FORMATS.contains(&format) {
        let detail = format!("must be one of {}", FORMATS.join(","));
        errors.push(FieldError::invalid(path.child("format"), format, &detail));
    }
    let json_path = text(column, "jsonPath");
    if json_path.is_empty() {
        errors.push(FieldError::required(path.child("JSONPath"), ""));
    } else if !json_path.starts_with('.') {
        let detail = "must be a simple json path starting with .";
        errors.push(FieldError::invalid(path.child("JSONPath"), json_path, detail));
    }
}

fn resource_names(names: &Value, path: Path<'_>, errors: &mut Errors) {
    for name in ["plural", "singular", "kind", "listKind"] {
        let value = text(names, name);
        let at = path.child(name);
        if value.is_empty() {
            errors.push(FieldError::required(at, ""));
        } else if matches!(name, "plural" | "singular") {
            require_ok(label_1035(value), value, at, errors);
        } else if let Err(reason) = label_1035(&value.to_lowercase()) {
            let detail = format!("may have mixed case, but should otherwise match: {reason}");
            errors.push(FieldError::invalid(at, value, &detail));
        }
    }
    for list in ["shortNames", "categories"] {
        let at = path.child(list);
        for (index, value) in items(names, list).iter().enumerate() {
            let value = value.as_str().unwrap_or_default();
            require_ok(label_1035(value), value, at.index(index), errors);
        }
    }
    let kind = text(names, "kind");
    if !kind.is_empty() && kind == text(names, "listKind") {
        let at = path.child("listKind");
        errors.push(FieldError::invalid(at, kind, "kind and listKind may not be the same"));
    }
}

fn conversion(conversion: &Value, path: Path<'_>, errors: &mut Errors) {
    if conversion.is_null() {
        return;
    }
    super::require_one_of(conversion, "strategy", &["None", "Webhook"], path, errors);
    let webhook = &conversion["webhook"];
    let at = path.child("webhook");
    if conversion["strategy"] == "Webhook" {
        if webhook["clientConfig"].is_null() {
            let at = path.child("webhookClientConfig");
            errors.push(FieldError::required(at, "required when strategy is set to Webhook"));
        }
        if items(webhook, "conversionReviewVersions").is_empty() {
            errors.push(FieldError::required(path.child("conversionReviewVersions"), ""));
        }
    } else if !webhook.is_null() {
        errors.push(FieldError::forbidden(at, "should not be set when strategy is not set to Webhook"));
    }
}

/// Groups of the Kubernetes community require an annotation with the approval of the API.
fn approval(new: &Value, old: Option<&Value>, group: &str, errors: &mut Errors) {
    const KEY: &str = "api-approved.kubernetes.io";
    let protected = ["k8s.io", "kubernetes.io"].iter().any(|domain| {
        group == *domain || group.strip_suffix(domain).is_some_and(|prefix| prefix.ends_with('.'))
    });
    if !protected || old.is_some() {
        return;
    }
    let value = object::text(new, &["metadata", "annotations", KEY]);
    let annotations = Path::Root("metadata.annotations");
    if value.is_empty() {
        let detail = format!(
            "protected groups must have approval annotation {KEY:?}, see https://github.com/kubernetes/enhancements/pull/1111"
        );
        errors.push(FieldError::required(annotations.key(KEY), &detail));
    } else if !value.starts_with("unapproved")
        && value.parse::<http::Uri>().map_or(true, |url| url.host().is_none())
    {
        let detail = format!(
            "protected groups must have approval annotation {KEY:?} with either a URL or a reason starting with \"unapproved\", see https://github.com/kubernetes/enhancements/pull/1111"
        );
        errors.push(FieldError::invalid(annotations.key(KEY), value, &detail));
    }
}
