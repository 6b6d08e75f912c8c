//! `ProvisioningRequest`: asks a node autoscaler for the nodes of pods that do not exist yet.
//!
//! Fields, conditions and limits are those of `autoscaling.x-k8s.io` in cluster-autoscaler 1.36. The printer columns of the
//! conditions are those of GKE's definition.

pub mod gang;

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::Meta;
use crate::kueue::status::Condition;
use crate::meta::null_is_default;

/// API group.
pub const GROUP: &str = "autoscaling.x-k8s.io";
/// Group and version.
pub const API_VERSION: &str = "autoscaling.x-k8s.io/v1";
/// Kind of the resource.
pub const KIND: &str = "ProvisioningRequest";
/// Plural in URLs.
pub const PLURAL: &str = "provisioningrequests";
/// Name of the custom resource definition.
pub const RESOURCE: &str = "provisioningrequests.autoscaling.x-k8s.io";

/// Condition: the autoscaler works on the request.
pub const ACCEPTED: &str = "Accepted";
/// Condition: the capacity is there.
pub const PROVISIONED: &str = "Provisioned";
/// Condition: the capacity will not come.
pub const FAILED: &str = "Failed";
/// Condition: the capacity is not kept any longer.
pub const BOOKING_EXPIRED: &str = "BookingExpired";
/// Condition: the nodes were taken away.
pub const CAPACITY_REVOKED: &str = "CapacityRevoked";

/// Annotation of pods with the request whose capacity they use.
pub const CONSUME_ANNOTATION: &str = "autoscaling.x-k8s.io/consume-provisioning-request";
/// Annotation of pods with the class of that request.
pub const CLASS_ANNOTATION: &str = "autoscaling.x-k8s.io/provisioning-class-name";

/// A `ProvisioningRequest`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ProvisioningRequest {
    /// Metadata.
    pub metadata: Meta,
    /// Spec.
    #[serde(deserialize_with = "null_is_default")]
    pub spec: Spec,
    /// Status.
    #[serde(deserialize_with = "null_is_default")]
    pub status: Status,
}

/// The spec of a `ProvisioningRequest`. It never changes.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spec {
    /// The class: how the capacity is found or made.
    pub provisioning_class_name: String,
    /// Parameters of the class.
    #[serde(deserialize_with = "null_is_default")]
    pub parameters: BTreeMap<String, String>,
    /// The pods.
    #[serde(deserialize_with = "null_is_default")]
    pub pod_sets: Vec<PodSet>,
}

/// Equal pods.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSet {
    /// Their `PodTemplate`, in the namespace of the request.
    pub pod_template_ref: TemplateRef,
    /// Their number.
    pub count: u32,
}

/// A `PodTemplate` by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct TemplateRef {
    /// Name.
    pub name: String,
}

/// The status of a `ProvisioningRequest`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    /// Conditions.
    #[serde(deserialize_with = "null_is_default")]
    pub conditions: Vec<Condition>,
    /// What the class tells about the capacity, such as the name of its nodes.
    #[serde(deserialize_with = "null_is_default")]
    pub provisioning_class_details: BTreeMap<String, String>,
}

impl ProvisioningRequest {
    /// The condition of this type.
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.status.conditions.iter().find(|condition| condition.kind == kind)
    }

    /// Whether the condition of this type is `True`.
    pub fn is(&self, kind: &str) -> bool {
        self.condition(kind).is_some_and(Condition::is_true)
    }

    /// The message of the condition of this type; empty for none.
    pub fn message(&self, kind: &str) -> &str {
        self.condition(kind).map_or("", |condition| &condition.message)
    }
}

/// The CRD as a manifest, with the versions `v1` and `v1beta1` of equal schema.
pub fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": RESOURCE,
            "labels": {"app.kubernetes.io/managed-by": "muster"},
            // Without it, the API server refuses a definition in a protected group.
            "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/autoscaler/pull/5848"},
        },
        "spec": {
            "group": GROUP,
            "names": {
                "kind": KIND,
                "listKind": "ProvisioningRequestList",
                "plural": PLURAL,
                "singular": "provisioningrequest",
                "shortNames": ["provreq", "provreqs"],
            },
            "scope": "Namespaced",
            "versions": [version("v1", true), version("v1beta1", false)],
        },
    })
}

