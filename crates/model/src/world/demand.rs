//! What pods are asked for: how many of each kind the gangs of the world consist of. Kept only while the policy looks at it.

use std::collections::BTreeMap;

use super::World;
use crate::constraints::Constraints;
use crate::device::{DeviceShare, FreeResources};
use crate::gang::{Gang, PodSet};
use crate::policy::Packing;
use crate::resources::ResourceVec;

/// All that decides which nodes have room for a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodKind {
    /// As in [`PodSet::request`].
    pub request: ResourceVec,
    /// As in [`PodSet::share`].
    pub share: Option<DeviceShare>,
    /// As in [`PodSet::constraints`].
    pub constraints: Constraints,
}

impl PodKind {
    /// Whether there is room for a pod.
    pub fn fits_in(&self, room: &FreeResources) -> bool {
        self.request.fits_in(&room.amounts) && self.share.is_none_or(|share| room.shares_in(share, 1) == 1)
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
    /// The kinds of pods that the gangs of the world ask for, waiting or not, with how many of each; nothing unless the
    /// policy is [`Packing::LeastFragmentation`].
    pub fn demand(&self) -> impl Iterator<Item = (&PodKind, u64)> {
        self.demand.0.iter().map(|(kind, pods)| (kind, *pods))
    }

    /// Counts the pods of a gang that is new, where the policy looks at it.
    pub(super) fn count_demand(&mut self, gang: &Gang) {
        if self.policy.packing == Packing::LeastFragmentation {
            self.demand.add(&gang.pod_sets);
        }
    }

    /// Counts all pods anew, where the policy looks at it.
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
