//! Preemption: victims are stopped as whole gangs, the preemption is reported, and the preemptor starts when the
//! victims are gone.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use crate::common::{Cluster, Group, config_maps, resource, story, wrappers};
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::ApiResource;
use sandbox::{Config, NodeGroup, Sandbox};
use serde_json::{Value, json};

fn jobs() -> ApiResource {
    resource("batch/v1", "Job", "jobs")
}

fn pods() -> ApiResource {
    resource("v1", "Pod", "pods")
}

/// A Job with so many pods of so many CPUs.
fn job(name: &str, priority: i32, pods: u32, cpu: &str) -> Value {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}});
    let template = json!({"metadata": {"labels": {"app": name}},
        "spec": {"restartPolicy": "Never", "containers": [container]}});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {"parallelism": pods, "completions": pods, "template": template}});
    json!({
        "apiVersion": "mcad.ibm.com/v1beta1", "kind": "AppWrapper", "metadata": {"name": name, "namespace": "default"},
        "spec": {"priority": priority, "resources": {"GenericItems": [
            {"completionstatus": "Complete", "generictemplate": job}]}},
    })
}

/// Two simulated nodes of four CPUs.
async fn simulated() -> (Cluster, Sandbox) {
    let cluster = Cluster::bare();
    let nodes: NodeGroup = "count=2,name=n,cpu=4,memory=16Gi".parse().unwrap();
    let config = Config { clock: cluster.clock.clone(), nodes: nodes.manifests(), ..Config::default() };
    let sandbox = Sandbox::start(cluster.client.clone(), config).await.unwrap();
    controllers::install_crds(cluster.client.clone(), &Group::ALL, api::appwrapper::Columns::default())
        .await
        .unwrap();
    (cluster, sandbox)
}

/// Two nodes of four CPUs without simulated components.
async fn manual() -> Cluster {
    let cluster = Cluster::new().await;
    for name in ["n-0", "n-1"] {
        cluster.node(name, &json!({"cpu": "4", "memory": "16Gi", "pods": "110"})).await;
    }
    cluster
}

#[tokio::test(start_paused = true)]
async fn a_gang_of_higher_priority_preempts_one_of_lower_priority_which_is_queued_and_runs_again() {
    let (cluster, _sandbox) = simulated().await;
    let _controller = cluster.preempting_controller();
    cluster.submit(job("weak", 1, 2, "3")).await;
    cluster.wait_state(Group::Mcad, "weak", "Running", "Running").await;
    cluster.submit(job("strong", 9, 2, "4")).await;
    cluster.wait_state(Group::Mcad, "strong", "Running", "Running").await;
    let status = cluster.wait_state(Group::Mcad, "weak", "Pending", "HeadOfLine").await;
    let preempted = "Preempted HigherPriority Preempted by default/strong, whose priority is 9; the priority of this gang is 1";
    assert_eq!(
        story(&status),
        [
            "Init",
            "Queueing AwaitingHeadOfLine",
            "HeadOfLine FrontOfQueue.",
            "Dispatched AppWrapperRunnable",
            "Running PodsRunning",
            preempted,
            "Backoff AppWrapperNotRunnable. Insufficient resources to dispatch AppWrapper.",
        ]
    );
    let names = cluster.names(&jobs(), "default").await;
    assert_eq!(names, ["strong"], "the weak one has left nothing behind");
    cluster.wait_state(Group::Mcad, "strong", "Completed", "Completed").await;
    cluster.wait_state(Group::Mcad, "weak", "Completed", "Completed").await;
    let events = cluster.events().await;
    for event in [
        "weak Preempted: Preempted by default/strong, whose priority is 9; the priority of this gang is 1",
        "strong Preempting: is preempting default/weak",
    ] {
        assert!(events.iter().any(|line| line == event), "{event} is not in {events:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_flag_no_gang_is_preempted() {
    let cluster = manual().await;
    let _controller = cluster.controller();
    cluster.submit(job("weak", 1, 2, "3")).await;
    cluster.wait_state(Group::Mcad, "weak", "Running", "Dispatched").await;
    cluster.submit(job("strong", 9, 2, "4")).await;
    cluster.wait_state(Group::Mcad, "strong", "Pending", "HeadOfLine").await;
    cluster.wait_state(Group::Mcad, "weak", "Running", "Dispatched").await;
}

/// Creates a pod of a Job on a node, or on none yet. A finalizer keeps it after its deletion.
async fn lingering_pod(cluster: &Cluster, job: &DynamicObject, name: &str, node: Option<&str>) {
    let labels = json!({"app": job.metadata.name});
    let owner = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": job.metadata.name,
        "uid": job.metadata.uid, "controller": true, "blockOwnerDeletion": true}]);
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": labels, "ownerReferences": owner, "finalizers": ["test.muster.dev/stay"]},
        "spec": job.data["spec"]["template"]["spec"]});
    if let Some(node) = node {
        pod["spec"]["nodeName"] = json!(node);
        pod["spec"]["schedulingGates"] = Value::Null; // The pod was ungated and bound.
    }
    cluster.create_as(&pods(), "default", pod).await;
}

