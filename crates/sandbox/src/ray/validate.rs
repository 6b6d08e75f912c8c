//! Validation of RayClusters and RayJobs. An invalid RayCluster gets only an Event; an invalid RayJob gets the status
//! `ValidationFailed`.

use super::containers::autoscaler_v2;
use super::types::{RayCluster, RayJob};

/// Maximum name length of a RayCluster and a RayJob, so that generated names stay valid.
const LONGEST: (usize, usize) = (53, 47);

/// Returns the first error of a RayCluster.
pub(super) fn cluster(cluster: &RayCluster) -> Result<(), String> {
    name(&cluster.metadata.name, LONGEST.0, "RayCluster")?;
    let spec = &cluster.spec;
    let head = &spec.head_group_spec;
    let containers =
        |template: &serde_json::Value| template["spec"]["containers"].as_array().map_or(0, Vec::len);
    if containers(&head.template) == 0 {
        return Err("headGroupSpec should have at least one container".to_owned());
    }
    for group in &spec.worker_group_specs {
        let name = &group.group_name;
        if containers(&group.template) == 0 {
            return Err(format!("workerGroupSpec {name} should have at least one container"));
        }
        if !spec.enable_in_tree_autoscaling && (group.min_replicas.is_none() || group.max_replicas.is_none())
        {
            return Err(format!(
                "worker group {name} must set both minReplicas and maxReplicas when autoscaling is disabled"
            ));
        }
        if let (Some(min), Some(max)) = (group.min_replicas, group.max_replicas) {
            if min < 0 || max < 0 {
                return Err(format!("worker group {name} has negative minReplicas or maxReplicas"));
            }
            if min > max {
                return Err(format!(
                    "worker group {name} has minReplicas {min} greater than maxReplicas {max}"
                ));
            }
        }
        if group.suspend == Some(true) && spec.enable_in_tree_autoscaling {
            return Err(format!("worker group {name} cannot be suspended when Autoscaler is enabled"));
        }
    }
    for group in std::iter::once(head).chain(&spec.worker_group_specs) {
        let params = &group.ray_start_params;
        let stated =
            ["num-cpus", "num-gpus", "memory", "resources"].iter().any(|param| params.contains_key(*param));
        if stated && !group.resources.is_empty() {
            let name = if group.group_name.is_empty() { "head" } else { &group.group_name };
            return Err(format!(
                "group {name} sets both resources and rayStartParams for the same amounts, use one of them"
            ));
        }
        if params.contains_key("labels") {
            return Err("rayStartParams must not contain labels, use the group's labels field".to_owned());
        }
        if autoscaler_v2(cluster) {
            let policy = group.template["spec"]["restartPolicy"].as_str().unwrap_or("Never");
            if policy != "Never" {
                return Err(format!("restartPolicy should be Never with autoscaler v2, not {policy}"));
            }
        }
    }
    Ok(())
}

/// Returns the first error of a RayJob.
pub(super) fn job(job: &RayJob) -> Result<(), String> {
    name(&job.metadata.name, LONGEST.1, "RayJob")?;
    let spec = &job.spec;
    let selects = !spec.cluster_selector.is_empty();
    if spec.ray_cluster_spec.is_null() && !selects {
        return Err("one of RayClusterSpec or ClusterSelector must be set".to_owned());
    }
    if selects && spec.selected_cluster().is_none_or(str::is_empty) {
        return Err("ClusterSelector must contain the key ray.io/cluster".to_owned());
    }
    if spec.suspend && !spec.shutdown_after_job_finishes {
        return Err(
            "a RayJob with shutdownAfterJobFinishes set to false is not allowed to be suspended".to_owned()
        );
    }
    if selects && spec.suspend {
        return Err("the ClusterSelector mode doesn't support the suspend operation".to_owned());
    }
    if selects && spec.backoff_limit.unwrap_or(0) > 0 {
        return Err("BackoffLimit is incompatible with ClusterSelector mode".to_owned());
    }
    if spec.ttl_seconds_after_finished < 0 {
        return Err("TTLSecondsAfterFinished must be a non-negative integer".to_owned());
    }
    if !spec.shutdown_after_job_finishes && spec.ttl_seconds_after_finished > 0 {
        return Err(
            "a RayJob with shutdownAfterJobFinishes set to false cannot have TTLSecondsAfterFinished"
                .to_owned(),
        );
    }
    for (field, value) in [
        ("activeDeadlineSeconds", spec.active_deadline_seconds),
        ("preRunningDeadlineSeconds", spec.pre_running_deadline_seconds),
    ] {
        if value.is_some_and(|seconds| seconds <= 0) {
            return Err(format!("{field} must be a positive integer"));
        }
    }
    if spec.backoff_limit.is_some_and(|limit| limit < 0) {
        return Err("backoffLimit must be a non-negative integer".to_owned());
    }
    if spec.shutdown_after_job_finishes && !spec.deletion_strategy.deletion_rules.is_empty() {
        return Err(
            "shutdownAfterJobFinishes and deletionStrategy.deletionRules exclude each other".to_owned()
        );
    }
    match spec.submission_mode.as_str() {
        "SidecarMode" if !spec.submitter_pod_template.is_null() || !spec.submitter_config.is_null() => {
            return Err("SidecarMode doesn't support submitterPodTemplate and submitterConfig".to_owned());
        }
        "SidecarMode" if selects => return Err("SidecarMode doesn't support ClusterSelector".to_owned()),
        "InteractiveMode" if spec.backoff_limit.unwrap_or(0) > 0 => {
            return Err("BackoffLimit is incompatible with InteractiveMode".to_owned());
        }
        _ => {}
    }
    if !spec.ray_cluster_spec.is_null() {
        let mut child = RayCluster::default();
        "child".clone_into(&mut child.metadata.name);
        child.spec = serde_json::from_value(spec.ray_cluster_spec.clone())
            .map_err(|error| format!("rayClusterSpec cannot be read: {error}"))?;
        cluster(&child)?;
    }
    Ok(())
}

fn name(name: &str, longest: usize, kind: &str) -> Result<(), String> {
    if name.len() > longest {
        return Err(format!("{kind} name should be no more than {longest} characters"));
    }
    let valid = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) || !name.chars().all(valid) || name.ends_with('-')
    {
        return Err(format!("{kind} name should be a valid DNS1035 label: {name:?}"));
    }
    Ok(())
}
