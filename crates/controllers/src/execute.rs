//! Performs steps. Every write is conditional on the resource version that the decision was based on. Every step is
//! idempotent: an object that already exists and belongs to the AppWrapper counts as created, and objects of other
//! owners are never changed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use api::appwrapper::limits;
use api::appwrapper::render::{self, RenderError};
use api::appwrapper::{AppWrapper, Spec, State, Status, transition};
use api::{Meta, MicroTime};
use futures::StreamExt;
use index::{CachedPods, Kind, ObjectKey, Wrapper, wire};
use kube::api::ApiResource;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::api_calls::{self, ResourcePath};
use crate::config::Clock;
use crate::error::Error;
use crate::owners::is_wrapper;
use crate::step::Step;
use crate::watched::Watched;
use crate::watches;

/// Maximum number of attempts to write a status that other clients change at the same time.
const CONFLICTS_MAX: u32 = 10;

/// Of how many objects the Events are read to explain missing pods.
const EVENT_OBJECTS_MAX: usize = 10;

/// The result of a step.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The status was written.
    Written {
        /// Resource version of the AppWrapper after the write.
        resource_version: String,
        /// The status after the write.
        status: Box<Status>,
    },
    /// All objects exist, and the status says so.
    Dispatched {
        /// Resource version of the AppWrapper after the write.
        resource_version: String,
        /// The status after the write.
        status: Box<Status>,
    },
    /// Another client changed the AppWrapper; its current state. The step did nothing.
    Stale(Box<AppWrapper>),
    /// Why pods of the gang are missing, by the Events about its objects; empty if they do not say it.
    Explained(String),
    /// These objects of a running gang are deleted.
    ObjectsDeleted(Vec<ObjectKey>),
    /// The objects are deleted or terminating.
    Removed,
    /// The dispatch was cancelled because the gang is stopped.
    Cancelled,
    /// The AppWrapper was deleted.
    Deleted,
    /// The step failed and is retried.
    Retry(Error),
}

/// Input of one step. Independent of the index, so that steps run concurrently with the loop.
pub(crate) struct Task {
    pub(crate) client: Client,
    pub(crate) clock: Clock,
    pub(crate) wrapper: Wrapper,
    /// Plural resource names of the kinds that the AppWrapper wraps.
    pub(crate) plurals: BTreeMap<Kind, String>,
    /// Existing objects of the AppWrapper, with their uids.
    pub(crate) objects: Vec<(ObjectKey, String)>,
    /// Whether the CRD has a status subresource. Only the oldest AppWrapper CRDs have none.
    pub(crate) has_status: bool,
    /// Limits the number of steps that write at the same time.
    pub(crate) permits: Arc<Semaphore>,
    /// The permit of this step, while it writes.
    pub(crate) permit: Mutex<Option<OwnedSemaphorePermit>>,
    /// Cancels a dispatch that waits for the deletion of an object of another owner.
    pub(crate) cancelled: Arc<Notify>,
    /// Whether pod templates get a scheduling gate.
    pub(crate) gates: bool,
    /// Whether the previous attempt failed.
    pub(crate) is_retry: bool,
    pub(crate) step: Step,
}

/// Why an object was not created.
enum CreateError {
    /// A retry has the same result: the gang fails.
    Fatal(String),
    /// A retry can succeed.
    Retryable(Error),
    /// The dispatch was cancelled.
    Cancelled,
}

impl From<Error> for CreateError {
    fn from(error: Error) -> Self {
        match error {
            Error::Failing(text) | Error::Conflict(text) => Self::Retryable(Error::NotAdmitted(text)),
            Error::Unreachable(_) | Error::NotAllowed(_) | Error::NotAdmitted(_) | Error::LeaseLost(_) => {
                Self::Retryable(error)
            }
            Error::Refused(_) | Error::Exists(_) | Error::NotFound(_) | Error::NotEstablished { .. } => {
                Self::Fatal(error.to_string())
            }
        }
    }
}

