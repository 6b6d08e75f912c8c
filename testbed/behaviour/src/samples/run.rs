//! Runs samples on one cluster, from their creation until their objects are stable.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Result, ensure};
use differential::answer::Answer;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::server::Server;
use super::{Sample, is_ray, observation};
use crate::objects::name;

/// The collections that are polled.
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
/// The interval between two polls of all collections.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// The number of samples that are created concurrently.
const CONCURRENCY: usize = 8;

/// How long the objects of a sample must not change before they count as stable.
const STABLE_PERIOD: StablePeriod = StablePeriod {
    ended: Duration::from_secs(10),
    pods: Duration::from_secs(40),
    job: Duration::from_secs(75),
};

struct StablePeriod {
    /// All jobs have ended and all clusters are ready.
    ended: Duration,
    /// A cluster is not ready: a pod may still become ready.
    pods: Duration,
    /// A job has not ended: its submitter runs for a minute.
    job: Duration,
}

/// Runs all samples at the same time, and returns their final objects in the order of the samples.
pub async fn run(
    server: &Server,
    samples: &[Sample],
    nodes: &[Value],
    run_id: &str,
) -> Result<Vec<Vec<Answer>>> {
    for node in nodes {
        server.node(node).await?;
    }
    let started = samples.iter().map(|sample| SampleRun::start(server, sample, sample.namespace(run_id)));
    let mut runs: Vec<SampleRun> = stream::iter(started).buffered(CONCURRENCY).try_collect().await?;
    let begin = Instant::now();
    while runs.iter().any(|run| !run.is_stable()) && begin.elapsed() < server.timeout {
        let mut seen = Seen::default();
        for path in COLLECTIONS.into_iter().chain([EVENTS]) {
            for object in server.list(path).await? {
                let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
                seen.entry(namespace).or_default().entry(path).or_default().push(object);
            }
        }
        for run in runs.iter_mut().filter(|run| !run.is_stable()) {
            run.observe(seen.remove(&run.namespace).unwrap_or_default());
        }
        sleep(POLL_INTERVAL).await;
    }
    let unstable: Vec<&str> = runs.iter().filter(|run| !run.is_stable()).map(|run| &*run.namespace).collect();
    ensure!(unstable.is_empty(), "after {:?} objects still change in {unstable:?}", server.timeout);
    for run in &runs {
        server.call("DELETE", &format!("/api/v1/namespaces/{}", run.namespace), None).await?;
    }
    Ok(runs.iter().map(observation::answers).collect())
}

/// Objects by namespace and collection.
type Seen = BTreeMap<String, BTreeMap<&'static str, Vec<Value>>>;

