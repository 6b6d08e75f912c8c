//! The `ProvisioningRequest` of a Workload: its name, its pods, its templates, and what the pods get from it. After
//! `pkg/controller/admissionchecks/provisioning` of Kueue v0.19.

use serde_json::{Map, Value, json};
use sha1::{Digest as _, Sha1};

use super::jobs::{Flavor, Injection, InjectionError};
use super::objects::ProvisioningConfigSpec;
use super::status::{PodSetAssignment, Status};
use super::workload::API_VERSION;
use crate::Meta;
use crate::provisioning::{self, CLASS_ANNOTATION, CONSUME_ANNOTATION, ProvisioningRequest};
use crate::quantity::Quantity;

/// The controller name of the admission checks that ask for nodes.
pub const CONTROLLER: &str = "kueue.x-k8s.io/provisioning-request";
/// Annotations of a Workload with this prefix become parameters of its requests.
pub const PARAMETER_PREFIX: &str = "provreq.kueue.x-k8s.io/";
/// The label of requests and templates.
const MANAGED: &str = "kueue.x-k8s.io/managed";
/// The longest name that is not cut, in bytes.
const NAME_MAX: usize = 247;
/// How many attempts are recognised by a name that is cut.
const CUT_ATTEMPTS_MAX: i64 = 100;

/// Pod sets that share one entry of a request.
#[derive(Debug, Clone, PartialEq)]
pub struct NeededPods<'a> {
    /// The first of them, which gives the template.
    pub pod_set: &'a Value,
    /// Its flavors.
    pub assignment: &'a PodSetAssignment,
    /// The number of all pods.
    pub count: u32,
    /// The names of the pod sets.
    pub names: Vec<&'a str>,
}

/// The admission lacks a pod set of the Workload.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("inconsistent podSet assignments: missing assignment for PodSet {0:?}")]
pub struct MissingAssignment(pub String);

/// A name that is too long is cut, and gets a part of its hash.
fn limited(name: String) -> String {
    if name.len() <= NAME_MAX {
        return name;
    }
    let hash = Sha1::digest(&name);
    let cut = (0..=NAME_MAX).rev().find(|at| name.is_char_boundary(*at)).unwrap_or_default();
    format!("{}-{:02x}{:02x}{:x}", &name[..cut], hash[0], hash[1], hash[2] >> 4)
}

/// The name of a request; `attempt` begins with 1.
pub fn request_name(workload: &str, check: &str, attempt: i64) -> String {
    limited(format!("{workload}-{check}-{attempt}"))
}

/// The attempt that the name of a request of this Workload and check tells. `None`: it is the request of another check.
pub fn attempt(request: &str, workload: &str, check: &str) -> Option<i64> {
    let prefix = format!("{workload}-{check}-");
    if prefix.len() + 3 > NAME_MAX {
        // The number may be cut off.
        return (1..=CUT_ATTEMPTS_MAX).find(|attempt| request_name(workload, check, *attempt) == request);
    }
    let digits = request.strip_prefix(&prefix)?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().unwrap_or(1))
}

/// The name of the template of a pod set.
pub fn template_name(request: &str, pod_set: &str) -> String {
    limited(format!("ppt-{request}-{pod_set}"))
}

/// Whether a request has the class and the parameters of the configuration.
pub fn is_of_config(request: &ProvisioningRequest, config: &ProvisioningConfigSpec) -> bool {
    let has = |(key, value)| request.spec.parameters.get(key) == Some(value);
    request.spec.provisioning_class_name == config.provisioning_class_name
        && config.parameters.iter().all(has)
}

