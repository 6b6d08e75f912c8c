//! Kinds of jobs that are described by where their fields are: `JobSets`, the kinds of the training operator, `MPIJobs`. After
//! `pkg/controller/jobs/{jobset,kubeflow,mpijob}` of Kueue v0.19.

use serde_json::{Value, json};

use super::{Finished, Integration, JobKind, Operator, topology};
use crate::appwrapper::components::{COMPLETION_INDEX, JOB_INDEX};
use crate::kueue::status::ReclaimablePods;
use crate::value::{count, list};

/// Where the fields of a kind of jobs are. All paths are JSON pointers.
#[derive(Debug)]
pub(super) struct Declared {
    /// The flag that suspends a job.
    pub(super) suspend: &'static str,
    pub(super) pod_sets: PodSets,
    /// The label of the pods with their index in the pod set, if they have one.
    pub(super) index_label: Option<&'static str>,
    /// The label of the pods with the index of their unit, the first factor of the count of a pod set, if `index_label` is an index
    /// in a unit.
    pub(super) sub_group_label: Option<&'static str>,
    /// The name of the priority class of its pods, if it is not in their templates alone.
    pub(super) priority_class: Option<&'static str>,
    /// The numbers of running pods. `*` in a path stands for every element of a list or every value of an object.
    pub(super) active: &'static str,
    pub(super) ready: Ready,
    /// The condition of a job that has succeeded. The condition `Failed` is that of one that has not.
    pub(super) succeeded: &'static str,
    pub(super) ended: Option<Ended>,
}

/// The pod sets of a job.
#[derive(Debug)]
pub(super) struct PodSets {
    /// The list or object of them.
    pub(super) at: &'static str,
    /// Of an object: its keys, in the order of the pod sets, whose names they are.
    pub(super) keys: &'static [&'static str],
    /// The number of pods: the product of these factors. Each is the least of the fields that are set, or 1.
    pub(super) count: &'static [&'static [&'static str]],
    pub(super) template: &'static str,
}