/// Completes the deletion of a terminating pod.
async fn finish_deletion(cluster: &Cluster, pod: &str) {
    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    cluster.api(&pods(), "default").patch(pod, &PatchParams::default(), &patch).await.unwrap();
    cluster.delete_now(&pods(), "default", pod).await;
}

#[tokio::test(start_paused = true)]
async fn the_preemptor_starts_when_the_last_pod_of_the_victim_is_gone() {
    // Bound pods are terminated by their node; pods without a node could still be bound.
    for node in [Some("n-0"), None] {
        let cluster = manual().await;
        let _controller = cluster.preempting_controller();
        cluster.submit(job("weak", 1, 1, "4")).await;
        cluster.submit(job("other", 5, 1, "4")).await;
        cluster.wait_state(Group::Mcad, "weak", "Running", "Dispatched").await;
        let weak = cluster.wait(&jobs(), "default", "weak", |_| true).await;
        lingering_pod(&cluster, &weak, "weak-1", node).await;
        cluster.submit(job("strong", 9, 1, "4")).await;
        cluster.wait_gone(&jobs(), "default", "weak").await;
        cluster.settled().await;
        let kind = wrappers(Group::Mcad);
        let strong =
            cluster.wait(&kind, "default", "strong", |w| w.data["status"]["state"] == "Pending").await;
        assert_eq!(strong.data["status"]["message"], "is preempting default/weak", "{node:?}");
        assert!(
            !cluster.names(&jobs(), "default").await.contains(&"strong".to_owned()),
            "its place was given away too early: {node:?}"
        );
        finish_deletion(&cluster, "weak-1").await;
        cluster.wait_state(Group::Mcad, "strong", "Running", "Dispatched").await;
        cluster.wait_state(Group::Mcad, "weak", "Pending", "HeadOfLine").await;
        cluster.wait_state(Group::Mcad, "other", "Running", "Dispatched").await;
        // Pods are charged to their gang after its Job is deleted: no other gang was preempted meanwhile.
        assert!(!cluster.events().await.iter().any(|line| line.starts_with("other Preempted")), "{node:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_protected_gang_is_not_preempted_and_a_gang_with_a_checkpoint_is_preempted_first() {
    let cluster = manual().await;
    let allowed = json!({"annotations": {"muster.dev/allow-protected": "true"}});
    cluster.annotate_namespace("default", &allowed).await;
    let _controller = cluster.preempting_controller();
    let annotated = |name: &str, key: &str, value: &str| {
        let mut wrapper = job(name, 1, 1, "2");
        wrapper["metadata"]["annotations"] = json!({key: value});
        wrapper
    };
    cluster.submit(annotated("kept", "muster.dev/protected", "true")).await;
    cluster.submit(job("dear", 1, 1, "2")).await;
    cluster.submit(job("saved", 1, 1, "2")).await;
    cluster.submit(annotated("odd", "muster.dev/protected", "maybe")).await;
    for name in ["kept", "dear", "saved", "odd"] {
        cluster.wait_state(Group::Mcad, name, "Running", "Dispatched").await;
    }
    tokio::time::sleep(std::time::Duration::from_mins(5)).await;
    let checkpoint =
        json!({"metadata": {"annotations": {"muster.dev/checkpointed-at": (cluster.clock)().to_string()}}});
    let api = cluster.api(&wrappers(Group::Mcad), "default");
    api.patch("saved", &PatchParams::default(), &Patch::Merge(checkpoint)).await.unwrap();
    cluster.settled().await;
    cluster.submit(job("strong", 9, 1, "2")).await;
    cluster.wait_state(Group::Mcad, "strong", "Running", "Dispatched").await;
    cluster.wait_state(Group::Mcad, "saved", "Pending", "HeadOfLine").await;
    cluster.submit(job("stronger", 10, 2, "4")).await;
    let status = cluster.wait_state(Group::Mcad, "stronger", "Pending", "HeadOfLine").await;
    assert!(status["message"].as_str().unwrap().starts_with("job: "), "{status}");
    cluster.wait_state(Group::Mcad, "kept", "Running", "Dispatched").await;
    let events = cluster.events().await;
    assert!(
        events.contains(
            &"odd AnnotationIgnored: annotation muster.dev/protected is ignored: \"maybe\" is no true or false"
                .to_owned()
        ),
        "{events:#?}"
    );
}

#[tokio::test(start_paused = true)]
async fn after_the_deletion_of_a_preemptor_its_victims_are_dispatched_again() {
    let cluster = manual().await;
    let _controller = cluster.preempting_controller();
    cluster.submit(job("weak", 1, 2, "4")).await;
    cluster.wait_state(Group::Mcad, "weak", "Running", "Dispatched").await;
    let weak = cluster.wait(&jobs(), "default", "weak", |_| true).await;
    lingering_pod(&cluster, &weak, "weak-1", Some("n-0")).await;
    cluster.submit(job("strong", 9, 1, "4")).await;
    cluster.wait_gone(&jobs(), "default", "weak").await;
    cluster.settled().await;
    cluster.delete(&wrappers(Group::Mcad), "default", "strong").await;
    finish_deletion(&cluster, "weak-1").await;
    cluster.wait_state(Group::Mcad, "weak", "Running", "Dispatched").await;
}

/// A gang whose Job has a finalizer that nothing removes.
fn stuck(name: &str, priority: i32, pods: u32, cpu: &str) -> Value {
    let mut wrapper = job(name, priority, pods, cpu);
    let template = &mut wrapper["spec"]["resources"]["GenericItems"][0]["generictemplate"];
    template["metadata"]["finalizers"] = json!(["test.muster.dev/stay"]);
    wrapper
}

#[tokio::test(start_paused = true)]
async fn an_object_that_a_lost_request_creates_during_the_removal_is_removed() {
    let cluster = manual().await;
    let _controller = cluster.preempting_controller();
    let mut weak = stuck("weak", 1, 2, "4");
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "weak"}});
    weak["spec"]["resources"]["GenericItems"].as_array_mut().unwrap().push(json!({"generictemplate": map}));
    cluster.submit(weak).await;
    cluster.wait_state(Group::Mcad, "weak", "Running", "Dispatched").await;
    let before = cluster.wait(&config_maps(), "default", "weak", |_| true).await;
    cluster.submit(job("strong", 9, 1, "4")).await;
    cluster.wait_gone(&config_maps(), "default", "weak").await;
    cluster.settled().await;
    let (owners, labels) = (&before.metadata.owner_references, &before.metadata.labels);
    let late = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "weak", "ownerReferences": owners, "labels": labels}});
    cluster.create_as(&config_maps(), "default", late).await;
    cluster.wait_gone(&config_maps(), "default", "weak").await;
}

