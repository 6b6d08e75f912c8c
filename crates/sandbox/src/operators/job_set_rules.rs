//! Decides what happens to the Jobs of a `JobSet`: a pure function of what was observed.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{JobSet, items, text};
use crate::cluster::Resource as _;
use crate::wire::{Condition, Job, Owner, Stamp, condition};

/// The label of a Job with the number of restarts before it.
const RESTARTS: &str = "jobset.sigs.k8s.io/restart-attempt";
/// The label of a Job with the replicated Job that it is a copy of.
const REPLICATED: &str = "jobset.sigs.k8s.io/replicatedjob-name";

/// A change of the Jobs.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    Create(Value),
    Suspend(Arc<Job>),
    /// Removes the start time: the template of a Job that has one cannot change.
    Rewind(Arc<Job>),
    /// With this patch of its spec.
    Resume(Arc<Job>, Value),
    Delete(Arc<Job>),
    /// Deletes the `JobSet`: its time after the end is over.
    Expire,
}

/// What to do, and the new status.
pub(super) struct Decision {
    pub(super) steps: Vec<Step>,
    pub(super) status: Value,
    /// Reason and message; whether it is a warning.
    pub(super) events: Vec<(bool, &'static str, &'static str)>,
    /// Seconds until time alone changes something.
    pub(super) wake_s: Option<i64>,
}

/// The Jobs of the present attempt, by their outcome.
struct Children {
    active: Vec<Arc<Job>>,
    succeeded: Vec<Arc<Job>>,
    failed: Vec<Arc<Job>>,
    /// Of earlier attempts.
    old: Vec<Arc<Job>>,
}

fn is(job: &Job, kind: &str) -> bool {
    condition(&job.status.conditions, kind).is_some_and(|found| found.status == "True")
}

fn replicated(job: &Job) -> &str {
    job.metadata.label(REPLICATED).unwrap_or_default()
}

impl Children {
    fn of(jobs: &[Arc<Job>], restarts: i64) -> Self {
        let mut all = Self { active: Vec::new(), succeeded: Vec::new(), failed: Vec::new(), old: Vec::new() };
        for job in jobs {
            let attempt = job.metadata.label(RESTARTS).and_then(|attempt| attempt.parse().ok()).unwrap_or(0);
            let list = if attempt < restarts {
                &mut all.old
            } else if is(job, "Complete") {
                &mut all.succeeded
            } else if is(job, "Failed") {
                &mut all.failed
            } else {
                &mut all.active
            };
            list.push(job.clone());
        }
        all
    }

    /// The status of a replicated Job.
    fn count(&self, name: &str) -> Value {
        let of = |list: &[Arc<Job>], check: fn(&Job) -> bool| {
            list.iter().filter(|job| replicated(job) == name && check(job)).count()
        };
        let is_ready = |job: &Job| {
            let wanted = job.spec.parallelism.unwrap_or(1).min(job.spec.completions.unwrap_or(i64::MAX));
            job.status.succeeded + job.status.ready.unwrap_or(0) >= wanted
        };
        json!({
            "name": name,
            "ready": of(&self.active, is_ready),
            "succeeded": of(&self.succeeded, |_| true),
            "failed": of(&self.failed, |_| true),
            "active": of(&self.active, |job| job.status.active > 0),
            "suspended": of(&self.active, |job| job.spec.suspend),
        })
    }
}

