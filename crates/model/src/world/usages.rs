//! The decayed usage of local queues; see `usage`. Kept only for queues with an admission fair sharing rule.
//!
//! A change of what is held happens at the time of the last [`Event::Clock`](crate::Event::Clock). So usage depends
//! on the events and their times only, not on the number of planning cycles.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::World;
use super::quotas::Names;
use crate::amount::Time;
use crate::gang::Gang;
use crate::queue::Queue;
use crate::queue::QueueIx;
use crate::resources::ResourceVec;
use crate::usage::{AdmissionFairSharing, ConsumedResources, DecayedUsage, LocalQueueIx, in_consumed_units};

/// A local queue of a queue.
type LocalQueueKey = (QueueIx, LocalQueueIx);

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Usages {
    clock: Time,
    names: Names,
    rows: BTreeMap<LocalQueueKey, DecayedUsage>,
    /// What each gang holds through its local queue.
    held: BTreeMap<Arc<str>, (LocalQueueKey, ResourceVec)>,
}

impl Default for Usages {
    fn default() -> Self {
        let (rows, held) = (BTreeMap::new(), BTreeMap::new());
        Self { clock: Time::default(), names: Names::with_empty_name(), rows, held }
    }
}

impl Usages {
    /// Replaces what a gang holds.
    fn set_held(
        &mut self,
        uid: &str,
        now: Option<(LocalQueueKey, ResourceVec)>,
        sharing: impl Fn(LocalQueueKey) -> Option<AdmissionFairSharing>,
    ) {
        if self.held.get(uid) == now.as_ref() {
            return;
        }
        let old = self.held.remove(uid);
        if let Some((key, request)) = &old {
            self.change(*key, sharing(*key), |usage, _| {
                for (resource, amount) in in_consumed_units(request) {
                    let current = usage.current.entry(resource).or_default();
                    *current = current.saturating_sub(amount);
                }
                usage.current.retain(|_, amount| *amount > 0);
            });
        }
        let Some((key, request)) = now else { return };
        let mut more = request.clone();
        old.iter().filter(|(other, _)| *other == key).for_each(|(_, before)| more.sub(before));
        self.change(key, sharing(key), |usage, sharing| {
            add(&mut usage.current, in_consumed_units(&request));
            add(&mut usage.consumed, sharing.entry_penalty(&more.positive()));
        });
        self.held.insert(uid.into(), (key, request));
    }

    /// Updates a row to the current time and changes it. Without a rule, the row is dropped.
    fn change(
        &mut self,
        key: LocalQueueKey,
        sharing: Option<AdmissionFairSharing>,
        change: impl Fn(&mut DecayedUsage, &AdmissionFairSharing),
    ) {
        let Some(sharing) = sharing else {
            self.rows.remove(&key);
            return;
        };
        let usage = self.rows.entry(key).or_default();
        usage.advance(self.clock, &sharing);
        change(usage, &sharing);
        if usage.is_empty() {
            self.rows.remove(&key);
        }
    }

    /// Replaces the rule of a queue. The old rule applies up to the current time.
    pub(super) fn set_sharing(
        &mut self,
        queue: QueueIx,
        before: Option<&AdmissionFairSharing>,
        after: Option<&AdmissionFairSharing>,
    ) {
        let Some(before) = before.filter(|before| Some(*before) != after) else { return };
        let keys = (queue, LocalQueueIx(0))..=(queue, LocalQueueIx(u32::MAX));
        for (_, usage) in self.rows.range_mut(keys.clone()) {
            usage.advance(self.clock, before);
        }
        let is_kept = |usage: &DecayedUsage| after.is_some() && !usage.is_empty();
        self.rows.retain(|key, usage| !keys.contains(key) || is_kept(usage));
    }
}

impl World {
    /// The index of a local queue name, which is added if it is new.
    pub fn local_queue_ix(&mut self, name: &str) -> LocalQueueIx {
        LocalQueueIx(self.usages.names.intern(name))
    }

