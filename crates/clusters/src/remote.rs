//! The next write about a Workload in one worker: a function of what was observed. Only what has the label of this hub is observed there, so
//! nothing else is changed.

use api::kueue::jobs::remote::copied_metadata;
use api::kueue::status::{ADMITTED, EVICTED, FINISHED};
use api::kueue::workload::API_VERSION;
use controllers::Whole;
use serde_json::{Value, json};

use crate::hub::{JobOf, Local, status_of};
use crate::objects::Objects;
use crate::watch::Key;
use crate::worker::is_copy_of;

/// A write in a worker.
#[derive(Debug)]
pub(crate) enum RemoteWrite {
    CreateWorkload(Box<Value>),
    /// Brings the priority up to date.
    PatchWorkload(Box<Whole>, Value),
    DeleteWorkload(Box<Whole>),
    /// Copies a job of the hub, for a Workload.
    CreateJob(JobOf, Key),
    /// Deletes a job of the kind at this position.
    DeleteJob(usize, Box<Whole>),
}

/// What a worker has to have of a Workload.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Desired {
    Nothing,
    Workload,
    Job(JobOf),
}

fn desired(objects: &Objects, local: Option<&Local<'_>>, cluster: &str) -> Desired {
    let Some(local) = local.filter(|local| local.is_dispatched()) else { return Desired::Nothing };
    match (&local.status.cluster_name, local.job()) {
        (Some(chosen), Ok(job)) if chosen == cluster => Desired::Job(job),
        (Some(chosen), Err(_)) if chosen == cluster => Desired::Workload,
        (Some(_), _) => Desired::Nothing,
        (None, _) => {
            let is_nominated = local.status.nominated_cluster_names.iter().any(|name| name == cluster);
            if is_nominated && local.check(&objects.hub).is_some() {
                Desired::Workload
            } else {
                Desired::Nothing
            }
        }
    }
}

/// The next write. A worker that is not connected gets none.
pub(crate) fn decide(objects: &Objects, key: &Key, cluster: &str) -> Option<RemoteWrite> {
    let worker = objects.workers.get(cluster)?;
    worker.client()?;
    let local = objects.hub.local(key);
    let desired = desired(objects, local.as_ref(), cluster);
    let there = worker.workloads.get(key);
    let mut jobs = worker.jobs_of(key).filter(|(_, job)| !job.metadata.is_deleting());
    let (Some(local), true) = (&local, desired != Desired::Nothing) else {
        // The job goes first: without its Workload, it might start.
        let job = worker.jobs_of(key).next();
        return match job {
            Some((kind, job)) if !job.metadata.is_deleting() => {
                Some(RemoteWrite::DeleteJob(kind, Box::new(job.clone())))
            }
            Some(_) => None,
            None => delete(there),
        };
    };
    let wanted = match &desired {
        Desired::Job(job) => Some(job),
        Desired::Nothing | Desired::Workload => None,
    };
    let is_stale = |job: &Whole| wanted.is_none_or(|wanted| !is_copy_of(job, &wanted.uid));
    if let Some((kind, job)) = jobs.find(|(_, job)| is_stale(job)) {
        return Some(RemoteWrite::DeleteJob(kind, Box::new(job.clone())));
    }
    let Some(there) = there else {
        // Of the chosen cluster, it is gone for good: the state of the check says so.
        let is_wanted = wanted.is_none() && worker.jobs_of(key).next().is_none();
        return is_wanted.then(|| RemoteWrite::CreateWorkload(Box::new(workload(local, &objects.origin))));
    };
    if !is_copy_of(there, local.uid()) || is_other(&local.whole.value["spec"], &there.value["spec"]) {
        return delete(Some(there));
    }
    if let Some(patch) = priority(&local.whole.value["spec"], &there.value["spec"]) {
        return Some(RemoteWrite::PatchWorkload(Box::new(there.clone()), patch));
    }
    let wanted = wanted.filter(|_| worker.jobs_of(key).next().is_none())?;
    let status = status_of(there);
    let runs = status.is(ADMITTED) && !status.is(EVICTED) && !status.is(FINISHED);
    // A job that was there and is gone does not begin again by itself.
    let is_new = local.check(&objects.hub).is_some_and(|check| check.state == "Pending");
    (runs && is_new).then(|| RemoteWrite::CreateJob(wanted.clone(), key.clone()))
}

fn delete(there: Option<&Whole>) -> Option<RemoteWrite> {
    let there =
        there.filter(|there| !there.metadata.is_deleting() || !there.metadata.finalizers.is_empty())?;
    Some(RemoteWrite::DeleteWorkload(Box::new(there.clone())))
}

/// The copy of a Workload.
fn workload(local: &Local<'_>, origin: &str) -> Value {
    let value = &local.whole.value;
    let mut spec = value["spec"].clone();
    if let Some(spec) = spec.as_object_mut() {
        // Each cluster has gates of its own.
        spec.remove("preemptionGates");
    }
    json!({"apiVersion": API_VERSION, "kind": "Workload", "metadata": copied_metadata(value, origin), "spec": spec})
}

/// The fields of a spec that may change while a Workload has quota.
const CHANGEABLE: [&str; 4] = ["priority", "priorityClassRef", "preemptionGates", "active"];

/// Whether a Workload asks for something else there. Defaults that the worker has added are no difference.
fn is_other(local: &Value, there: &Value) -> bool {
    let fields = local.as_object().into_iter().flatten();
    let mut decisive = fields.filter(|(field, _)| !CHANGEABLE.contains(&field.as_str()));
    decisive.any(|(field, value)| !contains(&there[field], value))
}

/// Whether a value has everything that another one has.
fn contains(there: &Value, wanted: &Value) -> bool {
    match (there, wanted) {
        (Value::Object(there), Value::Object(wanted)) => wanted.iter().all(|(field, value)| {
            value.is_null() || contains(there.get(field).unwrap_or(&Value::Null), value)
        }),
        (Value::Array(there), Value::Array(wanted)) => {
            there.len() == wanted.len()
                && there.iter().zip(wanted).all(|(there, wanted)| contains(there, wanted))
        }
        // Empty lists and objects are left out by some versions.
        (Value::Null, Value::Array(wanted)) => wanted.is_empty(),
        (Value::Null, Value::Object(wanted)) => wanted.is_empty(),
        _ => there == wanted,
    }
}

fn priority(local: &Value, there: &Value) -> Option<Value> {
    let fields = ["priority", "priorityClassRef"];
    let is_same = fields.iter().all(|field| local[*field].is_null() || local[*field] == there[*field]);
    (!is_same).then(|| {
        let changed = fields.iter().map(|field| ((*field).to_owned(), local[*field].clone()));
        Value::Object(changed.filter(|(_, value)| !value.is_null()).collect())
    })
}
