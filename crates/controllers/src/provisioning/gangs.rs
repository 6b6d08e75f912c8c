//! Gangs that wait for nodes ask a node autoscaler for them, with one `ProvisioningRequest` for all pods of a gang: the pods
//! do not exist yet, so an autoscaler that looks at pods sees nothing.
//!
//! - `step`: the next write about an AppWrapper: a pure function of what was observed
//!
//! The loop reads the state of AppWrappers from their statuses. What the planner does is not changed by it: a gang starts when
//! the nodes are there.

mod step;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::appwrapper::{AppWrapper, Group};
use api::provisioning::ProvisioningRequest;
use api::provisioning::gang::{self, GangRequest, Need};
use api::{MicroTime, OwnerKey};
use index::remove_from;
use kube::Client;
use serde::Deserialize;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::execute::{self, Before, Write};
use super::object::ProvisioningSource;
use crate::config::Config;
use crate::error::Error;
use crate::events::{Recorder, Subject};
use crate::meter::Meter;
use crate::observations::{Observation, Receiver, Source, queue};
use crate::watched::{Change, Whole};
use crate::watches::Watches;
use crate::work_queue::WorkQueue;
use step::{Step, decide};

/// The loop.
pub(crate) struct GangProvisioning {
    client: Client,
    objects: Objects,
    observations: Receiver,
    /// They end with the loop.
    _watches: Watches,
    unsynced: BTreeSet<Source>,
    /// AppWrappers by uid.
    queue: WorkQueue<String, Before>,
    tasks: JoinSet<(String, Write, Result<(), Error>)>,
    permits: Arc<Semaphore>,
    recorder: Recorder,
    meter: Meter,
    /// What was told about an AppWrapper, by uid, so that it is told once.
    told: BTreeMap<String, String>,
}

/// The observed objects.
#[derive(Debug, Default)]
pub(super) struct Objects {
    /// The permitted classes; the first is that of AppWrappers without the annotation.
    classes: Vec<String>,
    /// AppWrappers that ask for nodes, or have asked, by uid.
    wrappers: BTreeMap<String, Asking>,
    /// Requests by uid.
    requests: BTreeMap<String, ProvisioningRequest>,
    /// The uids of requests by their controller.
    requests_of: BTreeMap<OwnerKey, BTreeSet<String>>,
    /// The uids and names of templates by their controller.
    templates_of: BTreeMap<OwnerKey, BTreeSet<(String, String)>>,
}

/// An AppWrapper that asks for nodes, or has asked.
#[derive(Debug)]
pub(super) struct Asking {
    group: Group,
    whole: Whole,
    need: Need,
    /// The class and what it asks for, while it needs nodes; or why it cannot ask.
    wanted: Result<Option<(String, GangRequest)>, String>,
}

impl GangProvisioning {
    /// Starts the watches, if gangs ask for nodes.
    pub(crate) fn of(client: &Client, config: &Config) -> Option<Self> {
        let classes = config.provisioning_classes.clone();
        if classes.is_empty() || config.groups.is_empty() {
            return None;
        }
        let wrappers = config.groups.iter().copied().map(ProvisioningSource::Wrapper);
        let sources: Vec<_> =
            wrappers.chain([ProvisioningSource::Request, ProvisioningSource::Template]).collect();
        let (senders, observations) = queue();
        let meter = config.meter.clone();
        let mut watches = Watches::new(client.clone(), senders.of_watches, meter.clone());
        for source in &sources {
            watches.provisioning(*source);
        }
        Some(Self {
            client: client.clone(),
            objects: Objects { classes, ..Objects::default() },
            observations,
            _watches: watches,
            unsynced: sources.into_iter().map(Source::Provisioning).collect(),
            queue: WorkQueue::new(config.clock.clone()),
            tasks: JoinSet::new(),
            permits: Arc::new(Semaphore::new(config.writers.max(1))),
            recorder: Recorder::new(client.clone(), config.clock.clone(), meter.clone()),
            meter,
            told: BTreeMap::new(),
        })
    }