/// The pods of a Workload with quota that need a request; empty if none does.
///
/// # Errors
///
/// The admission lacks a pod set.
pub fn needed_pods<'a>(
    workload: &'a Value,
    status: &'a Status,
    config: &ProvisioningConfigSpec,
) -> Result<Vec<NeededPods<'a>>, MissingAssignment> {
    let mut needed: Vec<NeededPods<'a>> = Vec::new();
    let assignments = status.admission.iter().flat_map(|admission| &admission.pod_set_assignments);
    for pod_set in workload["spec"]["podSets"].as_array().into_iter().flatten() {
        let name = pod_set["name"].as_str().unwrap_or_default();
        let count = pod_set["count"].as_u64().and_then(|count| u32::try_from(count).ok()).unwrap_or_default();
        if count == 0 || !uses(&pod_set["template"]["spec"], &config.managed_resources) {
            continue;
        }
        let assignment = assignments.clone().find(|assignment| assignment.name == name);
        let assignment = assignment.ok_or_else(|| MissingAssignment(name.into()))?;
        let count = assignment.count.unwrap_or(count);
        if count == 0 {
            continue;
        }
        let is_like =
            |known: &&mut NeededPods<'_>| shares(known.pod_set, pod_set, &config.pod_set_merge_policy);
        match needed.iter_mut().find(is_like) {
            Some(known) => {
                known.count = known.count.saturating_add(count);
                known.names.push(name);
            }
            None => needed.push(NeededPods { pod_set, assignment, count, names: vec![name] }),
        }
    }
    Ok(needed)
}

/// The containers of a pod, the first ones to run first.
fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    ["initContainers", "containers"]
        .into_iter()
        .flat_map(|field| spec[field].as_array().into_iter().flatten())
}

fn uses(spec: &Value, resources: &[String]) -> bool {
    let names = |container: &Value, name: &String| {
        ["requests", "limits"].iter().any(|field| !container["resources"][field][name].is_null())
    };
    resources.is_empty()
        || containers(spec).any(|container| resources.iter().any(|name| names(container, name)))
}

fn shares(first: &Value, second: &Value, policy: &str) -> bool {
    let [first, second] = [first, second].map(|pod_set| &pod_set["template"]);
    match policy {
        "IdenticalPodTemplates" => is_same(first, second),
        "IdenticalWorkloadSchedulingRequirements" => need_same(first, second),
        _ => false,
    }
}

/// Whether the pods of two templates need the same of a node.
fn need_same(first: &Value, second: &Value) -> bool {
    let fields = ["resources", "nodeSelector", "tolerations", "affinity", "resourceClaims"];
    let requests = |template: &Value, field: &str| -> Vec<Value> {
        let containers = template["spec"][field].as_array().into_iter().flatten();
        containers.map(|container| container["resources"]["requests"].clone()).collect()
    };
    let have_same = |field: &&str| is_same(&first["spec"][*field], &second["spec"][*field]);
    fields.iter().all(&have_same)
        && ["containers", "initContainers"].iter().all(|field| {
            let [first, second] = [first, second].map(|template| requests(template, field));
            first.len() == second.len()
                && first.iter().zip(&second).all(|(first, second)| is_same(first, second))
        })
}

/// Whether a `PodTemplate` that is there describes the pods of one that is to be made, as an autoscaler sees them. Everybody with
/// rights in the namespace can foresee its name.
pub fn describes_same(found: &Value, made: &Value) -> bool {
    need_same(&found["template"], &made["template"])
}

/// Whether two values say the same: an absent field is an empty one, and quantities are equal by their amounts.
fn is_same(first: &Value, second: &Value) -> bool {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::String(_) | Value::Number(_) | Value::Bool(_) => false,
    };
    match (first, second) {
        (first, second) if first == second || is_empty(first) && is_empty(second) => true,
        (Value::Object(first), Value::Object(second)) => {
            let keys = first.keys().chain(second.keys());
            let of = |map: &Map<String, Value>, key: &str| map.get(key).cloned().unwrap_or_default();
            keys.into_iter().all(|key| {
                let [first, second] = [of(first, key), of(second, key)];
                match key.as_str() {
                    "requests" | "limits" => are_amounts_same(&first, &second),
                    _ => is_same(&first, &second),
                }
            })
        }
        (Value::Array(first), Value::Array(second)) => {
            first.len() == second.len()
                && first.iter().zip(second).all(|(first, second)| is_same(first, second))
        }
        (first, second) => amount(first).is_some_and(|amount_of| Some(amount_of) == amount(second)),
    }
}

fn are_amounts_same(first: &Value, second: &Value) -> bool {
    let [first, second] = [first, second].map(|list| list.as_object().cloned().unwrap_or_default());
    first.len() == second.len()
        && first
            .iter()
            .all(|(name, value)| second.get(name).is_some_and(|other| amount(value) == amount(other)))
}

