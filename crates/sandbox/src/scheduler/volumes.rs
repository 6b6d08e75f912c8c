//! The filters of volumes: `VolumeRestrictions`, `VolumeBinding` and `VolumeZone`. Claims that wait for their first pod get
//! a volume when the pod gets a node.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use super::cache::{Cache, NodeInfo, PodInfo};
use super::filter::Rejection;
use crate::storage::{self, Referenced};
use crate::wire::{Claim, Key, PodVolume, Volume};

/// A claim that waited for its first pod, with the node of the pod.
#[derive(Clone, Debug)]
pub(crate) struct ClaimPlan {
    pub(super) claim: Arc<Claim>,
    pub(super) node: String,
    /// The volume that exists; `None`: one is created.
    pub(super) volume: Option<Arc<Volume>>,
}

/// The claims of one pod.
#[derive(Default)]
pub(super) struct VolumeState {
    /// The volumes of bound claims; `None`: it does not exist.
    bound: Vec<Option<Arc<Volume>>>,
    /// Claims that wait for their first pod, those of least storage first.
    waiting: Vec<Arc<Claim>>,
    /// Whether another pod uses a claim that only one pod may use.
    is_taken: bool,
    /// The volumes that claims of pods without a binding yet will get.
    plans: Vec<ClaimPlan>,
}

impl VolumeState {
    /// The claims of a pod. The error is why it fits no node.
    pub(super) fn of(cache: &Cache, pod: &PodInfo) -> Result<Self, String> {
        let mut state = Self::default();
        let mut is_immediate = false;
        let (meta, objects) = (&pod.pod.metadata, &cache.objects);
        for (name, is_created) in pod.pod.claims() {
            let key = Key::new(&*meta.namespace, &*name);
            let Some(claim) = objects.claims.get(&key) else {
                return Err(if is_created {
                    format!(
                        "waiting for ephemeral volume controller to create the persistentvolumeclaim {name:?}"
                    )
                } else {
                    format!("persistentvolumeclaim {name:?} not found")
                });
            };
            if claim.status.phase == "Lost" {
                let volume = &claim.spec.volume_name;
                return Err(format!(
                    "persistentvolumeclaim {name:?} bound to non-existent persistentvolume {volume:?}"
                ));
            }
            if claim.metadata.is_deleting() {
                return Err(format!("persistentvolumeclaim {name:?} is being deleted"));
            }
            if is_created && !claim.is_created_for(&pod.pod) {
                return Err(format!("PVC {key} was not created for pod {} (pod is not owner)", meta.key()));
            }
            state.is_taken |= claim.is_exclusive() && cache.uses_claim(&key, &meta.key());
            if claim.is_bound() {
                state.bound.push(objects.volume_of(&claim));
            } else if claim.spec.volume_name.is_empty()
                && objects.class_of(&claim).is_some_and(|class| class.waits_for_pod())
            {
                state.waiting.push(claim);
            } else {
                is_immediate = true;
            }
        }
        if is_immediate {
            return Err("pod has unbound immediate PersistentVolumeClaims".to_owned());
        }
        state.plans = cache.claim_plans.values().flatten().cloned().collect();
        state
            .waiting
            .sort_by_key(|claim| claim.spec.resources.requests.get("storage").map(|amount| amount.milli()));
        Ok(state)
    }

    pub(super) fn restrictions(&self, info: &NodeInfo, pod: &PodInfo) -> Result<(), Rejection> {
        let disks = pod.pod.spec.volumes.iter().filter(|volume| volume.is_disk());
        for disk in disks {
            let mut others = info.pods.values().flat_map(|other| &other.pod.spec.volumes);
            if others.any(|other| disk.excludes(other)) {
                return Err(Rejection::new("node(s) had no available disk", true));
            }
        }
        if self.is_taken {
            let reason = "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod";
            return Err(Rejection::new(reason, true));
        }
        Ok(())
    }

    pub(super) fn check(&self, info: &NodeInfo, objects: &Referenced) -> Result<(), Rejection> {
        let mut reasons = Vec::new();
        if self.bound.iter().any(Option::is_none) {
            let reason = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)";
            return Err(Rejection::new(reason, false));
        }
        let mut bound = self.bound.iter().flatten();
        if bound.any(|volume| !storage::is_usable_on(volume, &info.node)) {
            reasons.push("node(s) didn't match PersistentVolume's node affinity".to_owned());
        }
        if self.plan(info, objects).is_none() {
            reasons.push("node(s) didn't find available persistent volumes to bind".to_owned());
        }
        if !reasons.is_empty() {
            return Err(Rejection { reasons, resolvable: false });
        }
        if self.bound.iter().flatten().any(|volume| volume.is_in_another_zone(&info.node)) {
            return Err(Rejection::new("node(s) had no available volume zone", false));
        }
        Ok(())
    }

    /// What the waiting claims get on a node; `None` if one of them gets nothing.
    pub(super) fn plan(&self, info: &NodeInfo, objects: &Referenced) -> Option<Vec<ClaimPlan>> {
        if self.waiting.is_empty() {
            return Some(Vec::new());
        }
        let node = &info.node.metadata.name;
        let mut taken: BTreeSet<String> = BTreeSet::new();
        taken.extend(self.plans.iter().filter_map(|plan| Some(plan.volume.as_ref()?.metadata.name.clone())));
        let mut plans = Vec::new();
        for claim in &self.waiting {
            // Another pod with the claim has a node already.
            if let Some(plan) = self.plans.iter().find(|plan| plan.claim.metadata.uid == claim.metadata.uid) {
                let here = match &plan.volume {
                    Some(volume) => storage::is_usable_on(volume, &info.node),
                    None => plan.node == *node,
                };
                if !here {
                    return None;
                }
                plans.push(ClaimPlan { node: plan.node.clone(), ..plan.clone() });
                continue;
            }
            let class = objects.class_of(claim)?;
            let volume = match claim.selected_node() {
                Some(selected) if selected != node => return None,
                Some(_) => None,
                None => storage::best_volume(objects.volumes.all(), claim, |volume| {
                    storage::is_usable_on(volume, &info.node) && !taken.contains(&volume.metadata.name)
                }),
            };
            match &volume {
                Some(volume) => drop(taken.insert(volume.metadata.name.clone())),
                None if storage::provisions_for(&class, &info.node) => {}
                None => return None,
            }
            plans.push(ClaimPlan { claim: claim.clone(), node: node.clone(), volume });
        }
        Some(plans)
    }
}

impl PodVolume {
    /// The disks, with the fields that name one, and whether readers may share it.
    fn disks(&self) -> [(Option<&Value>, &'static [&'static str], bool); 4] {
        [
            (self.gce_persistent_disk.as_ref(), &["pdName"], true),
            (self.aws_elastic_block_store.as_ref(), &["volumeID"], false),
            (self.iscsi.as_ref(), &["iqn"], true),
            (self.rbd.as_ref(), &["pool", "image"], true),
        ]
    }

    fn is_disk(&self) -> bool {
        self.disks().iter().any(|(disk, ..)| disk.is_some())
    }

    /// Whether both are the same disk, and they may not share it.
    fn excludes(&self, other: &Self) -> bool {
        let reads = |disk: &Value| disk["readOnly"] == true;
        self.disks().into_iter().zip(other.disks()).any(|((one, fields, may_share), (other, ..))| {
            one.zip(other).is_some_and(|(one, other)| {
                fields.iter().all(|field| one[field] == other[field])
                    && !(may_share && reads(one) && reads(other))
            })
        })
    }
}
