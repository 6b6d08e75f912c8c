//! Errors of requests to the API server, classified by how the caller proceeds.

use std::time::Duration;

use crate::forbidden::ForbiddenRequest;

/// A request to the API server failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server rejected the request. A retry has the same result.
    #[error("{0}")]
    Refused(String),
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
    /// The API server did not answer in time, or reported an internal error.
    #[error("cannot reach the API server: {0}")]
    Unreachable(String),
    /// This controller is no longer the leader.
    #[error("this controller is no longer the leader: {0}")]
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
    /// Whether a retry can succeed although nothing else changes.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unreachable(_))
    }
}

impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Self {
        let kube::Error::Api(status) = error else { return Self::Unreachable(chain(&error)) };
        let text = status.message.clone();
        match (status.code, status.reason.as_str()) {
            (_, "AlreadyExists") => Self::Exists(text),
            (409, _) => Self::Conflict(text),
            (404, _) => Self::NotFound(text),
            (408 | 429 | 500.., _) => Self::Unreachable(text),
            // The request itself is valid. An API server that has just started may not know all service accounts yet.
            (401, _) => Self::Unreachable(format!("it does not accept the controller's credentials: {text}")),
            (403, _) if let Some(forbidden) = ForbiddenRequest::read(&text) => {
                Self::NotAllowed(Box::new(forbidden))
            }
            _ => Self::Refused(text),
        }
    }
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
