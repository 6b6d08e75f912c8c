//! The kinds that live wrappers use, with their state, and the objects of a kind.

use std::collections::BTreeSet;

use super::Index;
use crate::kinds::{Kind, KindState};
use crate::phase::Phase;
use crate::remove_from;
use crate::wrapper::Wrapper;

impl Index {
    /// Registers the kinds of the objects of a wrapper and the rules of its pods, so that the controller resolves and watches them.
    pub(super) fn register_kinds(&mut self, uid: &str) {
        let Some(wrapper) = self.wrappers.get(uid) else { return };
        if wrapper.phase == Phase::Finished || wrapper.status.state.is_terminal() {
            return;
        }
        // No request may be made for a kind of invalid form.
        for kind in wrapper.summary.kinds().filter(|kind| kind.form_error().is_none()) {
            self.users.entry(kind.clone()).or_default().insert(uid.to_owned());
            self.kinds.entry(kind).or_insert(KindState::Unknown);
        }
        self.register_dry_runs(uid);
        self.register_rules(uid);
        self.register_references(uid);
    }

    /// Removes a wrapper from the users of its kinds and selectors.
    pub(super) fn unregister_kinds(&mut self, uid: &str) {
        let Some(wrapper) = self.wrappers.get(uid) else { return };
        for kind in wrapper.summary.kinds() {
            remove_from(&mut self.users, &kind, uid);
        }
        self.unregister_rules(uid);
        self.unregister_references(uid);
        self.unregister_dry_runs(uid);
    }

    /// Kinds of wrapped objects that discovery has not resolved yet.
    pub fn unknown_kinds(&self) -> impl Iterator<Item = &Kind> {
        self.kinds.iter().filter(|(_, state)| **state == KindState::Unknown).map(|(kind, _)| kind)
    }

    /// The state of a kind.
    pub fn kind(&self, kind: &Kind) -> Option<&KindState> {
        self.kinds.get(kind)
    }

    /// All kinds that live wrappers use, and kinds whose watch has not ended yet.
    pub fn kinds(&self) -> impl Iterator<Item = (&Kind, &KindState)> {
        self.kinds.iter()
    }

    /// Kinds without a resource, for which discovery is to be asked.
    pub fn undiscovered_kinds(&self) -> impl Iterator<Item = &Kind> {
        self.kinds.iter().filter(|(_, state)| state.needs_discovery()).map(|(kind, _)| kind)
    }

    /// Kinds that no live wrapper uses.
    pub fn unused_kinds(&self) -> impl Iterator<Item = &Kind> {
        self.kinds.keys().filter(|kind| !self.users.contains_key(kind))
    }

    /// Removes a kind that no live wrapper uses: its watch has ended. Its objects are removed, unless another version of
    /// the kind is watched.
    pub fn remove_kind(&mut self, kind: &Kind) {
        self.kinds.remove(kind);
        let mut others = self.kinds.iter().filter(|(_, state)| state.plural().is_some());
        match others.find(|(other, _)| other.is_version_of(kind)).map(|(other, _)| other.clone()) {
            Some(other) => self.objects.change_version(kind, &other),
            None => self.retain_objects(kind, &BTreeSet::new()),
        }
    }

    /// Removes the objects of a kind that are not in the complete list of its objects, by uid.
    pub fn retain_objects(&mut self, kind: &Kind, uids: &BTreeSet<String>) {
        for uid in self.objects.of_kind(kind) {
            if !uids.contains(&uid) {
                self.remove_object(&uid, false);
            }
        }
    }

    /// Whether a request fails for a kind of the wrapper, so that its objects may be unknown.
    pub fn has_failing_kinds(&self, wrapper: &Wrapper) -> bool {
        !self.kind_failures(wrapper).is_empty()
    }

    /// Sets the state of a kind, and updates the wrappers that use it.
    pub fn set_kind_state(&mut self, kind: &Kind, state: &KindState) {
        if self.kinds.insert(kind.clone(), state.clone()).as_ref() == Some(state) {
            return;
        }
        let is_failing = state.failure().is_some();
        for uid in self.users.get(kind).cloned().unwrap_or_default() {
            if let Some(wrapper) = self.wrappers.get_mut(&uid)
                && (matches!(wrapper.phase, Phase::Inadmissible(_))
                    || is_failing && wrapper.phase == Phase::Waiting)
            {
                wrapper.phase = Phase::Unknown;
            }
            self.update_phase(&uid);
            if self.wrappers.get(&uid).is_some_and(|wrapper| matches!(wrapper.phase, Phase::Running(_))) {
                self.note_absent_objects(&uid);
            }
            self.dirty.insert(uid);
        }
    }

    pub(super) fn kind_state(&self, kind: &Kind) -> &KindState {
        self.kinds.get(kind).unwrap_or(&KindState::Unknown)
    }

    /// The requests that fail for the kinds of a wrapper, also for the kinds that operators create: without their
    /// objects, completion cannot be detected and pods cannot be ungated.
    pub(super) fn kind_failures(&self, wrapper: &Wrapper) -> Vec<String> {
        let kinds: BTreeSet<Kind> = wrapper.summary.kinds().collect();
        let failures: BTreeSet<&str> =
            kinds.iter().filter_map(|kind| self.kind_state(kind).failure()).collect();
        failures.into_iter().map(str::to_owned).collect()
    }
}
