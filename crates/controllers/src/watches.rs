//! Watches as background tasks. Each reports added, modified and deleted objects to the loop, also those that were
//! deleted while the watch was interrupted.

mod kueue;
mod referenced;

use std::collections::BTreeMap;
use std::time::Duration;

use api::appwrapper::{self, AppWrapper, Group, NAME_LABEL};
use api::{Meta, quota};
use futures::{Stream, StreamExt};
use index::{Kind, WrapperKey, wire};
use kube::api::ApiResource;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use tokio::sync::mpsc::Sender;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use crate::backoff::ExponentialBackoff;
use crate::controller::DecodeError;
use crate::crds;
use crate::meter::Meter;
use crate::observations::{Observation, Source};
use crate::watch_failures::{WatchFailure, WatchFailures};
use crate::watched::{HasMeta, Watched};

/// The running watches. Dropping this value ends them all.
pub(crate) struct Watches {
    client: Client,
    observations: Sender<Observation>,
    meter: Meter,
    tasks: JoinSet<()>,
    running: BTreeMap<Source, AbortHandle>,
}

/// Converts watch events of one resource to observations. A deleted object is reported by uid and name.
pub(crate) struct Handlers<T> {
    pub(crate) on_apply: Box<dyn Fn(T) -> Observation + Send + Sync>,
    pub(crate) on_delete: Box<dyn Fn(String, String) -> Observation + Send + Sync>,
}

/// The place of an object in a list and its report, or why it cannot be decoded.
type Decoded = Result<(CreationOrder, Observation), String>;

/// The same of objects that are not decoded yet.
struct AnyHandlers {
    decode: Box<dyn Fn(&Watched) -> Decoded + Send + Sync>,
    on_delete: Box<dyn Fn(String, String) -> Observation + Send + Sync>,
}

impl<T: HasMeta> Handlers<T> {
    fn of_any(self) -> AnyHandlers {
        let Self { on_apply, on_delete } = self;
        let decode = move |seen: &Watched| {
            let body = seen.decode::<T>()?;
            Ok((creation_order(body.meta()), on_apply(body)))
        };
        AnyHandlers { decode: Box::new(decode), on_delete }
    }
}

impl Watches {
    pub(crate) fn new(client: Client, observations: Sender<Observation>, meter: Meter) -> Self {
        Self { client, observations, meter, tasks: JoinSet::new(), running: BTreeMap::new() }
    }

    /// Watches all nodes.
    pub(crate) fn nodes(&mut self) {
        let handlers = Handlers {
            on_apply: Box::new(Observation::Node),
            on_delete: Box::new(|_, name| Observation::NodeDeleted(name)),
        };
        self.start::<wire::Node>(Source::Nodes, &core("Node", "nodes"), watcher::Config::default(), handlers);
    }

    /// Watches the namespaces.
    pub(crate) fn namespaces(&mut self) {
        let handlers = Handlers {
            on_apply: Box::new(Observation::Namespace),
            on_delete: Box::new(|_, name| Observation::NamespaceDeleted(name)),
        };
        let resource = core("Namespace", "namespaces");
        self.start::<wire::Namespace>(Source::Namespaces, &resource, watcher::Config::default(), handlers);
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
        // The newer version has another spec: its objects are jobs of Kueue's API.
        let seen = move |wrapper: AppWrapper| {
            if wrapper.spec["components"].is_array() {
                Observation::WrapperDeleted(wrapper.metadata.uid)
            } else {
                Observation::Wrapper(group, Box::new(wrapper))
            }
        };
        let handlers = Handlers {
            on_apply: Box::new(seen),
            on_delete: Box::new(|uid, _| Observation::WrapperDeleted(uid)),
        };
        self.start::<AppWrapper>(Source::Wrappers(group), &resource, watcher::Config::default(), handlers);
    }

