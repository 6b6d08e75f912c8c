//! Correction of invalid or redundant input before it is folded.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::amount::Amount;
use crate::device::DeviceShare;
use crate::gang::{Gang, GangState};
use crate::plan::Preemption;
use crate::pod_set::PodSet;
use crate::quota::QuotaIx;
use crate::resources::ResourceVec;

/// A request for both whole devices and a share of one device gets one more whole device instead of the share.
pub(super) fn resolve_share(request: &mut ResourceVec, share: &mut Option<DeviceShare>) {
    if let Some(both) = share.take_if(|share| request.get(share.device()) > Amount::ZERO) {
        request.add(&ResourceVec::new().with(both.device(), 1));
    }
}

/// Normalizes a gang: negative amounts become zero, shares beside whole devices become whole devices, and quota nodes
/// are charged once. A pending gang loses its succeeded pods and its unhealthy nodes.
pub(super) fn sanitize(gang: &mut Gang) {
    if gang.state == GangState::Waiting && gang.reclaimable.iter().any(|done| *done > 0) {
        let left = |(at, set): (usize, &PodSet)| PodSet { count: gang.pods_left(at, set), ..set.clone() };
        gang.pod_sets = gang.pod_sets.iter().enumerate().map(left).collect();
        gang.reclaimable.clear();
    }
    if gang.state == GangState::Waiting {
        gang.unhealthy = Arc::default(); // It has no pods any more.
    }
    let negative = |vector: &ResourceVec| vector.iter().any(|(_, amount)| amount.0 < 0);
    let both = |pod_set: &PodSet| {
        pod_set.share.is_some_and(|share| pod_set.request.get(share.device()) > Amount::ZERO)
    };
    let is_odd = |pod_set: &PodSet| {
        negative(&pod_set.request) || pod_set.charged.as_deref().is_some_and(negative) || both(pod_set)
    };
    if gang.pod_sets.iter().any(is_odd) {
        let mut pod_sets = gang.pod_sets.to_vec();
        for pod_set in &mut pod_sets {
            pod_set.request = pod_set.request.positive();
            pod_set.charged = pod_set.charged.take().map(|charged| Arc::new(charged.positive()));
            resolve_share(&mut pod_set.request, &mut pod_set.share);
        }
        gang.pod_sets = pod_sets.into();
    }
    if let Some(declared) = &mut gang.declared {
        *declared = declared.positive();
    }
    let named: BTreeSet<QuotaIx> = gang.charges.iter().copied().collect();
    if named.len() < gang.charges.len() {
        gang.charges = named.into_iter().collect(); // Each quota node is charged once.
    }
    if let GangState::Reserved(assignment) | GangState::Nominated(Preemption { assignment, .. }) =
        &mut gang.state
    {
        assignment.pod_sets.resize_with(gang.pod_sets.len(), Vec::new);
    }
}
