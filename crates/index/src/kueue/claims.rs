//! The persistent volume claims of Workloads: where their pods may run, and what keeps these from starting.
//!
//! They count in queues whose pods get places. Kueue reads no claims: elsewhere such a Workload is admitted, and its pods wait for
//! kube-scheduler.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::kueue::status::FINISHED;
use api::volumes::ClaimUses;
use model::{Constraints, PodSet};

use super::WorkloadRow;
use crate::Index;
use crate::index::references::{ClaimSet, References};

impl WorkloadRow {
    fn claims(&self) -> impl Iterator<Item = Option<&ClaimUses>> {
        let sets = self.object.spec.pod_sets.iter();
        sets.map(|set| set.template.shape.as_ref().ok().map(|shape| &shape.claims))
    }

    /// Whether its pods use claims, and it has not ended.
    pub(super) fn uses_claims(&self) -> bool {
        !self.object.status.is(FINISHED) && self.claims().flatten().any(|claims| !claims.is_empty())
    }
}

impl Index {
    /// Whether a Workload uses claims.
    pub(crate) fn has_claiming_workloads(&self) -> bool {
        !self.kueue.claiming.is_empty()
    }

    /// Notes whether a Workload uses claims. Its first one begins the watch of claims.
    pub(super) fn note_claims(&mut self, uid: &str) {
        if self.kueue.workloads.get(uid).is_some_and(WorkloadRow::uses_claims) {
            self.kueue.claiming.insert(uid.to_owned());
        } else {
            self.kueue.claiming.remove(uid);
        }
    }

    /// Updates the Workloads with claims.
    pub(crate) fn claims_of_workloads_changed(&mut self) {
        for uid in self.kueue.claiming.clone() {
            self.publish_workload(&uid);
        }
    }

    /// What the claims of a Workload mean for it; `None`: it has none, or its pods get no places.
    pub(super) fn claims_of_workload(
        &self,
        row: &WorkloadRow,
    ) -> Option<(References, Vec<Option<Constraints>>)> {
        let queue = self.cluster_queue(self.cluster_queue_of(row)?)?;
        if !self.kueue.claiming.contains(row.uid()) || !self.places_pods(queue) {
            return None;
        }
        let none = ClaimUses::default();
        let sets = row.claims().zip(row.pod_sets()).map(|(claims, set)| ClaimSet {
            name: &set.name,
            pods: set.count,
            uses: claims.unwrap_or(&none),
            constraints: &set.constraints,
        });
        Some(self.claims_of(row.namespace(), &sets.collect::<Vec<_>>(), &BTreeMap::new()))
    }

    /// The pod sets of a Workload on the nodes that its claims permit.
    pub(super) fn with_claims(&self, row: &WorkloadRow, sets: Arc<[PodSet]>) -> Arc<[PodSet]> {
        let Some((_, permitted)) = self.claims_of_workload(row) else { return sets };
        let both = sets.iter().zip(permitted).map(|(set, permitted)| match permitted {
            Some(permitted) => {
                let node_affinity = permitted.node_affinity;
                PodSet {
                    constraints: Constraints { node_affinity, ..set.constraints.clone() },
                    ..set.clone()
                }
            }
            None => set.clone(),
        });
        both.collect()
    }
}
