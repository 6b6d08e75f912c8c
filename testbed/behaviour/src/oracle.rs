//! What another dispatcher makes of the same AppWrappers: inputs, and what is looked at, as values that can be kept and compared.
//!
//! The recordings beside this crate (`oracle/*.json`) are those of MCAD 1.40.0 on a real cluster. How they differ from Muster's stands
//! in `docs/compat/appwrapper.md`, and a test compares both ways.

use std::path::{Path, PathBuf};

use anyhow::Result;
use differential::answer::Answer;
use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep};

use crate::environment::Environment;
use crate::objects::{
    CONFIG_MAP, DEPLOYMENT, JOB, Kind, POD, RAY_CLUSTER, SERVICE, WRAPPER, config_map, deployment, done_with,
    example, job, name, pod, renamed, service, story, summary, with, wrap,
};
use crate::scene::Scene;

/// AppWrappers that are created and deleted on these nodes.
pub struct Input {
    /// Name, also of its recording.
    pub name: &'static str,
    nodes: &'static [(&'static str, &'static str)],
    acts: Vec<Act>,
}

enum Act {
    Create(Value),
    Delete(&'static str),
    /// Waits until the story or the state of a wrapper tells this.
    Await(&'static str, &'static str),
    /// Waits until nothing changes any more, and keeps what is there.
    Look,
}
use Act::{Await, Create, Delete, Look};

const DISPATCHED: &str = "Dispatched AppWrapperRunnable";
const ONE: &[(&str, &str)] = &[("one", "cpu=4")];
const SEEDS: &[(&str, &str)] = &[("gpu", "cpu=16 nvidia.com/gpu=2"), ("cpu", "cpu=16")];

/// All inputs.
pub fn inputs() -> Result<Vec<Input>> {
    let input = |name, nodes, acts| Input { name, nodes, acts };
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
                Look,
            ],
        ),
        input("job-runs", ONE, vec![Create(long("runs")), Await("runs", "Running PodsRunning"), Look]),
        input(
            "deployment-and-service",
            ONE,
            vec![Create(example("aw-deployment-service.yaml")?), Await("web", "Running PodsRunning"), Look],
        ),
        input(
            "glue-pair",
            SEEDS,
            vec![
                Create(glue.clone()),
                Await("raycluster-glue", DISPATCHED),
                Look,
                Create(renamed(glue, "raycluster-glue-1", "glue-cluster-1")),
                Await("raycluster-glue-1", "Backoff AppWrapperNotRunnable."),
                Look,
                Delete("raycluster-glue"),
                Await("raycluster-glue-1", DISPATCHED),
                Look,
            ],
        ),
        input(
            "ray-pair-side-by-side",
            SEEDS,
            vec![
                Create(example("aw-raycluster-complete.yaml")?),
                Create(example("aw-raycluster-complete-1.yaml")?),
                Await("raycluster-complete-1", DISPATCHED),
                Look,
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
                Look,
                Delete("first"),
                Await("second", DISPATCHED),
                Look,
            ],
        ),
        input("more-than-there-is", ONE, vec![Create(wrap("huge", [pod("huge", "cpu=100")])), Look]),
        input(
            "fits-in-total-only",
            &[("one", "cpu=4 nvidia.com/gpu=1"), ("two", "cpu=4 nvidia.com/gpu=1")],
            vec![Create(trap), Look],
        ),
        input(
            "no-pods",
            ONE,
            vec![Create(wrap("plain", [config_map("plain")])), Await("plain", DISPATCHED), Look],
        ),
        input("other-namespace", ONE, vec![Create(example("refused/other-namespace.yaml")?), Look]),
        input("unknown-kind", ONE, vec![Create(example("refused/unknown-kind.yaml")?), Look]),
        input("refused-object", ONE, vec![Create(wrap("bad", [config_map("sibling"), unselected])), Look]),
        input("list", ONE, vec![Create(wrap("list", [list])), Look]),
        input(
            "holds-completion",
            ONE,
            vec![
                Create(done_with(wrap("both", [short("short"), job("long", 1, "cpu=1", "1h")]), "Complete")),
                Await("both", "RunningHoldCompletion SomeItemsCompleted"),
                Look,
            ],
        ),
        input(
            "taken-back",
            ONE,
            vec![
                Create(stuck),
                Await("stuck", "Backoff PreemptionTriggered"),
                Await("stuck", "Running/Dispatched"),
                Look,
            ],
        ),
    ])
}

