//! The cost of preempting a gang, and the order of candidates.

use std::cmp::Reverse;

use model::{Charges, Gang, PodSet, ResourceIx, Snapshot};

use crate::preemption::Holder;
use crate::preemption::rules::PreemptionRight;

/// A gang that may be preempted.
#[derive(Clone, Debug)]
pub(super) struct Candidate<'s> {
    pub(super) cost: Cost,
    pub(super) gang: &'s Gang,
    pub(super) charges: Option<&'s Charges>,
    /// The rights to preempt it; never empty.
    pub(super) rights: Vec<PreemptionRight>,
}

/// The cost of preempting gangs of one tier, usage and priority, the most important component first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cost {
    /// See [`crate::preemption::rules::Variant::tier`].
    tier: u8,
    /// The weighted usage of its local queue: the larger, the cheaper. Zero without admission fair sharing.
    usage: Reverse<u128>,
    priority: i64,
    /// Lost accelerator-seconds (whole units of extended resources).
    accelerator_s: i128,
    /// Lost milli-CPU-seconds.
    cpu_ms: i128,
    gangs: u64,
    accelerators: i128,
    pods: u64,
}

impl Cost {
    /// Whether two costs have the same tier, usage and priority, and so can be added.
    pub(super) fn is_same_tier(&self, other: &Self) -> bool {
        (self.tier, self.usage, self.priority) == (other.tier, other.usage, other.priority)
    }

    fn add(&mut self, other: &Self) {
        self.accelerator_s = self.accelerator_s.saturating_add(other.accelerator_s);
        self.cpu_ms = self.cpu_ms.saturating_add(other.cpu_ms);
        self.gangs += other.gangs;
        self.accelerators = self.accelerators.saturating_add(other.accelerators);
        self.pods += other.pods;
    }
}

impl<'s> Candidate<'s> {
    pub(super) fn of(holder: Holder<'s>, snapshot: &Snapshot<'_>, rights: Vec<PreemptionRight>) -> Self {
        let Holder { gang, charges } = holder;
        let Snapshot { world, now } = *snapshot;
        let kept_from = gang.checkpointed_at.max(gang.started_at);
        let lost_s = i128::from(kept_from.map_or(0, |from| now.since(from).max(0)) / 1_000_000);
        let sum = |amount: &dyn Fn(&PodSet) -> i128| -> i128 {
            gang.pod_sets.iter().map(|pod_set| amount(pod_set) * i128::from(pod_set.count)).sum()
        };
        let accelerators = sum(&|pod_set| {
            let extended = pod_set.request.iter().filter(|(ix, _)| *ix > ResourceIx::PODS);
            extended.map(|(_, amount)| i128::from(amount.0)).sum()
        });
        let cost = Cost {
            tier: rights.iter().map(|right| right.variant.tier()).min().unwrap_or_default(),
            usage: Reverse(world.weighted_usage(gang.queue, gang.local_queue, now)),
            priority: gang.priority,
            accelerator_s: lost_s.saturating_mul(accelerators),
            cpu_ms: lost_s.saturating_mul(sum(&|pod_set| i128::from(pod_set.request.get(ResourceIx::CPU).0))),
            gangs: 1,
            accelerators,
            pods: gang.pod_sets.iter().map(|pod_set| u64::from(pod_set.count)).sum(),
        };
        Self { cost, gang, charges, rights }
    }

    /// The smaller is preempted first: the cheaper, then the newer, then by name.
    pub(super) fn rank(&self) -> impl Ord + use<'s> {
        let gang = self.gang;
        (self.cost, Reverse(gang.started_at.unwrap_or(gang.queued_at)), &gang.key, &gang.uid)
    }
}

/// The total cost, by tier, usage and priority, the highest first. Work of a higher priority outweighs any amount of
/// work below it. Expects the costs in descending order.
pub(super) fn total(costs: impl Iterator<Item = Cost>) -> Vec<Cost> {
    let mut total: Vec<Cost> = Vec::new();
    for cost in costs {
        match total.last_mut().filter(|last| last.is_same_tier(&cost)) {
            Some(last) => last.add(&cost),
            None => total.push(cost),
        }
    }
    total
}
