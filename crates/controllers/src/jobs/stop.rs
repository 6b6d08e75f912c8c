//! The steps of stopping a job, and when its quota is released.

use api::MicroTime;
use api::kueue::jobs::STOPPING;
use api::kueue::jobs::remote::is_handed_over;
use api::kueue::status::{Condition, ON_HOLD, QUOTA_RESERVED, Transition};
use serde_json::{Map, Value, json};

use super::objects::has_quota;
use super::started::workload_in_templates;
use super::step::{AWAIT, JobEvent, JobStep, View, event, silently};
use super::workload::{Owned, delete_unmatched};
use super::write::Write;
use crate::watched::Whole;

impl View<'_> {
    /// A job that cannot run as it is gives its quota back, and gets none until it can.
    pub(super) fn hold(&self, owned: &Owned<'_>) -> Option<JobStep> {
        let status = &owned.workload.status;
        let is_on_hold = self.kind.integration.is_on_hold(&self.job.value);
        match (is_on_hold, status.is(QUOTA_RESERVED), status.is_on_hold()) {
            (true, true, _) if self.pods_until(owned.whole).is_some() => self.await_pods(owned.whole),
            (true, true, _) => Some(self.unreserve(owned, ON_HOLD, "Job is on hold", |_| {})),
            (true, false, _) => Some(AWAIT),
            (false, _, true) => Some(self.unreserve(owned, "Pending", "Job is no longer on hold", |_| {})),
            (false, _, false) => None,
        }
    }

    pub(super) fn unreserve(
        &self,
        owned: &Owned<'_>,
        reason: &str,
        text: &str,
        before: impl FnOnce(&mut Transition<'_>),
    ) -> JobStep {
        let mut status = owned.workload.status.clone();
        let generation = owned.workload.metadata.generation;
        let mut transition = Transition { status: &mut status, generation, now: self.now };
        before(&mut transition);
        transition.unreserve(reason, text);
        silently(Write::Admission(Box::new(owned.workload.clone()), Box::new(status)))
    }

    /// Stops the job, and releases the quota when its pods are gone.
    pub(super) fn evict(&self, owned: &Owned<'_>, evicted: &Condition) -> JobStep {
        let job = &self.job.value;
        if let Some(step) = self.next_stop(Some(owned.whole), &evicted.message) {
            return step;
        }
        if owned.workload.status.is(QUOTA_RESERVED) && !self.kind.integration.is_active(job) {
            if self.may_run_elsewhere(owned) {
                return AWAIT;
            }
            let released = || self.release_quota(owned, evicted, false);
            return self.await_all_pods(owned.whole).unwrap_or_else(released);
        }
        self.delete_after_retention(owned, evicted)
    }

    /// Whether the job may still run in another cluster, whatever its status says: what it says of pods comes from there, and may not have
    /// come yet. The loop of other clusters takes the name of the cluster away when nothing runs there any more.
    pub(super) fn may_run_elsewhere(&self, owned: &Owned<'_>) -> bool {
        owned.workload.status.cluster_name.is_some() && is_handed_over(self.kind, &self.job.value)
    }

    /// Gives the quota of an evicted Workload back. One that is not parked, and was preempted or lost its node, is tried again at
    /// once.
    pub(super) fn release_quota(&self, owned: &Owned<'_>, evicted: &Condition, is_parked: bool) -> JobStep {
        let is_requeued = !is_parked && ["Preempted", "NodeFailures"].contains(&&*evicted.reason);
        self.unreserve(owned, "Pending", &evicted.message, |transition| {
            transition.requeue(is_requeued, &evicted.reason, &evicted.message);
        })
    }

    /// Deletes a job that a controller has deactivated, when its retention is over.
    pub(super) fn delete_after_retention(&self, owned: &Owned<'_>, evicted: &Condition) -> JobStep {
        let is_deactivated = !owned.workload.is_active() && evicted.reason.starts_with("DeactivatedDueTo");
        let Some(retention) = self.config.retention_us.filter(|_| is_deactivated) else { return AWAIT };
        let due = MicroTime(evicted.since().unwrap_or(self.now).0.saturating_add(retention));
        if due > self.now {
            return JobStep::Await(Some(due));
        }
        let told = event("Deleted", "Deleted job: deactivation retention period expired");
        JobStep::Write(Write::DeleteJob(self.kind, Box::new(self.job.clone())), vec![told])
    }

    /// The next step of stopping the job, with its templates restored from its Workload.
    pub(super) fn stop(&self, workload: Option<&Whole>, text: &str) -> JobStep {
        self.next_stop(workload, text).unwrap_or(AWAIT)
    }

    /// Whether a job is suspended and that was not done here. One that is over, or on its way, is not asked for.
    pub(super) fn is_stopped_by_others(&self) -> bool {
        let job = &self.job.value;
        let is_over = self.job.metadata.is_deleting() || self.kind.integration.finished(job).is_some();
        self.kind.is_suspended(job) && !self.kind.is_stopping(job) && !is_over
    }

    /// Deletes a Workload of a suspended job that another job owns by now. One with quota stays until the pods are gone, and until the
    /// templates are as the author wrote them: the job starts with the quota of its owner.
    pub(super) fn give_up(&self, own: &Whole) -> JobStep {
        if !has_quota(own) {
            return delete_unmatched(own);
        }
        if self.kind.integration.is_active(&self.job.value) {
            return AWAIT;
        }
        let gone = self.await_pods(own).or_else(|| self.restore_started(own));
        gone.unwrap_or_else(|| delete_unmatched(own))
    }

    /// Restores the templates of a suspended job that had started with a Workload.
    fn restore_started(&self, workload: &Whole) -> Option<JobStep> {
        let job = &self.job.value;
        workload_in_templates(self.kind, job)?;
        let restored = self.kind.restore(job, &workload.value);
        if restored == *job {
            return None;
        }
        if self.kind.integration.stops_in_steps() && !job["status"]["startTime"].is_null() {
            return Some(self.forget_start());
        }
        Some(self.write(restored, Vec::new()))
    }

    fn forget_start(&self) -> JobStep {
        silently(Write::JobStatus(self.kind, Box::new(self.job.clone()), json!({"startTime": null})))
    }

    /// A job stops in one write. A batch Job accepts other templates only if it is suspended and has no start time, so it stops in
    /// three.
    pub(super) fn next_stop(&self, workload: Option<&Whole>, text: &str) -> Option<JobStep> {
        let job = &self.job.value;
        let restored =
            || workload.map_or_else(|| job.clone(), |workload| self.kind.restore(job, &workload.value));
        let is_stopping = self.kind.is_stopping(job);
        if !self.kind.integration.stops_in_steps() {
            let integration = self.kind.integration;
            let is_later = integration.changes_suspended_only();
            if self.kind.is_suspended(job) {
                if !is_later || integration.is_active(job) {
                    return None;
                }
                let mut restored = job.clone();
                integration.restore(&mut restored, &[]);
                return (restored != *job).then(|| self.write(restored, Vec::new()));
            }
            let mut stopped = if is_later { job.clone() } else { restored() };
            self.kind.set_suspended(&mut stopped, true);
            return Some(self.write(stopped, vec![event("Stopped", text)]));
        }
        if !is_stopping && !self.kind.is_suspended(job) {
            let mut stopped = job.clone();
            self.kind.set_suspended(&mut stopped, true);
            if !stopped["metadata"]["annotations"].is_object() {
                stopped["metadata"]["annotations"] = Value::Object(Map::new());
            }
            stopped["metadata"]["annotations"][STOPPING] = "true".into();
            return Some(self.write(stopped, vec![event("Stopped", text)]));
        }
        if !is_stopping {
            return None;
        }
        if !job["status"]["startTime"].is_null() {
            return Some(self.forget_start());
        }
        let mut restored = restored();
        if let Some(annotations) = restored["metadata"]["annotations"].as_object_mut() {
            annotations.remove(STOPPING);
        }
        Some(self.write(restored, Vec::new()))
    }

    /// Replaces the job.
    pub(super) fn write(&self, job: Value, events: Vec<JobEvent>) -> JobStep {
        JobStep::Write(Write::Job(self.kind, Box::new(job)), events)
    }
}
