//! Nodes: registration, loss and recovery. Pods: scheduling, start, faults and deletion.
#![allow(clippy::unwrap_used, reason = "a failed helper ends the test")]

use std::time::Duration;

use crate::support::{Cluster, DEFAULT, PODS, cluster, holds, pod};
use serde_json::{Value, json};

async fn annotate(cluster: &Cluster, path: &str, name: &str, value: Value) {
    cluster.patch(path, &json!({ "metadata": { "annotations": { name: value } } })).await;
}

fn state(pod: &Value, index: usize) -> &Value {
    &pod["status"]["containerStatuses"][index]["state"]
}

/// The reason of the condition `DisruptionTarget`; empty without it.
fn disruption(pod: &Value) -> &str {
    let mut conditions = pod["status"]["conditions"].as_array().unwrap().iter();
    let found = conditions.find(|condition| condition["type"] == "DisruptionTarget");
    found.and_then(|condition| condition["reason"].as_str()).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn nodes_report_status_and_renew_their_leases() {
    let cluster = cluster(&["count=2,name=gpu,cpu=16,memory=64Gi,nvidia.com/gpu=2,label.zone=a"], 1.0).await;
    let node = cluster.get("/api/v1/nodes/gpu-1").await;
    assert!(holds(&node, "Ready", "True") && holds(&node, "MemoryPressure", "False"));
    assert_eq!(node["metadata"]["labels"]["kubernetes.io/hostname"], "gpu-1");
    assert_eq!(node["metadata"]["labels"]["zone"], "a");
    let capacity = json!({ "cpu": "16", "memory": "64Gi", "nvidia.com/gpu": "2", "pods": "110" });
    assert_eq!((&node["status"]["capacity"], &node["status"]["allocatable"]), (&capacity, &capacity));
    let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/gpu-1";
    let first = cluster.until(lease, |lease| lease["spec"]["renewTime"].is_string()).await;
    cluster.until(lease, |lease| lease["spec"]["renewTime"] != first["spec"]["renewTime"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_plain_pod_is_ready_within_two_seconds_and_reports_its_addresses() {
    let cluster = cluster(&DEFAULT, 1.0).await;
    cluster.create(PODS, &pod("p", &json!({ "cpu": "1" }))).await;
    let running = cluster.until(&format!("{PODS}/p"), |pod| holds(pod, "Ready", "True")).await;
    assert!(cluster.elapsed() < 2.0, "{}", cluster.elapsed());
    let status = &running["status"];
    assert_eq!((&status["phase"], &status["qosClass"]), (&json!("Running"), &json!("Burstable")));
    for condition in ["PodReadyToStartContainers", "Initialized", "ContainersReady", "PodScheduled"] {
        assert!(holds(&running, condition, "True"), "{condition}");
    }
    assert!(status["podIP"].as_str().unwrap().starts_with("10.244."));
    assert!(status["containerStatuses"][0]["containerID"].as_str().unwrap().starts_with("containerd://"));
    let reasons: Vec<String> =
        cluster.events("p").await.iter().map(|event| event.split(':').next().unwrap().to_owned()).collect();
    assert_eq!(reasons, ["Scheduled", "Pulled", "Created", "Started"]);
    cluster.delete(&format!("{PODS}/p")).await;
    cluster.until(&format!("{PODS}/p"), Value::is_null).await;
}

#[tokio::test(start_paused = true)]
async fn an_unschedulable_pod_reports_the_reason_and_starts_after_a_node_is_added() {
    let cluster = cluster(&DEFAULT, 50.0).await;
    cluster.create(PODS, &pod("big", &json!({ "cpu": "20", "nvidia.com/gpu": "1" }))).await;
    let path = format!("{PODS}/big");
    let waiting = cluster.until(&path, |pod| holds(pod, "PodScheduled", "False")).await;
    let conditions = waiting["status"]["conditions"].as_array().unwrap();
    assert_eq!(conditions[0]["reason"], "Unschedulable");
    assert_eq!(
        conditions[0]["message"],
        "0/2 nodes are available: 1 Insufficient nvidia.com/gpu, 2 Insufficient cpu. preemption: 0/2 nodes are \
         available: 2 Preemption is not helpful for scheduling."
    );
    cluster
        .create(
            "/api/v1/nodes",
            &json!({
                "apiVersion": "v1", "kind": "Node", "metadata": { "name": "huge" },
                "status": { "capacity": { "cpu": "64", "memory": "64Gi", "nvidia.com/gpu": "8" } },
            }),
        )
        .await;
    let running = cluster.until(&path, |pod| holds(pod, "Ready", "True")).await;
    assert_eq!(running["spec"]["nodeName"], "huge");
    assert!(cluster.events("big").await.iter().any(|event| event.starts_with("FailedScheduling: 0/2 nodes")));
}

#[tokio::test(start_paused = true)]
async fn a_pending_pod_starts_after_another_pod_releases_its_requests() {
    let cluster = cluster(&["cpu=4,memory=8Gi"], 50.0).await;
    cluster.create(PODS, &pod("first", &json!({ "cpu": "3" }))).await;
    cluster.until(&format!("{PODS}/first"), |pod| holds(pod, "Ready", "True")).await;
    cluster.create(PODS, &pod("second", &json!({ "cpu": "3" }))).await;
    cluster.until(&format!("{PODS}/second"), |pod| holds(pod, "PodScheduled", "False")).await;
    cluster.delete(&format!("{PODS}/first")).await;
    cluster.until(&format!("{PODS}/second"), |pod| holds(pod, "Ready", "True")).await;
}

#[tokio::test(start_paused = true)]
async fn a_gated_pod_is_not_scheduled_until_it_is_ungated() {
    let cluster = cluster(&DEFAULT, 50.0).await;
    let mut gated = pod("gated", &json!({}));
    gated["spec"]["schedulingGates"] = json!([{ "name": "muster.dev/assignment" }]);
    cluster.create(PODS, &gated).await;
    let path = format!("{PODS}/gated");
    let held = cluster.until(&path, |pod| holds(pod, "PodScheduled", "False")).await;
    assert_eq!(held["status"]["conditions"][0]["reason"], "SchedulingGated");
    cluster.patch(&path, &json!({ "spec": { "schedulingGates": null } })).await;
    cluster.until(&path, |pod| holds(pod, "Ready", "True")).await;
}

#[tokio::test(start_paused = true)]
async fn a_cordoned_node_has_the_taint_of_cordoned_nodes_until_it_is_uncordoned() {
    let cluster = cluster(&["cpu=4,memory=8Gi,taint.mine=yes:NoSchedule"], 50.0).await;
    let path = "/api/v1/nodes/node";
    let keys = |node: &Value| -> Vec<String> {
        let taints = node["spec"]["taints"].as_array().into_iter().flatten();
        taints.map(|taint| format!("{}:{}", taint["key"], taint["effect"]).replace('"', "")).collect()
    };
    let both = ["mine:NoSchedule", "node.kubernetes.io/unschedulable:NoSchedule"];
    cluster.patch(path, &json!({ "spec": { "unschedulable": true } })).await;
    cluster.until(path, |node| keys(node) == both).await;
    cluster.patch(path, &json!({ "spec": { "unschedulable": null } })).await;
    cluster.until(path, |node| keys(node) == both[..1]).await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_node_is_tainted_and_keeps_its_terminating_pods_until_it_recovers() {
    let cluster = cluster(&["count=2,cpu=4,memory=8Gi"], 50.0).await;
    cluster.create(PODS, &pod("p", &json!({ "cpu": "1" }))).await;
    let path = format!("{PODS}/p");
    let running = cluster.until(&path, |pod| holds(pod, "Ready", "True")).await;
    let node = format!("/api/v1/nodes/{}", running["spec"]["nodeName"].as_str().unwrap());
    annotate(&cluster, &node, "sandbox.muster.dev/lost", json!("true")).await;
    let lost = cluster.until(&node, |node| holds(node, "Ready", "Unknown")).await;
    assert!(lost["spec"]["taints"].as_array().is_none_or(|taints| taints.len() <= 2));
    cluster.until(&path, |pod| holds(pod, "Ready", "False")).await;
    cluster.until(&path, |pod| !pod["metadata"]["deletionTimestamp"].is_null()).await;
    // 40 s until the node is unreachable and 300 s of toleration, at fifty times the speed.
    assert!((6.0..9.0).contains(&cluster.elapsed()), "{}", cluster.elapsed());
    tokio::time::sleep(Duration::from_mins(10)).await;
    let kept = cluster.until(&path, |pod| !pod["metadata"]["deletionTimestamp"].is_null()).await;
    assert_eq!(disruption(&kept), "DeletionByTaintManager");
    annotate(&cluster, &node, "sandbox.muster.dev/lost", Value::Null).await;
    cluster.until(&path, Value::is_null).await;
    let back = cluster.until(&node, |node| holds(node, "Ready", "True")).await;
    cluster.until(&node, |node| node["spec"]["taints"].is_null()).await;
    assert_eq!(back["spec"]["podCIDR"], lost["spec"]["podCIDR"]);
}

#[tokio::test(start_paused = true)]
async fn terminating_pods_of_a_lost_node_are_deleted_when_it_is_out_of_service() {
    let cluster = cluster(&["count=1,cpu=4,memory=8Gi"], 50.0).await;
    cluster.create(PODS, &pod("p", &json!({ "cpu": "1" }))).await;
    let path = format!("{PODS}/p");
    let running = cluster.until(&path, |pod| holds(pod, "Ready", "True")).await;
    let node = format!("/api/v1/nodes/{}", running["spec"]["nodeName"].as_str().unwrap());
    annotate(&cluster, &node, "sandbox.muster.dev/lost", json!("true")).await;
    cluster.until(&path, |pod| !pod["metadata"]["deletionTimestamp"].is_null()).await;
    let taint = json!([{ "key": "node.kubernetes.io/out-of-service", "effect": "NoExecute" }]);
    cluster.patch(&node, &json!({ "spec": { "taints": taint } })).await;
    cluster.until(&path, Value::is_null).await;
}

#[tokio::test(start_paused = true)]
async fn pods_fail_as_their_annotation_says() {
    let cluster = cluster(&DEFAULT, 1.0).await;
    let create = |name: &'static str, policy: &'static str, fault: &'static str| {
        let mut object = pod(name, &json!({}));
        object["metadata"]["annotations"] = json!({ "sandbox.muster.dev/fail": fault });
        object["spec"]["restartPolicy"] = json!(policy);
        object
    };
    for object in [
        create("exits", "Never", "exit=3,after=2s"),
        create("oom", "Never", "oom,after=2s"),
        create("loops", "Always", "crash-loop"),
        create("image", "Always", "image-pull"),
        create("unready", "Always", "never-ready"),
        create("evicted", "Always", "evict,after=2s"),
        create("recovers", "OnFailure", "exit=1,after=1s,times=1"),
    ] {
        cluster.create(PODS, &object).await;
    }
    let get = async |name: &str, check: &dyn Fn(&Value) -> bool| {
        cluster.until(&format!("{PODS}/{name}"), check).await
    };
    let exits = get("exits", &|pod| pod["status"]["phase"] == "Failed").await;
    assert_eq!(
        (&state(&exits, 0)["terminated"]["exitCode"], &state(&exits, 0)["terminated"]["reason"]),
        (&json!(3), &json!("Error"))
    );
    let oom = get("oom", &|pod| pod["status"]["phase"] == "Failed").await;
    assert_eq!(state(&oom, 0)["terminated"]["reason"], "OOMKilled");
    let log = cluster.text(&format!("{PODS}/oom/log")).await;
    assert_eq!(log, "started; the sandbox executes nothing\nended with exit code 137 (OOMKilled)\n");
    let evicted = get("evicted", &|pod| pod["status"]["phase"] == "Failed").await;
    assert_eq!(evicted["status"]["reason"], "Evicted");
    assert_eq!(disruption(&evicted), "TerminationByKubelet");
    let image = get("image", &|pod| state(pod, 0)["waiting"]["reason"] == "ImagePullBackOff").await;
    assert_eq!(image["status"]["phase"], "Pending");
    let loops = get("loops", &|pod| state(pod, 0)["waiting"]["reason"] == "CrashLoopBackOff").await;
    assert_eq!(loops["status"]["phase"], "Running");
    get("loops", &|pod| pod["status"]["containerStatuses"][0]["restartCount"].as_u64() >= Some(3)).await;
    let unready = get("unready", &|pod| pod["status"]["phase"] == "Running").await;
    assert!(holds(&unready, "Ready", "False"));
    let recovers = get("recovers", &|pod| pod["status"]["phase"] == "Succeeded").await;
    assert_eq!(recovers["status"]["containerStatuses"][0]["restartCount"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_fault_on_a_running_pod_applies_at_once_and_ends_with_its_annotation() {
    let cluster = cluster(&DEFAULT, 50.0).await;
    cluster.create(PODS, &pod("p", &json!({}))).await;
    let path = format!("{PODS}/p");
    cluster.until(&path, |pod| holds(pod, "Ready", "True")).await;
    annotate(&cluster, &path, "sandbox.muster.dev/fail", json!("exit=9")).await;
    let failed = cluster
        .until(&path, |pod| pod["status"]["containerStatuses"][0]["restartCount"].as_u64() >= Some(1))
        .await;
    assert_eq!(failed["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"], 9);
    annotate(&cluster, &path, "sandbox.muster.dev/fail", Value::Null).await;
    cluster.until(&path, |pod| holds(pod, "Ready", "True")).await;
    annotate(&cluster, &path, "sandbox.muster.dev/fail", json!("explode")).await;
    cluster
        .eventually("a warning event exists", || async {
            cluster.events("p").await.into_iter().find(|event| event.starts_with("InvalidSandboxAnnotation"))
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn init_containers_run_in_order_before_app_containers() {
    let cluster = cluster(&DEFAULT, 1.0).await;
    let mut object = pod("p", &json!({}));
    object["spec"]["initContainers"] = json!([
        { "name": "one", "image": "busybox" },
        { "name": "sidecar", "image": "busybox", "restartPolicy": "Always" },
        { "name": "two", "image": "busybox" },
    ]);
    cluster.create(PODS, &object).await;
    let path = format!("{PODS}/p");
    let started =
        |pod: &Value, index: usize| pod["status"]["initContainerStatuses"][index]["started"] == true;
    let two = cluster.until(&path, |pod| started(pod, 2)).await;
    assert!(started(&two, 1));
    assert_eq!(two["status"]["initContainerStatuses"][0]["state"]["terminated"]["exitCode"], 0);
    assert_eq!(state(&two, 0)["waiting"]["reason"], "PodInitializing");
    assert!(holds(&two, "Initialized", "False"));
    cluster.until(&path, |pod| holds(pod, "Ready", "True")).await;
}

#[tokio::test(start_paused = true)]
async fn components_stop_with_the_sandbox() {
    let Cluster { client, sandbox, .. } = cluster(&DEFAULT, 50.0).await;
    sandbox.shutdown().await;
    let request = http::Request::get(PODS).body(vec![]).unwrap();
    let pods: Value = client.request(request).await.unwrap();
    assert_eq!(pods["items"], json!([]));
}
