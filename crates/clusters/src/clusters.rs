//! The loop over the hub and all its workers.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use api::MicroTime;
use controllers::{Clock, Error, Meter, Recorder, Watched, WorkQueue};
use futures::future::BoxFuture;
use kube::config::Kubeconfig;
use kube::runtime::watcher;
use kube::{Api, Client};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinSet;

use crate::active::{self, Report};
use crate::dispatch::{self, Decision, HubWrite, SeenJob};
use crate::hub::{Changed, Hub, HubKind};
use crate::kubeconfig::{Refusal, judge, read};
use crate::remote::{self, RemoteWrite};
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

/// Makes the client of a worker from its kubeconfig, which was judged before.
pub type Connect = Arc<dyn Fn(Kubeconfig) -> BoxFuture<'static, Result<Client, String>> + Send + Sync>;

/// Who nominates clusters for a Workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dispatcher {
    /// All that are connected, at once.
    AllAtOnce,
    /// So many every five minutes, in the order of the configuration.
    Incremental {
        /// Their number.
        step: usize,
    },
    /// Another program.
    External,
}

/// How other clusters are used.
#[derive(Clone)]
pub struct ClustersConfig {
    /// The namespace of the Secrets with kubeconfigs.
    pub namespace: String,
    /// The folder of kubeconfigs in files.
    pub folder: PathBuf,
    /// The name of this hub among those that use the same workers.
    pub origin: String,
    /// How long a worker may be away until its Workloads run elsewhere, in microseconds.
    pub worker_lost_us: i64,
    /// Whether objects in workers are removed whose Workload is gone.
    pub collects: bool,
    /// Who nominates clusters.
    pub dispatcher: Dispatcher,
    /// The current time.
    pub clock: Clock,
    /// What counts.
    pub meter: Meter,
    /// How workers are reached.
    pub connect: Connect,
}

impl Default for ClustersConfig {
    fn default() -> Self {
        Self {
            namespace: "kueue-system".into(),
            folder: "/etc/multikueue/kubeconfigs".into(),
            origin: "multikueue".into(),
            worker_lost_us: 900_000_000,
            collects: true,
            dispatcher: Dispatcher::AllAtOnce,
            clock: Arc::new(jiff::Timestamp::now),
            meter: Meter::default(),
            connect: Arc::new(|config| Box::pin(crate::connect(config))),
        }
    }
}

impl fmt::Debug for ClustersConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClustersConfig")
            .field("namespace", &self.namespace)
            .field("origin", &self.origin)
            .field("worker_lost_us", &self.worker_lost_us)
            .field("dispatcher", &self.dispatcher)
            .finish_non_exhaustive()
    }
}

/// What decisions read.
#[derive(Default)]
pub(crate) struct Objects {
    pub(crate) hub: Hub,
    pub(crate) workers: BTreeMap<String, Worker>,
    pub(crate) origin: String,
    /// When this loop has begun.
    pub(crate) started: MicroTime,
    /// Why a worker has not taken a Workload or its job.
    pub(crate) refusals: BTreeMap<(Key, String), String>,
    /// Why jobs are not to run in other clusters, by the uid of their Workload.
    pub(crate) unmanaged: BTreeMap<String, String>,
    /// What of a job in a worker has come back.
    pub(crate) synced: BTreeMap<Key, SeenJob>,
    /// The eviction whose end the status of a job says.
    pub(crate) stopped: BTreeMap<Key, String>,
    /// When clusters were nominated last, by the uid of the Workload.
    pub(crate) rounds: BTreeMap<String, MicroTime>,
}

/// What a step is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Item {
    /// A Workload at the hub.
    Workload(Key),
    /// A Workload in a worker.
    Remote(Key, String),
    Cluster(String),
    Check(String),
}

