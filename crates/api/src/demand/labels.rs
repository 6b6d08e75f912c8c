//! The labels that the pods of a wrapped object will have: those of the template, and those that Muster and the operators
//! add.

use serde_json::Value;

use super::ray;
use crate::appwrapper::{NAME_LABEL, OBJECT_LABEL, render};
use crate::meta::Meta;
use crate::pod::string_map;
use crate::selector::Labels;
use crate::value::{at, text};

/// The labels of a pod set before its pods exist.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExpectedLabels {
    /// Labels. A value that is not known yet begins with `?`, which no label of Kubernetes does.
    pub labels: Labels,
    /// The keys whose value is the same for all pods of the set, and known when the first one exists.
    pub generated: Vec<&'static str>,
}

impl ExpectedLabels {
    /// The labels of the pods of one role of the object with index `position`. `template`: those of the pod template.
    pub fn of(wrapper: &Meta, object: &Value, position: usize, role: &str, template: &Labels) -> Self {
        let name = render::name(wrapper, object, position);
        let group =
            text(object, &["apiVersion"]).and_then(|v| v.split_once('/')).map_or("", |(group, _)| group);
        let kind = text(object, &["kind"]).unwrap_or_default();
        let mut labels = template.clone();
        if kind == "Pod" || at(object, &["spec", "template", "metadata", "labels"]).is_object() {
            labels.extend(string_map(at(object, &["metadata", "labels"])));
            labels.insert(NAME_LABEL.into(), render::label_value(&wrapper.name).into());
            labels.insert(OBJECT_LABEL.into(), render::label_value(&name).into());
        }
        let mut expected = Self { labels, generated: Vec::new() };
        match (group, kind, role) {
            ("batch", "Job", _) | ("ray.io", "RayJob", ray::SUBMITTER) => expected.job(&name),
            ("apps", "Deployment", _) => expected.generated.push("pod-template-hash"),
            ("apps", "StatefulSet", _) => {
                expected.generated.push("controller-revision-hash");
                expected.differ(&["statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index"]);
            }
            ("jobset.x-k8s.io", "JobSet", _) => expected.job_set(&name, role),
            ("kubeflow.org", ..) => expected.training_job(&name, role),
            ("ray.io", "RayCluster" | "RayJob" | "RayService", _) => {
                expected.ray(kind, &name, role);
            }
            _ => {}
        }
        for key in &expected.generated {
            let unknown = || format!("?{}/{position}", wrapper.uid);
            expected.labels.entry((*key).to_owned()).or_insert_with(unknown);
        }
        expected
    }

    fn add(&mut self, labels: &[(&str, &str)]) {
        for (key, value) in labels {
            self.labels.insert((*key).to_owned(), (*value).to_owned());
        }
    }

    /// Keys whose value differs between the pods.
    fn differ(&mut self, keys: &[&str]) {
        for key in keys {
            self.labels.insert((*key).to_owned(), "?".into());
        }
    }

    fn job(&mut self, name: &str) {
        self.add(&[("job-name", name), ("batch.kubernetes.io/job-name", name)]);
        self.generated.extend(["controller-uid", "batch.kubernetes.io/controller-uid"]);
    }

    fn job_set(&mut self, name: &str, role: &str) {
        let set = "jobset.sigs.k8s.io/jobset-name";
        self.add(&[(set, name), ("jobset.sigs.k8s.io/replicatedjob-name", role)]);
        self.differ(&["job-name", "batch.kubernetes.io/job-name", "jobset.sigs.k8s.io/job-index"]);
    }

    fn training_job(&mut self, name: &str, role: &str) {
        self.add(&[("training.kubeflow.org/job-name", name), ("training.kubeflow.org/replica-type", role)]);
        self.differ(&["training.kubeflow.org/replica-index"]);
    }

    /// `KubeRay` overrides the first three labels of a template; the others are defaults.
    fn ray(&mut self, kind: &str, name: &str, role: &str) {
        let (node, group) = if role == ray::HEAD { ("head", "headgroup") } else { ("worker", role) };
        self.add(&[("ray.io/node-type", node), ("ray.io/group", group)]);
        let defaults = [
            ("ray.io/is-ray-node", "yes"),
            ("app.kubernetes.io/name", "kuberay"),
            ("app.kubernetes.io/created-by", "kuberay-operator"),
        ];
        for (key, value) in defaults {
            self.labels.entry(key.to_owned()).or_insert_with(|| value.to_owned());
        }
        if kind == "RayCluster" {
            let identifier = format!("{name}-{node}");
            self.add(&[("ray.io/cluster", name)]);
            let identifier = render::label_value(&identifier).to_owned();
            self.labels.entry("ray.io/identifier".into()).or_insert(identifier);
        } else {
            // The name of the cluster is generated.
            self.labels.remove("ray.io/cluster");
            self.generated.extend(["ray.io/cluster", "ray.io/identifier"]);
        }
    }
}
