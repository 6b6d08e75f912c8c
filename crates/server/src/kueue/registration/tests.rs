//! Registration against the API server in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use api::kueue::webhooks::{JobRules, ReviewedKind};
use apiserver::{ApiServer, Converter, Service, User};
use jiff::{SignedDuration, Timestamp};
use kube::api::{Patch, PatchParams};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::*;
use crate::certificate_files::TlsOptions;
use crate::certificates::Issuer;
use crate::kueue::{Namespaces, Webhooks};
use crate::registrar::Registrar;
use crate::webhook_server::{Managed, WebhookNames, WebhookServer};

const NAMESPACE: &str = "kueue-system";
const SERVICE: &str = "kueue-webhook-service";

/// The API server in memory, a replica that serves the webhooks, and the registrar of the leader.
struct Cluster {
    client: Client,
    registrar: Registrar,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

impl Cluster {
    async fn new() -> Self {
        let service = Service::new(ApiServer::new(apiserver::Config::default()), Arc::new(Timestamp::now));
        service.with(|server, _| {
            let convert = |object: &mut Value, to: &str| {
                api::kueue::convert(object, to).map_err(|error| error.to_string())
            };
            server.convert_with(api::kueue::GROUP, Converter::new(convert));
        });
        let client = Client::new(service.as_user(User::admin()), "default");
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
        post(&client, "/api/v1/namespaces", namespace).await.unwrap();
        let ports = json!([{"name": "https", "port": 443, "targetPort": port}]);
        let object = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": SERVICE}, "spec": {"ports": ports}});
        post(&client, &format!("/api/v1/namespaces/{NAMESPACE}/services"), object).await.unwrap();
        let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": SERVICE, "labels": {"kubernetes.io/service-name": SERVICE}},
            "endpoints": [{"addresses": ["127.0.0.1"]}], "ports": [{"name": "https", "port": port, "protocol": "TCP"}]});
        let path = format!("/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices");
        post(&client, &path, slice).await.unwrap();
        let names = WebhookNames {
            namespace: NAMESPACE.into(),
            service: SERVICE.into(),
            secret: "kueue-webhook-server-cert".into(),
        };
        let namespaces = json!({"matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system"]}]});
        let kinds: Vec<ReviewedKind> =
            ["batch/job", "pod", "deployment"].into_iter().filter_map(ReviewedKind::of_framework).collect();
        let rules = JobRules {
            frameworks: kinds.iter().map(|kind| kind.framework.to_owned()).collect(),
            namespaces: api::selector::LabelSelector::read(&namespaces),
            ..JobRules::default()
        };
        let managed = Managed {
            issuer: Issuer::Leader(Duration::from_secs(90)),
            installs: true,
            jobs: RegisteredJobs { kinds, namespaces, ..RegisteredJobs::default() },
        };
        let (server, registrar) =
            WebhookServer::managed(listener, client.clone(), names, managed, TlsOptions::default()).unwrap();
        let (stop, stopped) = oneshot::channel();
        let (namespaces, watches) = Namespaces::watch(&client, false);
        let webhooks = Webhooks::new(&api::kueue::feature_gates::FeatureGates::default(), rules);
        let router = webhooks.knowing(namespaces).router();
        let serving = tokio::spawn(async move {
            tokio::select! {
                () = server.run(router, async { drop(stopped.await) }) => {}
                () = watches => {}
            }
        });
        Self { client, registrar, stop, serving }
    }

    async fn register(&mut self, now: Timestamp) {
        self.registrar.register(&self.client, now).await.unwrap();
    }
}

async fn post(client: &Client, path: &str, object: Value) -> Result<Value, kube::Error> {
    let request = http::Request::post(path).header("content-type", "application/json");
    client.request(request.body(object.to_string().into_bytes()).unwrap()).await
}

async fn get(client: &Client, path: &str) -> Option<Value> {
    let request = http::Request::get(path).body(Vec::new()).unwrap();
    client.request(request).await.ok()
}

fn configurations(name: &str, verb: Verb) -> String {
    format!("/apis/admissionregistration.k8s.io/v1/{}/{name}", verb.resource().plural)
}

/// A ClusterQueue in the older version; it gets a finalizer by webhook.
async fn create_queue(client: &Client, name: &str) -> Result<Value, kube::Error> {
    let queue = json!({"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ClusterQueue", "metadata": {"name": name},
        "spec": {"cohort": "all"}});
    post(client, "/apis/kueue.x-k8s.io/v1beta1/clusterqueues", queue).await
}

