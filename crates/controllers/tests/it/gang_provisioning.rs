//! AppWrappers that fit on no nodes ask a node autoscaler for them. The tests play the autoscaler, or the sandbox does.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use crate::common::{Cluster, Group, Running, resource, wrappers};
use crate::kueue_provisioning::{is_patient_after_a_write_that_succeeds, refusing_requests};
use controllers::{Config, install_provisioning_crd};
use kube::Client;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::ApiResource;
use sandbox::{NodePool, Sandbox};
use serde_json::{Value, json};

const ATOMIC: &str = "best-effort-atomic-scale-up.autoscaling.x-k8s.io";
const CHECK: &str = "check-capacity.autoscaling.x-k8s.io";

fn requests() -> ApiResource {
    resource("autoscaling.x-k8s.io/v1", "ProvisioningRequest", "provisioningrequests")
}

fn templates() -> ApiResource {
    resource("v1", "PodTemplate", "podtemplates")
}

fn jobs() -> ApiResource {
    resource("batch/v1", "Job", "jobs")
}

/// One node of four CPUs.
async fn cluster() -> Cluster {
    let cluster = Cluster::new().await;
    install_provisioning_crd(cluster.client.clone()).await.unwrap();
    node(&cluster, "small", 4).await;
    cluster
}

async fn node(cluster: &Cluster, name: &str, cpus: u32) {
    cluster.node(name, &json!({"cpu": cpus.to_string(), "memory": "64Gi", "pods": "110"})).await;
}

fn controller(cluster: &Cluster, classes: &[&str]) -> Running {
    controller_over(cluster, cluster.client.clone(), classes)
}

fn controller_over(cluster: &Cluster, client: Client, classes: &[&str]) -> Running {
    let provisioning_classes = classes.iter().map(ToString::to_string).collect();
    cluster.start(client, Config { provisioning_classes, ..Config::default() })
}

/// An AppWrapper with a Job of so many pods of so many CPUs.
fn wrapped(name: &str, pods: u32, cpu: u32, annotations: &Value) -> Value {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}});
    let template = json!({"metadata": {"labels": {"app": name}},
        "spec": {"restartPolicy": "Never", "containers": [container]}});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {"parallelism": pods, "completions": pods, "template": template}});
    json!({
        "apiVersion": "mcad.ibm.com/v1beta1", "kind": "AppWrapper",
        "metadata": {"name": name, "namespace": "default", "annotations": annotations},
        "spec": {"resources": {"GenericItems": [{"completionstatus": "Complete", "generictemplate": job}]}},
    })
}

async fn request(cluster: &Cluster, name: &str) -> DynamicObject {
    cluster.wait(&requests(), "default", name, |_| true).await
}

