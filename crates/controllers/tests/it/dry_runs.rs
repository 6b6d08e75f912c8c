//! What admission makes of pods is known before their gang starts: `LimitRange`, `RuntimeClass`, webhooks; and what a gang
//! does when a dry run is refused or fails.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::gang_pods::{self, create_pod, jobs, run};
use crate::common::{Cluster, Group, Running, resource, wrappers};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use kube::Client;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::client::Body;
use kube::core::ApiResource;
use serde_json::{Value, json};
use tower::ServiceExt;

/// What a webhook does with a pod: it changes it, or the request is answered with this code and message.
type Webhook = Box<dyn Fn(&mut Value) -> Result<(), (u16, String)> + Send>;

/// The admission of pods on their way from the controller to the API server. Counts dry runs.
#[derive(Clone)]
struct Admission {
    webhook: Arc<Mutex<Webhook>>,
    dry_runs: Arc<AtomicUsize>,
}

impl Admission {
    fn new() -> Self {
        let webhook: Webhook = Box::new(|_| Ok(()));
        Self { webhook: Arc::new(Mutex::new(webhook)), dry_runs: Arc::default() }
    }

    fn set(&self, webhook: impl Fn(&mut Value) -> Result<(), (u16, String)> + Send + 'static) {
        *self.webhook.lock().unwrap() = Box::new(webhook);
    }

    fn dry_runs(&self) -> usize {
        self.dry_runs.load(Ordering::Relaxed)
    }

    fn client(&self, cluster: &Cluster) -> Client {
        let (admission, service) = (self.clone(), cluster.service.clone());
        let client = tower::service_fn(move |request: Request<Body>| {
            let (admission, service) = (admission.clone(), service.clone());
            async move {
                let is_pod = request.method() == Method::POST && request.uri().path().ends_with("/pods");
                let (parts, body) = request.into_parts();
                let mut body = body.collect().await.unwrap().to_bytes();
                if is_pod {
                    let is_dry = parts.uri.query().is_some_and(|query| query.contains("dryRun=All"));
                    admission.dry_runs.fetch_add(usize::from(is_dry), Ordering::Relaxed);
                    let mut pod: Value = serde_json::from_slice(&body).unwrap();
                    let changed = (admission.webhook.lock().unwrap())(&mut pod);
                    if let Err((code, message)) = changed {
                        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                            "code": code, "reason": "", "message": message});
                        let answer = Response::builder().status(code);
                        return Ok(answer.body(Full::from(status.to_string()).boxed_unsync()).unwrap());
                    }
                    body = pod.to_string().into();
                }
                let answer = service.oneshot(Request::from_parts(parts, Body::from(body))).await?;
                Ok::<_, std::convert::Infallible>(
                    answer.map(|body| body.map_err(|never| match never {}).boxed_unsync()),
                )
            }
        });
        Client::new(client, "default")
    }

    fn controller(&self, cluster: &Cluster) -> Running {
        cluster.controller_over(self.client(cluster))
    }
}

/// Four nodes of four CPUs.
async fn cluster() -> Cluster {
    gang_pods::cluster(&["a", "b", "c", "d"]).await
}

/// An AppWrapper of a Job with so many pods of this template.
fn gang(name: &str, pods: u32, spec: &Value) -> Value {
    let mut spec = spec.clone();
    spec["restartPolicy"] = json!("Never");
    if spec["containers"].is_null() {
        spec["containers"] = json!([{"name": "c", "image": "i"}]);
    }
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {"parallelism": pods, "completions": pods, "template": {"spec": spec}}});
    json!({"apiVersion": Group::Mcad.api_version(), "kind": "AppWrapper", "metadata": {"name": name, "namespace": "default"},
        "spec": {"resources": {"GenericItems": [{"generictemplate": job}]}}})
}

fn ranges() -> ApiResource {
    resource("v1", "LimitRange", "limitranges")
}

/// A `LimitRange` with this default request and this maximum of CPU.
async fn limit_range(cluster: &Cluster, default: &str, max: &str) {
    let limit = json!({"type": "Container", "defaultRequest": {"cpu": default}, "default": {"cpu": max}, "max": {"cpu": max}});
    let range = json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "r"}, "spec": {"limits": [limit]}});
    cluster.create_as(&ranges(), "default", range).await;
}