#[tokio::test]
async fn webhooks_answer_while_their_certificate_is_renewed_and_the_secret_is_lost() {
    let mut cluster = Cluster::new().await;
    let start = Timestamp::now();
    cluster.register(start).await;
    let ended = Arc::new(AtomicBool::new(false));
    let (client, stop) = (cluster.client.clone(), ended.clone());
    let load = tokio::spawn(async move {
        let mut count = 0;
        while !stop.load(Ordering::Acquire) {
            let queue = create_queue(&client, &format!("queue-{count}")).await.unwrap();
            assert_eq!(queue["metadata"]["finalizers"][0], "kueue.x-k8s.io/resource-in-use");
            count += 1;
        }
        count
    });
    let secret = format!("/api/v1/namespaces/{NAMESPACE}/secrets/kueue-webhook-server-cert");
    let mut chains = std::collections::BTreeSet::new();
    for second in (5..=300_i64).step_by(5) {
        if second % 70 == 0 {
            let delete = http::Request::delete(&secret).body(Vec::new()).unwrap();
            cluster.client.request::<Value>(delete).await.unwrap();
        }
        cluster.register(start + SignedDuration::from_secs(second)).await;
        let found = get(&cluster.client, &secret).await.unwrap();
        chains.insert(found["data"]["tls.crt"].as_str().unwrap().to_owned());
        tokio::task::yield_now().await;
    }
    ended.store(true, Ordering::Release);
    assert!(load.await.unwrap() > 20);
    assert!(chains.len() >= 4, "{} certificates", chains.len());
    let definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/workloads.kueue.x-k8s.io";
    let definition = get(&cluster.client, definition).await.unwrap();
    let webhook = get(&cluster.client, &configurations(NAME, Verb::Validating)).await.unwrap();
    let conversion = &definition["spec"]["conversion"]["webhook"]["clientConfig"];
    assert_eq!(conversion["caBundle"], webhook["webhooks"][0]["clientConfig"]["caBundle"]);
    assert_eq!(conversion["service"]["path"], "/convert");
}

#[tokio::test]
async fn an_outage_of_the_webhooks_blocks_nothing_but_new_content_of_kueues_kinds() {
    let mut cluster = Cluster::new().await;
    cluster.register(Timestamp::now()).await;
    let refused = post(
        &cluster.client,
        "/apis/kueue.x-k8s.io/v1beta2/clusterqueues",
        json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "wrong"},
        "spec": {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
            {"name": "a", "resources": [{"name": "memory", "nominalQuota": 1}]}]}]}}),
    );
    let refused = refused.await.unwrap_err().to_string();
    assert!(refused.contains("must match the name in coveredResources"), "{refused}");
    create_queue(&cluster.client, "queue").await.unwrap();
    cluster.stop.send(()).unwrap();
    cluster.serving.await.unwrap();
    let client = cluster.client;
    for (path, object) in [
        (
            "/api/v1/namespaces/default/configmaps",
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}),
        ),
        (
            "/api/v1/namespaces/default/pods",
            json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}),
        ),
        (
            "/apis/kueue.x-k8s.io/v1beta2/workloadpriorityclasses",
            json!({"apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "WorkloadPriorityClass", "metadata": {"name": "a"}, "value": 1}),
        ),
    ] {
        post(&client, path, object).await.unwrap();
    }
    let queues = resource(api::kueue::GROUP, "v1beta2", "ClusterQueue", "clusterqueues");
    let queues: Api<DynamicObject> = Api::all_with(client.clone(), &queues);
    let patch =
        async |change: Value| queues.patch("queue", &PatchParams::default(), &Patch::Merge(change)).await;
    let failed = patch(json!({"spec": {"stopPolicy": "Hold"}})).await.unwrap_err().to_string();
    assert!(failed.contains("failed calling webhook"), "{failed}");
    assert!(create_queue(&client, "new").await.is_err());
    patch(json!({"metadata": {"labels": {"a": "b"}}})).await.unwrap();
    queues.delete("queue", &DeleteParams::default()).await.unwrap();
    patch(json!({"metadata": {"finalizers": null}})).await.unwrap();
    assert!(queues.get_opt("queue").await.unwrap().is_none());
    assert_eq!(remove_registration(&client).await.unwrap().len(), 2);
    create_queue(&client, "new").await.unwrap();
    assert!(remove_registration(&client).await.unwrap().is_empty());
}

