//! Jobs that change their size while they run. A job that shrinks gives quota back at once. A job that grows gets another Workload,
//! which takes the place of the one that it has when it is admitted; until then its new pods are gated. After
//! `pkg/workloadslicing` of Kueue v0.19.

use std::cmp::Reverse;

use api::kueue::FINALIZER;
use api::kueue::jobs::slices::{Counts, resize, sizes_of};
use api::kueue::status::{ADMITTED, EVICTED, FINISHED, QUOTA_RESERVED};
use api::kueue::workload::REPLACES;
use serde_json::{Value, json};

use super::step::{AWAIT, JobStep, View, key, silently};
use super::workload::{Owned, await_name, create, delete_unmatched, unmatched};
use super::write::{Write, decoded};
use crate::kueue::write::without_finalizer;
use crate::watched::Whole;

/// The reasons of the end of a Workload for which the job had no use. The job may come to need one with its name again.
const UNUSED: [&str; 2] = ["WorkloadSliceReplaced", "OutOfSync"];

/// The Workloads of a job that have not ended.
#[derive(Default)]
struct Slices<'a> {
    /// The one that the pods of the job run with: an admitted one, if there is any.
    held: Option<Owned<'a>>,
    /// The one that waits, and takes the place of the other one.
    pending: Option<Owned<'a>>,
    /// One that loses its quota: it is evicted, or deleted.
    losing: Option<Owned<'a>>,
    /// Those for which the job has no use.
    others: Vec<Owned<'a>>,
}

impl Owned<'_> {
    fn has_quota(&self) -> bool {
        self.workload.status.is(QUOTA_RESERVED)
    }

    fn is_admitted(&self) -> bool {
        self.workload.status.is(ADMITTED)
    }

    fn is_leaving(&self) -> bool {
        self.workload.status.is(EVICTED) || self.whole.metadata.is_deleting()
    }

    fn replaces(&self, other: &Self) -> bool {
        self.workload.metadata.annotations.get(REPLACES).is_some_and(|replaced| *replaced == key(other.whole))
    }

    fn sizes(&self) -> Counts {
        self.whole.value["spec"]["podSets"].as_array().map_or_else(Vec::new, |sets| sizes_of(sets))
    }
}

impl<'a> Slices<'a> {
    /// Sorts Workloads.
    fn of(mut all: Vec<Owned<'a>>) -> Self {
        // The newest come first.
        all.sort_by_key(|owned| {
            let meta = &owned.workload.metadata;
            Reverse((meta.creation_timestamp.clone(), meta.uid.clone()))
        });
        let mut slices = Self::default();
        let (with_quota, without): (Vec<_>, Vec<_>) = all.into_iter().partition(Owned::has_quota);
        let (losing, mut holding): (Vec<_>, Vec<_>) = with_quota.into_iter().partition(Owned::is_leaving);
        let is_last = |at: usize, is_admitted: bool| {
            let goes_on =
                |other: &Owned<'_>| other.is_admitted() >= is_admitted && other.replaces(&holding[at]);
            holding[at].is_admitted() >= is_admitted && !holding.iter().any(goes_on)
        };
        let find = |is_admitted| (0..holding.len()).find(|at| is_last(*at, is_admitted));
        if let Some(at) = find(true).or_else(|| find(false)) {
            slices.held = Some(holding.remove(at));
        }
        slices.losing = losing.into_iter().next();
        // The loop of the Workloads ends one whose place another one has taken.
        let is_replaced = |owned: &Owned<'_>| slices.held.as_ref().is_some_and(|held| held.replaces(owned));
        let waiting = holding.into_iter().filter(|owned| !is_replaced(owned)).chain(without);
        let waiting: Vec<Owned<'_>> = waiting.collect();
        // Times have no fractions of a second: of two that are as old, the one that replaces the other is newer.
        let is_older = |at: usize| {
            waiting.iter().any(|other| !other.whole.metadata.is_deleting() && other.replaces(&waiting[at]))
        };
        let older: Vec<bool> = (0..waiting.len()).map(is_older).collect();
        let (mut pending, mut others) = (None, Vec::new());
        for (owned, is_older) in waiting.into_iter().zip(older) {
            let before = slices.held.as_ref().or(slices.losing.as_ref());
            let continues = before.map_or(!is_older, |before| owned.replaces(before));
            if continues && pending.is_none() && !owned.whole.metadata.is_deleting() {
                pending = Some(owned);
            } else {
                others.push(owned);
            }
        }
        Self { pending, others, ..slices }
    }
}

