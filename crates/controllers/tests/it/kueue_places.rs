//! Workloads whose pods get nodes: a job starts if every pod has a place, and each pod goes to its place.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use crate::common::elastic::create_pod;
use crate::common::gang_pods::{cordon, evict, host, nodes, pods, run};
use crate::common::jobs::*;
use crate::common::kueue::*;
use crate::common::{Cluster, Running, gang_pods};
use crate::references::bound_claim;
use controllers::{Config, FailedNodeRules, Kueue, KueueOptions, KueueRules};
use kube::api::DynamicObject;
use serde_json::{Value, json};

pub(crate) fn controller(cluster: &Cluster) -> Running {
    with_rules(cluster, FailedNodeRules::default())
}

/// A controller that places all pods, with these rules about failed nodes.
pub(crate) fn with_rules(cluster: &Cluster, failed_nodes: FailedNodeRules) -> Running {
    let rules = KueueRules { places_pods: true, failed_nodes, ..KueueRules::default() };
    let kueue_options = KueueOptions { rules, ..KueueOptions::default() };
    let (kueue, jobs) = (Kueue::Scheduler, all_kinds());
    cluster.start(cluster.client.clone(), Config { kueue, kueue_options, jobs, ..Config::default() })
}

/// Nodes of 4 CPUs of the pool `gpu` in racks, and a queue of 100 CPUs.
pub(crate) async fn cluster_of(racks: &[&[&str]]) -> Cluster {
    let names: Vec<&str> = racks.iter().flat_map(|rack| rack.iter().copied()).collect();
    let cluster = gang_pods::cluster(&names).await;
    for (rack, names) in racks.iter().enumerate() {
        for name in *names {
            let labels = json!({"pool": "gpu", "rack": format!("r{rack}")});
            gang_pods::patch_node(&cluster, name, &json!({"metadata": {"labels": labels}})).await;
        }
    }
    install(&cluster).await;
    gpu_queue(&cluster, 100, json!({})).await;
    cluster
}

