//! Objects that pod templates refer to: claims, volumes and storage classes.
//!
//! They are watched from the first AppWrapper on that refers to them. What they mean for a gang is computed again when one
//! of them changes: the nodes of its pods, problems that keep it from the queue, and what is not planned.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use api::volumes::ClaimUses;
use model::{Constraints, PodSet, Term};

use super::Index;
use crate::mutators::MutatorChange;
use crate::phase::Phase;
use crate::translate;
use crate::volumes::{ClaimQuery, VolumeObstacle};
use crate::wire;
use crate::wire::volumes::{Claim, StorageClass, Volume};
use crate::wrapper::Wrapper;

/// Maximum number of terms of the node affinity of a pod set and of its volumes together.
const TERMS_MAX: usize = 1_000;

/// A kind of objects that templates refer to, by which admission changes their pods, or that create pods on new nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReferencedKind {
    /// `PersistentVolumeClaim`.
    Claims,
    /// `PersistentVolume`.
    Volumes,
    /// `StorageClass`.
    StorageClasses,
    /// `LimitRange`.
    LimitRanges,
    /// `RuntimeClass`.
    RuntimeClasses,
    /// `MutatingWebhookConfiguration`.
    MutatingWebhooks,
    /// `DaemonSet`.
    DaemonSets,
}

/// A change of an object that templates may refer to.
#[derive(Debug, Clone)]
pub enum ReferencedChange {
    /// A claim was added or modified.
    Claim(Claim),
    /// A claim was deleted; its uid.
    ClaimDeleted(String),
    /// A volume was added or modified.
    Volume(Volume),
    /// A volume was deleted; its name.
    VolumeDeleted(String),
    /// A storage class was added or modified.
    StorageClass(StorageClass),
    /// A storage class was deleted; its name.
    StorageClassDeleted(String),
    /// An object by which admission changes pods was added, modified or deleted.
    Mutator(MutatorChange),
    /// A `DaemonSet` was added or modified.
    DaemonSet(wire::DaemonSet),
    /// A `DaemonSet` was deleted; its uid.
    DaemonSetDeleted(String),
}

/// What the objects that the templates of a gang refer to mean for it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct References {
    /// Some of the objects are not listed yet.
    pub is_unlisted: bool,
    /// Why the pods cannot start.
    pub problems: Vec<String>,
    /// The claims of each pod set that only one pod may use.
    pub exclusive: Vec<BTreeSet<String>>,
    /// Why the nodes of pods are not planned: they start, perhaps in part, where the scheduler finds nodes.
    pub unplanned: Vec<String>,
}

impl ReferencedKind {
    /// The kinds that claims depend on.
    const OF_CLAIMS: [Self; 3] = [Self::Claims, Self::Volumes, Self::StorageClasses];
    /// The kinds by which admission changes pods.
    pub(super) const MUTATORS: [Self; 3] = [Self::LimitRanges, Self::RuntimeClasses, Self::MutatingWebhooks];

    /// API version, kind, and name in URLs.
    pub fn resource(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Claims => ("v1", "PersistentVolumeClaim", "persistentvolumeclaims"),
            Self::Volumes => ("v1", "PersistentVolume", "persistentvolumes"),
            Self::StorageClasses => ("storage.k8s.io/v1", "StorageClass", "storageclasses"),
            Self::LimitRanges => ("v1", "LimitRange", "limitranges"),
            Self::RuntimeClasses => ("node.k8s.io/v1", "RuntimeClass", "runtimeclasses"),
            Self::MutatingWebhooks => (
                "admissionregistration.k8s.io/v1",
                "MutatingWebhookConfiguration",
                "mutatingwebhookconfigurations",
            ),
            Self::DaemonSets => ("apps/v1", "DaemonSet", "daemonsets"),
        }
    }
}

impl fmt::Display for ReferencedKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.resource().2)
    }
}

impl Index {
    /// The kinds of objects that are to be watched because of the templates that exist.
    pub fn referenced_kinds(&self) -> BTreeSet<ReferencedKind> {
        let of_claims = ReferencedKind::OF_CLAIMS
            .into_iter()
            .filter(|_| !self.referrers.is_empty() || self.has_claiming_workloads());
        let of_templates = ReferencedKind::MUTATORS.into_iter().chain([ReferencedKind::DaemonSets]);
        let of_workloads = [ReferencedKind::LimitRanges, ReferencedKind::RuntimeClasses];
        let of_workloads = of_workloads.into_iter().filter(|_| self.kueue.is_served);
        of_claims.chain(of_templates.filter(|_| self.dry_runs.needs_mutators())).chain(of_workloads).collect()
    }

