//! Takes the next step for each wrapper, and folds how it ended.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use api::MicroTime;
use index::{Index, KindState, Phase, Stop};
use model::Time;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::State;
use crate::error::Error;
use crate::execute::{Outcome, Task};
use crate::observations::Observation;
use crate::step::{self, News, Step, Told};

/// First pause after a step that did not work.
const RETRY_FIRST_US: i64 = 100_000;
/// Longest pause, as a power of two of the first.
const RETRY_SHIFT_MAX: u32 = 8;

/// How long counts of pods wait to be written together with those that change next.
const COUNTS_WAIT_US: i64 = 500_000;

/// A step under way.
pub(super) struct Busy {
    pub(super) task: AbortHandle,
    /// To be notified when the gang is to be stopped.
    pub(super) called_off: Arc<Notify>,
    news: Vec<News>,
}

impl State {
    /// Takes the next step for every wrapper about which something is new.
    pub(super) fn take_steps(&mut self) {
        if !self.has_started {
            return;
        }
        let now = self.now();
        let shared = self.index.clone();
        let mut index = Self::index(&shared);
        while let Some((due, uid)) = self.wakes.first().cloned() {
            if due > now {
                break;
            }
            self.wakes.pop_first();
            index.touch(&uid);
        }
        let fresh = self.review.turn(&index, now);
        for uid in &fresh {
            index.touch(uid);
        }
        while self.tasks.try_join_next().is_some() {}
        let mut dirty: Vec<_> = index.take_dirty().into_iter().collect();
        // Who may start goes first, in the order of the queue.
        dirty.sort_by_cached_key(|uid| {
            let wrapper = index.wrapper(uid);
            let is_starting = wrapper.is_some_and(|wrapper| matches!(wrapper.phase, Phase::Starting(_)));
            (!is_starting, wrapper.map(|wrapper| (-wrapper.summary.spec.priority_milli, wrapper.seen)))
        });
        let mut positions = index.world().positions(dirty.iter().map(String::as_str), Time(now.0));
        let mut told = |uid: &String| Told {
            position: positions.remove(&**uid),
            is_fresh: fresh.contains(uid),
            lack: self.rights.lack(uid),
        };
        let told: Vec<_> = dirty.iter().map(&mut told).collect();
        for (uid, told) in dirty.iter().zip(told) {
            self.take_step(&mut index, uid, now, &told);
        }
    }

    fn take_step(&mut self, index: &mut Index, uid: &str, now: MicroTime, told: &Told) {
        self.ungate_pods(index, uid);
        if self.busy.contains_key(uid) {
            return; // Looked at again when the step under way ends.
        }
        let Some(wrapper) = index.wrapper(uid) else { return };
        if let Some((_, not_before)) = self.failures.get(uid)
            && *not_before > now
        {
            self.wakes.insert((*not_before, uid.to_owned()));
            return;
        }
        let mut step = step::next(index, wrapper, now, told);
        if let Step::Count(status) = step {
            let due = *self.counts.entry(uid.to_owned()).or_insert(MicroTime(now.0 + COUNTS_WAIT_US));
            if due > now {
                self.wakes.insert((due, uid.to_owned()));
                return;
            }
            step = Step::Write(status, Vec::new());
        }
        self.counts.remove(uid);
        let news = match &step {
            Step::Rest(due) => {
                self.wakes.extend(due.map(|due| (due, uid.to_owned())));
                return;
            }
            Step::Stop(stop) => {
                let (Phase::Running(places) | Phase::Starting(places)) = &wrapper.phase else { return };
                self.rights.give_up(uid, stop);
                index.enter(uid, Phase::Stopping(stop.clone(), places.clone()));
                return self.take_step(index, uid, now, &Told::default());
            }
            Step::Write(_, news) | Step::Dispatch { news, .. } => news.clone(),
            Step::Count(_) | Step::TakeBack(..) | Step::Remove => Vec::new(),
        };
        let called_off = Arc::new(Notify::new());
        let task = self.task(index, wrapper, step, called_off.clone());
        let (observations, uid) = (self.observations.clone(), uid.to_owned());
        let key = uid.clone();
        let handle = self.tasks.spawn(async move {
            let outcome = Box::new(task.run().await);
            // Nobody listens any more: the next start finds what was done.
            drop(observations.send(Observation::Done(uid, outcome)));
        });
        self.busy.insert(key, Busy { task: handle, called_off, news });
    }

