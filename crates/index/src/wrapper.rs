//! Wrappers as they were observed, and where they are in this process.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use api::appwrapper::{AppWrapper, Group, State, Status, render, transition};
use api::{Hints, Meta, MicroTime};
use model::{Gang, GangKey, GangState, NodeName, QueueIx, ResourceNames, Time};

use crate::phase::{Phase, Stop};
use crate::spec_summary::SpecSummary;

/// What a wrapper is called.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct WrapperKey {
    /// Its API group.
    pub group: Group,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl fmt::Display for WrapperKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// An observed wrapper.
#[derive(Debug, Clone)]
pub struct Wrapper {
    /// What it is called.
    pub key: WrapperKey,
    /// Its identity.
    pub uid: String,
    /// The version that was observed last.
    pub resource_version: String,
    /// Counts changes of its specification.
    pub generation: i64,
    /// Whether it is being deleted.
    pub is_deleting: bool,
    /// When it was first observed, by this process or the one before; later than any wrapper seen earlier.
    pub seen: MicroTime,
    /// What it asks for.
    pub summary: SpecSummary,
    /// Its labels; some name the quota that it is charged to.
    pub labels: BTreeMap<String, String>,
    /// What its annotations tell.
    pub hints: Hints,
    /// Its status as last observed or written.
    pub status: Status,
    /// Where it is.
    pub phase: Phase,
    /// Nodes that it keeps off, and until when: the scheduler refused its pods there.
    pub avoids: BTreeMap<NodeName, MicroTime>,
}

impl Wrapper {
    /// A wrapper that is seen for the first time at `seen`.
    pub(crate) fn new(group: Group, object: AppWrapper, seen: MicroTime, names: &mut ResourceNames) -> Self {
        let AppWrapper { metadata: meta, spec, status } = object;
        Self {
            summary: SpecSummary::read(&meta, &spec, names),
            hints: Hints::read(&meta.annotations),
            seen: status.controllerfirsttimestamp.unwrap_or(seen),
            status,
            phase: Phase::Unknown,
            avoids: BTreeMap::new(),
            is_deleting: meta.is_deleting(),
            labels: meta.labels,
            generation: meta.generation,
            resource_version: meta.resource_version,
            uid: meta.uid,
            key: WrapperKey { group, namespace: meta.namespace, name: meta.name },
        }
    }

    /// Metadata as far as rendering objects needs it.
    pub fn meta(&self) -> Meta {
        Meta {
            name: self.key.name.clone(),
            namespace: self.key.namespace.clone(),
            uid: self.uid.clone(),
            ..Meta::default()
        }
    }

    /// Value of the label by which pods of this wrapper are tracked.
    pub fn label(&self) -> &str {
        render::label_value(&self.key.name)
    }

    /// The gang that the planner sees, if it is to see one. `ages`: its rank rises by its slope while it waits.
    pub(crate) fn gang(&self, ages: bool) -> Option<Gang> {
        let state = self.phase.gang_state()?;
        Some(Gang {
            key: self.gang_key(),
            uid: self.uid.clone(),
            queue: QueueIx::default(),
            priority: self.summary.spec.priority_milli,
            slope: if ages { self.summary.spec.slope_micro } else { 0 },
            queued_at: Time(self.seen.0),
            pod_sets: self.summary.pod_sets.clone(),
            declared: self.summary.declared.clone(),
            started_at: self.started_at().filter(|_| state.assignment().is_some()),
            runs_us: self.runs_us(),
            checkpointed_at: self.hints.checkpointed_at.map(|time| Time(time.0)),
            protected: self.hints.is_protected,
            excluded: self.excluded(&state),
            state,
            ..Gang::default()
        })
    }

    /// Nodes that it must not be planned on; those it has been planned on are facts.
    fn excluded(&self, state: &GangState) -> Arc<BTreeSet<NodeName>> {
        match state {
            GangState::Waiting => Arc::new(self.avoids.keys().cloned().collect()),
            GangState::Nominated(_) | GangState::Reserved(_) | GangState::Unplaced => Arc::default(),
        }
    }

    /// What its gang is called.
    pub fn gang_key(&self) -> GangKey {
        GangKey {
            kind: self.key.group.resource(),
            namespace: self.key.namespace.clone(),
            name: self.key.name.clone(),
        }
    }

    /// When all its objects existed, if they do.
    pub fn started_at(&self) -> Option<Time> {
        let dispatched = self.status.condition(transition::DISPATCHED, "AppWrapperRunnable")?;
        self.is_dispatched().then_some(Time(dispatched.last_transition_micro_time.0))
    }

    fn runs_us(&self) -> Option<i64> {
        let specified = || self.summary.run_time_s.map(|run| run.saturating_mul(1_000_000));
        self.hints.expected_us.or_else(specified)
    }

    /// Whether its status says that objects may exist for it.
    pub fn may_have_objects(&self) -> bool {
        self.status.canrun || self.being_stopped().is_some()
    }

    /// Why its status says that its objects are to be removed, if it does.
    pub fn being_stopped(&self) -> Option<Stop> {
        let Status { canrun, state, queuejobstate, .. } = &self.status;
        match queuejobstate.as_str() {
            _ if *canrun => None,
            transition::PREEMPT_CANDIDATE if *state == State::Running => Some(Stop::Requeue),
            transition::PREEMPTED => Some(Stop::Preempt(None)),
            _ => None,
        }
    }

    /// Whether its status says that all its objects have been created.
    pub fn is_dispatched(&self) -> bool {
        self.status.canrun && matches!(self.status.state, State::Running | State::RunningHoldCompletion)
    }
}

/// Whether `new` is a later version than `old`. Versions that are no numbers are taken as they come.
pub(crate) fn is_newer(new: &str, old: &str) -> bool {
    match (new.parse::<u64>(), old.parse::<u64>()) {
        (Ok(new), Ok(old)) => new > old,
        _ => new != old,
    }
}
