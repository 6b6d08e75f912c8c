//! The loop: fold what is new, plan, take the next steps.
//!
//! What is known about kinds of objects is in `kinds`, steps and their outcomes in `steps`, what becomes of those for which a right
//! is missing in `rights`, when figures are told again in `review`, what is expected of the future in `forecast`.

mod forecast;
mod kinds;
mod observe;
mod permissions;
mod status_refresh;
mod steps;
mod ungating;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};
use std::time::Duration;

use api::MicroTime;
use api::appwrapper::Group;
use index::{Index, Kind, KindState, ObjectRow};
use kube::Client;
use model::{Backfill, Plan, Policy, PreemptionPolicy, Time};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;

pub use observe::{Observer, WrapperPhase, WrapperReport};

use crate::config::Config;
use crate::error::Error;
use crate::events::Recorder;
use crate::lease::{Elector, LeaderElectionConfig};
use crate::observations::{Observation, Source};
use crate::published_config::publish_config;
use crate::watches::Watches;
use forecast::Forecaster;
use permissions::Permissions;
use status_refresh::StatusRefresh;
use steps::StepInFlight;

/// Most plans in a row without event; more would mean that they take turns.
const PLANS_PER_ROUND_MAX: usize = 16;
/// Most observations that are folded before the next plan.
const OBSERVATIONS_PER_ROUND_MAX: usize = 10_000;

/// Looks after the wrappers of one cluster.
pub struct Controller {
    client: Client,
    config: Config,
    index: Arc<RwLock<Index>>,
    changes: watch::Sender<u64>,
}

impl Controller {
    /// A controller for the cluster behind `client`. Nothing happens before [`Controller::run`].
    pub fn new(client: Client, config: Config) -> Self {
        Self { client, config, index: Arc::default(), changes: watch::Sender::default() }
    }

    /// What the controller knows, for those who show it.
    pub fn index(&self) -> Arc<RwLock<Index>> {
        self.index.clone()
    }

    /// Tells the generation of the index's world whenever it has changed, or more is known of the future.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Runs as soon as this controller is elected, until `shutdown` is ready; the lease is given back then. Nothing is watched
    /// before. Without its lease it stops at once, with an error: what was under way is left to who leads next.
    pub async fn run_elected(
        self,
        election: LeaderElectionConfig,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), Error> {
        let mut shutdown = std::pin::pin!(shutdown);
        let mut elector = Elector::new(self.client.clone(), self.config.clock.clone(), election);
        let since = tokio::select! {
            biased;
            () = &mut shutdown => return Ok(()),
            since = elector.acquire() => since,
        };
        let ended = tokio::select! {
            biased;
            lost = elector.renew_until_lost(since) => Err(lost),
            ended = self.publish_config_and_run(shutdown) => ended,
        };
        if ended.is_ok() {
            elector.release().await;
        }
        ended
    }

    /// Tells others by which rules it goes, in the `ConfigMap` `kube-system/muster`, and runs.
    pub async fn publish_config_and_run(self, shutdown: impl Future<Output = ()>) -> Result<(), Error> {
        if let Err(error) = publish_config(&self.client, &self.config).await {
            tracing::warn!(%error, "cannot write ConfigMap kube-system/muster, which `muster why` and `muster plan` read");
        }
        self.run(shutdown).await
    }

    /// Runs until `shutdown` is ready. Steps under way are dropped then, as a crash would: the next start finishes them.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), Error> {
        let (sender, mut observations) = mpsc::unbounded_channel();
        let mut state = State::new(self.client, self.config, self.index, sender);
        let mut shutdown = std::pin::pin!(shutdown);
        loop {
            let due = state.sleep();
            tokio::select! {
                biased;
                () = &mut shutdown => return Ok(()),
                observation = observations.recv() => state.apply(observation),
                () = due => {}
            }
            for _ in 1..OBSERVATIONS_PER_ROUND_MAX {
                let Ok(observation) = observations.try_recv() else { break };
                state.apply(Some(observation));
            }
            state.discover_kinds();
            state.plan();
            state.reconcile_dirty();
            state.start_forecast();
            let generation = state.index.read().unwrap_or_else(PoisonError::into_inner).world().generation();
            let has_forecast = std::mem::take(&mut state.has_new_forecast);
            self.changes
                .send_if_modified(|sent| std::mem::replace(sent, generation) != generation || has_forecast);
        }
    }
}

