//! Kueue's visibility API, the group `visibility.kueue.x-k8s.io`: the pending Workloads of a queue with their positions. Both versions are
//! the same. Defaults and limits after `pkg/visibility` of Kueue.

pub(crate) mod api_services;

use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use controllers::{PendingWorkload, Reports, WorkloadQueue};
use serde_json::{Map, Value, json};

use crate::visibility::{failure, status, unready};

/// The API group.
pub const GROUP: &str = "visibility.kueue.x-k8s.io";
/// Its versions, the preferred one first.
pub const VERSIONS: [&str; 2] = ["v1beta2", "v1beta1"];
/// The subresource of a queue that has its pending Workloads.
pub const SUBRESOURCE: &str = "pendingworkloads";
/// The kind of the subresource.
pub const KIND: &str = "PendingWorkloadsSummary";
/// The only verb of the subresource.
pub const VERBS: &[&str] = &["get"];

/// A kind of queues.
#[derive(Debug, Clone, Copy)]
pub struct Resource {
    /// Its name in paths.
    pub plural: &'static str,
    /// Its name for one queue.
    pub singular: &'static str,
    /// Whether its queues are in namespaces.
    pub is_namespaced: bool,
}

/// The kinds of queues. They have no verbs of their own.
pub const RESOURCES: [Resource; 2] = [
    Resource { plural: "clusterqueues", singular: "clusterqueue", is_namespaced: false },
    Resource { plural: "localqueues", singular: "localqueue", is_namespaced: true },
];

/// So many Workloads are listed if the request has no `limit`.
const LISTED: i64 = 1000;
/// So many are listed at most.
const LISTED_MAX: i64 = 100_000;

/// The paths of the group. The caller has authorized the requests.
pub(crate) fn routes(reports: &Arc<Reports>) -> Router {
    let group = format!("/apis/{GROUP}");
    let mut router = Router::new().route(&group, get(async || Json(api_group())));
    for version in VERSIONS {
        let path = format!("{group}/{version}");
        let list = api_resources(version);
        let state = Served { reports: reports.clone(), version };
        let of_cluster = get(of_cluster_queue).with_state(state.clone());
        let of_local = get(of_local_queue).with_state(state);
        router = router
            .route(&path, get(async move || Json(list)))
            .route(&format!("{path}/clusterqueues/{{name}}/{SUBRESOURCE}"), of_cluster)
            .route(&format!("{path}/namespaces/{{namespace}}/localqueues/{{name}}/{SUBRESOURCE}"), of_local);
    }
    router
}

/// One version of the group.
#[derive(Clone)]
struct Served {
    reports: Arc<Reports>,
    version: &'static str,
}

/// The parameters of a request.
type Parameters = Vec<(String, String)>;

fn api_group() -> Value {
    let versions =
        VERSIONS.map(|version| json!({"groupVersion": format!("{GROUP}/{version}"), "version": version}));
    json!({"kind": "APIGroup", "apiVersion": "v1", "name": GROUP, "versions": versions, "preferredVersion": versions[0]})
}

/// The `APIResourceList` of a version.
fn api_resources(version: &str) -> Value {
    let resources = RESOURCES.iter().flat_map(|Resource { plural, singular, is_namespaced }| {
        let queue = json!({"name": plural, "singularName": singular, "namespaced": is_namespaced, "kind": KIND, "verbs": []});
        let name = format!("{plural}/{SUBRESOURCE}");
        [queue, json!({"name": name, "singularName": "", "namespaced": is_namespaced, "kind": KIND, "verbs": VERBS})]
    });
    json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{GROUP}/{version}"),
        "resources": resources.collect::<Vec<_>>(),
    })
}

async fn of_cluster_queue(
    State(served): State<Served>,
    Path(name): Path<String>,
    Query(parameters): Query<Parameters>,
) -> Response {
    served.answer(RESOURCES[0].singular, &name, &WorkloadQueue::Cluster(name.clone()), &parameters)
}

async fn of_local_queue(
    State(served): State<Served>,
    Path((namespace, name)): Path<(String, String)>,
    Query(parameters): Query<Parameters>,
) -> Response {
    served.answer(RESOURCES[1].singular, &name, &WorkloadQueue::Local(namespace, name.clone()), &parameters)
}

impl Served {
    fn answer(&self, kind: &str, name: &str, queue: &WorkloadQueue, parameters: &Parameters) -> Response {
        if let Some(unready) = unready(&self.reports) {
            return unready;
        }
        let number = |name, default| number(parameters, name, default);
        let (offset, limit) = match (number("offset", 0), number("limit", LISTED)) {
            (Ok(offset), Ok(limit)) => (offset, if limit == 0 { LISTED } else { limit.min(LISTED_MAX) }),
            (Err(text), _) | (_, Err(text)) => return failure(StatusCode::BAD_REQUEST, "BadRequest", &text),
        };
        let Some(pending) = self.reports.pending_workloads(queue) else {
            let text = format!("{kind}.{GROUP} {name:?} not found");
            let mut status = status(StatusCode::NOT_FOUND, "NotFound", &text);
            status["details"] = json!({"name": name, "group": GROUP, "kind": kind});
            return (StatusCode::NOT_FOUND, Json(status)).into_response();
        };
        let count = |number: i64| usize::try_from(number).unwrap_or_default();
        let listed = pending.iter().skip(count(offset)).take(count(limit));
        Json(json!({
            "kind": KIND, "apiVersion": format!("{GROUP}/{}", self.version), "metadata": {},
            "items": listed.map(item).collect::<Vec<_>>(),
        }))
        .into_response()
    }
}

/// The number of a parameter.
fn number(parameters: &Parameters, name: &str, default: i64) -> Result<i64, String> {
    let given = parameters.iter().find(|(known, _)| known == name);
    let parse = |text: &str| {
        text.parse()
            .map_err(|_| format!("{name}={text}: {name} is a number of Workloads, such as {name}=100"))
    };
    given.map_or(Ok(default), |(_, text)| parse(text))
}

fn item(workload: &PendingWorkload) -> Value {
    let meta = &workload.metadata;
    let mut metadata = Map::new();
    metadata.insert("name".into(), meta.name.clone().into());
    metadata.insert("namespace".into(), meta.namespace.clone().into());
    metadata.insert("creationTimestamp".into(), meta.creation_timestamp.clone().into());
    let owners = meta.owner_references.iter().map(|owner| {
        json!({"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid})
    });
    if !meta.owner_references.is_empty() {
        metadata.insert("ownerReferences".into(), owners.collect());
    }
    json!({
        "metadata": metadata, "priority": workload.priority, "localQueueName": workload.local_queue,
        "positionInClusterQueue": workload.position, "positionInLocalQueue": workload.local_position,
    })
}
