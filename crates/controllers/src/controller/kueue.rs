//! Starts the next write of each Workload of Kueue, and applies the outcome of writes.

mod figures;
mod load;
mod place_delays;
mod queues;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use api::MicroTime;
use api::kueue::status::{Condition, EVICTED, FINISHED, PODS_READY, PREEMPTED, QUOTA_RESERVED, Status};
use api::kueue::workload::{API_VERSION, Workload};
use index::{Index, KueueChange, KueueKind, QueueKey};
use serde_json::{Value, json};
use tokio::task::AbortHandle;

use self::figures::Figures;
use self::load::Load;
use self::place_delays::PlaceDelays;
use super::steps::retry_pause_us;
use super::{Controller, State, decisions};
use crate::config::Kueue;
use crate::error::Error;
use crate::events::Subject;
use crate::kueue::metrics::{GateRemoval, KueueMetrics, WorkloadChange};
use crate::kueue::step::{self, About, WorkloadEvent, WorkloadStep, queued_at};
use crate::kueue::texts;
use crate::kueue::write::{self, QueueWrite, WorkloadWrite};
use crate::observations::{Observation, Source};

/// How many Workloads may be written at the same time to say why they wait. Admissions have the other writers, so waiting
/// Workloads never hold them up.
const REPORTS_MAX: usize = 4;

/// The state of Kueue's dialect beside the index.
#[derive(Default)]
pub(super) struct KueueState {
    pub(super) metrics: KueueMetrics,
    writing: BTreeMap<String, Writing>,
    /// Those of them that only say why they wait.
    reporting: BTreeSet<String>,
    /// Workloads that are to say why they wait when they may: whether they have said something before, and since when they
    /// wait.
    reports: BTreeSet<(bool, MicroTime, String)>,
    /// Workloads that are to be started or stopped when a writer is free. What is written is decided then, so an admission
    /// that was planned meanwhile for a more important Workload costs no eviction.
    backlog: BTreeSet<(BacklogRank, String)>,
    /// Whether an admission was withdrawn that the last plan has counted.
    has_withdrawn: bool,
    load: Load,
    /// Workloads that have not ended, by uid. Of evicted ones, the queue whose quota they hold, and the eviction.
    running: BTreeMap<String, Option<(String, Condition)>>,
    /// The uids of Workloads whose preemptions an Event has told.
    preemptors: BTreeSet<String>,
    /// Since when Workloads are pending, by uid.
    pending_since: BTreeMap<String, MicroTime>,
    /// When Workloads are to be reconciled although nothing changed.
    due: BTreeSet<(MicroTime, String)>,
    /// Whether the pods of Workloads were ready when they were observed last, by uid.
    ready: BTreeMap<String, bool>,
    failures: BTreeMap<String, Failure>,
    places: PlaceDelays,
    figures: Figures,
    /// The last written status of each queue, and the uid of the object that it is of.
    written: BTreeMap<QueueKey, (String, Value)>,
    /// When the usage of local queues was written last.
    sampled: BTreeMap<QueueKey, MicroTime>,
}

/// The order in which Workloads are written: those whose status holds quota, then the highest priority, then the one that was queued
/// first.
type BacklogRank = (Reverse<bool>, Reverse<i32>, MicroTime);

/// A Workload whose last writes have failed.
#[derive(Default)]
struct Failure {
    /// The number of failed writes.
    count: u32,
    /// The version that was to be changed: it is tried again at this time, a newer one at once.
    version: String,
    until: MicroTime,
}

/// A Workload that is being written.
struct Writing {
    task: AbortHandle,
    /// To be recorded when it is written.
    events: Vec<WorkloadEvent>,
    /// The status before.
    before: Status,
    /// The version of the Workload that is to be changed.
    version: String,
    /// The queue of the Workload that preempts it, and the reason of the preemption.
    preemption: Option<(String, &'static str)>,
}

impl KueueState {
    /// The next time at which something is to be done.
    pub(super) fn due(&self) -> Option<MicroTime> {
        let workloads = self.due.first().map(|(due, _)| *due);
        let has_reports = !self.reports.is_empty() && self.has_reporter();
        let reports = has_reports.then(|| self.load.reports_from());
        let plan = self.has_withdrawn.then(MicroTime::default);
        workloads
            .into_iter()
            .chain(reports)
            .chain(plan)
            .chain(self.places.unready_due)
            .chain(self.figures.due())
            .min()
    }

    /// The number of Workloads that are being written.
    pub(super) fn writes(&self) -> usize {
        self.writing.len()
    }

