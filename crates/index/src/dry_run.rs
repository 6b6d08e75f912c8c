//! Dry runs of pods: what is asked, and what the answers mean. One dry run serves all equal templates of a namespace.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use api::demand::PodSet;
use api::dry_run::{AdmittedPod, without_commands};
use api::pod::PodShape;
use api::pod_rules::PodRules;
use api::selector::Labels;
use model::{Constraints, ResourceNames, ResourceVec};
use serde_json::Value;

use crate::translate;
use crate::wrapper::WrapperKey;

/// Equal pod templates of a namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TemplateId {
    /// Namespace.
    pub namespace: String,
    pub(crate) hash: u128,
}

/// A dry run that is needed: one pod of a pod set of a wrapper.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DryRun {
    /// The template.
    pub id: TemplateId,
    /// Differs when the template is asked for again after a change of the cluster.
    pub generation: u64,
    /// A wrapper with this template.
    pub wrapper: WrapperKey,
    /// Its uid.
    pub uid: String,
    /// Index of the pod set.
    pub set: usize,
}

/// The answer to a dry run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DryRunAnswer {
    /// The pod as it would be stored.
    Admitted(Box<AdmittedPod>),
    /// The API server refuses such pods; why. A gang with them waits.
    Refused(String),
    /// Nothing is known; why. A gang is planned with what was known before, or with its template.
    Failed(String),
}

/// What the planner reads of the pods of a pod set.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct PlannedPod {
    pub(crate) request: ResourceVec,
    pub(crate) constraints: Constraints,
    pub(crate) rules: PodRules,
    /// The labels that admission adds.
    pub(crate) added_labels: Labels,
}

/// What identifies a template among those of its namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TemplateKeys {
    /// A hash of all that a webhook may read.
    pub(crate) all: u128,
    /// A hash of what a `LimitRange` and a `RuntimeClass` read: templates that differ in their commands are equal.
    pub(crate) amounts: u128,
}

impl TemplateId {
    /// Whether a pod set of an object has this template.
    pub fn is_of(&self, object: &Value, set: &PodSet) -> bool {
        TemplateKeys::of(object, set).is_some_and(|keys| keys.all == self.hash || keys.amounts == self.hash)
    }
}

impl TemplateKeys {
    /// The keys of a pod set of an object; `None` if its template is not known.
    pub(crate) fn of(object: &Value, set: &PodSet) -> Option<Self> {
        set.template.get("spec")?;
        let identity = [&object["apiVersion"], &object["kind"]];
        let role = &set.role;
        let labels = &object["metadata"]["labels"];
        Some(Self {
            all: hash(&format!("{identity:?} {role} {labels} {}", set.template)),
            amounts: hash(&format!("{identity:?} {role} {}", without_commands(&set.template))),
        })
    }
}

/// A hash of 128 bits, which does not depend on the process.
fn hash(text: &str) -> u128 {
    let half = |seed: u8| {
        let mut hasher = DefaultHasher::new();
        (seed, text).hash(&mut hasher);
        u128::from(hasher.finish())
    };
    half(0) << 64 | half(1)
}

impl PlannedPod {
    pub(crate) fn of(shape: &PodShape, added_labels: Labels, names: &mut ResourceNames) -> Arc<Self> {
        let rules = if shape.rules.is_planned() { shape.rules.clone() } else { PodRules::default() };
        let request = translate::amounts(&shape.request, names);
        let constraints = translate::constraints(&shape.scheduling);
        Arc::new(Self { request, constraints, rules, added_labels })
    }

    /// The same pod with at least these requests.
    pub(crate) fn raised_to(self: &Arc<Self>, observed: &ResourceVec) -> Arc<Self> {
        let request = self.request.clone().max(observed);
        if request == self.request { self.clone() } else { Arc::new(Self { request, ..(**self).clone() }) }
    }
}
