//! The fold: one method for each thing that can be observed, and what decisions read.
//!
//! Where wrappers are after an observation is in `settle`, after a plan in `accept`; which pods are whose in `ownership`, who goes where in
//! `seats`, who may not go where it was planned in `refused`, who is charged to which quota in `quotas`,
//! what must still be so when a gang is taken back in `evidence`.

mod accept;
mod evidence;
mod ownership;
mod pod_placement;
mod quotas;
mod recovery;
mod unschedulable;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use api::appwrapper::transition::PodCounts;
use api::appwrapper::{AppWrapper, Group, Status};
use api::time::Stamps;
use api::{Hints, MicroTime};
use model::{Event, Policy, PreemptionPolicy, Verdict, World};

pub use accept::Accepted;
pub use evidence::Evidence;
pub use pod_placement::Ungating;
pub use unschedulable::UnschedulablePods;

use crate::kinds::{Kind, KindState};
use crate::objects::{ObjectKey, ObjectRow, Objects};
use crate::phase::Phase;
use crate::pods::{PodPhase, PodRow, Pods};
use crate::translate;
use crate::wire;
use crate::wrapper::{Wrapper, is_newer};

/// Longest chain of owners from a pod to its wrapper.
const OWNERS_MAX: usize = 6;

/// Everything observed, and the world made of it.
#[derive(Debug, Default)]
pub struct Index {
    world: World,
    wrappers: BTreeMap<String, Wrapper>,
    labels: BTreeMap<(String, String), BTreeSet<String>>,
    objects: Objects,
    pods: Pods,
    kinds: BTreeMap<Kind, KindState>,
    users: BTreeMap<Kind, BTreeSet<String>>,
    dirty: BTreeSet<String>,
    stamps: Stamps,
    /// Groups whose definition takes totals of 32 bits only.
    narrow: BTreeSet<Group>,
    /// Ranks rise while gangs wait.
    ages: bool,
    /// When gangs may go again to nodes that they keep off.
    forgiven: BTreeSet<(MicroTime, String)>,
    trees: quotas::Trees,
}

impl Index {
    /// Nothing observed yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The world that is planned on.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Sets the rules of planning.
    pub fn set_policy(&mut self, policy: Policy) {
        self.set_quota_preemption(policy.preemption != PreemptionPolicy::Never);
        self.world.apply(Event::PolicySet(policy));
    }

    /// Lets ranks rise by `priorityslope` while gangs wait, from now on.
    pub fn set_aging(&mut self, ages: bool) {
        self.ages = ages;
        let uids: Vec<String> = self.wrappers.keys().cloned().collect();
        for uid in uids {
            self.publish(&uid);
        }
    }

    /// A wrapper by identity.
    pub fn wrapper(&self, uid: &str) -> Option<&Wrapper> {
        self.wrappers.get(uid)
    }

    /// All wrappers, by identity.
    pub fn wrappers(&self) -> impl Iterator<Item = &Wrapper> {
        self.wrappers.values()
    }

    /// Wrappers whose identity comes after `uid`, in order.
    pub fn wrappers_after(&self, uid: &str) -> impl Iterator<Item = &Wrapper> {
        self.wrappers.range::<str, _>((Bound::Excluded(uid), Bound::Unbounded)).map(|(_, wrapper)| wrapper)
    }

