//! Watches as background tasks. Each reports added, modified and deleted objects to the loop, also those that were
//! deleted while the watch was interrupted.

use std::collections::BTreeMap;
use std::time::Duration;

use api::appwrapper::{self, AppWrapper, Group, NAME_LABEL};
use api::quota;
use futures::{Stream, StreamExt};
use index::{Kind, wire};
use kube::api::ApiResource;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use crate::backoff::ExponentialBackoff;
use crate::crds;
use crate::forbidden::ForbiddenRequest;
use crate::observations::{Observation, Source};
use crate::watched::{HasMeta, Watched};

/// The running watches. Dropping this value ends them all.
pub(crate) struct Watches {
    client: Client,
    observations: UnboundedSender<Observation>,
    tasks: JoinSet<()>,
    running: BTreeMap<Source, AbortHandle>,
}

/// Converts watch events of one resource to observations. A deleted object is reported by uid and name.
struct Handlers<T> {
    on_apply: Box<dyn Fn(T) -> Observation + Send + Sync>,
    on_delete: Box<dyn Fn(String, String) -> Observation + Send + Sync>,
}

impl Watches {
    pub(crate) fn new(client: Client, observations: UnboundedSender<Observation>) -> Self {
        Self { client, observations, tasks: JoinSet::new(), running: BTreeMap::new() }
    }

    /// Watches all nodes.
    pub(crate) fn nodes(&mut self) {
        let handlers = Handlers {
            on_apply: Box::new(Observation::Node),
            on_delete: Box::new(|_, name| Observation::NodeDeleted(name)),
        };
        self.start::<wire::Node>(Source::Nodes, &core("Node", "nodes"), watcher::Config::default(), handlers);
    }

    /// Watches all pods, because every pod on a node uses its resources.
    pub(crate) fn pods(&mut self) {
        let handlers = Handlers {
            on_apply: Box::new(Observation::Pod),
            on_delete: Box::new(|uid, _| Observation::PodDeleted(uid)),
        };
        self.start::<wire::Pod>(Source::Pods, &core("Pod", "pods"), watcher::Config::default(), handlers);
    }

    /// Watches custom resource definitions.
    pub(crate) fn definitions(&mut self) {
        let seen = |definition| Observation::Definition(Box::new(definition));
        let handlers = Handlers {
            on_apply: Box::new(seen),
            on_delete: Box::new(|_, name| Observation::DefinitionDeleted(name)),
        };
        self.start::<wire::Definition>(
            Source::Definitions,
            &crds::definitions(),
            watcher::Config::default(),
            handlers,
        );
    }

    /// Watches the AppWrappers of a group.
    pub(crate) fn wrappers(&mut self, group: Group) {
        let resource = resource(&Kind::new(group.api_version(), appwrapper::KIND), appwrapper::PLURAL);
        let seen = move |wrapper| Observation::Wrapper(group, Box::new(wrapper));
        let handlers = Handlers {
            on_apply: Box::new(seen),
            on_delete: Box::new(|uid, _| Observation::WrapperDeleted(uid)),
        };
        self.start::<AppWrapper>(Source::Wrappers(group), &resource, watcher::Config::default(), handlers);
    }

    /// Watches the `QuotaSubtree` objects of a group.
    pub(crate) fn quotas(&mut self, group: quota::Group) {
        let resource = resource(&Kind::new(group.api_version(), quota::KIND), quota::PLURAL);
        let seen = |part| Observation::Quota(Box::new(part));
        let handlers = Handlers {
            on_apply: Box::new(seen),
            on_delete: Box::new(|uid, _| Observation::QuotaDeleted(uid)),
        };
        self.start::<quota::QuotaSubtree>(
            Source::Quotas(group),
            &resource,
            watcher::Config::default(),
            handlers,
        );
    }

    /// Watches the objects of a kind: only those with the label of an AppWrapper, or all of them if operators create
    /// some without the label.
    pub(crate) fn objects(&mut self, kind: &Kind, plural: &str, all: bool) {
        let config = watcher::Config::default();
        let config = if all { config } else { config.labels(NAME_LABEL) };
        let of_kind = kind.clone();
        let seen = move |object| Observation::Object(of_kind.clone(), object);
        let handlers = Handlers {
            on_apply: Box::new(seen),
            on_delete: Box::new(|uid, _| Observation::ObjectDeleted(uid)),
        };
        self.start::<wire::Object>(Source::Objects(kind.clone()), &resource(kind, plural), config, handlers);
    }

    /// Whether this watch is running.
    pub(crate) fn has(&self, source: &Source) -> bool {
        self.running.contains_key(source)
    }

    /// Stops a watch.
    pub(crate) fn stop(&mut self, source: &Source) {
        if let Some(task) = self.running.remove(source) {
            task.abort();
        }
    }

    /// Stops all watches and waits until they have ended.
    pub(crate) async fn end(mut self) {
        self.tasks.shutdown().await;
    }

    fn start<T: HasMeta>(
        &mut self,
        source: Source,
        resource: &ApiResource,
        config: watcher::Config,
        handlers: Handlers<T>,
    ) {
        self.stop(&source);
        while self.tasks.try_join_next().is_some() {}
        let api: Api<Watched<T>> = Api::all_with(self.client.clone(), resource);
        let task =
            self.tasks.spawn(run_watch(api, config, source.clone(), handlers, self.observations.clone()));
        self.running.insert(source, task);
    }
}

