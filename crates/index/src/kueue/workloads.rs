//! The state of each Workload, and its gang.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::kueue::status::{
    Condition, EVICTED, FINISHED, QUOTA_RESERVED, REQUEUED, Status, WAITING_FOR_REPLACEMENT,
};
use api::kueue::workload::Workload;
use api::pod::effective_request;
use api::{GangAnnotations, MicroTime};
use model::{
    Assignment, Event, Gang, GangKey, GangState, NodeName, PodSet, Preemption, PreemptionReason, Time,
};

use super::failed_nodes::Replacement;
use super::queues::queue_node;
use super::refused_nodes::is_timed_out;
use super::requests::{self, Ranges};
use super::seats::has_broad_domains;
use super::usage::local_queue_name;
use super::{Blocker, KueueRules};
use crate::index::{Asked, Observed, Run};
use crate::pods::PodRow;
use crate::translate::preferred;
use crate::wrapper::is_newer;
use crate::{Index, remove_from, translate};

/// The full resource name of Workloads.
pub const WORKLOADS: &str = "workloads.kueue.x-k8s.io";

/// The annotation of a Workload whose value is added to its priority.
const BOOST: &str = "kueue.x-k8s.io/priority-boost";

/// A watched Workload, and what this process has decided about it.
#[derive(Clone, Debug)]
pub struct WorkloadRow {
    /// The object as last watched or written.
    pub object: Workload,
    /// Its phase.
    pub phase: WorkloadPhase,
    /// It is to be evicted for another gang, and the status does not say so yet.
    pub eviction: Option<Eviction>,
    /// Its annotations that the planner uses.
    pub annotations: GangAnnotations,
    /// How many times over its declared run time counts while it waits.
    pub(crate) run_factor: i64,
    pub(super) pod_sets: Arc<[PodSet]>,
    /// Nodes where its pods were unschedulable, and when each exclusion expires.
    pub(super) refused: BTreeMap<NodeName, MicroTime>,
    /// Why its requests are refused.
    pub(super) refusal: Option<String>,
    /// An admission that is decided and not observed yet.
    assumed: Option<Assignment>,
    /// What the plan says about its places on failed nodes, and about those that come after its checks.
    pub(super) replacement: Replacement,
    /// For each pod set whose domains are broader than a node: the nodes where its pods are counted.
    pub(super) seats: Vec<Vec<(NodeName, u32)>>,
}

/// The phase of a Workload.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum WorkloadPhase {
    /// It has ended, is deactivated, or waits for a time or another controller. Nothing is to be said about it.
    #[default]
    Inactive,
    /// It cannot be queued, and why.
    Inadmissible(Blocker),
    /// It is pending.
    Waiting,
    /// It is admitted when its victims are gone.
    Nominated(Preemption),
    /// It fits, and waits until the pods of all Workloads with quota are ready: see [`KueueRules::blocks_admission`].
    AwaitsPods,
    /// Its admission is decided and to be written.
    Starting(Assignment),
    /// It holds quota, by its status.
    Reserved(Assignment),
}

/// Why a Workload is evicted for another gang.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// The uid of the other gang.
    pub preemptor: String,
    /// The rule that permits it.
    pub reason: PreemptionReason,
}

impl WorkloadRow {
    /// Its uid.
    pub fn uid(&self) -> &str {
        &self.object.metadata.uid
    }

    /// Its namespace.
    pub fn namespace(&self) -> &str {
        &self.object.metadata.namespace
    }

    /// Its name in the World.
    pub fn key(&self) -> GangKey {
        let meta = &self.object.metadata;
        GangKey { kind: WORKLOADS.into(), namespace: meta.namespace.clone(), name: meta.name.clone() }
    }

    /// Its local queue, by namespace and name.
    pub fn queue_key(&self) -> (String, String) {
        (self.namespace().to_owned(), self.object.spec.queue_name.clone())
    }

