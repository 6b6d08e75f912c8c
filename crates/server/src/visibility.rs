//! The group `visibility.muster.dev`, version `v1beta1`. Its resources are namespaced and not stored.
//!
//! - `appwrapperreports` (get, list): the status of AppWrappers, as `muster why` and `muster get gangs` print it; a list is of a
//!   namespace or of all, in pages
//! - `appwrapperplans` (create): what would happen to AppWrappers if they were created now, as `muster plan` prints it
//! - `workloadreports`, `workloadplans`: the same for Workloads, if the controller plans them
//!
//! `pending_workloads` has Kueue's group beside it.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use bytes::Bytes;
use controllers::{Error, GangKind, GangReport, NewGang, Page, Reported, Reports};
use http::Request;
use http_body_util::BodyExt as _;
use serde::Deserialize;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::pending_workloads;
use crate::report::{Mode, Report};

/// The API group.
pub const GROUP: &str = "visibility.muster.dev";
/// Its version.
pub const VERSION: &str = "v1beta1";
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
    /// What it reports.
    pub reported: Reported,
    /// The field of `spec` with the objects of a plan; empty for a report.
    pub field: &'static str,
}

/// Simulates the creation of AppWrappers.
pub const WRAPPER_PLANS: Resource = Resource {
    plural: "appwrapperplans",
    singular: "appwrapperplan",
    kind: "AppWrapperPlan",
    verbs: &["create"],
    reported: Reported::Wrappers,
    field: "appWrappers",
};
/// The status of AppWrappers.
pub const WRAPPER_REPORTS: Resource = Resource {
    plural: "appwrapperreports",
    singular: "appwrapperreport",
    kind: "AppWrapperReport",
    verbs: &["get", "list"],
    reported: Reported::Wrappers,
    field: "",
};
/// Simulates the creation of Workloads.
pub const WORKLOAD_PLANS: Resource = Resource {
    plural: "workloadplans",
    singular: "workloadplan",
    kind: "WorkloadPlan",
    reported: Reported::Workloads,
    field: "workloads",
    ..WRAPPER_PLANS
};
/// The status of Workloads.
pub const WORKLOAD_REPORTS: Resource = Resource {
    plural: "workloadreports",
    singular: "workloadreport",
    kind: "WorkloadReport",
    reported: Reported::Workloads,
    ..WRAPPER_REPORTS
};
/// The resources of the group, by name. A controller that plans no Workloads serves none for them.
pub const RESOURCES: [Resource; 4] = [WRAPPER_PLANS, WRAPPER_REPORTS, WORKLOAD_PLANS, WORKLOAD_REPORTS];

/// The resources that a controller serves.
pub fn resources(reports: &Reports) -> Vec<Resource> {
    let is_served =
        |known: &Resource| known.reported == Reported::Wrappers || reports.plans(GangKind::Workload);
    RESOURCES.into_iter().filter(is_served).collect()
}

/// Most objects of one plan.
const PLANNED_MAX: usize = 100;
/// The number of items of a page of a list when the request sets no `limit`.
const PAGE: usize = 500;
/// Most items of a page: while it is made, the controller does not act.
pub const PAGE_MAX: usize = 5_000;
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

/// Serves the group, and Kueue's visibility API if the controller plans the queues of Kueue's API. The caller has authorized the
/// request.
pub fn router(reports: Reports, serves_queues: bool) -> Router {
    let group = format!("/apis/{GROUP}");
    let version = format!("{group}/{VERSION}");
    let namespace = format!("{version}/namespaces/{{namespace}}");
    let served = resources(&reports);
    let list_of_resources = api_resources(&served);
    let mut router = Router::new()
        .route(&group, get(async || Json(api_group())))
        .route(&version, get(async move || Json(list_of_resources)))
        .route("/healthz", get(async || "ok"));
    let reports = Arc::new(reports);
    if serves_queues {
        router = router.merge(pending_workloads::routes(&reports));
    }
    for resource in served {
        let path = format!("{namespace}/{}", resource.plural);
        let state = Arc::new(Served { reports: reports.clone(), resource });
        router = if resource.field.is_empty() {
            let one = get(one).with_state(state.clone());
            let everywhere = get(list_everywhere).with_state(state.clone());
            router
                .route(&format!("{version}/{}", resource.plural), everywhere)
                .route(&path, get(list).with_state(state))
                .route(&format!("{path}/{{name}}"), one)
        } else {
            router.route(&path, post(plan).with_state(state))
        };
    }
    router
        .fallback(async || failure(StatusCode::NOT_FOUND, "NotFound", "the server has no such path"))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
}

/// A resource of a controller.
struct Served {
    reports: Arc<Reports>,
    resource: Resource,
}

