//! The pod of a dry run: a pod like those that the controller of a wrapped object will create. The answer of the API server
//! shows what admission changes: defaults of a `LimitRange`, the overhead of a `RuntimeClass`, sidecars of webhooks.

use serde_json::{Value, json};

use crate::amounts::AmountError;
use crate::demand::PodSet;
use crate::demand::labels::ExpectedLabels;
use crate::demand::ray::SUBMITTER;
use crate::meta::Meta;
use crate::pod::PodShape;
use crate::scheduling_gate::add_gate;
use crate::selector::Labels;
use crate::value::{at, text};
use crate::wrapped_kinds::{WrappedKind, group};

/// Tolerations that the admission plugin `DefaultTolerationSeconds` adds to every pod. They do not matter for the choice
/// of a node: a node with these taints is not ready.
const DEFAULT_TOLERATIONS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// A pod as admission would store it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdmittedPod {
    /// Its scheduling requirements.
    pub shape: PodShape,
    /// The labels that were added.
    pub added_labels: Labels,
}

/// The pod to create in a dry run for a pod set of an AppWrapper with these objects. `None` if the template of the pods is not
/// known.
///
/// It has the labels, the scheduling gate and an owner like those that its controller sets, as far as they are known before.
/// A service account that the AppWrapper creates does not exist yet, so it is left out.
pub fn pod(wrapper: &Meta, objects: &[&Value], set: &PodSet) -> Option<Value> {
    let object = objects.get(set.object)?;
    let template = set.template.as_object()?;
    let expected = ExpectedLabels::of(wrapper, object, set.object, &set.role, &set.shape.labels);
    let labels: serde_json::Map<String, Value> =
        expected.labels.into_iter().map(|(key, value)| (key, known_label(&value).into())).collect();
    let mut spec = template.get("spec")?.clone();
    let own_accounts = || objects.iter().filter(|object| text(object, &["kind"]) == Some("ServiceAccount"));
    let is_wrapped =
        |account: &str| own_accounts().any(|own| text(own, &["metadata", "name"]) == Some(account));
    if text(&spec, &["serviceAccountName"]).is_some_and(is_wrapped)
        && let Some(fields) = spec.as_object_mut()
    {
        fields.remove("serviceAccountName");
        fields.remove("serviceAccount");
    }
    let mut metadata = json!({
        "generateName": format!("{}-", crate::appwrapper::render::name(wrapper, object, set.object)),
        "namespace": wrapper.namespace,
        "labels": labels,
    });
    if let Some(annotations) = template.get("metadata").map(|metadata| at(metadata, &["annotations"])) {
        metadata["annotations"] = annotations.clone();
    }
    if let Some(owner) = owner(wrapper, object, set) {
        metadata["ownerReferences"] = json!([owner]);
    }
    let mut pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec });
    add_gate(&mut pod, true);
    Some(pod)
}

/// Reads the answer to [`pod`].
pub fn read(sent: &Value, answer: &Value) -> Result<AdmittedPod, AmountError> {
    let mut shape = PodShape::read(answer)?;
    let own = PodShape::read(sent)?;
    shape.scheduling.tolerations.retain(|toleration| {
        let is_default = |key: &String| DEFAULT_TOLERATIONS.contains(&key.as_str());
        !toleration.key.as_ref().is_some_and(is_default) || own.scheduling.tolerations.contains(toleration)
    });
    let added = shape.labels.iter().filter(|(key, _)| !own.labels.contains_key(*key));
    let added_labels = added.map(|(key, value)| (key.clone(), value.clone())).collect();
    Ok(AdmittedPod { shape, added_labels })
}

/// The template of a pod set without what no admission plugin of Kubernetes reads to compute requests: only webhooks do.
pub fn without_commands(template: &Value) -> Value {
    let mut spec = at(template, &["spec"]).clone();
    for list in ["containers", "initContainers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(fields) = container.as_object_mut() {
                fields.retain(|field, _| {
                    ["name", "resources", "restartPolicy", "ports"].contains(&field.as_str())
                });
            }
        }
    }
    spec
}

/// The runtime class that a template names.
pub fn runtime_class(template: &Value) -> Option<&str> {
    text(template, &["spec", "runtimeClassName"])
}

/// Whether the pod set is of a kind whose pods are known well enough to believe that a refusal concerns them too.
pub fn is_faithful(object: &Value) -> bool {
    kind_of(object).is_some()
}

fn kind_of(object: &Value) -> Option<&'static WrappedKind> {
    let api_version = text(object, &["apiVersion"]).unwrap_or_default();
    WrappedKind::find(group(api_version), text(object, &["kind"]).unwrap_or_default())
}

/// The value of a label, or any value if the real one is not known yet.
fn known_label(value: &str) -> &str {
    if value.starts_with('?') { "0" } else { value }
}

/// An owner reference like the one that the pod will have: to the object itself, or to the object between both.
fn owner(wrapper: &Meta, object: &Value, set: &PodSet) -> Option<Value> {
    let kind = text(object, &["kind"]).filter(|kind| *kind != "Pod")?;
    let api_version = text(object, &["apiVersion"])?;
    let between: Vec<(String, &str)> =
        kind_of(object).into_iter().flat_map(|entry| entry.children_of(api_version)).collect();
    let is_job = |(_, kind): &&(String, &str)| *kind == "Job";
    let between = match kind {
        "MPIJob" => None,
        "RayJob" => between.iter().find(|child| is_job(child) == (set.role == SUBMITTER)),
        _ => between.first(),
    };
    let (api_version, kind) =
        between.map_or((api_version, kind), |(version, kind)| (version.as_str(), *kind));
    Some(json!({
        "apiVersion": api_version, "kind": kind, "uid": wrapper.uid, "controller": true,
        "name": crate::appwrapper::render::name(wrapper, object, set.object),
    }))
}
