//! `ProvisioningRequest`s, and the pods that they stand for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::provisioning::{
    ACCEPTED, BOOKING_EXPIRED, CAPACITY_REVOKED, CONSUME_ANNOTATION, FAILED, PROVISIONED, Spec,
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::cluster::{Cached, Kind, Resource};
use crate::scheduler::effective;
use crate::wire::{Condition, Meta, Pod, condition};

/// A `ProvisioningRequest`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct RequestObject {
    pub(super) metadata: Meta,
    pub(super) spec: Spec,
    pub(super) status: RequestStatus,
}

/// The status of a `ProvisioningRequest`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct RequestStatus {
    #[serde(deserialize_with = "api::meta::null_is_default")]
    pub(super) conditions: Vec<Condition>,
}

impl Resource for RequestObject {
    const KIND: Kind = Kind::PROVISIONING_REQUEST;
}

impl Cached for RequestObject {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// How a class finds or makes capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// On the nodes that are there.
    CheckCapacity,
    /// On them and on new nodes of one pool, all or none.
    AtomicScaleUp,
    /// On new nodes of one pool, all or none; provisioned when the nodes are ready.
    QueuedProvisioning,
}

impl RequestObject {
    /// Its class; `None` if another autoscaler serves it.
    pub(super) fn class(&self) -> Option<Class> {
        match self.spec.provisioning_class_name.as_str() {
            "check-capacity.autoscaling.x-k8s.io" => Some(Class::CheckCapacity),
            "best-effort-atomic-scale-up.autoscaling.x-k8s.io" => Some(Class::AtomicScaleUp),
            "queued-provisioning.gke.io" => Some(Class::QueuedProvisioning),
            _ => None,
        }
    }

    pub(super) fn is(&self, kind: &str) -> bool {
        condition(&self.status.conditions, kind).is_some_and(|condition| condition.status == "True")
    }

    /// Whether it was not seen before.
    pub(super) fn is_new(&self) -> bool {
        !self.is(ACCEPTED)
    }

    /// Whether nothing becomes of it any more.
    pub(super) fn is_over(&self) -> bool {
        self.is(FAILED) || self.is(CAPACITY_REVOKED)
    }

    /// Whether its capacity is kept for its pods.
    pub(super) fn is_booked(&self) -> bool {
        self.is(PROVISIONED) && !self.is_over() && !self.is(BOOKING_EXPIRED)
    }

    /// The pods that it stands for, from its templates.
    pub(super) fn pods(&self, templates: &BTreeMap<String, Value>) -> Option<Vec<Arc<Pod>>> {
        let mut pods = Vec::new();
        for set in &self.spec.pod_sets {
            let name = &set.pod_template_ref.name;
            let template = &templates.get(name)?["template"];
            for at in 0..set.count {
                pods.push(Arc::new(pod(template, &self.metadata.namespace, &format!("{name}#{at}"))?));
            }
        }
        Some(pods)
    }
}

/// A pod of a template, as admission completes it: it tolerates the taints of the devices that it requests.
fn pod(template: &Value, namespace: &str, name: &str) -> Option<Pod> {
    let mut object = json!({"metadata": template["metadata"], "spec": template["spec"]});
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    object["metadata"]["namespace"] = namespace.into();
    object["metadata"]["name"] = name.into();
    let spec = &mut object["spec"];
    let devices: BTreeSet<String> = ["initContainers", "containers"]
        .iter()
        .flat_map(|field| spec[field].as_array().into_iter().flatten())
        .flat_map(|container| container["resources"]["requests"].as_object().into_iter().flatten())
        .filter(|(resource, _)| resource.contains('/'))
        .map(|(resource, _)| resource.clone())
        .collect();
    if !spec["tolerations"].is_array() {
        spec["tolerations"] = json!([]);
    }
    for device in devices {
        if let Some(tolerations) = spec["tolerations"].as_array_mut() {
            tolerations.push(json!({"key": device, "operator": "Exists", "effect": "NoSchedule"}));
        }
    }
    serde_json::from_value(object).ok()
}

/// The pods of a request for which nothing has been bound yet.
pub(super) fn unused(request: &RequestObject, mut pods: Vec<Arc<Pod>>, bound: &[Arc<Pod>]) -> Vec<Arc<Pod>> {
    for consumer in bound.iter().filter(|pod| consumes(pod, request)) {
        let amounts = effective(consumer);
        let alike = pods.iter().position(|pod| effective(pod) == amounts);
        if !pods.is_empty() {
            pods.remove(alike.unwrap_or_default());
        }
    }
    pods
}

/// Whether a pod uses the capacity of a request.
pub(super) fn consumes(pod: &Pod, request: &RequestObject) -> bool {
    pod.metadata.namespace == request.metadata.namespace
        && pod.metadata.annotation(CONSUME_ANNOTATION) == Some(&request.metadata.name)
}

/// What the autoscaler remembers of a request.
#[derive(Debug)]
pub(super) struct Track {
    pub(super) pods: Option<Vec<Arc<Pod>>>,
    pub(super) first_seen: Instant,
    /// When it is tried next, and how often it was.
    pub(super) retry_at: Instant,
    pub(super) tries: u32,
    /// The nodes that were requested for it.
    pub(super) nodes: BTreeSet<String>,
    /// When its failure is reported.
    pub(super) fails_at: Option<Instant>,
    pub(super) provisioned_at: Option<Instant>,
}

impl Track {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            pods: None,
            first_seen: now,
            retry_at: now,
            tries: 0,
            nodes: BTreeSet::new(),
            fails_at: None,
            provisioned_at: None,
        }
    }
}
