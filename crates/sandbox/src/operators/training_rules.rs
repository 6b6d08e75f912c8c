//! Decides what happens to the pods of a job of the training operator: a pure function of what was observed.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::text;
use crate::cluster::Kind;
use crate::wire::{Condition, Meta, Pod, Stamp};

/// The label of a pod with its role.
const ROLE: &str = "training.kubeflow.org/replica-type";
/// The label of a pod with its index in the role.
const INDEX: &str = "training.kubeflow.org/replica-index";

/// A kind of jobs of the training operator.
pub(super) struct TrainingKind {
    pub(super) kind: Kind,
    /// The field with the roles.
    pub(super) field: &'static str,
    /// The roles, in the order in which their pods are created.
    pub(super) roles: &'static [&'static str],
    /// The roles whose end is that of the job, if the job has one of them.
    leaders: &'static [&'static str],
    /// Without a leader, the job ends with its first worker, not with the last.
    ends_with_first_worker: bool,
    /// What happens by default when a container ends with an error.
    restart_policy: &'static str,
}

/// The position of a kind in [`KINDS`].
pub(crate) const PYTORCH: usize = 0;
/// The position of a kind in [`KINDS`].
pub(crate) const TENSORFLOW: usize = 1;
/// The position of a kind in [`KINDS`].
pub(crate) const XGBOOST: usize = 2;
/// The position of a kind in [`KINDS`].
pub(crate) const PADDLE: usize = 3;
/// The position of a kind in [`KINDS`].
pub(crate) const JAX: usize = 4;

/// The kinds.
pub(super) const KINDS: [TrainingKind; 5] = [
    TrainingKind {
        kind: Kind::training("PyTorchJob", "pytorchjobs"),
        field: "pytorchReplicaSpecs",
        roles: &["Master", "Worker"],
        leaders: &["Master"],
        ends_with_first_worker: false,
        restart_policy: "OnFailure",
    },
    TrainingKind {
        kind: Kind::training("TFJob", "tfjobs"),
        field: "tfReplicaSpecs",
        roles: &["Chief", "Master", "PS", "Worker", "Evaluator"],
        leaders: &["Chief", "Master"],
        ends_with_first_worker: true,
        restart_policy: "Never",
    },
    TrainingKind {
        kind: Kind::training("XGBoostJob", "xgboostjobs"),
        field: "xgbReplicaSpecs",
        roles: &["Master", "Worker"],
        leaders: &["Master"],
        ends_with_first_worker: false,
        restart_policy: "Never",
    },
    TrainingKind {
        kind: Kind::training("PaddleJob", "paddlejobs"),
        field: "paddleReplicaSpecs",
        roles: &["Master", "Worker"],
        leaders: &["Master"],
        ends_with_first_worker: false,
        restart_policy: "OnFailure",
    },
    TrainingKind {
        kind: Kind::training("JAXJob", "jaxjobs"),
        field: "jaxReplicaSpecs",
        roles: &["Worker"],
        leaders: &[],
        ends_with_first_worker: false,
        restart_policy: "OnFailure",
    },
];

/// A job as decisions read it.
pub(super) struct Observed<'a> {
    pub(super) kind: &'static TrainingKind,
    pub(super) metadata: &'a Meta,
    pub(super) spec: &'a Value,
    pub(super) status: &'a Value,
    pub(super) pods: &'a [Arc<Pod>],
    pub(super) now: Stamp,
}

/// A pod to create.
#[derive(Debug, PartialEq)]
pub(super) struct NewPod {
    pub(super) name: String,
    pub(super) template: Value,
    pub(super) labels: Vec<(&'static str, String)>,
}

/// What to do, and the new status.
pub(super) struct Decision {
    pub(super) create: Vec<NewPod>,
    pub(super) delete: Vec<Arc<Pod>>,
    pub(super) status: Value,
    /// Whether it is a warning, reason and message.
    pub(super) events: Vec<(bool, String, String)>,
    /// The time after the end of the job is over.
    pub(super) is_expired: bool,
    /// Seconds until time alone changes something.
    pub(super) wake_s: Option<i64>,
}

/// A role of a job.
struct Role<'a> {
    name: &'static str,
    wanted: usize,
    restart_policy: &'a str,
    template: &'a Value,
}

/// The pods of a role, by phase.
#[derive(Clone, Copy, Default)]
struct Counts {
    running: usize,
    succeeded: usize,
    failed: usize,
}

fn role_of(pod: &Pod) -> (&str, Option<usize>) {
    let index = pod.metadata.label(INDEX).and_then(|index| index.parse().ok());
    (pod.metadata.label(ROLE).unwrap_or_default(), index)
}

