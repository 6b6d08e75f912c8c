//! Jobs that another job owns: only the uppermost one with a queue has a Workload, and the jobs below it run while that one is
//! admitted.

use api::kueue::jobs::{JobKind, annotation, controller, queue_name};
use api::kueue::status::{ADMITTED, FINISHED};
use serde_json::{Map, Value};

use super::JobsConfig;
use super::objects::Objects;
use super::step::{AWAIT, JobEvent, JobStep, View, event};
use super::write::decoded;
use crate::watched::Whole;

/// So many owners are looked at, as in Kueue.
const DEPTH_MAX: usize = 10;
/// The annotation of a job that was suspended because the job that owns it is not admitted. Nothing else lets it run again.
const KEPT: &str = "muster.dev/suspended-with-owner";

/// The job that queues for another one.
pub(super) enum Ancestor<'a> {
    /// Nothing does.
    Absent,
    /// The uppermost job with a queue.
    Job(&'a Whole),
    /// An AppWrapper, or an owner that no watch has shown: the watch shows it, or the job goes with it.
    Other,
}

impl Objects {
    /// The job that queues for this one.
    pub(super) fn ancestor<'a>(&'a self, job: &'a Whole, config: &JobsConfig) -> Ancestor<'a> {
        let (mut found, mut at) = (Ancestor::Absent, job);
        for _ in 0..DEPTH_MAX {
            if controller(&at.value)["kind"] == api::appwrapper::KIND {
                return Ancestor::Other;
            }
            let Some(owner) = at.metadata.controller() else { return found };
            let is_kind = |kind: &&'static JobKind| kind.is_kind_of(&owner.api_version, &owner.kind);
            let Some(kind) = config.watched().find(is_kind) else { return found };
            let Some((_, parent)) = self.jobs.get(&owner.uid) else {
                let is_unlabelled = kind.is_watched_unlabelled() || config.manages_unnamed;
                return if is_unlabelled { Ancestor::Other } else { found };
            };
            if config.manages_unnamed || !queue_name(&parent.value).is_empty() {
                found = Ancestor::Job(parent);
            }
            at = parent;
        }
        tracing::debug!(job = job.metadata.name, "has more than {DEPTH_MAX} owners");
        Ancestor::Other
    }

    fn is_admitted(&self, job: &Whole) -> bool {
        let mut known = self.workloads_of(&job.metadata.uid).filter_map(|whole| decoded(whole).ok());
        known.any(|workload| workload.status.is(ADMITTED) && !workload.status.is(FINISHED))
    }
}

impl View<'_> {
    /// Keeps a job suspended until the job that queues for it is admitted.
    pub(super) fn follow_ancestor(&self, ancestor: &Whole) -> JobStep {
        let job = &self.job.value;
        let is_suspended = self.kind.is_suspended(job);
        if self.job.metadata.is_deleting() || self.kind.integration.finished(job).is_some() {
            return AWAIT;
        }
        let is_kept = annotation(job, KEPT).is_some();
        match (is_suspended, self.objects.is_admitted(ancestor)) {
            (false, false) => self.set_kept(true, event("Suspended", "Kueue managed child job suspended")),
            (true, true) if is_kept => {
                self.set_kept(false, event("Resumed", "The job that owns this one is admitted"))
            }
            _ => AWAIT,
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
