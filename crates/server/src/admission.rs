//! The validating webhook for AppWrappers: the author must be allowed to create what the AppWrapper wraps.
//!
//! The controller creates wrapped objects with its own permissions, which are those of all tenants together. So each
//! object that is new in an AppWrapper is checked with a `SubjectAccessReview` of the author: `create` for its resource,
//! and what the API server would have checked besides if the author had created it (`bind` and `escalate` of RBAC).
//! The API server calls the webhook only when a spec is new or has changed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use api::appwrapper::Spec;
use axum::extract::{DefaultBodyLimit, State};
use axum::routing::post;
use axum::{Json, Router};
use futures::{StreamExt, stream};
use kube::Client;
use serde::Deserialize;
use serde_json::{Value, json};

/// Path of the webhook.
pub const PATH: &str = "/admission/appwrappers";
/// Name of the webhook in messages of the API server.
pub const WEBHOOK: &str = "appwrappers.muster.dev";

/// Largest review: an object and its old version, both of at most 3 MiB.
const BODY_BYTES_MAX: usize = 8 << 20;
/// For so long the resources of a group and version are remembered.
const REMEMBERED: Duration = Duration::from_mins(1);
/// Number of access reviews of one AppWrapper at the same time.
const REVIEWS_MAX: usize = 8;

/// Serves the webhook. `client` may create access reviews, and read the discovery.
pub fn router(client: Client) -> Router {
    Router::new()
        .route(PATH, post(answer))
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
}

/// The resources of a group and version.
struct Discovered {
    at: Instant,
    /// By kind.
    plurals: BTreeMap<String, String>,
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
    namespace: String,
    name: String,
}

/// Why an AppWrapper is refused.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("user {user:?} cannot {what}, which the wrapped {object} needs")]
    NotAllowed { user: String, what: String, object: String },
    #[error("the permissions of the author cannot be checked, try again: {0}")]
    Unchecked(#[from] kube::Error),
}

impl Admission {
    /// Asks this API server for permissions.
    pub fn new(client: Client) -> Self {
        Self { client, resources: Arc::default() }
    }

    /// Answers an `AdmissionReview` of `admission.k8s.io/v1` about an AppWrapper.
    pub async fn review(&self, review: &Value) -> Value {
        let request = &review["request"];
        let mut response = json!({"uid": request["uid"], "allowed": true});
        if let Err(refusal) = self.check(request).await {
            let (code, reason) = match refusal {
                Refusal::NotAllowed { .. } => (403, "Forbidden"),
                Refusal::Unchecked(_) => (503, "ServiceUnavailable"),
            };
            response["allowed"] = false.into();
            response["status"] = json!({"code": code, "reason": reason, "message": refusal.to_string()});
        }
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
    }

    /// Checks what is new in the AppWrapper.
    async fn check(&self, request: &Value) -> Result<(), Refusal> {
        let old = objects(&request["oldObject"]);
        let mut needed: BTreeMap<Permission, String> = BTreeMap::new();
        for object in objects(&request["object"]).iter().filter(|object| !old.contains(object)) {
            for permission in self.permissions(object, text(request, "namespace")).await? {
                needed.entry(permission).or_insert_with(|| describe(object));
            }
        }
        let user = &request["userInfo"];
        let mut reviews = stream::iter(needed)
            .map(|(permission, object)| async move {
                let is_allowed = self.is_allowed(user, &permission).await?;
                let user = text(user, "username").to_owned();
                if is_allowed {
                    Ok(())
                } else {
                    Err(Refusal::NotAllowed { user, what: permission.describe(), object })
                }
            })
            .buffered(REVIEWS_MAX);
        while let Some(result) = reviews.next().await {
            result?;
        }
        Ok(())
    }

