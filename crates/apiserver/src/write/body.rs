//! Decodes a request body to an object of its kind: type check, unknown fields, defaulting and validation.

use std::borrow::Cow;

use serde_json::Value;

use super::{FieldValidation, WriteOptions};
use crate::builtin;
use crate::jsonpath::JsonPath;
use crate::metadata;
use crate::object;
use crate::openapi;
use crate::registry::Resource;
use crate::request::Call;
use crate::status::{Cause, Status};
use crate::strategy::gvk;

/// Decodes the body as an object of the resource.
pub(crate) fn decode(call: &Call<'_>, resource: &Resource) -> Result<Value, Status> {
    let mut value = call.decode_body()?;
    check_type(resource, &mut value)?;
    Ok(value)
}

/// Checks `kind` and `apiVersion`, and sets them if a built-in kind omits them.
pub(crate) fn check_type(resource: &Resource, value: &mut Value) -> Result<(), Status> {
    if !value.is_object() {
        return Err(not_handled(resource, "json: cannot unmarshal into an object"));
    }
    let kind = object::text(value, &["kind"]).to_owned();
    let version = object::text(value, &["apiVersion"]).to_owned();
    let expected = resource.api_version();
    if kind.is_empty() && resource.custom.is_some() {
        return Err(Status::bad_request(format!("Object 'Kind' is missing in '{value}'")));
    }
    if !version.is_empty() && version != expected {
        return Err(Status::bad_request(format!(
            "the API version in the data ({version}) does not match the expected API version ({expected})"
        )));
    }
    if !kind.is_empty() && kind != resource.kind {
        let (_, version) = object::group_version(&expected);
        let wanted = &resource.kind;
        return Err(Status::bad_request(format!(
            "{kind} in version {version:?} cannot be handled as a {wanted}: \
             converting ({version}.{kind}) to ({version}.{wanted}): unknown conversion"
        )));
    }
    object::set(value, &["kind"], resource.kind.as_str());
    object::set(value, &["apiVersion"], expected);
    Ok(())
}

/// 400 for a body that cannot be decoded as its kind.
pub(crate) fn not_handled(resource: &Resource, why: &str) -> Status {
    let kind = &resource.kind;
    Status::bad_request(format!(
        "{kind} in version {:?} cannot be handled as a {kind}: {why}",
        resource.version
    ))
}

/// Prunes unknown fields and nulls, and applies defaults. Reports unknown and duplicate fields by `fieldValidation`.
pub(crate) fn sanitize(
    options: &WriteOptions,
    resource: &Resource,
    value: &mut Value,
    old: Option<&Value>,
    warnings: &mut Vec<String>,
) -> Result<(), Status> {
    object::set(value, &["apiVersion"], resource.api_version());
    object::set(value, &["kind"], resource.kind.as_str());
    let reject = |why: &str| rejection(options, resource, why);
    metadata::check_shape(value).map_err(|why| reject(&why))?;
    let unknown = if let Some(custom) = &resource.custom {
        let mut unknown = decode_metadata(value).map_err(|why| reject(&why))?;
        if let Some(schema) = &custom.structural {
            unknown.extend(schema.prune(value));
            schema.default(value);
        }
        unknown
    } else {
        let kind = openapi::builtin(&resource.group, &resource.version, &resource.kind);
        let unknown = match kind {
            Some(kind) => kind.decode(value).map_err(|error| reject(&error.to_string()))?,
            None => Vec::new(),
        };
        builtin::prepare(gvk(resource), value, old);
        unknown
    };
    // Server-side apply reports unknown fields itself.
    if options.applied || options.fields == FieldValidation::Ignore {
        return Ok(());
    }
    let duplicates = options.duplicates.iter().cloned();
    let unknown = unknown.iter().map(|field| format!("unknown field {field:?}"));
    report(options, resource, duplicates.chain(unknown).collect(), warnings)
}

/// The error for an object, or the result of a patch, that cannot be decoded as its kind.
fn rejection(options: &WriteOptions, resource: &Resource, why: &str) -> Status {
    match &options.patch {
        None => not_handled(resource, why),
        Some(patch) => patch.invalid(why),
    }
}

fn decode_metadata(value: &mut Value) -> Result<Vec<String>, String> {
    let Some(metadata) = value.get_mut("metadata") else { return Ok(Vec::new()) };
    let unknown = openapi::object_meta().decode(metadata).map_err(|error| error.to_string())?;
    Ok(unknown.into_iter().map(|field| format!("metadata.{field}")).collect())
}

/// Reports strict decoding problems: as an error if `fieldValidation` is `Strict`, else as warnings.
fn report(
    options: &WriteOptions,
    resource: &Resource,
    problems: Vec<String>,
    warnings: &mut Vec<String>,
) -> Result<(), Status> {
    if problems.is_empty() {
        return Ok(());
    }
    if options.fields != FieldValidation::Strict {
        warnings.extend(problems);
        return Ok(());
    }
    Err(rejection(options, resource, &format!("strict decoding error: {}", problems.join(", "))))
}

/// The replica counts of a custom resource with a scale subresource must not be negative.
fn check_scale(resource: &Resource, value: &Value) -> Vec<Cause> {
    let scale = resource.custom.as_ref().and_then(|custom| custom.scale.as_ref());
    let paths = ["specReplicasPath", "statusReplicasPath"].iter().filter_map(|key| {
        let path = object::text(scale?, &[key]);
        (!path.is_empty()).then_some(path)
    });
    paths
        .filter_map(|path| {
            let found = JsonPath::parse(path)?.find(value).first().copied()?;
            let negative = found.as_i64().is_some_and(|replicas| replicas < 0);
            negative.then(|| Cause::invalid(path, found, "should be a non-negative integer"))
        })
        .collect()
}

/// The old pod with the fields that the subresource may write taken from the new pod. The validation of updates rejects
/// changes of these fields otherwise.
fn with_subresource_fields<'a>(options: &WriteOptions, new: &Value, old: &'a Value) -> Cow<'a, Value> {
    let parts: &[&str] = match options.subresource.as_str() {
        "ephemeralcontainers" => &["ephemeralContainers"],
        "resize" => &["containers", "initContainers"],
        _ => return Cow::Borrowed(old),
    };
    let mut old = old.clone();
    for part in parts {
        object::carry(new, &mut old, &["spec", part]);
    }
    Cow::Owned(old)
}

/// Validates metadata and the object: by the schema of a custom resource, or by the rules of a built-in kind.
pub(super) fn validate(
    options: &WriteOptions,
    resource: &Resource,
    value: &Value,
    old: Option<&Value>,
) -> Result<(), Status> {
    let mut causes =
        metadata::validate(value, resource.rules.names, resource.namespaced, resource.custom.is_some());
    let errors = if let Some(custom) = &resource.custom {
        custom.structural.as_ref().map(|schema| schema.validate(value, old)).unwrap_or_default()
    } else {
        let baseline = old.map(|old| with_subresource_fields(options, value, old));
        builtin::validate(gvk(resource), value, baseline.as_deref())
    };
    causes.extend(errors.into_iter().map(Cause::from));
    causes.extend(check_scale(resource, value));
    if causes.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(&resource.group, &resource.kind, object::name(value), causes))
}
