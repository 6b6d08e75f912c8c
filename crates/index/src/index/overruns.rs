//! Overruns: gangs that run longer than they declared. A declared run time lets a gang pass others that wait for a
//! reserved start, so a tenant would gain by declaring too little. Therefore the declared run times of a namespace count
//! as many times over as its gangs exceeded theirs, for a day: as a power of two.
//!
//! A new process finds the same factors: running gangs, completed AppWrappers and finished Workloads have their start and their
//! end in the status. An author can delete them, so the controller also keeps a record of the overruns that count.

use std::collections::{BTreeMap, BTreeSet};

use api::MicroTime;
use api::appwrapper::transition;
use serde::{Deserialize, Serialize};

use super::Index;
use crate::phase::Phase;
use crate::wrapper::Wrapper;

/// For so long after it was last observed, an overrun counts.
const COUNTS_US: i64 = 24 * 3_600 * 1_000_000;
/// An overrun counts from this much on: pods take time to start and to end.
const GRACE_US: i64 = 60 * 1_000_000;
/// Most that a declared run time is multiplied by.
const FACTOR_MAX: i64 = 1 << 20;

/// The runs that are observed, and the overruns that count.
#[derive(Clone, Debug, Default)]
pub(super) struct Overruns {
    /// Running gangs by uid.
    runs: BTreeMap<String, Run>,
    /// When each of them exceeds its declared run time, or another multiple of it.
    due: BTreeSet<(i64, String)>,
    /// By namespace.
    found: BTreeMap<String, Overrun>,
    /// The time of the last [`Overruns::advance`].
    now: i64,
    /// The namespaces whose factor has changed since the last [`Overruns::advance`].
    changed: BTreeSet<String>,
    /// Whether `found` has changed since the last [`Index::take_changed_overruns`].
    is_new: bool,
}

/// A running gang with a declared run time: that of its start, whatever its author declares later.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) namespace: String,
    pub(crate) started_us: i64,
    pub(crate) declared_us: i64,
}

/// What is observed of a gang.
pub(crate) enum Observed {
    /// It runs; `None` if it declares no run time.
    Runs(Option<Run>),
    /// It has run to its end, then.
    Ended(Option<Run>, i64),
    /// It does not run.
    Idle,
}

/// The worst overrun of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Overrun {
    /// How many times over declared run times count.
    pub factor: i64,
    /// Until when, in microseconds since 1970.
    pub until_us: i64,
}

impl Run {
    /// When the run exceeds its declared time by more than the grace.
    fn overruns_at(&self) -> i64 {
        self.started_us.saturating_add(self.declared_us).saturating_add(GRACE_US)
    }

    /// How many times the declared run time has passed after `ran_us`, as the next power of two.
    fn factor(&self, ran_us: i64) -> i64 {
        let times = ran_us.max(1).saturating_sub(1) / self.declared_us + 1;
        (1..=20).map(|bits| 1 << bits).find(|factor| *factor >= times).unwrap_or(FACTOR_MAX)
    }
}

impl Overruns {
    /// How many times over the declared run times of a namespace count.
    fn factor(&self, namespace: &str) -> i64 {
        self.found.get(namespace).map_or(1, |overrun| overrun.factor)
    }

    fn add(&mut self, run: &Run, ended_us: i64) {
        let new = Overrun {
            factor: run.factor(ended_us.saturating_sub(run.started_us)),
            until_us: ended_us.saturating_add(COUNTS_US),
        };
        self.merge(&run.namespace, new);
    }

    fn merge(&mut self, namespace: &str, new: Overrun) {
        if new.factor > self.factor(namespace) {
            self.changed.insert(namespace.to_owned());
        }
        let known = self.found.get(namespace).copied().unwrap_or(new);
        let factor = known.factor.max(new.factor);
        let merged = Overrun { factor, until_us: known.until_us.max(new.until_us) };
        self.is_new |= self.found.insert(namespace.to_owned(), merged) != Some(merged);
    }

    /// Observes the start or the end of the run of a gang. One that ended too long ago counts no more.
    fn observe(&mut self, uid: &str, observed: Observed) {
        if let Observed::Runs(run) = observed {
            if let Some(run) = run
                && !self.runs.contains_key(uid)
            {
                self.due.insert((run.overruns_at(), uid.to_owned()));
                self.runs.insert(uid.to_owned(), run);
            }
            return;
        }
        self.runs.remove(uid);
        if let Observed::Ended(Some(run), ended_us) = observed
            && ended_us > run.overruns_at()
            && ended_us.saturating_add(COUNTS_US) > self.now
        {
            self.add(&run, ended_us);
        }
    }

