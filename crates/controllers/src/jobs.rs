//! Jobs of Kueue's API: gives every managed job a Workload, starts the job when the Workload is admitted, and stops it when the
//! Workload is evicted. After `pkg/controller/jobframework/reconciler.go` of Kueue v0.19.
//!
//! - `step`: the next write about a job: a pure function of what was observed
//! - `stop`: the steps of stopping a job, and when its quota is released
//! - `orphan`: Workloads whose jobs are gone, or have left their queue
//! - `blocked`: the condition of jobs that get no Workload
//! - `owner`: jobs that another job owns
//! - `pods`: the steps about pods, alone and in groups
//! - `sets`: the steps about sets of pods, which make groups of them
//! - `left`: the steps about the Workloads that a job has left behind
//! - `groups`: the steps about sets of several groups
//! - `limits`: what a Workload can hold
//! - `restarts`: when a job may be started again that something else suspends
//! - `source`: what is watched
//! - `started`: the pods that keep the quota of Workloads
//! - `objects`: the observed jobs, Workloads, flavors and classes
//! - `slices`: jobs that change their size while they run
//! - `workload`: the Workload of a job
//! - `write`: the writes, and their requests
//!
//! The loop is beside that of the planner, and both meet in the Workloads: a job is no input of a plan.

mod blocked;
mod groups;
mod left;
mod limits;
mod objects;
mod orphan;
mod owner;
mod pods;
mod restarts;
mod sets;
mod slices;
mod source;
mod started;
mod step;
mod stop;
mod workload;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::MicroTime;
use api::kueue::jobs::{CopiedKeys, JobKind};
use api::selector::LabelSelector;
use kube::Client;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::config::Config;
use crate::error::Error;
use crate::events::{Recorder, Subject};
use crate::kueue::metrics::KueueMetrics;
use crate::meter::Meter;
use crate::observations::{Observation, Receiver, Source, queue};
use crate::watched::Change;
use crate::watches::Watches;
use crate::work_queue::WorkQueue;

pub use blocked::BlockedJob;
pub(crate) use blocked::BlockedJobs;
use blocked::{WRITE_REFUSED, tell_refusal};
use objects::{JobKey, Objects};
use owner::Question;
pub(crate) use source::JobsSource;
use step::{JobEvent, JobStep};
pub use workload::workload_problem;
use write::{Before, Write};

/// Which jobs are managed, and how.
#[derive(Debug, Clone)]
pub struct JobsConfig {
    /// The kinds.
    pub kinds: Vec<&'static JobKind>,
    /// Kinds whose jobs another process starts and stops: a job of `kinds` that one of them owns follows it.
    pub others: Vec<&'static JobKind>,
    /// Whether jobs without the label of a queue are managed, too.
    pub manages_unnamed: bool,
    /// The namespaces whose jobs are managed.
    pub namespaces: LabelSelector,
    /// Whether the condition `PodsReady` is kept.
    pub waits_for_pods: bool,
    /// Whether the quota of pods that have ended is given back.
    pub reclaims_pods: bool,
    /// Whether the annotation of a job with the controllers that hold it back counts.
    pub gates_admission: bool,
    /// Whether jobs may change their size while they run.
    pub slices: bool,
    /// The labels and annotations that a Workload gets from its job.
    pub copied: CopiedKeys,
    /// Whether pods are managed only if a set of pods, such as a `StatefulSet`, holds them back.
    pub pods_of_sets_only: bool,
    /// Whether a pod that is preempted, and not in a group, gives up its place in the queue: it is deleted, and cannot run again.
    pub parks_lone_pods: bool,
    /// Whether pods that are deleted give their quota back at once.
    pub frees_deleted_pods: bool,
    /// How long after its deactivation by a controller a job is deleted, in microseconds. `None`: it is kept.
    pub retention_us: Option<i64>,
}

impl Default for JobsConfig {
    fn default() -> Self {
        Self {
            kinds: Vec::new(),
            others: Vec::new(),
            manages_unnamed: false,
            namespaces: LabelSelector::default(),
            waits_for_pods: false,
            reclaims_pods: true,
            gates_admission: true,
            slices: true,
            copied: CopiedKeys::default(),
            pods_of_sets_only: false,
            parks_lone_pods: true,
            frees_deleted_pods: false,
            retention_us: None,
        }
    }
}

impl JobsConfig {
    /// The kinds that are watched: those that are started and stopped, then the others.
    fn watched(&self) -> impl Iterator<Item = &'static JobKind> {
        self.kinds.iter().chain(&self.others).copied()
    }

    /// The kind at this position among those that are watched, if its jobs are started and stopped.
    fn kind(&self, at: usize) -> Option<&'static JobKind> {
        self.kinds.get(at).copied()
    }
}

