//! Wrapped objects that are deleted while their gang runs: by hand, or by the TTL of a Job that has ended. Nothing creates
//! their pods again, so their places go back when the pods are gone.

use std::collections::BTreeMap;

use api::appwrapper::State;
use model::{Effect, Node};

use super::{GangPod, Index};
use crate::kinds::KindState;
use crate::objects::ObjectKey;
use crate::phase::Phase;
use crate::pods::PodPhase;
use crate::wrapper::Wrapper;

impl Index {
    /// Notes that an object is about to be removed from the index. Unless its deletion `is_seen`, it may have ended since it was
    /// last observed, or have been evicted.
    pub(super) fn note_disappearance(&mut self, uid: &str, is_seen: bool) {
        let Some(row) = self.objects.get(uid) else { return };
        let Some(wrapper) = row.owner.as_ref().and_then(|owner| self.wrappers.get_mut(owner)) else { return };
        if wrapper.key.namespace != row.namespace {
            return;
        }
        if matches!(wrapper.phase, Phase::Running(_)) && wrapper.summary.objects().any(|key| *key == row.key)
        {
            let is_conclusive = is_seen || row.has_ended() || row.is_disrupted();
            wrapper.disappeared.insert(row.key.clone(), is_conclusive.then(|| row.clone()));
        }
    }

    /// Notes the objects of a dispatched gang that do not exist, although their kind is listed: they were deleted while no
    /// controller ran, or while the kind could not be listed. Without the condition
    /// `Dispatched`, nothing says that they were created.
    pub(super) fn note_absent_objects(&mut self, uid: &str) {
        let Some(wrapper) = self.wrappers.get(uid).filter(|wrapper| wrapper.started_at().is_some()) else {
            return;
        };
        let is_listed =
            |key: &&ObjectKey| matches!(self.kind_state(&key.kind), KindState::Served { listed: true, .. });
        let is_known =
            |key: &&ObjectKey| wrapper.disappeared.contains_key(*key) || wrapper.deleted.contains_key(*key);
        let absent = wrapper.summary.objects().filter(is_listed).filter(|key| !is_known(key));
        let absent: Vec<ObjectKey> =
            absent.filter(|key| self.object(wrapper, key).is_none()).cloned().collect();
        if let Some(wrapper) = self.wrappers.get_mut(uid) {
            wrapper.disappeared.extend(absent.into_iter().map(|key| (key, None)));
        }
    }

    /// An object of a wrapper exists. A request that was lost may create it after the others were removed: the gang
    /// removes its objects again.
    pub(super) fn note_appearance(&mut self, uid: &str, is_new: bool) {
        let Some(row) = self.objects.get(uid) else { return };
        let Some(wrapper) = row.owner.as_ref().and_then(|owner| self.wrappers.get_mut(owner)) else { return };
        if wrapper.key.namespace != row.namespace {
            return;
        }
        wrapper.disappeared.remove(&row.key);
        wrapper.deleted.remove(&row.key);
        if let Phase::Stopped(stop, places) = &mut wrapper.phase
            && is_new
            && !row.is_deleting
        {
            wrapper.phase = Phase::Stopping(stop.clone(), places.take());
        }
    }

    /// Applies that the API server does not have these objects of a running gang.
    pub fn objects_deleted(&mut self, uid: &str, keys: &[ObjectKey]) {
        let Some(wrapper) = self.wrappers.get_mut(uid) else { return };
        for key in keys {
            if let Some(row) = wrapper.disappeared.remove(key) {
                wrapper.deleted.insert(key.clone(), row);
            }
        }
        self.publish(uid);
    }

    /// Notes that pods of these gangs may have ended: of a gang with deleted objects, their places go back.
    pub(super) fn note_ended_pods(&mut self, wrappers: &[String]) {
        let has_deleted =
            |uid: &&String| self.wrappers.get(*uid).is_some_and(|wrapper| !wrapper.deleted.is_empty());
        self.unpublished.extend(wrappers.iter().filter(has_deleted).cloned());
    }

    /// The number of live pods of each pod set with pods, at most as many as were planned; empty if no object is deleted.
    pub(super) fn pods_with_deleted_objects(&self, wrapper: &Wrapper) -> BTreeMap<usize, u32> {
        let mut counts = BTreeMap::new();
        let pods = self.world.pods_of(&wrapper.uid).filter(|_| !wrapper.deleted.is_empty());
        for (_, set) in pods.filter_map(|pod| pod.gang.as_ref()) {
            let planned = wrapper.summary.pod_sets.get(*set).map_or(0, |set| set.count);
            let live: &mut u32 = counts.entry(*set).or_default();
            *live = live.saturating_add(1).min(planned);
        }
        counts
    }

    /// Whether an object of a running gang has a condition type that contains one of `words`. The last observed state of a
    /// deleted object counts. Without one, an object with a TTL has ended, and all are complete if the status says so.
    pub fn is_complete(&self, wrapper: &Wrapper, key: &ObjectKey, words: &[String]) -> bool {
        if let Some(row) = self.object(wrapper, key) {
            return row.is_complete(words);
        }
        match wrapper.deleted.get(key) {
            Some(Some(row)) => row.is_complete(words),
            Some(None) => self.had_ended(wrapper, key),
            None => false,
        }
    }