    /// Whether a pod is of a pod set. One that names no pod set is of the only one.
    pub(super) fn has_in_set(&self, set: &str, pod: &PodRow) -> bool {
        let is_only = || self.object.spec.pod_sets.len() == 1;
        pod.workload.as_ref().is_some_and(|(_, named)| named == set || named.is_empty() && is_only())
    }

    /// Its pod sets in the World.
    pub fn pod_sets(&self) -> &[PodSet] {
        &self.pod_sets
    }

    /// Whether it holds quota, by its status or by a decision that is not written yet.
    pub fn holds_quota(&self) -> bool {
        matches!(self.phase, WorkloadPhase::Starting(_) | WorkloadPhase::Reserved(_))
    }

    /// The expected run time: what it declares, or the longest that it may run. While it waits, what it declares is the longer,
    /// the more other gangs of the namespace exceeded theirs.
    fn runs_us(&self, state: &GangState) -> Option<i64> {
        let factor = if state.assignment().is_some() { 1 } else { self.run_factor };
        let expected = self.annotations.expected_us.map(|expected| expected.saturating_mul(factor));
        let longest = self.object.spec.maximum_execution_time_seconds.map(|run| i64::from(run) * 1_000_000);
        expected.into_iter().chain(longest).min()
    }

    /// What the overruns of its namespace know of it. Without a declared run time, there is nothing to exceed.
    pub(crate) fn observed_run(&self) -> Observed {
        let status = &self.object.status;
        let run = || {
            let declared_us = self.annotations.expected_us.filter(|declared| *declared > 0)?;
            let started_us = self.started_at()?.0;
            Some(Run { namespace: self.namespace().to_owned(), started_us, declared_us })
        };
        let finished = status.condition(FINISHED).filter(|finished| finished.is_true());
        match (finished.and_then(Condition::since), &self.phase) {
            (Some(ended), _) => Observed::Ended(run(), ended.0),
            (None, WorkloadPhase::Reserved(_)) => Observed::Runs(run()),
            (None, _) => Observed::Idle,
        }
    }

    /// Whether it waits for quota.
    pub fn is_pending(&self) -> bool {
        matches!(
            self.phase,
            WorkloadPhase::Inadmissible(_)
                | WorkloadPhase::Waiting
                | WorkloadPhase::Nominated(_)
                | WorkloadPhase::AwaitsPods
        )
    }

    /// Whether it waits for its victims.
    pub(crate) fn is_nominated(&self) -> bool {
        matches!(self.phase, WorkloadPhase::Nominated(_))
    }

    /// Where its pods are planned, else where they were counted.
    fn known_seats(&self) -> Vec<Vec<(NodeName, u32)>> {
        let planned = self.assumed.as_ref().or_else(|| self.replaced());
        planned.map_or(&self.seats, |planned| &planned.pod_sets).clone()
    }

    fn gang_state(&self) -> Option<GangState> {
        match &self.phase {
            WorkloadPhase::Inactive | WorkloadPhase::Inadmissible(_) | WorkloadPhase::AwaitsPods => None,
            WorkloadPhase::Waiting => Some(GangState::Waiting),
            WorkloadPhase::Nominated(preemption) => Some(GangState::Nominated(preemption.clone())),
            WorkloadPhase::Starting(assignment) | WorkloadPhase::Reserved(assignment) => {
                Some(GangState::Reserved(assignment.clone()))
            }
        }
    }

    /// Since when it counts as queued: its creation, or its eviction by an admission check or by pods that were not ready.
    fn queued_at(&self, rules: &KueueRules) -> Time {
        let evicted = self.object.status.condition(EVICTED).filter(|evicted| evicted.is_true());
        let is_late = |evicted: &&Condition| match &*evicted.reason {
            "AdmissionCheck" => true,
            "PodsReadyTimeout" => rules.requeues_at_end,
            _ => false,
        };
        if let Some(since) = evicted.filter(is_late).and_then(Condition::since) {
            return Time(since.0);
        }
        Time(MicroTime::parse(&self.object.metadata.creation_timestamp).unwrap_or_default().0)
    }