    /// Wrappers about which something changed since the last call.
    pub fn take_dirty(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.dirty)
    }

    /// Asks for a wrapper to be looked at again.
    pub fn touch(&mut self, uid: &str) {
        if self.wrappers.contains_key(uid) {
            self.dirty.insert(uid.to_owned());
        }
    }

    /// A node as it is. That it still is what it was is no news: it says so many times a minute.
    pub fn node_seen(&mut self, node: wire::Node) {
        let node = translate::node(node, self.world.resources_mut());
        if self.world.node(&node.name) == Some(&node) {
            return;
        }
        let name = node.name.clone();
        self.world.apply(Event::NodeUpserted(node));
        self.forgive_node(&name);
    }

    /// A node is gone.
    pub fn node_gone(&mut self, name: &str) {
        self.world.apply(Event::NodeRemoved(name.to_owned()));
    }

    /// A pod as it is.
    pub fn pod_seen(&mut self, pod: wire::Pod) {
        let row = PodRow::of(pod);
        let uid = row.uid.clone();
        self.pods.upsert(row);
        self.publish_pod(&uid);
    }

    /// A pod is gone.
    pub fn pod_gone(&mut self, uid: &str) {
        if let Some(row) = self.pods.get(uid) {
            let concerned = self.concerned(row);
            self.dirty.extend(concerned);
        }
        self.pods.remove(uid);
        self.world.apply(Event::PodRemoved(uid.to_owned()));
    }

    /// An object as it is.
    pub fn object_seen(&mut self, row: ObjectRow) {
        let uid = row.uid.clone();
        if self.objects.upsert(row) {
            self.publish_pods_under(&uid, OWNERS_MAX);
        }
        let concerned = self.owner_wrapper(&uid);
        if let Some(wrapper) = &concerned {
            self.learn_places(wrapper);
        }
        self.dirty.extend(concerned);
    }

    /// An object is gone.
    pub fn object_gone(&mut self, uid: &str) {
        let concerned = self.owner_wrapper(uid);
        self.dirty.extend(concerned);
        self.objects.remove(uid);
    }

    /// A wrapper as it is. `now` counts as its first sight unless its status or an earlier call tells an earlier one.
    pub fn wrapper_seen(&mut self, group: Group, object: AppWrapper, now: MicroTime) {
        let uid = object.metadata.uid.clone();
        let mut is_new = true;
        if let Some(known) = self.wrappers.get_mut(&uid) {
            if !is_newer(&object.metadata.resource_version, &known.resource_version) {
                return;
            }
            let has_new_spec = known.generation != object.metadata.generation && !known.may_have_objects();
            if has_new_spec && known.phase.is_queued() {
                let seen = known.seen;
                *known = Wrapper::new(group, object, seen, self.world.resources_mut());
            } else {
                is_new = false;
                known.resource_version = object.metadata.resource_version;
                known.is_deleting = object.metadata.deletion_timestamp.is_some();
                known.hints = Hints::read(&object.metadata.annotations);
                known.labels = object.metadata.labels;
                known.status = object.status;
            }
        } else {
            let seen = self.stamps.next(now);
            let wrapper = Wrapper::new(group, object, seen, self.world.resources_mut());
            let label = (wrapper.key.namespace.clone(), wrapper.label().to_owned());
            self.labels.entry(label).or_default().insert(uid.clone());
            self.wrappers.insert(uid.clone(), wrapper);
        }
        if is_new {
            self.register_kinds(&uid);
        }
        self.settle(&uid);
        if is_new {
            self.publish_pods_under(&uid, OWNERS_MAX);
        }
        self.dirty.insert(uid);
    }

    /// A wrapper that turned out to be another than it was when its start was decided: it is judged from the beginning.
    pub fn wrapper_changed(&mut self, group: Group, object: AppWrapper) {
        let uid = object.metadata.uid.clone();
        if let Some(known) = self.wrappers.get_mut(&uid) {
            let seen = known.seen;
            *known = Wrapper::new(group, object, seen, self.world.resources_mut());
            self.register_kinds(&uid);
            self.settle(&uid);
            self.dirty.insert(uid);
        }
    }

    /// A wrapper is gone. Its pods stay charged until they are gone too.
    pub fn wrapper_gone(&mut self, uid: &str) {
        let Some(wrapper) = self.wrappers.get(uid) else { return };
        let ended = self.pods_of(wrapper).into_iter().filter(|row| !row.is_live()).map(|row| row.uid.clone());
        let ended: Vec<_> = ended.collect();
        let Some(wrapper) = self.wrappers.remove(uid) else { return };
        self.dirty.remove(uid);
        let label = (wrapper.key.namespace.clone(), wrapper.label().to_owned());
        if let Some(sharers) = self.labels.get_mut(&label) {
            sharers.remove(uid);
            if sharers.is_empty() {
                self.labels.remove(&label);
            }
        }
        for kind in wrapper.summary.kinds() {
            if let Some(users) = self.users.get_mut(&kind) {
                users.remove(uid);
            }
        }
        self.world.apply(Event::GangRemoved(uid.to_owned()));
        for pod in ended {
            self.world.apply(Event::PodRemoved(pod));
        }
        // Whoever waits for the name to be free may go on.
        let same_name: Vec<_> =
            self.wrappers.values().filter(|other| other.key == wrapper.key).map(|w| w.uid.clone()).collect();
        self.dirty.extend(same_name);
    }

    /// The answer to a write of ours: newer than anything observed, unless somebody wrote since.
    pub fn written(&mut self, uid: &str, resource_version: &str, status: Status) {
        if let Some(wrapper) = self.wrappers.get_mut(uid)
            && is_newer(resource_version, &wrapper.resource_version)
        {
            resource_version.clone_into(&mut wrapper.resource_version);
            wrapper.status = status;
        }
        self.settle(uid);
        self.touch(uid);
    }

    /// Kinds that wrappers use and about which nothing is known yet.
    pub fn unknown_kinds(&self) -> impl Iterator<Item = &Kind> {
        self.kinds.iter().filter(|(_, state)| **state == KindState::Unknown).map(|(kind, _)| kind)
    }

    /// What is known about a kind.
    pub fn kind(&self, kind: &Kind) -> Option<&KindState> {
        self.kinds.get(kind)
    }

    /// All kinds that wrappers use or used.
    pub fn kinds(&self) -> impl Iterator<Item = (&Kind, &KindState)> {
        self.kinds.iter()
    }

    /// Something became known about a kind: wrappers that use it are looked at again.
    pub fn kind_known(&mut self, kind: &Kind, state: &KindState) {
        if self.kinds.insert(kind.clone(), state.clone()).as_ref() == Some(state) {
            return;
        }
        let is_barred = matches!(state, KindState::Barred { .. });
        for uid in self.users.get(kind).cloned().unwrap_or_default() {
            if let Some(wrapper) = self.wrappers.get_mut(&uid)
                && (matches!(wrapper.phase, Phase::Held(_)) || is_barred && wrapper.phase == Phase::Waiting)
            {
                wrapper.phase = Phase::Unknown;
            }
            self.settle(&uid);
            self.dirty.insert(uid);
        }
    }

    /// What kept a wrapper from being queued may be over: it is looked at anew.
    pub fn reconsider(&mut self, uid: &str) {
        if let Some(wrapper) = self.wrappers.get_mut(uid).filter(|w| matches!(w.phase, Phase::Held(_))) {
            wrapper.phase = Phase::Unknown;
            self.settle(uid);
            self.touch(uid);
        }
    }

    /// Moves a wrapper to another phase, and the world with it.
    pub fn enter(&mut self, uid: &str, phase: Phase) {
        if let Some(wrapper) = self.wrappers.get_mut(uid) {
            wrapper.phase = phase;
            self.publish(uid);
            self.dirty.insert(uid.to_owned());
        }
    }

    /// Why a waiting wrapper does not start, if it was tried.
    pub fn verdict(&self, uid: &str) -> Option<&Verdict> {
        self.world.verdict(uid)
    }

    /// The object that exists for a wrapper under this kind and name, whoever owns it.
    pub fn object(&self, wrapper: &Wrapper, key: &ObjectKey) -> Option<&ObjectRow> {
        self.objects
            .of_owner(&wrapper.uid)
            .find(|row| row.key == *key && row.namespace == wrapper.key.namespace)
    }

    /// Objects that a wrapper owns.
    pub fn objects_of(&self, uid: &str) -> impl Iterator<Item = &ObjectRow> {
        self.objects.of_owner(uid)
    }

    /// Whether nothing of a wrapper exists any more, but pods that are bound and on their way out.
    pub fn has_left(&self, uid: &str) -> bool {
        self.objects.of_owner(uid).next().is_none() && self.world.pods_of(uid).all(|pod| pod.node.is_some())
    }

    /// Pods of a wrapper: those it owns, through whatever objects, and those that carry its label.
    pub fn pods_of<'a>(&'a self, wrapper: &'a Wrapper) -> Vec<&'a PodRow> {
        let owners = self.owners_under(&wrapper.uid).into_iter();
        let mut found: BTreeMap<_, _> =
            owners.flat_map(|owner| self.pods.of_owner(owner)).map(|row| (row.uid.as_str(), row)).collect();
        found.extend(self.tracked(wrapper).map(|row| (row.uid.as_str(), row)));
        found.into_values().collect()
    }

    /// A wrapper's identity and those of the objects that it owns, through whatever objects.
    fn owners_under<'a>(&'a self, uid: &'a str) -> Vec<&'a str> {
        let mut owners = vec![uid];
        let mut of_depth = 0;
        for _ in 0..OWNERS_MAX {
            let owned: Vec<_> =
                owners[of_depth..].iter().flat_map(|owner| self.objects.of_owner(owner)).collect();
            of_depth = owners.len();
            owners.extend(owned.into_iter().map(|row| row.uid.as_str()));
        }
        owners
    }

    /// Tells whether the definition of a group takes totals of 32 bits only, as the first ones do.
    pub fn set_narrow_totals(&mut self, group: Group, is_narrow: bool) {
        if is_narrow {
            self.narrow.insert(group);
        } else {
            self.narrow.remove(&group);
        }
    }

    /// Counts of the pods that carry a wrapper's label, as its status shows them.
    pub fn tracked_counts(&self, wrapper: &Wrapper) -> PodCounts {
        let mut counts = PodCounts::default();
        for row in self.tracked(wrapper) {
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
        if self.narrow.contains(&wrapper.key.group) {
            for total in [&mut counts.cpu_milli, &mut counts.memory_bytes, &mut counts.gpus] {
                *total = (*total).min(i64::from(i32::MAX));
            }
        }
        counts
    }

    fn tracked<'a>(&'a self, wrapper: &'a Wrapper) -> impl Iterator<Item = &'a PodRow> {
        let rows = self.pods.of_label(&wrapper.key.namespace, wrapper.label());
        rows.filter(|row| self.ownership(row).is_none_or(|ownership| ownership.wrapper == wrapper.uid))
    }
}
