//! The rules by which the controller of a cluster plans, written where others can read them: who wants to know what would
//! happen has to plan by the same ones.

use std::collections::BTreeMap;

use index::Kind;
use kube::Client;
use model::Packing;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::api_calls::ResourcePath;
use crate::config::Config;
use crate::error::Error;

/// Where the rules are.
const NAMESPACE: &str = "kube-system";
/// Name of the object that holds them.
const NAME: &str = "muster";

#[derive(Deserialize, Default)]
#[serde(default)]
struct Rules {
    data: BTreeMap<String, String>,
}

fn path() -> ResourcePath {
    ResourcePath::of(&Kind::new("v1", "ConfigMap"), "configmaps", NAMESPACE)
}

/// Writes the rules of this configuration to the `ConfigMap` `kube-system/muster`.
pub async fn publish_config(client: &Client, config: &Config) -> Result<(), Error> {
    let rules = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "data": {
            "preemption": config.preemption.to_string(),
            "dynamicPriority": config.dynamic_priority.to_string(),
            "packing": config.packing.name(),
            "quota": config.quota.to_string(),
        },
    });
    path().apply::<Value>(client, NAME, &rules).await.map(drop)
}

/// The configuration that a controller of this cluster announced; none when none did.
pub async fn published_config(client: &Client) -> Result<Option<Config>, Error> {
    match path().get::<Rules>(client, NAME).await {
        Ok(Rules { data }) => {
            let is_on = |rule| data.get(rule).is_some_and(|text| text == "true");
            Ok(Some(Config {
                preemption: is_on("preemption"),
                dynamic_priority: is_on("dynamicPriority"),
                packing: data.get("packing").and_then(|name| Packing::named(name)).unwrap_or_default(),
                quota: is_on("quota"),
                ..Config::default()
            }))
        }
        Err(Error::NotFound(_)) => Ok(None),
        Err(error) => Err(error),
    }
}
