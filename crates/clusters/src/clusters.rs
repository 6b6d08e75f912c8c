//! The loop over the hub and all its workers.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::time::Duration;

use api::MicroTime;
use controllers::{Error, Recorder, Watched, Whole, WorkQueue};
use kube::runtime::watcher;
use kube::{Api, Client};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinSet;

use crate::config::ClustersConfig;
use crate::dispatch::HubWrite;
use crate::figures::Figures;
use crate::hub::{Changed, HubKind};
use crate::items::{self, Before, Item, Next, Step};
use crate::kubeconfig::{Refusal, judge, read};
use crate::objects::Objects;
use crate::remote::RemoteWrite;
use crate::session::{News, keep};
use crate::watch::{Ended, Key, Seen, watch};
use crate::worker::{Link, Task, Worker};
use crate::write::{self, Outcome};

/// The most observations that wait.
const QUEUE_MAX: usize = 1_000;
/// The most writes at the same time: at the hub, and in each worker.
const WRITES_MAX: usize = 16;
/// The pause until a job that is not as far is looked at again, in microseconds. Kueue's.
const DEFERRED_US: i64 = 2_000_000;
/// The pause before a watch of the hub begins again.
const HUB_PAUSE: Duration = Duration::from_secs(2);

enum Observation {
    Hub(HubKind, Seen),
    HubFailed(HubKind, String),
    Worker { cluster: String, generation: u64, news: News },
}

/// The loop.
pub struct Clusters {
    client: Client,
    config: ClustersConfig,
    objects: Objects,
    unlisted: BTreeSet<HubKind>,
    tell: Sender<Observation>,
    observations: Receiver<Observation>,
    queue: WorkQueue<Item, Before>,
    /// Aborted when dropped.
    watches: JoinSet<()>,
    tasks: JoinSet<(Item, Step, Result<Outcome, Error>)>,
    /// Writes under way, by cluster; the hub is "".
    writing: BTreeMap<String, usize>,
    /// What is looked at again when a write in this cluster has ended.
    waiting: BTreeMap<String, BTreeSet<Item>>,
    recorder: Recorder,
    figures: Figures,
}

impl Clusters {
    /// The loop for the hub behind `client`. It must be made in an asynchronous runtime.
    pub fn new(client: Client, config: ClustersConfig) -> Self {
        let (tell, observations) = channel(QUEUE_MAX);
        let queue = WorkQueue::new(config.clock.clone());
        let objects = Objects { origin: config.origin.clone(), started: queue.now(), ..Objects::default() };
        Self {
            recorder: Recorder::new(client.clone(), config.clock.clone(), config.meter.clone()),
            client,
            objects,
            unlisted: HubKind::ALL.into(),
            tell,
            observations,
            queue,
            watches: JoinSet::new(),
            tasks: JoinSet::new(),
            writing: BTreeMap::new(),
            waiting: BTreeMap::new(),
            figures: Figures::default(),
            config,
        }
    }

    /// Runs until it is dropped. Writes under way are aborted then, as in a crash; the next process continues them.
    pub async fn run(mut self) -> Infallible {
        for kind in HubKind::ALL {
            self.watch(kind);
        }
        loop {
            let sleep = self.queue.sleep();
            tokio::select! {
                biased;
                Some(written) = self.tasks.join_next() => {
                    // A task does not panic, and none is aborted before the loop.
                    if let Ok((item, step, result)) = written {
                        self.written(item, step, result);
                    }
                }
                Some(observation) = self.observations.recv() => self.apply(observation),
                () = tokio::time::sleep(sleep) => {}
            }
            while let Ok(observation) = self.observations.try_recv() {
                self.apply(observation);
            }
            // Until everything is read, an object may be there that is not known.
            if self.unlisted.is_empty() {
                self.reconcile();
            }
        }
    }

