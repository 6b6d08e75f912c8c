//! Shapes: the part of a gang, or of its missing pods, that decides whether it fits.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::amount::Amount;
use crate::assignment::{Assignment, NodeName};
use crate::constraints::Constraints;
use crate::gang::Replaced;
use crate::pod_set::PodSet;
use crate::quota::FlavorIx;
use crate::resources::{ResourceIx, ResourceMask, ResourceVec};

/// The part of a gang that decides whether it fits. Gangs of one shape get the same verdict.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shape {
    /// See [`Gang::pod_sets`](crate::Gang::pod_sets).
    pub pod_sets: Arc<[PodSet]>,
    /// See [`Gang::declared`](crate::Gang::declared).
    pub declared: Option<ResourceVec>,
    /// See [`Gang::excluded`](crate::Gang::excluded).
    pub excluded: Arc<BTreeSet<NodeName>>,
    /// The pods get no nodes: [`Places::Open`](crate::Places::Open).
    pub places_open: bool,
    /// The gang preempts no other: [`Gang::gated`](crate::Gang::gated).
    pub gated: bool,
    /// The gang takes the place of a running one: [`Gang::replaces`](crate::Gang::replaces).
    pub replaces: Option<Arc<Replaced>>,
    /// The scale-up of a running gang; `None` for a gang that starts.
    pub scale_up: Option<Arc<ScaleUp>>,
}

impl Shape {
    /// The shape with these pod counts.
    #[must_use]
    pub fn with_counts(&self, counts: impl IntoIterator<Item = u32>) -> Self {
        let sets = self.pod_sets.iter().zip(counts);
        let pod_sets = sets.map(|(pod_set, count)| PodSet { count, ..pod_set.clone() }).collect();
        Self { pod_sets, ..self.clone() }
    }

    /// The shape with the pod counts of the assignment.
    pub fn placed(&self, assignment: &Assignment) -> Cow<'_, Self> {
        let count = |at: usize| u32::try_from(assignment.count(at)).unwrap_or(u32::MAX);
        self.resized((0..self.pod_sets.len()).map(count).collect())
    }

    /// The part that is placed on nodes when so many pods of each pod set are not. Without a node for every pod, the
    /// resources declared beyond the pods are not reserved on nodes either.
    pub fn without(&self, unplaced: &[u32]) -> Cow<'_, Self> {
        if unplaced.is_empty() {
            return Cow::Borrowed(self);
        }
        let left =
            |(at, set): (usize, &PodSet)| set.count - set.count.min(unplaced.get(at).copied().unwrap_or(0));
        Cow::Owned(Self { declared: None, ..self.with_counts(self.pod_sets.iter().enumerate().map(left)) })
    }

    /// The shape with the fewest pods with which the gang may start.
    pub fn with_min_counts(&self) -> Cow<'_, Self> {
        self.resized(self.min_counts())
    }

    fn resized(&self, counts: Vec<u32>) -> Cow<'_, Self> {
        if self.pod_sets.iter().zip(&counts).all(|(pod_set, count)| pod_set.count == *count) {
            return Cow::Borrowed(self);
        }
        Cow::Owned(self.with_counts(counts))
    }

    /// For each pod set, the fewest pods with which the gang may start, rounded up to whole slices.
    pub fn min_counts(&self) -> Vec<u32> {
        let least = |pod_set: &PodSet| {
            let slice = pod_set.topology.as_ref().and_then(|request| request.slices.first());
            let size = slice.map_or(1, |slice| slice.size.max(1));
            let least = pod_set.min_count.unwrap_or(pod_set.count).max(1);
            least.div_ceil(size).saturating_mul(size).min(pod_set.count)
        };
        self.pod_sets.iter().map(least).collect()
    }

    /// The request of all pods, saturating.
    pub fn total(&self) -> ResourceVec {
        let mut total = ResourceVec::new();
        for pod_set in &*self.pod_sets {
            total.add(&pod_set.total());
        }
        total
    }

    /// The part of the declared resources that exceeds the pod sets. It is reserved as an aggregate over the eligible
    /// nodes. A declared amount of [`Amount::MAX`] stays [`Amount::MAX`].
    pub fn declared_excess(&self) -> ResourceVec {
        let Some(declared) = &self.declared else { return ResourceVec::new() };
        let mut excess = declared.clone();
        excess.sub(&self.total());
        for (ix, _) in declared.iter().filter(|(_, amount)| *amount == Amount::MAX) {
            excess.set(ix, Amount::MAX);
        }
        excess.positive()
    }

    /// The resources that are reserved as an aggregate beside an assignment: see [`Self::declared_excess`] and
    /// [`Self::without`].
    pub fn excess_beside(&self, assignment: &Assignment) -> ResourceVec {
        if assignment.unplaced.is_empty() {
            self.placed(assignment).declared_excess()
        } else {
            ResourceVec::new()
        }
    }

    /// The resources that the gang takes from nodes: the larger of the total of its pods and the declared amount, per
    /// resource.
    pub fn effective_request(&self) -> ResourceVec {
        self.at_least_declared(self.total())
    }

    /// The same for the resources that quota counts.
    pub fn quota_request(&self) -> ResourceVec {
        let mut total = ResourceVec::new();
        for pod_set in &*self.pod_sets {
            total.add(&pod_set.quota_total());
        }
        self.at_least_declared(total)
    }

    fn at_least_declared(&self, mut request: ResourceVec) -> ResourceVec {
        if let Some(declared) = &self.declared {
            request.raise_to(declared);
        }
        request
    }

    /// Whether a pod requests a share of a device.
    pub fn shares_devices(&self) -> bool {
        self.pod_sets.iter().any(|pod_set| pod_set.share.is_some())
    }

    /// The resources that a pod requests, that quota counts, or that are declared.
    pub fn mask(&self) -> ResourceMask {
        let mut mask = self.effective_request().mask();
        for charged in self.pod_sets.iter().filter_map(|pod_set| pod_set.charged.as_ref()) {
            mask = mask.or(charged.mask());
        }
        mask
    }

    /// The distinct constraints of all pod sets that have pods, sorted. A node is eligible for the aggregate
    /// reservation when it satisfies one of them. Empty when the gang has no pods: every open node is eligible.
    pub fn eligible_constraints(&self) -> Vec<Constraints> {
        let sets = self.pod_sets.iter().filter(|pod_set| pod_set.count > 0);
        let mut alternatives: Vec<_> = sets.map(|pod_set| pod_set.constraints.clone()).collect();
        alternatives.sort();
        alternatives.dedup();
        alternatives
    }
}

/// The constraints that a running gang puts on its missing pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScaleUp {
    /// The pods replace pods whose quota is already charged.
    pub charged: bool,
    /// For each pod set of the shape: the flavors of the running pods, which do not change.
    pub flavors: Vec<BTreeMap<ResourceIx, FlavorIx>>,
    /// For each pod set of the shape: the constraint that running pods put on the topology domain.
    pub colocation: Vec<Colocation>,
}

/// The constraint that running pods put on the topology domain of missing pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Colocation {
    /// The label key of the level at which the pods must be in the domain of the running pods. `None`: no constraint.
    pub level: Option<String>,
    /// The nodes of the running pods.
    pub nodes: Vec<NodeName>,
    /// The first slice layer that the planner must still satisfy. Broader layers are satisfied by `level`.
    pub slices_from: usize,
}
