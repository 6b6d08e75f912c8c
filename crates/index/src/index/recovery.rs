//! Where a wrapper is, from what its status says and what exists for it.

use std::collections::BTreeSet;

use model::{Assignment, Event, Gang, GangState};

use super::{Index, OWNERS_MAX};
use crate::assignment_from_json;
use crate::kinds::{Kind, KindState};
use crate::phase::{Phase, Stop};
use crate::wrapper::Wrapper;

impl Index {
    pub(super) fn register_kinds(&mut self, uid: &str) {
        let Some(wrapper) = self.wrappers.get(uid) else { return };
        for kind in wrapper.summary.kinds() {
            self.users.entry(kind.clone()).or_default().insert(uid.to_owned());
            self.kinds.entry(kind).or_insert(KindState::Unknown);
        }
    }

    /// Decides where a wrapper is from what its status says and what exists, once that is known; and lets go of one that is
    /// being deleted before it started.
    pub(super) fn settle(&mut self, uid: &str) {
        let Some(wrapper) = self.wrappers.get(uid) else { return };
        let phase = match &wrapper.phase {
            Phase::Unknown => self.first_phase(wrapper),
            _ if wrapper.status.state.is_terminal() => Phase::Ended,
            _ if is_overtaken(wrapper)
                && let Some(phase) = self.overtaken_phase(wrapper) =>
            {
                phase
            }
            Phase::Held(_) | Phase::Waiting | Phase::Nominated(_) if wrapper.is_deleting => Phase::Ended,
            Phase::Starting(places) if wrapper.is_dispatched() => Phase::Running(places.clone()),
            Phase::Running(places) if let Some(stop) = wrapper.being_stopped() => {
                Phase::Stopping(stop, places.clone())
            }
            known @ (Phase::Held(_)
            | Phase::Waiting
            | Phase::Nominated(_)
            | Phase::Starting(_)
            | Phase::Running(_)
            | Phase::Stopping(..)
            | Phase::Leaving(..)
            | Phase::Ended) => known.clone(),
        };
        let begins_to_stop =
            matches!(wrapper.phase, Phase::Running(_)) && matches!(phase, Phase::Stopping(..));
        if let Some(wrapper) = self.wrappers.get_mut(uid) {
            wrapper.phase = phase;
        }
        if begins_to_stop {
            self.keep_off(uid);
        }
        self.publish(uid);
    }

    fn first_phase(&self, wrapper: &Wrapper) -> Phase {
        if wrapper.status.state.is_terminal() {
            return Phase::Ended;
        }
        if let Some(flaw) = &wrapper.summary.flaw {
            return Phase::Held(vec![flaw.clone()]);
        }
        let state = |kind: &Kind| self.kinds.get(kind).unwrap_or(&KindState::Unknown);
        let kinds: BTreeSet<_> = wrapper.summary.objects().map(|object| &object.kind).collect();
        // What cannot be looked at could not be told to be complete, either: nothing is made of it before its list has come.
        let is_open = |kind: &&Kind| {
            matches!(state(kind), KindState::Unknown | KindState::Served { listed: false, .. })
        };
        if kinds.iter().any(is_open) {
            return Phase::Unknown;
        }
        if wrapper.may_have_objects()
            && let Some(phase) = self.resumed_phase(wrapper)
        {
            return phase;
        }
        if wrapper.is_deleting {
            return Phase::Ended;
        }
        let mut problems = wrapper.summary.problems.clone();
        for kind in kinds {
            match state(kind) {
                KindState::Missing => problems.push(format!("this cluster serves no {kind}")),
                KindState::ClusterScoped => {
                    problems.push(format!("{kind} belongs to no namespace, so nothing can wrap it"));
                }
                KindState::Unknown | KindState::Served { .. } | KindState::Barred { .. } => {}
            }
        }
        // What may not be looked at could not be told to be complete, nor its pods be let go: also what operators make on the way.
        let barred = wrapper.summary.kinds().find_map(|kind| match state(&kind) {
            KindState::Barred { why, .. } => Some(why.clone()),
            KindState::Unknown | KindState::Missing | KindState::ClusterScoped | KindState::Served { .. } => {
                None
            }
        });
        problems.extend(barred);
        if problems.is_empty() { Phase::Waiting } else { Phase::Held(problems) }
    }