    /// The referenced kinds that are not listed yet, and whose list has not failed.
    pub fn unlisted_kinds(&self) -> BTreeSet<ReferencedKind> {
        let mut kinds = self.referenced_kinds();
        kinds.retain(|kind| !self.listed.contains_key(kind));
        kinds
    }

    /// Sets that the objects of a kind are listed, or why they cannot be.
    pub fn set_listed(&mut self, kind: ReferencedKind, listed: Result<(), String>) {
        if self.listed.get(&kind) != Some(&listed) {
            self.listed.insert(kind, listed);
            if ReferencedKind::MUTATORS.contains(&kind) {
                self.mutators_listed();
            } else {
                self.update_references();
            }
        }
    }

    /// Applies a change of an object that templates may refer to.
    pub fn apply_referenced(&mut self, change: ReferencedChange) {
        let has_changed = match change {
            ReferencedChange::Claim(claim) => self.volumes.upsert_claim(claim),
            ReferencedChange::ClaimDeleted(uid) => {
                self.volumes.delete_claim(&uid);
                true
            }
            ReferencedChange::Volume(volume) => self.volumes.upsert_volume(volume),
            ReferencedChange::VolumeDeleted(name) => {
                self.volumes.delete_volume(&name);
                true
            }
            ReferencedChange::StorageClass(class) => {
                self.volumes.upsert_class(class);
                true
            }
            ReferencedChange::StorageClassDeleted(name) => {
                self.volumes.delete_class(&name);
                true
            }
            ReferencedChange::Mutator(change) => {
                self.apply_mutator(change);
                false
            }
            ReferencedChange::DaemonSet(set) => {
                self.upsert_daemon_set(set);
                false
            }
            ReferencedChange::DaemonSetDeleted(uid) => {
                self.delete_daemon_set(&uid);
                false
            }
        };
        self.has_changed_references |= has_changed;
    }

    /// Updates the gangs that refer to objects that changed.
    pub(super) fn settle_references(&mut self) {
        if std::mem::take(&mut self.has_changed_references) {
            self.update_references();
        }
    }

    /// Computes what references mean for a new wrapper.
    pub(super) fn register_references(&mut self, uid: &str) {
        let Some(wrapper) = self.wrappers.get(uid) else { return };
        if uses_claims(wrapper) {
            self.referrers.insert(uid.to_owned());
            self.refresh_references(uid);
        }
    }

    /// Forgets a wrapper that has ended.
    pub(super) fn unregister_references(&mut self, uid: &str) {
        self.referrers.remove(uid);
    }

    fn update_references(&mut self) {
        for uid in self.referrers.clone() {
            if !self.refresh_references(&uid) {
                continue;
            }
            if let Some(wrapper) = self.wrappers.get_mut(&uid)
                && wrapper.phase.is_queued()
            {
                wrapper.phase = Phase::Unknown;
            }
            self.update_phase(&uid);
            self.dirty.insert(uid);
        }
        self.claims_of_workloads_changed();
    }

    /// Computes what references mean for a wrapper. Returns whether this changed.
    fn refresh_references(&mut self, uid: &str) -> bool {
        let Some(wrapper) = self.wrappers.get(uid) else { return false };
        let (references, constraints) = self.references_of(wrapper);
        let sets = wrapper.summary.pod_sets.iter().zip(constraints);
        let sets = sets.map(|(set, constraints)| match constraints {
            Some(constraints) => PodSet { constraints, ..set.clone() },
            None => set.clone(),
        });
        let sets: Arc<[PodSet]> = sets.collect();
        let Some(wrapper) = self.wrappers.get_mut(uid) else { return false };
        let has_changed = wrapper.references != references || wrapper.summary.pod_sets != sets;
        let is_exclusive = wrapper.references.exclusive != references.exclusive;
        wrapper.references = references;
        if has_changed {
            wrapper.summary.pod_sets = sets;
        }
        if is_exclusive {
            self.register_rules(uid);
        }
        has_changed
    }

