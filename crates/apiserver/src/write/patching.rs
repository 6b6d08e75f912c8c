//! PATCH: which kind of patch a request carries, and what it makes of an object.

use serde_json::Value;

use super::WriteOptions;
use super::body::types;
use crate::object;
use crate::patch::{self, PatchError};
use crate::registry::Resource;
use crate::request::{Call, parse_json, parse_yaml};
use crate::ssa::{self, ApplyError, Write};
use crate::status::{Cause, Status};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PatchKind {
    Json,
    Merge,
    Strategic,
    Apply,
}

impl PatchKind {
    /// By the content type of the request.
    pub(crate) fn of(call: &Call<'_>, resource: &Resource) -> Result<Self, Status> {
        match call.content_type() {
            "application/json-patch+json" => Ok(Self::Json),
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/strategic-merge-patch+json" if resource.custom.is_none() => Ok(Self::Strategic),
            "application/apply-patch+yaml" => Ok(Self::Apply),
            "application/strategic-merge-patch+json" => Err(Status::unsupported_media(
                "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
            )),
            _ => Err(Status::unsupported_patch()),
        }
    }

    /// The body of the request.
    pub(crate) fn decode(self, call: &Call<'_>) -> Result<Value, Status> {
        if self == Self::Apply { parse_yaml(&call.body) } else { parse_json(&call.body) }
    }

    /// What messages about the result of a patch show.
    pub(crate) fn show(self, patch: &Value, new: &Value) -> Option<Patched> {
        match self {
            Self::Json | Self::Merge => Some(Patched { shown: new.to_string(), converted: false }),
            Self::Strategic => Some(Patched { shown: patch::go_value(patch), converted: true }),
            Self::Apply => None,
        }
    }
}

/// The result of a patch, for messages.
#[derive(Debug, Clone)]
pub(crate) struct Patched {
    shown: String,
    /// The result is converted to the type, not decoded from JSON.
    converted: bool,
}

impl Patched {
    /// The error of a result that does not have the form of its kind.
    pub(crate) fn refuse(&self, why: &str) -> Status {
        let why = if self.converted { conversion_error(why) } else { why.into() };
        let cause = Cause::invalid("patch", &Value::from(self.shown.as_str()), &why);
        Status::invalid("", "", "", vec![cause])
    }
}

/// The words in which Go's converter says what its JSON decoder says with `json: cannot unmarshal … of type …`.
fn conversion_error(why: &str) -> String {
    let Some(rest) = why.strip_prefix("json: cannot unmarshal ") else { return why.into() };
    let (Some(found), Some((_, wanted))) = (rest.split(' ').next(), rest.rsplit_once(" of type ")) else {
        return why.into();
    };
    let found = match found {
        "number" => "int64",
        "array" => "slice",
        "object" => "map",
        other => other,
    };
    match wanted {
        _ if wanted.starts_with("[]") => format!("cannot restore slice from {found}"),
        _ if wanted.starts_with("map[") => format!("cannot restore map from {found}"),
        "string" if found == "int64" => "cannot convert int64 to string".into(),
        "string" | "bool" | "int32" | "int64" | "float64" => format!("unrecognized type: {wanted}"),
        _ => format!("cannot restore struct from: {found}"),
    }
}

/// The object that a patch makes of `old`; of nothing, where it is applied.
pub(crate) fn patched(
    resource: &Resource,
    old: Option<&Value>,
    patch: &Value,
    kind: PatchKind,
    force: bool,
    options: &WriteOptions,
) -> Result<Value, Status> {
    let nothing = Value::Null;
    let document = old.unwrap_or(&nothing);
    let failed = |error: PatchError| match error.code() {
        422 => Status::generic(422, error.reason(), error.message().into()),
        code => Status::other(code, error.reason(), error.message()),
    };
    match kind {
        PatchKind::Json => patch::json(document, patch).map_err(failed),
        PatchKind::Merge => patch::merge(document, patch).map_err(failed),
        PatchKind::Strategic => patch::strategic(document, patch, types(resource)).map_err(failed),
        PatchKind::Apply => {
            with_circumstances(resource, options, |write| ssa::apply(old, patch, force, write)).map_err(
                |error| match error {
                    ApplyError::Conflicts(_) => {
                        let causes = error.causes().iter().map(cause).collect();
                        Status::other(error.code(), error.reason(), &error.to_string()).because(causes)
                    }
                    ApplyError::BadRequest(_) | ApplyError::Internal(_) => {
                        Status::other(error.code(), error.reason(), &error.to_string())
                    }
                },
            )
        }
    }
}

fn cause(value: &Value) -> Cause {
    let text = |key| object::text(value, &[key]).to_owned();
    Cause { reason: text("reason"), message: text("message"), field: text("field") }
}

/// Notes who wrote what, after a write that was no apply.
pub(super) fn track(resource: &Resource, options: &WriteOptions, old: Option<&Value>, new: &mut Value) {
    with_circumstances(resource, options, |write| ssa::track(old, new, write));
}

fn with_circumstances<T>(
    resource: &Resource,
    options: &WriteOptions,
    act: impl FnOnce(&Write<'_>) -> T,
) -> T {
    let api_version = resource.api_version();
    let reset: &[&[&str]] = match (options.subresource.as_str(), resource.custom.is_some()) {
        ("", _) if resource.has_status() => &[&["status"]],
        ("status", true) => &[&["spec"], &["metadata"]],
        ("status", false) => &[&["spec"]],
        _ => &[],
    };
    act(&Write {
        manager: &options.manager,
        api_version: &api_version,
        kind: &resource.kind,
        subresource: Some(options.subresource.as_str()).filter(|part| !part.is_empty()),
        reset,
        now: options.now,
        types: types(resource),
    })
}