/// A Job of so many pods of 2 CPUs.
pub(crate) fn pairs(name: &str, pods: u32) -> Value {
    let mut job = job(name, pods);
    job["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "2".into();
    job
}

pub(crate) fn places(workload: &DynamicObject) -> &Value {
    &workload.data["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"]
}

pub(crate) fn domains(workload: &DynamicObject) -> String {
    places(workload)["slices"].to_string()
}

#[tokio::test(start_paused = true)]
async fn a_job_starts_if_every_pod_has_a_node_and_its_pods_go_there() {
    let cluster = cluster_of(&[&["a", "b"]]).await;
    let controller = controller(&cluster);
    submit_job(&cluster, pairs("train", 3)).await;
    let train = running(&cluster, "train").await;
    let gate = json!([{"name": "kueue.x-k8s.io/topology"}]);
    assert_eq!(train.data["spec"]["template"]["spec"]["schedulingGates"], gate);
    let workload =
        workload_of(&cluster, "train", |workload| is(workload, "Admitted", "True", "Admitted")).await;
    assert_eq!(places(&workload)["levels"], json!(["kubernetes.io/hostname"]));
    submit_job(&cluster, pairs("next", 2)).await;
    let next =
        workload_of(&cluster, "next", |workload| is(workload, "QuotaReserved", "False", "Pending")).await;
    let message = condition(&next, "QuotaReserved").unwrap()["message"].as_str().unwrap().to_owned();
    assert!(
        message.contains("couldn't assign flavors to pod set main: ") && message.contains("cpu"),
        "{message}"
    );
    // The places outlive the controller.
    drop(controller);
    let _controller = self::controller(&cluster);
    let mut hosts = Vec::new();
    for pod in ["train-1", "train-2", "train-3"] {
        create_pod(&cluster, &train, pod).await;
        let node = host(&cluster, pod).await;
        run(&cluster, pod, &node).await;
        hosts.push(node);
    }
    hosts.sort();
    assert!(hosts == ["a", "a", "b"] || hosts == ["a", "b", "b"], "{hosts:?}");
    submit_job(&cluster, pairs("small", 1)).await;
    let small = running(&cluster, "small").await;
    create_pod(&cluster, &small, "small-1").await;
    let free = if hosts == ["a", "a", "b"] { "b" } else { "a" };
    assert_eq!(host(&cluster, "small-1").await, free);
    run(&cluster, "small-1", free).await;
    let complete = json!({"type": "Complete", "status": "True", "message": ""});
    status(&cluster, "train", json!({"active": 0, "succeeded": 3, "conditions": [complete]})).await;
    cluster.settled().await;
    assert_eq!(running_jobs(&cluster).await, ["small", "train"], "the pods of the ended Job hold its nodes");
    for pod in ["train-1", "train-2", "train-3"] {
        evict(&cluster, pod).await;
    }
    workload_of(&cluster, "train", |workload| is(workload, "Finished", "True", "Succeeded")).await;
    running(&cluster, "next").await;
}

#[tokio::test(start_paused = true)]
async fn a_job_waits_for_its_claim_and_gets_places_where_the_volume_is() {
    let cluster = cluster_of(&[&["a"], &["b"]]).await;
    for node in ["a", "b"] {
        gang_pods::patch_node(&cluster, node, &json!({"metadata": {"labels": {"zone": node}}})).await;
    }
    let _controller = controller(&cluster);
    let with_claim = |name: &str| {
        let mut job = pairs(name, 1);
        let volume = json!({"name": "data", "persistentVolumeClaim": {"claimName": name}});
        job["spec"]["template"]["spec"]["volumes"] = json!([volume]);
        job
    };
    let is_told = |workload: &DynamicObject| {
        let told = condition(workload, "QuotaReserved").map(|known| known["message"].clone());
        told == Some("main: claim x does not exist in namespace default: create it".into())
    };
    submit_job(&cluster, with_claim("x")).await;
    workload_of(&cluster, "x", is_told).await;
    for (claim, node) in [("x", "b"), ("y", "a")] {
        bound_claim(&cluster, claim, node).await;
        if claim == "y" {
            submit_job(&cluster, with_claim("y")).await;
        }
        let job = running(&cluster, claim).await;
        create_pod(&cluster, &job, &format!("{claim}-1")).await;
        assert_eq!(host(&cluster, &format!("{claim}-1")).await, node);
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_counts_for_nothing_in_a_queue_whose_pods_get_no_places() {
    let cluster = cluster_of(&[&["a"]]).await;
    let (kueue, jobs) = (Kueue::Scheduler, all_kinds());
    let _controller = cluster.start(cluster.client.clone(), Config { kueue, jobs, ..Config::default() });
    let mut job = pairs("x", 1);
    let volume = json!({"name": "data", "persistentVolumeClaim": {"claimName": "x"}});
    job["spec"]["template"]["spec"]["volumes"] = json!([volume]);
    submit_job(&cluster, job).await;
    running(&cluster, "x").await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_created_again_takes_the_free_place_and_any_node_if_its_node_takes_none() {
    let cluster = cluster_of(&[&["a", "b", "c"]]).await;
    let _controller = controller(&cluster);
    submit_job(&cluster, pairs("train", 4)).await;
    let train = running(&cluster, "train").await;
    let mut hosts = Vec::new();
    for pod in ["train-1", "train-2", "train-3", "train-4"] {
        create_pod(&cluster, &train, pod).await;
        hosts.push(host(&cluster, pod).await);
        run(&cluster, pod, hosts.last().unwrap()).await;
    }
    evict(&cluster, "train-1").await;
    create_pod(&cluster, &train, "train-5").await;
    assert_eq!(host(&cluster, "train-5").await, hosts[0]);
    run(&cluster, "train-5", &hosts[0]).await;
    cordon(&cluster, &hosts[0]).await;
    evict(&cluster, "train-5").await;
    create_pod(&cluster, &train, "train-6").await;
    assert_eq!(host(&cluster, "train-6").await, "any");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_selects_its_host_gets_its_place_there() {
    let cluster = cluster_of(&[&["a", "b"]]).await;
    let _controller = controller(&cluster);
    let mut job = pairs("train", 2);
    job["spec"]["template"]["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": "b"});
    submit_job(&cluster, job).await;
    let train = running(&cluster, "train").await;
    for pod in ["train-1", "train-2"] {
        create_pod(&cluster, &train, pod).await;
        assert_eq!(host(&cluster, pod).await, "b");
    }
}

#[tokio::test(start_paused = true)]
async fn an_annotation_of_the_queue_decides_about_places() {
    let cluster = cluster_of(&[&["a"]]).await;
    let queues = cluster_queues();
    let patch = json!({"metadata": {"annotations": {"muster.dev/place-pods": "false"}}});
    let api = cluster.api(&queues, "");
    api.patch("team", &kube::api::PatchParams::default(), &kube::api::Patch::Merge(patch)).await.unwrap();
    let _controller = controller(&cluster);
    submit_job(&cluster, pairs("large", 10)).await;
    let large = running(&cluster, "large").await;
    assert_eq!(large.data["spec"]["template"]["spec"]["schedulingGates"], Value::Null);
    let workload =
        workload_of(&cluster, "large", |workload| is(workload, "Admitted", "True", "Admitted")).await;
    assert_eq!(*places(&workload), Value::Null);
}

/// Nodes of 4 CPUs in racks, and a queue of 100 CPUs whose flavor has racks as its lowest level.
async fn racked(racks: &[&[&str]]) -> Cluster {
    let cluster = cluster_of(racks).await;
    create(&cluster, "Topology", "topologies", "racks", json!({"levels": [{"nodeLabel": "rack"}]})).await;
    let flavor = json!({"nodeLabels": {"pool": "gpu"}, "topologyName": "racks"});
    create(&cluster, "ResourceFlavor", "resourceflavors", "racked", flavor).await;
    let quota = json!({"name": "racked", "resources": [{"name": "cpu", "nominalQuota": 100}]});
    let groups = json!({"resourceGroups": [{"coveredResources": ["cpu"], "flavors": [quota]}]});
    queue(&cluster, "racked", 100, groups).await;
    cluster
}

/// A controller that places pods in flavors with a topology alone.
fn plain(cluster: &Cluster) -> Running {
    let kueue = Kueue::Scheduler;
    cluster.start(cluster.client.clone(), Config { kueue, jobs: all_kinds(), ..Config::default() })
}

/// A Job of so many pods of 2 CPUs that have to be in one rack.
fn in_a_rack(name: &str, pods: u32) -> Value {
    let mut job = pairs(name, pods);
    job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "racked".into();
    let required = json!({"kueue.x-k8s.io/podset-required-topology": "rack"});
    job["spec"]["template"]["metadata"] = json!({ "annotations": required });
    job
}

/// Waits until the Workload of a Job waits for quota or places.
async fn is_waiting(cluster: &Cluster, job: &str) {
    workload_of(cluster, job, |workload| is(workload, "QuotaReserved", "False", "Pending")).await;
    cluster.settled().await;
    assert!(!running_jobs(cluster).await.contains(&job.to_owned()), "{job} runs");
}

#[tokio::test(start_paused = true)]
async fn a_rack_is_taken_from_the_admission_on_also_after_a_restart() {
    let cluster = racked(&[&["a", "b"]]).await;
    let controller = plain(&cluster);
    submit_job(&cluster, in_a_rack("train", 3)).await;
    let train = running(&cluster, "train").await;
    submit_job(&cluster, in_a_rack("next", 2)).await;
    is_waiting(&cluster, "next").await;
    drop(controller);
    let _controller = plain(&cluster);
    submit_job(&cluster, in_a_rack("later", 2)).await;
    is_waiting(&cluster, "later").await;
    is_waiting(&cluster, "next").await;
    // The scheduler fills the nodes of a rack in another way than the plan.
    let is_ungated = |pod: &DynamicObject| pod.data["spec"]["schedulingGates"].is_null();
    for (pod, node) in [("train-1", "b"), ("train-2", "b"), ("train-3", "a")] {
        create_pod(&cluster, &train, pod).await;
        cluster.wait(&pods(), "default", pod, is_ungated).await;
        run(&cluster, pod, node).await;
    }
    submit_job(&cluster, in_a_rack("small", 1)).await;
    running(&cluster, "small").await;
    submit_job(&cluster, in_a_rack("last", 1)).await;
    is_waiting(&cluster, "last").await;
}

#[tokio::test(start_paused = true)]
async fn the_pods_of_a_rack_are_counted_on_a_node_that_takes_the_place_of_another() {
    let cluster = racked(&[&["a"]]).await;
    let _controller = plain(&cluster);
    submit_job(&cluster, in_a_rack("train", 2)).await;
    running(&cluster, "train").await;
    cluster.api(&nodes(), "").delete("a", &kube::api::DeleteParams::default()).await.unwrap();
    cluster.settled().await;
    cluster.node("b", &json!({"cpu": "4", "memory": "16Gi", "pods": "110"})).await;
    let labels = json!({"pool": "gpu", "rack": "r0"});
    gang_pods::patch_node(&cluster, "b", &json!({"metadata": {"labels": labels}})).await;
    submit_job(&cluster, in_a_rack("next", 1)).await;
    is_waiting(&cluster, "next").await;
}

#[tokio::test(start_paused = true)]
async fn a_topology_keeps_a_pod_set_in_one_domain() {
    let cluster = racked(&[&["a"], &["b", "c"]]).await;
    let _controller = plain(&cluster);
    let mut train = in_a_rack("train", 3);
    submit_job(&cluster, train.clone()).await;
    let started = running(&cluster, "train").await;
    let workload =
        workload_of(&cluster, "train", |workload| is(workload, "Admitted", "True", "Admitted")).await;
    assert_eq!(places(&workload)["levels"], json!(["rack"]));
    create_pod(&cluster, &started, "train-1").await;
    let is_ungated = |pod: &DynamicObject| pod.data["spec"]["schedulingGates"].is_null();
    let pod = cluster.wait(&pods(), "default", "train-1", is_ungated).await;
    assert_eq!(pod.data["spec"]["nodeSelector"], json!({"pool": "gpu", "rack": "r1"}));
    run(&cluster, "train-1", "b").await;
    for (pod, node) in [("train-2", "b"), ("train-3", "c")] {
        create_pod(&cluster, &started, pod).await;
        cluster.wait(&pods(), "default", pod, is_ungated).await;
        run(&cluster, pod, node).await;
    }
    train["metadata"]["name"] = "large".into();
    train["spec"]["parallelism"] = 5.into();
    train["spec"]["completions"] = 5.into();
    submit_job(&cluster, train).await;
    let large =
        workload_of(&cluster, "large", |workload| is(workload, "QuotaReserved", "False", "Pending")).await;
    let message = condition(&large, "QuotaReserved").unwrap()["message"].as_str().unwrap().to_owned();
    let expected =
        "couldn't assign flavors to pod set main: topology \"racks\" allows to fit only 2 out of 5 pod(s)";
    assert_eq!(message, expected);
}

/// The Jobs that are not suspended.
pub(crate) async fn running_jobs(cluster: &Cluster) -> Vec<String> {
    let list = cluster.api(&jobs(), "default").list(&kube::api::ListParams::default()).await.unwrap();
    let running = list.items.into_iter().filter(|job| job.data["spec"]["suspend"] == false);
    let mut names: Vec<String> = running.filter_map(|job| job.metadata.name).collect();
    names.sort();
    names
}

#[tokio::test(start_paused = true)]
async fn a_workload_that_kueue_gave_quota_without_places_gets_them_after_its_checks() {
    let cluster = kueue_cluster().await;
    active_check(&cluster, "budget").await;
    delayed_queue(&cluster, "budget").await;
    gpu_node(&cluster, "a", ("lot", "1")).await;
    submit(&cluster, "train", "team", 0, 2, 2).await;
    let admission = json!({"clusterQueue": "team", "podSetAssignments": [{"name": "main", "count": 2,
        "flavors": {"cpu": "hosts"}, "resourceUsage": {"cpu": "4"}, "delayedTopologyRequest": "Pending"}]});
    let time = "2023-11-14T22:13:20Z";
    let reserved = json!({"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": "",
        "lastTransitionTime": time});
    let pending = json!([{"name": "budget", "state": "Pending", "message": "", "lastTransitionTime": time}]);
    let body = json!({"apiVersion": VERSION, "kind": "Workload", "metadata": {"name": "train"},
        "status": {"admission": admission, "conditions": [reserved], "admissionChecks": pending}});
    let api = cluster.api(&workloads(), "default");
    let params = kube::api::PatchParams::apply("kueue-admission").force();
    api.patch_status("train", &params, &kube::api::Patch::Apply(body)).await.unwrap();
    let _controller = controller(&cluster);
    cluster.settled().await;
    let before = api.get("train").await.unwrap();
    assert!(condition(&before, "Admitted").is_none());
    assert_eq!(assigned(&before)["delayedTopologyRequest"], "Pending");
    let ready = json!([{"name": "budget", "state": "Ready", "message": "", "lastTransitionTime": time}]);
    let patch = kube::api::Patch::Merge(json!({"status": {"admissionChecks": ready}}));
    api.patch_status("train", &kube::api::PatchParams::default(), &patch).await.unwrap();
    let train = admitted(&cluster, "train").await;
    assert_eq!(assigned(&train)["delayedTopologyRequest"], "Ready");
    assert!(domains(&train).contains("\"a\""), "{}", domains(&train));
}

#[tokio::test(start_paused = true)]
async fn a_topology_stays_until_no_flavor_names_it() {
    let cluster = kueue_cluster().await;
    delayed_queue(&cluster, "budget").await;
    let topologies = kind("Topology", "topologies");
    let _controller = controller(&cluster);
    let is_kept = |object: &DynamicObject| {
        object.metadata.finalizers.as_ref().is_some_and(|kept| *kept == ["kueue.x-k8s.io/resource-in-use"])
    };
    cluster.wait(&topologies, "", "hosts", is_kept).await;
    cluster.delete(&topologies, "", "hosts").await;
    cluster.settled().await;
    assert_eq!(cluster.names(&topologies, "").await, ["hosts"]);
    cluster.delete(&cluster_queues(), "", "team").await;
    cluster.delete(&kind("ResourceFlavor", "resourceflavors"), "", "hosts").await;
    cluster.wait_gone(&topologies, "", "hosts").await;
}

#[tokio::test(start_paused = true)]
async fn pods_go_to_the_places_of_their_ranks_in_their_sub_groups() {
    let cluster = kueue_cluster().await;
    delayed_queue(&cluster, "budget").await;
    let queues = cluster.api(&cluster_queues(), "");
    let unchecked = kube::api::Patch::Merge(json!({"spec": {"admissionChecksStrategy": null}}));
    queues.patch("team", &kube::api::PatchParams::default(), &unchecked).await.unwrap();
    gpu_node(&cluster, "a", ("lot", "1")).await;
    gpu_node(&cluster, "b", ("lot", "1")).await;
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": 2}}});
    let pod_spec = json!({"restartPolicy": "Never", "containers": [container]});
    let request = json!({"unconstrained": true, "podIndexLabel": "index", "subGroupIndexLabel": "part",
        "subGroupCount": 2});
    let spec = json!({"queueName": "team", "active": true, "podSets": [
        {"name": "main", "count": 4, "topologyRequest": request, "template": {"spec": pod_spec}}]});
    let _controller = controller(&cluster);
    create(&cluster, "Workload", "workloads", "set", spec).await;
    admitted(&cluster, "set").await;
    for (name, part, index) in [("p0", "1", "0"), ("p1", "0", "1"), ("p2", "1", "1"), ("p3", "0", "0")] {
        let mut spec = pod_spec.clone();
        spec["schedulingGates"] = json!([{"name": "kueue.x-k8s.io/topology"}]);
        let labels = json!({"kueue.x-k8s.io/podset": "main", "part": part, "index": index});
        let annotations = json!({"kueue.x-k8s.io/workload": "set"});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": spec,
            "metadata": {"name": name, "labels": labels, "annotations": annotations}});
        cluster.create_as(&pods(), "default", pod).await;
    }
    let mut hosts = Vec::new();
    for pod in ["p3", "p1", "p0", "p2"] {
        hosts.push(host(&cluster, pod).await);
    }
    assert_eq!(hosts, ["a", "a", "b", "b"]);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_an_app_wrapper_preempts_says_which_one() {
    let cluster = cluster_of(&[&["a"]]).await;
    let rules = KueueRules { places_pods: true, ..KueueRules::default() };
    let kueue_options = KueueOptions { rules, ..KueueOptions::default() };
    let (kueue, jobs) = (Kueue::Scheduler, all_kinds());
    let config = Config { kueue, kueue_options, jobs, preemption: true, ..Config::default() };
    let _controller = cluster.start(cluster.client.clone(), config);
    submit_job(&cluster, pairs("train", 2)).await;
    running(&cluster, "train").await;
    let mut strong = gang_pods::single("strong");
    strong["spec"]["priority"] = 9.into();
    let strong = cluster.submit(strong).await;
    let evicted =
        workload_of(&cluster, "train", |workload| is(workload, "Evicted", "True", "Preempted")).await;
    let uid = strong.metadata.uid.unwrap();
    assert_eq!(
        condition(&evicted, "Evicted").unwrap()["message"],
        format!(
            "Preempted to accommodate the AppWrapper default/strong (UID: {uid}) due to its higher priority; \
             preemptee path: /team"
        )
    );
}