impl Task {
    /// Performs the step.
    pub(crate) async fn run(&self) -> Outcome {
        self.acquire_permit().await;
        let outcome = match &self.step {
            Step::AwaitChange(_) | Step::WritePodCounts(_) | Step::Stop(_) => {
                Err(Error::Refused("this step needs no request".into()))
            }
            Step::WriteStatus(status, _) => self.write(status).await,
            Step::Requeue(status, cached_pods) => self.requeue(status, cached_pods).await,
            Step::ConfirmDeletions(keys) => self.confirm_deletions(keys).await,
            Step::ReadEvents(uids) => Ok(Outcome::Explained(self.latest_warning(uids).await)),
            Step::Dispatch { intent, assignment, message, .. } => {
                self.dispatch(intent, assignment.as_deref(), message).await
            }
            Step::Remove => self.remove().await,
        };
        match outcome {
            Ok(outcome) => outcome,
            Err(Error::NotFound(_)) => Outcome::Deleted,
            Err(error) => Outcome::Retry(error),
        }
    }

    /// Waits for a permit to write.
    async fn acquire_permit(&self) {
        // The semaphore is never closed.
        let permit = self.permits.clone().acquire_owned().await.ok();
        *self.permit.lock().unwrap_or_else(PoisonError::into_inner) = permit;
    }

