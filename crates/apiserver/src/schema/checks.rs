//! The structural schema rules, and the rules for `x-kubernetes-*` extensions.
//!
//! This module checks a parsed schema in one walk. Malformed JSON Schema is reported by `node`; CEL rules are checked
//! in `cel`.

use std::collections::BTreeSet;

use serde_json::Value;

use super::node::{Additional, Node};
use super::{FieldError, Path};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// Adds an error for every rule that the schema violates, in the order of kube-apiserver.
pub(super) fn check(root: &Node, path: Path<'_>, errors: &mut Vec<FieldError>) {
    let mut found = Vec::new();
    structure(root, Level::Root, path, &mut found);
    if root.nullable {
        found.push(FieldError::forbidden(path.child("nullable"), "nullable cannot be true at the root"));
    }
    complete_branches(root, root, path, &mut found);
    found.sort_by_cached_key(ToString::to_string);
    errors.extend(found);
}

fn structure(node: &Node, level: Level, path: Path<'_>, errors: &mut Vec<FieldError>) {
    if node.kind == "array" && node.items.is_none() {
        errors.push(FieldError::required(path.child("items"), "must be specified"));
    }
    if let Some(items) = &node.items {
        structure(items, Level::Item, path.child("items"), errors);
    }
    let properties = path.child("properties");
    for (name, property) in &node.properties {
        structure(property, Level::Field, properties.key(name), errors);
    }
    if let Some(additional) = &node.additional {
        let at = path.child("additionalProperties");
        if level == Level::Root {
            errors.push(FieldError::forbidden(at, "must not be used at the root"));
        }
        if node.embedded {
            errors
                .push(FieldError::forbidden(at, "must not be used if x-kubernetes-embedded-resource is set"));
        }
        match additional {
            Additional::Schema(schema) => {
                if !node.properties.is_empty() {
                    errors.push(FieldError::forbidden(
                        at,
                        "additionalProperties and properties are mutual exclusive",
                    ));
                }
                structure(schema, Level::Field, at, errors);
            }
            Additional::Allowed(false) if !node.properties.is_empty() => {
                errors.push(FieldError::forbidden(
                    at,
                    "additionalProperties and properties are mutual exclusive",
                ));
            }
            Additional::Allowed(_) => {}
        }
    }
    extensions(node, path, errors);
    branches(node, path, errors);
    kind(node, level, path, errors);
    if node.limits.unique_items {
        errors.push(FieldError::forbidden(
            path.child("uniqueItems"),
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
        ));
    }
    if level == Level::Root || node.embedded {
        meta(node, level, path, errors);
    }
    if node.embedded && !node.preserve_unknown && node.properties.is_empty() {
        errors.push(FieldError::required(
            properties,
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
        ));
    }
}

fn kind(node: &Node, level: Level, path: Path<'_>, errors: &mut Vec<FieldError>) {
    let at = path.child("type");
    let kind = node.kind.as_str();
    if node.embedded && kind != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(if kind.is_empty() {
            FieldError::required(at, detail)
        } else {
            FieldError::invalid(at, kind, detail)
        });
    } else if kind.is_empty() && !node.int_or_string && !node.preserve_unknown {
        errors.push(FieldError::required(
            at,
            match level {
                Level::Root => "must not be empty at the root",
                Level::Item => "must not be empty for specified array items",
                Level::Field => "must not be empty for specified object fields",
            },
        ));
    }
    if level == Level::Root && !kind.is_empty() && kind != "object" {
        errors.push(FieldError::invalid(at, kind, "must be object at the root"));
    }
    if !matches!(kind, "" | "array" | "boolean" | "integer" | "number" | "object" | "string") {
        if kind == "null" {
            errors.push(FieldError::forbidden(
                at,
                "type cannot be set to null, use nullable as an alternative",
            ));
        }
        let known = ["array", "boolean", "integer", "number", "object", "string"];
        errors.push(FieldError::not_supported(at, kind, &known));
    }
}

fn meta(node: &Node, level: Level, path: Path<'_>, errors: &mut Vec<FieldError>) {
    let properties = path.child("properties");
    for name in ["kind", "apiVersion"] {
        if let Some(property) = node.properties.get(name)
            && property.kind != "string"
        {
            let at = properties.key(name);
            errors.push(FieldError::invalid(at.child("type"), property.kind.as_str(), "must be string"));
        }
    }
    if let Some(metadata) = node.properties.get("metadata") {
        let at = properties.key("metadata");
        if metadata.kind != "object" {
            errors.push(FieldError::invalid(at.child("type"), metadata.kind.as_str(), "must be object"));
        }
        let only_names = metadata.properties.keys().all(|name| name == "name" || name == "generateName");
        if level == Level::Root && (!only_names || metadata.additional.is_some() || metadata.preserve_unknown)
        {
            errors.push(FieldError::forbidden(
                at,
                "must not specify anything other than name and generateName, but metadata is implicitly specified",
            ));
        }
    }
}