/// What the watches show before a write.
#[derive(Debug, Clone)]
enum Before {
    /// The resource version of an object at the hub.
    Hub(HubKind, Key, String),
    /// The resource version of a Workload in a worker; `None`: there is none.
    Remote(Key, String, Option<String>),
    /// The uid of a job in a worker; `None`: there is none.
    Job(Key, String, Option<String>),
    /// Nothing that is watched.
    Nothing,
}

enum Step {
    Hub(HubWrite),
    Remote(String, RemoteWrite),
    Conditions(HubKind, Box<controllers::Whole>, Report),
}

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
    recorder: Recorder,
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

    fn shows(objects: &Objects, before: &Before) -> bool {
        let version =
            |whole: Option<&controllers::Whole>| whole.map(|whole| whole.metadata.resource_version.clone());
        match before {
            Before::Nothing => true,
            Before::Hub(kind, key, was) => {
                let hub = &objects.hub;
                let whole = match kind {
                    HubKind::Workload => hub.workloads.get(key),
                    HubKind::Check => hub.checks.get(&key.name),
                    HubKind::Cluster => hub.clusters.get(&key.name),
                    HubKind::Config => hub.configs.get(&key.name),
                    HubKind::Secret => None,
                };
                version(whole).as_ref() != Some(was)
            }
            Before::Remote(key, cluster, was) => {
                let worker = objects.workers.get(cluster);
                worker.is_none_or(|worker| version(worker.workloads.get(key)) != *was)
            }
            Before::Job(key, cluster, was) => {
                let worker = objects.workers.get(cluster);
                worker.is_none_or(|worker| {
                    let live = worker.jobs_of(key).find(|(_, job)| !job.metadata.is_deleting());
                    live.map(|(_, job)| job.metadata.uid.clone()) != *was
                })
            }
        }
    }

    fn reconcile(&mut self) {
        let now = self.queue.now();
        for item in self.queue.take(now) {
            let objects = &self.objects;
            if self.queue.is_busy(&item, now, |before| Self::shows(objects, before)) {
                continue;
            }
            let step = match &item {
                Item::Workload(key) => match dispatch::decide(objects, &self.config, key, now) {
                    Decision::Write(write) => Some(Step::Hub(write)),
                    Decision::At(time) => {
                        self.queue.add_at(time, item.clone());
                        continue;
                    }
                    Decision::Nothing => None,
                },
                Item::Remote(key, cluster) => {
                    let is_orphan = !objects.hub.workloads.contains_key(key);
                    if is_orphan && !self.config.collects {
                        continue;
                    }
                    remote::decide(objects, key, cluster).map(|write| Step::Remote(cluster.clone(), write))
                }
                Item::Cluster(name) => objects.workers.get(name).and_then(|worker| {
                    let report = active::cluster(&objects.hub, name, worker, now)?;
                    Some(Step::Conditions(
                        HubKind::Cluster,
                        Box::new(objects.hub.clusters.get(name)?.clone()),
                        report,
                    ))
                }),
                Item::Check(name) => active::check(&objects.hub, name, now).and_then(|report| {
                    Some(Step::Conditions(
                        HubKind::Check,
                        Box::new(objects.hub.checks.get(name)?.clone()),
                        report,
                    ))
                }),
            };
            match step {
                Some(step) => self.start(item, step),
                None => self.rest(&item),
            }
        }
    }

    /// There is nothing to do about an item.
    fn rest(&mut self, item: &Item) {
        self.queue.rest(item);
        if let Item::Workload(key) = item
            && !self.objects.hub.workloads.contains_key(key)
        {
            self.objects.synced.remove(key);
            self.objects.stopped.remove(key);
            self.objects.refusals.retain(|(known, _), _| known != key);
        }
    }

    fn start(&mut self, item: Item, step: Step) {
        let cluster = match &step {
            Step::Remote(cluster, _) => cluster.clone(),
            Step::Hub(_) | Step::Conditions(..) => String::new(),
        };
        let writes = self.writing.entry(cluster.clone()).or_default();
        if *writes >= WRITES_MAX {
            // The end of any write looks at it again; a worker that is slow holds up only itself.
            self.queue.add_at(MicroTime(self.queue.now().0 + 50_000), item);
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
        let cluster = match &step {
            Step::Remote(cluster, _) => cluster.as_str(),
            Step::Hub(_) | Step::Conditions(..) => "",
        };
        if let Some(writes) = self.writing.get_mut(cluster) {
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
        if let Item::Remote(key, cluster) = item {
            let place = (key.clone(), cluster.clone());
            if self.objects.refusals.insert(place, why.clone()) != Some(why) {
                self.queue.add([Item::Workload(key.clone())]);
            }
        }
    }

    fn ended(&mut self, item: Item, step: Step, outcome: Outcome) {
        let now = self.queue.now();
        let uid = |key: &Key| self.objects.hub.workloads.get(key).map(|whole| whole.metadata.uid.clone());
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
                    && let Some(uid) = uid(key)
                {
                    self.objects.unmanaged.insert(uid, why);
                    self.queue.add([Item::Workload(key.clone())]);
                }
                return;
            }
            Outcome::Written => {}
        }
        if let Item::Remote(key, cluster) = &item {
            self.objects.refusals.remove(&(key.clone(), cluster.clone()));
        }
        let before = Self::before(&item, &step);
        match step {
            Step::Hub(HubWrite::Status { whole, told, .. }) => {
                if let Some(told) = told {
                    let subject = write::subject(HubKind::Workload, &whole);
                    self.recorder.record_event(&subject, told.is_warning, "MultiKueue", &told.text);
                }
            }
            Step::Hub(HubWrite::Nominate { whole, .. }) => {
                self.objects.rounds.insert(whole.metadata.uid.clone(), now);
            }
            Step::Hub(HubWrite::SyncJob { seen, .. }) => {
                if let Item::Workload(key) = &item {
                    self.objects.synced.insert(key.clone(), seen);
                }
            }
            Step::Hub(HubWrite::StopJob { eviction, .. }) => {
                if let Item::Workload(key) = &item {
                    self.objects.stopped.insert(key.clone(), eviction);
                }
            }
            Step::Conditions(kind, whole, report) => {
                let subject = write::subject(kind, &whole);
                if report.is_turn {
                    let (reason, text) = (&report.active.reason, &report.active.message);
                    self.recorder.record_event(&subject, !report.active.is_true(), reason, text);
                }
            }
            Step::Remote(..) => {}
        }
        self.queue.expect(item, before);
    }

    fn before(item: &Item, step: &Step) -> Before {
        match (item, step) {
            (
                Item::Workload(key),
                Step::Hub(HubWrite::Status { whole, .. } | HubWrite::Nominate { whole, .. }),
            ) => Before::Hub(HubKind::Workload, key.clone(), whole.metadata.resource_version.clone()),
            (Item::Remote(key, cluster), Step::Remote(_, write)) => {
                let (key, cluster) = (key.clone(), cluster.clone());
                match write {
                    RemoteWrite::CreateWorkload(_) => Before::Remote(key, cluster, None),
                    RemoteWrite::PatchWorkload(whole, _) | RemoteWrite::DeleteWorkload(whole) => {
                        Before::Remote(key, cluster, Some(whole.metadata.resource_version.clone()))
                    }
                    RemoteWrite::CreateJob(..) => Before::Job(key, cluster, None),
                    RemoteWrite::DeleteJob(_, whole) => {
                        Before::Job(key, cluster, Some(whole.metadata.uid.clone()))
                    }
                }
            }
            (_, Step::Conditions(kind, whole, _)) => {
                let key = Key::new("", &whole.metadata.name);
                Before::Hub(*kind, key, whole.metadata.resource_version.clone())
            }
            _ => Before::Nothing,
        }
    }
}
