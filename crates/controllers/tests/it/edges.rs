//! Unusual AppWrappers, foreign objects and unusual orders of events.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use crate::common::{
    Cluster, Group, config_maps, example, of_mcad, ray_clusters, reason, renamed, resource, rest, story,
    wrappers,
};
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

fn wrapper(namespace: &str, name: &str, objects: &[Value]) -> Value {
    let items: Vec<_> = objects.iter().map(|object| json!({"generictemplate": object})).collect();
    json!({
        "apiVersion": "workload.codeflare.dev/v1beta1", "kind": "AppWrapper",
        "metadata": {"name": name, "namespace": namespace}, "spec": {"resources": {"GenericItems": items}},
    })
}

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

fn pod(name: &str, requests: &Value) -> Value {
    let containers = json!([{"name": "c", "image": "i", "resources": {"requests": requests}}]);
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": containers}})
}

fn pods() -> kube::core::ApiResource {
    resource("v1", "Pod", "pods")
}

async fn small(cluster: &Cluster) {
    cluster.node("n", &json!({"cpu": "16", "memory": "64Gi", "pods": "110"})).await;
}

#[tokio::test(start_paused = true)]
async fn a_condensed_spec_waits_for_two_gpus_on_one_node_and_its_status_says_so() {
    let cluster = Cluster::new().await;
    for name in ["a", "b"] {
        cluster
            .node(name, &json!({"cpu": "16", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": "1"}))
            .await;
    }
    let _controller = cluster.controller();
    cluster.submit(of_mcad(example("aw-condensed.yaml"))).await;
    let status = cluster.wait_state(Group::Mcad, "raycluster-glue", "Pending", "HeadOfLine").await;
    let reason = "can never start on these nodes: worker: needs 2 nvidia.com/gpu on one node; 2 nodes have 1 even when empty";
    let filled = "filled in: apiVersion ray.io/v1, name raycluster-glue, headGroupSpec.template.spec around its containers, \
        container name ray-head, workerGroupSpecs[0].template.spec around its containers, container name ray-worker, \
        workerGroupSpecs[0].groupName worker";
    assert_eq!(status["message"], format!("{reason}. {filled}"));
    cluster.settled().await;
    assert_eq!(
        cluster.events().await,
        [format!("raycluster-glue CanonicalForm: {filled}"), format!("raycluster-glue NeverFits: {reason}")]
    );

    // A node with two GPUs is added: the gang starts, in canonical form.
    cluster.node("c", &json!({"cpu": "16", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": "2"})).await;
    let status = cluster.wait_state(Group::Mcad, "raycluster-glue", "Running", "Dispatched").await;
    assert_eq!(status["message"], filled);
    let made = cluster.wait(&ray_clusters(), "default", "raycluster-glue", |_| true).await;
    assert_eq!(
        made.data["spec"]["workerGroupSpecs"][0]["template"]["spec"]["containers"][0]["name"],
        "ray-worker"
    );
    cluster.settled().await;
    assert_eq!(
        cluster.events().await.last().unwrap(),
        "raycluster-glue Dispatched: all pods have a node, all objects were created"
    );
}

#[tokio::test(start_paused = true)]
async fn gangs_are_queued_by_priority_with_the_conditions_of_their_api_group() {
    let cluster = Cluster::new().await;
    cluster.default_nodes().await;
    let _controller = cluster.controller();
    cluster.submit(example("aw-kuberay-glue.yaml")).await;
    let first = cluster.wait_state(Group::Codeflare, "raycluster-glue", "Running", "Dispatched").await;
    assert_eq!((first.get("message"), &first["systempriority"]), (None, &json!(9)));
    cluster.submit(renamed(example("aw-kuberay-glue.yaml"), "raycluster-glue-1", "glue-cluster-1")).await;
    let second = cluster.wait_state(Group::Codeflare, "raycluster-glue-1", "Pending", "Backoff").await;
    assert_eq!(
        rest(&second),
        json!({
            "filterignore": true, "queuejobstate": "Backoff", "sender": "before [backoff] - Rejoining", "state": "Pending",
            "queue": {"position": "1 of 1", "start": "unknown"},
            "systempriority": 9, "message": second["message"],
        })
    );
    cluster.settled().await;
    let told = cluster.events().await;
    assert_eq!(told, [format!("raycluster-glue-1 Waiting: {}", second["message"].as_str().unwrap())]);
}

#[tokio::test(start_paused = true)]
async fn a_gang_that_never_fits_blocks_no_other_gang() {
    let cluster = Cluster::new().await;
    small(&cluster).await;
    let _controller = cluster.controller();
    cluster.submit(wrapper("default", "giant", &[pod("giant", &json!({"cpu": "100"}))])).await;
    cluster.submit(wrapper("default", "dwarf", &[pod("dwarf", &json!({"cpu": "1"}))])).await;
    cluster.wait_state(Group::Codeflare, "dwarf", "Running", "Dispatched").await;
    let status = cluster.wait_state(Group::Codeflare, "giant", "Pending", "Backoff").await;
    assert!(
        status["message"].as_str().unwrap().starts_with("can never start on these nodes: pod: needs 100 cpu"),
        "{status}"
    );
    assert_eq!(
        story(&status)[3],
        "Backoff AppWrapperNotRunnable. Insufficient resources to dispatch AppWrapper."
    );
}

#[tokio::test(start_paused = true)]
async fn an_object_for_another_namespace_fails_the_gang_and_deletes_its_other_objects() {
    let cluster = Cluster::new().await;
    let _controller = cluster.controller();
    let mut elsewhere = config_map("b");
    elsewhere["metadata"]["namespace"] = json!("kube-system");
    cluster.submit(wrapper("default", "w", &[config_map("a"), elsewhere])).await;
    let status = cluster.wait_state(Group::Codeflare, "w", "Failed", "Failed").await;
    assert_eq!(
        story(&status)[3],
        "Failed ItemCreationFailure. default/w creation failure: \
         resource namespace \"kube-system\" is different from AppWrapper namespace \"default\""
    );
    assert_eq!(
        (&status["sender"], status.get("canrun")),
        (&json!("before manageQueueJob - afterEtcdDispatching"), None)
    );
    cluster.wait_gone(&config_maps(), "default", "a").await;
}

#[tokio::test(start_paused = true)]
async fn a_gang_without_requests_starts_in_a_cluster_without_nodes() {
    let cluster = Cluster::new().await;
    let _controller = cluster.controller();
    cluster.submit(wrapper("default", "w", &[config_map("w")])).await;
    let status = cluster.wait_state(Group::Codeflare, "w", "Running", "Dispatched").await;
    assert_eq!(status.get("message"), None);
    let made = cluster.wait(&config_maps(), "default", "w", |_| true).await;
    let labels = made.metadata.labels.unwrap();
    assert_eq!((labels["appwrapper.mcad.ibm.com"].as_str(), labels["resourceName"].as_str()), ("w", "w"));
    cluster.submit(wrapper("default", "empty", &[])).await;
    cluster.wait_state(Group::Codeflare, "empty", "Running", "Dispatched").await;
}

#[tokio::test(start_paused = true)]
async fn deleting_an_appwrapper_during_its_dispatch_leaves_no_object() {
    let cluster = Cluster::new().await;
    small(&cluster).await;
    let _controller = cluster.controller();
    for round in 0..20 {
        let name = format!("w{round}");
        let objects = [config_map(&name), pod(&name, &json!({"cpu": "1"}))];
        cluster.submit(wrapper("default", &name, &objects)).await;
        for _ in 0..round {
            tokio::task::yield_now().await;
        }
        cluster.delete(&wrappers(Group::Codeflare), "default", &name).await;
    }
    for round in 0..20 {
        let name = format!("w{round}");
        cluster.wait_gone(&config_maps(), "default", &name).await;
        cluster.wait_gone(&pods(), "default", &name).await;
    }
    // All capacity is free again.
    cluster.submit(wrapper("default", "all", &[pod("all", &json!({"cpu": "16"}))])).await;
    cluster.wait_state(Group::Codeflare, "all", "Running", "Dispatched").await;
}

#[tokio::test(start_paused = true)]
async fn appwrappers_of_the_same_name_in_two_namespaces_and_groups_are_charged_separately() {
    let cluster = Cluster::new().await;
    small(&cluster).await;
    cluster
        .create_as(&resource("v1", "Namespace", "namespaces"), "", json!({"metadata": {"name": "other"}}))
        .await;
    let _controller = cluster.controller();
    cluster.submit(wrapper("default", "w", &[pod("a", &json!({"cpu": "6"}))])).await;
    cluster.submit(wrapper("other", "w", &[pod("b", &json!({"cpu": "6"}))])).await;
    let mut third = wrapper("default", "w", &[pod("c", &json!({"cpu": "6"}))]);
    third["apiVersion"] = json!("mcad.ibm.com/v1beta1");
    cluster.wait_state(Group::Codeflare, "w", "Running", "Dispatched").await;
    let running = |wrapper: &DynamicObject| wrapper.data["status"]["state"] == "Running";
    cluster.wait(&wrappers(Group::Codeflare), "other", "w", running).await;
    cluster.submit(third).await;
    let status = cluster.wait_state(Group::Mcad, "w", "Pending", "HeadOfLine").await;
    assert_eq!(reason(&status), "pod: needs 6 cpu on one node; 1 node has 4 free");
}

#[tokio::test(start_paused = true)]
async fn an_object_of_another_owner_is_never_adopted() {
    let cluster = Cluster::new().await;
    cluster.create_as(&config_maps(), "default", config_map("theirs")).await;
    let _controller = cluster.controller();
    cluster.submit(wrapper("default", "w", &[config_map("ours"), config_map("theirs")])).await;
    let status = cluster.wait_state(Group::Codeflare, "w", "Failed", "Failed").await;
    assert_eq!(
        story(&status)[3],
        "Failed ItemCreationFailure. default/w creation failure: configmaps \"theirs\" already exists"
    );
    cluster.wait_gone(&config_maps(), "default", "ours").await;
    let theirs = cluster.wait(&config_maps(), "default", "theirs", |_| true).await;
    assert_eq!(theirs.metadata.owner_references, None);
}

#[tokio::test(start_paused = true)]
async fn the_dispatch_waits_for_a_terminating_object_of_the_same_name() {
    let cluster = Cluster::new().await;
    let mut leaving = config_map("w");
    leaving["metadata"]["finalizers"] = json!(["example.com/slow"]);
    let first = cluster.create_as(&config_maps(), "default", leaving).await;
    cluster.delete(&config_maps(), "default", "w").await;
    let _controller = cluster.controller();
    cluster.submit(wrapper("default", "w", &[config_map("w")])).await;
    let intent = |wrapper: &DynamicObject| wrapper.data["status"]["canrun"] == true;
    cluster.wait(&wrappers(Group::Codeflare), "default", "w", intent).await;
    cluster.settled().await;
    let status = cluster.wait_state(Group::Codeflare, "w", "Pending", "HeadOfLine").await;
    assert_eq!(status["canrun"], true);
    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    cluster.api(&config_maps(), "default").patch("w", &PatchParams::default(), &patch).await.unwrap();
    cluster.wait_state(Group::Codeflare, "w", "Running", "Dispatched").await;
    let second = cluster.wait(&config_maps(), "default", "w", |_| true).await;
    assert_ne!(first.metadata.uid, second.metadata.uid);
}

#[tokio::test(start_paused = true)]
async fn installing_a_missing_kind_starts_the_gangs_that_wait_for_it() {
    let cluster = Cluster::new().await;
    small(&cluster).await;
    let _controller = cluster.controller();
    let template = json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": 1}}}]}});
    let object = json!({"apiVersion": "example.com/v1", "kind": "Trainer", "metadata": {"name": "t"},
        "spec": {"replicas": 2, "template": template}});
    cluster.submit(wrapper("default", "w", &[object])).await;
    let status = cluster.wait_state(Group::Codeflare, "w", "Pending", "Queueing").await;
    assert_eq!(status["message"], "this cluster serves no Trainer in example.com/v1");
    assert_eq!(story(&status), ["Init", "Queueing AwaitingHeadOfLine"]);
    cluster.define("example.com", "Trainer", "trainers", &["v1"]).await;
    let status = cluster.wait_state(Group::Codeflare, "w", "Running", "Dispatched").await;
    assert_eq!(status.get("message"), None);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_its_operator_would_ignore_is_reported_and_not_created() {
    let cluster = Cluster::new().await;
    small(&cluster).await;
    let _controller = cluster.controller();
    let object = json!({"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "c"}, "spec": {"headGroupSpec": {}}});
    cluster.submit(wrapper("default", "w", &[object])).await;
    let status = cluster.wait_state(Group::Codeflare, "w", "Pending", "Queueing").await;
    assert_eq!(status["message"], "RayCluster c: headGroupSpec.template.spec.containers is empty");
    cluster.settled().await;
    assert_eq!(
        cluster.events().await,
        ["w NotQueued: RayCluster c: headGroupSpec.template.spec.containers is empty"]
    );

    // After the correction, the gang starts.
    let containers = json!([{"name": "c", "image": "i"}]);
    let spec = json!({"headGroupSpec": {"template": {"spec": {"containers": containers}}}});
    let object =
        json!({"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "c"}, "spec": spec});
    let patch = Patch::Merge(json!({"spec": {"resources": {"GenericItems": [{"generictemplate": object}]}}}));
    cluster
        .api(&wrappers(Group::Codeflare), "default")
        .patch("w", &PatchParams::default(), &patch)
        .await
        .unwrap();
    cluster.wait_state(Group::Codeflare, "w", "Running", "Dispatched").await;
}

#[tokio::test(start_paused = true)]
async fn malformed_appwrappers_are_rejected_by_the_schema_or_fail_with_a_reason() {
    let cluster = Cluster::new().await;
    let _controller = cluster.controller();
    let api = cluster.api(&wrappers(Group::Mcad), "default");
    let of = |resources: Value| {
        json!({"apiVersion": "mcad.ibm.com/v1beta1", "kind": "AppWrapper", "metadata": {"name": "w"},
            "spec": {"resources": resources}})
    };
    let of_kind = |api_version: &str, kind: &str| {
        let object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}});
        of(json!({"GenericItems": [{"generictemplate": object}]}))
    };
    let refused = [
        ("items as a map", of(json!({"GenericItems": {"generictemplate": config_map("a")}}))),
        ("an empty template", of(json!({"GenericItems": [{"generictemplate": {}}]}))),
        ("a template without kind", of(json!({"GenericItems": [{"generictemplate": {"apiVersion": "v1"}}]}))),
        (
            "a template without apiVersion",
            of(json!({"GenericItems": [{"generictemplate": {"kind": "Pod"}}]})),
        ),
        ("an apiVersion that no API server serves", of_kind("a b", "Job")),
        ("an apiVersion with a query", of_kind("batch/v1?x=", "Job")),
        ("an apiVersion that is too long", of_kind(&format!("{}/v1", "a".repeat(317)), "Job")),
        ("a kind that no API server serves", of_kind("batch/v1", "Job/status")),
        ("an empty kind", of_kind("batch/v1", "")),
        ("a condensed template without kind", of(json!({"generictemplate": {"spec": {}}}))),
        (
            "an amount that is none",
            of(json!({"GenericItems": [{"generictemplate": config_map("a"),
                "custompodresources": [{"replicas": 1, "requests": {"cpu": "many"}}]}]})),
        ),
    ];
    for (name, wrapper) in refused {
        let answer = api.create(&PostParams::default(), &serde_json::from_value(wrapper).unwrap()).await;
        assert!(matches!(&answer, Err(kube::Error::Api(status)) if status.code == 422), "{name}: {answer:?}");
    }
    cluster.submit(of(json!({"GenericItems": [{}]}))).await;
    let status = cluster.wait_state(Group::Mcad, "w", "Failed", "Failed").await;
    assert_eq!(
        story(&status)[3],
        "Failed ItemCreationFailure. default/w creation failure: \
         resources.GenericItems[0] has no generictemplate; write the object to create there"
    );
}

#[tokio::test(start_paused = true)]
async fn of_five_hundred_appwrappers_created_at_once_those_that_fit_start_in_order() {
    let cluster = Cluster::new().await;
    cluster.node("n", &json!({"cpu": "300", "memory": "64Gi", "pods": "1000"})).await;
    let _controller = cluster.controller();
    for n in 0..500 {
        let name = format!("w{n:03}");
        cluster.submit(wrapper("default", &name, &[pod(&name, &json!({"cpu": "1"}))])).await;
    }
    cluster.wait_state(Group::Codeflare, "w299", "Running", "Dispatched").await;
    cluster.wait_state(Group::Codeflare, "w499", "Pending", "Backoff").await;
    cluster.settled().await;
    let list = cluster
        .api(&wrappers(Group::Codeflare), "default")
        .list(&kube::api::ListParams::default())
        .await
        .unwrap();
    let running = list.items.iter().filter(|wrapper| wrapper.data["status"]["state"] == "Running");
    let last = running.clone().filter_map(|wrapper| wrapper.metadata.name.clone()).max();
    assert_eq!((running.count(), last.as_deref()), (300, Some("w299")));
    assert_eq!(cluster.names(&pods(), "default").await.len(), 300);
}

#[tokio::test(start_paused = true)]
async fn crds_of_another_installer_are_used_and_not_changed() {
    let cluster = Cluster::bare();
    cluster.define("mcad.ibm.com", "AppWrapper", "appwrappers", &["v1beta1"]).await;
    controllers::install_crds(cluster.client.clone(), &Group::ALL, api::appwrapper::Columns::default())
        .await
        .unwrap();
    let definitions =
        resource("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions");
    let theirs = cluster.wait(&definitions, "", "appwrappers.mcad.ibm.com", |_| true).await;
    assert_eq!(theirs.metadata.labels, None);
    cluster.wait(&definitions, "", "appwrappers.workload.codeflare.dev", |_| true).await;
    let _controller = cluster.controller();
    let mut wrapper = wrapper("default", "w", &[config_map("w")]);
    wrapper["apiVersion"] = json!("mcad.ibm.com/v1beta1");
    cluster.submit(wrapper).await;
    cluster.wait_state(Group::Mcad, "w", "Running", "Dispatched").await;
}

#[tokio::test(start_paused = true)]
async fn definitions_of_2022_without_a_status_subresource_are_worked_on() {
    let cluster = Cluster::bare();
    small(&cluster).await;
    cluster.define_with("mcad.ibm.com", "AppWrapper", "appwrappers", &["v1beta1"], &json!({})).await;
    let _controller = cluster.controller();
    for (name, cpu) in [("fits", 10), ("waits", 12)] {
        let mut wrapper = wrapper("default", name, &[pod(name, &json!({"cpu": cpu}))]);
        wrapper["apiVersion"] = json!("mcad.ibm.com/v1beta1");
        cluster.submit(wrapper).await;
    }
    cluster.wait_state(Group::Mcad, "fits", "Running", "Dispatched").await;
    cluster.wait_state(Group::Mcad, "waits", "Pending", "HeadOfLine").await;
    cluster.delete(&wrappers(Group::Mcad), "default", "fits").await;
    cluster.wait_state(Group::Mcad, "waits", "Running", "Dispatched").await;
}

#[tokio::test(start_paused = true)]
async fn gangs_that_wait_for_the_deletion_of_objects_do_not_delay_other_gangs() {
    let cluster = Cluster::new().await;
    for n in 0..40 {
        let mut leaving = config_map(&format!("w{n}"));
        leaving["metadata"]["finalizers"] = json!(["example.com/slow"]);
        cluster.create_as(&config_maps(), "default", leaving).await;
        cluster.delete(&config_maps(), "default", &format!("w{n}")).await;
    }
    let _controller = cluster.controller();
    for n in 0..40 {
        cluster.submit(wrapper("default", &format!("w{n}"), &[config_map(&format!("w{n}"))])).await;
    }
    cluster.submit(wrapper("default", "free", &[config_map("free")])).await;
    cluster.wait_state(Group::Codeflare, "free", "Running", "Dispatched").await;
}