/// The autoscaler sets a condition of a request.
async fn answer(cluster: &Cluster, request: &str, condition: &str) {
    let now = (cluster.clock)().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let condition = json!({"type": condition, "status": "True", "reason": "Told", "message": "told", "lastTransitionTime": now});
    let patch = Patch::Merge(json!({"status": {"conditions": [condition]}}));
    let api = cluster.api(&requests(), "default");
    api.patch_status(request, &PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_gang_that_fits_on_no_node_asks_for_nodes_and_starts_on_them() {
    let cluster = cluster().await;
    let _controller = controller(&cluster, &[ATOMIC]);
    cluster.submit(wrapped("small", 2, 1, &json!({}))).await;
    cluster.wait_state(Group::Mcad, "small", "Running", "Dispatched").await;
    cluster.submit(wrapped("train", 3, 4, &json!({}))).await;
    let asked = request(&cluster, "train-nodes-1").await;
    let template = asked.data["spec"]["podSets"][0]["podTemplateRef"]["name"].as_str().unwrap().to_owned();
    assert_eq!(
        asked.data["spec"],
        json!({"provisioningClassName": ATOMIC, "podSets": [{"podTemplateRef": {"name": template}, "count": 3}]})
    );
    let owner = &asked.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!((&*owner.kind, &*owner.name, owner.controller), ("AppWrapper", "train", Some(true)));
    let template = cluster.api(&templates(), "default").get(&template).await.unwrap();
    assert_eq!(template.data["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"], "4");
    assert_eq!(template.data["template"]["metadata"]["labels"]["app"], "train");

    answer(&cluster, "train-nodes-1", "Provisioned").await;
    let names_it = |wrapper: &DynamicObject| {
        let annotations = wrapper.metadata.annotations.as_ref();
        annotations.is_some_and(|all| all.contains_key("muster.dev/provisioning-request"))
    };
    cluster.wait(&wrappers(Group::Mcad), "default", "train", names_it).await;
    for name in ["new-1", "new-2", "new-3"] {
        node(&cluster, name, 5).await;
    }
    cluster.wait_state(Group::Mcad, "train", "Running", "Dispatched").await;
    let job = cluster.api(&jobs(), "default").get("train").await.unwrap();
    assert_eq!(
        job.data["spec"]["template"]["metadata"]["annotations"],
        json!({"autoscaling.x-k8s.io/consume-provisioning-request": "train-nodes-1",
            "autoscaling.x-k8s.io/provisioning-class-name": ATOMIC})
    );
    let events = cluster.events().await;
    let told = "train ProvisioningRequestCreated: Created ProvisioningRequest: \"train-nodes-1\"";
    assert!(events.iter().any(|event| event == told), "{events:#?}");
    assert_eq!(
        cluster.names(&requests(), "default").await,
        ["train-nodes-1"],
        "the small one asked for nothing"
    );
    cluster.delete(&wrappers(Group::Mcad), "default", "train").await;
    cluster.wait_gone(&requests(), "default", "train-nodes-1").await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_failed_is_followed_by_another_one_after_a_pause_also_by_another_controller() {
    let cluster = cluster().await;
    let first = controller(&cluster, &[ATOMIC]);
    cluster.submit(wrapped("train", 3, 4, &json!({}))).await;
    request(&cluster, "train-nodes-1").await;
    answer(&cluster, "train-nodes-1", "Failed").await;
    let failed_at = (cluster.clock)();
    drop(first);
    let _second = controller(&cluster, &[ATOMIC]);
    request(&cluster, "train-nodes-2").await;
    let pause = (cluster.clock)().duration_since(failed_at).as_secs();
    assert!((58..70).contains(&pause), "the pause was {pause} s");
    cluster.wait_gone(&requests(), "default", "train-nodes-1").await;
    answer(&cluster, "train-nodes-2", "BookingExpired").await;
    request(&cluster, "train-nodes-3").await;
    assert_eq!(cluster.names(&templates(), "default").await.len(), 1, "all attempts share the template");
}

#[tokio::test(start_paused = true)]
async fn a_gang_whose_request_is_refused_asks_less_and_less_often_although_its_template_is_made_again() {
    let cluster = cluster().await;
    let (client, tries) = refusing_requests(&cluster);
    let _controller = controller_over(&cluster, client, &[ATOMIC]);
    cluster.submit(wrapped("train", 3, 4, &json!({}))).await;
    is_patient_after_a_write_that_succeeds(&cluster, &tries).await;
}

#[tokio::test(start_paused = true)]
async fn the_annotation_selects_a_permitted_class_and_no_other() {
    let cluster = cluster().await;
    let _controller = controller(&cluster, &["none", CHECK]);
    let class = |name: &str| json!({"muster.dev/provisioning-class": name});
    cluster.submit(wrapped("silent", 3, 4, &json!({}))).await;
    cluster.submit(wrapped("foreign", 3, 4, &class(ATOMIC))).await;
    cluster.submit(wrapped("asks", 3, 4, &class(CHECK))).await;
    let asked = request(&cluster, "asks-nodes-1").await;
    assert_eq!(asked.data["spec"]["provisioningClassName"], CHECK);
    cluster.settled().await;
    assert_eq!(cluster.names(&requests(), "default").await, ["asks-nodes-1"]);
    let events = cluster.events().await;
    let told = format!(
        "foreign NoNodesRequested: annotation muster.dev/provisioning-class: the class {ATOMIC:?} is not permitted; permitted are none, {CHECK}"
    );
    assert!(events.contains(&told), "{events:#?}");
    // Who no longer asks takes the request back.
    let patch = Patch::Merge(json!({"metadata": {"annotations": class("none")}}));
    let api = cluster.api(&wrappers(Group::Mcad), "default");
    api.patch("asks", &PatchParams::default(), &patch).await.unwrap();
    cluster.wait_gone(&requests(), "default", "asks-nodes-1").await;
}

#[tokio::test(start_paused = true)]
async fn the_nodes_of_the_sandbox_come_for_a_gang_whose_pods_do_not_exist() {
    let cluster = Cluster::bare();
    let pool: NodePool = "name=gpu,min=0,max=4,cpu=4,memory=16Gi,nvidia.com/gpu=1,boot=40s".parse().unwrap();
    let config = sandbox::Config {
        clock: cluster.clock.clone(),
        nodes: Vec::new(),
        pools: Some(vec![pool]),
        ..sandbox::Config::default()
    };
    let _sandbox = Sandbox::start(cluster.client.clone(), config).await.unwrap();
    controllers::install_crds(cluster.client.clone(), &Group::ALL, api::appwrapper::Columns::default())
        .await
        .unwrap();
    install_provisioning_crd(cluster.client.clone()).await.unwrap();
    let _controller = controller(&cluster, &[ATOMIC]);
    cluster.submit(wrapped("train", 3, 4, &json!({}))).await;
    cluster.wait_state(Group::Mcad, "train", "Completed", "Completed").await;
    cluster.wait_gone(&requests(), "default", "train-nodes-1").await;
}
