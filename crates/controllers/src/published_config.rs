//! The planning configuration in a `ConfigMap`. `muster why` and `muster plan` read it, so that they plan by the same
//! rules as the controller.

use std::collections::BTreeMap;

use index::Kind;
use kube::Client;
use model::Packing;
use serde::Deserialize;
use serde_json::json;

use crate::api_calls::ResourcePath;
use crate::config::Config;
use crate::error::Error;

/// Namespace of the `ConfigMap`.
pub(crate) const NAMESPACE: &str = "kube-system";
/// Name of the `ConfigMap`.
pub(crate) const NAME: &str = "muster";

#[derive(Deserialize, Default)]
#[serde(default)]
struct ConfigData {
    data: BTreeMap<String, String>,
}

pub(crate) fn path() -> ResourcePath {
    ResourcePath::of(&Kind::new("v1", "ConfigMap"), "configmaps", NAMESPACE)
}

/// Writes the planning configuration to the `ConfigMap` `kube-system/muster`. Returns all data of the `ConfigMap`.
pub async fn publish_config(client: &Client, config: &Config) -> Result<BTreeMap<String, String>, Error> {
    let config_map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "data": {
            "preemption": config.preemption.to_string(),
            "dynamicPriority": config.dynamic_priority.to_string(),
            "packing": config.packing.name(),
            "quota": config.quota.to_string(),
        },
    });
    path().apply::<ConfigData>(client, NAME, &config_map).await.map(|map| map.data)
}

/// The planning configuration that the controller of this cluster has written; none if the `ConfigMap` does not
/// exist.
pub async fn published_config(client: &Client) -> Result<Option<Config>, Error> {
    match path().get::<ConfigData>(client, NAME).await {
        Ok(ConfigData { data }) => {
            let is_on = |key| data.get(key).is_some_and(|text| text == "true");
            Ok(Some(Config {
                preemption: is_on("preemption"),
                dynamic_priority: is_on("dynamicPriority"),
                packing: data.get("packing").and_then(|name| Packing::from_name(name)).unwrap_or_default(),
                quota: is_on("quota"),
                ..Config::default()
            }))
        }
        Err(Error::NotFound(_)) => Ok(None),
        Err(error) => Err(error),
    }
}