/// The `APIResourceList` of the version.
fn api_resources(served: &[Resource]) -> Value {
    let resource = |Resource { plural, singular, kind, verbs, .. }: &Resource| json!({"name": plural, "singularName": singular, "namespaced": true, "kind": kind, "verbs": verbs});
    json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{GROUP}/{VERSION}"),
        "resources": served.iter().map(resource).collect::<Vec<_>>(),
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

fn report_object(kind: &str, namespace: &str, name: &str, reports: &[Report]) -> Value {
    let mut object = object(kind, namespace, Some(name));
    object["metadata"]["creationTimestamp"] =
        reports.first().map_or(Value::Null, |report| report.status["created"].clone());
    object["reports"] = json!(reports);
    object
}

fn actual(reports: &[GangReport]) -> Vec<Report> {
    reports.iter().map(|report| Report::new(report, Mode::Actual)).collect()
}

async fn one(State(served): State<Arc<Served>>, Path((namespace, name)): Path<(String, String)>) -> Response {
    let Served { reports, resource } = &*served;
    if let Some(unready) = unready(reports) {
        return unready;
    }
    let found = actual(&reports.of(resource.reported, &namespace, &name));
    if found.is_empty() {
        let kind = match resource.reported {
            Reported::Wrappers => "AppWrapper",
            Reported::Workloads => "Workload",
        };
        let text = format!("there is no {kind} {namespace}/{name}");
        return failure(StatusCode::NOT_FOUND, "NotFound", &text);
    }
    Json(report_object(resource.kind, &namespace, &name, &found)).into_response()
}

/// The parameters of a list.
#[derive(Debug, Deserialize)]
struct ListParameters {
    limit: Option<usize>,
    /// The namespace and the name after which the page begins.
    #[serde(default, rename = "continue")]
    after: String,
}

async fn list(
    State(served): State<Arc<Served>>,
    Path(namespace): Path<String>,
    Query(parameters): Query<ListParameters>,
) -> Response {
    page(&served, Some(&namespace), &parameters)
}

async fn list_everywhere(
    State(served): State<Arc<Served>>,
    Query(parameters): Query<ListParameters>,
) -> Response {
    page(&served, None, &parameters)
}

/// A page of a namespace, or of all. An item has the reports about the objects of a name.
fn page(served: &Served, namespace: Option<&str>, parameters: &ListParameters) -> Response {
    let Served { reports, resource } = served;
    if let Some(unready) = unready(reports) {
        return unready;
    }
    let most = parameters.limit.filter(|limit| *limit > 0).unwrap_or(PAGE).min(PAGE_MAX);
    let after = parameters.after.split_once('/').unwrap_or_default();
    let (found, has_more) = reports.page(resource.reported, &Page { namespace, after, most });
    let of_one_name: Vec<&[GangReport]> = found.chunk_by(|one, next| name_of(one) == name_of(next)).collect();
    let item = |found: &&[GangReport]| {
        let (namespace, name) = name_of(&found[0]);
        report_object(resource.kind, namespace, name, &actual(found))
    };
    let next = found.last().filter(|_| has_more).map(|last| {
        let (namespace, name) = name_of(last);
        format!("{namespace}/{name}")
    });
    Json(json!({
        "apiVersion": format!("{GROUP}/{VERSION}"), "kind": format!("{}List", resource.kind),
        "metadata": {"continue": next}, "items": of_one_name.iter().map(item).collect::<Vec<_>>(),
    }))
    .into_response()
}

/// The namespace and the name of the object of a report.
fn name_of(report: &GangReport) -> (&str, &str) {
    let key = report.key();
    (&key.namespace, &key.name)
}

/// The body of a plan.
#[derive(Debug, Deserialize)]
struct Plan {
    spec: BTreeMap<String, Vec<Value>>,
}

async fn plan(
    State(served): State<Arc<Served>>,
    Path(namespace): Path<String>,
    body: Result<Json<Plan>, JsonRejection>,
) -> Response {
    let Served { reports, resource } = &*served;
    if let Some(unready) = unready(reports) {
        return unready;
    }
    let invalid = |text: String| failure(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", &text);
    let field = resource.field;
    let objects = match body {
        Ok(Json(mut plan)) => plan.spec.remove(field),
        Err(error) => return failure(error.status(), "BadRequest", &error.body_text()),
    };
    let Some(objects) = objects else { return invalid(format!("spec.{field} is missing")) };
    let count = objects.len();
    if count > PLANNED_MAX {
        return invalid(format!("spec.{field} has {count} items; the maximum is {PLANNED_MAX}"));
    }
    let mut gangs = Vec::new();
    for (at, value) in objects.into_iter().enumerate() {
        match decode(value, resource.reported, &namespace) {
            Ok(gang) => gangs.push(gang),
            Err(error) => return invalid(format!("spec.{field}[{at}]: {error}")),
        }
    }
    match reports.simulate(gangs).await {
        Ok(found) => {
            let found: Vec<Report> =
                found.iter().map(|report| Report::new(report, Mode::Simulated)).collect();
            let mut object = object(resource.kind, &namespace, None);
            object["status"] = json!({"reports": found});
            (StatusCode::CREATED, Json(object)).into_response()
        }
        Err(error @ Error::Exists(_)) => failure(StatusCode::CONFLICT, "AlreadyExists", &error.to_string()),
        Err(error) => failure(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", &error.to_string()),
    }
}

/// Reads an object of the namespace.
fn decode(value: Value, reported: Reported, namespace: &str) -> Result<NewGang, String> {
    let kind = GangKind::of(&value)
        .filter(|kind| (*kind == GangKind::Workload) == (reported == Reported::Workloads));
    let wrong = match reported {
        Reported::Wrappers => "apiVersion and kind are not those of an AppWrapper",
        Reported::Workloads => "apiVersion and kind are not those of a Workload",
    };
    let kind = kind.ok_or(wrong)?;
    let mut gang = NewGang::read(kind, value)?;
    let found = &mut gang.metadata().namespace;
    if !found.is_empty() && found != namespace {
        return Err(format!("metadata.namespace is {found:?}, not {namespace:?}"));
    }
    namespace.clone_into(found);
    Ok(gang)
}

/// The response of a controller that has not read the cluster yet.
pub(crate) fn unready(reports: &Reports) -> Option<Response> {
    let text = "the controller has not read the cluster yet: try again later";
    let unready = || failure(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", text);
    (!reports.are_ready()).then(unready)
}

/// The response of a request that failed.
pub(crate) fn failure(code: StatusCode, reason: &str, message: &str) -> Response {
    (code, Json(status(code, reason, message))).into_response()
}

/// A `Status` of Kubernetes.
pub(crate) fn status(code: StatusCode, reason: &str, message: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code.as_u16(),
    })
}
