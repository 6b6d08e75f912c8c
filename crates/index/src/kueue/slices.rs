//! Workload slices: a Workload that grows is continued by another one with more pods, which takes its place.
//!
//! Until the other one is admitted, its gang in the World is the increase alone, beside the gang of the running one; from then on it
//! holds everything, and the running one nothing. Pods carry the name of the first slice, so all slices of a job share them. After
//! `pkg/workloadslicing` and `pkg/controller/elasticjobs` of Kueue v0.19.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::kueue::TopologyAssignment;
use api::kueue::jobs::{ELASTIC, ELASTIC_GATE, SLICE_NAME};
use api::kueue::quantity::canonical;
use api::kueue::status::{ADMITTED, Admission, EVICTED, FINISHED, PodSetAssignment, QUOTA_RESERVED};
use api::kueue::workload::REPLACES;
use model::{PodSet, Replaced, TopologyMode};

use super::{WorkloadPhase, WorkloadRow, places};
use crate::pods::{PodPlacement, PodRow};
use crate::{Index, Ungating, remove_from};

impl WorkloadRow {
    /// The name of the first of its slices, which the pods of all of them carry.
    pub fn slice_name(&self) -> &str {
        let meta = &self.object.metadata;
        meta.annotations.get(SLICE_NAME).unwrap_or(&meta.name)
    }

    fn chain(&self) -> (String, String) {
        (self.namespace().to_owned(), self.slice_name().to_owned())
    }

    /// Whether its status says that it has quota, and is not losing it.
    fn keeps_quota(&self) -> bool {
        let status = &self.object.status;
        self.has_quota() && !status.is(EVICTED) && !self.object.metadata.is_deleting()
    }

    /// Whether its status says that it has quota.
    fn has_quota(&self) -> bool {
        let status = &self.object.status;
        status.admission.is_some() && status.is(QUOTA_RESERVED) && !status.is(FINISHED)
    }

    /// The pods of a pod set that hold quota: neither removed since the admission nor ended for good.
    fn pods_left(&self, at: usize, ended: &[u32]) -> u32 {
        let set = self.object.spec.pod_sets.get(at);
        let admitted = set.and_then(|set| assigned(self.object.status.admission.as_ref()?, &set.name)?.count);
        let count = set.map_or(0, |set| set.count);
        admitted
            .map_or(count, |admitted| admitted.min(count))
            .saturating_sub(ended.get(at).copied().unwrap_or(0))
    }
}

/// Whether two Workloads are of the same job; those that no job owns are, too.
fn have_one_owner(one: &WorkloadRow, other: &WorkloadRow) -> bool {
    one.object.metadata.controller_key() == other.object.metadata.controller_key()
}

impl Index {
    /// Notes the slices that a Workload belongs to, or does no longer.
    pub(super) fn note_slices(&mut self, uid: &str, is_there: bool) {
        let Some(row) = self.kueue.workloads.get(uid) else { return };
        let (chain, replaced) = (row.chain(), self.replaces(row));
        let kueue = &mut self.kueue;
        if is_there {
            kueue.by_chain.entry(chain).or_default().insert(uid.to_owned());
        } else {
            remove_from(&mut kueue.by_chain, &chain, uid);
        }
        let Some(replaced) = replaced else { return };
        if is_there {
            kueue.by_replaced.entry(replaced).or_default().insert(uid.to_owned());
        } else {
            remove_from(&mut kueue.by_replaced, &replaced, uid);
        }
    }

    /// Forgets the slices that a Workload belongs to, and returns those that it concerns.
    pub(super) fn forget_slices(&mut self, uid: &str) -> Vec<String> {
        let related = self.related_slices(uid);
        self.note_slices(uid, false);
        related
    }

    /// Updates a Workload in the World, and those whose gangs depend on its state.
    pub(super) fn publish_slices(&mut self, uid: &str) {
        self.publish_workload(uid);
        self.related_slices(uid).iter().for_each(|uid| self.publish_workload(uid));
    }

    /// Updates the pods that name a Workload, or its first slice: its places are theirs, or no longer.
    pub(super) fn publish_pods_of(&mut self, namespace: &str, name: &str) {
        let uids: Vec<String> = self.pods.of_workload(namespace, name).map(|pod| pod.uid.clone()).collect();
        for uid in uids {
            self.publish_known_pod(&uid);
        }
    }

    /// Namespace and name of the Workload that this one replaces.
    fn replaces(&self, row: &WorkloadRow) -> Option<(String, String)> {
        let key = row.object.metadata.annotations.get(REPLACES).filter(|_| self.kueue.rules.slices)?;
        let (namespace, name) = key.split_once('/')?;
        let is_own = name == row.object.metadata.name;
        (namespace == row.namespace() && !is_own).then(|| (namespace.to_owned(), name.to_owned()))
    }

    /// The uids of the Workload that this one replaces, and of those that replace it.
    fn related_slices(&self, uid: &str) -> Vec<String> {
        let Some(row) = self.kueue.workloads.get(uid).filter(|_| self.kueue.rules.slices) else {
            return Vec::new();
        };
        let name = (row.namespace().to_owned(), row.object.metadata.name.clone());
        let replaced = self.replaces(row).and_then(|name| self.kueue.by_name.get(&name));
        replaced.into_iter().chain(self.kueue.by_replaced.get(&name).into_iter().flatten()).cloned().collect()
    }

