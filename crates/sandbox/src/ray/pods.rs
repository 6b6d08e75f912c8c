//! Pods of a Ray cluster: names, labels, annotations and specs.

use serde_json::{Value, json};

use super::containers::{self, Role, autoscaler_v2, list, map};
use super::types::{Group, RayCluster};
use super::{auth, redis};
use crate::pace;
use crate::wire::Owner;

/// Maximum length of the prefix of generated pod names; the rest is cut off.
const STEM: usize = 50;
/// If this annotation is true, the operator does not change the command of the Ray container.
const OVERWRITE: &str = "ray.io/overwrite-container-cmd";

/// Which host of which replica a worker pod is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReplicaHost {
    pub(super) replica: i64,
    /// Replica name and host index, in multi-host groups.
    pub(super) multi_host: Option<(String, i64)>,
}

/// The head pod.
pub(super) fn head(cluster: &RayCluster) -> Value {
    let group = &cluster.spec.head_group_spec;
    let mut pod = base(cluster, group, Role::Head, "headgroup");
    pod["metadata"]["generateName"] = json!(stem(&cluster.metadata.name, "head"));
    let annotations = map(&mut pod["metadata"], "annotations");
    annotations.insert("ray.io/kuberay-version".to_owned(), json!("v1.6.2"));
    annotations.insert("ray.io/upgrade-strategy-recreate-hash".to_owned(), json!(spec_hash(cluster)));
    let spec = &mut pod["spec"];
    if cluster.spec.enable_in_tree_autoscaling {
        let sidecar = containers::autoscaler(cluster, &spec["containers"][0]);
        list(spec, "containers").push(sidecar);
        if spec["serviceAccountName"].as_str().is_none_or(str::is_empty) {
            spec["serviceAccountName"] = json!(cluster.metadata.name);
        }
        if autoscaler_v2(cluster) {
            let variable = json!({ "name": "RAY_enable_autoscaler_v2", "value": "true" });
            list(&mut spec["containers"][0], "env").push(variable);
        }
    }
    finish(cluster, group, Role::Head, &mut pod);
    pod
}

/// A worker pod.
pub(super) fn worker(cluster: &RayCluster, group: &Group, host: &ReplicaHost) -> Value {
    let name = &group.group_name;
    let mut pod = base(cluster, group, Role::Worker, name);
    pod["metadata"]["generateName"] = json!(stem(&format!("{}-{name}", cluster.metadata.name), "worker"));
    let labels = map(&mut pod["metadata"], "labels");
    labels.insert("ray.io/worker-group-replica-index".to_owned(), json!(host.replica.to_string()));
    if let Some((replica, index)) = &host.multi_host {
        labels.insert("ray.io/worker-group-replica-name".to_owned(), json!(replica));
        labels.insert("ray.io/replica-host-index".to_owned(), json!(index.to_string()));
    }
    let init = containers::wait_for_head(cluster, &pod["spec"]["containers"][0]);
    list(&mut pod["spec"], "initContainers").push(init);
    finish(cluster, group, Role::Worker, &mut pod);
    pod
}

/// Metadata and spec of the template, with the labels and annotations of the operator.
fn base(cluster: &RayCluster, group: &Group, role: Role, group_name: &str) -> Value {
    let kind = if role == Role::Head { "head" } else { "worker" };
    let template = &group.template;
    let mut meta = json!({
        "namespace": cluster.metadata.namespace,
        "labels": template["metadata"]["labels"],
        "annotations": template["metadata"]["annotations"],
        "ownerReferences": [Owner::controller_of("ray.io/v1", "RayCluster", &cluster.metadata)],
    });
    let labels = map(&mut meta, "labels");
    for (label, value) in &group.labels {
        labels.insert(label.clone(), json!(value));
    }
    // The operator overrides these labels of the template. The labels below are defaults.
    for (label, value) in [
        ("ray.io/node-type", kind),
        ("ray.io/group", group_name),
        ("ray.io/cluster", cluster.metadata.name.as_str()),
    ] {
        labels.insert(label.to_owned(), json!(value));
    }
    let identifier = label_value(&format!("{}-{kind}", cluster.metadata.name));
    for (label, value) in [
        ("ray.io/is-ray-node", "yes"),
        ("ray.io/identifier", identifier.as_str()),
        ("app.kubernetes.io/name", "kuberay"),
        ("app.kubernetes.io/created-by", "kuberay-operator"),
    ] {
        labels.entry(label).or_insert(json!(value));
    }
    let annotations = map(&mut meta, "annotations");
    let overwrites = cluster.metadata.annotation(OVERWRITE);
    if overwrites.is_some_and(|text| text.eq_ignore_ascii_case("true")) {
        annotations.insert(OVERWRITE.to_owned(), json!("true"));
    }
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template["spec"] })
}

/// The changes that head and worker pods have in common. The containers must be complete.
fn finish(cluster: &RayCluster, group: &Group, role: Role, pod: &mut Value) {
    redis::configure_pod(cluster, role, pod);
    containers::expose_metrics(&mut pod["spec"]["containers"][0]);
    auth::configure_pod(cluster, &mut pod["spec"]);
    containers::configure_ray_container(pod, cluster, group, role);
    if autoscaler_v2(cluster) {
        pod["spec"]["restartPolicy"] = json!("Never");
    }
}

/// The value of `generateName`.
fn stem(prefix: &str, kind: &str) -> String {
    let cut: String = prefix.chars().take(STEM).collect();
    format!("{}-{kind}-", cut.to_ascii_lowercase())
}

/// A valid label value: the end of the text, if it is too long.
pub(super) fn label_value(text: &str) -> String {
    let tail = text.len().saturating_sub(63);
    let mut value = text.get(tail..).unwrap_or(text).to_owned();
    if value.starts_with(|c: char| c.is_ascii_punctuation()) {
        value.replace_range(..1, "r");
    }
    value
}

/// Name of a replica in a multi-host group.
pub(super) fn replica_name(group: &str, draw: u64) -> String {
    format!("{group}-{}", pace::suffix(draw))
}

/// A hash of the spec without replica counts: a different hash means that the pods are outdated.
fn spec_hash(cluster: &RayCluster) -> String {
    let groups = cluster.spec.worker_group_specs.iter().map(|group| (&group.group_name, &group.template));
    let text = format!("{:?}{:?}", cluster.spec.head_group_spec.template, groups.collect::<Vec<_>>());
    let draw = |part| pace::Pace::new(1.0, part).draw(&text);
    format!("{:016x}{:016x}", draw(0), draw(1)).to_uppercase()
}