    /// Where a wrapper is whose objects a former process made, or began to make; nothing when none exists yet.
    fn resumed_phase(&self, wrapper: &Wrapper) -> Option<Phase> {
        if let Some(stop) = wrapper.being_stopped() {
            return Some(Phase::Stopping(stop, None));
        }
        let exists = self.objects.of_owner(&wrapper.uid).next().is_some();
        let assignment = self.written_places(wrapper);
        match (wrapper.is_dispatched(), exists) {
            (true, _) => Some(Phase::Running(assignment)),
            // What exists is kept, what is missing is made.
            (false, true) => Some(Phase::Starting(assignment)),
            (false, false) => None,
        }
    }

    /// Where a wrapper is that another controller has taken further; nothing while only its intent can be seen.
    fn overtaken_phase(&self, wrapper: &Wrapper) -> Option<Phase> {
        if wrapper.may_have_objects() { self.resumed_phase(wrapper) } else { Some(Phase::Waiting) }
    }

    /// Where a gang was placed, as its objects tell.
    fn written_places(&self, wrapper: &Wrapper) -> Option<Assignment> {
        let mut written = self.objects.of_owner(&wrapper.uid).filter_map(|row| row.assignment.as_deref());
        let places = written.find_map(assignment_from_json);
        places.filter(|places| places.pod_sets.len() == wrapper.summary.pod_sets.len())
    }

    /// The status of a gang that another controller starts may be seen before the objects that tell its places.
    pub(super) fn learn_places(&mut self, uid: &str) {
        let Some(wrapper) = self.wrappers.get(uid) else { return };
        if !matches!(wrapper.phase, Phase::Starting(None) | Phase::Running(None)) {
            return;
        }
        let learnt = self.written_places(wrapper);
        if learnt.is_some()
            && let Some(Phase::Starting(places) | Phase::Running(places)) =
                self.wrappers.get_mut(uid).map(|wrapper| &mut wrapper.phase)
        {
            *places = learnt;
            self.publish(uid);
        }
    }

    /// Tells the world about a wrapper's gang.
    pub(super) fn publish(&mut self, uid: &str) {
        let holds = |gang: &Gang| matches!(gang.state, GangState::Reserved(_) | GangState::Unplaced);
        let held = self.world.gang(uid).is_some_and(holds);
        let gang = self.wrappers.get(uid).and_then(|wrapper| wrapper.gang(self.ages));
        let gang = gang.map(|gang| Gang { charges: self.charges(uid), ..gang });
        match gang {
            Some(gang) => self.world.apply(Event::GangUpserted(gang)),
            None if self.world.gang(uid).is_some() => self.world.apply(Event::GangRemoved(uid.to_owned())),
            None => {}
        }
        // Pods that succeeded count as long as their gang holds its places.
        if held != self.wrappers.get(uid).is_some_and(|wrapper| wrapper.phase.is_reserved()) {
            self.publish_pods_under(uid, OWNERS_MAX);
        }
    }
}

/// Whether the status tells that another controller has begun what waits here, or has ended what is being stopped here.
fn is_overtaken(wrapper: &Wrapper) -> bool {
    match &wrapper.phase {
        Phase::Held(_) | Phase::Waiting | Phase::Nominated(_) => wrapper.may_have_objects(),
        Phase::Stopping(Stop::Requeue, _)
        | Phase::Leaving(Stop::Requeue | Stop::Preempt(_) | Stop::NotAllowed(_), _) => {
            wrapper.being_stopped().is_none()
        }
        Phase::Unknown
        | Phase::Starting(_)
        | Phase::Running(_)
        | Phase::Stopping(..)
        | Phase::Leaving(..)
        | Phase::Ended => false,
    }
}