/// One sample on one cluster.
pub(super) struct SampleRun {
    pub(super) namespace: String,
    /// The response to each document.
    pub(super) applied: BTreeMap<String, Value>,
    /// All objects seen so far, in their last state before deletion, by collection and name.
    pub(super) objects: BTreeMap<(&'static str, String), Value>,
    /// The objects that exist.
    pub(super) present: BTreeSet<(&'static str, String)>,
    pub(super) events: Vec<Value>,
    /// The longest time that a `RayJob` of the sample keeps objects after its end.
    ttl: Duration,
    /// A digest of the last observed state.
    state: String,
    /// When the state changed last.
    changed_at: Instant,
    /// When the state was observed last. A slow poll must not count as time without a change.
    seen_at: Instant,
}

impl SampleRun {
    async fn start(server: &Server, sample: &Sample, namespace: String) -> Result<Self> {
        server.namespace(&namespace).await?;
        let mut applied = BTreeMap::new();
        // Other objects are created before Ray clusters and jobs. Otherwise timing decides how often the operator fails on a missing one.
        let (ray, others): (Vec<&Value>, Vec<&Value>) =
            sample.documents.iter().partition(|document| is_ray(document));
        for document in others.into_iter().chain(ray) {
            let stem = &document["metadata"]["generateName"];
            let name = stem.as_str().unwrap_or_else(|| name(document));
            let key = format!("{} {name}", document["kind"].as_str().unwrap_or_default());
            applied.insert(key, server.apply(document, &namespace).await?);
        }
        let ttl = sample.documents.iter().map(longest_ttl).max().unwrap_or(0);
        Ok(Self::new(namespace, applied, Duration::from_secs(ttl)))
    }

    fn new(namespace: String, applied: BTreeMap<String, Value>, ttl: Duration) -> Self {
        let now = Instant::now();
        Self {
            namespace,
            applied,
            objects: BTreeMap::new(),
            present: BTreeSet::new(),
            events: Vec::new(),
            ttl,
            state: String::new(),
            changed_at: now,
            seen_at: now,
        }
    }

    fn observe(&mut self, mut seen: BTreeMap<&'static str, Vec<Value>>) {
        self.events = seen.remove(EVENTS).unwrap_or_default();
        self.present.clear();
        let mut state: BTreeSet<String> = BTreeSet::new();
        state.extend(self.events.iter().map(|event| {
            json!([event["involvedObject"]["name"], event["reason"], event["message"]]).to_string()
        }));
        for (path, objects) in seen {
            for object in objects {
                let (key, meta) = ((path, name(&object).to_owned()), &object["metadata"]);
                let mut status = object["status"].clone();
                if let Some(fields) = status.as_object_mut() {
                    fields.remove("lastUpdateTime");
                }
                let deleted_at = &meta["deletionTimestamp"];
                state.insert(json!([path, key.1, deleted_at, meta["generation"], status]).to_string());
                self.present.insert(key.clone());
                if deleted_at.is_null() || !self.objects.contains_key(&key) {
                    self.objects.insert(key, object);
                }
            }
        }
        let state = state.into_iter().collect::<Vec<_>>().join("\n");
        self.seen_at = Instant::now();
        if state != self.state {
            self.state = state;
            self.changed_at = self.seen_at;
        }
    }

    /// Whether the last look saw what an earlier one saw, so long ago that no further change is expected.
    fn is_stable(&self) -> bool {
        let of = |path: &'static str| {
            self.present.iter().filter(move |key| key.0 == path).filter_map(|key| self.objects.get(key))
        };
        let is = |value: &Value, states: &[&str]| value.as_str().is_some_and(|state| states.contains(&state));
        let ends = ["Complete", "Failed", "Waiting", "ValidationFailed", "Suspended"];
        let ended = of(COLLECTIONS[0]).all(|job| is(&job["status"]["jobDeploymentStatus"], &ends));
        let ready =
            of(COLLECTIONS[1]).all(|cluster| is(&cluster["status"]["state"], &["ready", "suspended"]));
        let period = match (ended, ready) {
            (false, _) => STABLE_PERIOD.job,
            (true, false) => STABLE_PERIOD.pods,
            (true, true) if of(COLLECTIONS[0]).next().is_some() => STABLE_PERIOD.ended + self.ttl,
            (true, true) => STABLE_PERIOD.ended,
        };
        !self.state.is_empty() && self.seen_at.duration_since(self.changed_at) > period
    }
}

/// The longest time to live of a `RayJob`'s objects after its end, in seconds.
fn longest_ttl(document: &Value) -> u64 {
    let spec = &document["spec"];
    let rules = spec["deletionStrategy"]["deletionRules"].as_array().into_iter().flatten();
    let times = rules.map(|rule| &rule["condition"]["ttlSeconds"]).chain([&spec["ttlSecondsAfterFinished"]]);
    times.filter_map(Value::as_u64).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_slow_look_at_the_cluster_is_no_rest() {
        let cluster = |state: &str| {
            let object = json!({"metadata": {"name": "a"}, "status": {"state": state}});
            BTreeMap::from([(COLLECTIONS[1], vec![object])])
        };
        let mut run = SampleRun::new("ns".to_owned(), BTreeMap::new(), Duration::ZERO);
        run.observe(cluster("ready"));
        tokio::time::advance(STABLE_PERIOD.job).await;
        assert!(!run.is_stable(), "nobody has looked since then");
        run.observe(cluster("suspended"));
        tokio::time::advance(STABLE_PERIOD.job).await;
        run.observe(cluster("suspended"));
        assert!(run.is_stable());
    }
}
