//! The life cycle of RayClusters through the Kubernetes API.

use crate::support;
use crate::support::{Cluster, DEFAULT, cluster, holds};
use serde_json::{Value, json};

const RAYCLUSTERS: &str = "/apis/ray.io/v1/namespaces/default/rayclusters";

fn ray_cluster(name: &str, autoscaling: bool) -> Value {
    let template = |cpu: &str| {
        json!({ "spec": { "containers": [{
            "name": "ray", "image": "rayproject/ray:2.9.0",
            "resources": { "limits": { "cpu": "1", "memory": "1G" }, "requests": { "cpu": cpu, "memory": "512Mi" } },
        }] } })
    };
    json!({
        "apiVersion": "ray.io/v1alpha1",
        "kind": "RayCluster",
        "metadata": { "name": name },
        "spec": {
            "rayVersion": "2.9.0",
            "enableInTreeAutoscaling": autoscaling,
            "headGroupSpec": { "rayStartParams": {}, "template": template("500m") },
            "workerGroupSpecs": [{
                "groupName": "small-group", "replicas": 1, "minReplicas": 1, "maxReplicas": 300,
                "rayStartParams": {}, "template": template("500m"),
            }],
        },
    })
}

async fn create(cluster: &Cluster, object: &Value) {
    cluster.create("/apis/ray.io/v1alpha1/namespaces/default/rayclusters", object).await;
}

#[tokio::test(start_paused = true)]
async fn a_ray_cluster_becomes_ready_with_the_status_and_events_of_kuberay() {
    let cluster = cluster(&DEFAULT, 1.0).await;
    create(&cluster, &ray_cluster("demo", true)).await;
    let path = format!("{RAYCLUSTERS}/demo");
    let demo = cluster.until(&path, |demo| demo["status"]["state"] == "ready").await;
    assert!((10.0..60.0).contains(&cluster.elapsed()), "{}", cluster.elapsed());
    let status = &demo["status"];
    for (field, expected) in [
        ("desiredWorkerReplicas", json!(1)),
        ("availableWorkerReplicas", json!(1)),
        ("readyWorkerReplicas", json!(1)),
        ("desiredCPU", json!("1")),
        ("desiredMemory", json!("1Gi")),
        ("desiredGPU", json!("0")),
    ] {
        assert_eq!(status[field], expected, "{field}");
    }
    assert!(holds(&demo, "HeadPodReady", "True") && holds(&demo, "RayClusterProvisioned", "True"));
    let mut shown: Vec<String> = Vec::new();
    for pod in cluster.pods().await {
        let name = pod["metadata"]["name"].as_str().unwrap();
        let containers = pod["status"]["containerStatuses"].as_array().unwrap();
        let ready = containers.iter().filter(|container| container["ready"] == true).count();
        let stem = &name[..name.len() - 5];
        shown.push(format!(
            "{stem} {ready}/{} {}",
            containers.len(),
            pod["status"]["phase"].as_str().unwrap()
        ));
    }
    shown.sort();
    assert_eq!(shown, ["demo-head- 2/2 Running", "demo-small-group-worker- 1/1 Running"]);
    let service = cluster.get("/api/v1/namespaces/default/services/demo-head-svc").await;
    assert_eq!(service["spec"]["clusterIP"], "None");
    let events = cluster.events("demo").await;
    assert!(
        events.iter().any(|event| event.starts_with("CreatedHeadPod: Created head Pod default/demo-head-"))
    );
    assert!(events.contains(&"CreatedRole: Created role default/demo".to_owned()), "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn suspension_deletes_all_pods_and_an_explicit_false_creates_new_ones() {
    let cluster = cluster(&DEFAULT, 50.0).await;
    create(&cluster, &ray_cluster("demo", false)).await;
    let path = format!("{RAYCLUSTERS}/demo");
    cluster.until(&path, |demo| demo["status"]["state"] == "ready").await;
    cluster.patch(&path, &json!({ "spec": { "suspend": true } })).await;
    let demo = cluster.until(&path, |demo| holds(demo, "RayClusterSuspended", "True")).await;
    assert_eq!(demo["status"]["state"], "suspended");
    assert_eq!(cluster.pods().await.len(), 0);
    assert!(!cluster.get("/api/v1/namespaces/default/services/demo-head-svc").await.is_null());
    cluster.patch(&path, &json!({ "spec": { "suspend": false } })).await;
    cluster.until(&path, |demo| demo["status"]["state"] == "ready").await;
    assert_eq!(cluster.phases().await, ["Running", "Running"]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_head_is_replaced_with_a_new_name_and_ready_persists() {
    let cluster = cluster(&DEFAULT, 50.0).await;
    create(&cluster, &ray_cluster("demo", false)).await;
    let path = format!("{RAYCLUSTERS}/demo");
    let demo = cluster.until(&path, |demo| demo["status"]["state"] == "ready").await;
    let first = demo["status"]["head"]["podName"].as_str().unwrap().to_owned();
    let annotation =
        json!({ "metadata": { "annotations": { "sandbox.muster.dev/fail": "evict,after=1s" } } });
    cluster.patch(&format!("{}/{first}", support::PODS), &annotation).await;
    let demo = cluster
        .until(&path, |demo| {
            demo["status"]["head"]["podName"] != *first && holds(demo, "HeadPodReady", "True")
        })
        .await;
    assert_eq!(demo["status"]["state"], "ready");
    assert_eq!(cluster.pods().await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_cluster_leaves_no_dependents() {
    let cluster = cluster(&DEFAULT, 50.0).await;
    create(&cluster, &ray_cluster("demo", true)).await;
    let path = format!("{RAYCLUSTERS}/demo");
    cluster.until(&path, |demo| demo["status"]["state"] == "ready").await;
    cluster.delete(&path).await;
    cluster
        .eventually("nothing is left", || async {
            let services = cluster.list("/api/v1/namespaces/default/services").await;
            let roles = cluster.list("/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles").await;
            let ours = services.iter().filter(|service| service["metadata"]["name"] != "kubernetes").count();
            (cluster.pods().await.is_empty() && ours == 0 && roles.is_empty()).then_some(())
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn an_invalid_cluster_gets_an_event_and_nothing_else() {
    let cluster = cluster(&DEFAULT, 50.0).await;
    let mut invalid = ray_cluster("demo", false);
    invalid["spec"]["workerGroupSpecs"][0]["minReplicas"] = json!(9);
    invalid["spec"]["workerGroupSpecs"][0]["maxReplicas"] = json!(2);
    create(&cluster, &invalid).await;
    cluster
        .eventually("a warning event exists", || async {
            cluster
                .events("demo")
                .await
                .into_iter()
                .find(|event| event.starts_with("InvalidRayClusterSpec: "))
        })
        .await;
    assert!(cluster.pods().await.is_empty());
    assert!(cluster.get(&format!("{RAYCLUSTERS}/demo")).await["status"]["state"].is_null());
}
