//! The pods that an object will ask for once it exists, counted as Kubernetes and the object's own controller count them.
//!
//! Leaves placement to the planner, and what an author declares beside the object to [`of_spec`]'s second figure.

mod batch;
pub mod ray;
mod run_time;

pub use run_time::run_time_s;

use serde_json::Value;

use crate::amounts::{AmountError, Amounts};
use crate::appwrapper::{Item, Spec};
use crate::pod::PodShape;
use crate::value::{at, count, text};

/// Identical pods of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodSet {
    /// Name for people, unique within a gang: the role, or the object's kind where it has one role only. Names of objects
    /// stay out, so that gangs which ask for the same look the same.
    pub name: String,
    /// Position of the object among those of its wrapper. Declared rows without real pods have that of their item's first.
    pub object: usize,
    /// What its pods are called within the object: `head`, a worker group, a replica type. Empty: the object has one role.
    pub role: String,
    /// How many pods.
    pub count: u32,
    /// What each of them needs.
    pub shape: PodShape,
}

/// What a gang asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Demand {
    /// Its pods: the real ones, and the declared ones of items whose pods are unknown.
    pub pod_sets: Vec<PodSet>,
    /// Sum of what its author declares beside real pods; what is not declared counts as it is.
    pub declared: Option<Amounts>,
}

/// An amount inside an object cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} {name}: {cause}")]
pub struct DemandError {
    /// Kind of the object.
    pub kind: String,
    /// Name of the object.
    pub name: String,
    /// What is wrong.
    #[source]
    pub cause: AmountError,
}

/// Demand of a whole wrapper.
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
            pod_sets.extend(rows_as_pods(item, position));
        }
        if is_inferred && !item.rows.is_empty() {
            is_declared = true;
            for row in &item.rows {
                declared.add(&row.request.times(row.replicas));
            }
        } else {
            for set in &pod_sets[first..] {
                declared.add(&set.shape.request.times(set.count));
            }
        }
        position += item.objects.len();
    }
    name_apart(&mut pod_sets);
    Ok(Demand { pod_sets, declared: is_declared.then_some(declared) })
}

/// Pods of one object; `None` when nothing is known about its kind.
pub fn of_object(object: &Value) -> Result<Option<Vec<PodSet>>, AmountError> {
    let group = text(object, &["apiVersion"]).and_then(|v| v.split_once('/')).map_or("", |(group, _)| group);
    let kind = text(object, &["kind"]).unwrap_or_default();
    let name = role_of_kind(kind);
    match (group, kind) {
        ("ray.io", "RayCluster" | "RayService" | "RayJob") => ray::pod_sets(object),
        ("", "Pod") => Ok(Some(vec![single(&name, 1, at(object, &["spec"]))?])),
        ("batch", "Job") => batch::job(object).map(|set| Some(vec![set])),
        ("jobset.x-k8s.io", "JobSet") => batch::job_set(object).map(Some),
        ("kubeflow.org", _) => batch::replica_specs(object),
        _ => {
            let template = at(object, &["spec", "template", "spec"]);
            if !template.get("containers").is_some_and(Value::is_array) {
                return Ok(None);
            }
            Ok(Some(vec![single(&name, count(object, &["spec", "replicas"], 1), template)?]))
        }
    }
}

/// What the pods of an object with one role are called.
fn role_of_kind(kind: &str) -> String {
    kind.to_lowercase()
}

/// The pods of an object that has one role.
fn single(name: &str, count: u32, pod_spec: &Value) -> Result<PodSet, AmountError> {
    Ok(PodSet { name: name.into(), object: 0, role: String::new(), count, shape: PodShape::read(pod_spec)? })
}

/// The pods of one role among several.
fn role(role: &str, count: u32, shape: PodShape) -> PodSet {
    PodSet { name: role.into(), object: 0, role: role.into(), count, shape }
}

fn rows_as_pods(item: &Item, object: usize) -> impl Iterator<Item = PodSet> {
    item.rows.iter().enumerate().map(move |(row, declared)| {
        let mut request = declared.request.clone();
        request.set("pods", 1);
        let shape = PodShape { request, ..PodShape::default() };
        PodSet {
            name: format!("declared-{}", row + 1),
            object,
            role: String::new(),
            count: declared.replicas,
            shape,
        }
    })
}

/// Appends the object's position to names that occur twice.
fn name_apart(pod_sets: &mut [PodSet]) {
    for ix in 1..pod_sets.len() {
        if pod_sets[..ix].iter().any(|earlier| earlier.name == pod_sets[ix].name) {
            pod_sets[ix].name = format!("{}-{ix}", pod_sets[ix].name);
        }
    }
}

fn object_name(object: &Value) -> String {
    let name = text(object, &["metadata", "name"]).or_else(|| text(object, &["metadata", "generateName"]));
    name.unwrap_or("pods").trim_end_matches('-').to_owned()
}
