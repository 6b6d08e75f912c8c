//! The phase of a wrapper, from its status and its objects. Also recovers the phases after a restart or a change of
//! leader.

use std::collections::BTreeSet;

use model::{Assignment, Event, Gang};

use super::Index;
use crate::assignment_from_json;
use crate::kinds::{Kind, KindState};
use crate::phase::{Phase, StopReason};
use crate::reserved_places::ReservedPlaces;
use crate::wrapper::Wrapper;

impl Index {
    /// Updates the phase of a wrapper from its status and, once they are listed, its objects. A wrapper that is deleted
    /// before its start is finished.
    pub(super) fn update_phase(&mut self, uid: &str) {
        let Some(wrapper) = self.wrappers.get(uid) else { return };
        let phase = match &wrapper.phase {
            Phase::Unknown => self.initial_phase(wrapper),
            _ if wrapper.status.state.is_terminal() => Phase::Finished,
            _ if is_outdated(wrapper)
                && let Some(phase) = self.phase_of_newer_status(wrapper) =>
            {
                phase
            }
            Phase::Inadmissible(_) | Phase::Waiting | Phase::Nominated(_) if wrapper.is_deleting => {
                Phase::Finished
            }
            Phase::Starting(places) if wrapper.is_dispatched() => Phase::Running(places.clone()),
            Phase::Running(places) if let Some(stop) = wrapper.stop_reason() => {
                Phase::Stopping(stop, places.clone())
            }
            unchanged @ (Phase::Inadmissible(_)
            | Phase::Waiting
            | Phase::Nominated(_)
            | Phase::Starting(_)
            | Phase::Running(_)
            | Phase::Stopping(..)
            | Phase::Stopped(..)
            | Phase::Finished) => unchanged.clone(),
        };
        let begins_stopping =
            matches!(wrapper.phase, Phase::Running(_)) && matches!(phase, Phase::Stopping(..));
        let is_seen_first = wrapper.phase == Phase::Unknown && phase != Phase::Unknown;
        let is_recovered = wrapper.phase == Phase::Unknown && matches!(phase, Phase::Running(_));
        if phase == Phase::Finished && wrapper.phase != Phase::Finished {
            self.unregister_kinds(uid);
        }
        if let Some(wrapper) = self.wrappers.get_mut(uid) {
            wrapper.phase = phase;
            wrapper.forget_deleted_objects();
        }
        if is_recovered {
            self.note_absent_objects(uid);
        }
        if begins_stopping || is_seen_first {
            self.exclude_recorded_nodes(uid);
        }
        self.publish(uid);
    }

    /// The phase of a wrapper that has none yet: `Unknown` until all kinds of its objects are resolved and listed, and what
    /// its namespace allows is known.
    fn initial_phase(&self, wrapper: &Wrapper) -> Phase {
        if wrapper.status.state.is_terminal() {
            return Phase::Finished;
        }
        if let Some(error) = &wrapper.summary.error {
            return Phase::Inadmissible(vec![error.clone()]);
        }
        let kinds: BTreeSet<_> = wrapper.summary.objects().map(|object| &object.kind).collect();
        let mut errors: Vec<String> = kinds.iter().filter_map(|kind| kind.form_error()).collect();
        if !errors.is_empty() {
            errors.extend(wrapper.summary.problems.iter().cloned());
            return if wrapper.is_deleting { Phase::Finished } else { Phase::Inadmissible(errors) };
        }
        // Without a watch, completion cannot be detected. So no object is created before the watch of its kind has
        // synced.
        let is_unsynced = |kind: &&Kind| {
            matches!(self.kind_state(kind), KindState::Unknown | KindState::Served { listed: false, .. })
        };
        if kinds.iter().any(is_unsynced) || wrapper.references.is_unlisted {
            return Phase::Unknown;
        }
        if wrapper.may_have_objects()
            && let Some(phase) = self.recovered_phase(wrapper)
        {
            return phase;
        }
        if wrapper.is_deleting {
            return Phase::Finished;
        }
        if wrapper.dry_run.is_awaited {
            return Phase::Unknown;
        }
        let mut problems = wrapper.summary.problems.clone();
        problems.extend(kinds.into_iter().filter_map(|kind| unsupported(kind, self.kind_state(kind))));
        problems.extend(self.kind_failures(wrapper));
        problems.extend(self.admission_failures.values().cloned());
        problems.extend(wrapper.references.problems.iter().chain(&wrapper.dry_run.refusals).cloned());
        if !problems.is_empty() {
            return Phase::Inadmissible(problems);
        }
        let is_known = self.namespaces.contains_key(&wrapper.key.namespace);
        if is_known { Phase::Waiting } else { Phase::Unknown }
    }

