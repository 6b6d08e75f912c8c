//! Validation of wrapped Ray objects, with the rules of KubeRay, so that problems are reported before dispatch.
//!
//! KubeRay reports an invalid object only with an event and creates no pods, so the gang would hold its resources
//! forever. Defaults are those of KubeRay's CRDs.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::appwrapper::ray_cluster;
use crate::value::{at, integer, list, text};

/// Maximum length of the name of a `RayCluster`: the names of its pods and services are longer.
const CLUSTER_NAME_MAX: usize = 53;
/// Maximum length of the name of a `RayJob`: the name of its cluster is longer.
const JOB_NAME_MAX: usize = 47;

/// The problems of an object, in the order of its fields; empty if it is valid or not a Ray object.
pub fn problems(object: &Value) -> Vec<String> {
    let Some(cluster) = ray_cluster(object) else { return missing_cluster(object) };
    let (kind, mut found) = (text(object, &["kind"]).unwrap_or_default(), Vec::new());
    let name_max = if kind == "RayJob" { JOB_NAME_MAX } else { CLUSTER_NAME_MAX };
    if let Some(name) = text(object, &["metadata", "name"]) {
        check_name(name, name_max, &mut found);
    }
    check_cluster(cluster, &mut found);
    if kind == "RayJob" {
        check_job(at(object, &["spec"]), &mut found);
    }
    let name = text(object, &["metadata", "name"]).unwrap_or_default();
    found.into_iter().map(|problem| format!("{kind} {name}: {problem}")).collect()
}

fn missing_cluster(object: &Value) -> Vec<String> {
    let is_ray = text(object, &["apiVersion"]).is_some_and(|v| v.starts_with("ray.io/"));
    let selects =
        at(object, &["spec", "clusterSelector"]).as_object().is_some_and(|labels| !labels.is_empty());
    match text(object, &["kind"]) {
        Some(kind @ ("RayCluster" | "RayJob" | "RayService")) if is_ray && !selects => {
            vec![format!("{kind}: its specification of a cluster is missing")]
        }
        _ => Vec::new(),
    }
}

fn check_name(name: &str, length_max: usize, found: &mut Vec<String>) {
    if name.len() > length_max {
        found.push(format!("its name has {} characters, KubeRay takes {length_max} at most", name.len()));
    }
    let is_label = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && !name.ends_with('-');
    if !is_label {
        found
            .push("its name must start with a letter, and hold lower case letters, digits and - only".into());
    }
}

fn check_cluster(cluster: &Value, found: &mut Vec<String>) {
    let autoscaling = at(cluster, &["enableInTreeAutoscaling"]).as_bool() == Some(true);
    let is_autoscaler_v2 = autoscaling && text(cluster, &["autoscalerOptions", "version"]) == Some("v2");
    check_group(at(cluster, &["headGroupSpec"]), "headGroupSpec", is_autoscaler_v2, found);
    let mut names = BTreeSet::new();
    for (position, group) in list(cluster, &["workerGroupSpecs"]).iter().enumerate() {
        let place = format!("workerGroupSpecs[{position}]");
        check_group(group, &place, is_autoscaler_v2, found);
        match text(group, &["groupName"]) {
            None => found.push(format!("{place}.groupName is missing")),
            Some(name) if names.contains(name) => found.push(format!("{place}.groupName {name} is taken")),
            Some(name) => {
                names.insert(name);
            }
        }
        let bound = |key, absent| integer(at(group, &[key])).unwrap_or(absent);
        let (min, max) = (bound("minReplicas", 0), bound("maxReplicas", i64::from(i32::MAX)));
        if min > max {
            found.push(format!("{place}: minReplicas {min} is above maxReplicas {max}"));
        }
        if autoscaling && at(group, &["suspend"]).as_bool() == Some(true) {
            found.push(format!("{place}: a group cannot be suspended while autoscaling is on"));
        }
    }
}

fn check_group(group: &Value, place: &str, requires_no_restart: bool, found: &mut Vec<String>) {
    if list(group, &["template", "spec", "containers"]).is_empty() {
        found.push(format!("{place}.template.spec.containers is empty"));
    }
    let start = at(group, &["rayStartParams"]);
    let params = ["num-cpus", "num-gpus", "memory", "resources"];
    let overridden = at(group, &["resources"]).as_object().is_some_and(|map| !map.is_empty());
    if let Some(param) = params.iter().find(|param| overridden && start.get(**param).is_some()) {
        found.push(format!("{place}: rayStartParams.{param} and resources exclude each other"));
    }
    if start.get("labels").is_some() {
        found.push(format!("{place}: rayStartParams.labels is not allowed; use labels"));
    }
    let policy = text(group, &["template", "spec", "restartPolicy"]);
    if requires_no_restart && policy.is_some_and(|policy| policy != "Never") {
        found.push(format!("{place}: autoscaler v2 needs restartPolicy Never"));
    }
}

