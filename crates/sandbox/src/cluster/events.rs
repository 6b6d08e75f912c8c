//! Records Events in the background. Repeated Events increase a count; Events above the rate limit are dropped, as in
//! client-go.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::client::Cluster;
use super::kinds::{Kind, Resource};
use crate::wire::{Key, Meta};

/// Capacity of the channel of Events that are not written yet. Further Events are dropped.
const BACKLOG: usize = 1024;
/// Events per second and burst of one kubelet: its default limits.
const RATE: (f64, f64) = (50.0, 100.0);
/// Number of written Events that are remembered to recognize repetitions.
const MAX_REMEMBERED: usize = 4096;

/// Type of an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventKind {
    Normal,
    Warning,
}

struct PendingEvent {
    involved_object: Value,
    kind: EventKind,
    reason: String,
    message: String,
    source: Value,
}

/// Records Events in the name of one component.
#[derive(Clone)]
pub(crate) struct Recorder {
    component: Arc<str>,
    host: Option<Arc<str>>,
    sender: mpsc::Sender<PendingEvent>,
    buckets: Arc<Mutex<BTreeMap<Arc<str>, Bucket>>>,
}

/// Token bucket of one source of Events.
struct Bucket {
    tokens: f64,
    filled: Instant,
}

impl Recorder {
    /// Returns a recorder without a component, and the task that writes the Events.
    pub(crate) fn new(cluster: Cluster) -> (Self, impl Future<Output = ()> + Send) {
        let (sender, receiver) = mpsc::channel(BACKLOG);
        let recorder = Self { component: Arc::from(""), host: None, sender, buckets: Arc::default() };
        (recorder, write(cluster, receiver))
    }

    /// A recorder for another component.
    pub(crate) fn for_component(&self, component: &str) -> Self {
        Self { component: Arc::from(component), host: None, ..self.clone() }
    }

    /// A recorder for a component on a node, with the rate limit of this node.
    pub(crate) fn on_node(&self, host: &str) -> Self {
        Self { host: Some(Arc::from(host)), ..self.clone() }
    }

    pub(crate) fn normal<K: Resource>(&self, involved_object: &K, reason: &str, message: impl Into<String>) {
        self.tell(involved_object, false, reason, message);
    }

    pub(crate) fn warning<K: Resource>(&self, involved_object: &K, reason: &str, message: impl Into<String>) {
        self.tell(involved_object, true, reason, message);
    }

    /// Records a warning, or a normal Event.
    pub(crate) fn tell<K: Resource>(
        &self,
        involved_object: &K,
        is_warning: bool,
        reason: &str,
        message: impl Into<String>,
    ) {
        let kind = if is_warning { EventKind::Warning } else { EventKind::Normal };
        self.record(K::KIND, involved_object.meta(), "", kind, reason, message.into());
    }

    /// Records an Event about an object, or about the part of it in `field_path`.
    pub(crate) fn record(
        &self,
        kind: Kind,
        meta: &Meta,
        field_path: &str,
        event: EventKind,
        reason: &str,
        message: String,
    ) {
        if self.host.as_ref().is_some_and(|host| !self.allow(host)) {
            return;
        }
        let mut involved_object = json!({
            "apiVersion": kind.api_version,
            "kind": kind.name,
            "name": meta.name,
            "uid": meta.uid,
            "resourceVersion": meta.resource_version,
        });
        if !meta.namespace.is_empty() {
            involved_object["namespace"] = json!(meta.namespace);
        }
        if !field_path.is_empty() {
            involved_object["fieldPath"] = json!(field_path);
        }
        let mut source = json!({ "component": &*self.component });
        if let Some(host) = &self.host {
            source["host"] = json!(&**host);
        }
        let pending =
            PendingEvent { involved_object, kind: event, reason: reason.to_owned(), message, source };
        if self.sender.try_send(pending).is_err() {
            tracing::debug!(reason, "dropping an event, the queue is full");
        }
    }

    fn allow(&self, host: &Arc<str>) -> bool {
        let now = Instant::now();
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let bucket = buckets.entry(host.clone()).or_insert(Bucket { tokens: RATE.1, filled: now });
        let elapsed = now.duration_since(bucket.filled).as_secs_f64();
        bucket.tokens = (bucket.tokens + elapsed * RATE.0).min(RATE.1);
        bucket.filled = now;
        let may = bucket.tokens >= 1.0;
        if may {
            bucket.tokens -= 1.0;
        }
        may
    }
}

async fn write(cluster: Cluster, mut pending_events: mpsc::Receiver<PendingEvent>) {
    let mut written: BTreeMap<(String, String, String, String), (Key, u64)> = BTreeMap::new();
    let mut serial = 0u64;
    while let Some(pending) = pending_events.recv().await {
        let of = |field: &str| pending.involved_object[field].as_str().unwrap_or_default().to_owned();
        let same = (of("uid"), of("fieldPath"), pending.reason.clone(), pending.message.clone());
        let now = cluster.stamp();
        if let Some((key, count)) = written.get_mut(&same) {
            *count += 1;
            let patch = json!({ "count": *count, "lastTimestamp": now });
            if cluster.patch_uncached(Kind::EVENT, key, &patch).await.is_ok() {
                continue;
            }
        }
        serial += 1;
        let namespace = pending.involved_object["namespace"].as_str().unwrap_or("default").to_owned();
        let stem = pending.involved_object["name"].as_str().unwrap_or_default();
        let unique = u64::try_from(cluster.now().as_nanosecond()).unwrap_or(0).wrapping_add(serial);
        let key = Key::new(&*namespace, format!("{stem}.{unique:x}"));
        let event = json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": { "name": key.name, "namespace": namespace },
            "involvedObject": pending.involved_object,
            "type": match pending.kind { EventKind::Normal => "Normal", EventKind::Warning => "Warning" },
            "reason": pending.reason,
            "message": pending.message,
            "source": pending.source,
            "reportingComponent": pending.source["component"],
            "reportingInstance": pending.source.get("host").unwrap_or(&json!("")),
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        });
        match cluster.create_uncached(Kind::EVENT, &namespace, &event).await {
            Ok(()) => {
                if written.len() >= MAX_REMEMBERED {
                    written.clear();
                }
                written.insert(same, (key, 1));
            }
            Err(error) => tracing::debug!(%error, "cannot write an event"),
        }
    }
}
