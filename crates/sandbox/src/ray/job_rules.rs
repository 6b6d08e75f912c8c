//! The state machine of a RayJob: a pure function of the observed state and the time.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::types::{RayCluster, RayJob, RayJobInfo, RayJobStatus};
use super::validate;
use crate::pace::{Pace, suffix};
use crate::wire::Stamp;

/// Grace periods: how long a submitter may run after its job has finished, and a job after its submitter has
/// finished.
const GRACE: (Duration, Duration) = (Duration::from_mins(5), Duration::from_secs(30));

/// How often a job looks at a cluster of which it does not hear: that of its clusterSelector, or one whose owner reference is gone.
const POLL: Duration = Duration::from_secs(3);

/// The state of the submitter. Modes without a submitter use `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Submitter {
    Absent,
    Active,
    Succeeded,
    Failed,
}

/// What Ray's dashboard reports about the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RayInfo {
    NotFound,
    Found { status: &'static str, message: String, start: Stamp, end: Option<Stamp> },
}

/// The input of one reconciliation.
#[derive(Debug)]
pub(super) struct Observed<'a> {
    pub(super) job: &'a RayJob,
    pub(super) cluster: Option<&'a RayCluster>,
    /// The state of the submitter. In `K8sJobMode` its Job exists if `submitter_exists` is set.
    pub(super) submitter: Option<Submitter>,
    pub(super) submitter_exists: bool,
    /// When the submitter finished.
    pub(super) submitter_ended_at: Option<Stamp>,
    pub(super) ray_info: RayInfo,
    /// Differs in every reconciliation, so that generated names are unique.
    pub(super) serial: u64,
    pub(super) now: Timestamp,
    pub(super) pace: Pace,
}

/// One action besides the status update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    CreateCluster(String),
    CreateSubmitter,
    CreateService,
    /// Submits the job to Ray without a submitter.
    Submit,
    DeleteCluster,
    DeleteWorkers,
    DeleteSubmitter,
    DeleteSelf,
}

/// The result of one reconciliation.
#[derive(Debug, PartialEq)]
pub(super) struct Decision {
    pub(super) status: RayJobStatus,
    /// Carried out before the status is written.
    pub(super) steps: Vec<Step>,
    pub(super) wake: Option<Duration>,
    /// Reason and message of a Warning event.
    pub(super) warning: Option<(&'static str, String)>,
}

impl Decision {
    fn set_state(&mut self, state: &str) {
        self.status.job_deployment_status = Some(state.to_owned());
    }

