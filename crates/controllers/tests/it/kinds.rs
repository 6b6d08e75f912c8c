//! Kinds whose discovery, list or watch fails: only AppWrappers that wrap them wait, also after a restart of the
//! controller. Their status says why, and they start when the kind can be used.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{Cluster, Group, Running, config_maps, resource, wrappers};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tower::ServiceExt;

/// How requests to a path fail.
#[derive(Clone)]
enum Failure {
    /// An answer with this status and body.
    Answer(u16, Vec<u8>),
    /// No connection.
    Refused,
    /// No answer.
    Silent,
}

/// Requests that fail: those whose URL begins with one of these texts, and contains the part after a `*`.
#[derive(Clone, Default)]
struct Failures(Arc<Mutex<Vec<(String, Failure)>>>);

impl Failures {
    fn set(&self, path: &str, failure: Failure) {
        self.0.lock().unwrap().push((path.into(), failure));
    }

    fn clear(&self) {
        self.0.lock().unwrap().clear();
    }

    fn of(&self, path: &str) -> Option<Failure> {
        let failures = self.0.lock().unwrap();
        let is_meant = |pattern: &str| {
            let (prefix, part) = pattern.split_once('*').unwrap_or((pattern, ""));
            path.starts_with(prefix) && path.contains(part)
        };
        failures.iter().find(|(pattern, _)| is_meant(pattern)).map(|(_, failure)| failure.clone())
    }
}

fn client(cluster: &Cluster, failures: &Failures) -> Client {
    let (service, failures) = (cluster.service.clone(), failures.clone());
    let client = tower::service_fn(move |request: Request<Body>| {
        let (service, failure) = (service.clone(), failures.of(&request.uri().to_string()));
        async move {
            match failure {
                None => {
                    let answer = service.oneshot(request).await.unwrap();
                    Ok(answer.map(|body| body.map_err(|never| match never {}).boxed_unsync()))
                }
                Some(Failure::Answer(code, body)) => {
                    let answer = Response::builder().status(code).header("Content-Type", "application/json");
                    Ok(answer.body(Full::from(body).boxed_unsync()).unwrap())
                }
                Some(Failure::Refused) => Err(std::io::Error::other("connection refused")),
                Some(Failure::Silent) => std::future::pending().await,
            }
        }
    });
    Client::new(client, "default")
}

fn status(code: u16, reason: &str, message: &str) -> Failure {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code});
    Failure::Answer(code, status.to_string().into_bytes())
}

async fn cluster() -> Cluster {
    let cluster = Cluster::new().await;
    cluster.node("n", &json!({"cpu": "64", "memory": "64Gi", "pods": "110"})).await;
    cluster
}

/// A gang without pods.
fn gang(name: &str, api_version: &str, kind: &str) -> Value {
    let object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}});
    let declared = json!([{"replicas": 1, "requests": {"cpu": 1}}]);
    json!({
        "apiVersion": Group::Mcad.api_version(), "kind": "AppWrapper", "metadata": {"name": name},
        "spec": {"resources": {"GenericItems": [
            {"replicas": 1, "custompodresources": declared, "generictemplate": object},
        ]}},
    })
}

async fn wait_message(cluster: &Cluster, name: &str, part: &str) -> Value {
    let is_told = |wrapper: &kube::api::DynamicObject| {
        wrapper.data["status"]["message"].as_str().unwrap_or_default().contains(part)
    };
    cluster.wait(&wrappers(Group::Mcad), "default", name, is_told).await.data["status"].clone()
}

