//! Why a call to the API server failed, as far as the next step depends on it.

use std::time::Duration;

use crate::forbidden::ForbiddenRequest;

/// A call to the API server failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server refused, for a reason that trying again does not change.
    #[error("{0}")]
    Refused(String),
    /// The controller has no right to ask for that. Whoever grants rights can change it, and no author of objects.
    #[error("{0}")]
    NotAllowed(Box<ForbiddenRequest>),
    /// The object was changed or made by somebody else in between.
    #[error("the object has changed: {0}")]
    Conflict(String),
    /// An object of this name exists already.
    #[error("{0}")]
    Exists(String),
    /// There is no such object.
    #[error("{0}")]
    NotFound(String),
    /// The server did not answer, or not in time, or has a problem of its own.
    #[error("cannot reach the API server: {0}")]
    Unreachable(String),
    /// Another controller may act from now on.
    #[error("this controller leads no more: {0}")]
    LeaseLost(String),
    /// A custom resource definition was not served in time.
    #[error(
        "custom resource definition {name} was not established within {within:?}; look at its conditions"
    )]
    NotEstablished {
        /// The definition.
        name: String,
        /// How long it was waited for.
        within: Duration,
    },
}

impl Error {
    /// Whether another try may succeed without anything else changing.
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
            // Nothing is wrong with what was asked. An API server that has just started does not know all accounts yet.
            (401, _) => Self::Unreachable(format!("it does not accept the controller's credentials: {text}")),
            (403, _) if let Some(forbidden) = ForbiddenRequest::read(&text) => {
                Self::NotAllowed(Box::new(forbidden))
            }
            _ => Self::Refused(text),
        }
    }
}

/// An error with its causes, which kube keeps apart.
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