    /// The Workload that this one, which has no quota yet, takes the place of: it holds quota of the same queue.
    pub fn replaced_slice(&self, row: &WorkloadRow) -> Option<&WorkloadRow> {
        let replaced = self.kueue.workloads.get(self.kueue.by_name.get(&self.replaces(row)?)?)?;
        (!row.has_quota() && replaced.has_quota() && self.share_quota(row, replaced)).then_some(replaced)
    }

    /// Whether two slices are of the same job, and use the quota of the same queue: the quota of one is a part of that of the other. A
    /// job that has changed its queue has quota in both until its old slice has ended.
    fn share_quota(&self, one: &WorkloadRow, other: &WorkloadRow) -> bool {
        let [one_queue, other_queue] = [one, other].map(|row| self.kueue.cluster_queue_of(row));
        one_queue == other_queue && have_one_owner(one, other)
    }

    /// Whether the Workload that this one takes the place of loses its quota: this one waits until that is done.
    pub(super) fn awaits_replaced_slice(&self, row: &WorkloadRow) -> bool {
        self.replaced_slice(row)
            .is_some_and(|replaced| !replaced.keeps_quota() || !replaced.object.is_active())
    }

    /// The Workload with quota that takes the place of this one. It is admitted, or has checks to pass.
    pub fn replacement(&self, row: &WorkloadRow) -> Option<&WorkloadRow> {
        let name = (row.namespace().to_owned(), row.object.metadata.name.clone());
        let uids = self.kueue.by_replaced.get(&name)?;
        let mut others = uids.iter().filter_map(|uid| self.kueue.workloads.get(uid));
        others.find(|other| other.keeps_quota() && have_one_owner(row, other))
    }

    /// Whether the quota of a Workload is a part of that of the one which takes its place.
    pub(super) fn is_covered(&self, row: &WorkloadRow) -> bool {
        self.replacement(row).is_some_and(|other| self.share_quota(row, other))
    }

    /// The Workload with quota among slices.
    fn active_slice(&self, chain: &(String, String)) -> Option<&WorkloadRow> {
        let uids = self.kueue.by_chain.get(chain)?;
        let mut rows = uids.iter().filter_map(|uid| self.kueue.workloads.get(uid));
        rows.find(|row| matches!(row.phase, WorkloadPhase::Reserved(_)))
    }

    /// The Workload with quota that a pod belongs to.
    pub(super) fn workload_of_pod(&self, pod: &PodRow) -> Option<&WorkloadRow> {
        let (name, _) = pod.workload.as_ref()?;
        self.active_slice(&(pod.namespace.clone(), name.clone()))
    }

    /// The uid of the Workload with quota of a pod that its scheduling gate keeps until there is quota for it, or that has none left.
    pub(crate) fn elastic_workload_of(&self, pod: &PodRow) -> Option<String> {
        self.workload_of_pod(pod).filter(|row| self.is_elastic(row)).map(|row| row.uid().to_owned())
    }

    fn is_elastic(&self, row: &WorkloadRow) -> bool {
        let is_asked = row.object.metadata.annotations.get(ELASTIC).is_some_and(|value| value == "true");
        self.kueue.rules.slices && is_asked
    }

    /// The pod sets of the gang of a Workload, and what it takes the place of: before its admission, a slice is the increase alone.
    pub(super) fn increase(&self, row: &WorkloadRow) -> Option<(Arc<[PodSet]>, Arc<Replaced>)> {
        let replaced = self.replaced_slice(row)?;
        let (ended, ended_before) = (self.reclaimed(row), self.reclaimed(replaced));
        let sets = row.pod_sets().iter().enumerate().map(|(at, set)| {
            let held = replaced.pods_left(at, &ended_before);
            let count = set.count.saturating_sub(ended.get(at).copied().unwrap_or(0));
            PodSet { count: count.saturating_sub(held), min_count: None, ..set.clone() }
        });
        let flavors = replaced.object.status.admission.as_ref();
        let flavors = flavors.map(|admission| self.recorded(replaced, admission).flavors);
        let of = Replaced { uid: replaced.uid().to_owned(), flavors: flavors.unwrap_or_default() };
        Some((sets.collect(), Arc::new(of)))
    }

    /// Why a slice cannot take the place of another one.
    pub(super) fn slice_blocker(&self, row: &WorkloadRow) -> Option<String> {
        let replaced = self.replaced_slice(row)?;
        let names = |row: &WorkloadRow| -> Vec<String> {
            row.object.spec.pod_sets.iter().map(|set| set.name.clone()).collect()
        };
        if names(row) != names(replaced) {
            let meta = &replaced.object.metadata;
            return Some(format!(
                "the pod sets differ from those of {}/{}, which the workload replaces",
                meta.namespace, meta.name
            ));
        }
        row.pod_sets().iter().find_map(|set| {
            let mode = match set.topology.as_ref()?.mode {
                TopologyMode::Required(_) => "required",
                TopologyMode::Preferred(_) => "preferred",
                TopologyMode::Unconstrained => return None,
            };
            let why = format!("{mode} topology is not supported with ElasticJobsViaWorkloadSlices");
            Some(format!("failed to assign flavors to pod set {}: {why}", set.name))
        })
    }

