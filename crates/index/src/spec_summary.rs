//! What is kept of a specification once it was read: everything but the templates.

use std::sync::Arc;

use api::appwrapper::{Spec, render};
use api::{Meta, demand, validate};
use model::{ResourceNames, ResourceVec};
use serde_json::Value;

use crate::kinds::Kind;
use crate::objects::ObjectKey;
use crate::translate;

/// A specification without its templates.
#[derive(Debug, Clone, Default)]
pub struct SpecSummary {
    /// Queueing parameters and notes; its items are emptied.
    pub spec: Spec,
    /// The objects of each item.
    pub items: Vec<ItemSummary>,
    /// What the gang asks for.
    pub pod_sets: Arc<[model::PodSet]>,
    /// For each pod set, the object that brings it.
    pub sources: Vec<PodSetSource>,
    /// What the author declares beside real pods.
    pub declared: Option<ResourceVec>,
    /// How long its author expects it to run, seconds, as far as the specification tells.
    pub run_time_s: Option<i64>,
    /// Why the gang cannot be queued, though its objects could be created.
    pub problems: Vec<String>,
    /// Why the gang fails as soon as it is looked at: an item that stands for no object.
    pub flaw: Option<String>,
}

/// One item of a specification.
#[derive(Debug, Clone)]
pub struct ItemSummary {
    /// Kinds and names of its objects, in order of creation.
    pub objects: Vec<ObjectKey>,
    /// Words of which a condition type must contain one. Empty: it never completes.
    pub completion: Vec<String>,
}

/// Which pods of which object belong to a pod set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodSetSource {
    /// Position of the object among all objects.
    pub object: usize,
    /// Role of the pods within the object; empty when it has one role only.
    pub role: String,
}

impl SpecSummary {
    /// Reads what a client wrote. Names of resources that are new are interned.
    pub fn read(meta: &Meta, spec: &Value, names: &mut ResourceNames) -> Self {
        let mut spec = match Spec::read(spec, &meta.name) {
            Ok(spec) => spec,
            Err(error) => return Self { flaw: Some(error.to_string()), ..Self::default() },
        };
        let mut summary = Self { run_time_s: demand::run_time_s(&spec), ..Self::default() };
        match demand::of_spec(&spec) {
            Ok(demand) => {
                summary.pod_sets = demand.pod_sets.iter().map(|set| translate::pod_set(set, names)).collect();
                summary.declared = demand.declared.map(|declared| translate::amounts(&declared, names));
                let sources = demand
                    .pod_sets
                    .into_iter()
                    .map(|set| PodSetSource { object: set.object, role: set.role });
                summary.sources = sources.collect();
            }
            Err(error) => summary.problems.push(error.to_string()),
        }
        summary.problems.extend(spec.objects().flat_map(validate::problems));
        let mut position = 0;
        for item in std::mem::take(&mut spec.items) {
            let mut objects = Vec::new();
            for object in &item.objects {
                objects.push(object_key(meta, object, position));
                position += 1;
            }
            summary.items.push(ItemSummary { objects, completion: item.completion });
        }
        summary.spec = spec;
        summary
    }

    /// All objects, in order of creation.
    pub fn objects(&self) -> impl Iterator<Item = &ObjectKey> {
        self.items.iter().flat_map(|item| &item.objects)
    }

    /// Kinds of all objects, and of those that operators make of them.
    pub fn kinds(&self) -> impl Iterator<Item = Kind> {
        self.objects().flat_map(|object| [vec![object.kind.clone()], object.kind.children()]).flatten()
    }

    /// The pod set of a pod, by the object that brought it and its role there. Where several sets could be meant, one whose
    /// pods ask for the same.
    pub fn pod_set_of(&self, object: &ObjectKey, role: &str, request: &ResourceVec) -> Option<usize> {
        let position = self.objects().position(|key| key == object)?;
        let here = || (0..self.sources.len()).filter(move |set| self.sources[*set].object == position);
        let by_role = || here().filter(|set| self.sources[*set].role == role);
        let alike = by_role().find(|set| self.pod_sets[*set].request == *request);
        alike.or_else(|| by_role().next()).or_else(|| here().next().filter(|_| here().count() == 1))
    }
}

fn object_key(meta: &Meta, object: &Value, position: usize) -> ObjectKey {
    let field = |key| object.get(key).and_then(Value::as_str).unwrap_or_default();
    ObjectKey {
        kind: Kind::new(field("apiVersion"), field("kind")),
        name: render::name(meta, object, position),
    }
}