fn amount(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => Quantity::parse(text).ok(),
        Value::Number(number) => Quantity::parse(&number.to_string()).ok(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// The reference to the Workload as the controller of an object.
fn owner(workload: &Meta) -> Value {
    json!({"apiVersion": API_VERSION, "kind": "Workload", "name": workload.name, "uid": workload.uid,
        "controller": true, "blockOwnerDeletion": true})
}

/// A new request of a Workload for these pods.
pub fn request(
    name: &str,
    workload: &Meta,
    config: &ProvisioningConfigSpec,
    pods: &[NeededPods<'_>],
) -> Value {
    let of_workload = workload
        .annotations
        .iter()
        .filter_map(|(key, value)| Some((key.strip_prefix(PARAMETER_PREFIX)?.to_owned(), value.clone())));
    let mut parameters = config.parameters.clone();
    parameters.extend(of_workload);
    let sets = pods.iter().map(|pods| {
        let template = template_name(name, pods.names.first().copied().unwrap_or_default());
        json!({"podTemplateRef": {"name": template}, "count": pods.count})
    });
    json!({
        "apiVersion": provisioning::API_VERSION,
        "kind": provisioning::KIND,
        "metadata": {
            "name": name,
            "namespace": workload.namespace,
            "labels": {MANAGED: "true"},
            "ownerReferences": [owner(workload)],
        },
        "spec": {
            "provisioningClassName": config.provisioning_class_name,
            "parameters": parameters,
            "podSets": sets.collect::<Vec<_>>(),
        },
    })
}

/// The template of pods, with the node labels and tolerations of their flavors. The Workload owns it until there is a request.
///
/// # Errors
///
/// A flavor is missing, or contradicts the pods.
pub fn template(
    name: &str,
    workload: &Meta,
    pods: &NeededPods<'_>,
    flavor: impl Fn(&str) -> Option<Flavor>,
) -> Result<Value, InjectionError> {
    let mut template = pods.pod_set["template"].clone();
    Injection::of_flavors(pods.assignment, pods.count, flavor)?.inject(&mut template)?;
    let spec = &mut template["spec"];
    for field in ["initContainers", "containers"] {
        for container in spec[field].as_array_mut().into_iter().flatten() {
            fill_requests(container);
        }
    }
    fill_requests(spec);
    Ok(json!({
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {
            "name": name,
            "namespace": workload.namespace,
            "labels": {MANAGED: "true"},
            "ownerReferences": [owner(workload)],
        },
        "template": template,
    }))
}

/// Resources that have a limit alone are requested, too.
fn fill_requests(of: &mut Value) {
    let Some(limits) = of["resources"]["limits"].as_object().cloned().filter(|limits| !limits.is_empty())
    else {
        return;
    };
    if !of["resources"]["requests"].is_object() {
        of["resources"]["requests"] = Value::Object(Map::new());
    }
    let Some(requests) = of["resources"]["requests"].as_object_mut() else { return };
    for (name, value) in limits {
        requests.entry(name).or_insert(value);
    }
}

/// What the pods get when the request is provisioned.
pub fn pod_set_updates(
    request: &ProvisioningRequest,
    config: &ProvisioningConfigSpec,
    pods: &[NeededPods<'_>],
) -> Vec<Value> {
    let details = &request.status.provisioning_class_details;
    let selectors = config.pod_set_updates.node_selector.iter().filter_map(|selector| {
        let value = details.get(&selector.value_from_provisioning_class_detail)?;
        Some((selector.key.clone(), value.clone().into()))
    });
    let selectors: Map<String, Value> = selectors.collect();
    let annotations = json!({
        CONSUME_ANNOTATION: request.metadata.name,
        CLASS_ANNOTATION: request.spec.provisioning_class_name,
    });
    let update = |name: &&str| {
        let mut update = json!({"name": name, "annotations": annotations});
        if !selectors.is_empty() {
            update["nodeSelector"] = selectors.clone().into();
        }
        update
    };
    pods.iter().flat_map(|pods| &pods.names).map(update).collect()
}
