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
            _ if resource.custom.is_some() => Err(Status::unsupported_media(
                "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
            )),
            _ => Err(Status::unsupported_media(
                "application/json-patch+json, application/merge-patch+json, \
                 application/strategic-merge-patch+json, application/apply-patch+yaml",
            )),
        }
    }

    /// The body of the request.
    pub(crate) fn decode(self, call: &Call<'_>) -> Result<Value, Status> {
        if self == Self::Apply { parse_yaml(&call.body) } else { parse_json(&call.body) }
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
    let name = object::name(document);
    let failed = |error: PatchError| {
        let status = Status::other(error.code(), error.reason(), error.message());
        status.about_object(&resource.group, &resource.plural, name)
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