    /// The phase of a wrapper whose objects another process created at least in part; `None` if no object exists yet.
    fn recovered_phase(&self, wrapper: &Wrapper) -> Option<Phase> {
        let failures = self.kind_failures(wrapper);
        if !failures.is_empty() && !wrapper.is_dispatched() {
            // Some of its objects may exist and are not known. It goes on when they are listed.
            return Some(Phase::Inadmissible(failures));
        }
        if let Some(stop) = wrapper.stop_reason() {
            return Some(Phase::Stopping(stop, None));
        }
        let exists = self.objects_of(&wrapper.uid).next().is_some();
        let assignment = self.recorded_assignment(wrapper);
        match (wrapper.is_dispatched(), exists) {
            (true, _) => Some(Phase::Running(assignment)),
            // Existing objects are kept; missing objects are created.
            (false, true) => Some(Phase::Starting(assignment)),
            (false, false) => None,
        }
    }

    /// The phase of a wrapper whose status another controller has advanced; `None` while only the intent is visible.
    fn phase_of_newer_status(&self, wrapper: &Wrapper) -> Option<Phase> {
        if wrapper.may_have_objects() { self.recovered_phase(wrapper) } else { Some(Phase::Waiting) }
    }

    /// The assignment of a gang whose objects another process created. None: it is not known, or not yet; the gang holds
    /// what its bound pods use.
    ///
    /// An author can change the annotation of the objects, so the status has a digest of the assignment. Without the
    /// assignment of the digest, all places are open: each bound pod takes one where it is, and the planner finds the
    /// others. A gang that an older version started has no digest. Its annotation counts while its objects are being
    /// created, so that it starts whole, and its next status has the digest.
    pub(super) fn recorded_assignment(&self, wrapper: &Wrapper) -> Option<Assignment> {
        let reserved = wrapper.reserved_places();
        let places = match &reserved {
            Some(reserved) => self.written_assignment(wrapper, |text| *reserved == ReservedPlaces::of(text)),
            None => self.written_assignment(wrapper, |_| !wrapper.is_dispatched()),
        };
        let mut objects = self.objects_of(&wrapper.uid);
        let is_planned = reserved.is_some() || objects.any(|row| row.assignment.is_some());
        let open = || (is_planned && self.has_first_object(wrapper)).then(|| wrapper.open_places());
        places.or_else(open)
    }

    /// Whether an object of the wrapper has the assignment of its admission, by the digest in its status.
    pub fn has_recorded_places(&self, wrapper: &Wrapper) -> bool {
        let reserved = wrapper.reserved_places();
        let is_reserved = |text: &str| reserved.as_ref().is_some_and(|it| *it == ReservedPlaces::of(text));
        self.written_assignment(wrapper, is_reserved).is_some()
    }

