//! The definitions of Kueue's kinds: both versions, with the defaults, limits and CEL rules of Kueue v0.19.1.
//!
//! `cargo run -p xtask -- kueue-crds` compares them with those of Kueue's module. They differ in the descriptions, and in
//! pod templates: Kueue's definition of Workload contains the schema of a whole pod (1.4 MB), which Muster's replaces with
//! the fields that admission reads. Other fields of a pod are kept as they are.

mod checks;
mod flavors;
mod multikueue;
mod pod_sets;
mod queues;
mod schema;
mod shared;
mod workload;

use serde_json::{Value, json};

use self::schema::{Schema, object, text};
use super::kinds::{Column, KINDS, Kind, Subresources};
use super::{GROUP, V1BETA1, V1BETA2};

/// One of the two served versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    V1beta1,
    V1beta2,
}

use Version::{V1beta1, V1beta2};

impl Version {
    fn name(self) -> &'static str {
        match self {
            V1beta1 => V1BETA1,
            V1beta2 => V1BETA2,
        }
    }

    /// Whether this is the newer version.
    fn is_new(self) -> bool {
        self == V1beta2
    }
}

/// The definitions of all kinds, sorted by kind, as manifests. `client_config` tells the API server where the conversion
/// webhook is, as `spec.conversion.webhook.clientConfig` of `apiextensions.k8s.io/v1`.
pub fn crds(client_config: &Value) -> Vec<Value> {
    KINDS.iter().map(|kind| definition(kind, client_config)).collect()
}

fn definition(kind: &Kind, client_config: &Value) -> Value {
    let mut spec = json!({
        "group": GROUP,
        "names": {
            "kind": kind.kind,
            "listKind": format!("{}List", kind.kind),
            "plural": kind.plural,
            "singular": kind.singular,
            "shortNames": kind.short_names,
        },
        "scope": if kind.is_namespaced { "Namespaced" } else { "Cluster" },
        "versions": [version(kind, V1beta1), version(kind, V1beta2)],
    });
    if kind.is_converted {
        spec["conversion"] = json!({
            "strategy": "Webhook",
            "webhook": {"clientConfig": client_config, "conversionReviewVersions": ["v1"]},
        });
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": kind.resource(), "labels": {"app.kubernetes.io/managed-by": "muster"}},
        "spec": spec,
    })
}

fn version(kind: &Kind, version: Version) -> Value {
    let mut value = json!({
        "name": version.name(),
        "served": true,
        "storage": version.is_new(),
        "schema": {"openAPIV3Schema": schema(kind, version).into_value()},
    });
    if kind.is_deprecated && !version.is_new() {
        value["deprecated"] = true.into();
        value["deprecationWarning"] = "This version is deprecated. Use v1beta2 instead.".into();
    }
    match kind.subresources {
        Subresources::Absent => {}
        Subresources::Empty => value["subresources"] = json!({}),
        Subresources::Status => value["subresources"] = json!({"status": {}}),
    }
    if !kind.columns.is_empty() {
        let columns = kind.columns.iter().map(|printed| column(printed, version));
        value["additionalPrinterColumns"] = columns.collect();
    }
    if version.is_new() && !kind.selectable_fields.is_empty() {
        let fields = kind.selectable_fields.iter().map(|path| json!({"jsonPath": path}));
        value["selectableFields"] = fields.collect();
    }
    value
}

fn column(column: &Column, version: Version) -> Value {
    let old = column.path_v1beta1.filter(|_| !version.is_new());
    let mut value = json!({"name": column.name, "type": column.kind, "jsonPath": old.unwrap_or(column.path)});
    if column.is_wide {
        value["priority"] = 1.into();
    }
    value
}

fn schema(kind: &Kind, version: Version) -> Schema {
    let root = |description: &str| {
        object(description)
            .field("apiVersion", text("Group and version of this object."))
            .field("kind", text("Kind of this object."))
            .field("metadata", object(""))
    };
    match kind.kind {
        "AdmissionCheck" => checks::admission_check(root, version),
        "ClusterQueue" => queues::cluster_queue(root, version),
        "Cohort" => queues::cohort(root, version),
        "LocalQueue" => queues::local_queue(root, version),
        "MultiKueueCluster" => multikueue::cluster(root, version),
        "MultiKueueConfig" => multikueue::config(root, version),
        "ProvisioningRequestConfig" => checks::provisioning_request_config(root, version),
        "ResourceFlavor" => flavors::resource_flavor(root),
        "Topology" => flavors::topology(root),
        "Workload" => workload::workload(root, version),
        _ => flavors::priority_class(root, version),
    }
}
