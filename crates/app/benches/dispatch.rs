//! Measures dispatch latency and memory on the embedded cluster: `cargo bench -p app --bench dispatch`.
//!
//! A client creates AppWrappers and watches them, and takes all times. `speed` is so high that simulated pods take no
//! time. Prints one table; asserts nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use api::appwrapper::Group;
use apiserver::{ApiServer, Service};
use controllers::Controller;
use futures::{StreamExt, TryStreamExt, stream};
use kube::api::{ApiResource, DeleteParams, DynamicObject, PostParams};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use sandbox::{NodeGroup, Sandbox};
use serde_json::{Value, json};

/// So high that simulated pods take no time.
const SPEED: f64 = 1e6;
const SEQUENTIAL: usize = 300;
const BURST: usize = 1000;
const QUEUED: usize = 1000;
const TIMEOUT: Duration = Duration::from_mins(5);

#[tokio::main]
async fn main() -> Result<()> {
    if std::env::args().any(|argument| argument == "--test") {
        return Ok(()); // `cargo test --benches` only checks that it builds.
    }
    let started = Instant::now();
    let cluster = Cluster::start("count=100,name=node,cpu=64,memory=256Gi,pods=110").await?;
    print("cluster of 100 nodes started", &millis(started.elapsed()));

    let mut dispatches = Vec::new();
    for index in 0..SEQUENTIAL {
        let name = format!("one-{index}");
        dispatches.push(cluster.dispatch(&name).await?);
    }
    dispatches.sort();
    print("create to Dispatched, idle, p50", &millis(dispatches[SEQUENTIAL / 2]));
    print("create to Dispatched, idle, p99", &millis(dispatches[SEQUENTIAL * 99 / 100]));
    for index in 0..SEQUENTIAL {
        cluster.wrappers.delete(&format!("one-{index}"), &DeleteParams::default()).await?;
    }
    cluster.pods_are(0, "Running").await?;

    let burst = Instant::now();
    cluster.create_all("burst", BURST, "10m").await?;
    print("1,000 AppWrappers of two pods, created", &millis(burst.elapsed()));
    cluster.pods_are(2 * BURST, "Running").await?;
    print("1,000 AppWrappers of two pods, all pods Running", &millis(burst.elapsed()));
    drop(cluster);

    let cluster = Cluster::start("count=1,name=node,cpu=4,memory=16Gi").await?;
    cluster.create_all("first", 1, "2").await?;
    cluster.pods_are(2, "Running").await?;
    let before = resident_kib()?;
    cluster.create_all("queued", QUEUED, "2").await?;
    cluster.wrappers_are(QUEUED, "Pending").await?;
    print(
        "memory of 1,000 queued AppWrappers, whole process",
        &format!("{} KiB each", (resident_kib()? - before) / 1000),
    );
    let next = Instant::now();
    cluster.wrappers.delete("first-0", &DeleteParams::default()).await?;
    cluster.wrappers_are(1, "Running").await?;
    print("delete to the next dispatch, 1,000 queued", &millis(next.elapsed()));
    Ok(())
}

fn print(what: &str, figure: &str) {
    println!("{what:<60} {figure:>14}");
}

fn millis(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1e3)
}

/// Resident memory of this process.
fn resident_kib() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status").context("memory is read from procfs")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    line.trim().trim_end_matches(" kB").trim().parse().context("VmRSS is a number")
}

/// The embedded cluster, in this process and without sockets.
struct Cluster {
    wrappers: Api<DynamicObject>,
    pods: Api<DynamicObject>,
    _sandbox: Sandbox,
    controller: tokio::task::JoinHandle<()>,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.controller.abort();
    }
}

