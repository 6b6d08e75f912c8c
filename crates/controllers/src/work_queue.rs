//! The work queue of a loop beside that of the planner: which items the loop looks at, and when. After `workqueue` of client-go: an
//! item is in it once, and not looked at while it is written; in addition, not before the watches show the write.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use api::MicroTime;

use crate::config::Clock;
use crate::controller::retry_pause_us;

/// How long a write may take until a watch shows it, in microseconds. Then it counts as shown, because it may have changed nothing.
const UNSEEN_MAX_US: i64 = 5_000_000;
/// Each write of an item takes this much of what the item may write, in microseconds: in the long run, it is written four times in a
/// second. Whatever authors and other controllers do to an object, they cause no more writes about it.
const WRITE_COST_US: i64 = 250_000;
/// So much an item may have used up at once, in microseconds. Large sets need many writes in a row.
const BURST_US: i64 = 64 * WRITE_COST_US;
/// The longest sleep of a loop without a deadline.
const SLEEP_MAX: Duration = Duration::from_hours(1);

/// Items of the type `K`. `B` is what the watches show of an item before a write.
pub struct WorkQueue<K, B> {
    clock: Clock,
    /// To be looked at.
    dirty: BTreeSet<K>,
    /// To be looked at from a time on.
    due: BTreeSet<(MicroTime, K)>,
    /// The failed writes of an item since there was nothing to do about it, and when it is tried again.
    failures: BTreeMap<K, (u32, MicroTime)>,
    /// Until when what an item has written is used up.
    spent: BTreeMap<K, MicroTime>,
    writing: BTreeSet<K>,
    /// Those that have changed meanwhile.
    missed: BTreeSet<K>,
    /// Items whose last write the watches have not shown yet, and when it counts as shown.
    unseen: BTreeMap<K, (B, MicroTime)>,
}

impl<K: Ord + Clone, B> WorkQueue<K, B> {
    /// An empty queue.
    pub fn new(clock: Clock) -> Self {
        Self {
            clock,
            dirty: BTreeSet::new(),
            due: BTreeSet::new(),
            failures: BTreeMap::new(),
            spent: BTreeMap::new(),
            writing: BTreeSet::new(),
            missed: BTreeSet::new(),
            unseen: BTreeMap::new(),
        }
    }

    /// The present time.
    pub fn now(&self) -> MicroTime {
        MicroTime((self.clock)().as_microsecond())
    }

    /// How long the loop sleeps if nothing changes.
    pub fn sleep(&self) -> Duration {
        let Some((due, _)) = self.due.first() else { return SLEEP_MAX };
        let us = u64::try_from(due.0 - self.now().0).unwrap_or_default();
        Duration::from_micros(us).min(SLEEP_MAX)
    }

    /// Adds items that have changed.
    pub fn add(&mut self, items: impl IntoIterator<Item = K>) {
        self.dirty.extend(items);
    }

    /// Adds an item that is to be looked at from a time on.
    pub fn add_at(&mut self, time: MicroTime, item: K) {
        self.due.insert((time, item));
    }

    /// The number of items that have changed, and of items that are being written.
    pub fn depth(&self) -> usize {
        self.dirty.len() + self.writing.len()
    }

    /// Takes the items that have changed or are due.
    pub fn take(&mut self, now: MicroTime) -> BTreeSet<K> {
        while self.due.first().is_some_and(|(due, _)| *due <= now) {
            self.dirty.extend(self.due.pop_first().map(|(_, item)| item));
        }
        std::mem::take(&mut self.dirty)
    }

    /// Whether an item is written, was written too often lately, or the watches have not shown the last write yet: a decision would
    /// repeat it. The end of the write, the time and the watch add the item again.
    pub fn is_busy(&mut self, item: &K, now: MicroTime, is_shown: impl FnOnce(&B) -> bool) -> bool {
        if self.writing.contains(item) {
            self.missed.insert(item.clone());
            return true;
        }
        if let Some(spent) = self.spent.get(item) {
            let from = MicroTime(spent.0 - BURST_US);
            if from > now {
                self.due.insert((from, item.clone()));
                return true;
            }
        }
        let Some((before, until)) = self.unseen.get(item) else { return false };
        if is_shown(before) || *until <= now {
            self.unseen.remove(item);
            return false;
        }
        true
    }

