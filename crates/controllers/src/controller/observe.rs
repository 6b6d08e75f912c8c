//! A controller that only looks: it reads the cluster, plans as the real one would, and writes nothing. So what it says about a
//! gang is what the same code decides on the same observations, and it can be asked what would become of a gang that does not exist.

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

/// How long the cluster may take to show all that is needed.
const READ_WITHIN: Duration = Duration::from_secs(30);

/// What is known of a cluster, planned on.
pub struct Observer {
    state: State,
    observations: mpsc::UnboundedReceiver<Observation>,
}

/// What becomes of a wrapper.
#[derive(Debug, Clone, PartialEq)]
pub struct WrapperReport {
    /// What it is called.
    pub key: GangKey,
    /// What becomes of it.
    pub phase: WrapperPhase,
    /// Why and when it was stopped last, if it was.
    pub stopped: Option<String>,
    /// Why it starts later than it was promised, as its status tells: promises are known to who made them.
    pub moved: Option<String>,
    /// Which right its controller lacks to start or to stop it, as its status tells: rights are not the reader's.
    pub denied: Option<String>,
}

/// What becomes of a wrapper.
#[derive(Debug, Clone, PartialEq)]
pub enum WrapperPhase {
    /// It is queued, is being started or runs.
    Queued(GangStatus),
    /// It cannot be queued, and why.
    NotQueued(Vec<String>),
    /// It fails as soon as it is looked at, and why.
    Fails(String),
    /// Its objects are being removed, and why.
    Stopping(String),
    /// It is over: its state, and what was said about that.
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

    /// What becomes of the wrappers of this name; there may be one in each group.
    pub fn why(&self, namespace: &str, name: &str) -> Vec<WrapperReport> {
        let index = State::index(&self.state.index);
        let is_meant = |wrapper: &&Wrapper| wrapper.key.namespace == namespace && wrapper.key.name == name;
        let uids: Vec<String> =
            index.wrappers().filter(is_meant).map(|wrapper| wrapper.uid.clone()).collect();
        drop(index);
        uids.iter().filter_map(|uid| self.account(uid)).collect()
    }

    /// Whether the cluster serves an `AppWrapper` of this group.
    pub fn serves(&self, group: Group) -> bool {
        self.state.watches.has(&Source::Wrappers(group))
    }

    /// The namespaces that hold a wrapper of this name.
    pub fn namespaces_of(&self, name: &str) -> BTreeSet<String> {
        let index = State::index(&self.state.index);
        let named = index.wrappers().filter(|wrapper| wrapper.key.name == name);
        named.map(|wrapper| wrapper.key.namespace.clone()).collect()
    }

    /// What would become of a manifest if it were created now, after those that were asked about before. The server is
    /// asked whether it would take it, and nothing is written. An empty namespace stands for `namespace`.
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
            return Err(Error::Exists(format!("{} {name:?} is named twice", group.resource())));
        }
        let now = self.state.now();
        State::index(&self.state.index).wrapper_seen(group, created, now);
        let is_classified = |state: &State| {
            let index = State::index(&state.index);
            index.wrapper(&uid).is_none_or(|wrapper| wrapper.phase != Phase::Unknown)
        };
        self.read_until(is_classified).await?;
        self.state.plan_and_forecast();
        self.account(&uid).ok_or_else(|| Error::NotFound("it was deleted meanwhile".into()))
    }

    /// Stops looking. Without it, watches that a runtime drops at its end take that for an interruption.
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
                "{what} could not be read within {} s; look for a warning above",
                READ_WITHIN.as_secs()
            )));
        }
        Ok(())
    }

    fn account(&self, uid: &str) -> Option<WrapperReport> {
        let index = State::index(&self.state.index);
        let MicroTime(now) = self.state.now();
        let wrapper = index.wrapper(uid)?;
        let last = || latest(wrapper, |_| true).unwrap_or_default();
        let phase = match &wrapper.phase {
            Phase::Unknown => WrapperPhase::NotQueued(vec!["its kinds are not known yet".into()]),
            Phase::Held(_) if wrapper.summary.flaw.is_some() => {
                WrapperPhase::Fails(wrapper.summary.flaw.clone()?)
            }
            Phase::Held(problems) => WrapperPhase::NotQueued(problems.clone()),
            Phase::Stopping(..) | Phase::Leaving(..) => WrapperPhase::Stopping(last()),
            Phase::Ended => WrapperPhase::Ended(wrapper.status.state, last()),
            Phase::Waiting | Phase::Nominated(_) | Phase::Starting(_) | Phase::Running(_) => {
                WrapperPhase::Queued(GangStatus::of(&index.world().snapshot(Time(now)), uid)?)
            }
        };
        let stops = [transition::PREEMPTED, transition::PREEMPT_CANDIDATE];
        let stopped = latest(wrapper, |condition| stops.contains(&&*condition.kind));
        let waits = matches!(phase, WrapperPhase::Queued(GangStatus::Pending(_)));
        let moved = Slip::reminder_in(&wrapper.status.message).filter(|_| waits).map(str::to_owned);
        let denied = ForbiddenRequest::in_message(&wrapper.status.message).map(str::to_owned);
        Some(WrapperReport { key: wrapper.gang_key(), phase, stopped, moved, denied })
    }
}

/// The latest such condition of a wrapper for people: its message, or its reason where it has none, and when it came.
fn latest(wrapper: &Wrapper, is_meant: impl Fn(&Condition) -> bool) -> Option<String> {
    let conditions = wrapper.status.conditions.iter().filter(|condition| is_meant(condition));
    let latest = conditions.max_by_key(|condition| condition.last_transition_micro_time)?;
    let text = if latest.message.is_empty() { &latest.reason } else { &latest.message };
    Some(format!("{}, at {}", text.trim_end_matches('.'), Time(latest.last_transition_micro_time.0)))
}