impl Cluster {
    async fn start(nodes: &str) -> Result<Self> {
        let service =
            Service::new(ApiServer::new(apiserver::Config::default()), Arc::new(jiff::Timestamp::now));
        let client = Client::new(service, "default");
        controllers::install_crds(client.clone(), &[Group::Mcad], api::appwrapper::Columns::default())
            .await?;
        let nodes = nodes.parse::<NodeGroup>()?.manifests();
        let simulated = sandbox::Config { nodes, speed: SPEED, ..sandbox::Config::default() };
        let sandbox = Sandbox::start(client.clone(), simulated).await?;
        let config = controllers::Config { groups: vec![Group::Mcad], ..controllers::Config::default() };
        let controller = Controller::new(client.clone(), config);
        let controller = tokio::spawn(async move {
            controller.run(std::future::pending()).await.expect("the controller runs");
        });
        let resource = |group: &str, version: &str, kind: &str, plural: &str| ApiResource {
            group: group.into(),
            version: version.into(),
            api_version: if group.is_empty() { version.into() } else { format!("{group}/{version}") },
            kind: kind.into(),
            plural: plural.into(),
        };
        let wrapper = resource("mcad.ibm.com", "v1beta1", "AppWrapper", "appwrappers");
        Ok(Self {
            wrappers: Api::default_namespaced_with(client.clone(), &wrapper),
            pods: Api::default_namespaced_with(client, &resource("", "v1", "Pod", "pods")),
            _sandbox: sandbox,
            controller,
        })
    }

    /// Creates one AppWrapper and waits until it is dispatched.
    async fn dispatch(&self, name: &str) -> Result<Duration> {
        let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let mut changes = std::pin::pin!(watcher(self.wrappers.clone(), only));
        while !matches!(changes.try_next().await?.context("the watch does not end")?, Event::InitDone) {}
        let created = Instant::now();
        self.wrappers.create(&PostParams::default(), &wrapper(name, "10m")?).await?;
        loop {
            if let Event::Apply(object) = changes.try_next().await?.context("the watch does not end")?
                && object.data["status"]["queuejobstate"] == "Dispatched"
            {
                return Ok(created.elapsed());
            }
        }
    }

    async fn create_all(&self, stem: &str, count: usize, cpu: &str) -> Result<()> {
        stream::iter(0..count)
            .map(|index| async move {
                let wrapper = wrapper(&format!("{stem}-{index}"), cpu)?;
                self.wrappers.create(&PostParams::default(), &wrapper).await?;
                anyhow::Ok(())
            })
            .buffer_unordered(16)
            .try_collect()
            .await
    }

    async fn pods_are(&self, count: usize, phase: &str) -> Result<()> {
        objects_are(&self.pods, count, |pod| pod["status"]["phase"] == phase).await
    }

    async fn wrappers_are(&self, count: usize, state: &str) -> Result<()> {
        objects_are(&self.wrappers, count, |wrapper| wrapper["status"]["state"] == state).await
    }
}

/// Waits until exactly `count` objects match.
async fn objects_are(api: &Api<DynamicObject>, count: usize, matches: impl Fn(&Value) -> bool) -> Result<()> {
    let wait = async {
        let mut matching = BTreeSet::new();
        let mut synced = false;
        let mut changes = std::pin::pin!(watcher(api.clone(), watcher::Config::default()));
        while !(synced && matching.len() == count) {
            match changes.try_next().await?.context("the watch does not end")? {
                Event::Apply(object) | Event::InitApply(object) => {
                    if matches(&object.data) {
                        matching.insert(object.metadata.uid);
                    } else {
                        matching.remove(&object.metadata.uid);
                    }
                }
                Event::Delete(object) => {
                    matching.remove(&object.metadata.uid);
                }
                Event::Init => matching.clear(),
                Event::InitDone => synced = true,
            }
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(TIMEOUT, wait)
        .await
        .context("the objects did not get into the expected state in time")?
}

/// An AppWrapper with a `ReplicaSet` of two pods.
fn wrapper(name: &str, cpu: &str) -> Result<DynamicObject> {
    let replicas = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": { "name": name },
        "spec": {
            "replicas": 2,
            "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": { "containers": [{
                    "name": "main", "image": "none",
                    "resources": { "requests": BTreeMap::from([("cpu", cpu), ("memory", "64Mi")]) },
                }] },
            },
        },
    });
    Ok(serde_json::from_value(json!({
        "apiVersion": "mcad.ibm.com/v1beta1", "kind": "AppWrapper", "metadata": { "name": name },
        "spec": { "resources": { "GenericItems": [{ "replicas": 1, "generictemplate": replicas }] } },
    }))?)
}
