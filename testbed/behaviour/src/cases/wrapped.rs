//! The kinds that can be wrapped, and the labels, owners and statuses of their objects.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::ROLES;
use crate::fixture::Fixture;
use crate::objects::{
    CONFIG_MAP, DEPLOYMENT, JOB, Kind, POD, SERVICE, STATEFUL_SET, WRAPPER, condition_lines, config_map,
    deployment, example, service, summary, with, wrap,
};
use crate::rbac;

const RESOURCES: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

pub(super) async fn a_wrapped_job_gets_mcad_labels_counts_and_conditions(
    fixture: &Fixture<'_>,
) -> Result<()> {
    fixture.node("one", "cpu=4").await?;
    let wrapper = fixture.create(&example("aw-job.yaml")?).await?;
    fixture.wait_pods("aw-job", 2).await?;
    let running = fixture
        .wait(WRAPPER, "aw-job", "both pods are counted", |wrapper| wrapper["status"]["running"] == 2)
        .await?;
    ensure!(
        condition_lines(&running)
            == [
                "Init",
                "Queueing AwaitingHeadOfLine",
                "HeadOfLine FrontOfQueue.",
                "Dispatched AppWrapperRunnable",
                "Running PodsRunning"
            ],
        "its conditions are {:?}",
        condition_lines(&running)
    );
    let expected = json!({
        "canrun": true, "filterignore": true, "queuejobstate": "Running", "running": 2,
        "sender": "before [syncQueueJob] Update pod counts", "state": "Running", "totalcpu": 1000,
        "totalmemory": 209_715_200,
    });
    ensure!(summary(&running) == expected, "its status is {:#}", summary(&running));
    let job = fixture.wait(JOB, "aw-job", "it exists", |_| true).await?;
    owned_and_labelled(&job, &wrapper, "aw-job")?;
    for pod in fixture.list(POD).await? {
        for key in ["app", "appwrapper.mcad.ibm.com", "resourceName", "job-name"] {
            ensure!(pod["metadata"]["labels"][key] == "aw-job", "label {key} of a pod is missing");
        }
    }
    Ok(())
}

pub(super) async fn a_wrapped_deployment_and_service_run_and_are_deleted_together(
    fixture: &Fixture<'_>,
) -> Result<()> {
    fixture.node("one", "cpu=4").await?;
    let wrapper = example("aw-deployment-service.yaml")?;
    let wrapper = fixture.create(&wrapper).await?;
    fixture.wait_pods("web", 3).await?;
    let running = fixture
        .wait(WRAPPER, "web", "all pods are counted", |wrapper| wrapper["status"]["running"] == 3)
        .await?;
    let status = &running["status"];
    ensure!(
        status["totalcpu"] == 750 && status["totalmemory"] == 3 << 26,
        "its totals are {} and {}",
        status["totalcpu"],
        status["totalmemory"]
    );
    owned_and_labelled(&fixture.wait(DEPLOYMENT, "web", "it exists", |_| true).await?, &wrapper, "web")?;
    owned_and_labelled(&fixture.wait(SERVICE, "web", "it exists", |_| true).await?, &wrapper, "web")?;
    fixture.delete(WRAPPER, "web").await?;
    fixture.wait_gone(DEPLOYMENT, "web").await?;
    fixture.wait_gone(SERVICE, "web").await?;
    fixture.wait_all(POD, "none is left", <[_]>::is_empty).await?;
    Ok(())
}

pub(super) async fn a_wrapped_stateful_set_starts_all_its_pods(fixture: &Fixture<'_>) -> Result<()> {
    fixture.node("one", "cpu=2").await?;
    let set = with(deployment("db", 2, "cpu=1"), "/kind", json!("StatefulSet"));
    fixture.submit([wrap("db", [service("db"), with(set, "/spec/serviceName", json!("db"))])]).await?;
    fixture.wait_pods("db-", 2).await?;
    fixture.wait(STATEFUL_SET, "db", "its pods are ready", |set| set["status"]["readyReplicas"] == 2).await?;
    fixture.wait_state("db", "Running/Running").await?;
    Ok(())
}

pub(super) async fn items_without_pods_are_dispatched_at_once(fixture: &Fixture<'_>) -> Result<()> {
    let wrapper = fixture.create(&wrap("plain", [config_map("a"), config_map("b")])).await?;
    fixture.wait_state("plain", "Running/Dispatched").await?;
    owned_and_labelled(&fixture.wait(CONFIG_MAP, "a", "it exists", |_| true).await?, &wrapper, "plain")?;
    fixture.delete(WRAPPER, "plain").await?;
    fixture.wait_gone(CONFIG_MAP, "a").await?;
    fixture.wait_gone(CONFIG_MAP, "b").await
}

pub(super) async fn a_wrapped_list_creates_each_of_its_objects(fixture: &Fixture<'_>) -> Result<()> {
    fixture.node("one", "cpu=2").await?;
    let items = json!([deployment("web", 2, "cpu=1"), service("web")]);
    let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items});
    let wrapper = fixture.create(&wrap("list", [list])).await?;
    fixture.wait_pods("web", 2).await?;
    owned_and_labelled(&fixture.wait(SERVICE, "web", "it exists", |_| true).await?, &wrapper, "list")
}

pub(super) async fn a_gang_of_an_unknown_kind_waits_for_its_definition(fixture: &Fixture<'_>) -> Result<()> {
    const WIDGET: Kind = Kind("example.com/v1", "Widget");
    fixture.create(&example("invalid/unknown-kind.yaml")?).await?;
    let message = json!("this cluster serves no Widget in example.com/v1");
    fixture
        .wait(WRAPPER, "unknown-kind", "its message names the missing kind", |wrapper| {
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
    let role = rbac::wrapped_kind_role("widgets", "example.com", "widgets");
    fixture.call("POST", ROLES, Some(&role)).await?;
    fixture.call("POST", RESOURCES, Some(&definition)).await?;
    let dispatched = async {
        fixture.wait_state("unknown-kind", "Running/Dispatched").await?;
        fixture.wait(WIDGET, "something", "it exists", |_| true).await
    }
    .await;
    fixture.call("DELETE", &format!("{RESOURCES}/widgets.example.com"), None).await?;
    fixture.call("DELETE", &format!("{ROLES}/widgets"), None).await?;
    dispatched.map(|_| ())
}

fn owned_and_labelled(object: &Value, wrapper: &Value, wrapper_name: &str) -> Result<()> {
    let labels = &object["metadata"]["labels"];
    let name = &object["metadata"]["name"];
    ensure!(
        labels["appwrapper.mcad.ibm.com"] == wrapper_name && labels["resourceName"] == *name,
        "{name} has the labels {labels}"
    );
    let owner = json!([{
        "apiVersion": wrapper["apiVersion"], "kind": "AppWrapper", "name": wrapper_name,
        "uid": wrapper["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true,
    }]);
    let owners = &object["metadata"]["ownerReferences"];
    ensure!(*owners == owner, "{name} is owned by {owners}");
    Ok(())
}
