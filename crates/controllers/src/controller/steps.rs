//! Starts the next step of each AppWrapper and applies its outcome.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use api::MicroTime;
use index::{Index, KindState, Phase, StopReason, Wrapper};
use model::{Position, Time};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::{State, decisions};
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

/// When AppWrappers are to be reconciled although nothing changed: for each, by uid, the earliest time. The
/// reconciliation finds the next one.
#[derive(Debug, Default)]
pub(super) struct Requeues {
    by_time: BTreeSet<(MicroTime, String)>,
    by_uid: BTreeMap<String, MicroTime>,
}

impl Requeues {
    /// The earliest time.
    pub(super) fn due(&self) -> Option<MicroTime> {
        self.by_time.first().map(|(due, _)| *due)
    }

    fn insert(&mut self, due: MicroTime, uid: &str) {
        if self.by_uid.get(uid).is_some_and(|earliest| *earliest <= due) {
            return;
        }
        self.forget(uid);
        self.by_time.insert((due, uid.to_owned()));
        self.by_uid.insert(uid.to_owned(), due);
    }

    fn pop_due(&mut self, now: MicroTime) -> Option<String> {
        let (due, _) = self.by_time.first()?;
        let (_, uid) = if *due <= now { self.by_time.pop_first()? } else { return None };
        self.by_uid.remove(&uid);
        Some(uid)
    }

    /// Removes an AppWrapper that is gone.
    pub(super) fn forget(&mut self, uid: &str) {
        if let Some((uid, due)) = self.by_uid.remove_entry(uid) {
            self.by_time.remove(&(due, uid));
        }
    }
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
        while let Some(uid) = self.requeue_at.pop_due(now) {
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
        // A position costs a scan of all pending gangs.
        let is_to_write =
            |uid: &&str| to_refresh.contains(*uid) || self.has_pending_status_to_write(&index, uid, now);
        let to_write: Vec<&str> = dirty.iter().map(String::as_str).filter(is_to_write).collect();
        let mut positions = index.world().positions(to_write, Time(now.0));
        for uid in &dirty {
            let (position, refresh_figures) = (positions.remove(&**uid), to_refresh.contains(uid));
            self.reconcile(&mut index, uid, now, position, refresh_figures);
        }
    }

    /// Whether a pending gang has a status to write, apart from its position.
    fn has_pending_status_to_write(&self, index: &Index, uid: &str, now: MicroTime) -> bool {
        let wrapper = index.wrapper(uid).filter(|wrapper| wrapper.phase == Phase::Waiting);
        let is_free = |_: &&Wrapper| !self.in_flight.contains_key(uid);
        wrapper.filter(is_free).is_some_and(|wrapper| {
            let step = step::decide(index, wrapper, now, &StatusInput::default());
            !matches!(step, Step::AwaitChange(_))
        })
    }

    fn reconcile(
        &mut self,
        index: &mut Index,
        uid: &str,
        now: MicroTime,
        position: Option<Position>,
        refresh_figures: bool,
    ) {
        let Some(wrapper) = index.wrapper(uid) else { return };
        let removing_since = self.patience.of_removal(index, wrapper, now);
        if removing_since.is_some_and(|since| step::is_stuck(since, now)) && !self.in_flight.contains_key(uid)
        {
            index.release_stuck(uid);
        }
        let Some(wrapper) = index.wrapper(uid) else { return };
        let pods = index.pods_of(wrapper);
        self.replace_stranded_pods(uid, &index.stranded_pods(wrapper, &pods));
        let shortfall = self.patience.of(uid, step::shortfall(index, wrapper, &pods), now);
        let ungatings = index.ungatings(wrapper, &pods);
        let missing_permission = self.permissions.missing(uid);
        let input = StatusInput {
            pods: &pods,
            position,
            refresh_figures,
            missing_permission,
            removing_since,
            shortfall,
        };
        let stop = self.start_step(index, wrapper, now, &input).map(|stop| (stop, wrapper.phase.clone()));
        self.ungate_pods(index, uid, ungatings);
        if let Some((stop, Phase::Running(places) | Phase::Starting(places))) = stop {
            self.permissions.step_stopped(uid, &stop);
            if let Some(wrapper) = index.wrapper(uid) {
                decisions::stopped(&self.config.meter, wrapper, &stop);
            }
            index.set_phase(uid, Phase::Stopping(stop, places));
            self.reconcile(index, uid, now, None, false);
        }
    }

