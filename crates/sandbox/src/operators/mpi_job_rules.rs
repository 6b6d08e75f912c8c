//! Decides what happens to the launcher and the workers of an `MPIJob`: a pure function of what was observed.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::job_set_rules::resumed;
use super::{MpiJob, text};
use crate::cluster::{Cached as _, Resource as _};
use crate::wire::{Condition, Job, Owner, Pod, Stamp, condition};
use crate::workloads::template;

/// The label of pods with the name of their job.
pub(super) const JOB_NAME: &str = "training.kubeflow.org/job-name";
const OPERATOR_NAME: &str = "training.kubeflow.org/operator-name";
const ROLE: &str = "training.kubeflow.org/job-role";
const INDEX: &str = "training.kubeflow.org/replica-index";

/// A job as decisions read it.
pub(super) struct Observed<'a> {
    pub(super) job: &'a MpiJob,
    pub(super) launcher: Option<Arc<Job>>,
    pub(super) launcher_pods: Vec<Arc<Pod>>,
    pub(super) workers: Vec<Arc<Pod>>,
    pub(super) now: Stamp,
}

/// A change of the launcher or of the workers.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    Create(Value),
    Delete(Arc<Pod>),
    Launch(Value),
    /// Removes the start time: the template of a Job that has one cannot change.
    Rewind(Arc<Job>),
    /// With this patch.
    Patch(Arc<Job>, Value),
}

/// What to do, and the new status.
pub(super) struct Decision {
    pub(super) steps: Vec<Step>,
    pub(super) status: Value,
    /// Whether it is a warning, reason and message.
    pub(super) events: Vec<(bool, String, String)>,
}

/// Decides about a job.
pub(super) fn decide(of: &Observed<'_>) -> Decision {
    let mut conditions = Conditions {
        list: serde_json::from_value(of.job.status["conditions"].clone()).unwrap_or_default(),
        events: Vec::new(),
        now: of.now,
    };
    let mut status = of.job.status.as_object().cloned().map_or_else(|| json!({}), Value::Object);
    if conditions.list.is_empty() {
        conditions.set("Created", true, "MPIJobCreated", of.text("is created."));
    }
    let mut steps = Vec::new();
    if conditions.have_ended() && !status["completionTime"].is_null() {
        if ["All", "Running"].contains(&text(&of.policy()["cleanPodPolicy"])) {
            steps = of.clean();
            status["replicaStatuses"]["Worker"] = json!({});
        }
    } else {
        let is_suspended = of.is_suspended();
        if !is_suspended && status["startTime"].is_null() {
            status["startTime"] = json!(of.now);
        }
        steps.extend(of.worker_steps());
        steps.extend(of.launcher_steps());
        if is_suspended {
            steps.extend(of.clean());
        }
        judge(of, &mut conditions, &mut status);
    }
    status["conditions"] = json!(conditions.list);
    Decision { steps, status, events: conditions.events }
}

/// The conditions of a job, with what is to be told about them.
struct Conditions {
    list: Vec<Condition>,
    events: Vec<(bool, String, String)>,
    now: Stamp,
}

impl Conditions {
    fn is(&self, kind: &str) -> bool {
        condition(&self.list, kind).is_some_and(|found| found.status == "True")
    }

    fn have_ended(&self) -> bool {
        self.is("Succeeded") || self.is("Failed")
    }

    /// Sets a condition, and tells when its status or its reason has changed.
    fn set(&mut self, kind: &str, is_true: bool, reason: &str, message: String) {
        let mut new = Condition::new(kind, is_true, reason, message.clone(), self.now);
        new.last_update_time = Some(self.now);
        if condition(&self.list, kind).is_some_and(|old| old.status == new.status && old.reason == reason) {
            return;
        }
        new.set_in(&mut self.list);
        self.events.push((kind == "Failed", reason.to_owned(), message));
        if kind == "Failed" || kind == "Succeeded" {
            for running in self.list.iter_mut().filter(|found| found.kind == "Running") {
                "False".clone_into(&mut running.status);
            }
        }
    }
}

fn has_ended(launcher: &Job, how: &str) -> bool {
    condition(&launcher.status.conditions, how).is_some_and(|found| found.status == "True")
}

