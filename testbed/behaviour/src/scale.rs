//! Measures the controller on a large cluster: dispatch latency as seen by a client, requests of the controller, and CPU time and
//! memory of its process from procfs.
//!
//! Every AppWrapper has a Job of two pods, each of which requests one CPU and does not complete. Nothing is asserted.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use indicatif::{ProgressBar, ProgressStyle};
use kube::api::{ApiResource, DynamicObject};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::objects::{self, Kind, POD, WRAPPER};
use crate::process::Process;
use crate::proxy::{Requests, is_write};
use crate::{Controller as _, Fixture};

/// The sizes of a measurement.
pub struct Sizes {
    /// The number of nodes.
    pub nodes: usize,
    /// The number of CPUs of each node.
    pub node_cpus: usize,
    /// The number of AppWrappers that are created at once.
    pub wrappers: usize,
}

/// The number of AppWrappers that are created one after the other, each on an idle cluster.
const SINGLE: usize = 50;
/// The number of concurrent create requests.
const CREATORS: usize = 16;
/// The measurement continues after this time without progress.
const STALLED: Duration = Duration::from_mins(1);
/// How long requests and CPU time are counted on an idle cluster.
const IDLE: Duration = Duration::from_secs(10);

/// Measures on a cluster without nodes, and prints a row for each metric.
pub async fn measure(client: Client, fixture: &Fixture<'_>, process: &Process, sizes: &Sizes) -> Result<()> {
    let started = Instant::now();
    add_nodes(fixture, sizes).await?;
    row("nodes created and ready", &seconds(started.elapsed()));

    process.start().await?;
    fixture.create(&wrapper("first", "cpu=1 memory=64Mi")).await?;
    let run = Run {
        fixture,
        dispatched: first_seen(&client, fixture.namespace(), WRAPPER, None, |wrapper| {
            wrapper["status"]["queuejobstate"] == "Dispatched"
        }),
        running: first_seen(&client, fixture.namespace(), POD, Some("status.phase=Running"), |_| true),
    };
    run.until(&run.dispatched, "first", 1).await;

    run.one_by_one().await?;
    idle(process, "nothing waits").await?;
    let fitting = sizes.wrappers.min(sizes.nodes * sizes.node_cpus / 2);
    let before = Before::now(process).await?;
    run.all_at_once(&before, process, sizes.wrappers, fitting).await?;
    // The restart happens while pods start. On a small machine this takes long, and is the work of other components.
    run.restart(process).await?;
    run.all_run(&before, process, sizes.wrappers, fitting).await?;
    idle(process, "all run").await
}

/// A measurement with its watches.
struct Run<'a> {
    fixture: &'a Fixture<'a>,
    /// The dispatch times of AppWrappers.
    dispatched: Seen,
    /// The start times of pods.
    running: Seen,
}

