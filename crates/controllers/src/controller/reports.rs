//! Reports about AppWrappers from an index: their status, and what would happen to others if they were created now.
//! `muster why` and `muster plan` print them.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use api::MicroTime;
use api::appwrapper::{AppWrapper, Condition, Group, State as WrapperState, transition};
use index::{Index, KindState, Phase, Wrapper};
use kube::Client;
use model::{GangKey, GangStatus, Slip, Time};
use tokio::sync::{Semaphore, watch};

use super::forecast::forecast_now;
use super::plan_until_settled;
use crate::config::Clock;
use crate::discovery::Resources;
use crate::error::Error;
use crate::forbidden::ForbiddenRequest;
use crate::step;

/// Maximum number of simulations that wait for the one that runs: each has a copy of the index.
const SIMULATIONS_MAX: usize = 16;

/// The status of one AppWrapper, as this controller would report it.
#[derive(Debug, Clone, PartialEq)]
pub struct WrapperReport {
    /// Name of the AppWrapper.
    pub key: GangKey,
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
    simulations: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
}

impl Reports {
    pub(super) fn new(
        client: Client,
        clock: Clock,
        index: Arc<RwLock<Index>>,
        synced: watch::Receiver<bool>,
    ) -> Self {
        let (simulations, waiting) = (Arc::new(Semaphore::new(1)), Arc::new(Semaphore::new(SIMULATIONS_MAX)));
        Self { client, clock, index, synced, simulations, waiting }
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

    /// Reports the AppWrappers of a namespace with this name. Each API group may have one.
    pub fn of(&self, namespace: &str, name: &str) -> Vec<WrapperReport> {
        let index = self.index.read().unwrap_or_else(PoisonError::into_inner);
        in_namespace(&index, namespace, name, self.now())
    }

    /// Reports the AppWrappers with the first `most` names of a namespace behind the name `after`, by name, and whether
    /// there are more.
    pub fn page(
        &self,
        namespace: &str,
        after: &str,
        most: usize,
    ) -> (BTreeMap<String, Vec<WrapperReport>>, bool) {
        let index = self.index.read().unwrap_or_else(PoisonError::into_inner);
        let mut uids: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for wrapper in index.wrappers().filter(|wrapper| wrapper.key.namespace == namespace) {
            if *wrapper.key.name > *after {
                uids.entry(&wrapper.key.name).or_default().push(&wrapper.uid);
            }
        }
        let has_more = uids.len() > most;
        let now = self.now();
        let of_uids = |uids: Vec<&str>| uids.into_iter().filter_map(|uid| report(&index, uid, now)).collect();
        let page = uids.into_iter().take(most).map(|(name, uids)| (name.to_owned(), of_uids(uids)));
        (page.collect(), has_more)
    }

    /// Reports what would happen to AppWrappers if they were created now, in this order. They are planned on a copy of
    /// the index; nothing is written.
    ///
    /// # Errors
    /// [`Error::Exists`] if an AppWrapper exists already or is given twice; [`Error::Unreachable`] if too many
    /// simulations wait, or a wrapped kind cannot be looked up.
    pub async fn simulate(&self, wrappers: Vec<(Group, AppWrapper)>) -> Result<Vec<WrapperReport>, Error> {
        let busy = || Error::Unreachable("too many plans are computed at the moment: try again later".into());
        let _waiting = self.waiting.try_acquire().map_err(|_| busy())?;
        let _running = self.simulations.acquire().await.map_err(|_| busy())?;
        let shared = self.index.clone();
        let copy = move || shared.read().unwrap_or_else(PoisonError::into_inner).clone();
        let mut index = blocking(copy).await?;
        index.disable_dry_runs();
        let mut reports = Vec::new();
        for (at, (group, mut wrapper)) in wrappers.into_iter().enumerate() {
            check_is_new(&index, group, &wrapper)?;
            // No object of the cluster has such a uid.
            let uid = format!("plan/{at}");
            wrapper.metadata.uid.clone_from(&uid);
            let now = self.now();
            index.upsert_wrapper(group, wrapper, now);
            self.look_up_kinds(&mut index).await?;
            let (planned, report) = blocking(move || {
                plan(&mut index, now);
                let report = report(&index, &uid, now);
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

/// Refuses an AppWrapper whose name is taken.
pub(super) fn check_is_new(index: &Index, group: Group, wrapper: &AppWrapper) -> Result<(), Error> {
    let (namespace, name) = (&wrapper.metadata.namespace, &wrapper.metadata.name);
    let is_taken = index.wrappers().any(|other| {
        other.key.group == group && other.key.namespace == *namespace && other.key.name == *name
    });
    if is_taken {
        let resource = group.resource();
        return Err(Error::Exists(format!("{resource} {name:?} exists already or is given twice")));
    }
    Ok(())
}

/// Plans, and computes the forecast at once.
fn plan(index: &mut Index, now: MicroTime) {
    index.expire_node_exclusions(now);
    index.expect_daemon_pods(now);
    index.settle();
    plan_until_settled(index, now, None);
    forecast_now(index, now);
}

/// Reports the AppWrappers of a namespace with this name.
pub(super) fn in_namespace(index: &Index, namespace: &str, name: &str, now: MicroTime) -> Vec<WrapperReport> {
    let is_meant = |wrapper: &&Wrapper| wrapper.key.namespace == namespace && wrapper.key.name == name;
    index.wrappers().filter(is_meant).filter_map(|wrapper| report(index, &wrapper.uid, now)).collect()
}

/// Reports one AppWrapper.
pub(super) fn report(index: &Index, uid: &str, now: MicroTime) -> Option<WrapperReport> {
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
            WrapperPhase::Queued(GangStatus::of(&index.world().snapshot(Time(now.0)), uid)?)
        }
    };
    let stops = [transition::PREEMPTED, transition::PREEMPT_CANDIDATE];
    let stopped = latest(wrapper, |condition| stops.contains(&&*condition.kind));
    let waits = matches!(phase, WrapperPhase::Queued(GangStatus::Pending(_)));
    let moved = Slip::status_text_in(&wrapper.status.message).filter(|_| waits).map(str::to_owned);
    let denied = ForbiddenRequest::in_message(&wrapper.status.message).map(str::to_owned);
    let is_over = matches!(phase, WrapperPhase::Ended(..) | WrapperPhase::Fails(_));
    let unplanned = step::unplanned(wrapper).filter(|_| !is_over);
    Some(WrapperReport { key: wrapper.gang_key(), phase, stopped, moved, denied, unplanned })
}

/// The latest matching condition of an AppWrapper: its message, or its reason if the message is empty, and its time.
fn latest(wrapper: &Wrapper, is_meant: impl Fn(&Condition) -> bool) -> Option<String> {
    let conditions = wrapper.status.conditions.iter().filter(|condition| is_meant(condition));
    let latest = conditions.max_by_key(|condition| condition.last_transition_micro_time)?;
    let text = if latest.message.is_empty() { &latest.reason } else { &latest.message };
    Some(format!("{}, at {}", text.trim_end_matches('.'), Time(latest.last_transition_micro_time.0)))
}