/// What the loop keeps beside the index. None of it outlives the process, and none of it has to.
struct State {
    client: Client,
    config: Config,
    index: Arc<RwLock<Index>>,
    observations: mpsc::UnboundedSender<Observation>,
    watches: Watches,
    recorder: Recorder,
    /// Watches whose first list is still to come; nothing is planned before.
    unsynced: BTreeSet<Source>,
    has_synced: bool,
    planned_generation: Option<u64>,
    /// When the gang that others must not delay is to start: then it is worth planning again.
    next_reserved_start: Option<MicroTime>,
    /// When a gang may go again to a node that it has kept off.
    next_node_retry: Option<MicroTime>,
    /// Definitions by name, with the kinds they serve and how.
    definitions: BTreeMap<String, (BTreeSet<Kind>, KindState)>,
    /// Groups whose definition writes the status together with the rest.
    without_status_subresource: BTreeSet<Group>,
    discovering: BTreeSet<String>,
    /// Kinds that are watched, and whether all their objects are.
    watched: BTreeMap<Kind, bool>,
    tasks: JoinSet<()>,
    discovery_tasks: JoinSet<()>,
    /// Bounds how many steps write at once.
    permits: Arc<Semaphore>,
    /// The same for gates: gangs that have started do not wait behind those that are to start.
    ungatings: Arc<Semaphore>,
    in_flight: BTreeMap<String, StepInFlight>,
    status_refresh: StatusRefresh,
    permissions: Permissions,
    forecast: Forecaster,
    /// Something was foreseen since the last round.
    has_new_forecast: bool,
    failures: BTreeMap<String, (u32, MicroTime)>,
    /// Wrappers whose counts of pods are to be written, and when.
    counts: BTreeMap<String, MicroTime>,
    requeue_at: BTreeSet<(MicroTime, String)>,
}

impl State {
    fn new(
        client: Client,
        config: Config,
        index: Arc<RwLock<Index>>,
        observations: mpsc::UnboundedSender<Observation>,
    ) -> Self {
        let preempts = config.preemption && !config.dynamic_priority;
        let preemption = if preempts { PreemptionPolicy::LowerPriority } else { PreemptionPolicy::Never };
        Self::index(&index).set_policy(Policy {
            preemption,
            backfill: Backfill::Reserve,
            packing: config.packing,
            ..Policy::default()
        });
        Self::index(&index).set_aging(config.dynamic_priority);
        let mut watches = Watches::new(client.clone(), observations.clone());
        watches.nodes();
        watches.pods();
        watches.definitions();
        Self {
            recorder: Recorder::new(client.clone(), config.clock.clone()),
            permits: Arc::new(Semaphore::new(config.writers.max(1))),
            ungatings: Arc::new(Semaphore::new(config.writers.max(1))),
            unsynced: BTreeSet::from([Source::Nodes, Source::Pods, Source::Definitions]),
            has_synced: false,
            planned_generation: None,
            next_reserved_start: None,
            next_node_retry: None,
            definitions: BTreeMap::new(),
            without_status_subresource: BTreeSet::new(),
            discovering: BTreeSet::new(),
            watched: BTreeMap::new(),
            tasks: JoinSet::new(),
            discovery_tasks: JoinSet::new(),
            in_flight: BTreeMap::new(),
            status_refresh: StatusRefresh::default(),
            permissions: Permissions::default(),
            forecast: Forecaster::default(),
            has_new_forecast: false,
            failures: BTreeMap::new(),
            counts: BTreeMap::new(),
            requeue_at: BTreeSet::new(),
            client,
            config,
            index,
            observations,
            watches,
        }
    }

    fn now(&self) -> MicroTime {
        MicroTime::from((self.config.clock)())
    }

