//! When the statuses of queues are written: together with later changes, each at most once a second, and so that the write of a
//! change begins within a second.

use std::collections::{BTreeMap, BTreeSet};

use api::MicroTime;
use index::QueueKey;

/// How long a change waits to be written together with later ones, in microseconds.
pub(super) const DELAY_US: i64 = 500_000;

/// How long after a write the next one of the same queue begins at the earliest, in microseconds.
const INTERVAL_US: i64 = 1_000_000;

/// How many queues are written at the same time, beside the writers of Workloads. An API server that is slow to answer them is
/// not slowed down further.
const WRITERS: usize = 8;

/// The queues whose status has changed.
#[derive(Debug, Default)]
pub(super) struct Figures {
    /// When each is to be written.
    due: BTreeMap<QueueKey, MicroTime>,
    /// The same by time, without those that are being written.
    by_time: BTreeSet<(MicroTime, QueueKey)>,
    writing: BTreeSet<QueueKey>,
    /// When the last write of the status of each began, and the uid of the object.
    written: BTreeMap<QueueKey, (String, MicroTime)>,
}

impl Figures {
    /// Applies that the status of the queue with this uid may have changed. The first one is written at once.
    pub(super) fn change(&mut self, key: QueueKey, uid: &str, now: MicroTime) {
        let last = self.written.get(&key).filter(|(of, _)| of == uid);
        let due = last.map_or(now, |(_, last)| later(now, DELAY_US).max(later(*last, INTERVAL_US)));
        self.note(key, due);
    }

    /// Lets the status of a queue be written at a time, or before.
    pub(super) fn note(&mut self, key: QueueKey, due: MicroTime) {
        let known = self.due.get(&key).copied();
        if known.is_some_and(|known| known <= due) {
            return;
        }
        if let Some(known) = known {
            self.by_time.remove(&(known, key.clone()));
        }
        if !self.writing.contains(&key) {
            self.by_time.insert((due, key.clone()));
        }
        self.due.insert(key, due);
    }

    /// When the next one is to be written; `None` while there is none, or no writer for it.
    pub(super) fn due(&self) -> Option<MicroTime> {
        let (due, _) = self.by_time.first()?;
        (self.writing.len() < WRITERS).then_some(*due)
    }

    /// Takes the next one that is due.
    pub(super) fn pop(&mut self, now: MicroTime) -> Option<QueueKey> {
        self.due().filter(|due| *due <= now)?;
        let (_, key) = self.by_time.pop_first()?;
        self.due.remove(&key);
        Some(key)
    }

    /// A write begins; if it is of the status, of the object with a uid at a time.
    pub(super) fn begin(&mut self, key: QueueKey, status_of: Option<(String, MicroTime)>) {
        if let Some(status_of) = status_of {
            self.written.insert(key.clone(), status_of);
        }
        self.writing.insert(key);
    }

    /// A write has ended.
    pub(super) fn end(&mut self, key: &QueueKey) {
        if self.writing.remove(key)
            && let Some(due) = self.due.get(key)
        {
            self.by_time.insert((*due, key.clone()));
        }
    }

    /// Forgets when a queue that is gone was written.
    pub(super) fn forget(&mut self, key: &QueueKey) {
        self.written.remove(key);
    }
}

fn later(time: MicroTime, us: i64) -> MicroTime {
    MicroTime(time.0.saturating_add(us))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(name: usize) -> QueueKey {
        QueueKey::Cluster(format!("queue-{name}"))
    }

    #[test]
    fn changes_of_a_queue_are_written_together_once_a_second() {
        let mut figures = Figures::default();
        let mut writes: Vec<i64> = Vec::new();
        let mut unwritten: Option<i64> = None;
        for ms in 0..10_000 {
            let now = MicroTime(ms * 1000);
            if ms % 7 == 0 {
                figures.change(queue(0), "uid", now);
                unwritten.get_or_insert(ms);
            }
            if let Some(key) = figures.pop(now) {
                figures.begin(key.clone(), Some(("uid".into(), now)));
                figures.end(&key);
                let late = ms - unwritten.take().unwrap();
                assert!(late <= 1000, "{late} ms after the first change");
                writes.push(ms);
            }
        }
        assert_eq!(writes.first(), Some(&0), "the first status does not wait");
        assert!(writes.windows(2).all(|two| two[1] - two[0] >= 1000), "{writes:?}");
        assert_eq!(writes.len(), 10);
    }

    #[test]
    fn a_queue_that_changes_while_it_is_written_is_written_again_and_the_earliest_goes_first() {
        let mut figures = Figures::default();
        let late = MicroTime(5_000_000);
        for name in 0..2 * WRITERS {
            figures.change(queue(2 * WRITERS - name), "uid", MicroTime(i64::try_from(name).unwrap()));
        }
        let popped: Vec<QueueKey> = std::iter::from_fn(|| {
            let key = figures.pop(late)?;
            figures.begin(key.clone(), Some(("uid".into(), late)));
            Some(key)
        })
        .collect();
        let first: Vec<QueueKey> = (0..WRITERS).map(|name| queue(2 * WRITERS - name)).collect();
        assert_eq!(popped, first);
        assert_eq!(figures.due(), None, "no writer is free");
        figures.change(popped[0].clone(), "uid", late);
        figures.end(&popped[0]);
        assert_eq!(figures.pop(late), Some(queue(WRITERS)));
        for key in &popped[1..] {
            figures.end(key);
        }
        while figures.pop(late).is_some() {}
        assert_eq!(figures.due(), Some(later(late, INTERVAL_US)));
        assert_eq!(figures.pop(later(late, INTERVAL_US)), Some(popped[0].clone()));
    }
}
