//! The control loop: apply all new observations, plan, reconcile the AppWrappers that changed.
//!
//! - `kinds`: discovery of kinds, and which resources are watched
//! - `decisions`: counts and logs decisions
//! - `kueue`: writes of Kueue's Workloads and queues
//! - `steps`: starts the next step of each AppWrapper and applies its outcome
//! - `dry_runs`: asks what admission makes of the pods of templates
//! - `ungating`: removes scheduling gates
//! - `decode_errors`: AppWrappers that cannot be decoded
//! - `orphans`: gated pods without a gang
//! - `permissions`: requests that were forbidden, and how the affected gangs proceed
//! - `planning`: plans until nothing more is to be decided
//! - `status_refresh`: periodic updates of figures in the status of pending gangs
//! - `forecast`: expected start times
//! - `departures`: pods that stay when their AppWrapper is deleted
//! - `reports`: the status of AppWrappers and Workloads, and what would happen to others if they were created now
//! - `observe`: a read-only controller, for `muster why` and `muster plan` of an administrator

mod decisions;
mod decode_errors;
mod departures;
mod dry_runs;
mod forecast;
mod kinds;
mod kueue;
mod observe;
mod orphans;
mod patience;
mod permissions;
mod planning;
mod reports;
mod status_refresh;
mod steps;
mod ungating;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockWriteGuard};
use std::time::Duration;

use api::MicroTime;
use api::appwrapper::Group;
use api::quota;
use index::{Index, Kind, KindState, ObjectRow};
use kube::Client;
use model::{Backfill, Policy, PreemptionPolicy};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

pub(crate) use decode_errors::DecodeError;
pub(crate) use kueue::KueueOutcome;
pub use observe::Observer;
pub use reports::{
    GangKind, GangObject, GangReport, NewGang, NodeAmounts, NodeReport, Page, PendingWorkload, QuotaGroup,
    Reported, Reports, Unplanned, WorkloadPlaces, WorkloadQueue, WorkloadReport, WorkloadReportPhase,
    WrapperPhase, WrapperReport, workload_named,
};
pub(crate) use steps::retry_pause_us;

use crate::config::{Config, Kueue};
use crate::error::Error;
use crate::events::Recorder;
use crate::jobs::{BlockedJobs, Jobs};
use crate::kueue::metrics::Totals;
use crate::lease::{LeaderElectionConfig, LeaseKeeper};
use crate::meter::Metrics;
use crate::observations::{Observation, Senders, Source, queue};
use crate::overruns::{self, OverrunRecord};
use crate::provisioning::{GangProvisioning, Provisioning};
use crate::published_config::{publish_config, publish_kueue_options};
use crate::watches::Watches;
use decode_errors::DecodeErrors;
use departures::Departures;
use dry_runs::DryRuns;
use forecast::Forecaster;
use orphans::Orphans;
use patience::Patience;
use permissions::Permissions;
use status_refresh::StatusRefresh;
use steps::{Requeues, StepInFlight};

/// Maximum number of observations that are applied before the next plan.
const OBSERVATIONS_PER_ROUND_MAX: usize = 10_000;
/// Maximum number of discovery requests at the same time.
const DISCOVERY_REQUESTS_MAX: usize = 8;

/// Reconciles the AppWrappers of one cluster.
pub struct Controller {
    client: Client,
    config: Config,
    index: Arc<RwLock<Index>>,
    changes: watch::Sender<u64>,
    synced: watch::Sender<bool>,
    totals: Arc<Mutex<Totals>>,
    blocked_jobs: BlockedJobs,
}

impl Controller {
    /// A controller for the cluster behind `client`. It sends no request before [`Controller::run`].
    pub fn new(client: Client, config: Config) -> Self {
        Self {
            client,
            config,
            index: Arc::default(),
            changes: watch::Sender::default(),
            synced: watch::Sender::default(),
            totals: Arc::default(),
            blocked_jobs: BlockedJobs::default(),
        }
    }

