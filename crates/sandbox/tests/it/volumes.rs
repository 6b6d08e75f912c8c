//! Claims and volumes: where the scheduler lets pods with claims run, and what binds the claims.

use serde_json::{Value, json};

use crate::support::{Cluster, DEFAULT, PODS, cluster, holds, pod};

const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const VOLUMES: &str = "/api/v1/persistentvolumes";
const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";
const ZONES: [&str; 2] =
    ["count=1,name=a,cpu=4,memory=8Gi,label.zone=a", "count=1,name=b,cpu=4,memory=8Gi,label.zone=b"];

fn with_claim(name: &str, claim: &str) -> Value {
    with_volume(name, &json!({ "persistentVolumeClaim": { "claimName": claim } }))
}

fn with_volume(name: &str, source: &Value) -> Value {
    let mut pod = pod(name, &json!({}));
    let mut volume = source.clone();
    volume["name"] = json!("data");
    pod["spec"]["volumes"] = json!([volume]);
    pod
}

fn claim(name: &str, spec: &Value) -> Value {
    let mut claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": name },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
    });
    for (field, value) in spec.as_object().into_iter().flatten() {
        claim["spec"][field] = value.clone();
    }
    claim
}

/// A volume in a zone.
fn volume(name: &str, zone: &str, spec: &Value) -> Value {
    let terms = json!([{ "matchExpressions": [{ "key": "zone", "operator": "In", "values": [zone] }] }]);
    let mut volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": name },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": { "storage": "1Gi" }, "hostPath": { "path": "/data" },
            "nodeAffinity": { "required": { "nodeSelectorTerms": terms } },
        },
    });
    for (field, value) in spec.as_object().into_iter().flatten() {
        volume["spec"][field] = value.clone();
    }
    volume
}

fn class(name: &str, fields: &Value) -> Value {
    let mut class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": name },
        "provisioner": "disk.csi.example.com", "volumeBindingMode": "WaitForFirstConsumer",
    });
    for (field, value) in fields.as_object().into_iter().flatten() {
        class[field] = value.clone();
    }
    class
}

/// Waits until a pod is unschedulable, and returns why, without what is said of preemption.
async fn reason(cluster: &Cluster, name: &str, part: &str) -> String {
    let message = |pod: &Value| {
        let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        let mut found = conditions.filter(|c| c["type"] == "PodScheduled" && c["reason"] == "Unschedulable");
        found.next().and_then(|c| c["message"].as_str()).unwrap_or_default().to_owned()
    };
    let pod = cluster.until(&format!("{PODS}/{name}"), |pod| message(pod).contains(part)).await;
    message(&pod).split(" preemption:").next().unwrap_or_default().to_owned()
}

async fn runs(cluster: &Cluster, name: &str) -> Value {
    cluster.until(&format!("{PODS}/{name}"), |pod| holds(pod, "Ready", "True")).await
}

async fn bound(cluster: &Cluster, name: &str) -> Value {
    cluster.until(&format!("{CLAIMS}/{name}"), |claim| claim["status"]["phase"] == "Bound").await
}

#[tokio::test(start_paused = true)]
async fn a_pod_waits_for_its_claim_which_gets_a_volume_of_the_default_class() {
    let cluster = cluster(&DEFAULT, 50.0).await;
    cluster.create(PODS, &with_claim("p", "data")).await;
    let missing = "0/2 nodes are available: persistentvolumeclaim \"data\" not found.";
    assert_eq!(reason(&cluster, "p", "not found").await, missing);
    cluster.create(CLAIMS, &claim("data", &json!({}))).await;
    runs(&cluster, "p").await;
    let data = bound(&cluster, "data").await;
    assert_eq!(
        (&data["spec"]["storageClassName"], &data["status"]["capacity"]["storage"]),
        (&json!("standard"), &json!("1Gi"))
    );
    let path = format!("{VOLUMES}/{}", data["spec"]["volumeName"].as_str().unwrap_or_default());
    cluster.until(&path, |volume| volume["status"]["phase"] == "Bound").await;
    // A claim in use stays until its last pod is gone; no further pod may use it.
    cluster.delete(&format!("{CLAIMS}/data")).await;
    cluster.create(PODS, &with_claim("q", "data")).await;
    let leaving = "0/2 nodes are available: persistentvolumeclaim \"data\" is being deleted.";
    assert_eq!(reason(&cluster, "q", "deleted").await, leaving);
    cluster.delete(&format!("{PODS}/p")).await;
    cluster.until(&format!("{CLAIMS}/data"), Value::is_null).await;
    cluster.until(&path, Value::is_null).await;
    reason(&cluster, "q", "not found").await;
}