#[tokio::test(start_paused = true)]
async fn a_victim_with_a_stuck_finalizer_is_named_and_its_free_places_are_used() {
    let cluster = manual().await;
    let _controller = cluster.preempting_controller();
    cluster.submit(stuck("weak", 1, 1, "3")).await;
    cluster.submit(job("other", 5, 1, "3")).await;
    cluster.wait_state(Group::Mcad, "weak", "Running", "Dispatched").await;
    cluster.wait_state(Group::Mcad, "other", "Running", "Dispatched").await;
    cluster.submit(job("strong", 9, 1, "4")).await;
    cluster.submit(job("small", 1, 1, "1")).await;
    cluster.wait_state(Group::Mcad, "small", "Running", "Dispatched").await; // It needs nothing of the victim.
    cluster.wait_state(Group::Mcad, "strong", "Running", "Dispatched").await;
    let status = cluster.wait_state(Group::Mcad, "weak", "Running", "Preempted").await;
    let why = "waits for the deletion of Job weak (finalizer test.muster.dev/stay); its places are released";
    assert_eq!(status["message"], why);
    assert!(cluster.events().await.contains(&format!("weak NotDeleted: {why}")));
    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    cluster.api(&jobs(), "default").patch("weak", &PatchParams::default(), &patch).await.unwrap();
    cluster.wait_state(Group::Mcad, "weak", "Pending", "HeadOfLine").await;
}

