//! Pods of a Ray cluster: names, labels, annotations and specs.

use serde_json::{Value, json};

use super::containers::{self, Role, autoscaler_v2, list, map};
use super::types::{Group, RayCluster};
use crate::pace;
use crate::wire::Owner;

/// Longest stem of generated pod names; what exceeds it is cut.
const STEM: usize = 50;

/// Which host of which replica a worker is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) replica: i64,
    /// Name of the replica and number of the host, in groups of several hosts.
    pub(super) host: Option<(String, i64)>,
}

/// The head pod.
pub(super) fn head(cluster: &RayCluster) -> Value {
    let group = &cluster.spec.head_group_spec;
    let mut pod = base(cluster, group, Role::Head, "headgroup");
    pod["metadata"]["generateName"] = json!(stem(&format!("{}-head", cluster.metadata.name)));
    let annotations = map(&mut pod["metadata"], "annotations");
    annotations.insert("ray.io/ft-enabled".to_owned(), json!("false"));
    annotations.insert("ray.io/kuberay-version".to_owned(), json!("v1.6.0"));
    annotations.insert("ray.io/upgrade-strategy-recreate-hash".to_owned(), json!(spec_hash(cluster)));
    if cluster.spec.enable_in_tree_autoscaling {
        let sidecar = containers::autoscaler(cluster, &pod["spec"]["containers"][0]);
        let spec = &mut pod["spec"];
        let mounts = list(&mut spec["containers"][0], "volumeMounts");
        if !mounts.iter().any(|mount| mount["mountPath"] == "/tmp/ray") {
            mounts.push(json!({ "name": "ray-logs", "mountPath": "/tmp/ray" }));
        }
        let volumes = list(spec, "volumes");
        if !volumes.iter().any(|volume| volume["name"] == "ray-logs") {
            volumes.push(json!({ "name": "ray-logs", "emptyDir": {} }));
        }
        list(spec, "containers").push(sidecar);
        if spec["serviceAccountName"].is_null() {
            spec["serviceAccountName"] = json!(cluster.metadata.name);
        }
    }
    pod
}

/// A worker pod.
pub(super) fn worker(cluster: &RayCluster, group: &Group, place: &Place) -> Value {
    let name = &group.group_name;
    let mut pod = base(cluster, group, Role::Worker, name);
    pod["metadata"]["generateName"] = json!(stem(&format!("{}-{name}-worker", cluster.metadata.name)));
    let labels = map(&mut pod["metadata"], "labels");
    labels.insert("ray.io/worker-group-replica-index".to_owned(), json!(place.replica.to_string()));
    if let Some((replica, host)) = &place.host {
        labels.insert("ray.io/worker-group-replica-name".to_owned(), json!(replica));
        labels.insert("ray.io/replica-host-index".to_owned(), json!(host.to_string()));
    }
    let init = containers::wait_for_head(cluster, &pod["spec"]["containers"][0]);
    list(&mut pod["spec"], "initContainers").push(init);
    pod
}

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
    let identifier = label_value(&format!("{}-{kind}", cluster.metadata.name));
    for (label, value) in [
        ("ray.io/is-ray-node", "yes"),
        ("ray.io/cluster", cluster.metadata.name.as_str()),
        ("ray.io/node-type", kind),
        ("ray.io/group", group_name),
        ("ray.io/identifier", identifier.as_str()),
        ("app.kubernetes.io/name", "kuberay"),
        ("app.kubernetes.io/created-by", "kuberay-operator"),
    ] {
        labels.insert(label.to_owned(), json!(value));
    }
    if !meta["annotations"].is_object() {
        meta["annotations"] = json!({});
    }
    let mut spec = template["spec"].clone();
    if let Some(container) = spec["containers"].get_mut(0) {
        containers::dress(container, cluster, group, role, group_name);
    }
    let volume = containers::shared_memory(&spec["containers"][0]);
    let volumes = list(&mut spec, "volumes");
    if !volumes.iter().any(|volume| volume["name"] == "shared-mem") {
        volumes.push(volume);
    }
    if autoscaler_v2(cluster) {
        spec["restartPolicy"] = json!("Never");
    }
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec })
}

/// The stem that names are generated from, with its dash.
fn stem(text: &str) -> String {
    let cut: String = text.chars().take(STEM - 1).collect();
    format!("{}-", cut.to_ascii_lowercase())
}

fn label_value(text: &str) -> String {
    text.chars().take(63).collect()
}

/// Name of a replica of several hosts.
pub(super) fn replica_name(group: &str, draw: u64) -> String {
    format!("{group}-{}", pace::suffix(draw))
}

/// A hash of the spec without replica counts: what a change of it would make the operator replace.
fn spec_hash(cluster: &RayCluster) -> String {
    let groups = cluster.spec.worker_group_specs.iter().map(|group| (&group.group_name, &group.template));
    let text = format!("{:?}{:?}", cluster.spec.head_group_spec.template, groups.collect::<Vec<_>>());
    let draw = |part| pace::Pace::new(1.0, part).draw(&text);
    format!("{:016x}{:016x}", draw(0), draw(1)).to_uppercase()
}