    /// The same controller with another client of the same cluster.
    #[must_use]
    pub fn with_client(self, client: Client) -> Self {
        Self { client, ..self }
    }

    /// The index of this controller, for read-only views.
    pub fn index(&self) -> Arc<RwLock<Index>> {
        self.index.clone()
    }

    /// Reports about AppWrappers and Workloads from the index of this controller.
    pub fn reports(&self) -> Reports {
        let (client, clock) = (self.client.clone(), self.config.clock.clone());
        let plans_workloads = self.config.kueue != Kueue::Off;
        let (index, synced, blocked) =
            (self.index.clone(), self.synced.subscribe(), self.blocked_jobs.clone());
        Reports::new(client, clock, index, synced, blocked, plans_workloads)
    }

    /// All metrics of this controller.
    pub fn metrics(&self) -> Metrics {
        let acts_on_kueue = self.config.kueue != Kueue::Off || !self.config.jobs.kinds.is_empty();
        Metrics {
            meter: self.config.meter.clone(),
            index: self.index.clone(),
            clock: self.config.clock.clone(),
            kueue: acts_on_kueue.then(|| self.kueue_metrics()),
        }
    }

    /// Whether the state of the cluster has been read, so that the controller acts.
    pub fn synced(&self) -> watch::Receiver<bool> {
        self.synced.subscribe()
    }

    /// Sends the generation of the world when an object has changed or a new forecast arrived.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Waits for leadership, then runs until `shutdown` completes, then releases the lease. Opens no watch before it
    /// is the leader. Returns an error at once when the lease is lost; the next leader continues unfinished steps.
    ///
    /// The lease is kept by a task of the same runtime: a process whose runtime may be busy for long runs a
    /// [`LeaseKeeper`] in a thread of its own, and this controller by [`crate::Leadership::lead`].
    pub async fn run_elected(
        self,
        election: LeaderElectionConfig,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), Error> {
        let keeper = LeaseKeeper::new(self.config.clock.clone(), election);
        let leadership = keeper.leadership();
        let mut keeping = JoinSet::new(); // Aborted when dropped.
        keeping.spawn(keeper.run(self.client.clone()));
        let client = self.client.clone();
        let lead = leadership.lead(&client, shutdown, |client, shutdown| {
            self.with_client(client).publish_config_and_run(shutdown)
        });
        let ended = lead.await;
        keeping.join_next().await;
        ended
    }

    /// Writes the planning configuration to the `ConfigMap`s `kube-system/muster` and `kube-system/muster-kueue`, and reads
    /// the overruns there; then runs.
    pub async fn publish_config_and_run(self, shutdown: impl Future<Output = ()>) -> Result<(), Error> {
        let warn = |name, error| {
            tracing::warn!(%error, "cannot write ConfigMap kube-system/{name}, which `muster why` and `muster plan` read");
        };
        if !self.config.groups.is_empty() {
            match publish_config(&self.client, &self.config).await {
                Ok(data) => State::index(&self.index).restore_overruns(&overruns::read(&data)),
                Err(error) => warn("muster", error),
            }
        }
        if self.config.kueue == Kueue::Scheduler
            && let Err(error) = publish_kueue_options(&self.client, &self.config.kueue_options).await
        {
            warn("muster-kueue", error);
        }
        self.run(shutdown).await
    }

