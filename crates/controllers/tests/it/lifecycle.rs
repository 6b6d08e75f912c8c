//! The life of a dispatched gang: pod counts, completion, deadlines, requeueing, and the release of its resources.
//!
//! The tests change the pods by hand, so that they can check each state.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use crate::common::gang_pods::patch_node;
use crate::common::{
    Cluster, Group, example, ray_clusters, reason, recording, resource, rest, story, wrappers,
};
use api::appwrapper::Columns;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::ApiResource;
use serde_json::{Value, json};
use std::time::Duration;

fn pods() -> ApiResource {
    resource("v1", "Pod", "pods")
}

fn jobs() -> ApiResource {
    resource("batch/v1", "Job", "jobs")
}

async fn small(cluster: &Cluster) {
    cluster.node("n", &json!({"cpu": "16", "memory": "64Gi", "pods": "110"})).await;
}

/// Creates a pod from the pod template of an object, as its controller would, on node `n`.
async fn make_pod(cluster: &Cluster, owner: &DynamicObject, name: &str, template: &Value, labels: &Value) {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": template["metadata"], "spec": template["spec"]});
    if !pod["metadata"].is_object() {
        pod["metadata"] = json!({"labels": {}});
    }
    pod["metadata"]["name"] = json!(name);
    for (key, value) in labels.as_object().unwrap() {
        pod["metadata"]["labels"][key] = value.clone();
    }
    let types = owner.types.clone().unwrap();
    pod["metadata"]["ownerReferences"] = json!([{"apiVersion": types.api_version, "kind": types.kind,
        "name": owner.metadata.name, "uid": owner.metadata.uid, "controller": true, "blockOwnerDeletion": true}]);
    pod["spec"]["nodeName"] = json!("n");
    pod["spec"]["schedulingGates"] = Value::Null; // The pod was ungated and bound.
    cluster.create_as(&pods(), "default", pod).await;
}

async fn set_status(cluster: &Cluster, resource: &ApiResource, name: &str, status: Value) {
    let patch = Patch::Merge(json!({"status": status}));
    cluster.api(resource, "default").patch_status(name, &PatchParams::default(), &patch).await.unwrap();
}

/// A dispatched `aw-job` with both its pods pending.
async fn job_with_pods(cluster: &Cluster) {
    cluster.submit(example("aw-job.yaml")).await;
    cluster.wait_state(Group::Codeflare, "aw-job", "Running", "Dispatched").await;
    let job = cluster.wait(&jobs(), "default", "aw-job", |_| true).await;
    for name in ["aw-job-a", "aw-job-b"] {
        make_pod(cluster, &job, name, &job.data["spec"]["template"], &json!({})).await;
    }
}

/// The condition of a complete Job.
fn complete() -> Value {
    json!({"conditions": [{"type": "Complete", "status": "True"}]})
}

