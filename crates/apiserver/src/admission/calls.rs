//! One call of a webhook, and what its answer means. Texts and codes are those of kube-apiserver
//! (`k8s.io/apiserver/pkg/admission/plugin/webhook`).

use std::time::Duration;

use serde_json::{Value, json};

use super::client;
use super::configuration::{Phase, Receiver, Webhook};
use super::endpoint::Endpoint;
use super::matching::Attributes;
use super::{Review, Verdict};
use crate::object;
use crate::registry::Resource;
use crate::server::ApiServer;
use crate::status::Status;
use crate::user::User;

/// Longest wait for an answer if the webhook does not say.
const TIMEOUT_S_DEFAULT: i64 = 10;

/// A call that is to be sent.
pub(crate) struct Call {
    /// What is asked, without the uid of the review.
    pub(super) key: String,
    review: Value,
    destination: Destination,
}

enum Destination {
    Function(Review),
    Endpoint { endpoint: Result<Endpoint, String>, timeout: Duration },
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Call").field("key", &self.key).finish_non_exhaustive()
    }
}

impl Call {
    pub(super) fn set_uid(&mut self, uid: String) {
        object::set(&mut self.review, &["request", "uid"], uid);
    }

    /// The answer, under what was asked.
    pub(super) async fn send(self) -> (String, Verdict) {
        let uid = object::text(&self.review, &["request", "uid"]).to_owned();
        let answer = match self.destination {
            Destination::Function(review) => Ok(review(self.review).await),
            Destination::Endpoint { endpoint: Err(why), .. } => Err(why),
            Destination::Endpoint { endpoint: Ok(endpoint), timeout } => {
                client::post(&endpoint, &self.review, timeout).await
            }
        };
        (self.key, Verdict { uid, answer })
    }
}

/// The `request` of a review, without objects and uid.
fn attributes(write: &Attributes<'_>, version: &Resource, user: &User) -> Value {
    let object = write.any_object();
    let (own_group, own_version) = object::group_version(object::text(object, &["apiVersion"]));
    let requested = &**write.resource;
    let request_kind =
        json!({"group": own_group, "version": own_version, "kind": object::text(object, &["kind"])});
    let is_converted = version.api_version() != requested.api_version();
    let kind = if is_converted {
        json!({"group": version.group, "version": version.version, "kind": version.kind})
    } else {
        request_kind.clone()
    };
    let resource = |resource: &Resource| json!({"group": resource.group, "version": resource.version, "resource": resource.plural});
    let mut user_info = json!({"username": user.name, "groups": user.groups});
    if !user.uid.is_empty() {
        user_info["uid"] = user.uid.as_str().into();
    }
    let mut request = json!({
        "kind": kind, "resource": resource(version),
        "requestKind": request_kind, "requestResource": resource(requested),
        "name": object::name(object), "operation": write.operation.name(),
        "userInfo": user_info, "dryRun": write.is_dry_run, "options": write.options,
    });
    for (field, text) in [
        ("namespace", write.namespace()),
        ("subResource", write.subresource),
        ("requestSubResource", write.subresource),
    ] {
        if !text.is_empty() {
            request[field] = text.into();
        }
    }
    request
}

/// What a webhook permits.
#[derive(Debug, Default)]
pub(super) struct Permission {
    /// A JSON patch of the object; null if there is none.
    pub(super) patch: Value,
    pub(super) warnings: Vec<String>,
}

impl ApiServer {
    /// The `request` of a review in a version of the resource, without its uid.
    ///
    /// # Errors
    /// The version cannot express an object.
    pub(super) fn request(&self, write: &Attributes<'_>, version: &Resource) -> Result<Value, Status> {
        let user = self.admission.as_ref().map(|admission| &admission.user);
        let mut request = user.map_or(json!({}), |user| attributes(write, version, user));
        for (field, value) in [("object", write.object), ("oldObject", write.old)] {
            let converted = value.map(|value| self.converted(write.resource, version, value.clone()));
            request[field] = converted.transpose()?.unwrap_or_default();
        }
        Ok(request)
    }

