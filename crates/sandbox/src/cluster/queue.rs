//! A rate-limited work queue of keys, as in client-go. A key is queued once and never has two workers. Keys can be
//! delayed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::client::Error;

/// Shortest and longest delay before a failed key is retried.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(30));

/// Concurrent reconciliations of one controller.
const WORKERS: usize = 16;

/// Keys that wait for reconciliation.
pub(crate) struct Queue<T> {
    state: Mutex<State<T>>,
    changed: Notify,
}

struct State<T> {
    ready: VecDeque<T>,
    /// Keys in `ready`, and keys to queue again when their worker is done.
    dirty: BTreeSet<T>,
    processing: BTreeSet<T>,
    delayed: BTreeSet<(Instant, T)>,
    /// The delay of each key in `delayed`.
    at: BTreeMap<T, Instant>,
    failures: BTreeMap<T, u32>,
}

impl<T: Ord + Clone> Queue<T> {
    pub(crate) fn new() -> Self {
        let state = State {
            ready: VecDeque::new(),
            dirty: BTreeSet::new(),
            processing: BTreeSet::new(),
            delayed: BTreeSet::new(),
            at: BTreeMap::new(),
            failures: BTreeMap::new(),
        };
        Self { state: Mutex::new(state), changed: Notify::new() }
    }

    /// Adds a key, to be reconciled as soon as possible.
    pub(crate) fn add(&self, key: T) {
        self.lock().add(key);
        self.changed.notify_one();
    }

    /// Adds a key, to be reconciled at `at` or earlier.
    pub(crate) fn add_at(&self, key: T, at: Instant) {
        let mut state = self.lock();
        if state.at.get(&key).is_some_and(|earlier| *earlier <= at) {
            return;
        }
        state.cancel_delay(&key);
        state.at.insert(key.clone(), at);
        state.delayed.insert((at, key));
        drop(state);
        self.changed.notify_one();
    }

    /// Waits for the next key.
    async fn next(&self) -> T {
        loop {
            let changed = self.changed.notified();
            let next_delayed = {
                let mut state = self.lock();
                state.queue_delayed(Instant::now());
                if let Some(key) = state.pop() {
                    return key;
                }
                state.delayed.first().map(|(at, _)| *at)
            };
            match next_delayed {
                Some(at) => tokio::select! {
                    () = changed => {}
                    () = sleep_until(at) => {}
                },
                None => changed.await,
            }
        }
    }

    /// Marks a key as done. A failed key is queued again after an exponential back-off.
    fn done(&self, key: &T, result: Result<Option<Instant>, &Error>) {
        let mut state = self.lock();
        state.processing.remove(key);
        if state.dirty.contains(key) {
            state.ready.push_back(key.clone());
        }
        let again = if let Ok(again) = result {
            state.failures.remove(key);
            again
        } else {
            let failures = state.failures.entry(key.clone()).or_insert(0);
            let pause = BACK_OFF.0.saturating_mul(1 << (*failures).min(16)).min(BACK_OFF.1);
            *failures += 1;
            Some(Instant::now() + pause)
        };
        drop(state);
        if let Some(at) = again {
            self.add_at(key.clone(), at);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Ord + Clone> State<T> {
    fn add(&mut self, key: T) {
        if self.dirty.insert(key.clone()) && !self.processing.contains(&key) {
            self.ready.push_back(key);
        }
    }

    fn pop(&mut self) -> Option<T> {
        let key = self.ready.pop_front()?;
        self.dirty.remove(&key);
        self.processing.insert(key.clone());
        Some(key)
    }

    fn queue_delayed(&mut self, now: Instant) {
        while let Some((_, key)) = self.delayed.first().filter(|(at, _)| *at <= now).cloned() {
            self.cancel_delay(&key);
            self.add(key);
        }
    }

    fn cancel_delay(&mut self, key: &T) {
        if let Some(at) = self.at.remove(key) {
            self.delayed.remove(&(at, key.clone()));
        }
    }
}

/// A level-triggered controller of one kind of object.
pub(crate) trait Controller: Send + Sync + 'static {
    const NAME: &'static str;
    type Key: Ord + Clone + Debug + Send + Sync;

    fn queue(&self) -> &Queue<Self::Key>;

    /// Compares the current state with the desired state and writes the difference. Returns when to reconcile again,
    /// if time alone can change the outcome.
    fn reconcile(&self, key: Self::Key) -> impl Future<Output = Result<Option<Instant>, Error>> + Send;
}

/// Runs a controller without end, with several workers.
pub(crate) async fn run_controller<C: Controller>(controller: Arc<C>) {
    let (name, queue) = (C::NAME, controller.queue());
    let mut running = FuturesUnordered::new();
    loop {
        tokio::select! {
            key = queue.next(), if running.len() < WORKERS => {
                let work = controller.reconcile(key.clone());
                running.push(async move { (key, work.await) });
            }
            Some((key, result)) = running.next() => {
                if let Err(error) = &result {
                    if error.is_conflict() {
                        tracing::debug!(controller = name, ?key, %error, "conflict, reconciling again");
                    } else {
                        tracing::warn!(controller = name, ?key, %error, "reconciliation failed, retrying");
                    }
                }
                queue.done(&key, result.as_ref().copied());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_key_added_while_it_is_processed_is_queued_once_more() {
        let queue = Queue::new();
        queue.add("a");
        assert_eq!(queue.next().await, "a");
        queue.add("a");
        queue.add("a");
        queue.add("b");
        assert_eq!(queue.next().await, "b");
        queue.done(&"a", Ok(None));
        assert_eq!(queue.next().await, "a");
        queue.done(&"a", Ok(None));
        assert!(tokio::time::timeout(Duration::from_secs(1), queue.next()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn the_earliest_of_several_delays_applies() {
        let queue = Queue::new();
        let start = Instant::now();
        queue.add_at("a", start + Duration::from_secs(9));
        queue.add_at("a", start + Duration::from_secs(3));
        queue.add_at("a", start + Duration::from_secs(5));
        assert_eq!(queue.next().await, "a");
        assert_eq!(start.elapsed().as_secs(), 3);
    }
}