    /// Returns the permit while this step waits.
    fn release_permit(&self) {
        *self.permit.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn path(&self) -> ResourcePath {
        ResourcePath::wrappers(self.wrapper.key.group, &self.wrapper.key.namespace)
    }

    fn now(&self) -> MicroTime {
        MicroTime::from((self.clock)())
    }

    /// Reads the AppWrapper. A different uid counts as not found.
    async fn observe(&self) -> Result<AppWrapper, Error> {
        let wrapper: AppWrapper = self.path().get(&self.client, &self.wrapper.key.name).await?;
        if wrapper.metadata.uid == self.wrapper.uid {
            Ok(wrapper)
        } else {
            Err(Error::NotFound(format!("{} was deleted and created again", self.wrapper.key)))
        }
    }

    /// Writes the status if the AppWrapper still has the resource version that the decision was based on.
    async fn write(&self, status: &Status) -> Result<Outcome, Error> {
        let patch = status.merge_patch_from(&self.wrapper.status);
        let patch = patch.unwrap_or_else(|| Value::Object(serde_json::Map::new()));
        match self.merge(&self.wrapper.resource_version, &patch).await {
            Ok(written) => Ok(Outcome::Written {
                resource_version: written.metadata.resource_version,
                status: Box::new(written.status),
            }),
            Err(Error::Conflict(_)) => Ok(Outcome::Stale(Box::new(self.observe().await?))),
            Err(error) => Err(error),
        }
    }

    /// Requeues a running gang, unless the API server knows pods of it that the pod watch has not reported yet.
    async fn requeue(&self, status: &Status, cached_pods: &CachedPods) -> Result<Outcome, Error> {
        #[derive(Deserialize)]
        struct Pods {
            items: Vec<wire::Pod>,
        }
        let path = format!("/api/v1/namespaces/{}/pods", self.wrapper.key.namespace);
        let now: Pods = api_calls::get(&self.client, &path).await?;
        if cached_pods.matches(now.items) {
            return self.write(status).await;
        }
        Err(Error::Unreachable(format!("the pod watch lags behind for the pods of {}", self.wrapper.key)))
    }

    /// Confirms that objects of a running gang are deleted. A watch may lag behind.
    async fn confirm_deletions(&self, keys: &[ObjectKey]) -> Result<Outcome, Error> {
        for key in keys {
            let Some(plural) = self.plurals.get(&key.kind) else { continue };
            let path = ResourcePath::of(&key.kind, plural, &self.wrapper.key.namespace);
            match path.get::<wire::Object>(&self.client, &key.name).await {
                Ok(object) if object.metadata.controller().is_some_and(|o| o.uid == self.wrapper.uid) => {
                    let ObjectKey { kind, name } = key;
                    return Err(Error::Unreachable(format!("the watch of {kind} lags behind for {name}")));
                }
                Ok(_) | Err(Error::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Outcome::ObjectsDeleted(keys.to_vec()))
    }

    /// Reason and message of the latest warning among the Events about these objects; empty if there is none, or if it
    /// cannot be read.
    async fn latest_warning(&self, uids: &[String]) -> String {
        let mut warnings = Vec::new();
        for uid in uids.iter().take(EVENT_OBJECTS_MAX) {
            match api_calls::warnings_about(&self.client, &self.wrapper.key.namespace, uid).await {
                Ok(events) => warnings.extend(events),
                Err(error) => {
                    tracing::warn!(wrapper = %self.wrapper.key, %error, "cannot read the events about an object");
                }
            }
        }
        let latest = warnings.into_iter().max_by_key(|event| event.metadata.creation_timestamp.clone());
        latest.map_or(String::new(), |event| format!("{}: {}", event.reason, event.message))
    }

    async fn merge(&self, resource_version: &str, patch: &Value) -> Result<AppWrapper, Error> {
        let name = &self.wrapper.key.name;
        self.path().merge_status(&self.client, name, resource_version, patch, self.has_status).await
    }

    /// Changes the status, whatever other clients write to it in between, as long as the uid is the same. The first
    /// attempt is conditional on the resource version. After a conflict, a JSON patch tests only the fields that this
    /// controller owns; so a client that writes the status all the time cannot block the controller.
    async fn change(
        &self,
        mut wrapper: AppWrapper,
        change: impl Fn(&mut Status),
    ) -> Result<AppWrapper, Error> {
        for tries in 0..CONFLICTS_MAX {
            let mut status = wrapper.status.clone();
            change(&mut status);
            let Some(patch) = status.merge_patch_from(&wrapper.status) else { return Ok(wrapper) };
            let written = if tries == 0 {
                self.merge(&wrapper.metadata.resource_version, &patch).await
            } else {
                self.json_patch(&status.json_patch_from(&wrapper.status)).await
            };
            match written {
                Err(Error::Conflict(_)) => wrapper = self.observe().await?,
                // A field that the patch tests has changed or vanished.
                Err(Error::Refused(_)) if tries > 0 => wrapper = self.observe().await?,
                answer => return answer,
            }
        }
        Err(Error::Unreachable(format!("other clients keep changing the status of {}", self.wrapper.key)))
    }

    async fn json_patch(&self, edits: &[Value]) -> Result<AppWrapper, Error> {
        let same = json!({"op": "test", "path": "/metadata/uid", "value": self.wrapper.uid});
        let edits: Vec<Value> = std::iter::once(same).chain(edits.iter().cloned()).collect();
        self.path().json_patch_status(&self.client, &self.wrapper.key.name, &edits, self.has_status).await
    }

    /// Dispatches the gang: writes the intent (`canrun`), creates the objects, writes the outcome.
    async fn dispatch(
        &self,
        intent: &Status,
        assignment: Option<&str>,
        message: &str,
    ) -> Result<Outcome, Error> {
        // The response contains the templates, so that the index does not have to store them.
        let wrapper = match intent.merge_patch_from(&self.wrapper.status) {
            Some(patch) => match self.merge(&self.wrapper.resource_version, &patch).await {
                Err(Error::Conflict(_)) => return Ok(Outcome::Stale(Box::new(self.observe().await?))),
                answer => answer?,
            },
            None => self.observe().await?,
        };
        // Without a status subresource, each status write increments the generation, too.
        let has_new_spec = self.has_status && wrapper.metadata.generation != self.wrapper.generation;
        // Another controller has dispatched the gang in the meantime.
        let is_started = wrapper.status.canrun && wrapper.status.state == State::Running;
        if has_new_spec && self.objects.is_empty() || is_started {
            return Ok(Outcome::Stale(Box::new(wrapper)));
        }
        if wrapper.metadata.is_deleting() {
            return Ok(Outcome::Deleted);
        }
        let spec = match Spec::read(&wrapper.spec, &wrapper.metadata.name) {
            Ok(spec) => spec,
            Err(flaw) => return self.fail(wrapper, &[], &flaw.to_string()).await,
        };
        if let Some(assignment) = assignment
            && let Some(error) = spec.objects().find_map(|t| limits::check_assignment(t, assignment).err())
        {
            return self.fail(wrapper, &[], &error.to_string()).await;
        }
        let mut created = Vec::new();
        let count = spec.objects().count();
        for (position, template) in spec.objects().enumerate() {
            let annotation = assignment.filter(|json| limits::has_assignment(position, count, json));
            match self.create_object(&wrapper.metadata, template, position, annotation).await {
                Ok(object) => created.push(object),
                Err(CreateError::Fatal(cause)) => return self.fail(wrapper, &created, &cause).await,
                Err(CreateError::Retryable(error)) => {
                    if self.is_retry || !matches!(error, Error::Unreachable(_)) {
                        self.undo(&created).await;
                    }
                    return Err(error);
                }
                Err(CreateError::Cancelled) => return Ok(Outcome::Cancelled),
            }
        }
        let now = self.now();
        let written = self
            .change(wrapper, |status| {
                transition::dispatched(status, &spec, now);
                status.tell(message.to_owned());
            })
            .await?;
        Ok(Outcome::Dispatched {
            resource_version: written.metadata.resource_version,
            status: Box::new(written.status),
        })
    }

    /// Whether the gang has planned nodes.
    fn has_assignment(&self) -> bool {
        matches!(self.step, Step::Dispatch { assignment: Some(_), .. })
    }

    /// Creates one object, or finds it already created. Returns its resource path, name and uid.
    async fn create_object(
        &self,
        owner: &Meta,
        template: &Value,
        position: usize,
        assignment: Option<&str>,
    ) -> Result<(ResourcePath, String, String), CreateError> {
        let group = self.wrapper.key.group;
        let mut object = render::render(group, owner, template, position, assignment)
            .map_err(|error: RenderError| CreateError::Fatal(error.to_string()))?;
        if self.gates && self.has_assignment() {
            let are_references_planned = self.wrapper.references.unplanned.is_empty();
            api::scheduling_gate::add_gate(&mut object, are_references_planned);
        }
        api::provisioning::gang::consume(&mut object, owner);
        let field = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
        let kind = Kind::new(field("apiVersion"), field("kind"));
        let Some(plural) = self.plurals.get(&kind) else {
            return Err(CreateError::Retryable(Error::NotAdmitted(format!("this cluster serves no {kind}"))));
        };
        let path = ResourcePath::of(&kind, plural, &owner.namespace);
        let name = render::name(owner, template, position);
        loop {
            let conflict = match path.create::<wire::Object>(&self.client, &object).await {
                Ok(created) => return Ok((path, name, created.metadata.uid)),
                Err(Error::Exists(conflict)) => conflict,
                // The path of an established CRD may answer 404 for a moment; or the namespace or the CRD is deleted.
                Err(Error::NotFound(text)) => return Err(CreateError::Retryable(Error::NotAdmitted(text))),
                Err(Error::NotAllowed(forbidden)) => {
                    let forbidden = forbidden.with_owner(group.name(), &owner.namespace);
                    return Err(CreateError::Retryable(Error::NotAllowed(Box::new(forbidden))));
                }
                Err(error) => return Err(error.into()),
            };
            let existing: wire::Object = match path.get(&self.client, &name).await {
                Ok(existing) => existing,
                Err(Error::NotFound(_)) => continue,
                Err(error) => return Err(error.into()),
            };
            let is_ours = existing.metadata.controller().is_some_and(|other| other.uid == owner.uid);
            if is_ours && !existing.metadata.is_deleting() {
                return Ok((path, name, existing.metadata.uid));
            }
            if !self.is_going_away(&existing.metadata).await? {
                return Err(CreateError::Fatal(conflict));
            }
            self.release_permit();
            tokio::select! {
                () = self.wait_until_deleted(&kind, plural, &existing.metadata) => {}
                () = self.cancelled.notified() => return Err(CreateError::Cancelled),
            }
            self.acquire_permit().await;
        }
    }

    /// Whether an object is terminating, or will be garbage-collected because its owner, an AppWrapper, is gone or
    /// terminating.
    async fn is_going_away(&self, object: &Meta) -> Result<bool, CreateError> {
        if object.is_deleting() {
            return Ok(true);
        }
        let Some(owner) = object.controller() else { return Ok(false) };
        let kind = Kind::new(&owner.api_version, &owner.kind);
        if !is_wrapper(&kind) || kind.form_error().is_some() {
            return Ok(false);
        }
        let path = ResourcePath::of(&kind, api::appwrapper::PLURAL, &object.namespace);
        match path.get::<wire::Object>(&self.client, &owner.name).await {
            Ok(wrapper) => Ok(wrapper.metadata.uid != owner.uid || wrapper.metadata.is_deleting()),
            Err(Error::NotFound(_)) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    /// Watches an object until it is deleted.
    async fn wait_until_deleted(&self, kind: &Kind, plural: &str, object: &Meta) {
        tracing::info!(wrapper = %self.wrapper.key, %kind, name = object.name, "waits for the deletion of an existing object of this name");
        let resource = ApiResource {
            group: kind.group().into(),
            version: kind.version().into(),
            api_version: kind.api_version.clone(),
            kind: kind.kind.clone(),
            plural: plural.into(),
        };
        let api: Api<Watched> = Api::all_with(self.client.clone(), &resource);
        let fields = format!("metadata.name={},metadata.namespace={}", object.name, object.namespace);
        let mut changes = std::pin::pin!(watches::changes(api, watcher::Config::default().fields(&fields)));
        let mut is_listed = false;
        while let Some(change) = changes.next().await {
            match change {
                Ok(Event::InitApply(seen)) => is_listed |= seen.uid() == object.uid,
                Ok(Event::InitDone) if !is_listed => return,
                Ok(Event::Delete(seen)) if seen.uid() == object.uid => return,
                Ok(Event::InitDone) | Err(_) => is_listed = false,
                Ok(Event::Init | Event::Apply(_) | Event::Delete(_)) => {}
            }
        }
    }

    /// Deletes the objects that were created: all or nothing, because the others may never be created. The next attempt
    /// finds what cannot be deleted now.
    async fn undo(&self, created: &[(ResourcePath, String, String)]) {
        if let Err(error) = self.delete_objects(created).await {
            tracing::warn!(wrapper = %self.wrapper.key, %error, "objects of an unfinished dispatch were not deleted");
        }
    }

    /// Deletes the objects that were created.
    async fn delete_objects(&self, created: &[(ResourcePath, String, String)]) -> Result<(), Error> {
        for (path, name, uid) in created {
            path.delete(&self.client, name, uid).await?;
        }
        Ok(())
    }

    /// Deletes the objects that were created, and writes the cause of the failure to the status.
    async fn fail(
        &self,
        wrapper: AppWrapper,
        created: &[(ResourcePath, String, String)],
        cause: &str,
    ) -> Result<Outcome, Error> {
        self.delete_objects(created).await?;
        let (key, now) = (self.wrapper.key.to_string(), self.now());
        let written =
            self.change(wrapper, |status| transition::creation_failed(status, &key, cause, now)).await?;
        Ok(Outcome::Written {
            resource_version: written.metadata.resource_version,
            status: Box::new(written.status),
        })
    }

    /// Deletes all objects: those that were observed, and those that may have been created since.
    async fn remove(&self) -> Result<Outcome, Error> {
        let path = |kind: &Kind| {
            self.plurals.get(kind).map(|plural| ResourcePath::of(kind, plural, &self.wrapper.key.namespace))
        };
        for (key, uid) in &self.objects {
            if let Some(path) = path(&key.kind) {
                path.delete(&self.client, &key.name, uid).await?;
            }
        }
        for key in self.wrapper.summary.objects() {
            let Some(path) = path(&key.kind).filter(|_| self.objects.iter().all(|(seen, _)| seen != key))
            else {
                continue;
            };
            match path.get::<wire::Object>(&self.client, &key.name).await {
                Ok(object) if object.metadata.controller().is_some_and(|o| o.uid == self.wrapper.uid) => {
                    let now = self.observe().await?;
                    if now.status.canrun && !self.wrapper.status.canrun {
                        // Another controller has dispatched the gang again in the meantime: the object must stay.
                        return Ok(Outcome::Stale(Box::new(now)));
                    }
                    path.delete(&self.client, &key.name, &object.metadata.uid).await?;
                }
                Ok(_) | Err(Error::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Outcome::Removed)
    }
}
