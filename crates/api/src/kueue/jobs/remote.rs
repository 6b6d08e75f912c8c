//! Jobs that run in another cluster than the one they are created in: how they are kept from running here, and their copies there.
//! After `pkg/controller/jobs/*/*_multikueue_adapter.go` of Kueue v0.19.

use serde_json::{Map, Value, json};

use super::{JobKind, PREBUILT, set_at};

/// The controller of the admission check, and the manager of the jobs that run in another cluster.
pub const CONTROLLER: &str = "kueue.x-k8s.io/multikueue";
/// The label of objects that another cluster has created: the name that it gives itself.
pub const ORIGIN: &str = "kueue.x-k8s.io/multikueue-origin";
/// The annotation of objects that another cluster has created: the uid of the object there.
pub const ORIGIN_UID: &str = "kueue.x-k8s.io/multikueue-origin-uid";

/// The kinds that can run in another cluster, by their names in `integrations.frameworks`, and the path of the field that names the manager
/// of a job.
const MANAGED_BY: &[(&str, &[&str])] = &[
    ("batch/job", &["spec", "managedBy"]),
    ("ray.io/rayjob", &["spec", "managedBy"]),
    ("ray.io/raycluster", &["spec", "managedBy"]),
    ("jobset.x-k8s.io/jobset", &["spec", "managedBy"]),
    ("kubeflow.org/mpijob", &["spec", "runPolicy", "managedBy"]),
    ("kubeflow.org/jaxjob", &["spec", "runPolicy", "managedBy"]),
    ("kubeflow.org/paddlejob", &["spec", "runPolicy", "managedBy"]),
    ("kubeflow.org/pytorchjob", &["spec", "runPolicy", "managedBy"]),
    ("kubeflow.org/tfjob", &["spec", "runPolicy", "managedBy"]),
    ("kubeflow.org/xgboostjob", &["spec", "runPolicy", "managedBy"]),
    ("trainer.kubeflow.org/trainjob", &["spec", "managedBy"]),
    ("workload.codeflare.dev/appwrapper", &["spec", "managedBy"]),
];

/// Labels that controllers write into a job and its pods for one object: a copy gets its own.
const OWN_LABELS: [&str; 2] = ["controller-uid", "batch.kubernetes.io/controller-uid"];

/// The kinds that can run in another cluster.
pub fn kinds() -> impl Iterator<Item = &'static JobKind> {
    MANAGED_BY.iter().filter_map(|(framework, _)| JobKind::of_framework(framework))
}

fn path(kind: &JobKind) -> Option<&'static [&'static str]> {
    MANAGED_BY.iter().find(|(framework, _)| *framework == kind.framework).map(|(_, path)| *path)
}

fn pointer(path: &[&str]) -> String {
    path.iter().flat_map(|field| ["/", field]).collect()
}

/// Gives a new job to the manager of jobs that run in another cluster, unless it names one.
pub fn hand_over(kind: &JobKind, job: &mut Value) {
    let Some(path) = path(kind) else { return };
    if job.pointer(&pointer(path)).is_none_or(Value::is_null) {
        set_at(job, path, CONTROLLER.into());
    }
}

/// Why a job may not run in another cluster: its own controller would run it here, too.
pub fn not_handed_over(kind: &JobKind, job: &Value) -> Option<String> {
    let path = path(kind)?;
    let found = job.pointer(&pointer(path)).and_then(Value::as_str).unwrap_or_default();
    let field = path.join(".");
    (found != CONTROLLER).then(|| format!("Expecting {field} to be {CONTROLLER:?} not {found:?}"))
}

/// Whether the pods of a job are in another cluster, if it has any.
pub fn is_handed_over(kind: &JobKind, job: &Value) -> bool {
    path(kind).is_some() && not_handed_over(kind, job).is_none()
}

/// The status of a job whose pods in another cluster are gone.
pub fn without_pods(kind: &JobKind, status: &Value) -> Value {
    if kind.framework != "batch/job" {
        return json!({});
    }
    let mut status = status.clone();
    if let Some(fields) = status.as_object_mut() {
        fields.retain(|field, _| !["active", "ready", "terminating", "startTime"].contains(&field.as_str()));
    }
    status
}

