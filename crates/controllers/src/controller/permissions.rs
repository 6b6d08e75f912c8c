//! What becomes of gangs for which the controller lacks a right.
//!
//! An API server that has just started refuses what it allows a moment later, so a step is tried again like after any failure, and
//! people are told from the second refusal in a row. A gang that cannot be started keeps its places no longer than it may lack pods.
//! Then it is taken back whole and held, and the API server is asked now and then whether the right is there: nobody waits, or is
//! stopped, for a gang that cannot start.

use std::collections::BTreeMap;
use std::time::Duration;

use api::MicroTime;
use index::Stop;
use kube::Client;
use serde::Deserialize;
use tokio::task::AbortHandle;

use super::State;
use crate::api_calls;
use crate::backoff::ExponentialBackoff;
use crate::error::Error;
use crate::forbidden::ForbiddenRequest;
use crate::observations::Observation;
use crate::step::{MissingPermission, NewEvent};

/// ExponentialBackoff between two polls whether a right is there.
const BACKOFF: ExponentialBackoff = ExponentialBackoff::new(Duration::from_secs(5), Duration::from_mins(1));

/// What is known of missing rights, by uid of the wrapper that needs them.
#[derive(Debug, Default)]
pub(super) struct Permissions {
    forbidden_steps: BTreeMap<String, ForbiddenStep>,
    /// Those whose places are being given back, and what they wait for then.
    awaited: BTreeMap<String, ForbiddenRequest>,
    polls: BTreeMap<String, AbortHandle>,
    /// Those of which it was told that their pods cannot be let go.
    forbidden_ungates: BTreeMap<String, ForbiddenRequest>,
}

/// Refusals in a row.
#[derive(Debug)]
struct ForbiddenStep {
    forbidden: ForbiddenRequest,
    since: MicroTime,
    is_reported: bool,
}

impl Permissions {
    /// The right that a wrapper is known to lack.
    pub(super) fn missing(&self, uid: &str) -> Option<MissingPermission> {
        let ForbiddenStep { forbidden, since, .. } =
            self.forbidden_steps.get(uid).filter(|step| step.is_reported)?;
        Some(MissingPermission { text: forbidden.to_string(), since: *since })
    }

    /// A step was step; returns what people are to be told of that.
    pub(super) fn step_forbidden(
        &mut self,
        uid: &str,
        forbidden: &ForbiddenRequest,
        now: MicroTime,
    ) -> Option<NewEvent> {
        let Some(known) = self.forbidden_steps.get_mut(uid) else {
            let step = ForbiddenStep { forbidden: forbidden.clone(), since: now, is_reported: false };
            self.forbidden_steps.insert(uid.to_owned(), step);
            return None;
        };
        if std::mem::replace(&mut known.is_reported, true) && known.forbidden == *forbidden {
            return None;
        }
        known.forbidden.clone_from(forbidden);
        Some(event(forbidden))
    }

    /// Pods of a wrapper cannot be let go to the scheduler; returns what people are to be told of that, once for all of them.
    pub(super) fn ungate_forbidden(&mut self, uid: &str, forbidden: ForbiddenRequest) -> Option<NewEvent> {
        let event = event(&forbidden);
        (self.forbidden_ungates.insert(uid.to_owned(), forbidden.clone()) != Some(forbidden)).then_some(event)
    }

    /// A step was not step.
    pub(super) fn granted(&mut self, uid: &str) {
        self.forbidden_steps.remove(uid);
    }

    /// A wrapper is to be stopped; if that is for the right that it lacks, it waits for it then.
    pub(super) fn step_stopped(&mut self, uid: &str, stop: &Stop) {
        let step = self.forbidden_steps.remove(uid);
        if let (Some(step), Stop::NotAllowed(_)) = (step, stop) {
            self.awaited.insert(uid.to_owned(), step.forbidden);
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
    /// Asks until the right is there that a wrapper is held for.
    pub(super) fn poll_permission(&mut self, uid: &str) {
        let Some(forbidden) = self.permissions.awaited.remove(uid) else { return };
        let (client, observations, key) = (self.client.clone(), self.observations.clone(), uid.to_owned());
        let poll = self.tasks.spawn(async move {
            for pause in BACKOFF {
                tokio::time::sleep(pause).await;
                match is_allowed(&client, &forbidden).await {
                    Ok(true) => break,
                    Ok(false) => {}
                    Err(error) => {
                        tracing::warn!(%forbidden, %error, "cannot ask whether it is allowed by now")
                    }
                }
            }
            // Nobody listens any more: who starts next tries at once.
            drop(observations.send(Observation::PermissionGranted(key)));
        });
        if let Some(former) = self.permissions.polls.insert(uid.to_owned(), poll) {
            former.abort();
        }
    }
}

fn event(forbidden: &ForbiddenRequest) -> NewEvent {
    NewEvent { is_warning: true, reason: "NotAllowed", text: forbidden.to_string() }
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
