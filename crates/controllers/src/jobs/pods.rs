//! The steps about pods that wait for a Workload. After `pkg/controller/jobs/pod` of Kueue v0.19.
//!
//! A pod is started by removing its gate and stopped by deleting it, so nothing is restored. Its finalizer keeps it until its
//! Workload has been told how it ended. What jobs and pods have in common is in `step`.

use std::collections::BTreeSet;

use api::MicroTime;
use api::kueue::FINALIZER;
use api::kueue::jobs::pods::{
    ADMISSION_GATE, DEPLOYMENT, MANAGED, STATEFUL_SET, SUSPENDED_BY, TERMINATION_TARGET, is_ended, is_gated,
    role, start,
};
use api::kueue::jobs::{Finished, Injection, JobKind, Membership, PodGroup, annotation, prebuilt_workload};
use api::kueue::status::{
    ADMITTED, Condition, EVICTED, FINISHED, QUOTA_RESERVED, ReclaimablePods, WAITING_FOR_REPLACEMENT,
};
use serde_json::{Value, json};

use super::JobsConfig;
use super::left::left_behind;
use super::objects::{Objects, subject};
use super::step::{AWAIT, JobEvent, JobStep, View, event, key, silently, started_text, warn};
use super::workload::{
    OUT_OF_SYNC, Owned, create, delete_unmatched, is_group, prebuilt_missing, tell_taken, unmatched,
};
use super::write::{PodWrite, Write};
use crate::kueue::metrics::GateRemoval;
use crate::kueue::write::without_finalizer;
use crate::watched::Whole;

/// Pods, and the pod that speaks for them.
struct Pods<'a> {
    view: View<'a>,
    /// All of them.
    all: Vec<&'a Whole>,
    /// `None`: one pod alone.
    group: Option<PodGroup<'a>>,
}

/// Why pods are stopped.
struct Stop<'a> {
    reason: String,
    text: &'a str,
    /// Whether pods that have not started or have ended are stopped, too.
    is_total: bool,
}

/// The next step about a pod that is in no group.
pub(super) fn decide_alone(view: View<'_>) -> JobStep {
    let all = vec![view.job];
    Pods { view, all, group: None }.decide()
}

/// The next step about a group of pods, or about the Workload that it leaves behind. `None`: it is gone without a trace.
pub(super) fn decide(
    objects: &Objects,
    config: &JobsConfig,
    namespace: &str,
    name: &str,
    now: MicroTime,
) -> Option<JobStep> {
    let pods = objects.group(namespace, name);
    let Some((at, job)) = pods.first().copied() else {
        let workload = objects.workload(namespace, name)?;
        let meta = &workload.metadata;
        // A set keeps the Workload of its pods.
        let is_left = is_group(&workload.value)
            && meta.has_finalizer(FINALIZER)
            && (meta.is_deleting() || meta.owner_references.iter().all(|owner| owner.kind == "Pod"));
        return is_left.then(|| silently(Write::OrphanGroup(Box::new(workload.clone()))));
    };
    let view = View { kind: config.kinds[at], job, objects, config, now };
    let all: Vec<&Whole> = pods.into_iter().map(|(_, pod)| pod).collect();
    let group = PodGroup { name, pods: all.iter().map(|pod| &pod.value).collect() };
    Some(Pods { view, all, group: Some(group) }.decide())
}