/// The metadata of the copy of an object: its names, labels and annotations, and where it is from.
pub fn copied_metadata(object: &Value, origin: &str) -> Value {
    let metadata = &object["metadata"];
    let map = |field: &str| metadata[field].as_object().cloned().unwrap_or_default();
    let (mut labels, mut annotations) = (map("labels"), map("annotations"));
    labels.insert(ORIGIN.into(), origin.into());
    annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    annotations.insert(ORIGIN_UID.into(), metadata["uid"].clone());
    json!({"name": metadata["name"], "namespace": metadata["namespace"], "labels": labels, "annotations": annotations})
}

/// The copy of a job for another cluster: suspended, with the Workload of this name there.
pub fn copy(kind: &JobKind, job: &Value, workload: &str, origin: &str) -> Value {
    let mut copy = json!({"apiVersion": kind.api_version, "kind": kind.kind, "metadata": copied_metadata(job, origin), "spec": job["spec"]});
    copy["metadata"]["labels"][PREBUILT] = workload.into();
    if let Some(path) = path(kind).and_then(|path| path.split_last()) {
        let (field, parents) = path;
        if let Some(parent) = copy.pointer_mut(&pointer(parents)).and_then(Value::as_object_mut) {
            parent.remove(*field);
        }
    }
    let own = |labels: &mut Map<String, Value>| labels.retain(|key, _| !OWN_LABELS.contains(&key.as_str()));
    if kind.framework == "batch/job" {
        if let Some(labels) =
            copy.pointer_mut("/spec/template/metadata/labels").and_then(Value::as_object_mut)
        {
            own(labels);
        }
        // The API server writes it, with a label of the object, unless the author says otherwise.
        if copy["spec"]["manualSelector"] != true
            && let Some(spec) = copy["spec"].as_object_mut()
        {
            spec.remove("selector");
        }
    }
    if let Some(labels) = copy.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        own(labels);
    }
    kind.set_suspended(&mut copy, true);
    copy
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_its_own_controller_and_says_where_it_is_from() {
        let job = json!({"metadata": {"name": "train", "namespace": "team", "uid": "u-1", "resourceVersion": "7",
                "labels": {"kueue.x-k8s.io/queue-name": "q", "controller-uid": "u-1"}, "ownerReferences": [{"uid": "x"}]},
            "spec": {"managedBy": CONTROLLER, "suspend": false, "selector": {"matchLabels": {"controller-uid": "u-1"}},
                "template": {"metadata": {"labels": {"batch.kubernetes.io/controller-uid": "u-1", "app": "a"}}}},
            "status": {"active": 1}});
        let kind = JobKind::of_framework("batch/job").unwrap();
        let expected = json!({"apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": "train", "namespace": "team",
                "labels": {"kueue.x-k8s.io/queue-name": "q", ORIGIN: "hub", PREBUILT: "job-train-1"}, "annotations": {ORIGIN_UID: "u-1"}},
            "spec": {"suspend": true, "template": {"metadata": {"labels": {"app": "a"}}}}});
        assert_eq!(copy(kind, &job, "job-train-1", "hub"), expected);
    }

    #[test]
    fn a_job_is_handed_over_unless_its_author_names_a_manager() {
        for kind in kinds() {
            let mut job = json!({"spec": {}});
            assert!(not_handed_over(kind, &job).is_some(), "{}", kind.framework);
            hand_over(kind, &mut job);
            assert_eq!(not_handed_over(kind, &job), None, "{}", kind.framework);
            let copy = copy(kind, &job, "w", "hub");
            assert!(not_handed_over(kind, &copy).is_some(), "{}", kind.framework);
        }
        let kind = JobKind::of_framework("batch/job").unwrap();
        let mut job = json!({"spec": {"managedBy": "example.com/other"}});
        hand_over(kind, &mut job);
        let why = "Expecting spec.managedBy to be \"kueue.x-k8s.io/multikueue\" not \"example.com/other\"";
        assert_eq!(not_handed_over(kind, &job).as_deref(), Some(why));
    }
}
