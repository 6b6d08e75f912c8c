//! The comparable form of a sample's objects: objects by names that do not differ between runs, as a fixed number of answers.
//!
//! The answers: 1 the responses to the documents; 2 `RayJobs`; 3 `RayClusters`; 4 pods; 5 Services; 6 Jobs; 7 other objects that the
//! operators create (Secrets, `ServiceAccounts`, Roles, `RoleBindings`, Ingresses); 8 the events of `RayJobs` and `RayClusters`. A deleted
//! object is shown in its last state, with `"gone": true`.

use std::collections::{BTreeMap, BTreeSet};

use differential::answer::Answer;
use differential::normalise::Names;
use serde_json::{Map, Value, json};

use super::run::SampleRun;
use crate::objects::name;

/// The titles of answers 2 to 7, and the suffixes of their collections' paths.
const KINDS: [(&str, &[&str]); 6] = [
    ("RayJobs", &["/rayjobs"]),
    ("RayClusters", &["/rayclusters"]),
    ("pods", &["/pods"]),
    ("Services", &["/services"]),
    ("Jobs", &["/jobs"]),
    ("others", &["/secrets", "/serviceaccounts", "/roles", "/rolebindings", "/ingresses"]),
];

pub(super) fn answers(run: &SampleRun) -> Vec<Answer> {
    let mut names = Names::new(vec![(run.namespace.clone(), "<ns>".to_owned())]);
    let jobs = of(run, &["/rayjobs"]);
    for (_, job) in &jobs {
        for (field, shown) in [("rayClusterName", "cluster"), ("jobId", "job-id")] {
            if let Some(generated) = job["status"][field].as_str().filter(|text| !text.is_empty()) {
                names.own(generated, shown);
            }
        }
        if job["metadata"]["generateName"].is_string() {
            names.own(name(job), "job");
        }
    }
    // Statuses of earlier answers have names of pods, so the names are registered first.
    let mut pods = of(run, &["/pods"]);
    pods.sort_by_key(|(key, pod)| (stable(pod), (*key).clone()));
    names.body(&mut pods.into_iter().map(|(_, pod)| pod.clone()).collect());
    let mut answers = vec![answer("documents", json!(run.applied), &mut names)];
    for (title, paths) in KINDS {
        let mut body = Map::new();
        let mut objects = of(run, paths);
        objects.sort_by_key(|(key, object)| (stable(object), (*key).clone()));
        for (key, object) in objects.into_iter().filter(|(_, object)| is_compared(object)) {
            let mut object = object.clone();
            if !run.present.contains(key) {
                object["gone"] = json!(true);
            }
            if let (true, Some(fields)) = (is_given(&object), object.as_object_mut()) {
                fields.remove("spec");
            }
            // The real operator appends ports to a user's own Service in the random order of a Go map.
            if let Some(ports) = object["spec"]["ports"].as_array_mut().filter(|_| title == "Services") {
                ports.sort_by_key(|port| port["name"].as_str().unwrap_or_default().to_owned());
            }
            let mut at = stable(&object);
            while body.contains_key(&at) {
                at.push('+');
            }
            body.insert(at, object);
        }
        answers.push(answer(title, Value::Object(body), &mut names));
    }
    answers.push(events(run, &mut names));
    answers
}

fn answer(title: &str, mut body: Value, names: &mut Names) -> Answer {
    names.body(&mut body);
    Answer { request: title.to_owned(), status: 200, content_type: String::new(), warnings: Vec::new(), body }
}

fn of<'a>(run: &'a SampleRun, ends: &[&str]) -> Vec<(&'a (&'static str, String), &'a Value)> {
    run.objects.iter().filter(|((path, _), _)| ends.iter().any(|end| path.ends_with(end))).collect()
}

/// Whether the sample has the object: its spec then shows the defaults of the API server, not the work of the operator.
fn is_given(object: &Value) -> bool {
    super::is_ray(object) && object["metadata"]["ownerReferences"].is_null()
}

/// Whether an object is a `RayJob` or a `RayCluster`, or is owned by one or by a Job.
fn is_compared(object: &Value) -> bool {
    let owners = object["metadata"]["ownerReferences"].as_array();
    let mut owners = owners.into_iter().flatten().filter_map(|owner| owner["kind"].as_str());
    super::is_ray(object) || owners.any(|kind| matches!(kind, "RayJob" | "RayCluster" | "Job"))
}

/// A name of an object that is equal in all runs: for pods their Ray cluster, group and index, otherwise the name.
fn stable(object: &Value) -> String {
    let labels = &object["metadata"]["labels"];
    let label = |name: &str| labels[name].as_str().unwrap_or_default().to_owned();
    if labels["ray.io/group"].is_string() {
        let number = |name: &str| label(name).parse::<u64>().map_or(String::new(), |at| format!(" {at:03}"));
        let (replica, host) =
            (number("ray.io/worker-group-replica-index"), number("ray.io/replica-host-index"));
        return format!("{} {}{replica}{host}", label("ray.io/cluster"), label("ray.io/group"));
    }
    if labels["batch.kubernetes.io/job-name"].is_string() {
        return format!("pod of {}", label("batch.kubernetes.io/job-name"));
    }
    name(object).to_owned()
}

/// The distinct events of `RayJobs` and `RayClusters`. Their counts depend on the timing of the operator's reconciles.
fn events(run: &SampleRun, names: &mut Names) -> Answer {
    let of_ray =
        |event: &&Value| matches!(event["involvedObject"]["kind"].as_str(), Some("RayJob" | "RayCluster"));
    let mut events: Vec<Value> = run
        .events
        .iter()
        .filter(of_ray)
        .map(|event| {
            let object = &event["involvedObject"];
            json!({
                "object": format!("{} {}", object["kind"].as_str().unwrap_or_default(), name_of(object)),
                "type": event["type"], "reason": event["reason"], "message": event["message"],
                "source": event["source"]["component"],
            })
        })
        .collect();
    for event in &mut events {
        names.body(event);
    }
    let lines: BTreeSet<(String, String)> = events
        .iter()
        .map(|event| (format!("{} {}", event["object"], event["reason"]).replace('"', ""), event.to_string()))
        .collect();
    let mut body: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for (key, event) in lines {
        body.entry(key).or_default().push(serde_json::from_str(&event).unwrap_or_default());
    }
    answer("events", json!(body), names)
}

fn name_of(reference: &Value) -> &str {
    reference["name"].as_str().unwrap_or_default()
}