    fn watch(&mut self, kind: HubKind) {
        let (client, tell, resource) = (self.client.clone(), self.tell.clone(), kind.resource());
        let api: Api<Watched> = match kind {
            HubKind::Secret => Api::namespaced_with(client, &self.config.namespace, &resource),
            HubKind::Workload | HubKind::Check | HubKind::Config | HubKind::Cluster => {
                Api::all_with(client, &resource)
            }
        };
        self.watches.spawn(async move {
            loop {
                let ended = watch(api.clone(), watcher::Config::default(), &tell, |seen| {
                    Observation::Hub(kind, seen)
                })
                .await;
                let (Ended::Failed(why) | Ended::Unserved(why)) = ended else { return };
                if tell.send(Observation::HubFailed(kind, why)).await.is_err() {
                    return;
                }
                tokio::time::sleep(HUB_PAUSE).await;
            }
        });
    }

    fn apply(&mut self, observation: Observation) {
        match observation {
            Observation::HubFailed(kind, why) => {
                tracing::warn!(?kind, why, "other clusters wait until a watch of this one works again");
            }
            Observation::Hub(kind, seen) => {
                let is_list = matches!(seen, Seen::Listed(_));
                match self.objects.hub.apply(kind, seen) {
                    Changed::Workloads(keys) => self.look_at(&keys),
                    Changed::Clusters => self.clusters_changed(),
                }
                if is_list && self.unlisted.remove(&kind) && self.unlisted.is_empty() {
                    self.clusters_changed();
                }
            }
            Observation::Worker { cluster, generation, news } => {
                let now = self.queue.now();
                let Some(worker) = self.objects.workers.get_mut(&cluster) else { return };
                if worker.generation != generation {
                    return;
                }
                let was_connected = worker.is_connected();
                let changed = worker.apply(news, now);
                if worker.is_connected() == was_connected {
                    self.look_at(&changed);
                } else {
                    self.turned(&cluster);
                }
                self.queue.add([Item::Cluster(cluster)]);
            }
        }
    }

    /// Looks at Workloads everywhere.
    fn look_at(&mut self, keys: &BTreeSet<Key>) {
        for key in keys {
            self.queue.add([Item::Workload(key.clone())]);
            self.queue.add(self.objects.workers.keys().map(|name| Item::Remote(key.clone(), name.clone())));
        }
    }

    /// A worker is reached, or is not any more: all Workloads may go there, or not.
    fn turned(&mut self, cluster: &str) {
        let all: BTreeSet<Key> = self.objects.hub.workloads.keys().cloned().collect();
        let there = self.objects.workers.get(cluster).map(Worker::keys).unwrap_or_default();
        let keys: BTreeSet<Key> = all.into_iter().chain(there).collect();
        self.look_at(&keys);
    }

    /// Brings the connections in line with the clusters and their Secrets, and looks at all conditions.
    fn clusters_changed(&mut self) {
        if !self.unlisted.is_empty() {
            return;
        }
        let now = self.queue.now();
        let workers = self.objects.workers.keys();
        let removed = workers.filter(|name| !self.objects.hub.clusters.contains_key(*name));
        for name in removed.cloned().collect::<Vec<_>>() {
            if let Some(worker) = self.objects.workers.get_mut(&name)
                && worker.link != Link::Removed
            {
                worker.stop(Link::Removed, now);
                self.turned(&name);
                self.tell(&name);
            }
        }
        let names: Vec<String> = self.objects.hub.clusters.keys().cloned().collect();
        for name in &names {
            self.connect(name, now);
        }
        self.queue.add(names.into_iter().map(Item::Cluster));
        self.queue.add(self.objects.hub.checks.keys().cloned().map(Item::Check));
        let all: BTreeSet<Key> = self.objects.hub.workloads.keys().cloned().collect();
        self.look_at(&all);
    }