    /// What references mean for a wrapper, and the constraints of the pod sets with claims.
    fn references_of(&self, wrapper: &Wrapper) -> (References, Vec<Option<Constraints>>) {
        let sets = wrapper.summary.templates.iter().zip(wrapper.summary.pod_sets.iter());
        let sets = sets.map(|(template, set)| ClaimSet {
            name: &set.name,
            pods: set.count,
            uses: &template.claims,
            constraints: &template.planned.constraints,
        });
        let sets: Vec<ClaimSet<'_>> = sets.collect();
        let (mut references, constraints) =
            self.claims_of(&wrapper.key.namespace, &sets, &wrapper.summary.claims);
        let namespace = &wrapper.key.namespace;
        let exclusive = wrapper.summary.templates.iter();
        let exclusive = exclusive.map(|template| self.volumes.exclusive(namespace, &template.claims));
        references.exclusive = exclusive.collect();
        (references, constraints)
    }

    /// What the claims of the pod sets of a gang mean for it, and the constraints of the pod sets with claims. `created`: the claims
    /// that the gang itself creates, with their storage class.
    pub(crate) fn claims_of(
        &self,
        namespace: &str,
        sets: &[ClaimSet<'_>],
        created: &BTreeMap<String, Option<String>>,
    ) -> (References, Vec<Option<Constraints>>) {
        let mut references = References::default();
        let users = claim_users(sets);
        let constraints = sets.iter().map(|set| {
            if set.uses.is_empty() || !self.are_listed(set.name, &mut references) {
                return None;
            }
            let query =
                ClaimQuery { namespace, uses: set.uses, pods: set.pods, users: &users, wrapped: created };
            match self.volumes.nodes(&query).map(|lists| with_volumes(set.constraints, &lists)) {
                Ok(Some(constraints)) => Some(constraints),
                Ok(None) => {
                    let text = format!("its node affinity and its volumes have more than {TERMS_MAX} terms");
                    references.unplanned.push(format!("{}: {text}", set.name));
                    Some(set.constraints.clone())
                }
                Err(VolumeObstacle::Problem(text)) => {
                    references.problems.push(format!("{}: {text}", set.name));
                    None
                }
                Err(VolumeObstacle::Unplanned(text)) => {
                    references.unplanned.push(format!("{}: {text}", set.name));
                    Some(set.constraints.clone())
                }
            }
        });
        let constraints = constraints.collect();
        (references, constraints)
    }

    /// Whether all kinds that the claims of a pod set depend on are listed. Notes which are not.
    fn are_listed(&self, set: &str, references: &mut References) -> bool {
        let mut are_listed = true;
        for kind in ReferencedKind::OF_CLAIMS {
            match self.listed.get(&kind) {
                Some(Ok(())) => continue,
                Some(Err(why)) => references.unplanned.push(format!("{set}: {kind} cannot be listed: {why}")),
                None => references.is_unlisted = true,
            }
            are_listed = false;
        }
        are_listed
    }
}

fn uses_claims(wrapper: &Wrapper) -> bool {
    wrapper.summary.templates.iter().any(|template| !template.claims.is_empty())
}

/// The claims of a pod set.
pub(crate) struct ClaimSet<'a> {
    /// Its name.
    pub(crate) name: &'a str,
    /// The number of its pods.
    pub(crate) pods: u32,
    /// The claims that they use.
    pub(crate) uses: &'a ClaimUses,
    /// Where they may run without them.
    pub(crate) constraints: &'a Constraints,
}

/// The number of pods of a gang that use each named claim.
fn claim_users(sets: &[ClaimSet<'_>]) -> BTreeMap<String, u64> {
    let mut users = BTreeMap::new();
    for set in sets {
        for claim in &set.uses.named {
            *users.entry(claim.clone()).or_default() += u64::from(set.pods);
        }
    }
    users
}

/// The constraints with further node affinity: of each list one term must match. `None`: too many terms.
fn with_volumes(constraints: &Constraints, lists: &[Vec<api::pod::Term>]) -> Option<Constraints> {
    let mut all: Vec<Term> = constraints.node_affinity.clone();
    for list in lists {
        let list: Vec<Term> = list.iter().map(translate::term).collect();
        if all.is_empty() {
            all = list;
            continue;
        }
        if all.len().saturating_mul(list.len()) > TERMS_MAX {
            return None;
        }
        all = all.iter().flat_map(|one| list.iter().map(|other| both(one, other))).collect();
    }
    Some(Constraints { node_affinity: all, ..constraints.clone() })
}

fn both(one: &Term, other: &Term) -> Term {
    let join = |one: &[model::Requirement], other: &[model::Requirement]| [one, other].concat();
    Term { expressions: join(&one.expressions, &other.expressions), fields: join(&one.fields, &other.fields) }
}
