//! The `ProvisioningRequest` of a gang whose pods do not exist yet because no nodes take them: which class it asks for, its
//! pods, its templates, and what its pods get when they are created.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::{API_VERSION, CLASS_ANNOTATION, CONSUME_ANNOTATION, KIND, ProvisioningRequest};
use crate::appwrapper::transition::{BACKOFF, NOT_RUNNABLE};
use crate::appwrapper::{self, Group, Spec, State, Status};
use crate::demand::{self, DemandError, PodSet};
use crate::kueue::provisioning::{attempt, request_name};
use crate::meta::Meta;
use crate::wrapped_kinds::pod_templates_mut;

/// Annotation of an AppWrapper: the class of the request for its nodes. [`NONE`]: it asks for none.
pub const CLASS: &str = "muster.dev/provisioning-class";
/// The value of [`CLASS`] for no request.
pub const NONE: &str = "none";
/// Annotation of an AppWrapper, written by the controller: the request that has brought the nodes for its pods.
pub const REQUEST: &str = "muster.dev/provisioning-request";
/// Annotation of a request: a digest of its pods. A request for other pods than those of the spec is of no use.
const PODS: &str = "muster.dev/pods";
/// What stands for the check in the names of requests.
const NODES: &str = "nodes";
/// The greatest number of entries of a request, in its definition.
const ENTRIES_MAX: usize = 32;

/// Equal pods of a gang.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GangPods {
    /// Their number.
    pub count: u32,
    /// Their template: labels, annotations and spec.
    pub template: Value,
}

/// The pods for which a gang asks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GangRequest {
    /// Equal pods, at most 32 times; not empty.
    pub pods: Vec<GangPods>,
    /// A digest of them.
    pub digest: String,
}

/// Why a gang cannot ask for nodes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GangRequestError {
    /// The class is not permitted.
    #[error("annotation {CLASS}: the class {class:?} is not permitted; permitted are {permitted}")]
    Class {
        /// The annotation.
        class: String,
        /// The permitted classes.
        permitted: String,
    },
    /// A resource amount is invalid.
    #[error(transparent)]
    Demand(#[from] DemandError),
    /// The spec cannot be read.
    #[error(transparent)]
    Spec(#[from] appwrapper::SpecError),
    /// It has no pods, or too many different ones.
    #[error("a request has 1 to {ENTRIES_MAX} different pods, and this gang has {0}")]
    Entries(usize),
}

/// The class for which an AppWrapper asks; `None`: it asks for no nodes. Without the annotation, it is the first permitted
/// one, which may be [`NONE`].
///
/// # Errors
///
/// The annotation names a class that is not permitted.
pub fn class<'a>(
    annotations: &BTreeMap<String, String>,
    permitted: &'a [String],
) -> Result<Option<&'a str>, GangRequestError> {
    let Some(wanted) = annotations.get(CLASS) else {
        return Ok(permitted.first().map(String::as_str).filter(|class| *class != NONE));
    };
    if wanted == NONE {
        return Ok(None);
    }
    let found = permitted.iter().find(|class| *class == wanted).map(|class| Some(class.as_str()));
    found.ok_or_else(|| GangRequestError::Class { class: wanted.clone(), permitted: permitted.join(", ") })
}

/// What a gang needs of an autoscaler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Nodes: it was tried and fits on none.
    Nodes,
    /// Nothing at the moment: it was not tried yet, lacks quota, or its objects exist.
    Nothing,
    /// Nothing any more: it has ended.
    Over,
}

/// What the gang with this status needs.
pub fn need(status: &Status) -> Need {
    if status.state.is_terminal() {
        return Need::Over;
    }
    let waits = |last: &appwrapper::Condition| last.kind == BACKOFF && last.reason == NOT_RUNNABLE;
    let is_pending = status.state == State::Pending && !status.canrun;
    if is_pending && status.conditions.last().is_some_and(waits) { Need::Nodes } else { Need::Nothing }
}

/// The pods of a gang, those with equal templates together.
///
/// # Errors
///
/// The spec is invalid, has no pods, or more different ones than a request may have.
pub fn gang_request(spec: &Value, wrapper: &str) -> Result<GangRequest, GangRequestError> {
    let mut pods: Vec<GangPods> = Vec::new();
    for set in demand::of_spec(&Spec::read(spec, wrapper)?)?.pod_sets.iter().filter(|set| set.count > 0) {
        let template = template_of(set);
        match pods.iter_mut().find(|known| known.template == template) {
            Some(known) => known.count = known.count.saturating_add(set.count),
            None => pods.push(GangPods { count: set.count, template }),
        }
    }
    if pods.is_empty() || pods.len() > ENTRIES_MAX {
        return Err(GangRequestError::Entries(pods.len()));
    }
    let text: Vec<String> = pods.iter().map(|pods| format!("{} {}", pods.count, pods.template)).collect();
    Ok(GangRequest { digest: digest(&text.join("\n")), pods })
}

