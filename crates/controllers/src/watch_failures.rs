//! Failures of one watch: when they are logged, and when the loop is told to proceed without the watch.

use std::time::Duration;

use kube::core::Status;
use kube::runtime::watcher;
use tokio::time::Instant;

use crate::error::{describe, status_message};
use crate::forbidden::ForbiddenRequest;
use crate::observations::Source;

/// Why a watch or its list fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WatchFailure {
    /// HTTP status of the answer; none if there was no answer, or if it could not be decoded.
    pub(crate) code: Option<u16>,
    /// The cause. For a missing permission it begins with `not allowed: `.
    pub(crate) text: String,
    is_forbidden: bool,
}

/// The consecutive failures of one watch.
#[derive(Debug, Default)]
pub(crate) struct WatchFailures {
    /// The last failure, when the first of its class occurred, and how many have.
    last: Option<(WatchFailure, Instant, u32)>,
    is_reported: bool,
    /// The list succeeded before: the index is stale, but not empty.
    pub(crate) was_listed: bool,
}

impl WatchFailure {
    /// Describes an error of a watch.
    pub(crate) fn of(error: &watcher::Error) -> Self {
        match error {
            watcher::Error::InitialListFailed(kube::Error::Api(status))
            | watcher::Error::WatchStartFailed(kube::Error::Api(status))
            | watcher::Error::WatchFailed(kube::Error::Api(status))
            | watcher::Error::WatchError(status) => Self::of_status(status),
            watcher::Error::InitialListFailed(error)
            | watcher::Error::WatchStartFailed(error)
            | watcher::Error::WatchFailed(error) => Self::without_status(describe(error)),
            watcher::Error::NoResourceVersion => {
                Self::without_status("the answer has no resource version".into())
            }
        }
    }

    /// A failure without an answer.
    pub(crate) fn without_status(text: String) -> Self {
        Self { code: None, text, is_forbidden: false }
    }

    fn of_status(status: &Status) -> Self {
        let forbidden = ForbiddenRequest::read(&status.message).filter(|_| status.code == 403);
        let text = forbidden.as_ref().map_or_else(|| status_message(status), ToString::to_string);
        Self { code: Some(status.code), text, is_forbidden: forbidden.is_some() }
    }

    /// Whether the API server does not know the kind.
    pub(crate) fn is_missing(&self) -> bool {
        self.code == Some(404)
    }

    /// Whether two failures have one cause. Texts without a status may differ from attempt to attempt.
    fn is_like(&self, other: &Self) -> bool {
        self.code == other.code && (!self.is_forbidden || self.text == other.text)
    }
}

impl WatchFailures {
    /// How long a watch may be forbidden, or fail after its list succeeded, until the loop proceeds without it. An API
    /// server that has just started may answer 403 for a moment.
    const GRACE_PERIOD: Duration = Duration::from_secs(10);

    /// Records a failure and logs it once. Returns it when the loop is to proceed without the watch.
    pub(crate) fn record(&mut self, source: &Source, failure: WatchFailure) -> Option<WatchFailure> {
        let (since, count) = match &self.last {
            Some((last, since, count)) if last.is_like(&failure) => (*since, count + 1),
            Some(_) | None => {
                // A kind of jobs that is not installed is no failure.
                if failure.is_missing() && matches!(source, Source::Jobs(_)) {
                    tracing::debug!(error = failure.text, "cannot watch {source}, retrying");
                } else {
                    tracing::warn!(error = failure.text, "cannot watch {source}, retrying");
                }
                self.is_reported = false;
                (Instant::now(), 1)
            }
        };
        let lasts = since.elapsed() >= Self::GRACE_PERIOD;
        let is_due = match (self.was_listed, failure.is_forbidden) {
            // No AppWrapper has been started without the list, so nothing is lost by telling at once.
            (false, false) => count >= 2 || lasts,
            // Without an answer, it is likely that the API server is unreachable altogether.
            (true, false) => lasts && failure.code.is_some(),
            (_, true) => lasts,
        };
        let report = (is_due && !self.is_reported).then(|| failure.clone());
        self.is_reported |= is_due;
        self.last = Some((failure, since, count));
        report
    }

    /// Whether the loop proceeds without the watch.
    pub(crate) fn is_reported(&self) -> bool {
        self.is_reported
    }

    /// Applies that the watch works.
    pub(crate) fn clear(&mut self) {
        *self = Self { was_listed: true, ..Self::default() };
    }
}
