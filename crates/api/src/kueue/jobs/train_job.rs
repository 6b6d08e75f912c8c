//! `TrainJobs`: their pods are described by a runtime, a `TrainingRuntime` or `ClusterTrainingRuntime`, which a job changes by its
//! trainer and its patches. What an admission adds is a patch, too. After `pkg/controller/jobs/trainjob` of Kueue v0.19 and
//! `pkg/runtime` of Kubeflow Trainer v2.2.

use serde_json::{Map, Value, json};

use super::declared::{sum, true_condition};
use super::{
    Finished, Injection, InjectionError, Integration, JobKind, Operator, REFERENCED, Reference,
    ReferencedKind, topology,
};
use crate::appwrapper::components::{COMPLETION_INDEX, JOB_INDEX};
use crate::kueue::status::ReclaimablePods;
use crate::value::{at, count, list, text};

/// The row of `TrainJobs`.
pub(super) const TRAIN_JOB: JobKind = JobKind {
    framework: "trainer.kubeflow.org/trainjob",
    api_version: RUNTIMES[0].api_version,
    kind: "TrainJob",
    plural: "trainjobs",
    integration: &TrainJob,
};

/// The manager of the patch with what an admission adds.
pub(crate) const PATCH_MANAGER: &str = "kueue.x-k8s.io/manager";
/// The kinds of runtimes.
const RUNTIMES: [ReferencedKind; 2] = [
    ReferencedKind {
        api_version: "trainer.kubeflow.org/v1alpha1",
        kind: "TrainingRuntime",
        plural: "trainingruntimes",
        is_namespaced: true,
    },
    ReferencedKind {
        api_version: "trainer.kubeflow.org/v1alpha1",
        kind: "ClusterTrainingRuntime",
        plural: "clustertrainingruntimes",
        is_namespaced: false,
    },
];
/// The label of a replicated Job with the step that it is of its `TrainJob`.
const STEP: &str = "trainer.kubeflow.org/trainjob-ancestor-step";
/// The step that trains.
const TRAINER: &str = "trainer";
/// Steps of which there is one Job, whatever the runtime says.
const SINGLE: [&str; 3] = [TRAINER, "dataset-initializer", "model-initializer"];
/// The container that trains, and the replicated Job of the nodes of MPI.
const NODE: &str = "node";

#[derive(Debug)]
pub(super) struct TrainJob;

/// A replicated Job of a runtime, as a `TrainJob` has it.
pub(super) struct Step {
    pub(super) name: String,
    pub(super) replicas: u32,
    /// The pods of each of its Jobs.
    pub(super) pods: u32,
    /// The template of its Jobs.
    job: Value,
}

impl Integration for TrainJob {
    fn operator(&self) -> Option<&dyn Operator> {
        Some(self)
    }

    fn references(&self) -> &'static [ReferencedKind] {
        &RUNTIMES
    }

    fn reference(&self, job: &Value) -> Option<Reference> {
        let runtime = &job["spec"]["runtimeRef"];
        let kind = text(runtime, &["kind"]).unwrap_or(RUNTIMES[1].kind);
        let at = RUNTIMES.iter().position(|known| known.kind == kind)?;
        let namespace = if at == 0 { job["metadata"]["namespace"].as_str()? } else { "" };
        Some(Reference { at, namespace: namespace.into(), name: text(runtime, &["name"])?.into() })
    }

    fn is_described(&self, job: &Value) -> bool {
        !list(job, &[REFERENCED, "spec", "template", "spec", "replicatedJobs"]).is_empty()
    }

    fn pod_sets(&self, job: &Value) -> Vec<Value> {
        let set = |mut step: Step| {
            let pods = step.replicas.saturating_mul(step.pods);
            let template = step.job["spec"]["template"].take();
            let index = Some(COMPLETION_INDEX);
            let request = topology::request_in_sub_groups(&template, index, JOB_INDEX, step.replicas);
            json!({"name": step.name, "count": pods, "template": template, "topologyRequest": request})
        };
        steps(job).map(set).collect()
    }

    fn templates(&self, _: &Value) -> Vec<String> {
        Vec::new()
    }

    fn injects_beside_templates(&self) -> bool {
        true
    }

    /// The trainer refuses other patches of a job that runs.
    fn changes_suspended_only(&self) -> bool {
        true
    }

    fn inject(&self, job: &mut Value, injections: &[Injection]) -> Result<(), InjectionError> {
        let expected = steps(job).count();
        if expected != injections.len() {
            return Err(InjectionError::Sets { expected, found: injections.len() });
        }
        let patch = |injection: &Injection| json!({"name": injection.name, "template": {"spec": {"template": injection.as_template()}}});
        let patches: Vec<Value> = injections.iter().map(patch).collect();
        set_patches(job, Some(patches));
        Ok(())
    }

    fn restore(&self, job: &mut Value, _: &[Value]) {
        set_patches(job, None);
    }

    fn has_conditions(&self) -> bool {
        true
    }

    fn is_active(&self, job: &Value) -> bool {
        sum(job, "/status/jobsStatus/*/active") != 0
    }

    fn are_pods_ready(&self, job: &Value) -> bool {
        let wanted: u64 = steps(job).map(|step| u64::from(step.replicas)).sum();
        let ready = ["ready", "succeeded"].map(|field| sum(job, &format!("/status/jobsStatus/*/{field}")));
        ready.iter().sum::<u64>() == wanted
    }

    fn finished(&self, job: &Value) -> Option<Finished> {
        let of = |name: &str, succeeded| {
            let message = true_condition(job, name)?["message"].as_str().unwrap_or_default().to_owned();
            Some(Finished { succeeded, message })
        };
        of("Complete", true).or_else(|| of("Failed", false))
    }

    fn reclaimable(&self, job: &Value) -> Vec<ReclaimablePods> {
        let known = list(job, &["status", "jobsStatus"]);
        let of = |step: Step| {
            let status = known.iter().find(|status| status["name"] == step.name)?;
            let succeeded = count(status, &["succeeded"], 0);
            let is_known = (1..=step.replicas).contains(&succeeded);
            is_known.then(|| ReclaimablePods { name: step.name, count: succeeded.saturating_mul(step.pods) })
        };
        steps(job).filter_map(of).collect()
    }
}

