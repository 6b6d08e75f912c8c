//! What is known of a worker: whether it is reached, and what this hub has there.

use std::collections::{BTreeMap, BTreeSet};

use api::MicroTime;
use api::kueue::jobs::{prebuilt_workload, remote};
use controllers::Whole;
use kube::Client;
use tokio::task::JoinHandle;

use crate::hub::apply;
use crate::kubeconfig::Refusal;
use crate::session::{News, Resource};
use crate::watch::{Key, Seen};

/// How a worker is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Link {
    /// The first answer is outstanding.
    Connecting,
    Connected,
    /// The configuration is not accepted.
    Refused(Refusal),
    /// It does not answer: why, how often it was tried, and when it is tried again.
    Lost {
        why: String,
        attempts: u32,
        next: MicroTime,
    },
    /// It is no worker any more.
    Removed,
}

/// A task that ends with its value.
#[derive(Debug)]
pub(crate) struct Task(pub(crate) JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A worker. What it had is kept while it is away.
pub(crate) struct Worker {
    pub(crate) link: Link,
    /// Since when it is away; `None`: it is connected.
    pub(crate) lost_since: Option<MicroTime>,
    /// The kubeconfig that the task uses.
    pub(crate) kubeconfig: Option<String>,
    /// Number of the task: news of earlier ones do not count.
    pub(crate) generation: u64,
    pub(crate) task: Option<Task>,
    client: Option<Client>,
    /// What has not been listed in this session.
    unlisted: BTreeSet<Resource>,
    /// Whether everything was listed once.
    was_listed: bool,
    pub(crate) workloads: BTreeMap<Key, Whole>,
    jobs: BTreeMap<usize, BTreeMap<Key, Whole>>,
    /// The jobs of Workloads.
    jobs_of: BTreeMap<Key, BTreeSet<(usize, Key)>>,
    /// The kinds that it does not serve, or not to this hub, and why.
    pub(crate) unserved: BTreeMap<usize, String>,
}

impl Worker {
    pub(crate) fn new(now: MicroTime) -> Self {
        Self {
            link: Link::Connecting,
            lost_since: Some(now),
            kubeconfig: None,
            generation: 0,
            task: None,
            client: None,
            unlisted: Resource::all().collect(),
            was_listed: false,
            workloads: BTreeMap::new(),
            jobs: BTreeMap::new(),
            jobs_of: BTreeMap::new(),
            unserved: BTreeMap::new(),
        }
    }

    /// The client, while it is connected and everything has been read.
    pub(crate) fn client(&self) -> Option<&Client> {
        self.client.as_ref().filter(|_| self.is_connected())
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.link == Link::Connected
    }

    /// It is not reached from now on.
    pub(crate) fn lose(&mut self, link: Link, now: MicroTime) {
        self.link = link;
        self.lost_since.get_or_insert(now);
        self.unlisted = Resource::all().collect();
    }

    /// Stops to reach it.
    pub(crate) fn stop(&mut self, link: Link, now: MicroTime) {
        self.lose(link, now);
        (self.task, self.kubeconfig, self.client) = (None, None, None);
        self.generation += 1;
    }

    /// Applies news. Returns the Workloads that are concerned; those of a worker that is reached, or lost, are all.
    pub(crate) fn apply(&mut self, news: News, now: MicroTime) -> BTreeSet<Key> {
        match news {
            News::Client(client) => {
                self.client = Some(client);
                BTreeSet::new()
            }
            News::Seen(resource, seen) => {
                let is_list = matches!(seen, Seen::Listed(_));
                let changed = match resource {
                    Resource::Workload => apply(&mut self.workloads, seen),
                    Resource::Job(kind) => self.apply_jobs(kind, seen),
                };
                if is_list { changed.into_iter().chain(self.listed(resource)).collect() } else { changed }
            }
            News::Unserved(kind, why) => {
                self.unserved.insert(kind, why);
                self.listed(Resource::Job(kind))
            }
            News::Lost { why, attempts, pause_us } => {
                let next = MicroTime(now.0 + pause_us);
                self.lose(Link::Lost { why, attempts, next }, now);
                self.keys()
            }
        }
    }

    /// A resource has been read. When all have been, the worker is connected.
    fn listed(&mut self, resource: Resource) -> BTreeSet<Key> {
        self.unlisted.remove(&resource);
        if self.is_connected() || !self.unlisted.is_empty() {
            return BTreeSet::new();
        }
        (self.link, self.lost_since, self.was_listed) = (Link::Connected, None, true);
        self.keys()
    }

    fn apply_jobs(&mut self, kind: usize, seen: Seen) -> BTreeSet<Key> {
        if matches!(seen, Seen::Listed(_)) {
            self.unserved.remove(&kind);
        }
        let jobs = self.jobs.entry(kind).or_default();
        let before = |jobs: &BTreeMap<Key, Whole>, keys: &BTreeSet<Key>| -> BTreeSet<(Key, Key)> {
            keys.iter().filter_map(|key| Some((key.clone(), workload_of(jobs.get(key)?)?))).collect()
        };
        let known: BTreeSet<Key> = match &seen {
            Seen::Listed(_) => jobs.keys().cloned().collect(),
            Seen::Applied(whole) => [Key::of(whole)].into(),
            Seen::Deleted(key) => [key.clone()].into(),
        };
        let old = before(jobs, &known);
        let changed = apply(jobs, seen);
        let new = before(jobs, &changed);
        for (job, workload) in &old {
            if let Some(of) = self.jobs_of.get_mut(workload) {
                of.remove(&(kind, job.clone()));
                if of.is_empty() {
                    self.jobs_of.remove(workload);
                }
            }
        }
        for (job, workload) in &new {
            self.jobs_of.entry(workload.clone()).or_default().insert((kind, job.clone()));
        }
        old.into_iter().chain(new).map(|(_, workload)| workload).collect()
    }

    /// The Workloads that it has, or has a job of.
    pub(crate) fn keys(&self) -> BTreeSet<Key> {
        self.workloads.keys().chain(self.jobs_of.keys()).cloned().collect()
    }

    /// The jobs of a Workload, with the positions of their kinds.
    pub(crate) fn jobs_of(&self, workload: &Key) -> impl Iterator<Item = (usize, &Whole)> {
        let jobs = self.jobs_of.get(workload).into_iter().flatten();
        jobs.filter_map(|(kind, key)| Some((*kind, self.jobs.get(kind)?.get(key)?)))
    }

    /// Whether the pods of a Workload may run there. Of a worker that is away for too long, it does not count any more; of one that was
    /// never read, it counts if the Workload `ran` anywhere.
    pub(crate) fn may_run(
        &self,
        workload: &Key,
        ran: bool,
        now: MicroTime,
        lost_max_us: i64,
    ) -> Option<MayRun> {
        let has_job = if self.was_listed { self.jobs_of.contains_key(workload) } else { ran };
        if !has_job {
            return None;
        }
        match self.lost_since {
            None => Some(MayRun::Runs),
            Some(since) if now.0 < since.0 + lost_max_us => {
                Some(MayRun::Until(MicroTime(since.0 + lost_max_us)))
            }
            Some(_) => None,
        }
    }
}

/// The pods of a Workload may run in a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MayRun {
    /// It says so.
    Runs,
    /// It is away, and counts until then.
    Until(MicroTime),
}

/// The Workload that a job names.
fn workload_of(job: &Whole) -> Option<Key> {
    let name = prebuilt_workload(&job.value)?;
    Some(Key::new(&job.metadata.namespace, name))
}

/// Whether an object was created for the object of the hub with this uid. Kueue does not name it in all versions.
pub(crate) fn is_copy_of(whole: &Whole, uid: &str) -> bool {
    whole.metadata.annotations.get(remote::ORIGIN_UID).is_none_or(|from| from == uid)
}