    /// Runs until `shutdown` completes. Unfinished steps are aborted, as in a crash; the next process continues them.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), Error> {
        let (sender, mut observations) = queue();
        let metrics = self.kueue_metrics();
        let mut state = State::new(self.client, self.config, self.index, sender);
        state.kueue.metrics = metrics.clone();
        State::index(&state.index).enable_dry_runs();
        let mut others = JoinSet::new(); // Aborted when dropped.
        if let Some(jobs) = Jobs::of(&state.client, &state.config, metrics) {
            others.spawn(jobs.telling(self.blocked_jobs, self.changes.clone()).run());
        }
        if let Some(provisioning) = Provisioning::of(&state.client, &state.config) {
            others.spawn(provisioning.run());
        }
        if let Some(gangs) = GangProvisioning::of(&state.client, &state.config) {
            others.spawn(gangs.run());
        }
        let mut shutdown = std::pin::pin!(shutdown);
        loop {
            let due = state.sleep();
            let has_observed = tokio::select! {
                biased;
                () = &mut shutdown => return Ok(()),
                observation = observations.recv() => { state.apply(observation); true }
                () = due => false,
            };
            let (begun, meter) = (Instant::now(), &state.config.meter);
            for (queue, depth) in ["watch events", "results"].into_iter().zip(observations.depths()) {
                meter.set("queue_depth", &[("queue", queue)], depth);
            }
            for _ in 1..OBSERVATIONS_PER_ROUND_MAX {
                let Some(observation) = observations.try_recv() else { break };
                state.apply(Some(observation));
            }
            state.discover_kinds();
            state.start_dry_runs();
            state.plan();
            state.reconcile_dirty();
            state.reconcile_kueue();
            state.check_orphans();
            state.report_decode_errors();
            state.start_forecast();
            state.config.meter.set("steps_in_flight", &[], state.in_flight.len() + state.kueue.writes());
            state.config.meter.took("round_duration_seconds", &[], begun.elapsed());
            self.synced
                .send_if_modified(|synced| std::mem::replace(synced, state.has_synced) != state.has_synced);
            let generation = state.index.read().unwrap_or_else(PoisonError::into_inner).world().generation();
            let has_forecast = std::mem::take(&mut state.has_new_forecast);
            // What is not queued changes without the World.
            let has_changed = |sent: &mut u64| std::mem::replace(sent, generation) != generation;
            self.changes.send_if_modified(|sent| has_changed(sent) || has_forecast || has_observed);
        }
    }
}

/// State of the loop beside the index. It is not persisted: a new process rebuilds it.
struct State {
    client: Client,
    config: Config,
    index: Arc<RwLock<Index>>,
    observations: UnboundedSender<Observation>,
    watches: Watches,
    recorder: Recorder,
    /// Watches whose initial list is not complete. Planning starts when this set is empty.
    unsynced: BTreeSet<Source>,
    has_synced: bool,
    planned_generation: Option<u64>,
    /// The earliest future start of a reservation: a plan is due then, even if nothing has changed.
    next_reserved_start: Option<MicroTime>,
    /// The earliest time at which a gang may use a node again that it avoids after a failed scheduling attempt.
    next_node_retry: Option<MicroTime>,
    /// When a pod of a `DaemonSet` is expected no longer.
    next_daemon_pod_end: Option<MicroTime>,
    /// CRDs by name: the kinds that each serves, and their state.
    definitions: BTreeMap<String, (BTreeSet<Kind>, KindState)>,
    /// Groups whose CRD has no status subresource.
    without_status_subresource: BTreeSet<Group>,
    /// Running discovery, by group and version.
    discovering: BTreeMap<String, kinds::Lookup>,
    /// Kinds that no live AppWrapper wraps, and since when.
    unused_since: BTreeMap<Kind, MicroTime>,
    /// Kinds that are watched. True: all their objects are watched, not only the labelled ones.
    watched: BTreeMap<Kind, bool>,
    tasks: JoinSet<()>,
    overruns: OverrunRecord,
    discovery_tasks: JoinSet<()>,
    /// Limits the number of discovery requests at the same time.
    discovery_permits: Arc<Semaphore>,
    /// Limits the number of steps that write at the same time.
    permits: Arc<Semaphore>,
    /// Limits the number of pods that are ungated at the same time. Separate from `permits`, so that running gangs do
    /// not wait for gangs that start.
    ungatings: Arc<Semaphore>,
    in_flight: BTreeMap<String, StepInFlight>,
    status_refresh: StatusRefresh,
    permissions: Permissions,
    patience: Patience,
    departures: Departures,
    dry_runs: DryRuns,
    orphans: Orphans,
    decode_errors: DecodeErrors,
    /// The group of each `QuotaSubtree`, by uid.
    quota_groups: BTreeMap<String, quota::Group>,
    /// Pods that are being deleted because their place was lost, by uid.
    deleting_pods: BTreeSet<String>,
    forecast: Forecaster,
    /// A new forecast arrived since the last round.
    has_new_forecast: bool,
    kueue: kueue::KueueState,
    failures: BTreeMap<String, (u32, MicroTime)>,
    /// AppWrappers whose pod counts are to be written, and when.
    counts: BTreeMap<String, MicroTime>,
    requeue_at: Requeues,
}