    fn kubeconfig(&self, name: &str) -> Result<String, Refusal> {
        let Some(cluster) = self.objects.hub.clusters.get(name) else {
            return Err(Refusal::bad("it is gone"));
        };
        let source = &cluster.value["spec"]["clusterSource"];
        let config = &source["kubeConfig"];
        if config.is_null() {
            return Err(Refusal {
                reason: "MultiKueueClusterProfileFeatureDisabled",
                text: "clusterProfileRef is not supported: name a kubeConfig".into(),
            });
        }
        let location = config["location"].as_str().unwrap_or_default();
        if config["locationType"] == "Path" {
            return read(location, &self.config.folder);
        }
        match self.objects.hub.secrets.get(location) {
            Some(Some(text)) => Ok(text.clone()),
            Some(None) => Err(Refusal::bad(format!("key \"kubeconfig\" not found in secret {location:?}"))),
            None => Err(Refusal::bad(format!("Secret {location:?} not found"))),
        }
    }

    fn connect(&mut self, name: &str, now: MicroTime) {
        let judged = self.kubeconfig(name).and_then(|text| Ok((judge(&text)?, text)));
        let worker = self.objects.workers.entry(name.to_owned()).or_insert_with(|| Worker::new(now));
        let (config, text) = match judged {
            Ok(judged) => judged,
            Err(refusal) => {
                let link = Link::Refused(refusal);
                if worker.link != link {
                    worker.stop(link, now);
                    self.turned(name);
                }
                return;
            }
        };
        if worker.kubeconfig.as_ref() == Some(&text) {
            return;
        }
        worker.stop(Link::Connecting, now);
        worker.kubeconfig = Some(text);
        let (cluster, generation) = (name.to_owned(), worker.generation);
        let of = move |news| Observation::Worker { cluster: cluster.clone(), generation, news };
        let keeping =
            keep(self.config.connect.clone(), config, self.config.origin.clone(), self.tell.clone(), of);
        worker.task = Some(Task(tokio::spawn(keeping)));
    }

    /// Looks at what has changed, and at what waits for a write to end.
    fn reconcile(&mut self) {
        loop {
            self.release();
            let now = self.queue.now();
            let items = self.queue.take(now);
            if items.is_empty() {
                return;
            }
            for item in items {
                self.look(item, now);
            }
        }
    }

    /// Tells the figures of a cluster.
    fn tell(&self, cluster: &str) {
        let is_connected = self.objects.workers.get(cluster).is_some_and(Worker::is_connected);
        self.figures.tell(&self.config.meter, &self.objects.hub, cluster, is_connected);
    }

    fn look(&mut self, item: Item, now: MicroTime) {
        match &item {
            Item::Workload(key) => {
                for cluster in self.figures.look(&self.objects.hub, key) {
                    self.tell(&cluster);
                }
            }
            Item::Cluster(cluster) => self.tell(cluster),
            Item::Remote(..) | Item::Check(_) => {}
        }
        let objects = &self.objects;
        if self.queue.is_busy(&item, now, |before| before.is_shown(objects)) {
            return;
        }
        match items::next(objects, &self.config, &item, now) {
            Next::Write(step) => self.start(item, step),
            Next::At(time) => self.queue.add_at(time, item),
            Next::Nothing => self.rest(&item),
        }
    }

    /// Looks again at items for which a cluster had too many writes under way, as many as may begin now.
    fn release(&mut self) {
        for (cluster, waiting) in &mut self.waiting {
            let under_way = self.writing.get(cluster).copied().unwrap_or_default();
            for _ in under_way..WRITES_MAX {
                self.queue.add(waiting.pop_first());
            }
        }
        self.waiting.retain(|_, waiting| !waiting.is_empty());
    }

    /// There is nothing to do about an item.
    fn rest(&mut self, item: &Item) {
        self.queue.rest(item);
        if let Item::Workload(key) = item
            && !self.objects.hub.workloads.contains_key(key)
        {
            self.objects.memories.remove(key);
        }
    }

