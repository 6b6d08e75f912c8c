//! What the local queues of queues consume; see `usage`. Kept only for queues whose local queues take turns by it.
//!
//! What changes what is held happens at the time that was said last ([`Event::Clock`](crate::Event::Clock)). So what is
//! consumed follows from the events and their times, however often plans are made.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::quotas::Names;
use super::{QueueIx, World};
use crate::amount::Time;
use crate::gang::Gang;
use crate::queue::Queue;
use crate::resources::ResourceVec;
use crate::usage::{AdmissionFairSharing, ConsumedResources, DecayedUsage, LocalQueueIx, held};

/// A local queue of a queue.
type Door = (QueueIx, LocalQueueIx);

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Usages {
    clock: Time,
    names: Names,
    rows: BTreeMap<Door, DecayedUsage>,
    /// What each gang that holds anything holds through its local queue.
    held: BTreeMap<Arc<str>, (Door, ResourceVec)>,
}

impl Default for Usages {
    fn default() -> Self {
        let (rows, held) = (BTreeMap::new(), BTreeMap::new());
        Self { clock: Time::default(), names: Names::with_nameless(), rows, held }
    }
}

impl Usages {
    /// Replaces what a gang holds.
    fn hold(
        &mut self,
        uid: &str,
        now: Option<(Door, ResourceVec)>,
        sharing: impl Fn(Door) -> Option<AdmissionFairSharing>,
    ) {
        if self.held.get(uid) == now.as_ref() {
            return;
        }
        let old = self.held.remove(uid);
        if let Some((door, promise)) = &old {
            self.change(*door, sharing(*door), |usage, _| {
                for (resource, amount) in held(promise) {
                    let using = usage.using.entry(resource).or_default();
                    *using = using.saturating_sub(amount);
                }
                usage.using.retain(|_, amount| *amount > 0);
            });
        }
        let Some((door, promise)) = now else { return };
        let mut more = promise.clone();
        old.iter().filter(|(other, _)| *other == door).for_each(|(_, before)| more.sub(before));
        self.change(door, sharing(door), |usage, sharing| {
            add(&mut usage.using, held(&promise));
            add(&mut usage.consumed, sharing.entry_penalty(&more.positive()));
        });
        self.held.insert(uid.into(), (door, promise));
    }

    /// Changes a row as it is now. Without a rule there is nothing to keep.
    fn change(
        &mut self,
        door: Door,
        sharing: Option<AdmissionFairSharing>,
        change: impl Fn(&mut DecayedUsage, &AdmissionFairSharing),
    ) {
        let Some(sharing) = sharing else {
            self.rows.remove(&door);
            return;
        };
        let usage = self.rows.entry(door).or_default();
        usage.advance(self.clock, &sharing);
        change(usage, &sharing);
        if usage.is_nothing() {
            self.rows.remove(&door);
        }
    }

    /// A queue gets another rule: the one before holds until now.
    pub(super) fn set_sharing(
        &mut self,
        queue: QueueIx,
        before: Option<&AdmissionFairSharing>,
        after: Option<&AdmissionFairSharing>,
    ) {
        let Some(before) = before.filter(|before| Some(*before) != after) else { return };
        let doors = (queue, LocalQueueIx(0))..=(queue, LocalQueueIx(u32::MAX));
        for (_, usage) in self.rows.range_mut(doors.clone()) {
            usage.advance(self.clock, before);
        }
        let is_kept = |usage: &DecayedUsage| after.is_some() && !usage.is_nothing();
        self.rows.retain(|door, usage| !doors.contains(door) || is_kept(usage));
    }
}

impl World {
    /// The index of a local queue's name, which is added when it is new.
    pub fn local_queue_ix(&mut self, name: &str) -> LocalQueueIx {
        LocalQueueIx(self.usages.names.intern(name))
    }

    /// The name behind an index; `?` for one that was never given out.
    pub fn local_queue_name(&self, ix: LocalQueueIx) -> &str {
        self.usages.names.name(ix.0)
    }

    /// The time that was said last.
    pub fn clock(&self) -> Time {
        self.usages.clock
    }

    /// How the local queues of a queue take turns, if they do.
    pub fn admission_fair_sharing(&self, queue: QueueIx) -> Option<&AdmissionFairSharing> {
        self.queues().get(&queue)?.admission_fair_sharing.as_ref()
    }

    /// What the local queues of queues consume, where they take turns by it.
    pub fn usages(&self) -> impl Iterator<Item = (Door, &DecayedUsage)> {
        self.usages.rows.iter().map(|(door, usage)| (*door, usage))
    }

    /// What a local queue has consumed at a time, in points; see [`AdmissionFairSharing::points`].
    pub fn resource_weighted_usage(&self, queue: QueueIx, local_queue: LocalQueueIx, now: Time) -> u128 {
        let usage = self.usages.rows.get(&(queue, local_queue));
        let points = |(usage, sharing): (&DecayedUsage, &AdmissionFairSharing)| {
            sharing.resource_weighted_usage(&usage.consumed_at(now, sharing))
        };
        usage.zip(self.admission_fair_sharing(queue)).map_or(0, points)
    }

    /// What decides before rank between gangs of one queue at a time: the smaller goes first. Nothing where its local queues do not
    /// take turns.
    pub fn weighted_usage(&self, queue: QueueIx, local_queue: LocalQueueIx, now: Time) -> u128 {
        let Some(sharing) = self.admission_fair_sharing(queue) else { return 0 };
        sharing.weighted_usage(self.resource_weighted_usage(queue, local_queue, now), local_queue)
    }

    pub(super) fn set_clock(&mut self, now: Time) {
        self.usages.clock = self.usages.clock.max(now);
    }

    /// What a local queue had consumed, by all that is known from elsewhere.
    pub(super) fn set_usage(
        &mut self,
        queue: &str,
        local_queue: &str,
        consumed: ConsumedResources,
        at: Time,
    ) {
        let door = (self.queue_ix(queue), self.local_queue_ix(local_queue));
        let usage = self.usages.rows.entry(door).or_default();
        (usage.consumed, usage.at) = (consumed, at);
        usage.consumed.retain(|_, amount| *amount > 0);
        if usage.is_nothing() {
            self.usages.rows.remove(&door);
        }
        self.invalidate_order();
    }

    /// Counts anew what a gang holds through its local queue.
    pub(super) fn serve(&mut self, uid: &str) {
        let gang = self.gang(uid).filter(|gang| gang.state.holds() && self.admission_fair_sharing(gang.queue).is_some());
        let promised = |gang: &Gang| {
            let shape = gang.held().map_or_else(|| gang.remaining(), |(shape, _)| shape);
            ((gang.queue, gang.local_queue), shape.effective_request())
        };
        let now = gang.map(promised);
        let queues = self.quotas.queues();
        let sharing = |(queue, _): Door| queues.get(&queue).and_then(|queue: &Queue| queue.admission_fair_sharing.clone());
        self.usages.hold(uid, now, sharing);
    }
}

fn add(to: &mut ConsumedResources, more: ConsumedResources) {
    for (resource, amount) in more {
        let sum = to.entry(resource).or_default();
        *sum = sum.saturating_add(amount);
    }
}