    /// Watches the `QuotaSubtree` objects of a group.
    pub(crate) fn quotas(&mut self, group: quota::Group) {
        let resource = resource(&Kind::new(group.api_version(), quota::KIND), quota::PLURAL);
        let seen = move |part| Observation::Quota(group, Box::new(part));
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

    /// Starts a watch; one that is running already is stopped.
    pub(crate) fn start<T: HasMeta>(
        &mut self,
        source: Source,
        resource: &ApiResource,
        config: watcher::Config,
        handlers: Handlers<T>,
    ) {
        self.stop(&source);
        while self.tasks.try_join_next().is_some() {}
        let api: Api<Watched> = Api::all_with(self.client.clone(), resource);
        let handlers = handlers.of_any();
        let watch = WatchTask::new(source.clone(), handlers, self.observations.clone(), self.meter.clone());
        let task = self.tasks.spawn(run_watch(api, config, watch));
        self.running.insert(source, task);
    }
}

fn core(kind: &str, plural: &str) -> ApiResource {
    api_resource("v1", kind, plural)
}

/// The resource with these names; `api_version` is `group/version`, or `v1`.
pub fn api_resource(api_version: &str, kind: &str, plural: &str) -> ApiResource {
    resource(&Kind::new(api_version, kind), plural)
}

/// The resource that serves a kind.
pub(crate) fn resource(kind: &Kind, plural: &str) -> ApiResource {
    ApiResource {
        group: kind.group().into(),
        version: kind.version().into(),
        api_version: kind.api_version.clone(),
        kind: kind.kind.clone(),
        plural: plural.into(),
    }
}

/// How long the first list of a watch may take without an answer or a further page.
const LIST_STALLS_AFTER: Duration = Duration::from_secs(10);
/// After so many of these periods the list is requested again.
const STALLS_MAX: u32 = 3;
/// How long a watch that failed has to work until AppWrappers may rely on it again.
const PROBATION: Duration = Duration::from_secs(10);

/// One watch as a task.
struct WatchTask {
    source: Source,
    handlers: AnyHandlers,
    /// A full queue holds up this watch, not the results of writes.
    observations: Sender<Observation>,
    meter: Meter,
    /// Names by uid of all existing objects, to find the objects that were deleted between two lists.
    known: BTreeMap<String, String>,
    /// The list so far.
    listed: Vec<Listed>,
    failures: WatchFailures,
    /// The list succeeded after a watch had failed. It is reported if the watch works until then.
    synced_at: Option<Instant>,
    is_first_list: bool,
}

/// An object of a list.
struct Listed {
    uid: String,
    name: String,
    /// `None` if it cannot be decoded.
    order: Option<CreationOrder>,
    report: Option<Observation>,
}

/// Why a watch task stops to read a stream.
enum StreamEnd {
    /// The loop has ended.
    LoopEnded,
    /// The list and the watch are to begin anew.
    Restart,
}

/// Runs one watch until the loop ends.
async fn run_watch(api: Api<Watched>, config: watcher::Config, mut task: WatchTask) {
    while let StreamEnd::Restart = task.read(changes(api.clone(), config.clone())).await {}
}

impl WatchTask {
    fn new(source: Source, handlers: AnyHandlers, observations: Sender<Observation>, meter: Meter) -> Self {
        Self {
            source,
            handlers,
            observations,
            meter,
            known: BTreeMap::new(),
            listed: Vec::new(),
            failures: WatchFailures::default(),
            synced_at: None,
            is_first_list: true,
        }
    }

    /// Notes a failure. Returns it when the loop is to proceed without the watch.
    fn failed(&mut self, failure: WatchFailure) -> Option<WatchFailure> {
        let code = failure.code.unwrap_or_default().to_string();
        let labels = [("code", code.as_str()), ("resource", &self.source.to_string())];
        self.meter.count("watch_failures_total", &labels);
        self.failures.record(&self.source, failure)
    }

    /// Reads one stream of changes.
    async fn read(&mut self, changes: impl Stream<Item = watcher::Result<Event<Watched>>>) -> StreamEnd {
        let mut changes = std::pin::pin!(changes);
        let mut stalls = 0;
        loop {
            let limit = match self.synced_at {
                Some(at) => Some(at.saturating_duration_since(Instant::now())),
                None => self.is_first_list.then_some(LIST_STALLS_AFTER),
            };
            let change = match limit {
                Some(limit) => tokio::time::timeout(limit, changes.next()).await.ok(),
                None => Some(changes.next().await),
            };
            let (reports, is_restart) = match change {
                None if self.synced_at.take().is_some() => (self.synced(), false),
                None => {
                    stalls += 1;
                    (self.stalled(), stalls >= STALLS_MAX)
                }
                Some(None) => return StreamEnd::Restart,
                Some(Some(change)) => {
                    stalls = 0;
                    self.change(change)
                }
            };
            for observation in reports {
                if self.observations.send(observation).await.is_err() {
                    return StreamEnd::LoopEnded;
                }
            }
            if is_restart {
                return StreamEnd::Restart;
            }
        }
    }

