//! Jobs that get no Workload as they are: what is wrong, and what to change, is a condition of the job beside the Event, which
//! Kubernetes forgets after an hour. Views get a list of these jobs.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use api::MicroTime;
use api::kueue::jobs::QUEUEING_BLOCKED;
use api::kueue::status::{Condition, seconds};
use model::GangKey;
use serde_json::{Value, json};

use super::objects::{JobKey, Objects};
use super::step::{JobEvent, JobStep, View, event, silently};
use super::write::Write;
use super::{Jobs, JobsConfig};
use crate::watched::Whole;

/// The reason of an Event or a condition about a write that the API server refuses.
pub(super) const WRITE_REFUSED: &str = "WriteRefused";

/// A job that gets no Workload as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockedJob {
    /// Its name. The name of a group of pods is that of the group.
    pub key: GangKey,
    /// What is wrong, and what to change.
    pub cause: String,
}

/// The jobs of a controller that get no Workload. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct BlockedJobs(Arc<RwLock<BTreeMap<JobKey, BlockedJob>>>);

impl BlockedJobs {
    /// All of them.
    pub(crate) fn all(&self) -> Vec<BlockedJob> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Notes what is wrong with a job; returns whether anything has changed.
    fn note(&self, key: &JobKey, blocked: Option<BlockedJob>) -> bool {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned();
        if known == blocked {
            return false;
        }
        let mut jobs = self.0.write().unwrap_or_else(PoisonError::into_inner);
        match blocked {
            Some(blocked) => jobs.insert(key.clone(), blocked),
            None => jobs.remove(key),
        };
        true
    }
}

impl Jobs {
    /// Notes whether a job gets a Workload, by the next step about it.
    pub(super) fn note_blocked(&self, key: &JobKey, step: Option<&JobStep>) {
        let told = match step {
            Some(JobStep::Tell(event)) if event.about.is_none() => Some(&event.text),
            // The last write was refused.
            Some(JobStep::Write(..)) => self.told.get(key),
            Some(JobStep::Tell(_) | JobStep::Await(_) | JobStep::Ask(_)) | None => None,
        };
        let blocked = without_workload(&self.objects, &self.config, key).and_then(|(key, job)| {
            let condition = condition(job).filter(|known| known["status"] == "True");
            let cause = condition.and_then(|known| known["message"].as_str()).map(str::to_owned);
            Some(BlockedJob { key, cause: cause.or_else(|| told.cloned())? })
        });
        if self.blocked.note(key, blocked) {
            self.changes.send_modify(|_| {});
        }
    }
}

/// The step about a job whose Workload was refused with this text. The condition of the job says so before the creation is tried
/// again.
pub(super) fn tell_refusal(
    objects: &Objects,
    config: &JobsConfig,
    key: &JobKey,
    step: JobStep,
    refusal: &str,
    now: MicroTime,
) -> JobStep {
    let (JobKey::Job(of), JobStep::Write(Write::Create(_), _)) = (key, &step) else { return step };
    let Some((at, job)) = objects.job(of) else { return step };
    let Some(kind) = config.kind(at) else { return step };
    let told = JobEvent { is_warning: true, ..event(WRITE_REFUSED, refusal) };
    match (View { kind, job, objects, config, now }).keep_blocked(JobStep::Tell(told)) {
        // The Event was recorded when the write was refused.
        JobStep::Write(write, _) => silently(write),
        JobStep::Tell(_) | JobStep::Await(_) | JobStep::Ask(_) => step,
    }
}

/// A job, or the first pod of a group, without a Workload.
fn without_workload<'o>(
    objects: &'o Objects,
    config: &JobsConfig,
    key: &JobKey,
) -> Option<(GangKey, &'o Whole)> {
    let (at, job, name) = match key {
        JobKey::Job(of) if objects.workloads_of(of).next().is_none() => {
            let (at, job) = objects.job(of)?;
            (at, job, &job.metadata.name)
        }
        JobKey::Group { namespace, name } if objects.workload(namespace, name).is_none() => {
            let (at, job) = *objects.group(namespace, name).first()?;
            (at, job, name)
        }
        JobKey::Job(_) | JobKey::Group { .. } | JobKey::Orphan(_) => return None,
    };
    let kind = config.kind(at)?;
    let group = kind.api_version.split_once('/').map_or(String::new(), |(group, _)| format!(".{group}"));
    let (kind, namespace) = (format!("{}{group}", kind.plural), job.metadata.namespace.clone());
    Some((GangKey { kind, namespace, name: name.clone() }, job))
}

/// The condition of a job that gets no Workload.
fn condition(job: &Whole) -> Option<&Value> {
    let conditions = job.value["status"]["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == QUEUEING_BLOCKED)
}

impl View<'_> {
    /// Keeps the condition of a job that gets no Workload, if jobs of its kind have conditions. The Event is recorded with it.
    pub(super) fn keep_blocked(&self, step: JobStep) -> JobStep {
        if !self.kind.integration.has_conditions() {
            return step;
        }
        let known = condition(self.job);
        match step {
            JobStep::Tell(told) if is_same(known, &told) => JobStep::Await(None),
            JobStep::Tell(told) => {
                let conditions = self.conditions_with(Some(self.blocked(known, &told)));
                JobStep::Write(self.write_conditions(conditions), vec![told])
            }
            JobStep::Await(_) if known.is_some() => {
                JobStep::Write(self.write_conditions(self.conditions_with(None)), Vec::new())
            }
            JobStep::Await(_) | JobStep::Ask(_) | JobStep::Write(..) => step,
        }
    }

    fn conditions(&self) -> &[Value] {
        self.job.value["status"]["conditions"].as_array().map_or(&[], Vec::as_slice)
    }

    /// The conditions of the job with this one instead of the one of its type.
    fn conditions_with(&self, new: Option<Value>) -> Vec<Value> {
        let others = self.conditions().iter().filter(|condition| condition["type"] != QUEUEING_BLOCKED);
        others.cloned().chain(new).collect()
    }

    fn blocked(&self, known: Option<&Value>, told: &JobEvent) -> Value {
        let since = known.and_then(|known| known["lastTransitionTime"].as_str());
        let since = since.map_or_else(|| seconds(self.now), str::to_owned);
        // The conditions of a batch Job have no generation.
        let Condition { kind, status, reason, message, .. } =
            Condition::new(QUEUEING_BLOCKED, true, told.reason, &told.text, 0, self.now);
        json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since})
    }

    fn write_conditions(&self, conditions: Vec<Value>) -> Write {
        Write::Blocked(self.kind, Box::new(self.job.clone()), conditions.into())
    }
}

fn is_same(known: Option<&Value>, told: &JobEvent) -> bool {
    known.is_some_and(|known| {
        known["status"] == "True" && known["reason"] == told.reason && known["message"] == *told.text
    })
}
