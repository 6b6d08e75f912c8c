//! Starts the next step of each AppWrapper and applies its outcome.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use api::MicroTime;
use index::{Index, KindState, Phase, StopReason};
use model::Time;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::State;
use crate::execute::{Outcome, Task};
use crate::observations::Observation;
use crate::step::{self, NewEvent, StatusInput, Step};

/// Delay before the first retry of a failed step, in microseconds.
const RETRY_FIRST_US: i64 = 100_000;
/// Maximum number of times that this delay doubles.
const RETRY_SHIFT_MAX: u32 = 8;

/// How long pod counts wait to be written together with later changes, in microseconds.
const POD_COUNTS_DELAY_US: i64 = 500_000;

/// A step that is running.
pub(super) struct StepInFlight {
    pub(super) task: AbortHandle,
    /// Cancels the dispatch when the gang is stopped.
    pub(super) cancelled: Arc<Notify>,
    events: Vec<NewEvent>,
}

impl State {
    /// Starts the next step of every AppWrapper that changed or is due.
    pub(super) fn reconcile_dirty(&mut self) {
        if !self.has_synced {
            return;
        }
        let now = self.now();
        let shared = self.index.clone();
        let mut index = Self::index(&shared);
        while let Some((due, uid)) = self.requeue_at.first().cloned() {
            if due > now {
                break;
            }
            self.requeue_at.pop_first();
            index.mark_dirty(&uid);
        }
        let to_refresh = self.status_refresh.next_batch(&index, now);
        for uid in &to_refresh {
            index.mark_dirty(uid);
        }
        while self.tasks.try_join_next().is_some() {}
        let mut dirty: Vec<_> = index.take_dirty().into_iter().collect();
        // Admitted gangs are dispatched first, in queue order.
        dirty.sort_by_cached_key(|uid| {
            let wrapper = index.wrapper(uid);
            let is_starting = wrapper.is_some_and(|wrapper| matches!(wrapper.phase, Phase::Starting(_)));
            (!is_starting, wrapper.map(|wrapper| (-wrapper.summary.spec.priority_milli, wrapper.first_seen)))
        });
        let mut positions = index.world().positions(dirty.iter().map(String::as_str), Time(now.0));
        let mut input = |uid: &String| StatusInput {
            position: positions.remove(&**uid),
            refresh_figures: to_refresh.contains(uid),
            missing_permission: self.permissions.missing(uid),
            removing_since: index
                .wrapper(uid)
                .and_then(|wrapper| self.patience.of_removal(&index, wrapper, now)),
            shortfall: index.wrapper(uid).and_then(|wrapper| self.patience.of(&index, wrapper, now)),
        };
        let inputs: Vec<_> = dirty.iter().map(&mut input).collect();
        for (uid, input) in dirty.iter().zip(inputs) {
            self.reconcile(&mut index, uid, now, &input);
        }
    }

    fn reconcile(&mut self, index: &mut Index, uid: &str, now: MicroTime, input: &StatusInput) {
        self.ungate_pods(index, uid);
        self.replace_stranded_pods(index, uid);
        if self.in_flight.contains_key(uid) {
            return; // The end of the running step marks the AppWrapper as changed.
        }
        if input.removing_since.is_some_and(|since| step::is_stuck(since, now)) {
            index.release_stuck(uid);
        }
        let Some(wrapper) = index.wrapper(uid) else { return };
        if let Some((_, not_before)) = self.failures.get(uid)
            && *not_before > now
        {
            self.requeue_at.insert((*not_before, uid.to_owned()));
            return;
        }
        let mut step = step::decide(index, wrapper, now, input);
        if let Step::WritePodCounts(status) = step {
            let due = *self.counts.entry(uid.to_owned()).or_insert(MicroTime(now.0 + POD_COUNTS_DELAY_US));
            if due > now {
                self.requeue_at.insert((due, uid.to_owned()));
                return;
            }
            step = Step::WriteStatus(status, Vec::new());
        }
        self.counts.remove(uid);
        let events = match &step {
            Step::AwaitChange(due) => {
                self.requeue_at.extend(due.map(|due| (due, uid.to_owned())));
                return;
            }
            Step::Stop(stop) => {
                let (Phase::Running(places) | Phase::Starting(places)) = &wrapper.phase else { return };
                self.permissions.step_stopped(uid, stop);
                index.set_phase(uid, Phase::Stopping(stop.clone(), places.clone()));
                return self.reconcile(index, uid, now, &StatusInput::default());
            }
            Step::WriteStatus(_, events) | Step::Dispatch { events, .. } => events.clone(),
            Step::WritePodCounts(_)
            | Step::Requeue(..)
            | Step::ReadEvents(_)
            | Step::ConfirmDeletions(_)
            | Step::Remove => Vec::new(),
        };
        let cancelled = Arc::new(Notify::new());
        let task = self.task(index, wrapper, step, cancelled.clone());
        let (observations, uid) = (self.observations.clone(), uid.to_owned());
        let key = uid.clone();
        let handle = self.tasks.spawn(async move {
            let outcome = Box::new(task.run().await);
            // The receiver is gone when the controller has ended. The next process finds what was done.
            drop(observations.send(Observation::StepDone(uid, outcome)));
        });
        self.in_flight.insert(key, StepInFlight { task: handle, cancelled, events });
    }