    /// When it was admitted.
    fn started_at(&self) -> Option<Time> {
        let reserved = self.object.status.condition(QUOTA_RESERVED).filter(|reserved| reserved.is_true())?;
        reserved.since().map(|since| Time(since.0))
    }

    fn reclaimable(&self) -> Vec<u32> {
        let counts = &self.object.status.reclaimable_pods;
        let of = |name: &str| counts.iter().find(|pods| pods.name == name).map_or(0, |pods| pods.count);
        self.object.spec.pod_sets.iter().map(|set| of(&set.name)).collect()
    }

    /// Whether it waits for a time, or for a queue that is stopped, before it is tried again.
    pub(super) fn is_backing_off(&self) -> bool {
        let status = &self.object.status;
        let is_requeued = status.condition(REQUEUED).is_none_or(Condition::is_true);
        let is_free = is_requeued && status.requeue_at().is_none();
        !is_free && self.object.is_active() && !status.is(QUOTA_RESERVED) && !status.is(FINISHED)
    }

    /// Whether the author, a finished run, a job that cannot run, or a backoff keeps it out of the queue.
    fn is_withheld(&self) -> bool {
        let status = &self.object.status;
        let is_evicting = status.is(EVICTED) && status.is(QUOTA_RESERVED);
        !self.object.is_active()
            || self.is_backing_off()
            || is_evicting
            || status.is_on_hold()
            || status.is(WAITING_FOR_REPLACEMENT)
            || self.object.metadata.is_deleting()
    }
}

impl Index {
    pub(super) fn upsert_workload(&mut self, object: Workload) {
        let uid = object.metadata.uid.clone();
        let known = self.kueue.workloads.get(&uid);
        if known.is_some_and(|known| {
            !is_newer(&object.metadata.resource_version, &known.object.metadata.resource_version)
        }) {
            return;
        }
        let (assumed, eviction) =
            known.map_or((None, None), |known| (known.assumed.clone(), known.eviction.clone()));
        let is_replacing = |known: &&WorkloadRow| {
            let (before, after) = (&known.object.status, &object.status);
            before.unhealthy_nodes == after.unhealthy_nodes
                && before.admission == after.admission
                && before.awaits_places() == after.awaits_places()
        };
        let replacement = known.filter(is_replacing).map(|known| known.replacement.clone());
        let queue = known.map(WorkloadRow::queue_key);
        let refused = known.map(|known| known.refused.clone()).unwrap_or_default();
        let has_failed =
            is_timed_out(&object.status) && known.is_none_or(|known| !is_timed_out(&known.object.status));
        let run_factor = known.map_or(1, |known| known.run_factor);
        let is_broad = has_broad_domains(object.status.admission.as_ref());
        let seats = known.filter(|_| is_broad).map(WorkloadRow::known_seats);
        let (pod_sets, refusal) = match known {
            Some(known) if known.object.spec.pod_sets == object.spec.pod_sets => {
                (known.pod_sets.clone(), known.refusal.clone())
            }
            _ => self.pod_sets(&object),
        };
        let assumed = assumed.filter(|_| object.status.admission.is_none());
        let holds = assumed.is_some() || object.status.admission.is_some();
        let row = WorkloadRow {
            annotations: GangAnnotations::read(&object.metadata.annotations),
            run_factor,
            assumed,
            replacement: replacement.unwrap_or_else(|| Replacement::of(&object.status)),
            seats: seats.unwrap_or_default(),
            eviction: eviction.filter(|_| holds && !object.status.is(EVICTED)),
            phase: WorkloadPhase::Inactive,
            pod_sets,
            refused,
            refusal,
            object,
        };
        let new_queue = (!row.object.status.is(FINISHED)).then(|| row.queue_key());
        if let Some(queue) = queue.filter(|queue| new_queue.as_ref() != Some(queue)) {
            remove_from(&mut self.kueue.by_queue, &queue, &uid);
        }
        if let Some(queue) = new_queue {
            self.kueue.by_queue.entry(queue).or_default().insert(uid.clone());
        }
        let key = (row.namespace().to_owned(), row.object.metadata.name.clone());
        self.kueue.by_name.insert(key, uid.clone());
        self.kueue.note_cluster_queue(&uid, counted_queue(&row.object.status));
        if is_broad {
            self.kueue.unseated.insert(uid.clone());
        }
        self.note_slices(&uid, false);
        let phase = self.kueue.workloads.insert(uid.clone(), row).map(|known| known.phase);
        if let Some(row) = self.kueue.workloads.get_mut(&uid) {
            row.phase = phase.unwrap_or_default();
        }
        if has_failed {
            self.exclude_refused_nodes(&uid);
        }
        self.note_claims(&uid);
        self.note_slices(&uid, true);
        self.publish_slices(&uid);
    }

