//! The CustomResourceDefinitions of RayCluster and RayJob, written from scratch. Their schemas cover the fields that
//! the operator reads, defaults or validates; all other fields are preserved.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::cluster::{Cluster, Error, Kind, Resource, Store};
use crate::wire::{CustomResourceDefinition, Key, condition};

/// Creates the definitions unless they exist, and waits until they are established.
pub(crate) async fn install(
    cluster: &Cluster,
    store: &Store<CustomResourceDefinition>,
    changed: &Arc<Notify>,
) -> Result<(), Error> {
    let definitions = [ray_clusters(), ray_jobs()];
    for definition in &definitions {
        match cluster.create(store, "", definition).await {
            Err(error) if !error.is_conflict() => return Err(error),
            _ => {}
        }
    }
    for definition in &definitions {
        let key = Key::new("", definition["metadata"]["name"].as_str().unwrap_or_default());
        loop {
            let notified = changed.notified();
            let established = store.get(&key).is_some_and(|definition| {
                condition(&definition.status.conditions, "Established").is_some_and(|c| c.status == "True")
            });
            if established {
                break;
            }
            notified.await;
        }
    }
    Ok(())
}

fn definition(kind: Kind, singular: &str, columns: &Value, schema: impl Fn(&str) -> Value) -> Value {
    let version = |name: &str, storage: bool| {
        let mut version = json!({
            "name": name,
            "served": true,
            "storage": storage,
            "additionalPrinterColumns": columns,
            "schema": { "openAPIV3Schema": schema(name) },
            "subresources": { "status": {} },
        });
        if !storage {
            version["deprecated"] = json!(false);
        }
        version
    };
    json!({
        "apiVersion": CustomResourceDefinition::KIND.api_version,
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{}.ray.io", kind.plural) },
        "spec": {
            "group": "ray.io",
            "names": {
                "kind": kind.name,
                "listKind": format!("{}List", kind.name),
                "plural": kind.plural,
                "singular": singular,
                "categories": ["all"],
            },
            "scope": "Namespaced",
            "versions": [version("v1", true), version("v1alpha1", false)],
        },
    })
}

fn ray_clusters() -> Value {
    let column = |name: &str, kind: &str, path: &str| json!({ "name": name, "type": kind, "jsonPath": path });
    let wide =
        |name: &str, path: &str| json!({ "name": name, "type": "string", "jsonPath": path, "priority": 1 });
    let columns = json!([
        column("desired workers", "integer", ".status.desiredWorkerReplicas"),
        column("available workers", "integer", ".status.availableWorkerReplicas"),
        column("cpus", "string", ".status.desiredCPU"),
        column("memory", "string", ".status.desiredMemory"),
        column("gpus", "string", ".status.desiredGPU"),
        wide("tpus", ".status.desiredTPU"),
        column("status", "string", ".status.state"),
        column("age", "date", ".metadata.creationTimestamp"),
        wide("head pod IP", ".status.head.podIP"),
        wide("head service IP", ".status.head.serviceIP"),
    ]);
    definition(super::RayCluster::KIND, "raycluster", &columns, |version| {
        object(
            "A Ray cluster: one head and groups of workers.",
            &json!({ "spec": cluster_spec(version), "status": anything("What the operator reports.") }),
            &[],
        )
    })
}

fn ray_jobs() -> Value {
    let column = |name: &str, kind: &str, path: &str| json!({ "name": name, "type": kind, "jsonPath": path });
    let columns = json!([
        column("job status", "string", ".status.jobStatus"),
        column("deployment status", "string", ".status.jobDeploymentStatus"),
        column("ray cluster name", "string", ".status.rayClusterName"),
        column("start time", "string", ".status.startTime"),
        column("end time", "string", ".status.endTime"),
        column("age", "date", ".metadata.creationTimestamp"),
    ]);
    definition(super::RayJob::KIND, "rayjob", &columns, |version| {
        object(
            "A job that runs on a Ray cluster, by default one of its own.",
            &json!({ "spec": job_spec(version), "status": anything("What the operator reports.") }),
            &[],
        )
    })
}

fn cluster_spec(version: &str) -> Value {
    let mut groups = json!({
        "type": "array",
        "description": "Groups of equal workers.",
        "items": group(version, true),
    });
    groups["x-kubernetes-list-type"] = json!("atomic");
    let mut spec = object(
        "What the cluster is to be.",
        &json!({
            "suspend": flag("All pods are deleted while this is true."),
            "managedBy": managed_by(),
            "rayVersion": text("The version of Ray in the images."),
            "enableInTreeAutoscaling": flag("The head gets a sidecar that scales the worker groups."),
            "autoscalerOptions": anything("Options of that sidecar."),
            "headServiceAnnotations": texts("Annotations of the head's Service."),
            "gcsFaultToleranceOptions": anything("Where the head keeps its state."),
            "authOptions": anything("How clients authenticate."),
            "upgradeStrategy": anything("What a change of the spec does to running pods."),
            "headGroupSpec": group(version, false),
            "workerGroupSpecs": groups,
        }),
        &["headGroupSpec"],
    );
    keep(&mut spec);
    spec
}