    fn task(&self, index: &Index, wrapper: &index::Wrapper, step: Step, cancelled: Arc<Notify>) -> Task {
        let mut plurals = BTreeMap::new();
        let objects: Vec<_> =
            index.objects_of(&wrapper.uid).map(|row| (row.key.clone(), row.uid.clone())).collect();
        for kind in wrapper.summary.objects().chain(objects.iter().map(|(key, _)| key)).map(|key| &key.kind) {
            if let Some(plural) = index.kind(kind).and_then(KindState::plural) {
                plurals.insert(kind.clone(), plural.to_owned());
            }
        }
        Task {
            client: self.client.clone(),
            clock: self.config.clock.clone(),
            wrapper: wrapper.clone(),
            plurals,
            objects,
            has_status: !self.without_status_subresource.contains(&wrapper.key.group),
            permits: self.permits.clone(),
            gates: self.config.gates,
            is_retry: self.failures.contains_key(&wrapper.uid),
            permit: Mutex::default(),
            cancelled,
            step,
        }
    }

    /// Applies the outcome of a step.
    pub(super) fn step_done(&mut self, index: &mut Index, uid: &str, outcome: Outcome, now: MicroTime) {
        let Some(StepInFlight { events, .. }) = self.in_flight.remove(uid) else { return };
        let Some(wrapper) = index.wrapper(uid) else { return };
        let (group, phase) = (wrapper.key.group, wrapper.phase.clone());
        // During removal, a status write only reports what blocks the removal.
        let goes_on = matches!((&outcome, &phase), (Outcome::Written { .. }, Phase::Stopping(..)));
        if !matches!(outcome, Outcome::Retry(_)) && !goes_on {
            self.failures.remove(uid);
            self.permissions.step_allowed(uid);
        }
        if matches!(outcome, Outcome::Written { .. } | Outcome::Dispatched { .. }) {
            for event in &events {
                self.recorder.record(wrapper, event);
            }
        }
        match outcome {
            Outcome::Written { resource_version, status } => {
                let is_queued_again = matches!(phase, Phase::Stopped(..))
                    && index.is_removed(uid)
                    && !status.state.is_terminal();
                index.status_written(uid, &resource_version, *status);
                match (is_queued_again, phase) {
                    (true, Phase::Stopped(StopReason::Forbidden(text), _)) => {
                        index.set_phase(uid, Phase::Inadmissible(vec![text]));
                        self.poll_permission(uid);
                    }
                    (true, _) => index.set_phase(uid, Phase::Waiting),
                    (false, _) => {}
                }
            }
            Outcome::Dispatched { resource_version, status } => {
                index.status_written(uid, &resource_version, *status);
                if let Phase::Starting(assignment) = phase {
                    index.set_phase(uid, Phase::Running(assignment));
                }
            }
            Outcome::Stale(wrapper) => {
                // Nodes were reserved for the old spec. While no object of it exists, the gang is planned again.
                if matches!(phase, Phase::Starting(_)) && index.objects_of(uid).next().is_none() {
                    index.reset_wrapper(group, *wrapper);
                } else {
                    index.upsert_wrapper(group, *wrapper, now);
                }
            }
            Outcome::Removed => {
                if let Phase::Stopping(stop, places) = phase {
                    index.set_phase(uid, Phase::Stopped(stop, places));
                }
            }
            Outcome::Explained(explanation) => self.patience.explain(uid, explanation),
            Outcome::ObjectsDeleted(keys) => index.objects_deleted(uid, &keys),
            Outcome::Cancelled => {}
            Outcome::Deleted => index.set_phase(uid, Phase::Finished),
            Outcome::Retry(error) => {
                if let Some(event) = self.permissions.step_forbidden(uid, &error, now) {
                    self.recorder.record(wrapper, &event);
                }
                let failures = self.failures.get(uid).map_or(0, |(failures, _)| *failures);
                let pause_us = RETRY_FIRST_US << failures.min(RETRY_SHIFT_MAX);
                self.failures.insert(uid.to_owned(), (failures + 1, MicroTime(now.0 + pause_us)));
                tracing::warn!(wrapper = %wrapper_name(index, uid), %error, failures, "a step failed, retrying");
            }
        }
        index.mark_dirty(uid);
    }
}

fn wrapper_name(index: &Index, uid: &str) -> String {
    index.wrapper(uid).map_or_else(|| uid.to_owned(), |wrapper| wrapper.key.to_string())
}
