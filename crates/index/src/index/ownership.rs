//! The wrapper and the pod set of a pod: follows its controller references through the objects that operators create.

use std::collections::BTreeSet;
use std::ops::Deref;

use api::demand;
use model::Event;

use super::{Index, InternedRules, OWNERS_MAX};
use crate::kinds::Kind;
use crate::objects::{ObjectKey, ObjectRow};
use crate::phase::Phase;
use crate::pods::PodRow;
use crate::translate;
use crate::wire;
use crate::wrapper::Wrapper;

/// The wrapper and the pod set of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ownership {
    /// Uid of the wrapper.
    pub(super) wrapper: String,
    pub(super) pod_set: Option<usize>,
}

/// A pod of a gang. Derefs to the watched pod.
#[derive(Debug, Clone, Copy)]
pub struct GangPod<'a> {
    row: &'a PodRow,
    /// Whether it is below the wrapper in the owner hierarchy. Otherwise it only has the tracking label.
    pub(super) is_owned: bool,
    /// Its pod set, if it is one of the planned pods.
    pub(super) pod_set: Option<usize>,
}

impl Deref for GangPod<'_> {
    type Target = PodRow;

    fn deref(&self) -> &PodRow {
        self.row
    }
}

impl Index {
    /// Adds or updates a pod.
    pub fn upsert_pod(&mut self, pod: wire::Pod) {
        let rules = self.intern_rules(&pod);
        let mut row = PodRow::of(pod);
        if row.is_live() {
            row.rules = Some(rules);
        } else {
            self.forget_rules(Some(rules));
        }
        let uid = row.uid.clone();
        if let Some(old) = self.pods.upsert(row) {
            self.forget_orphan(&old);
        }
        self.publish_pod(&uid);
    }

    /// Removes a deleted pod.
    pub fn delete_pod(&mut self, uid: &str) {
        let Some(row) = self.pods.get(uid) else { return };
        let wrappers = self.wrappers_of_pod(row);
        if let Some(workload) = self.placing_workload(row).or_else(|| self.elastic_workload_of(row)) {
            self.mark_workload_dirty(&workload);
            self.note_seats(&workload);
        }
        if let Some(row) = self.pods.remove(uid) {
            self.forget_orphan(&row);
            self.forget_rules(row.rules);
        }
        self.world.apply_deferred(Event::PodRemoved(uid.to_owned()));
        self.note_ended_pods(&wrappers);
        self.unchecked.extend(wrappers.iter().cloned());
        self.dirty.extend(wrappers);
    }