impl Observed<'_> {
    fn roles(&self) -> Vec<Role<'_>> {
        let roles = self.kind.roles.iter();
        let role = |name: &&'static str| {
            let spec = self.spec[self.kind.field][*name].as_object()?;
            let wanted = spec.get("replicas").and_then(Value::as_u64).unwrap_or(1);
            let policy =
                spec.get("restartPolicy").and_then(Value::as_str).filter(|policy| !policy.is_empty());
            Some(Role {
                name,
                wanted: usize::try_from(wanted).unwrap_or(usize::MAX),
                restart_policy: policy.unwrap_or(self.kind.restart_policy),
                template: spec.get("template").unwrap_or(&Value::Null),
            })
        };
        roles.filter_map(role).collect()
    }

    fn pods_of(&self, role: &str) -> impl Iterator<Item = &Arc<Pod>> {
        let name = role.to_lowercase();
        self.pods.iter().filter(move |pod| role_of(pod).0 == name)
    }

    fn counts(&self, role: &str) -> Counts {
        let mut counts = Counts::default();
        for pod in self.pods_of(role).filter(|pod| !pod.metadata.is_deleting()) {
            match &*pod.status.phase {
                "Running" => counts.running += 1,
                "Succeeded" => counts.succeeded += 1,
                "Failed" => counts.failed += 1,
                _ => {}
            }
        }
        counts
    }

    fn reason(&self, what: &str) -> String {
        format!("{}{what}", self.kind.kind.name)
    }

    fn text(&self, what: &str) -> String {
        format!("{} {} {what}", self.kind.kind.name, self.metadata.name)
    }
}

/// The conditions of a job, with what is to be told about them.
struct Conditions<'a> {
    of: &'a Observed<'a>,
    list: Vec<Condition>,
    events: Vec<(bool, String, String)>,
}

impl Conditions<'_> {
    fn is(&self, kind: &str) -> bool {
        self.list.iter().any(|found| found.kind == kind && found.status == "True")
    }

    /// Sets a condition, and ends those that it excludes.
    fn set(&mut self, kind: &str, is_true: bool, what: &str, message: String) {
        let reason = self.of.reason(what);
        let now = self.of.now;
        let mut condition = Condition::new(kind, is_true, &reason, message.clone(), now);
        condition.last_update_time = Some(now);
        if condition.set_in(&mut self.list) {
            self.events.push((kind == "Restarting", reason, message));
        }
        match kind {
            "Running" => self.list.retain(|found| found.kind != "Restarting"),
            "Restarting" => self.list.retain(|found| found.kind != "Running"),
            "Succeeded" | "Failed" => {
                for running in
                    self.list.iter_mut().filter(|found| found.kind == "Running" && found.status == "True")
                {
                    "False".clone_into(&mut running.status);
                    running.last_transition_time = Some(now);
                }
            }
            _ => {}
        }
    }
}

/// Decides about a job.
pub(super) fn decide(of: &Observed<'_>) -> Decision {
    let known = serde_json::from_value(of.status["conditions"].clone()).unwrap_or_default();
    let mut conditions = Conditions { of, list: known, events: Vec::new() };
    let mut decision = Decision {
        create: Vec::new(),
        delete: Vec::new(),
        status: of.status.clone(),
        events: Vec::new(),
        is_expired: false,
        wake_s: None,
    };
    if !decision.status.is_object() {
        decision.status = Value::Object(Map::new());
    }
    if conditions.list.is_empty() {
        conditions.set("Created", true, "Created", of.text("is created."));
    }
    if conditions.is("Succeeded") || conditions.is("Failed") {
        end(of, &mut decision);
        return decision;
    }
    let policy = &of.spec["runPolicy"];
    let is_alive = |pod: &&Arc<Pod>| !pod.metadata.is_deleting();
    if policy["suspend"] == true {
        decision.delete = of.pods.iter().filter(is_alive).cloned().collect();
        if conditions.is("Running") {
            conditions.set("Running", false, "Suspended", of.text("is suspended."));
        }
        conditions.set("Suspended", true, "Suspended", of.text("is suspended."));
        let none: Map<String, Value> = of.roles().iter().map(|role| (role.name.into(), json!({}))).collect();
        decision.status["replicaStatuses"] = none.into();
    } else {
        if conditions.is("Suspended") {
            conditions.set("Suspended", false, "Resumed", of.text("is resumed."));
            decision.status["startTime"] = json!(of.now);
        }
        if decision.status["startTime"].is_null() {
            decision.status["startTime"] = json!(of.now);
        }
        place_pods(of, &mut decision);
        judge(of, &mut conditions, &mut decision.status);
        let roles = of.roles();
        let counted: Map<String, Value> =
            roles.iter().map(|role| (role.name.into(), shown(of.counts(role.name)))).collect();
        decision.status["replicaStatuses"] = counted.into();
        let deadline = policy["activeDeadlineSeconds"].as_i64();
        let started: Option<Stamp> = serde_json::from_value(decision.status["startTime"].clone()).ok();
        if let Some((deadline, started)) = deadline.zip(started) {
            let left = deadline - of.now.0.duration_since(started.0).as_secs();
            decision.wake_s = (left > 0).then_some(left);
            if left <= 0 && !conditions.is("Succeeded") {
                let why = "has failed because it was active longer than specified deadline";
                conditions.set("Failed", true, "Failed", format!("Job {} {why}", of.metadata.name));
                decision.delete = of.pods.iter().filter(is_alive).cloned().collect();
                decision.create.clear();
            }
        }
        if (conditions.is("Succeeded") || conditions.is("Failed"))
            && decision.status["completionTime"].is_null()
        {
            decision.status["completionTime"] = json!(of.now);
            decision.create.clear();
        }
    }
    decision.status["conditions"] = json!(conditions.list);
    decision.events = conditions.events;
    decision
}

