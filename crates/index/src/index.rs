//! One method for each watch event, and the queries of the controller.
//!
//! - `recovery`: the phase of a wrapper after a watch event, also after a restart of the controller;
//! - `plan`: the phases of wrappers after a plan;
//! - `ownership`: the wrapper and the pod set of a pod;
//! - `pod_placement`: the nodes of gated pods;
//! - `orphans`: gated pods without a wrapper;
//! - `unschedulable`: planned pods that the scheduler cannot place, and the nodes to exclude for their gang;
//! - `replacement`: lost places of running gangs;
//! - `quotas`: MCAD's quota trees;
//! - `overruns`: gangs that run longer than they declared;
//! - `namespace_limits`: what admins allow the gangs of a namespace;
//! - `places`: where the places of running gangs are, and how many they have;
//! - `wanted_pods`: the number of pods that objects ask for at present;
//! - `wrapped_kinds`: the kinds that live wrappers use, and the objects of a kind;
//! - `completion`: planned pods that do not exist yet;
//! - `deleted_objects`: wrapped objects that are deleted while their gang runs;
//! - `missing_pods`: planned pods of running gangs that nothing creates;
//! - `pod_rules`: the rules between pods, and the pods that they select;
//! - `nodes`, `daemon_sets`: nodes, and the pods of `DaemonSet`s that are expected on them;
//! - `dry_runs`: what admission makes of the pods of templates;
//! - `references`: claims and other objects that templates refer to;
//! - `cached_pods`: the cached pods of a gang, to compare with a live list.

mod cached_pods;
mod completion;
mod daemon_sets;
mod deleted_objects;
mod dry_runs;
mod missing_pods;
mod namespace_limits;
mod nodes;
mod orphans;
mod overruns;
mod ownership;
mod places;
mod plan;
mod pod_placement;
mod pod_rules;
mod quotas;
mod recovery;
pub(crate) mod references;
mod replacement;
mod unschedulable;
mod wanted_pods;
mod wrapped_kinds;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use api::appwrapper::transition::PodCounts;
use api::appwrapper::{AppWrapper, Group, Status};
use api::time::MonotonicTimestamps;
use api::{GangAnnotations, MicroTime, NamespaceLimits};
use model::{Event, NodeName, Policy, PreemptionPolicy, Verdict, World};

pub use cached_pods::CachedPods;
pub use dry_runs::DryRunOutcome;
pub use missing_pods::MissingPods;
pub(crate) use namespace_limits::Asked;
pub use orphans::OrphanOwner;
pub use overruns::Overrun;
pub(crate) use overruns::{Observed, Run};
pub use ownership::GangPod;
pub use plan::AppliedPlan;
pub use pod_placement::Ungating;
pub(crate) use pod_rules::InternedRules;
pub use references::{ReferencedChange, ReferencedKind, References};
pub use unschedulable::{TroubledPods, UnschedulablePods};

use crate::kinds::{Kind, KindState};
use crate::kueue::Kueue;
use crate::objects::{ObjectKey, ObjectRow, Objects};
use crate::phase::Phase;
use crate::pods::{PodPhase, PodRow, Pods};
use crate::remove_from;
use crate::selectors::Selectors;
use crate::volumes::Volumes;
use crate::wrapper::{Wrapper, is_newer};

/// Longest chain of controller references from a pod to its wrapper.
const OWNERS_MAX: usize = 6;