fn filler(name: &str, cpu: &str) -> Value {
    let containers = json!([{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]);
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": containers}});
    json!({
        "apiVersion": "workload.codeflare.dev/v1beta1", "kind": "AppWrapper", "metadata": {"name": name},
        "spec": {"resources": {"GenericItems": [{"generictemplate": pod}]}},
    })
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_job_are_counted_and_the_gang_completes() {
    let cluster = Cluster::new().await;
    small(&cluster).await;
    let _controller = cluster.controller();
    job_with_pods(&cluster).await;
    let job = cluster.wait(&jobs(), "default", "aw-job", |_| true).await;
    let labels = job.metadata.labels.clone().unwrap();
    assert_eq!(
        (labels["appwrapper.mcad.ibm.com"].as_str(), labels["resourceName"].as_str()),
        ("aw-job", "aw-job")
    );
    let pod = cluster.wait(&pods(), "default", "aw-job-a", |_| true).await;
    let labels = pod.metadata.labels.unwrap();
    assert_eq!(
        (labels["app"].as_str(), labels["appwrapper.mcad.ibm.com"].as_str(), labels["resourceName"].as_str()),
        ("aw-job", "aw-job", "aw-job")
    );
    let both_pend = |wrapper: &DynamicObject| wrapper.data["status"]["pending"] == 2;
    cluster.wait(&wrappers(Group::Codeflare), "default", "aw-job", both_pend).await;

    set_status(&cluster, &pods(), "aw-job-a", json!({"phase": "Running"})).await;
    let status = cluster.wait_state(Group::Codeflare, "aw-job", "Running", "Running").await;
    assert_eq!(
        rest(&status),
        json!({
            "canrun": true, "filterignore": true, "pending": 1, "queuejobstate": "Running", "running": 1,
            "sender": "before [syncQueueJob] Update pod counts", "state": "Running", "totalcpu": 500, "totalmemory": 104_857_600,
        })
    );

    // The gang holds its resources until it ends.
    cluster.submit(filler("whole-node", "16")).await;
    let waits = cluster.wait_state(Group::Codeflare, "whole-node", "Pending", "Backoff").await;
    assert_eq!(reason(&waits), "pod: needs 16 cpu on one node; 1 node has 15 free");
    for name in ["aw-job-a", "aw-job-b"] {
        set_status(&cluster, &pods(), name, json!({"phase": "Succeeded"})).await;
    }
    cluster.settled().await;
    cluster.wait_state(Group::Codeflare, "whole-node", "Pending", "Backoff").await;
    set_status(&cluster, &jobs(), "aw-job", complete()).await;
    let status = cluster.wait_state(Group::Codeflare, "aw-job", "Completed", "Completed").await;
    assert_eq!(
        story(&status)[3..],
        ["Dispatched AppWrapperRunnable", "Running PodsRunning", "Completed PodsCompleted"]
    );
    assert_eq!(
        rest(&status),
        json!({
            "Succeeded": 2, "filterignore": true, "queuejobstate": "Completed",
            "sender": "before [UpdateQueueJobs] setCompleted", "state": "Completed", "totalcpu": 1000, "totalmemory": 209_715_200,
        })
    );
    cluster.wait_state(Group::Codeflare, "whole-node", "Running", "Dispatched").await;
    assert_eq!(cluster.names(&jobs(), "default").await, ["aw-job"], "objects of what completed stay");
}

#[tokio::test(start_paused = true)]
async fn a_gang_with_complete_items_holds_completion_until_its_pods_end() {
    let cluster = Cluster::new().await;
    small(&cluster).await;
    let _controller = cluster.controller();
    job_with_pods(&cluster).await;
    for name in ["aw-job-a", "aw-job-b"] {
        set_status(&cluster, &pods(), name, json!({"phase": "Running"})).await;
    }
    set_status(&cluster, &jobs(), "aw-job", complete()).await;
    let status = cluster
        .wait_state(Group::Codeflare, "aw-job", "RunningHoldCompletion", "RunningHoldCompletion")
        .await;
    assert_eq!(status["sender"], "before [UpdateQueueJobs]  setRunningHoldCompletion");
    assert_eq!(story(&status).last().unwrap(), "RunningHoldCompletion SomeItemsCompleted");
    for name in ["aw-job-a", "aw-job-b"] {
        set_status(&cluster, &pods(), name, json!({"phase": "Succeeded"})).await;
    }
    cluster.wait_state(Group::Codeflare, "aw-job", "Completed", "Completed").await;
}

#[tokio::test(start_paused = true)]
async fn a_gang_past_its_deadline_fails_and_the_next_gang_starts() {
    let cluster = Cluster::new().await;
    small(&cluster).await;
    let _controller = cluster.controller();
    let mut wrapper = filler("long", "16");
    wrapper["spec"]["schedulingSpec"] = json!({"dispatchDuration": {"limit": 30}});
    cluster.submit(wrapper).await;
    let status = cluster.wait_state(Group::Codeflare, "long", "Running", "Dispatched").await;
    let first = api::MicroTime::parse(status["controllerfirstdispatchtimestamp"].as_str().unwrap()).unwrap();
    cluster.submit(filler("next", "16")).await;
    let status = cluster.wait_state(Group::Codeflare, "long", "Failed", "Failed").await;
    assert_eq!(
        story(&status)[4],
        "PreemptCandidate DispatchDeadlineExceeded Dispatch deadline exceeded. allowed to run for 30 seconds"
    );
    let conditions = status["conditions"].as_array().unwrap();
    let exceeded = conditions.iter().find(|condition| condition["type"] == "PreemptCandidate").unwrap();
    let ended = exceeded["lastTransitionMicroTime"].as_str().and_then(api::MicroTime::parse).unwrap();
    assert!(
        (30_000_000..31_000_000).contains(&(ended.0 - first.0)),
        "it ended after {} us",
        ended.0 - first.0
    );
    cluster.wait_gone(&pods(), "default", "long").await;
    cluster.wait_state(Group::Codeflare, "next", "Running", "Dispatched").await;
}

#[tokio::test(start_paused = true)]
async fn a_gang_with_too_few_pods_is_requeued_and_fails_after_its_last_attempt() {
    let cluster = Cluster::new().await;
    small(&cluster).await;
    let _controller = cluster.controller();
    let mut wrapper = filler("short", "1");
    wrapper["spec"]["schedulingSpec"] = json!({"minAvailable": 1, "requeuing": {"timeInSeconds": 60, "growthType": "none", "maxNumRequeuings": 2}});
    cluster.submit(wrapper).await;
    let is_deleted = |wrapper: &DynamicObject| wrapper.data["status"]["state"] == "Deleted";
    let status =
        cluster.wait(&wrappers(Group::Codeflare), "default", "short", is_deleted).await.data["status"]
            .clone();
    let message = "Insufficient number of Running and Completed pods, minimum=1, running=0, completed=0.";
    assert_eq!(
        story(&status)[4..],
        [
            format!("PreemptCandidate MinPodsNotRunning {message}"),
            format!("Backoff PreemptionTriggered {message}")
        ]
    );
    assert_eq!(
        (&status["numberOfRequeueings"], &status["requeueingTimeInSeconds"]),
        (&json!(2), &json!(null))
    );
    cluster.wait_gone(&pods(), "default", "short").await;
}

#[tokio::test(start_paused = true)]
async fn a_gang_with_enough_pods_in_time_keeps_running() {
    let cluster = Cluster::new().await;
    small(&cluster).await;
    let _controller = cluster.controller();
    let mut wrapper = filler("enough", "1");
    wrapper["spec"]["schedulingSpec"] = json!({"minAvailable": 1, "requeuing": {"timeInSeconds": 60}});
    cluster.submit(wrapper).await;
    cluster.wait_state(Group::Codeflare, "enough", "Running", "Dispatched").await;
    set_status(&cluster, &pods(), "enough", json!({"phase": "Running"})).await;
    cluster.wait_state(Group::Codeflare, "enough", "Running", "Running").await;
    tokio::time::sleep(std::time::Duration::from_hours(1)).await;
    let status = cluster.wait_state(Group::Codeflare, "enough", "Running", "Running").await;
    assert_eq!(status.get("numberOfRequeueings"), None);
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_ray_cluster_use_the_resources_reserved_for_them_and_no_more() {
    let cluster = Cluster::new().await;
    cluster.node("n", &json!({"cpu": "8", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": "2"})).await;
    let _controller = cluster.controller();
    cluster.submit(example("aw-kuberay-glue.yaml")).await;
    cluster.wait_state(Group::Codeflare, "raycluster-glue", "Running", "Dispatched").await;
    let ray = cluster.wait(&ray_clusters(), "default", "glue-cluster", |_| true).await;
    let group = &ray.data["spec"]["workerGroupSpecs"][0];
    make_pod(
        &cluster,
        &ray,
        "head",
        &ray.data["spec"]["headGroupSpec"]["template"],
        &json!({"ray.io/group": "headgroup"}),
    )
    .await;
    make_pod(&cluster, &ray, "worker", &group["template"], &json!({"ray.io/group": "small-group"})).await;
    // 8 - 2 - 4: resources are charged once, before and after the pods exist.
    cluster.submit(filler("two", "2")).await;
    cluster.wait_state(Group::Codeflare, "two", "Running", "Dispatched").await;
    cluster.submit(filler("more", "1")).await;
    let status = cluster.wait_state(Group::Codeflare, "more", "Pending", "Backoff").await;
    assert_eq!(reason(&status), "pod: needs 1 cpu on one node; the only eligible node has none free");
    // The status has no pod counts, because the pods do not have the label of the AppWrapper.
    let status = cluster.wait_state(Group::Codeflare, "raycluster-glue", "Running", "Dispatched").await;
    assert_eq!(status.get("pending"), None);
}

#[tokio::test(start_paused = true)]
async fn resources_are_released_when_the_last_pod_is_deleted() {
    let cluster = Cluster::new().await;
    small(&cluster).await;
    let _controller = cluster.controller();
    job_with_pods(&cluster).await;
    cluster.submit(filler("whole-node", "16")).await;
    cluster.wait_state(Group::Codeflare, "whole-node", "Pending", "Backoff").await;
    cluster.delete(&wrappers(Group::Codeflare), "default", "aw-job").await;
    cluster.wait_gone(&jobs(), "default", "aw-job").await;
    let is_leaving = |pod: &DynamicObject| pod.metadata.deletion_timestamp.is_some();
    cluster.wait(&pods(), "default", "aw-job-a", is_leaving).await;
    cluster.wait(&pods(), "default", "aw-job-b", is_leaving).await;
    let now = DeleteParams::default().grace_period(0);
    cluster.api(&pods(), "default").delete("aw-job-a", &now).await.unwrap();
    cluster.settled().await;
    let status = cluster.wait_state(Group::Codeflare, "whole-node", "Pending", "Backoff").await;
    assert_eq!(story(&status).len(), 4);
    cluster.api(&pods(), "default").delete("aw-job-b", &now).await.unwrap();
    cluster.wait_state(Group::Codeflare, "whole-node", "Running", "Dispatched").await;
}

#[tokio::test(start_paused = true)]
async fn a_new_controller_keeps_running_gangs_and_their_resources_charged() {
    let cluster = Cluster::new().await;
    small(&cluster).await;
    let first = cluster.controller();
    job_with_pods(&cluster).await;
    drop(first);
    let running = cluster.controller();
    cluster.submit(filler("whole-node", "16")).await;
    let status = cluster.wait_state(Group::Codeflare, "whole-node", "Pending", "Backoff").await;
    assert_eq!(reason(&status), "pod: needs 16 cpu on one node; 1 node has 15 free");
    let index = running.index.read().unwrap();
    let gang = index.world().gangs().find(|gang| gang.key.name == "aw-job").unwrap();
    let expected =
        model::Assignment { pod_sets: vec![vec![("n".into(), 2)]], ..model::Assignment::default() };
    assert_eq!(gang.state, model::GangState::Reserved(expected));
}

#[tokio::test(start_paused = true)]
async fn a_gang_of_another_dispatcher_is_charged_although_its_nodes_are_unknown() {
    let cluster = Cluster::new().await;
    small(&cluster).await;
    cluster.submit(filler("theirs", "10")).await;
    let status = json!({"canrun": true, "state": "Running", "queuejobstate": "Dispatched"});
    set_status(&cluster, &wrappers(Group::Codeflare), "theirs", status).await;
    let _controller = cluster.controller();
    cluster.submit(filler("ours", "10")).await;
    let status = cluster.wait_state(Group::Codeflare, "ours", "Pending", "Backoff").await;
    assert!(status["message"].as_str().unwrap().contains("10 cpu"), "{status}");
    assert_eq!(
        cluster.names(&pods(), "default").await,
        Vec::<String>::new(),
        "what others start is theirs to make"
    );
}

/// A cluster whose definition of `AppWrapper` is of another installer and lacks what MCAD's lacks.
async fn with_definition_of_mcad() -> Cluster {
    let cluster = Cluster::bare();
    small(&cluster).await;
    let mut definition = api::appwrapper::definition(Group::Codeflare, Columns::Mcad);
    definition["metadata"]["labels"] = json!({"from": "others"});
    let status = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties";
    let fields = definition.pointer_mut(status).unwrap().as_object_mut().unwrap();
    fields.remove("queue").unwrap();
    let definitions =
        resource("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions");
    cluster.create_as(&definitions, "", definition).await;
    controllers::install_crds(cluster.client.clone(), &[Group::Codeflare], Columns::Queue).await.unwrap();
    cluster
}

#[tokio::test(start_paused = true)]
async fn a_pending_gang_has_position_and_start_for_the_columns_until_it_starts() {
    let cluster = Cluster::new().await;
    small(&cluster).await;
    let _controller = cluster.controller();
    cluster.submit(filler("runs", "10")).await;
    cluster.wait_state(Group::Codeflare, "runs", "Running", "Dispatched").await;
    cluster.submit(filler("waits", "10")).await;
    let status = cluster.wait_state(Group::Codeflare, "waits", "Pending", "Backoff").await;
    assert_eq!(status["queue"], json!({"position": "1 of 1", "start": "unknown"}), "{status}");
    cluster.delete(&wrappers(Group::Codeflare), "default", "runs").await;
    let status = cluster.wait_state(Group::Codeflare, "waits", "Running", "Dispatched").await;
    assert_eq!(status["queue"], Value::Null, "{status}");
}

#[tokio::test(start_paused = true)]
async fn the_columns_of_another_installer_stay_and_cost_no_further_writes() {
    let cluster = with_definition_of_mcad().await;
    let (client, writes) = recording(&cluster);
    let _controller = cluster.controller_over(client);
    cluster.submit(filler("runs", "10")).await;
    cluster.wait_state(Group::Codeflare, "runs", "Running", "Dispatched").await;
    cluster.submit(filler("waits", "10")).await;
    let status = cluster.wait_state(Group::Codeflare, "waits", "Pending", "Backoff").await;
    assert_eq!(status["queue"], Value::Null, "{status}");
    cluster.settled().await;
    writes.lock().unwrap().clear();
    // The figures are due after each change of the world. None of them changes here.
    for label in ["a", "b", "c"] {
        patch_node(&cluster, "n", &json!({"metadata": {"labels": {"changes": label}}})).await;
        tokio::time::sleep(Duration::from_mins(1)).await;
    }
    writes.lock().unwrap().retain(|write| write.ends_with("/waits/status"));
    assert_eq!(*writes.lock().unwrap(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn totals_are_capped_at_the_maximum_of_an_older_crd() {
    let cluster = Cluster::bare();
    small(&cluster).await;
    let mut definition = api::appwrapper::definition(Group::Codeflare, Columns::Queue);
    definition["metadata"]["labels"] = json!({"from": "others"});
    let status = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties";
    for total in ["totalcpu", "totalmemory", "totalgpu"] {
        definition.pointer_mut(status).unwrap()[total]["format"] = json!("int32");
    }
    let definitions =
        resource("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions");
    cluster.create_as(&definitions, "", definition).await;
    controllers::install_crds(cluster.client.clone(), &[Group::Codeflare], Columns::Queue).await.unwrap();
    let _controller = cluster.controller();
    let mut large = filler("large", "1");
    let template = &mut large["spec"]["resources"]["GenericItems"][0]["generictemplate"];
    template["spec"]["containers"][0]["resources"]["requests"]["memory"] = json!("6Gi");
    cluster.submit(large).await;
    cluster.wait_state(Group::Codeflare, "large", "Running", "Dispatched").await;
    set_status(&cluster, &pods(), "large", json!({"phase": "Running"})).await;
    let status = cluster.wait_state(Group::Codeflare, "large", "Running", "Running").await;
    assert_eq!(status["totalmemory"], i32::MAX);
}

#[tokio::test(start_paused = true)]
async fn totals_above_two_gibibytes_are_shown_in_full() {
    let cluster = Cluster::new().await;
    small(&cluster).await;
    let _controller = cluster.controller();
    let mut large = filler("large", "1");
    let template = &mut large["spec"]["resources"]["GenericItems"][0]["generictemplate"];
    template["spec"]["containers"][0]["resources"]["requests"]["memory"] = json!("6Gi");
    cluster.submit(large).await;
    cluster.wait_state(Group::Codeflare, "large", "Running", "Dispatched").await;
    set_status(&cluster, &pods(), "large", json!({"phase": "Running"})).await;
    let status = cluster.wait_state(Group::Codeflare, "large", "Running", "Running").await;
    assert_eq!(status["totalmemory"], 6_442_450_944_i64);
}
