//! Missing RBAC permissions of the controller.

use anyhow::{Result, ensure};
use serde_json::json;

use super::ROLES;
use crate::fixture::Fixture;
use crate::objects::{Kind, WRAPPER, config_map, wrap};
use crate::rbac::wrapped_kind_role;

const SECRET: Kind = Kind("v1", "Secret");

pub(super) async fn a_gang_of_a_forbidden_kind_waits_until_a_role_grants_it(
    fixture: &Fixture<'_>,
) -> Result<()> {
    let secret = json!({"apiVersion": SECRET.0, "kind": SECRET.1, "metadata": {"name": "key"}, "stringData": {"a": "b"}});
    fixture.submit([wrap("key", [secret])]).await?;
    let names_permission = |message: &str| {
        message.starts_with("not allowed: ")
            && message.contains(" secrets ")
            && message.contains("muster.dev/wrapped")
    };
    let held = fixture
        .wait(WRAPPER, "key", "its message names the missing permission", |wrapper| {
            wrapper["status"]["message"].as_str().is_some_and(names_permission)
        })
        .await?;
    ensure!(held["status"]["state"] == "Pending", "its status is {}", held["status"]);
    ensure!(fixture.get(SECRET, "key").await?.is_none(), "the Secret was created without permission");
    // Other gangs are dispatched, also after a restart of the controller.
    fixture.controller().kill().await?;
    fixture.controller().start().await?;
    fixture.submit([wrap("other", [config_map("other")])]).await?;
    fixture.wait_state("other", "Running/Dispatched").await?;

    fixture.call("POST", ROLES, Some(&wrapped_kind_role("secrets", "", "secrets"))).await?;
    let dispatched = async {
        fixture.wait_state("key", "Running/Dispatched").await?;
        fixture.wait(SECRET, "key", "it exists", |_| true).await?;
        fixture.delete(WRAPPER, "key").await?;
        fixture.wait_gone(SECRET, "key").await
    }
    .await;
    fixture.call("DELETE", &format!("{ROLES}/secrets"), None).await?;
    dispatched
}
