//! The operator of all kinds of jobs that have none of their own here. What it makes of a job, and what it says about it, comes from
//! the table of kinds ([`api::kueue::jobs::Operator`]).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use api::kueue::jobs::operator::{Seen, SeenPod};
use api::kueue::jobs::{JOB_KINDS, JobKind, Operator, REFERENCED};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::crds::definitions;
use crate::cluster::{Cached, Cluster, Delete, Error, EventKind, Kind, Queue, Recorder, Store, labelled};
use crate::wire::{Key, Meta, Owner, Pod};

/// When something is looked at again that no watch tells about.
const LATER: Duration = Duration::from_secs(1);

/// The pause until a definition is served.
const SERVED_WITHIN: Duration = Duration::from_millis(50);

/// A job of any kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct AnyJob {
    metadata: Meta,
    value: Value,
}

impl<'de> Deserialize<'de> for AnyJob {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let metadata = Meta::deserialize(&value["metadata"]).map_err(serde::de::Error::custom)?;
        Ok(Self { metadata, value })
    }
}

impl Cached for AnyJob {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// A kind that is operated.
struct Row {
    kind: &'static JobKind,
    operator: &'static dyn Operator,
    store: Arc<Store<AnyJob>>,
}

/// The operator. A job is the position of its kind, and its key.
pub(crate) struct AnyJobs {
    cluster: Cluster,
    rows: Vec<Row>,
    pods: Arc<Store<Pod>>,
    recorder: Recorder,
    pub(crate) queue: Queue<(usize, Key)>,
}

/// A job with all that describes it.
struct Described<'a> {
    row: &'a Row,
    metadata: &'a Meta,
    value: Value,
}

/// An object that a job may have.
struct Planned {
    manifest: Value,
    /// Where it is; `None` of pods, and where the cluster does not serve it.
    collection: Option<String>,
    /// The object as it is; `null` of pods.
    found: Option<Value>,
}