/// The gangs `weak`, whose pod outlives its deletion, and `other` run; each needs a whole node.
async fn run_beside_a_lingering_pod(cluster: &Cluster) {
    cluster.submit(stuck("weak", 1, 1, "4")).await;
    let object = cluster.wait(&jobs(), "default", "weak", |_| true).await;
    lingering_pod(cluster, &object, "weak-1", Some("n-0")).await;
    cluster.submit(job("other", 5, 1, "4")).await;
    cluster.wait_state(Group::Mcad, "other", "Running", "Dispatched").await;
}

#[tokio::test(start_paused = true)]
async fn a_preemptor_chooses_another_victim_when_the_pods_of_the_first_do_not_go() {
    let cluster = manual().await;
    let _controller = cluster.preempting_controller();
    run_beside_a_lingering_pod(&cluster).await;
    cluster.submit(job("strong", 9, 1, "4")).await;
    cluster.wait_state(Group::Mcad, "weak", "Running", "Preempted").await;
    cluster.wait_state(Group::Mcad, "strong", "Running", "Dispatched").await;
    cluster.wait_state(Group::Mcad, "other", "Pending", "HeadOfLine").await;
}

#[tokio::test(start_paused = true)]
async fn a_preemptor_does_not_wait_without_end_for_the_pods_of_a_deleted_appwrapper() {
    let cluster = manual().await;
    let _controller = cluster.preempting_controller();
    run_beside_a_lingering_pod(&cluster).await;
    cluster.delete(&wrappers(Group::Mcad), "default", "weak").await;
    cluster.submit(job("strong", 9, 1, "4")).await;
    cluster.wait_state(Group::Mcad, "strong", "Running", "Dispatched").await;
    cluster.wait_state(Group::Mcad, "other", "Pending", "HeadOfLine").await;
    assert_eq!(cluster.names(&pods(), "default").await, ["weak-1"]);
}

#[tokio::test(start_paused = true)]
async fn a_gang_has_at_most_the_priority_and_the_protection_that_its_namespace_allows() {
    let cluster = manual().await;
    cluster.annotate_namespace("default", &json!({"annotations": {"muster.dev/priority-max": "5"}})).await;
    let _controller = cluster.preempting_controller();
    let mut greedy = job("greedy", 100, 2, "4");
    greedy["metadata"]["annotations"] = json!({"muster.dev/protected": "true"});
    cluster.submit(greedy).await;
    let status = cluster.wait_state(Group::Mcad, "greedy", "Running", "Dispatched").await;
    assert_eq!(status["systempriority"], 5);
    cluster.submit(job("equal", 5, 2, "4")).await;
    cluster.wait_state(Group::Mcad, "equal", "Pending", "HeadOfLine").await;
    let events = cluster.events().await;
    for told in [
        "greedy PriorityLimited: priority 100 counts as 5, the maximum of namespace default",
        "greedy ProtectionNotAllowed: annotation muster.dev/protected has no effect: namespace default has no annotation \
         muster.dev/allow-protected: \"true\"",
    ] {
        assert!(events.contains(&told.to_owned()), "{events:#?}");
    }
    cluster.annotate_namespace("default", &json!({"annotations": {"muster.dev/priority-max": "6"}})).await;
    cluster.submit(job("higher", 6, 2, "4")).await;
    cluster.wait_state(Group::Mcad, "higher", "Running", "Dispatched").await;
}