/// The status of a role. Zero is left out.
fn shown(counts: Counts) -> Value {
    let fields = [("active", counts.running), ("succeeded", counts.succeeded), ("failed", counts.failed)];
    let shown = fields.into_iter().filter(|(_, count)| *count > 0);
    shown.map(|(field, count)| (field.to_owned(), Value::from(count))).collect::<Map<_, _>>().into()
}

/// What is left to do about a job that has ended.
fn end(of: &Observed<'_>, decision: &mut Decision) {
    let policy = &of.spec["runPolicy"];
    let clean = text(&policy["cleanPodPolicy"]);
    let is_cleaned = |pod: &&Arc<Pod>| {
        !pod.metadata.is_deleting() && (clean == "All" || (clean == "Running" && !pod.is_finished()))
    };
    decision.delete = of.pods.iter().filter(is_cleaned).cloned().collect();
    let ended: Option<Stamp> = serde_json::from_value(of.status["completionTime"].clone()).ok();
    if let Some((ttl, ended)) = policy["ttlSecondsAfterFinished"].as_i64().zip(ended) {
        let left = ttl - of.now.0.duration_since(ended.0).as_secs();
        decision.is_expired = left <= 0;
        decision.wake_s = (left > 0).then_some(left);
    }
}

/// Creates the pods that are missing, and deletes those that are too many or start again.
fn place_pods(of: &Observed<'_>, decision: &mut Decision) {
    for role in of.roles() {
        for index in 0..role.wanted {
            let known = of.pods_of(role.name).find(|pod| role_of(pod).1 == Some(index));
            match known {
                None => decision.create.push(new_pod(of, &role, index)),
                Some(pod)
                    if pod.status.phase == "Failed"
                        && role.restart_policy != "Never"
                        && !pod.metadata.is_deleting() =>
                {
                    decision.delete.push(pod.clone());
                }
                Some(_) => {}
            }
        }
        let too_many =
            of.pods_of(role.name).filter(|pod| role_of(pod).1.is_none_or(|index| index >= role.wanted));
        decision.delete.extend(too_many.filter(|pod| !pod.metadata.is_deleting()).cloned());
    }
}

fn new_pod(of: &Observed<'_>, role: &Role<'_>, index: usize) -> NewPod {
    let name = role.name.to_lowercase();
    let mut labels = vec![
        ("training.kubeflow.org/job-name", of.metadata.name.clone()),
        ("training.kubeflow.org/operator-name", format!("{}-controller", of.kind.kind.name.to_lowercase())),
        (ROLE, name.clone()),
        (INDEX, index.to_string()),
    ];
    let leads = of.kind.leaders.contains(&role.name)
        || (role.name == "Worker"
            && index == 0
            && !of.roles().iter().any(|role| of.kind.leaders.contains(&role.name)));
    if leads {
        labels.push(("training.kubeflow.org/job-role", "master".into()));
    }
    let mut template = role.template.clone();
    if !template.is_object() {
        template = json!({});
    }
    // The operator replaces pods by itself if the exit code decides.
    let policy = if role.restart_policy == "ExitCode" { "Never" } else { role.restart_policy };
    template["spec"]["restartPolicy"] = json!(policy);
    NewPod { name: format!("{}-{name}-{index}", of.metadata.name), template, labels }
}

/// Judges whether the job runs, has succeeded or has failed.
fn judge(of: &Observed<'_>, conditions: &mut Conditions<'_>, status: &mut Value) {
    let roles = of.roles();
    let leader = roles.iter().find(|role| of.kind.leaders.contains(&role.name));
    let decisive = leader.or_else(|| roles.iter().find(|role| role.name == "Worker"));
    if let Some(role) = decisive {
        let counts = of.counts(role.name);
        let first_has = || {
            let mut pods = of.pods_of(role.name);
            pods.any(|pod| role_of(pod).1 == Some(0) && pod.status.phase == "Succeeded")
        };
        let ends_with_first = leader.is_none() && of.kind.ends_with_first_worker;
        if counts.running > 0 {
            conditions.set("Running", true, "Running", of.text("is running."));
        }
        if counts.succeeded >= role.wanted || (ends_with_first && first_has()) {
            conditions.set("Succeeded", true, "Succeeded", of.text("is successfully completed."));
            status["completionTime"] = json!(of.now);
            return;
        }
    }
    for role in &roles {
        let counts = of.counts(role.name);
        if counts.failed == 0 || role.wanted <= counts.succeeded + counts.running {
            continue;
        }
        let failed = format!("because {} {} replica(s) failed.", counts.failed, role.name);
        if role.restart_policy == "Never" {
            conditions.set("Failed", true, "Failed", of.text(&format!("is failed {failed}")));
        } else {
            conditions.set("Restarting", true, "Restarting", of.text(&format!("is restarting {failed}")));
        }
    }
}