    /// A pod of a wrapper; `None` if it belongs to another wrapper.
    pub(super) fn gang_pod<'a>(&self, row: &'a PodRow, wrapper: &str) -> Option<GangPod<'a>> {
        match self.ownership(row) {
            Some(ownership) if ownership.wrapper != wrapper => None,
            Some(Ownership { pod_set, .. }) => Some(GangPod { row, is_owned: true, pod_set }),
            None => Some(GangPod { row, is_owned: false, pod_set: None }),
        }
    }

    /// Updates a pod in the World.
    pub(super) fn publish_pod(&mut self, uid: &str) {
        let Some(row) = self.pods.get(uid) else { return };
        let ownership = self.ownership(row);
        if let Some(ownership) = &ownership
            && let Some(labels) = row.rules.as_ref().map(InternedRules::labels)
        {
            let is_new = row.awaits_placement();
            self.learn_labels(ownership, labels, is_new);
        }
        if let Some(ownership) = ownership {
            self.learn_request(uid, &ownership);
        }
        self.publish_known_pod(uid);
    }

    /// Updates a pod in the World, and nothing that depends on its labels.
    pub(crate) fn publish_known_pod(&mut self, uid: &str) {
        let Some(row) = self.pods.get(uid) else { return };
        let ownership = self.ownership(row);
        let placed = self.placed_pod_set(row);
        let has_news = row.is_topology_gated || row.is_deleting || !row.is_live() || row.node.is_none();
        let workload = self.placing_workload(row).or_else(|| self.elastic_workload_of(row));
        let event = if row.is_live() {
            let request = translate::amounts(&row.request, self.world.resources_mut());
            Event::PodUpserted(model::Pod {
                uid: row.uid.clone(),
                namespace: row.namespace.clone(),
                name: row.name.clone(),
                node: row.node.clone(),
                request,
                rules: self.rules_of(row.rules.as_ref()),
                gang: ownership
                    .filter(|ownership| !self.is_stuck(&ownership.wrapper))
                    .and_then(|ownership| Some((ownership.wrapper, ownership.pod_set?)))
                    .or(placed),
                is_leaving: row.is_deleting,
                ..model::Pod::default()
            })
        } else {
            Event::PodRemoved(uid.to_owned())
        };
        let wrappers = self.wrappers_of_pod(row);
        let ended = (!row.is_live()).then(|| row.owner.clone()).flatten();
        self.unchecked.extend(wrappers.iter().cloned());
        self.dirty.extend(wrappers.iter().cloned());
        self.world.apply_deferred(event);
        if let Some(workload) = workload {
            self.note_seats(&workload);
            if has_news {
                self.mark_workload_dirty(&workload);
            }
        }
        self.note_ended_pods(&wrappers);
        self.update_orphan(uid);
        self.note_daemon_pod(uid);
        self.unpublished.extend(ended.filter(|owner| self.wrappers.contains_key(owner)));
    }

    fn is_stuck(&self, wrapper: &str) -> bool {
        self.wrappers.get(wrapper).is_some_and(|wrapper| wrapper.is_stuck)
    }

    /// Releases the places of a stopped gang whose objects are not deleted. No preemptor waits for its pods any more.
    pub fn release_stuck(&mut self, uid: &str) {
        let Some(wrapper) = self.wrappers.get_mut(uid) else { return };
        if let Phase::Stopped(_, places) = &mut wrapper.phase
            && !std::mem::replace(&mut wrapper.is_stuck, true)
        {
            *places = None;
            self.publish(uid);
            self.publish_pods_under(uid, OWNERS_MAX);
        }
    }

    /// The uids of deleted wrappers of which pods are left.
    pub fn departed(&mut self) -> &BTreeSet<String> {
        self.departed.retain(|uid| self.world.pods_of(uid).next().is_some());
        &self.departed
    }

    /// Charges the remaining pods of a deleted wrapper like pods of other owners. No preemptor waits for them any more.
    pub fn release_departed(&mut self, uid: &str) {
        let pods: Vec<model::Pod> = self.world.pods_of(uid).cloned().collect();
        for pod in pods {
            self.world.apply_deferred(Event::PodUpserted(model::Pod { gang: None, ..pod }));
        }
        self.world.settle();
    }

    /// Updates the pods below a new owner.
    pub(super) fn publish_pods_under(&mut self, owner: &str, depth: usize) {
        let namespace = self.wrappers.get(owner).map(|wrapper| &wrapper.key.namespace);
        let namespace = namespace.or_else(|| self.objects.get(owner).map(|row| &row.namespace)).cloned();
        let Some(namespace) = namespace else { return };
        let pods: Vec<_> = self.pods.of_owner(&namespace, owner).map(|row| row.uid.clone()).collect();
        for pod in pods {
            self.publish_pod(&pod);
        }
        if depth > 0 {
            let children = self.objects.of_owner(&namespace, owner).map(|row| row.uid.clone());
            for child in children.collect::<Vec<_>>() {
                self.publish_pods_under(&child, depth - 1);
            }
        }
    }

    /// The wrappers whose status depends on this pod: its owner, and those with its tracking label.
    pub(super) fn wrappers_of_pod(&self, row: &PodRow) -> Vec<String> {
        let mut wrappers: Vec<_> =
            self.ownership(row).map(|ownership| ownership.wrapper).into_iter().collect();
        if let Some(label) = &row.tracked {
            wrappers.extend(
                self.labels.get(&(row.namespace.clone(), label.clone())).into_iter().flatten().cloned(),
            );
        }
        wrappers
    }

    /// Follows the controller references of a pod to its wrapper. An object may be deleted before its pods; such a pod
    /// keeps the wrapper and pod set that the World has for it.
    pub(super) fn ownership(&self, pod: &PodRow) -> Option<Ownership> {
        let mut owner = pod.owner.as_deref()?;
        let mut role = pod.role.as_str();
        let mut wrapped: Option<&ObjectRow> = None;
        for _ in 0..OWNERS_MAX {
            if let Some(wrapper) = self.wrapper_in(&pod.namespace, owner) {
                let bare_pod = ObjectKey { kind: Kind::new("v1", "Pod"), name: pod.name.clone() };
                let object = wrapped.map_or(&bare_pod, |row| &row.key);
                let names = self.world.resources();
                let request = pod
                    .request
                    .iter()
                    .filter_map(|(name, amount)| Some((names.get(name)?, model::Amount(amount))));
                let pod_set = wrapper.summary.pod_set_of(object, role, &request.collect());
                return Some(Ownership { wrapper: wrapper.uid.clone(), pod_set });
            }
            let Some(row) = self.objects.get(owner) else { return self.last_known_ownership(pod) };
            if row.namespace != pod.namespace {
                return None;
            }
            if row.key.kind.kind == "RayJob" && wrapped.is_some_and(|child| child.key.kind.kind == "Job") {
                role = demand::ray::SUBMITTER;
            }
            wrapped = Some(row);
            owner = row.owner.as_deref()?;
        }
        None
    }

    /// The wrapper and pod set that the World has for a pod.
    fn last_known_ownership(&self, pod: &PodRow) -> Option<Ownership> {
        let (wrapper, pod_set) = self.world.pod(&pod.uid)?.gang.clone()?;
        Some(Ownership { wrapper, pod_set: Some(pod_set) })
    }

    /// The uid of the wrapper above an object in the owner hierarchy.
    pub(super) fn owner_wrapper(&self, uid: &str) -> Option<String> {
        let row = self.objects.get(uid)?;
        let (namespace, mut owner) = (&row.namespace, row.owner.as_deref()?);
        for _ in 0..OWNERS_MAX {
            if self.wrapper_in(namespace, owner).is_some() {
                return Some(owner.to_owned());
            }
            owner = self.objects.get(owner).filter(|row| row.namespace == *namespace)?.owner.as_deref()?;
        }
        None
    }

    /// The wrapper with this uid, if it is in the namespace. A uid in an owner reference counts within the namespace of
    /// the object: one of another namespace is not an owner (`pkg/controller/garbagecollector` of Kubernetes).
    pub(super) fn wrapper_in(&self, namespace: &str, uid: &str) -> Option<&Wrapper> {
        self.wrappers.get(uid).filter(|wrapper| wrapper.key.namespace == namespace)
    }
}
