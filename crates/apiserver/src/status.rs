//! The `metav1.Status` object: code, reason, message, details and causes. Messages are those of kube-apiserver, because
//! clients match on them.

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::field_error::FieldError;

/// One entry of `details.causes`: an invalid field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cause {
    /// Machine readable, e.g. `FieldValueRequired`.
    pub(crate) reason: String,
    /// Human readable, e.g. `Required value: name is required`.
    pub(crate) message: String,
    /// Path, e.g. `spec.containers[0].image`.
    pub(crate) field: String,
}

impl From<FieldError> for Cause {
    fn from(error: FieldError) -> Self {
        Self { reason: error.reason.as_str().into(), message: error.message, field: error.field }
    }
}

impl Cause {
    pub(crate) fn invalid(field: &str, value: &Value, why: &str) -> Self {
        FieldError::invalid(field, value.clone(), why).into()
    }

    pub(crate) fn required(field: &str, why: &str) -> Self {
        FieldError::required(field, why).into()
    }

    pub(crate) fn forbidden(field: &str, why: &str) -> Self {
        FieldError::forbidden(field, why).into()
    }
}

/// The error of a failed request, or the response of a successful request that returns no object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Status(Box<Inner>);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Inner {
    code: u16,
    reason: Cow<'static, str>,
    message: String,
    name: String,
    group: String,
    kind: String,
    uid: String,
    causes: Vec<Cause>,
    retry_after: Option<u32>,
    continue_token: Option<String>,
    plain: bool,
    /// `details` is present even if it is empty, as in errors that are not specific to a resource.
    generic: bool,
}

/// The name of a resource in messages: `pods` or `deployments.apps`.
pub(crate) fn qualified(group: &str, plural: &str) -> String {
    if group.is_empty() { plural.into() } else { format!("{plural}.{group}") }
}

impl Status {
    fn of(code: u16, reason: &'static str, message: String) -> Self {
        Self(Box::new(Inner { code, reason: reason.into(), message, ..Inner::default() }))
    }

    /// An error that is not specific to a resource.
    pub(crate) fn generic(code: u16, reason: &'static str, message: String) -> Self {
        let mut status = Self::of(code, reason, message);
        status.0.generic = true;
        status
    }

    fn about(mut self, group: &str, kind: &str, name: &str) -> Self {
        self.0.group = group.into();
        self.0.kind = kind.into();
        self.0.name = name.into();
        self
    }

    pub(crate) fn code(&self) -> u16 {
        self.0.code
    }

    pub(crate) fn message(&self) -> &str {
        &self.0.message
    }

    pub(crate) fn retry_after(&self) -> Option<u32> {
        self.0.retry_after
    }

    /// The body is plain text, as in the 404 of kube-apiserver for an unknown path.
    pub(crate) fn is_plain(&self) -> bool {
        self.0.plain
    }

    pub(crate) fn success(group: &str, plural: &str, name: &str, uid: &str) -> Self {
        let mut status = Self::of(200, "", String::new()).about(group, plural, name);
        status.0.uid = uid.into();
        status
    }

    pub(crate) fn created() -> Self {
        Self::of(201, "", String::new())
    }

    pub(crate) fn not_found(group: &str, plural: &str, name: &str) -> Self {
        let message = format!("{} \"{name}\" not found", qualified(group, plural));
        Self::of(404, "NotFound", message).about(group, plural, name)
    }

    /// 404 for an unknown path.
    pub(crate) fn no_such_path() -> Self {
        let mut status = Self::of(404, "NotFound", "404 page not found\n".into());
        status.0.plain = true;
        status
    }

    /// 404 for a resource or subresource that is not served.
    pub(crate) fn no_such_resource() -> Self {
        Self::generic(404, "NotFound", "the server could not find the requested resource".into())
    }

    pub(crate) fn already_exists(group: &str, plural: &str, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", qualified(group, plural));
        Self::of(409, "AlreadyExists", message).about(group, plural, name)
    }

    /// Adds a prefix to the message.
    pub(crate) fn with_prefix(mut self, prefix: &str) -> Self {
        self.0.message.insert_str(0, prefix);
        self
    }

    pub(crate) fn conflict(group: &str, plural: &str, name: &str, why: &str) -> Self {
        let message =
            format!("Operation cannot be fulfilled on {} \"{name}\": {why}", qualified(group, plural));
        Self::of(409, "Conflict", message).about(group, plural, name)
    }

    /// 409: the resource version in the request is not the current one.
    pub(crate) fn modified(group: &str, plural: &str, name: &str) -> Self {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(group, plural, name, why)
    }

    /// An error with the given code and reason.
    pub(crate) fn other(code: u16, reason: &'static str, message: &str) -> Self {
        Self::of(code, reason, message.into())
    }

    /// 415: the resource does not support this type of patch.
    /// The denial of a webhook, with its own code and reason.
    pub(crate) fn denied(code: u16, reason: &str, message: String) -> Self {
        let inner = Inner { code, reason: Cow::Owned(reason.to_owned()), message, ..Inner::default() };
        Self(Box::new(inner))
    }

    pub(crate) fn unsupported_patch() -> Self {
        Self::generic(415, "UnsupportedMediaType", "415: Unsupported Media Type".into())
    }

    /// 422: an option of the request, such as `fieldValidation`, has an unsupported value.
    pub(crate) fn unsupported_option(
        kind: &str,
        field: &str,
        given: impl std::fmt::Debug,
        known: &[&str],
    ) -> Self {
        let known: Vec<String> = known.iter().map(|value| format!("{value:?}")).collect();
        let cause = Cause {
            reason: "FieldValueNotSupported".into(),
            message: format!("Unsupported value: {given:?}: supported values: {}", known.join(", ")),
            field: field.into(),
        };
        Self::invalid("meta.k8s.io", kind, "", vec![cause])
    }