fn extensions(node: &Node, path: Path<'_>, errors: &mut Vec<FieldError>) {
    if node.int_or_string && node.preserve_unknown {
        let at = path.child("x-kubernetes-preserve-unknown-fields");
        errors.push(FieldError::invalid(at, true, "must be false if x-kubernetes-int-or-string is true"));
    }
    if node.int_or_string && node.embedded {
        let at = path.child("x-kubernetes-embedded-resource");
        errors.push(FieldError::invalid(at, true, "must be false if x-kubernetes-int-or-string is true"));
    }
    let type_path = path.child("type");
    let wrong_type = |detail: &str| {
        if node.kind.is_empty() {
            FieldError::required(type_path, detail)
        } else {
            FieldError::invalid(type_path, node.kind.as_str(), detail)
        }
    };
    if let Some(map_type) = &node.map_type {
        if node.kind != "object" {
            errors.push(wrong_type("must be object if x-kubernetes-map-type is specified"));
        }
        if !matches!(map_type.as_str(), "atomic" | "granular") {
            let at = path.child("x-kubernetes-map-type");
            errors.push(FieldError::not_supported(at, map_type.as_str(), &["atomic", "granular"]));
        }
    }
    let list_path = path.child("x-kubernetes-list-type");
    if let Some(list_type) = &node.list_type {
        if node.kind != "array" {
            errors.push(wrong_type("must be array if x-kubernetes-list-type is specified"));
        }
        match list_type.as_str() {
            "atomic" => {}
            "set" => set_items(node, path, errors),
            "map" => list_map(node, path, errors),
            other => errors.push(FieldError::not_supported(list_path, other, &["atomic", "set", "map"])),
        }
    }
    if !node.list_keys.is_empty() {
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        match node.list_type.as_deref() {
            Some("map") => {}
            None => errors.push(FieldError::required(list_path, detail)),
            Some(other) => errors.push(FieldError::invalid(list_path, other, detail)),
        }
    }
}

fn set_items(node: &Node, path: Path<'_>, errors: &mut Vec<FieldError>) {
    let Some(items) = &node.items else { return };
    let at = path.child("items");
    let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
    if items.kind == "array" && items.list_type.as_deref().is_some_and(|kind| kind != "atomic") {
        let kind = items.list_type.as_deref().unwrap_or_default();
        errors.push(FieldError::invalid(at.child("x-kubernetes-list-type"), kind, detail));
    }
    if items.kind == "object" && items.map_type.as_deref() != Some("atomic") {
        let kind = items.map_type.clone().map_or(Value::Null, Value::from);
        errors.push(FieldError::invalid(at.child("x-kubernetes-map-type"), kind, detail));
    }
}

fn list_map(node: &Node, path: Path<'_>, errors: &mut Vec<FieldError>) {
    let keys_path = path.child("x-kubernetes-list-map-keys");
    if node.list_keys.is_empty() {
        errors.push(FieldError::required(keys_path, "must not be empty if x-kubernetes-list-type is map"));
    }
    let at = path.child("items");
    let Some(items) = &node.items else {
        errors.push(FieldError::required(at, "must have a schema if x-kubernetes-list-type is map"));
        return;
    };
    if items.kind != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        errors.push(FieldError::invalid(at.child("type"), items.kind.as_str(), detail));
        return;
    }
    let mut seen = BTreeSet::new();
    let properties = at.child("properties");
    for key in &node.list_keys {
        let property = properties.key(key);
        match items.properties.get(key) {
            None => errors.push(FieldError::invalid(
                keys_path,
                node.list_keys.clone(),
                "entries must all be names of item properties",
            )),
            Some(schema) => {
                if matches!(schema.kind.as_str(), "array" | "object") {
                    let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                    errors.push(FieldError::invalid(property.child("type"), items.kind.as_str(), detail));
                }
                if schema.default.is_none() && !items.limits.required.contains(key) {
                    errors.push(FieldError::required(
                        property.child("default"),
                        "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
                    ));
                }
                if schema.nullable {
                    errors.push(FieldError::forbidden(
                        property.child("nullable"),
                        "this property is in x-kubernetes-list-map-keys, so it cannot be nullable",
                    ));
                }
            }
        }
        if !seen.insert(key) {
            errors.push(FieldError::invalid(
                keys_path,
                node.list_keys.clone(),
                "must not contain duplicate entries",
            ));
        }
    }
}

