//! Admission by webhooks: another component completes and checks writes before they are stored, as with kube-apiserver.
//! A component in the same process is a function; the components of `MutatingWebhookConfiguration` and
//! `ValidatingWebhookConfiguration` objects are called over HTTPS.
//!
//! The server has no socket. A request that needs the answer of a webhook is not executed: the caller sends the calls
//! that an [`Admission`] lists, and executes the request again with their answers, until none is missing. An answer is
//! kept under what was asked, so an object that was changed meanwhile is asked about again. The execution that stores an
//! object thus has answers about exactly this object.

mod calls;
mod client;
mod conditions;
mod configuration;
mod endpoint;
mod matching;
mod mutation;
mod validation;

use std::collections::HashMap;
use std::fmt;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request};
use jiff::Timestamp;
use serde_json::{Value, json};

use self::calls::Call;
use self::configuration::Receiver;
pub(crate) use self::configuration::Webhook;
use crate::request::Call as RequestCall;
use crate::response::{Answer, Reply, reply};
use crate::rng::Rng;
use crate::server::ApiServer;
use crate::status::Status;
use crate::user::User;

/// An `AdmissionReview` that is being answered.
pub type Reviewing = Pin<Box<dyn Future<Output = Value> + Send>>;

/// Executions of one request before it is refused, because its object changes with each review.
const EXECUTIONS_MAX: u32 = 1_000;

/// Answers an `AdmissionReview` of `admission.k8s.io/v1` in the same process.
type Review = Arc<dyn Fn(Value) -> Reviewing + Send + Sync>;

/// Reviews the writes of a resource in the same process.
#[derive(Clone)]
pub struct ValidatingWebhook(Webhook);

impl fmt::Debug for ValidatingWebhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ValidatingWebhook").field(&self.0.name).finish()
    }
}

impl ValidatingWebhook {
    /// A webhook for the objects of a namespaced resource; its subresources are not reviewed. The function has no access
    /// to the lock of the server, so it may send requests to it.
    pub fn new(
        name: &str,
        group: &str,
        plural: &str,
        review: impl Fn(Value) -> Reviewing + Send + Sync + 'static,
    ) -> Self {
        let spec = json!({
            "matchPolicy": "Exact", "admissionReviewVersions": ["v1"],
            "rules": [{
                "apiGroups": [group], "apiVersions": ["*"], "resources": [plural], "scope": "Namespaced",
                "operations": ["CREATE", "UPDATE"],
            }],
        });
        Self(Webhook {
            configuration: String::new(),
            name: name.into(),
            spec,
            receiver: Receiver::Function(Arc::new(review)),
        })
    }
}

/// What a webhook answered, or why it did not.
#[derive(Debug, Clone)]
pub(crate) struct Verdict {
    /// The uid of the review that was sent.
    uid: String,
    answer: Result<Value, String>,
}

/// The admission of one request: the answers of webhooks, and the calls whose answers are missing.
#[derive(Debug)]
pub(crate) struct Admission {
    /// The time of the first execution. It stays, so that later executions ask the same.
    now: Timestamp,
    user: User,
    /// The generator of uids and names of the request: each execution generates the same.
    rng: Rng,
    /// The generator of uids of reviews.
    review_uids: Rng,
    executions: u32,
    verdicts: HashMap<String, Verdict>,
    missing: Vec<Call>,
}

impl Admission {
    /// Sends the missing calls at once, and keeps the answers.
    pub(crate) async fn call(&mut self) {
        let calls = mem::take(&mut self.missing);
        let verdicts = futures::future::join_all(calls.into_iter().map(Call::send)).await;
        self.verdicts.extend(verdicts);
    }
}

impl ApiServer {
    /// Lets a webhook review writes.
    pub fn validate_with(&mut self, webhook: ValidatingWebhook) {
        self.webhooks.push(webhook.0);
    }

    /// The admission of a request; `None` if no webhook is registered that may have to be called.
    pub(crate) fn admission_of(
        &mut self,
        now: Timestamp,
        user: &User,
        request: &Request<Bytes>,
    ) -> Option<Box<Admission>> {
        let is_write =
            matches!(*request.method(), Method::POST | Method::PUT | Method::PATCH | Method::DELETE);
        if !is_write || !self.has_webhooks() {
            return None;
        }
        Some(Box::new(Admission {
            now,
            user: user.clone(),
            rng: Rng::new(self.rng.next()),
            review_uids: Rng::new(self.rng.next()),
            executions: 0,
            verdicts: HashMap::new(),
            missing: Vec::new(),
        }))
    }

    /// Executes a request with the answers of webhooks.
    ///
    /// # Errors
    /// Answers are missing, and nothing was stored.
    pub(crate) fn handle_admitted(
        &mut self,
        request: &Request<Bytes>,
        admission: Box<Admission>,
    ) -> Result<Reply, Box<Admission>> {
        let (now, user) = (admission.now, admission.user.clone());
        let rng = mem::replace(&mut self.rng, admission.rng.clone());
        let services = self.services.clone();
        self.admission = Some(admission);
        let reply = self.handle(now, &user, request.clone());
        self.rng = rng;
        match self.admission.take() {
            Some(mut admission) if !admission.missing.is_empty() => {
                self.services = services;
                admission.executions += 1;
                if admission.executions > EXECUTIONS_MAX {
                    return Ok(Self::unsettled(now, &user, request));
                }
                Err(admission)
            }
            Some(_) | None => Ok(reply),
        }
    }

    /// The answer of a webhook to a call; the error if it has not been asked yet.
    fn verdict(&mut self, mut call: Call) -> Result<Verdict, Status> {
        let Some(admission) = self.admission.as_mut() else { return Err(unanswered()) };
        if let Some(verdict) = admission.verdicts.get(&call.key) {
            return Ok(verdict.clone());
        }
        call.set_uid(admission.review_uids.uid());
        admission.missing.push(call);
        Err(unanswered())
    }

    /// The reply to a request whose object changed with each review.
    fn unsettled(now: Timestamp, user: &User, request: &Request<Bytes>) -> Reply {
        let why =
            format!("the object changed during each of {EXECUTIONS_MAX} reviews by webhooks; try again");
        let call = RequestCall::new(now, user, request.clone());
        reply(&call, Answer::Status(Status::other(409, "Conflict", &why)))
    }

    fn has_missing_answers(&self) -> bool {
        self.admission.as_ref().is_some_and(|admission| !admission.missing.is_empty())
    }
}

/// The result of an execution that lacks an answer. No client sees it.
fn unanswered() -> Status {
    Status::internal("a webhook has not been called")
}
