//! What the controller may do, and what it may not.

use anyhow::{Result, ensure};
use serde_json::json;

use super::ROLES;
use crate::objects::{Kind, WRAPPER, config_map, wrap};
use crate::rights::to_wrap;
use crate::scene::Scene;

const SECRET: Kind = Kind("v1", "Secret");

pub(super) async fn what_may_not_be_wrapped_waits_until_a_role_allows_it(scene: &Scene<'_>) -> Result<()> {
    let secret = json!({"apiVersion": SECRET.0, "kind": SECRET.1, "metadata": {"name": "key"}, "stringData": {"a": "b"}});
    scene.submit([wrap("key", [secret])]).await?;
    let is_told = |message: &str| {
        message.starts_with("not allowed: ")
            && message.contains(" secrets ")
            && message.contains("muster.dev/wrapped")
    };
    let held = scene
        .wait(WRAPPER, "key", "it says which right is missing", |wrapper| {
            wrapper["status"]["message"].as_str().is_some_and(is_told)
        })
        .await?;
    ensure!(held["status"]["state"] == "Pending", "its status is {}", held["status"]);
    ensure!(scene.get(SECRET, "key").await?.is_none(), "it was made all the same");
    // Nobody else waits for that, not even when a controller starts.
    scene.controller().kill().await?;
    scene.controller().start().await?;
    scene.submit([wrap("other", [config_map("other")])]).await?;
    scene.wait_state("other", "Running/Dispatched").await?;

    scene.call("POST", ROLES, Some(&to_wrap("secrets", "", "secrets"))).await?;
    let dispatched = async {
        scene.wait_state("key", "Running/Dispatched").await?;
        scene.wait(SECRET, "key", "it exists", |_| true).await?;
        scene.delete(WRAPPER, "key").await?;
        scene.wait_gone(SECRET, "key").await
    }
    .await;
    scene.call("DELETE", &format!("{ROLES}/secrets"), None).await?;
    dispatched
}