    /// The first assignment among the annotations of the objects that is believed, with no more places than pods.
    fn written_assignment(
        &self,
        wrapper: &Wrapper,
        is_believed: impl Fn(&str) -> bool,
    ) -> Option<Assignment> {
        let written = self.objects_of(&wrapper.uid).filter_map(|row| row.assignment.as_deref());
        let sizes = || wrapper.summary.pod_sets.iter().map(|set| u64::from(set.count));
        let fits = |places: &Assignment| {
            let placed = (0..places.pod_sets.len()).map(|set| places.placed(set));
            places.pod_sets.len() == wrapper.summary.pod_sets.len()
                && placed.zip(sizes()).all(|(placed, size)| placed <= size)
        };
        written.filter(|text| is_believed(text)).filter_map(assignment_from_json).find(fits)
    }

    /// Whether the first object of the wrapper is observed, or known to be deleted. It always gets the annotation, so the
    /// other objects need not be awaited.
    fn has_first_object(&self, wrapper: &Wrapper) -> bool {
        let first = wrapper.summary.objects().next();
        first.is_some_and(|key| self.object(wrapper, key).is_some() || wrapper.deleted.contains_key(key))
    }

    /// Takes the assignment from the objects of a gang that another controller has started. Its status may be watched
    /// before its objects and pods.
    pub(super) fn load_assignment(&mut self, uid: &str) {
        let Some(wrapper) = self.wrappers.get(uid) else { return };
        if !matches!(wrapper.phase, Phase::Starting(None) | Phase::Running(None)) {
            return;
        }
        let assignment = self.recorded_assignment(wrapper);
        if assignment.is_some()
            && let Some(Phase::Starting(places) | Phase::Running(places)) =
                self.wrappers.get_mut(uid).map(|wrapper| &mut wrapper.phase)
        {
            *places = assignment;
            self.publish(uid);
        }
    }

    /// Updates the gang of a wrapper in the World.
    pub(super) fn publish(&mut self, uid: &str) {
        self.unpublished.remove(uid);
        self.limit(uid);
        self.apply_overruns(uid);
        self.unchecked.insert(uid.to_owned());
        let gang = self.wrappers.get(uid).and_then(|wrapper| {
            let gang = self.charged_as_admitted(wrapper, wrapper.gang(self.has_aging)?);
            Some(self.sized(wrapper, gang))
        });
        let gang = gang.map(|gang| Gang { charges: self.charges(uid), ..gang });
        match gang {
            Some(gang) => self.world.apply_deferred(Event::GangUpserted(gang)),
            None if self.world.gang(uid).is_some() => {
                self.world.apply_deferred(Event::GangRemoved(uid.to_owned()));
            }
            None => {}
        }
    }
}

/// Why an AppWrapper cannot contain a kind in this state, if it cannot.
fn unsupported(kind: &Kind, state: &KindState) -> Option<String> {
    match state {
        KindState::Missing => Some(format!("this cluster serves no {kind}")),
        KindState::ClusterScoped => {
            Some(format!("{kind} is cluster-scoped, so an AppWrapper cannot contain it"))
        }
        KindState::WithoutVerbs(verbs) => Some(format!(
            "this cluster serves {kind} without the verbs {}, so an AppWrapper cannot contain it",
            verbs.join(", ")
        )),
        KindState::Unknown | KindState::Served { .. } | KindState::Unavailable { .. } => None,
    }
}

/// Whether the phase is outdated: by its status, another controller has started a waiting gang, or has finished
/// stopping a gang.
fn is_outdated(wrapper: &Wrapper) -> bool {
    match &wrapper.phase {
        Phase::Inadmissible(_) | Phase::Waiting | Phase::Nominated(_) => wrapper.may_have_objects(),
        Phase::Stopping(StopReason::Requeue, _)
        | Phase::Stopped(StopReason::Requeue | StopReason::Preempt(_) | StopReason::Forbidden(_), _) => {
            wrapper.stop_reason().is_none()
        }
        Phase::Unknown
        | Phase::Starting(_)
        | Phase::Running(_)
        | Phase::Stopping(..)
        | Phase::Stopped(..)
        | Phase::Finished => false,
    }
}