impl Run<'_> {
    /// Measures the time to dispatch on an idle cluster.
    async fn one_by_one(&self) -> Result<()> {
        let mut took = Vec::new();
        for index in 0..SINGLE {
            let name = format!("single-{index}");
            let created = Instant::now();
            self.fixture.create(&wrapper(&name, "cpu=1 memory=64Mi")).await?;
            self.until(&self.dispatched, &name, 1).await;
            took.extend(seen(&self.dispatched).get(&name).map(|at| *at - created));
        }
        quantiles(&format!("create to Dispatched, one after the other, of {}", took.len()), took);
        self.until(&self.running, "single", 2 * SINGLE).await;
        let names: Vec<String> = seen(&self.dispatched).keys().cloned().collect();
        for name in names {
            self.fixture.delete(WRAPPER, &name).await?;
        }
        self.fixture.wait_all(POD, "none is left", <[Value]>::is_empty).await?;
        Ok(())
    }

    /// Measures the time to dispatch for a burst, and the requests and CPU time of the controller.
    async fn all_at_once(
        &self,
        before: &Before,
        process: &Process,
        wrappers: usize,
        fitting: usize,
    ) -> Result<()> {
        let creating = stream::iter(0..wrappers)
            .map(|index| async move {
                let name = format!("burst-{index}");
                let created = Instant::now();
                self.fixture.create(&wrapper(&name, "cpu=1 memory=64Mi")).await?;
                anyhow::Ok((name, created))
            })
            .buffer_unordered(CREATORS)
            .try_collect::<BTreeMap<_, _>>();
        let creating = async { creating.await.map(|created| (created, before.at.elapsed())) };
        let (created, ()) = tokio::join!(creating, self.until(&self.dispatched, "burst", fitting));
        let (created, creation) = created?;
        row(&format!("{wrappers} AppWrappers created"), &seconds(creation));
        row(
            &format!("{wrappers} created, until {fitting} that fit are dispatched"),
            &self.end("burst", before.at),
        );
        let dispatched = seen(&self.dispatched).clone();
        let took = created.iter().filter_map(|(name, created)| Some(*dispatched.get(name)? - *created));
        let took: Vec<_> = took.collect();
        quantiles(&format!("create to Dispatched, of {}", took.len()), took);
        spent(
            Some(&before.usage),
            process,
            &difference(&process.proxy().requests(), &before.requests),
            wrappers,
        )
        .await
    }

    /// Measures the time until all pods run, and the requests and CPU time of the restarted controller.
    async fn all_run(
        &self,
        before: &Before,
        process: &Process,
        wrappers: usize,
        fitting: usize,
    ) -> Result<()> {
        self.until(&self.running, "burst", 2 * fitting).await;
        let last = seen(&self.running).values().max().map_or(Duration::ZERO, |at| *at - before.at);
        row(&format!("until {} pods run", of(&seen(&self.running), "burst").count()), &seconds(last));
        sleep(IDLE).await;
        spent(None, process, &difference(&process.proxy().requests(), &before.requests), wrappers).await
    }

    /// Measures the time from the restart of a killed controller to its first dispatch.
    async fn restart(&self, process: &Process) -> Result<()> {
        process.kill().await?;
        // All CPUs are allocated, so the pods request none.
        self.fixture.create(&wrapper("restart", "memory=64Mi")).await?;
        let begin = Instant::now();
        process.start().await?;
        self.until(&self.dispatched, "restart", 1).await;
        row("restart of the controller to the first dispatch", &self.end("restart", begin));
        Ok(())
    }

    /// The time until the last dispatch of an AppWrapper with this prefix.
    fn end(&self, prefix: &str, begin: Instant) -> String {
        let dispatched = seen(&self.dispatched);
        match of(&dispatched, prefix).max() {
            Some(last) => format!("{} ({})", seconds(*last - begin), of(&dispatched, prefix).count()),
            None => "never".into(),
        }
    }

    /// Waits for this number of objects with this prefix, or until there is no progress.
    async fn until(&self, what: &Seen, prefix: &str, count: usize) {
        let style = ProgressStyle::with_template("{elapsed:>4} {wide_bar} {pos}/{len} {msg}");
        let bar = ProgressBar::new(count as u64).with_message(prefix.to_owned());
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        let mut reached = 0;
        let mut at = Instant::now();
        while reached < count && at.elapsed() < STALLED {
            sleep(Duration::from_millis(5)).await;
            let now = of(&seen(what), prefix).count();
            if now > reached {
                (reached, at) = (now, Instant::now());
                bar.set_position(reached as u64);
            }
        }
        bar.finish_and_clear();
        if reached < count {
            println!("no progress in {}: {reached} of {count} {prefix}", seconds(STALLED));
        }
    }
}

async fn add_nodes(fixture: &Fixture<'_>, sizes: &Sizes) -> Result<()> {
    let resources = format!("cpu={}", sizes.node_cpus);
    stream::iter(0..sizes.nodes)
        .map(|index| {
            let node = objects::node(&format!("node-{index}"), &resources);
            async move { fixture.call("POST", "/api/v1/nodes", Some(&node)).await }
        })
        .buffer_unordered(CREATORS)
        .try_for_each(|_| futures::future::ok(()))
        .await?;
    fixture
        .eventually("ready nodes", async || {
            let nodes = fixture.call("GET", "/api/v1/nodes", None).await?;
            let nodes = nodes["items"].as_array().context("a list of nodes")?;
            Ok(nodes.iter().all(objects::is_ready_node).then_some(()))
        })
        .await
}

fn wrapper(name: &str, requests: &str) -> Value {
    objects::wrap(name, [objects::job(name, 2, requests, "24h")])
}

/// The time at which each object first met a condition, by name.
type Seen = Arc<Mutex<BTreeMap<String, Instant>>>;

fn seen(seen: &Seen) -> std::sync::MutexGuard<'_, BTreeMap<String, Instant>> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The times of objects with this prefix.
fn of<'a>(all: &'a BTreeMap<String, Instant>, prefix: &'a str) -> impl Iterator<Item = &'a Instant> {
    all.range(prefix.to_owned()..).take_while(move |(name, _)| name.starts_with(prefix)).map(|(_, at)| at)
}

