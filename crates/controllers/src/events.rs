//! Records Kubernetes Events in the background. Under load, events are dropped: they never delay a gang.

use std::sync::atomic::{AtomicU64, Ordering};

use api::appwrapper::KIND;
use index::{Kind, Wrapper, WrapperKey};
use kube::Client;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::api_calls::{FIELD_MANAGER, ResourcePath};
use crate::config::Clock;
use crate::meter::Meter;
use crate::step::NewEvent;

/// Maximum number of queued events; further events are dropped.
const QUEUE_MAX: usize = 1_000;
/// The number of Events that all recorders of this process have recorded.
static RECORDED: AtomicU64 = AtomicU64::new(0);

/// The object that an event is about.
#[derive(Debug, Clone, Default)]
pub struct Subject {
    /// Group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Uid.
    pub uid: String,
    /// Resource version.
    pub resource_version: String,
}

/// Queues and writes events.
pub struct Recorder {
    queue: mpsc::Sender<(String, Value)>,
    clock: Clock,
    meter: Meter,
    writer: JoinHandle<()>,
}

impl Recorder {
    /// Writes the events of this recorder in the background, until it is dropped.
    pub fn new(client: Client, clock: Clock, meter: Meter) -> Self {
        let (queue, mut events) = mpsc::channel::<(String, Value)>(QUEUE_MAX);
        let writer = tokio::spawn(async move {
            let kind = Kind::new("v1", "Event");
            while let Some((namespace, event)) = events.recv().await {
                let path = ResourcePath::of(&kind, "events", &namespace);
                if let Err(error) = path.create::<Value>(&client, &event).await {
                    tracing::debug!(%error, "an event was not recorded");
                }
            }
        });
        Self { queue, clock, meter, writer }
    }

    /// Queues an event about an AppWrapper.
    pub(crate) fn record(&mut self, wrapper: &Wrapper, new: &NewEvent) {
        self.record_about(&wrapper.key, &wrapper.uid, &wrapper.resource_version, new);
    }

    /// Queues an event about the AppWrapper with this name, uid and resource version.
    pub(crate) fn record_about(&mut self, key: &WrapperKey, uid: &str, version: &str, new: &NewEvent) {
        let subject = Subject {
            api_version: key.group.api_version(),
            kind: KIND.into(),
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            uid: uid.into(),
            resource_version: version.into(),
        };
        self.record_event(&subject, new.is_warning, new.reason, &new.text);
    }

    /// Queues an event about any object.
    pub fn record_event(&mut self, subject: &Subject, is_warning: bool, reason: &str, text: &str) {
        let recorded = RECORDED.fetch_add(1, Ordering::Relaxed);
        let event = event(subject, is_warning, reason, text, (self.clock)(), recorded.into());
        if self.queue.try_send((namespace_of(subject).to_owned(), event)).is_err() {
            self.meter.count("events_dropped_total", &[]);
            tracing::debug!(reason, "an event was dropped");
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.writer.abort();
    }
}

/// The namespace of the events about an object: those about objects without one are in `default`, as in Kubernetes.
fn namespace_of(subject: &Subject) -> &str {
    if subject.namespace.is_empty() { "default" } else { &subject.namespace }
}

/// The Event object. `salt` makes the names of events of the same instant unique.
fn event(
    subject: &Subject,
    is_warning: bool,
    reason: &str,
    text: &str,
    now: jiff::Timestamp,
    salt: i128,
) -> Value {
    let stamp = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": format!("{}.{:x}", subject.name, now.as_nanosecond() + salt),
            "namespace": namespace_of(subject),
        },
        "involvedObject": {
            "apiVersion": subject.api_version,
            "kind": subject.kind,
            "name": subject.name,
            "namespace": subject.namespace,
            "uid": subject.uid,
            "resourceVersion": subject.resource_version,
        },
        "type": if is_warning { "Warning" } else { "Normal" },
        "reason": reason,
        "message": text.chars().take(1_024).collect::<String>(),
        "source": {"component": FIELD_MANAGER},
        "reportingComponent": FIELD_MANAGER,
        "reportingInstance": FIELD_MANAGER,
        "action": reason,
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
    })
}
