//! Whose a pod is: from its owners, through the objects that operators make, to its wrapper.

use api::demand;
use model::Event;

use super::{Index, OWNERS_MAX};
use crate::kinds::Kind;
use crate::objects::{ObjectKey, ObjectRow};
use crate::pods::{PodPhase, PodRow};
use crate::translate;

/// Whose a pod is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ownership {
    pub(super) wrapper: String,
    pub(super) pod_set: Option<usize>,
}

impl Index {
    pub(super) fn publish_pod(&mut self, uid: &str) {
        let Some(row) = self.pods.get(uid) else { return };
        let ownership = self.ownership(row);
        let event = if row.is_live() || self.keeps_place(row, ownership.as_ref()) {
            let request = translate::amounts(&row.request, self.world.resources_mut());
            Event::PodUpserted(model::Pod {
                uid: row.uid.clone(),
                namespace: row.namespace.clone(),
                name: row.name.clone(),
                node: row.node.clone(),
                request,
                gang: ownership.and_then(|ownership| Some((ownership.wrapper, ownership.pod_set?))),
                ..model::Pod::default()
            })
        } else {
            Event::PodRemoved(uid.to_owned())
        };
        let concerned = self.concerned(row);
        self.dirty.extend(concerned);
        self.world.apply(event);
    }

    /// Whether a pod that succeeded still stands for its place: as long as its gang holds its places, this one stays on the
    /// node where the pod ran, which need not be the one that was planned.
    fn keeps_place(&self, row: &PodRow, ownership: Option<&Ownership>) -> bool {
        let wrapper = ownership.and_then(|ownership| self.wrappers.get(&ownership.wrapper));
        row.phase == PodPhase::Succeeded && wrapper.is_some_and(|wrapper| wrapper.phase.is_reserved())
    }

    /// Pods below an owner that has just become known.
    pub(super) fn publish_pods_under(&mut self, owner: &str, depth: usize) {
        let pods: Vec<_> = self.pods.of_owner(owner).map(|row| row.uid.clone()).collect();
        for pod in pods {
            self.publish_pod(&pod);
        }
        if depth > 0 {
            let children: Vec<_> = self.objects.of_owner(owner).map(|row| row.uid.clone()).collect();
            for child in children {
                self.publish_pods_under(&child, depth - 1);
            }
        }
    }

    /// Wrappers whose status may show this pod.
    pub(super) fn concerned(&self, row: &PodRow) -> Vec<String> {
        let mut concerned: Vec<_> =
            self.ownership(row).map(|ownership| ownership.wrapper).into_iter().collect();
        if let Some(label) = &row.tracked {
            concerned.extend(
                self.labels.get(&(row.namespace.clone(), label.clone())).into_iter().flatten().cloned(),
            );
        }
        concerned
    }

    /// Follows a pod's owners to its wrapper. Objects go before their pods: what was known of those is kept.
    pub(super) fn ownership(&self, pod: &PodRow) -> Option<Ownership> {
        let mut owner = pod.owner.as_deref()?;
        let mut role = pod.role.as_str();
        let mut wrapped: Option<&ObjectRow> = None;
        for _ in 0..OWNERS_MAX {
            if let Some(wrapper) = self.wrappers.get(owner) {
                let itself = ObjectKey { kind: Kind::new("v1", "Pod"), name: pod.name.clone() };
                let object = wrapped.map_or(&itself, |row| &row.key);
                let names = self.world.resources();
                let request = pod
                    .request
                    .iter()
                    .filter_map(|(name, amount)| Some((names.get(name)?, model::Amount(amount))));
                let pod_set = wrapper.summary.pod_set_of(object, role, &request.collect());
                return Some(Ownership { wrapper: wrapper.uid.clone(), pod_set });
            }
            let Some(row) = self.objects.get(owner) else { return self.remembered(pod) };
            if row.key.kind.kind == "RayJob" && wrapped.is_some_and(|child| child.key.kind.kind == "Job") {
                role = demand::ray::SUBMITTER;
            }
            wrapped = Some(row);
            owner = row.owner.as_deref()?;
        }
        None
    }

    fn remembered(&self, pod: &PodRow) -> Option<Ownership> {
        let (wrapper, pod_set) = self.world.pod(&pod.uid)?.gang.clone()?;
        Some(Ownership { wrapper, pod_set: Some(pod_set) })
    }

    /// The wrapper above an object, if any.
    pub(super) fn owner_wrapper(&self, uid: &str) -> Option<String> {
        let mut owner = self.objects.get(uid)?.owner.as_deref()?;
        for _ in 0..OWNERS_MAX {
            if self.wrappers.contains_key(owner) {
                return Some(owner.to_owned());
            }
            owner = self.objects.get(owner)?.owner.as_deref()?;
        }
        None
    }
}
