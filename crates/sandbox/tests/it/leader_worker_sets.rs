//! `LeaderWorkerSets` through the Kubernetes API.

#![allow(clippy::unwrap_used, reason = "a failed helper ends the test")]

use crate::support::{Cluster, DEFAULT, PODS, cluster, holds};
use serde_json::{Value, json};

const SETS: &str = "/apis/leaderworkerset.x-k8s.io/v1/namespaces/default/leaderworkersets";
const SET: &str = "/apis/leaderworkerset.x-k8s.io/v1/namespaces/default/leaderworkersets/serve";

fn template(annotations: &Value) -> Value {
    json!({"metadata": {"annotations": annotations}, "spec": {"containers": [{"name": "main", "image": "i",
        "env": [{"name": "OTHER", "value": "x"}, {"name": "LWS_GROUP_SIZE", "value": "9"}]}]}})
}

/// A set with these fields and this group.
fn set(spec: &Value, group: &Value) -> Value {
    let mut set = json!({"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet",
        "metadata": {"name": "serve"}, "spec": {"leaderWorkerTemplate": {"workerTemplate": template(&json!({}))}}});
    set["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    set["spec"]["leaderWorkerTemplate"].as_object_mut().unwrap().extend(group.as_object().unwrap().clone());
    set
}

async fn names(cluster: &Cluster) -> Vec<String> {
    let name = |pod: &Value| pod["metadata"]["name"].as_str().unwrap().to_owned();
    let mut names: Vec<String> = cluster.pods().await.iter().map(name).collect();
    names.sort();
    names
}

async fn pod(cluster: &Cluster, name: &str) -> Value {
    cluster.get(&format!("{PODS}/{name}")).await
}

fn ready(count: u32) -> impl Fn(&Value) -> bool {
    move |set| set["status"]["readyReplicas"] == count && holds(set, "Available", "True")
}

#[tokio::test(start_paused = true)]
async fn a_set_has_groups_of_a_leader_and_its_workers_and_follows_its_scale() {
    let cluster = cluster(&DEFAULT, 1.0).await;
    cluster.create(SETS, &set(&json!({"replicas": 2}), &json!({"size": 3}))).await;
    cluster.until(SET, |set| holds(set, "Progressing", "True")).await;
    let found = cluster.until(SET, ready(2)).await;
    assert!(holds(&found, "Progressing", "False"), "{found:#}");
    assert_eq!(found["status"]["replicas"], 2);
    assert_eq!(found["status"]["updatedReplicas"], 2);
    assert_eq!(found["status"]["observedGeneration"], 1);
    let all = ["serve-0", "serve-0-1", "serve-0-2", "serve-1", "serve-1-1", "serve-1-2"];
    assert_eq!(names(&cluster).await, all);

    let (leader, worker) = (pod(&cluster, "serve-1").await, pod(&cluster, "serve-1-2").await);
    let own = |pod: &Value, field: &str, key: &str| {
        pod["metadata"][field][format!("leaderworkerset.sigs.k8s.io/{key}")].clone()
    };
    for (pod, number) in [(&leader, "0"), (&worker, "2")] {
        assert_eq!(own(pod, "labels", "name"), "serve");
        assert_eq!(own(pod, "labels", "group-index"), "1");
        assert_eq!(own(pod, "labels", "worker-index"), number);
        assert_eq!(own(pod, "annotations", "size"), "3");
        let variables = json!([{"name": "LWS_LEADER_ADDRESS", "value": "serve-1.serve.default"},
            {"name": "LWS_GROUP_SIZE", "value": "3"}, {"name": "LWS_WORKER_INDEX", "value": number},
            {"name": "OTHER", "value": "x"}]);
        assert_eq!(pod["spec"]["containers"][0]["env"], variables);
    }
    assert_eq!(own(&leader, "annotations", "leader-name"), Value::Null);
    assert_eq!(own(&worker, "annotations", "leader-name"), "serve-1");
    assert_eq!(own(&leader, "labels", "group-key"), own(&worker, "labels", "group-key"));
    let other = pod(&cluster, "serve-0").await;
    assert_ne!(own(&leader, "labels", "group-key"), own(&other, "labels", "group-key"));

    cluster.patch(SET, &json!({"spec": {"replicas": 1}})).await;
    cluster
        .eventually("one group is left", || async { (names(&cluster).await == all[..3]).then_some(()) })
        .await;
    cluster.until(SET, ready(1)).await;
    cluster.patch(SET, &json!({"spec": {"replicas": 3}})).await;
    cluster.until(SET, ready(3)).await;
    cluster.delete(SET).await;
    cluster.eventually("no pod is left", || async { cluster.pods().await.is_empty().then_some(()) }).await;
    let events = cluster.events("serve").await;
    let told = "AllGroupsReady: All replicas are ready, with 2 groups ready of total 2 groups";
    assert!(events.iter().any(|event| event == told), "{events:#?}");
}

#[tokio::test(start_paused = true)]
async fn workers_wait_for_a_ready_leader_if_they_are_to() {
    let cluster = cluster(&DEFAULT, 1.0).await;
    let group =
        json!({"size": 2, "leaderTemplate": template(&json!({"sandbox.muster.dev/fail": "never-ready"}))});
    cluster.create(SETS, &set(&json!({"startupPolicy": "LeaderReady"}), &group)).await;
    cluster.until(&format!("{PODS}/serve-0"), |pod| pod["status"]["phase"] == "Running").await;
    assert_eq!(names(&cluster).await, ["serve-0"]);
    cluster.delete(SET).await;
    cluster.until(SET, Value::is_null).await;
    cluster.eventually("no pod is left", || async { cluster.pods().await.is_empty().then_some(()) }).await;

    let leader = json!({"app": "leader"});
    let group = json!({"size": 2, "leaderTemplate": template(&leader)});
    cluster.create(SETS, &set(&json!({"startupPolicy": "LeaderReady"}), &group)).await;
    cluster.until(SET, ready(1)).await;
    let [first, second] = [pod(&cluster, "serve-0").await, pod(&cluster, "serve-0-1").await];
    assert_eq!(first["metadata"]["annotations"]["app"], "leader");
    assert_eq!(second["metadata"]["annotations"]["app"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn a_lost_worker_starts_its_group_again_or_only_itself() {
    for (policy, is_whole) in [("RecreateGroupOnPodRestart", true), ("None", false)] {
        let cluster = cluster(&DEFAULT, 1.0).await;
        let group = json!({"size": 3, "restartPolicy": policy});
        cluster.create(SETS, &set(&json!({"replicas": 2}), &group)).await;
        cluster.until(SET, ready(2)).await;
        let uid = |pod: &Value| pod["metadata"]["uid"].clone();
        let mut before = Vec::new();
        for name in ["serve-0", "serve-1", "serve-1-1", "serve-1-2"] {
            before.push((name, uid(&pod(&cluster, name).await)));
        }
        cluster.delete(&format!("{PODS}/serve-1-1")).await;
        cluster.until(&format!("{PODS}/serve-1-1"), |pod| pod.is_object() && uid(pod) != before[2].1).await;
        cluster.until(SET, ready(2)).await;
        for (name, old) in &before {
            let is_new = uid(&pod(&cluster, name).await) != *old;
            let expected = *name == "serve-1-1" || (is_whole && name.starts_with("serve-1"));
            assert_eq!(is_new, expected, "{policy}: {name}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_container_that_starts_again_takes_its_group_with_it() {
    let cluster = cluster(&DEFAULT, 1.0).await;
    cluster.create(SETS, &set(&json!({}), &json!({"size": 2}))).await;
    cluster.until(SET, ready(1)).await;
    let leader = pod(&cluster, "serve-0").await["metadata"]["uid"].clone();
    let fail = json!({"metadata": {"annotations": {"sandbox.muster.dev/fail": "exit=3"}}});
    cluster.patch(&format!("{PODS}/serve-0-1"), &fail).await;
    let is_new = |pod: &Value| pod.is_object() && pod["metadata"]["uid"] != leader;
    cluster.until(&format!("{PODS}/serve-0"), is_new).await;
    cluster.until(SET, ready(1)).await;
    let told = "RecreateGroup: Worker pod serve-0-1 failed, deleted leader pod serve-0 to recreate group 0";
    let events = cluster.events("serve").await;
    assert!(events.iter().any(|event| event == told), "{events:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_changed_template_replaces_the_groups_one_by_one() {
    let cluster = cluster(&DEFAULT, 1.0).await;
    cluster.create(SETS, &set(&json!({"replicas": 2}), &json!({"size": 2}))).await;
    cluster.until(SET, ready(2)).await;
    let changed = template(&json!({"version": "2"}));
    cluster.patch(SET, &json!({"spec": {"leaderWorkerTemplate": {"workerTemplate": changed}}})).await;
    let half = cluster.until(SET, |set| set["status"]["updatedReplicas"] == 1).await;
    assert!(holds(&half, "UpdateInProgress", "True"), "{half:#}");
    assert_eq!(pod(&cluster, "serve-0").await["metadata"]["annotations"]["version"], Value::Null);
    let set = cluster.until(SET, |set| set["status"]["updatedReplicas"] == 2 && ready(2)(set)).await;
    assert!(holds(&set, "UpdateInProgress", "False"), "{set:#}");
    assert_eq!(pod(&cluster, "serve-0-1").await["metadata"]["annotations"]["version"], "2");
}

#[tokio::test(start_paused = true)]
async fn a_set_of_a_million_groups_gets_the_pods_that_the_nodes_could_hold_and_is_told_so() {
    let cluster = cluster(&DEFAULT, 1.0).await;
    cluster.create(SETS, &set(&json!({"replicas": 1_000_000}), &json!({"size": 1}))).await;
    cluster
        .eventually("as many pods as two nodes hold", || async {
            (cluster.pods().await.len() == 220).then_some(())
        })
        .await;
    tokio::time::sleep(std::time::Duration::from_mins(10)).await;
    assert_eq!(cluster.pods().await.len(), 220);
    let events = cluster.list("/api/v1/namespaces/default/events").await;
    let told = "asks for 1000000, and all simulated nodes together hold 220 pods: no more are made";
    assert!(events.iter().any(|event| event["reason"] == "TooManyPods" && event["message"] == told));
}
