//! What it costs to stop a gang, and which one to stop rather than another.

use std::cmp::Reverse;

use model::{Gang, PodSet, ResourceIx, Time};

use crate::preemption::rules::Title;

/// A gang that may be stopped.
#[derive(Clone, Debug)]
pub(super) struct Candidate<'s> {
    pub(super) price: Cost,
    pub(super) gang: &'s Gang,
    /// What gives the right to its place; never empty.
    pub(super) titles: Vec<Title>,
}

/// What stopping gangs of one class and priority costs, the most important first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cost {
    /// See [`crate::preemption::rules::Kind::class`].
    class: u8,
    priority: i64,
    /// Seconds of accelerators (whole units of extended resources) that would be lost.
    accelerator_s: i128,
    /// Seconds of milli-CPU that would be lost.
    cpu_ms: i128,
    gangs: u64,
    accelerators: i128,
    pods: u64,
}

impl Cost {
    /// Whether two prices add up to one.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        (self.class, self.priority) == (other.class, other.priority)
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
    pub(super) fn of(gang: &'s Gang, now: Time, titles: Vec<Title>) -> Self {
        let kept_from = gang.checkpointed_at.max(gang.started_at);
        let lost_s = i128::from(kept_from.map_or(0, |from| now.since(from).max(0)) / 1_000_000);
        let sum = |amount: &dyn Fn(&PodSet) -> i128| -> i128 {
            gang.pod_sets.iter().map(|pod_set| amount(pod_set) * i128::from(pod_set.count)).sum()
        };
        let accelerators = sum(&|pod_set| {
            let extended = pod_set.request.iter().filter(|(ix, _)| *ix > ResourceIx::PODS);
            extended.map(|(_, amount)| i128::from(amount.0)).sum()
        });
        let price = Cost {
            class: titles.iter().map(|title| title.kind.class()).min().unwrap_or_default(),
            priority: gang.priority,
            accelerator_s: lost_s.saturating_mul(accelerators),
            cpu_ms: lost_s.saturating_mul(sum(&|pod_set| i128::from(pod_set.request.get(ResourceIx::CPU).0))),
            gangs: 1,
            accelerators,
            pods: gang.pod_sets.iter().map(|pod_set| u64::from(pod_set.count)).sum(),
        };
        Self { price, gang, titles }
    }

    /// The smaller goes first: the cheaper, then the newer, then by name.
    pub(super) fn rank(&self) -> impl Ord + use<'s> {
        let gang = self.gang;
        (self.price, Reverse(gang.started_at.unwrap_or(gang.queued_at)), &gang.key, &gang.uid)
    }
}

/// What stopping all of these costs, class by class and priority by priority, the highest first: work of a higher priority
/// weighs more than any amount of work below it. Takes the prices in descending order.
pub(super) fn total(prices: impl Iterator<Item = Cost>) -> Vec<Cost> {
    let mut total: Vec<Cost> = Vec::new();
    for price in prices {
        match total.last_mut().filter(|last| last.is_like(&price)) {
            Some(last) => last.add(&price),
            None => total.push(price),
        }
    }
    total
}