impl<'a> Pods<'a> {
    fn decide(mut self) -> JobStep {
        let is_foreign = match annotation(&self.view.job.value, SUSPENDED_BY) {
            Some(DEPLOYMENT) => false,
            // A set makes its pods members of a group first.
            Some(_) => self.group.is_none(),
            None => self.view.config.pods_of_sets_only,
        };
        // A pod that is managed no more still has to go when it is deleted.
        if is_foreign || !self.all.iter().any(|pod| self.view.manages(pod)) {
            return self.release(|pod| pod.metadata.is_deleting()).unwrap_or(AWAIT);
        }
        if self.group.is_none() && self.view.job.metadata.is_deleting() {
            let left: Vec<&Whole> = self.view.objects.workloads_of(&self.view.key()).collect();
            if let Some(step) = left.iter().find_map(|whole| self.view.await_pods(whole)) {
                return step;
            }
            if let Some(step) = left.first().and_then(|whole| self.release_evicted(whole)) {
                return step;
            }
            let step = left_behind(self.view.objects, self.view.config, &left, self.view.now);
            let is_done = matches!(step, JobStep::Await(None));
            return if is_done { self.release(|_| true).unwrap_or(AWAIT) } else { step };
        }
        match self.one_workload() {
            Ok(Some((owned, absent))) => self.follow(&owned, absent),
            Ok(None) => self.begin(),
            Err(step) => step,
        }
    }

    /// The Workload of the pods and the number of pods that it lacks, or the step that leaves one at most. From then on, a group
    /// is the pods that its Workload is for.
    fn one_workload(&mut self) -> Result<Option<(Owned<'a>, u32)>, JobStep> {
        let Some(group) = self.group.clone() else {
            let stop = |_: Option<&Whole>, text| self.stop_unmatched(text).unwrap_or(AWAIT);
            return self.view.one_workload(stop).map(|found| Some((found?, 0)));
        };
        let prebuilt = self.prebuilt();
        let namespace = &self.view.job.metadata.namespace;
        let Some(whole) = self.view.objects.workload(namespace, prebuilt.unwrap_or(group.name)) else {
            return self.without_match(None).map_or(Ok(None), Err);
        };
        let Some(owned) = self.view.owned(whole) else { return Ok(None) };
        let is_finished = owned.workload.status.is(FINISHED);
        if prebuilt.is_some() {
            if whole.metadata.controller().is_some() || self.is_of_others(whole) {
                return Ok(None);
            }
            let group = group.within(&whole.value);
            Self::own(&group, whole, &group.pods)?;
            if !is_finished && !group.is_equivalent(&whole.value, is_finished) {
                let finish = || self.view.finish(&owned, "OutOfSync", OUT_OF_SYNC, Vec::new());
                let stop = self.stop_unmatched(OUT_OF_SYNC).or_else(|| self.view.await_pods(whole));
                return Err(stop.unwrap_or_else(finish));
            }
            // Somebody has removed their gates.
            let outside = self.others(&group.pods);
            if let Some(step) = self.stop_these(outside, &Stop::unmatched(unmatched(Some(whole)))) {
                return Err(step);
            }
            self.group = Some(group);
            return Ok(Some((owned, 0)));
        }
        // Its pods would run with the quota of another job.
        if let Some(owner) = whole.metadata.controller() {
            let text = format!(
                "the Workload '{}' belongs to the {} '{}': give the group another name",
                group.name, owner.kind, owner.name
            );
            return Err(warn("ErrWorkloadCompose", text));
        }
        let own = self.uids();
        let mut owners = whole.metadata.owner_references.iter();
        if !is_group(&whole.value) && !owners.any(|owner| own.contains(&*owner.uid)) {
            let text =
                format!("the Workload '{}' is that of no group: give the group another name", group.name);
            return Err(warn("WorkloadNameConflict", text));
        }
        let Some(found) = group.membership(&whole.value, is_finished, self.view.now) else {
            if let Some(step) = self.without_match(Some(whole)) {
                return Err(step);
            }
            return Err(delete_unmatched(whole));
        };
        Self::own(&group, whole, &found.kept)?;
        let Membership { kept, excess, replaced, absent } = found;
        self.clean(&excess, &replaced)?;
        let outside = self.others([&kept, &excess, &replaced].into_iter().flatten());
        if let Some(step) = self.stop_these(outside, &Stop::unmatched(unmatched(Some(whole)))) {
            return Err(step);
        }
        self.group = Some(PodGroup { name: group.name, pods: kept });
        self.view.propagate(&owned).map_or(Ok(Some((owned, absent))), Err)
    }

