//! What can be wrapped, and how it looks once it exists.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::ROLES;
use crate::objects::{
    CONFIG_MAP, DEPLOYMENT, JOB, Kind, POD, SERVICE, STATEFUL_SET, WRAPPER, config_map, deployment, example,
    service, story, summary, with, wrap,
};
use crate::rights;
use crate::scene::Scene;

const RESOURCES: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

pub(super) async fn a_job_is_labelled_counted_and_told_as_ever(scene: &Scene<'_>) -> Result<()> {
    scene.node("one", "cpu=4").await?;
    let wrapper = scene.create(&example("aw-job.yaml")?).await?;
    scene.wait_pods("aw-job", 2).await?;
    let running = scene
        .wait(WRAPPER, "aw-job", "both pods are counted", |wrapper| wrapper["status"]["running"] == 2)
        .await?;
    ensure!(
        story(&running)
            == [
                "Init",
                "Queueing AwaitingHeadOfLine",
                "HeadOfLine FrontOfQueue.",
                "Dispatched AppWrapperRunnable",
                "Running PodsRunning"
            ],
        "its story is {:?}",
        story(&running)
    );
    let expected = json!({
        "canrun": true, "filterignore": true, "queuejobstate": "Running", "running": 2,
        "sender": "before [syncQueueJob] Update pod counts", "state": "Running", "totalcpu": 1000,
        "totalmemory": 209_715_200,
    });
    ensure!(summary(&running) == expected, "its status is {:#}", summary(&running));
    let job = scene.wait(JOB, "aw-job", "it exists", |_| true).await?;
    owned_and_labelled(&job, &wrapper, "aw-job")?;
    for pod in scene.list(POD).await? {
        for key in ["app", "appwrapper.mcad.ibm.com", "resourceName", "job-name"] {
            ensure!(pod["metadata"]["labels"][key] == "aw-job", "label {key} of a pod is missing");
        }
    }
    Ok(())
}

pub(super) async fn a_deployment_and_its_service_run_together(scene: &Scene<'_>) -> Result<()> {
    scene.node("one", "cpu=4").await?;
    let wrapper = example("aw-deployment-service.yaml")?;
    let wrapper = scene.create(&wrapper).await?;
    scene.wait_pods("web", 3).await?;
    let running = scene
        .wait(WRAPPER, "web", "all pods are counted", |wrapper| wrapper["status"]["running"] == 3)
        .await?;
    let status = &running["status"];
    ensure!(
        status["totalcpu"] == 750 && status["totalmemory"] == 3 << 26,
        "its totals are {} and {}",
        status["totalcpu"],
        status["totalmemory"]
    );
    owned_and_labelled(&scene.wait(DEPLOYMENT, "web", "it exists", |_| true).await?, &wrapper, "web")?;
    owned_and_labelled(&scene.wait(SERVICE, "web", "it exists", |_| true).await?, &wrapper, "web")?;
    scene.delete(WRAPPER, "web").await?;
    scene.wait_gone(DEPLOYMENT, "web").await?;
    scene.wait_gone(SERVICE, "web").await?;
    scene.wait_all(POD, "none is left", <[_]>::is_empty).await?;
    Ok(())
}

pub(super) async fn a_stateful_set_gets_all_its_pods(scene: &Scene<'_>) -> Result<()> {
    scene.node("one", "cpu=2").await?;
    let set = with(deployment("db", 2, "cpu=1"), "/kind", json!("StatefulSet"));
    scene.submit([wrap("db", [service("db"), with(set, "/spec/serviceName", json!("db"))])]).await?;
    scene.wait_pods("db-", 2).await?;
    scene.wait(STATEFUL_SET, "db", "its pods are ready", |set| set["status"]["readyReplicas"] == 2).await?;
    scene.wait_state("db", "Running/Running").await?;
    Ok(())
}

pub(super) async fn objects_without_pods_are_created_at_once(scene: &Scene<'_>) -> Result<()> {
    let wrapper = scene.create(&wrap("plain", [config_map("a"), config_map("b")])).await?;
    scene.wait_state("plain", "Running/Dispatched").await?;
    owned_and_labelled(&scene.wait(CONFIG_MAP, "a", "it exists", |_| true).await?, &wrapper, "plain")?;
    scene.delete(WRAPPER, "plain").await?;
    scene.wait_gone(CONFIG_MAP, "a").await?;
    scene.wait_gone(CONFIG_MAP, "b").await
}

pub(super) async fn a_list_is_the_objects_in_it(scene: &Scene<'_>) -> Result<()> {
    scene.node("one", "cpu=2").await?;
    let items = json!([deployment("web", 2, "cpu=1"), service("web")]);
    let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items});
    let wrapper = scene.create(&wrap("list", [list])).await?;
    scene.wait_pods("web", 2).await?;
    owned_and_labelled(&scene.wait(SERVICE, "web", "it exists", |_| true).await?, &wrapper, "list")
}

pub(super) async fn a_kind_is_waited_for_until_it_is_defined(scene: &Scene<'_>) -> Result<()> {
    const WIDGET: Kind = Kind("example.com/v1", "Widget");
    scene.create(&example("refused/unknown-kind.yaml")?).await?;
    let message = json!("this cluster serves no Widget in example.com/v1");
    scene
        .wait(WRAPPER, "unknown-kind", "it says what it waits for", |wrapper| {
            wrapper["status"]["message"] == message
        })
        .await?;
    let names =
        json!({"kind": "Widget", "listKind": "WidgetList", "plural": "widgets", "singular": "widget"});
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": schema});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]},
    });
    let role = rights::to_wrap("widgets", "example.com", "widgets");
    scene.call("POST", ROLES, Some(&role)).await?;
    scene.call("POST", RESOURCES, Some(&definition)).await?;
    let dispatched = async {
        scene.wait_state("unknown-kind", "Running/Dispatched").await?;
        scene.wait(WIDGET, "something", "it exists", |_| true).await
    }
    .await;
    scene.call("DELETE", &format!("{RESOURCES}/widgets.example.com"), None).await?;
    scene.call("DELETE", &format!("{ROLES}/widgets"), None).await?;
    dispatched.map(|_| ())
}

fn owned_and_labelled(object: &Value, wrapper: &Value, wrapper_name: &str) -> Result<()> {
    let labels = &object["metadata"]["labels"];
    let name = &object["metadata"]["name"];
    ensure!(
        labels["appwrapper.mcad.ibm.com"] == wrapper_name && labels["resourceName"] == *name,
        "{name} carries the labels {labels}"
    );
    let owner = json!([{
        "apiVersion": wrapper["apiVersion"], "kind": "AppWrapper", "name": wrapper_name,
        "uid": wrapper["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true,
    }]);
    let owners = &object["metadata"]["ownerReferences"];
    ensure!(*owners == owner, "{name} is owned by {owners}");
    Ok(())
}