    /// The pod sets of a Workload, and why they are refused. One whose template is invalid has no request.
    fn pod_sets(&mut self, workload: &Workload) -> (Arc<[PodSet]>, Option<String>) {
        let mutators = self.dry_runs.mutators();
        let ranges = Ranges::read(mutators.limits(&workload.metadata.namespace));
        let mut refused = None;
        let sets = workload.spec.pod_sets.iter().enumerate().map(|(at, set)| {
            let class = set.template.requests["runtimeClassName"].as_str();
            let overhead = class.and_then(|class| mutators.overhead(class));
            let spec = requests::adjusted(&set.template.requests, &ranges, overhead);
            let shape = set.template.shape.clone();
            let problem = shape.as_ref().err().cloned().or_else(|| requests::refusal(at, &spec, &ranges));
            refused = refused.take().or(problem);
            let shape = shape.unwrap_or_default();
            let request = effective_request(&spec).unwrap_or_default();
            let counted = self.kueue.rules.counted(&request);
            PodSet {
                name: set.name.clone(),
                count: set.count,
                min_count: set.min_count.filter(|_| self.kueue.rules.admits_in_part),
                request: translate::amounts(&request, self.world.resources_mut()),
                charged: (counted != request)
                    .then(|| translate::amounts(&counted, self.world.resources_mut()).into()),
                constraints: translate::constraints(&shape.scheduling),
                group: set.topology_request.as_ref().and_then(requests::group),
                topology: set.topology_request.as_ref().and_then(requests::topology),
                preferred: if self.kueue.rules.prefers_nodes {
                    preferred(&shape.scheduling)
                } else {
                    Arc::default()
                },
                ..PodSet::default()
            }
        });
        let sets = sets.collect();
        (sets, refused)
    }

    /// Applies that what the pods of a namespace request has changed. Workloads that hold quota keep what they hold.
    pub(crate) fn namespace_requests_changed(&mut self, namespace: &str) {
        let inside = self.kueue.workloads.values().filter(|row| row.namespace() == namespace);
        let uids: Vec<String> = inside.map(|row| row.uid().to_owned()).collect();
        self.requests_changed(uids);
    }

    /// Applies that the overhead of a runtime class has changed.
    pub(crate) fn runtime_class_changed(&mut self, class: &str) {
        let names = |row: &&WorkloadRow| {
            let mut sets = row.object.spec.pod_sets.iter();
            sets.any(|set| set.template.requests["runtimeClassName"] == class)
        };
        let users = self.kueue.workloads.values().filter(names);
        let uids: Vec<String> = users.map(|row| row.uid().to_owned()).collect();
        self.requests_changed(uids);
    }

    fn requests_changed(&mut self, uids: Vec<String>) {
        for uid in uids {
            let Some(row) = self.kueue.workloads.get(&uid).filter(|row| !row.holds_quota()) else { continue };
            let object = row.object.clone();
            let (pod_sets, refusal) = self.pod_sets(&object);
            if let Some(row) = self.kueue.workloads.get_mut(&uid) {
                (row.pod_sets, row.refusal) = (pod_sets, refusal);
            }
            self.publish_workload(&uid);
        }
    }

