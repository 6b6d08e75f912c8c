//! The cached pods of a gang, to compare with a live list before the gang is requeued for missing pods.

use std::collections::{BTreeMap, BTreeSet};

use super::Index;
use crate::pods::{PodPhase, PodRow};
use crate::wire;
use crate::wrapper::Wrapper;

/// The cached pods of a gang. Wrappers, objects and pods have separate watches: after an outage one watch may have
/// caught up while another is stale.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachedPods {
    label: String,
    owners: BTreeSet<String>,
    /// Pods with the tracking label of this gang that belong to another gang.
    others: BTreeSet<String>,
    pods: BTreeMap<String, PodState>,
}

/// The phase of a pod, and whether it is unschedulable.
type PodState = (PodPhase, bool);

impl Index {
    /// The cached pods of a wrapper.
    pub fn cached_pods(&self, wrapper: &Wrapper) -> CachedPods {
        let label = wrapper.label().to_owned();
        let pods: BTreeMap<_, _> = self.pods_of(wrapper).iter().map(|pod| pod_state(pod)).collect();
        let labelled = self.pods.of_label(&wrapper.key.namespace, &label).map(|row| row.uid.clone());
        let others = labelled.filter(|uid| !pods.contains_key(uid)).collect();
        let owners =
            self.owners_under(&wrapper.key.namespace, &wrapper.uid).into_iter().map(str::to_owned).collect();
        CachedPods { label, owners, others, pods }
    }
}

impl CachedPods {
    /// Whether a live list of the pods in the namespace of the gang has the same pods in the same state.
    pub fn matches(&self, listed: impl IntoIterator<Item = wire::Pod>) -> bool {
        let listed = listed.into_iter().map(PodRow::of);
        let now: BTreeMap<_, _> =
            listed.filter(|row| self.includes(row)).map(|row| pod_state(&row)).collect();
        now == self.pods
    }

    fn includes(&self, row: &PodRow) -> bool {
        let is_labelled = row.tracked.as_ref() == Some(&self.label) && !self.others.contains(&row.uid);
        is_labelled
            || self.pods.contains_key(&row.uid)
            || row.owner.as_ref().is_some_and(|owner| self.owners.contains(owner))
    }
}

fn pod_state(row: &PodRow) -> (String, PodState) {
    (row.uid.clone(), (row.phase, row.unschedulable.is_some()))
}
