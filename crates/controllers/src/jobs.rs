//! Jobs of Kueue's API: gives every managed job a Workload, starts the job when the Workload is admitted, and stops it when the
//! Workload is evicted. After `pkg/controller/jobframework/reconciler.go` of Kueue v0.19.
//!
//! - `step`: the next write about a job: a pure function of what was observed
//! - `stop`: the steps of stopping a job, and when its quota is released
//! - `owner`: jobs that another job owns
//! - `objects`: the observed jobs, Workloads, flavors and classes
//! - `write`: the writes, and their requests
//!
//! The loop is beside that of the planner, and both meet in the Workloads: a job is no input of a plan.

mod objects;
mod owner;
mod step;
mod stop;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::MicroTime;
use api::kueue::jobs::JobKind;
use api::selector::LabelSelector;
use kube::Client;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::config::{Clock, Config};
use crate::controller::retry_pause_us;
use crate::error::Error;
use crate::events::{Recorder, Subject};
use crate::observations::{Observation, Receiver, Source, queue};
use crate::watches::Watches;

use objects::Objects;
pub(crate) use objects::{JobsChange, JobsSource, Whole};
use step::{JobEvent, JobStep};
use write::Write;

/// How long a write may take until a watch shows it, in microseconds.
const UNSEEN_MAX_US: i64 = 5_000_000;
/// The longest sleep of the loop without a deadline.
const SLEEP_MAX: Duration = Duration::from_hours(1);

/// Which jobs are managed, and how.
#[derive(Debug, Clone)]
pub struct JobsConfig {
    /// The kinds.
    pub kinds: Vec<&'static JobKind>,
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
    /// The keys of the labels that a Workload gets from its job.
    pub copied_labels: Vec<String>,
    /// How long after its deactivation by a controller a job is deleted, in microseconds. `None`: it is kept.
    pub retention_us: Option<i64>,
}

impl Default for JobsConfig {
    fn default() -> Self {
        Self {
            kinds: Vec::new(),
            manages_unnamed: false,
            namespaces: LabelSelector::default(),
            waits_for_pods: false,
            reclaims_pods: true,
            gates_admission: true,
            copied_labels: Vec::new(),
            retention_us: None,
        }
    }
}

/// The loop of the jobs.
pub(crate) struct Jobs {
    client: Client,
    config: JobsConfig,
    clock: Clock,
    objects: Objects,
    observations: Receiver,
    /// They end with the loop.
    _watches: Watches,
    unsynced: BTreeSet<Source>,
    /// Jobs to look at, by uid.
    dirty: BTreeSet<String>,
    due: BTreeSet<(MicroTime, String)>,
    failures: BTreeMap<String, u32>,
    writing: BTreeSet<String>,
    /// Jobs whose last write the watches have not shown yet, with what they show instead.
    unseen: BTreeMap<String, Unseen>,
    tasks: JoinSet<(String, Written)>,
    permits: Arc<Semaphore>,
    recorder: Recorder,
}

/// A write that the watches have not shown yet.
struct Unseen {
    /// The uid of the object, and its resource version before the write. A new Workload has none.
    before: Option<(String, String)>,
    /// When the write counts as seen, because it may have changed nothing.
    until: MicroTime,
}

/// The outcome of a write, and the Events to record about it.
struct Written {
    before: Option<(String, String)>,
    result: Result<bool, Error>,
    subject: Subject,
    events: Vec<JobEvent>,
}

impl Jobs {
    /// Starts the watches. `None` if no kind of jobs is managed.
    pub(crate) fn of(client: &Client, config: &Config) -> Option<Self> {
        let is_on = !config.jobs.kinds.is_empty();
        is_on.then(|| Self::new(client.clone(), config.jobs.clone(), config.clock.clone(), config.writers))
    }

    fn new(client: Client, config: JobsConfig, clock: Clock, writers: usize) -> Self {
        let (senders, observations) = queue();
        let mut watches = Watches::new(client.clone(), senders.of_watches);
        let sources: Vec<JobsSource> =
            (0..config.kinds.len()).map(JobsSource::Job).chain(JobsSource::OTHERS).collect();
        for source in &sources {
            watches.jobs(*source, &config);
        }
        Self {
            recorder: Recorder::new(client.clone(), clock.clone()),
            client,
            config,
            clock,
            objects: Objects::default(),
            observations,
            _watches: watches,
            unsynced: sources.into_iter().map(Source::Jobs).collect(),
            dirty: BTreeSet::new(),
            due: BTreeSet::new(),
            failures: BTreeMap::new(),
            writing: BTreeSet::new(),
            unseen: BTreeMap::new(),
            tasks: JoinSet::new(),
            permits: Arc::new(Semaphore::new(writers)),
        }
    }

