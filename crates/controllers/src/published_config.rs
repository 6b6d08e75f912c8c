//! The planning configuration in two `ConfigMap`s, because AppWrappers and Workloads may have a controller each.
//! `muster why` and `muster plan` read them, so that they plan by the same rules as the controllers.

use std::collections::BTreeMap;

use index::Kind;
use kube::Client;
use model::{FairSharing, Packing, Policy};
use serde::Deserialize;
use serde_json::json;

use crate::api_calls::ResourcePath;
use crate::config::{Config, Kueue, KueueOptions};
use crate::error::Error;

/// Namespace of the `ConfigMap`.
pub(crate) const NAMESPACE: &str = "kube-system";
/// Name of the `ConfigMap`.
pub(crate) const NAME: &str = "muster";
/// Name of the `ConfigMap` about Workloads.
const KUEUE: &str = "muster-kueue";

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
            "guessedHoldUs": config.guessed_hold_us.to_string(),
            "quota": config.quota.to_string(),
        },
    });
    path().apply::<ConfigData>(client, NAME, &config_map).await.map(|map| map.data)
}

/// Writes how Workloads are planned to the `ConfigMap` `kube-system/muster-kueue`.
pub async fn publish_kueue_options(client: &Client, options: &KueueOptions) -> Result<(), Error> {
    let config_map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": KUEUE, "namespace": NAMESPACE},
        "data": {
            "fairSharing": options.fair_sharing.map(FairSharing::name).unwrap_or_default(),
            "rules": json!(options.rules).to_string(),
        },
    });
    path().apply::<ConfigData>(client, KUEUE, &config_map).await.map(drop)
}

/// The planning configuration that the controllers of this cluster have written; none if there is no `ConfigMap`.
pub async fn published_config(client: &Client) -> Result<Option<Config>, Error> {
    let (wrappers, workloads) = (read(client, NAME).await?, read(client, KUEUE).await?);
    if wrappers.is_none() && workloads.is_none() {
        return Ok(None);
    }
    let data = wrappers.unwrap_or_default();
    let is_on = |key| data.get(key).is_some_and(|text| text == "true");
    Ok(Some(Config {
        preemption: is_on("preemption"),
        dynamic_priority: is_on("dynamicPriority"),
        packing: data.get("packing").and_then(|name| Packing::from_name(name)).unwrap_or_default(),
        guessed_hold_us: data
            .get("guessedHoldUs")
            .and_then(|text| text.parse().ok())
            .unwrap_or(Policy::GUESSED_HOLD_US),
        quota: is_on("quota"),
        kueue: if workloads.is_some() { Kueue::Scheduler } else { Kueue::Off },
        kueue_options: workloads.map_or_else(KueueOptions::default, |data| kueue_options(&data)),
        ..Config::default()
    }))
}

/// The options of a `ConfigMap`. A field that cannot be read, such as one of another version, has its default.
fn kueue_options(data: &BTreeMap<String, String>) -> KueueOptions {
    let rules = data.get("rules").and_then(|text| serde_json::from_str(text).ok());
    KueueOptions {
        fair_sharing: data.get("fairSharing").and_then(|name| FairSharing::from_name(name)),
        rules: rules.unwrap_or_default(),
        ..KueueOptions::default()
    }
}

async fn read(client: &Client, name: &str) -> Result<Option<BTreeMap<String, String>>, Error> {
    match path().get::<ConfigData>(client, name).await {
        Ok(ConfigData { data }) => Ok(Some(data)),
        Err(Error::NotFound(_)) => Ok(None),
        Err(error) => Err(error),
    }
}
