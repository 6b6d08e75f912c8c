//! Errors of requests to the API server, classified by how the caller proceeds.

use std::time::Duration;

use kube::core::Status;
use serde_json::error::Category;

use crate::forbidden::ForbiddenRequest;

/// A request to the API server failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server rejected the request. A retry has the same result.
    #[error("{0}")]
    Refused(String),
    /// Admission rejected the request, for instance for a `ResourceQuota`, or the API server failed to create the object.
    /// A retry can succeed when the cluster has changed.
    #[error("{0}")]
    NotAdmitted(String),
    /// The controller lacks an RBAC permission. A cluster administrator can grant it; the author of the object
    /// cannot.
    #[error("{0}")]
    NotAllowed(Box<ForbiddenRequest>),
    /// Another client changed the object, or created another one, in the meantime.
    #[error("the object has changed: {0}")]
    Conflict(String),
    /// An object of this name already exists.
    #[error("{0}")]
    Exists(String),
    /// The object does not exist.
    #[error("{0}")]
    NotFound(String),
    /// The API server did not answer in time.
    #[error("cannot reach the API server: {0}")]
    Unreachable(String),
    /// The API server answered that it cannot serve the request now (408, 429 or 5xx).
    #[error("the API server fails: {0}")]
    Failing(String),
    /// This controller is not the leader, or not any more; the cause.
    #[error("this controller is not the leader: {0}")]
    LeaseLost(String),
    /// A CRD was not established in time.
    #[error(
        "custom resource definition {name} was not established within {within:?}; look at its conditions"
    )]
    NotEstablished {
        /// The definition.
        name: String,
        /// The timeout.
        within: Duration,
    },
}

impl Error {
    /// The cause in one word, for metrics.
    pub(crate) fn cause(&self) -> &'static str {
        match self {
            Self::Refused(_) => "Refused",
            Self::NotAdmitted(_) => "NotAdmitted",
            Self::NotAllowed(_) => "NotAllowed",
            Self::Conflict(_) => "Conflict",
            Self::Exists(_) => "Exists",
            Self::NotFound(_) => "NotFound",
            Self::Unreachable(_) => "Unreachable",
            Self::Failing(_) => "Failing",
            Self::LeaseLost(_) => "LeaseLost",
            Self::NotEstablished { .. } => "NotEstablished",
        }
    }

    /// Whether a retry can succeed although nothing else changes.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::Failing(_))
    }
}

impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Self {
        if let kube::Error::Service(cause) = &error
            && let Some(Self::LeaseLost(why)) = cause.downcast_ref()
        {
            return Self::LeaseLost(why.clone());
        }
        let kube::Error::Api(status) = error else { return Self::Unreachable(describe(&error)) };
        let text = status_message(&status);
        match (status.code, status.reason.as_str()) {
            (_, "AlreadyExists") => Self::Exists(text),
            (409, _) => Self::Conflict(text),
            (404, _) => Self::NotFound(text),
            (408 | 429 | 500.., _) => Self::Failing(text),
            // The request itself is valid. An API server that has just started may not know all service accounts yet.
            (401, _) => Self::Unreachable(format!("it does not accept the controller's credentials: {text}")),
            (403, _) if let Some(forbidden) = ForbiddenRequest::read(&text) => {
                Self::NotAllowed(Box::new(forbidden))
            }
            (403, _) => Self::NotAdmitted(text),
            _ if is_policy(&text) => Self::NotAdmitted(text),
            _ => Self::Refused(text),
        }
    }
}

/// Whether an admission webhook or a `ValidatingAdmissionPolicy` rejected the request. They choose the code of the answer,
/// such as 400 or 422, and an administrator can change them.
fn is_policy(text: &str) -> bool {
    text.starts_with("admission webhook \"") || text.contains("ValidatingAdmissionPolicy '")
}

/// The reason of a status that kube makes of an answer with another body than a `Status`; its message is that body.
const NO_STATUS: &str = "Failed to parse error data";
/// Maximum length of a message of the API server, in characters. Some quote whole objects.
const MESSAGE_MAX: usize = 2_000;

/// The text of an error without any part of the answer that could not be decoded: it may contain secrets.
pub fn describe(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error {
        return status_message(status);
    }
    if let kube::Error::SerdeError(error) = error {
        return undecodable(error);
    }
    if let kube::Error::FromUtf8(_) = error {
        return "the answer cannot be decoded: it is not UTF-8".into();
    }
    chain(error)
}

/// The message of a status, cut to a maximum length.
pub(crate) fn status_message(status: &Status) -> String {
    if status.reason == NO_STATUS || status.message.is_empty() {
        return format!("the answer is an error {} without a reason", status.code);
    }
    match status.message.char_indices().nth(MESSAGE_MAX) {
        None => status.message.clone(),
        Some((end, _)) => format!("{}… ({} bytes)", &status.message[..end], status.message.len()),
    }
}

/// Why JSON cannot be decoded, without the values that the message of `serde_json` quotes.
pub(crate) fn undecodable(error: &serde_json::Error) -> String {
    let (line, column) = (error.line(), error.column());
    let cause = match error.classify() {
        Category::Io | Category::Eof => "it ends too early",
        Category::Syntax if error.to_string().starts_with("recursion limit exceeded") => {
            "its fields are nested too deeply"
        }
        Category::Syntax => "it is not JSON",
        Category::Data => "a field has another type than its schema says",
    };
    format!("the answer cannot be decoded: {cause}, at line {line} column {column}")
}

/// The error with the text of all its sources.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    text
}
