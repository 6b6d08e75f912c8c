//! The next write about the Workloads that a job has left behind: it is gone, or on its way.

use api::MicroTime;
use api::kueue::FINALIZER;
use api::kueue::jobs::JobKind;
use api::kueue::status::{EVICTED, FINISHED, QUOTA_RESERVED};

use super::JobsConfig;
use super::objects::Objects;
use super::orphan::{Orphan, OrphanStep};
use super::step::{JobStep, finished, silently};
use super::write::{PodWrite, Write, decoded};
use crate::watched::Whole;

/// Suspends a job that goes on with the quota of a Workload without the job that owned it. `None`: there is none.
pub(super) fn suspend_left(objects: &Objects, config: &JobsConfig, whole: &Whole) -> Option<JobStep> {
    let (kind, job) = objects.left_with(config, whole).next()?;
    let mut job = job.value.clone();
    kind.set_suspended(&mut job, true);
    Some(silently(Write::Job(kind, Box::new(job))))
}

/// Ends the Workloads of a job that is gone, or on its way: their quota is released when their pods are gone, too.
pub(super) fn left_behind(
    objects: &Objects,
    config: &JobsConfig,
    left: &[&Whole],
    now: MicroTime,
) -> JobStep {
    let mut due = None;
    for whole in left {
        let Ok(workload) = decoded(whole) else { continue };
        let is_finished = workload.status.is(FINISHED);
        let owner = whole.metadata.controller();
        let is_kind = |kind: &&&'static JobKind| {
            owner.is_some_and(|owner| kind.is_kind_of(&owner.api_version, &owner.kind))
        };
        let kind = config.kinds.iter().find(is_kind).copied();
        let goes_on = objects.left_with(config, whole).next();
        let until = match goes_on {
            Some(_) => Some(MicroTime(i64::MAX)),
            None => objects.started.until(whole, now, config.frees_deleted_pods),
        };
        let orphan = |kind, next| {
            let orphan = Orphan {
                kind,
                workload: (*whole).clone(),
                manages_unnamed: config.manages_unnamed,
                has_pods: until.is_some(),
                next,
            };
            silently(Write::Orphan(Box::new(orphan)))
        };
        let reclaimable = || {
            let is_last = goes_on.is_none() && config.reclaims_pods;
            is_last.then(|| objects.started.reclaimable(whole, &workload, now)).flatten()
        };
        // The Workload of a job that is deleted with its pods is on its way, too. Of one that nothing owns, the deletion is an order.
        let is_stopped = workload.status.is(EVICTED) || (owner.is_none() && whole.metadata.is_deleting());
        let is_reserved = workload.status.is(QUOTA_RESERVED) && !is_finished;
        match (until.filter(|_| is_reserved), kind) {
            (Some(_), _) if is_stopped => {
                if let Some(step) = suspend_left(objects, config, whole) {
                    return step;
                }
                let running = objects.started.of(whole).filter(|pod| !pod.metadata.is_deleting());
                let writes: Vec<_> = running.map(|pod| PodWrite::Remove(Box::new(pod.clone()))).collect();
                if !writes.is_empty() {
                    return silently(Write::Pods(writes));
                }
                due = earliest(due, until);
            }
            // A job without the label of a queue is not watched, and runs on with the label.
            (Some(MicroTime(i64::MAX)), Some(kind))
                if whole.metadata.controller_key().is_none_or(|owner| objects.job(&owner).is_none()) =>
            {
                let ended = reclaimable();
                return orphan(kind, ended.map_or(OrphanStep::Keep, OrphanStep::Reclaim));
            }
            // The deletion of the job has left its pods.
            (Some(_), None) if owner.is_none() => match reclaimable() {
                Some(ended) => return silently(Write::Reclaimable(Box::new((*whole).clone()), ended)),
                None => due = earliest(due, until),
            },
            (Some(_), _) => due = earliest(due, until),
            (None, None) if owner.is_none() => {
                return silently(Write::DeleteWorkload(Box::new((*whole).clone())));
            }
            (None, Some(kind)) if !is_finished && !whole.metadata.is_deleting() => {
                let status =
                    finished(&workload, "OwnerNotFound", "The workload's owner no longer exists", now);
                return orphan(kind, OrphanStep::Finish(Box::new(status)));
            }
            (None, Some(kind)) if whole.metadata.has_finalizer(FINALIZER) => {
                return orphan(kind, OrphanStep::Release);
            }
            (None, _) => {}
        }
    }
    JobStep::Await(due)
}

/// The earlier time; none for a time that never comes.
pub(super) fn earliest(one: Option<MicroTime>, other: Option<MicroTime>) -> Option<MicroTime> {
    one.into_iter().chain(other).filter(|time| time.0 != i64::MAX).min()
}