    /// Applies the time. Returns the namespaces whose factor has changed.
    fn advance(&mut self, now: i64) -> BTreeSet<String> {
        self.now = self.now.max(now);
        while let Some((due, uid)) = self.due.first().filter(|(due, _)| *due < now).cloned() {
            self.due.remove(&(due, uid.clone()));
            let Some(run) = self.runs.get(&uid).cloned() else { continue };
            self.add(&run, now);
            let factor = run.factor(now.saturating_sub(run.started_us));
            let next = run.started_us.saturating_add(run.declared_us.saturating_mul(factor));
            // Observed again in time: the overrun of a running gang does not expire.
            self.due.insert((next.clamp(now, now.saturating_add(COUNTS_US / 2)), uid));
        }
        let expired = self.found.iter().filter(|(_, found)| found.until_us <= now);
        self.changed.extend(expired.map(|(namespace, _)| namespace.clone()));
        let before = self.found.len();
        self.found.retain(|_, found| found.until_us > now);
        self.is_new |= self.found.len() != before;
        std::mem::take(&mut self.changed)
    }
}

/// What is observed of a wrapper.
fn observed(wrapper: &Wrapper) -> Observed {
    let run = |started_us: Option<i64>| {
        let declared_us = wrapper.declared_us().filter(|declared| *declared > 0)?;
        Some(Run { namespace: wrapper.key.namespace.clone(), started_us: started_us?, declared_us })
    };
    let time = |kind, reason| wrapper.status.condition(kind, reason).map(|c| c.last_transition_micro_time.0);
    let ended = || time(transition::COMPLETED, "PodsCompleted").filter(|_| wrapper.phase == Phase::Finished);
    match &wrapper.phase {
        Phase::Running(_) | Phase::Stopping(..) => Observed::Runs(run(wrapper.started_at().map(|at| at.0))),
        Phase::Unknown
        | Phase::Inadmissible(_)
        | Phase::Waiting
        | Phase::Nominated(_)
        | Phase::Starting(_)
        | Phase::Stopped(..)
        | Phase::Finished => match ended() {
            Some(ended_us) => {
                Observed::Ended(run(time(transition::DISPATCHED, "AppWrapperRunnable")), ended_us)
            }
            None => Observed::Idle,
        },
    }
}

impl Index {
    /// Observes overruns up to `now`. To be called before each plan.
    pub fn observe_overruns(&mut self, now: MicroTime) {
        let changed = self.overruns.advance(now.0);
        if changed.is_empty() {
            return;
        }
        let is_affected = |wrapper: &&Wrapper| changed.contains(&wrapper.key.namespace);
        let uids: Vec<String> =
            self.wrappers.values().filter(is_affected).map(|wrapper| wrapper.uid.clone()).collect();
        for uid in uids {
            self.publish(&uid);
        }
        self.publish_workloads_in(&changed);
    }

    /// All overruns that count, by namespace, if they have changed since the last call.
    pub fn take_changed_overruns(&mut self) -> Option<BTreeMap<String, Overrun>> {
        std::mem::take(&mut self.overruns.is_new).then(|| self.overruns.found.clone())
    }

    /// Adds the overruns that another process has recorded. They apply from the next [`Index::observe_overruns`] on.
    pub fn restore_overruns(&mut self, record: &BTreeMap<String, Overrun>) {
        for (namespace, overrun) in record {
            let factor = overrun.factor.clamp(1, FACTOR_MAX);
            self.overruns.merge(namespace, Overrun { factor, ..*overrun });
        }
    }

    /// Applies the overruns of its namespace to a wrapper, and its own to the namespace.
    pub(super) fn apply_overruns(&mut self, uid: &str) {
        let Some(wrapper) = self.wrappers.get(uid) else { return };
        let (namespace, observed, known) =
            (wrapper.key.namespace.clone(), observed(wrapper), wrapper.run_factor);
        let factor = self.observe_run(uid, &namespace, observed, known);
        if let Some(wrapper) = self.wrappers.get_mut(uid) {
            wrapper.run_factor = factor;
        }
    }

    /// Applies the run of a gang to its namespace. Returns how many times over the declared run time of this gang counts, which
    /// was `factor` times so far.
    pub(crate) fn observe_run(&mut self, uid: &str, namespace: &str, observed: Observed, factor: i64) -> i64 {
        self.overruns.observe(uid, observed);
        // A gang with a reserved start passes no other, and keeps the promise.
        let is_reserved = || self.world.reserved().iter().any(|reserved| reserved.gang == uid);
        let new = self.overruns.factor(namespace);
        if new == factor || is_reserved() { factor } else { new }
    }

    /// A deleted gang does not run any more. What it exceeded counts on.
    pub(crate) fn forget_run(&mut self, uid: &str) {
        self.overruns.runs.remove(uid);
    }
}