    /// What the author of an object needs to be allowed.
    async fn permissions(&self, object: &Value, namespace: &str) -> Result<BTreeSet<Permission>, Refusal> {
        let api_version = text(object, "apiVersion");
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        let kind = text(object, "kind");
        let namespace =
            object["metadata"]["namespace"].as_str().filter(|own| !own.is_empty()).unwrap_or(namespace);
        // A kind that the cluster does not serve yet may be served later: only an author who may create everything in
        // its group may wrap it.
        let resource = self.plural(api_version, kind).await?.unwrap_or_else(|| "*".into());
        let in_namespace = |verb, group: &str, resource: &str, name: &str| Permission {
            verb,
            group: group.into(),
            resource: resource.into(),
            namespace: namespace.into(),
            name: name.into(),
        };
        let mut needed = BTreeSet::from([in_namespace("create", group, &resource, "")]);
        if group == RBAC {
            match kind {
                "Role" | "ClusterRole" => {
                    needed.insert(in_namespace("escalate", RBAC, &resource, ""));
                }
                "RoleBinding" | "ClusterRoleBinding" => {
                    let role = &object["roleRef"];
                    let resource = if text(role, "kind") == "Role" { "roles" } else { "clusterroles" };
                    needed.insert(in_namespace("bind", RBAC, resource, text(role, "name")));
                }
                _ => {}
            }
        }
        Ok(needed)
    }

    /// Whether the user of a request has a permission, by a `SubjectAccessReview`.
    async fn is_allowed(&self, user: &Value, permission: &Permission) -> Result<bool, kube::Error> {
        let Permission { verb, group, resource, namespace, name } = permission;
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {
                "user": user["username"], "uid": user["uid"].as_str().unwrap_or_default(),
                "groups": user["groups"], "extra": user["extra"],
                "resourceAttributes": {
                    "verb": verb, "group": group, "resource": resource, "namespace": namespace, "name": name,
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
    async fn plural(&self, api_version: &str, kind: &str) -> Result<Option<String>, kube::Error> {
        if let Some(plural) = self.remembered(api_version, kind) {
            return Ok(Some(plural));
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
        let plurals: BTreeMap<String, String> = main.map(|resource| (resource.kind, resource.name)).collect();
        let plural = plurals.get(kind).cloned();
        let mut remembered = self.resources.lock().unwrap_or_else(PoisonError::into_inner);
        remembered.retain(|_, known| known.at.elapsed() < REMEMBERED);
        if plural.is_some() {
            remembered.insert(api_version.to_owned(), Discovered { at: Instant::now(), plurals });
        }
        Ok(plural)
    }

    fn remembered(&self, api_version: &str, kind: &str) -> Option<String> {
        let remembered = self.resources.lock().unwrap_or_else(PoisonError::into_inner);
        let known = remembered.get(api_version).filter(|known| known.at.elapsed() < REMEMBERED)?;
        known.plurals.get(kind).cloned()
    }
}

const RBAC: &str = "rbac.authorization.k8s.io";

/// The resources of a group and version: an `APIResourceList`.
#[derive(Deserialize)]
struct Resources {
    resources: Vec<Resource>,
}

#[derive(Deserialize)]
struct Resource {
    name: String,
    kind: String,
}

impl Permission {
    fn describe(&self) -> String {
        let Self { verb, group, resource, namespace, name } = self;
        let resource = if resource == "*" { "all resources" } else { resource };
        let of_group = if group.is_empty() { String::new() } else { format!(" of {group}") };
        let name = if name.is_empty() { String::new() } else { format!(" {name}") };
        format!("{verb} {resource}{of_group}{name} in namespace {namespace}")
    }
}

/// The wrapped objects of an AppWrapper. The controller creates nothing of a spec that cannot be read.
fn objects(wrapper: &Value) -> Vec<Value> {
    let name = text(&wrapper["metadata"], "name");
    Spec::read(&wrapper["spec"], name).map_or_else(|_| Vec::new(), |spec| spec.objects().cloned().collect())
}

/// Kind and name of a wrapped object.
fn describe(object: &Value) -> String {
    format!("{} {}", text(object, "kind"), text(&object["metadata"], "name")).trim_end().to_owned()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}