/// Starts a controller anew, and requires that gangs of other kinds start at once.
async fn restart(cluster: &Cluster, failures: &Failures, name: &str, within: Duration) -> Running {
    let controller = cluster.controller_over(client(cluster, failures));
    let began = Instant::now();
    cluster.submit(gang(name, "v1", "ConfigMap")).await;
    cluster.wait_state(Group::Mcad, name, "Running", "Dispatched").await;
    assert!(began.elapsed() <= within, "{name} started after {:?}", began.elapsed());
    controller
}

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn kinds_of_invalid_form_delay_no_other_gang_and_are_never_requested() {
    // The CRD of another installer accepts them.
    let cluster = Cluster::bare();
    cluster.define("mcad.ibm.com", "AppWrapper", "appwrappers", &["v1beta1"]).await;
    cluster.node("n", &json!({"cpu": "64", "memory": "64Gi", "pods": "110"})).await;
    let long = format!("{}/v1", "a".repeat(10_000));
    let cases = [
        ("a b", "Job", "apiVersion \"a b\" is neither VERSION nor GROUP/VERSION"),
        ("batch/v1?x=", "Job", "apiVersion \"batch/v1?x=\" is neither"),
        ("../..", "Job", "apiVersion \"../..\" is neither"),
        (&long, "Job", "… (10003 bytes) is neither"),
    ];
    for (case, (api_version, kind, _)) in cases.iter().enumerate() {
        cluster.submit(gang(&format!("bad-{case}"), api_version, kind)).await;
    }
    let failures = Failures::default();
    let controller = restart(&cluster, &failures, "a", SECOND).await;
    for (case, (.., message)) in cases.iter().enumerate() {
        let told = wait_message(&cluster, &format!("bad-{case}"), message).await;
        assert!(told["message"].as_str().unwrap().len() < 300, "{told}");
        assert_eq!(told["state"], "Pending");
    }
    let events = cluster.events().await;
    assert_eq!(events.iter().filter(|event| event.contains("NotQueued")).count(), cases.len(), "{events:?}");
    assert_eq!(controller.index.read().unwrap().kinds().count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_kind_without_the_needed_verbs_delays_no_other_gang() {
    let cluster = cluster().await;
    let failures = Failures::default();
    let resources = json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "v1", "resources": [
        {"name": "bindings", "kind": "Binding", "namespaced": true, "verbs": ["create"]},
        {"name": "pods/binding", "kind": "Scale", "namespaced": true, "verbs": ["create", "get", "list", "watch"]},
        {"name": "configmaps", "kind": "ConfigMap", "namespaced": true,
            "verbs": ["create", "delete", "get", "list", "watch"]},
    ]});
    let core = resources.to_string().into_bytes();
    cluster.submit(gang("binding", "v1", "Binding")).await;
    cluster.submit(gang("scale", "v1", "Scale")).await;
    cluster.submit(gang("review", "authorization.k8s.io/v1", "LocalSubjectAccessReview")).await;
    let review = json!({"resources": [
        {"name": "localsubjectaccessreviews", "kind": "LocalSubjectAccessReview", "namespaced": true, "verbs": ["create"]},
    ]});
    failures.set("/apis/authorization.k8s.io/v1", Failure::Answer(200, review.to_string().into_bytes()));
    let exact = ExactPath { path: "/api/v1", body: core };
    let controller = cluster.controller_over(exact.client(&cluster, &failures));
    cluster.submit(gang("a", "v1", "ConfigMap")).await;
    let began = Instant::now();
    cluster.wait_state(Group::Mcad, "a", "Running", "Dispatched").await;
    assert!(began.elapsed() < SECOND, "it started after {:?}", began.elapsed());
    let verbs = "without the verbs delete, get, list, watch, so an AppWrapper cannot contain it";
    wait_message(&cluster, "binding", &format!("this cluster serves Binding in v1 {verbs}")).await;
    wait_message(&cluster, "review", verbs).await;
    wait_message(&cluster, "scale", "this cluster serves no Scale in v1").await;
    drop(controller);
}

/// Answers one path with a body.
struct ExactPath {
    path: &'static str,
    body: Vec<u8>,
}

