//! Planned pods that do not exist: a quota or a service account keeps the controller of an object from creating them, the
//! object is suspended, or its operator does not run.
//!
//! An object with fewer pods than planned is not always short of pods: an autoscaler removes some, a `StatefulSet`
//! creates one after the other, an ended object needs none. What the observed fields cannot tell apart does not count.

use super::completion::expected_pods;
use super::{GangPod, Index};
use crate::kinds::PodCreation;
use crate::objects::{ObjectKey, ObjectRow};
use crate::pods::PodPhase;
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
    pub fn missing_pods(&self, wrapper: &Wrapper, pods: &[GangPod<'_>]) -> Vec<MissingPods> {
        let existing = ExistingPods::of(pods, wrapper.summary.pod_sets.len());
        let objects = wrapper.summary.objects();
        objects.filter_map(|key| self.missing_pods_of(wrapper, key, &existing)).collect()
    }

    fn missing_pods_of(
        &self,
        wrapper: &Wrapper,
        key: &ObjectKey,
        existing: &ExistingPods,
    ) -> Option<MissingPods> {
        let creation = key.kind.pod_creation()?;
        let row = self.object(wrapper, key).filter(|row| !row.has_ended() && !row.is_deleting)?;
        let sets = wrapper.summary.sets_of(key);
        let needed: u64 = sets.iter().map(|set| needed_pods(wrapper, row, *set)).sum();
        let existing = existing.of_object(sets, creation, row.key.kind.kind == "Job");
        let missing = match creation {
            PodCreation::AllAtOnce => needed.saturating_sub(existing),
            PodCreation::InSteps if existing == 0 => needed,
            PodCreation::InSteps => 0,
        };
        let mut uids = vec![row.uid.clone()];
        uids.extend(self.owners_under(&row.namespace, &row.uid).into_iter().skip(1).map(str::to_owned));
        (missing > 0).then(|| MissingPods {
            object: key.clone(),
            missing,
            needed,
            cause: row.refusal(),
            uids,
        })
    }
}

/// The existing pods of a gang, by pod set.
struct ExistingPods {
    unfinished: Vec<u64>,
    succeeded: Vec<u64>,
    /// Pods without a pod set.
    without_set: u64,
}

impl ExistingPods {
    fn of(pods: &[GangPod<'_>], sets: usize) -> Self {
        let mut existing = Self { unfinished: vec![0; sets], succeeded: vec![0; sets], without_set: 0 };
        for pod in pods {
            let counts = match pod.phase {
                PodPhase::Succeeded => &mut existing.succeeded,
                PodPhase::Pending | PodPhase::Running | PodPhase::Failed => &mut existing.unfinished,
            };
            *pod.pod_set.and_then(|set| counts.get_mut(set)).unwrap_or(&mut existing.without_set) += 1;
        }
        existing
    }

    /// The number of existing pods of the object with these pod sets.
    fn of_object(&self, sets: &[usize], creation: PodCreation, is_job: bool) -> u64 {
        let count = |counts: &[u64]| sets.iter().filter_map(|set| counts.get(*set)).sum::<u64>();
        // The status of a Job counts the succeeded pods. A failed pod will have a successor.
        let succeeded = if is_job { 0 } else { count(&self.succeeded) };
        let without_set = if creation == PodCreation::InSteps { self.without_set } else { 0 };
        count(&self.unfinished) + succeeded + without_set
    }
}

/// The number of pods of a pod set that its object needs at present, also while it is suspended.
fn needed_pods(wrapper: &Wrapper, row: &ObjectRow, set: usize) -> u64 {
    if row.is_suspended() {
        return wrapper.summary.pod_sets.get(set).map_or(0, |set| u64::from(set.count));
    }
    let expected = expected_pods(wrapper, set, row);
    let is_job = row.key.kind.kind == "Job";
    row.pods_needed().filter(|_| is_job).map_or(expected, |needed| expected.min(u64::from(needed)))
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
