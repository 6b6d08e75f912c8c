//! Handles requests that the API server forbids (403), and objects that it does not create, for instance for a
//! `ResourceQuota`.
//!
//! An API server that has just started may forbid a request that it allows a moment later. So a forbidden step is
//! retried like any failed step. The second consecutive refusal is recorded as an Event and in the status. An
//! admitted gang that cannot start because a permission is missing keeps its nodes no longer than a running gang may
//! lack pods. Then the gang is stopped and held, and the API server is asked at intervals whether the permission has
//! been granted. A gang that cannot start does not block or preempt other gangs. An object that is not admitted is handled
//! the same way; no request tells whether it will be admitted, so the gang is queued again after a pause.

use std::collections::BTreeMap;
use std::time::Duration;

use api::MicroTime;
use index::StopReason;
use kube::Client;
use serde::Deserialize;
use tokio::task::AbortHandle;

use super::State;
use crate::api_calls;
use crate::backoff::ExponentialBackoff;
use crate::error::Error;
use crate::forbidden::ForbiddenRequest;
use crate::observations::Observation;
use crate::step::{MissingPermission, NOT_ADMITTED, NewEvent};

/// Backoff between two access reviews.
const BACKOFF: ExponentialBackoff = ExponentialBackoff::new(Duration::from_secs(5), Duration::from_mins(1));

/// How long a gang is held whose objects were not admitted for so long that it was stopped.
const ADMISSION_PAUSE: Duration = Duration::from_mins(1);

/// Missing permissions, by uid of the AppWrapper that needs them.
#[derive(Debug, Default)]
pub(super) struct Permissions {
    forbidden_steps: BTreeMap<String, ForbiddenStep>,
    /// AppWrappers that are being stopped, and the permission that they will be held for.
    awaited: BTreeMap<String, ForbiddenRequest>,
    polls: BTreeMap<String, AbortHandle>,
    /// AppWrappers whose pods cannot be ungated, as far as it was recorded.
    forbidden_ungates: BTreeMap<String, ForbiddenRequest>,
}

/// Why a step was forbidden.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Cause {
    /// The controller lacks a permission.
    Permission(ForbiddenRequest),
    /// Admission rejected an object.
    Admission(String),
}

impl Cause {
    fn of(error: &Error) -> Option<Self> {
        match error {
            Error::NotAllowed(forbidden) => Some(Self::Permission((**forbidden).clone())),
            Error::NotAdmitted(text) => Some(Self::Admission(text.clone())),
            Error::Refused(_)
            | Error::Conflict(_)
            | Error::Exists(_)
            | Error::NotFound(_)
            | Error::Unreachable(_)
            | Error::Failing(_)
            | Error::LeaseLost(_)
            | Error::NotEstablished { .. } => None,
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Permission(forbidden) => forbidden.to_string(),
            Self::Admission(text) => format!("{NOT_ADMITTED}{text}"),
        }
    }

    fn event(&self) -> NewEvent {
        let reason = match self {
            Self::Permission(_) => "NotAllowed",
            Self::Admission(_) => "NotAdmitted",
        };
        NewEvent { is_warning: true, reason, text: self.text() }
    }
}

/// Consecutive 403 responses to the steps of one AppWrapper.
#[derive(Debug)]
struct ForbiddenStep {
    cause: Cause,
    since: MicroTime,
    is_reported: bool,
}

impl Permissions {
    /// The missing permission of an AppWrapper, once it is reported.
    pub(super) fn missing(&self, uid: &str) -> Option<MissingPermission> {
        let ForbiddenStep { cause, since, .. } =
            self.forbidden_steps.get(uid).filter(|step| step.is_reported)?;
        Some(MissingPermission { text: cause.text(), since: *since })
    }

    /// Applies that a step was forbidden. Returns the Event to record, if any.
    pub(super) fn step_forbidden(&mut self, uid: &str, error: &Error, now: MicroTime) -> Option<NewEvent> {
        let cause = Cause::of(error)?;
        let Some(previous) = self.forbidden_steps.get_mut(uid) else {
            let step = ForbiddenStep { cause, since: now, is_reported: false };
            self.forbidden_steps.insert(uid.to_owned(), step);
            return None;
        };
        let former = std::mem::replace(&mut previous.cause, cause);
        let was_reported = std::mem::replace(&mut previous.is_reported, true);
        // The figures of a quota change with every attempt.
        let is_same = without_digits(&former.text()) == without_digits(&previous.cause.text());
        (!was_reported || !is_same).then(|| previous.cause.event())
    }

    /// Applies that pods of an AppWrapper cannot be ungated. Returns the Event to record: one for all pods.
    pub(super) fn ungate_forbidden(&mut self, uid: &str, forbidden: ForbiddenRequest) -> Option<NewEvent> {
        let event = Cause::Permission(forbidden.clone()).event();
        (self.forbidden_ungates.insert(uid.to_owned(), forbidden.clone()) != Some(forbidden)).then_some(event)
    }

    /// Applies that a step was allowed.
    pub(super) fn step_allowed(&mut self, uid: &str) {
        self.forbidden_steps.remove(uid);
    }

    /// Applies that a gang is stopped. If this is because of a missing permission, the gang is held for this
    /// permission afterwards.
    pub(super) fn step_stopped(&mut self, uid: &str, stop: &StopReason) {
        let step = self.forbidden_steps.remove(uid);
        if let (Some(ForbiddenStep { cause: Cause::Permission(forbidden), .. }), StopReason::Forbidden(_)) =
            (step, stop)
        {
            self.awaited.insert(uid.to_owned(), forbidden);
        }
    }

    pub(super) fn forget(&mut self, uid: &str) {
        self.forbidden_steps.remove(uid);
        self.awaited.remove(uid);
        self.forbidden_ungates.remove(uid);
        if let Some(poll) = self.polls.remove(uid) {
            poll.abort();
        }
    }
}

impl State {
    /// Polls until the permission is granted that the AppWrapper is held for. Without one, it is held for a fixed time.
    pub(super) fn poll_permission(&mut self, uid: &str) {
        let awaited = self.permissions.awaited.remove(uid);
        let (client, observations, key) = (self.client.clone(), self.observations.clone(), uid.to_owned());
        let poll = self.tasks.spawn(async move {
            for delay in BACKOFF {
                let Some(forbidden) = &awaited else {
                    tokio::time::sleep(ADMISSION_PAUSE).await;
                    break;
                };
                tokio::time::sleep(delay).await;
                match is_allowed(&client, forbidden).await {
                    Ok(true) => break,
                    Ok(false) => {}
                    Err(error) => {
                        tracing::warn!(%forbidden, %error, "cannot create an access review, retrying");
                    }
                }
            }
            // The receiver is gone when the controller has ended. The next process tries at once.
            drop(observations.send(Observation::PermissionGranted(key)));
        });
        if let Some(former) = self.permissions.polls.insert(uid.to_owned(), poll) {
            former.abort();
        }
    }
}

fn without_digits(text: &str) -> String {
    text.chars().filter(|c| !c.is_ascii_digit()).collect()
}

async fn is_allowed(client: &Client, forbidden: &ForbiddenRequest) -> Result<bool, Error> {
    #[derive(Deserialize)]
    struct Review {
        status: Answer,
    }
    #[derive(Deserialize)]
    struct Answer {
        allowed: bool,
    }
    let review: Review = api_calls::create_review(client, &forbidden.access_review()).await?;
    Ok(review.status.allowed)
}