fn core(kind: &str, plural: &str) -> ApiResource {
    resource(&Kind::new("v1", kind), plural)
}

fn resource(kind: &Kind, plural: &str) -> ApiResource {
    ApiResource {
        group: kind.group().into(),
        version: kind.version().into(),
        api_version: kind.api_version.clone(),
        kind: kind.kind.clone(),
        plural: plural.into(),
    }
}

/// Runs one watch until the loop ends.
async fn run_watch<T: HasMeta>(
    api: Api<Watched<T>>,
    config: watcher::Config,
    source: Source,
    handlers: Handlers<T>,
    observations: UnboundedSender<Observation>,
) {
    // Names by uid of all existing objects, to find the objects that were deleted between two lists.
    let mut known: BTreeMap<String, String> = BTreeMap::new();
    let mut listed: Vec<T> = Vec::new();
    let mut forbidden_watch = ForbiddenWatch::default();
    let mut changes = std::pin::pin!(changes(api, config));
    while let Some(change) = changes.next().await {
        let mut reports = Vec::new();
        match change {
            Ok(Event::Init) => {}
            Ok(Event::InitApply(seen)) => listed.push(seen.body),
            Ok(Event::InitDone) => {
                forbidden_watch = ForbiddenWatch::default();
                let identity = |object: &T| (object.meta().uid.clone(), object.meta().name.clone());
                let deleted = std::mem::replace(&mut known, listed.iter().map(identity).collect());
                let deleted = deleted.into_iter().filter(|(uid, _)| !known.contains_key(uid));
                reports.extend(deleted.map(|(uid, name)| (handlers.on_delete)(uid, name)));
                // The initial list is applied in creation order: it decides the order in the queue.
                listed.sort_by_cached_key(creation_order);
                reports.extend(listed.drain(..).map(&handlers.on_apply));
                reports.push(Observation::Synced(source.clone()));
            }
            Ok(Event::Apply(seen)) => {
                let meta = seen.body.meta();
                known.insert(meta.uid.clone(), meta.name.clone());
                reports.push((handlers.on_apply)(seen.body));
            }
            Ok(Event::Delete(seen)) => {
                let meta = seen.body.meta();
                known.remove(&meta.uid);
                reports.push((handlers.on_delete)(meta.uid.clone(), meta.name.clone()));
            }
            Err(error) => {
                listed.clear();
                reports.extend(forbidden_watch.record(&source, &error));
            }
        }
        for observation in reports {
            if observations.send(observation).is_err() {
                return;
            }
        }
    }
}

/// The watch events, with backoff after failures. `Event::Init` is filtered out: it would reset the backoff although
/// nothing was received.
pub(crate) fn changes<T: HasMeta>(
    api: Api<Watched<T>>,
    config: watcher::Config,
) -> impl Stream<Item = watcher::Result<Event<Watched<T>>>> {
    let observed = watcher::watcher(api, config)
        .filter(|change| futures::future::ready(!matches!(change, Ok(Event::Init))));
    observed.backoff(BACKOFF)
}

/// Consecutive 403 responses to one watch.
#[derive(Default)]
struct ForbiddenWatch {
    last: Option<(ForbiddenRequest, Instant)>,
    is_reported: bool,
}

impl ForbiddenWatch {
    /// How long a watch may be forbidden until the loop proceeds without it. An API server that has just started may
    /// answer 403 for a moment.
    const GRACE_PERIOD: Duration = Duration::from_secs(10);

    /// Logs a failure once. Returns an observation when the watch has been forbidden for the grace period.
    fn record(&mut self, source: &Source, error: &watcher::Error) -> Option<Observation> {
        let Some(forbidden) = forbidden_request(error) else {
            tracing::warn!(?source, %error, "a watch was interrupted, restarting");
            return None;
        };
        let since = match &self.last {
            Some((known, since)) if *known == forbidden => *since,
            Some(_) | None => {
                tracing::warn!(%forbidden, "cannot watch {source}, retrying");
                Instant::now()
            }
        };
        let lasts = !self.is_reported && since.elapsed() >= Self::GRACE_PERIOD;
        self.is_reported |= lasts;
        let observation = lasts.then(|| Observation::WatchForbidden(source.clone(), forbidden.to_string()));
        self.last = Some((forbidden, since));
        observation
    }
}

/// The permission that the watch lacks, if this caused the failure.
fn forbidden_request(error: &watcher::Error) -> Option<ForbiddenRequest> {
    let (watcher::Error::InitialListFailed(kube::Error::Api(status))
    | watcher::Error::WatchStartFailed(kube::Error::Api(status))
    | watcher::Error::WatchError(status)) = error
    else {
        return None;
    };
    ForbiddenRequest::read(&status.message).filter(|_| status.code == 403)
}

/// Backoff of a failed watch. The maximum is short, because the index is stale meanwhile; after a long outage one
/// attempt fails because its resource version is too old, and the next one lists. Any received event resets the
/// backoff.
const BACKOFF: ExponentialBackoff =
    ExponentialBackoff::new(Duration::from_millis(200), Duration::from_secs(5));

/// Sort key of objects: creation time in seconds, then resource version, which grows with every write to the store.
fn creation_order<T: HasMeta>(object: &T) -> (String, u64, String) {
    let meta = object.meta();
    (meta.creation_timestamp.clone(), meta.resource_version.parse().unwrap_or(0), meta.name.clone())
}
