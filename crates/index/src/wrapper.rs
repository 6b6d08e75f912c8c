//! An AppWrapper as the index holds it: the watched object, its spec summary and its phase.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use api::appwrapper::{AppWrapper, Group, State, Status, render, transition};
use api::{GangAnnotations, Meta, MicroTime, NamespaceLimits};
use model::{Gang, GangKey, GangState, NodeName, QueueIx, ResourceNames, Time};

use crate::index::{DryRunOutcome, InternedRules, References};
use crate::objects::{ObjectKey, ObjectRow};
use crate::phase::{Phase, StopReason};
use crate::reserved_places::ReservedPlaces;
use crate::reserved_quota::ReservedQuota;
use crate::spec_summary::SpecSummary;

/// API group, namespace and name of a wrapper.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct WrapperKey {
    /// API group.
    pub group: Group,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl fmt::Display for WrapperKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A watched wrapper.
#[derive(Debug, Clone)]
pub struct Wrapper {
    /// Group, namespace and name.
    pub key: WrapperKey,
    /// Uid.
    pub uid: String,
    /// The latest known resource version.
    pub resource_version: String,
    /// Generation: increases with each change of the spec.
    pub generation: i64,
    /// Whether it is being deleted.
    pub is_deleting: bool,
    /// When a controller first saw it. Distinct for the wrappers that this process sees first, in the order of their
    /// arrival.
    pub first_seen: MicroTime,
    /// Summary of its spec.
    pub summary: SpecSummary,
    /// Labels; MCAD names the quota of a gang in labels. Those of a gang that holds places are the labels of its
    /// admission.
    pub labels: BTreeMap<String, String>,
    /// What admins allow in its namespace.
    pub(crate) limits: Arc<NamespaceLimits>,
    /// How many times over its declared run time counts while it waits.
    pub(crate) run_factor: i64,
    /// The priority of the spec, in thousandths. The summary has the one that counts.
    pub(crate) asked_priority: i64,
    /// The `priorityslope` of the spec, in millionths.
    pub(crate) asked_slope: i64,
    /// The labels that the object has now. They count when the gang is queued again.
    pub(crate) present_labels: BTreeMap<String, String>,
    /// Annotations that the planner uses.
    pub annotations: GangAnnotations,
    /// The labels and rules of each pod set, until it has ended.
    pub(crate) rules: Vec<InternedRules>,
    /// What objects that its templates refer to mean for it.
    pub references: References,
    /// What dry runs of its pods mean for it.
    pub dry_run: DryRunOutcome,
    /// Status, as last watched or written.
    pub status: Status,
    /// Phase.
    pub phase: Phase,
    /// Nodes where its pods were unschedulable, and when each exclusion expires.
    pub excluded_nodes: BTreeMap<NodeName, MicroTime>,
    /// Nodes on which places of the running gang are lost: the planner finds places on other nodes.
    pub lost: BTreeSet<NodeName>,
    /// Its objects are not deleted although it was stopped long ago: it holds no places, and its pods are charged like
    /// those of other owners.
    pub is_stuck: bool,
    /// Its objects that disappeared while it ran, each with its last state if one was observed. Not yet compared with the
    /// API server.
    pub disappeared: BTreeMap<ObjectKey, Option<ObjectRow>>,
    /// Its objects that were deleted while it ran, each with its last state if one was observed.
    pub deleted: BTreeMap<ObjectKey, Option<ObjectRow>>,
    /// The pod set that gets the next place of a scale-up.
    pub growing: Option<usize>,
}

impl Wrapper {
    /// A wrapper that this process sees first at `first_seen`; an earlier time in the status has priority.
    pub(crate) fn new(
        group: Group,
        object: AppWrapper,
        first_seen: MicroTime,
        names: &mut ResourceNames,
    ) -> Self {
        let AppWrapper { metadata: meta, spec, status } = object;
        let summary = SpecSummary::read(&meta, &spec, names);
        Self {
            limits: Arc::default(),
            run_factor: 1,
            asked_priority: summary.spec.priority_milli,
            asked_slope: summary.spec.slope_micro,
            summary,
            annotations: GangAnnotations::read(&meta.annotations),
            first_seen: status.controllerfirsttimestamp.unwrap_or(first_seen),
            rules: Vec::new(),
            references: References::default(),
            dry_run: DryRunOutcome::default(),
            status,
            phase: Phase::Unknown,
            excluded_nodes: BTreeMap::new(),
            lost: BTreeSet::new(),
            is_stuck: false,
            disappeared: BTreeMap::new(),
            deleted: BTreeMap::new(),
            growing: None,
            is_deleting: meta.is_deleting(),
            present_labels: meta.labels.clone(),
            labels: meta.labels,
            generation: meta.generation,
            resource_version: meta.resource_version,
            uid: meta.uid,
            key: WrapperKey { group, namespace: meta.namespace, name: meta.name },
        }
    }

    /// The metadata that rendering the objects needs.
    pub fn meta(&self) -> Meta {
        Meta {
            name: self.key.name.clone(),
            namespace: self.key.namespace.clone(),
            uid: self.uid.clone(),
            ..Meta::default()
        }
    }

