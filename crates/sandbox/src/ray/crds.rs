//! The `CustomResourceDefinition`s of RayCluster and RayJob, written from scratch. Their schemas cover the fields that
//! the operator reads, defaults or validates; all other fields are preserved.

use serde_json::{Value, json};

use crate::cluster::{Kind, Resource};
use crate::wire::CustomResourceDefinition;

/// All definitions.
pub(crate) fn definitions() -> Vec<Value> {
    vec![ray_clusters(), ray_jobs()]
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
            &json!({ "spec": cluster_spec(version), "status": open_object("Status, as reported by the operator.") }),
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
            &json!({ "spec": job_spec(version), "status": open_object("Status, as reported by the operator.") }),
            &[],
        )
    })
}

fn cluster_spec(version: &str) -> Value {
    let mut groups = json!({
        "type": "array",
        "description": "Worker groups.",
        "items": group(version, true),
    });
    groups["x-kubernetes-list-type"] = json!("atomic");
    let mut spec = object(
        "Desired state of the cluster.",
        &json!({
            "suspend": boolean("All pods are deleted while this is true."),
            "managedBy": managed_by(),
            "rayVersion": string("The version of Ray in the images."),
            "enableInTreeAutoscaling": boolean("Adds the autoscaler sidecar to the head pod."),
            "autoscalerOptions": open_object("Options of the autoscaler sidecar."),
            "headServiceAnnotations": string_map("Annotations of the head's Service."),
            "gcsFaultToleranceOptions": open_object("Options of GCS fault tolerance."),
            "authOptions": open_object("Authentication of clients."),
            "upgradeStrategy": open_object("How a change of the spec is applied to running pods."),
            "headGroupSpec": group(version, false),
            "workerGroupSpecs": groups,
        }),
        &["headGroupSpec"],
    );
    preserve_unknown_fields(&mut spec);
    spec
}

/// Schema of a head or worker group. Version v1alpha1 requires `rayStartParams`.
fn group(version: &str, worker: bool) -> Value {
    let mut properties = json!({
        "template": open_object("The pod template; its first container runs Ray."),
        "rayStartParams": string_map("Parameters of `ray start`."),
        "labels": string_map("Labels of the Ray node and of its pod."),
        "resources": string_map("Resources of the Ray node, instead of those of its container."),
    });
    let mut required = vec!["template"];
    if version == "v1alpha1" {
        required.push("rayStartParams");
    }
    if worker {
        let number = |description: &str, default: Option<i64>| {
            let mut number = json!({ "type": "integer", "format": "int32", "description": description });
            if let Some(default) = default {
                number["default"] = json!(default);
            }
            number
        };
        required.push("groupName");
        properties["groupName"] = string("The name of the group.");
        properties["replicas"] = number("Desired number of replicas.", Some(0));
        properties["minReplicas"] = number("Minimum number of replicas.", Some(0));
        properties["maxReplicas"] = number("Maximum number of replicas.", Some(i64::from(i32::MAX)));
        properties["numOfHosts"] = number("Number of pods of one replica.", Some(1));
        properties["idleTimeoutSeconds"] = number("Seconds before an idle worker is deleted.", None);
        properties["suspend"] = boolean("The group's pods are deleted while this is true.");
        properties["scaleStrategy"] = object(
            "Workers to delete.",
            &json!({ "workersToDelete": { "type": "array", "items": { "type": "string" }, "description": "Names of the pods to delete." } }),
            &[],
        );
    } else {
        properties["serviceType"] = string("The type of the head's Service.");
        properties["headService"] = open_object("Template of the head Service.");
        properties["enableIngress"] = boolean("Whether the head gets an Ingress.");
    }
    object(if worker { "A worker group." } else { "The head group." }, &properties, &required)
}

fn job_spec(version: &str) -> Value {
    let seconds =
        |description: &str| json!({ "type": "integer", "format": "int32", "description": description });
    let mut spec = object(
        "Desired state of the job.",
        &json!({
            "entrypoint": string("The command that the driver runs."),
            "runtimeEnvYAML": string("Runtime environment of the job."),
            "jobId": string("Submission id of the job."),
            "metadata": string_map("Metadata of the job inside Ray."),
            "rayClusterSpec": cluster_spec(version),
            "clusterSelector": string_map("Selects an existing cluster instead of creating one."),
            "submissionMode": {
                "type": "string",
                "default": "K8sJobMode",
                "description": "How the job is submitted: K8sJobMode, HTTPMode, SidecarMode or InteractiveMode.",
            },
            "submitterPodTemplate": open_object("The pod that submits the job."),
            "submitterConfig": open_object("Options of the submitter Job."),
            "entrypointNumCpus": { "type": "number", "description": "CPUs of the driver." },
            "entrypointNumGpus": { "type": "number", "description": "GPUs of the driver." },
            "entrypointResources": string("Other resources of the driver."),
            "suspend": boolean("The cluster is deleted while this is true."),
            "shutdownAfterJobFinishes": boolean("Whether to delete the cluster after the job."),
            "ttlSecondsAfterFinished": { "type": "integer", "format": "int32", "default": 0, "description": "Seconds until the cluster is deleted." },
            "backoffLimit": { "type": "integer", "format": "int32", "default": 0, "description": "Number of retries, each on a new cluster." },
            "activeDeadlineSeconds": seconds("Seconds after which the job fails."),
            "preRunningDeadlineSeconds": seconds("Seconds after which a job that does not run yet fails."),
            "deletionStrategy": open_object("What to delete after the job, and when."),
            "managedBy": managed_by(),
        }),
        &[],
    );
    preserve_unknown_fields(&mut spec);
    spec
}

fn managed_by() -> Value {
    json!({
        "type": "string",
        "description": "Controller of the object.",
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
fn open_object(description: &str) -> Value {
    let mut object = json!({ "type": "object", "description": description });
    preserve_unknown_fields(&mut object);
    object
}

fn preserve_unknown_fields(object: &mut Value) {
    object["x-kubernetes-preserve-unknown-fields"] = json!(true);
}

fn boolean(description: &str) -> Value {
    json!({ "type": "boolean", "description": description })
}

fn string(description: &str) -> Value {
    json!({ "type": "string", "description": description })
}

fn string_map(description: &str) -> Value {
    json!({ "type": "object", "description": description, "additionalProperties": { "type": "string" } })
}