    /// Runs until it is dropped. Writes under way are aborted then, as in a crash; the next process continues them.
    pub(crate) async fn run(mut self) {
        loop {
            let sleep = self.queue.sleep();
            tokio::select! {
                biased;
                Some(written) = self.tasks.join_next() => {
                    // A task does not panic, and none is aborted before the loop.
                    if let Ok((wrapper, write, result)) = written {
                        self.written(wrapper, &write, result);
                    }
                }
                Some(observation) = self.observations.recv() => self.apply(observation),
                () = tokio::time::sleep(sleep) => {}
            }
            while let Some(observation) = self.observations.try_recv() {
                self.apply(observation);
            }
            // Until everything is read, a request may be there that is not known.
            if self.unsynced.is_empty() {
                self.reconcile();
            }
            self.meter.set("queue_depth", &[("queue", "gang_provisioning")], self.queue.depth());
        }
    }

    fn apply(&mut self, observation: Observation) {
        if let Observation::Provisioning(source, change) = observation {
            if let Some(wrapper) = self.objects.apply(source, change) {
                self.queue.add([wrapper]);
            }
        } else if let Observation::Synced(source) = observation {
            if self.unsynced.remove(&source) && self.unsynced.is_empty() {
                self.queue.add(self.objects.wrappers.keys().cloned());
            }
        } else if let Observation::WatchFailed(source, why) = observation {
            tracing::warn!(%source, why = why.text, "no nodes are asked for until a watch works again");
        }
    }

    fn reconcile(&mut self) {
        let now = self.queue.now();
        for wrapper in self.queue.take(now) {
            let objects = &self.objects;
            if self.queue.is_busy(&wrapper, now, |before| objects.shows(before)) {
                continue;
            }
            let Some(asking) = objects.wrappers.get(&wrapper) else {
                self.told.remove(&wrapper);
                continue;
            };
            match decide(objects, asking, now) {
                Step::Write(write) => self.start(wrapper, *write),
                Step::Wait(until) => self.queue.add_at(until, wrapper),
                Step::Refuse(why) => self.tell(&wrapper, true, "NoNodesRequested", &why),
                Step::Nothing => self.queue.rest(&wrapper),
            }
        }
    }

    fn start(&mut self, wrapper: String, write: Write) {
        let (client, permits) = (self.client.clone(), self.permits.clone());
        self.queue.begin(wrapper.clone());
        self.tasks.spawn(async move {
            let _permit = permits.acquire().await;
            let result = execute::perform(&client, &write).await;
            (wrapper, write, result)
        });
    }

    fn written(&mut self, wrapper: String, write: &Write, result: Result<(), Error>) {
        self.queue.end(&wrapper);
        let before = write.before();
        if let Err(error) = &result {
            self.meter.count("retries_total", &[("cause", error.cause()), ("of", "gang_provisioning")]);
        }
        match result {
            Ok(()) => {
                if let Write::CreateRequest { request, .. } = write {
                    let text = format!("Created ProvisioningRequest: {}", request["metadata"]["name"]);
                    self.tell(&wrapper, false, "ProvisioningRequestCreated", &text);
                }
                self.queue.expect(wrapper, before);
            }
            // An earlier write has created it, and the watch has not shown it yet.
            Err(Error::Exists(_)) if !self.objects.shows(&before) => self.queue.expect(wrapper, before),
            Err(Error::Conflict(_) | Error::NotFound(_)) => {
                self.queue.retry(wrapper);
            }
            Err(error) => {
                tracing::warn!(uid = wrapper, %error, "cannot ask for the nodes of an AppWrapper, retrying");
                self.tell(&wrapper, true, "NoNodesRequested", &error.to_string());
                self.queue.retry(wrapper);
            }
        }
    }

    fn tell(&mut self, wrapper: &str, is_warning: bool, reason: &str, text: &str) {
        let Some(asking) = self.objects.wrappers.get(wrapper) else { return };
        if self.told.insert(wrapper.to_owned(), text.to_owned()).as_deref() == Some(text) {
            return;
        }
        let meta = &asking.whole.metadata;
        let subject = Subject {
            api_version: asking.group.api_version(),
            kind: api::appwrapper::KIND.into(),
            namespace: meta.namespace.clone(),
            name: meta.name.clone(),
            uid: meta.uid.clone(),
            resource_version: meta.resource_version.clone(),
        };
        self.recorder.record_event(&subject, is_warning, reason, text);
    }
}

impl Asking {
    /// What an owner reference to the AppWrapper names.
    fn key(&self) -> OwnerKey {
        self.whole.metadata.key(&self.group.api_version(), api::appwrapper::KIND)
    }
}

