//! What the loop looks at, what it writes, and what the watches show before a write.

use api::MicroTime;
use controllers::Whole;

use crate::active::{self, Report};
use crate::config::ClustersConfig;
use crate::dispatch::{self, Decision, HubWrite};
use crate::hub::HubKind;
use crate::objects::Objects;
use crate::remote::{self, RemoteWrite};
use crate::watch::Key;

/// What a step is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Item {
    /// A Workload at the hub.
    Workload(Key),
    /// A Workload in a worker.
    Remote(Key, String),
    Cluster(String),
    Check(String),
}

/// A write.
pub(crate) enum Step {
    Hub(HubWrite),
    Remote(String, RemoteWrite),
    Conditions(HubKind, Box<Whole>, Report),
}

impl Step {
    /// The cluster that it is in; the hub is "".
    pub(crate) fn cluster(&self) -> &str {
        match self {
            Self::Remote(cluster, _) => cluster,
            Self::Hub(_) | Self::Conditions(..) => "",
        }
    }
}

/// What is to be done about an item.
pub(crate) enum Next {
    Write(Step),
    /// Nothing before then.
    At(MicroTime),
    Nothing,
}

/// Decides about an item.
pub(crate) fn next(objects: &Objects, config: &ClustersConfig, item: &Item, now: MicroTime) -> Next {
    let step = match item {
        Item::Workload(key) => match dispatch::decide(objects, config, key, now) {
            Decision::Write(write) => Some(Step::Hub(write)),
            Decision::At(time) => return Next::At(time),
            Decision::Nothing => None,
        },
        Item::Remote(key, cluster) => {
            let is_orphan = !objects.hub.workloads.contains_key(key);
            let write =
                if is_orphan && !config.collects { None } else { remote::decide(objects, key, cluster) };
            write.map(|write| Step::Remote(cluster.clone(), write))
        }
        Item::Cluster(name) => objects.workers.get(name).and_then(|worker| {
            let report = active::cluster(&objects.hub, name, worker, now)?;
            Some(conditions(HubKind::Cluster, objects.hub.clusters.get(name)?, report))
        }),
        Item::Check(name) => active::check(&objects.hub, name, now)
            .and_then(|report| Some(conditions(HubKind::Check, objects.hub.checks.get(name)?, report))),
    };
    step.map_or(Next::Nothing, Next::Write)
}

fn conditions(kind: HubKind, whole: &Whole, report: Report) -> Step {
    Step::Conditions(kind, Box::new(whole.clone()), report)
}

/// What the watches show before a write.
#[derive(Debug, Clone)]
pub(crate) enum Before {
    /// The resource version of an object at the hub.
    Hub(HubKind, Key, String),
    /// The resource version of a Workload in a worker; `None`: there is none.
    Remote(Key, String, Option<String>),
    /// The uid of a job in a worker; `None`: there is none.
    Job(Key, String, Option<String>),
    /// Nothing that is watched.
    Nothing,
}

impl Before {
    /// What they show now, if a write about an item succeeds.
    pub(crate) fn of(item: &Item, step: &Step) -> Self {
        let version = |whole: &Whole| whole.metadata.resource_version.clone();
        match (item, step) {
            (
                Item::Workload(key),
                Step::Hub(HubWrite::Status { whole, .. } | HubWrite::Nominate { whole, .. }),
            ) => Self::Hub(HubKind::Workload, key.clone(), version(whole)),
            (Item::Remote(key, cluster), Step::Remote(_, write)) => {
                let (key, cluster) = (key.clone(), cluster.clone());
                match write {
                    RemoteWrite::CreateWorkload(_) => Self::Remote(key, cluster, None),
                    RemoteWrite::PatchWorkload(whole, _) | RemoteWrite::DeleteWorkload(whole) => {
                        Self::Remote(key, cluster, Some(version(whole)))
                    }
                    RemoteWrite::CreateJob(..) => Self::Job(key, cluster, None),
                    RemoteWrite::DeleteJob(_, whole) => {
                        Self::Job(key, cluster, Some(whole.metadata.uid.clone()))
                    }
                }
            }
            (_, Step::Conditions(kind, whole, _)) => {
                Self::Hub(*kind, Key::new("", &whole.metadata.name), version(whole))
            }
            _ => Self::Nothing,
        }
    }

    /// Whether they show something else.
    pub(crate) fn is_shown(&self, objects: &Objects) -> bool {
        let version = |whole: Option<&Whole>| whole.map(|whole| whole.metadata.resource_version.clone());
        match self {
            Self::Nothing => true,
            Self::Hub(kind, key, was) => {
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
            Self::Remote(key, cluster, was) => {
                let worker = objects.workers.get(cluster);
                worker.is_none_or(|worker| version(worker.workloads.get(key)) != *was)
            }
            Self::Job(key, cluster, was) => {
                let worker = objects.workers.get(cluster);
                worker.is_none_or(|worker| {
                    let live = worker.jobs_of(key).find(|(_, job)| !job.metadata.is_deleting());
                    live.map(|(_, job)| job.metadata.uid.clone()) != *was
                })
            }
        }
    }
}