/// When all pods of a job are ready.
#[derive(Debug)]
pub(super) enum Ready {
    /// When this condition is true.
    Condition(&'static str),
    /// When these numbers, added up, are the wanted ones.
    Numbers { wanted: &'static str, ready: &'static [&'static str] },
}

/// Where a job says how many units of a pod set, the first factor of its count, have succeeded.
#[derive(Debug)]
pub(super) struct Ended {
    /// A list of objects with the field `name`, the name of a pod set.
    pub(super) at: &'static str,
    pub(super) field: &'static str,
}

/// The row of `JobSets`.
pub(super) const JOB_SET: JobKind = JobKind {
    framework: "jobset.x-k8s.io/jobset",
    api_version: "jobset.x-k8s.io/v1alpha2",
    kind: "JobSet",
    plural: "jobsets",
    integration: &Declared {
        suspend: "/spec/suspend",
        pod_sets: PodSets {
            at: "/spec/replicatedJobs",
            keys: &[],
            count: &[&["/replicas"], &["/template/spec/parallelism", "/template/spec/completions"]],
            template: "/template/spec/template",
        },
        index_label: Some(COMPLETION_INDEX),
        sub_group_label: Some(JOB_INDEX),
        priority_class: None,
        active: "/status/replicatedJobsStatus/*/active",
        ready: Ready::Numbers {
            wanted: "/spec/replicatedJobs/*/replicas",
            ready: &["/status/replicatedJobsStatus/*/ready", "/status/replicatedJobsStatus/*/succeeded"],
        },
        succeeded: "Completed",
        ended: Some(Ended { at: "/status/replicatedJobsStatus", field: "/succeeded" }),
    },
};

/// The row of `JAXJobs`.
pub(super) const JAX_JOB: JobKind =
    training("kubeflow.org/jaxjob", "JAXJob", "jaxjobs", &of_training("/spec/jaxReplicaSpecs", &["Worker"]));

/// The row of `PaddleJobs`.
pub(super) const PADDLE_JOB: JobKind = training(
    "kubeflow.org/paddlejob",
    "PaddleJob",
    "paddlejobs",
    &of_training("/spec/paddleReplicaSpecs", &["Master", "Worker"]),
);

/// The row of `PyTorchJobs`.
pub(super) const PYTORCH_JOB: JobKind = training(
    "kubeflow.org/pytorchjob",
    "PyTorchJob",
    "pytorchjobs",
    &of_training("/spec/pytorchReplicaSpecs", &["Master", "Worker"]),
);

/// The row of `TFJobs`.
pub(super) const TF_JOB: JobKind = training(
    "kubeflow.org/tfjob",
    "TFJob",
    "tfjobs",
    &of_training("/spec/tfReplicaSpecs", &["Chief", "Master", "PS", "Worker", "Evaluator"]),
);

/// The row of `XGBoostJobs`.
pub(super) const XGBOOST_JOB: JobKind = training(
    "kubeflow.org/xgboostjob",
    "XGBoostJob",
    "xgboostjobs",
    &of_training("/spec/xgbReplicaSpecs", &["Master", "Worker"]),
);

/// The row of `MPIJobs`.
pub(super) const MPI_JOB: JobKind = JobKind {
    framework: "kubeflow.org/mpijob",
    api_version: "kubeflow.org/v2beta1",
    kind: "MPIJob",
    plural: "mpijobs",
    integration: &of_training("/spec/mpiReplicaSpecs", &["Launcher", "Worker"]),
};

const fn training(
    framework: &'static str,
    kind: &'static str,
    plural: &'static str,
    integration: &'static Declared,
) -> JobKind {
    JobKind { framework, api_version: "kubeflow.org/v1", kind, plural, integration }
}

/// A kind of the training operator.
const fn of_training(at: &'static str, keys: &'static [&'static str]) -> Declared {
    Declared {
        suspend: "/spec/runPolicy/suspend",
        pod_sets: PodSets { at, keys, count: &[&["/replicas"]], template: "/template" },
        index_label: Some("training.kubeflow.org/replica-index"),
        sub_group_label: None,
        priority_class: Some("/spec/runPolicy/schedulingPolicy/priorityClass"),
        active: "/status/replicaStatuses/*/active",
        ready: Ready::Condition("Running"),
        succeeded: "Succeeded",
        ended: None,
    }
}

impl PodSets {
    /// The name of each pod set, and where it is.
    pub(super) fn found(&self, job: &Value) -> Vec<(String, String)> {
        match job.pointer(self.at) {
            Some(Value::Array(sets)) => {
                let name = |set: &Value| set["name"].as_str().unwrap_or_default().to_lowercase();
                sets.iter().enumerate().map(|(at, set)| (name(set), format!("{}/{at}", self.at))).collect()
            }
            Some(Value::Object(sets)) => {
                let present = self.keys.iter().filter(|key| sets.get(**key).is_some_and(Value::is_object));
                present.map(|key| (key.to_lowercase(), format!("{}/{key}", self.at))).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The product of factors of a pod set, each the least of its fields that are set.
    pub(super) fn product(factors: &[&[&str]], set: &Value) -> u32 {
        let least = |fields: &&[&str]| {
            let given = fields.iter().filter_map(|field| set.pointer(field).filter(|found| !found.is_null()));
            given.map(|given| count(given, &[], 1)).min().unwrap_or(1)
        };
        factors.iter().map(least).fold(1, u32::saturating_mul)
    }
}

impl Integration for Declared {
    fn operator(&self) -> Option<&dyn Operator> {
        Some(self)
    }

    fn suspend_field(&self) -> &'static str {
        self.suspend
    }

    fn pod_sets(&self, job: &Value) -> Vec<Value> {
        let set = |(name, at): (String, String)| {
            let set = job.pointer(&at).unwrap_or(&Value::Null);
            let pods = PodSets::product(self.pod_sets.count, set);
            let template = set.pointer(self.pod_sets.template);
            let mut pod_set = json!({"name": name, "count": pods, "template": template});
            if let (Some(label), Some(units)) = (self.sub_group_label, self.pod_sets.count.first()) {
                let groups = PodSets::product(&[units], set);
                let template = &pod_set["template"];
                let request = topology::request_in_sub_groups(template, self.index_label, label, groups);
                pod_set["topologyRequest"] = request;
            }
            pod_set
        };
        self.pod_sets.found(job).into_iter().map(set).collect()
    }

    fn index_label(&self) -> Option<&'static str> {
        self.index_label
    }

    fn templates(&self, job: &Value) -> Vec<String> {
        let sets = self.pod_sets.found(job).into_iter();
        sets.map(|(_, at)| format!("{at}{}", self.pod_sets.template)).collect()
    }

    fn priority_class<'a>(&self, job: &'a Value) -> Option<&'a str> {
        job.pointer(self.priority_class?)?.as_str().filter(|name| !name.is_empty())
    }

    fn has_conditions(&self) -> bool {
        true
    }

    fn is_active(&self, job: &Value) -> bool {
        sum(job, self.active) != 0
    }

    fn are_pods_ready(&self, job: &Value) -> bool {
        match self.ready {
            Ready::Condition(name) => true_condition(job, name).is_some(),
            Ready::Numbers { wanted, ready } => {
                sum(job, wanted) == ready.iter().map(|path| sum(job, path)).sum::<u64>()
            }
        }
    }

    fn finished(&self, job: &Value) -> Option<Finished> {
        let of = |name: &str, succeeded| {
            let message = true_condition(job, name)?["message"].as_str().unwrap_or_default().to_owned();
            Some(Finished { succeeded, message })
        };
        of(self.succeeded, true).or_else(|| of("Failed", false))
    }

    fn reclaimable(&self, job: &Value) -> Vec<ReclaimablePods> {
        let Some(ended) = &self.ended else { return Vec::new() };
        let known = job.pointer(ended.at).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let Some((units, per_unit)) = self.pod_sets.count.split_first() else { return Vec::new() };
        let of = |(name, at): (String, String)| {
            let set = job.pointer(&at)?;
            let status = known.iter().find(|status| status["name"] == set["name"])?;
            let succeeded = count(status.pointer(ended.field)?, &[], 0);
            let is_known = (1..=PodSets::product(&[units], set)).contains(&succeeded);
            let pods = succeeded.saturating_mul(PodSets::product(per_unit, set));
            is_known.then_some(ReclaimablePods { name, count: pods })
        };
        self.pod_sets.found(job).into_iter().filter_map(of).collect()
    }
}

/// A condition of a job that is true.
pub(super) fn true_condition<'a>(job: &'a Value, name: &str) -> Option<&'a Value> {
    let conditions = list(job, &["status", "conditions"]);
    conditions.iter().find(|condition| condition["type"] == name && condition["status"] == "True")
}

/// The sum of the numbers at a path, in which `*` stands for all elements or values.
pub(super) fn sum(value: &Value, path: &str) -> u64 {
    let Some((before, after)) = path.split_once("/*") else {
        return value.pointer(path).and_then(Value::as_u64).unwrap_or(0);
    };
    match value.pointer(before) {
        Some(Value::Array(items)) => items.iter().map(|item| sum(item, after)).sum(),
        Some(Value::Object(fields)) => fields.values().map(|field| sum(field, after)).sum(),
        _ => 0,
    }
}
