//! What a decision against a running gang rests on.

use std::collections::{BTreeMap, BTreeSet};

use super::Index;
use crate::pods::{PodPhase, PodRow};
use crate::wire;
use crate::wrapper::Wrapper;

/// What is known of a gang's pods, to be compared with what the API server knows. Wrappers, objects and pods are watched apart
/// from each other: after an outage one watch may tell news while another still shows what was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evidence {
    label: String,
    owners: BTreeSet<String>,
    /// Pods that carry the gang's label and are another's.
    others: BTreeSet<String>,
    pods: BTreeMap<String, Standing>,
}

/// How far a pod has come, and whether the scheduler found no node for it.
type Standing = (PodPhase, bool);

impl Index {
    /// What is known of a wrapper's pods.
    pub fn evidence(&self, wrapper: &Wrapper) -> Evidence {
        let label = wrapper.label().to_owned();
        let pods: BTreeMap<_, _> = self.pods_of(wrapper).into_iter().map(standing).collect();
        let labelled = self.pods.of_label(&wrapper.key.namespace, &label).map(|row| row.uid.clone());
        let others = labelled.filter(|uid| !pods.contains_key(uid)).collect();
        let owners = self.owners_under(&wrapper.uid).into_iter().map(str::to_owned).collect();
        Evidence { label, owners, others, pods }
    }
}

impl Evidence {
    /// Whether the API server, which listed these pods of the gang's namespace, knows the same.
    pub fn agrees(&self, listed: impl IntoIterator<Item = wire::Pod>) -> bool {
        let listed = listed.into_iter().map(PodRow::of);
        let now: BTreeMap<_, _> = listed.filter(|row| self.concerns(row)).map(|row| standing(&row)).collect();
        now == self.pods
    }

    fn concerns(&self, row: &PodRow) -> bool {
        let is_labelled = row.tracked.as_ref() == Some(&self.label) && !self.others.contains(&row.uid);
        is_labelled
            || self.pods.contains_key(&row.uid)
            || row.owner.as_ref().is_some_and(|owner| self.owners.contains(owner))
    }
}

fn standing(row: &PodRow) -> (String, Standing) {
    (row.uid.clone(), (row.phase, row.unschedulable.is_some()))
}