/// The replicated Jobs of the runtime, with the patches of the job but for that of its admission, and its trainer.
fn steps(job: &Value) -> impl Iterator<Item = Step> {
    runtime_steps(job).map(|(_, step)| step)
}

/// The same, beside what the runtime has.
pub(super) fn runtime_steps(job: &Value) -> impl Iterator<Item = (&Value, Step)> {
    let runtime = &job[REFERENCED]["spec"];
    let policy = &runtime["mlPolicy"];
    let of = move |replicated| {
        let name = text(replicated, &["name"]).unwrap_or_default();
        let mut template = at(replicated, &["template"]).clone();
        for patch in patches_of(job, name) {
            merge(&mut template, patch);
        }
        let step = text(&template, &["metadata", "labels", STEP]).unwrap_or_default().to_owned();
        let runs_as_node = policy["mpi"]["runLauncherAsNode"] == true && name == NODE;
        let pods = pods(job, policy, name, &step, &template);
        let replicas = if SINGLE.contains(&&*step) { 1 } else { count(replicated, &["replicas"], 1) };
        if !template["spec"].is_object() {
            template["spec"] = json!({});
        }
        let pod = &mut template["spec"]["template"];
        if step == TRAINER || runs_as_node {
            train(pod, &job["spec"]["trainer"], step == TRAINER);
        }
        (replicated, Step { name: name.to_lowercase(), replicas, pods, job: template })
    };
    list(runtime, &["template", "spec", "replicatedJobs"]).iter().map(of)
}

/// The template of the Jobs of a step, with what the admission adds.
pub(super) fn admitted_template(job: &Value, step: &Step) -> Value {
    let mut template = step.job.clone();
    let patches = list(job, &["spec", "runtimePatches"]).iter();
    let admitted = patches.filter(|patch| patch["manager"] == PATCH_MANAGER);
    for patch in admitted.flat_map(jobs_of_patch).filter(|patch| patch["name"] == step.name) {
        merge(&mut template, &patch["template"]);
    }
    template
}

/// The pods of a step: of the one that trains, as many as the job, or else the policy of the runtime, has nodes.
fn pods(job: &Value, policy: &Value, name: &str, step: &str, template: &Value) -> u32 {
    let written = count(template, &["spec", "parallelism"], 1);
    let of_runtime =
        if step == TRAINER && policy.is_object() { count(policy, &["numNodes"], 1) } else { written };
    let nodes = at(job, &["spec", "trainer", "numNodes"]);
    let by_name = policy["mpi"].is_object() || policy["flux"].is_object();
    let has_nodes = if by_name { name == NODE } else { step == TRAINER };
    if nodes.is_null() || !has_nodes {
        return of_runtime.max(1);
    }
    let nodes = count(nodes, &[], 1);
    // The launcher is one of them.
    let launchers = u32::from(policy["mpi"]["runLauncherAsNode"] == true);
    nodes.saturating_sub(launchers).max(1)
}