    /// The index to change. A reader that panicked has not changed it.
    fn index(index: &RwLock<Index>) -> RwLockWriteGuard<'_, Index> {
        index.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps until the earliest deadline, for ever without one.
    fn sleep(&self) -> impl Future<Output = ()> + use<> {
        let due = self.requeue_at.first().map(|(due, _)| *due).into_iter();
        let due = due
            .chain(self.next_reserved_start)
            .chain(self.next_node_retry)
            .chain(self.status_refresh.due())
            .chain(self.forecast.due())
            .min();
        let now = self.now();
        async move {
            match due {
                Some(due) => {
                    let pause = u64::try_from(due.0.saturating_sub(now.0)).unwrap_or(0);
                    tokio::time::sleep(Duration::from_micros(pause)).await;
                }
                None => std::future::pending().await,
            }
        }
    }

    fn apply(&mut self, observation: Option<Observation>) {
        let Some(observation) = observation else { return };
        let now = self.now();
        let shared = self.index.clone();
        let mut index = Self::index(&shared);
        match observation {
            Observation::Node(node) => index.node_seen(node),
            Observation::NodeDeleted(name) => index.node_gone(&name),
            Observation::Pod(pod) => index.pod_seen(pod),
            Observation::PodDeleted(uid) => index.pod_gone(&uid),
            Observation::Object(kind, object) => index.object_seen(ObjectRow::of(&kind, object)),
            Observation::ObjectDeleted(uid) => index.object_gone(&uid),
            Observation::Wrapper(group, wrapper) => index.wrapper_seen(group, *wrapper, now),
            Observation::WrapperDeleted(uid) => {
                index.wrapper_gone(&uid);
                self.forget(&uid);
            }
            Observation::Quota(part) => index.quota_seen(*part),
            Observation::QuotaDeleted(uid) => index.quota_gone(&uid),
            Observation::Definition(definition) => self.definition_seen(&mut index, &definition),
            Observation::DefinitionDeleted(name) => self.definition_deleted(&mut index, &name),
            Observation::Discovered(api_version, resources) => {
                self.discovered(&mut index, &api_version, &resources)
            }
            Observation::Synced(source) => self.synced(&mut index, &source),
            Observation::WatchForbidden(source, why) => self.watch_forbidden(&mut index, &source, why),
            Observation::Forecast { forecast, pause_us } => {
                self.fold_forecast(&mut index, *forecast, pause_us, now)
            }
            Observation::UngateForbidden(uid, forbidden) => {
                if let Some(wrapper) = index.wrapper(&uid)
                    && let Some(event) = self.permissions.ungate_forbidden(&uid, *forbidden)
                {
                    self.recorder.record(wrapper, &event);
                }
            }
            Observation::PermissionGranted(uid) => index.reconsider(&uid),
            Observation::StepDone(uid, outcome) => self.step_done(&mut index, &uid, *outcome, now),
        }
    }

    fn forget(&mut self, uid: &str) {
        if let Some(step) = self.in_flight.remove(uid) {
            step.task.abort();
        }
        self.failures.remove(uid);
        self.permissions.forget(uid);
        self.counts.remove(uid);
        self.requeue_at.retain(|(_, other)| other != uid);
    }

    /// Plans on what is known, if anything has changed since, or if the time has come for which a start was reserved.
    fn plan(&mut self) {
        let shared = self.index.clone();
        let mut index = Self::index(&shared);
        let now = self.now();
        self.next_node_retry = index.forgive(now);
        let has_changed = self.planned_generation != Some(index.world().generation());
        let is_due = self.next_reserved_start.is_some_and(|start| start <= now);
        if !self.has_synced || !(has_changed || is_due) {
            return;
        }
        for _ in 0..PLANS_PER_ROUND_MAX {
            let snapshot = index.world().snapshot(Time(now.0));
            let plan: Plan = planner::plan(&snapshot);
            if let Some(inspect) = &self.config.inspect {
                inspect(&snapshot, &plan);
            }
            let accepted = index.accept(plan);
            for uid in accepted.started {
                self.failures.remove(&uid);
            }
            for uid in accepted.stopped {
                self.permissions.granted(&uid);
                if let Some(step) = self.in_flight.get(&uid) {
                    step.cancelled.notify_one();
                }
            }
            if !accepted.has_losers {
                break;
            }
        }
        self.planned_generation = Some(index.world().generation());
        let starts = index.world().reserved().iter().map(|reserved| MicroTime(reserved.start.0));
        self.next_reserved_start = starts.filter(|start| *start > now).min();
    }
}