impl Observed<'_> {
    fn policy(&self) -> &Value {
        &self.job.spec["runPolicy"]
    }

    fn is_suspended(&self) -> bool {
        self.policy()["suspend"] == true
    }

    fn text(&self, what: &str) -> String {
        let meta = self.job.meta();
        format!("MPIJob {}/{} {what}", meta.namespace, meta.name)
    }

    fn role(&self, role: &str) -> &Value {
        &self.job.spec["mpiReplicaSpecs"][role]
    }

    fn is_done(&self) -> bool {
        self.launcher.as_ref().is_some_and(|job| has_ended(job, "Complete") || has_ended(job, "Failed"))
    }

    /// The number of workers.
    fn wanted(&self) -> usize {
        let wanted = self.role("Worker")["replicas"].as_u64().unwrap_or(0);
        usize::try_from(wanted).unwrap_or(usize::MAX)
    }

    fn worker_name(&self, index: usize) -> String {
        format!("{}-worker-{index}", self.job.meta().name)
    }

    /// Deletes the workers; those that have ended stay if only the running ones are to go.
    fn clean(&self) -> Vec<Step> {
        let keeps_ended = self.policy()["cleanPodPolicy"] == "Running";
        let goes = |pod: &&Arc<Pod>| !(pod.metadata.is_deleting() || (keeps_ended && pod.is_finished()));
        self.workers.iter().filter(goes).cloned().map(Step::Delete).collect()
    }

    /// Creates the workers that are missing, and deletes those that are too many.
    fn worker_steps(&self) -> Vec<Step> {
        if self.is_done() || self.is_suspended() {
            return Vec::new();
        }
        let names: Vec<String> = (0..self.wanted()).map(|index| self.worker_name(index)).collect();
        let is_known = |name: &String| self.workers.iter().any(|pod| pod.metadata.name == *name);
        let missing = names.iter().enumerate().filter(|(_, name)| !is_known(name));
        let mut steps: Vec<Step> = missing.map(|(index, _)| Step::Create(self.worker(index))).collect();
        let surplus = self.workers.iter().filter(|pod| !names.contains(&pod.metadata.name));
        steps.extend(surplus.filter(|pod| !pod.metadata.is_deleting()).cloned().map(Step::Delete));
        steps
    }

    fn launcher_steps(&self) -> Option<Step> {
        let Some(launcher) = &self.launcher else {
            let ready = self.workers.iter().filter(|pod| pod.is_ready()).count();
            let waits = self.job.spec["launcherCreationPolicy"] == "WaitForWorkersReady";
            let wanted = if self.is_suspended() { 0 } else { self.wanted() };
            return (!waits || ready == wanted).then(|| Step::Launch(self.launcher_job()));
        };
        match (self.is_suspended(), launcher.spec.suspend) {
            _ if launcher.metadata.is_deleting() || self.is_done() => None,
            (true, false) => Some(Step::Patch(launcher.clone(), json!({"spec": {"suspend": true}}))),
            (false, true) if launcher.status.start_time.is_some() => Some(Step::Rewind(launcher.clone())),
            (false, true) => Some(Step::Patch(launcher.clone(), resumed(&self.template("Launcher", None)))),
            _ => None,
        }
    }

    /// The template of a role, or of one of the workers, as the operator completes it.
    fn template(&self, role: &str, worker: Option<usize>) -> Value {
        let name = &self.job.meta().name;
        let launches_as_worker = self.job.spec["runLauncherAsWorker"] == true;
        let mut of_role = self.role(role)["template"].clone();
        let labels = [
            (OPERATOR_NAME, "mpi-operator".to_owned()),
            (JOB_NAME, name.clone()),
            (ROLE, role.to_lowercase()),
        ];
        template::set_metadata(&mut of_role, "labels", labels);
        // The launcher is the first one then.
        let index = worker.map_or(0, |index| index + usize::from(launches_as_worker));
        if worker.is_some() || launches_as_worker {
            template::set_metadata(&mut of_role, "labels", [(INDEX, index.to_string())]);
        }
        let default = if role == "Launcher" { "OnFailure" } else { "Never" };
        let policy = match text(&self.role(role)["restartPolicy"]) {
            "" => default,
            "ExitCode" => "Never",
            policy => policy,
        };
        let host = worker.map_or_else(|| format!("{name}-launcher"), |index| self.worker_name(index));
        of_role["spec"]["restartPolicy"] = json!(policy);
        of_role["spec"]["hostname"] = json!(host);
        of_role["spec"]["subdomain"] = json!(name);
        of_role
    }

    fn worker(&self, index: usize) -> Value {
        template::named_pod(&self.template("Worker", Some(index)), self.job, &self.worker_name(index))
    }

    fn launcher_job(&self) -> Value {
        let meta = self.job.meta();
        let mut spec = json!({"template": self.template("Launcher", None), "suspend": self.is_suspended()});
        for field in ["ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit"] {
            if !self.policy()[field].is_null() {
                spec[field] = self.policy()[field].clone();
            }
        }
        let owner = Owner::controller_of(MpiJob::KIND.api_version, MpiJob::KIND.name, meta);
        json!({"apiVersion": "batch/v1", "kind": "Job", "spec": spec, "metadata": {
            "name": format!("{}-launcher", meta.name), "namespace": meta.namespace,
            "labels": {"app": meta.name}, "ownerReferences": [owner]}})
    }
}

