//! Webhooks that are called over HTTPS: what they are asked, and what their answers do.

#![allow(clippy::unwrap_used, reason = "test code")]

mod receiver;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use apiserver::{ApiServer, Config, Service};
use base64::Engine as _;
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use receiver::Receiver;
use serde_json::{Value, json};
use tower::ServiceExt as _;

const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// The code, the body, and the warnings of a response.
struct Reply {
    code: u16,
    body: Value,
    warnings: Vec<String>,
}

impl Reply {
    fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }
}

struct Cluster(Service);

impl Cluster {
    fn new() -> Self {
        Self(Service::new(ApiServer::new(Config::default()), Arc::new(jiff::Timestamp::now)))
    }

    async fn send(&self, method: Method, path: &str, body: &Value) -> Reply {
        let content_type =
            if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", content_type)
            .body(Full::new(body))
            .unwrap();
        let response = self.0.clone().oneshot(request).await.unwrap();
        let warnings = response.headers().get_all("warning").iter();
        let warnings = warnings.map(|text| text.to_str().unwrap().to_owned()).collect();
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        Reply { code, body: serde_json::from_slice(&bytes).unwrap_or_default(), warnings }
    }

    async fn post(&self, path: &str, body: &Value) -> Reply {
        self.send(Method::POST, path, body).await
    }

    async fn must(&self, method: Method, path: &str, body: &Value) -> Value {
        let reply = self.send(method, path, body).await;
        assert!(reply.code < 300, "{}", reply.body);
        reply.body
    }

    /// Registers webhooks in a configuration.
    async fn register(&self, path: &str, name: &str, webhooks: &[Value]) {
        self.must(Method::POST, path, &json!({"metadata": {"name": name}, "webhooks": webhooks})).await;
    }
}

/// A webhook for all operations on some resources of all groups. `more` replaces fields.
fn webhook(receiver: &Receiver, name: &str, resources: &[&str], more: &Value) -> Value {
    let mut webhook = json!({
        "name": format!("{name}.example.com"), "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "clientConfig": {
            "url": format!("https://127.0.0.1:{}/{name}", receiver.port), "caBundle": receiver.bundle,
        },
        "rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "resources": resources, "operations": ["*"]}],
    });
    for (field, value) in more.as_object().into_iter().flatten() {
        webhook[field] = value.clone();
    }
    webhook
}

