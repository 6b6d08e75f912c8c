//! The validating webhook for AppWrappers: the author must be allowed to create what the AppWrapper wraps.
//!
//! The controller creates wrapped objects with its own permissions, which are those of all tenants together. So each
//! object that is new in an AppWrapper is checked with a `SubjectAccessReview` of the author: `create` for its resource,
//! and what the API server would have checked besides if the author had created it ([`extra`]). What a wrapped AppWrapper
//! wraps is checked, too: its author would be the controller. A status is of the controller only; without this check, an
//! author could write one where the CRD has no status subresource.
//! The API server calls the webhook only when a spec or a status is new or has changed.

mod extra;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use api::appwrapper::{self, Spec};
use axum::extract::{DefaultBodyLimit, State};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures::future::join_all;
use kube::Client;
use serde::Deserialize;
use serde_json::{Value, json};

/// Path of the webhook.
pub const PATH: &str = "/admission/appwrappers";
/// Path for readiness probes: whatever serves it has a certificate.
const READY: &str = "/readyz";
/// Name of the webhook in messages of the API server.
pub const WEBHOOK: &str = "appwrappers.muster.dev";

/// Largest review: an object and its old version, both of at most 3 MiB.
const BODY_BYTES_MAX: usize = 8 << 20;
/// For so long the resources of a group and version are remembered.
const REMEMBERED: Duration = Duration::from_mins(1);
/// From this number on, access reviews of one AppWrapper are sent, all at the same time.
const REVIEWS_MAX: usize = 8;

/// Serves the webhook. `client` may create access reviews, and read the discovery.
pub fn router(client: Client) -> Router {
    Router::new()
        .route(PATH, post(answer))
        .route(READY, get(async || "ok"))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(Admission::new(client))
}

async fn answer(State(admission): State<Admission>, Json(review): Json<Value>) -> Json<Value> {
    Json(admission.review(&review).await)
}

/// Reviews AppWrappers.
#[derive(Clone)]
pub struct Admission {
    client: Client,
    /// By group and version.
    resources: Arc<Mutex<BTreeMap<String, Discovered>>>,
    /// The user name of the controller.
    controller: Arc<OnceLock<String>>,
}

/// The resources of a group and version.
struct Discovered {
    at: Instant,
    /// By kind.
    resources: BTreeMap<String, Resource>,
}

impl std::fmt::Debug for Admission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admission").finish_non_exhaustive()
    }
}

/// A permission that the author needs.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Permission {
    verb: &'static str,
    group: String,
    resource: String,
    subresource: &'static str,
    /// Empty: a cluster-scoped resource.
    namespace: String,
    name: String,
}

/// Why an AppWrapper is refused.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("user {user:?} cannot {what}, which the wrapped {object} needs")]
    NotAllowed { user: String, what: String, object: String },
    #[error(
        "user {user:?} cannot write the status of an AppWrapper, which is the controller's; leave it out"
    )]
    Status { user: String },
    #[error("the permissions of the author cannot be checked, try again: {0}")]
    Unchecked(#[from] kube::Error),
}

impl Admission {
    /// Asks this API server for permissions.
    pub fn new(client: Client) -> Self {
        Self { client, resources: Arc::default(), controller: Arc::default() }
    }

    /// Answers an `AdmissionReview` of `admission.k8s.io/v1` about an AppWrapper.
    pub async fn review(&self, review: &Value) -> Value {
        let request = &review["request"];
        let mut response = json!({"uid": request["uid"], "allowed": true});
        if let Err(refusal) = self.check(request).await {
            let (code, reason) = match refusal {
                Refusal::NotAllowed { .. } | Refusal::Status { .. } => (403, "Forbidden"),
                Refusal::Unchecked(_) => (503, "ServiceUnavailable"),
            };
            response["allowed"] = false.into();
            response["status"] = json!({"code": code, "reason": reason, "message": refusal.to_string()});
        }
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
    }

