//! Planned pods that do not exist: a quota or a service account keeps the controller of an object from creating them, the
//! object is suspended, or its operator does not run.
//!
//! An object with fewer pods than planned is not always short of pods: an autoscaler removes some, a `StatefulSet`
//! creates one after the other, an ended object needs none. What the observed fields cannot tell apart does not count.

use super::Index;
use crate::kinds::PodCreation;
use crate::objects::{ObjectKey, ObjectRow};
use crate::pods::{PodPhase, PodRow};
use crate::wrapper::Wrapper;

/// Planned pods of one wrapped object that do not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingPods {
    /// The object.
    pub object: ObjectKey,
    /// The number of pods that do not exist.
    pub missing: u64,
    /// The number of pods that the object needs at present.
    pub needed: u64,
    /// Why, if the object says so.
    pub cause: Option<String>,
    /// The uids of the object and of the objects below it: Events about them may have the cause.
    pub uids: Vec<String>,
}

impl Index {
    /// The missing pods of a dispatched gang, by object. `pods`: all pods of the gang.
    pub fn missing_pods(&self, wrapper: &Wrapper, pods: &[&PodRow]) -> Vec<MissingPods> {
        let objects = wrapper.summary.objects().enumerate();
        objects.filter_map(|(at, key)| self.missing_pods_of(wrapper, at, key, pods)).collect()
    }

    /// The missing pods of the object at this position of the spec.
    fn missing_pods_of(
        &self,
        wrapper: &Wrapper,
        position: usize,
        key: &ObjectKey,
        pods: &[&PodRow],
    ) -> Option<MissingPods> {
        let creation = key.kind.pod_creation()?;
        let row = self.object(wrapper, key).filter(|row| !row.has_ended() && !row.is_deleting)?;
        let sources = wrapper.summary.sources.iter().enumerate();
        let sets: Vec<usize> =
            sources.filter(|(_, source)| source.object == position).map(|(set, _)| set).collect();
        let needed: u64 = sets.iter().map(|set| self.needed_pods(wrapper, row, *set)).sum();
        let is_job = row.key.kind.kind == "Job";
        let exists = |pod: &&&PodRow| {
            let set = self.ownership(pod).map(|ownership| ownership.pod_set);
            let is_of_object = match set {
                Some(Some(set)) => sets.contains(&set),
                Some(None) | None => creation == PodCreation::InSteps,
            };
            // The status of a Job counts the succeeded pods. A failed pod will have a successor.
            is_of_object && !(is_job && pod.phase == PodPhase::Succeeded)
        };
        let existing = pods.iter().filter(exists).count() as u64;
        let missing = match creation {
            PodCreation::AllAtOnce => needed.saturating_sub(existing),
            PodCreation::InSteps if existing == 0 => needed,
            PodCreation::InSteps => 0,
        };
        let mut uids = vec![row.uid.clone()];
        uids.extend(self.owners_under(&row.uid).into_iter().skip(1).map(str::to_owned));
        (missing > 0).then(|| MissingPods {
            object: key.clone(),
            missing,
            needed,
            cause: row.refusal(),
            uids,
        })
    }

    /// The number of pods of a pod set that its object needs at present, also while it is suspended.
    fn needed_pods(&self, wrapper: &Wrapper, row: &ObjectRow, set: usize) -> u64 {
        if row.is_suspended() {
            return wrapper.summary.pod_sets.get(set).map_or(0, |set| u64::from(set.count));
        }
        let expected = self.expected_pods(wrapper, set);
        let is_job = row.key.kind.kind == "Job";
        row.pods_needed().filter(|_| is_job).map_or(expected, |needed| expected.min(u64::from(needed)))
    }
}

impl ObjectRow {
    fn is_suspended(&self) -> bool {
        let kinds = ["Suspended", "RayClusterSuspended"];
        self.spec.suspend
            || self.conditions.iter().any(|c| c.status == "True" && kinds.contains(&c.kind.as_str()))
    }

    /// Why the controller of the object creates no pods, by its spec and conditions.
    fn refusal(&self) -> Option<String> {
        if self.is_suspended() {
            return Some(format!("{} {} is suspended", self.key.kind.kind, self.key.name));
        }
        let failure = self.conditions.iter().find(|c| c.status == "True" && c.kind == "ReplicaFailure")?;
        Some(format!("{}: {}", failure.reason, failure.message))
    }
}