/// All observed objects, and the World built from them.
#[derive(Clone, Debug, Default)]
pub struct Index {
    pub(crate) world: World,
    wrappers: BTreeMap<String, Wrapper>,
    labels: BTreeMap<(String, String), BTreeSet<String>>,
    objects: Objects,
    pub(crate) pods: Pods,
    kinds: BTreeMap<Kind, KindState>,
    /// The wrappers that use each kind, by uid.
    users: BTreeMap<Kind, BTreeSet<String>>,
    dirty: BTreeSet<String>,
    /// Wrappers whose gang must be updated in the World.
    unpublished: BTreeSet<String>,
    /// Deleted wrappers of which pods may be left.
    departed: BTreeSet<String>,
    /// The nodes with each host name label.
    pub(crate) hosts: BTreeMap<String, BTreeSet<NodeName>>,
    first_seen: MonotonicTimestamps,
    /// Groups whose definition takes totals of 32 bits only.
    int32_totals: BTreeSet<Group>,
    /// Whether the priority of a gang rises while it waits.
    has_aging: bool,
    /// When node exclusions expire, with the uid of the gang.
    exclusion_expiry: BTreeSet<(MicroTime, String)>,
    /// Nodes that changed since the lost places were computed.
    changed_nodes: BTreeSet<String>,
    /// Gangs whose places must be computed again.
    unchecked: BTreeSet<String>,
    orphans: orphans::Orphans,
    pub(crate) selectors: Selectors,
    volumes: Volumes,
    /// The kinds that templates refer to: they are listed, or why they cannot be.
    listed: BTreeMap<ReferencedKind, Result<(), String>>,
    /// The wrappers whose templates refer to other objects, by uid.
    referrers: BTreeSet<String>,
    /// Objects that templates refer to changed since the last call of [`Self::settle`].
    has_changed_references: bool,
    daemon_sets: daemon_sets::DaemonSets,
    pub(crate) dry_runs: dry_runs::DryRuns,
    trees: quotas::Trees,
    overruns: overruns::Overruns,
    /// No gang of another namespace is queued: its limits may not be observed yet.
    namespaces: BTreeMap<String, Arc<NamespaceLimits>>,
    /// Why quota trees or namespaces are unknown, by resource: no gang is admitted meanwhile.
    admission_failures: BTreeMap<String, String>,
    pub(crate) kueue: Kueue,
}

impl Index {
    /// An index without any object.
    pub fn new() -> Self {
        Self::default()
    }

    /// The World that the planner reads.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Sets the configuration of the planner.
    pub fn set_policy(&mut self, policy: Policy) {
        self.set_quota_preemption(policy.preemption != PreemptionPolicy::Never);
        self.world.apply(Event::PolicySet(policy));
    }

    /// Enables or disables priority aging: the priority of a waiting gang rises by its `priorityslope`.
    pub fn set_aging(&mut self, has_aging: bool) {
        self.has_aging = has_aging;
        let uids: Vec<String> = self.wrappers.keys().cloned().collect();
        for uid in uids {
            self.publish(&uid);
        }
    }

    /// Brings the World up to date with all watch events. To be called before each plan. Many events about one gang cost
    /// one update of it.
    pub fn settle(&mut self) {
        self.settle_dry_runs();
        self.settle_references();
        self.update_selected();
        for uid in std::mem::take(&mut self.unpublished) {
            self.publish(&uid);
        }
        self.world.settle();
        self.update_places_and_losses();
    }

    /// The wrapper with this uid.
    pub fn wrapper(&self, uid: &str) -> Option<&Wrapper> {
        self.wrappers.get(uid)
    }

    /// All wrappers, ordered by uid.
    pub fn wrappers(&self) -> impl Iterator<Item = &Wrapper> {
        self.wrappers.values()
    }

    /// The wrappers with a uid greater than `uid`, ordered by uid.
    pub fn wrappers_after(&self, uid: &str) -> impl Iterator<Item = &Wrapper> {
        self.wrappers.range::<str, _>((Bound::Excluded(uid), Bound::Unbounded)).map(|(_, wrapper)| wrapper)
    }

