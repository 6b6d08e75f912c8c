//! The ranks of the pods of a pod set, by the labels that its topology request names. After
//! `pkg/controller/tas/topology_ungater.go` of Kueue v0.19.

use std::collections::{BTreeMap, BTreeSet};

use api::kueue::status::PodSetAssignment;

use super::WorkloadRow;
use crate::pods::PodRow;

impl WorkloadRow {
    /// Whether the pods of a pod set have indices.
    pub(super) fn has_ranks(&self, pod_set: usize) -> bool {
        let set = self.object.spec.pod_sets.get(pod_set);
        set.and_then(|set| set.topology_request.as_ref())
            .is_some_and(|request| request["podIndexLabel"].is_string())
    }

    /// The ranks of these pods of a pod set, by uid. `None`: they have none, or contradict each other, so pods go to the places
    /// that are left.
    pub(super) fn ranks<'p>(
        &self,
        assigned: &PodSetAssignment,
        pods: &[&'p PodRow],
    ) -> Option<BTreeMap<&'p str, u32>> {
        let set = self.object.spec.pod_sets.iter().find(|set| set.name == assigned.name)?;
        let request = set.topology_request.as_ref()?;
        let label = request["podIndexLabel"].as_str()?;
        let count = assigned.count?;
        let sub_groups = match request["subGroupIndexLabel"].as_str() {
            Some(label) => {
                let groups = request["subGroupCount"].as_u64().and_then(|count| u32::try_from(count).ok());
                Some((label, groups.filter(|groups| *groups > 0)?))
            }
            None => None,
        };
        let before = self.pods_before(assigned) + pods.first().map_or(0, |pod| pod.index_offset);
        let (mut ranks, mut taken) = (BTreeMap::new(), BTreeSet::new());
        for pod in pods {
            let index = *pod.indices.get(label)?;
            let first = match sub_groups {
                Some((label, groups)) => {
                    let (size, group) = (count / groups, *pod.indices.get(label)?);
                    if index >= size || group >= groups {
                        return None;
                    }
                    group * size
                }
                None => 0,
            };
            let rank = index.checked_add(first)?.checked_sub(before)?;
            if rank >= count || !taken.insert(rank) {
                return None;
            }
            ranks.insert(pod.uid.as_str(), rank);
        }
        Some(ranks)
    }

    /// The number of pods whose indices come before those of a pod set: of workers, their leaders.
    fn pods_before(&self, assigned: &PodSetAssignment) -> u32 {
        let group = |name: &str| {
            let set = self.object.spec.pod_sets.iter().find(|set| set.name == name)?;
            set.topology_request.as_ref()?["podSetGroupName"].as_str()
        };
        let Some(own) = group(&assigned.name) else { return 0 };
        let admission = self.object.status.admission.iter();
        let sets = admission.flat_map(|admission| &admission.pod_set_assignments);
        let members: Vec<_> = sets.filter(|set| group(&set.name) == Some(own)).collect();
        let [first, second] = *members.as_slice() else { return 0 };
        let (leader, workers) = if first.count > second.count { (second, first) } else { (first, second) };
        if workers.name == assigned.name { leader.count.unwrap_or_default() } else { 0 }
    }
}