    pub(super) fn delete_workload(&mut self, uid: &str) {
        self.kueue.note_figures_of(uid);
        self.kueue.note_cluster_queue(uid, None);
        let related = self.forget_slices(uid);
        let Some(row) = self.kueue.workloads.remove(uid) else { return };
        remove_from(&mut self.kueue.by_queue, &row.queue_key(), uid);
        let key = (row.namespace().to_owned(), row.object.metadata.name.clone());
        if self.kueue.by_name.get(&key).is_some_and(|known| known == uid) {
            self.kueue.by_name.remove(&key);
        }
        self.kueue.dirty_workloads.remove(uid);
        self.kueue.claiming.remove(uid);
        self.forget_run(uid);
        self.world.apply_deferred(Event::GangRemoved(uid.to_owned()));
        self.publish_pods_of(row.namespace(), row.slice_name());
        self.note_pods_ready(uid);
        for uid in &related {
            self.publish_workload(uid);
        }
    }

    /// Updates the phase of a Workload and its gang in the World.
    pub(super) fn publish_workload(&mut self, uid: &str) {
        let Some(row) = self.kueue.workloads.get(uid) else { return };
        let phase = self.workload_phase(row);
        let has_new_places = phase != row.phase && (has_places(&phase) || has_places(&row.phase));
        self.kueue.note_figures_of(uid);
        if let Some(row) = self.kueue.workloads.get_mut(uid) {
            row.phase = phase;
        }
        self.apply_overruns_of_workload(uid);
        self.kueue.dirty_workloads.insert(uid.to_owned());
        let gang = self.workload_gang(uid);
        match gang {
            Some(gang) => self.world.apply_deferred(Event::GangUpserted(gang)),
            None if self.world.gang(uid).is_some() => {
                self.world.apply_deferred(Event::GangRemoved(uid.to_owned()));
            }
            None => {}
        }
        if let Some(row) = self.kueue.workloads.get(uid).filter(|_| has_new_places) {
            let (namespace, name) = (row.namespace().to_owned(), row.slice_name().to_owned());
            self.publish_pods_of(&namespace, &name);
        }
        self.note_pods_ready(uid);
    }

    fn workload_phase(&self, row: &WorkloadRow) -> WorkloadPhase {
        let status = &row.object.status;
        if status.is(FINISHED) {
            return WorkloadPhase::Inactive;
        }
        // A deactivated Workload counts until its pods have stopped.
        if let Some(admission) = &status.admission
            && status.is(QUOTA_RESERVED)
            && (row.object.is_active() || self.has_started_pods(row))
        {
            if self.is_covered(row) {
                return WorkloadPhase::Inactive;
            }
            let replaced = row.replaced().cloned();
            return WorkloadPhase::Reserved(replaced.unwrap_or_else(|| self.recorded(row, admission)));
        }
        if let Some(assumed) = &row.assumed {
            return WorkloadPhase::Starting(assumed.clone());
        }
        if row.is_withheld() || self.awaits_replaced_slice(row) {
            return WorkloadPhase::Inactive;
        }
        if let Some(blocker) = self.workload_blocker(row) {
            return WorkloadPhase::Inadmissible(blocker);
        }
        let claims = self.claims_of_workload(row).map(|(claims, _)| claims);
        if claims.as_ref().is_some_and(|claims| claims.is_unlisted) {
            return WorkloadPhase::Inactive;
        }
        match claims.as_ref().and_then(Blocker::of_claims) {
            Some(blocker) => WorkloadPhase::Inadmissible(blocker),
            None if matches!(row.phase, WorkloadPhase::Nominated(_)) => row.phase.clone(),
            None if row.phase == WorkloadPhase::AwaitsPods && self.is_admission_blocked() => {
                row.phase.clone()
            }
            None => WorkloadPhase::Waiting,
        }
    }

    /// Whether pods run with the quota of a Workload, or may start.
    fn has_started_pods(&self, row: &WorkloadRow) -> bool {
        let is_held = |pod: &PodRow| pod.is_gated || pod.is_topology_gated || pod.is_elastic_gated;
        let mut pods = self.pods.of_workload(row.namespace(), row.slice_name());
        pods.any(|pod| pod.is_live() && !is_held(pod))
    }