    /// The admission of a slice that takes the place of another one: what that one has, and the increase. `None` if that one has
    /// changed since the increase was planned.
    pub fn slice_admission(&self, row: &WorkloadRow, increase: Admission) -> Option<Admission> {
        if self.replaces(row).is_none() {
            return Some(increase);
        }
        let ended = self.reclaimed(row);
        let planned = |at: usize| increase.pod_set_assignments.get(at).and_then(|set| set.count).unwrap_or(0);
        let Some((sets, _)) = self.increase(row) else {
            let whole = |(at, set): (usize, &PodSet)| {
                planned(at) == set.count.saturating_sub(ended.get(at).copied().unwrap_or(0))
            };
            return row.pod_sets().iter().enumerate().all(whole).then_some(increase);
        };
        let replaced = self.replaced_slice(row).filter(|replaced| replaced.keeps_quota())?;
        if sets.iter().enumerate().any(|(at, set)| planned(at) != set.count) {
            return None;
        }
        let admission = replaced.object.status.admission.as_ref()?;
        let ended = self.reclaimed(replaced);
        let sets = increase.pod_set_assignments.into_iter().zip(row.pod_sets()).enumerate();
        let sets = sets.map(|(at, (more, set))| {
            let before = assigned(admission, &more.name)?;
            let kept = replaced.pods_left(at, &ended).min(set.count);
            let topology = joined(before, kept, &more).map(|places| places.to_v1beta2());
            let mut flavors = more.flavors;
            flavors.extend(before.flavors.clone());
            let usage = flavors.keys().filter_map(|name| {
                let amount = set.quota_request().get(self.world.resources().get(name)?).0;
                Some((name.clone(), canonical(name, amount.saturating_mul(i64::from(set.count))).into()))
            });
            Some(PodSetAssignment {
                resource_usage: usage.collect(),
                flavors,
                topology_assignment: topology,
                count: Some(set.count),
                ..more
            })
        });
        Some(Admission { pod_set_assignments: sets.collect::<Option<_>>()?, ..increase })
    }

    /// The gated pods of a Workload for which there is quota, in alphabetical order.
    pub(super) fn slice_ungatings(&self, row: &WorkloadRow) -> Vec<Ungating> {
        let status = &row.object.status;
        if !self.is_elastic(row) || !status.is(ADMITTED) || status.is(EVICTED) {
            return Vec::new();
        }
        let mut pods: BTreeMap<&str, Vec<&PodRow>> = BTreeMap::new();
        for pod in self.pods.of_workload(row.namespace(), row.slice_name()).filter(|pod| pod.is_live()) {
            if let Some((_, set)) = &pod.workload {
                pods.entry(set).or_default().push(pod);
            }
        }
        let mut ungatings = Vec::new();
        for set in &row.object.spec.pod_sets {
            let pods = pods.remove(set.name.as_str()).unwrap_or_default();
            let (mut gated, open): (Vec<&PodRow>, Vec<&PodRow>) =
                pods.into_iter().partition(|pod| pod.is_elastic_gated && pod.placement.is_none());
            // Others wait for their places, which are as many as the quota has.
            gated.retain(|pod| !pod.is_topology_gated && !pod.is_deleting);
            gated.sort_by(|one, other| one.name.cmp(&other.name));
            let room = usize::try_from(set.count).unwrap_or(usize::MAX).saturating_sub(open.len());
            ungatings.extend(gated.into_iter().take(room).map(|pod| Ungating {
                uid: pod.uid.clone(),
                namespace: pod.namespace.clone(),
                name: pod.name.clone(),
                gates: &[ELASTIC_GATE],
                node_selector: BTreeMap::new(),
                placement: PodPlacement::Anywhere,
            }));
        }
        ungatings
    }
}

fn assigned<'a>(admission: &'a Admission, name: &str) -> Option<&'a PodSetAssignment> {
    admission.pod_set_assignments.iter().find(|assigned| assigned.name == name)
}

/// The first places of a pod set, and those of its increase.
fn joined(before: &PodSetAssignment, kept: u32, more: &PodSetAssignment) -> Option<TopologyAssignment> {
    let mut left = i64::from(kept);
    let mut known = places::places(before);
    for domain in known.iter_mut().flat_map(|known| &mut known.domains) {
        domain.count = domain.count.min(left);
        left -= domain.count;
    }
    let Some(mut known) = known else { return places::places(more) };
    for domain in places::places(more).into_iter().flat_map(|more| more.domains) {
        match known.domains.iter_mut().find(|known| known.values == domain.values) {
            Some(known) => known.count += domain.count,
            None => known.domains.push(domain),
        }
    }
    known.domains.retain(|domain| domain.count > 0);
    Some(known).filter(|known| !known.domains.is_empty())
}
