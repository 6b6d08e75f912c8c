//! The controller lacks a permission: no gang fails, no other gang is blocked for ever, and the status and Events
//! name the permission.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::{Cluster, Group, config_maps, example, ray_clusters, resource, story, wrappers};
use apiserver::User;
use controllers::{Config, Observer, install_crds};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tower::ServiceExt;

const ACCOUNT: &str = "system:serviceaccount:muster:muster";

/// A cluster of one node, and a client with the permissions of `deploy/rbac.yaml`.
async fn cluster() -> (Cluster, Client) {
    let cluster = Cluster::new().await;
    cluster.node("n", &json!({"cpu": "4", "memory": "64Gi", "pods": "110"})).await;
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/rbac.yaml");
    let text = std::fs::read_to_string(path).unwrap();
    for object in serde_saphyr::from_multiple::<Value>(&text).unwrap() {
        grant(&cluster, object).await;
    }
    let account = cluster.service.as_user(User::new(ACCOUNT, &["system:serviceaccounts"]));
    (cluster, Client::new(account, "default"))
}

async fn grant(cluster: &Cluster, object: Value) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let resource = resource(&api_version, &kind, &format!("{}s", kind.to_lowercase()));
    cluster.create_as(&resource, &text(&object["metadata"]["namespace"]), object).await;
}

/// Grants the controller these verbs on Secrets, so that AppWrappers can wrap them.
async fn grant_secrets(cluster: &Cluster, name: &str, verbs: &[&str]) {
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": name, "labels": {"muster.dev/wrapped": "true"}},
        "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": verbs}],
    });
    grant(cluster, role).await;
}

/// A gang without pods that holds so many CPUs as long as it exists.
fn gang(kind: &str, name: &str, cpus: u32) -> Value {
    let object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}});
    let declared = json!([{"replicas": 1, "requests": {"cpu": cpus}}]);
    json!({
        "apiVersion": Group::Mcad.api_version(), "kind": "AppWrapper", "metadata": {"name": name},
        "spec": {"resources": {"GenericItems": [
            {"replicas": 1, "custompodresources": declared, "generictemplate": object},
        ]}},
    })
}

/// Waits until the status of an AppWrapper has this message.
async fn wait_message(cluster: &Cluster, name: &str, message: &str) -> Value {
    let is_told = |wrapper: &kube::api::DynamicObject| {
        wrapper.data["status"]["message"].as_str().unwrap_or_default() == message
    };
    cluster.wait(&wrappers(Group::Mcad), "default", name, is_told).await.data["status"].clone()
}

fn secrets() -> kube::core::ApiResource {
    resource("v1", "Secret", "secrets")
}

const CANNOT_CREATE: &str = "not allowed: system:serviceaccount:muster:muster cannot create secrets in namespace default; a ClusterRole labelled muster.dev/wrapped: \"true\" can grant it";

#[tokio::test(start_paused = true)]
async fn with_the_deployed_permissions_gangs_start_and_end() {
    let (cluster, account) = cluster().await;
    let _controller = cluster.controller_over(account);
    for name in ["a", "b"] {
        cluster.submit(gang("ConfigMap", name, 4)).await;
        cluster.wait_state(Group::Mcad, name, "Running", "Dispatched").await;
        cluster.delete(&wrappers(Group::Mcad), "default", name).await;
        cluster.wait_gone(&config_maps(), "default", name).await;
    }
}

