//! Finalizers of Kueue's objects: an object that others refer to is deleted when the last of them is gone.
//!
//! A ClusterQueue is in use by the workloads that reserve its quota. A ResourceFlavor and an AdmissionCheck are in use by
//! the cluster queues that name them. The finalizer is that of Kueue, and so are the rules (v0.19.1,
//! `pkg/controller/core`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use api::Meta;
use api::kueue::{FINALIZER, GROUP, V1BETA2};
use futures::StreamExt as _;
use futures::stream::{self, BoxStream, SelectAll};
use kube::api::ApiResource;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;
use tokio::time::Instant;

use crate::api_calls::ResourcePath;
use crate::backoff::ExponentialBackoff;
use crate::error::Error;
use crate::leadership::Shutdown;
use crate::watched::{HasMeta, Watched};

/// Delays between two attempts to write a finalizer, and to watch.
const RETRY: ExponentialBackoff =
    ExponentialBackoff::new(Duration::from_millis(500), Duration::from_secs(30));
/// Number of writes at the same time.
const WRITES_MAX: usize = 16;

/// A kind that has the finalizer, or that refers to such a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Workload,
    ClusterQueue,
    ResourceFlavor,
    AdmissionCheck,
}

use Kind::{AdmissionCheck, ClusterQueue, ResourceFlavor, Workload};

impl Kind {
    const ALL: [Self; 4] = [Workload, ClusterQueue, ResourceFlavor, AdmissionCheck];

    fn resource(self) -> ApiResource {
        let (kind, plural) = match self {
            Workload => ("Workload", "workloads"),
            ClusterQueue => ("ClusterQueue", "clusterqueues"),
            ResourceFlavor => ("ResourceFlavor", "resourceflavors"),
            AdmissionCheck => ("AdmissionCheck", "admissionchecks"),
        };
        ApiResource {
            group: GROUP.into(),
            version: V1BETA2.into(),
            api_version: format!("{GROUP}/{V1BETA2}"),
            kind: kind.into(),
            plural: plural.into(),
        }
    }

    /// Workloads get their finalizer from the controller of their job.
    fn has_finalizer(self) -> bool {
        self != Workload
    }
}

/// An object: its kind, and its namespace and name with a slash between. Cluster-scoped objects have only a name.
type Key = (Kind, String);