impl Input {
    /// Plays it on a cluster, and returns what could be seen at each look.
    pub async fn play(&self, environment: &Environment) -> Result<Vec<Answer>> {
        let scene = Scene::open(environment, self.name).await?;
        let played = self.looks(&scene, environment).await;
        let closed = scene.close().await;
        let looks = played?;
        closed.map(|()| looks)
    }

    /// The file that keeps what MCAD made of it.
    pub fn recording(&self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("oracle").join(self.name).with_extension("json")
    }

    async fn looks(&self, scene: &Scene<'_>, environment: &Environment) -> Result<Vec<Answer>> {
        let mut looks = Vec::new();
        for (node, resources) in self.nodes {
            scene.node(node, resources).await?;
        }
        let mut since = Vec::new();
        for act in &self.acts {
            match act {
                Create(wrapper) => {
                    since.push(format!("create {}", name(wrapper)));
                    scene.create(wrapper).await?;
                }
                Delete(wrapper) => {
                    since.push(format!("delete {wrapper}"));
                    scene.delete(WRAPPER, wrapper).await?;
                }
                Await(wrapper, told) => {
                    // Who never gets there shows that in the next look.
                    scene.wait(WRAPPER, wrapper, told, |wrapper| tells(wrapper, told)).await.ok();
                }
                Look => {
                    let body = settled(scene, environment).await?;
                    looks.push(Answer {
                        request: since.join(", "),
                        status: 200,
                        content_type: String::new(),
                        warnings: Vec::new(),
                        body,
                    });
                }
            }
        }
        Ok(looks)
    }
}

fn tells(wrapper: &Value, told: &str) -> bool {
    let text = |key: &str| wrapper["status"][key].as_str().unwrap_or_default().to_owned();
    let state = format!("{}/{}", text("state"), text("queuejobstate"));
    state == told || story(wrapper).iter().any(|line| line.starts_with(told))
}

/// What is there once it has not changed for a while; after a long while, what is there then.
async fn settled(scene: &Scene<'_>, environment: &Environment) -> Result<Value> {
    let begin = Instant::now();
    let (mut last, mut since) = (Value::Null, begin);
    while since.elapsed() < environment.quiet && begin.elapsed() < environment.patience {
        let now = observe(scene).await?;
        if now != last {
            (last, since) = (now, Instant::now());
        }
        sleep(environment.pause).await;
    }
    Ok(last)
}

/// Kinds of objects in the inputs.
const KINDS: [Kind; 5] = [JOB, DEPLOYMENT, SERVICE, CONFIG_MAP, RAY_CLUSTER];

async fn observe(scene: &Scene<'_>) -> Result<Value> {
    let known = |text: String| text.replace(scene.namespace(), "<namespace>");
    let mut wrappers = Map::new();
    for wrapper in scene.list(WRAPPER).await? {
        let story: Vec<_> = story(&wrapper).into_iter().map(known).collect();
        wrappers.insert(name(&wrapper).into(), json!({"story": story, "status": summary(&wrapper)}));
    }
    let mut objects = Map::new();
    for kind in KINDS {
        for object in scene.list(kind).await? {
            if is_wrapped(&object) {
                objects.insert(format!("{} {}", kind.1, name(&object)), tracked(&object));
            }
        }
    }
    let mut pods = Map::new();
    for pod in scene.list(POD).await? {
        let stem = name(&pod).rsplit_once('-').map_or_else(|| name(&pod), |(stem, _)| stem);
        // Those of Deployments carry another word that was generated.
        let stem = stem.split('-').take_while(|word| word.len() < 9).collect::<Vec<_>>().join("-");
        let line = format!("{stem} {}", pod["status"]["phase"].as_str().unwrap_or_default());
        let entry =
            pods.entry(line).or_insert_with(|| json!({"count": 0, "labels": tracked(&pod)["labels"]}));
        entry["count"] = json!(entry["count"].as_u64().unwrap_or_default() + 1);
    }
    Ok(json!({"wrappers": wrappers, "objects": objects, "pods": pods}))
}

/// Whether a wrapper owns it.
fn is_wrapped(object: &Value) -> bool {
    object["metadata"]["ownerReferences"][0]["kind"] == "AppWrapper"
}

/// The labels and owners by which wrappers find what is theirs.
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
