//! Optional features of RayClusters: GCS fault tolerance, token authentication, a user-defined head Service.
#![allow(clippy::unwrap_used, reason = "a failed helper ends the test")]

use crate::support::{Cluster, DEFAULT, cluster};
use serde_json::{Value, json};

const RAYCLUSTERS: &str = "/apis/ray.io/v1/namespaces/default/rayclusters";

/// Creates a cluster with one head and one worker, and additional fields of the spec and the head group.
async fn create(cluster: &Cluster, name: &str, options: &Value, head: &Value) {
    let template = json!({ "spec": { "containers": [{ "name": "ray", "image": "rayproject/ray:2.55.0" }] } });
    let mut spec = json!({
        "rayVersion": "2.55.0",
        "headGroupSpec": { "template": template },
        "workerGroupSpecs": [{ "groupName": "small", "replicas": 1, "template": template }],
    });
    for (field, value) in options.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    for (field, value) in head.as_object().into_iter().flatten() {
        spec["headGroupSpec"][field] = value.clone();
    }
    let object = json!({
        "apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": { "name": name }, "spec": spec,
    });
    cluster.create(RAYCLUSTERS, &object).await;
}

async fn ready(cluster: &Cluster, name: &str) -> Value {
    cluster.until(&format!("{RAYCLUSTERS}/{name}"), |ray| ray["status"]["state"] == "ready").await
}

/// The pod of this node type, and the environment of its first container as `NAME=value`.
async fn node(cluster: &Cluster, kind: &str) -> (Value, Vec<String>) {
    let pods = cluster.pods().await;
    let pod = pods.into_iter().find(|pod| pod["metadata"]["labels"]["ray.io/node-type"] == kind).unwrap();
    let env = pod["spec"]["containers"][0]["env"].as_array().unwrap();
    let environment = env
        .iter()
        .map(|environment| format!("{}={}", environment["name"], environment["value"]).replace('"', ""))
        .collect();
    (pod, environment)
}