#[tokio::test(start_paused = true)]
async fn with_the_deployed_permissions_clusters_of_the_codeflare_sdk_start_and_end() {
    let (cluster, account) = cluster().await;
    cluster.define("route.openshift.io", "Route", "routes", &["v1"]).await;
    let _controller = cluster.controller_over(account);
    let with_ingresses = example("aw-codeflare-sdk.yaml");
    // On OpenShift the SDK writes Routes.
    let mut with_routes = with_ingresses.clone();
    for item in &mut with_routes["spec"]["resources"]["GenericItems"].as_array_mut().unwrap()[1..] {
        let name = item["generictemplate"]["metadata"]["name"].clone();
        item["generictemplate"] = json!({"apiVersion": "route.openshift.io/v1", "kind": "Route",
            "metadata": {"name": name, "namespace": "default", "labels": {"odh-ray-cluster-service": "raytest-head-svc"}},
            "spec": {"port": {"targetPort": "dashboard"}, "to": {"kind": "Service", "name": "raytest-head-svc"}}});
    }
    let ingresses = resource("networking.k8s.io/v1", "Ingress", "ingresses");
    let routes = resource("route.openshift.io/v1", "Route", "routes");
    for (wrapper, exposed) in [(with_ingresses, &ingresses), (with_routes, &routes)] {
        cluster.submit(wrapper).await;
        cluster.wait_state(Group::Codeflare, "raytest", "Running", "Dispatched").await;
        for name in ["ray-dashboard-raytest", "rayclient-raytest"] {
            cluster.wait(exposed, "default", name, |_| true).await;
        }
        cluster.delete(&wrappers(Group::Codeflare), "default", "raytest").await;
        cluster.wait_gone(&ray_clusters(), "default", "raytest").await;
        cluster.wait_gone(exposed, "default", "rayclient-raytest").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_gang_with_forbidden_objects_reports_the_permission_and_starts_when_it_is_granted() {
    let (cluster, account) = cluster().await;
    grant_secrets(&cluster, "almost", &["get", "list", "watch"]).await;
    let _controller = cluster.controller_over(account);
    cluster.submit(gang("Secret", "a", 4)).await;
    let status = wait_message(&cluster, "a", CANNOT_CREATE).await;
    assert_eq!((&status["state"], &status["canrun"]), (&json!("Pending"), &json!(true)));
    let config = Config { clock: cluster.clock.clone(), ..Config::default() };
    let observer = Observer::of(cluster.client.clone(), config).await.unwrap();
    assert_eq!(observer.why("default", "a")[0].wrapper().unwrap().denied.as_deref(), Some(CANNOT_CREATE));
    observer.close().await;
    cluster.submit(gang("ConfigMap", "b", 1)).await;
    cluster.wait_state(Group::Mcad, "b", "Pending", "HeadOfLine").await;
    sleep(Duration::from_mins(1)).await;
    assert_eq!(cluster.events().await.iter().filter(|event| event.starts_with("a NotAllowed")).count(), 1);

    grant_secrets(&cluster, "rest", &["create", "delete"]).await;
    let started = cluster.wait_state(Group::Mcad, "a", "Running", "Dispatched").await;
    assert!(started["message"].is_null(), "{started}");
    assert!(story(&started).iter().all(|line| !line.starts_with("Failed")), "{started}");
}

#[tokio::test(start_paused = true)]
async fn a_gang_forbidden_for_too_long_releases_its_nodes_and_is_retried_when_the_permission_is_granted() {
    let (cluster, account) = cluster().await;
    grant_secrets(&cluster, "almost", &["delete", "get", "list", "watch"]).await;
    let _controller = cluster.controller_over(account);
    // The first object exists when the second one is forbidden.
    let mut wrapper = gang("ConfigMap", "a", 4);
    let secret = gang("Secret", "a", 1)["spec"]["resources"]["GenericItems"][0].take();
    wrapper["spec"]["resources"]["GenericItems"].as_array_mut().unwrap().push(secret);
    wrapper["spec"]["schedulingSpec"] = json!({"requeuing": {"timeInSeconds": 60, "maxNumRequeuings": 1}});
    wrapper["spec"]["resources"]["GenericItems"][1]["custompodresources"] = json!([]);
    cluster.submit(wrapper).await;
    cluster.wait(&config_maps(), "default", "a", |_| true).await;
    let began = Instant::now();
    cluster.submit(gang("ConfigMap", "b", 4)).await;
    cluster.wait_state(Group::Mcad, "b", "Running", "Dispatched").await;
    let kept = began.elapsed();
    assert!((60..90).contains(&kept.as_secs()), "it kept its nodes for {kept:?}");
    cluster.wait_gone(&config_maps(), "default", "a").await;
    let held = wait_message(&cluster, "a", CANNOT_CREATE).await;
    assert_eq!((&held["state"], &held["canrun"]), (&json!("Pending"), &Value::Null), "{held}");
    assert!(held["numberOfRequeueings"].is_null(), "a missing permission is no requeueing of the gang");
    assert!(story(&held).contains(&format!("Preempted NotAllowed {CANNOT_CREATE}")), "{held}");

    // The gang blocks and preempts no other gang until it can start.
    cluster.delete(&wrappers(Group::Mcad), "default", "b").await;
    cluster.submit(gang("ConfigMap", "c", 4)).await;
    cluster.wait_state(Group::Mcad, "c", "Running", "Dispatched").await;
    grant_secrets(&cluster, "rest", &["create"]).await;
    let waits = |wrapper: &kube::api::DynamicObject| {
        wrapper.data["status"]["message"].as_str().unwrap_or_default().contains("needs 4 cpu")
    };
    cluster.wait(&wrappers(Group::Mcad), "default", "a", waits).await;
    cluster.delete(&wrappers(Group::Mcad), "default", "c").await;
    cluster.wait_state(Group::Mcad, "a", "Running", "Dispatched").await;
    cluster.wait(&secrets(), "default", "a", |_| true).await;
}

#[tokio::test(start_paused = true)]
async fn objects_that_may_not_be_deleted_keep_their_nodes_and_the_status_says_why() {
    let (cluster, account) = cluster().await;
    grant_secrets(&cluster, "almost", &["create", "get", "list", "watch"]).await;
    let _controller = cluster.controller_over(account);
    let mut limited = gang("Secret", "a", 4);
    limited["spec"]["schedulingSpec"] = json!({"dispatchDuration": {"limit": 30}});
    cluster.submit(limited).await;
    cluster.wait_state(Group::Mcad, "a", "Running", "Dispatched").await;
    let why = CANNOT_CREATE.replace("create", "delete");
    wait_message(&cluster, "a", &why).await;
    cluster.submit(gang("ConfigMap", "b", 4)).await;
    cluster.wait_state(Group::Mcad, "b", "Pending", "HeadOfLine").await;
    sleep(Duration::from_mins(5)).await;
    assert_eq!(cluster.names(&secrets(), "default").await, ["a"]);
    assert_eq!(cluster.events().await.iter().filter(|event| event.starts_with("a NotAllowed")).count(), 1);

    grant_secrets(&cluster, "rest", &["delete"]).await;
    let failed = cluster.wait_state(Group::Mcad, "a", "Failed", "Failed").await;
    assert!(failed["message"].is_null(), "{failed}");
    cluster.wait_state(Group::Mcad, "b", "Running", "Dispatched").await;
}

#[tokio::test(start_paused = true)]
async fn when_a_kind_may_not_be_watched_only_its_appwrappers_stay_pending() {
    let (cluster, account) = cluster().await;
    let controller = cluster.controller_over(account.clone());
    cluster.submit(gang("Secret", "a", 4)).await;
    let why = CANNOT_CREATE.replace("create", "list").replace("namespace default", "all namespaces");
    wait_message(&cluster, "a", &why).await;
    assert_eq!(cluster.events().await, [format!("a NotAllowed: {why}")]);
    // The same after a restart of the controller.
    drop(controller);
    let _controller = cluster.controller_over(account);
    cluster.submit(gang("ConfigMap", "b", 4)).await;
    cluster.wait_state(Group::Mcad, "b", "Running", "Dispatched").await;
    cluster.delete(&wrappers(Group::Mcad), "default", "b").await;

    grant_secrets(&cluster, "all", &["create", "delete", "get", "list", "watch"]).await;
    cluster.wait_state(Group::Mcad, "a", "Running", "Dispatched").await;
    cluster.wait(&secrets(), "default", "a", |_| true).await;
}

#[tokio::test(start_paused = true)]
async fn a_forbidden_watch_is_retried_with_backoff() {
    let (cluster, _) = cluster().await;
    let lists = Arc::new(AtomicUsize::new(0));
    let counted = lists.clone();
    let blind = forbidding(&cluster, move |request| {
        let is_list = is(request, &Method::GET, "/api/v1/secrets");
        is_list.then(|| {
            counted.fetch_add(1, Ordering::Relaxed);
            denied("list", "secrets", "")
        })
    });
    let _controller = cluster.controller_over(blind);
    cluster.submit(gang("Secret", "a", 4)).await;
    sleep(Duration::from_mins(1)).await;
    let lists = lists.load(Ordering::Relaxed);
    assert!((10..20).contains(&lists), "{lists} lists in a minute");
}

#[tokio::test(start_paused = true)]
async fn existing_crds_are_used_without_the_permission_to_install_them() {
    let (cluster, account) = cluster().await;
    install_crds(account.clone(), &Group::ALL, api::appwrapper::Columns::default()).await.unwrap();
    let definitions =
        resource("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions");
    let may_not = forbidding(&cluster, |request| {
        let may = request.method() == Method::GET;
        (!may).then(|| denied("patch", "customresourcedefinitions", "apiextensions.k8s.io"))
    });
    install_crds(may_not.clone(), &Group::ALL, api::appwrapper::Columns::default()).await.unwrap();
    cluster.delete(&definitions, "", "appwrappers.mcad.ibm.com").await;
    cluster.wait_gone(&definitions, "", "appwrappers.mcad.ibm.com").await;
    let error = install_crds(may_not, &Group::ALL, api::appwrapper::Columns::default()).await.unwrap_err();
    assert!(error.to_string().ends_with("the roles in deploy/rbac.yaml grant it"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn pods_that_may_not_be_ungated_are_reported_once_and_ungated_when_it_is_allowed() {
    let (cluster, _) = cluster().await;
    let may = Arc::<AtomicBool>::default();
    let may_lift = may.clone();
    let gated = forbidding(&cluster, move |request| {
        let is_lift = is(request, &Method::PATCH, "/api/v1/namespaces/default/pods/a");
        (is_lift && !may_lift.load(Ordering::Relaxed)).then(|| denied("patch", "pods", ""))
    });
    let _controller = cluster.controller_over(gated);
    let containers = json!([{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]);
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": containers}});
    let mut wrapper = gang("Pod", "a", 1);
    wrapper["spec"] = json!({"resources": {"GenericItems": [{"generictemplate": pod}]}});
    cluster.submit(wrapper).await;
    sleep(Duration::from_mins(2)).await;
    let right = "not allowed: m cannot patch pods in namespace default";
    let told = format!("a NotAllowed: {right}; the roles in deploy/rbac.yaml grant it");
    assert_eq!(cluster.events().await, [told]);

    may.store(true, Ordering::Relaxed);
    let is_let_go = |pod: &kube::api::DynamicObject| pod.data["spec"]["schedulingGates"].is_null();
    cluster.wait(&resource("v1", "Pod", "pods"), "default", "a", is_let_go).await;
}

/// A client whose requests get a 403 response as long as `refuse` returns a message.
fn forbidding(
    cluster: &Cluster,
    refuse: impl Fn(&Request<Body>) -> Option<String> + Send + Sync + 'static,
) -> Client {
    failing(cluster, move |request| Some((403, refuse(request)?)))
}

/// A client for which the API server answers some requests with this code and message.
pub(crate) fn failing(
    cluster: &Cluster,
    refuse: impl Fn(&Request<Body>) -> Option<(u16, String)> + Send + Sync + 'static,
) -> Client {
    let (service, refuse) = (cluster.service.clone(), Arc::new(refuse));
    let client = tower::service_fn(move |request: Request<Body>| {
        let (service, refuse) = (service.clone(), refuse.clone());
        async move {
            let Some((code, message)) = refuse(&request) else {
                let answer = service.oneshot(request).await.unwrap();
                return Ok::<_, std::io::Error>(
                    answer.map(|body| body.map_err(|never| match never {}).boxed_unsync()),
                );
            };
            let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": message, "reason": if code == 403 { "Forbidden" } else { "" }, "code": code});
            let answer = Response::builder().status(code).header("Content-Type", "application/json");
            Ok(answer.body(Full::from(status.to_string()).boxed_unsync()).unwrap())
        }
    });
    Client::new(client, "default")
}

pub(crate) fn denied(verb: &str, resource: &str, group: &str) -> String {
    format!(
        "{resource} is forbidden: User \"m\" cannot {verb} resource \"{resource}\" in API group \"{group}\" in the namespace \"default\""
    )
}

fn is(request: &Request<Body>, method: &Method, path: &str) -> bool {
    request.method() == method && request.uri().path() == path
}

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test(start_paused = true)]
async fn a_permission_that_is_missing_for_a_moment_is_not_reported() {
    let (cluster, _) = cluster().await;
    let tries = AtomicUsize::new(0);
    let blink = forbidding(&cluster, move |request| {
        let is_first = is(request, &Method::POST, CONFIG_MAPS) && tries.fetch_add(1, Ordering::Relaxed) == 0;
        is_first.then(|| denied("create", "configmaps", ""))
    });
    let _controller = cluster.controller_over(blink);
    cluster.submit(gang("ConfigMap", "a", 4)).await;
    cluster.wait_state(Group::Mcad, "a", "Running", "Dispatched").await;
    assert_eq!(cluster.events().await, Vec::<String>::new());
}

/// A quota that refuses the `ConfigMap` `a` until it is lifted, and the number of refusals.
fn quota(cluster: &Cluster) -> (kube::Client, Arc<AtomicBool>, Arc<AtomicUsize>) {
    let (is_lifted, refusals) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
    let (lifted, count) = (is_lifted.clone(), refusals.clone());
    let client = forbidding(cluster, move |request| {
        if lifted.load(Ordering::Relaxed) || !is(request, &Method::POST, CONFIG_MAPS) {
            return None;
        }
        count.fetch_add(1, Ordering::Relaxed);
        Some(format!("configmaps \"a\" is forbidden: {EXCEEDED}"))
    });
    (client, is_lifted, refusals)
}

const EXCEEDED: &str =
    "exceeded quota: q, requested: count/configmaps=1, used: count/configmaps=1, limited: count/configmaps=1";

#[tokio::test(start_paused = true)]
async fn an_object_that_admission_rejects_is_retried_and_the_gang_starts_when_it_is_admitted() {
    let (cluster, _) = cluster().await;
    let (client, is_lifted, refusals) = quota(&cluster);
    let _controller = cluster.controller_over(client);
    cluster.submit(gang("ConfigMap", "a", 4)).await;
    let why = format!("not admitted, retrying: configmaps \"a\" is forbidden: {EXCEEDED}");
    wait_message(&cluster, "a", &why).await;
    assert_eq!(cluster.events().await, [format!("a NotAdmitted: {why}")]);
    sleep(Duration::from_mins(2)).await;
    let tries = refusals.load(Ordering::Relaxed);
    assert!((8..20).contains(&tries), "{tries} tries in 2 min");
    is_lifted.store(true, Ordering::Relaxed);
    let started = cluster.wait_state(Group::Mcad, "a", "Running", "Dispatched").await;
    assert!(started["message"].is_null(), "{started}");
}

/// The names of the `ConfigMap`s that an AppWrapper created.
async fn own_config_maps(cluster: &Cluster) -> Vec<String> {
    let mut names = cluster.names(&config_maps(), "default").await;
    names.retain(|name| name != "kube-root-ca.crt");
    names
}

/// A gang of the `ConfigMap`s `first` and `a`.
fn two_config_maps() -> Value {
    let mut two = gang("ConfigMap", "a", 4);
    let first = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "first"}});
    two["spec"]["resources"]["GenericItems"]
        .as_array_mut()
        .unwrap()
        .insert(0, json!({"generictemplate": first}));
    two
}

/// The second `ConfigMap` of a gang is refused with this code and message, as long as it is not lifted.
fn second_refused(cluster: &Cluster, code: u16, message: &'static str) -> (Client, Arc<AtomicBool>) {
    let (is_lifted, creations) = (Arc::<AtomicBool>::default(), AtomicUsize::new(0));
    let lifted = is_lifted.clone();
    let client = failing(cluster, move |request| {
        if lifted.load(Ordering::Relaxed) || !is(request, &Method::POST, CONFIG_MAPS) {
            return None;
        }
        let is_second = creations.fetch_add(1, Ordering::Relaxed) % 2 == 1;
        is_second.then(|| (code, message.to_owned()))
    });
    (client, is_lifted)
}

#[tokio::test(start_paused = true)]
async fn no_object_of_a_gang_remains_while_another_one_is_refused() {
    for (code, message) in [
        (403, "pods \"a\" is forbidden: violates PodSecurity \"restricted:latest\": privileged"),
        (
            403,
            "configmaps \"a\" is forbidden: unable to create new content in namespace default because it is being terminated",
        ),
        (400, "admission webhook \"check.example.com\" denied the request: no team label"),
        (
            422,
            "configmaps \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no",
        ),
        (404, "namespaces \"default\" not found"),
        (404, "the server could not find the requested resource"),
        (409, "Operation cannot be fulfilled on resourcequotas \"q\": the object has been modified"),
        (429, "too many requests"),
        (
            500,
            "Internal error occurred: failed calling webhook \"check.example.com\": no endpoints available",
        ),
    ] {
        let (cluster, _) = cluster().await;
        let (client, is_lifted) = second_refused(&cluster, code, message);
        let _controller = cluster.controller_over(client);
        cluster.submit(two_config_maps()).await;
        let why = format!("not admitted, retrying: {message}");
        wait_message(&cluster, "a", &why).await;
        sleep(Duration::from_secs(100)).await;
        assert_eq!(own_config_maps(&cluster).await, Vec::<String>::new(), "{message}");
        assert_eq!(cluster.events().await, [format!("a NotAdmitted: {why}")]);
        is_lifted.store(true, Ordering::Relaxed);
        cluster.wait_state(Group::Mcad, "a", "Running", "Dispatched").await;
        assert_eq!(own_config_maps(&cluster).await, ["a", "first"]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_invalid_fails_the_gang() {
    for code in [400, 422] {
        let (cluster, _) = cluster().await;
        let (client, _) = second_refused(&cluster, code, "ConfigMap \"a\" is invalid: data: Invalid value");
        let _controller = cluster.controller_over(client);
        cluster.submit(two_config_maps()).await;
        cluster.wait_state(Group::Mcad, "a", "Failed", "Failed").await;
        assert_eq!(own_config_maps(&cluster).await, Vec::<String>::new());
    }
}

#[tokio::test(start_paused = true)]
async fn a_gang_starts_soon_after_the_quota_is_lifted() {
    let (cluster, _) = cluster().await;
    let (client, is_lifted, _) = quota(&cluster);
    let _controller = cluster.controller_over(client);
    cluster.submit(gang("ConfigMap", "a", 4)).await;
    sleep(Duration::from_secs(2)).await;
    is_lifted.store(true, Ordering::Relaxed);
    let lifted = Instant::now();
    cluster.wait_state(Group::Mcad, "a", "Running", "Dispatched").await;
    assert!(lifted.elapsed() < Duration::from_millis(1_300), "{:?}", lifted.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_gang_whose_objects_are_not_admitted_releases_its_nodes_after_its_patience_and_is_tried_again() {
    let (cluster, _) = cluster().await;
    let (client, is_lifted, _) = quota(&cluster);
    let _controller = cluster.controller_over(client);
    let mut refused = gang("ConfigMap", "a", 4);
    refused["spec"]["schedulingSpec"] = json!({"requeuing": {"timeInSeconds": 60}});
    cluster.submit(refused).await;
    cluster.submit(gang("Secret", "b", 4)).await;
    cluster.wait_state(Group::Mcad, "b", "Running", "Dispatched").await;
    cluster.delete(&wrappers(Group::Mcad), "default", "b").await;
    is_lifted.store(true, Ordering::Relaxed);
    cluster.wait_state(Group::Mcad, "a", "Running", "Dispatched").await;
}

#[tokio::test(start_paused = true)]
async fn a_forbidden_status_write_is_reported_by_an_event() {
    let (cluster, _) = cluster().await;
    let tries = AtomicUsize::new(0);
    let mute = forbidding(&cluster, move |request| {
        let is_status = request.uri().path().ends_with("/appwrappers/a/status");
        let is_early = is_status && tries.fetch_add(1, Ordering::Relaxed) < 5;
        is_early.then(|| denied("patch", "appwrappers/status", "mcad.ibm.com"))
    });
    let _controller = cluster.controller_over(mute);
    cluster.submit(gang("ConfigMap", "a", 4)).await;
    cluster.wait_state(Group::Mcad, "a", "Running", "Dispatched").await;
    let right = "not allowed: m cannot patch appwrappers/status of mcad.ibm.com in namespace default";
    assert_eq!(
        cluster.events().await,
        [
            format!("a NotAllowed: {right}; the roles in deploy/rbac.yaml grant it"),
            "a Dispatched: all pods have a node, all objects were created".into(),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_forbidden_block_owner_deletion_names_the_missing_permission() {
    let (cluster, _) = cluster().await;
    let why = "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: , <nil>";
    let strict = forbidding(&cluster, move |request| {
        is(request, &Method::POST, CONFIG_MAPS).then(|| format!("configmaps \"a\" is forbidden: {why}"))
    });
    let _controller = cluster.controller_over(strict);
    cluster.submit(gang("ConfigMap", "a", 4)).await;
    let right = "not allowed: this controller cannot update appwrappers/finalizers of mcad.ibm.com in namespace default";
    wait_message(&cluster, "a", &format!("{right}; the roles in deploy/rbac.yaml grant it")).await;
}