/// Schema of a head or worker group. Version v1alpha1 requires `rayStartParams`.
fn group(version: &str, worker: bool) -> Value {
    let mut properties = json!({
        "template": anything("The pod template; its first container runs Ray."),
        "rayStartParams": texts("Parameters of `ray start`."),
        "labels": texts("Labels of the Ray node and of its pod."),
        "resources": texts("What Ray takes the node to have, if not what its container may use."),
    });
    let mut required = vec!["template"];
    if version == "v1alpha1" {
        required.push("rayStartParams");
    }
    if worker {
        let number = |text: &str, default: Option<i64>| {
            let mut number = json!({ "type": "integer", "format": "int32", "description": text });
            if let Some(default) = default {
                number["default"] = json!(default);
            }
            number
        };
        required.push("groupName");
        properties["groupName"] = text("The name of the group.");
        properties["replicas"] = number("How many replicas.", Some(0));
        properties["minReplicas"] = number("How many at least.", Some(0));
        properties["maxReplicas"] = number("How many at most.", Some(i64::from(i32::MAX)));
        properties["numOfHosts"] = number("Pods of one replica.", Some(1));
        properties["idleTimeoutSeconds"] = number("How long an idle worker is kept.", None);
        properties["suspend"] = flag("The group's pods are deleted while this is true.");
        properties["scaleStrategy"] = object(
            "Which workers are to go.",
            &json!({ "workersToDelete": { "type": "array", "items": { "type": "string" }, "description": "Their names." } }),
            &[],
        );
    } else {
        properties["serviceType"] = text("The type of the head's Service.");
        properties["headService"] = anything("A Service to use for the head.");
        properties["enableIngress"] = flag("Whether the head gets an Ingress.");
    }
    object(if worker { "A group of equal workers." } else { "The head." }, &properties, &required)
}

fn job_spec(version: &str) -> Value {
    let seconds =
        |description: &str| json!({ "type": "integer", "format": "int32", "description": description });
    let mut spec = object(
        "What the job is.",
        &json!({
            "entrypoint": text("The command that the driver runs."),
            "runtimeEnvYAML": text("The environment of the job."),
            "jobId": text("The name of the job within Ray."),
            "metadata": texts("Notes on the job within Ray."),
            "rayClusterSpec": cluster_spec(version),
            "clusterSelector": texts("The cluster to run on, if not one of its own."),
            "submissionMode": {
                "type": "string",
                "default": "K8sJobMode",
                "description": "How the job is submitted: K8sJobMode, HTTPMode, SidecarMode or InteractiveMode.",
            },
            "submitterPodTemplate": anything("The pod that submits the job."),
            "submitterConfig": anything("How often submission is tried."),
            "entrypointNumCpus": { "type": "number", "description": "CPUs of the driver." },
            "entrypointNumGpus": { "type": "number", "description": "GPUs of the driver." },
            "entrypointResources": text("Other resources of the driver."),
            "suspend": flag("Nothing runs while this is true."),
            "shutdownAfterJobFinishes": flag("The cluster is deleted at the end."),
            "ttlSecondsAfterFinished": { "type": "integer", "format": "int32", "default": 0, "description": "How long after." },
            "backoffLimit": { "type": "integer", "format": "int32", "default": 0, "description": "Retries, each on a new cluster." },
            "activeDeadlineSeconds": seconds("How long the job may take."),
            "preRunningDeadlineSeconds": seconds("How long it may take until it runs."),
            "deletionStrategy": anything("What is deleted after the end."),
            "managedBy": managed_by(),
        }),
        &[],
    );
    keep(&mut spec);
    spec
}

fn managed_by() -> Value {
    json!({
        "type": "string",
        "description": "Who operates the object.",
        "x-kubernetes-validations": [
            {
                "rule": "self == oldSelf",
                "message": "the managedBy field is immutable",
            },
            {
                "rule": "self in ['ray.io/kuberay-operator', 'kueue.x-k8s.io/multikueue']",
                "message": "the managedBy field value must be either 'ray.io/kuberay-operator' or 'kueue.x-k8s.io/multikueue'",
            },
        ],
    })
}

fn object(description: &str, properties: &Value, required: &[&str]) -> Value {
    let mut object = json!({ "type": "object", "description": description, "properties": properties });
    if !required.is_empty() {
        object["required"] = json!(required);
    }
    object
}

/// An object with arbitrary fields.
fn anything(description: &str) -> Value {
    let mut object = json!({ "type": "object", "description": description });
    keep(&mut object);
    object
}

fn keep(object: &mut Value) {
    object["x-kubernetes-preserve-unknown-fields"] = json!(true);
}

fn flag(description: &str) -> Value {
    json!({ "type": "boolean", "description": description })
}

fn text(description: &str) -> Value {
    json!({ "type": "string", "description": description })
}

fn texts(description: &str) -> Value {
    json!({ "type": "object", "description": description, "additionalProperties": { "type": "string" } })
}
