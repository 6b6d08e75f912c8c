//! Invalid AppWrappers: the error is reported, created objects are deleted, and other gangs are not blocked.

use anyhow::{Result, ensure};
use serde_json::json;

use crate::fixture::Fixture;
use crate::objects::{
    CONFIG_MAP, DEPLOYMENT, JOB, POD, WRAPPER, condition_lines, config_map, deployment, example, pod, with,
    wrap,
};

pub(super) async fn a_template_without_a_kind_fails_validation(fixture: &Fixture<'_>) -> Result<()> {
    let message = fixture.rejection(&example("invalid/no-kind.yaml")?).await?;
    ensure!(
        message.contains("spec.resources.GenericItems[0].generictemplate.kind: Required value"),
        "the API server responds {message:?}"
    );
    fixture.keeps(WRAPPER, "there is none", <[_]>::is_empty).await
}

pub(super) async fn an_item_in_another_namespace_fails_the_gang(fixture: &Fixture<'_>) -> Result<()> {
    fixture.submit([example("invalid/other-namespace.yaml")?]).await?;
    let failed = fixture.wait_state("other-namespace", "Failed/Failed").await?;
    let expected = format!(
        "Failed ItemCreationFailure. {0}/other-namespace creation failure: resource namespace \"kube-public\" is different \
         from AppWrapper namespace \"{0}\"",
        fixture.namespace()
    );
    ensure!(
        condition_lines(&failed).last() == Some(&expected),
        "its conditions are {:?}",
        condition_lines(&failed)
    );
    fixture.wait_gone(CONFIG_MAP, "here").await
}

pub(super) async fn an_item_that_the_api_server_rejects_fails_the_gang(fixture: &Fixture<'_>) -> Result<()> {
    fixture.node("one", "cpu=2").await?;
    let bad = with(deployment("bad", 1, "cpu=1"), "/spec/selector/matchLabels/app", json!("others"));
    fixture.submit([wrap("bad", [config_map("sibling"), bad])]).await?;
    let failed = fixture.wait_state("bad", "Failed/Failed").await?;
    let last = condition_lines(&failed).last().cloned().unwrap_or_default();
    ensure!(
        last.starts_with("Failed ItemCreationFailure. ")
            && last.contains("`selector` does not match template `labels`"),
        "its last condition is {last:?}"
    );
    fixture.wait_gone(CONFIG_MAP, "sibling").await?;
    fixture.keeps(DEPLOYMENT, "there is none", <[_]>::is_empty).await?;
    // The resources of the failed gang are released.
    fixture.submit([wrap("next", [pod("next", "cpu=2")])]).await?;
    fixture.wait_pods("next", 1).await?;
    Ok(())
}

pub(super) async fn an_item_that_already_exists_fails_the_gang(fixture: &Fixture<'_>) -> Result<()> {
    let existing = fixture.create(&config_map("existing")).await?;
    fixture.submit([wrap("gang", [config_map("own"), config_map("existing")])]).await?;
    let failed = fixture.wait_state("gang", "Failed/Failed").await?;
    let last = condition_lines(&failed).last().cloned().unwrap_or_default();
    ensure!(last.contains("configmaps \"existing\" already exists"), "its last condition is {last:?}");
    fixture.wait_gone(CONFIG_MAP, "own").await?;
    fixture.delete(WRAPPER, "gang").await?;
    fixture.wait_gone(WRAPPER, "gang").await?;
    fixture
        .keeps(CONFIG_MAP, "the existing ConfigMap is unchanged", |all| {
            all.contains(&as_list_item(&existing))
        })
        .await
}

/// The object without `apiVersion` and `kind`, as in a list.
fn as_list_item(object: &serde_json::Value) -> serde_json::Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("apiVersion");
        fields.remove("kind");
    }
    object
}

pub(super) async fn a_gang_that_can_never_fit_reports_it_and_blocks_no_other(
    fixture: &Fixture<'_>,
) -> Result<()> {
    fixture.node("one", "cpu=2").await?;
    fixture.submit([example("invalid/never-fits.yaml")?]).await?;
    let why = fixture.wait_event("never-fits", "NeverFits").await?;
    ensure!(
        why == "can never start on these nodes: job: needs 1Ti memory on one node; 1 node has 64Gi even when empty",
        "its message is {why:?}"
    );
    fixture.submit([wrap("next", [pod("next", "cpu=2")])]).await?;
    fixture.wait_pods("next", 1).await?;
    fixture.keeps(JOB, "it has no Job", <[_]>::is_empty).await?;
    fixture.keeps(POD, "it has no pod", |pods| pods.len() == 1).await
}