/// Watches the objects of a kind until the program ends, and records when each first meets a condition.
fn first_seen(
    client: &Client,
    namespace: &str,
    kind: Kind,
    fields: Option<&str>,
    is_met: impl Fn(&Value) -> bool + Send + 'static,
) -> Seen {
    let found = Seen::default();
    let (group, version) = kind.0.rsplit_once('/').unwrap_or(("", kind.0));
    let resource = ApiResource {
        group: group.into(),
        version: version.into(),
        api_version: kind.0.into(),
        kind: kind.1.into(),
        plural: format!("{}s", kind.1.to_lowercase()),
    };
    let api = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &resource);
    let config = fields.iter().fold(watcher::Config::default(), |config, fields| config.fields(fields));
    let into = Arc::clone(&found);
    tokio::spawn(async move {
        // The watcher retries after errors.
        let objects = watcher(api, config).default_backoff().applied_objects().filter_map(async |o| o.ok());
        let mut objects = std::pin::pin!(objects);
        while let Some(object) = objects.next().await {
            if is_met(&object.data) {
                let name = object.metadata.name.unwrap_or_default();
                seen(&into).entry(name).or_insert_with(Instant::now);
            }
        }
    });
    found
}

/// The CPU time and the peak memory of a process.
struct Usage {
    cpu: Duration,
    most_kib: u64,
}

impl Usage {
    async fn of(process: &Process) -> Result<Self> {
        let id = process.id().await.context("the controller has exited; see its log")?;
        let read =
            |file: &str| std::fs::read_to_string(format!("/proc/{id}/{file}")).context("procfs is read");
        let (stat, status) = (read("stat")?, read("status")?);
        // The second field is the name in parentheses, which may contain spaces. Times are in hundredths of a second.
        let fields = stat.rsplit_once(')').context("a name in parentheses")?.1.split_whitespace();
        let times: Vec<u64> = fields.skip(11).take(2).filter_map(|field| field.parse().ok()).collect();
        ensure!(times.len() == 2, "user and system time in {stat}");
        let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
        let most_kib = most.trim().trim_end_matches(" kB").parse().context("VmHWM is a number")?;
        Ok(Self { cpu: Duration::from_millis(times.iter().sum::<u64>() * 10), most_kib })
    }
}

/// The counters at the begin of a measurement.
struct Before {
    at: Instant,
    usage: Usage,
    requests: Requests,
}

impl Before {
    async fn now(process: &Process) -> Result<Self> {
        Ok(Self {
            usage: Usage::of(process).await?,
            requests: process.proxy().requests(),
            at: Instant::now(),
        })
    }
}

/// Measures the requests and the CPU time of the controller on an idle cluster.
async fn idle(process: &Process, when: &str) -> Result<()> {
    let before = Before::now(process).await?;
    sleep(IDLE).await;
    let requests: u64 = difference(&process.proxy().requests(), &before.requests).values().sum();
    let cpu = Usage::of(process).await?.cpu.saturating_sub(before.usage.cpu);
    let what = format!("controller: CPU time, requests in {} idle seconds, {when}", IDLE.as_secs());
    row(&what, &format!("{}, {requests}", seconds(cpu)));
    Ok(())
}

fn difference(after: &Requests, before: &Requests) -> Requests {
    after
        .iter()
        .map(|(what, count)| (what.clone(), count - before.get(what).copied().unwrap_or_default()))
        .filter(|(_, count)| *count > 0)
        .collect()
}

/// Prints the requests, CPU time and memory of the controller since `since`, or since its start.
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
async fn spent(since: Option<&Usage>, process: &Process, requests: &Requests, wrappers: usize) -> Result<()> {
    let after = Usage::of(process).await?;
    let (what, cpu) = match since {
        Some(before) => ("    controller: CPU time", after.cpu.saturating_sub(before.cpu)),
        None => ("    controller: CPU time since its restart", after.cpu),
    };
    row(what, &seconds(cpu));
    row("    controller: resident memory, at most", &format!("{} MiB", after.most_kib / 1024));
    let each = |count: u64| format!("{:.2}", count as f64 / wrappers as f64);
    let all = requests.iter().filter(|(what, _)| is_write(what)).map(|(_, count)| count).sum();
    row("    controller: writes per AppWrapper", &each(all));
    for (what, count) in requests {
        row(&format!("        {what}"), &each(*count));
    }
    Ok(())
}

fn quantiles(what: &str, mut took: Vec<Duration>) {
    took.sort();
    let at =
        |percent: usize| took.get(took.len() * percent / 100).map_or_else(|| "-".into(), |t| seconds(*t));
    row(&format!("{what}: p50"), &at(50));
    row(&format!("{what}: p99"), &at(99));
}

fn seconds(duration: Duration) -> String {
    format!("{:.3} s", duration.as_secs_f64())
}

fn row(what: &str, figure: &str) {
    println!("{what:<64} {figure:>18}");
}