impl ExactPath {
    fn client(self, cluster: &Cluster, failures: &Failures) -> Client {
        let (service, failures) = (cluster.service.clone(), failures.clone());
        let client = tower::service_fn(move |request: Request<Body>| {
            let path = request.uri().path().to_owned();
            let body = match failures.of(&path) {
                Some(Failure::Answer(_, body)) => Some(body),
                Some(Failure::Refused | Failure::Silent) | None => {
                    (path == self.path).then(|| self.body.clone())
                }
            };
            let service = service.clone();
            async move {
                if let Some(body) = body {
                    return Ok::<_, std::io::Error>(Response::new(Full::from(body).boxed_unsync()));
                }
                let answer = service.oneshot(request).await.unwrap();
                Ok(answer.map(|body| body.map_err(|never| match never {}).boxed_unsync()))
            }
        });
        Client::new(client, "default")
    }
}

/// The lasting failures of a kind, and what its AppWrappers are told.
fn lasting_failures() -> Vec<(&'static str, Failure, &'static str)> {
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    let secret = br#"{"kind":"WidgetList","metadata":[],"items":[{"data":{"password":"hunter2"}}]}"#;
    vec![
        ("404", status(404, "NotFound", "the server could not find the requested resource"), ""),
        (
            "405",
            status(405, "MethodNotAllowed", "the server does not allow this method"),
            "does not allow this method",
        ),
        (
            "500",
            status(500, "InternalError", "conversion webhook failed: no endpoints"),
            "conversion webhook failed",
        ),
        (
            "503",
            status(503, "ServiceUnavailable", "the server is currently unable"),
            "the server is currently unable",
        ),
        ("504", status(504, "Timeout", "request timed out"), "request timed out"),
        ("429", status(429, "TooManyRequests", "too many requests"), "too many requests"),
        ("text", Failure::Answer(503, b"hunter2: no such backend".to_vec()), "an error 503 without a reason"),
        ("refused", Failure::Refused, "connection refused"),
        ("silent", Failure::Silent, "no answer within"),
        ("bytes", Failure::Answer(200, b"hunter2 \xff\xfe".to_vec()), "it is not UTF-8"),
        ("html", Failure::Answer(200, b"<html>hunter2</html>".to_vec()), "it is not JSON"),
        ("types", Failure::Answer(200, secret.to_vec()), "cannot be decoded"),
        ("deep", Failure::Answer(200, deep.into_bytes()), "cannot be decoded"),
    ]
}