    /// A write begins.
    pub fn begin(&mut self, item: K) {
        let now = self.now();
        let spent = self.spent.entry(item.clone()).or_insert(now);
        *spent = MicroTime(spent.0.max(now.0) + WRITE_COST_US);
        self.writing.insert(item);
    }

    /// A write has ended. An item that has changed meanwhile is looked at again, also if nothing was written.
    pub fn end(&mut self, item: &K) {
        self.writing.remove(item);
        self.dirty.extend(self.missed.take(item));
    }

    /// Looks at an item again when the watches show its write.
    pub fn expect(&mut self, item: K, before: B) {
        let until = MicroTime(self.now().0 + UNSEEN_MAX_US);
        self.unseen.insert(item.clone(), (before, until));
        self.due.insert((until, item.clone()));
        self.dirty.insert(item);
    }

    /// Looks at an item again after a pause, which is longer after each failure. Returns when. One that has failed again because it has
    /// changed meanwhile is not looked at twice.
    pub fn retry(&mut self, item: K) -> MicroTime {
        let before = self.failures.get(&item).copied();
        let failures = before.map_or(0, |(failures, _)| failures);
        let until = MicroTime(self.now().0 + retry_pause_us(failures));
        self.failures.insert(item.clone(), (failures + 1, until));
        if let Some((_, earlier)) = before {
            self.due.remove(&(earlier, item.clone()));
        }
        self.due.insert((until, item));
        until
    }

    /// There is nothing to do about an item: the next pause is the first one again. The success of one write is no such sign, because
    /// it may be the first of several that fail together.
    pub fn rest(&mut self, item: &K) {
        self.failures.remove(item);
        let now = self.now();
        if self.spent.get(item).is_some_and(|spent| *spent <= now) {
            self.spent.remove(item);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// A queue and its time, in seconds.
    fn queue() -> (WorkQueue<u32, ()>, Arc<Mutex<i64>>) {
        let time = Arc::new(Mutex::new(0));
        let shown = time.clone();
        let clock = move || jiff::Timestamp::from_second(*shown.lock().unwrap()).unwrap();
        (WorkQueue::new(Arc::new(clock)), time)
    }

    fn write(queue: &mut WorkQueue<u32, ()>, item: u32) -> bool {
        let now = queue.now();
        if queue.is_busy(&item, now, |()| true) {
            return false;
        }
        queue.begin(item);
        queue.end(&item);
        true
    }

    #[test]
    fn an_item_that_changes_while_it_is_written_is_looked_at_again() {
        let (mut queue, _) = queue();
        let now = queue.now();
        queue.begin(1);
        queue.add([1]);
        assert_eq!(queue.take(now), [1].into());
        assert!(queue.is_busy(&1, now, |()| true));
        queue.end(&1);
        assert_eq!(queue.take(now), [1].into());
        queue.begin(1);
        queue.end(&1);
        assert!(queue.take(now).is_empty(), "nothing has changed");
    }

    #[test]
    fn an_item_that_fails_again_before_its_next_try_is_tried_once() {
        let (mut queue, _) = queue();
        let first = queue.retry(1);
        let second = queue.retry(1);
        assert!(queue.take(first).is_empty());
        assert_eq!(queue.take(second), [1].into());
        assert!(queue.due.is_empty());
    }

    #[test]
    fn an_item_is_written_four_times_in_a_second_in_the_long_run() {
        let (mut queue, time) = queue();
        assert_eq!((0..1_000).filter(|_| write(&mut queue, 1)).count(), 65);
        assert!(write(&mut queue, 2), "others are written meanwhile");
        *time.lock().unwrap() = 10;
        let now = queue.now();
        assert_eq!(queue.take(now), [1].into(), "it is looked at again in time");
        assert_eq!((0..1_000).filter(|_| write(&mut queue, 1)).count(), 40);
    }
}
