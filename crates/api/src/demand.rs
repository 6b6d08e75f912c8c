//! The pods that the controllers of wrapped objects will create, with the requests that these controllers set.

mod batch;
pub mod labels;
pub mod ray;
mod run_time;

pub use run_time::run_time_s;

use std::collections::BTreeSet;

use serde_json::Value;

use crate::amounts::{AmountError, Amounts};
use crate::appwrapper::{Item, Spec};
use crate::pod::PodShape;
use crate::value::{at, count, text};

/// Identical pods of one object: a pod set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodSet {
    /// Name, unique within the gang: the role, or the kind of the object if it has one role only. The name of the
    /// object is not used, so that equal gangs have equal pod sets.
    pub name: String,
    /// Index of the object in its AppWrapper. A pod set from `custompodresources` has that of the first object of its
    /// item.
    pub object: usize,
    /// Role of the pods within the object: `head`, a worker group or a replica type. Empty if the object has one role.
    pub role: String,
    /// Number of pods.
    pub count: u32,
    /// Requirements of each pod.
    pub shape: PodShape,
    /// The template of its pods, with the containers that operators add. `null` for a pod set from `custompodresources`.
    pub template: Value,
}

/// The pods of a gang, and the resources that it declares.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Demand {
    /// Its pod sets. If the pods of an item are unknown, its `custompodresources` count as pod sets.
    pub pod_sets: Vec<PodSet>,
    /// The sum of the declared resources, if an item with known pods has `custompodresources`. Items without them count
    /// with the requests of their pods.
    pub declared: Option<Amounts>,
}

/// A resource amount of an object is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} {name}: {cause}")]
pub struct DemandError {
    /// Kind of the object.
    pub kind: String,
    /// Name of the object.
    pub name: String,
    /// Cause.
    #[source]
    pub cause: AmountError,
}

/// The demand of an AppWrapper.
pub fn of_spec(spec: &Spec) -> Result<Demand, DemandError> {
    let mut pod_sets: Vec<PodSet> = Vec::new();
    let (mut declared, mut is_declared, mut position) = (Amounts::new(), false, 0);
    for item in &spec.items {
        let first = pod_sets.len();
        let mut is_inferred = false;
        for (offset, object) in item.objects.iter().enumerate() {
            let inferred = of_object(object).map_err(|cause| DemandError {
                kind: text(object, &["kind"]).unwrap_or_default().into(),
                name: object_name(object),
                cause,
            })?;
            if let Some(inferred) = inferred {
                is_inferred = true;
                pod_sets.extend(inferred.into_iter().map(|set| PodSet { object: position + offset, ..set }));
            }
        }
        if !is_inferred {
            pod_sets.extend(declared_pod_sets(item, position));
        }
        if is_inferred && !item.custom_pod_resources.is_empty() {
            is_declared = true;
            for row in &item.custom_pod_resources {
                declared.add(&row.request.times(row.replicas));
            }
        } else {
            for set in &pod_sets[first..] {
                declared.add(&set.shape.request.times(set.count));
            }
        }
        position += item.objects.len();
    }
    make_names_unique(&mut pod_sets);
    Ok(Demand { pod_sets, declared: is_declared.then_some(declared) })
}

/// The pod sets of an object; `None` if its kind is unknown and it has no pod template.
pub fn of_object(object: &Value) -> Result<Option<Vec<PodSet>>, AmountError> {
    let group = text(object, &["apiVersion"]).and_then(|v| v.split_once('/')).map_or("", |(group, _)| group);
    let kind = text(object, &["kind"]).unwrap_or_default();
    let name = role_of_kind(kind);
    match (group, kind) {
        ("ray.io", "RayCluster" | "RayService" | "RayJob") => ray::pod_sets(object),
        ("", "Pod") => Ok(Some(vec![single(&name, 1, object)?])),
        ("batch", "Job") => batch::job(object).map(|set| Some(vec![set])),
        ("jobset.x-k8s.io", "JobSet") => batch::job_set(object).map(Some),
        ("kubeflow.org", _) => batch::replica_specs(object),
        _ => {
            let template = at(object, &["spec", "template"]);
            if !at(template, &["spec", "containers"]).is_array() {
                return Ok(None);
            }
            Ok(Some(vec![single(&name, count(object, &["spec", "replicas"], 1), template)?]))
        }
    }
}

/// The name of the pod set of an object with one role.
fn role_of_kind(kind: &str) -> String {
    kind.to_lowercase()
}

/// The pod set of an object with one role.
fn single(name: &str, count: u32, template: &Value) -> Result<PodSet, AmountError> {
    let (shape, template) = (PodShape::read(template)?, template.clone());
    Ok(PodSet { name: name.into(), object: 0, role: String::new(), count, shape, template })
}

/// The pod set of one of several roles.
fn role(role: &str, count: u32, template: Value) -> Result<PodSet, AmountError> {
    let shape = PodShape::read(&template)?;
    Ok(PodSet { name: role.into(), object: 0, role: role.into(), count, shape, template })
}

/// The `custompodresources` of an item as pod sets.
fn declared_pod_sets(item: &Item, object: usize) -> impl Iterator<Item = PodSet> {
    item.custom_pod_resources.iter().enumerate().map(move |(row, declared)| {
        let mut request = declared.request.clone();
        request.set("pods", 1);
        let shape = PodShape { request, ..PodShape::default() };
        PodSet {
            name: format!("declared-{}", row + 1),
            object,
            role: String::new(),
            count: declared.replicas,
            shape,
            template: Value::Null,
        }
    })
}

/// Makes names unique: appends the index of the pod set to a name that occurs before.
fn make_names_unique(pod_sets: &mut [PodSet]) {
    let mut names = BTreeSet::new();
    for (ix, pod_set) in pod_sets.iter_mut().enumerate() {
        if names.contains(&pod_set.name) {
            pod_set.name = format!("{}-{ix}", pod_set.name);
        }
        names.insert(pod_set.name.clone());
    }
}

fn object_name(object: &Value) -> String {
    let name = text(object, &["metadata", "name"]).or_else(|| text(object, &["metadata", "generateName"]));
    name.unwrap_or("pods").trim_end_matches('-').to_owned()
}