/// Decides about a `JobSet` with these Jobs.
pub(super) fn decide(set: &JobSet, jobs: &[Arc<Job>], now: Stamp) -> Decision {
    let restarts = set.status["restarts"].as_i64().unwrap_or(0);
    let children = Children::of(jobs, restarts);
    let declared = items(&set.spec["replicatedJobs"]);
    let mut decision =
        Decision { steps: Vec::new(), status: set.status.clone(), events: Vec::new(), wake_s: None };
    if !decision.status.is_object() {
        decision.status = Value::Object(Map::new());
    }
    decision.status["restarts"] = restarts.into();
    let counts: Vec<Value> = declared.iter().map(|job| children.count(text(&job["name"]))).collect();
    decision.status["replicatedJobsStatus"] = counts.clone().into();
    let mut conditions: Vec<Condition> =
        serde_json::from_value(set.status["conditions"].clone()).unwrap_or_default();
    let ended = conditions.iter().find(|c| ["Completed", "Failed"].contains(&&*c.kind) && c.status == "True");
    if let Some(ended) = ended {
        decision.steps =
            children.active.iter().filter(|job| is_there(job)).cloned().map(Step::Delete).collect();
        if let Some(ttl) = set.spec["ttlSecondsAfterFinished"].as_i64() {
            let since = ended.last_transition_time.unwrap_or(now).0;
            let left = ttl - now.0.duration_since(since).as_secs();
            decision.wake_s = (left > 0).then_some(left);
            if left <= 0 {
                decision.steps.push(Step::Expire);
            }
        }
        return decision;
    }
    decision.steps = children.old.iter().filter(|job| is_there(job)).cloned().map(Step::Delete).collect();
    let mut tell = |kind: &str, is_true: bool, reason: &'static str, message: &'static str| {
        let told = Condition::new(kind, is_true, reason, message, now);
        if told.set_in(&mut conditions) {
            decision.events.push((kind == "Failed", reason, message));
        }
    };
    if !children.failed.is_empty() {
        let most = set.spec["failurePolicy"]["maxRestarts"].as_i64().unwrap_or(0);
        if !set.spec["failurePolicy"].is_object() {
            tell("Failed", true, "FailedJobs", "jobset failed due to one or more job failures");
            decision.status["terminalState"] = json!("Failed");
        } else if restarts >= most {
            let why = "jobset failed due to reaching max number of restarts";
            tell("Failed", true, "ReachedMaxRestarts", why);
            decision.status["terminalState"] = json!("Failed");
        } else {
            decision.status["restarts"] = (restarts + 1).into();
            decision.events.push((true, "Restarting", "jobs are started again after a failure"));
        }
    } else if has_succeeded(set, declared, &children) {
        tell("Completed", true, "AllJobsCompleted", "jobset completed successfully");
        decision.status["terminalState"] = json!("Completed");
    } else if set.spec["suspend"] == true {
        let running = children.active.iter().filter(|job| !job.spec.suspend).filter(|job| is_there(job));
        decision.steps.extend(running.cloned().map(Step::Suspend));
        decision.steps.extend(missing(set, jobs, declared, restarts, &counts));
        tell("Suspended", true, "SuspendedJobs", "jobset is suspended");
    } else {
        let all_run = resume(set, &children, declared, &counts, &mut decision.steps);
        decision.steps.extend(missing(set, jobs, declared, restarts, &counts));
        let was_suspended = set.status["conditions"]
            .as_array()
            .is_some_and(|known| known.iter().any(|c| c["type"] == "Suspended" && c["status"] == "True"));
        if all_run && was_suspended {
            tell("Suspended", false, "ResumeJobs", "jobset is resumed");
        }
    }
    decision.status["conditions"] = json!(conditions);
    decision
}

fn is_there(job: &Arc<Job>) -> bool {
    !job.metadata.is_deleting()
}

/// Whether all Jobs, or one of those that count, have succeeded.
fn has_succeeded(set: &JobSet, declared: &[Value], children: &Children) -> bool {
    let policy = &set.spec["successPolicy"];
    let targets = items(&policy["targetReplicatedJobs"]);
    let counts = |name: &str| targets.is_empty() || targets.iter().any(|target| target == name);
    let succeeded = children.succeeded.iter().filter(|job| counts(replicated(job))).count();
    let wanted: usize = match text(&policy["operator"]) {
        "Any" => 1,
        _ => declared.iter().filter(|job| counts(text(&job["name"]))).map(replicas).sum(),
    };
    succeeded >= wanted
}

fn replicas(job: &Value) -> usize {
    job["replicas"].as_u64().and_then(|count| usize::try_from(count).ok()).unwrap_or(1)
}

/// Whether a replicated Job may start: those before it have, if they start in order, and those that it depends on.
fn is_due(set: &JobSet, at: usize, declared: &[Value], counts: &[Value]) -> bool {
    let has = |at: usize, fields: &[&str]| {
        let found: u64 = fields.iter().filter_map(|field| counts[at][*field].as_u64()).sum();
        usize::try_from(found).is_ok_and(|found| found >= replicas(&declared[at]))
    };
    let in_order = set.spec["startupPolicy"]["startupPolicyOrder"] == "InOrder";
    let before_are_ready = || (0..at).all(|before| has(before, &["ready", "succeeded", "failed"]));
    let reached = |needed: &Value| {
        let position = declared.iter().position(|job| job["name"] == needed["name"]);
        let fields: &[&str] =
            if needed["status"] == "Complete" { &["succeeded"] } else { &["ready", "succeeded"] };
        position.is_none_or(|position| has(position, fields))
    };
    (!in_order || before_are_ready()) && items(&declared[at]["dependsOn"]).iter().all(reached)
}