/// Branches of `allOf`, `anyOf`, `oneOf` and `not` may constrain values but may not specify types or fields.
fn branches(node: &Node, path: Path<'_>, errors: &mut Vec<FieldError>) {
    let int_or_string = node.int_or_string;
    if !(int_or_string && is_int_or_string(&node.any_of)) {
        each(&node.any_of, path.child("anyOf"), false, errors);
    }
    let all_of = path.child("allOf");
    for (index, branch) in node.all_of.iter().enumerate() {
        let skip = int_or_string && index == 0 && is_int_or_string(&branch.any_of);
        nested(branch, skip, true, all_of.index(index), errors);
    }
    each(&node.one_of, path.child("oneOf"), false, errors);
    if let Some(not) = &node.not {
        nested(not, false, false, path.child("not"), errors);
    }
}

fn each(branches: &[Node], path: Path<'_>, rules: bool, errors: &mut Vec<FieldError>) {
    for (index, branch) in branches.iter().enumerate() {
        nested(branch, false, rules, path.index(index), errors);
    }
}

/// `anyOf: [{type: integer}, {type: string}]`, the only branches that may specify a type.
fn is_int_or_string(branches: &[Node]) -> bool {
    matches!(branches, [first, second] if first.kind == "integer" && second.kind == "string")
}

fn nested(branch: &Node, skip_any_of: bool, rules: bool, path: Path<'_>, errors: &mut Vec<FieldError>) {
    if !skip_any_of {
        each(&branch.any_of, path.child("anyOf"), false, errors);
    }
    each(&branch.all_of, path.child("allOf"), rules, errors);
    each(&branch.one_of, path.child("oneOf"), false, errors);
    if let Some(not) = &branch.not {
        nested(not, false, false, path.child("not"), errors);
    }
    if let Some(items) = &branch.items {
        nested(items, false, rules, path.child("items"), errors);
    }
    let properties = path.child("properties");
    for (name, property) in &branch.properties {
        nested(property, false, rules, properties.key(name), errors);
        if name == "metadata" {
            errors.push(FieldError::forbidden(
                properties.key(name),
                "must not be specified in a nested context",
            ));
        }
    }
    for (broken, name, must) in [
        (!branch.kind.is_empty(), "type", "empty"),
        (branch.additional.is_some(), "additionalProperties", "undefined"),
        (branch.default.is_some(), "default", "undefined"),
        (branch.titled, "title", "empty"),
        (branch.described, "description", "empty"),
        (branch.nullable, "nullable", "false"),
        (branch.preserve_unknown, "x-kubernetes-preserve-unknown-fields", "false"),
        (branch.embedded, "x-kubernetes-embedded-resource", "false"),
        (branch.int_or_string, "x-kubernetes-int-or-string", "false"),
        (!branch.list_keys.is_empty(), "x-kubernetes-list-map-keys", "empty"),
        (branch.list_type.is_some(), "x-kubernetes-list-type", "undefined"),
        (branch.map_type.is_some(), "x-kubernetes-map-type", "undefined"),
        (!branch.rules.is_empty() && !rules, "x-kubernetes-validations", "empty"),
    ] {
        if broken {
            errors.push(FieldError::forbidden(path.child(name), &format!("must be {must} to be structural")));
        }
    }
}

/// Fields that a branch at the root constrains must be specified outside of the branch too. (kube-apiserver checks no
/// deeper.)
fn complete_branches(node: &Node, declared: &Node, path: Path<'_>, errors: &mut Vec<FieldError>) {
    for (name, branches) in [("allOf", &node.all_of), ("anyOf", &node.any_of), ("oneOf", &node.one_of)] {
        let at = path.child(name);
        for (index, branch) in branches.iter().enumerate() {
            complete(branch, declared, at.index(index), path, errors);
        }
    }
    if let Some(not) = &node.not {
        complete(not, declared, path.child("not"), path, errors);
    }
}

fn complete(branch: &Node, declared: &Node, path: Path<'_>, of: Path<'_>, errors: &mut Vec<FieldError>) {
    let missing = |field: Path<'_>, structural: Path<'_>| {
        FieldError::required(structural, &format!("because it is defined in {field}"))
    };
    let (properties, of_properties) = (path.child("properties"), of.child("properties"));
    for (name, property) in &branch.properties {
        match declared.properties.get(name) {
            Some(schema) => complete(property, schema, properties.key(name), of_properties.key(name), errors),
            None => errors.push(missing(properties.key(name), of_properties.key(name))),
        }
    }
    if let Some(items) = &branch.items {
        match &declared.items {
            Some(schema) => complete(items, schema, path.child("items"), of.child("items"), errors),
            None => errors.push(missing(path.child("items"), of.child("items"))),
        }
    }
    complete_branches(branch, declared, path, errors);
}
