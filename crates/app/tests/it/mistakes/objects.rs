//! Mistakes in objects: what `muster why`, the Events of the object and the API server answer.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::common::{Up, request, run};

/// A mistake: the objects that are created, and where each answer is found.
struct Mistake {
    what: &'static str,
    made: Vec<Value>,
    answers: Vec<(Ask, &'static str)>,
}

/// Whom a user asks.
enum Ask {
    /// The program, with these arguments.
    Muster(&'static [&'static str]),
    /// The Events of the object of this name.
    Events(&'static str),
    /// The API server, when it gets the last object.
    Answer,
}

fn mistake(what: &'static str, made: Vec<Value>, answers: Vec<(Ask, &'static str)>) -> Mistake {
    Mistake { what, made, answers }
}

fn queue(name: &str, flavor: &str, amounts: &[(&str, &str)], more: &Value) -> [Value; 2] {
    let covered: Vec<&str> = amounts.iter().map(|(resource, _)| *resource).collect();
    let quota: Vec<Value> =
        amounts.iter().map(|(name, quota)| json!({"name": name, "nominalQuota": quota})).collect();
    let groups = json!([{"coveredResources": covered, "flavors": [{"name": flavor, "resources": quota}]}]);
    let mut spec = json!({"namespaceSelector": {}, "resourceGroups": groups});
    for (field, value) in more.as_object().unwrap() {
        spec[field] = value.clone();
    }
    let version = "kueue.x-k8s.io/v1beta2";
    [
        json!({"apiVersion": version, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec}),
        local(name, name),
    ]
}

fn local(name: &str, queue: &str) -> Value {
    json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue",
        "metadata": {"name": name, "namespace": "default"}, "spec": {"clusterQueue": queue}})
}

/// A Job of one pod with these requests.
fn job(name: &str, queue: &str, requests: &Value) -> Value {
    let container =
        json!({"name": "c", "image": "i", "resources": {"requests": requests, "limits": requests}});
    let mut job = json!({"apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "namespace": "default", "labels": {"kueue.x-k8s.io/queue-name": queue}},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}});
    if queue.is_empty() {
        job["metadata"]["labels"] = Value::Null;
    }
    job
}

fn with(mut job: Value, field: &str, value: Value) -> Value {
    job["spec"]["template"]["spec"][field] = value;
    job
}

fn labelled(mut job: Value, label: &str, value: &str) -> Value {
    job["metadata"]["labels"][label] = value.into();
    job
}

fn mistakes() -> Vec<Mistake> {
    use Ask::{Answer, Events, Muster};
    let cpu = |amount: &str| json!({ "cpu": amount });
    let mut closed = queue("closed", "default", &[("cpu", "8")], &json!({"stopPolicy": "Hold"})).to_vec();
    closed.push(job("stopped", "closed", &cpu("1")));
    let selects = json!({"namespaceSelector": {"matchLabels": {"team": "others"}}});
    let mut others = queue("others", "default", &[("cpu", "8")], &selects).to_vec();
    others.push(job("outside", "others", &cpu("1")));
    let mut typo = queue("typo", "defualt", &[("cpu", "8")], &json!({})).to_vec();
    typo.push(job("flavor", "typo", &cpu("1")));
    let claim = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "nope"}}]);
    vec![
        mistake(
            "a queue that does not exist",
            vec![job("noqueue", "team-x", &cpu("1"))],
            vec![
                (
                    Muster(&["why", "job/noqueue"]),
                    "LocalQueue team-x doesn't exist; create it, or name another one",
                ),
                (Muster(&["why", "noqueue"]), "LocalQueue team-x doesn't exist"),
                (Muster(&["why", "batch/job/noqueue"]), "LocalQueue team-x doesn't exist"),
                (Events("noqueue"), "LocalQueue team-x doesn't exist: create it, or name another one"),
            ],
        ),
        mistake(
            "an object that does not exist, or of no kind that there is",
            vec![],
            vec![
                (Muster(&["why", "pod/nope"]), "there is no Pod default/nope"),
                (Muster(&["why", "rayjob/nope"]), "there is no RayJob default/nope"),
                (Muster(&["why", "nope"]), "there is no AppWrapper or Workload default/nope"),
                (Muster(&["why", "jbo/nope"]), "jbo"),
            ],
        ),
        mistake(
            "a queue without quota for what is asked for",
            vec![job("noquota", "cpus", &json!({"cpu": "1", "nvidia.com/gpu": "1"}))],
            vec![
                (Muster(&["why", "job/noquota"]), "can never start with this quota and these nodes"),
                (Muster(&["why", "job/noquota"]), "queue cpus has no quota for nvidia.com/gpu"),
            ],
        ),
        mistake(
            "more than the queue can ever have",
            vec![job("huge", "gpus", &cpu("500"))],
            vec![(
                Muster(&["why", "job/huge"]),
                "needs 500 cpu in flavor default; quota clusterqueue:gpus has at most 16 (8 of its own, 8 to borrow)",
            )],
        ),
        mistake(
            "more than a node has",
            vec![job("wide", "gpus", &json!({"cpu": "1", "nvidia.com/gpu": "3"}))],
            vec![(
                Muster(&["why", "job/wide"]),
                "needs 3 nvidia.com/gpu on one node; 3 nodes have 2 even when empty",
            )],
        ),
        mistake(
            "a resource of another name",
            vec![job("plural", "gpus", &json!({"cpu": "1", "nvidia.com/gpus": "1"}))],
            vec![(Muster(&["why", "job/plural"]), "did you mean nvidia.com/gpu, for which it has quota?")],
        ),
        mistake(
            "a node selector that no node matches",
            vec![with(job("selector", "gpus", &cpu("1")), "nodeSelector", json!({"gpu": "a100"}))],
            vec![(Muster(&["why", "job/selector"]), "no node matches node selector gpu=a100 (3 nodes)")],
        ),
        mistake(
            "a priority class that does not exist",
            vec![labelled(job("class", "gpus", &cpu("1")), "kueue.x-k8s.io/priority-class", "urgnet")],
            vec![
                (
                    Muster(&["why", "job/class"]),
                    "gets no Workload: its label names the WorkloadPriorityClass urgnet, which does not exist: create it",
                ),
                (Events("class"), "WorkloadPriorityClass urgnet, which does not exist"),
            ],
        ),
        mistake(
            "a claim that does not exist",
            vec![with(job("claim", "gpus", &cpu("1")), "volumes", claim)],
            vec![(
                Muster(&["why", "job/claim"]),
                "claim nope does not exist in namespace default: create it",
            )],
        ),
        mistake(
            "a flavor that does not exist",
            typo,
            vec![(
                Muster(&["why", "job/flavor"]),
                "references missing ResourceFlavor(s): defualt. Did you mean default?",
            )],
        ),
        mistake(
            "a local queue of a queue that does not exist",
            vec![local("lost", "nowhere"), job("lost", "lost", &cpu("1"))],
            vec![
                (
                    Muster(&["why", "job/lost"]),
                    "ClusterQueue nowhere doesn't exist; create it, or change LocalQueue lost, which names it",
                ),
                (Events("lost"), "ClusterQueue nowhere doesn't exist"),
            ],
        ),
        mistake(
            "a stopped queue",
            closed,
            vec![(
                Muster(&["why", "job/stopped"]),
                "ClusterQueue closed is inactive; Can't admit new workloads: is stopped",
            )],
        ),
        mistake(
            "a namespace that the queue does not select",
            others,
            vec![
                (Muster(&["why", "job/outside"]), "ClusterQueue others is for namespaces with team=others"),
                (Events("outside"), "ClusterQueue others is for namespaces with team=others"),
            ],
        ),
        mistake(
            "a job without a queue",
            vec![job("free", "", &cpu("1"))],
            vec![(
                Muster(&["why", "job/free"]),
                "is in no queue: neither has it the label kueue.x-k8s.io/queue-name, nor does an AppWrapper hold it",
            )],
        ),
        mistake(
            "an amount that is no quantity",
            vec![job("quantity", "gpus", &cpu("one"))],
            vec![(Answer, "quantities must match the regular expression")],
        ),
        mistake(
            "an invalid label",
            vec![job("label", "team a", &cpu("1"))],
            vec![(Answer, "Invalid value: \\\"team a\\\"")],
        ),
        mistake(
            "an unknown field",
            vec![with(job("field", "gpus", &cpu("1")), "nodeSelektor", json!({}))],
            vec![(Answer, "unknown field \\\"spec.template.spec.nodeSelektor\\\"")],
        ),
    ]
}

