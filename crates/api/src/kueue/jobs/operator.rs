//! The other side of jobs, for simulated clusters: what the operator of a kind makes of its jobs, and what it says about them. It
//! writes what an [`Integration`](super::Integration) reads.
//!
//! - `declared`: the kinds that are described by where their fields are
//! - `train_job`, `spark`, `app_wrapper`: the others

mod app_wrapper;
mod declared;
mod spark;
mod train_job;

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value, json};

use super::Integration;
pub use app_wrapper::WRAPPER_LABEL;

/// The label of a simulated pod with its pod set.
const SET: &str = "sandbox.muster.dev/pod-set";

/// A printer column: name, type, path.
pub type Column = (&'static str, &'static str, &'static str);

/// The operator of a kind of jobs.
pub trait Operator: fmt::Debug + Sync {
    /// Short names of the resource.
    fn short_names(&self) -> &'static [&'static str] {
        &[]
    }
    /// What `kubectl get` prints beside name and age.
    fn columns(&self) -> &'static [Column] {
        &[("State", "string", ".status.conditions[-1:].type")]
    }
    /// Schemas of those fields of a spec that have defaults.
    fn spec_fields(&self) -> Value {
        json!({})
    }
    /// Objects that come with the operator.
    fn presets(&self) -> Vec<Value> {
        Vec::new()
    }
    /// The value of `spec.managedBy` of the jobs that are its own; others have no value.
    fn manager(&self) -> Option<&'static str> {
        None
    }
    /// The label of pods with the name of their job, where other objects own them.
    fn pod_label(&self) -> Option<&'static str> {
        None
    }
    /// The objects of a job: those that it may have.
    fn objects(&self, job: &Value, seen: &Seen<'_>) -> Vec<Value>;
    /// Whether a job that is not suspended has this one of its objects now.
    fn wants(&self, _job: &Value, _seen: &Seen<'_>, _object: &Value) -> bool {
        true
    }
    /// The status of a job.
    fn status(&self, job: &Value, seen: &Seen<'_>) -> Value;
}

/// What there is of a job.
#[derive(Debug, Default)]
pub struct Seen<'a> {
    /// Its objects that are no pods.
    pub objects: Vec<Value>,
    /// Its pods.
    pub pods: Vec<SeenPod<'a>>,
    /// The most pods that a pod set gets.
    pub most_pods: u32,
    /// The time, as in a condition.
    pub now: String,
}

/// A pod of a job.
#[derive(Debug, Clone, Copy)]
pub struct SeenPod<'a> {
    /// Name.
    pub name: &'a str,
    /// Labels.
    pub labels: &'a BTreeMap<String, String>,
    /// Phase.
    pub phase: &'a str,
    /// Whether it is ready.
    pub is_ready: bool,
    /// Whether no other object is between it and the job.
    pub is_own: bool,
}

/// A condition to be set.
struct Condition<'a> {
    kind: &'a str,
    is_true: bool,
    reason: &'a str,
    message: &'a str,
}

impl SeenPod<'_> {
    /// Whether it was made for this pod set.
    fn is_of(&self, set: &str) -> bool {
        self.labels.get(SET).is_some_and(|label| label == set)
    }

    fn has_ended(&self) -> bool {
        self.phase == "Succeeded" || self.phase == "Failed"
    }
}

impl Seen<'_> {
    /// The pods of a phase.
    fn in_phase(&self, phase: &str) -> usize {
        self.pods.iter().filter(|pod| pod.phase == phase).count()
    }

    /// Sets a condition in a status. The time stays if its value does.
    fn set(&self, status: &mut Value, condition: &Condition<'_>) {
        let Condition { kind, is_true, reason, message } = *condition;
        if !status["conditions"].is_array() {
            status["conditions"] = json!([]);
        }
        let Some(known) = status["conditions"].as_array_mut() else { return };
        let value = if is_true { "True" } else { "False" };
        let mut next = json!({"type": kind, "status": value, "reason": reason, "message": message,
            "lastTransitionTime": self.now});
        match known.iter_mut().find(|known| known["type"] == kind) {
            Some(known) => {
                if known["status"] == value {
                    next["lastTransitionTime"] = known["lastTransitionTime"].clone();
                }
                *known = next;
            }
            None => known.push(next),
        }
    }

    /// Says whether a job is suspended; nothing of one that never was.
    fn set_suspended(&self, status: &mut Value, is_suspended: bool, kind: &str) {
        let was =
            status["conditions"].as_array().is_some_and(|all| all.iter().any(|c| c["type"] == "Suspended"));
        if is_suspended || was {
            let (reason, what) =
                if is_suspended { ("Suspended", "is suspended") } else { ("Resumed", "is resumed") };
            let message = format!("{kind} {what}");
            self.set(
                status,
                &Condition { kind: "Suspended", is_true: is_suspended, reason, message: &message },
            );
        }
    }
}

/// The status of a job as it is, to be changed.
fn known_status(job: &Value) -> Value {
    let known = job["status"].clone();
    if known.is_object() { known } else { Value::Object(Map::new()) }
}

fn name(job: &Value) -> &str {
    job["metadata"]["name"].as_str().unwrap_or_default()
}

/// A pod of a template. It ends, unless its template says otherwise.
fn pod(name: &str, set: &str, template: &Value) -> Value {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": template["metadata"], "spec": template["spec"]});
    if !pod["metadata"].is_object() {
        pod["metadata"] = json!({});
    }
    pod["metadata"]["name"] = name.into();
    label(&mut pod, SET, set);
    if pod["spec"]["restartPolicy"].is_null() {
        pod["spec"]["restartPolicy"] = "Never".into();
    }
    pod
}

/// Adds a label to an object or a template.
fn label(object: &mut Value, key: &str, value: &str) {
    super::set_at(object, &["metadata", "labels", key], value.into());
}

/// The pods of a job whose operator makes them by itself: those of its pod sets, each with its index.
fn pods(job: &Value, integration: &dyn Integration, most: u32) -> Vec<Value> {
    let of_set = |set: Value| {
        let set_name = set["name"].as_str().unwrap_or_default().to_owned();
        let count = u32::try_from(set["count"].as_u64().unwrap_or(0)).unwrap_or(u32::MAX);
        let of_index = move |index: u32| {
            let mut pod = pod(&format!("{}-{set_name}-{index}", name(job)), &set_name, &set["template"]);
            if let Some(key) = integration.index_label() {
                label(&mut pod, key, &index.to_string());
            }
            pod
        };
        (0..count.min(most)).map(of_index).collect::<Vec<_>>()
    };
    integration.pod_sets(job).into_iter().flat_map(of_set).collect()
}