    fn start(&mut self, item: Item, step: Step) {
        let cluster = step.cluster().to_owned();
        let writes = self.writing.entry(cluster.clone()).or_default();
        if *writes >= WRITES_MAX {
            // A worker that is slow holds up only itself.
            self.waiting.entry(cluster).or_default().insert(item);
            return;
        }
        *writes += 1;
        let worker = self.objects.workers.get(&cluster).and_then(Worker::client).cloned();
        let (hub, origin) = (self.client.clone(), self.config.origin.clone());
        self.queue.begin(item.clone());
        self.tasks.spawn(async move {
            let result = match (&step, worker) {
                (Step::Hub(write), _) => write::at_hub(&hub, write).await,
                (Step::Conditions(kind, whole, report), _) => {
                    write::conditions(&hub, *kind, whole, &report.conditions).await
                }
                (Step::Remote(_, write), Some(worker)) => {
                    write::in_worker(&hub, &worker, &origin, write).await
                }
                (Step::Remote(..), None) => Err(Error::Unreachable("the worker is away".into())),
            };
            (item, step, result)
        });
    }

    fn written(&mut self, item: Item, step: Step, result: Result<Outcome, Error>) {
        self.queue.end(&item);
        if let Some(writes) = self.writing.get_mut(step.cluster()) {
            *writes = writes.saturating_sub(1);
        }
        match result {
            Ok(outcome) => self.ended(item, step, outcome),
            Err(Error::Conflict(_)) => {
                self.queue.retry(item);
            }
            Err(error) => {
                tracing::warn!(?item, %error, "a write for another cluster failed, retrying");
                self.refuse(&item, error.to_string());
                self.queue.retry(item);
            }
        }
    }

    /// Notes why a worker has not taken a Workload: the hub says it.
    fn refuse(&mut self, item: &Item, why: String) {
        if let Item::Remote(key, cluster) = item
            && let Some(memory) = self.objects.memory_mut(key)
            && memory.refusals.insert(cluster.clone(), why.clone()) != Some(why)
        {
            self.queue.add([Item::Workload(key.clone())]);
        }
    }

    fn ended(&mut self, item: Item, step: Step, outcome: Outcome) {
        let now = self.queue.now();
        match outcome {
            Outcome::Deferred => return self.queue.add_at(MicroTime(now.0 + DEFERRED_US), item),
            // The watches will show it.
            Outcome::Gone => return,
            Outcome::Taken(why) => {
                self.refuse(&item, why);
                self.queue.retry(item);
                return;
            }
            Outcome::Unmanaged(why) => {
                if let Item::Workload(key) | Item::Remote(key, _) = &item
                    && let Some(memory) = self.objects.memory_mut(key)
                {
                    memory.unmanaged = Some(why);
                    self.queue.add([Item::Workload(key.clone())]);
                }
                return;
            }
            Outcome::Written => {}
        }
        if let Item::Workload(key) | Item::Remote(key, _) = &item
            && let Some(memory) = self.objects.memory_mut(key)
        {
            memory.written(&step, now);
        }
        let before = Before::of(&item, &step);
        match step {
            Step::Hub(HubWrite::Status { whole, told, admitted_in, .. }) => {
                if let Some(cluster) = admitted_in {
                    self.config.meter.admitted_in(queue_of(&whole), &cluster);
                }
                if let Some(told) = told {
                    let subject = write::subject(HubKind::Workload, &whole);
                    self.recorder.record_event(&subject, told.is_warning, "MultiKueue", &told.text);
                }
            }
            Step::Conditions(kind, whole, report) => {
                let subject = write::subject(kind, &whole);
                if report.is_turn {
                    let (reason, text) = (&report.active.reason, &report.active.message);
                    self.recorder.record_event(&subject, !report.active.is_true(), reason, text);
                }
            }
            Step::Remote(cluster, RemoteWrite::CreateWorkload(_)) => {
                if let Item::Remote(key, _) = &item
                    && let Some(whole) = self.objects.hub.workloads.get(key)
                {
                    self.config.meter.dispatched(queue_of(whole), &cluster);
                }
            }
            Step::Hub(_) | Step::Remote(..) => {}
        }
        self.queue.expect(item, before);
    }
}

/// The queue that has given a Workload its quota.
fn queue_of(workload: &Whole) -> &str {
    workload.value["status"]["admission"]["clusterQueue"].as_str().unwrap_or_default()
}