    fn task(&self, index: &Index, wrapper: &index::Wrapper, step: Step, called_off: Arc<Notify>) -> Task {
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
            has_status: !self.without_status.contains(&wrapper.key.group),
            permits: self.permits.clone(),
            gates: self.config.gates,
            permit: Mutex::default(),
            called_off,
            step,
        }
    }

    /// Folds the outcome of a step.
    pub(super) fn done(&mut self, index: &mut Index, uid: &str, outcome: Outcome, now: MicroTime) {
        let Some(Busy { news, .. }) = self.busy.remove(uid) else { return };
        let Some(wrapper) = index.wrapper(uid) else { return };
        let (group, phase) = (wrapper.key.group, wrapper.phase.clone());
        // While objects are removed, a write only tells what is in the way.
        let goes_on = matches!((&outcome, &phase), (Outcome::Written { .. }, Phase::Stopping(..)));
        if !matches!(outcome, Outcome::Retry(_)) && !goes_on {
            self.failures.remove(uid);
            self.rights.had(uid);
        }
        if matches!(outcome, Outcome::Written { .. } | Outcome::Dispatched { .. }) {
            for news in &news {
                self.recorder.record(wrapper, news);
            }
        }
        match outcome {
            Outcome::Written { resource_version, status } => {
                let is_queued_again = matches!(phase, Phase::Leaving(..)) && !status.state.is_terminal();
                index.written(uid, &resource_version, *status);
                match (is_queued_again, phase) {
                    (true, Phase::Leaving(Stop::NotAllowed(text), _)) => {
                        index.enter(uid, Phase::Held(vec![text]));
                        self.ask_for_right(uid);
                    }
                    (true, _) => index.enter(uid, Phase::Waiting),
                    (false, _) => {}
                }
            }
            Outcome::Dispatched { resource_version, status } => {
                index.written(uid, &resource_version, *status);
                if let Phase::Starting(assignment) = phase {
                    index.enter(uid, Phase::Running(assignment));
                }
            }
            Outcome::Stale(wrapper) => {
                // Its place was promised to what it was; while nothing exists of it, it is judged anew.
                if matches!(phase, Phase::Starting(_)) && index.objects_of(uid).next().is_none() {
                    index.wrapper_changed(group, *wrapper);
                } else {
                    index.wrapper_seen(group, *wrapper, now);
                }
            }
            Outcome::Removed => {
                if let Phase::Stopping(stop, places) = phase {
                    index.enter(uid, Phase::Leaving(stop, places));
                }
            }
            Outcome::CalledOff => {}
            Outcome::Gone => index.enter(uid, Phase::Ended),
            Outcome::Retry(error) => {
                if let Error::NotAllowed(forbidden) = &error
                    && let Some(news) = self.rights.lacked(uid, forbidden, now)
                {
                    self.recorder.record(wrapper, &news);
                }
                let failures = self.failures.get(uid).map_or(0, |(failures, _)| *failures);
                let pause_us = RETRY_FIRST_US << failures.min(RETRY_SHIFT_MAX);
                self.failures.insert(uid.to_owned(), (failures + 1, MicroTime(now.0 + pause_us)));
                tracing::warn!(wrapper = %wrapper_name(index, uid), %error, failures, "a step did not work, trying again");
            }
        }
        index.touch(uid);
    }
}

fn wrapper_name(index: &Index, uid: &str) -> String {
    index.wrapper(uid).map_or_else(|| uid.to_owned(), |wrapper| wrapper.key.to_string())
}
