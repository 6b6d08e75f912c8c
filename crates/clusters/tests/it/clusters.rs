//! The conditions of clusters and checks.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use crate::common::*;
use kube::core::ApiResource;
use serde_json::json;

fn checks() -> ApiResource {
    kueue("AdmissionCheck", "admissionchecks")
}

async fn message(world: &World, kind: &ApiResource, name: &str, status: &str, reason: &str) -> String {
    let object = world.hub.wait(kind, name, |object| is(object, "Active", status, reason)).await;
    condition(&object, "Active").unwrap()["message"].as_str().unwrap().to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_check_says_which_of_its_clusters_are_usable() {
    let world = World::new(&[("east", 1)]).await;
    let _loop = world.start();
    assert_eq!(message(&world, &checks(), CHECK, "True", "Active").await, "The admission check is active");
    let clusters = |names: serde_json::Value| json!({"spec": {"clusters": names}});
    let configs = kueue("MultiKueueConfig", "multikueueconfigs");
    world.hub.merge(&configs, "", "all", clusters(json!(["east", "gone", "far"]))).await;
    world.join("far", &kubeconfig("https://far.example")).await;
    let text = message(&world, &checks(), CHECK, "True", "SomeActiveClusters").await;
    assert!(text.starts_with("Missing clusters: [gone"), "{text}");
    let far = kueue("MultiKueueCluster", "multikueueclusters");
    let why = message(&world, &far, "far", "False", "ClientConnectionFailed").await;
    assert!(why.starts_with("nothing answers at https://far.example; connection attempts: "), "{why}");
    world.hub.merge(&configs, "", "all", clusters(json!(["gone"]))).await;
    assert_eq!(
        message(&world, &checks(), CHECK, "False", "NoUsableClusters").await,
        "Missing clusters: [gone]"
    );
    world.hub.delete(&configs, "", "all").await;
    assert_eq!(
        message(&world, &checks(), CHECK, "False", "BadConfig").await,
        "Cannot load the AdmissionChecks parameters: multikueueconfigs.kueue.x-k8s.io \"all\" not found"
    );
}

#[tokio::test(start_paused = true)]
async fn an_insecure_kubeconfig_is_refused_in_the_condition() {
    let world = World::new(&[]).await;
    let _loop = world.start();
    world.join("plain", &kubeconfig("http://192.0.2.1")).await;
    let clusters = kueue("MultiKueueCluster", "multikueueclusters");
    assert_eq!(
        message(&world, &clusters, "plain", "False", "InsecureKubeConfig").await,
        "load client config failed: plain HTTP is allowed to loopback addresses only, use https, for cluster c"
    );
}
