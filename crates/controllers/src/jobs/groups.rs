//! The steps about `LeaderWorkerSets`: each of their groups has a Workload, and its pods become the group of pods that the Workload is
//! for. After `pkg/controller/jobs/leaderworkerset` of Kueue v0.19. The groups are started and stopped by `pods`.

use std::collections::BTreeSet;

use api::kueue::jobs::PRIORITY_CLASS;
use api::kueue::jobs::leader_worker_sets::{GROUPS_MAX, group_of, groups, member, workload};
use api::kueue::status::FINISHED;

use super::step::{AWAIT, JobStep, View, silently};
use super::workload::{create, refuse};
use super::write::{PodWrite, Write};
use crate::watched::Whole;

/// So many Workloads are created or deleted in one step.
const WRITTEN_MAX: usize = 64;

/// The next step about a set of groups.
pub(super) fn decide(view: &View<'_>) -> JobStep {
    view.gather_groups().or_else(|| view.keep_groups()).or_else(|| view.tell_limit()).unwrap_or(AWAIT)
}

impl View<'_> {
    /// Makes the pods members of their groups.
    fn gather_groups(&self) -> Option<JobStep> {
        let pods = self.objects.pods_naming(self.job).filter(|pod| !pod.metadata.is_deleting());
        let changed = pods.filter_map(|pod| member(&self.job.value, &pod.value));
        let writes: Vec<PodWrite> = changed.map(|pod| PodWrite::Replace(Box::new(pod))).collect();
        (!writes.is_empty()).then(|| silently(Write::Pods(writes)))
    }

    /// Creates the Workloads of the groups, deletes those of groups that the set has no more, and keeps the others.
    fn keep_groups(&self) -> Option<JobStep> {
        let wanted = groups(&self.job.value).min(GROUPS_MAX);
        let known: Vec<(Option<u32>, &Whole)> = self
            .objects
            .workloads_of_groups(&self.key())
            .map(|whole| (group_of(&whole.value), whole))
            .collect();
        let present: BTreeSet<u32> = known.iter().filter_map(|(group, _)| *group).collect();
        let missing: Vec<u32> =
            (0..wanted).filter(|group| !present.contains(group)).take(WRITTEN_MAX).collect();
        if !missing.is_empty() {
            return Some(self.create_groups(&missing));
        }
        let (kept, surplus): (Vec<_>, Vec<_>) = known
            .into_iter()
            .filter(|(_, whole)| !whole.metadata.is_deleting())
            .partition(|(group, _)| group.is_some_and(|group| group < wanted));
        if !surplus.is_empty() {
            let surplus = surplus.into_iter().take(WRITTEN_MAX).map(|(_, whole)| whole.clone()).collect();
            return Some(silently(Write::DeleteGroups(surplus)));
        }
        kept.into_iter().find_map(|(_, whole)| self.keep_group(whole))
    }

    /// A set with more groups than have Workloads is told so.
    fn tell_limit(&self) -> Option<JobStep> {
        let wanted = groups(&self.job.value);
        (wanted > GROUPS_MAX).then(|| {
            refuse(format!(
                "the set has {wanted} groups, and only the first {GROUPS_MAX} get Workloads: reduce its replicas, or make \
                 several sets"
            ))
        })
    }

    fn create_groups(&self, groups: &[u32]) -> JobStep {
        match self.priority() {
            Ok(priority) => {
                create(groups.iter().map(|group| workload(&self.job.value, *group, &priority)).collect())
            }
            Err(step) => step,
        }
    }

    /// Keeps the queue, the priority and the hold of a Workload, and gives back the quota of an evicted one.
    fn keep_group(&self, whole: &Whole) -> Option<JobStep> {
        if let Some(patch) = self.patch(&whole.value) {
            return Some(silently(Write::Workload(Box::new(whole.clone()), patch)));
        }
        // Not every change of a set with many groups decodes all of them.
        let class = &self.job.value["metadata"]["labels"][PRIORITY_CLASS];
        let has_class = class.is_null() || *class == whole.value["spec"]["priorityClassRef"]["name"];
        let has_pods = !self.objects.group(&whole.metadata.namespace, &whole.metadata.name).is_empty();
        if has_class && has_pods {
            return None;
        }
        let owned = self.owned(whole).filter(|owned| !owned.workload.status.is(FINISHED))?;
        let released = if has_pods { None } else { self.release_empty(&owned) };
        released.or_else(|| if has_class { None } else { self.propagate(&owned) })
    }
}