/// Judges whether the job waits, runs or has ended, and counts its pods.
fn judge(of: &Observed<'_>, conditions: &mut Conditions, status: &mut Value) {
    let is_suspended = of.is_suspended();
    if is_suspended {
        conditions.set("Suspended", true, "MPIJobSuspended", "MPIJob suspended".into());
    } else if conditions.is("Suspended") {
        conditions.set("Suspended", false, "MPIJobResumed", "MPIJob resumed".into());
        status["startTime"] = json!(of.now);
    }
    let launchers = of.launcher_pods.iter().filter(|pod| pod.is_running()).count();
    if let Some(launcher) = &of.launcher {
        let mut shown = Map::new();
        if launcher.status.failed > 0 {
            shown.insert("failed".into(), json!(launcher.status.failed));
        }
        if has_ended(launcher, "Complete") {
            shown.insert("succeeded".into(), json!(1));
            status["completionTime"] = json!(launcher.status.completion_time.unwrap_or(of.now));
            conditions.set("Succeeded", true, "MPIJobSucceeded", of.text("successfully completed."));
        } else if has_ended(launcher, "Failed") {
            let failed = condition(&launcher.status.conditions, "Failed");
            let (reason, message) =
                failed.map_or(("", ""), |failed| (failed.reason.as_str(), failed.message.as_str()));
            let reason = if reason.is_empty() { "MPIJobFailed" } else { reason };
            let message = if message.is_empty() { of.text("has failed") } else { message.to_owned() };
            status["completionTime"] = json!(of.now);
            conditions.set("Failed", true, reason, message);
        } else if launchers > 0 {
            shown.insert("active".into(), json!(launchers));
        }
        status["replicaStatuses"]["Launcher"] = shown.into();
    }
    let counted: &[Arc<Pod>] = if is_suspended || of.is_done() { &[] } else { &of.workers };
    let count = |phase: &str| counted.iter().filter(|pod| pod.status.phase == phase).count();
    let running = count("Running");
    let phases = [("active", running), ("succeeded", count("Succeeded")), ("failed", count("Failed"))];
    let shown = phases.into_iter().filter(|(_, count)| *count > 0);
    status["replicaStatuses"]["Worker"] =
        shown.map(|(field, count)| (field.to_owned(), json!(count))).collect::<Map<_, _>>().into();
    let evicted = counted.iter().filter(|pod| pod.status.reason == "Evicted").count();
    if evicted > 0 {
        let message = format!("{evicted}/{} workers are evicted", counted.len());
        conditions.set("Failed", true, "MPIJobEvicted", message);
    }
    if is_suspended {
        conditions.set("Running", false, "MPIJobSuspended", of.text("is suspended."));
    } else if !conditions.have_ended() && launchers > 0 && running == of.wanted() {
        conditions.set("Running", true, "MPIJobRunning", of.text("is running."));
    }
}
