//! The fields of the configuration that every controller has: addresses, certificates, the lease, metrics.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use super::GoDuration;

/// Where the webhooks are served.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Webhook {
    /// Default: 9443.
    pub port: Option<u16>,
    /// Address of the interface. Default: all.
    pub host: Option<String>,
    /// Folder with `tls.crt` and `tls.key`.
    pub cert_dir: Option<String>,
}

/// The lease of the leader, as Kubernetes components configure it.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LeaderElection {
    /// Default: true.
    pub leader_elect: Option<bool>,
    /// Default: 15s.
    pub lease_duration: Option<GoDuration>,
    /// Default: 10s.
    pub renew_deadline: Option<GoDuration>,
    /// Default: 2s.
    pub retry_period: Option<GoDuration>,
    /// `leases`, the only kind.
    pub resource_lock: Option<String>,
    /// Name of the lease. Default: `c1f6bfd2.kueue.x-k8s.io`.
    pub resource_name: Option<String>,
    /// Namespace of the lease. Default: that of the controller.
    pub resource_namespace: Option<String>,
}

/// Where and which metrics are served.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Metrics {
    /// Default: `:8443`; `0` serves none.
    pub bind_address: Option<String>,
    /// Also the quota and usage of each cluster queue.
    pub enable_cluster_queue_resources: Option<bool>,
    /// Further labels, from labels or annotations of objects.
    pub custom_labels: Option<Vec<CustomLabel>>,
    /// Metrics of local queues.
    pub local_queue_metrics: Option<LocalQueueMetrics>,
}

/// A further label of metrics.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CustomLabel {
    /// The label is `custom_` and this name.
    pub name: String,
    /// Label of the object. Default: the name.
    pub source_label_key: Option<String>,
    /// Annotation of the object, instead of a label.
    pub source_annotation_key: Option<String>,
    /// Kind of the object. Default: `ClusterQueue`.
    pub source_kind: Option<SourceKind>,
    /// The values that are told apart. Default: all.
    pub tracked_values: Option<Vec<String>>,
}

/// What a label of metrics is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LabelSource<'a> {
    /// The label with this key.
    Label(&'a str),
    /// The annotation with this key.
    Annotation(&'a str),
}

impl CustomLabel {
    /// The label or annotation of the object that it is from.
    pub fn source(&self) -> LabelSource<'_> {
        match (self.source_annotation_key.as_deref(), self.source_label_key.as_deref()) {
            (Some(key), _) if !key.is_empty() => LabelSource::Annotation(key),
            (_, Some(key)) if !key.is_empty() => LabelSource::Label(key),
            _ => LabelSource::Label(&self.name),
        }
    }
}

/// Kind of the object that a label of metrics is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[expect(missing_docs, reason = "the names are the kinds")]
pub enum SourceKind {
    Cohort,
    LocalQueue,
    ClusterQueue,
    Workload,
}

/// Metrics of local queues.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LocalQueueMetrics {
    /// Serve them.
    pub enable: Option<bool>,
    /// Of these local queues only.
    pub local_queue_selector: Option<LabelSelector>,
}

/// Where the probes are served.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Health {
    /// Default: `:8081`; `0` serves none.
    pub health_probe_bind_address: Option<String>,
    /// Default: `readyz`.
    pub readiness_endpoint_name: Option<String>,
    /// Default: `healthz`.
    pub liveness_endpoint_name: Option<String>,
}

/// Limits of Kueue's controllers. Muster has one loop, so they have no effect.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Controller {
    /// Concurrent reconciles by `Kind.group`.
    pub group_kind_concurrency: Option<BTreeMap<String, i64>>,
    /// In nanoseconds.
    pub cache_sync_timeout: Option<i64>,
}

/// Versions and ciphers of TLS, by the names of Go.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Tls {
    /// `VersionTLS12` or `VersionTLS13`.
    pub min_version: Option<String>,
    /// Cipher suites of TLS 1.2.
    pub cipher_suites: Option<Vec<String>>,
    /// Numbers of key exchanges, by preference.
    pub curve_preferences: Option<Vec<i32>>,
}

/// A label selector of Kubernetes.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LabelSelector {
    /// Labels with one value.
    pub match_labels: Option<BTreeMap<String, String>>,
    /// Further requirements.
    pub match_expressions: Option<Vec<LabelRequirement>>,
}

impl LabelSelector {
    /// The selector as the rest of Muster reads it.
    pub fn compiled(&self) -> crate::selector::LabelSelector {
        crate::selector::LabelSelector::read(&self.value())
    }

    /// The selector as it is written in an object.
    pub fn value(&self) -> Value {
        let expressions = self.match_expressions.iter().flatten().map(|requirement| {
            let values = requirement.values.as_deref().unwrap_or_default();
            json!({"key": requirement.key, "operator": requirement.operator, "values": values})
        });
        let expressions: Vec<Value> = expressions.collect();
        json!({"matchLabels": self.match_labels.clone().unwrap_or_default(), "matchExpressions": expressions})
    }
}

/// A requirement on one label.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LabelRequirement {
    /// The label.
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: String,
    /// Values for `In` and `NotIn`.
    pub values: Option<Vec<String>>,
}

/// The controller's own certificates.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InternalCertManagement {
    /// Default: true.
    pub enable: Option<bool>,
    /// Default: `kueue-webhook-service`.
    pub webhook_service_name: Option<String>,
    /// Default: `kueue-webhook-server-cert`.
    pub webhook_secret_name: Option<String>,
}

/// Rate limits of the client. Muster's client has none.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClientConnection {
    /// Requests per second.
    pub qps: Option<f32>,
    /// Requests beyond the rate.
    pub burst: Option<i32>,
}

/// Where the visibility API is served.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VisibilityServer {
    /// Default: all interfaces.
    pub bind_address: Option<String>,
    /// Default: 8082.
    pub bind_port: Option<u16>,
}
