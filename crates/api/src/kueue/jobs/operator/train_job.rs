//! The operator of `TrainJobs`: it makes a `JobSet` of each. After Kubeflow Trainer v2.2, which keeps the `JobSet` of a job that is
//! suspended: here it is made when the job runs.

use serde_json::{Value, json};

use super::super::declared::true_condition;
use super::super::train_job::{TrainJob, admitted_template, runtime_steps};
use super::super::{Integration as _, REFERENCED};
use super::{Condition, Operator, Seen, known_status, name};
use crate::value::list;

impl Operator for TrainJob {
    fn spec_fields(&self) -> Value {
        let text = |default: &str| json!({"type": "string", "default": default});
        json!({
            "runtimeRef": {
                "type": "object", "description": "The runtime that describes the pods.", "required": ["name"],
                "properties": {
                    "apiGroup": text("trainer.kubeflow.org"),
                    "kind": text("ClusterTrainingRuntime"),
                    "name": {"type": "string", "minLength": 1},
                },
            },
            "suspend": {"type": "boolean", "default": false},
            "managedBy": text("trainer.kubeflow.org/trainjob-controller"),
        })
    }

    /// The runtime of the tutorials for `PyTorch`.
    fn presets(&self) -> Vec<Value> {
        let container = json!({"name": "node", "image": "pytorch/pytorch"});
        vec![json!({
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "ClusterTrainingRuntime",
            "metadata": {"name": "torch-distributed", "labels": {"trainer.kubeflow.org/framework": "torch"}},
            "spec": {
                "mlPolicy": {"numNodes": 1, "torch": {"numProcPerNode": "auto"}},
                "template": {"spec": {"replicatedJobs": [{
                    "name": "node",
                    "template": {
                        "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
                        "spec": {"template": {"spec": {"containers": [container]}}},
                    },
                }]}},
            },
        })]
    }

    fn manager(&self) -> Option<&'static str> {
        Some("trainer.kubeflow.org/trainjob-controller")
    }

    fn objects(&self, job: &Value, _: &Seen<'_>) -> Vec<Value> {
        let steps = runtime_steps(job).map(|(replicated, step)| {
            let mut replicated = replicated.clone();
            let mut template = admitted_template(job, &step);
            template["spec"]["parallelism"] = step.pods.into();
            template["spec"]["completions"] = step.pods.into();
            if template["spec"]["template"]["spec"]["restartPolicy"].is_null() {
                template["spec"]["template"]["spec"]["restartPolicy"] = "OnFailure".into();
            }
            replicated["replicas"] = step.replicas.into();
            replicated["template"] = template;
            replicated
        });
        let mut spec = job[REFERENCED]["spec"]["template"]["spec"].clone();
        spec["replicatedJobs"] = steps.collect();
        vec![json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
            "metadata": {"name": name(job), "labels": job["spec"]["labels"], "annotations": job["spec"]["annotations"]},
            "spec": spec})]
    }

    fn status(&self, job: &Value, seen: &Seen<'_>) -> Value {
        let mut status = known_status(job);
        if self.finished(job).is_some() {
            return status;
        }
        let is_suspended = self.is_suspended(job);
        seen.set_suspended(&mut status, is_suspended, "TrainJob");
        let none = json!({});
        let set = seen.objects.first().unwrap_or(&none);
        let counted = list(set, &["status", "replicatedJobsStatus"]);
        status["jobsStatus"] = if counted.is_empty() {
            let zero = |(_, step): (&Value, super::super::train_job::Step)| {
                let suspended = if is_suspended { step.replicas } else { 0 };
                json!({"name": step.name, "ready": 0, "succeeded": 0, "failed": 0, "active": 0, "suspended": suspended})
            };
            runtime_steps(job).map(zero).collect()
        } else {
            counted.into()
        };
        for (of_set, kind) in [("Completed", "Complete"), ("Failed", "Failed")] {
            if let Some(known) = true_condition(set, of_set) {
                let [reason, message] =
                    ["reason", "message"].map(|field| known[field].as_str().unwrap_or_default());
                seen.set(&mut status, &Condition { kind, is_true: true, reason, message });
            }
        }
        status
    }
}
