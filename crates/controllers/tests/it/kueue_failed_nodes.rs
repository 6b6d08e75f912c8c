//! Nodes that fail under running Workloads: places there are replaced, or the Workload is evicted.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use crate::common::elastic::{create_pod, is_free};
use crate::common::gang_pods::{cordon, evict, host, nodes, pods, run};
use crate::common::jobs::*;
use crate::common::kueue::*;
use crate::common::queued_pods::{runs, submit_pod};
use crate::common::{Cluster, Running, gang_pods};
use crate::kueue_places::{cluster_of, controller, domains, pairs, running_jobs, with_rules};
use controllers::FailedNodeRules;
use kube::api::DynamicObject;
use serde_json::{Value, json};

/// A running Job of pods that fill a node each, and the hosts of its pods.
async fn spread_job(cluster: &Cluster, pods: u32) -> (DynamicObject, Vec<String>) {
    let mut job = pairs("train", pods);
    job["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "4".into();
    submit_job(cluster, job).await;
    let train = running(cluster, "train").await;
    let mut hosts = Vec::new();
    for pod in 0..pods {
        let pod = format!("train-{pod}");
        create_pod(cluster, &train, &pod).await;
        hosts.push(host(cluster, &pod).await);
        run(cluster, &pod, hosts.last().unwrap()).await;
    }
    (train, hosts)
}

fn is_evicted(workload: &DynamicObject) -> bool {
    is(workload, "Evicted", "True", "NodeFailures")
}

fn patient(cluster: &Cluster) -> Running {
    with_rules(cluster, FailedNodeRules { fails_fast: false, ..FailedNodeRules::default() })
}

#[tokio::test(start_paused = true)]
async fn places_on_a_failed_node_are_replaced_and_the_other_pods_stay() {
    let cluster = cluster_of(&[&["a", "b", "c"]]).await;
    let controller = controller(&cluster);
    let (train, hosts) = spread_job(&cluster, 2).await;
    let spare = ["a", "b", "c"].into_iter().find(|name| !hosts.iter().any(|host| host == name)).unwrap();
    // The pod runs on until it is evicted.
    cordon(&cluster, &hosts[0]).await;
    cluster.settled().await;
    let before = workload_of(&cluster, "train", |_| true).await;
    assert_eq!(before.data["status"]["unhealthyNodes"], Value::Null);
    evict(&cluster, "train-0").await;
    let is_replaced = |workload: &DynamicObject| domains(workload).contains(&format!("{spare:?}"));
    let after = workload_of(&cluster, "train", is_replaced).await;
    assert_eq!(after.data["status"]["unhealthyNodes"], Value::Null);
    assert!(!domains(&after).contains(&format!("{:?}", hosts[0])));
    create_pod(&cluster, &train, "train-2").await;
    assert_eq!(host(&cluster, "train-2").await, spare);
    run(&cluster, "train-2", spare).await;
    // The new places outlive the controller.
    drop(controller);
    let _controller = self::controller(&cluster);
    cluster.settled().await;
    assert_eq!(running_jobs(&cluster).await, ["train"]);
    // A node that is gone fails at once.
    cluster.delete(&nodes(), "", &hosts[1]).await;
    workload_of(&cluster, "train", is_evicted).await;
}

#[tokio::test(start_paused = true)]
async fn pods_run_on_a_node_without_a_host_name() {
    let cluster = cluster_of(&[&["a"]]).await;
    let label = json!({"metadata": {"labels": {"kubernetes.io/hostname": null}}});
    gang_pods::patch_node(&cluster, "a", &label).await;
    let _controller = controller(&cluster);
    submit_job(&cluster, pairs("train", 2)).await;
    let train = running(&cluster, "train").await;
    for pod in ["train-1", "train-2"] {
        create_pod(&cluster, &train, pod).await;
        cluster.wait(&pods(), "default", pod, is_free).await;
        run(&cluster, pod, "a").await;
    }
    let workload = workload_of(&cluster, "train", |_| true).await;
    assert!(domains(&workload).contains("\"a\""), "{}", domains(&workload));
    cordon(&cluster, "a").await;
    cluster.settled().await;
    let workload = workload_of(&cluster, "train", |_| true).await;
    assert_eq!(workload.data["status"]["unhealthyNodes"], Value::Null, "its pods run");
}

/// kueue#15575: the label of a host counts, and not the name of its node.
#[tokio::test(start_paused = true)]
async fn a_node_whose_label_is_not_its_name_is_assigned_and_fails_by_its_label() {
    let cluster = cluster_of(&[&["a"]]).await;
    let label = json!({"metadata": {"labels": {"kubernetes.io/hostname": "host-of-a"}}});
    gang_pods::patch_node(&cluster, "a", &label).await;
    let _controller = patient(&cluster);
    submit_job(&cluster, pairs("train", 1)).await;
    let train = running(&cluster, "train").await;
    create_pod(&cluster, &train, "train-1").await;
    let pod = cluster.wait(&pods(), "default", "train-1", is_free).await;
    assert_eq!(pod.data["spec"]["nodeSelector"]["kubernetes.io/hostname"], "host-of-a");
    submit_job(&cluster, pairs("other", 1)).await;
    running(&cluster, "other").await;
    // The pods of the other Job are still to be created.
    cordon(&cluster, "a").await;
    let is_named = |workload: &DynamicObject| {
        workload.data["status"]["unhealthyNodes"] == json!([{"name": "host-of-a"}])
    };
    workload_of(&cluster, "other", is_named).await;
}

#[tokio::test(start_paused = true)]
async fn of_nodes_without_a_host_name_only_the_one_that_has_failed_is_to_be_replaced() {
    let cluster = cluster_of(&[&["a", "b"]]).await;
    for node in ["a", "b"] {
        let label = json!({"metadata": {"labels": {"kubernetes.io/hostname": null}}});
        gang_pods::patch_node(&cluster, node, &label).await;
    }
    let _controller = patient(&cluster);
    let mut train = pairs("train", 2);
    train["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "4".into();
    submit_job(&cluster, train).await;
    running(&cluster, "train").await;
    // Its pods are still to be created.
    cordon(&cluster, "a").await;
    let is_named =
        |workload: &DynamicObject| workload.data["status"]["unhealthyNodes"] == json!([{"name": "a"}]);
    workload_of(&cluster, "train", is_named).await;
    cluster.settled().await;
    assert_eq!(running_jobs(&cluster).await, ["train"]);
}

#[tokio::test(start_paused = true)]
async fn the_place_that_replaces_a_lost_one_is_kept_while_the_lost_pod_is_still_listed() {
    let cluster = cluster_of(&[&["a", "b", "c"]]).await;
    let _controller = controller(&cluster);
    let (train, hosts) = spread_job(&cluster, 2).await;
    let spare = ["a", "b", "c"].into_iter().find(|name| !hosts.iter().any(|host| host == name)).unwrap();
    // Nobody confirms the deletion of the pod, as on a node that is lost.
    merge(&cluster, &pods(), "train-0", json!({"metadata": {"finalizers": ["example.com/kubelet"]}})).await;
    cordon(&cluster, &hosts[0]).await;
    cluster.delete(&pods(), "default", "train-0").await;
    let is_replaced = |workload: &DynamicObject| domains(workload).contains(&format!("{spare:?}"));
    workload_of(&cluster, "train", is_replaced).await;
    submit_job(&cluster, pairs("next", 1)).await;
    workload_of(&cluster, "next", |workload| is(workload, "QuotaReserved", "False", "Pending")).await;
    create_pod(&cluster, &train, "train-2").await;
    assert_eq!(host(&cluster, "train-2").await, spare);
    run(&cluster, "train-2", spare).await;
    cluster.settled().await;
    assert_eq!(running_jobs(&cluster).await, ["train"]);
}

#[tokio::test(start_paused = true)]
async fn a_workload_without_places_for_those_on_a_failed_node_is_evicted_and_runs_again() {
    let cluster = cluster_of(&[&["a", "b"]]).await;
    let _controller = controller(&cluster);
    let (_, hosts) = spread_job(&cluster, 2).await;
    cordon(&cluster, &hosts[0]).await;
    evict(&cluster, "train-0").await;
    let evicted = workload_of(&cluster, "train", is_evicted).await;
    let text =
        format!("Workload was evicted as there was no replacement for unhealthy node(s): {}", hosts[0]);
    assert_eq!(condition(&evicted, "Evicted").unwrap()["message"], text);
    stopped(&cluster, "train").await;
    evict(&cluster, "train-1").await;
    status(&cluster, "train", json!({"active": 0})).await;
    gang_pods::patch_node(&cluster, &hosts[0], &json!({"spec": {"unschedulable": false}})).await;
    running(&cluster, "train").await;
}

#[tokio::test(start_paused = true)]
async fn a_workload_waits_for_places_or_its_node() {
    let cluster = cluster_of(&[&["a", "b", "c"]]).await;
    let _controller = patient(&cluster);
    let (train, hosts) = spread_job(&cluster, 3).await;
    cordon(&cluster, &hosts[0]).await;
    evict(&cluster, "train-0").await;
    let names = |name: &str| json!([{ "name": name }]);
    let is_named = |workload: &DynamicObject| workload.data["status"]["unhealthyNodes"] == names(&hosts[0]);
    workload_of(&cluster, "train", is_named).await;
    create_pod(&cluster, &train, "train-3").await;
    cluster.settled().await;
    assert!(gang_pods::is_gated(&cluster, "train-3").await);
    // The node comes back.
    gang_pods::patch_node(&cluster, &hosts[0], &json!({"spec": {"unschedulable": false}})).await;
    assert_eq!(host(&cluster, "train-3").await, hosts[0]);
    run(&cluster, "train-3", &hosts[0]).await;
    workload_of(&cluster, "train", |workload| workload.data["status"]["unhealthyNodes"].is_null()).await;
}

#[tokio::test(start_paused = true)]
async fn nodes_that_fail_together_are_replaced_together_while_a_pod_runs_on() {
    let cluster = cluster_of(&[&["a", "b", "c", "d", "e"]]).await;
    let _controller = controller(&cluster);
    let (train, hosts) = spread_job(&cluster, 3).await;
    let spare = |name: &&str| !hosts.iter().any(|host| host == name);
    let spares: Vec<&str> = ["a", "b", "c", "d", "e"].into_iter().filter(spare).collect();
    for (pod, host) in [("train-0", &hosts[0]), ("train-1", &hosts[1])] {
        cordon(&cluster, host).await;
        evict(&cluster, pod).await;
    }
    let is_replaced = |workload: &DynamicObject| {
        spares.iter().all(|spare| domains(workload).contains(&format!("{spare:?}")))
    };
    let after = workload_of(&cluster, "train", is_replaced).await;
    assert!(domains(&after).contains(&format!("{:?}", hosts[2])), "the place of the pod that runs is kept");
    assert!(!is_evicted(&after));
    let mut used = Vec::new();
    for pod in ["train-3", "train-4"] {
        create_pod(&cluster, &train, pod).await;
        used.push(host(&cluster, pod).await);
        run(&cluster, pod, used.last().unwrap()).await;
    }
    used.sort();
    assert_eq!(used, spares);
    cluster.settled().await;
    assert_eq!(running_jobs(&cluster).await, ["train"]);
}

#[tokio::test(start_paused = true)]
async fn a_workload_that_has_lost_all_its_nodes_is_evicted() {
    let cluster = cluster_of(&[&["a", "b"]]).await;
    let _controller = patient(&cluster);
    let (_, hosts) = spread_job(&cluster, 2).await;
    for (pod, host) in [("train-0", &hosts[0]), ("train-1", &hosts[1])] {
        cordon(&cluster, host).await;
        evict(&cluster, pod).await;
    }
    let evicted = workload_of(&cluster, "train", is_evicted).await;
    let text = "Workload eviction triggered due to multiple TAS assigned node failures, including: ";
    let message = condition(&evicted, "Evicted").unwrap()["message"].as_str().unwrap();
    assert!(message.starts_with(text), "{message}");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_no_node_takes_has_failed() {
    let cluster = cluster_of(&[&["a", "b"]]).await;
    let _controller = controller(&cluster);
    submit_job(&cluster, pairs("train", 1)).await;
    let train = running(&cluster, "train").await;
    create_pod(&cluster, &train, "train-0").await;
    let first = host(&cluster, "train-0").await;
    let taint = json!([{"key": "broken", "value": "yes", "effect": "NoSchedule"}]);
    gang_pods::patch_node(&cluster, &first, &json!({"spec": {"taints": taint}})).await;
    let has_failed = |pod: &DynamicObject| pod.data["status"]["phase"] == "Failed";
    let pod = cluster.wait(&pods(), "default", "train-0", has_failed).await;
    assert_eq!(condition(&pod, "TerminatedByKueue").unwrap()["reason"], "UnschedulableOnAssignedNode");
    create_pod(&cluster, &train, "train-1").await;
    let second = host(&cluster, "train-1").await;
    assert!(second != first && second != "any", "{second}");
    // Pods that tolerate the taint stay where they are.
    let mut tolerant = pairs("tolerant", 2);
    tolerant["spec"]["template"]["spec"]["tolerations"] = json!([{"key": "broken", "operator": "Exists"}]);
    submit_job(&cluster, tolerant).await;
    let tolerant = running(&cluster, "tolerant").await;
    create_pod(&cluster, &tolerant, "tolerant-0").await;
    host(&cluster, "tolerant-0").await;
    cluster.settled().await;
    let pod = cluster.api(&pods(), "default").get("tolerant-0").await.unwrap();
    assert_ne!(pod.data["status"]["phase"], "Failed");
}

async fn taint(cluster: &Cluster, node: &str) {
    let taint = json!([{"key": "broken", "value": "yes", "effect": "NoExecute"}]);
    gang_pods::patch_node(cluster, node, &json!({"spec": {"taints": taint}})).await;
}

/// Says that a node has not been ready for so many seconds.
async fn unready(cluster: &Cluster, node: &str, seconds: i64) {
    let since = api::MicroTime::from((cluster.clock)()).plus_s(-seconds).to_string();
    let ready = json!([{"type": "Ready", "status": "False", "lastTransitionTime": since}]);
    let patch = kube::api::Patch::Merge(json!({"status": {"conditions": ready}}));
    let nodes = cluster.api(&nodes(), "");
    nodes.patch_status(node, &kube::api::PatchParams::default(), &patch).await.unwrap();
}

/// Whether the status of the Workload of `train` names no failed node, after everything has been done.
async fn is_healthy(cluster: &Cluster) -> bool {
    cluster.settled().await;
    let workload = workload_of(cluster, "train", |_| true).await;
    workload.data["status"]["unhealthyNodes"].is_null() && !is_evicted(&workload)
}

#[tokio::test(start_paused = true)]
async fn running_pods_keep_a_place_on_a_tainted_node_unless_a_gate_says_otherwise() {
    for awaits_pods in [true, false] {
        let cluster = cluster_of(&[&["a", "b", "c"]]).await;
        let _controller = with_rules(&cluster, FailedNodeRules { awaits_pods, ..FailedNodeRules::default() });
        let (_, hosts) = spread_job(&cluster, 2).await;
        taint(&cluster, &hosts[0]).await;
        if awaits_pods {
            assert!(is_healthy(&cluster).await);
        } else {
            let is_moved = |workload: &DynamicObject| !domains(workload).contains(&format!("{:?}", hosts[0]));
            workload_of(&cluster, "train", is_moved).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_not_ready_for_long_has_failed_although_pods_run_there_if_a_gate_says_so() {
    let cluster = cluster_of(&[&["a", "b", "c"]]).await;
    let rules = FailedNodeRules { awaits_pods: false, ..FailedNodeRules::default() };
    let _controller = with_rules(&cluster, rules);
    let (_, hosts) = spread_job(&cluster, 2).await;
    unready(&cluster, &hosts[0], 5).await;
    let before = (cluster.clock)();
    let is_moved = |workload: &DynamicObject| !domains(workload).contains(&format!("{:?}", hosts[0]));
    workload_of(&cluster, "train", is_moved).await;
    let waited_s = (cluster.clock)().duration_since(before).as_secs();
    assert!(waited_s >= 24, "it may come back: {waited_s} s");
}

#[tokio::test(start_paused = true)]
async fn taints_fail_no_node_if_a_gate_says_so() {
    let cluster = cluster_of(&[&["a", "b", "c"]]).await;
    let rules = FailedNodeRules { heeds_taints: false, ..FailedNodeRules::default() };
    let _controller = with_rules(&cluster, rules);
    let (_, hosts) = spread_job(&cluster, 2).await;
    taint(&cluster, &hosts[0]).await;
    cordon(&cluster, &hosts[1]).await;
    for pod in ["train-0", "train-1"] {
        evict(&cluster, pod).await;
    }
    assert!(is_healthy(&cluster).await);
}

#[tokio::test(start_paused = true)]
async fn the_place_of_a_lone_pod_is_kept_unless_a_gate_says_otherwise() {
    for skips_lone_pods in [true, false] {
        let cluster = cluster_of(&[&["a"]]).await;
        let rules = FailedNodeRules { skips_lone_pods, fails_fast: false, ..FailedNodeRules::default() };
        let _controller = with_rules(&cluster, rules);
        submit_pod(&cluster, "lone", json!({})).await;
        runs(&cluster, "lone").await;
        run(&cluster, "lone", "a").await;
        cordon(&cluster, "a").await;
        // Nobody confirms the deletion.
        cluster.delete(&pods(), "default", "lone").await;
        cluster.settled().await;
        let list =
            cluster.api(&workloads(), "default").list(&kube::api::ListParams::default()).await.unwrap();
        let named = |workload: &DynamicObject| workload.data["status"]["unhealthyNodes"].is_array();
        assert_eq!(list.items.iter().any(named), !skips_lone_pods);
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_waits_for_a_closed_node_without_quota_has_failed() {
    let cluster = cluster_of(&[&["a", "b"]]).await;
    let _controller = controller(&cluster);
    submit(&cluster, "lost", "nowhere", 0, 1, 1).await;
    for (pod, node) in [("late", "a"), ("early", "b")] {
        let metadata = json!({"name": pod, "annotations": {"kueue.x-k8s.io/workload": "lost"}});
        let spec = json!({"nodeSelector": {"kubernetes.io/hostname": node}, "containers": [{"name": "c", "image": "i"}]});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec});
        cluster.create_as(&pods(), "default", pod).await;
    }
    cluster.settled().await;
    taint(&cluster, "a").await;
    let has_failed = |pod: &DynamicObject| pod.data["status"]["phase"] == "Failed";
    cluster.wait(&pods(), "default", "late", has_failed).await;
    cluster.settled().await;
    assert!(!has_failed(&cluster.api(&pods(), "default").get("early").await.unwrap()));
}
