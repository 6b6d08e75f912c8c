//! Compares Muster with another dispatcher: inputs of AppWrappers, and records of their statuses, objects and pods.
//!
//! The recordings (`oracle/*.json`) are of MCAD 1.40.0 on a real cluster. `docs/compat/appwrapper.md` lists the differences of
//! Muster, and a test checks that the list is complete and has no unused rows.

use std::path::{Path, PathBuf};

use anyhow::Result;
use differential::answer::Answer;
use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep};

use crate::environment::Environment;
use crate::fixture::Fixture;
use crate::objects::{
    CONFIG_MAP, DEPLOYMENT, JOB, Kind, POD, RAY_CLUSTER, SERVICE, WRAPPER, condition_lines, config_map,
    deployment, done_with, example, job, name, pod, renamed, service, summary, with, wrap,
};

/// A sequence of steps with AppWrappers on a set of nodes.
pub struct Input {
    /// The name of the input and of its recording.
    pub name: &'static str,
    nodes: &'static [(&'static str, &'static str)],
    steps: Vec<Step>,
}

enum Step {
    Create(Value),
    Delete(&'static str),
    /// Waits until a wrapper has this condition, or this `state/queuejobstate`.
    Await(&'static str, &'static str),
    /// Waits until the objects are stable, and records them.
    Record,
}
use Step::{Await, Create, Delete, Record};

const DISPATCHED: &str = "Dispatched AppWrapperRunnable";
const ONE: &[(&str, &str)] = &[("one", "cpu=4")];
const SEEDS: &[(&str, &str)] = &[("gpu", "cpu=16 nvidia.com/gpu=2"), ("cpu", "cpu=16")];

/// All inputs.
pub fn inputs() -> Result<Vec<Input>> {
    let input = |name, nodes, steps| Input { name, nodes, steps };
    let short = |name: &str| job(name, 2, "cpu=1 memory=1Gi", "2s");
    let long = |name: &str| wrap(name, [job(name, 2, "cpu=1 memory=1Gi", "1h")]);
    let glue = example("aw-kuberay-glue.yaml")?;
    let unselected = with(deployment("bad", 1, "cpu=1"), "/spec/selector/matchLabels/app", json!("others"));
    let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": [deployment("web", 1, "cpu=1"), service("web")]});
    let stuck = with(job("stuck", 2, "cpu=1", "1h"), "/spec/template/spec/schedulerName", json!("nobody"));
    let requeuing = json!({"timeInSeconds": 60, "growthType": "exponential"});
    let stuck = with(
        wrap("stuck", [stuck]),
        "/spec/schedulingSpec",
        json!({"minAvailable": 2, "requeuing": requeuing}),
    );
    let declared = json!([{"replicas": 2, "requests": {"cpu": 1, "nvidia.com/gpu": 1}}]);
    let trap = wrap("trap", [job("trap", 1, "cpu=1 nvidia.com/gpu=2", "1h")]);
    let trap = with(trap, "/spec/resources/GenericItems/0/custompodresources", declared);
    Ok(vec![
        input(
            "job-completes",
            ONE,
            vec![
                Create(done_with(wrap("done", [short("done")]), "Complete")),
                Await("done", "Completed PodsCompleted"),
                Record,
            ],
        ),
        input("job-runs", ONE, vec![Create(long("runs")), Await("runs", "Running PodsRunning"), Record]),
        input(
            "deployment-and-service",
            ONE,
            vec![Create(example("aw-deployment-service.yaml")?), Await("web", "Running PodsRunning"), Record],
        ),
        input(
            "glue-pair",
            SEEDS,
            vec![
                Create(glue.clone()),
                Await("raycluster-glue", DISPATCHED),
                Record,
                Create(renamed(glue, "raycluster-glue-1", "glue-cluster-1")),
                Await("raycluster-glue-1", "Backoff AppWrapperNotRunnable."),
                Record,
                Delete("raycluster-glue"),
                Await("raycluster-glue-1", DISPATCHED),
                Record,
            ],
        ),
        input(
            "ray-pair-side-by-side",
            SEEDS,
            vec![
                Create(example("aw-raycluster-complete.yaml")?),
                Create(example("aw-raycluster-complete-1.yaml")?),
                Await("raycluster-complete-1", DISPATCHED),
                Record,
            ],
        ),
        input(
            "second-waits-for-the-first",
            &[("one", "cpu=2")],
            vec![
                Create(long("first")),
                Await("first", DISPATCHED),
                Create(with(long("second"), "/spec/priority", json!(7))),
                Await("second", "Backoff AppWrapperNotRunnable."),
                Record,
                Delete("first"),
                Await("second", DISPATCHED),
                Record,
            ],
        ),
        input("more-than-there-is", ONE, vec![Create(wrap("huge", [pod("huge", "cpu=100")])), Record]),
        input(
            "fits-in-total-only",
            &[("one", "cpu=4 nvidia.com/gpu=1"), ("two", "cpu=4 nvidia.com/gpu=1")],
            vec![Create(trap), Record],
        ),
        input(
            "no-pods",
            ONE,
            vec![Create(wrap("plain", [config_map("plain")])), Await("plain", DISPATCHED), Record],
        ),
        input("other-namespace", ONE, vec![Create(example("invalid/other-namespace.yaml")?), Record]),
        input("unknown-kind", ONE, vec![Create(example("invalid/unknown-kind.yaml")?), Record]),
        input("refused-object", ONE, vec![Create(wrap("bad", [config_map("sibling"), unselected])), Record]),
        input("list", ONE, vec![Create(wrap("list", [list])), Record]),
        input(
            "holds-completion",
            ONE,
            vec![
                Create(done_with(wrap("both", [short("short"), job("long", 1, "cpu=1", "1h")]), "Complete")),
                Await("both", "RunningHoldCompletion SomeItemsCompleted"),
                Record,
            ],
        ),
        input(
            "taken-back",
            ONE,
            vec![
                Create(stuck),
                Await("stuck", "Backoff PreemptionTriggered"),
                Await("stuck", "Running/Dispatched"),
                Record,
            ],
        ),
    ])
}

impl Input {
    /// Runs the steps on a cluster, and returns the records.
    pub async fn run(&self, environment: &Environment) -> Result<Vec<Answer>> {
        let fixture = Fixture::open(environment, self.name).await?;
        let result = self.records(&fixture, environment).await;
        let closed = fixture.close().await;
        let records = result?;
        closed.map(|()| records)
    }