impl Objects {
    /// Applies a change. Returns the uid of the AppWrapper to look at.
    fn apply(&mut self, source: ProvisioningSource, change: Change) -> Option<String> {
        use Change::{Applied, Deleted};
        match (source, change) {
            (ProvisioningSource::Wrapper(group), Applied(whole)) => self.wrapper(group, *whole),
            (ProvisioningSource::Wrapper(_), Deleted(uid, _)) => self.wrappers.remove(&uid).map(|_| uid),
            (ProvisioningSource::Request, Applied(request)) => {
                let request = ProvisioningRequest::deserialize(&request.value).ok()?;
                let owner = request.metadata.controller_key()?;
                self.requests_of.entry(owner.clone()).or_default().insert(request.metadata.uid.clone());
                self.requests.insert(request.metadata.uid.clone(), request);
                Some(owner.uid)
            }
            (ProvisioningSource::Request, Deleted(uid, _)) => {
                let owner = self.requests.remove(&uid)?.metadata.controller_key()?;
                remove_from(&mut self.requests_of, &owner, &uid);
                Some(owner.uid)
            }
            (ProvisioningSource::Template, Applied(template)) => {
                let meta = &template.metadata;
                let owner = meta.controller_key()?;
                let key = (meta.uid.clone(), meta.name.clone());
                self.templates_of.entry(owner.clone()).or_default().insert(key);
                Some(owner.uid)
            }
            (ProvisioningSource::Template, Deleted(uid, name)) => {
                let key = (uid, name);
                let owner = self.templates_of.iter().find(|(_, keys)| keys.contains(&key))?.0.clone();
                remove_from(&mut self.templates_of, &owner, &key);
                Some(owner.uid)
            }
            _ => None,
        }
    }

    /// Most AppWrappers need no nodes: their templates are not kept.
    fn wrapper(&mut self, group: Group, mut whole: Whole) -> Option<String> {
        let object = AppWrapper::deserialize(&whole.value).ok()?;
        let meta = &whole.metadata;
        let uid = meta.uid.clone();
        let need = gang::need(&object.status);
        let wanted = match gang::class(&meta.annotations, &self.classes) {
            Ok(Some(class)) if need == Need::Nodes => {
                gang::gang_request(&object.spec, &meta.name).map(|request| Some((class.to_owned(), request)))
            }
            other => other.map(|_| None),
        };
        let asks = !matches!(wanted, Ok(None));
        let key = meta.key(&group.api_version(), api::appwrapper::KIND);
        let has_asked = self.requests_of.contains_key(&key)
            || self.templates_of.contains_key(&key)
            || meta.annotations.contains_key(gang::REQUEST);
        if !asks && !has_asked {
            return self.wrappers.remove(&uid).map(|_| uid);
        }
        whole.value = serde_json::Value::Null;
        let wanted = wanted.map_err(|error| error.to_string());
        self.wrappers.insert(uid.clone(), Asking { group, whole, need, wanted });
        Some(uid)
    }

    fn requests_of(&self, asking: &Asking) -> impl Iterator<Item = &ProvisioningRequest> {
        self.requests_of.get(&asking.key()).into_iter().flatten().filter_map(|uid| self.requests.get(uid))
    }

    fn templates_of(&self, asking: &Asking) -> impl Iterator<Item = &(String, String)> {
        self.templates_of.get(&asking.key()).into_iter().flatten()
    }

    /// Whether a write is shown.
    fn shows(&self, before: &Before) -> bool {
        match before {
            Before::Version(uid, version) => {
                let of_wrapper = self.wrappers.get(uid).map(|asking| &asking.whole.metadata);
                let meta = of_wrapper.or_else(|| self.requests.get(uid).map(|request| &request.metadata));
                meta.map(|meta| &meta.resource_version) != Some(version)
            }
            Before::Exists(uid) => !self.templates_of.values().flatten().any(|(known, _)| known == uid),
            Before::NoRequest(namespace, name) => self
                .requests
                .values()
                .any(|request| request.metadata.namespace == *namespace && request.metadata.name == *name),
            Before::NoTemplate(_, name) => {
                self.templates_of.values().flatten().any(|(_, known)| known == name)
            }
        }
    }
}

/// A time so long after another one.
fn after(time: MicroTime, seconds: i64) -> MicroTime {
    MicroTime(time.0.saturating_add(seconds.saturating_mul(1_000_000)))
}