    /// Sets the causes.
    pub(crate) fn because(mut self, causes: Vec<Cause>) -> Self {
        self.0.causes = causes;
        self
    }

    pub(crate) fn invalid(group: &str, kind: &str, name: &str, causes: Vec<Cause>) -> Self {
        let each: Vec<String> = causes.iter().map(|c| format!("{}: {}", c.field, c.message)).collect();
        let list = match each.as_slice() {
            [one] => one.clone(),
            several => format!("[{}]", several.join(", ")),
        };
        let message = format!("{} \"{name}\" is invalid: {list}", qualified(group, kind));
        let mut status = Self::of(422, "Invalid", message).about(group, kind, name);
        status.0.causes = causes;
        status
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::of(400, "BadRequest", message.into())
    }

    pub(crate) fn forbidden(group: &str, plural: &str, name: &str, why: &str) -> Self {
        let object = qualified(group, plural);
        let message = if name.is_empty() {
            format!("{object} is forbidden: {why}")
        } else {
            format!("{object} \"{name}\" is forbidden: {why}")
        };
        Self::of(403, "Forbidden", message).about(group, plural, name)
    }

    /// 403 for a path that is not a resource.
    pub(crate) fn forbidden_path(message: String) -> Self {
        Self::of(403, "Forbidden", message)
    }

    pub(crate) fn terminating(group: &str, plural: &str, name: &str, namespace: &str) -> Self {
        let why =
            format!("unable to create new content in namespace {namespace} because it is being terminated");
        let mut status = Self::forbidden(group, plural, name, &why);
        status.0.causes = vec![Cause {
            reason: "NamespaceTerminating".into(),
            message: format!("namespace {namespace} is being terminated"),
            field: "metadata.namespace".into(),
        }];
        status
    }

    pub(crate) fn unauthorized() -> Self {
        Self::of(401, "Unauthorized", "Unauthorized".into())
    }

    pub(crate) fn method_not_allowed() -> Self {
        Self::generic(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource".into(),
        )
    }

    pub(crate) fn not_acceptable(accepted: &str) -> Self {
        let message = format!("406: Not Acceptable\n\nAvailable representations: {accepted}");
        Self::generic(406, "NotAcceptable", message)
    }

    pub(crate) fn unsupported_media(accepted: &str) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {accepted}"
        );
        Self::of(415, "UnsupportedMediaType", message)
    }

    pub(crate) fn too_large(limit: usize) -> Self {
        Self::of(413, "RequestEntityTooLarge", format!("limit is {limit}"))
    }

    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::of(410, "Expired", message.into())
    }

    /// 410 for a `continue` token that is too old; contains a token that continues the list inconsistently.
    pub(crate) fn expired_continue(continue_token: String) -> Self {
        let message = "The provided continue parameter is too old to display a consistent list result. You can start a \
             new list without the continue parameter, or use the continue token in this response to retrieve the \
             remainder of the results. Continuing with the provided token results in an inconsistent list - objects \
             that were created, modified, or deleted between the time the first chunk was returned and now may show up \
             in the list.";
        let mut status = Self::expired(message);
        status.0.continue_token = Some(continue_token);
        status
    }

    pub(crate) fn too_large_version(asked: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        let mut status = Self::of(504, "Timeout", message);
        status.0.causes = vec![Cause {
            reason: "ResourceVersionTooLarge".into(),
            message: "Too large resource version".into(),
            field: String::new(),
        }];
        status.0.retry_after = Some(1);
        status
    }

    pub(crate) fn too_many_requests(message: &str, causes: Vec<Cause>) -> Self {
        let mut status = Self::of(429, "TooManyRequests", message.into());
        status.0.causes = causes;
        status
    }

    pub(crate) fn retry_after_seconds(mut self, seconds: u32) -> Self {
        self.0.retry_after = Some(seconds);
        self
    }

    pub(crate) fn internal(message: impl std::fmt::Display) -> Self {
        Self::of(500, "InternalError", format!("Internal error occurred: {message}"))
    }

    /// The `Status` object.
    pub(crate) fn to_value(&self) -> Value {
        let inner = &*self.0;
        let ok = inner.code < 300;
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": if ok { "Success" } else { "Failure" },
        });
        let fields = status.as_object_mut().expect("made as an object above");
        if let Some(continue_token) = &inner.continue_token {
            fields.insert("metadata".into(), json!({ "continue": continue_token }));
        }
        if !inner.message.is_empty() {
            fields.insert("message".into(), inner.message.clone().into());
        }
        if !inner.reason.is_empty() {
            fields.insert("reason".into(), inner.reason.as_ref().into());
        }
        if !ok || inner.code == 201 {
            fields.insert("code".into(), inner.code.into());
        }
        let mut details = serde_json::Map::new();
        for (key, text) in
            [("name", &inner.name), ("group", &inner.group), ("kind", &inner.kind), ("uid", &inner.uid)]
        {
            if !text.is_empty() {
                details.insert(key.into(), text.as_str().into());
            }
        }
        if !inner.causes.is_empty() {
            let causes = inner.causes.iter().map(cause_value).collect();
            details.insert("causes".into(), Value::Array(causes));
        }
        if let Some(seconds) = inner.retry_after {
            details.insert("retryAfterSeconds".into(), seconds.into());
        }
        if inner.generic || !details.is_empty() {
            fields.insert("details".into(), details.into());
        }
        status
    }
}

fn cause_value(cause: &Cause) -> Value {
    let mut value = serde_json::Map::new();
    for (key, text) in [("reason", &cause.reason), ("message", &cause.message), ("field", &cause.field)] {
        if !text.is_empty() {
            value.insert(key.into(), text.as_str().into());
        }
    }
    value.into()
}
