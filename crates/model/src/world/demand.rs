//! The demand: how many pods of each kind the gangs of the world request. Kept only while the packing policy needs
//! it.

use std::collections::BTreeMap;

use super::World;
use crate::constraints::Constraints;
use crate::device::{DeviceShare, FreeResources};
use crate::gang::Gang;
use crate::pod_set::PodSet;
use crate::policy::Packing;
use crate::resources::ResourceVec;

/// The part of a pod that decides which nodes can hold it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodKind {
    /// See [`PodSet::request`].
    pub request: ResourceVec,
    /// See [`PodSet::share`].
    pub share: Option<DeviceShare>,
    /// See [`PodSet::constraints`].
    pub constraints: Constraints,
}

impl PodKind {
    /// Whether one pod fits.
    pub fn fits_in(&self, free: &FreeResources) -> bool {
        self.request.fits_in(&free.amounts) && self.share.is_none_or(|share| free.shares_in(share, 1) == 1)
    }
}

impl From<&PodSet> for PodKind {
    fn from(PodSet { request, share, constraints, .. }: &PodSet) -> Self {
        Self { request: request.clone(), share: *share, constraints: constraints.clone() }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Demand(BTreeMap<PodKind, u64>); // Without zeros.

impl World {
    /// The kinds of pods that all gangs of the world request, pending or not, with their numbers. Empty unless the
    /// policy is [`Packing::LeastFragmentation`].
    pub fn demand(&self) -> impl Iterator<Item = (&PodKind, u64)> {
        self.demand.0.iter().map(|(kind, pods)| (kind, *pods))
    }

    /// Counts the pods of a new gang, when the policy needs the demand.
    pub(super) fn count_demand(&mut self, gang: &Gang) {
        if self.policy.packing == Packing::LeastFragmentation {
            self.demand.add(&gang.pod_sets);
        }
    }

    /// Counts all pods again, when the policy needs the demand.
    pub(super) fn recount_demand(&mut self) {
        let mut demand = Demand::default();
        if self.policy.packing == Packing::LeastFragmentation {
            self.gangs().for_each(|gang| demand.add(&gang.pod_sets));
        }
        self.demand = demand;
    }
}

impl Demand {
    fn add(&mut self, pod_sets: &[PodSet]) {
        for pod_set in pod_sets.iter().filter(|pod_set| pod_set.count > 0) {
            let pods = self.0.entry(pod_set.into()).or_default();
            *pods = pods.saturating_add(pod_set.count.into());
        }
    }

    pub(super) fn sub(&mut self, pod_sets: &[PodSet]) {
        for pod_set in pod_sets {
            let kind = PodKind::from(pod_set);
            let Some(pods) = self.0.get_mut(&kind) else { continue };
            *pods = pods.saturating_sub(pod_set.count.into());
            if *pods == 0 {
                self.0.remove(&kind);
            }
        }
    }
}
