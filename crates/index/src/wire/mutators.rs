//! Objects by which admission changes pods: `LimitRange`, `RuntimeClass` and `MutatingWebhookConfiguration`.

use api::Meta;
use api::meta::null_is_default;
use serde::Deserialize;
use serde_json::Value;

/// A `LimitRange`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct LimitRange {
    /// Metadata.
    pub metadata: Meta,
    /// Spec.
    pub spec: LimitRangeSpec,
}

/// The spec of a `LimitRange`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct LimitRangeSpec {
    /// Limits, each with a `type`.
    #[serde(deserialize_with = "null_is_default")]
    pub limits: Vec<Value>,
}

/// A `RuntimeClass`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct RuntimeClass {
    /// Metadata.
    pub metadata: Meta,
    /// What is added to the requests of a pod.
    pub overhead: Value,
    /// Node selector and tolerations that are added to a pod.
    pub scheduling: Value,
}

/// A `MutatingWebhookConfiguration`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct MutatingWebhooks {
    /// Metadata.
    pub metadata: Meta,
    /// Webhooks.
    #[serde(deserialize_with = "null_is_default")]
    pub webhooks: Vec<MutatingWebhook>,
}

/// A webhook that may change objects.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MutatingWebhook {
    /// Name.
    pub name: String,
    /// The requests that it gets.
    #[serde(deserialize_with = "null_is_default")]
    pub rules: Vec<WebhookRule>,
    /// The namespaces whose objects it gets; all if absent.
    pub namespace_selector: Value,
    /// The objects that it gets; all if absent.
    pub object_selector: Value,
    /// CEL expressions that must hold.
    pub match_conditions: Value,
    /// `None` and `NoneOnDryRun` permit a dry run.
    pub side_effects: Value,
}

/// The requests that a webhook gets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WebhookRule {
    /// `CREATE`, `UPDATE` and others, or `*`.
    #[serde(deserialize_with = "null_is_default")]
    pub operations: Vec<String>,
    /// API groups, or `*`.
    #[serde(deserialize_with = "null_is_default")]
    pub api_groups: Vec<String>,
    /// Versions, or `*`.
    #[serde(deserialize_with = "null_is_default")]
    pub api_versions: Vec<String>,
    /// Resources: `pods`, `*` or `*/*`, beside subresources.
    #[serde(deserialize_with = "null_is_default")]
    pub resources: Vec<String>,
    /// `Namespaced`, `Cluster` or `*`; `*` if absent.
    pub scope: Option<String>,
}

impl WebhookRule {
    /// Whether it covers the creation of pods.
    pub fn covers_pods(&self) -> bool {
        let has = |list: &[String], names: &[&str]| list.iter().any(|entry| names.contains(&entry.as_str()));
        has(&self.operations, &["CREATE", "*"])
            && has(&self.api_groups, &["", "*"])
            && has(&self.api_versions, &["v1", "*"])
            && has(&self.resources, &["pods", "*", "*/*"])
            && self.scope.as_deref() != Some("Cluster")
    }
}