impl State {
    fn new(client: Client, config: Config, index: Arc<RwLock<Index>>, observations: Senders) -> Self {
        let preempts = config.preemption && !config.dynamic_priority;
        let preemption = if preempts { PreemptionPolicy::LowerPriority } else { PreemptionPolicy::Never };
        Self::index(&index).set_policy(Policy {
            preemption,
            backfill: Backfill::Reserve,
            packing: config.packing,
            fair_sharing: config.kueue_options.fair_sharing,
            topology: config.kueue_options.topology,
            guessed_hold_us: config.guessed_hold_us,
        });
        Self::index(&index).set_aging(config.dynamic_priority);
        Self::index(&index).set_admits_workloads(config.kueue == Kueue::Scheduler);
        Self::index(&index).set_kueue_rules(config.kueue_options.rules.clone());
        let mut watches = Watches::new(client.clone(), observations.of_watches, config.meter.clone());
        watches.nodes();
        watches.namespaces();
        watches.pods();
        watches.definitions();
        Self {
            recorder: Recorder::new(client.clone(), config.clock.clone(), config.meter.clone()),
            permits: Arc::new(Semaphore::new(config.writers.max(1))),
            ungatings: Arc::new(Semaphore::new(config.writers.max(1))),
            unsynced: BTreeSet::from([Source::Nodes, Source::Namespaces, Source::Pods, Source::Definitions]),
            has_synced: false,
            planned_generation: None,
            next_reserved_start: None,
            next_node_retry: None,
            next_daemon_pod_end: None,
            definitions: BTreeMap::new(),
            without_status_subresource: BTreeSet::new(),
            discovering: BTreeMap::new(),
            unused_since: BTreeMap::new(),
            discovery_permits: Arc::new(Semaphore::new(DISCOVERY_REQUESTS_MAX)),
            watched: BTreeMap::new(),
            tasks: JoinSet::new(),
            overruns: OverrunRecord::new(client.clone()),
            discovery_tasks: JoinSet::new(),
            in_flight: BTreeMap::new(),
            status_refresh: StatusRefresh::default(),
            permissions: Permissions::default(),
            patience: Patience::default(),
            departures: Departures::default(),
            dry_runs: DryRuns::default(),
            orphans: Orphans::default(),
            decode_errors: DecodeErrors::default(),
            quota_groups: BTreeMap::new(),
            deleting_pods: BTreeSet::new(),
            forecast: Forecaster::default(),
            has_new_forecast: false,
            kueue: kueue::KueueState::default(),
            failures: BTreeMap::new(),
            counts: BTreeMap::new(),
            requeue_at: Requeues::default(),
            client,
            config,
            index,
            observations: observations.of_tasks,
            watches,
        }
    }

    fn now(&self) -> MicroTime {
        MicroTime::from((self.config.clock)())
    }