    /// The Workload of another author that the pods want to use, if all of them name it.
    fn prebuilt(&self) -> Option<&'a str> {
        let named = prebuilt_workload(&self.view.job.value);
        named.filter(|_| self.all.iter().all(|pod| prebuilt_workload(&pod.value) == named))
    }

    /// The uids of the pods.
    fn uids(&self) -> BTreeSet<&'a str> {
        self.all.iter().map(|pod| &*pod.metadata.uid).collect()
    }

    /// Whether a Workload is that of others: not of these pods, nor of a set whose pods wait as this group.
    fn is_of_others(&self, whole: &Whole) -> bool {
        let objects = self.view.objects;
        let own = self.uids();
        objects.is_of_others(whole, |owner| {
            own.contains(&*owner.uid)
                || objects
                    .job(owner)
                    .is_some_and(|(at, _)| self.view.config.kind(at).is_some_and(JobKind::is_set_of_pods))
        })
    }

    /// Stops the pods that run without a Workload for them. `None`: none does.
    fn without_match(&self, known: Option<&Whole>) -> Option<JobStep> {
        if self.finished().is_some() { None } else { self.stop_unmatched(unmatched(known)) }
    }

    fn stop_unmatched(&self, text: &str) -> Option<JobStep> {
        self.stop(&Stop::unmatched(text))
    }

    /// All pods of a group own its Workload: it goes with the last of them.
    fn own(group: &PodGroup<'_>, whole: &Whole, pods: &[&Value]) -> Result<(), JobStep> {
        let owners = group.owners(&whole.value, pods).filter(|_| !whole.metadata.is_deleting());
        let Some((owners, added)) = owners else { return Ok(()) };
        let patch = json!({"metadata": {"resourceVersion": whole.metadata.resource_version, "ownerReferences": owners}});
        let told = JobEvent {
            about: Some(Box::new(subject(api::kueue::workload::API_VERSION, "Workload", whole))),
            ..event("OwnerReferencesAdded", format!("Added {added} owner reference(s)"))
        };
        Err(JobStep::Write(Write::Workload(Box::new(whole.clone()), patch), vec![told]))
    }

    /// Deletes the pods that are too many, and lets those go that others have replaced.
    fn clean(&self, excess: &[&Value], replaced: &[&Value]) -> Result<(), JobStep> {
        let (mut writes, mut events) = (Vec::new(), Vec::new());
        for pod in self
            .wholes(excess)
            .filter(|pod| pod.metadata.has_finalizer(MANAGED) || !pod.metadata.is_deleting())
        {
            if !pod.metadata.is_deleting() {
                events.push(pod_event(pod, "ExcessPodDeleted", "Excess pod deleted"));
            }
            writes.push(PodWrite::Remove(Box::new(pod.clone())));
        }
        let replaced = self.wholes(replaced).filter(|pod| pod.metadata.has_finalizer(MANAGED));
        writes.extend(replaced.map(|pod| PodWrite::Release(Box::new(pod.clone()))));
        if writes.is_empty() { Ok(()) } else { Err(JobStep::Write(Write::Pods(writes), events)) }
    }

    /// The pods with these values.
    fn wholes(&self, pods: &[&Value]) -> impl Iterator<Item = &'a Whole> {
        let chosen = addresses(pods);
        self.all.iter().copied().filter(move |whole| chosen.contains(&std::ptr::from_ref(&whole.value)))
    }

    /// The pods without these values.
    fn others<'v>(&self, pods: impl IntoIterator<Item = &'v &'v Value>) -> impl Iterator<Item = &'a Whole> {
        let own = addresses(pods);
        self.all.iter().copied().filter(move |whole| !own.contains(&std::ptr::from_ref(&whole.value)))
    }

    /// The pods that count.
    fn members(&self) -> Vec<&'a Whole> {
        match &self.group {
            Some(group) => self.wholes(&group.pods).collect(),
            None => self.all.clone(),
        }
    }

    fn is_suspended(&self) -> bool {
        self.group
            .as_ref()
            .map_or_else(|| self.view.kind.is_suspended(&self.view.job.value), PodGroup::is_suspended)
    }

    fn finished(&self) -> Option<Finished> {
        let alone = || self.view.kind.integration.finished(&self.view.job.value);
        self.group.as_ref().map_or_else(alone, PodGroup::finished)
    }

    fn are_ready(&self) -> bool {
        let alone = || self.view.kind.integration.are_pods_ready(&self.view.job.value);
        self.group.as_ref().map_or_else(alone, PodGroup::are_ready)
    }

    fn reclaimable(&self) -> Vec<ReclaimablePods> {
        self.group.as_ref().map_or_else(Vec::new, PodGroup::reclaimable)
    }

    /// Lets pods go: nothing more is to be learnt from them.
    fn release(&self, is_it: impl Fn(&Whole) -> bool) -> Option<JobStep> {
        let kept = self.all.iter().filter(|pod| pod.metadata.has_finalizer(MANAGED) && is_it(pod));
        let writes: Vec<PodWrite> = kept.map(|pod| PodWrite::Release(Box::new((*pod).clone()))).collect();
        (!writes.is_empty()).then(|| silently(Write::Pods(writes)))
    }

    /// Stops the pods that run. `None`: none does.
    fn stop(&self, stop: &Stop<'_>) -> Option<JobStep> {
        self.stop_these(self.members().into_iter(), stop)
    }

    fn stop_these(&self, pods: impl Iterator<Item = &'a Whole>, stop: &Stop<'_>) -> Option<JobStep> {
        let Condition { status, message, last_transition_time, .. } =
            Condition::new(TERMINATION_TARGET, true, &stop.reason, stop.text, 0, self.view.now);
        let condition = json!({"type": TERMINATION_TARGET, "status": status, "reason": stop.reason,
            "message": message, "lastTransitionTime": last_transition_time});
        let (mut writes, mut events) = (Vec::new(), Vec::new());
        for pod in pods {
            let is_stopped = is_gated(&pod.value) || is_ended(&pod.value);
            if pod.metadata.is_deleting() || (is_stopped && !stop.is_total) {
                continue;
            }
            writes.push(PodWrite::Stop(Box::new(pod.clone()), Box::new(condition.clone())));
            events.push(pod_event(pod, "Stopped", stop.text));
        }
        (!writes.is_empty()).then_some(JobStep::Write(Write::Pods(writes), events))
    }

    /// Pods without a Workload get one when all of them are there and none runs.
    fn begin(&self) -> JobStep {
        let view = &self.view;
        if let Some(name) = self.prebuilt() {
            let is_there = view.objects.workload(&view.job.metadata.namespace, name).is_some();
            let wait = || if is_there { tell_taken(name) } else { prebuilt_missing(name) };
            return self.stop_unmatched("missing workload").unwrap_or_else(wait);
        }
        if self.finished().is_some() {
            return self.release(|_| true).unwrap_or(AWAIT);
        }
        let Some(group) = &self.group else { return view.begin() };
        if let Some(until) = group.active_until(view.now, view.config.frees_deleted_pods) {
            return await_until(until);
        }
        let (_, inactive) = group.partition();
        if let Err(step) = self.clean(&[], &inactive) {
            return step;
        }
        let (sets, excess) = match group.compose() {
            Ok(found) => found,
            Err(why) => return warn("ErrWorkloadCompose", why.to_string()),
        };
        if let Err(step) = self.clean(&excess, &[]) {
            return step;
        }
        let priority = match view.priority() {
            Ok(priority) => priority,
            Err(step) => return step,
        };
        match group.workload(sets, &priority, &view.config.copied) {
            Ok(workload) => create(vec![workload]),
            Err(why) => warn("ErrWorkloadCompose", why.to_string()),
        }
    }

    /// Brings the pods and their Workload to each other's state.
    fn follow(&self, owned: &Owned<'_>, absent: u32) -> JobStep {
        let (view, status) = (&self.view, &owned.workload.status);
        let meta = &owned.whole.metadata;
        let release_workload = || {
            let is_kept = meta.has_finalizer(FINALIZER);
            let patch = without_finalizer(meta, FINALIZER);
            if is_kept { silently(Write::Workload(Box::new(owned.whole.clone()), patch)) } else { AWAIT }
        };
        if let Some(step) = self.report_absent(owned, absent) {
            return step;
        }
        if status.is(FINISHED) {
            // Its quota is that of others now.
            let stop =
                Stop { reason: "WorkloadFinished".into(), text: "Workload is finished", is_total: false };
            let release = || self.release(|_| true);
            return self.stop(&stop).or_else(release).unwrap_or_else(release_workload);
        }
        if meta.is_deleting() {
            // A StatefulSet creates others for those that are held back, for ever.
            let is_total = annotation(&self.view.job.value, SUSPENDED_BY) != Some(STATEFUL_SET);
            let stop = Stop { reason: "WorkloadDeleted".into(), text: "Workload is deleted", is_total };
            let release = || self.group.as_ref().and_then(|_| self.release(|_| true));
            let stop = self.stop(&stop).or_else(|| view.await_pods(owned.whole)).or_else(release);
            return stop.unwrap_or_else(release_workload);
        }
        if let Some(ended) = self.finished() {
            let reason = if ended.succeeded { "Succeeded" } else { "Failed" };
            let text = format!("Workload '{}' is declared finished", key(owned.whole));
            return view.finish(owned, reason, &ended.message, vec![event("FinishedWorkload", text)]);
        }
        let reclaimed = view.reclaim(owned, &self.reclaimable());
        if let Some(step) = reclaimed.or_else(|| view.report_pods(owned, self.are_ready())) {
            return step;
        }
        if let Some(evicted) = status.condition(EVICTED).filter(|evicted| evicted.is_true()) {
            return self.evict(owned, evicted);
        }
        match (self.is_suspended(), status.is(ADMITTED)) {
            (true, true) => self.start(owned),
            (false, true) => AWAIT,
            // It lets pods with an old template go, so that it can replace them.
            (true, false) if view.objects.is_of_set(owned.whole) => AWAIT,
            // Others may have removed gates.
            (is_suspended, false) => {
                let text = "Not admitted by cluster queue";
                let stop = Stop { reason: "NotAdmitted".into(), text, is_total: false };
                let renamed = || if is_suspended { view.rename_queue(owned) } else { AWAIT };
                self.stop(&stop).unwrap_or_else(renamed)
            }
        }
    }

    /// Says in the Workload whether pods are missing.
    fn report_absent(&self, owned: &Owned<'_>, absent: u32) -> Option<JobStep> {
        let status = &owned.workload.status;
        let known = status.condition(WAITING_FOR_REPLACEMENT);
        let is_true = known.is_some_and(Condition::is_true);
        let evicted = status.condition(EVICTED).filter(|evicted| evicted.is_true());
        let (reason, message) = match (absent > 0, evicted, known) {
            (false, _, None) => return None,
            (false, ..) if !is_true => return None,
            (false, ..) => ("PodsReady", "No pods need replacement"),
            (true, Some(evicted), _) => (&*evicted.reason, &*evicted.message),
            (true, None, Some(known)) if is_true => (&*known.reason, &*known.message),
            (true, None, _) => ("PodsFailed", "Some Failed pods need replacement"),
        };
        let is_same = known.is_some_and(|known| {
            is_true == (absent > 0) && known.reason == reason && known.message == message
        });
        let generation = owned.whole.metadata.generation;
        let new =
            Condition::new(WAITING_FOR_REPLACEMENT, absent > 0, reason, message, generation, self.view.now);
        (!is_same).then(|| silently(Write::Condition(Box::new(owned.whole.clone()), Box::new(new))))
    }

    /// Stops the pods, and gives the quota back when none runs.
    fn evict(&self, owned: &Owned<'_>, evicted: &Condition) -> JobStep {
        let (view, status) = (&self.view, &owned.workload.status);
        let reason = format!("WorkloadEvictedDueTo{}", evicted.reason);
        if let Some(step) = self.stop(&Stop { reason, text: &evicted.message, is_total: false }) {
            return step;
        }
        if status.is(QUOTA_RESERVED) {
            let group = self.group.as_ref();
            let active = group.and_then(|group| group.active_until(view.now, view.config.frees_deleted_pods));
            if let Some(until) = active {
                return await_until(until);
            }
            if let Some(step) = view.await_pods(owned.whole) {
                return step;
            }
            let is_parked = self.group.is_none() && view.config.parks_lone_pods;
            return view.release_quota(owned, evicted, is_parked);
        }
        view.delete_after_retention(owned, evicted)
    }

    /// Gives back the quota of an evicted Workload whose pod is being deleted.
    fn release_evicted(&self, whole: &Whole) -> Option<JobStep> {
        let owned = self.view.owned(whole)?;
        let status = &owned.workload.status;
        let evicted = status.condition(EVICTED).filter(|evicted| evicted.is_true())?;
        let is_held = status.is(QUOTA_RESERVED) && !status.is(FINISHED) && !whole.metadata.is_deleting();
        is_held.then(|| self.view.release_quota(&owned, evicted, self.view.config.parks_lone_pods))
    }

    /// Lets the pods run that are held back.
    fn start(&self, owned: &Owned<'_>) -> JobStep {
        let view = &self.view;
        let added = match view.startable(owned, view.injections(&owned.workload)) {
            Ok(added) => added,
            Err(step) => return step,
        };
        let text = started_text(&owned.workload);
        let (mut writes, mut events) = (Vec::new(), Vec::new());
        for pod in self.members().into_iter().filter(|pod| is_gated(&pod.value) && !is_ended(&pod.value)) {
            let Some(injection) = self.injection(&added, &pod.value) else { continue };
            match view.startable(owned, start(&pod.value, injection)) {
                Ok(started) => writes.push(PodWrite::Replace(Box::new(started))),
                Err(step) => return step,
            }
            let ungated = GateRemoval::of(ADMISSION_GATE, &owned.workload);
            events.push(JobEvent { ungated, ..pod_event(pod, "Started", &text) });
        }
        if writes.is_empty() { AWAIT } else { JobStep::Write(Write::Pods(writes), events) }
    }

    /// What the admission adds to a pod.
    fn injection<'i>(&self, added: &'i [Injection], pod: &Value) -> Option<&'i Injection> {
        if self.group.is_none() {
            return added.first();
        }
        let role = role(pod);
        added.iter().find(|injection| injection.name == role)
    }
}

impl<'t> Stop<'t> {
    /// Of pods that run without a Workload for them.
    fn unmatched(text: &'t str) -> Self {
        Self { reason: "NoMatchingWorkload".into(), text, is_total: false }
    }
}

fn addresses<'v>(pods: impl IntoIterator<Item = &'v &'v Value>) -> BTreeSet<*const Value> {
    pods.into_iter().map(|pod| std::ptr::from_ref(*pod)).collect()
}

/// An Event about a pod.
fn pod_event(pod: &Whole, reason: &'static str, text: &str) -> JobEvent {
    JobEvent { about: Some(Box::new(subject("v1", "Pod", pod))), ..event(reason, text) }
}

/// The end of the time of microseconds stands for no end.
fn await_until(until: MicroTime) -> JobStep {
    if until.0 == i64::MAX { AWAIT } else { JobStep::Await(Some(until)) }
}
