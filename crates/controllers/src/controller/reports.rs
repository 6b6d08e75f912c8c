//! Reports about AppWrappers and Workloads from an index: their status, and what would happen to others if they were
//! created now. `muster why` and `muster plan` print them.

pub(super) mod capacity;
mod kinds;
mod listed;
mod pending;
mod unplanned;
mod workloads;

use std::sync::{Arc, PoisonError, RwLock};

use api::MicroTime;
use api::appwrapper::{Condition, State as WrapperState, transition};
use index::{Index, KindState, Phase, Wrapper};
use kube::Client;
use model::{GangKey, GangStatus, Position, Slip, Time};
use tokio::sync::{Semaphore, watch};

use super::forecast::forecast_now;
use super::planning::plan_until_settled;
pub use capacity::{NodeAmounts, NodeReport, QuotaGroup};
pub use kinds::{GangKind, NewGang};
pub use listed::{GangObject, Page, Reported, workload_named};
pub use pending::{PendingWorkload, WorkloadQueue};
pub use unplanned::Unplanned;
pub use workloads::{WorkloadPlaces, WorkloadReport, WorkloadReportPhase};

use crate::config::Clock;
use crate::discovery::Resources;
use crate::error::Error;
use crate::forbidden::ForbiddenRequest;
use crate::jobs::BlockedJobs;
use crate::step;
use workloads::workload_report;

/// Maximum number of simulations that wait for the one that runs: each has a copy of the index.
const SIMULATIONS_MAX: usize = 16;

/// The report about one object.
#[derive(Debug, Clone, PartialEq)]
pub enum GangReport {
    /// About an AppWrapper.
    Wrapper(Box<WrapperReport>),
    /// About a Workload.
    Workload(Box<WorkloadReport>),
}

impl GangReport {
    /// The report, if it is about an AppWrapper.
    pub fn wrapper(&self) -> Option<&WrapperReport> {
        match self {
            Self::Wrapper(report) => Some(report),
            Self::Workload(_) => None,
        }
    }

    /// The name of its object.
    pub fn key(&self) -> &GangKey {
        match self {
            Self::Wrapper(report) => &report.key,
            Self::Workload(report) => &report.key,
        }
    }

    /// What it is about.
    pub fn object(&self) -> &GangObject {
        match self {
            Self::Wrapper(report) => &report.object,
            Self::Workload(report) => &report.object,
        }
    }

    /// The report, if it is about a Workload.
    pub fn workload(&self) -> Option<&WorkloadReport> {
        match self {
            Self::Wrapper(_) => None,
            Self::Workload(report) => Some(report),
        }
    }
}

/// The status of one AppWrapper, as this controller would report it.
#[derive(Debug, Clone, PartialEq)]
pub struct WrapperReport {
    /// Name of the AppWrapper.
    pub key: GangKey,
    /// What it is, beside its status.
    pub object: GangObject,
    /// Its phase.
    pub phase: WrapperPhase,
    /// Why and when the gang was stopped last, if it was.
    pub stopped: Option<String>,
    /// Why its reserved start slipped, as its status says. Only the controller that made the reservation knows this.
    pub moved: Option<String>,
    /// The permission that the controller lacks to start or to stop the gang, as its status says. The permissions of
    /// the reader are not relevant.
    pub denied: Option<String>,
    /// What is not planned, if anything is.
    pub unplanned: Option<String>,
}

/// The phase of an AppWrapper.
#[derive(Debug, Clone, PartialEq)]
pub enum WrapperPhase {
    /// The gang is pending, starting or running.
    Queued(GangStatus),
    /// The gang cannot be queued; the problems.
    NotQueued(Vec<String>),
    /// The gang fails at its first reconciliation; the cause.
    Fails(String),
    /// The objects of the gang are being removed; the cause.
    Stopping(String),
    /// The gang has ended: its state, and the message of its last condition.
    Ended(WrapperState, String),
}

/// Reports from the live index of a running controller. Clones share it.
#[derive(Clone)]
pub struct Reports {
    client: Client,
    clock: Clock,
    index: Arc<RwLock<Index>>,
    synced: watch::Receiver<bool>,
    blocked_jobs: BlockedJobs,
    /// Whether the controller plans Workloads.
    plans_workloads: bool,
    simulations: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
}

