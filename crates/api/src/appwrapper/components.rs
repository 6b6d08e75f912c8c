//! The components of an AppWrapper `v1beta2`, and where their pod templates are. After `pkg/utils` of AppWrapper v1.2.
//!
//! A path names a field of a component: `template.spec.replicatedJobs[0].template`. It begins with `template`.

use serde_json::{Map, Value, json};

use crate::value::{at, count, list};

/// Version of the resource with components.
pub const COMPONENTS_VERSION: &str = "v1beta2";
/// The beginning of all annotations of AppWrappers and their pod sets.
pub const ANNOTATION_PREFIX: &str = "workload.codeflare.dev.appwrapper/";
/// The annotation of a pod set with the label of its pods with their index.
const POD_INDEX: &str = "tas-pod-index-label";
/// The annotation of a pod set with the label of its pods with the index of their group.
const GROUP_INDEX: &str = "tas-sub-group-index-label";
/// The annotation of a pod set with the number of its groups.
const GROUP_COUNT: &str = "tas-sub-group-count";
/// The label of pods of indexed Jobs with their index.
pub(crate) const COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// The label of pods of `JobSets` with the index of their Job.
pub(crate) const JOB_INDEX: &str = "jobset.sigs.k8s.io/job-index";
/// The label of pods of the training operator with their index.
const REPLICA_INDEX: &str = "training.kubeflow.org/replica-index";

/// A pod set of a component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComponentPodSet {
    /// The number of its pods.
    pub replicas: u32,
    /// Where its template is.
    pub path: String,
    /// What is known about the indexes of its pods.
    pub annotations: Map<String, Value>,
}

impl ComponentPodSet {
    fn new(replicas: u32, path: impl Into<String>) -> Self {
        Self { replicas, path: path.into(), annotations: Map::new() }
    }

    fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.annotations.insert(format!("{ANNOTATION_PREFIX}{key}"), value.into());
        self
    }

    /// One that is declared in a component, or recorded in the status.
    fn declared(set: &Value) -> Self {
        Self {
            replicas: count(set, &["replicas"], 1),
            path: set["path"].as_str().unwrap_or_default().to_owned(),
            annotations: set["annotations"].as_object().cloned().unwrap_or_default(),
        }
    }

    /// As the status records it.
    pub fn recorded(&self) -> Value {
        let mut set = json!({"replicas": self.replicas, "path": self.path});
        if !self.annotations.is_empty() {
            set["annotations"] = self.annotations.clone().into();
        }
        set
    }

    fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.get(&format!("{ANNOTATION_PREFIX}{key}"))?.as_str()
    }

    /// The label of its pods with their index.
    pub fn index_label(&self) -> Option<&str> {
        self.annotation(POD_INDEX)
    }

    /// The label of its pods with the index of their group, and the number of groups.
    pub fn groups(&self) -> (Option<&str>, Option<i32>) {
        (self.annotation(GROUP_INDEX), self.annotation(GROUP_COUNT).and_then(|count| count.parse().ok()))
    }
}

/// Whether an AppWrapper has components: in the older version it has resources.
pub fn has_components(wrapper: &Value) -> bool {
    wrapper["spec"]["components"].is_array()
}

/// The pod sets of each component: those that the status records, for they do not change, or else those that are declared, or
/// else those of a well-known kind.
pub fn pod_sets(wrapper: &Value) -> Vec<Vec<ComponentPodSet>> {
    let components = list(wrapper, &["spec", "components"]);
    let recorded = list(wrapper, &["status", "componentStatus"]);
    if !recorded.is_empty() && recorded.len() == components.len() {
        let sets =
            |status: &Value| list(status, &["podSets"]).iter().map(ComponentPodSet::declared).collect();
        return recorded.iter().map(sets).collect();
    }
    components.iter().map(of_component).collect()
}

/// The pod sets of a component that no status records.
pub fn of_component(component: &Value) -> Vec<ComponentPodSet> {
    match list(component, &["podSets"]) {
        [] => inferred(&component["template"]),
        declared => declared.iter().map(ComponentPodSet::declared).collect(),
    }
}

/// The pod sets of an object of a well-known kind.
pub fn inferred(template: &Value) -> Vec<ComponentPodSet> {
    let [version, kind] = ["apiVersion", "kind"].map(|field| template[field].as_str().unwrap_or_default());
    let spec = &template["spec"];
    let replicas = |role: &Value| count(role, &["replicas"], 1);
    let sets = match (version, kind) {
        ("v1", "Pod") => vec![ComponentPodSet::new(1, "template")],
        ("apps/v1", "Deployment" | "StatefulSet") => {
            vec![ComponentPodSet::new(replicas(spec), "template.spec.template")]
        }
        ("batch/v1", "Job") => vec![
            ComponentPodSet::new(pods_of_job(spec), "template.spec.template")
                .with(POD_INDEX, COMPLETION_INDEX),
        ],
        ("jobset.x-k8s.io/v1alpha2", "JobSet") => of_job_set(list(spec, &["replicatedJobs"])),
        ("kubeflow.org/v1", "PyTorchJob") => {
            let role = |name: &&str| {
                let role = &spec["pytorchReplicaSpecs"][*name];
                let path = format!("template.spec.pytorchReplicaSpecs.{name}.template");
                let set = ComponentPodSet::new(replicas(role), path).with(POD_INDEX, REPLICA_INDEX);
                role["template"].is_object().then_some(set)
            };
            ["Master", "Worker"].iter().filter_map(role).collect()
        }
        ("ray.io/v1", "RayCluster") => of_ray("template.spec", spec),
        ("ray.io/v1", "RayJob") => of_ray("template.spec.rayClusterSpec", &spec["rayClusterSpec"]),
        _ => Vec::new(),
    };
    let component = json!({ "template": template });
    sets.into_iter().filter(|set| pod_template(&component, &set.path).is_ok()).collect()
}

