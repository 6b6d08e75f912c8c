//! The admission check `kueue.x-k8s.io/provisioning-request`: asks a node autoscaler for the nodes of Workloads with quota, and
//! answers the check with its answer. After `pkg/controller/admissionchecks/provisioning` of Kueue v0.19.
//!
//! - `step`: the next write about a Workload or a check: a pure function of what was observed
//! - `object`: the observed objects
//! - `execute`: the writes
//! - `gangs`: AppWrappers that wait for nodes ask for them, too, in a loop of their own
//!
//! The loop is beside that of the planner, and both meet in the Workloads.

mod execute;
mod gangs;
mod object;
mod step;

use std::collections::BTreeSet;
use std::sync::Arc;

use kube::Client;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::config::Config;
use crate::error::Error;
use crate::events::Recorder;
use crate::meter::Meter;
use crate::observations::{Observation, Receiver, Source, queue};
use crate::watches::Watches;
use crate::work_queue::WorkQueue;

use execute::Before;
pub(crate) use gangs::GangProvisioning;
pub(crate) use object::ProvisioningSource;
use object::{Item, Objects, Refusal};
use step::Step;

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
    objects: Objects,
    observations: Receiver,
    /// They end with the loop.
    _watches: Watches,
    unsynced: BTreeSet<Source>,
    queue: WorkQueue<Item, Before>,
    tasks: JoinSet<(Item, Step, Result<(), Error>)>,
    permits: Arc<Semaphore>,
    recorder: Recorder,
    meter: Meter,
}

impl Provisioning {
    /// Starts the watches, if the check is on.
    pub(crate) fn of(client: &Client, config: &Config) -> Option<Self> {
        let check = config.provisioning?;
        Some(Self::new(client.clone(), check, config))
    }

    fn new(client: Client, config: ProvisioningConfig, of: &Config) -> Self {
        let (clock, meter) = (of.clock.clone(), of.meter.clone());
        let (senders, observations) = queue();
        let mut watches = Watches::new(client.clone(), senders.of_watches, meter.clone());
        for source in ProvisioningSource::ALL {
            watches.provisioning(source);
        }
        Self {
            recorder: Recorder::new(client.clone(), clock.clone(), meter.clone()),
            meter,
            client,
            config,
            objects: Objects::default(),
            observations,
            _watches: watches,
            unsynced: ProvisioningSource::ALL.map(Source::Provisioning).into(),
            queue: WorkQueue::new(clock),
            tasks: JoinSet::new(),
            permits: Arc::new(Semaphore::new(of.writers.max(1))),
        }
    }

    /// Runs until it is dropped. Writes under way are aborted then, as in a crash; the next process continues them.
    pub(crate) async fn run(mut self) {
        loop {
            let sleep = self.queue.sleep();
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
            self.meter.set("queue_depth", &[("queue", "provisioning")], self.queue.depth());
        }
    }

    fn apply(&mut self, observation: Observation) {
        if let Observation::Provisioning(source, change) = observation {
            self.queue.add(self.objects.apply(source, change));
        } else if let Observation::Synced(source) = observation {
            if source == Source::Provisioning(ProvisioningSource::Request) {
                self.objects.obstacle = None;
            }
            if self.unsynced.remove(&source) && self.unsynced.is_empty() {
                self.queue.add(self.objects.items());
            }
        } else if let Observation::WatchFailed(source, why) = observation {
            tracing::warn!(%source, why = why.text, "admission checks wait until a watch works again");
            if source == Source::Provisioning(ProvisioningSource::Request) {
                self.objects.obstacle = Some(why.text);
                self.queue.add(self.objects.items());
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
        let now = self.queue.now();
        for item in self.queue.take(now) {
            let objects = &self.objects;
            // The end of the lists looks at everything again.
            if !self.is_read(&item) || self.queue.is_busy(&item, now, |before| objects.shows(before)) {
                continue;
            }
            match step::decide(objects, self.config, &item, now) {
                Some(step) => self.start(item, step),
                None if !objects.refusals.contains_key(&item) => self.queue.rest(&item),
                None => {}
            }
        }
    }

    fn start(&mut self, item: Item, step: Step) {
        let (client, permits) = (self.client.clone(), self.permits.clone());
        self.queue.begin(item.clone());
        self.tasks.spawn(async move {
            let _permit = permits.acquire().await;
            let result = execute::perform(&client, &step.write).await;
            (item, step, result)
        });
    }

    fn written(&mut self, item: Item, step: &Step, result: Result<(), Error>) {
        self.queue.end(&item);
        let before = step.write.before();
        let Err(error) = result else {
            if !step.is_report {
                self.objects.refusals.remove(&item);
            }
            for event in &step.events {
                self.recorder.record_event(&self.objects.subject(&item), false, event.reason, &event.text);
            }
            self.queue.expect(item, before);
            return;
        };
        // An earlier write has created it, and the watch has not shown it yet.
        if matches!(error, Error::Exists(_)) && !self.objects.shows(&before) {
            self.queue.expect(item, before);
            return;
        }
        self.meter.count("retries_total", &[("cause", error.cause()), ("of", "provisioning")]);
        let until = self.queue.retry(item.clone());
        if let Some((check, text)) = step.write.refusal(&error) {
            let known = self.objects.refusals.get(&item);
            if known.is_none_or(|known| known.text != text) {
                self.recorder.record_event(&self.objects.subject(&item), true, "FailedCreate", &text);
            }
            self.objects.refusals.insert(item.clone(), Refusal { check, text, until });
            self.queue.add([item]);
        } else if !matches!(error, Error::Conflict(_) | Error::NotFound(_)) {
            tracing::warn!(?item, %error, "a write about a provisioning request failed, retrying");
        }
    }
}