/// Registers a webhook for the pods of namespaces with these labels. The test plays the webhook: the API server does not
/// call it, by its match condition.
async fn webhook(cluster: &Cluster, namespaces: &Value) {
    let rule =
        json!({"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]});
    let webhook = json!({"name": "sidecar.example.com", "rules": [rule], "sideEffects": "None", "namespaceSelector": namespaces,
        "admissionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1/"},
        "matchConditions": [{"name": "never", "expression": "false"}]});
    let configuration = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "sidecars"}, "webhooks": [webhook]});
    let resource = resource(
        "admissionregistration.k8s.io/v1",
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
    );
    cluster.create_as(&resource, "", configuration).await;
}

/// Adds a sidecar with this request of CPU.
fn sidecar(cpu: &'static str) -> impl Fn(&mut Value) -> Result<(), (u16, String)> {
    move |pod| {
        let sidecar = json!({"name": "proxy", "image": "proxy", "resources": {"requests": {"cpu": cpu}}});
        pod["spec"]["containers"].as_array_mut().unwrap().push(sidecar);
        Ok(())
    }
}

fn cpu(request: &str) -> Value {
    json!({"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": request}}}]})
}

async fn wait_message(cluster: &Cluster, name: &str, part: &str) {
    let is_told = |wrapper: &DynamicObject| {
        wrapper.data["status"]["message"].as_str().unwrap_or_default().contains(part)
    };
    cluster.wait(&wrappers(Group::Mcad), "default", name, is_told).await;
}

async fn wait_created(cluster: &Cluster, name: &str) -> DynamicObject {
    cluster.wait(&jobs(), "default", name, |_| true).await
}

#[tokio::test(start_paused = true)]
async fn the_default_requests_of_a_limit_range_count_before_the_start() {
    let cluster = cluster().await;
    limit_range(&cluster, "500m", "2").await;
    let admission = Admission::new();
    let _controller = admission.controller(&cluster);
    cluster.submit(gang("forty", 40, &json!({}))).await;
    wait_message(&cluster, "forty", "room for 32 of 40 pods, each needs 500m cpu").await;
    cluster.submit(gang("twenty", 20, &json!({}))).await;
    wait_created(&cluster, "twenty").await;
    assert_eq!(admission.dry_runs(), 1, "both have the same template");
}

#[tokio::test(start_paused = true)]
async fn a_changed_limit_range_is_seen_by_gangs_that_wait() {
    let cluster = cluster().await;
    limit_range(&cluster, "500m", "2").await;
    let admission = Admission::new();
    let controller = admission.controller(&cluster);
    cluster.submit(gang("g", 40, &json!({}))).await;
    wait_message(&cluster, "g", "room for 32 of 40 pods, each needs 500m cpu").await;
    drop(controller);
    let _controller = admission.controller(&cluster);
    tokio::time::sleep(Duration::from_mins(1)).await;
    wait_message(&cluster, "g", "room for 32 of 40 pods, each needs 500m cpu").await;
    assert_eq!(admission.dry_runs(), 2, "one for each process");
    let limits = json!({"spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": "400m"}}]}});
    let api = cluster.api(&ranges(), "default");
    api.patch("r", &PatchParams::default(), &Patch::Merge(limits)).await.unwrap();
    wait_created(&cluster, "g").await;
    assert_eq!(admission.dry_runs(), 3);
}