    /// The uids of the wrappers with a change since the last call.
    pub fn take_dirty(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.dirty)
    }

    /// Marks a wrapper for reconciliation.
    pub fn mark_dirty(&mut self, uid: &str) {
        if self.wrappers.contains_key(uid) {
            self.dirty.insert(uid.to_owned());
        }
    }

    /// Adds or updates an object of a wrapper.
    pub fn upsert_object(&mut self, row: ObjectRow) {
        let uid = row.uid.clone();
        let is_new = self.objects.get(&uid).is_none();
        if self.objects.upsert(row) {
            self.publish_pods_under(&uid, OWNERS_MAX);
        }
        self.note_appearance(&uid, is_new);
        let wrapper = self.owner_wrapper(&uid);
        if let Some(uid) = &wrapper {
            self.load_assignment(uid);
            self.unpublished.insert(uid.clone());
        }
        self.dirty.extend(wrapper);
    }

    /// Removes a deleted object.
    pub fn delete_object(&mut self, uid: &str) {
        self.remove_object(uid, true);
    }

    /// Removes an object. Its deletion `is_seen`, or a new list lacks it.
    fn remove_object(&mut self, uid: &str, is_seen: bool) {
        let wrapper = self.owner_wrapper(uid);
        self.dirty.extend(wrapper);
        self.note_disappearance(uid, is_seen);
        let Some(row) = self.objects.remove(uid) else { return };
        let pods: Vec<_> = self.pods.of_owner(&row.namespace, uid).map(|row| row.uid.clone()).collect();
        for pod in pods {
            self.update_orphan(&pod);
        }
    }

    /// Adds or updates a wrapper. A new wrapper is queued at `now`, unless its status has an earlier time. A new spec
    /// replaces the old one only while the wrapper is queued.
    pub fn upsert_wrapper(&mut self, group: Group, object: AppWrapper, now: MicroTime) {
        let uid = object.metadata.uid.clone();
        let mut is_new = true;
        let has_new_spec = self.has_new_spec(&uid, &object);
        if has_new_spec {
            self.unregister_kinds(&uid);
        }
        if let Some(known) = self.wrappers.get_mut(&uid) {
            if !is_newer(&object.metadata.resource_version, &known.resource_version) {
                return;
            }
            if has_new_spec {
                let first_seen = known.first_seen;
                *known = Wrapper::new(group, object, first_seen, self.world.resources_mut());
            } else {
                is_new = false;
                known.resource_version = object.metadata.resource_version;
                known.is_deleting = object.metadata.deletion_timestamp.is_some();
                known.annotations = GangAnnotations::read(&object.metadata.annotations);
                known.present_labels = object.metadata.labels;
                known.status = object.status;
            }
        } else {
            let first_seen = self.first_seen.next(now);
            let wrapper = Wrapper::new(group, object, first_seen, self.world.resources_mut());
            let label = (wrapper.key.namespace.clone(), wrapper.label().to_owned());
            self.labels.entry(label).or_default().insert(uid.clone());
            self.wrappers.insert(uid.clone(), wrapper);
        }
        if is_new {
            self.register_kinds(&uid);
        }
        self.update_phase(&uid);
        if is_new {
            self.publish_pods_under(&uid, OWNERS_MAX);
        }
        self.dirty.insert(uid);
    }

    /// Whether the object is a newer version of a queued wrapper, with another spec or in other
    /// groups of quota trees.
    fn has_new_spec(&self, uid: &str, object: &AppWrapper) -> bool {
        self.wrappers.get(uid).is_some_and(|known| {
            is_newer(&object.metadata.resource_version, &known.resource_version)
                && (known.generation != object.metadata.generation
                    || self.has_other_groups(known, &object.metadata.labels))
                && !known.may_have_objects()
                && known.phase.is_queued()
        })
    }

    /// Replaces a wrapper whose spec changed after the decision to start it, and discards its phase. The wrapper
    /// returns to the queue.
    pub fn reset_wrapper(&mut self, group: Group, object: AppWrapper) {
        let uid = object.metadata.uid.clone();
        self.unregister_kinds(&uid);
        if let Some(known) = self.wrappers.get_mut(&uid) {
            let first_seen = known.first_seen;
            *known = Wrapper::new(group, object, first_seen, self.world.resources_mut());
            self.register_kinds(&uid);
            self.update_phase(&uid);
            self.dirty.insert(uid);
        }
    }

    /// Removes a deleted wrapper. Its live pods stay charged until they are deleted.
    pub fn delete_wrapper(&mut self, uid: &str) {
        self.unregister_kinds(uid);
        let Some(wrapper) = self.wrappers.remove(uid) else { return };
        self.forget_run(uid);
        let pods: Vec<_> = self.pods_of(&wrapper).into_iter().map(|row| row.uid.clone()).collect();
        for pod in pods {
            self.update_orphan(&pod);
        }
        self.dirty.remove(uid);
        let label = (wrapper.key.namespace.clone(), wrapper.label().to_owned());
        remove_from(&mut self.labels, &label, uid);
        self.world.apply_deferred(Event::GangRemoved(uid.to_owned()));
        self.departed.insert(uid.to_owned());
        // A wrapper with the same name in the other API group may wait for this deletion.
        let sharers = self.labels.get(&label).into_iter().flatten();
        let same_name = sharers.filter(|uid| self.wrappers.get(*uid).is_some_and(|w| w.key == wrapper.key));
        self.dirty.extend(same_name.cloned().collect::<Vec<_>>());
    }

    /// Applies the response to a status write of this controller, unless the watch has delivered a newer version.
    pub fn status_written(&mut self, uid: &str, resource_version: &str, status: Status) {
        if let Some(wrapper) = self.wrappers.get_mut(uid)
            && is_newer(resource_version, &wrapper.resource_version)
        {
            resource_version.clone_into(&mut wrapper.resource_version);
            wrapper.status = status;
        }
        self.update_phase(uid);
        self.mark_dirty(uid);
    }

    /// Sets why the quota trees or namespaces of a resource are unknown, if they are: waiting gangs are not admitted, and say why.
    pub fn set_admission_failure(&mut self, resource: &str, message: Option<&str>) {
        let before = match message {
            Some(message) => self.admission_failures.insert(resource.to_owned(), message.to_owned()),
            None => self.admission_failures.remove(resource),
        };
        if before.as_deref() == message {
            return;
        }
        let is_waiting = |wrapper: &&mut Wrapper| {
            matches!(
                wrapper.phase,
                Phase::Unknown | Phase::Inadmissible(_) | Phase::Waiting | Phase::Nominated(_)
            )
        };
        let mut changed = Vec::new();
        for wrapper in self.wrappers.values_mut().filter(is_waiting) {
            wrapper.phase = Phase::Unknown;
            changed.push(wrapper.uid.clone());
        }
        for uid in changed {
            self.update_phase(&uid);
            self.dirty.insert(uid);
        }
    }

    /// Evaluates an inadmissible wrapper again.
    pub fn requeue_inadmissible(&mut self, uid: &str) {
        if let Some(wrapper) =
            self.wrappers.get_mut(uid).filter(|w| matches!(w.phase, Phase::Inadmissible(_)))
        {
            wrapper.phase = Phase::Unknown;
            self.update_phase(uid);
            self.mark_dirty(uid);
        }
    }

    /// Sets the phase of a wrapper and updates its gang in the World.
    pub fn set_phase(&mut self, uid: &str, phase: Phase) {
        if phase == Phase::Finished {
            self.unregister_kinds(uid);
        }
        if let Some(wrapper) = self.wrappers.get_mut(uid) {
            wrapper.phase = phase;
            wrapper.forget_deleted_objects();
            let was_stuck = std::mem::take(&mut wrapper.is_stuck);
            self.publish(uid);
            if was_stuck {
                self.publish_pods_under(uid, OWNERS_MAX);
            }
            self.dirty.insert(uid.to_owned());
        }
    }

    /// The verdict of the last cycle that tried the gang of a pending wrapper.
    pub fn verdict(&self, uid: &str) -> Option<&Verdict> {
        self.world.verdict(uid)
    }

    /// The object of a wrapper with this kind and name.
    pub fn object(&self, wrapper: &Wrapper, key: &ObjectKey) -> Option<&ObjectRow> {
        self.objects.of_key(&wrapper.key.namespace, &wrapper.uid, key).next()
    }

    /// The objects that a wrapper owns.
    pub fn objects_of(&self, uid: &str) -> impl Iterator<Item = &ObjectRow> {
        let wrapper = self.wrappers.get(uid).into_iter();
        wrapper.flat_map(|wrapper| self.objects.of_owner(&wrapper.key.namespace, &wrapper.uid))
    }

    /// Whether all objects of a wrapper are deleted, and all its remaining pods are bound (they are terminating).
    pub fn is_removed(&self, uid: &str) -> bool {
        self.objects_of(uid).next().is_none() && self.world.pods_of(uid).all(|pod| pod.node.is_some())
    }

    /// The pods of a wrapper: pods below it in the owner hierarchy, and pods with its tracking label.
    /// Ordered by uid. This is one walk over the pods of the gang: the result serves all decisions of a round.
    pub fn pods_of<'a>(&'a self, wrapper: &'a Wrapper) -> Vec<GangPod<'a>> {
        let namespace = &wrapper.key.namespace;
        let below = self
            .owners_under(namespace, &wrapper.uid)
            .into_iter()
            .flat_map(|owner| self.pods.of_owner(namespace, owner));
        let tracked = self.pods.of_label(namespace, wrapper.label());
        let mut rows: Vec<&PodRow> = below.chain(tracked).collect();
        rows.sort_unstable_by_key(|row| &row.uid);
        rows.dedup_by_key(|row| &row.uid);
        rows.into_iter().filter_map(|row| self.gang_pod(row, &wrapper.uid)).collect()
    }

    /// The uids of a wrapper or object in a namespace, and of all objects below it in the owner hierarchy.
    fn owners_under<'a>(&'a self, namespace: &str, uid: &'a str) -> Vec<&'a str> {
        let mut owners = vec![uid];
        let mut level = 0;
        for _ in 0..OWNERS_MAX {
            let above = owners[level..].iter();
            let owned: Vec<_> = above.flat_map(|owner| self.objects.of_owner(namespace, owner)).collect();
            level = owners.len();
            owners.extend(owned.into_iter().map(|row| row.uid.as_str()));
        }
        owners
    }

    /// Sets whether the definition of a group limits the totals in the status to 32 bits, as early definitions of MCAD
    /// do.
    pub fn set_int32_totals(&mut self, group: Group, is_int32: bool) {
        if is_int32 {
            self.int32_totals.insert(group);
        } else {
            self.int32_totals.remove(&group);
        }
    }

    /// The pod counts and totals for the status of a wrapper, over those of its pods with its tracking label.
    pub fn tracked_counts(&self, wrapper: &Wrapper, pods: &[GangPod<'_>]) -> PodCounts {
        let mut counts = PodCounts { succeeded: self.succeeded_and_gone(wrapper), ..PodCounts::default() };
        let is_tracked = |pod: &&GangPod<'_>| {
            pod.tracked.as_deref() == Some(wrapper.label()) && pod.namespace == wrapper.key.namespace
        };
        for row in pods.iter().filter(is_tracked) {
            match row.phase {
                PodPhase::Pending => counts.pending += 1,
                PodPhase::Running => counts.running += 1,
                PodPhase::Succeeded => counts.succeeded += 1,
                PodPhase::Failed => counts.failed += 1,
            }
            if matches!(row.phase, PodPhase::Running | PodPhase::Succeeded) {
                counts.cpu_milli = counts.cpu_milli.saturating_add(row.request.get("cpu"));
                counts.memory_bytes = counts.memory_bytes.saturating_add(row.request.get("memory"));
                counts.gpus = counts.gpus.saturating_add(row.request.get("nvidia.com/gpu"));
            }
            counts.unschedulable.extend(row.unschedulable.clone());
        }
        if self.int32_totals.contains(&wrapper.key.group) {
            for total in [&mut counts.cpu_milli, &mut counts.memory_bytes, &mut counts.gpus] {
                *total = (*total).min(i64::from(i32::MAX));
            }
        }
        counts
    }
}