#[tokio::test(start_paused = true)]
async fn claims_that_cannot_be_bound_at_once_leave_their_pods_pending() {
    let cluster = cluster(&DEFAULT, 50.0).await;
    for (name, spec, event) in [
        (
            "unknown",
            json!({ "storageClassName": "fast" }),
            "ProvisioningFailed: storageclass.storage.k8s.io \"fast\" not found",
        ),
        (
            "none",
            json!({ "storageClassName": "" }),
            "FailedBinding: no persistent volumes available for this claim and no storage class is set",
        ),
        ("absent", json!({ "storageClassName": "", "volumeName": "absent" }), ""),
    ] {
        cluster.create(CLAIMS, &claim(name, &spec)).await;
        cluster.create(PODS, &with_claim(name, name)).await;
        let unbound = "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims.";
        assert_eq!(reason(&cluster, name, "unbound").await, unbound, "{name}");
        if !event.is_empty() {
            let told = || async { cluster.events(name).await.into_iter().find(|told| told == event) };
            cluster.eventually(event, told).await;
        }
    }
    cluster.create(CLASSES, &class("fast", &json!({ "volumeBindingMode": "Immediate" }))).await;
    runs(&cluster, "unknown").await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_waits_for_its_pod_gets_a_volume_where_the_pod_is() {
    let cluster = cluster(&ZONES, 50.0).await;
    let topologies = json!([{ "matchLabelExpressions": [{ "key": "zone", "values": ["b", "c"] }] }]);
    cluster.create(CLASSES, &class("zonal", &json!({ "allowedTopologies": topologies }))).await;
    cluster.create(CLAIMS, &claim("data", &json!({ "storageClassName": "zonal" }))).await;
    let waits = "WaitForFirstConsumer: waiting for first consumer to be created before binding";
    let told = || async { cluster.events("data").await.into_iter().find(|told| told == waits) };
    cluster.eventually(waits, told).await;
    let mut elsewhere = with_claim("elsewhere", "data");
    elsewhere["spec"]["nodeSelector"] = json!({ "zone": "a" });
    cluster.create(PODS, &elsewhere).await;
    let no_volume = "0/2 nodes are available: 1 node(s) didn't find available persistent volumes to bind, 1 node(s) didn't match Pod's node affinity/selector.";
    assert_eq!(reason(&cluster, "elsewhere", "find").await, no_volume);
    cluster.create(PODS, &with_claim("p", "data")).await;
    cluster.create(PODS, &with_claim("q", "data")).await;
    assert_eq!(runs(&cluster, "p").await["spec"]["nodeName"], "b");
    assert_eq!(runs(&cluster, "q").await["spec"]["nodeName"], "b");
    let name = bound(&cluster, "data").await["spec"]["volumeName"].clone();
    let made = cluster.get(&format!("{VOLUMES}/{}", name.as_str().unwrap_or_default())).await;
    let term = &made["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"][0];
    assert_eq!(*term, json!({ "key": "zone", "operator": "In", "values": ["b"] }));
    let elsewhere = "0/2 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity, 1 node(s) didn't match Pod's node affinity/selector.";
    assert_eq!(reason(&cluster, "elsewhere", "PersistentVolume").await, elsewhere);
}

#[tokio::test(start_paused = true)]
async fn local_volumes_are_bound_to_the_pods_that_come_to_their_nodes() {
    let cluster = cluster(&ZONES, 50.0).await;
    cluster.create(CLASSES, &class("local", &json!({ "provisioner": "kubernetes.io/no-provisioner" }))).await;
    for zone in ["a", "b"] {
        cluster.create(VOLUMES, &volume(zone, zone, &json!({ "storageClassName": "local" }))).await;
    }
    for name in ["one", "two", "three"] {
        cluster.create(CLAIMS, &claim(name, &json!({ "storageClassName": "local" }))).await;
        cluster.create(PODS, &with_claim(name, name)).await;
    }
    let two = async |claim: &str| {
        let pod = cluster.get(&format!("{PODS}/{claim}")).await;
        let claim = cluster.get(&format!("{CLAIMS}/{claim}")).await;
        (
            pod["spec"]["nodeName"].is_string(),
            claim["status"]["phase"] == "Bound",
            pod["spec"]["nodeName"].as_str().map(str::to_owned),
            claim["spec"]["volumeName"].as_str().map(str::to_owned),
        )
    };
    let none = "0/2 nodes are available: 2 node(s) didn't find available persistent volumes to bind.";
    cluster
        .eventually("two pods have nodes", || async {
            let all = [two("one").await, two("two").await, two("three").await];
            (all.iter().filter(|(is_placed, is_bound, ..)| *is_placed && *is_bound).count() == 2)
                .then_some(())
        })
        .await;
    let mut waiting = 0;
    for name in ["one", "two", "three"] {
        let (is_placed, is_bound, node, volume) = two(name).await;
        assert_eq!(is_placed, is_bound, "{name}");
        if let Some(node) = node {
            assert_eq!(volume, Some(node[..1].to_owned()), "{name}");
        } else {
            waiting += 1;
            assert_eq!(reason(&cluster, name, "find").await, none);
        }
    }
    assert_eq!(waiting, 1);
}

#[tokio::test(start_paused = true)]
async fn one_pod_at_a_time_uses_a_claim_of_one_pod() {
    let cluster = cluster(&DEFAULT, 50.0).await;
    cluster.create(CLAIMS, &claim("data", &json!({ "accessModes": ["ReadWriteOncePod"] }))).await;
    cluster.create(PODS, &with_claim("p", "data")).await;
    runs(&cluster, "p").await;
    cluster.create(PODS, &with_claim("q", "data")).await;
    let taken = "0/2 nodes are available: 2 node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod.";
    assert_eq!(reason(&cluster, "q", "Once").await, taken);
    cluster.delete(&format!("{PODS}/p")).await;
    runs(&cluster, "q").await;
}

#[tokio::test(start_paused = true)]
async fn pods_run_where_their_volumes_are() {
    let cluster = cluster(&ZONES, 50.0).await;
    cluster
        .create(VOLUMES, &volume("in-b", "b", &json!({ "persistentVolumeReclaimPolicy": "Retain" })))
        .await;
    cluster.create(CLAIMS, &claim("data", &json!({ "storageClassName": "" }))).await;
    cluster.create(PODS, &with_claim("p", "data")).await;
    assert_eq!(runs(&cluster, "p").await["spec"]["nodeName"], "b");
    cluster.delete(&format!("{PODS}/p")).await;
    cluster.delete(&format!("{CLAIMS}/data")).await;
    cluster.until(&format!("{VOLUMES}/in-b"), |volume| volume["status"]["phase"] == "Released").await;
    // A volume that is gone.
    cluster.create(CLAIMS, &claim("lost", &json!({ "accessModes": ["ReadWriteMany"] }))).await;
    let lost = bound(&cluster, "lost").await["spec"]["volumeName"].as_str().unwrap_or_default().to_owned();
    cluster.delete(&format!("{VOLUMES}/{lost}")).await;
    cluster.until(&format!("{CLAIMS}/lost"), |claim| claim["status"]["phase"] == "Lost").await;
    cluster.create(PODS, &with_claim("q", "lost")).await;
    let gone = format!(
        "0/2 nodes are available: persistentvolumeclaim \"lost\" bound to non-existent persistentvolume {lost:?}."
    );
    assert_eq!(reason(&cluster, "q", "non-existent").await, gone);
    // One disk, of which only one pod on a node may write.
    let disk = json!({ "gcePersistentDisk": { "pdName": "d" } });
    for name in ["d1", "d2", "d3"] {
        cluster.create(PODS, &with_volume(name, &disk)).await;
    }
    assert_eq!(
        reason(&cluster, "d3", "disk").await,
        "0/2 nodes are available: 2 node(s) had no available disk."
    );
}

#[tokio::test(start_paused = true)]
async fn claims_are_created_for_ephemeral_volumes_and_for_pods_of_stateful_sets() {
    let cluster = cluster(&DEFAULT, 50.0).await;
    let template = claim("", &json!({}))["spec"].clone();
    let ephemeral = json!({ "ephemeral": { "volumeClaimTemplate": { "spec": template } } });
    cluster.create(PODS, &with_volume("p", &ephemeral)).await;
    runs(&cluster, "p").await;
    bound(&cluster, "p-data").await;
    cluster.delete(&format!("{PODS}/p")).await;
    cluster.until(&format!("{CLAIMS}/p-data"), Value::is_null).await;
    let mut pod = pod("", &json!({}));
    pod["metadata"] = json!({ "labels": { "app": "s" } });
    let set = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "name": "s" },
        "spec": {
            "replicas": 2, "serviceName": "s", "selector": { "matchLabels": { "app": "s" } },
            "template": { "metadata": pod["metadata"], "spec": pod["spec"] },
            "volumeClaimTemplates": [{ "metadata": { "name": "data" }, "spec": template }],
        },
    });
    cluster.create("/apis/apps/v1/namespaces/default/statefulsets", &set).await;
    let last = runs(&cluster, "s-1").await;
    assert_eq!(last["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"], "data-s-1");
    assert_eq!(bound(&cluster, "data-s-0").await["metadata"]["labels"]["app"], "s");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_asks_for_devices_by_claim_is_refused_in_words() {
    let cluster = cluster(&DEFAULT, 50.0).await;
    let mut object = pod("p", &json!({}));
    object["spec"]["resourceClaims"] = json!([{ "name": "gpu", "resourceClaimTemplateName": "gpu" }]);
    cluster.create(PODS, &object).await;
    let refused = "0/2 nodes are available: the sandbox allocates no devices to resource claims such as \"gpu\": \
                   request an extended resource such as nvidia.com/gpu instead.";
    assert_eq!(reason(&cluster, "p", "devices").await, refused);
}

#[tokio::test(start_paused = true)]
async fn affinity_to_pods_of_selected_namespaces_reads_the_labels_of_namespaces() {
    let cluster = cluster(&ZONES, 50.0).await;
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "other", "labels": { "team": "x" } } });
    cluster.create("/api/v1/namespaces", &namespace).await;
    let mut near = pod("near", &json!({}));
    near["metadata"]["labels"] = json!({ "app": "x" });
    near["spec"]["nodeSelector"] = json!({ "zone": "b" });
    let others = "/api/v1/namespaces/other/pods";
    cluster.create(others, &near).await;
    cluster.until(&format!("{others}/near"), |pod| holds(pod, "Ready", "True")).await;
    let mut object = pod("p", &json!({}));
    object["spec"]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = json!([{
        "topologyKey": "zone", "labelSelector": { "matchLabels": { "app": "x" } },
        "namespaceSelector": { "matchLabels": { "team": "x" } },
    }]);
    cluster.create(PODS, &object).await;
    assert_eq!(runs(&cluster, "p").await["spec"]["nodeName"], "b");
}