    /// Value of the tracking label of its pods.
    pub fn label(&self) -> &str {
        render::label_value(&self.key.name)
    }

    /// What is not planned: pod sets, and why. Their pods start where the scheduler finds nodes.
    pub fn unplanned(&self) -> Vec<String> {
        self.summary.unplanned.iter().chain(&self.references.unplanned).cloned().collect()
    }

    /// The gang of the wrapper for the World, if it has one in this phase. `has_aging`: its priority rises while it
    /// waits.
    pub(crate) fn gang(&self, has_aging: bool) -> Option<Gang> {
        let state = self.phase.gang_state()?;
        Some(Gang {
            key: self.gang_key(),
            uid: self.uid.clone(),
            queue: QueueIx::default(),
            priority: self.priority_milli(),
            slope: if has_aging { self.summary.spec.slope_micro } else { 0 },
            queued_at: Time(self.first_seen.0),
            pod_sets: self.summary.pod_sets.clone(),
            declared: self.summary.declared.clone(),
            started_at: self.started_at().filter(|_| state.assignment().is_some()),
            runs_us: self.runs_us(&state),
            checkpointed_at: self.annotations.checkpointed_at.map(|time| Time(time.0)),
            protected: self.is_protected(),
            excluded: self.excluded(&state),
            unhealthy: Arc::new(self.lost.clone()),
            state,
            ..Gang::default()
        })
    }

    /// Nodes that the planner must not use. An assignment that exists is not affected.
    fn excluded(&self, state: &GangState) -> Arc<BTreeSet<NodeName>> {
        match state {
            GangState::Waiting => Arc::new(self.excluded_nodes.keys().cloned().collect()),
            GangState::Nominated(_) | GangState::Reserved(_) | GangState::Unplaced => Arc::default(),
        }
    }

    /// The priority in thousandths; of an admitted gang, that of its admission, whatever the spec says since.
    pub fn priority_milli(&self) -> i64 {
        if self.may_have_objects() { self.status.priority_milli } else { self.summary.spec.priority_milli }
    }

    /// The quota that it is charged since its admission, by its status.
    pub(crate) fn reserved_quota(&self) -> Option<ReservedQuota> {
        let record = self.status.condition(transition::QUOTA_RESERVED, transition::ADMITTED)?;
        ReservedQuota::parse(&record.message).filter(|_| self.may_have_objects())
    }

    /// The record of the places of its admission, by its status. None: another controller admitted it, or a version that
    /// recorded none.
    pub(crate) fn reserved_places(&self) -> Option<ReservedPlaces> {
        let record = self.status.condition(transition::PLACES_RESERVED, transition::ADMITTED)?;
        ReservedPlaces::parse(&record.message).filter(|_| self.may_have_objects())
    }

    /// The key of its gang.
    pub fn gang_key(&self) -> GangKey {
        GangKey {
            kind: self.key.group.resource(),
            namespace: self.key.namespace.clone(),
            name: self.key.name.clone(),
        }
    }

    /// When all its objects were created; `None` if it is not dispatched.
    pub fn started_at(&self) -> Option<Time> {
        let dispatched = self.status.condition(transition::DISPATCHED, "AppWrapperRunnable")?;
        self.is_dispatched().then_some(Time(dispatched.last_transition_micro_time.0))
    }

    /// The expected run time. While the gang waits, it is the longer, the more other gangs of the namespace exceeded theirs.
    fn runs_us(&self, state: &GangState) -> Option<i64> {
        let factor = if state.assignment().is_some() { 1 } else { self.run_factor };
        self.declared_us().map(|declared| declared.saturating_mul(factor))
    }

    /// The declared run time: the annotation has priority over the spec.
    pub(crate) fn declared_us(&self) -> Option<i64> {
        let specified = || self.summary.run_time_s.map(|run| run.saturating_mul(1_000_000));
        self.annotations.expected_us.or_else(specified)
    }

    /// Whether its objects may exist, by its status.
    pub fn may_have_objects(&self) -> bool {
        self.status.canrun || self.stop_reason().is_some()
    }

    /// The reason why it is being stopped, by its status.
    pub fn stop_reason(&self) -> Option<StopReason> {
        let Status { canrun, state, queuejobstate, .. } = &self.status;
        match queuejobstate.as_str() {
            _ if *canrun => None,
            transition::PREEMPT_CANDIDATE if *state == State::Running => Some(StopReason::Requeue),
            transition::PREEMPTED => Some(StopReason::Preempt(None)),
            _ => None,
        }
    }

    /// Whether all its objects have been created, by its status.
    pub fn is_dispatched(&self) -> bool {
        self.status.canrun && matches!(self.status.state, State::Running | State::RunningHoldCompletion)
    }
}

/// Whether `new` is a later resource version than `old`. If one of them is not a number, any other version is later.
pub fn is_newer(new: &str, old: &str) -> bool {
    match (new.parse::<u64>(), old.parse::<u64>()) {
        (Ok(new), Ok(old)) => new > old,
        _ => new != old,
    }
}