impl Reports {
    pub(super) fn new(
        client: Client,
        clock: Clock,
        index: Arc<RwLock<Index>>,
        synced: watch::Receiver<bool>,
        blocked_jobs: BlockedJobs,
        plans_workloads: bool,
    ) -> Self {
        let (simulations, waiting) = (Arc::new(Semaphore::new(1)), Arc::new(Semaphore::new(SIMULATIONS_MAX)));
        Self { client, clock, index, synced, blocked_jobs, plans_workloads, simulations, waiting }
    }

    /// Whether this controller plans objects of a kind.
    pub fn plans(&self, kind: GangKind) -> bool {
        kind != GangKind::Workload || self.plans_workloads
    }

    /// Whether the controller has read the cluster and plans. Before that, reports are incomplete.
    pub fn are_ready(&self) -> bool {
        *self.synced.borrow()
    }

    /// Completes when the controller has read the cluster; never if it ends before.
    pub async fn ready(&self) {
        let mut synced = self.synced.clone();
        if synced.wait_for(|is_synced| *is_synced).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Reports the AppWrappers or the Workload of a namespace with this name. Each API group may have one.
    pub fn of(&self, kind: Reported, namespace: &str, name: &str) -> Vec<GangReport> {
        let index = self.index.read().unwrap_or_else(PoisonError::into_inner);
        kind.in_namespace(&index, namespace, name, self.now())
    }

    /// Reports the AppWrappers or Workloads of a page.
    pub fn page(&self, kind: Reported, page: &Page<'_>) -> (Vec<GangReport>, bool) {
        let index = self.index.read().unwrap_or_else(PoisonError::into_inner);
        kind.page(&index, page, self.now())
    }

    /// What is in no plan.
    pub fn unplanned(&self) -> Unplanned {
        let index = self.index.read().unwrap_or_else(PoisonError::into_inner);
        let unplanned = unplanned::unplanned(&index, self.now());
        Unplanned { blocked_jobs: self.blocked_jobs.all(), ..unplanned }
    }

    /// The pending Workloads of a queue, the next one first; `None` if the queue does not exist.
    pub fn pending_workloads(&self, queue: &WorkloadQueue) -> Option<Vec<PendingWorkload>> {
        let index = self.index.read().unwrap_or_else(PoisonError::into_inner);
        pending::pending_workloads(&index, queue, Time(self.now().0))
    }

    /// Reports what would happen to objects if they were created now, in this order. They are planned on a copy of
    /// the index; nothing is written.
    ///
    /// # Errors
    /// [`Error::Exists`] if an object exists already or is given twice; [`Error::Unreachable`] if too many
    /// simulations wait, or a wrapped kind cannot be looked up.
    pub async fn simulate(&self, gangs: Vec<NewGang>) -> Result<Vec<GangReport>, Error> {
        let busy = || Error::Unreachable("too many plans are computed at the moment: try again later".into());
        let _waiting = self.waiting.try_acquire().map_err(|_| busy())?;
        let _running = self.simulations.acquire().await.map_err(|_| busy())?;
        let shared = self.index.clone();
        let copy = move || shared.read().unwrap_or_else(PoisonError::into_inner).clone();
        let mut index = blocking(copy).await?;
        index.disable_dry_runs();
        let mut reports = Vec::new();
        for (at, mut gang) in gangs.into_iter().enumerate() {
            // No object of the cluster has such a uid.
            let uid = format!("plan/{at}");
            gang.metadata().uid.clone_from(&uid);
            let now = self.now();
            gang.add_to(&mut index, now)?;
            self.look_up_kinds(&mut index).await?;
            let (planned, report) = blocking(move || {
                plan(&mut index, now);
                let report = of_uid(&index, &uid, now);
                (index, report)
            })
            .await?;
            index = planned;
            reports.extend(report);
        }
        Ok(reports)
    }

    /// Looks up the kinds that no AppWrapper of the cluster wraps. They have no objects of an AppWrapper, so their
    /// list counts as read.
    async fn look_up_kinds(&self, index: &mut Index) -> Result<(), Error> {
        let unknown: Vec<_> = index.unknown_kinds().cloned().collect();
        for kind in unknown {
            let mut state = Resources::read(&self.client, &kind.api_version).await?.state(&kind);
            if let KindState::Served { listed, .. } = &mut state {
                *listed = true;
            }
            index.set_kind_state(&kind, &state);
        }
        for kind in index.unlisted_kinds() {
            index.set_listed(kind, Err("they are read when the AppWrapper is created".into()));
        }
        Ok(())
    }

    fn now(&self) -> MicroTime {
        MicroTime::from((self.clock)())
    }
}

/// Runs a computation that takes long outside of the asynchronous tasks.
async fn blocking<T: Send + 'static>(compute: impl FnOnce() -> T + Send + 'static) -> Result<T, Error> {
    let done = tokio::task::spawn_blocking(compute).await;
    done.map_err(|error| Error::Unreachable(format!("the plan could not be computed: {error}")))
}

