//! The spec summary: what the index keeps of an AppWrapper's spec. It drops the templates, which are large.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::appwrapper::{Spec, limits, render};
use api::demand::labels::ExpectedLabels;
use api::volumes::{self, ClaimUses};
use api::{Meta, demand, dry_run, validate};
use model::{ResourceNames, ResourceVec};
use serde_json::Value;

use crate::dry_run::{PlannedPod, TemplateId, TemplateKeys};
use crate::kinds::Kind;
use crate::objects::ObjectKey;
use crate::translate;

/// A spec without its templates.
#[derive(Debug, Clone, Default)]
pub struct SpecSummary {
    /// Queueing parameters; its items are empty.
    pub spec: Spec,
    /// The items.
    pub items: Vec<ItemSummary>,
    /// The pod sets of the gang.
    pub pod_sets: Arc<[model::PodSet]>,
    /// The source of each pod set.
    pub sources: Vec<PodSetSource>,
    /// The labels and rules of each pod set.
    pub(crate) templates: Vec<TemplateRules>,
    /// What is not planned: a pod set with its constraints that the planner does not evaluate.
    pub unplanned: Vec<String>,
    /// The claims among the objects, with their storage class.
    pub(crate) claims: BTreeMap<String, Option<String>>,
    /// The pod sets of each object with pods.
    sets: BTreeMap<ObjectKey, Vec<usize>>,
    /// The declared resources beyond the requests of the pod templates.
    pub declared: Option<ResourceVec>,
    /// The expected run time in seconds, if the spec has one.
    pub run_time_s: Option<i64>,
    /// Objects that their controller deletes some time after their end (`ttlSecondsAfterFinished`).
    pub expiring: BTreeSet<ObjectKey>,
    /// Validation problems: the gang cannot be queued.
    pub problems: Vec<String>,
    /// A parse error, for instance an item without an object: the gang fails at once.
    pub error: Option<String>,
}

/// What is kept of the template of a pod set.
#[derive(Debug, Clone, Default)]
pub(crate) struct TemplateRules {
    /// Labels.
    pub(crate) expected: ExpectedLabels,
    /// Persistent volume claims.
    pub(crate) claims: ClaimUses,
    /// A pod of the template alone.
    pub(crate) own: Arc<PlannedPod>,
    /// The pod that is planned with: as admission makes it, as far as this is known.
    pub(crate) planned: Arc<PlannedPod>,
    /// What identifies it; `None` if it is not known.
    pub(crate) keys: Option<TemplateKeys>,
    /// The runtime class that it names.
    pub(crate) runtime_class: Option<String>,
    /// The dry run that tells what admission makes of it, if one is needed.
    pub(crate) dry_run: Option<TemplateId>,
}

/// One item of a spec.
#[derive(Debug, Clone)]
pub struct ItemSummary {
    /// Its objects, in order of creation.
    pub objects: Vec<ObjectKey>,
    /// The item is complete when a condition type contains one of these words. Empty: never.
    pub completion: Vec<String>,
}

/// The source of a pod set: pods of one role of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodSetSource {
    /// Index of the object among all objects of the spec.
    pub object: usize,
    /// Role of the pods within the object; empty if the object has one role only.
    pub role: String,
}

impl TemplateRules {
    fn of(meta: &Meta, set: &demand::PodSet, objects: &[&Value], names: &mut ResourceNames) -> Self {
        let shape = &set.shape;
        let own = PlannedPod::of(shape, BTreeMap::new(), names);
        let Some(object) = objects.get(set.object) else {
            return Self { planned: own.clone(), own, ..Self::default() };
        };
        let name = render::name(meta, object, set.object);
        Self {
            expected: ExpectedLabels::of(meta, object, set.object, &set.role, &shape.labels),
            claims: shape.claims.clone().with_templates_of(object, &name),
            planned: own.clone(),
            own,
            keys: TemplateKeys::of(object, set),
            runtime_class: dry_run::runtime_class(&set.template).map(str::to_owned),
            dry_run: None,
        }
    }

    /// What identifies equal templates in the namespace, whatever changes their pods.
    pub(crate) fn observed_id(&self, namespace: &str) -> Option<TemplateId> {
        self.keys.map(|keys| TemplateId { namespace: namespace.to_owned(), hash: keys.all })
    }
}

