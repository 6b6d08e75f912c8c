//! PATCH: detects the patch type and applies the patch to an object.

use serde_json::Value;

use super::WriteOptions;
use crate::managed_fields::{self, types};
use crate::object;
use crate::patch::{self, PatchError};
use crate::registry::Resource;
use crate::request::{Call, parse_json, parse_yaml};
use crate::ssa::ApplyError;
use crate::status::{Cause, Status};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PatchKind {
    Json,
    Merge,
    Strategic,
    Apply,
}

impl PatchKind {
    /// The patch type by the content type of the request.
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

    /// Decodes the body of the request.
    pub(crate) fn decode(self, call: &Call<'_>) -> Result<Value, Status> {
        if self == Self::Apply { parse_yaml(&call.body) } else { parse_json(&call.body) }
    }

    /// The text for error messages about the result of the patch.
    pub(crate) fn describe(self, patch: &Value, new: &Value) -> Option<PatchDescription> {
        match self {
            Self::Json | Self::Merge => Some(PatchDescription { shown: new.to_string(), converted: false }),
            Self::Strategic => Some(PatchDescription { shown: patch::go_value(patch), converted: true }),
            Self::Apply => None,
        }
    }
}

/// The result of a patch as error messages show it.
#[derive(Debug, Clone)]
pub(crate) struct PatchDescription {
    shown: String,
    /// kube-apiserver converts the result to the Go type instead of decoding it from JSON; the error text differs.
    converted: bool,
}

impl PatchDescription {
    /// 422 for a result that cannot be decoded as its kind.
    pub(crate) fn invalid(&self, why: &str) -> Status {
        let why = if self.converted { conversion_error(why) } else { why.into() };
        let cause = Cause::invalid("patch", &Value::from(self.shown.as_str()), &why);
        Status::invalid("", "", "", vec![cause])
    }
}

/// Translates an error of Go's JSON decoder (`json: cannot unmarshal … of type …`) to the text of Go's unstructured
/// converter.
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

/// Applies a patch to `old`. Server-side apply creates the object if `old` is `None`.
pub(crate) fn apply_patch(
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
        PatchKind::Apply => managed_fields::apply(resource, &options.field_manager(), old, patch, force)
            .map_err(|error| match error {
                ApplyError::Conflicts(_) => {
                    let causes = error.causes().iter().map(cause).collect();
                    Status::other(error.code(), error.reason(), &error.to_string()).because(causes)
                }
                ApplyError::BadRequest(_) | ApplyError::Internal(_) => {
                    Status::other(error.code(), error.reason(), &error.to_string())
                }
            }),
    }
}

fn cause(value: &Value) -> Cause {
    let text = |key| object::text(value, &[key]).to_owned();
    Cause { reason: text("reason"), message: text("message"), field: text("field") }
}