/// The kinds of Kueue's table and these, without those that have an operator of their own.
pub(crate) fn operated(others: &[&'static JobKind]) -> Vec<&'static JobKind> {
    let own: BTreeSet<String> = definitions()
        .iter()
        .filter_map(|known| known["metadata"]["name"].as_str().map(str::to_owned))
        .collect();
    let is_operated = |kind: &&'static JobKind| {
        kind.integration.operator().is_some() && !own.contains(&format!("{}.{}", kind.plural, kind.group()))
    };
    JOB_KINDS.iter().chain(others.iter().copied()).filter(is_operated).collect()
}

impl AnyJobs {
    pub(crate) fn new(
        cluster: Cluster,
        kinds: &[&'static JobKind],
        pods: Arc<Store<Pod>>,
        recorder: &Recorder,
    ) -> Self {
        let row = |kind: &&'static JobKind| {
            let operator = kind.integration.operator()?;
            Some(Row { kind, operator, store: Arc::new(Store::of(Kind::of_jobs(kind))) })
        };
        let rows = kinds.iter().filter_map(row).collect();
        Self { cluster, rows, pods, recorder: recorder.for_component("job-operator"), queue: Queue::new() }
    }

    /// The stores of the kinds, each with its position.
    pub(crate) fn stores(&self) -> impl Iterator<Item = (usize, Arc<Store<AnyJob>>)> {
        self.rows.iter().map(|row| row.store.clone()).enumerate()
    }

    /// Creates the objects that come with the operators. An API server may serve a definition a moment after it is established.
    pub(crate) async fn create_presets(&self) {
        for row in &self.rows {
            for preset in row.operator.presets() {
                let known = row.kind.integration.references().iter();
                let kind = known.map(Kind::referenced).find(|kind| preset["kind"] == kind.name);
                let Some(kind) = kind else { continue };
                while let Err(error) = self.cluster.create_if_absent(kind, "", &preset).await {
                    tracing::debug!(kind = kind.name, %error, "cannot create an object of an operator yet");
                    tokio::time::sleep(SERVED_WITHIN).await;
                }
            }
        }
    }

    pub(crate) fn pod_changed(&self, pod: &Pod) {
        self.owned_changed(&pod.metadata);
        for (at, row) in self.rows.iter().enumerate() {
            if let Some(job) = row.operator.pod_label().and_then(|label| pod.metadata.label(label)) {
                self.queue.add((at, Key::new(&*pod.metadata.namespace, job)));
            }
        }
    }

    /// Looks at the job that owns an object.
    pub(crate) fn owned_changed(&self, metadata: &Meta) {
        let Some(owner) = metadata.controller() else { return };
        let at = self.rows.iter().position(|row| row.kind.is_kind_of(&owner.api_version, &owner.kind));
        if let Some(at) = at {
            self.queue.add((at, Key::new(&*metadata.namespace, &*owner.name)));
        }
    }

    pub(crate) async fn reconcile(&self, (at, key): (usize, Key)) -> Result<Option<Instant>, Error> {
        let row = &self.rows[at];
        let Some(job) = row.store.get(&key).filter(|job| !job.metadata.is_deleting()) else {
            return Ok(None);
        };
        // An AppWrapper of the older version: its pods are those of another controller.
        if row.kind.integration.is_skipped(&job.value) {
            return Ok(None);
        }
        let manager = job.value["spec"]["managedBy"].as_str().filter(|manager| !manager.is_empty());
        if manager.is_some_and(|manager| row.operator.manager().is_some_and(|own| own != manager)) {
            return Ok(None);
        }
        let mut described = Described { row, metadata: &job.metadata, value: job.value.clone() };
        if !self.describe(&mut described).await? {
            return Ok(Some(Instant::now() + LATER));
        }
        let is_late = self.place(&described).await?;
        let pods = self.pods_of(&described);
        let (seen, _) = self.look(&described, &pods).await?;
        let status = row.operator.status(&described.value, &seen);
        self.cluster.change_status(&row.store, &job.metadata, &job.value["status"], &status).await?;
        // The operator of an object says later than its pods what has become of it.
        let may_fail = seen.pods.iter().any(|pod| pod.phase == "Failed") && !described.has_ended();
        Ok((is_late || may_fail).then(|| Instant::now() + LATER))
    }

    /// Adds the object that describes the pods of the job. Returns whether it is there, or none is needed.
    async fn describe(&self, job: &mut Described<'_>) -> Result<bool, Error> {
        let integration = job.row.kind.integration;
        let Some(reference) = integration.reference(&job.value) else { return Ok(true) };
        let kind = Kind::referenced(&integration.references()[reference.at]);
        let found = self.cluster.get(kind, &Key::new(&*reference.namespace, &*reference.name)).await?;
        let Some(found) = found else {
            let message =
                format!("{} {:?} does not exist: see kubectl get {}", kind.name, reference.name, kind.plural);
            self.warn(job, "NotFound", message);
            return Ok(false);
        };
        job.value[REFERENCED] = found;
        Ok(true)
    }

    fn warn(&self, job: &Described<'_>, reason: &str, message: String) {
        self.recorder.record(
            Kind::of_jobs(job.row.kind),
            job.metadata,
            "",
            EventKind::Warning,
            reason,
            message,
        );
    }

    /// The pods of a job, and whether each is its own.
    fn pods_of(&self, job: &Described<'_>) -> Vec<(Arc<Pod>, bool)> {
        let own = self.pods.indexed(&job.metadata.uid);
        let label = job.row.operator.pod_label();
        let labelled = label.map(|label| labelled(label, &job.metadata.namespace, &job.metadata.name));
        let mut others = labelled.map_or_else(Vec::new, |key| self.pods.indexed(&key));
        others.retain(|pod| own.iter().all(|own| own.metadata.uid != pod.metadata.uid));
        own.into_iter().map(|pod| (pod, true)).chain(others.into_iter().map(|pod| (pod, false))).collect()
    }

    /// What there is of a job, and the objects that it may have.
    async fn look<'a>(
        &self,
        job: &Described<'_>,
        pods: &'a [(Arc<Pod>, bool)],
    ) -> Result<(Seen<'a>, Vec<Planned>), Error> {
        let of_pod = |(pod, is_own): &'a (Arc<Pod>, bool)| SeenPod {
            name: &pod.metadata.name,
            labels: &pod.metadata.labels,
            phase: &pod.status.phase,
            is_ready: pod.is_ready(),
            is_own: *is_own,
        };
        let mut seen = Seen {
            pods: pods.iter().map(of_pod).collect(),
            most_pods: u32::try_from(self.cluster.room()).unwrap_or(u32::MAX),
            now: self.cluster.stamp().to_string(),
            objects: Vec::new(),
        };
        let mut planned = Vec::new();
        for manifest in job.row.operator.objects(&job.value, &seen) {
            planned.push(self.find(job, manifest, pods).await?);
        }
        let others = planned.iter().filter(|planned| !planned.is_pod());
        seen.objects = others.filter_map(|planned| planned.found.clone()).collect();
        Ok((seen, planned))
    }

    async fn find(
        &self,
        job: &Described<'_>,
        manifest: Value,
        pods: &[(Arc<Pod>, bool)],
    ) -> Result<Planned, Error> {
        let mut planned = Planned { manifest, collection: None, found: None };
        if planned.is_pod() {
            let mut own = pods.iter().filter(|(_, is_own)| *is_own).map(|(pod, _)| pod);
            planned.found = own.find(|pod| pod.metadata.name == planned.name()).map(|_| Value::Null);
            return Ok(planned);
        }
        let [version, kind] =
            ["apiVersion", "kind"].map(|field| planned.manifest[field].as_str().unwrap_or_default());
        let collection = self.cluster.collection_of(version, kind, &job.metadata.namespace).await?;
        if let Some(collection) = collection {
            let found = self.cluster.get_at(format!("{collection}/{}", planned.name())).await?;
            let owner = |found: &Value| found["metadata"]["ownerReferences"][0]["uid"] == *job.metadata.uid;
            planned.found = found.filter(owner);
            planned.collection = Some(collection);
        }
        Ok(planned)
    }

    /// Creates the objects that the job wants, and deletes those that it does not. Returns whether something is in the way.
    async fn place(&self, job: &Described<'_>) -> Result<bool, Error> {
        let pods = self.pods_of(job);
        let (seen, planned) = self.look(job, &pods).await?;
        let (runs, has_ended) = (!job.row.kind.is_suspended(&job.value), job.has_ended());
        let (mut wanted_pods, mut is_late) = (BTreeSet::new(), false);
        for planned in &planned {
            let is_wanted = runs && job.row.operator.wants(&job.value, &seen, &planned.manifest);
            if is_wanted && planned.is_pod() {
                wanted_pods.insert(planned.name().to_owned());
            }
            match &planned.found {
                None if is_wanted && !has_ended => is_late |= self.create(job, planned).await?,
                Some(found) if !is_wanted && !planned.is_pod() => {
                    let path = planned.collection.iter().map(|at| format!("{at}/{}", planned.name()));
                    for path in path {
                        self.cluster.delete_at(path, &found["metadata"]["uid"]).await?;
                    }
                }
                _ => {}
            }
        }
        for (pod, _) in pods.iter().filter(|(pod, is_own)| *is_own && !pod.metadata.is_deleting()) {
            if !wanted_pods.contains(&pod.metadata.name) {
                self.cluster.delete(&self.pods, &pod.metadata, Delete::default()).await?;
            }
        }
        self.warn_of_cut(job, seen.most_pods);
        Ok(is_late)
    }

    /// Creates an object of a job. Returns whether another object has its name.
    async fn create(&self, job: &Described<'_>, planned: &Planned) -> Result<bool, Error> {
        let namespace = &job.metadata.namespace;
        let mut body = planned.manifest.clone();
        let kind = Kind::of_jobs(job.row.kind);
        name_images(&mut body, &job.value);
        body["metadata"]["namespace"] = json!(namespace);
        body["metadata"]["ownerReferences"] =
            json!([Owner::controller_of(kind.api_version, kind.name, job.metadata)]);
        let created = match &planned.collection {
            _ if planned.is_pod() => self.cluster.create(&self.pods, namespace, &body).await.map(drop),
            Some(collection) => self.cluster.create_at(collection.clone(), &body).await,
            None => {
                let message = format!("the cluster serves no {} of {}", body["kind"], body["apiVersion"]);
                self.warn(job, "FailedCreate", message);
                return Ok(true);
            }
        };
        match created {
            Err(error) if error.is_conflict() => Ok(true),
            Err(error) => {
                self.warn(job, "FailedCreate", error.reason());
                Err(error)
            }
            Ok(()) => Ok(false),
        }
    }

    /// Tells that a pod set asks for more pods than all nodes hold.
    fn warn_of_cut(&self, job: &Described<'_>, most: u32) {
        let sets = job.row.kind.integration.pod_sets(&job.value);
        let largest = sets.iter().filter_map(|set| set["count"].as_u64()).max().unwrap_or(0);
        if largest > u64::from(most) {
            let message = format!(
                "asks for {largest}, and all simulated nodes together hold {most} pods: no more are made"
            );
            self.warn(job, "TooManyPods", message);
        }
    }
}

/// Names an image in containers of a pod that have none: what describes a pod by fields leaves it out, and none is pulled.
fn name_images(pod: &mut Value, job: &Value) {
    let image = job["spec"]["image"].as_str().unwrap_or("any").to_owned();
    let containers = pod.pointer_mut("/spec/containers").and_then(Value::as_array_mut);
    for container in containers.into_iter().flatten() {
        if container["image"].is_null() {
            container["image"] = image.clone().into();
        }
    }
}

impl Planned {
    fn is_pod(&self) -> bool {
        self.manifest["apiVersion"] == "v1" && self.manifest["kind"] == "Pod"
    }

    fn name(&self) -> &str {
        self.manifest["metadata"]["name"].as_str().unwrap_or_default()
    }
}

impl Described<'_> {
    fn has_ended(&self) -> bool {
        self.row.kind.integration.finished(&self.value).is_some()
    }
}
