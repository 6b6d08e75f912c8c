//! What the kinds of jobs have in common, and what each of them answers for itself.

use std::fmt;

use serde_json::Value;

use super::injection::{self, Injection, InjectionError};
use super::operator::Operator;
use super::set_at;
use crate::kueue::status::ReclaimablePods;

/// The field of a job with the object that describes its pods, while decisions are made. It is never written.
pub const REFERENCED: &str = "muster.dev/referenced";

/// How the jobs of a kind are read and changed.
pub trait Integration: fmt::Debug + Sync {
    /// JSON pointer to the flag that suspends a job.
    fn suspend_field(&self) -> &'static str {
        "/spec/suspend"
    }
    /// Whether a job is suspended.
    fn is_suspended(&self, job: &Value) -> bool {
        job.pointer(self.suspend_field()) == Some(&Value::Bool(true))
    }
    /// Suspends a job, or lets it run.
    fn set_suspended(&self, job: &mut Value, is_suspended: bool) {
        let path: Vec<&str> = self.suspend_field().split('/').skip(1).collect();
        set_at(job, &path, is_suspended.into());
    }
    /// The kinds of the objects that describe pods of a job beside it.
    fn references(&self) -> &'static [ReferencedKind] {
        &[]
    }
    /// The object that describes pods of a job. While decisions are made, it is in the field [`REFERENCED`] of the job.
    fn reference(&self, _job: &Value) -> Option<Reference> {
        None
    }
    /// Whether all is known that describes the pods of a job.
    fn is_described(&self, _job: &Value) -> bool {
        true
    }
    /// The pod sets, as a Workload has them: name, count, least count, template.
    fn pod_sets(&self, job: &Value) -> Vec<Value>;
    /// The label of the pods with their index in the pod set, if they have one.
    fn index_label(&self) -> Option<&'static str> {
        None
    }
    /// JSON pointers to the pod templates, in the order of the pod sets.
    fn templates(&self, job: &Value) -> Vec<String>;
    /// Writes the templates that the job's own controller would make by itself, so that an admission can change them.
    fn add_templates(&self, _job: &mut Value) {}
    /// Whether the templates stay as they are when an admission adds something to the pods.
    fn injects_beside_templates(&self) -> bool {
        false
    }
    /// Adds to the pods of each pod set what an admission adds.
    ///
    /// # Errors
    ///
    /// A template has another value where the admission demands one, or the admission is for other pod sets.
    fn inject(&self, job: &mut Value, injections: &[Injection]) -> Result<(), InjectionError> {
        let templates = self.templates(job);
        if templates.len() != injections.len() {
            return Err(InjectionError::Sets { expected: templates.len(), found: injections.len() });
        }
        for (pointer, injection) in templates.iter().zip(injections) {
            if let Some(template) = job.pointer_mut(pointer) {
                injection.inject(template)?;
            }
        }
        Ok(())
    }
    /// Gives the job the templates of the pod sets of its Workload.
    fn restore(&self, job: &mut Value, sets: &[Value]) {
        for (pointer, set) in self.templates(job).iter().zip(sets) {
            if let Some(template) = job.pointer_mut(pointer) {
                injection::restore(template, &set["template"], self.own_labels());
            }
        }
    }
    /// Sets the counts of pod sets that may start with fewer pods.
    fn set_counts(&self, _job: &mut Value, _counts: &[u32]) {}
    /// Whether its jobs may change their size while they run.
    fn can_grow(&self) -> bool {
        false
    }
    /// The name of the cluster that a job has made.
    fn cluster<'a>(&self, _job: &'a Value) -> Option<&'a str> {
        None
    }
    /// Gives pod sets the sizes of the cluster that a job has made, if the cluster changes them by itself.
    fn follow_cluster(&self, _job: &Value, _cluster: &Value, _sets: &mut [Value]) {}
    /// Labels of templates that the job's own controller writes. They are not restored.
    fn own_labels(&self) -> &[&str] {
        &[]
    }
    /// The name of the priority class of its pods; `None` for that of the first template with one.
    fn priority_class<'a>(&self, _job: &'a Value) -> Option<&'a str> {
        None
    }
    /// Whether what an admission adds can be written and removed only while a job is suspended.
    fn changes_suspended_only(&self) -> bool {
        false
    }
    /// Whether templates can be changed only after a job has been suspended and its start time removed.
    fn stops_in_steps(&self) -> bool {
        false
    }
    /// Whether a job is left alone although it has a queue.
    fn is_skipped(&self, _job: &Value) -> bool {
        false
    }
    /// Whether a job cannot run as it is, so that its quota is released.
    fn is_on_hold(&self, _job: &Value) -> bool {
        false
    }
    /// Whether the status of its jobs has a list of conditions, to which others may add.
    fn has_conditions(&self) -> bool {
        false
    }
    /// Whether pods are running, or may be.
    fn is_active(&self, job: &Value) -> bool;
    /// Whether all pods are ready or have succeeded.
    fn are_pods_ready(&self, job: &Value) -> bool;
    /// What its operator does, where it is simulated.
    fn operator(&self) -> Option<&dyn Operator> {
        None
    }
    /// How it ended.
    fn finished(&self, job: &Value) -> Option<Finished>;
    /// The pods whose quota others may use, because they have ended for good.
    fn reclaimable(&self, _job: &Value) -> Vec<ReclaimablePods> {
        Vec::new()
    }
}

/// A kind of objects that describe pods of jobs.
#[derive(Debug)]
pub struct ReferencedKind {
    /// Group and version.
    pub api_version: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// Name of the resource.
    pub plural: &'static str,
    /// Whether its objects are in namespaces.
    pub is_namespaced: bool,
}

/// The object that describes pods of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// The position of its kind.
    pub at: usize,
    /// Its namespace; empty if it is in none.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// Whether it succeeded.
    pub succeeded: bool,
    /// The message of its condition.
    pub message: String,
}