    /// The path of the recording of MCAD.
    pub fn recording(&self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("oracle").join(self.name).with_extension("json")
    }

    async fn records(&self, fixture: &Fixture<'_>, environment: &Environment) -> Result<Vec<Answer>> {
        let mut records = Vec::new();
        for (node, resources) in self.nodes {
            fixture.node(node, resources).await?;
        }
        let mut since = Vec::new();
        for step in &self.steps {
            match step {
                Create(wrapper) => {
                    since.push(format!("create {}", name(wrapper)));
                    fixture.create(wrapper).await?;
                }
                Delete(wrapper) => {
                    since.push(format!("delete {wrapper}"));
                    fixture.delete(WRAPPER, wrapper).await?;
                }
                Await(wrapper, expected) => {
                    // A timeout is not an error: the next record shows the actual state.
                    fixture
                        .wait(WRAPPER, wrapper, expected, |wrapper| has_reached(wrapper, expected))
                        .await
                        .ok();
                }
                Record => {
                    let body = settled(fixture, environment).await?;
                    records.push(Answer {
                        request: since.join(", "),
                        status: 200,
                        content_type: String::new(),
                        warnings: Vec::new(),
                        body,
                    });
                }
            }
        }
        Ok(records)
    }
}

fn has_reached(wrapper: &Value, expected: &str) -> bool {
    let text = |key: &str| wrapper["status"][key].as_str().unwrap_or_default().to_owned();
    let state = format!("{}/{}", text("state"), text("queuejobstate"));
    state == expected || condition_lines(wrapper).iter().any(|line| line.starts_with(expected))
}

/// The objects once they have not changed for the stable period, or at the timeout.
async fn settled(fixture: &Fixture<'_>, environment: &Environment) -> Result<Value> {
    let begin = Instant::now();
    let (mut last, mut since) = (Value::Null, begin);
    while since.elapsed() < environment.stable_period && begin.elapsed() < environment.timeout {
        let now = observe(fixture).await?;
        if now != last {
            (last, since) = (now, Instant::now());
        }
        sleep(environment.poll_interval).await;
    }
    Ok(last)
}

/// The kinds of objects in the inputs.
const KINDS: [Kind; 5] = [JOB, DEPLOYMENT, SERVICE, CONFIG_MAP, RAY_CLUSTER];

async fn observe(fixture: &Fixture<'_>) -> Result<Value> {
    let known = |text: String| text.replace(fixture.namespace(), "<namespace>");
    let mut wrappers = Map::new();
    for wrapper in fixture.list(WRAPPER).await? {
        let conditions: Vec<_> = condition_lines(&wrapper).into_iter().map(known).collect();
        wrappers.insert(name(&wrapper).into(), json!({"story": conditions, "status": summary(&wrapper)}));
    }
    let mut objects = Map::new();
    for kind in KINDS {
        for object in fixture.list(kind).await? {
            if is_wrapped(&object) {
                objects.insert(format!("{} {}", kind.1, name(&object)), tracked(&object));
            }
        }
    }
    let mut pods = Map::new();
    for pod in fixture.list(POD).await? {
        let stem = name(&pod).rsplit_once('-').map_or_else(|| name(&pod), |(stem, _)| stem);
        // Pods of Deployments have a second generated part in their names.
        let stem = stem.split('-').take_while(|word| word.len() < 9).collect::<Vec<_>>().join("-");
        let line = format!("{stem} {}", pod["status"]["phase"].as_str().unwrap_or_default());
        let entry =
            pods.entry(line).or_insert_with(|| json!({"count": 0, "labels": tracked(&pod)["labels"]}));
        entry["count"] = json!(entry["count"].as_u64().unwrap_or_default() + 1);
    }
    Ok(json!({"wrappers": wrappers, "objects": objects, "pods": pods}))
}

/// Whether a wrapper owns the object.
fn is_wrapped(object: &Value) -> bool {
    object["metadata"]["ownerReferences"][0]["kind"] == "AppWrapper"
}

/// The labels and owner references by which a dispatcher finds the objects of a wrapper.
fn tracked(object: &Value) -> Value {
    let mut labels = object["metadata"]["labels"].clone();
    if let Some(labels) = labels.as_object_mut() {
        labels.retain(|key, _| !key.contains("uid") && key != "pod-template-hash");
    }
    let mut owners = object["metadata"]["ownerReferences"].clone();
    for owner in owners.as_array_mut().into_iter().flatten() {
        owner["uid"] = json!("<uid>");
    }
    json!({"labels": labels, "owners": owners})
}