    /// Checks what is new in the AppWrapper.
    async fn check(&self, request: &Value) -> Result<(), Refusal> {
        let user = &request["userInfo"];
        let (new, old) = (&request["object"], &request["oldObject"]);
        if !new["status"].is_null() && new["status"] != old["status"] && !self.is_controller(user).await? {
            return Err(Refusal::Status { user: text(user, "username").into() });
        }
        let namespace = text(request, "namespace");
        let old: BTreeSet<String> = objects(old, namespace).iter().map(Wrapped::identity).collect();
        let new = objects(new, namespace);
        let (mut asked, mut batch) = (BTreeSet::new(), Vec::new());
        // In order and not more than needed: the first refusal ends the reviews.
        for object in new.iter().filter(|object| !old.contains(&object.identity())) {
            let needed = self.permissions(object).await?;
            let needed = needed.into_iter().filter(|permission| asked.insert(permission.clone()));
            batch.extend(needed.map(|permission| (object, permission)));
            if batch.len() >= REVIEWS_MAX {
                self.require(user, &std::mem::take(&mut batch)).await?;
            }
        }
        self.require(user, &batch).await
    }

    /// Checks permissions of the author, all at once.
    async fn require(&self, user: &Value, needed: &[(&Wrapped, Permission)]) -> Result<(), Refusal> {
        let reviews = needed.iter().map(async |(object, permission)| {
            if self.is_allowed(user, permission).await? {
                return Ok(());
            }
            let (user, what) = (text(user, "username").to_owned(), permission.describe());
            Err(Refusal::NotAllowed { user, what, object: object.describe() })
        });
        join_all(reviews).await.into_iter().collect()
    }

    /// What the author of an object needs to be allowed.
    async fn permissions(&self, object: &Wrapped) -> Result<BTreeSet<Permission>, Refusal> {
        let Wrapped { object, namespace } = object;
        let api_version = text(object, "apiVersion");
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        // A kind that the cluster does not serve yet may be served later: only an author who may create everything in
        // its group may wrap it.
        let served = self.resource(api_version, text(object, "kind")).await?;
        let served = served.unwrap_or_else(|| Resource { name: "*".into(), ..Resource::default() });
        let create = Permission {
            verb: "create",
            group: group.into(),
            resource: served.name,
            namespace: if served.namespaced { namespace.clone() } else { String::new() },
            ..Permission::default()
        };
        let mut needed = extra::permissions(object, &create);
        needed.insert(create);
        Ok(needed)
    }

    /// Whether a user is the controller itself.
    async fn is_controller(&self, user: &Value) -> Result<bool, kube::Error> {
        if self.controller.get().is_none() {
            let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
            let request = http::Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews")
                .header("content-type", "application/json")
                .body(review.to_string().into_bytes());
            let answer: Value = self.client.request(request.map_err(kube::Error::HttpError)?).await?;
            self.controller.set(text(&answer["status"]["userInfo"], "username").to_owned()).ok();
        }
        Ok(self.controller.get().is_some_and(|name| text(user, "username") == name))
    }

    /// Whether the user of a request has a permission, by a `SubjectAccessReview`.
    async fn is_allowed(&self, user: &Value, permission: &Permission) -> Result<bool, kube::Error> {
        let Permission { verb, group, resource, subresource, namespace, name } = permission;
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {
                "user": user["username"], "uid": user["uid"].as_str().unwrap_or_default(),
                "groups": user["groups"], "extra": user["extra"],
                "resourceAttributes": {
                    "verb": verb, "group": group, "resource": resource, "subresource": subresource,
                    "namespace": namespace, "name": name,
                },
            },
        });
        let request = http::Request::post("/apis/authorization.k8s.io/v1/subjectaccessreviews")
            .header("content-type", "application/json")
            .body(review.to_string().into_bytes());
        let answer: Value = self.client.request(request.map_err(kube::Error::HttpError)?).await?;
        Ok(answer["status"]["allowed"] == true)
    }

    /// The resource that serves a kind; `None` if the cluster does not serve it.
    async fn resource(&self, api_version: &str, kind: &str) -> Result<Option<Resource>, kube::Error> {
        if !is_path(api_version) {
            return Ok(None);
        }
        if let Some(resource) = self.remembered(api_version, kind) {
            return Ok(Some(resource));
        }
        let root = if api_version.contains('/') { "/apis" } else { "/api" };
        let request = http::Request::get(format!("{root}/{api_version}")).body(Vec::new());
        let request = request.map_err(kube::Error::HttpError)?;
        let resources = match self.client.request::<Resources>(request).await {
            Ok(answer) => answer.resources,
            Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
            Err(error) => return Err(error),
        };
        let main = resources.into_iter().filter(|resource| !resource.name.contains('/'));
        let resources: BTreeMap<String, Resource> =
            main.map(|resource| (resource.kind.clone(), resource)).collect();
        let resource = resources.get(kind).cloned();
        let mut remembered = self.resources.lock().unwrap_or_else(PoisonError::into_inner);
        remembered.retain(|_, known| known.at.elapsed() < REMEMBERED);
        if resource.is_some() {
            remembered.insert(api_version.to_owned(), Discovered { at: Instant::now(), resources });
        }
        Ok(resource)
    }

    fn remembered(&self, api_version: &str, kind: &str) -> Option<Resource> {
        let remembered = self.resources.lock().unwrap_or_else(PoisonError::into_inner);
        let known = remembered.get(api_version).filter(|known| known.at.elapsed() < REMEMBERED)?;
        known.resources.get(kind).cloned()
    }
}