fn version(name: &str, is_stored: bool) -> Value {
    let column = |title: &str, condition: &str| {
        let path = format!(".status.conditions[?(@.type==\"{condition}\")].status");
        json!({"name": title, "type": "string", "jsonPath": path})
    };
    let mut version = json!({
        "name": name,
        "served": true,
        "storage": is_stored,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [
            column("Accepted", ACCEPTED),
            column("Provisioned", PROVISIONED),
            column("Failed", FAILED),
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        ],
        "schema": {"openAPIV3Schema": {
            "type": "object",
            "description": "Asks the node autoscaler for the nodes of pods that do not exist yet.",
            "required": ["spec"],
            "properties": {
                "apiVersion": {"type": "string"},
                "kind": {"type": "string"},
                "metadata": {"type": "object"},
                "spec": spec_schema(),
                "status": status_schema(),
            },
        }},
    });
    if !is_stored {
        version["deprecated"] = true.into();
        version["deprecationWarning"] =
            format!("{GROUP}/{name} is deprecated. Use {API_VERSION} instead.").into();
    }
    version
}

const SUBDOMAIN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";

fn fixed(mut schema: Value) -> Value {
    schema["x-kubernetes-validations"] =
        json!([{"rule": "self == oldSelf", "message": "Value is immutable"}]);
    schema
}

fn spec_schema() -> Value {
    let name = json!({"type": "string", "description": "Name of the PodTemplate.", "maxLength": 253, "pattern": SUBDOMAIN});
    let pod_set = json!({
        "type": "object",
        "required": ["count", "podTemplateRef"],
        "properties": {
            "count": {"type": "integer", "format": "int32", "minimum": 1, "description": "Number of the pods."},
            "podTemplateRef": {
                "type": "object",
                "description": "The PodTemplate of the pods, in the same namespace.",
                "required": ["name"],
                "properties": {"name": name},
            },
        },
    });
    json!({
        "type": "object",
        "description": "The capacity that is asked for. It never changes.",
        "required": ["podSets", "provisioningClassName"],
        "properties": {
            "parameters": fixed(json!({
                "type": "object",
                "description": "Parameters of the class.",
                "maxProperties": 100,
                "additionalProperties": {"type": "string", "maxLength": 255},
            })),
            "podSets": fixed(json!({
                "type": "array",
                "description": "The pods for which there must be nodes.",
                "minItems": 1,
                "maxItems": 32,
                "items": pod_set,
            })),
            "provisioningClassName": fixed(json!({
                "type": "string",
                "description": "How the capacity is found or made, such as check-capacity.autoscaling.x-k8s.io or \
                    best-effort-atomic-scale-up.autoscaling.x-k8s.io.",
                "maxLength": 253,
                "pattern": SUBDOMAIN,
            })),
        },
    })
}

fn status_schema() -> Value {
    let condition = json!({
        "type": "object",
        "required": ["lastTransitionTime", "message", "reason", "status", "type"],
        "properties": {
            "lastTransitionTime": {"type": "string", "format": "date-time"},
            "message": {"type": "string", "maxLength": 32_768},
            "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
            "reason": {
                "type": "string",
                "minLength": 1,
                "maxLength": 1_024,
                "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
            },
            "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
            "type": {"type": "string", "maxLength": 316},
        },
    });
    json!({
        "type": "object",
        "description": "What the autoscaler has found or made.",
        "properties": {
            "conditions": {
                "type": "array",
                "description": "Accepted, Provisioned, Failed, BookingExpired and CapacityRevoked.",
                "items": condition,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
            },
            "provisioningClassDetails": {
                "type": "object",
                "description": "What the class tells about the capacity.",
                "maxProperties": 64,
                "additionalProperties": {"type": "string", "maxLength": 32_768},
            },
        },
    })
}
