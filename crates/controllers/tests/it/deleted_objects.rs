//! Wrapped objects that are deleted while their gang runs: the places go back, and the author is told.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::time::Duration;

use crate::common::{Cluster, Group, config_maps, resource, wrappers};
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::ApiResource;
use serde_json::{Value, json};
use tokio::time::sleep;

fn jobs() -> ApiResource {
    resource("batch/v1", "Job", "jobs")
}

fn pods() -> ApiResource {
    resource("v1", "Pod", "pods")
}

/// One node of 4 CPUs.
async fn cluster() -> Cluster {
    let cluster = Cluster::new().await;
    cluster.node("n", &json!({"cpu": "4", "memory": "16Gi", "pods": "110"})).await;
    cluster
}

/// A Job of one pod of so many CPUs.
fn job(name: &str, cpu: &str) -> Value {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}});
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": template}})
}

fn gang(name: &str, objects: &[Value], completion: &str) -> Value {
    let item = |object: &Value| json!({"generictemplate": object, "completionstatus": completion});
    json!({
        "apiVersion": "mcad.ibm.com/v1beta1", "kind": "AppWrapper",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"resources": {"GenericItems": objects.iter().map(item).collect::<Vec<_>>()}},
    })
}

async fn set_status(cluster: &Cluster, resource: &ApiResource, name: &str, status: Value) {
    let patch = Patch::Merge(json!({"status": status}));
    cluster.api(resource, "default").patch_status(name, &PatchParams::default(), &patch).await.unwrap();
}

/// The Job controller creates the pod of a Job, and it runs.
async fn run_pod(cluster: &Cluster, name: &str) {
    let job: DynamicObject = cluster.wait(&jobs(), "default", name, |_| true).await;
    let owner = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": job.metadata.uid,
        "controller": true, "blockOwnerDeletion": true}]);
    let mut spec = job.data["spec"]["template"]["spec"].clone();
    spec["nodeName"] = json!("n");
    spec["schedulingGates"] = Value::Null; // The pod was ungated and bound.
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "ownerReferences": owner}, "spec": spec});
    cluster.create_as(&pods(), "default", pod).await;
    set_status(cluster, &pods(), name, json!({"phase": "Running"})).await;
}

async fn delete_job(cluster: &Cluster, name: &str) {
    cluster.delete(&jobs(), "default", name).await;
    cluster.delete_now(&pods(), "default", name).await;
}

async fn status(cluster: &Cluster, name: &str) -> Value {
    cluster.api(&wrappers(Group::Mcad), "default").get(name).await.unwrap().data["status"].clone()
}

/// A gang that needs the whole node starts.
async fn assert_node_is_free(cluster: &Cluster) {
    cluster.submit(gang("next", &[job("next", "4")], "")).await;
    cluster.wait_state(Group::Mcad, "next", "Running", "Dispatched").await;
}

const DELETED: &str = "Job a was deleted while the AppWrapper was running; the places are released";

#[tokio::test(start_paused = true)]
async fn a_gang_whose_only_job_is_deleted_by_hand_fails_and_releases_its_places() {
    let cluster = cluster().await;
    let _controller = cluster.controller();
    cluster.submit(gang("a", &[job("a", "4")], "Complete")).await;
    run_pod(&cluster, "a").await;
    cluster.wait_state(Group::Mcad, "a", "Running", "Dispatched").await;
    delete_job(&cluster, "a").await;
    let failed = cluster.wait_state(Group::Mcad, "a", "Failed", "Failed").await;
    assert_eq!(failed["message"], DELETED);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(cluster.events().await, [format!("a ObjectsDeleted: {DELETED}")]);
    assert_node_is_free(&cluster).await;
}

#[tokio::test(start_paused = true)]
async fn a_deletion_while_the_controller_does_not_run_is_noticed() {
    let cluster = cluster().await;
    let first = cluster.controller();
    cluster.submit(gang("a", &[job("a", "4")], "Complete")).await;
    run_pod(&cluster, "a").await;
    cluster.wait_state(Group::Mcad, "a", "Running", "Dispatched").await;
    drop(first);
    delete_job(&cluster, "a").await;
    let _second = cluster.controller();
    cluster.wait_state(Group::Mcad, "a", "Failed", "Failed").await;
    assert_node_is_free(&cluster).await;
}