#[tokio::test(start_paused = true)]
async fn dry_runs_are_spared_where_nothing_can_change_pods() {
    let cluster = cluster().await;
    let claims = json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "claims"},
        "spec": {"limits": [{"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}}]}});
    cluster.create_as(&ranges(), "default", claims).await;
    webhook(&cluster, &json!({"matchLabels": {"injects": "yes"}})).await;
    let admission = Admission::new();
    let _controller = admission.controller(&cluster);
    cluster.submit(gang("g", 2, &json!({}))).await;
    wait_created(&cluster, "g").await;
    assert_eq!(admission.dry_runs(), 0);
    cluster.annotate_namespace("default", &json!({"labels": {"injects": "yes"}})).await;
    cluster.submit(gang("h", 2, &json!({}))).await;
    wait_created(&cluster, "h").await;
    assert_eq!(admission.dry_runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_overhead_of_a_runtime_class_and_its_nodes_are_planned() {
    let cluster = cluster().await;
    let class = json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "kata"}, "handler": "kata",
        "overhead": {"podFixed": {"cpu": "1"}}, "scheduling": {"nodeSelector": {"kubernetes.io/hostname": "b"}}});
    cluster.create_as(&resource("node.k8s.io/v1", "RuntimeClass", "runtimeclasses"), "", class).await;
    let admission = Admission::new();
    let _controller = admission.controller(&cluster);
    let mut spec = cpu("1");
    spec["runtimeClassName"] = json!("kata");
    cluster.submit(gang("four", 4, &spec)).await;
    wait_message(&cluster, "four", "room for 2 of 4 pods, each needs 2 cpu").await;
    cluster.submit(gang("two", 2, &spec)).await;
    let job = wait_created(&cluster, "two").await;
    assert!(job.metadata.annotations.unwrap().values().any(|text| text == "[{\"b\":2}]"));
    cluster.submit(gang("plain", 12, &cpu("1"))).await;
    wait_created(&cluster, "plain").await;
    assert_eq!(admission.dry_runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_injected_sidecar_is_planned() {
    let cluster = cluster().await;
    webhook(&cluster, &json!({})).await;
    let admission = Admission::new();
    admission.set(sidecar("1"));
    let _controller = admission.controller(&cluster);
    cluster.submit(gang("ten", 10, &cpu("1"))).await;
    wait_message(&cluster, "ten", "room for 8 of 10 pods, each needs 2 cpu").await;
    cluster.submit(gang("eight", 8, &cpu("1"))).await;
    wait_created(&cluster, "eight").await;
    assert_eq!(admission.dry_runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_gang_whose_pods_would_be_refused_waits_with_the_text_of_the_refusal() {
    let cluster = cluster().await;
    limit_range(&cluster, "500m", "2").await;
    let admission = Admission::new();
    let _controller = admission.controller(&cluster);
    let mut large = cpu("3");
    large["containers"][0]["resources"]["limits"] = json!({"cpu": "3"});
    cluster.submit(gang("large", 2, &large)).await;
    let refused = "job: its pods are refused, retrying: pods \"large-*\" is forbidden: \
        maximum cpu usage per Container is 2, but limit is 3";
    wait_message(&cluster, "large", refused).await;
    cluster.submit(gang("other", 2, &json!({}))).await;
    wait_created(&cluster, "other").await;
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert!(admission.dry_runs() < 20, "{} dry runs", admission.dry_runs());
    assert_eq!(cluster.names(&jobs(), "default").await, ["other"]);
    assert_eq!(cluster.events().await.iter().filter(|text| text.starts_with("large ")).count(), 1);
    cluster.delete(&ranges(), "default", "r").await;
    wait_created(&cluster, "large").await;
}

#[tokio::test(start_paused = true)]
async fn a_failing_dry_run_is_told_and_the_gang_is_planned_with_its_template() {
    let forbidden = "pods is forbidden: User \"m\" cannot create resource \"pods\" in API group \"\" in the namespace \"default\"";
    let cases = [
        (403, forbidden, "not allowed: m cannot create pods in namespace default", 1),
        (429, "too many requests", "the API server fails: too many requests", 3),
        (400, "admission webhook \"w\" does not support dry run", "does not support dry run", 1),
        (403, "pods \"g\" is forbidden: exceeded quota: q", "exceeded quota: q", 1),
    ];
    for (code, message, told, attempts) in cases {
        let cluster = cluster().await;
        limit_range(&cluster, "500m", "2").await;
        let admission = Admission::new();
        admission.set(move |_| Err((code, message.to_owned())));
        let _controller = admission.controller(&cluster);
        cluster.submit(gang("g", 2, &json!({}))).await;
        wait_created(&cluster, "g").await;
        wait_message(&cluster, "g", told).await;
        let events = cluster.events().await;
        let is_told = |text: &String| text.starts_with("g NotPlanned: ") && text.contains(told);
        assert_eq!(events.iter().filter(|text| is_told(text)).count(), 1, "{events:?}");
        assert_eq!(admission.dry_runs(), attempts);
        // A running gang needs no answer any more.
        tokio::time::sleep(Duration::from_mins(10)).await;
        assert!(admission.dry_runs() <= attempts + 1, "{} dry runs", admission.dry_runs());
    }
}

#[tokio::test(start_paused = true)]
async fn a_gang_waits_for_a_webhook_that_is_down_and_others_do_not() {
    let cluster = cluster().await;
    webhook(&cluster, &json!({})).await;
    let admission = Admission::new();
    admission.set(|pod| match pod["spec"]["containers"][0]["name"].as_str() {
        Some("broken") => Err((500, "Internal error occurred: failed calling webhook \"w\": refused".into())),
        _ => Ok(()),
    });
    let _controller = admission.controller(&cluster);
    cluster.submit(gang("waits", 1, &json!({"containers": [{"name": "broken", "image": "i"}]}))).await;
    wait_message(&cluster, "waits", "failed calling webhook").await;
    cluster.submit(gang("other", 1, &json!({}))).await;
    wait_created(&cluster, "other").await;
    admission.set(|_| Ok(()));
    wait_created(&cluster, "waits").await;
}

#[tokio::test(start_paused = true)]
async fn pods_that_come_larger_than_planned_correct_the_plans_of_equal_templates() {
    let cluster = cluster().await;
    let admission = Admission::new();
    let controller = admission.controller(&cluster);
    cluster.submit(gang("first", 1, &cpu("1"))).await;
    let mut job = wait_created(&cluster, "first").await;
    assert_eq!(admission.dry_runs(), 0);
    // A webhook that no configuration shows makes the pod larger, and dry runs are not allowed.
    admission.set(|_| Err((403, "pods is forbidden: User \"m\" cannot create resource \"pods\" in API group \"\" in the namespace \"default\"".into())));
    let spec = &mut job.data["spec"]["template"]["spec"];
    spec["containers"][0]["resources"]["requests"]["cpu"] = json!("2");
    create_pod(&cluster, &job, "first-0").await;
    let node = gang_pods::host(&cluster, "first-0").await;
    run(&cluster, "first-0", &node).await;
    cluster.submit(gang("second", 10, &cpu("1"))).await;
    wait_message(&cluster, "second", "room for 8 of 10 pods, each needs 2 cpu").await;
    // A dry run knows better.
    admission.set(|_| Ok(()));
    wait_created(&cluster, "second").await;
    drop(controller);
}

#[tokio::test(start_paused = true)]
async fn a_gang_whose_pods_came_larger_than_planned_is_taken_back_before_a_part_of_it_starts() {
    for (pods, fits) in [(10, false), (6, true)] {
        let cluster = cluster().await;
        let admission = Admission::new();
        let _controller = admission.controller(&cluster);
        cluster.submit(gang("g", pods, &cpu("1"))).await;
        let mut job = wait_created(&cluster, "g").await;
        // The controller does not know yet of what makes the pods larger.
        admission.set(sidecar("1"));
        let container = &mut job.data["spec"]["template"]["spec"]["containers"][0];
        container["resources"]["requests"]["cpu"] = json!("2");
        for at in 0..pods {
            create_pod(&cluster, &job, &format!("g-{at}")).await;
        }
        if fits {
            let mut by_node = std::collections::BTreeMap::<String, u32>::new();
            for at in 0..pods {
                *by_node.entry(gang_pods::host(&cluster, &format!("g-{at}")).await).or_default() += 1;
            }
            assert!(by_node.values().all(|pods| *pods <= 2), "{by_node:?}");
            continue;
        }
        let begun = tokio::time::Instant::now();
        wait_message(&cluster, "g", "room for 8 of 10 pods, each needs 2 cpu").await;
        assert!(begun.elapsed() < Duration::from_secs(30), "after {:?}", begun.elapsed());
        assert!(cluster.names(&jobs(), "default").await.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_thousand_gangs_with_three_templates_cost_three_dry_runs() {
    let cluster = cluster().await;
    limit_range(&cluster, "500m", "2").await;
    webhook(&cluster, &json!({"matchLabels": {"injects": "yes"}})).await;
    let admission = Admission::new();
    let _controller = admission.controller(&cluster);
    for at in 0..1_000 {
        let mut spec = cpu(["500m", "1", "2"][at % 3]);
        // Only a webhook reads the arguments of a container.
        spec["containers"][0]["args"] = json!([format!("--run={at}")]);
        cluster.submit(gang(&format!("g{at}"), 1, &spec)).await;
    }
    wait_message(&cluster, "g999", "Position ").await;
    assert_eq!(admission.dry_runs(), 3);
}