    /// Runs until it is dropped. Writes under way are aborted then, as in a crash; the next process continues them.
    pub(crate) async fn run(mut self) {
        loop {
            let sleep = self.sleep();
            tokio::select! {
                biased;
                Some(written) = self.tasks.join_next() => {
                    // A task does not panic, and none is aborted before the loop.
                    if let Ok((uid, written)) = written {
                        self.written(&uid, written);
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
        }
    }

    fn now(&self) -> MicroTime {
        MicroTime((self.clock)().as_microsecond())
    }

    fn sleep(&self) -> Duration {
        let Some((due, _)) = self.due.first() else { return SLEEP_MAX };
        let us = u64::try_from(due.0 - self.now().0).unwrap_or_default();
        Duration::from_micros(us).min(SLEEP_MAX)
    }

    fn apply(&mut self, observation: Observation) {
        if let Observation::Jobs(source, change) = observation {
            self.dirty.extend(self.objects.apply(source, change));
        } else if let Observation::Synced(source) = observation {
            if self.unsynced.remove(&source) && self.unsynced.is_empty() {
                self.dirty.extend(self.objects.job_uids());
            }
        } else if let Observation::WatchFailed(source, why) = observation {
            if let Source::Jobs(JobsSource::Job(_)) = source {
                // Jobs of a kind that is not installed, or not to be seen, keep no others waiting. One that owns others is looked
                // for before they are started.
                if !why.is_missing() {
                    tracing::warn!(%source, why = why.text, "jobs of a kind are not seen, others go on");
                }
                if self.unsynced.remove(&source) && self.unsynced.is_empty() {
                    self.dirty.extend(self.objects.job_uids());
                }
            } else {
                tracing::warn!(%source, why = why.text, "jobs wait until a watch works again");
            }
        }
    }

    fn reconcile(&mut self) {
        let now = self.now();
        while self.due.first().is_some_and(|(due, _)| *due <= now) {
            self.dirty.extend(self.due.pop_first().map(|(_, uid)| uid));
        }
        for uid in std::mem::take(&mut self.dirty) {
            // The end of a write looks at the job again, and so does the watch that shows the write.
            if self.writing.contains(&uid) || self.awaits_watch(&uid, now) {
                continue;
            }
            let Some(step) = step::decide(&self.objects, &self.config, &uid, now) else {
                self.failures.remove(&uid);
                continue;
            };
            match step {
                JobStep::Await(due) => self.due.extend(due.map(|due| (due, uid))),
                JobStep::Write(write, events) => self.start(uid, write, events),
            }
        }
    }

    /// Whether the watches have not shown the last write about a job yet: a decision would repeat it.
    fn awaits_watch(&mut self, uid: &str, now: MicroTime) -> bool {
        let Some(unseen) = self.unseen.get(uid) else { return false };
        let is_shown = match &unseen.before {
            Some((object, version)) => self.objects.version(object) != Some(version),
            None => self.objects.workloads_of(uid).next().is_some(),
        };
        if is_shown || unseen.until <= now {
            self.unseen.remove(uid);
            return false;
        }
        true
    }

    fn start(&mut self, uid: String, write: Write, events: Vec<JobEvent>) {
        let subject = self.objects.subject(&uid, &self.config);
        let (client, permits) = (self.client.clone(), self.permits.clone());
        let before = write.target();
        self.writing.insert(uid.clone());
        self.tasks.spawn(async move {
            let _permit = permits.acquire().await;
            let result = write::perform(&client, write).await;
            (uid, Written { before, result, subject, events })
        });
    }

    fn written(&mut self, uid: &str, written: Written) {
        self.writing.remove(uid);
        match written.result {
            Ok(false) => drop(self.failures.remove(uid)),
            Ok(true) => {
                self.failures.remove(uid);
                for event in written.events {
                    self.recorder.record_event(&written.subject, false, event.reason, &event.text);
                }
                let until = MicroTime(self.now().0 + UNSEEN_MAX_US);
                self.unseen.insert(uid.to_owned(), Unseen { before: written.before, until });
                self.due.insert((until, uid.to_owned()));
                self.dirty.insert(uid.to_owned());
            }
            Err(error) => {
                let failures = self.failures.entry(uid.to_owned()).or_default();
                let pause_us = retry_pause_us(*failures);
                *failures += 1;
                if !matches!(error, Error::Conflict(_) | Error::NotFound(_)) {
                    tracing::warn!(job = written.subject.name, %error, "a write about a job failed, retrying");
                }
                self.due.insert((MicroTime(self.now().0 + pause_us), uid.to_owned()));
            }
        }
    }
}