/// Changes the container that trains as the trainer of the job says.
fn train(pod: &mut Value, trainer: &Value, is_trainer: bool) {
    let containers = pod.pointer_mut("/spec/containers").and_then(Value::as_array_mut);
    let node = containers.into_iter().flatten().find(|container| container["name"] == NODE);
    let Some(node) = node.and_then(Value::as_object_mut) else { return };
    for field in ["image", "command", "args"].iter().filter(|_| is_trainer) {
        if !trainer[*field].is_null() {
            node.insert((*field).to_owned(), trainer[*field].clone());
        }
    }
    let mut resources = Map::new();
    for field in ["limits", "requests"] {
        if let Some(amounts) = trainer["resourcesPerNode"][field].as_object() {
            resources.insert(field.into(), amounts.clone().into());
        }
    }
    if !resources.is_empty() {
        node.insert("resources".into(), resources.into());
    }
    if let Some(variables) = trainer["env"].as_array() {
        let known = node.entry("env").or_insert_with(|| Value::Array(Vec::new()));
        merge_list("env", known, variables);
    }
}

/// The patches of a job for a replicated Job, but for that of its admission.
fn patches_of<'a>(job: &'a Value, name: &'a str) -> impl Iterator<Item = &'a Value> {
    let patches = list(job, &["spec", "runtimePatches"]).iter();
    let others = patches.filter(|patch| patch["manager"] != PATCH_MANAGER);
    others.flat_map(jobs_of_patch).filter(move |patch| patch["name"] == name).map(|patch| &patch["template"])
}

fn jobs_of_patch(patch: &Value) -> &[Value] {
    list(patch, &["trainingRuntimeSpec", "template", "spec", "replicatedJobs"])
}

/// Writes the patch with what an admission adds, or empties it.
fn set_patches(job: &mut Value, patches: Option<Vec<Value>>) {
    let Some(spec) = job.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let all = spec.entry("runtimePatches").or_insert_with(|| Value::Array(Vec::new()));
    let Some(all) = all.as_array_mut() else { return };
    let known = all.iter().position(|patch| patch["manager"] == PATCH_MANAGER);
    let Some(patches) = patches else {
        let spec = known.and_then(|at| all[at].pointer_mut("/trainingRuntimeSpec/template/spec"));
        spec.and_then(Value::as_object_mut).map(|spec| spec.remove("replicatedJobs"));
        return;
    };
    let patch = json!({"manager": PATCH_MANAGER,
        "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": patches}}}});
    match known {
        Some(at) => all[at] = patch,
        None => all.push(patch),
    }
}

/// Merges a patch of a Job template, with the merge keys of Kubernetes for the lists in pods.
fn merge(into: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else {
        *into = patch.clone();
        return;
    };
    if !into.is_object() {
        *into = Value::Object(Map::new());
    }
    for (field, value) in fields {
        let Some(into) = into.as_object_mut() else { return };
        match value {
            Value::Null => drop(into.remove(field)),
            Value::Array(items) => {
                merge_list(field, into.entry(field).or_insert_with(|| Value::Array(Vec::new())), items);
            }
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
                merge(into.entry(field).or_insert(Value::Null), value);
            }
        }
    }
}

fn merge_list(field: &str, into: &mut Value, patch: &[Value]) {
    let key = match field {
        "containers" | "initContainers" | "env" | "volumes" | "imagePullSecrets" | "schedulingGates" => {
            "name"
        }
        "volumeMounts" => "mountPath",
        _ => {
            *into = patch.into();
            return;
        }
    };
    if !into.is_array() {
        *into = Value::Array(Vec::new());
    }
    let Some(items) = into.as_array_mut() else { return };
    for patch in patch {
        match items.iter_mut().find(|item| item[key] == patch[key]) {
            Some(item) => merge(item, patch),
            None => items.push(patch.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_have_the_ranks_of_their_job_set() {
        let template =
            json!({"metadata": {"annotations": {"kueue.x-k8s.io/podset-required-topology": "rack"}}});
        let replicated = json!({"name": "node", "replicas": 2, "template": {"spec": {"template": template}}});
        let runtime = json!({"spec": {"template": {"spec": {"replicatedJobs": [replicated]}}}});
        let sets = TrainJob.pod_sets(&json!({ REFERENCED: runtime }));
        let ranks = json!({"required": "rack", "podIndexLabel": COMPLETION_INDEX, "subGroupIndexLabel": JOB_INDEX,
            "subGroupCount": 2});
        assert_eq!(sets[0]["topologyRequest"], ranks);
    }
}