/// Plans, and computes the forecast at once.
fn plan(index: &mut Index, now: MicroTime) {
    index.expire_node_exclusions(now);
    index.expect_daemon_pods(now);
    index.settle();
    plan_until_settled(index, now, None, None);
    forecast_now(index, now);
}

/// Reports the object of this uid.
pub(super) fn of_uid(index: &Index, uid: &str, now: MicroTime) -> Option<GangReport> {
    let position = index.world().position(uid, Time(now.0));
    at_position(index, uid, position.as_ref(), now)
}

/// The same for an object whose position in its queue is known.
fn at_position(index: &Index, uid: &str, position: Option<&Position>, now: MicroTime) -> Option<GangReport> {
    if let Some(row) = index.workload(uid) {
        return Some(GangReport::Workload(Box::new(workload_report(index, row, position, now))));
    }
    report(index, uid, position, now).map(|report| GangReport::Wrapper(Box::new(report)))
}

/// Reports one AppWrapper.
fn report(index: &Index, uid: &str, position: Option<&Position>, now: MicroTime) -> Option<WrapperReport> {
    let wrapper = index.wrapper(uid)?;
    let last = || latest(wrapper, |_| true).unwrap_or_default();
    let phase = match &wrapper.phase {
        Phase::Unknown => WrapperPhase::NotQueued(vec!["its kinds are not known yet".into()]),
        Phase::Inadmissible(_) if wrapper.summary.error.is_some() => {
            WrapperPhase::Fails(wrapper.summary.error.clone()?)
        }
        Phase::Inadmissible(problems) => WrapperPhase::NotQueued(problems.clone()),
        Phase::Stopping(..) | Phase::Stopped(..) => WrapperPhase::Stopping(last()),
        Phase::Finished => WrapperPhase::Ended(wrapper.status.state, last()),
        Phase::Waiting | Phase::Nominated(_) | Phase::Starting(_) | Phase::Running(_) => {
            WrapperPhase::Queued(GangStatus::at(&index.world().snapshot(Time(now.0)), uid, position)?)
        }
    };
    let stops = [transition::PREEMPTED, transition::PREEMPT_CANDIDATE];
    let stopped = latest(wrapper, |condition| stops.contains(&&*condition.kind));
    let waits = matches!(phase, WrapperPhase::Queued(GangStatus::Pending(_)));
    let moved = Slip::status_text_in(&wrapper.status.message).filter(|_| waits).map(str::to_owned);
    let denied = ForbiddenRequest::in_message(&wrapper.status.message).map(str::to_owned);
    let is_over = matches!(phase, WrapperPhase::Ended(..) | WrapperPhase::Fails(_));
    let unplanned = step::unplanned(wrapper).filter(|_| !is_over);
    let object = GangObject::of_wrapper(index, wrapper);
    Some(WrapperReport { key: wrapper.gang_key(), object, phase, stopped, moved, denied, unplanned })
}

/// The latest matching condition of an AppWrapper: its message, or its reason if the message is empty, and its time.
fn latest(wrapper: &Wrapper, is_meant: impl Fn(&Condition) -> bool) -> Option<String> {
    let conditions = wrapper.status.conditions.iter().filter(|condition| is_meant(condition));
    let latest = conditions.max_by_key(|condition| condition.last_transition_micro_time)?;
    let text = if latest.message.is_empty() { &latest.reason } else { &latest.message };
    Some(format!("{}, at {}", text.trim_end_matches('.'), Time(latest.last_transition_micro_time.0)))
}
