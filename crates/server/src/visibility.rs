//! The group `visibility.muster.dev`, version `v1beta1`. Both resources are namespaced and not stored.
//!
//! - `appwrapperreports` (get, list): the status of AppWrappers, as `muster why` prints it
//! - `appwrapperplans` (create): what would happen to AppWrappers if they were created now, as `muster plan` prints it

use std::sync::Arc;

use api::appwrapper::{AppWrapper, Group, KIND};
use axum::body::Body;
use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use bytes::Bytes;
use controllers::{Error, Reports, WrapperReport};
use http::Request;
use http_body_util::BodyExt as _;
use serde::Deserialize;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::report::{Mode, Report};

/// The API group.
pub const GROUP: &str = "visibility.muster.dev";
/// Its version.
pub const VERSION: &str = "v1beta1";
/// The resource with the status of AppWrappers.
pub const REPORTS: &str = "appwrapperreports";
/// The resource that simulates the creation of AppWrappers.
pub const PLANS: &str = "appwrapperplans";

/// A namespaced resource of the group.
#[derive(Debug, Clone, Copy)]
pub struct Resource {
    /// Its name in paths.
    pub plural: &'static str,
    /// Its name for one object.
    pub singular: &'static str,
    /// The kind of its objects.
    pub kind: &'static str,
    /// The verbs that it has.
    pub verbs: &'static [&'static str],
}

/// The resources of the group.
pub const RESOURCES: [Resource; 2] = [
    Resource { plural: PLANS, singular: "appwrapperplan", kind: "AppWrapperPlan", verbs: &["create"] },
    Resource {
        plural: REPORTS,
        singular: "appwrapperreport",
        kind: "AppWrapperReport",
        verbs: &["get", "list"],
    },
];

/// Most AppWrappers of one plan.
const PLANNED_MAX: usize = 100;
/// Most items of a page of a list, and their number when the request sets no `limit`.
const PAGE_MAX: usize = 500;
/// Largest request body: the limit of kube-apiserver.
const BODY_BYTES_MAX: usize = 3 << 20;

/// Answers one request of the group, without a connection. The caller has authorized the request.
pub async fn answer(router: Router, request: Request<Bytes>) -> http::Response<Bytes> {
    let response = match router.oneshot(request.map(Body::from)).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    let (parts, body) = response.into_parts();
    // The bodies of this router are complete, so that reading them cannot fail.
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    http::Response::from_parts(parts, body)
}

/// Serves the group. The caller has authorized the request.
pub fn router(reports: Reports) -> Router {
    let group = format!("/apis/{GROUP}");
    let version = format!("{group}/{VERSION}");
    let namespace = format!("{version}/namespaces/{{namespace}}");
    Router::new()
        .route(&group, get(async || Json(api_group())))
        .route(&version, get(async || Json(api_resources())))
        .route(&format!("{namespace}/{REPORTS}"), get(list))
        .route(&format!("{namespace}/{REPORTS}/{{name}}"), get(one))
        .route(&format!("{namespace}/{PLANS}"), post(plan))
        .route("/healthz", get(async || "ok"))
        .fallback(async || failure(StatusCode::NOT_FOUND, "NotFound", "the server has no such path"))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(Arc::new(reports))
}

/// The `APIResourceList` of the version.
fn api_resources() -> Value {
    let resources = RESOURCES.map(|Resource { plural, singular, kind, verbs }| {
        json!({"name": plural, "singularName": singular, "namespaced": true, "kind": kind, "verbs": verbs})
    });
    json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{GROUP}/{VERSION}"),
        "resources": resources,
    })
}

fn api_group() -> Value {
    let version = json!({"groupVersion": format!("{GROUP}/{VERSION}"), "version": VERSION});
    json!({"kind": "APIGroup", "apiVersion": "v1", "name": GROUP, "versions": [version], "preferredVersion": version})
}

fn object(kind: &str, namespace: &str, name: Option<&str>) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"), "kind": kind,
        "metadata": {"namespace": namespace, "name": name, "creationTimestamp": null},
    })
}

fn report_object(namespace: &str, name: &str, reports: &[Report]) -> Value {
    let mut object = object("AppWrapperReport", namespace, Some(name));
    object["reports"] = json!(reports);
    object
}

fn actual(reports: &[WrapperReport]) -> Vec<Report> {
    reports.iter().map(|report| Report::new(report, Mode::Actual)).collect()
}

