//! The kinds whose pods are followed: where their pod templates are, and which objects their operators create between
//! the object and its pods.
//!
//! One table, for the scheduling gate (only these templates get it), for the watches of the controller, and for
//! `muster release`.

use serde_json::Value;

use crate::value::text;

/// A kind whose pods are followed through controller references.
#[derive(Debug, PartialEq, Eq)]
pub struct WrappedKind {
    /// API group; empty for the core group. The version does not matter.
    pub group: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// Paths of its pod specs. `*` at the start of a key stands for any text: all elements of a list, or all fields
    /// that end with the rest of the key.
    pub pod_specs: &'static [&'static str],
    /// Group and kind of the objects between it and its pods. The pods may also be its own.
    pub children: &'static [(&'static str, &'static str)],
}

const ONE_TEMPLATE: &[&str] = &["spec.template.spec"];
const REPLICA_SPECS: &[&str] = &["spec.*ReplicaSpecs.*.template.spec"];

const fn followed(
    group: &'static str,
    kind: &'static str,
    pod_specs: &'static [&'static str],
    children: &'static [(&'static str, &'static str)],
) -> WrappedKind {
    WrappedKind { group, kind, pod_specs, children }
}

/// All kinds whose pods are followed.
pub const WRAPPED_KINDS: &[WrappedKind] = &[
    followed("", "Pod", &["spec"], &[]),
    followed("apps", "Deployment", ONE_TEMPLATE, &[("apps", "ReplicaSet")]),
    followed("apps", "ReplicaSet", ONE_TEMPLATE, &[]),
    followed("apps", "StatefulSet", ONE_TEMPLATE, &[]),
    followed("batch", "Job", ONE_TEMPLATE, &[]),
    followed(
        "jobset.x-k8s.io",
        "JobSet",
        &["spec.replicatedJobs.*.template.spec.template.spec"],
        &[("batch", "Job")],
    ),
    followed("kubeflow.org", "JAXJob", REPLICA_SPECS, &[]),
    // The MPI operator creates the launcher through a Job.
    followed("kubeflow.org", "MPIJob", REPLICA_SPECS, &[("batch", "Job")]),
    followed("kubeflow.org", "PaddleJob", REPLICA_SPECS, &[]),
    followed("kubeflow.org", "PyTorchJob", REPLICA_SPECS, &[]),
    followed("kubeflow.org", "TFJob", REPLICA_SPECS, &[]),
    followed("kubeflow.org", "XGBoostJob", REPLICA_SPECS, &[]),
    followed(
        "ray.io",
        "RayCluster",
        &["spec.headGroupSpec.template.spec", "spec.workerGroupSpecs.*.template.spec"],
        &[],
    ),
    followed(
        "ray.io",
        "RayJob",
        &[
            "spec.rayClusterSpec.headGroupSpec.template.spec",
            "spec.rayClusterSpec.workerGroupSpecs.*.template.spec",
            "spec.submitterPodTemplate.spec",
        ],
        &[("ray.io", "RayCluster"), ("batch", "Job")],
    ),
    followed(
        "ray.io",
        "RayService",
        &[
            "spec.rayClusterConfig.headGroupSpec.template.spec",
            "spec.rayClusterConfig.workerGroupSpecs.*.template.spec",
        ],
        &[("ray.io", "RayCluster")],
    ),
];

impl WrappedKind {
    /// The entry of a group and kind. None: the pods of such objects are not followed.
    pub fn find(group: &str, kind: &str) -> Option<&'static Self> {
        WRAPPED_KINDS.iter().find(|entry| entry.group == group && entry.kind == kind)
    }

    /// The `apiVersion` and kind of each object between an object of this kind and its pods.
    pub fn children_of(&self, api_version: &str) -> impl Iterator<Item = (String, &'static str)> {
        self.children.iter().map(move |(group, kind)| {
            let same_group = *group == self.group;
            (if same_group { api_version.to_owned() } else { format!("{group}/v1") }, *kind)
        })
    }
}

/// The group of an `apiVersion`; empty for the core group.
pub(crate) fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// The pod specs of an object; none if the pods of its kind are not followed.
pub(crate) fn pod_specs_mut(object: &mut Value) -> Vec<&mut Value> {
    values_mut(object, |path| path.split('.').collect())
}

/// The pod templates of an object, with their metadata; a pod is its own. None if the pods of its kind are not followed.
pub(crate) fn pod_templates_mut(object: &mut Value) -> Vec<&mut Value> {
    values_mut(object, |path| {
        path.rsplit_once('.').map_or_else(Vec::new, |(path, _)| path.split('.').collect())
    })
}

/// The values at the paths of the pod specs, as `path` changes them.
fn values_mut(object: &mut Value, path: impl Fn(&'static str) -> Vec<&'static str>) -> Vec<&mut Value> {
    let group = group(text(object, &["apiVersion"]).unwrap_or_default());
    let Some(entry) = WrappedKind::find(group, text(object, &["kind"]).unwrap_or_default()) else {
        return Vec::new();
    };
    let paths: Paths = entry.pod_specs.iter().copied().map(path).collect();
    let mut left = vec![(object, paths)];
    let mut found = Vec::new();
    while let Some((value, paths)) = left.pop() {
        select(value, &paths, &mut left, &mut found);
    }
    found
}

/// Paths below one value, as the keys that are left.
type Paths = Vec<Vec<&'static str>>;

/// Follows the paths by one key. A value at the end of a path is found.
fn select<'a>(
    value: &'a mut Value,
    paths: &[Vec<&'static str>],
    left: &mut Vec<(&'a mut Value, Paths)>,
    found: &mut Vec<&'a mut Value>,
) {
    if paths.iter().any(Vec::is_empty) {
        found.push(value);
        return;
    }
    let below = |key: &str| -> Paths {
        paths.iter().filter(|path| matches(path[0], key)).map(|path| path[1..].to_vec()).collect()
    };
    match value {
        Value::Object(fields) => {
            let inner = fields.iter_mut().map(|(key, value)| (below(key), value));
            left.extend(inner.filter(|(paths, _)| !paths.is_empty()).map(|(paths, value)| (value, paths)));
        }
        Value::Array(elements) => {
            let inner = elements.iter_mut().map(|value| (value, below("")));
            left.extend(inner.filter(|(_, paths)| !paths.is_empty()));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Whether a key of a path stands for this key; an element of a list has the empty key.
fn matches(pattern: &str, key: &str) -> bool {
    pattern.strip_prefix('*').map_or(!key.is_empty() && pattern == key, |end| key.ends_with(end))
}