    /// Locks the index for writing. A poisoned lock is usable: only readers panic, and they do not change the index.
    fn index(index: &RwLock<Index>) -> RwLockWriteGuard<'_, Index> {
        index.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Completes at the earliest deadline; never if there is none.
    fn sleep(&self) -> impl Future<Output = ()> + use<> {
        let due = self.requeue_at.due().into_iter();
        let due = due
            .chain(self.next_reserved_start)
            .chain(self.next_node_retry)
            .chain(self.next_daemon_pod_end)
            .chain(self.status_refresh.due())
            .chain(self.forecast.due())
            .chain(self.departures.due())
            .chain(self.next_watch_end())
            .chain(self.orphans.due())
            .chain(self.kueue.due())
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
        index.set_clock(now);
        match observation {
            Observation::Node(node) => index.upsert_node(node),
            Observation::NodeDeleted(name) => index.delete_node(&name),
            Observation::Namespace(namespace) => {
                for error in index.upsert_namespace(&namespace) {
                    tracing::warn!("{error}: as little as possible is allowed there");
                }
            }
            Observation::NamespaceDeleted(name) => index.delete_namespace(&name),
            Observation::Pod(pod) => index.upsert_pod(pod),
            Observation::PodDeleted(uid) => {
                self.deleting_pods.remove(&uid);
                index.delete_pod(&uid);
            }
            Observation::Object(kind, object) => index.upsert_object(ObjectRow::of(&kind, object)),
            Observation::ObjectDeleted(uid) => index.delete_object(&uid),
            Observation::Wrapper(group, wrapper) => {
                self.decode_errors.forget(&wrapper.metadata.uid);
                self.config.meter.seen(&wrapper.metadata.uid, &wrapper.metadata.resource_version);
                index.upsert_wrapper(group, *wrapper, now);
            }
            Observation::Undecodable(error) => self.decode_errors.add(*error),
            Observation::WrapperDeleted(uid) => {
                self.config.meter.seen(&uid, "");
                index.delete_wrapper(&uid);
                self.forget(&uid);
            }
            Observation::Quota(group, part) => {
                self.quota_groups.insert(part.metadata.uid.clone(), group);
                index.upsert_quota(*part);
            }
            Observation::QuotaDeleted(uid) => {
                self.quota_groups.remove(&uid);
                index.delete_quota(&uid);
            }
            Observation::Definition(definition) => self.definition_seen(&mut index, &definition),
            Observation::DefinitionDeleted(name) => self.definition_deleted(&mut index, &name),
            Observation::Discovered(api_version, resources) => {
                self.discovered(&mut index, &api_version, &resources);
            }
            Observation::Referenced(change) => index.apply_referenced(*change),
            Observation::Kueue(change) => self.kueue_changed(&mut index, *change, now),
            Observation::KueueDone(outcome) => self.kueue_done(&mut index, outcome, now),
            Observation::Jobs(..) | Observation::Provisioning(..) => {} // Of the other loops.
            Observation::Synced(source) => self.synced(&mut index, &source),
            Observation::ObjectsListed(kind, uids) => index.retain_objects(&kind, &uids),
            Observation::WatchFailed(source, why) => self.watch_failed(&mut index, &source, &why),
            Observation::DiscoveryFailed(api_version, why) => {
                self.discovery_failed(&mut index, &api_version, &why);
            }
            Observation::Forecast { forecast, pause_us } => {
                self.fold_forecast(&mut index, *forecast, pause_us, now);
            }
            Observation::UngateForbidden(uid, forbidden) => {
                if let Some(wrapper) = index.wrapper(&uid)
                    && let Some(event) = self.permissions.ungate_forbidden(&uid, *forbidden)
                {
                    self.recorder.record(wrapper, &event);
                }
            }
            Observation::DryRunDone(id, generation, answer) => {
                self.dry_run_done(&mut index, &id, generation, answer);
            }
            Observation::OrphansChecked(owner, owners) => self.orphans_checked(&mut index, &owner, &owners),
            Observation::PermissionGranted(uid) => index.requeue_inadmissible(&uid),
            Observation::StepDone(uid, outcome) => self.step_done(&mut index, &uid, *outcome, now),
        }
    }

    fn forget(&mut self, uid: &str) {
        if let Some(step) = self.in_flight.remove(uid) {
            step.task.abort();
        }
        self.failures.remove(uid);
        self.config.meter.traces.forget(uid);
        self.decode_errors.forget(uid);
        self.permissions.forget(uid);
        self.patience.forget(uid);
        self.patience.forget_removal(uid);
        self.counts.remove(uid);
        self.requeue_at.forget(uid);
    }
}
