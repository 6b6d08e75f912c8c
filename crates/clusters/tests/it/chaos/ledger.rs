//! Which pods live where, as watches of all workers show it at any time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt as _;
use kube::api::DynamicObject;
use kube::core::ApiResource;
use kube::runtime::watcher::{self, Event, watcher};
use tokio::time::Instant;

use crate::common::{Cluster, Running, jobs, resource};

/// How long a worker may be away until its jobs run elsewhere.
pub(crate) const LOST: Duration = Duration::from_mins(3);
/// How long the hub may take to notice that a worker is back: the pause between two attempts, and a list of everything.
const NOTICED: Duration = Duration::from_secs(90);
/// When a worker is back, the hub reaches it again by then, and has stopped what runs elsewhere.
const RETURN_MAX: Duration = Duration::from_mins(8);
const ORIGIN_UID: &str = "kueue.x-k8s.io/multikueue-origin-uid";

pub(crate) fn pods() -> ApiResource {
    resource("v1", "Pod", "pods")
}

/// Since when a worker is away, and when it was back after it was away for too long.
#[derive(Default)]
struct Absence {
    since: Option<Instant>,
    lost_until: Option<Instant>,
}

#[derive(Default)]
struct Books {
    /// The job of the hub that each job of a worker is a copy of, by uid.
    origins: BTreeMap<String, String>,
    /// The pods that have begun and not ended, with the uid of their job, by worker.
    live: BTreeMap<&'static str, BTreeMap<String, String>>,
    absences: BTreeMap<&'static str, Absence>,
    /// The copies whose pods have lived, by the uid of the job of the hub.
    started: BTreeMap<String, BTreeSet<String>>,
    problems: Vec<String>,
}

impl Books {
    /// What a watch has shown: what is there now, and what is gone.
    fn note(&mut self, worker: &'static str, is_job: bool, object: &DynamicObject, is_gone: bool) {
        let uid = object.metadata.uid.clone().unwrap();
        if is_job {
            let annotations = object.metadata.annotations.as_ref();
            if let Some(origin) = annotations.and_then(|all| all.get(ORIGIN_UID)) {
                self.origins.insert(uid, origin.clone());
            }
            return;
        }
        let phase = object.data["status"]["phase"].as_str().unwrap_or_default();
        let owner = object.metadata.owner_references.iter().flatten().next();
        let live = self.live.entry(worker).or_default();
        match owner {
            Some(owner) if phase == "Running" && !is_gone => live.insert(uid, owner.uid.clone()),
            _ => live.remove(&uid),
        };
        self.judge();
    }

    fn judge(&mut self) {
        let mut at = BTreeMap::<&String, BTreeSet<&'static str>>::new();
        for (worker, live) in &self.live {
            for job in live.values() {
                if let Some(origin) = self.origins.get(job) {
                    at.entry(origin).or_default().insert(*worker);
                    self.started.entry(origin.clone()).or_default().insert(job.clone());
                }
            }
        }
        let now = Instant::now();
        let is_lost = |worker: &&&'static str| {
            self.absences.get(*worker).is_some_and(|absence| {
                absence.since.is_some_and(|since| now - since >= LOST)
                    || absence.lost_until.is_some_and(|until| now - until < RETURN_MAX)
            })
        };
        for (origin, workers) in at {
            let known = workers.iter().filter(|worker| !is_lost(worker)).count();
            if workers.len() > 1 && known > 1 {
                self.problems.push(format!("{origin} runs in {workers:?}"));
            }
        }
    }
}

#[derive(Clone, Default)]
pub(crate) struct Ledger(Arc<Mutex<Books>>);

impl Ledger {
    /// Watches a worker until the value is dropped.
    pub(crate) fn follow(&self, name: &'static str, cluster: &Cluster) -> [Running; 2] {
        [jobs(), pods()].map(|kind| {
            let (books, api) = (self.0.clone(), cluster.api(&kind, "default"));
            let is_job = kind.kind == "Job";
            Running::spawn(async move {
                let mut changes = std::pin::pin!(watcher(api, watcher::Config::default()));
                let mut listed = BTreeSet::new();
                while let Some(next) = changes.next().await {
                    let Ok(event) = next else { continue };
                    let mut books = books.lock().unwrap();
                    match event {
                        Event::Init => listed.clear(),
                        Event::InitApply(object) => {
                            listed.insert(object.metadata.uid.clone().unwrap());
                            books.note(name, is_job, &object, false);
                        }
                        Event::InitDone => {
                            if !is_job {
                                books.live.entry(name).or_default().retain(|uid, _| listed.contains(uid));
                            }
                        }
                        Event::Apply(object) => books.note(name, is_job, &object, false),
                        Event::Delete(object) => books.note(name, is_job, &object, true),
                    }
                }
            })
        })
    }

    /// A worker has nothing any more.
    pub(crate) fn forget(&self, name: &'static str) {
        self.0.lock().unwrap().live.remove(name);
    }

    pub(crate) fn leaves(&self, name: &'static str) {
        self.0.lock().unwrap().absences.entry(name).or_default().since.get_or_insert_with(Instant::now);
    }

    pub(crate) fn returns(&self, name: &'static str) {
        let mut books = self.0.lock().unwrap();
        let absence = books.absences.entry(name).or_default();
        let now = Instant::now();
        if absence.since.take().is_some_and(|since| now - since + NOTICED >= LOST) {
            absence.lost_until = Some(now);
        }
    }

    /// Whether a worker is away, or was for too long a short time ago.
    pub(crate) fn is_away(&self, name: &'static str) -> bool {
        let books = self.0.lock().unwrap();
        books.absences.get(name).is_some_and(|absence| {
            absence.since.is_some() || absence.lost_until.is_some_and(|until| until.elapsed() < RETURN_MAX)
        })
    }

    /// The jobs of the hub that have living pods in a worker.
    pub(crate) fn running(&self, name: &'static str) -> BTreeMap<String, usize> {
        let books = self.0.lock().unwrap();
        let mut found = BTreeMap::<String, usize>::new();
        for job in books.live.get(name).into_iter().flat_map(BTreeMap::values) {
            if let Some(origin) = books.origins.get(job) {
                *found.entry(origin.clone()).or_default() += 1;
            }
        }
        found
    }

    /// How many copies of a job have had living pods.
    pub(crate) fn starts(&self, origin: &str) -> usize {
        self.0.lock().unwrap().started.get(origin).map_or(0, BTreeSet::len)
    }

    pub(crate) fn problems(&self) -> Vec<String> {
        self.0.lock().unwrap().problems.clone()
    }
}