/// Resumes the Jobs that may start. Returns whether no other is left.
fn resume(
    set: &JobSet,
    children: &Children,
    declared: &[Value],
    counts: &[Value],
    steps: &mut Vec<Step>,
) -> bool {
    let mut all_run = true;
    for (at, job) in declared.iter().enumerate() {
        let of = children.active.iter().filter(|child| replicated(child) == text(&job["name"]));
        for child in of.filter(|child| child.spec.suspend).filter(|job| is_there(job)) {
            if !is_due(set, at, declared, counts) {
                all_run = false;
            } else if child.status.start_time.is_some() {
                steps.push(Step::Rewind(child.clone()));
                all_run = false;
            } else {
                steps.push(Step::Resume(child.clone(), resumed(&job["template"]["spec"]["template"])));
            }
        }
    }
    all_run
}

/// The patch of a Job that resumes: what may have changed in its template while it was suspended.
pub(super) fn resumed(template: &Value) -> Value {
    let mut changed = json!({"metadata": {}, "spec": {}});
    for (part, fields) in [
        ("metadata", &["labels", "annotations"][..]),
        ("spec", &["nodeSelector", "tolerations", "schedulingGates"]),
    ] {
        for field in fields.iter().filter(|field| !template[part][**field].is_null()) {
            changed[part][*field] = template[part][*field].clone();
        }
    }
    json!({"spec": {"suspend": false, "template": changed}})
}

/// The Jobs that are not there.
fn missing(
    set: &JobSet,
    jobs: &[Arc<Job>],
    declared: &[Value],
    restarts: i64,
    counts: &[Value],
) -> Vec<Step> {
    let is_suspended = set.spec["suspend"] == true;
    let mut steps = Vec::new();
    let mut first = 0;
    for (at, declared_job) in declared.iter().enumerate() {
        for index in 0..replicas(declared_job) {
            let name = format!("{}-{}-{index}", set.metadata.name, text(&declared_job["name"]));
            let is_known = jobs.iter().any(|job| job.metadata.name == name);
            if !is_known && (is_suspended || is_due(set, at, declared, counts)) {
                let labels = labels(set, declared_job, index, first + index, restarts);
                steps.push(Step::Create(job(set, declared_job, &name, &labels)));
            }
        }
        first += replicas(declared_job);
    }
    steps
}

fn labels(set: &JobSet, job: &Value, index: usize, global: usize, restarts: i64) -> Map<String, Value> {
    let all: usize = items(&set.spec["replicatedJobs"]).iter().map(replicas).sum();
    let labels = [
        ("jobset-name", set.metadata.name.clone()),
        ("jobset-uid", set.metadata.uid.clone()),
        ("replicatedjob-name", text(&job["name"]).to_owned()),
        ("replicatedjob-replicas", replicas(job).to_string()),
        ("global-replicas", all.to_string()),
        ("job-index", index.to_string()),
        ("job-global-index", global.to_string()),
        ("restart-attempt", restarts.to_string()),
    ];
    labels.into_iter().map(|(key, value)| (format!("jobset.sigs.k8s.io/{key}"), value.into())).collect()
}

/// A Job, with the defaults of a `JobSet`.
fn job(set: &JobSet, declared: &Value, name: &str, labels: &Map<String, Value>) -> Value {
    let mut spec = declared["template"]["spec"].clone();
    if !spec.is_object() {
        spec = json!({});
    }
    spec["suspend"] = (set.spec["suspend"] == true).into();
    if spec["completionMode"].is_null() {
        spec["completionMode"] = json!("Indexed");
    }
    if spec["template"]["spec"]["restartPolicy"].is_null() {
        spec["template"]["spec"]["restartPolicy"] = json!("OnFailure");
    }
    if set.spec["network"]["enableDNSHostnames"] != false {
        let subdomain = set.spec["network"]["subdomain"].as_str().unwrap_or(&set.metadata.name);
        spec["template"]["spec"]["subdomain"] = json!(subdomain);
    }
    let with_labels = |metadata: &Value| {
        let mut metadata = metadata.as_object().cloned().unwrap_or_default();
        for field in ["labels", "annotations"] {
            let mut all = metadata.get(field).and_then(Value::as_object).cloned().unwrap_or_default();
            all.extend(labels.clone());
            metadata.insert(field.into(), all.into());
        }
        metadata
    };
    spec["template"]["metadata"] = with_labels(&spec["template"]["metadata"]).into();
    let mut metadata = with_labels(&declared["template"]["metadata"]);
    metadata.insert("name".into(), name.into());
    metadata.insert("namespace".into(), set.metadata.namespace.clone().into());
    let owner = Owner::controller_of(JobSet::KIND.api_version, JobSet::KIND.name, &set.metadata);
    metadata.insert("ownerReferences".into(), json!([owner]));
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})
}