async fn check_lasting_failures(path: &str, in_definition: bool) {
    for (case, failure, message) in lasting_failures() {
        let cluster = cluster().await;
        let failures = Failures::default();
        if in_definition {
            cluster.define("example.com", "Widget", "widgets", &["v1"]).await;
        }
        failures.set(path, failure);
        cluster.submit(gang("w", "example.com/v1", "Widget")).await;
        let began = Instant::now();
        let controller = restart(&cluster, &failures, "a", 12 * SECOND).await;
        let told = wait_message(&cluster, "w", message).await;
        assert!(began.elapsed() < 15 * SECOND, "{case}: told after {:?}", began.elapsed());
        let text = told["message"].as_str().unwrap();
        assert!(text.contains("Widget in example.com/v1") && !text.contains("hunter2"), "{case}: {text}");
        sleep(120 * SECOND).await;
        let events = cluster.events().await;
        let own = events.iter().filter(|event| event.starts_with("w NotQueued")).count();
        assert_eq!(own, 1, "{case}: {events:?}");
        // A running controller and one that starts anew go on when the kind is repaired.
        drop(controller);
        let _controller = restart(&cluster, &failures, "b", 12 * SECOND).await;
        wait_message(&cluster, "w", message).await;
        failures.clear();
        if !in_definition {
            cluster.define("example.com", "Widget", "widgets", &["v1"]).await;
        }
        let repaired = Instant::now();
        let started = cluster.wait_state(Group::Mcad, "w", "Running", "Dispatched").await;
        assert!(started["message"].is_null(), "{case}: {started}");
        assert!(repaired.elapsed() < 90 * SECOND, "{case}: started after {:?}", repaired.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_lasting_failure_of_discovery_delays_only_gangs_of_this_kind() {
    check_lasting_failures("/apis/example.com/v1", false).await;
}

#[tokio::test(start_paused = true)]
async fn a_lasting_failure_of_the_list_delays_only_gangs_of_this_kind() {
    check_lasting_failures("/apis/example.com/v1/widgets", true).await;
}

/// A gang of a Widget runs. With its status.
async fn running_widget(name: &str) -> (Cluster, Failures, Running, Value) {
    let cluster = cluster().await;
    cluster.define("example.com", "Widget", "widgets", &["v1"]).await;
    let failures = Failures::default();
    let controller = cluster.controller_over(client(&cluster, &failures));
    cluster.submit(gang(name, "example.com/v1", "Widget")).await;
    let status = cluster.wait_state(Group::Mcad, name, "Running", "Dispatched").await;
    (cluster, failures, controller, status)
}

#[tokio::test(start_paused = true)]
async fn a_running_gang_of_a_failing_kind_keeps_running_and_a_half_started_one_keeps_its_intent() {
    let (cluster, failures, controller, running) = running_widget("w").await;
    // The second object of this gang is never created.
    failures.set("/api/v1/namespaces/default/secrets", Failure::Refused);
    let mut half = gang("h", "example.com/v1", "Widget");
    let second = gang("h", "v1", "Secret")["spec"]["resources"]["GenericItems"][0].take();
    half["spec"]["resources"]["GenericItems"].as_array_mut().unwrap().push(second);
    cluster.submit(half).await;
    let widgets = resource("example.com/v1", "Widget", "widgets");
    cluster.wait(&widgets, "default", "h", |_| true).await;
    drop(controller);

    failures.clear();
    failures.set("/apis/example.com/v1/widgets", status(500, "InternalError", "conversion webhook failed"));
    let _controller = restart(&cluster, &failures, "a", SECOND).await;
    let told = wait_message(&cluster, "h", "conversion webhook failed").await;
    assert_eq!(told["canrun"], true, "{told}");
    let now = cluster.api(&wrappers(Group::Mcad), "default").get("w").await.unwrap();
    assert_eq!(now.data["status"], running);
    failures.clear();
    cluster.wait_state(Group::Mcad, "h", "Running", "Dispatched").await;
    assert_eq!(cluster.names(&widgets, "default").await, ["h", "w"]);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_deleted_while_its_kind_cannot_be_listed_is_noticed() {
    let (cluster, failures, controller, _) = running_widget("w").await;
    drop(controller);
    let widgets = resource("example.com/v1", "Widget", "widgets");
    cluster.delete(&widgets, "default", "w").await;
    failures.set("/apis/example.com/v1/widgets", status(500, "InternalError", "conversion webhook failed"));
    let _controller = restart(&cluster, &failures, "a", SECOND).await;
    failures.clear();
    wait_message(&cluster, "w", "Widget w was deleted").await;
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_can_be_listed_but_not_watched_is_told_and_used_when_the_watch_works() {
    let (cluster, failures, _controller, _) = running_widget("first").await;
    failures.set("/apis/example.com/v1/widgets*watch=true", status(500, "InternalError", "no watch"));
    cluster.service.with(|server, _| server.restart());
    sleep(30 * SECOND).await;
    cluster.submit(gang("w", "example.com/v1", "Widget")).await;
    wait_message(&cluster, "w", "Widget in example.com/v1 cannot be listed and watched, retrying: no watch")
        .await;
    sleep(120 * SECOND).await;
    wait_message(&cluster, "w", "no watch").await;
    failures.clear();
    cluster.wait_state(Group::Mcad, "w", "Running", "Dispatched").await;
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_an_aggregated_api_server_serves_later_is_found() {
    let cluster = cluster().await;
    let failures = Failures::default();
    let none = json!({"resources": []}).to_string().into_bytes();
    let served = json!({"resources": [{"name": "configmaps", "kind": "Widget", "namespaced": true,
        "verbs": ["create", "delete", "get", "list", "watch"]}]});
    failures.set("/apis/example.com/v1", Failure::Answer(200, none));
    let _controller = cluster.controller_over(client(&cluster, &failures));
    cluster.submit(gang("w", "example.com/v1", "Widget")).await;
    wait_message(&cluster, "w", "this cluster serves no Widget in example.com/v1").await;
    sleep(600 * SECOND).await;
    failures.clear();
    let list = json!({"kind": "WidgetList", "apiVersion": "example.com/v1", "metadata": {"resourceVersion": "1"}, "items": []});
    failures.set("/apis/example.com/v1/configmaps", Failure::Answer(200, list.to_string().into_bytes()));
    failures.set("/apis/example.com/v1", Failure::Answer(200, served.to_string().into_bytes()));
    let is_found = |wrapper: &kube::api::DynamicObject| {
        !wrapper.data["status"]["message"].as_str().unwrap_or_default().contains("serves no")
    };
    let began = Instant::now();
    cluster.wait(&wrappers(Group::Mcad), "default", "w", is_found).await;
    assert!(began.elapsed() <= 61 * SECOND, "it was found after {:?}", began.elapsed());
}

fn deep_gang() -> Value {
    let mut deep = gang("deep", "v1", "ConfigMap");
    deep["spec"]["resources"]["GenericItems"][0]["generictemplate"]["data"] = json!({"a": "NESTED"});
    deep
}

/// A client whose answers contain 130 nested lists, as a real API server would send them.
fn deep_client(cluster: &Cluster) -> Client {
    let service = cluster.service.clone();
    let client = tower::service_fn(move |request: Request<Body>| {
        let service = service.clone();
        async move {
            let nested = format!("{}{}", "[".repeat(130), "]".repeat(130));
            let answer = service.oneshot(request).await.unwrap();
            Ok::<_, std::io::Error>(answer.map(|body| {
                body.map_frame(move |frame| {
                    frame.map_data(|data| {
                        let text = String::from_utf8(data.to_vec()).unwrap();
                        text.replace("\"NESTED\"", &nested).into_bytes().into()
                    })
                })
                .map_err(|never: std::convert::Infallible| match never {})
                .boxed_unsync()
            }))
        }
    });
    Client::new(client, "default")
}

#[tokio::test(start_paused = true)]
async fn gangs_wait_while_the_quota_is_unknown_and_say_so() {
    let cluster = cluster().await;
    let failures = Failures::default();
    cluster.submit(gang("runs", "v1", "ConfigMap")).await;
    drop(restart(&cluster, &failures, "ignored", SECOND).await);
    controllers::install_quota_crd(cluster.client.clone()).await.unwrap();
    failures.set(
        "/apis/quota.codeflare.dev/v1alpha1/quotasubtrees",
        status(500, "InternalError", "it is broken"),
    );
    let config = controllers::Config { quota: true, ..controllers::Config::default() };
    let _controller = cluster.start(client(&cluster, &failures), config);
    cluster.submit(gang("a", "v1", "ConfigMap")).await;
    let unknown =
        "the quota trees (quotasubtrees.quota.codeflare.dev) cannot be listed, retrying: it is broken";
    wait_message(&cluster, "a", unknown).await;
    // Running gangs go on.
    cluster.delete(&wrappers(Group::Mcad), "default", "runs").await;
    cluster.wait_gone(&config_maps(), "default", "runs").await;
    failures.clear();
    cluster.wait_state(Group::Mcad, "a", "Running", "Dispatched").await;

    // The quota is gone with its definition.
    let kind = resource("quota.codeflare.dev/v1alpha1", "QuotaSubtree", "quotasubtrees");
    let none = json!([{"name": "default", "quotas": {"hardLimit": true, "requests": {"cpu": 0}}}]);
    let subtree = json!({"apiVersion": kind.api_version, "kind": kind.kind,
        "metadata": {"name": "t", "namespace": "default", "labels": {"tree": "t"}}, "spec": {"children": none}});
    cluster.create_as(&kind, "default", subtree).await;
    cluster.settled().await;
    cluster.submit(gang("b", "v1", "ConfigMap")).await;
    wait_message(&cluster, "b", "quota t/default has").await;
    let definitions =
        resource("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions");
    cluster.delete(&definitions, "", "quotasubtrees.quota.codeflare.dev").await;
    cluster.wait_state(Group::Mcad, "b", "Running", "Dispatched").await;
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_decoded_hides_no_other_object() {
    let cluster = cluster().await;
    cluster.submit(deep_gang()).await;
    let controller = cluster.controller_over(deep_client(&cluster));
    cluster.submit(gang("a", "v1", "ConfigMap")).await;
    cluster.wait_state(Group::Mcad, "a", "Running", "Dispatched").await;
    cluster.delete(&wrappers(Group::Mcad), "default", "deep").await;
    cluster.submit(deep_gang()).await;
    cluster.submit(gang("b", "v1", "ConfigMap")).await;
    cluster.wait_state(Group::Mcad, "b", "Running", "Dispatched").await;
    drop(controller);
    let told = cluster.api(&wrappers(Group::Mcad), "default").get("deep").await.unwrap();
    let message = told.data["status"]["message"].as_str().unwrap().to_owned();
    let field = "spec.resources.GenericItems[0].generictemplate.data.a[0]";
    assert!(message.contains("cannot be read") && message.contains(field), "{message}");
    let events: Vec<_> =
        cluster.events().await.into_iter().filter(|event| event.starts_with("deep NotQueued")).collect();
    assert_eq!(events, vec![format!("deep NotQueued: {message}"); 2], "one for each of the two");
    let names: BTreeSet<_> = cluster.names(&config_maps(), "default").await.into_iter().collect();
    assert!(names.contains("a") && names.contains("b"), "{names:?}");
}

#[tokio::test(start_paused = true)]
async fn kinds_are_watched_only_as_long_as_a_live_appwrapper_wraps_them() {
    let cluster = cluster().await;
    cluster.define("example.com", "Widget", "widgets", &["v1"]).await;
    let failures = Failures::default();
    let controller = cluster.controller_over(client(&cluster, &failures));
    let kinds = |controller: &Running| -> Vec<String> {
        controller.index.read().unwrap().kinds().map(|(kind, _)| kind.kind.clone()).collect()
    };
    let mut wrapper = gang("w", "example.com/v1", "Widget");
    wrapper["spec"]["resources"]["GenericItems"][0]["completionstatus"] = json!("Complete");
    cluster.submit(wrapper).await;
    cluster.wait_state(Group::Mcad, "w", "Running", "Dispatched").await;
    let uid = cluster.api(&wrappers(Group::Mcad), "default").get("w").await.unwrap().metadata.uid.unwrap();
    let widgets = cluster.api(&resource("example.com/v1", "Widget", "widgets"), "default");
    let complete = json!({"status": {"conditions": [{"type": "Complete", "status": "True"}]}});
    let params = kube::api::PatchParams::default();
    widgets.patch_status("w", &params, &kube::api::Patch::Merge(complete)).await.unwrap();
    cluster.wait_state(Group::Mcad, "w", "Completed", "Completed").await;
    sleep(30 * SECOND).await;
    assert_eq!(kinds(&controller), ["Widget"]);
    assert_eq!(controller.index.read().unwrap().objects_of(&uid).count(), 1);
    sleep(31 * SECOND).await;
    assert_eq!(kinds(&controller), Vec::<String>::new());
    assert_eq!(controller.index.read().unwrap().objects_of(&uid).count(), 0);
    drop(controller);

    // A finished AppWrapper is no reason to wait for its kind.
    failures.set("/apis/example.com/v1", Failure::Silent);
    let controller = restart(&cluster, &failures, "a", SECOND).await;
    assert_eq!(kinds(&controller), ["ConfigMap"]);
    failures.clear();
    cluster.submit(gang("again", "example.com/v1", "Widget")).await;
    cluster.wait_state(Group::Mcad, "again", "Running", "Dispatched").await;
}
