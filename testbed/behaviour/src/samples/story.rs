//! What becomes of samples on one cluster, from their creation until nothing changes any more.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Result, ensure};
use differential::answer::Answer;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::server::Server;
use super::{Sample, is_ray, look};
use crate::objects::name;

/// What the operators make, or make something of: the collections that are watched.
const COLLECTIONS: [&str; 10] = [
    "/apis/ray.io/v1/rayjobs",
    "/apis/ray.io/v1/rayclusters",
    "/api/v1/pods",
    "/api/v1/services",
    "/apis/batch/v1/jobs",
    "/api/v1/secrets",
    "/api/v1/serviceaccounts",
    "/apis/rbac.authorization.k8s.io/v1/roles",
    "/apis/rbac.authorization.k8s.io/v1/rolebindings",
    "/apis/networking.k8s.io/v1/ingresses",
];
const EVENTS: &str = "/api/v1/events";
/// Between two looks at everything.
const PAUSE: Duration = Duration::from_secs(2);
/// Samples that are created at the same time.
const AT_ONCE: usize = 8;

/// For how long nothing may change where all is as it was meant to be; where it is not, something may still come: a pod, and at the
/// longest the end of a submitter, which runs for a minute.
const QUIET: Quiet =
    Quiet { ended: Duration::from_secs(10), pods: Duration::from_secs(40), job: Duration::from_secs(75) };

struct Quiet {
    ended: Duration,
    pods: Duration,
    job: Duration,
}

/// Plays all samples at the same time; what is there in the end, in the order of the samples.
pub async fn play(
    server: &Server,
    samples: &[Sample],
    nodes: &[Value],
    word: &str,
) -> Result<Vec<Vec<Answer>>> {
    for node in nodes {
        server.node(node).await?;
    }
    let begun = samples.iter().map(|sample| Story::begin(server, sample, sample.namespace(word)));
    let mut stories: Vec<Story> = stream::iter(begun).buffered(AT_ONCE).try_collect().await?;
    let begin = Instant::now();
    while stories.iter().any(|story| !story.is_at_rest()) && begin.elapsed() < server.patience {
        let mut seen = Seen::default();
        for path in COLLECTIONS.into_iter().chain([EVENTS]) {
            for object in server.list(path).await? {
                let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
                seen.entry(namespace).or_default().entry(path).or_default().push(object);
            }
        }
        for story in stories.iter_mut().filter(|story| !story.is_at_rest()) {
            story.observe(seen.remove(&story.namespace).unwrap_or_default());
        }
        sleep(PAUSE).await;
    }
    let restless: Vec<&str> =
        stories.iter().filter(|story| !story.is_at_rest()).map(|story| &*story.namespace).collect();
    ensure!(restless.is_empty(), "after {:?} something still changes in {restless:?}", server.patience);
    for story in &stories {
        server.call("DELETE", &format!("/api/v1/namespaces/{}", story.namespace), None).await?;
    }
    Ok(stories.into_iter().map(Story::tell).collect())
}

/// Objects by namespace and collection.
type Seen = BTreeMap<String, BTreeMap<&'static str, Vec<Value>>>;

/// One sample on one cluster.
pub(super) struct Story {
    pub(super) namespace: String,
    /// What was answered to each document.
    pub(super) applied: BTreeMap<String, Value>,
    /// Every object that was seen, as it was before it began to be deleted, by collection and name.
    pub(super) objects: BTreeMap<(&'static str, String), Value>,
    /// Those of them that are there.
    pub(super) present: BTreeSet<(&'static str, String)>,
    pub(super) events: Vec<Value>,
    /// How long the sample may keep what is over.
    kept: Duration,
    /// What is there, and since when.
    picture: String,
    since: Instant,
}

impl Story {
    async fn begin(server: &Server, sample: &Sample, namespace: String) -> Result<Self> {
        server.namespace(&namespace).await?;
        let mut applied = BTreeMap::new();
        // What a cluster needs is there before it, whatever the order of the file: otherwise chance decides how often the operator fails.
        let (ray, others): (Vec<&Value>, Vec<&Value>) =
            sample.documents.iter().partition(|document| is_ray(document));
        for document in others.into_iter().chain(ray) {
            let stem = &document["metadata"]["generateName"];
            let name = stem.as_str().unwrap_or_else(|| name(document));
            let key = format!("{} {name}", document["kind"].as_str().unwrap_or_default());
            applied.insert(key, server.apply(document, &namespace).await?);
        }
        let kept = sample.documents.iter().map(longest).max().unwrap_or(0);
        Ok(Self {
            namespace,
            applied,
            objects: BTreeMap::new(),
            present: BTreeSet::new(),
            events: Vec::new(),
            kept: Duration::from_secs(kept),
            picture: String::new(),
            since: Instant::now(),
        })
    }

    fn observe(&mut self, mut seen: BTreeMap<&'static str, Vec<Value>>) {
        self.events = seen.remove(EVENTS).unwrap_or_default();
        self.present.clear();
        let mut picture: BTreeSet<String> = BTreeSet::new();
        picture.extend(self.events.iter().map(|event| {
            json!([event["involvedObject"]["name"], event["reason"], event["message"]]).to_string()
        }));
        for (path, objects) in seen {
            for object in objects {
                let (key, meta) = ((path, name(&object).to_owned()), &object["metadata"]);
                let mut status = object["status"].clone();
                if let Some(fields) = status.as_object_mut() {
                    fields.remove("lastUpdateTime");
                }
                let dying = &meta["deletionTimestamp"];
                picture.insert(json!([path, key.1, dying, meta["generation"], status]).to_string());
                self.present.insert(key.clone());
                if dying.is_null() || !self.objects.contains_key(&key) {
                    self.objects.insert(key, object);
                }
            }
        }
        let picture = picture.into_iter().collect::<Vec<_>>().join("\n");
        if picture != self.picture {
            self.picture = picture;
            self.since = Instant::now();
        }
    }

    /// Whether nothing is expected to change any more.
    fn is_at_rest(&self) -> bool {
        let of = |path: &'static str| {
            self.present.iter().filter(move |key| key.0 == path).filter_map(|key| self.objects.get(key))
        };
        let is = |value: &Value, states: &[&str]| value.as_str().is_some_and(|state| states.contains(&state));
        let ends = ["Complete", "Failed", "Waiting", "ValidationFailed", "Suspended"];
        let over = of(COLLECTIONS[0]).all(|job| is(&job["status"]["jobDeploymentStatus"], &ends));
        let ready =
            of(COLLECTIONS[1]).all(|cluster| is(&cluster["status"]["state"], &["ready", "suspended"]));
        let quiet = match (over, ready) {
            (false, _) => QUIET.job,
            (true, false) => QUIET.pods,
            (true, true) if of(COLLECTIONS[0]).next().is_some() => QUIET.ended + self.kept,
            (true, true) => QUIET.ended,
        };
        !self.picture.is_empty() && self.since.elapsed() > quiet
    }

    fn tell(self) -> Vec<Answer> {
        look::answers(&self)
    }
}

/// The longest time, in seconds, that a `RayJob` keeps anything after its end.
fn longest(document: &Value) -> u64 {
    let spec = &document["spec"];
    let rules = spec["deletionStrategy"]["deletionRules"].as_array().into_iter().flatten();
    let times = rules.map(|rule| &rule["condition"]["ttlSeconds"]).chain([&spec["ttlSecondsAfterFinished"]]);
    times.filter_map(Value::as_u64).max().unwrap_or(0)
}