/// Creates an object. Returns the answer.
fn create(address: &str, object: &Value) -> String {
    let text = |at: &str| object.pointer(at).and_then(Value::as_str).unwrap_or_default();
    let (version, kind) = (text("/apiVersion"), text("/kind").to_lowercase());
    let root = if version.contains('/') { "apis" } else { "api" };
    let space = match text("/metadata/namespace") {
        "" => String::new(),
        namespace => format!("namespaces/{namespace}/"),
    };
    let head = format!("POST /{root}/{version}/{space}{kind}s?fieldValidation=Strict");
    request(address, &head, &object.to_string()).unwrap()
}

fn ask(up: &Up, dir: &std::path::Path, ask: &Ask, answer: &str) -> String {
    match ask {
        Ask::Muster(arguments) => {
            let output = run(dir, arguments);
            String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
        }
        Ask::Events(name) => {
            let head =
                format!("GET /api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3D{name}");
            request(up.address("API server"), &head, "").unwrap()
        }
        Ask::Answer => answer.to_owned(),
    }
}

#[test]
fn a_mistake_in_an_object_is_told_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let up = Up::start(&["--node", "count=3,name=gpu,cpu=16,memory=64Gi,nvidia.com/gpu=2"], dir.path());
    let address = up.address("API server");
    let flavor = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "default"}});
    let cohort = json!({"cohortName": "all"});
    let mut all = vec![flavor];
    all.extend(queue("cpus", "default", &[("cpu", "8")], &cohort));
    all.extend(queue("gpus", "default", &[("cpu", "8"), ("nvidia.com/gpu", "6")], &cohort));
    for object in &all {
        let answer = create(address, object);
        assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    }
    let mut open = Vec::new();
    for Mistake { what, made, answers } in mistakes() {
        let answer = made.iter().fold(String::new(), |_, object| create(address, object));
        open.extend(answers.into_iter().map(|(ask, expected)| (what, answer.clone(), ask, expected)));
    }
    let deadline = Instant::now() + Duration::from_secs(30);
    while !open.is_empty() {
        let unanswered: Vec<_> = open
            .into_iter()
            .filter(|(what, answer, question, expected)| {
                let found = ask(&up, dir.path(), question, answer);
                let is_open = !found.contains(expected);
                assert!(!is_open || Instant::now() < deadline, "{what}: {expected:?} is not in: {found}");
                is_open
            })
            .collect();
        open = unanswered;
    }
}
