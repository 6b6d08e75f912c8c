//! Jobs that another job owns: only the uppermost one with a queue has a Workload, and the jobs below it run while that one is
//! admitted.
//!
//! An owner reference is a claim of the author of the job. It counts only if the owner is there, and an AppWrapper only if it wraps the
//! job: otherwise the job queues for itself.

use api::appwrapper::{self, render::wraps};
use api::kueue::jobs::{annotation, queue_name};
use api::kueue::status::{ADMITTED, Condition, EVICTED, FINISHED};
use api::{MicroTime, OwnerKey};
use index::Kind;
use kube::Client;
use serde_json::{Map, Value};

use super::JobsConfig;
use super::objects::Objects;
use super::step::{AWAIT, JobEvent, JobStep, View, event};
use super::write::decoded;
use crate::api_calls::ResourcePath;
use crate::error::Error;
use crate::watched::Whole;

/// So many owners are looked at, as in Kueue.
const DEPTH_MAX: usize = 10;
/// The annotation of a job that was suspended because the job that owns it is not admitted. Nothing else lets it run again.
const KEPT: &str = "muster.dev/suspended-with-owner";

/// How long the controller of an evicted job has to stop the jobs that it owns, before that is done for it: 10 s.
const OWN_STOP_MICROS: i64 = 10_000_000;

/// The job that queues for another one.
pub(super) enum Ancestor {
    /// Nothing does.
    Absent,
    /// The uppermost job with a queue.
    Job(OwnerKey),
    /// An AppWrapper, or an owner that is there and that no watch has shown: the watch shows it, or the job goes with it.
    Other,
    /// The API server has to be asked about an owner that no watch has shown.
    Unseen(Box<Question>),
}

/// Whether an object really has the controller that it names.
#[derive(Debug)]
pub(super) struct Question {
    object: OwnerKey,
    owner: OwnerKey,
    version: String,
    plural: &'static str,
}

impl Question {
    /// Asks the API server.
    pub(super) async fn answer(&self, client: &Client) -> Result<bool, Error> {
        let Self { object, owner, version, plural } = self;
        let kind = Kind::new(version, &owner.kind);
        if kind.form_error().is_some() {
            return Ok(false);
        }
        let path = ResourcePath::of(&kind, plural, &owner.namespace);
        match path.get::<Whole>(client, &owner.name).await {
            Ok(found) => Ok(found.metadata.uid == owner.uid && owns(owner, &found.value, object)),
            Err(Error::NotFound(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Whether an object that is there can be the owner of another one that names it: an AppWrapper owns what it wraps.
fn owns(key: &OwnerKey, owner: &Value, object: &OwnerKey) -> bool {
    !is_wrapper(key) || wraps(owner, &object.group, &object.kind, &object.name)
}

fn is_wrapper(key: &OwnerKey) -> bool {
    appwrapper::is_wrapper(&key.group, &key.kind)
}

impl Objects {
    /// The job that queues for a job, which has this key. A job whose owners form a circle queues for itself.
    pub(super) fn ancestor(&self, key: OwnerKey, job: &Whole, config: &JobsConfig) -> Ancestor {
        let (mut found, mut object, mut at) = (Ancestor::Absent, key, job);
        for _ in 0..DEPTH_MAX {
            let Some((owner, reference)) = at.metadata.controller_key().zip(at.metadata.controller()) else {
                return found;
            };
            let kind = config.watched().find(|kind| kind.is_kind_of(&reference.api_version, &owner.kind));
            let plural = match kind {
                _ if is_wrapper(&owner) => appwrapper::PLURAL,
                Some(kind) => kind.plural,
                None => return found,
            };
            match self.job(&owner) {
                Some((_, wrapper)) if is_wrapper(&owner) => {
                    return if owns(&owner, &wrapper.value, &object) { Ancestor::Other } else { found };
                }
                Some((_, parent)) => {
                    let has_workload = self.workloads_of(&owner).next().is_some();
                    if has_workload || config.manages_unnamed || !queue_name(&parent.value).is_empty() {
                        found = Ancestor::Job(owner.clone());
                    }
                    if self.holds_quota(&owner) {
                        return found; // Its children run with it, whoever owns it since.
                    }
                    (object, at) = (owner, parent);
                }
                // It has no queue, or else it would be shown.
                None if kind.is_some_and(|kind| !kind.is_watched_unlabelled() && !config.manages_unnamed) => {
                    return found;
                }
                None => {
                    return match self.answers.get(&object) {
                        Some((asked, true)) if *asked == owner => Ancestor::Other,
                        Some((asked, false)) if *asked == owner => found,
                        _ => {
                            let version = reference.api_version.clone();
                            Ancestor::Unseen(Box::new(Question { object, owner, version, plural }))
                        }
                    };
                }
            }
        }
        tracing::debug!(job = job.metadata.name, "has more than {DEPTH_MAX} owners");
        Ancestor::Absent
    }

    /// Applies an answer.
    pub(super) fn answered(&mut self, question: Question, is_owned: bool) {
        self.answers.insert(question.object, (question.owner, is_owned));
    }

    /// Until when the jobs of a job may run: without end while it is admitted, and for a while if it is evicted. `None`: it is not
    /// admitted.
    fn runs_until(&self, job: &OwnerKey) -> Option<MicroTime> {
        let known = self.workloads_of(job).filter_map(|whole| decoded(whole).ok());
        let admitted = known.filter(|workload| workload.status.is(ADMITTED) && !workload.status.is(FINISHED));
        let until = admitted.map(|workload| {
            let evicted = workload.status.condition(EVICTED).filter(|evicted| evicted.is_true());
            let since = evicted.and_then(Condition::since);
            since.map_or(MicroTime(i64::MAX), |since| MicroTime(since.0.saturating_add(OWN_STOP_MICROS)))
        });
        until.max()
    }
}

impl View<'_> {
    /// Keeps a job suspended until the job that queues for it is admitted, and suspends it when that one is evicted: its pods would
    /// keep the quota for ever.
    pub(super) fn follow_ancestor(&self, ancestor: &OwnerKey) -> JobStep {
        let job = &self.job.value;
        let is_suspended = self.kind.is_suspended(job);
        if self.job.metadata.is_deleting() || self.kind.integration.finished(job).is_some() {
            return AWAIT;
        }
        let is_kept = annotation(job, KEPT).is_some();
        match (is_suspended, self.objects.runs_until(ancestor)) {
            (true, Some(MicroTime(i64::MAX))) if is_kept => {
                self.set_kept(false, event("Resumed", "The job that owns this one is admitted"))
            }
            (true, _) | (false, Some(MicroTime(i64::MAX))) => AWAIT,
            (false, Some(until)) if until > self.now => JobStep::Await(Some(until)),
            (false, _) => self.set_kept(true, event("Suspended", "Kueue managed child job suspended")),
        }
    }

    fn set_kept(&self, is_kept: bool, told: JobEvent) -> JobStep {
        let mut job = self.job.value.clone();
        self.kind.set_suspended(&mut job, is_kept);
        if let Some(metadata) = job["metadata"].as_object_mut() {
            let annotations = metadata.entry("annotations").or_insert_with(|| Map::new().into());
            if let Some(annotations) = annotations.as_object_mut() {
                if is_kept {
                    annotations.insert(KEPT.into(), Value::from("true"));
                } else {
                    annotations.remove(KEPT);
                }
            }
        }
        self.write(job, vec![told])
    }
}
