//! A read-only controller, for `muster why` and `muster plan`. It watches the cluster and plans like the real
//! controller, but writes nothing. So its answers are decisions of the same code on the same observations. It can
//! also plan AppWrappers that do not exist in the cluster.

use std::collections::BTreeSet;
use std::time::Duration;

use api::MicroTime;
use api::appwrapper::{AppWrapper, Condition, Group, State as WrapperState, transition};
use index::{Phase, Wrapper};
use kube::Client;
use model::{GangKey, GangStatus, Slip, Time};
use serde_json::Value;
use tokio::sync::mpsc;

use super::State;
use crate::api_calls::ResourcePath;
use crate::config::Config;
use crate::error::Error;
use crate::forbidden::ForbiddenRequest;
use crate::observations::{Observation, Source};

/// Timeout for the initial lists of all watches.
const READ_WITHIN: Duration = Duration::from_secs(30);

/// A read-only controller.
pub struct Observer {
    state: State,
    observations: mpsc::UnboundedReceiver<Observation>,
}

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

impl Observer {
    /// Reads the cluster behind `client` and plans as a controller with this configuration would.
    pub async fn of(client: Client, config: Config) -> Result<Self, Error> {
        let (sender, observations) = mpsc::unbounded_channel();
        let mut observer = Self { state: State::new(client, config, <_>::default(), sender), observations };
        observer.read_until(|state| state.has_synced).await?;
        observer.state.plan_and_forecast();
        Ok(observer)
    }

    /// Reports the AppWrappers of this name; each API group may have one.
    pub fn why(&self, namespace: &str, name: &str) -> Vec<WrapperReport> {
        let index = State::index(&self.state.index);
        let is_meant = |wrapper: &&Wrapper| wrapper.key.namespace == namespace && wrapper.key.name == name;
        let uids: Vec<String> =
            index.wrappers().filter(is_meant).map(|wrapper| wrapper.uid.clone()).collect();
        drop(index);
        uids.iter().filter_map(|uid| self.report(uid)).collect()
    }

    /// Whether the cluster serves the `AppWrapper` of this group.
    pub fn serves(&self, group: Group) -> bool {
        self.state.watches.has(&Source::Wrappers(group))
    }

    /// The namespaces with an AppWrapper of this name.
    pub fn namespaces_of(&self, name: &str) -> BTreeSet<String> {
        let index = State::index(&self.state.index);
        let named = index.wrappers().filter(|wrapper| wrapper.key.name == name);
        named.map(|wrapper| wrapper.key.namespace.clone()).collect()
    }

    /// Reports what would happen to a manifest if it were created now, after the manifests of earlier calls. The API
    /// server validates it in a dry run; nothing is written. `namespace` applies to a manifest without a namespace.
    pub async fn what_if(
        &mut self,
        group: Group,
        namespace: &str,
        mut manifest: Value,
    ) -> Result<WrapperReport, Error> {
        let namespace = manifest["metadata"]["namespace"].as_str().unwrap_or(namespace).to_owned();
        if let Some(meta) = manifest["metadata"].as_object_mut() {
            meta.insert("namespace".into(), namespace.clone().into());
        }
        let created: AppWrapper =
            ResourcePath::wrappers(group, &namespace).create_dry_run(&self.state.client, &manifest).await?;
        let uid = created.metadata.uid.clone();
        let is_known = State::index(&self.state.index).wrappers().any(|other| {
            other.key.group == group
                && other.key.namespace == namespace
                && other.key.name == created.metadata.name
        });
        if is_known {
            let name = created.metadata.name;
            return Err(Error::Exists(format!(
                "{} {name:?} exists already or is given twice",
                group.resource()
            )));
        }
        let now = self.state.now();
        State::index(&self.state.index).upsert_wrapper(group, created, now);
        let is_classified = |state: &State| {
            let index = State::index(&state.index);
            index.wrapper(&uid).is_none_or(|wrapper| wrapper.phase != Phase::Unknown)
        };
        self.read_until(is_classified).await?;
        self.state.plan_and_forecast();
        self.report(&uid).ok_or_else(|| Error::NotFound("the AppWrapper was deleted in the meantime".into()))
    }

    /// Stops the watches. Otherwise, watches that the runtime drops at its end report an interruption.
    pub async fn close(self) {
        self.state.watches.end().await;
    }

    async fn read_until(&mut self, is_enough: impl Fn(&State) -> bool) -> Result<(), Error> {
        let state = &mut self.state;
        let read = async {
            state.discover_kinds();
            while !is_enough(state) {
                let observation = self.observations.recv().await;
                state.apply(observation);
                state.discover_kinds();
            }
        };
        if tokio::time::timeout(READ_WITHIN, read).await.is_err() {
            let missing: Vec<_> = self.state.unsynced.iter().map(ToString::to_string).collect();
            let what = if missing.is_empty() { "all kinds".into() } else { missing.join(", ") };
            return Err(Error::Unreachable(format!(
                "{what} could not be read within {} s; see the warnings above",
                READ_WITHIN.as_secs()
            )));
        }
        Ok(())
    }

    fn report(&self, uid: &str) -> Option<WrapperReport> {
        let index = State::index(&self.state.index);
        let MicroTime(now) = self.state.now();
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
                WrapperPhase::Queued(GangStatus::of(&index.world().snapshot(Time(now)), uid)?)
            }
        };
        let stops = [transition::PREEMPTED, transition::PREEMPT_CANDIDATE];
        let stopped = latest(wrapper, |condition| stops.contains(&&*condition.kind));
        let waits = matches!(phase, WrapperPhase::Queued(GangStatus::Pending(_)));
        let moved = Slip::status_text_in(&wrapper.status.message).filter(|_| waits).map(str::to_owned);
        let denied = ForbiddenRequest::in_message(&wrapper.status.message).map(str::to_owned);
        Some(WrapperReport { key: wrapper.gang_key(), phase, stopped, moved, denied })
    }
}

/// The latest matching condition of an AppWrapper: its message, or its reason if the message is empty, and its time.
fn latest(wrapper: &Wrapper, is_meant: impl Fn(&Condition) -> bool) -> Option<String> {
    let conditions = wrapper.status.conditions.iter().filter(|condition| is_meant(condition));
    let latest = conditions.max_by_key(|condition| condition.last_transition_micro_time)?;
    let text = if latest.message.is_empty() { &latest.reason } else { &latest.message };
    Some(format!("{}, at {}", text.trim_end_matches('.'), Time(latest.last_transition_micro_time.0)))
}