    /// The local queue name of an index; `?` for an unknown index.
    pub fn local_queue_name(&self, ix: LocalQueueIx) -> &str {
        self.usages.names.name(ix.0)
    }

    /// The time of the last clock event.
    pub fn clock(&self) -> Time {
        self.usages.clock
    }

    /// The admission fair sharing rule of a queue.
    pub fn admission_fair_sharing(&self, queue: QueueIx) -> Option<&AdmissionFairSharing> {
        self.queues().get(&queue)?.admission_fair_sharing.as_ref()
    }

    /// The decayed usage of all local queues with a rule.
    pub fn usages(&self) -> impl Iterator<Item = (LocalQueueKey, &DecayedUsage)> {
        self.usages.rows.iter().map(|(key, usage)| (*key, usage))
    }

    /// What the local queue of this name has consumed by a time; `None` if its queue has no rule.
    pub fn consumed(&self, queue: QueueIx, local_queue: &str, now: Time) -> Option<ConsumedResources> {
        let sharing = self.admission_fair_sharing(queue)?;
        let local_queue = self.usages.names.get(local_queue).map(LocalQueueIx);
        let usage = local_queue.and_then(|local_queue| self.usages.rows.get(&(queue, local_queue)));
        Some(usage.map_or_else(ConsumedResources::new, |usage| usage.consumed_at(now, sharing)))
    }

    /// The usage of a local queue at a time, see [`AdmissionFairSharing::resource_weighted_usage`].
    pub fn resource_weighted_usage(&self, queue: QueueIx, local_queue: LocalQueueIx, now: Time) -> u128 {
        let usage = self.usages.rows.get(&(queue, local_queue));
        let weighted = |(usage, sharing): (&DecayedUsage, &AdmissionFairSharing)| {
            sharing.resource_weighted_usage(&usage.consumed_at(now, sharing))
        };
        usage.zip(self.admission_fair_sharing(queue)).map_or(0, weighted)
    }

    /// The weighted usage of a local queue at a time. Within a queue, the smaller goes first, before priority. Zero
    /// without an admission fair sharing rule.
    pub fn weighted_usage(&self, queue: QueueIx, local_queue: LocalQueueIx, now: Time) -> u128 {
        let Some(sharing) = self.admission_fair_sharing(queue) else { return 0 };
        sharing.weighted_usage(self.resource_weighted_usage(queue, local_queue, now), local_queue)
    }

    pub(super) fn set_clock(&mut self, now: Time) {
        self.usages.clock = self.usages.clock.max(now);
    }

    /// Sets the usage of a local queue that was recorded elsewhere.
    pub(super) fn set_usage(
        &mut self,
        queue: &str,
        local_queue: &str,
        consumed: ConsumedResources,
        at: Time,
    ) {
        let key = (self.queue_ix(queue), self.local_queue_ix(local_queue));
        let usage = self.usages.rows.entry(key).or_default();
        (usage.consumed, usage.at) = (consumed, at);
        usage.consumed.retain(|_, amount| *amount > 0);
        if usage.is_empty() {
            self.usages.rows.remove(&key);
        }
        self.invalidate_order();
    }

    /// Recomputes what a gang holds through its local queue.
    pub(super) fn update_local_queue_usage(&mut self, uid: &str) {
        let gang = self
            .gang(uid)
            .filter(|gang| gang.state.holds() && self.admission_fair_sharing(gang.queue).is_some());
        let key_and_request = |gang: &Gang| {
            let shape = gang.held().map_or_else(|| gang.remaining(), |(shape, _)| shape);
            ((gang.queue, gang.local_queue), shape.quota_request())
        };
        let now = gang.map(key_and_request);
        let queues = self.quotas.queues();
        let sharing = |(queue, _): LocalQueueKey| {
            queues.get(&queue).and_then(|queue: &Queue| queue.admission_fair_sharing.clone())
        };
        self.usages.set_held(uid, now, sharing);
    }
}

fn add(to: &mut ConsumedResources, more: ConsumedResources) {
    for (resource, amount) in more {
        let sum = to.entry(resource).or_default();
        *sum = sum.saturating_add(amount);
    }
}