#[tokio::test]
async fn an_installation_of_kueue_keeps_its_rules_and_gets_the_authority() {
    let mut cluster = Cluster::new().await;
    cluster.register(Timestamp::now()).await;
    let rules = json!([{"apiGroups": ["kueue.x-k8s.io"], "apiVersions": ["v1beta2"], "operations": ["CREATE"],
        "resources": ["clusterqueues"], "scope": "*"}]);
    for (verb, path) in [
        (Verb::Mutating, "/mutate-kueue-x-k8s-io-v1beta2-clusterqueue"),
        (Verb::Validating, "/validate-kueue-x-k8s-io-v1beta2-clusterqueue"),
    ] {
        let name = format!("kueue-{}-webhook-configuration", verb.word());
        let resource = verb.resource();
        let service = json!({"name": SERVICE, "namespace": NAMESPACE, "path": path});
        let object = json!({"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name},
            "webhooks": [{"name": "clusterqueue.kb.io", "admissionReviewVersions": ["v1"], "sideEffects": "None",
                "clientConfig": {"service": service}, "rules": rules}]});
        post(&cluster.client, configurations("", verb).trim_end_matches('/'), object).await.unwrap();
    }
    cluster.register(Timestamp::now()).await;
    for verb in Verb::ALL {
        let name = format!("kueue-{}-webhook-configuration", verb.word());
        let found = get(&cluster.client, &configurations(&name, verb)).await.unwrap();
        assert_eq!(found["webhooks"][0]["rules"], rules);
        assert!(found["webhooks"][0]["clientConfig"]["caBundle"].is_string());
        assert!(get(&cluster.client, &configurations(NAME, verb)).await.is_none(), "Muster's own is removed");
    }
    let queue = create_queue(&cluster.client, "queue").await.unwrap();
    assert_eq!(queue["metadata"]["finalizers"][0], "kueue.x-k8s.io/resource-in-use");
}

#[tokio::test]
async fn a_definition_of_an_earlier_version_of_muster_is_updated_and_one_of_others_is_not() {
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let own = format!("{definitions}/localqueues.kueue.x-k8s.io");
    let foreign = format!("{definitions}/cohorts.kueue.x-k8s.io");
    let mut cluster = Cluster::new().await;
    // What an earlier version and another installer have created: the column of a later version is missing.
    for definition in api::kueue::crds(&json!({"service": {"namespace": "n", "name": "s"}})) {
        let (mut definition, name) = (definition.clone(), definition["metadata"]["name"].clone());
        if name == "cohorts.kueue.x-k8s.io" {
            definition["metadata"]["labels"] = json!({"app.kubernetes.io/managed-by": "Helm"});
        } else if name != "localqueues.kueue.x-k8s.io" {
            continue;
        }
        for version in definition["spec"]["versions"].as_array_mut().unwrap() {
            version["additionalPrinterColumns"] = json!([]);
        }
        let resource =
            resource("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions");
        put(&cluster.client, &resource, None, name.as_str().unwrap(), definition).await.unwrap();
    }
    let columns = async |path: &str| {
        let found = get(&cluster.client, path).await.unwrap();
        found["spec"]["versions"][0]["additionalPrinterColumns"].as_array().map_or(0, Vec::len)
    };
    assert_eq!((columns(&own).await, columns(&foreign).await), (0, 0));
    cluster.registrar.register(&cluster.client, Timestamp::now()).await.unwrap();
    assert!(columns(&own).await > 0, "the own definition is that of this version");
    assert_eq!(columns(&foreign).await, 0, "the other one is not touched");
}

fn job(name: &str, labels: &Value) -> Value {
    let pod = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    json!({"apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "labels": labels, "finalizers": ["example.com/held"]},
        "spec": {"template": pod}})
}