    /// What the annotation of a Workload adds to its priority.
    pub fn priority_boost(&self, row: &WorkloadRow) -> i32 {
        let boost = row.object.metadata.annotations.get(BOOST).filter(|_| self.kueue.rules.boosts_priority);
        boost.and_then(|boost| boost.parse().ok()).unwrap_or_default()
    }

    /// What the author of a Workload asks for and its namespace does not allow: reasons and texts of Events.
    pub fn disallowed(&self, row: &WorkloadRow) -> Vec<(&'static str, String)> {
        let asked = Asked {
            namespace: row.namespace(),
            priority_milli: self.effective_priority(row) * 1000,
            is_protected: row.annotations.is_protected,
            run_factor: row.annotations.expected_us.map_or(1, |_| row.run_factor),
        };
        asked.disallowed(&self.limits_in(row.namespace()))
    }

    /// Applies what has changed in these namespaces to their Workloads.
    pub(crate) fn publish_workloads_in(&mut self, namespaces: &BTreeSet<String>) {
        let inside = self.kueue.workloads.values().filter(|row| namespaces.contains(row.namespace()));
        let uids: Vec<String> = inside.map(|row| row.uid().to_owned()).collect();
        for uid in uids {
            self.publish_workload(&uid);
        }
    }

    /// Applies the overruns of its namespace to a Workload, and its own to the namespace.
    fn apply_overruns_of_workload(&mut self, uid: &str) {
        let Some(row) = self.kueue.workloads.get(uid) else { return };
        let (namespace, observed, known) = (row.namespace().to_owned(), row.observed_run(), row.run_factor);
        let factor = self.observe_run(uid, &namespace, observed, known);
        if let Some(row) = self.kueue.workloads.get_mut(uid) {
            row.run_factor = factor;
        }
    }

    fn effective_priority(&self, row: &WorkloadRow) -> i64 {
        i64::from(row.object.spec.priority) + i64::from(self.priority_boost(row))
    }

    fn workload_gang(&mut self, uid: &str) -> Option<Gang> {
        let row = self.kueue.workloads.get(uid)?;
        let state = row.gang_state().filter(|state| self.kueue.admits || *state != GangState::Waiting)?;
        let queue = self.kueue.cluster_queue_of(row)?;
        let queue_name = queue.to_owned();
        let (pod_sets, replaces) =
            self.increase(row).map_or((row.planned_pod_sets(), None), |(sets, of)| (sets, Some(of)));
        let pod_sets = self.with_claims(row, pod_sets);
        let pod_sets = self.with_implied_topology(&queue_name, pod_sets);
        let meta = &row.object.metadata;
        let limits = self.limits_in(&meta.namespace);
        let local_queue = local_queue_name(&meta.namespace, &row.object.spec.queue_name);
        Some(Gang {
            key: row.key(),
            uid: uid.to_owned(),
            queue: self.world.queue_ix(queue),
            local_queue: self.world.local_queue_ix(&local_queue),
            priority: limits.capped(self.effective_priority(row) * 1000),
            queued_at: row.queued_at(&self.kueue.rules),
            started_at: row.started_at().filter(|_| state.assignment().is_some()),
            runs_us: row.runs_us(&state),
            checkpointed_at: row.annotations.checkpointed_at.map(|time| Time(time.0)),
            protected: row.annotations.is_protected && limits.allows_protected,
            reclaimable: if replaces.is_some() { Vec::new() } else { self.reclaimed(row) },
            pod_sets,
            replaces,
            places: self.places_of(row, &queue_name),
            excluded: row.excluded(&state),
            unhealthy: self.unhealthy_nodes(row),
            gated: self.kueue.rules.gates_preemption && row.object.has_closed_gate(),
            state,
            ..Gang::default()
        })
    }