fn pods_of_job(spec: &Value) -> u32 {
    count(spec, &["parallelism"], 1).min(count(spec, &["completions"], u32::MAX))
}

fn of_job_set(jobs: &[Value]) -> Vec<ComponentPodSet> {
    let of_job = |(at, job): (usize, &Value)| {
        let replicas = count(job, &["replicas"], 1);
        let pods = replicas.saturating_mul(pods_of_job(&job["template"]["spec"]));
        ComponentPodSet::new(pods, format!("template.spec.replicatedJobs[{at}].template.spec.template"))
            .with(POD_INDEX, COMPLETION_INDEX)
            .with(GROUP_INDEX, JOB_INDEX)
            .with(GROUP_COUNT, replicas.to_string())
    };
    jobs.iter().enumerate().map(of_job).collect()
}

fn of_ray(path: &str, cluster: &Value) -> Vec<ComponentPodSet> {
    let head = ComponentPodSet::new(1, format!("{path}.headGroupSpec.template"));
    let worker = |(at, group): (usize, &Value)| {
        ComponentPodSet::new(
            count(group, &["replicas"], 1),
            format!("{path}.workerGroupSpecs[{at}].template"),
        )
    };
    let workers = list(cluster, &["workerGroupSpecs"]).iter().enumerate().map(worker);
    std::iter::once(head).chain(workers).collect()
}

/// The JSON pointer in a component that a path stands for.
///
/// # Errors
///
/// The path does not begin with `template`, or has a part that is neither `.key` nor `[index]`.
pub fn pointer(path: &str) -> Result<String, String> {
    let Some(mut rest) = path.strip_prefix("template") else {
        return Err("first element of the path must be 'template'".into());
    };
    let mut pointer = "/template".to_owned();
    while !rest.is_empty() {
        let key = if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[']).unwrap_or(after.len());
            rest = &after[end..];
            &after[..end]
        } else if let Some((index, after)) = rest.strip_prefix('[').and_then(|after| after.split_once(']')) {
            rest = after;
            index.parse::<u32>().map_err(|_| format!("invalid array index {index:?} in path {path:?}"))?;
            index
        } else {
            return Err(format!("invalid path element {rest:?} in path {path:?}"));
        };
        if key.is_empty() {
            return Err(format!("empty path element in path {path:?}"));
        }
        pointer.push('/');
        pointer.push_str(&key.replace('~', "~0").replace('/', "~1"));
    }
    Ok(pointer)
}

/// The pod template at a path of a component, with what decides about its pods. A Pod is one, too.
///
/// # Errors
///
/// There is no object with a `spec` that has containers.
pub fn pod_template(component: &Value, path: &str) -> Result<Value, String> {
    let pointer = pointer(path)?;
    let Some(found) = component.pointer(&pointer).filter(|found| found.is_object()) else {
        return Err(format!("there is no object at {path}"));
    };
    if !at(found, &["spec"]).is_object() {
        return Err(format!("content at {path} does not contain a spec"));
    }
    if list(found, &["spec", "containers"]).is_empty() {
        return Err(format!("content at {path}.spec has no containers"));
    }
    let mut template = json!({"spec": found["spec"]});
    for field in ["labels", "annotations"] {
        if let Some(known) = found["metadata"][field].as_object() {
            template["metadata"][field] = known.clone().into();
        }
    }
    Ok(template)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_becomes_a_pointer_or_says_what_is_wrong_with_it() {
        for (path, expected) in [
            ("template", Ok("/template")),
            ("template.spec.jobs[2].template", Ok("/template/spec/jobs/2/template")),
            ("template.a/b", Ok("/template/a~1b")),
            ("spec", Err("first element of the path must be 'template'")),
            ("template.jobs[x]", Err("invalid array index \"x\" in path \"template.jobs[x]\"")),
            ("template.jobs[1", Err("invalid path element \"[1\" in path \"template.jobs[1\"")),
            ("templates", Err("invalid path element \"s\" in path \"templates\"")),
            ("template..a", Err("empty path element in path \"template..a\"")),
        ] {
            assert_eq!(pointer(path).as_deref().map_err(String::as_str), expected, "{path}");
        }
    }
}
