//! What is compared of a sample: its objects by names that do not differ from run to run, as a fixed number of answers.
//!
//! The answers: 1 which documents were taken; 2 `RayJobs`; 3 `RayClusters`; 4 pods; 5 Services; 6 Jobs; 7 what else the operators make
//! (Secrets, accounts, roles, bindings, Ingresses); 8 the events of `RayJobs` and `RayClusters`. Objects that are gone are told
//! as they were before, with `"gone": true`.

use std::collections::{BTreeMap, BTreeSet};

use differential::answer::Answer;
use differential::normalise::Names;
use serde_json::{Map, Value, json};

use super::story::Story;
use crate::objects::name;

/// Titles of the looks and what the paths of their collections end with.
const LOOKS: [(&str, &[&str]); 6] = [
    ("RayJobs", &["/rayjobs"]),
    ("RayClusters", &["/rayclusters"]),
    ("pods", &["/pods"]),
    ("Services", &["/services"]),
    ("Jobs", &["/jobs"]),
    ("others", &["/secrets", "/serviceaccounts", "/roles", "/rolebindings", "/ingresses"]),
];

pub(super) fn answers(story: &Story) -> Vec<Answer> {
    let mut names = Names::new(vec![(story.namespace.clone(), "<ns>".to_owned())]);
    let jobs = of(story, &["/rayjobs"]);
    for (_, job) in &jobs {
        for (field, shown) in [("rayClusterName", "cluster"), ("jobId", "job-id")] {
            if let Some(drawn) = job["status"][field].as_str().filter(|drawn| !drawn.is_empty()) {
                names.own(drawn, shown);
            }
        }
        if job["metadata"]["generateName"].is_string() {
            names.own(name(job), "job");
        }
    }
    // Names of pods show before the pods do: in statuses.
    let mut pods = of(story, &["/pods"]);
    pods.sort_by_key(|(key, pod)| (stable(pod), (*key).clone()));
    names.body(&mut pods.into_iter().map(|(_, pod)| pod.clone()).collect());
    let mut answers = vec![answer("documents", json!(story.applied), &mut names)];
    for (title, paths) in LOOKS {
        let mut body = Map::new();
        let mut objects = of(story, paths);
        objects.sort_by_key(|(key, object)| (stable(object), (*key).clone()));
        for (key, object) in objects.into_iter().filter(|(_, object)| is_made(object)) {
            let mut object = object.clone();
            if !story.present.contains(key) {
                object["gone"] = json!(true);
            }
            if let (true, Some(fields)) = (is_given(&object), object.as_object_mut()) {
                fields.remove("spec");
            }
            // The original appends to those of a user's own Service in the order of a Go map.
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
    answers.push(events(story, &mut names));
    answers
}

fn answer(title: &str, mut body: Value, names: &mut Names) -> Answer {
    names.body(&mut body);
    Answer { request: title.to_owned(), status: 200, content_type: String::new(), warnings: Vec::new(), body }
}

fn of<'a>(story: &'a Story, ends: &[&str]) -> Vec<(&'a (&'static str, String), &'a Value)> {
    story.objects.iter().filter(|((path, _), _)| ends.iter().any(|end| path.ends_with(end))).collect()
}

/// Whether an object is the sample's own: its spec tells of the API server, not of the operator.
fn is_given(object: &Value) -> bool {
    super::is_ray(object) && object["metadata"]["ownerReferences"].is_null()
}

/// Whether an operator has made an object, perhaps through a Job, or it is one that operators make something of.
fn is_made(object: &Value) -> bool {
    let owners = object["metadata"]["ownerReferences"].as_array();
    let mut owners = owners.into_iter().flatten().filter_map(|owner| owner["kind"].as_str());
    super::is_ray(object) || owners.any(|kind| matches!(kind, "RayJob" | "RayCluster" | "Job"))
}

/// What an object is called in every run: for pods their place, for others kind and name.
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

/// What was told of `RayJobs` and `RayClusters`, each once: how often depends on when it was looked.
fn events(story: &Story, names: &mut Names) -> Answer {
    let of_ray =
        |event: &&Value| matches!(event["involvedObject"]["kind"].as_str(), Some("RayJob" | "RayCluster"));
    let mut told: Vec<Value> = story
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
    for event in &mut told {
        names.body(event);
    }
    let lines: BTreeSet<(String, String)> = told
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