/// The fields of all four kinds that refer to others.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Referrer {
    metadata: Meta,
    spec: Spec,
    status: Status,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    resource_groups: Option<Vec<ResourceGroup>>,
    admission_checks_strategy: Option<Strategy>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct ResourceGroup {
    flavors: Option<Vec<Named>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Strategy {
    admission_checks: Option<Vec<Named>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Named {
    name: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Status {
    admission: Option<Admission>,
    conditions: Option<Vec<Condition>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Admission {
    cluster_queue: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

impl HasMeta for Referrer {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl Referrer {
    /// The objects that this object uses.
    fn uses(&self) -> BTreeSet<Key> {
        let mut used = BTreeSet::new();
        for flavor in
            self.spec.resource_groups.iter().flatten().flat_map(|group| group.flavors.iter().flatten())
        {
            used.insert((ResourceFlavor, flavor.name.clone()));
        }
        let strategy = self.spec.admission_checks_strategy.iter();
        for check in strategy.flat_map(|strategy| strategy.admission_checks.iter().flatten()) {
            used.insert((AdmissionCheck, check.name.clone()));
        }
        let mut conditions = self.status.conditions.iter().flatten();
        let is_finished =
            conditions.any(|condition| condition.kind == "Finished" && condition.status == "True");
        if let Some(admission) = self.status.admission.as_ref().filter(|_| !is_finished) {
            used.insert((ClusterQueue, admission.cluster_queue.clone()));
        }
        used
    }
}

/// What is known of one object.
#[derive(Debug)]
struct Object {
    version: String,
    finalizers: Vec<String>,
    is_deleted: bool,
    uses: BTreeSet<Key>,
}

/// The observed objects, and how many others use each.
#[derive(Debug, Default)]
struct Objects {
    observed: BTreeMap<Key, Object>,
    /// Counts of users, without zeros.
    users: BTreeMap<Key, usize>,
    /// Objects whose finalizer may have to change.
    dirty: BTreeSet<Key>,
}

impl Objects {
    fn apply(&mut self, kind: Kind, watched: Watched<Referrer>) {
        let key = key(kind, &watched);
        let object = match watched.body {
            Ok(referrer) => Object {
                uses: referrer.uses(),
                version: referrer.metadata.resource_version,
                finalizers: referrer.metadata.finalizers,
                is_deleted: referrer.metadata.deletion_timestamp.is_some(),
            },
            // Definitions of Kueue exclude this. What it used before, it uses still.
            Err(error) => return tracing::warn!(object = %key.1, %error, "cannot decode an object of Kueue"),
        };
        for used in &object.uses {
            *self.users.entry(used.clone()).or_default() += 1;
            self.dirty.insert(used.clone());
        }
        let previous = self.observed.insert(key.clone(), object);
        self.forget_uses(previous);
        self.dirty.insert(key);
    }

    fn remove(&mut self, key: &Key) {
        let previous = self.observed.remove(key);
        self.forget_uses(previous);
    }

    fn forget_uses(&mut self, object: Option<Object>) {
        for used in object.into_iter().flat_map(|object| object.uses) {
            if let Some(count) = self.users.get_mut(&used) {
                *count -= 1;
                if *count == 0 {
                    self.users.remove(&used);
                }
            }
            self.dirty.insert(used);
        }
    }

    /// The finalizers that an object has to have; `None` if it has them.
    fn wanted(&self, key: &Key) -> Option<Vec<String>> {
        let object = self.observed.get(key).filter(|_| key.0.has_finalizer())?;
        let has = object.finalizers.iter().any(|finalizer| finalizer == FINALIZER);
        let mut finalizers = object.finalizers.clone();
        match (object.is_deleted, has) {
            (false, false) => finalizers.push(FINALIZER.into()),
            (true, true) if !self.users.contains_key(key) => {
                finalizers.retain(|finalizer| finalizer != FINALIZER);
            }
            _ => return None,
        }
        Some(finalizers)
    }

    /// The writes that are due. Each is conditional on the observed version.
    fn take_writes(&mut self) -> Vec<Write> {
        let dirty = std::mem::take(&mut self.dirty);
        let write = |key: Key| {
            let finalizers = self.wanted(&key)?;
            let version = self.observed.get(&key)?.version.clone();
            Some(Write { key, version, finalizers })
        };
        dirty.into_iter().filter_map(write).collect()
    }
}

/// A write of the finalizers of one object.
#[derive(Debug, Clone)]
struct Write {
    key: Key,
    version: String,
    finalizers: Vec<String>,
}

impl Write {
    async fn perform(&self, client: &Client) -> Result<(), Error> {
        let resource = self.key.0.resource();
        let kind = index::Kind::new(&resource.api_version, &resource.kind);
        let path = ResourcePath::of(&kind, &resource.plural, "");
        let patch = json!({"metadata": {"resourceVersion": self.version, "finalizers": self.finalizers}});
        match path.merge::<IgnoredAny>(client, &self.key.1, &patch).await {
            // The next event of the object decides again.
            Err(Error::NotFound(_) | Error::Conflict(_)) => Ok(()),
            result => result.map(drop),
        }
    }
}

fn key(kind: Kind, watched: &Watched<Referrer>) -> Key {
    let name = watched.name();
    match &watched.meta.namespace {
        Some(namespace) => (kind, format!("{namespace}/{name}")),
        None => (kind, name),
    }
}

/// Adds and removes the finalizers until the shutdown. Calls `ready` when all objects are read.
///
/// # Errors
/// [`Error::LeaseLost`] when the leadership of the client has ended.
pub async fn keep_finalizers(
    client: Client,
    ready: impl FnOnce() + Send,
    mut shutdown: Shutdown,
) -> Result<(), Error> {
    let mut events = watches(&client);
    let mut objects = Objects::default();
    let mut listed: BTreeMap<Kind, BTreeSet<Key>> = BTreeMap::new();
    let mut unread = BTreeSet::from(Kind::ALL);
    let mut ready = Some(ready);
    let mut retry = RETRY;
    let mut retry_at: Option<Instant> = None;
    loop {
        let wait = async {
            match retry_at {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = &mut shutdown => return Ok(()),
            event = events.next() => match event {
                None => return Ok(()),
                Some((kind, Err(error))) => warn(kind, &error),
                Some((kind, Ok(event))) => fold(kind, event, &mut objects, &mut listed, &mut unread),
            },
            () = wait => retry_at = None,
        }
        // Without all users, an object may look unused.
        if !unread.is_empty() {
            continue;
        }
        if let Some(ready) = ready.take() {
            ready();
        }
        if retry_at.is_some() {
            continue;
        }
        let failed = write(&client, objects.take_writes()).await?;
        if failed.is_empty() {
            retry = RETRY;
        } else {
            retry_at = retry.next().map(|delay| Instant::now() + delay);
            objects.dirty.extend(failed);
        }
    }
}

/// Folds one event.
fn fold(
    kind: Kind,
    event: Event<Watched<Referrer>>,
    objects: &mut Objects,
    listed: &mut BTreeMap<Kind, BTreeSet<Key>>,
    unread: &mut BTreeSet<Kind>,
) {
    match event {
        Event::Init => {
            listed.insert(kind, BTreeSet::new());
        }
        Event::InitApply(object) => {
            listed.entry(kind).or_default().insert(key(kind, &object));
            objects.apply(kind, object);
        }
        Event::InitDone => {
            let listed = listed.remove(&kind).unwrap_or_default();
            let gone = objects.observed.keys().filter(|key| key.0 == kind && !listed.contains(key));
            for key in gone.cloned().collect::<Vec<_>>() {
                objects.remove(&key);
            }
            unread.remove(&kind);
        }
        Event::Apply(object) => objects.apply(kind, object),
        Event::Delete(object) => objects.remove(&key(kind, &object)),
    }
}

/// Performs writes. Returns the objects whose write failed.
async fn write(client: &Client, writes: Vec<Write>) -> Result<Vec<Key>, Error> {
    let mut results = stream::iter(writes)
        .map(|write| async move { (write.perform(client).await, write.key) })
        .buffer_unordered(WRITES_MAX);
    let mut failed = Vec::new();
    while let Some((result, key)) = results.next().await {
        match result {
            Ok(()) => {}
            Err(error @ Error::LeaseLost(_)) => return Err(error),
            Err(error) => {
                tracing::warn!(object = %key.1, %error, "cannot write a finalizer, retrying");
                failed.push(key);
            }
        }
    }
    Ok(failed)
}

type Events = BoxStream<'static, (Kind, Result<Event<Watched<Referrer>>, watcher::Error>)>;

fn watches(client: &Client) -> SelectAll<Events> {
    let watch = |kind: Kind| -> Events {
        let api: Api<Watched<Referrer>> = Api::all_with(client.clone(), &kind.resource());
        let events = watcher::watcher(api, watcher::Config::default()).backoff(RETRY);
        events.map(move |event| (kind, event)).boxed()
    };
    stream::select_all(Kind::ALL.map(watch))
}

fn warn(kind: Kind, error: &watcher::Error) {
    tracing::warn!(?kind, error = error as &dyn std::error::Error, "cannot watch objects of Kueue, retrying");
}
