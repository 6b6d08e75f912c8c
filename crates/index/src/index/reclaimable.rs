//! Pods of a running gang that have ended and get no successors: their resources go back before the gang ends.
//!
//! An object that has ended or was deleted needs no pods, and the last pods of a Job are fewer than its parallelism. The status of the
//! object counts, not its pods: they may be deleted already.

use std::collections::BTreeMap;

use model::{Gang, ResourceVec};

use super::Index;
use crate::objects::{ObjectKey, ObjectRow};
use crate::phase::Phase;
use crate::pods::PodRow;
use crate::wrapper::Wrapper;

/// Condition types of a Job that has ended.
const ENDED: [&str; 2] = ["Complete", "Failed"];

impl Index {
    /// The gang without the pods that it needs no more.
    pub(super) fn without_ended_pods(&self, wrapper: &Wrapper, gang: Gang) -> Gang {
        let reclaimable = self.reclaimable(wrapper);
        if reclaimable.iter().all(|count| *count == 0) {
            return gang;
        }
        let mut ended = ResourceVec::new();
        for (set, count) in gang.pod_sets.iter().zip(&reclaimable) {
            ended.add(&set.request.times(*count));
        }
        let sets = gang.pod_sets.iter().zip(&reclaimable);
        let has_pods_left = sets.into_iter().any(|(set, count)| set.count > *count);
        let rest = |mut declared: ResourceVec| {
            declared.sub(&ended);
            declared.positive()
        };
        let declared = gang.declared.clone().filter(|_| has_pods_left).map(rest);
        Gang { reclaimable, declared, ..gang }
    }

    /// The number of pods of each pod set that have ended and get no successors.
    fn reclaimable(&self, wrapper: &Wrapper) -> Vec<u32> {
        if !matches!(wrapper.phase, Phase::Running(_)) {
            return Vec::new();
        }
        let keys: Vec<&ObjectKey> = wrapper.summary.objects().collect();
        let objects: BTreeMap<&ObjectKey, &ObjectRow> =
            self.objects.of_owner(&wrapper.uid).map(|row| (&row.key, row)).collect();
        let pods: BTreeMap<&str, &PodRow> =
            self.pods.of_owner(&wrapper.uid).map(|row| (row.name.as_str(), row)).collect();
        let sets = wrapper.summary.pod_sets.iter().zip(&wrapper.summary.sources);
        sets.enumerate()
            .map(|(at, (set, source))| {
                let Some(key) = keys.get(source.object) else { return 0 };
                let needed = match (key.kind.group(), key.kind.kind.as_str()) {
                    ("batch", "Job") => objects.get(key).and_then(|job| job.pods_needed()),
                    ("", "Pod") => pods.get(key.name.as_str()).map(|pod| u32::from(pod.is_live())),
                    _ => None,
                };
                let needed = self.pods_of_deleted(wrapper, key, at).or(needed);
                needed.map_or(0, |needed| set.count.saturating_sub(needed))
            })
            .collect()
    }
}

impl ObjectRow {
    /// The number of pods that a Job needs at the same time from now on; `None` if it is not known.
    pub(super) fn pods_needed(&self) -> Option<u32> {
        let mut holding = self.conditions.iter().filter(|condition| condition.status == "True");
        if holding.any(|condition| ENDED.contains(&condition.kind.as_str())) {
            return Some(0);
        }
        let left = self.spec.completions?.saturating_sub(self.succeeded);
        Some(left.min(self.spec.parallelism.unwrap_or(1)))
    }
}
