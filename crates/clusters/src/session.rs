//! The connection to a worker: all its watches, until one of them ends; then, after a pause, all of them again. A worker that does not answer
//! keeps nothing but its own task waiting.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use api::kueue::jobs::remote;
use controllers::{Watched, api_resource, describe_error};
use kube::config::Kubeconfig;
use kube::core::{ApiResource, DynamicObject};
use kube::runtime::watcher::Config;
use kube::{Api, Client};
use tokio::sync::mpsc::Sender;
use tokio::task::JoinSet;

use crate::config::Connect;
use crate::hub::HubKind;
use crate::watch::{Ended, Seen, watch};

/// How often it is asked whether a silent worker is there, and how long it may take to answer.
const PROBE_EVERY: Duration = Duration::from_secs(30);
const PROBE_MAX: Duration = Duration::from_secs(10);
/// The pause before a kind that is not served is tried again.
const UNSERVED_PAUSE: Duration = Duration::from_mins(1);
/// The first pause between two attempts, and how often it doubles, as in Kueue.
const PAUSE_US: i64 = 5_000_000;
const DOUBLINGS: u32 = 6;

/// What is watched in a worker: the position of a kind of jobs among [`remote::kinds`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Resource {
    Workload,
    Job(usize),
}

impl Resource {
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        [Self::Workload].into_iter().chain((0..remote::kinds().count()).map(Self::Job))
    }

    fn api(self) -> Option<ApiResource> {
        match self {
            Self::Workload => Some(HubKind::Workload.resource()),
            Self::Job(at) => {
                remote::kinds().nth(at).map(|kind| api_resource(kind.api_version, kind.kind, kind.plural))
            }
        }
    }
}

/// What has become known of a worker.
pub(crate) enum News {
    Client(Client),
    Seen(Resource, Seen),
    /// The kind of jobs at this position is not served, or not to this hub.
    Unserved(usize, String),
    Lost {
        why: String,
        attempts: u32,
        pause_us: i64,
    },
}

/// The pause after so many attempts in a row: none after the first.
fn pause_us(failures: u32) -> i64 {
    match failures {
        0 => 0,
        _ => PAUSE_US << (failures - 1).min(DOUBLINGS),
    }
}

/// Keeps the connection to a worker, until the loop ends or the task is aborted.
pub(crate) async fn keep<T: Send + 'static>(
    connect: Connect,
    config: Kubeconfig,
    origin: String,
    tell: Sender<T>,
    of: impl Fn(News) -> T + Clone + Send + Sync + 'static,
) {
    let mut failures = 0;
    loop {
        let has_answered = Arc::new(AtomicBool::default());
        let why = match connect(config.clone()).await {
            Err(why) => why,
            Ok(client) => {
                if tell.send(of(News::Client(client.clone()))).await.is_err() {
                    return;
                }
                session(&client, &origin, &tell, &of, &has_answered).await
            }
        };
        if has_answered.load(Ordering::Relaxed) {
            failures = 0;
        }
        let pause_us = pause_us(failures);
        failures += 1;
        if tell.send(of(News::Lost { why, attempts: failures, pause_us })).await.is_err() {
            return;
        }
        tokio::time::sleep(Duration::from_micros(pause_us.unsigned_abs())).await;
    }
}

/// Watches everything. Returns why it ends.
async fn session<T: Send + 'static>(
    client: &Client,
    origin: &str,
    tell: &Sender<T>,
    of: &(impl Fn(News) -> T + Clone + Send + Sync + 'static),
    has_answered: &Arc<AtomicBool>,
) -> String {
    let mut tasks = JoinSet::new(); // Aborted when dropped.
    tasks.spawn(probe(client.clone()));
    for what in Resource::all() {
        let Some(resource) = what.api() else { continue };
        let api: Api<Watched> = Api::all_with(client.clone(), &resource);
        let selection = Config::default().labels(&format!("{}={origin}", remote::ORIGIN));
        let (tell, of, has_answered) = (tell.clone(), of.clone(), has_answered.clone());
        tasks.spawn(async move {
            loop {
                let seen = |seen| {
                    if what == Resource::Workload {
                        has_answered.store(true, Ordering::Relaxed);
                    }
                    of(News::Seen(what, seen))
                };
                let why = match watch(api.clone(), selection.clone(), &tell, seen).await {
                    Ended::Failed(why) => return why,
                    Ended::Unheard => return String::new(),
                    Ended::Unserved(why) => why,
                };
                let Resource::Job(kind) = what else { return why };
                if tell.send(of(News::Unserved(kind, why))).await.is_err() {
                    return String::new();
                }
                tokio::time::sleep(UNSERVED_PAUSE).await;
            }
        });
    }
    match tasks.join_next().await {
        Some(Ok(why)) => why,
        Some(Err(_)) | None => "a watch has stopped".into(),
    }
}

/// Ends when the worker does not answer, or not to this hub any more, or when another cluster answers at its address. Other refusals
/// are answers.
async fn probe(client: Client) -> String {
    let mut known = None;
    loop {
        match tokio::time::timeout(PROBE_MAX, identity(&client)).await {
            Err(_) => return format!("no answer within {} s", PROBE_MAX.as_secs()),
            Ok(Err(kube::Error::Api(status))) if status.code != 401 => {}
            Ok(Err(error)) => return describe_error(&error),
            Ok(Ok(found)) => {
                if known.is_some() && found.is_some() && known != found {
                    return "another cluster answers at its address".into();
                }
                known = found.or(known);
            }
        }
        tokio::time::sleep(PROBE_EVERY).await;
    }
}

/// What tells clusters apart. A watch does not: in a cluster that has begun anew, it continues from a version that is still to come, and
/// shows nothing.
async fn identity(client: &Client) -> Result<Option<String>, kube::Error> {
    let api: Api<DynamicObject> =
        Api::all_with(client.clone(), &api_resource("v1", "Namespace", "namespaces"));
    Ok(api.get_opt("kube-system").await?.and_then(|found| found.metadata.uid))
}