/// The loop of the jobs.
pub(crate) struct Jobs {
    client: Client,
    config: JobsConfig,
    objects: Objects,
    observations: Receiver,
    /// They end with the loop.
    _watches: Watches,
    unsynced: BTreeSet<Source>,
    queue: WorkQueue<JobKey, Vec<Before>>,
    tasks: JoinSet<(JobKey, Written)>,
    permits: Arc<Semaphore>,
    recorder: Recorder,
    /// What a job was told last that cannot go on. It is told again when it changes.
    told: BTreeMap<JobKey, String>,
    /// Why the API server refused the last write about a job, until it needs none.
    refused: BTreeMap<JobKey, String>,
    /// Jobs that get no Workload, for views.
    blocked: BlockedJobs,
    /// Kueue's metrics, which measure when gates are removed.
    metrics: KueueMetrics,
    /// Tells views that they have changed.
    changes: watch::Sender<u64>,
    meter: Meter,
}

/// The outcome of a write, and the Events to record about it.
struct Written {
    before: Vec<Before>,
    result: Result<bool, Error>,
    subject: Subject,
    events: Vec<JobEvent>,
    /// When the job was admitted that the write has started.
    started: Option<MicroTime>,
    /// What was asked instead of a write; the result is the answer.
    asked: Option<Question>,
}

impl Jobs {
    /// Starts the watches. `None` if no kind of jobs is managed.
    pub(crate) fn of(client: &Client, config: &Config, metrics: KueueMetrics) -> Option<Self> {
        let is_on = !config.jobs.kinds.is_empty();
        is_on.then(|| Self::new(client.clone(), config, metrics))
    }

    fn new(client: Client, config: &Config, metrics: KueueMetrics) -> Self {
        let Config { clock, writers, meter, jobs, .. } = config;
        let (clock, meter, config) = (clock.clone(), meter.clone(), jobs.clone());
        let (senders, observations) = queue();
        let mut watches = Watches::new(client.clone(), senders.of_watches, meter.clone());
        let sources: Vec<JobsSource> = JobsSource::of(&config).collect();
        for source in &sources {
            watches.jobs(*source, &config);
        }
        Self {
            recorder: Recorder::new(client.clone(), clock.clone(), meter.clone()),
            told: BTreeMap::new(),
            refused: BTreeMap::new(),
            blocked: BlockedJobs::default(),
            changes: watch::Sender::default(),
            meter,
            metrics,
            client,
            objects: Objects::of(&config),
            config,
            observations,
            _watches: watches,
            unsynced: sources.into_iter().map(Source::Jobs).collect(),
            queue: WorkQueue::new(clock),
            tasks: JoinSet::new(),
            permits: Arc::new(Semaphore::new((*writers).max(1))),
        }
    }

    /// The same loop, which tells views about jobs that get no Workload.
    pub(crate) fn telling(self, blocked: BlockedJobs, changes: watch::Sender<u64>) -> Self {
        Self { blocked, changes, ..self }
    }

    /// Runs until it is dropped. Writes under way are aborted then, as in a crash; the next process continues them.
    pub(crate) async fn run(mut self) {
        loop {
            let sleep = self.queue.sleep();
            tokio::select! {
                biased;
                Some(written) = self.tasks.join_next() => {
                    // A task does not panic, and none is aborted before the loop.
                    if let Ok((key, written)) = written {
                        self.written(key, written);
                    }
                }
                Some(observation) = self.observations.recv() => self.apply(observation),
                () = tokio::time::sleep(sleep) => {}
            }
            while let Some(observation) = self.observations.try_recv() {
                self.apply(observation);
            }
            if self.unsynced.is_empty() {
                self.reconcile();
            }
            self.meter.set("queue_depth", &[("queue", "jobs")], self.queue.depth());
        }
    }

    fn apply(&mut self, observation: Observation) {
        if let Observation::Jobs(source, change) = observation {
            if let (JobsSource::Workload, Change::Deleted(uid, _)) = (source, &change) {
                self.queue.add(self.objects.waiting_for(uid, self.told.keys()));
            }
            self.queue.add(self.objects.apply(source, change));
        } else if let Observation::Synced(source) = observation {
            if self.unsynced.remove(&source) && self.unsynced.is_empty() {
                self.queue.add(self.objects.keys());
            }
        } else if let Observation::WatchFailed(source, why) = observation {
            if matches!(source, Source::Jobs(source) if source.is_optional()) {
                // Jobs of a kind that is not installed, or not to be seen, keep no others waiting. One that owns others is looked
                // for before they are started.
                if !why.is_missing() {
                    tracing::warn!(%source, why = why.text, "jobs of a kind are not seen, others go on");
                }
                if self.unsynced.remove(&source) && self.unsynced.is_empty() {
                    self.queue.add(self.objects.keys());
                }
            } else {
                tracing::warn!(%source, why = why.text, "jobs wait until a watch works again");
            }
        }
    }