fn config_map(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

fn allow() -> Value {
    json!({"allowed": true})
}

/// Permits a write with a JSON patch.
fn patched(patch: &Value) -> Value {
    let patch = base64::engine::general_purpose::STANDARD.encode(patch.to_string());
    json!({"allowed": true, "patchType": "JSONPatch", "patch": patch})
}

#[tokio::test]
async fn a_validating_webhook_denies_with_its_code_and_reason_and_warns() {
    let receiver = Receiver::start(|_, request| match request["name"].as_str().unwrap() {
        "odd" => json!({"allowed": false}),
        "bad" => {
            json!({"allowed": false, "status": {"code": 418, "reason": "Teapot", "message": "no coffee"}})
        }
        _ => json!({"allowed": true, "warnings": ["hot"]}),
    })
    .await;
    let cluster = Cluster::new();
    cluster.register(VALIDATING, "v", &[webhook(&receiver, "check", &["configmaps"], &json!({}))]).await;
    let bad = cluster.post(CONFIG_MAPS, &config_map("bad")).await;
    assert_eq!((bad.code, &bad.body["reason"]), (418, &json!("Teapot")));
    assert_eq!(bad.message(), "admission webhook \"check.example.com\" denied the request: no coffee");
    let odd = cluster.post(CONFIG_MAPS, &config_map("odd")).await;
    assert_eq!(odd.code, 400);
    assert_eq!(
        odd.message(),
        "admission webhook \"check.example.com\" denied the request without explanation"
    );
    let good = cluster.post(CONFIG_MAPS, &config_map("good")).await;
    assert_eq!((good.code, good.warnings), (201, vec!["299 - \"hot\"".to_owned()]));
    let request = receiver.last();
    assert_eq!(request["kind"], json!({"group": "", "version": "v1", "kind": "ConfigMap"}));
    assert_eq!(request["object"]["metadata"]["uid"], good.body["metadata"]["uid"]);
    assert_eq!((&request["oldObject"], &request["dryRun"]), (&Value::Null, &json!(false)));
    assert_eq!(request["options"]["kind"], "CreateOptions");
}

#[tokio::test]
async fn all_operations_and_subresources_are_reviewed_by_their_rules() {
    let receiver = Receiver::start(|_, _| allow()).await;
    let cluster = Cluster::new();
    let everything = webhook(&receiver, "all", &["*/*"], &json!({}));
    let objects = webhook(&receiver, "pods", &["pods"], &json!({}));
    cluster.register(VALIDATING, "v", &[everything, objects]).await;
    assert_eq!(receiver.received(), [""; 0], "configurations are exempt");
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    cluster.must(Method::POST, PODS, &pod).await;
    let status = json!({"status": {"message": "m"}});
    cluster.must(Method::PATCH, &format!("{PODS}/p/status"), &status).await;
    let binding = json!({"target": {"kind": "Node", "name": "n"}});
    cluster.must(Method::POST, &format!("{PODS}/p/binding"), &binding).await;
    cluster.must(Method::POST, &format!("{PODS}/p/eviction"), &json!({})).await;
    cluster.must(Method::DELETE, &format!("{PODS}?gracePeriodSeconds=0"), &Value::Null).await;
    let received = receiver.received();
    let expected = [
        "/all CREATE p",
        "/pods CREATE p",
        "/all UPDATE status p",
        "/all CREATE binding p",
        "/all CREATE eviction p",
        "/all DELETE p",
        "/pods DELETE p",
    ];
    let mut sorted = received.clone();
    sorted.sort();
    let mut wanted = expected.map(String::from).to_vec();
    wanted.sort();
    assert_eq!(sorted, wanted, "{received:?}");
}

#[tokio::test]
async fn a_scale_is_reviewed_as_a_scale() {
    let receiver = Receiver::start(|_, request| {
        json!({"allowed": request["object"]["spec"]["replicas"] == 2, "status": {"message": "two"}})
    })
    .await;
    let cluster = Cluster::new();
    cluster.register(VALIDATING, "v", &[webhook(&receiver, "two", &["deployments/scale"], &json!({}))]).await;
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let template =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let deployment = json!({"metadata": {"name": "d"}, "spec": {
        "replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template}});
    cluster.must(Method::POST, deployments, &deployment).await;
    let scale = |replicas: u32| json!({"spec": {"replicas": replicas}});
    let three = cluster.send(Method::PATCH, &format!("{deployments}/d/scale"), &scale(3)).await;
    assert_eq!(three.message(), "admission webhook \"two.example.com\" denied the request: two");
    assert_eq!(receiver.last()["kind"], json!({"group": "autoscaling", "version": "v1", "kind": "Scale"}));
    assert_eq!(receiver.last()["oldObject"]["spec"]["replicas"], 1);
    cluster.must(Method::PATCH, &format!("{deployments}/d/scale"), &scale(2)).await;
}

#[tokio::test]
async fn mutating_webhooks_change_an_object_one_after_the_other() {
    let receiver = Receiver::start(|path, request| match path {
        "/sidecar" if request["object"]["spec"]["containers"][1].is_null() => patched(&json!([
            {"op": "add", "path": "/spec/containers/-", "value": {"name": "side", "image": "s", "odd": 1}}])),
        "/label" => patched(&json!([{"op": "add", "path": "/metadata/labels", "value": {"seen": "yes"}}])),
        _ => allow(),
    })
    .await;
    let cluster = Cluster::new();
    let again = json!({"reinvocationPolicy": "IfNeeded"});
    let hooks = [
        webhook(&receiver, "sidecar", &["pods"], &again),
        webhook(&receiver, "label", &["pods"], &json!({})),
    ];
    cluster.register(MUTATING, "m", &hooks).await;
    let only = json!({"objectSelector": {"matchLabels": {"seen": "yes"}}});
    cluster.register(VALIDATING, "v", &[webhook(&receiver, "check", &["pods"], &only)]).await;
    let pod =
        json!({"metadata": {"generateName": "p-"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let created = cluster.must(Method::POST, PODS, &pod).await;
    let side = &created["spec"]["containers"][1];
    assert_eq!(
        (&side["name"], &side["terminationMessagePolicy"], &side["odd"]),
        (&json!("side"), &json!("File"), &Value::Null)
    );
    assert_eq!(created["metadata"]["labels"]["seen"], "yes");
    let paths: Vec<String> =
        receiver.received().iter().map(|line| line.split(' ').next().unwrap().to_owned()).collect();
    assert_eq!(paths, ["/sidecar", "/label", "/sidecar", "/check"]);
    assert_eq!(receiver.last()["object"]["metadata"]["uid"], created["metadata"]["uid"]);
    let managed = created["metadata"]["managedFields"].to_string();
    assert!(managed.contains("f:seen"), "{managed}");
}

#[tokio::test]
async fn selectors_and_match_conditions_narrow_a_webhook() {
    let receiver = Receiver::start(|_, _| json!({"allowed": false, "status": {"message": "no"}})).await;
    let cluster = Cluster::new();
    let labelled = json!({"metadata": {"name": "labelled", "labels": {"team": "a"}}});
    cluster.must(Method::POST, "/api/v1/namespaces", &labelled).await;
    let conditions = json!({
        "namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "Exists"}]},
        "matchConditions": [
            {"name": "large", "expression": "has(object.data) && size(object.data) > 1"},
            {"name": "human", "expression": "!request.userInfo.username.startsWith('system:')"},
        ],
    });
    cluster.register(VALIDATING, "v", &[webhook(&receiver, "narrow", &["configmaps"], &conditions)]).await;
    let large = |name: &str| json!({"metadata": {"name": name}, "data": {"a": "1", "b": "2"}});
    cluster.must(Method::POST, CONFIG_MAPS, &large("elsewhere")).await;
    let there = "/api/v1/namespaces/labelled/configmaps";
    cluster.must(Method::POST, there, &config_map("small")).await;
    assert_eq!(cluster.post(there, &large("large")).await.code, 400);
    assert_eq!(receiver.received(), ["/narrow CREATE large"]);
}

#[tokio::test]
async fn a_condition_that_cannot_be_evaluated_follows_the_failure_policy() {
    let receiver = Receiver::start(|_, _| allow()).await;
    let cluster = Cluster::new();
    let broken = |policy: &str| {
        json!({"failurePolicy": policy,
        "matchConditions": [{"name": "broken", "expression": "object.data.missing == 'x'"}]})
    };
    let hooks = [webhook(&receiver, "open", &["configmaps"], &broken("Ignore"))];
    cluster.register(VALIDATING, "open", &hooks).await;
    cluster.must(Method::POST, CONFIG_MAPS, &config_map("one")).await;
    cluster
        .register(VALIDATING, "closed", &[webhook(&receiver, "closed", &["configmaps"], &broken("Fail"))])
        .await;
    let refused = cluster.post(CONFIG_MAPS, &config_map("two")).await;
    assert_eq!(refused.code, 403, "{}", refused.body);
    let start = "configmaps \"two\" is forbidden: match condition \"broken\": ";
    assert!(refused.message().starts_with(start), "{}", refused.message());
    assert_eq!(receiver.received(), [""; 0]);
}

#[tokio::test]
async fn a_webhook_that_cannot_be_called_fails_open_or_closed() {
    let receiver = Receiver::start(|path, request| match path {
        "/wrong" => json!({"uid": "other", "allowed": true}),
        _ => json!({"allowed": request["dryRun"] == false}),
    })
    .await;
    let stranger = Receiver::start(|_, _| allow()).await;
    let service = |name: &str| {
        json!({"clientConfig": {"caBundle": receiver.bundle,
        "service": {"namespace": "default", "name": name, "port": receiver.port, "path": "/x"}}})
    };
    let cluster = Cluster::new();
    let idle = json!({"metadata": {"name": "idle"}, "spec": {"ports": [{"port": receiver.port}]}});
    cluster.must(Method::POST, "/api/v1/namespaces/default/services", &idle).await;
    let port = receiver.port;
    let cases = [
        (service("none"), format!("Post \"https://none.default.svc:{port}/x\": service \"none\" not found")),
        (
            service("idle"),
            format!(
                "Post \"https://idle.default.svc:{port}/x\": no endpoints available for service \"idle\""
            ),
        ),
        (
            json!({"clientConfig": {"url": "https://127.0.0.1:1/x", "caBundle": receiver.bundle}}),
            "Post \"https://127.0.0.1:1/x?timeout=10s\": dial tcp 127.0.0.1:1: connect: connection refused"
                .into(),
        ),
        (
            json!({"clientConfig": {"url": format!("https://127.0.0.1:{port}/x"), "caBundle": stranger.bundle}}),
            format!("Post \"https://127.0.0.1:{port}/x?timeout=10s\": tls: "),
        ),
    ];
    for (config, why) in cases {
        let name = "/closed";
        cluster
            .register(VALIDATING, "closed", &[webhook(&receiver, "closed", &["configmaps"], &config)])
            .await;
        let refused = cluster.post(CONFIG_MAPS, &config_map("a")).await;
        assert_eq!(refused.code, 500, "{}", refused.body);
        let wanted = format!(
            "Internal error occurred: failed calling webhook \"closed.example.com\": failed to call webhook: {why}"
        );
        assert!(refused.message().starts_with(&wanted), "{} is not {wanted}", refused.message());
        cluster.must(Method::DELETE, &format!("{VALIDATING}{name}"), &Value::Null).await;
        let mut ignored = webhook(&receiver, "open", &["configmaps"], &config);
        ignored["failurePolicy"] = "Ignore".into();
        cluster.register(VALIDATING, "open", &[ignored]).await;
        cluster.must(Method::POST, CONFIG_MAPS, &json!({"metadata": {"generateName": "b-"}})).await;
        cluster.must(Method::DELETE, &format!("{VALIDATING}/open"), &Value::Null).await;
    }
    cluster.register(VALIDATING, "wrong", &[webhook(&receiver, "wrong", &["configmaps"], &json!({}))]).await;
    let refused = cluster.post(CONFIG_MAPS, &config_map("c")).await;
    assert!(
        refused.message().contains("received invalid webhook response: expected response.uid="),
        "{}",
        refused.message()
    );
}

#[tokio::test]
async fn a_service_leads_to_its_external_name_or_to_a_ready_endpoint() {
    let receiver = Receiver::start(|_, _| json!({"allowed": false})).await;
    let cluster = Cluster::new();
    let services = "/api/v1/namespaces/default/services";
    let hook = |port: u16| {
        json!({"clientConfig": {"caBundle": receiver.bundle,
        "service": {"namespace": "default", "name": "hooks", "port": port}}})
    };
    let external =
        json!({"metadata": {"name": "hooks"}, "spec": {"type": "ExternalName", "externalName": "localhost"}});
    cluster.must(Method::POST, services, &external).await;
    cluster
        .register(VALIDATING, "v", &[webhook(&receiver, "v", &["configmaps"], &hook(receiver.port))])
        .await;
    assert_eq!(cluster.post(CONFIG_MAPS, &config_map("a")).await.code, 400);
    for path in [format!("{VALIDATING}/v"), format!("{services}/hooks")] {
        cluster.must(Method::DELETE, &path, &Value::Null).await;
    }
    let inner = json!({"metadata": {"name": "hooks"}, "spec": {"ports": [{"name": "https", "port": 443}]}});
    cluster.must(Method::POST, services, &inner).await;
    let slice = json!({
        "metadata": {"name": "hooks", "labels": {"kubernetes.io/service-name": "hooks"}}, "addressType": "IPv4",
        "endpoints": [
            {"addresses": ["192.0.2.1"], "conditions": {"ready": false}},
            {"addresses": ["127.0.0.1"], "conditions": {"ready": true}},
        ],
        "ports": [{"name": "https", "port": receiver.port}],
    });
    cluster.must(Method::POST, "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", &slice).await;
    cluster.register(VALIDATING, "v", &[webhook(&receiver, "v", &["configmaps"], &hook(443))]).await;
    assert_eq!(cluster.post(CONFIG_MAPS, &config_map("a")).await.code, 400);
    assert_eq!(receiver.received().len(), 2);
}

#[tokio::test]
async fn a_dry_run_is_reviewed_as_one() {
    let receiver = Receiver::start(|_, request| json!({"allowed": request["dryRun"] == true})).await;
    let cluster = Cluster::new();
    let dry = format!("{CONFIG_MAPS}?dryRun=All");
    cluster.register(VALIDATING, "v", &[webhook(&receiver, "v", &["configmaps"], &json!({}))]).await;
    cluster.must(Method::POST, &dry, &config_map("a")).await;
    assert_eq!(receiver.last()["options"]["dryRun"], json!(["All"]));
    assert_eq!(cluster.post(CONFIG_MAPS, &config_map("a")).await.code, 400);
    let read = cluster.send(Method::GET, &format!("{CONFIG_MAPS}/a"), &Value::Null).await;
    assert_eq!(read.code, 404);
}

#[tokio::test]
async fn a_configuration_that_cannot_work_is_refused() {
    let receiver = Receiver::start(|_, _| allow()).await;
    let cluster = Cluster::new();
    let cases = [
        (
            json!({"name": "short.name"}),
            "webhooks[0].name: Invalid value: \"short.name\": should be a domain with at least three segments separated by dots",
        ),
        (
            json!({"sideEffects": null}),
            "webhooks[0].sideEffects: Required value: must specify one of None, NoneOnDryRun",
        ),
        (
            json!({"sideEffects": "Some"}),
            "webhooks[0].sideEffects: Unsupported value: \"Some\": supported values: \"None\", \"NoneOnDryRun\"",
        ),
        (
            json!({"admissionReviewVersions": ["v2"]}),
            "webhooks[0].admissionReviewVersions: Invalid value: [\"v2\"]: must include at least one of v1, v1beta1",
        ),
        (
            json!({"clientConfig": {}}),
            "webhooks[0].clientConfig: Required value: exactly one of url or service is required",
        ),
        (
            json!({"timeoutSeconds": 31}),
            "webhooks[0].timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds",
        ),
        (
            json!({"rules": [{"apiGroups": ["*", "apps"], "apiVersions": ["*"], "resources": ["*"], "operations": ["*"]}]}),
            "webhooks[0].rules[0].apiGroups: Invalid value: [\"*\",\"apps\"]: if '*' is present, must not specify other API groups",
        ),
    ];
    for (more, why) in cases {
        let body =
            json!({"metadata": {"name": "v"}, "webhooks": [webhook(&receiver, "v", &["pods"], &more)]});
        let refused = cluster.post(VALIDATING, &body).await;
        let kind = "ValidatingWebhookConfiguration.admissionregistration.k8s.io";
        assert_eq!((refused.code, refused.message()), (422, &*format!("{kind} \"v\" is invalid: {why}")));
    }
    let broken = json!({"matchConditions": [{"name": "c", "expression": "object.("}]});
    let body = json!({"metadata": {"name": "v"}, "webhooks": [webhook(&receiver, "v", &["pods"], &broken)]});
    let refused = cluster.post(MUTATING, &body).await;
    assert!(
        refused.message().contains(
            "webhooks[0].matchConditions[0].expression: Invalid value: \"object.(\": compilation failed"
        ),
        "{}",
        refused.message()
    );
}

#[tokio::test]
async fn another_version_is_reviewed_if_the_rules_name_it() {
    let receiver = Receiver::start(|_, _| allow()).await;
    let cluster = Cluster::new();
    let rules = json!([{"apiGroups": ["autoscaling"], "apiVersions": ["v2"], "operations": ["*"],
        "resources": ["horizontalpodautoscalers"]}]);
    let equivalent = json!({"rules": rules});
    let exact = json!({"rules": rules, "matchPolicy": "Exact"});
    let hooks =
        [webhook(&receiver, "equivalent", &[], &equivalent), webhook(&receiver, "exact", &[], &exact)];
    cluster.register(VALIDATING, "v", &hooks).await;
    let scaler = json!({"metadata": {"name": "a"}, "spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": 50,
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}});
    let path = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers";
    cluster.must(Method::POST, path, &scaler).await;
    assert_eq!(receiver.received(), ["/equivalent CREATE a"]);
    let request = receiver.last();
    assert_eq!(
        (&request["kind"]["version"], &request["requestKind"]["version"]),
        (&json!("v2"), &json!("v1"))
    );
    assert_eq!(request["object"]["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 50);
}

#[tokio::test]
async fn an_object_that_changed_during_a_review_is_reviewed_again() {
    let cluster = Cluster::new();
    cluster.must(Method::POST, CONFIG_MAPS, &config_map("a")).await;
    let writer = Cluster(cluster.0.clone());
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let webhook = apiserver::ValidatingWebhook::new("v", "apps", "statefulsets", move |review| {
        let (writer, counted) = (Cluster(writer.0.clone()), counted.clone());
        Box::pin(async move {
            if review["request"]["operation"] == "UPDATE" && counted.fetch_add(1, Ordering::Relaxed) == 0 {
                let label = json!({"metadata": {"labels": {"raced": "yes"}}});
                writer
                    .must(Method::PATCH, "/apis/apps/v1/namespaces/default/statefulsets/s/status", &label)
                    .await;
            }
            let old = &review["request"]["oldObject"]["metadata"]["labels"]["raced"];
            json!({"response": {"uid": review["request"]["uid"], "allowed": true, "warnings": [format!("old {old}")]}})
        })
    });
    cluster.0.with(|server, _| server.validate_with(webhook));
    let template =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let set = json!({"metadata": {"name": "s"}, "spec": {
        "serviceName": "s", "selector": {"matchLabels": {"a": "b"}}, "template": template}});
    let sets = "/apis/apps/v1/namespaces/default/statefulsets";
    cluster.must(Method::POST, sets, &set).await;
    let two = json!({"spec": {"replicas": 2}});
    let reply = cluster.send(Method::PATCH, &format!("{sets}/s"), &two).await;
    assert_eq!((reply.code, calls.load(Ordering::Relaxed)), (200, 2), "{}", reply.body);
    assert_eq!(reply.body["metadata"]["labels"]["raced"], "yes");
    assert_eq!(reply.warnings, ["299 - \"old \\\"yes\\\"\""]);
}