    /// Whether all objects with pods of a running gang have succeeded, as far as known: the gang needs no pods any more.
    pub fn has_succeeded(&self, wrapper: &Wrapper) -> bool {
        let keys: Vec<&ObjectKey> = wrapper.summary.objects().collect();
        let has_succeeded = |key: &ObjectKey| match (self.object(wrapper, key), wrapper.deleted.get(key)) {
            (Some(row), _) | (None, Some(Some(row))) => row.has_succeeded(),
            (None, Some(None)) => self.had_ended(wrapper, key),
            (None, None) => false,
        };
        let mut sources = wrapper.summary.sources.iter();
        !wrapper.summary.sources.is_empty()
            && sources.all(|source| keys.get(source.object).is_some_and(|key| has_succeeded(key)))
    }

    /// The deleted objects of a running gang that had not ended, as far as known.
    pub fn deleted_before_end<'a>(&self, wrapper: &'a Wrapper) -> Vec<&'a ObjectKey> {
        let deleted = wrapper.deleted.iter();
        let unfinished = deleted.filter(|(key, row)| match row {
            Some(row) => !row.has_ended(),
            None => !self.had_ended(wrapper, key),
        });
        unfinished.map(|(key, _)| key).collect()
    }

    /// The wrapped Pods of a running gang that ended because of a disruption: the loss of their node, an eviction, or a
    /// preemption by the scheduler. Nothing creates them again.
    pub fn disrupted_pods<'a>(&self, wrapper: &'a Wrapper) -> Vec<&'a ObjectKey> {
        let is_disrupted = |key: &&ObjectKey| match (self.object(wrapper, key), wrapper.deleted.get(*key)) {
            (Some(row), _) => {
                let phase = self.pods.get(&row.uid).map(|pod| pod.phase);
                row.is_disrupted() && phase == Some(PodPhase::Failed)
            }
            (None, Some(Some(row))) => row.is_disrupted(),
            (None, Some(None)) => !self.had_ended(wrapper, key) && self.has_lost_node(wrapper, key),
            (None, None) => false,
        };
        wrapper.summary.objects().filter(|key| key.kind.is_pod()).filter(is_disrupted).collect()
    }

    /// Whether an object was dispatched to a node that is gone, not ready, or evicts pods, as far as the other objects say it.
    fn has_lost_node(&self, wrapper: &Wrapper, key: &ObjectKey) -> bool {
        let Some(assignment) = self.recorded_assignment(wrapper) else { return false };
        let position = wrapper.summary.objects().position(|other| other == key);
        let sources = wrapper.summary.sources.iter().enumerate();
        let sets = sources.filter(|(_, source)| Some(source.object) == position).map(|(set, _)| set);
        let mut nodes = sets.filter_map(|set| assignment.pod_sets.get(set)).flatten().map(|(node, _)| node);
        let evicts = |node: &Node| node.taints.iter().any(|taint| taint.effect == Effect::NoExecute);
        nodes.any(|node| self.world.node(node).is_none_or(|node| !node.ready || evicts(node)))
    }

    /// Whether all objects with pods are deleted, and none of these pods is live.
    pub fn has_nothing_left(&self, wrapper: &Wrapper, pods: &[GangPod<'_>]) -> bool {
        let keys: Vec<&ObjectKey> = wrapper.summary.objects().collect();
        let mut sources = wrapper.summary.sources.iter();
        let is_deleted =
            |position: usize| keys.get(position).is_some_and(|key| wrapper.deleted.contains_key(key));
        !wrapper.summary.sources.is_empty()
            && sources.all(|source| is_deleted(source.object))
            && !pods.iter().any(|pod| pod.is_live())
    }

    /// Whether an object that was deleted unobserved had ended: it has a TTL, all were complete by the status, or all wrapped
    /// Pods that are gone have succeeded by the status.
    fn had_ended(&self, wrapper: &Wrapper, key: &ObjectKey) -> bool {
        let have_succeeded = || {
            let gone = wrapper.disappeared.keys().chain(wrapper.deleted.keys());
            let gone = gone.filter(|key| key.kind.is_pod()).count();
            let left = self.pods_of(wrapper).iter().filter(|pod| pod.phase == PodPhase::Succeeded).count();
            usize::try_from(wrapper.status.succeeded).is_ok_and(|succeeded| succeeded >= gone + left)
        };
        wrapper.summary.expiring.contains(key)
            || wrapper.status.state == State::RunningHoldCompletion
            || key.kind.is_pod() && have_succeeded()
    }

    /// The number of wrapped Pods that have succeeded and are gone: collected with their node, for example.
    pub(super) fn succeeded_and_gone(&self, wrapper: &Wrapper) -> i64 {
        let pods = wrapper.deleted.iter().filter(|(key, _)| key.kind.is_pod());
        let succeeded = pods.filter(|(key, row)| match row {
            Some(row) => row.has_succeeded(),
            None => self.had_ended(wrapper, key),
        });
        i64::try_from(succeeded.count()).unwrap_or(i64::MAX)
    }
}

impl Wrapper {
    /// Forgets deleted objects when the gang does not run any more.
    pub(crate) fn forget_deleted_objects(&mut self) {
        if !matches!(self.phase, Phase::Running(_)) {
            self.disappeared.clear();
            self.deleted.clear();
        }
    }
}
