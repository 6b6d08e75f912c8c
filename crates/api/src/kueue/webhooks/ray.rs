//! The rules of RayJobs, RayClusters and `RayServices` in queues. After the webhooks of `pkg/controller/jobs/ray*` of Kueue v0.19.

use serde_json::Value;

use super::field_error::FieldError;
use super::{Gates, elastic};
use crate::demand::ray::HEAD;
use crate::kueue::workload::POD_SETS_MAX;
use crate::value::list;

/// Why a cluster must not scale itself, but a RayCluster.
const NO_AUTOSCALING: &str =
    "a kueue managed job should only use autoscaling when workload slicing is enabled";
/// Why a RayCluster must not scale itself.
const NO_CLUSTER_AUTOSCALING: &str = "a kueue-managed RayCluster can use autoscaling only as an elastic job: enable the \
     ElasticJobsViaWorkloadSlices feature gate and set the \"kueue.x-k8s.io/elastic-job\": \"true\" annotation";

/// The rules of a job of this resource with a queue. `None` if it uses a cluster that is there, or none at all: no other rule
/// counts then.
pub(super) fn check(resource: &str, job: &Value, gates: &Gates, errors: &mut Vec<FieldError>) -> Option<()> {
    let spec = &job["spec"];
    match resource {
        "rayjobs" => {
            let selector = &spec["clusterSelector"];
            let selects = selector.as_object().is_some_and(|selector| !selector.is_empty());
            let is_given = spec["rayClusterSpec"].is_object();
            if selects && is_given {
                let why = "a kueue managed job should not use an existing cluster";
                errors.push(FieldError::invalid("spec.clusterSelector", selector.clone(), why));
            } else if !selects && !is_given {
                let why = "rayClusterSpec is required for Kueue-managed jobs that don't use clusterSelector";
                errors.push(FieldError::required("spec.rayClusterSpec", why));
            }
            if selects || !is_given {
                return None;
            }
            if spec["shutdownAfterJobFinishes"] != true {
                let why = "a kueue managed job should delete the cluster after finishing";
                errors.push(FieldError::invalid("spec.shutdownAfterJobFinishes", false, why));
            }
            check_cluster(job, &spec["rayClusterSpec"], "spec.rayClusterSpec", NO_AUTOSCALING, gates, errors);
        }
        "rayclusters" => {
            if elastic::is_asked(job, gates) {
                elastic::check_gates(spec, "spec", errors);
            }
            check_cluster(job, spec, "spec", NO_CLUSTER_AUTOSCALING, gates, errors);
        }
        // Kueue names the field of a RayService as that of a RayJob.
        "rayservices" => {
            check_cluster(
                job,
                &spec["rayClusterConfig"],
                "spec.rayClusterSpec",
                NO_AUTOSCALING,
                gates,
                errors,
            );
        }
        _ => {}
    }
    Some(())
}

fn check_cluster(
    job: &Value,
    cluster: &Value,
    path: &str,
    why: &str,
    gates: &Gates,
    errors: &mut Vec<FieldError>,
) {
    if cluster["enableInTreeAutoscaling"] == true && !elastic::is_asked(job, gates) {
        errors.push(FieldError::invalid(&format!("{path}.enableInTreeAutoscaling"), true, why));
    }
    if list(cluster, &["headGroupSpec", "template", "spec", "containers"]).is_empty() {
        let path = format!("{path}.headGroupSpec.template.spec.containers");
        errors.push(FieldError::required(&path, "the head needs a container"));
    }
    let groups = list(cluster, &["workerGroupSpecs"]);
    let path = format!("{path}.workerGroupSpecs");
    let most = usize::from(POD_SETS_MAX);
    if groups.len() + 1 > most {
        errors.push(FieldError::too_many(&path, groups.len() + 1, most));
    }
    for (at, _) in groups.iter().enumerate().filter(|(_, group)| group["groupName"] == HEAD) {
        let why = "\"head\" is reserved for the head group";
        errors.push(FieldError::forbidden(&format!("{path}[{at}].groupName"), why));
    }
}
