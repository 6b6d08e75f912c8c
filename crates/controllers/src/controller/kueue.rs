//! Starts the next write of each Workload and queue of Kueue, and applies its outcome.

use std::collections::{BTreeMap, BTreeSet};

use api::MicroTime;
use api::kueue::workload::{API_VERSION, Workload};
use index::{Index, KueueKind, QueueKey};
use serde_json::Value;
use tokio::task::AbortHandle;

use super::State;
use super::steps::retry_pause_us;
use crate::config::Kueue;
use crate::error::Error;
use crate::events::Subject;
use crate::kueue::statuses;
use crate::kueue::step::{self, WorkloadEvent, WorkloadStep};
use crate::kueue::write::{self, QueueWrite};
use crate::observations::{Observation, Source};

/// How long the figures of a queue wait to be written together with later changes, in microseconds.
const FIGURES_DELAY_US: i64 = 500_000;

/// The state of Kueue's dialect beside the index.
#[derive(Default)]
pub(super) struct KueueState {
    writing: BTreeMap<String, (AbortHandle, Vec<WorkloadEvent>)>,
    /// Since when Workloads are pending, by uid.
    pending_since: BTreeMap<String, MicroTime>,
    /// When Workloads are to be reconciled although nothing changed.
    due: BTreeSet<(MicroTime, String)>,
    failures: BTreeMap<String, u32>,
    /// Queues whose figures have changed, and when they are written.
    changed_queues: BTreeMap<QueueKey, MicroTime>,
    writing_queues: BTreeSet<QueueKey>,
    /// The last written status of each queue.
    written: BTreeMap<QueueKey, Value>,
}

impl KueueState {
    /// The next time at which something is to be done.
    pub(super) fn due(&self) -> Option<MicroTime> {
        let workloads = self.due.first().map(|(due, _)| *due);
        let is_free = |key: &&QueueKey| !self.writing_queues.contains(*key);
        let queues = self.changed_queues.iter().filter(|(key, _)| is_free(key)).map(|(_, due)| *due).min();
        workloads.into_iter().chain(queues).min()
    }

    fn forget(&mut self, uid: &str) {
        if let Some((task, _)) = self.writing.remove(uid) {
            task.abort();
        }
        self.pending_since.remove(uid);
        self.failures.remove(uid);
    }
}

/// The outcome of a write.
#[derive(Debug)]
pub(crate) enum KueueOutcome {
    /// The Workload with this uid.
    Workload(String, Box<Result<Workload, Error>>),
    /// A queue.
    Queue(QueueKey, QueueWrite, Result<(), Error>),
}

impl State {
    /// Starts the watches of Kueue's kinds when one is served.
    pub(super) fn kueue_served(&mut self, definition: &str) {
        let is_on = self.config.kueue != Kueue::Off;
        let Some(kind) = kind_of(definition).filter(|_| is_on) else { return };
        let source = Source::Kueue(kind);
        if !self.watches.has(&source) {
            self.watches.kueue(kind);
            if !self.has_synced {
                self.unsynced.insert(source);
            }
        }
    }

    /// Forgets the objects of a kind of Kueue whose CRD is deleted.
    pub(super) fn kueue_deleted(&mut self, index: &mut Index, definition: &str) {
        let Some(kind) = kind_of(definition) else { return };
        let source = Source::Kueue(kind);
        self.watches.stop(&source);
        self.unsynced.remove(&source);
        index.forget_kueue(kind);
    }

    /// Starts the next write of every Workload and queue that changed or is due.
    pub(super) fn reconcile_kueue(&mut self) {
        if !self.has_synced || self.config.kueue == Kueue::Off {
            return;
        }
        let now = self.now();
        let shared = self.index.clone();
        let mut index = Self::index(&shared);
        while self.kueue.due.first().is_some_and(|(due, _)| *due <= now) {
            if let Some((_, uid)) = self.kueue.due.pop_first() {
                index.mark_workload_dirty(&uid);
            }
        }
        for uid in index.take_dirty_workloads() {
            self.reconcile_workload(&mut index, &uid, now);
        }
        for key in index.take_dirty_queues() {
            self.kueue.changed_queues.entry(key).or_insert(MicroTime(now.0 + FIGURES_DELAY_US));
        }
        self.write_queues(&index, now);
    }