fn check_job(spec: &Value, found: &mut Vec<String>) {
    let is_true = |key| at(spec, &[key]).as_bool() == Some(true);
    let positive = |key| integer(at(spec, &[key])).is_some_and(|n| n > 0);
    if is_true("suspend") && !is_true("shutdownAfterJobFinishes") {
        found.push("suspend needs shutdownAfterJobFinishes".into());
    }
    if positive("ttlSecondsAfterFinished") && !is_true("shutdownAfterJobFinishes") {
        found.push("ttlSecondsAfterFinished needs shutdownAfterJobFinishes".into());
    }
    if is_true("shutdownAfterJobFinishes") && !list(spec, &["deletionStrategy", "deletionRules"]).is_empty() {
        found.push("shutdownAfterJobFinishes and deletionStrategy.deletionRules exclude each other".into());
    }
    match text(spec, &["submissionMode"]) {
        Some("SidecarMode")
            if spec.get("submitterPodTemplate").is_some() || spec.get("submitterConfig").is_some() =>
        {
            found.push(
                "submissionMode SidecarMode takes neither submitterPodTemplate nor submitterConfig".into(),
            );
        }
        Some("InteractiveMode") if positive("backoffLimit") => {
            found.push("submissionMode InteractiveMode takes no backoffLimit".into());
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cluster() -> Value {
        let template = json!({"spec": {"containers": [{"name": "ray"}]}});
        json!({
            "apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "c"},
            "spec": {
                "headGroupSpec": {"template": template},
                "workerGroupSpecs": [{"groupName": "w", "replicas": 1, "template": template}],
            },
        })
    }

    #[test]
    fn a_valid_ray_cluster_has_no_problems() {
        assert_eq!(problems(&cluster()), Vec::<String>::new());
        assert_eq!(problems(&json!({"apiVersion": "v1", "kind": "ConfigMap"})), Vec::<String>::new());
    }

    #[test]
    fn an_invalid_ray_cluster_is_reported() {
        struct Case {
            change: fn(&mut Value),
            problem: &'static str,
        }
        let cases = [
            Case {
                change: |c| c["metadata"]["name"] = json!("a".repeat(54)),
                problem: "its name has 54 characters, KubeRay takes 53 at most",
            },
            Case {
                change: |c| c["metadata"]["name"] = json!("1st"),
                problem: "its name must start with a letter, and hold lower case letters, digits and - only",
            },
            Case {
                change: |c| c["spec"]["headGroupSpec"] = json!({}),
                problem: "headGroupSpec.template.spec.containers is empty",
            },
            Case {
                change: |c| c["spec"]["workerGroupSpecs"][0]["minReplicas"] = json!(i64::from(i32::MAX) + 1),
                problem: "workerGroupSpecs[0]: minReplicas 2147483648 is above maxReplicas 2147483647",
            },
            Case {
                change: |c| {
                    let group = c["spec"]["workerGroupSpecs"][0].clone();
                    c["spec"]["workerGroupSpecs"] = json!([group, group]);
                },
                problem: "workerGroupSpecs[1].groupName w is taken",
            },
            Case {
                change: |c| {
                    c["spec"]["workerGroupSpecs"][0]["rayStartParams"] = json!({"num-gpus": "1"});
                    c["spec"]["workerGroupSpecs"][0]["resources"] = json!({"GPU": "1"});
                },
                problem: "workerGroupSpecs[0]: rayStartParams.num-gpus and resources exclude each other",
            },
        ];
        for Case { change, problem } in cases {
            let mut object = cluster();
            change(&mut object);
            let name = object["metadata"]["name"].as_str().unwrap();
            assert_eq!(problems(&object), [format!("RayCluster {name}: {problem}")]);
        }
    }

    #[test]
    fn an_invalid_ray_job_is_reported() {
        let mut job = cluster();
        job["kind"] = json!("RayJob");
        job["spec"] = json!({"rayClusterSpec": job["spec"], "suspend": true});
        assert_eq!(problems(&job), ["RayJob c: suspend needs shutdownAfterJobFinishes"]);
        job["spec"] = json!({"entrypoint": "python"});
        assert_eq!(problems(&job), ["RayJob: its specification of a cluster is missing"]);
        job["spec"] = json!({"clusterSelector": {"ray.io/cluster": "c"}});
        assert_eq!(problems(&job), Vec::<String>::new());
    }
}
