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
use crate::step::{MissingPermission, News};

/// ExponentialBackoff between two questions whether a right is there.
const PAUSES: ExponentialBackoff =
    ExponentialBackoff::between(Duration::from_secs(5), Duration::from_mins(1));

/// What is known of missing rights, by uid of the wrapper that needs them.
#[derive(Debug, Default)]
pub(super) struct Permissions {
    lacking: BTreeMap<String, Refused>,
    /// Those whose places are being given back, and what they wait for then.
    awaited: BTreeMap<String, ForbiddenRequest>,
    questions: BTreeMap<String, AbortHandle>,
    /// Those of which it was told that their pods cannot be let go.
    gated: BTreeMap<String, ForbiddenRequest>,
}

/// Refusals in a row.
#[derive(Debug)]
struct Refused {
    forbidden: ForbiddenRequest,
    since: MicroTime,
    is_told: bool,
}

impl Permissions {
    /// The right that a wrapper is known to lack.
    pub(super) fn lack(&self, uid: &str) -> Option<MissingPermission> {
        let Refused { forbidden, since, .. } = self.lacking.get(uid).filter(|refused| refused.is_told)?;
        Some(MissingPermission { text: forbidden.to_string(), since: *since })
    }

    /// A step was refused; returns what people are to be told of that.
    pub(super) fn lacked(&mut self, uid: &str, forbidden: &ForbiddenRequest, now: MicroTime) -> Option<News> {
        let Some(known) = self.lacking.get_mut(uid) else {
            let refused = Refused { forbidden: forbidden.clone(), since: now, is_told: false };
            self.lacking.insert(uid.to_owned(), refused);
            return None;
        };
        if std::mem::replace(&mut known.is_told, true) && known.forbidden == *forbidden {
            return None;
        }
        known.forbidden.clone_from(forbidden);
        Some(news(forbidden))
    }

    /// Pods of a wrapper cannot be let go to the scheduler; returns what people are to be told of that, once for all of them.
    pub(super) fn gated(&mut self, uid: &str, forbidden: ForbiddenRequest) -> Option<News> {
        let news = news(&forbidden);
        (self.gated.insert(uid.to_owned(), forbidden.clone()) != Some(forbidden)).then_some(news)
    }

    /// A step was not refused.
    pub(super) fn had(&mut self, uid: &str) {
        self.lacking.remove(uid);
    }

    /// A wrapper is to be stopped; if that is for the right that it lacks, it waits for it then.
    pub(super) fn give_up(&mut self, uid: &str, stop: &Stop) {
        let refused = self.lacking.remove(uid);
        if let (Some(refused), Stop::NotAllowed(_)) = (refused, stop) {
            self.awaited.insert(uid.to_owned(), refused.forbidden);
        }
    }

    pub(super) fn forget(&mut self, uid: &str) {
        self.lacking.remove(uid);
        self.awaited.remove(uid);
        self.gated.remove(uid);
        if let Some(question) = self.questions.remove(uid) {
            question.abort();
        }
    }
}

impl State {
    /// Asks until the right is there that a wrapper is held for.
    pub(super) fn ask_for_right(&mut self, uid: &str) {
        let Some(forbidden) = self.rights.awaited.remove(uid) else { return };
        let (client, observations, key) = (self.client.clone(), self.observations.clone(), uid.to_owned());
        let question = self.tasks.spawn(async move {
            for pause in PAUSES {
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
            drop(observations.send(Observation::Allowed(key)));
        });
        if let Some(former) = self.rights.questions.insert(uid.to_owned(), question) {
            former.abort();
        }
    }
}

fn news(forbidden: &ForbiddenRequest) -> News {
    News { is_warning: true, reason: "NotAllowed", text: forbidden.to_string() }
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
    let review: Review = api_calls::ask(client, &forbidden.review()).await?;
    Ok(review.status.allowed)
}
