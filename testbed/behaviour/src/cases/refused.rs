//! Bad input: a clear error, nothing lost, nobody blocked.

use anyhow::{Result, ensure};
use serde_json::json;

use crate::objects::{
    CONFIG_MAP, DEPLOYMENT, JOB, POD, WRAPPER, config_map, deployment, example, pod, story, with, wrap,
};
use crate::scene::Scene;

pub(super) async fn a_template_without_a_kind_does_not_come_in(scene: &Scene<'_>) -> Result<()> {
    let words = scene.refusal(&example("refused/no-kind.yaml")?).await?;
    ensure!(
        words.contains("spec.resources.GenericItems[0].generictemplate.kind: Required value"),
        "the API server says {words:?}"
    );
    scene.keeps(WRAPPER, "there is none", <[_]>::is_empty).await
}

pub(super) async fn an_object_of_another_namespace_fails_the_gang(scene: &Scene<'_>) -> Result<()> {
    scene.submit([example("refused/other-namespace.yaml")?]).await?;
    let failed = scene.wait_state("other-namespace", "Failed/Failed").await?;
    let expected = format!(
        "Failed ItemCreationFailure. {0}/other-namespace creation failure: resource namespace \"kube-public\" is different \
         from AppWrapper namespace \"{0}\"",
        scene.namespace()
    );
    ensure!(story(&failed).last() == Some(&expected), "its story is {:?}", story(&failed));
    scene.wait_gone(CONFIG_MAP, "here").await
}

pub(super) async fn an_object_that_the_cluster_refuses_fails_the_gang(scene: &Scene<'_>) -> Result<()> {
    scene.node("one", "cpu=2").await?;
    let bad = with(deployment("bad", 1, "cpu=1"), "/spec/selector/matchLabels/app", json!("others"));
    scene.submit([wrap("bad", [config_map("sibling"), bad])]).await?;
    let failed = scene.wait_state("bad", "Failed/Failed").await?;
    let last = story(&failed).last().cloned().unwrap_or_default();
    ensure!(
        last.starts_with("Failed ItemCreationFailure. ")
            && last.contains("`selector` does not match template `labels`"),
        "its last condition is {last:?}"
    );
    scene.wait_gone(CONFIG_MAP, "sibling").await?;
    scene.keeps(DEPLOYMENT, "there is none", <[_]>::is_empty).await?;
    // Its place is free again.
    scene.submit([wrap("next", [pod("next", "cpu=2")])]).await?;
    scene.wait_pods("next", 1).await?;
    Ok(())
}

pub(super) async fn what_belongs_to_somebody_else_is_not_taken(scene: &Scene<'_>) -> Result<()> {
    let theirs = scene.create(&config_map("theirs")).await?;
    scene.submit([wrap("thief", [config_map("own"), config_map("theirs")])]).await?;
    let failed = scene.wait_state("thief", "Failed/Failed").await?;
    let last = story(&failed).last().cloned().unwrap_or_default();
    ensure!(last.contains("configmaps \"theirs\" already exists"), "its last condition is {last:?}");
    scene.wait_gone(CONFIG_MAP, "own").await?;
    scene.delete(WRAPPER, "thief").await?;
    scene.wait_gone(WRAPPER, "thief").await?;
    scene.keeps(CONFIG_MAP, "theirs is untouched", |all| all.contains(&theirs_of(&theirs))).await
}

/// As it shows in a list.
fn theirs_of(object: &serde_json::Value) -> serde_json::Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("apiVersion");
        fields.remove("kind");
    }
    object
}

pub(super) async fn what_can_never_fit_says_so_and_blocks_nobody(scene: &Scene<'_>) -> Result<()> {
    scene.node("one", "cpu=2").await?;
    scene.submit([example("refused/never-fits.yaml")?]).await?;
    let why = scene.wait_event("never-fits", "NeverFits").await?;
    ensure!(
        why == "can never start on these nodes: job: needs 1Ti memory on one node; 1 node has 64Gi in all",
        "it says {why:?}"
    );
    scene.submit([wrap("next", [pod("next", "cpu=2")])]).await?;
    scene.wait_pods("next", 1).await?;
    scene.keeps(JOB, "it has no Job", <[_]>::is_empty).await?;
    scene.keeps(POD, "it has no pod", |pods| pods.len() == 1).await
}