#[tokio::test(start_paused = true)]
async fn the_other_objects_of_a_gang_keep_running() {
    let cluster = cluster().await;
    let _controller = cluster.controller();
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}});
    cluster.submit(gang("both", &[job("a", "3"), job("b", "1"), map], "Complete")).await;
    run_pod(&cluster, "a").await;
    run_pod(&cluster, "b").await;
    sleep(Duration::from_secs(5)).await;
    delete_job(&cluster, "a").await;
    sleep(Duration::from_secs(5)).await;
    assert_eq!(status(&cluster, "both").await["message"], DELETED);
    cluster.submit(gang("small", &[job("small", "3")], "")).await;
    cluster.wait_state(Group::Mcad, "small", "Running", "Dispatched").await;
    cluster.submit(gang("large", &[job("large", "1")], "")).await;
    cluster.wait_state(Group::Mcad, "large", "Pending", "HeadOfLine").await;
    sleep(Duration::from_hours(1)).await;
    assert_eq!(status(&cluster, "both").await["state"], "Running");
    assert!(cluster.names(&jobs(), "default").await.contains(&"b".to_owned()));
    assert!(cluster.names(&config_maps(), "default").await.contains(&"m".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_job_that_was_complete_before_its_ttl_deleted_it_stays_complete() {
    let cluster = cluster().await;
    let _controller = cluster.controller();
    cluster.submit(gang("both", &[job("a", "3"), job("b", "1")], "Complete")).await;
    let complete = json!({"conditions": [{"type": "Complete", "status": "True"}]});
    for name in ["a", "b"] {
        run_pod(&cluster, name).await;
        sleep(Duration::from_secs(5)).await;
        set_status(&cluster, &pods(), name, json!({"phase": "Succeeded"})).await;
        set_status(&cluster, &jobs(), name, complete.clone()).await;
        sleep(Duration::from_secs(5)).await;
        if name == "a" {
            delete_job(&cluster, "a").await;
            cluster.submit(gang("small", &[job("small", "3")], "")).await;
            cluster.wait_state(Group::Mcad, "small", "Running", "Dispatched").await;
        }
    }
    let done = cluster.wait_state(Group::Mcad, "both", "Completed", "Completed").await;
    assert!(done["message"].is_null(), "{done}");
}

#[tokio::test(start_paused = true)]
async fn a_job_that_its_ttl_deleted_while_the_controller_did_not_run_has_ended() {
    for (completion, state) in [("Complete", "Completed"), ("", "Running")] {
        let cluster = cluster().await;
        let first = cluster.controller();
        let mut expiring = job("a", "4");
        expiring["spec"]["ttlSecondsAfterFinished"] = json!(0);
        cluster.submit(gang("a", &[expiring], completion)).await;
        run_pod(&cluster, "a").await;
        cluster.wait_state(Group::Mcad, "a", "Running", "Dispatched").await;
        drop(first);
        delete_job(&cluster, "a").await;
        let _second = cluster.controller();
        assert_node_is_free(&cluster).await;
        let now = status(&cluster, "a").await;
        assert_eq!(now["state"], state, "{now}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_gang_with_a_minimum_whose_pods_are_removed_after_their_success_is_not_requeued() {
    for (is_expired, is_observed) in [(true, true), (true, false), (false, true)] {
        let cluster = cluster().await;
        let first = cluster.controller();
        let mut object = job("a", "4");
        if is_expired {
            object["spec"]["ttlSecondsAfterFinished"] = json!(0);
        }
        let mut gang = gang("a", &[object], "");
        gang["spec"]["schedulingSpec"] = json!({"minAvailable": 1, "requeuing": {"timeInSeconds": 20}});
        cluster.submit(gang).await;
        run_pod(&cluster, "a").await;
        cluster.wait_state(Group::Mcad, "a", "Running", "Dispatched").await;
        let first = is_observed.then_some(first);
        let complete = json!({"succeeded": 1, "conditions": [{"type": "Complete", "status": "True"}]});
        set_status(&cluster, &pods(), "a", json!({"phase": "Succeeded"})).await;
        set_status(&cluster, &jobs(), "a", complete).await;
        sleep(Duration::from_secs(5)).await;
        if is_expired {
            delete_job(&cluster, "a").await;
        } else {
            cluster.delete_now(&pods(), "default", "a").await;
        }
        let _first = first;
        let _second = (!is_observed).then(|| cluster.controller());
        sleep(Duration::from_hours(1)).await;
        let now = status(&cluster, "a").await;
        let case = format!("expired {is_expired}, observed {is_observed}: {now}");
        assert_eq!(
            (&now["state"], now["numberOfRequeueings"].as_u64().unwrap_or(0)),
            (&json!("Running"), 0),
            "{case}"
        );
        assert_eq!(cluster.names(&jobs(), "default").await.contains(&"a".to_owned()), !is_expired, "{case}");
        assert_node_is_free(&cluster).await;
    }
}