    /// Updates the phase of a Workload from the state of its gang in the World, after a plan. Returns the preemption that
    /// begins with it.
    pub(crate) fn sync_workload(&mut self, uid: &str) -> Option<Preemption> {
        let is_blocked = self.is_admission_blocked();
        let gang = self.world.gang(uid)?;
        let row = self.kueue.workloads.get_mut(uid)?;
        self.kueue.dirty_workloads.insert(uid.to_owned());
        if !matches!(row.phase, WorkloadPhase::Waiting | WorkloadPhase::Nominated(_)) {
            return None;
        }
        let mut begun = None;
        row.phase = match &gang.state {
            GangState::Reserved(_) if is_blocked => WorkloadPhase::AwaitsPods,
            GangState::Reserved(assignment) => {
                row.assumed = Some(assignment.clone());
                WorkloadPhase::Starting(assignment.clone())
            }
            GangState::Nominated(preemption) => {
                begun = Some(preemption.clone());
                WorkloadPhase::Nominated(preemption.clone())
            }
            GangState::Waiting | GangState::Unplaced => WorkloadPhase::Waiting,
        };
        if row.phase == WorkloadPhase::AwaitsPods {
            self.world.apply_deferred(Event::GangRemoved(uid.to_owned()));
        }
        self.kueue.note_figures_of(uid);
        self.note_pods_ready(uid);
        begun
    }

    /// The number of pods of each pod set that have succeeded and release their quota.
    pub fn reclaimed(&self, row: &WorkloadRow) -> Vec<u32> {
        if self.kueue.rules.reclaims_pods { row.reclaimable() } else { vec![0; row.pod_sets.len()] }
    }

    /// The `ClusterQueue` of a Workload: that of its admission, else that of its local queue.
    pub fn cluster_queue_of<'a>(&'a self, row: &'a WorkloadRow) -> Option<&'a str> {
        self.kueue.cluster_queue_of(row)
    }

    /// Whether the World's gang of this uid is a Workload.
    pub(crate) fn is_workload(&self, uid: &str) -> bool {
        self.kueue.workloads.contains_key(uid)
    }

    /// Begins the eviction of a Workload for another gang.
    pub(crate) fn evict_workload(&mut self, uid: &str, eviction: Eviction) {
        let Some(row) = self.kueue.workloads.get_mut(uid) else { return };
        if row.holds_quota() {
            row.eviction.get_or_insert(eviction);
            self.kueue.dirty_workloads.insert(uid.to_owned());
        }
    }

    /// Applies the response to a write of a Workload, unless the watch has delivered a newer version.
    pub fn workload_written(&mut self, workload: Workload) {
        if self.is_workload(&workload.metadata.uid) {
            self.upsert_workload(workload);
        }
    }

    /// Withdraws an admission that could not be written: the Workload waits again.
    pub fn admission_failed(&mut self, uid: &str) {
        if let Some(row) = self.kueue.workloads.get_mut(uid) {
            row.assumed = None;
            row.eviction = None;
            if row.replaced().is_some() {
                row.replacement = Replacement::Open;
            }
            self.publish_workload(uid);
        }
    }

    /// The path of a queue in its cohorts, such as `/root/team/queue`.
    pub fn queue_path(&self, queue: &str) -> Option<String> {
        let nodes = self.world.quota_nodes();
        let forest = self.world.forest();
        let ix = nodes.iter().find(|(_, node)| node.name == queue_node(queue)).map(|(ix, _)| *ix)?;
        let names = forest.path(ix).map(|ix| self.world.quota_name(ix));
        let names = names.map(|name| name.split_once(':').map_or(name, |(_, name)| name));
        let path: Vec<&str> = names.collect();
        Some(path.iter().rev().flat_map(|name| ["/", name]).collect())
    }
}

/// The `ClusterQueue` that counts a Workload with this status among those that it has admitted.
pub(super) fn counted_queue(status: &Status) -> Option<&str> {
    let admission = status.admission.as_ref().filter(|_| !status.is(FINISHED))?;
    Some(&admission.cluster_queue)
}

/// Whether pods have places in the plan.
fn has_places(phase: &WorkloadPhase) -> bool {
    matches!(phase, WorkloadPhase::Reserved(places) if places.nodes().next().is_some())
}
