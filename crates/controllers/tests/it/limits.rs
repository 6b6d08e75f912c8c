//! AppWrappers beyond the limits: the status says so, nothing is created, and others go on.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use crate::common::{Cluster, Group, resource, story, wrappers};
use serde_json::{Value, json};

fn wrapper(name: &str, resources: &Value) -> Value {
    json!({
        "apiVersion": "mcad.ibm.com/v1beta1", "kind": "AppWrapper",
        "metadata": {"name": name, "namespace": "default"}, "spec": {"resources": resources},
    })
}

fn job(parallelism: u32) -> Value {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}});
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"},
        "spec": {"parallelism": parallelism, "template": template}});
    json!({"GenericItems": [{"generictemplate": job}]})
}

#[tokio::test(start_paused = true)]
async fn an_appwrapper_beyond_a_limit_is_told_so_and_others_start() {
    let cluster = Cluster::new().await;
    cluster.default_nodes().await;
    let controller = cluster.controller();
    let item =
        json!({"type": "Pod", "replicas": 1000, "template": {"template": {"spec": {"containers": []}}}});
    cluster.submit(wrapper("legacy", &json!({"Items": vec![item; 500]}))).await;
    cluster.submit(wrapper("pods", &job(1_000_000))).await;
    cluster.submit(wrapper("small", &job(1))).await;
    cluster.wait_state(Group::Mcad, "small", "Running", "Dispatched").await;
    let legacy = cluster.wait_state(Group::Mcad, "legacy", "Failed", "Failed").await;
    assert_eq!(
        story(&legacy).last().unwrap(),
        "Failed ItemCreationFailure. default/legacy creation failure: resources: 500000 objects exceed the limit of \
         1000; split it into several AppWrappers, or wrap a Job that creates the pods"
    );
    let text = "resources: 1000000 pods exceed the limit of 150000; Kubernetes supports no larger cluster; reduce \
                replicas or parallelism";
    cluster.wait(&wrappers(Group::Mcad), "default", "pods", |w| w.data["status"]["message"] == text).await;
    assert_eq!(cluster.names(&resource("v1", "Pod", "pods"), "default").await, Vec::<String>::new());
    let index = controller.index.read().unwrap();
    let kept =
        index.wrappers().map(|wrapper| wrapper.summary.objects().count() + wrapper.summary.pod_sets.len());
    assert_eq!(kept.max(), Some(2), "objects and pod sets in memory");
}
