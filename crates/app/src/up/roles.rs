//! The roles for people that the Helm chart has: for tenants `kueue-batch-user-role` and what is part of `view`, for admins of queues
//! `kueue-batch-admin-role`.

use anyhow::{Context, Result};
use chart::{Chart, Release};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::Client;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};

use crate::embedded_kueue::frameworks;

/// Creates the roles. Tenants may submit all kinds of jobs.
pub(super) async fn create(client: &Client) -> Result<()> {
    let api: Api<ClusterRole> = Api::all(client.clone());
    for role in roles()? {
        let role = serde_json::from_value(role).context("a ClusterRole of the chart cannot be read")?;
        api.create(&PostParams::default(), &role).await.context("cannot create the roles of tenants")?;
    }
    Ok(())
}

fn roles() -> Result<Vec<Value>> {
    let kinds: Vec<&str> = frameworks().collect();
    // The chart has AppWrappers of one version in a group.
    let values =
        json!({"kueue": {"enabled": true, "jobs": kinds}, "appWrappers": {"groups": ["mcad.ibm.com"]}});
    let release = Release { name: "muster".into(), namespace: "muster".into() };
    let mut objects = Chart::new(&release, [values])?.objects()?;
    objects.retain(|object| object["kind"] == "ClusterRole" && is_for_people(object));
    Ok(objects)
}

/// Whether a role is part of one that is bound to people, or consists of such roles.
fn is_for_people(role: &Value) -> bool {
    let selectors = role["aggregationRule"]["clusterRoleSelectors"].as_array().into_iter().flatten();
    let labels = selectors.map(|selector| &selector["matchLabels"]).chain([&role["metadata"]["labels"]]);
    let mut keys = labels.filter_map(Value::as_object).flatten();
    keys.any(|(key, _)| key.starts_with("rbac."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_roles_are_those_that_people_get() {
        let roles = roles().unwrap();
        let names: Vec<&str> = roles.iter().filter_map(|role| role["metadata"]["name"].as_str()).collect();
        assert!(
            names.contains(&"kueue-batch-user-role") && names.contains(&"muster-visibility"),
            "{names:?}"
        );
        assert!(!names.contains(&"muster") && !names.contains(&"muster-wrapped"), "{names:?}");
    }
}