#[tokio::test]
async fn a_job_with_a_queue_is_suspended_before_it_exists_and_an_outage_blocks_no_other() {
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let mut cluster = Cluster::new().await;
    cluster.register(Timestamp::now()).await;
    let client = cluster.client.clone();
    let queue = json!({"kueue.x-k8s.io/queue-name": "q"});
    let created = post(&client, jobs, job("queued", &queue)).await.unwrap();
    assert_eq!(created["spec"]["suspend"], true);
    let system = jobs.replace("default", "kube-system");
    let unselected = post(&client, &system, job("queued", &queue)).await.unwrap();
    assert_ne!(unselected["spec"]["suspend"], true);
    let wrong = post(&client, jobs, job("wrong", &json!({"kueue.x-k8s.io/queue-name": "A_b"}))).await;
    let text = wrong.unwrap_err().to_string();
    assert!(text.contains("metadata.labels[kueue.x-k8s.io/queue-name]"), "{text}");
    // The watch of the webhooks shows the queue soon after its creation.
    let local = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"name": "default"},
        "spec": {"clusterQueue": "all"}});
    post(&client, "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/localqueues", local).await.unwrap();
    let mut defaulted = Value::Null;
    for attempt in 0..1000 {
        defaulted = post(&client, jobs, job(&format!("plain-{attempt}"), &json!({}))).await.unwrap();
        if defaulted["spec"]["suspend"] == true {
            break;
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(defaulted["metadata"]["labels"], json!({"kueue.x-k8s.io/queue-name": "default"}));

    cluster.stop.send(()).unwrap();
    cluster.serving.await.unwrap();
    post(&client, jobs, job("other", &json!({}))).await.unwrap();
    assert!(post(&client, jobs, job("late", &queue)).await.is_err());
    let kind = resource("batch", "v1", "Job", "jobs");
    let jobs: Api<DynamicObject> = Api::namespaced_with(client, "default", &kind);
    let patch =
        async |change: Value| jobs.patch("queued", &PatchParams::default(), &Patch::Merge(change)).await;
    for refused in [json!({"spec": {"suspend": false}}), json!({"metadata": {"labels": null}})] {
        let text = patch(refused).await.unwrap_err().to_string();
        assert!(text.contains("failed calling webhook"), "{text}");
    }
    patch(json!({"metadata": {"finalizers": null}})).await.unwrap();
}

fn pod(name: &str, labels: &Value, annotations: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": labels, "annotations": annotations, "finalizers": ["example.com/held"]},
        "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

#[tokio::test]
async fn a_pod_with_a_queue_is_held_back_before_it_exists_and_an_outage_blocks_no_other() {
    let pods = "/api/v1/namespaces/default/pods";
    let mut cluster = Cluster::new().await;
    cluster.register(Timestamp::now()).await;
    let client = cluster.client.clone();
    let (none, queue) = (json!({}), json!({"kueue.x-k8s.io/queue-name": "q"}));
    let of_set = json!({"kueue.x-k8s.io/pod-suspending-parent": "deployment"});
    for (name, labels, annotations) in [("queued", &queue, &none), ("of-set", &none, &of_set)] {
        let created = post(&client, pods, pod(name, labels, annotations)).await.unwrap();
        assert_eq!(created["spec"]["schedulingGates"][0]["name"], "kueue.x-k8s.io/admission", "{name}");
    }
    let wrong = json!({"kueue.x-k8s.io/pod-group-name": "g", "kueue.x-k8s.io/queue-name": "q"});
    let text = post(&client, pods, pod("wrong", &wrong, &none)).await.unwrap_err().to_string();
    assert!(text.contains("pod-group-total-count"), "{text}");
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let template =
        json!({"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"selector": {"matchLabels": {"app": "a"}}, "template": template});
    let deployment = |name: &str, labels: &Value| json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "labels": labels}, "spec": spec});
    let created = post(&client, deployments, deployment("queued", &queue)).await.unwrap();
    assert_eq!(created["spec"]["template"]["metadata"]["labels"]["kueue.x-k8s.io/queue-name"], "q");

    cluster.stop.send(()).unwrap();
    cluster.serving.await.unwrap();
    for (name, labels, annotations) in [("late", &queue, &none), ("late-of-set", &none, &of_set)] {
        let text = post(&client, pods, pod(name, labels, annotations)).await.unwrap_err().to_string();
        assert!(text.contains("failed calling webhook"), "{text}");
    }
    assert!(post(&client, deployments, deployment("late", &queue)).await.is_err());
    post(&client, deployments, deployment("other", &none)).await.unwrap();
    let other = post(&client, pods, pod("other", &none, &none)).await.unwrap();
    assert!(other["spec"].get("schedulingGates").is_none());
    post(&client, &pods.replace("default", "kube-system"), pod("system", &queue, &none)).await.unwrap();
    let kind = resource("", "v1", "Pod", "pods");
    let pods: Api<DynamicObject> = Api::namespaced_with(client, "default", &kind);
    let patch = async |name: &str, change: Value| {
        pods.patch(name, &PatchParams::default(), &Patch::Merge(change)).await
    };
    patch("other", json!({"metadata": {"labels": {"a": "b"}}})).await.unwrap();
    assert!(patch("queued", json!({"metadata": {"labels": null}})).await.is_err());
    patch("queued", json!({"metadata": {"finalizers": null}})).await.unwrap();
}

#[tokio::test]
async fn nothing_is_registered_before_the_service_exists() {
    let mut cluster = Cluster::new().await;
    let path = format!("/api/v1/namespaces/{NAMESPACE}/services/{SERVICE}");
    cluster.client.request::<Value>(http::Request::delete(path).body(Vec::new()).unwrap()).await.unwrap();
    let error = cluster.registrar.register(&cluster.client, Timestamp::now()).await.unwrap_err().to_string();
    assert!(error.contains("Service kueue-system/kueue-webhook-service does not exist"), "{error}");
    assert!(get(&cluster.client, &configurations(NAME, Verb::Mutating)).await.is_none());
}
