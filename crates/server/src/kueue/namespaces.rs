//! What the defaults of jobs read in the cluster: the labels of namespaces, and the objects with the name `default`.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use api::appwrapper;
use api::kueue::jobs::{JOB_KINDS, controller};
use api::kueue::webhooks::{DEFAULT, JobDefaults};
use api::kueue::{GROUP, V1BETA2};
use futures::future::{BoxFuture, join};
use futures::{FutureExt as _, StreamExt as _, future};
use kube::api::{Api, ApiResource, DynamicObject, PartialObjectMeta};
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::watcher::{Config, DefaultBackoff};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::remote_queues::RemoteQueues;
use crate::registration::resource;

/// How long a review waits for the first reading. The API server waits for the answer for 10 s.
const FIRST_MAX: Duration = Duration::from_secs(5);

/// The watches of [`Namespaces`]. They never end.
pub type NamespaceWatches = BoxFuture<'static, ()>;

type Metadata = PartialObjectMeta<DynamicObject>;

/// What watches have shown of the cluster. Clones share it.
#[derive(Clone)]
pub struct Namespaces {
    client: Client,
    all: Store<Metadata>,
    queues: Store<Metadata>,
    classes: Store<Metadata>,
    remote: Option<RemoteQueues>,
}

impl std::fmt::Debug for Namespaces {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Namespaces").finish_non_exhaustive()
    }
}

impl Namespaces {
    /// What `client` may read, of a hub also the queues whose Workloads run in other clusters; and the watches, which run with the
    /// future and retry forever.
    pub fn watch(client: &Client, is_hub: bool) -> (Self, NamespaceWatches) {
        let named = || Config::default().fields(&format!("metadata.name={DEFAULT}"));
        let (all, of_namespaces) = reflected(client, namespaces(), Config::default());
        let (queues, of_queues) = reflected(client, queues(), named());
        let (classes, of_classes) = reflected(client, classes(), named());
        let (remote, of_remote) = is_hub.then(|| RemoteQueues::watch(client)).unzip();
        let watches = [of_namespaces, of_queues, of_classes].into_iter().chain(of_remote);
        let watches = Box::pin(future::join_all(watches).map(|_| ()));
        (Self { client: client.clone(), all, queues, classes, remote }, watches)
    }

    /// Completes when everything has been read once, or after a few seconds: an answer that is late is none.
    pub(crate) async fn first(&self) {
        let all = [&self.all, &self.queues, &self.classes].map(Store::wait_until_ready);
        let remote = future::join_all(self.remote.as_ref().map(RemoteQueues::first));
        tokio::time::timeout(FIRST_MAX, join(future::join_all(all), remote)).await.ok();
    }

    /// What jobs of this namespace get.
    pub fn defaults(&self, namespace: &str) -> JobDefaults {
        let labels = |found: Arc<Metadata>| found.metadata.labels.clone().unwrap_or_default();
        JobDefaults {
            namespace_labels: self.all.get(&key(namespace, namespaces())).map(labels),
            has_queue: self.queues.get(&key(DEFAULT, queues()).within(namespace)).is_some(),
            has_class: self.classes.get(&key(DEFAULT, classes())).is_some(),
            is_ownerless: false,
            remote_queues: self.remote.as_ref().map(|remote| remote.of(namespace)).unwrap_or_default(),
        }
    }

    /// Whether a job that is created in a namespace names a controller that is not there. If the API server does not say, the claim
    /// counts, and the controller looks at it later.
    pub(crate) async fn is_ownerless(&self, namespace: &str, job: &Value) -> bool {
        let owner = controller(job);
        let [api_version, kind, name, uid] =
            ["apiVersion", "kind", "name", "uid"].map(|field| owner[field].as_str().unwrap_or_default());
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let is_wrapper = appwrapper::is_wrapper(group, kind);
        let queued = JOB_KINDS.iter().find(|known| known.is_kind_of(api_version, kind));
        let plural = if is_wrapper { Some(appwrapper::PLURAL) } else { queued.map(|known| known.plural) };
        let Some(plural) = plural.filter(|_| !name.is_empty()) else { return false };
        let api: Api<Metadata> =
            Api::namespaced_with(self.client.clone(), namespace, &resource(group, version, kind, plural));
        match tokio::time::timeout(FIRST_MAX, api.get_metadata(name)).await {
            Ok(Ok(found)) => found.metadata.uid.as_deref() != Some(uid),
            Ok(Err(kube::Error::Api(why))) => why.code == 404,
            Ok(Err(_)) | Err(_) => false,
        }
    }
}

fn namespaces() -> ApiResource {
    resource("", "v1", "Namespace", "namespaces")
}

pub(super) fn queues() -> ApiResource {
    resource(GROUP, V1BETA2, "LocalQueue", "localqueues")
}

fn classes() -> ApiResource {
    resource(GROUP, V1BETA2, "WorkloadPriorityClass", "workloadpriorityclasses")
}

fn key(name: &str, resource: ApiResource) -> ObjectRef<Metadata> {
    ObjectRef::new_with(name, resource)
}

/// The objects of a resource, or their metadata, and the watch that keeps them up to date.
pub(super) fn reflected<K>(
    client: &Client,
    resource: ApiResource,
    selection: Config,
) -> (Store<K>, BoxFuture<'static, ()>)
where
    K: Resource<DynamicType = ApiResource> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let api: Api<K> = Api::all_with(client.clone(), &resource);
    let writer = Writer::new(resource.clone());
    let store = writer.as_reader();
    let watching = Box::pin(async move {
        let shown = reflector::reflector(writer, watcher(api, selection));
        let mut shown = std::pin::pin!(shown.backoff(DefaultBackoff::default()));
        while let Some(event) = shown.next().await {
            if let Err(error) = event {
                tracing::debug!(%error, resource = resource.plural, "retrying to watch");
            }
        }
    });
    (store, watching)
}
