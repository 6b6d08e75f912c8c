//! The admission check `kueue.x-k8s.io/provisioning-request`: asks a node autoscaler for the nodes of Workloads with quota, and
//! answers the check with its answer. After `pkg/controller/admissionchecks/provisioning` of Kueue v0.19.
//!
//! - `step`: the next write about a Workload or a check: a pure function of what was observed
//! - `object`: the observed objects
//! - `execute`: the writes
//!
//! The loop is beside that of the planner, and both meet in the Workloads.

mod execute;
mod object;
mod step;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::MicroTime;
use kube::Client;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::config::{Clock, Config};
use crate::controller::retry_pause_us;
use crate::error::Error;
use crate::events::Recorder;
use crate::observations::{Observation, Receiver, Source, queue};
use crate::watches::Watches;

use object::{Item, Objects, Refusal};
pub(crate) use object::{ProvisioningChange, ProvisioningSource};
use step::Step;

/// How long a write may take until a watch shows it, in microseconds.
const UNSEEN_MAX_US: i64 = 5_000_000;
/// The longest sleep of the loop without a deadline.
const SLEEP_MAX: Duration = Duration::from_hours(1);

/// What the check does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProvisioningConfig {
    /// Whether the requests of a Workload are deleted when it is evicted.
    pub deletes_at_eviction: bool,
}

impl Default for ProvisioningConfig {
    fn default() -> Self {
        Self { deletes_at_eviction: true }
    }
}

/// The loop of the check.
pub(crate) struct Provisioning {
    client: Client,
    config: ProvisioningConfig,
    clock: Clock,
    objects: Objects,
    observations: Receiver,
    /// They end with the loop.
    _watches: Watches,
    unsynced: BTreeSet<Source>,
    dirty: BTreeSet<Item>,
    due: BTreeSet<(MicroTime, Item)>,
    failures: BTreeMap<Item, u32>,
    writing: BTreeSet<Item>,
    /// Writes that the watches have not shown yet, with the time from which on they count as seen.
    unseen: BTreeMap<Item, (execute::Before, MicroTime)>,
    tasks: JoinSet<(Item, Step, Result<(), Error>)>,
    permits: Arc<Semaphore>,
    recorder: Recorder,
}

impl Provisioning {
    /// Starts the watches, if the check is on.
    pub(crate) fn of(client: &Client, config: &Config) -> Option<Self> {
        let check = config.provisioning?;
        Some(Self::new(client.clone(), check, config.clock.clone(), config.writers))
    }

