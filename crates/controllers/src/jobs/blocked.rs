//! Jobs that get no Workload as they are: what is wrong, and what to change, is a condition of the job beside the Event, which
//! Kubernetes forgets after an hour.

use api::kueue::jobs::QUEUEING_BLOCKED;
use api::kueue::status::{Condition, seconds};
use serde_json::{Value, json};

use super::step::{JobEvent, JobStep, View};
use super::write::Write;

impl View<'_> {
    /// Keeps the condition of a job that gets no Workload, if jobs of its kind have conditions. The Event is recorded with it.
    pub(super) fn keep_blocked(&self, step: JobStep) -> JobStep {
        if !self.kind.integration.has_conditions() {
            return step;
        }
        let known = self.conditions().iter().find(|condition| condition["type"] == QUEUEING_BLOCKED);
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