    fn reconcile_workload(&mut self, index: &mut Index, uid: &str, now: MicroTime) {
        if self.kueue.writing.contains_key(uid) {
            return; // The end of the write marks the Workload as changed.
        }
        let Some(row) = index.workload(uid) else { return self.kueue.forget(uid) };
        let pending_since = if row.is_pending() {
            *self.kueue.pending_since.entry(uid.to_owned()).or_insert(now)
        } else {
            self.kueue.pending_since.remove(uid);
            now
        };
        let (status, events) = match step::decide(index, row, now, pending_since) {
            WorkloadStep::Await(due) => {
                self.kueue.due.extend(due.map(|due| (due, uid.to_owned())));
                return;
            }
            WorkloadStep::Write(status, events) => (Some(status), events),
            WorkloadStep::Deactivate => (None, Vec::new()),
            WorkloadStep::Withdraw => return index.admission_failed(uid),
        };
        let (client, object, key) = (self.client.clone(), row.object.clone(), uid.to_owned());
        let (permits, observations) = (self.permits.clone(), self.observations.clone());
        let task = self.tasks.spawn(async move {
            let _permit = permits.acquire().await;
            let written = match status {
                Some(status) => write::admission(&client, &object, &status).await,
                None => write::deactivate(&client, &object).await,
            };
            // The receiver is gone when the controller has ended.
            drop(observations.send(Observation::KueueDone(KueueOutcome::Workload(key, Box::new(written)))));
        });
        self.kueue.writing.insert(uid.to_owned(), (task, events));
    }

    fn write_queues(&mut self, index: &Index, now: MicroTime) {
        let is_due =
            |key: &QueueKey, due: &MicroTime| *due <= now && !self.kueue.writing_queues.contains(key);
        let due = self.kueue.changed_queues.iter().filter(|(key, due)| is_due(key, due));
        let due: Vec<QueueKey> = due.map(|(key, _)| key.clone()).collect();
        for key in due {
            self.kueue.changed_queues.remove(&key);
            let Some(write) = self.queue_write(index, &key, now) else { continue };
            self.kueue.writing_queues.insert(key.clone());
            let (client, permits) = (self.client.clone(), self.permits.clone());
            let observations = self.observations.clone();
            self.tasks.spawn(async move {
                let _permit = permits.acquire().await;
                let written = write::queue(&client, &key, &write).await;
                drop(observations.send(Observation::KueueDone(KueueOutcome::Queue(key, write, written))));
            });
        }
    }

    /// What is to be written about a queue or flavor: first its finalizers, then its status if it is another one.
    fn queue_write(&mut self, index: &Index, key: &QueueKey, now: MicroTime) -> Option<QueueWrite> {
        if let Some(finalizers) = index.wanted_finalizers(key) {
            return Some(QueueWrite::Finalizers(finalizers));
        }
        let Some(status) = statuses::of(index, key, now) else {
            self.kueue.written.remove(key);
            return None;
        };
        (self.kueue.written.get(key) != Some(&status)).then_some(QueueWrite::Status(status))
    }

    /// Applies the outcome of a write.
    pub(super) fn kueue_done(&mut self, index: &mut Index, outcome: KueueOutcome, now: MicroTime) {
        match outcome {
            KueueOutcome::Workload(uid, written) => self.workload_written(index, &uid, *written, now),
            KueueOutcome::Queue(key, write, written) => {
                self.kueue.writing_queues.remove(&key);
                match (written, write) {
                    (Ok(()), QueueWrite::Status(status)) => drop(self.kueue.written.insert(key, status)),
                    (Ok(()), QueueWrite::Finalizers(_)) => {}
                    (Err(error), _) => {
                        tracing::warn!(?key, %error, "the status of a queue was not written, retrying");
                        self.kueue.changed_queues.entry(key).or_insert(MicroTime(now.0 + FIGURES_DELAY_US));
                    }
                }
            }
        }
    }

    fn workload_written(
        &mut self,
        index: &mut Index,
        uid: &str,
        written: Result<Workload, Error>,
        now: MicroTime,
    ) {
        let Some((_, events)) = self.kueue.writing.remove(uid) else { return };
        match written {
            Ok(workload) => {
                self.kueue.failures.remove(uid);
                let subject = subject(&workload);
                for event in events {
                    self.recorder.record_event(&subject, event.is_warning, &event.reason, &event.text);
                }
                index.workload_written(workload);
            }
            Err(error) => {
                let failures = self.kueue.failures.entry(uid.to_owned()).or_default();
                let pause_us = retry_pause_us(*failures);
                *failures += 1;
                if !matches!(error, Error::Conflict(_) | Error::NotFound(_)) {
                    tracing::warn!(uid, %error, "a Workload was not written, retrying");
                }
                self.kueue.due.insert((MicroTime(now.0 + pause_us), uid.to_owned()));
                index.admission_failed(uid);
            }
        }
        index.mark_workload_dirty(uid);
    }
}

/// The kind that a CRD of this name defines.
fn kind_of(definition: &str) -> Option<KueueKind> {
    let plural = definition.strip_suffix(api::kueue::GROUP)?.strip_suffix('.')?;
    KueueKind::ALL.into_iter().find(|kind| kind.resource().1 == plural)
}

/// The Workload as the subject of Events.
fn subject(workload: &Workload) -> Subject {
    let meta = &workload.metadata;
    Subject {
        api_version: API_VERSION.into(),
        kind: KueueKind::Workload.resource().0.into(),
        namespace: meta.namespace.clone(),
        name: meta.name.clone(),
        uid: meta.uid.clone(),
        resource_version: meta.resource_version.clone(),
    }
}