    fn wake_after(&mut self, pause: Duration) {
        self.wake = Some(self.wake.map_or(pause, |other| other.min(pause)));
    }
}

/// Decides one reconciliation of a job that is not being deleted.
pub(super) fn decide(observed: &Observed<'_>) -> Decision {
    let job = observed.job;
    let mut decision = Decision { status: job.status.clone(), steps: vec![], wake: None, warning: None };
    let state = job.status.job_deployment_status.as_deref().unwrap_or_default();
    if !matches!(state, "Complete" | "Failed")
        && let Err(problem) = validate::job(job)
    {
        // As in KubeRay, a job never leaves this state, and nothing is deleted on entering it.
        if state != "ValidationFailed" {
            decision.set_state("ValidationFailed");
            decision.status.reason = Some("ValidationFailed".to_owned());
            decision.status.message = Some(problem.clone());
            decision.warning = Some(("InvalidRayJobSpec", format!("The RayJob spec is invalid: {problem}")));
        }
        return decision;
    }
    match state {
        "" => initialize_status(observed, &mut decision),
        "Initializing" => initialize(observed, &mut decision),
        "Waiting" if !job.spec.job_id.is_empty() => {
            decision.status.job_id = Some(job.spec.job_id.clone());
            decision.set_state("Running");
        }
        "Running" => run(observed, &mut decision),
        "Suspending" | "Retrying" => delete_attempt(observed, state, &mut decision),
        "Suspended" if !job.spec.suspend => {
            decision.status.job_deployment_status = None;
        }
        "Complete" | "Failed" => delete_after_finish(observed, &mut decision),
        _ => {}
    }
    if matches!(state, "Initializing" | "Running") && job.spec.selected_cluster().is_some() {
        decision.wake_after(observed.pace.scaled(POLL));
    }
    if decision.status != job.status {
        set_required_fields(&mut decision.status);
    }
    decision
}

/// Sets the fields that KubeRay always writes, with zero or empty values.
fn set_required_fields(status: &mut RayJobStatus) {
    status.succeeded.get_or_insert(0);
    status.failed.get_or_insert(0);
    status.ray_job_info.get_or_insert_with(RayJobInfo::default);
    let zero = ["desiredCPU", "desiredGPU", "desiredMemory", "desiredTPU"]
        .map(|field| (field.to_owned(), json!("0")));
    status.ray_cluster_status.get_or_insert_with(|| {
        let mut none = serde_json::Map::from_iter(zero);
        none.insert("head".to_owned(), json!({}));
        Value::Object(none)
    });
}

/// Sets job id, cluster name and start time.
fn initialize_status(observed: &Observed<'_>, decision: &mut Decision) {
    let job = observed.job;
    let name = &job.metadata.name;
    let stamp = Stamp::of(observed.now);
    let draw = |what| suffix(observed.pace.draw((&job.metadata.uid, what, observed.serial)));
    let status = &mut decision.status;
    if job.spec.submission_mode != "InteractiveMode" {
        let chosen = Some(job.spec.job_id.clone()).filter(|id| !id.is_empty());
        status.job_id = Some(chosen.unwrap_or_else(|| format!("{name}-{}", draw("job"))));
    }
    let selected = job.spec.selected_cluster().map(str::to_owned);
    status.ray_cluster_name = Some(selected.unwrap_or_else(|| format!("{name}-{}", draw("cluster"))));
    status.start_time = Some(stamp);
    status.end_time = None;
    decision.set_state("Initializing");
}

fn initialize(observed: &Observed<'_>, decision: &mut Decision) {
    let job = observed.job;
    if job.spec.suspend {
        decision.set_state("Suspending");
        return;
    }
    if active_deadline_exceeded(observed, decision) || pre_running_deadline_exceeded(observed, decision) {
        return;
    }
    let name = decision.status.ray_cluster_name.clone().unwrap_or_default();
    let Some(cluster) = observed.cluster else {
        if job.spec.selected_cluster().is_none() {
            decision.steps.push(Step::CreateCluster(name));
        } else {
            let what = format!("RayCluster {}/{name} set in the clusterSelector", job.metadata.namespace);
            let why = format!("{what} is not found. It must be created manually");
            decision.warning = Some(("RayClusterNotFound", why));
        }
        return;
    };
    if cluster.status.state.as_deref() != Some("ready") {
        decision.status.ray_cluster_status = Some(cluster_status(cluster));
        return;
    }
    let port = super::services::dashboard_port(cluster);
    decision.status.dashboard_url = Some(format!("{}:{port}", super::containers::head_address(cluster)));
    match job.spec.submission_mode.as_str() {
        "InteractiveMode" => decision.set_state("Waiting"),
        "" | "K8sJobMode" => {
            if !observed.submitter_exists {
                decision.steps.push(Step::CreateSubmitter);
            }
            decision.set_state("Running");
        }
        _ => decision.set_state("Running"),
    }
}

fn run(observed: &Observed<'_>, decision: &mut Decision) {
    let job = observed.job;
    if job.spec.suspend {
        decision.set_state("Suspending");
        return;
    }
    if active_deadline_exceeded(observed, decision) {
        return;
    }
    decision.steps.push(Step::CreateService);
    if let Some(cluster) = observed.cluster {
        decision.status.ray_cluster_status = Some(cluster_status(cluster));
    }
    let submitter_ended = matches!(observed.submitter, Some(Submitter::Succeeded | Submitter::Failed));
    match &observed.ray_info {
        RayInfo::NotFound => {
            if submitter_ended {
                fail(
                    observed,
                    "SubmissionFailed",
                    "The submitter ended, and Ray does not know the job.",
                    decision,
                );
            } else if observed.submitter.is_none() {
                decision.steps.push(Step::Submit);
            }
            return;
        }
        RayInfo::Found { status, message, start, end } => {
            decision.status.job_status = Some((*status).to_owned());
            decision.status.message = Some(message.clone()).filter(|message| !message.is_empty());
            decision.status.ray_job_info = Some(RayJobInfo { start_time: Some(*start), end_time: *end });
        }
    }
    let status = decision.status.job_status.clone().unwrap_or_default();
    let terminal = matches!(status.as_str(), "SUCCEEDED" | "FAILED" | "STOPPED");
    if observed.submitter == Some(Submitter::Failed) {
        let reason = if status == "FAILED" { "AppFailed" } else { "SubmissionFailed" };
        fail(observed, reason, "The submitter failed.", decision);
    } else if terminal && observed.submitter.is_none_or(|_| submitter_ended) {
        end(observed, &status, decision);
    } else if terminal {
        let since = decision.status.ray_job_info.as_ref().and_then(|info| info.end_time);
        if grace_period_elapsed(observed, since, GRACE.0, decision) {
            end(observed, &status, decision);
        }
    } else if submitter_ended
        && grace_period_elapsed(observed, observed.submitter_ended_at, GRACE.1, decision)
    {
        let reason = "JobDeploymentStatusTransitionGracePeriodExceeded";
        fail(observed, reason, "The submitter ended, but the job did not.", decision);
    }
}

/// Handles a job that has finished by itself.
fn end(observed: &Observed<'_>, status: &str, decision: &mut Decision) {
    if status == "FAILED" {
        fail(observed, "AppFailed", "Job failed.", decision);
        return;
    }
    if status == "SUCCEEDED" {
        decision.status.succeeded = Some(observed.job.status.succeeded.unwrap_or(0) + 1);
    }
    decision.status.end_time = Some(Stamp::of(observed.now));
    decision.set_state("Complete");
}

/// Handles a failed job: retries it on a new cluster up to the backoff limit.
fn fail(observed: &Observed<'_>, reason: &str, message: &str, decision: &mut Decision) {
    let failed = observed.job.status.failed.unwrap_or(0) + 1;
    decision.status.failed = Some(failed);
    decision.status.reason = Some(reason.to_owned());
    decision.status.message.get_or_insert_with(|| message.to_owned());
    if failed <= observed.job.spec.backoff_limit.unwrap_or(0) && reason != "DeadlineExceeded" {
        decision.set_state("Retrying");
    } else {
        decision.status.end_time = Some(Stamp::of(observed.now));
        decision.set_state("Failed");
    }
}

/// Fails the job if activeDeadlineSeconds have passed.
fn active_deadline_exceeded(observed: &Observed<'_>, decision: &mut Decision) -> bool {
    let Some(seconds) = observed.job.spec.active_deadline_seconds else { return false };
    let message = format!("The RayJob has passed the activeDeadlineSeconds of {seconds}.");
    deadline_exceeded(observed, seconds, "DeadlineExceeded", &message, decision)
}

fn pre_running_deadline_exceeded(observed: &Observed<'_>, decision: &mut Decision) -> bool {
    let Some(seconds) = observed.job.spec.pre_running_deadline_seconds else { return false };
    let message = format!("The RayJob did not run within the preRunningDeadlineSeconds of {seconds}.");
    deadline_exceeded(observed, seconds, "PreRunningDeadlineExceeded", &message, decision)
}

fn deadline_exceeded(
    observed: &Observed<'_>,
    seconds: i64,
    reason: &str,
    message: &str,
    decision: &mut Decision,
) -> bool {
    let allowed = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
    let is_over = match remaining(observed.pace.deadline(allowed), decision.status.start_time, observed.now) {
        Some(remaining) => {
            decision.wake_after(remaining);
            false
        }
        None => true,
    };
    if is_over {
        fail(observed, reason, message, decision);
    }
    is_over
}

fn grace_period_elapsed(
    observed: &Observed<'_>,
    since: Option<Stamp>,
    grace: Duration,
    decision: &mut Decision,
) -> bool {
    match remaining(observed.pace.deadline(grace), since, observed.now) {
        Some(remaining) => {
            decision.wake_after(remaining);
            false
        }
        None => true,
    }
}

/// Deletes cluster and submitter of the attempt, then resets the status. As in KubeRay, pods may still be terminating
/// then.
fn delete_attempt(observed: &Observed<'_>, state: &str, decision: &mut Decision) {
    if let Some(cluster) = observed.cluster.filter(|_| observed.job.spec.selected_cluster().is_none())
        && !cluster.metadata.is_deleting()
    {
        decision.steps.push(Step::DeleteCluster);
    }
    if observed.submitter_exists {
        decision.steps.push(Step::DeleteSubmitter);
    }
    if observed.cluster.is_some() || observed.submitter_exists {
        // Somebody may have removed the owner reference by which their end is noticed.
        decision.wake_after(observed.pace.scaled(POLL));
        return;
    }
    let status = &mut decision.status;
    let (succeeded, failed) = (status.succeeded, status.failed);
    *status = RayJobStatus { succeeded, failed, ..RayJobStatus::default() };
    if state == "Suspending" {
        decision.set_state("Suspended");
    }
}

/// Applies shutdownAfterJobFinishes and the deletion rules when their time to live has expired.
fn delete_after_finish(observed: &Observed<'_>, decision: &mut Decision) {
    let job = observed.job;
    let end = job.status.end_time.or(job.status.start_time);
    let mut due = |seconds: i64, step: Step| {
        let kept = observed.pace.scaled(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)));
        match remaining(kept, end, observed.now) {
            Some(remaining) => decision.wake_after(remaining),
            None => decision.steps.push(step),
        }
    };
    let own = observed.cluster.is_some_and(|cluster| !cluster.metadata.is_deleting())
        && job.spec.selected_cluster().is_none();
    if job.spec.shutdown_after_job_finishes && own {
        due(job.spec.ttl_seconds_after_finished, Step::DeleteCluster);
    }
    let (state, status) = (job.status.job_deployment_status.as_deref(), job.status.job_status.as_deref());
    for rule in &job.spec.deletion_strategy.deletion_rules {
        let condition = &rule.condition;
        let applies = (!condition.job_status.is_empty() && status == Some(&condition.job_status))
            || (!condition.job_deployment_status.is_empty()
                && state == Some(&condition.job_deployment_status));
        match rule.policy.as_str() {
            "DeleteCluster" if applies && own => due(condition.ttl_seconds, Step::DeleteCluster),
            "DeleteWorkers" if applies && own => {
                let groups = observed.cluster.map(|cluster| &cluster.spec.worker_group_specs);
                if groups.into_iter().flatten().any(|group| group.suspend != Some(true)) {
                    due(condition.ttl_seconds, Step::DeleteWorkers);
                }
            }
            "DeleteSelf" if applies => due(condition.ttl_seconds, Step::DeleteSelf),
            _ => {}
        }
    }
}

/// The rest of a duration that began at `since`; `None` if it has elapsed.
fn remaining(duration: Duration, since: Option<Stamp>, now: Timestamp) -> Option<Duration> {
    let elapsed = since
        .map_or(Duration::ZERO, |since| Duration::try_from(now.duration_since(since.0)).unwrap_or_default());
    duration.checked_sub(elapsed).filter(|remaining| !remaining.is_zero())
}

/// The cluster status in the status of the job.
fn cluster_status(cluster: &RayCluster) -> Value {
    crate::cluster::merge_patch(&json!({}), &json!(cluster.status))
}

#[cfg(test)]
#[path = "job_tests.rs"]
mod tests;