impl<'a> View<'a> {
    /// Whether the job changes its size while it runs.
    pub(super) fn is_elastic(&self) -> bool {
        self.config.slices && self.kind.is_elastic(&self.job.value)
    }

    /// The cluster that the job has made.
    fn cluster(&self) -> Option<&'a Value> {
        let name = self.kind.integration.cluster(&self.job.value)?;
        let mut children = self.objects.children_of(&self.key());
        children.find(|child| child.metadata.name == name).map(|child| &child.value)
    }

    /// The next step about a job that changes its size. `None`: its Workload is for other pod sets, and is handled as that of any
    /// other job.
    pub(super) fn decide_elastic(&self) -> Option<JobStep> {
        let all = self.objects.workloads_of(&self.key()).filter_map(|whole| self.owned(whole));
        let (ended, all): (Vec<_>, Vec<_>) = all.partition(|owned| owned.workload.status.is(FINISHED));
        if let Some(step) = ended.iter().find_map(|owned| release(owned.whole)) {
            return Some(step);
        }
        let wanted = self.kind.sizes(&self.job.value, self.cluster());
        let names = |sizes: &Counts| -> Vec<String> { sizes.iter().map(|(name, _)| name.clone()).collect() };
        if all.iter().any(|owned| names(&owned.sizes()) != names(&wanted)) {
            return None;
        }
        if self.kind.integration.finished(&self.job.value).is_some() {
            return Some(all.first().map_or(AWAIT, |owned| self.follow(owned)));
        }
        let slices = Slices::of(all);
        if let Some(other) = slices.others.first() {
            let live: Vec<_> =
                [&slices.held, &slices.pending, &slices.losing].into_iter().flatten().collect();
            return Some(release_deleted(other.whole).unwrap_or_else(|| self.end_slice(other, &live)));
        }
        if let Some(losing) = &slices.losing {
            return Some(self.lose(losing, slices.held.as_ref()));
        }
        let step = self.resize(&slices, &wanted).or_else(|| {
            let live = [&slices.held, &slices.pending];
            live.into_iter().flatten().find_map(|owned| self.propagate(owned))
        });
        Some(step.unwrap_or_else(|| match (&slices.held, &slices.pending) {
            (Some(owned), _) | (None, Some(owned)) => self.follow(owned),
            (None, None) => self.begin_slice(&wanted, None),
        }))
    }

    /// The write that brings the sizes of the Workloads to that of the job.
    fn resize(&self, slices: &Slices<'_>, wanted: &Counts) -> Option<JobStep> {
        let is_suspended = self.kind.is_suspended(&self.job.value);
        let Some(held) = &slices.held else {
            let Some(pending) = &slices.pending else {
                return (!is_suspended).then(|| self.stop(None, unmatched(None)));
            };
            if !is_suspended {
                return None;
            }
            if !self.is_equivalent_but_for_size(pending) {
                return Some(self.update(pending));
            }
            return (pending.sizes() != *wanted).then(|| Self::write_sizes(pending, wanted));
        };
        let sizes = held.sizes();
        let pairs = || sizes.iter().zip(wanted).map(|((_, size), (_, wanted))| (*size, *wanted));
        let (grows, shrinks) =
            (pairs().any(|(size, wanted)| wanted > size), pairs().any(|(size, wanted)| wanted < size));
        if shrinks && (grows || slices.pending.is_none()) {
            let fewer =
                sizes.iter().zip(wanted).map(|((name, size), (_, wanted))| (name.clone(), *size.min(wanted)));
            return Some(Self::write_sizes(held, &fewer.collect()));
        }
        match &slices.pending {
            Some(pending) if Self::may_resize(pending, wanted) => Some(Self::write_sizes(pending, wanted)),
            None if grows => Some(self.begin_slice(wanted, Some(held))),
            Some(_) | None => None,
        }
    }

    /// Whether a Workload can be given other sizes: with quota, smaller ones.
    fn may_resize(owned: &Owned<'_>, wanted: &Counts) -> bool {
        let sizes = owned.sizes();
        let is_smaller = sizes.iter().zip(wanted).all(|((_, size), (_, wanted))| wanted <= size);
        sizes != *wanted && (is_smaller || !owned.has_quota())
    }

    /// A Workload that loses its quota stops the job, unless the job runs with another one.
    fn lose(&self, losing: &Owned<'_>, held: Option<&Owned<'_>>) -> JobStep {
        let evicted = losing.workload.status.condition(EVICTED).filter(|evicted| evicted.is_true());
        match (held, evicted) {
            (None, _) => self.follow(losing),
            (Some(_), _) if losing.whole.metadata.is_deleting() => release(losing.whole).unwrap_or(AWAIT),
            (Some(held), Some(evicted)) if losing.replaces(held) => {
                self.release_quota(losing, evicted, false)
            }
            (Some(held), _) => self.end_slice(losing, &[held]),
        }
    }

    fn is_equivalent_but_for_size(&self, owned: &Owned<'_>) -> bool {
        let mut sized = owned.whole.value.clone();
        resize(&mut sized["spec"]["podSets"], &self.kind.sizes(&self.job.value, None));
        self.kind.is_equivalent(&self.job.value, &sized, None, false)
    }

    fn write_sizes(owned: &Owned<'_>, sizes: &Counts) -> JobStep {
        let mut sets = owned.whole.value["spec"]["podSets"].clone();
        resize(&mut sets, sizes);
        let patch = json!({"metadata": {"resourceVersion": owned.whole.metadata.resource_version},
            "spec": {"podSets": sets}});
        silently(Write::Workload(Box::new(owned.whole.clone()), patch))
    }

    /// Creates a Workload, which continues another one if there is one. One of this name that has ended is not made again.
    fn begin_slice(&self, sizes: &Counts, replaced: Option<&Owned<'_>>) -> JobStep {
        let (job, cluster) = (&self.job.value, self.cluster());
        if self.kind.integration.is_on_hold(job) {
            return AWAIT;
        }
        let name = self.kind.slice_name(job, cluster);
        if let Some(known) = self.objects.workload(&self.job.metadata.namespace, &name) {
            let is_own = known.metadata.controller_key() == Some(self.key());
            let is_spent = decoded(known).is_ok_and(|known| {
                let ended = known.status.condition(FINISHED);
                ended.is_some_and(|ended| UNUSED.contains(&&*ended.reason))
            });
            return match is_own {
                true if is_spent => delete_unmatched(known),
                true => AWAIT,
                false => await_name(known),
            };
        }
        let is_stopping = replaced.is_none() && self.kind.integration.is_active(job);
        if is_stopping {
            return AWAIT;
        }
        let priority = match self.priority() {
            Ok(priority) => priority,
            Err(step) => return step,
        };
        let replaced = replaced.map(|owned| &owned.whole.value);
        create(vec![self.kind.slice((job, cluster), sizes, &priority, &self.config.copied, replaced)])
    }

    /// Ends a Workload for which the job has no use.
    fn end_slice(&self, owned: &Owned<'_>, live: &[&Owned<'_>]) -> JobStep {
        let is_replaced = live.iter().any(|other| other.replaces(owned));
        let (reason, text) = if is_replaced {
            (UNUSED[0], "Replaced to accommodate a new workload slice")
        } else {
            (UNUSED[1], "The workload slice is out of sync with its parent job")
        };
        self.finish(owned, reason, text, Vec::new())
    }
}

/// Removes the finalizer of a Workload that has ended.
fn release(whole: &Whole) -> Option<JobStep> {
    let meta = &whole.metadata;
    let step = || silently(Write::Workload(Box::new(whole.clone()), without_finalizer(meta, FINALIZER)));
    meta.has_finalizer(FINALIZER).then(step)
}

/// Removes the finalizer of a Workload that is deleted.
fn release_deleted(whole: &Whole) -> Option<JobStep> {
    whole.metadata.is_deleting().then(|| release(whole).unwrap_or(AWAIT))
}