    /// Applies one change. Returns what to report, and whether the list is to begin anew.
    fn change(&mut self, change: watcher::Result<Event<Watched>>) -> (Vec<Observation>, bool) {
        match change {
            Ok(Event::Init) => (Vec::new(), false),
            Ok(Event::InitApply(seen)) => {
                let (order, report) = self.applied(&seen);
                self.listed.push(Listed { uid: seen.uid(), name: seen.name(), order, report });
                (Vec::new(), false)
            }
            Ok(Event::InitDone) => {
                self.meter.count("watch_lists_total", &[("resource", &self.source.to_string())]);
                let mut reports = self.list_done();
                if self.failures.is_reported() && self.failures.was_listed {
                    self.synced_at = Some(Instant::now() + PROBATION);
                } else {
                    reports.extend(self.synced());
                }
                (reports, false)
            }
            Ok(Event::Apply(seen)) => {
                self.known.insert(seen.uid(), seen.name());
                (self.applied(&seen).1.into_iter().collect(), false)
            }
            Ok(Event::Delete(seen)) => {
                self.known.remove(&seen.uid());
                (vec![(self.handlers.on_delete)(seen.uid(), seen.name())], false)
            }
            Err(error) => {
                self.listed.clear();
                let is_list = matches!(error, watcher::Error::InitialListFailed(_));
                let is_on_probation = self.failures.is_reported() && self.failures.was_listed && !is_list;
                self.synced_at = is_on_probation.then(|| Instant::now() + PROBATION);
                let report = self.failed(WatchFailure::of(&error));
                // A watch that works again after a failure shows no event. A list does.
                let is_restart = report.is_some() && self.failures.was_listed;
                (
                    report
                        .map(|why| Observation::WatchFailed(self.source.clone(), why))
                        .into_iter()
                        .collect(),
                    is_restart,
                )
            }
        }
    }

    /// Applies that the list is complete.
    fn list_done(&mut self) -> Vec<Observation> {
        let mut reports = Vec::new();
        let now: BTreeMap<_, _> =
            self.listed.iter().map(|seen| (seen.uid.clone(), seen.name.clone())).collect();
        self.is_first_list = false;
        let known = std::mem::replace(&mut self.known, now);
        if let Source::Objects(kind) = &self.source {
            let uids = self.known.keys().cloned().collect();
            reports.push(Observation::ObjectsListed(kind.clone(), uids));
        } else {
            let deleted = known.into_iter().filter(|(uid, _)| !self.known.contains_key(uid));
            reports.extend(deleted.map(|(uid, name)| (self.handlers.on_delete)(uid, name)));
        }
        // The initial list is applied in creation order: it decides the order in the queue.
        let mut listed = std::mem::take(&mut self.listed);
        listed.sort_by(|one, other| one.order.cmp(&other.order));
        reports.extend(listed.into_iter().filter_map(|seen| seen.report));
        reports
    }

    /// The place of an object in a list and its report, unless it cannot be decoded: then the last state that was known stays.
    fn applied(&self, seen: &Watched) -> (Option<CreationOrder>, Option<Observation>) {
        match (self.handlers.decode)(seen) {
            Ok((order, report)) => (Some(order), Some(report)),
            Err(error) => {
                let (namespace, name) = (seen.meta.namespace.clone().unwrap_or_default(), seen.name());
                tracing::warn!(namespace, name, error, "an object of {} is ignored", self.source);
                let Source::Wrappers(group) = self.source else { return (None, None) };
                let why = DecodeError {
                    key: WrapperKey { group, namespace, name },
                    uid: seen.uid(),
                    resource_version: seen.meta.resource_version.clone().unwrap_or_default(),
                    cause: error,
                };
                (None, Some(Observation::Undecodable(Box::new(why))))
            }
        }
    }

    fn synced(&mut self) -> Vec<Observation> {
        self.failures.clear();
        vec![Observation::Synced(self.source.clone())]
    }