impl SpecSummary {
    /// Summarises a spec; interns new resource names.
    pub fn read(meta: &Meta, spec: &Value, names: &mut ResourceNames) -> Self {
        let mut spec = match Spec::read(spec, &meta.name) {
            Ok(spec) => spec,
            Err(error) => return Self { error: Some(error.to_string()), ..Self::default() },
        };
        let mut summary = Self { run_time_s: demand::run_time_s(&spec), ..Self::default() };
        let demand = demand::of_spec(&spec).map_err(|error| error.to_string());
        let checked = demand.and_then(|demand| match limits::check_demand(&demand) {
            Ok(()) => Ok(demand),
            Err(error) => Err(error.to_string()),
        });
        match checked {
            Ok(demand) => {
                summary.pod_sets = demand.pod_sets.iter().map(|set| translate::pod_set(set, names)).collect();
                summary.declared = demand.declared.map(|declared| translate::amounts(&declared, names));
                let objects: Vec<&Value> = spec.objects().collect();
                let templates =
                    demand.pod_sets.iter().map(|set| TemplateRules::of(meta, set, &objects, names));
                summary.templates = templates.collect();
                let unplanned = demand.pod_sets.iter().filter(|set| !set.shape.unplanned.is_empty());
                let unplanned =
                    unplanned.map(|set| format!("{}: {}", set.name, set.shape.unplanned.join(", ")));
                summary.unplanned = unplanned.collect();
                let sources = demand
                    .pod_sets
                    .into_iter()
                    .map(|set| PodSetSource { object: set.object, role: set.role });
                summary.sources = sources.collect();
            }
            Err(problem) => summary.problems.push(problem),
        }
        summary.problems.extend(spec.objects().flat_map(validate::problems));
        summary.problems = limits::first_of(summary.problems);
        let mut position = 0;
        for item in std::mem::take(&mut spec.items) {
            let mut objects = Vec::new();
            for object in &item.objects {
                let key = object_key(meta, object, position);
                if has_ttl(object) {
                    summary.expiring.insert(key.clone());
                }
                if key.kind.kind == "PersistentVolumeClaim" {
                    summary.claims.insert(key.name.clone(), volumes::class(object));
                }
                objects.push(key);
                position += 1;
            }
            summary.items.push(ItemSummary { objects, completion: item.completion });
        }
        summary.spec = spec;
        summary.sets = summary.sets_by_object();
        summary
    }

    /// All objects of the spec, in order of creation.
    pub fn objects(&self) -> impl Iterator<Item = &ObjectKey> {
        self.items.iter().flat_map(|item| &item.objects)
    }

    /// The kinds of all objects, and of the objects that operators create for them.
    pub fn kinds(&self) -> impl Iterator<Item = Kind> {
        self.objects().flat_map(|object| [vec![object.kind.clone()], object.kind.children()]).flatten()
    }

    /// The pod sets of an object.
    pub(crate) fn sets_of(&self, object: &ObjectKey) -> &[usize] {
        self.sets.get(object).map_or(&[], Vec::as_slice)
    }

    fn sets_by_object(&self) -> BTreeMap<ObjectKey, Vec<usize>> {
        let mut by_position: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (set, source) in self.sources.iter().enumerate() {
            by_position.entry(source.object).or_default().push(set);
        }
        let mut by_object = BTreeMap::new();
        for (position, key) in self.objects().enumerate() {
            // The API server refuses the second object of a name.
            let sets = by_position.remove(&position).unwrap_or_default();
            by_object.entry(key.clone()).or_insert(sets);
        }
        by_object
    }

    /// The pod set of a pod, by its wrapped object and its role. If several pod sets match, one with an equal request
    /// is preferred.
    pub fn pod_set_of(&self, object: &ObjectKey, role: &str, request: &ResourceVec) -> Option<usize> {
        let sets = self.sets_of(object);
        let by_role = || sets.iter().copied().filter(|set| self.sources[*set].role == role);
        let equal = by_role().find(|set| self.pod_sets[*set].request == *request);
        let only = || sets.first().copied().filter(|_| sets.len() == 1);
        equal.or_else(|| by_role().next()).or_else(only)
    }
}

fn has_ttl(object: &Value) -> bool {
    let paths = ["/spec/ttlSecondsAfterFinished", "/spec/runPolicy/ttlSecondsAfterFinished"];
    paths.iter().any(|path| object.pointer(path).is_some_and(Value::is_number))
}

fn object_key(meta: &Meta, object: &Value, position: usize) -> ObjectKey {
    let field = |key| object.get(key).and_then(Value::as_str).unwrap_or_default();
    ObjectKey {
        kind: Kind::new(field("apiVersion"), field("kind")),
        name: render::name(meta, object, position),
    }
}