/// The template of a pod set. Pods that an author has only declared have one container with the declared resources.
fn template_of(set: &PodSet) -> Value {
    if set.template.is_null() {
        let amount = |(name, amount): (&str, i64)| {
            let value = if name == "cpu" { format!("{amount}m") } else { amount.to_string() };
            (name.to_owned(), Value::from(value))
        };
        let requests: Map<String, Value> =
            set.shape.request.iter().filter(|(name, _)| *name != "pods").map(amount).collect();
        let container = json!({"name": "declared", "image": "declared", "resources": {"requests": requests}});
        return json!({"spec": {"containers": [container]}});
    }
    let mut template = json!({"spec": set.template["spec"]});
    for field in ["labels", "annotations"] {
        if let Some(value) = set.template["metadata"].get(field).filter(|value| value.is_object()) {
            template["metadata"][field] = value.clone();
        }
    }
    template
}

fn digest(text: &str) -> String {
    Sha256::digest(text).iter().take(10).fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

impl GangPods {
    /// The name of their template: the same for all attempts, as long as the pods are the same.
    pub fn template_name(&self, wrapper: &str) -> String {
        let cut = (0..=200.min(wrapper.len())).rev().find(|at| wrapper.is_char_boundary(*at));
        format!("{}-pods-{}", &wrapper[..cut.unwrap_or_default()], &digest(&self.template.to_string())[..10])
    }

    /// Their template as an object of the AppWrapper.
    pub fn object(&self, group: Group, wrapper: &Meta) -> Value {
        json!({
            "apiVersion": "v1", "kind": "PodTemplate",
            "metadata": metadata(&self.template_name(&wrapper.name), group, wrapper),
            "template": self.template,
        })
    }
}

impl GangRequest {
    /// The request of an AppWrapper; `attempt` begins with 1.
    pub fn object(&self, group: Group, wrapper: &Meta, class: &str, attempt: i64) -> Value {
        let sets = self.pods.iter().map(|pods| {
            json!({"podTemplateRef": {"name": pods.template_name(&wrapper.name)}, "count": pods.count})
        });
        let mut metadata = metadata(&request_name(&wrapper.name, NODES, attempt), group, wrapper);
        metadata["annotations"] = json!({PODS: self.digest});
        json!({
            "apiVersion": API_VERSION, "kind": KIND, "metadata": metadata,
            "spec": {"provisioningClassName": class, "podSets": sets.collect::<Vec<_>>()},
        })
    }

    /// The attempt of a request of this AppWrapper for these pods and this class; `None`: the request is another one.
    pub fn attempt(&self, request: &ProvisioningRequest, wrapper: &str, class: &str) -> Option<i64> {
        let is_same = request.spec.provisioning_class_name == class
            && request.metadata.annotations.get(PODS) == Some(&self.digest);
        attempt(&request.metadata.name, wrapper, NODES).filter(|_| is_same)
    }
}

/// The attempt that the name of a request tells; 0 for the name of another one.
pub fn attempt_of(request: &ProvisioningRequest, wrapper: &str) -> i64 {
    attempt(&request.metadata.name, wrapper, NODES).unwrap_or_default()
}

fn metadata(name: &str, group: Group, wrapper: &Meta) -> Value {
    let owner = json!({"apiVersion": group.api_version(), "kind": appwrapper::KIND, "name": wrapper.name,
        "uid": wrapper.uid, "controller": true});
    json!({
        "name": name, "namespace": wrapper.namespace, "ownerReferences": [owner],
        "labels": {"app.kubernetes.io/managed-by": "muster"},
    })
}

/// Names the request in the pod templates of an object of the AppWrapper, if one has brought its nodes: the autoscaler keeps
/// the nodes for the pods with this annotation.
pub fn consume(object: &mut Value, wrapper: &Meta) {
    let Some((class, request)) = wrapper.annotations.get(REQUEST).and_then(|value| value.split_once('/'))
    else {
        return;
    };
    for template in pod_templates_mut(object) {
        if !template["metadata"].is_object() {
            template["metadata"] = json!({});
        }
        let annotations = &mut template["metadata"]["annotations"];
        if !annotations.is_object() {
            *annotations = json!({});
        }
        annotations[CONSUME_ANNOTATION] = json!(request);
        annotations[CLASS_ANNOTATION] = json!(class);
    }
}

/// The value of [`REQUEST`] for a request: its class and its name, which both have no slash.
pub fn consumed(request: &ProvisioningRequest) -> String {
    format!("{}/{}", request.spec.provisioning_class_name, request.metadata.name)
}
