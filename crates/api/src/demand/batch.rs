//! The pods of Jobs, `JobSet`s and Kubeflow training jobs.

use serde_json::Value;

use super::{PodSet, role, single};
use crate::amounts::AmountError;
use crate::value::{at, count, list, text};

/// Number of pods that a Job runs at once: the minimum of parallelism and completions.
fn parallel(spec: &Value) -> u32 {
    count(spec, &["parallelism"], 1).min(count(spec, &["completions"], u32::MAX))
}

pub(super) fn job(object: &Value) -> Result<PodSet, AmountError> {
    let spec = at(object, &["spec"]);
    single("job", parallel(spec), at(spec, &["template"]))
}

pub(super) fn job_set(object: &Value) -> Result<Vec<PodSet>, AmountError> {
    let jobs = list(object, &["spec", "replicatedJobs"]);
    jobs.iter()
        .map(|job| {
            let spec = at(job, &["template", "spec"]);
            let pods = count(job, &["replicas"], 1).saturating_mul(parallel(spec));
            role(text(job, &["name"]).unwrap_or("pods"), pods, at(spec, &["template"]).clone())
        })
        .collect()
}

/// The pods of a `PyTorchJob` or another training job: `spec` has a map of replica types, such as
/// `pytorchReplicaSpecs`.
pub(super) fn replica_specs(object: &Value) -> Result<Option<Vec<PodSet>>, AmountError> {
    let spec = at(object, &["spec"]).as_object().into_iter().flatten();
    let Some(types) =
        spec.filter(|(key, _)| key.ends_with("ReplicaSpecs")).find_map(|(_, types)| types.as_object())
    else {
        return Ok(None);
    };
    let sets = types.iter().map(|(name, replica)| {
        role(&name.to_lowercase(), count(replica, &["replicas"], 1), at(replica, &["template"]).clone())
    });
    sets.collect::<Result<_, _>>().map(Some)
}
