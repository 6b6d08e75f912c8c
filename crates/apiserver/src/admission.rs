//! Validating admission: before a create, an update or a patch of certain resources is stored, another component
//! reviews it, as kube-apiserver asks a webhook. Here the component is a function in the same process; it gets an
//! `AdmissionReview` of `admission.k8s.io/v1` and returns one.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Uri, header};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::object;
use crate::response::Reply;
use crate::server::ApiServer;
use crate::status::Status;
use crate::user::User;

/// An `AdmissionReview` that is being answered.
pub type Reviewing = Pin<Box<dyn Future<Output = Value> + Send>>;

/// Reviews the writes of a resource.
#[derive(Clone)]
pub struct ValidatingWebhook {
    name: String,
    group: String,
    plural: String,
    review: Arc<dyn Fn(Value) -> Reviewing + Send + Sync>,
}

impl fmt::Debug for ValidatingWebhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ValidatingWebhook").field("name", &self.name).finish_non_exhaustive()
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
        Self { name: name.into(), group: group.into(), plural: plural.into(), review: Arc::new(review) }
    }

    /// Whether the webhook permits the write; the response of the API server if it does not.
    pub(crate) async fn check(&self, review: Value) -> Result<(), Status> {
        let answer = (self.review)(review).await;
        let response = &answer["response"];
        if response["allowed"] == true {
            return Ok(());
        }
        let name = &self.name;
        let why = match object::text(response, &["status", "message"]) {
            "" => format!("admission webhook \"{name}\" denied the request without explanation"),
            why => format!("admission webhook \"{name}\" denied the request: {why}"),
        };
        Err(Status::forbidden_path(why))
    }
}

/// A write that a webhook reviews before it is stored.
#[derive(Debug)]
pub(crate) struct Draft {
    /// What is stored at present.
    old: Option<Value>,
    /// The request of the webhook.
    pub(crate) review: Value,
}

impl ApiServer {
    /// Lets a webhook review writes.
    pub fn validate_with(&mut self, webhook: ValidatingWebhook) {
        self.webhooks.push(webhook);
    }

    /// The webhooks for a request.
    pub(crate) fn webhooks_of(&self, request: &Request<Bytes>) -> Vec<ValidatingWebhook> {
        if !matches!(*request.method(), Method::POST | Method::PUT | Method::PATCH) {
            return Vec::new();
        }
        let parts: Vec<&str> = request.uri().path().trim_matches('/').split('/').collect();
        let ["apis", group, _, "namespaces", _, plural, rest @ ..] = parts.as_slice() else {
            return Vec::new();
        };
        let is_for = |webhook: &&ValidatingWebhook| webhook.group == *group && webhook.plural == *plural;
        if rest.len() > 1 { Vec::new() } else { self.webhooks.iter().filter(is_for).cloned().collect() }
    }

    /// What a webhook is to review: the object that the request would store. A request that fails is answered at once.
    pub(crate) fn draft(
        &mut self,
        now: Timestamp,
        user: &User,
        request: &Request<Bytes>,
    ) -> Result<Draft, Box<Reply>> {
        let old = self.stored(now, request);
        let reply = self.handle(now, user, as_dry_run(request));
        let Reply::Response(response) = reply else { return Err(Box::new(reply)) };
        if !response.status().is_success() {
            return Err(Box::new(Reply::Response(response)));
        }
        let object: Value = serde_json::from_slice(response.body()).unwrap_or_default();
        let parts: Vec<&str> = request.uri().path().trim_matches('/').split('/').collect();
        let at = |at: usize| parts.get(at).copied().unwrap_or_default();
        let (group, version, plural) = (at(1), at(2), at(5));
        let kind = json!({"group": group, "version": version, "kind": object::text(&object, &["kind"])});
        let resource = json!({"group": group, "version": version, "resource": plural});
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": object::text(&object, &["metadata", "uid"]),
                "kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource,
                "namespace": at(4), "name": object::name(&object),
                "operation": if old.is_some() { "UPDATE" } else { "CREATE" },
                "userInfo": {"username": user.name, "uid": user.uid, "groups": user.groups},
                "object": object, "oldObject": old, "dryRun": false, "options": {},
            },
        });
        Ok(Draft { old, review })
    }

    /// Stores a write that was reviewed; `None` if another write has changed the object meanwhile.
    pub(crate) fn handle_reviewed(
        &mut self,
        now: Timestamp,
        user: &User,
        request: &Request<Bytes>,
        draft: &Draft,
    ) -> Option<Reply> {
        (self.stored(now, request) == draft.old).then(|| self.handle(now, user, request.clone()))
    }

    /// The stored object that the request changes.
    fn stored(&mut self, now: Timestamp, request: &Request<Bytes>) -> Option<Value> {
        if *request.method() == Method::POST {
            return None;
        }
        let read = Request::get(request.uri().path()).body(Bytes::new()).ok()?;
        match self.handle(now, &User::admin(), read) {
            Reply::Response(response) if response.status().is_success() => {
                serde_json::from_slice(response.body()).ok()
            }
            Reply::Response(_) | Reply::Aggregated(_) | Reply::Watch(_) => None,
        }
    }
}

/// The same request, as a dry run with a JSON response.
fn as_dry_run(request: &Request<Bytes>) -> Request<Bytes> {
    let mut dry = request.clone();
    let uri = request.uri();
    let separator = if uri.query().is_some() { '&' } else { '?' };
    if let Ok(uri) = format!("{uri}{separator}dryRun=All").parse::<Uri>() {
        *dry.uri_mut() = uri;
    }
    dry.headers_mut().insert(header::ACCEPT, header::HeaderValue::from_static("application/json"));
    dry
}
