//! What the completion of a gang depends on beside the conditions of its objects: planned pods that do not exist yet.

use super::unschedulable::subtract_placed;
use super::{GangPod, Index};
use crate::objects::{ObjectKey, ObjectRow};
use crate::phase::Phase;
use crate::wire::Condition;
use crate::wrapper::Wrapper;

/// Condition types of objects whose pods have succeeded.
const SUCCESS_CONDITIONS: [&str; 4] = ["Complete", "Completed", "Succeeded", "SuccessCriteriaMet"];
/// Condition types of objects whose pods have failed for good.
const FAILURE_CONDITIONS: [&str; 2] = ["Failed", "FailureTarget"];
/// Reason of the condition `Ready` of a Pod whose containers have succeeded.
const POD_COMPLETED: &str = "PodCompleted";
/// Condition type of a `RayCluster` without pods.
const SUSPENDED: &str = "RayClusterSuspended";

impl Index {
    /// Whether a dispatched gang is over, given that the conditions of its items say so: none of its pods is live, and no
    /// planned pod has yet to be created.
    pub fn is_over(&self, wrapper: &Wrapper, pods: &[GangPod<'_>]) -> bool {
        !pods.iter().any(|pod| pod.is_live()) && !self.awaits_planned_pods(wrapper, pods)
    }

    /// Whether planned pods of an object that keeps its pods do not exist yet. The conditions of an object may be
    /// observed before its pods, for instance `Progressing` of a Deployment.
    fn awaits_planned_pods(&self, wrapper: &Wrapper, pods: &[GangPod<'_>]) -> bool {
        let keys: Vec<&ObjectKey> = wrapper.summary.objects().collect();
        let object = |position: usize| keys.get(position).and_then(|key| self.object(wrapper, key));
        let sets = wrapper.summary.sources.iter().enumerate();
        let expected = sets.map(|(set, source)| {
            object(source.object).map_or(0, |object| expected_pods(wrapper, set, object))
        });
        let mut expected: Vec<u64> = expected.collect();
        if expected.iter().all(|count| *count == 0) {
            return false;
        }
        subtract_placed(pods, &mut expected);
        expected.iter().any(|left| *left > 0)
    }
}

/// The number of pods of a pod set that its object keeps: the planned ones, fewer if the object was scaled down since.
/// The pods of a scale-up do not count: the gang runs without them, too. Zero for an object that has ended.
pub(super) fn expected_pods(wrapper: &Wrapper, set: usize, object: &ObjectRow) -> u64 {
    if !object.key.kind.keeps_pods() || object.has_no_pods() {
        return 0;
    }
    let declared = wrapper.summary.pod_sets.get(set).map_or(0, |set| u64::from(set.count));
    let planned = match &wrapper.phase {
        Phase::Running(Some(assignment)) | Phase::Stopping(_, Some(assignment)) => {
            assignment.placed(set).min(declared)
        }
        Phase::Unknown
        | Phase::Inadmissible(_)
        | Phase::Waiting
        | Phase::Nominated(_)
        | Phase::Starting(_)
        | Phase::Running(None)
        | Phase::Stopping(_, None)
        | Phase::Stopped(..)
        | Phase::Finished => declared,
    };
    object.spec.replicas.map_or(planned, |replicas| planned.min(u64::from(replicas)))
}

impl ObjectRow {
    /// Whether the conditions say that the pods of the object have ended or are suspended.
    fn has_no_pods(&self) -> bool {
        self.has_ended() || self.conditions.iter().any(|c| c.status == "True" && c.kind == SUSPENDED)
    }

    /// Whether the conditions say that the pods of the object have ended: they may be deleted.
    pub(super) fn has_ended(&self) -> bool {
        self.has_succeeded() || self.holds_one_of(&FAILURE_CONDITIONS)
    }

    /// Whether the conditions say that the pods of the object have succeeded. A Pod says it with the reason of `Ready`.
    pub(super) fn has_succeeded(&self) -> bool {
        let is_completed =
            |condition: &Condition| condition.kind == "Ready" && condition.reason == POD_COMPLETED;
        self.holds_one_of(&SUCCESS_CONDITIONS)
            || self.key.kind.is_pod() && self.conditions.iter().any(is_completed)
    }

    /// Whether the conditions of a Pod say that a disruption terminates it before its success.
    pub(super) fn is_disrupted(&self) -> bool {
        self.holds_one_of(&["DisruptionTarget"]) && !self.has_succeeded()
    }

    fn holds_one_of(&self, kinds: &[&str]) -> bool {
        let mut holding = self.conditions.iter().filter(|condition| condition.status == "True");
        holding.any(|condition| kinds.contains(&condition.kind.as_str()))
    }
}