#[tokio::test(start_paused = true)]
async fn a_deleted_cluster_is_kept_until_its_redis_data_is_removed() {
    let cluster = cluster(&DEFAULT, 1.0).await;
    let options = json!({
        "redisAddress": "redis:6379", "externalStorageNamespace": "mine", "redisPassword": { "value": "secret" },
    });
    create(&cluster, "kept", &json!({ "gcsFaultToleranceOptions": options }), &json!({})).await;
    let kept = ready(&cluster, "kept").await;
    assert_eq!(kept["metadata"]["finalizers"], json!(["ray.io/gcs-ft-redis-cleanup-finalizer"]));
    let (head, environment) = node(&cluster, "head").await;
    let annotations = &head["metadata"]["annotations"];
    assert_eq!(annotations["ray.io/ft-enabled"], "true");
    assert_eq!(annotations["ray.io/external-storage-namespace"], "mine");
    for expected in
        ["RAY_REDIS_ADDRESS=redis:6379", "REDIS_PASSWORD=secret", "RAY_external_storage_namespace=mine"]
    {
        assert!(environment.contains(&expected.to_owned()), "{environment:?}");
    }
    assert!(
        head["spec"]["containers"][0]["args"][0]
            .as_str()
            .unwrap()
            .contains("--redis-password=$REDIS_PASSWORD ")
    );
    let (_, environment) = node(&cluster, "worker").await;
    assert!(
        environment.contains(&"RAY_gcs_rpc_server_reconnect_timeout_s=600".to_owned()),
        "{environment:?}"
    );

    cluster.delete(&format!("{RAYCLUSTERS}/kept")).await;
    let job = "/apis/batch/v1/namespaces/default/jobs/kept-redis-cleanup";
    let job = cluster.until(job, |job| job["metadata"]["uid"].is_string()).await;
    let pods = cluster.pods().await;
    assert!(
        pods.iter().all(|pod| pod["metadata"]["labels"]["ray.io/node-type"] != "head"),
        "the head pod is deleted before the cleanup Job runs"
    );
    assert_eq!(job["spec"]["template"]["spec"]["restartPolicy"], "Never");
    cluster
        .eventually("the cluster is gone", || async {
            cluster.list(RAYCLUSTERS).await.is_empty().then_some(())
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn token_authentication_creates_a_secret_and_sets_it_in_all_pods() {
    let cluster = cluster(&DEFAULT, 1.0).await;
    create(&cluster, "closed", &json!({ "authOptions": { "mode": "token" } }), &json!({})).await;
    ready(&cluster, "closed").await;
    let secret = cluster.get("/api/v1/namespaces/default/secrets/closed").await;
    assert!(secret["data"]["auth_token"].is_string(), "{secret}");
    for kind in ["head", "worker"] {
        let (pod, environment) = node(&cluster, kind).await;
        assert!(environment.contains(&"RAY_AUTH_MODE=token".to_owned()), "{environment:?}");
        let env = pod["spec"]["containers"][0]["env"].as_array().unwrap();
        let token = env.iter().find(|environment| environment["name"] == "RAY_AUTH_TOKEN").unwrap();
        assert_eq!(token["valueFrom"]["secretKeyRef"], json!({ "name": "closed", "key": "auth_token" }));
    }
}

#[tokio::test(start_paused = true)]
async fn a_user_defined_head_service_is_used_by_workers_and_status() {
    let cluster = cluster(&DEFAULT, 1.0).await;
    let service = json!({
        "metadata": { "name": "front", "labels": { "mine": "yes" } },
        "spec": { "type": "NodePort", "ports": [{ "name": "extra", "port": 12345 }] },
    });
    create(&cluster, "fronted", &json!({}), &json!({ "headService": service })).await;
    let fronted = ready(&cluster, "fronted").await;
    let service = cluster.get("/api/v1/namespaces/default/services/front").await;
    assert_eq!(service["metadata"]["labels"]["mine"], "yes");
    assert_eq!(service["metadata"]["labels"]["ray.io/cluster"], "fronted");
    let port = service["spec"]["ports"][0]["nodePort"].as_i64().unwrap();
    let status = &fronted["status"];
    assert_eq!(status["endpoints"]["extra"], port.to_string());
    assert_eq!(status["head"]["serviceName"], "front");
    assert_eq!(status["head"]["serviceIP"], service["spec"]["clusterIP"]);
    let (_, environment) = node(&cluster, "worker").await;
    assert!(environment.contains(&"FQ_RAY_IP=front.default.svc.cluster.local".to_owned()), "{environment:?}");
}

#[tokio::test(start_paused = true)]
async fn a_failed_pod_creation_is_reported_once_with_a_stable_message() {
    let cluster = cluster(&DEFAULT, 1.0).await;
    let containers = json!([{ "name": "ray", "image": "ray" }]);
    let head = json!({ "spec": { "serviceAccountName": "nobody", "containers": containers } });
    create(&cluster, "stuck", &json!({}), &json!({ "template": head })).await;
    let path = format!("{RAYCLUSTERS}/stuck");
    let stuck = cluster.until(&path, |stuck| !stuck["status"]["conditions"][0].is_null()).await;
    let condition = &stuck["status"]["conditions"][0];
    assert_eq!(condition["reason"], "FailedCreateHeadPod");
    assert!(stuck["status"]["reason"].is_null(), "{stuck}");
    let events = cluster.events("stuck").await;
    let failed = events.iter().filter(|event| event.starts_with("FailedToCreateHeadPod")).collect::<Vec<_>>();
    let why = "pods \"stuck-head-\" is forbidden: error looking up service account default/nobody: \
               serviceaccount \"nobody\" not found";
    assert_eq!(failed, [&format!("FailedToCreateHeadPod: Failed to create head Pod default/, {why}")]);
    assert_eq!(condition["message"], format!("FailedCreateHeadPod\n{why}"));
}