    /// Whether another Workload may be written to say why it waits.
    fn has_reporter(&self) -> bool {
        self.reporting.len() < REPORTS_MAX
    }

    /// Whether a Workload may say now why it waits.
    fn permits_report(&self, now: MicroTime) -> bool {
        self.has_reporter() && self.load.reports_from() <= now
    }

    fn forget(&mut self, uid: &str, now: MicroTime) {
        if let Some(writing) = self.end_write(uid, now) {
            writing.task.abort();
        }
        self.running.remove(uid);
        self.preemptors.remove(uid);
        self.pending_since.remove(uid);
        self.failures.remove(uid);
        self.ready.remove(uid);
        self.places.forget(uid);
    }

    /// The write of a Workload has ended.
    fn end_write(&mut self, uid: &str, now: MicroTime) -> Option<Writing> {
        let writing = self.writing.remove(uid)?;
        if !self.reporting.remove(uid) {
            self.load.end(now);
        }
        Some(writing)
    }
}

/// The outcome of a write.
#[derive(Debug)]
pub(crate) enum KueueOutcome {
    /// The Workload with this uid.
    Workload(String, Box<Result<Workload, Error>>),
    /// A queue, and the uid of the object that was written.
    Queue(QueueKey, String, QueueWrite, Result<(), Error>),
}

impl Controller {
    /// Kueue's metrics of this controller.
    pub fn kueue_metrics(&self) -> KueueMetrics {
        KueueMetrics::new(self.config.metrics.clone(), self.index.clone(), self.totals.clone())
    }
}

impl State {
    /// Starts the watches of Kueue's kinds when one is served.
    pub(super) fn kueue_served(&mut self, index: &mut Index, definition: &str) {
        let is_on = self.config.kueue != Kueue::Off;
        let Some(kind) = kind_of(definition).filter(|_| is_on) else { return };
        let source = Source::Kueue(kind);
        if kind == KueueKind::Workload {
            index.set_workloads_served();
        }
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

    /// Applies a change of an object of Kueue.
    pub(super) fn kueue_changed(&mut self, index: &mut Index, change: KueueChange, now: MicroTime) {
        if let KueueChange::Workload(workload) = &change {
            let meta = &workload.metadata;
            self.config.meter.seen(&meta.uid, &meta.resource_version);
        } else if let KueueChange::WorkloadDeleted(uid) = &change {
            self.config.meter.seen(uid, "");
        }
        self.kueue.load.observe(index, &change, now);
        index.apply_kueue(change);
    }

    /// Starts the next write of every Workload and queue that changed or is due.
    pub(super) fn reconcile_kueue(&mut self) {
        if !self.has_synced || self.config.kueue == Kueue::Off {
            return;
        }
        let now = self.now();
        let shared = self.index.clone();
        let mut index = Self::index(&shared);
        self.kueue.has_withdrawn = false;
        while self.kueue.due.first().is_some_and(|(due, _)| *due <= now) {
            if let Some((_, uid)) = self.kueue.due.pop_first() {
                index.mark_workload_dirty(&uid);
            }
        }
        while self.has_writer()
            && let Some((_, uid)) = self.kueue.backlog.pop_first()
        {
            self.reconcile_workload(&mut index, &uid, now);
        }
        self.kueue.places.unready_due = index.update_unready(now);
        for uid in index.take_dirty_workloads() {
            self.reconcile_workload(&mut index, &uid, now);
        }
        while self.kueue.permits_report(now)
            && let Some((_, _, uid)) = self.kueue.reports.pop_first()
        {
            self.reconcile_workload(&mut index, &uid, now);
        }
        let queues = index.take_dirty_queues();
        self.forget_gone(&index, &queues);
        self.note_shares(&index, &queues);
        for key in queues {
            self.figures_changed(&index, key, now);
        }
        self.write_queues(&index, now);
    }

    /// Whether another Workload may be started or stopped.
    fn has_writer(&self) -> bool {
        self.kueue.writing.len() - self.kueue.reporting.len() < self.config.writers.max(1)
    }

    fn reconcile_workload(&mut self, index: &mut Index, uid: &str, now: MicroTime) {
        if self.kueue.writing.contains_key(uid) {
            return; // The end of the write marks the Workload as changed.
        }
        self.note_end(index, uid, now);
        let ungatings = index.workload_ungatings(uid);
        index.place_pods(&ungatings);
        let workload = index.workload(uid).map(|row| &row.object);
        for ungating in ungatings {
            let gate = ungating.gates.first();
            let removal = gate.zip(workload).and_then(|(gate, of)| GateRemoval::of(gate, of));
            self.ungate_of_workload(ungating, removal);
        }
        let Some(row) = index.workload(uid) else {
            self.config.meter.traces.forget(uid);
            return self.kueue.forget(uid, now);
        };
        let is_settling = row.is_settling();
        self.settle_failures(index, uid, is_settling, now);
        let Some(row) = index.workload(uid) else { return };
        self.fail_stuck_pods(index, row, now);
        let pending_since = if row.is_pending() {
            *self.kueue.pending_since.entry(uid.to_owned()).or_insert(now)
        } else {
            self.kueue.pending_since.remove(uid);
            now
        };
        let version = &row.object.metadata.resource_version;
        let has_failed = |failure: &Failure| failure.until > now && failure.version == *version;
        if self.kueue.failures.get(uid).is_some_and(has_failed) {
            return; // It is due at that time.
        }
        let may_report = self.kueue.permits_report(now);
        let step = step::decide(index, row, now, pending_since, may_report, &self.config.kueue_options);
        let (write, events) = match step {
            WorkloadStep::Await(due) => {
                self.kueue.due.extend(due.map(|due| (due, uid.to_owned())));
                let failed = step::second_pass_failed(index, row);
                return self.tell_second_pass(index, uid, failed, now);
            }
            WorkloadStep::Write(status, events) => (WorkloadWrite::Status(status), events),
            WorkloadStep::Report => {
                let has_said = row.object.status.condition(QUOTA_RESERVED).is_some();
                self.kueue.reports.insert((has_said, pending_since, uid.to_owned()));
                return;
            }
            WorkloadStep::Deactivate => (WorkloadWrite::Spec(json!({"active": false})), Vec::new()),
            WorkloadStep::Reprioritize(priority) => {
                (WorkloadWrite::Spec(json!({"priority": priority})), Vec::new())
            }
            WorkloadStep::Delete => (WorkloadWrite::Delete, vec![step::deleted()]),
            WorkloadStep::Withdraw => {
                self.kueue.has_withdrawn = true;
                return index.admission_failed(uid);
            }
        };
        if row.is_pending() && write.status().is_some() {
            self.kueue.reporting.insert(uid.to_owned());
            self.kueue.load.report(now);
        } else if !self.has_writer() {
            let object = &row.object;
            let holds_quota = object.status.is(QUOTA_RESERVED);
            let rank = (Reverse(holds_quota), Reverse(object.spec.priority), queued_at(object, now));
            self.kueue.backlog.insert((rank, uid.to_owned()));
            return;
        } else {
            self.kueue.load.begin();
        }
        let (client, object, key) = (self.client.clone(), row.object.clone(), uid.to_owned());
        let preemption = row.eviction.as_ref().zip(write.status()).and_then(|(eviction, status)| {
            let is_new = status.is(PREEMPTED) && !object.status.is(PREEMPTED);
            let queue = index.world().gang(&eviction.preemptor).map(|gang| gang.queue);
            let queue = index.world().queue_name(queue.filter(|_| is_new)?).to_owned();
            Some((queue, texts::preemption_reason(eviction.reason).0))
        });
        self.config.meter.traces.writes(uid);
        let (before, version) = (object.status.clone(), object.metadata.resource_version.clone());
        let (permits, observations) = (self.permits.clone(), self.observations.clone());
        let task = self.tasks.spawn(async move {
            let _permit = permits.acquire().await;
            let written = write::workload(&client, &object, &write).await;
            // The receiver is gone when the controller has ended.
            drop(observations.send(Observation::KueueDone(KueueOutcome::Workload(key, Box::new(written)))));
        });
        self.kueue.writing.insert(uid.to_owned(), Writing { task, events, before, version, preemption });
    }

    /// Counts Workloads whose pods became ready, that have ended, and evicted ones that have released their quota.
    fn note_end(&mut self, index: &Index, uid: &str, now: MicroTime) {
        let Some(row) = index.workload(uid) else { return };
        let status = &row.object.status;
        let mut totals = self.kueue.metrics.totals();
        let is_ready = status.is(PODS_READY);
        // Pods that replace others say nothing about the start.
        let is_start = status.condition(PODS_READY).is_some_and(|ready| ready.reason != "Recovered");
        if self.kueue.ready.insert(uid.to_owned(), is_ready) == Some(false) && is_ready && is_start {
            totals.pods_ready(index, &self.config.metrics, &row.object);
        }
        if status.is(FINISHED) {
            if self.kueue.running.remove(uid).is_some() {
                totals.finished(index, &self.config.metrics, row);
            }
            return;
        }
        let evicted = status.condition(EVICTED).filter(|evicted| evicted.is_true());
        let queue = status.admission.as_ref().filter(|_| status.is(QUOTA_RESERVED));
        let holds = queue.zip(evicted).map(|(queue, evicted)| (queue.cluster_queue.clone(), evicted.clone()));
        let is_released = holds.is_none();
        let before = self.kueue.running.insert(uid.to_owned(), holds).flatten();
        if let Some((queue, evicted)) = before.filter(|_| is_released) {
            let since = evicted.since().unwrap_or(now);
            let us = u64::try_from(now.0 - since.0).unwrap_or_default();
            totals.released(index, &self.config.metrics, &queue, &evicted.reason, us);
        }
    }

    /// Applies the outcome of a write.
    pub(super) fn kueue_done(&mut self, index: &mut Index, outcome: KueueOutcome, now: MicroTime) {
        match outcome {
            KueueOutcome::Workload(uid, written) => self.workload_written(index, &uid, *written, now),
            KueueOutcome::Queue(key, uid, write, written) => {
                self.kueue.figures.end(&key);
                match (written, write) {
                    (Ok(()), QueueWrite::Status(status)) => {
                        drop(self.kueue.written.insert(key, (uid, status)));
                    }
                    (Ok(()), QueueWrite::Finalizers(_)) => {}
                    (Err(error), _) => {
                        tracing::warn!(?key, %error, "the status of a queue was not written, retrying");
                        self.figures_changed(index, key, now);
                    }
                }
            }
        }
    }

    /// Records an Event about a Workload, or about another one. The first of several preemptions by one Workload is told.
    fn record_workload_event(&mut self, index: &Index, workload: &Workload, event: &WorkloadEvent) {
        let about = match &event.about {
            About::Other(uid) => index.workload(uid).map(|row| &row.object),
            About::Workload => Some(workload),
            About::Owner => {
                if let Some(owner) = owner(workload) {
                    self.recorder.record_event(&owner, event.is_warning, &event.reason, &event.text);
                }
                return;
            }
        };
        let Some(about) = about else { return };
        if event.reason == step::PREEMPTED_ANOTHER
            && !self.kueue.preemptors.insert(about.metadata.uid.clone())
        {
            return;
        }
        self.recorder.record_event(&subject(about), event.is_warning, &event.reason, &event.text);
    }

    fn workload_written(
        &mut self,
        index: &mut Index,
        uid: &str,
        written: Result<Workload, Error>,
        now: MicroTime,
    ) {
        let Some(Writing { events, before, version, preemption, .. }) = self.kueue.end_write(uid, now) else {
            return;
        };
        match written {
            Ok(workload) => {
                let change = WorkloadChange { workload: &workload, before: &before, preemption, now };
                let mut totals = self.kueue.metrics.totals();
                totals.written(index, &self.config.metrics, &change);
                drop(totals);
                let known = index.workload(uid).map_or("", |row| &row.object.metadata.resource_version);
                self.config.meter.written(uid, &workload.metadata.resource_version, known);
                decisions::workload(&self.config.meter, &workload, &before, now);
                self.kueue.failures.remove(uid);
                for event in events {
                    self.record_workload_event(index, &workload, &event);
                }
                index.workload_written(workload);
            }
            Err(error) => {
                self.config.meter.count("retries_total", &[("cause", error.cause()), ("of", "workloads")]);
                let failure = self.kueue.failures.entry(uid.to_owned()).or_default();
                failure.until = MicroTime(now.0 + retry_pause_us(failure.count));
                failure.count += 1;
                failure.version.clone_from(&version);
                self.kueue.due.insert((failure.until, uid.to_owned()));
                if !matches!(error, Error::Conflict(_) | Error::NotFound(_)) {
                    tracing::warn!(uid, %error, "a Workload was not written, retrying");
                }
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
/// The job of a Workload.
fn owner(workload: &Workload) -> Option<Subject> {
    let meta = &workload.metadata;
    let owner = meta.controller().or_else(|| meta.owner_references.first())?;
    Some(Subject {
        api_version: owner.api_version.clone(),
        kind: owner.kind.clone(),
        namespace: meta.namespace.clone(),
        name: owner.name.clone(),
        uid: owner.uid.clone(),
        resource_version: String::new(),
    })
}

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
