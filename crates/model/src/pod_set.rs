//! Pod sets: the identical pods of a gang.

use std::sync::Arc;

use crate::constraints::{Constraints, Term};
use crate::device::{DeviceShare, FreeResources};
use crate::pod_rules::PodRules;
use crate::resources::{ResourceIx, ResourceMask, ResourceVec};
use crate::topology::TopologyRequest;

/// Identical pods of one gang. It corresponds to Kueue's `PodSet`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodSet {
    /// The name, such as `head` or `worker`; unique in its gang.
    pub name: String,
    /// The number of pods.
    pub count: u32,
    /// The fewest pods with which the gang may start when not all of them fit; at least one. After Kueue's
    /// `minCount`.
    pub min_count: Option<u32>,
    /// The request of one pod, including one of `pods`.
    pub request: ResourceVec,
    /// What quota counts of one pod, if it is not the request: some resources count as others, or not at all. The pod has no
    /// share then.
    pub charged: Option<Arc<ResourceVec>>,
    /// The share of one device that a pod requests in addition. `request` then holds no device of this resource.
    pub share: Option<DeviceShare>,
    /// The scheduling constraints of the pods.
    pub constraints: Constraints,
    /// The rules between these pods and other pods; `None` when there are none.
    pub rules: Option<Arc<PodRules>>,
    /// Pod sets of a gang with the same group name get the same flavors. Those with a topology request are a leader
    /// of one pod and its workers. They go to the same domain, and the request of the workers applies to both. After
    /// Kueue's `podSetGroupName`.
    pub group: Option<String>,
    /// The topology request, if there is one.
    pub topology: Option<TopologyRequest>,
    /// Terms of nodes that the pods prefer, with their weights. They count in the selection of domains of a topology alone.
    pub preferred: Arc<[(u32, Term)]>,
    /// The label keys of the levels of its topology, broadest first, when the pods have flavors; else empty.
    pub levels: Arc<[String]>,
}

impl PodSet {
    /// The request of all pods, saturating. Device shares count as the whole devices that they add up to, rounded up.
    pub fn total(&self) -> ResourceVec {
        let mut total = self.request.times(self.count);
        if let Some(share) = self.share {
            let devices = (u64::from(share.milli()) * u64::from(self.count)).div_ceil(1000);
            let devices = i64::try_from(devices).unwrap_or(i64::MAX);
            total.add(&ResourceVec::new().with(share.device(), devices));
        }
        total
    }

    /// What quota counts of one pod, apart from a share.
    pub fn quota_request(&self) -> &ResourceVec {
        self.charged.as_deref().unwrap_or(&self.request)
    }

    /// What quota counts of all pods, saturating; as [`Self::total`].
    pub fn quota_total(&self) -> ResourceVec {
        self.charged.as_ref().map_or_else(|| self.total(), |charged| charged.times(self.count))
    }

    /// What quota counts of all pods for one resource, in base units; see [`Self::quota_total`].
    pub fn requested(&self, resource: ResourceIx) -> i128 {
        let whole = i128::from(self.quota_request().get(resource).0) * i128::from(self.count);
        let share = self.share.filter(|share| share.device() == resource);
        let shared =
            share.map_or(0, |share| (i128::from(share.milli()) * i128::from(self.count) + 999) / 1000);
        whole + shared
    }

    /// The resources that a pod requests.
    pub fn mask(&self) -> ResourceMask {
        let mask = self.request.mask();
        self.share.map_or(mask, |share| mask.with(share.device()))
    }

    /// Whether one pod fits.
    pub fn fits_in(&self, free: &FreeResources) -> bool {
        self.request.fits_in(&free.amounts) && self.share.is_none_or(|share| free.shares_in(share, 1) == 1)
    }

    /// The number of pods that fit; at most `most`.
    pub fn copies_in(&self, free: &FreeResources, most: u32) -> u32 {
        let copies = self.request.copies_in(&free.amounts, most);
        self.share.map_or(copies, |share| free.shares_in(share, copies))
    }
}

impl FreeResources {
    /// Allocates pods of a pod set, which must fit. A share goes to the shared device where it fits tightest. A new
    /// device is opened when no shared device has enough.
    pub fn take(&mut self, pod_set: &PodSet, count: u32) {
        self.amounts.sub(&pod_set.request.times(count));
        if let Some(share) = pod_set.share {
            self.take_share(share, count);
        }
    }
}