    /// Starts the next step of an AppWrapper, unless one is running or nothing is to be done. Returns why the gang is to
    /// be stopped, if it is.
    fn start_step(
        &mut self,
        index: &Index,
        wrapper: &Wrapper,
        now: MicroTime,
        input: &StatusInput<'_>,
    ) -> Option<StopReason> {
        let uid = &*wrapper.uid;
        if self.in_flight.contains_key(uid) {
            return None; // The end of the running step marks the AppWrapper as changed.
        }
        if let Some((_, not_before)) = self.failures.get(uid)
            && *not_before > now
        {
            self.requeue_at.insert(*not_before, uid);
            return None;
        }
        let mut step = step::decide(index, wrapper, now, input);
        if let Step::WritePodCounts(status) = step {
            let due = *self.counts.entry(uid.to_owned()).or_insert(MicroTime(now.0 + POD_COUNTS_DELAY_US));
            if due > now {
                self.requeue_at.insert(due, uid);
                return None;
            }
            step = Step::WriteStatus(status, Vec::new());
        }
        self.counts.remove(uid);
        let events = match &step {
            Step::AwaitChange(due) => {
                if let Some(due) = due {
                    self.requeue_at.insert(*due, uid);
                }
                return None;
            }
            Step::Stop(stop) => return Some(stop.clone()),
            Step::WriteStatus(_, events) => events.clone(),
            Step::Dispatch { events, .. } => {
                let (before, after): (Vec<_>, Vec<_>) =
                    events.iter().cloned().partition(|event| event.reason == step::NOT_PLANNED);
                // A gang is told before its start what is not planned.
                for event in before.iter().filter(|_| !self.failures.contains_key(uid)) {
                    self.recorder.record(wrapper, event);
                }
                after
            }
            Step::WritePodCounts(_)
            | Step::Requeue(..)
            | Step::ReadEvents(_)
            | Step::ConfirmDeletions(_)
            | Step::Remove => Vec::new(),
        };
        self.config.meter.traces.writes(uid);
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
        None
    }

    fn task(&self, index: &Index, wrapper: &Wrapper, step: Step, cancelled: Arc<Notify>) -> Task {
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
                decisions::refused(&wrapper.key, event.reason, &event.text);
                self.recorder.record(wrapper, event);
            }
        }
        let meter = self.config.meter.clone();
        if let Outcome::Written { resource_version, .. } | Outcome::Dispatched { resource_version, .. } =
            &outcome
        {
            meter.written(uid, resource_version, &wrapper.resource_version);
        }
        match outcome {
            Outcome::Written { resource_version, status } => {
                let is_queued_again = matches!(phase, Phase::Stopped(..))
                    && index.is_removed(uid)
                    && !status.state.is_terminal();
                index.status_written(uid, &resource_version, *status);
                if let (Phase::Running(_), Some(wrapper)) = (&phase, index.wrapper(uid))
                    && let Phase::Stopping(stop, _) = &wrapper.phase
                {
                    decisions::stopped(&meter, wrapper, stop);
                }
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
                if let Some(wrapper) = index.wrapper(uid) {
                    decisions::dispatched(&meter, wrapper, now);
                }
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
                meter.count("retries_total", &[("cause", error.cause()), ("of", "appwrappers")]);
                if let Some(event) = self.permissions.step_forbidden(uid, &error, now) {
                    self.recorder.record(wrapper, &event);
                }
                let failures = self.failures.get(uid).map_or(0, |(failures, _)| *failures);
                let pause_us = retry_pause_us(failures);
                self.failures.insert(uid.to_owned(), (failures + 1, MicroTime(now.0 + pause_us)));
                tracing::warn!(wrapper = %wrapper_name(index, uid), %error, failures, "a step failed, retrying");
            }
        }
        index.mark_dirty(uid);
    }
}

/// The delay before the next attempt of a write after so many failed ones, in microseconds.
pub(crate) fn retry_pause_us(failures: u32) -> i64 {
    RETRY_FIRST_US << failures.min(RETRY_SHIFT_MAX)
}

fn wrapper_name(index: &Index, uid: &str) -> String {
    index.wrapper(uid).map_or_else(|| uid.to_owned(), |wrapper| wrapper.key.to_string())
}
