//! What local queues have consumed: the rule of each queue, and the records in their statuses. After
//! `pkg/util/admissionfairsharing` of Kueue v0.19.

use std::collections::BTreeMap;

use api::MicroTime;
use api::kueue::objects::{ClusterQueue, RecordedUsage};
use api::kueue::quantity::{exact, millionths};
use model::{AdmissionFairSharing, ConsumedResources, Event, Time};

use super::UsageRules;
use super::queues::weight_milli;
use crate::Index;

/// A weight of one per unit, in millionths.
const ONE: u64 = 1_000_000;

/// The name of a local queue in the World.
pub(super) fn local_queue_name(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

impl Index {
    /// Advances the clock by which usage decays. To be called before observations are applied.
    pub fn set_clock(&mut self, now: MicroTime) {
        self.world.apply_deferred(Event::Clock(Time(now.0)));
    }

    /// The rule for the local queues of a queue. Without `UsageBasedAdmissionFairSharing`, usage is recorded and has no weight.
    pub(super) fn admission_fair_sharing(&mut self, queue: &ClusterQueue) -> Option<AdmissionFairSharing> {
        let rules = self.kueue.rules.usage.clone().filter(|rules| rules.half_life_us > 0)?;
        let mut sharing = AdmissionFairSharing {
            half_life_us: rules.half_life_us,
            sampling_us: rules.sampling_us,
            ..AdmissionFairSharing::default()
        };
        if !queue.orders_by_usage() {
            return Some(sharing);
        }
        for name in queue.spec.resource_groups.iter().flat_map(|group| &group.covered_resources) {
            let ix = self.world.resources_mut().intern(name);
            sharing.resource_weights.insert(ix, base_unit_weight(&rules, name));
        }
        let of_queue = self
            .kueue
            .local_queues
            .iter()
            .filter(|(_, local)| local.spec.cluster_queue == queue.metadata.name);
        for ((namespace, name), local) in of_queue {
            if let Some(weight) = weight_milli(&local.spec.fair_sharing) {
                sharing
                    .weights_milli
                    .insert(self.world.local_queue_ix(&local_queue_name(namespace, name)), weight);
            }
        }
        Some(sharing)
    }

    /// Restores what earlier processes have recorded in the statuses of local queues. To be called once, when all objects
    /// are observed.
    pub fn restore_usages(&mut self) {
        self.kueue.are_usages_restored = true;
        let keys = self.kueue.local_queues.keys().filter(|key| self.recorded_usage(key).is_some());
        let keys: Vec<(String, String)> = keys.cloned().collect();
        for key in keys {
            self.restore_usage(&key);
        }
    }

    /// Applies that a local queue was created: an earlier one of its name does not count.
    pub(super) fn new_local_queue(&mut self, key: &(String, String)) {
        if self.kueue.are_usages_restored && self.kueue.rules.usage.is_some() {
            self.restore_usage(key);
        }
    }

    fn recorded_usage(&self, key: &(String, String)) -> Option<&RecordedUsage> {
        self.kueue.local_queues.get(key)?.status.fair_sharing.admission_fair_sharing_status.as_ref()
    }

    fn restore_usage(&mut self, key: &(String, String)) {
        let Some(local) = self.kueue.local_queues.get(key) else { return };
        if self.kueue.rules.usage.as_ref().is_none_or(|rules| rules.half_life_us == 0) {
            return;
        }
        let queue = local.spec.cluster_queue.clone();
        let recorded = self.recorded_usage(key).cloned().unwrap_or_default();
        let at = MicroTime::parse(&recorded.last_update).map_or(self.world.clock(), |at| Time(at.0));
        let resources = self.world.resources_mut();
        let consumed = recorded.consumed_resources.iter();
        let consumed = consumed.map(|(name, amount)| (resources.intern(name), millionths(name, amount)));
        let consumed: ConsumedResources = consumed.collect();
        let local_queue = local_queue_name(&key.0, &key.1);
        self.world.apply_deferred(Event::UsageRestored { queue, local_queue, consumed, at });
    }

    /// What a local queue has consumed by a time, as quantities of the resources that its cluster queue covers. `None` if it
    /// is not recorded.
    pub fn consumed_resources(
        &self,
        namespace: &str,
        name: &str,
        now: MicroTime,
    ) -> Option<BTreeMap<String, String>> {
        let rules = self.kueue.rules.usage.as_ref()?;
        if rules.half_life_us == 0 {
            return Some(BTreeMap::new());
        }
        let consumed = self.consumed(namespace, name, now)?;
        let cluster_queue = &self.local_queue(namespace, name)?.spec.cluster_queue;
        let cluster_queue = self.kueue.cluster_queues.get(cluster_queue)?;
        let covered = cluster_queue.spec.resource_groups.iter().flat_map(|group| &group.covered_resources);
        let amount = |name: &String| {
            let known = self.world.resources().get(name).and_then(|ix| consumed.get(&ix)).copied();
            (name.clone(), exact(name, known.unwrap_or_default()))
        };
        Some(covered.map(amount).collect())
    }

    /// The usage of a local queue by which it is ordered, in millionths; `None` if it is not recorded. The weight 0 makes any
    /// usage unlimited: `u128::MAX`.
    pub fn weighted_usage(&self, namespace: &str, name: &str, now: MicroTime) -> Option<u128> {
        let rules = self.kueue.rules.usage.as_ref()?;
        let consumed = self.consumed(namespace, name, now).unwrap_or_default();
        let weighted = consumed.iter().map(|(ix, amount)| {
            let weight = base_unit_weight(rules, self.world.resources().name(*ix));
            amount.saturating_mul(u128::from(weight))
        });
        let usage = weighted.fold(0, u128::saturating_add) / u128::from(ONE);
        let local = self.local_queue(namespace, name)?;
        let weight = weight_milli(&local.spec.fair_sharing).unwrap_or(1000);
        Some(usage.saturating_mul(1000).checked_div(u128::from(weight)).unwrap_or(u128::MAX))
    }

    fn consumed(&self, namespace: &str, name: &str, now: MicroTime) -> Option<ConsumedResources> {
        let queue = &self.local_queue(namespace, name)?.spec.cluster_queue;
        let queue = self.world.queues().iter().find(|(_, known)| known.name == *queue)?.0;
        self.world.consumed(*queue, &local_queue_name(namespace, name), Time(now.0))
    }
}

/// The weight of a resource in millionths per base unit: thousandths of `cpu`, else units.
fn base_unit_weight(rules: &UsageRules, resource: &str) -> u32 {
    let weight = rules.resource_weights.get(resource).copied().unwrap_or(ONE);
    u32::try_from(if resource == "cpu" { weight / 1000 } else { weight }).unwrap_or(u32::MAX)
}