    fn new(client: Client, config: ProvisioningConfig, clock: Clock, writers: usize) -> Self {
        let (senders, observations) = queue();
        let mut watches = Watches::new(client.clone(), senders.of_watches);
        for source in ProvisioningSource::ALL {
            watches.provisioning(source);
        }
        Self {
            recorder: Recorder::new(client.clone(), clock.clone()),
            client,
            config,
            clock,
            objects: Objects::default(),
            observations,
            _watches: watches,
            unsynced: ProvisioningSource::ALL.map(Source::Provisioning).into(),
            dirty: BTreeSet::new(),
            due: BTreeSet::new(),
            failures: BTreeMap::new(),
            writing: BTreeSet::new(),
            unseen: BTreeMap::new(),
            tasks: JoinSet::new(),
            permits: Arc::new(Semaphore::new(writers.max(1))),
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
                    if let Ok((item, step, result)) = written {
                        self.written(item, &step, result);
                    }
                }
                Some(observation) = self.observations.recv() => self.apply(observation),
                () = tokio::time::sleep(sleep) => {}
            }
            while let Some(observation) = self.observations.try_recv() {
                self.apply(observation);
            }
            self.reconcile();
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
        if let Observation::Provisioning(source, change) = observation {
            self.dirty.extend(self.objects.apply(source, change));
        } else if let Observation::Synced(source) = observation {
            if source == Source::Provisioning(ProvisioningSource::Request) {
                self.objects.obstacle = None;
            }
            if self.unsynced.remove(&source) && self.unsynced.is_empty() {
                self.dirty.extend(self.objects.items());
            }
        } else if let Observation::WatchFailed(source, why) = observation {
            tracing::warn!(%source, why = why.text, "admission checks wait until a watch works again");
            if source == Source::Provisioning(ProvisioningSource::Request) {
                self.objects.obstacle = Some(why.text);
                self.dirty.extend(self.objects.items());
            }
        }
    }

    /// Whether everything that decides about an object has been read.
    fn is_read(&self, item: &Item) -> bool {
        let of_requests = Source::Provisioning(ProvisioningSource::Request);
        match item {
            Item::Workload(_) => self.unsynced.is_empty(),
            Item::Check(_) => {
                let is_read = |source: &Source| *source == of_requests && self.objects.obstacle.is_some();
                self.unsynced.iter().all(is_read)
            }
        }
    }

    fn reconcile(&mut self) {
        let now = self.now();
        while self.due.first().is_some_and(|(due, _)| *due <= now) {
            self.dirty.extend(self.due.pop_first().map(|(_, item)| item));
        }
        for item in std::mem::take(&mut self.dirty) {
            // The end of a write looks at the object again, and so do the watch that shows the write and the end of the lists.
            if self.writing.contains(&item) || !self.is_read(&item) || self.awaits_watch(&item, now) {
                continue;
            }
            match step::decide(&self.objects, self.config, &item, now) {
                Some(step) => self.start(item, step),
                None if !self.objects.refusals.contains_key(&item) => drop(self.failures.remove(&item)),
                None => {}
            }
        }
    }

    /// Whether the watches have not shown the last write yet: a decision would repeat it.
    fn awaits_watch(&mut self, item: &Item, now: MicroTime) -> bool {
        let Some((before, until)) = self.unseen.get(item) else { return false };
        if self.objects.shows(before) || *until <= now {
            self.unseen.remove(item);
            return false;
        }
        true
    }

    fn start(&mut self, item: Item, step: Step) {
        let (client, permits) = (self.client.clone(), self.permits.clone());
        self.writing.insert(item.clone());
        self.tasks.spawn(async move {
            let _permit = permits.acquire().await;
            let result = execute::perform(&client, &step.write).await;
            (item, step, result)
        });
    }

    fn written(&mut self, item: Item, step: &Step, result: Result<(), Error>) {
        self.writing.remove(&item);
        let before = step.write.before();
        let Err(error) = result else {
            if !step.is_report {
                self.failures.remove(&item);
                self.objects.refusals.remove(&item);
            }
            for event in &step.events {
                self.recorder.record_event(&self.objects.subject(&item), false, event.reason, &event.text);
            }
            self.expect(item, before);
            return;
        };
        // An earlier write has created it, and the watch has not shown it yet.
        if matches!(error, Error::Exists(_)) && !self.objects.shows(&before) {
            self.expect(item, before);
            return;
        }
        let now = self.now();
        let failures = self.failures.entry(item.clone()).or_default();
        let until = MicroTime(now.0 + retry_pause_us(*failures));
        *failures += 1;
        if let Some((check, text)) = step.write.refusal(&error) {
            let known = self.objects.refusals.get(&item);
            if known.is_none_or(|known| known.text != text) {
                self.recorder.record_event(&self.objects.subject(&item), true, "FailedCreate", &text);
            }
            self.objects.refusals.insert(item.clone(), Refusal { check, text, until });
            self.dirty.insert(item.clone());
        } else if !matches!(error, Error::Conflict(_) | Error::NotFound(_)) {
            tracing::warn!(?item, %error, "a write about a provisioning request failed, retrying");
        }
        self.due.insert((until, item));
    }

    fn expect(&mut self, item: Item, before: execute::Before) {
        let until = MicroTime(self.now().0 + UNSEEN_MAX_US);
        self.unseen.insert(item.clone(), (before, until));
        self.due.insert((until, item.clone()));
        self.dirty.insert(item);
    }
}