    /// Asks a webhook. `None`: the webhook cannot be called, and ignores this.
    ///
    /// # Errors
    /// The webhook denies the write, cannot be called, or has not been called yet.
    pub(super) fn ask(
        &mut self,
        phase: Phase,
        webhook: &Webhook,
        request: Value,
    ) -> Result<Option<Permission>, Status> {
        let verdict = self.verdict(self.prepare(phase, webhook, request))?;
        match permission(phase, webhook, verdict) {
            Ok(permission) => Ok(Some(permission)),
            Err(Refusal::Denied(status)) => Err(status),
            Err(Refusal::Failed(why)) if webhook.ignores_failures() => {
                tracing::warn!(webhook = webhook.name, "failed calling webhook: {why}");
                Ok(None)
            }
            Err(Refusal::Failed(why)) => {
                Err(Status::internal(format!("failed calling webhook {:?}: {why}", webhook.name)))
            }
        }
    }

    fn prepare(&self, phase: Phase, webhook: &Webhook, request: Value) -> Call {
        let known = ["v1", "v1beta1"];
        let mut versions = object::texts(&webhook.spec, &["admissionReviewVersions"]);
        let review_version = versions.find(|version| known.contains(version)).unwrap_or("v1");
        let api_version = format!("admission.k8s.io/{review_version}");
        let key = format!("{phase:?} {} {} {request}", webhook.configuration, webhook.name);
        let destination = match &webhook.receiver {
            Receiver::Function(review) => Destination::Function(review.clone()),
            Receiver::Endpoint => {
                let seconds = object::int(&webhook.spec, &["timeoutSeconds"]).unwrap_or(TIMEOUT_S_DEFAULT);
                let timeout = Duration::from_secs(seconds.unsigned_abs());
                Destination::Endpoint { endpoint: self.endpoint(&webhook.spec["clientConfig"]), timeout }
            }
        };
        let mut review = json!({"apiVersion": api_version, "kind": "AdmissionReview"});
        review["request"] = request;
        Call { key, review, destination }
    }
}

/// Why a write does not proceed.
enum Refusal {
    Denied(Status),
    /// The webhook did not answer, or not with a review.
    Failed(String),
}

fn permission(phase: Phase, webhook: &Webhook, verdict: Verdict) -> Result<Permission, Refusal> {
    let invalid = |why: String| Refusal::Failed(format!("received invalid webhook response: {why}"));
    let review = verdict.answer.map_err(|why| Refusal::Failed(format!("failed to call webhook: {why}")))?;
    let response = &review["response"];
    if !response.is_object() {
        return Err(invalid("webhook response was absent".into()));
    }
    let uid = object::text(response, &["uid"]);
    if uid != verdict.uid {
        return Err(invalid(format!("expected response.uid={:?}, got {uid:?}", verdict.uid)));
    }
    if response["allowed"] != true {
        return Err(Refusal::Denied(denial(&webhook.name, &response["status"])));
    }
    let warnings = object::texts(response, &["warnings"]).map(String::from).collect();
    if phase == Phase::Validation {
        return Ok(Permission { patch: Value::Null, warnings });
    }
    Ok(Permission { patch: patch(response).map_err(invalid)?, warnings })
}

/// The JSON patch of a response.
fn patch(response: &Value) -> Result<Value, String> {
    use base64::Engine as _;
    let encoded = object::text(response, &["patch"]);
    let patch_type = object::text(response, &["patchType"]);
    match (encoded, patch_type) {
        ("", "") => return Ok(Value::Null),
        ("", _) => return Err("webhook returned response.patchType but not response.patch".into()),
        (_, "") => return Err("webhook returned response.patch but not response.patchType".into()),
        (_, "JSONPatch") => {}
        (_, other) => return Err(format!("invalid value of response.patchType: {other:?}")),
    }
    let bytes =
        base64::engine::general_purpose::STANDARD.decode(encoded).map_err(|error| error.to_string())?;
    serde_json::from_slice(&bytes).map_err(|error| error.to_string())
}

/// The status of a request that a webhook denies.
fn denial(name: &str, status: &Value) -> Status {
    let denied = format!("admission webhook {name:?} denied the request");
    let reason = object::text(status, &["reason"]);
    let message = match (object::text(status, &["message"]), reason) {
        ("", "") => format!("{denied} without explanation"),
        ("", why) | (why, _) => format!("{denied}: {why}"),
    };
    let code = object::int(status, &["code"]).and_then(|code| u16::try_from(code).ok());
    Status::denied(code.filter(|code| (400..600).contains(code)).unwrap_or(400), reason, message)
}