    fn reconcile(&mut self) {
        let now = self.queue.now();
        for key in self.queue.take(now) {
            let objects = &self.objects;
            if self.queue.is_busy(&key, now, |before| objects.show(before)) {
                continue;
            }
            let mut step = step::decide(objects, &self.config, &key, now);
            if !matches!(step, Some(JobStep::Write(..) | JobStep::Ask(_))) {
                self.refused.remove(&key);
            } else if let Some(refusal) = self.refused.get(&key) {
                step = step.map(|step| tell_refusal(objects, &self.config, &key, step, refusal, now));
            }
            self.note_blocked(&key, step.as_ref());
            if !matches!(step, Some(JobStep::Write(..) | JobStep::Ask(_))) {
                self.queue.rest(&key);
            }
            let Some(step) = step else {
                self.told.remove(&key);
                if let JobKey::Job(job) = &key {
                    self.objects.restarts.forget(job);
                }
                continue;
            };
            match step {
                JobStep::Await(Some(due)) => self.queue.add_at(due, key),
                JobStep::Await(None) => {}
                JobStep::Tell(event) => {
                    let subject = self.objects.subject(&key, &self.config);
                    self.tell_once(key, &subject, event);
                }
                JobStep::Ask(question) => self.ask(key, *question),
                JobStep::Write(write, events) => self.start(key, write, events),
            }
        }
    }

    fn start(&mut self, key: JobKey, write: Write, events: Vec<JobEvent>) {
        let subject = self.objects.subject(&key, &self.config);
        let (client, permits) = (self.client.clone(), self.permits.clone());
        let (before, started) = (write.targets(), write.started());
        self.queue.begin(key.clone());
        self.tasks.spawn(async move {
            let _permit = permits.acquire().await;
            let result = write::perform(&client, write).await;
            (key, Written { before, result, subject, events, started, asked: None })
        });
    }

    fn ask(&mut self, key: JobKey, question: Question) {
        let subject = self.objects.subject(&key, &self.config);
        let (client, permits) = (self.client.clone(), self.permits.clone());
        self.queue.begin(key.clone());
        self.tasks.spawn(async move {
            let _permit = permits.acquire().await;
            let result = question.answer(&client).await;
            let asked = Some(question);
            (key, Written { before: Vec::new(), result, subject, events: Vec::new(), started: None, asked })
        });
    }

    fn record(&mut self, subject: &Subject, events: &[JobEvent]) {
        for event in events {
            let about = event.about.as_deref().unwrap_or(subject);
            self.recorder.record_event(about, event.is_warning, event.reason, &event.text);
            if let Some(removal) = &event.ungated {
                self.metrics.gate_removed(removal, self.queue.now());
            }
        }
    }

    /// Records what keeps a job from going on, unless this was the last that it was told.
    fn tell_once(&mut self, key: JobKey, subject: &Subject, event: JobEvent) {
        if self.told.get(&key) != Some(&event.text) {
            self.told.insert(key, event.text.clone());
            self.record(subject, &[event]);
        }
    }

    fn written(&mut self, key: JobKey, written: Written) {
        self.queue.end(&key);
        match (written.result, written.asked) {
            (Ok(is_owned), Some(question)) => {
                self.objects.answered(question, is_owned);
                self.queue.add([key]);
            }
            (Ok(false), None) => {
                for event in written.events {
                    self.tell_once(key.clone(), &written.subject, event);
                }
                self.queue.rest(&key);
            }
            (Ok(true), None) => {
                self.told.remove(&key);
                self.record(&written.subject, &written.events);
                if let (JobKey::Job(job), Some(admitted)) = (&key, written.started) {
                    let due = self.objects.restarts.note(job.clone(), admitted, self.queue.now());
                    self.queue.add_at(due, key.clone());
                }
                self.queue.expect(key, written.before);
            }
            (Err(error), _) => {
                self.meter.count("retries_total", &[("cause", error.cause()), ("of", "jobs")]);
                if !matches!(error, Error::Conflict(_) | Error::NotFound(_)) {
                    tracing::warn!(job = written.subject.name, %error, "a write about a job failed, retrying");
                }
                if matches!(error, Error::Refused(_) | Error::NotAdmitted(_)) {
                    let text = format!(
                        "The API server refuses the next step, which is tried again when the job changes, and now and then: {error}"
                    );
                    self.refused.insert(key.clone(), text.clone());
                    let event = JobEvent { is_warning: true, ..step::event(WRITE_REFUSED, text) };
                    self.tell_once(key.clone(), &written.subject, event);
                }
                self.queue.retry(key);
            }
        }
    }
}