    /// Applies that the first list gets no answer.
    fn stalled(&mut self) -> Vec<Observation> {
        let text = format!("no answer within {} s", LIST_STALLS_AFTER.as_secs());
        let failure = WatchFailure::without_status(text);
        let first = self.failed(failure.clone());
        let report = first.or_else(|| self.failures.record(&self.source, failure));
        report.map(|why| Observation::WatchFailed(self.source.clone(), why)).into_iter().collect()
    }
}

/// The watch events, with backoff after failures. `Event::Init` is filtered out: it would reset the backoff although
/// nothing was received.
pub(crate) fn changes(
    api: Api<Watched>,
    config: watcher::Config,
) -> impl Stream<Item = watcher::Result<Event<Watched>>> {
    let observed = watcher::watcher(api, config)
        .filter(|change| futures::future::ready(!matches!(change, Ok(Event::Init))));
    observed.backoff(BACKOFF)
}

/// Backoff of a failed watch. The maximum is short, because the index is stale meanwhile; after a long outage one
/// attempt fails because its resource version is too old, and the next one lists. Any received event resets the
/// backoff.
const BACKOFF: ExponentialBackoff =
    ExponentialBackoff::new(Duration::from_millis(200), Duration::from_secs(5));

/// Sort key of objects: creation time in seconds, then resource version, which grows with every write to the store, then name.
type CreationOrder = (String, u64, String);

fn creation_order(meta: &Meta) -> CreationOrder {
    (meta.creation_timestamp.clone(), meta.resource_version.parse().unwrap_or(0), meta.name.clone())
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use bytes::Bytes;
    use http_body::Frame;
    use http_body_util::StreamBody;
    use http_body_util::combinators::UnsyncBoxBody;
    use kube::client::Body;
    use serde_json::json;

    use super::*;
    use crate::observations::{QUEUED_EVENTS_MAX, queue};

    const EVENTS: usize = 100_000;

    type Answer = http::Response<UnsyncBoxBody<Bytes, Infallible>>;

    fn line(text: String) -> Frame<Bytes> {
        Frame::data(Bytes::from(text + "\n"))
    }

    /// An API server with an empty list of nodes and a watch that reports so many new nodes. Counts the events that were
    /// read from it.
    fn flooding(read: Arc<AtomicUsize>) -> Client {
        let answer = move |request: http::Request<Body>| {
            let read = read.clone();
            let event = move |at: usize| {
                read.fetch_add(1, Ordering::Relaxed);
                let name = format!("n{at}");
                let meta = json!({"name": name, "uid": name, "resourceVersion": (at + 2).to_string()});
                let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": meta});
                // The type comes first, as in an answer of an API server.
                line(format!(r#"{{"type":"ADDED","object":{node}}}"#))
            };
            let list = json!({"apiVersion": "v1", "kind": "NodeList", "metadata": {"resourceVersion": "1"}, "items": []});
            let body = if request.uri().query().is_some_and(|query| query.contains("watch=")) {
                let events = futures::stream::iter(0..EVENTS).map(event).map(Ok::<_, Infallible>);
                UnsyncBoxBody::new(StreamBody::new(events.chain(futures::stream::pending())))
            } else {
                UnsyncBoxBody::new(StreamBody::new(futures::stream::iter([Ok::<_, Infallible>(line(
                    list.to_string(),
                ))])))
            };
            futures::future::ready(Ok::<Answer, Infallible>(http::Response::new(body)))
        };
        Client::new(tower::service_fn(answer), "default")
    }

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_is_held_up_holds_up_its_watches_but_no_results() {
        let read = Arc::<AtomicUsize>::default();
        let (senders, mut observations) = queue();
        let mut watches = Watches::new(flooding(read.clone()), senders.of_watches, Meter::default());
        watches.nodes();
        // The loop receives nothing for a minute.
        tokio::time::sleep(Duration::from_mins(1)).await;
        let held = read.load(Ordering::Relaxed);
        assert!((QUEUED_EVENTS_MAX..QUEUED_EVENTS_MAX + 100).contains(&held), "{held} events are in memory");
        senders.of_tasks.send(Observation::PermissionGranted("uid".into())).unwrap();
        assert!(matches!(observations.recv().await, Some(Observation::PermissionGranted(_))));
        let mut seen = 0;
        while seen < EVENTS {
            if let Some(Observation::Node(node)) = observations.recv().await {
                assert_eq!(node.metadata.name, format!("n{seen}"));
                seen += 1;
            }
        }
    }
}