/// Whether a group and version can be part of a path: an author chooses the text, and the controller requests the path.
fn is_path(api_version: &str) -> bool {
    let is_word = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_lowercase())
            && word.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.'))
    };
    api_version.split('/').count() <= 2 && api_version.split('/').all(is_word)
}

/// The resources of a group and version: an `APIResourceList`.
#[derive(Deserialize)]
struct Resources {
    resources: Vec<Resource>,
}

#[derive(Debug, Clone, Deserialize)]
struct Resource {
    name: String,
    kind: String,
    namespaced: bool,
}

impl Default for Resource {
    fn default() -> Self {
        Self { name: String::new(), kind: String::new(), namespaced: true }
    }
}

impl Permission {
    fn describe(&self) -> String {
        let Self { verb, group, resource, subresource, namespace, name } = self;
        let resource = if resource == "*" { "all resources" } else { resource };
        let slash = if subresource.is_empty() { "" } else { "/" };
        let of_group = if group.is_empty() { String::new() } else { format!(" of {group}") };
        let name = if name.is_empty() { String::new() } else { format!(" {name}") };
        let place =
            if namespace.is_empty() { "the cluster".to_owned() } else { format!("namespace {namespace}") };
        format!("{verb} {resource}{slash}{subresource}{of_group}{name} in {place}")
    }
}

/// A wrapped object, and the namespace in which it would be created.
struct Wrapped {
    object: Value,
    namespace: String,
}

impl Wrapped {
    fn new(object: Value, namespace: &str) -> Self {
        let own = object["metadata"]["namespace"].as_str().filter(|own| !own.is_empty());
        Self { namespace: own.unwrap_or(namespace).to_owned(), object }
    }

    /// Equal for equal objects.
    fn identity(&self) -> String {
        self.object.to_string()
    }

    /// Kind and name.
    fn describe(&self) -> String {
        let name = text(&self.object["metadata"], "name");
        format!("{} {name}", text(&self.object, "kind")).trim_end().to_owned()
    }
}

/// The wrapped objects of an AppWrapper, and those that a wrapped AppWrapper wraps. The controller creates nothing of a
/// spec that cannot be read.
fn objects(wrapper: &Value, namespace: &str) -> Vec<Wrapped> {
    let name = text(&wrapper["metadata"], "name");
    let spec = Spec::read(&wrapper["spec"], name).unwrap_or_default();
    let mut all = Vec::new();
    for object in spec.objects() {
        let wrapped = Wrapped::new(object.clone(), namespace);
        let inner = if is_wrapper(object) { objects(object, &wrapped.namespace) } else { Vec::new() };
        all.push(wrapped);
        all.extend(inner);
    }
    all
}

fn is_wrapper(object: &Value) -> bool {
    let group = text(object, "apiVersion").split('/').next().unwrap_or_default();
    appwrapper::is_wrapper(group, text(object, "kind"))
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}