async fn one(
    State(reports): State<Arc<Reports>>,
    Path((namespace, name)): Path<(String, String)>,
) -> Response {
    if let Some(unready) = unready(&reports) {
        return unready;
    }
    let found = actual(&reports.of(&namespace, &name));
    if found.is_empty() {
        let text = format!("there is no AppWrapper {namespace}/{name}");
        return failure(StatusCode::NOT_FOUND, "NotFound", &text);
    }
    Json(report_object(&namespace, &name, &found)).into_response()
}

/// The parameters of a list.
#[derive(Debug, Deserialize)]
struct Page {
    limit: Option<usize>,
    /// The name after which the page begins.
    #[serde(default, rename = "continue")]
    after: String,
}

async fn list(
    State(reports): State<Arc<Reports>>,
    Path(namespace): Path<String>,
    Query(page): Query<Page>,
) -> Response {
    if let Some(unready) = unready(&reports) {
        return unready;
    }
    let limit = page.limit.filter(|limit| *limit > 0).unwrap_or(PAGE_MAX).min(PAGE_MAX);
    let (found, has_more) = reports.page(&namespace, &page.after, limit);
    let next = found.keys().next_back().filter(|_| has_more).cloned();
    let items: Vec<Value> =
        found.iter().map(|(name, found)| report_object(&namespace, name, &actual(found))).collect();
    Json(json!({
        "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "AppWrapperReportList",
        "metadata": {"continue": next}, "items": items,
    }))
    .into_response()
}

/// The body of a plan.
#[derive(Debug, Deserialize)]
struct Plan {
    spec: PlanSpec,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PlanSpec {
    app_wrappers: Vec<Value>,
}

async fn plan(
    State(reports): State<Arc<Reports>>,
    Path(namespace): Path<String>,
    body: Result<Json<Plan>, JsonRejection>,
) -> Response {
    if let Some(unready) = unready(&reports) {
        return unready;
    }
    let plan = match body {
        Ok(Json(plan)) => plan,
        Err(error) => return failure(error.status(), "BadRequest", &error.body_text()),
    };
    let count = plan.spec.app_wrappers.len();
    if count > PLANNED_MAX {
        let text = format!("spec.appWrappers has {count} items; the maximum is {PLANNED_MAX}");
        return failure(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", &text);
    }
    let mut wrappers = Vec::new();
    for (at, value) in plan.spec.app_wrappers.into_iter().enumerate() {
        match decode(value, &namespace) {
            Ok(wrapper) => wrappers.push(wrapper),
            Err(error) => {
                let text = format!("spec.appWrappers[{at}]: {error}");
                return failure(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", &text);
            }
        }
    }
    match reports.simulate(wrappers).await {
        Ok(found) => {
            let found: Vec<Report> =
                found.iter().map(|report| Report::new(report, Mode::Simulated)).collect();
            let mut object = object("AppWrapperPlan", &namespace, None);
            object["status"] = json!({"reports": found});
            (StatusCode::CREATED, Json(object)).into_response()
        }
        Err(error @ Error::Exists(_)) => failure(StatusCode::CONFLICT, "AlreadyExists", &error.to_string()),
        Err(error) => failure(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", &error.to_string()),
    }
}

/// Reads an AppWrapper of the namespace.
fn decode(value: Value, namespace: &str) -> Result<(Group, AppWrapper), String> {
    let (version, kind) = (value["apiVersion"].as_str(), value["kind"].as_str());
    let group = Group::ALL.into_iter().find(|group| version == Some(&group.api_version()));
    let group =
        group.filter(|_| kind == Some(KIND)).ok_or("apiVersion and kind are not those of an AppWrapper")?;
    let mut wrapper: AppWrapper = serde_json::from_value(value).map_err(|error| error.to_string())?;
    if !wrapper.metadata.namespace.is_empty() && wrapper.metadata.namespace != namespace {
        return Err(format!("metadata.namespace is {:?}, not {namespace:?}", wrapper.metadata.namespace));
    }
    namespace.clone_into(&mut wrapper.metadata.namespace);
    Ok((group, wrapper))
}

/// The response of a controller that has not read the cluster yet.
fn unready(reports: &Reports) -> Option<Response> {
    let text = "the controller has not read the cluster yet: try again later";
    let unready = || failure(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", text);
    (!reports.are_ready()).then(unready)
}

/// A `Status` of Kubernetes.
fn failure(code: StatusCode, reason: &str, message: &str) -> Response {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code.as_u16(),
    });
    (code, Json(status)).into_response()
}
