//! The `CustomResourceDefinition`s of the operators, written from scratch. Their schemas cover the fields that the
//! operators read or default; all other fields are preserved.

use api::appwrapper::{self, Columns, Group};
use api::kueue::jobs::{JobKind, Operator};
use serde_json::{Value, json};

use super::training_rules::KINDS;
use super::{JobSet, LeaderWorkerSet, MpiJob};
use crate::cluster::{Kind, Resource};
use crate::wire::CustomResourceDefinition;

/// The definitions of kinds of jobs, and of what describes their pods.
pub(crate) fn definitions_of_jobs(kinds: &[&'static JobKind]) -> Vec<Value> {
    let of = |kind: &&JobKind| {
        let operator = kind.integration.operator();
        let columns = operator.map_or(&[][..], |operator| operator.columns()).iter();
        let columns: Vec<Value> = columns.map(|(name, kind, path)| column(name, kind, path)).collect();
        let fields = operator.map_or(Value::Null, Operator::spec_fields);
        let mut jobs = definition(Kind::of_jobs(kind), &columns, &fields, None);
        let names = operator.map_or(&[][..], |operator| operator.short_names());
        jobs["spec"]["names"]["shortNames"] = json!(names);
        if jobs["metadata"]["name"] == *Group::Codeflare.resource() {
            jobs = wrappers();
        }
        let others = kind.integration.references().iter();
        let others = others.map(|other| definition(Kind::referenced(other), &[], &Value::Null, None));
        std::iter::once(jobs).chain(others).collect::<Vec<_>>()
    };
    kinds.iter().flat_map(of).collect()
}

/// The definition of AppWrappers, in the versions of both controllers: Muster, which may start later, takes it for its own.
fn wrappers() -> Value {
    let mut definition = appwrapper::definition(Group::Codeflare, Columns::default());
    appwrapper::add_components(&mut definition);
    definition
}

/// All definitions of kinds with an operator of their own.
pub(crate) fn definitions() -> Vec<Value> {
    let training = KINDS.iter().map(|kind| {
        let state = column("State", "string", ".status.conditions[-1:].type");
        let roles = kind.roles.iter().map(|role| ((*role).to_owned(), role_spec()));
        let roles: serde_json::Map<String, Value> = roles.collect();
        let roles = json!({"type": "object", "description": "The pods of each role.", "properties": roles});
        let spec = json!({kind.field: roles, "runPolicy": run_policy()});
        definition(kind.kind, &[state], &spec, Some(kind.field))
    });
    let spec = json!({
        "replicatedJobs": {"type": "array", "description": "Jobs, each with a number of copies.", "items": replicated_job(),
            "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        "suspend": boolean("Whether the Jobs are suspended."),
        "managedBy": string("Controller of the object."),
        "ttlSecondsAfterFinished": integer("Seconds after which a finished JobSet is deleted."),
        "successPolicy": open_object("Which Jobs have to succeed."),
        "failurePolicy": open_object("How often the Jobs are started again."),
        "startupPolicy": open_object("The order in which the Jobs start."),
        "network": open_object("The network of the pods. Not simulated."),
    });
    let columns = [
        column("TerminalState", "string", ".status.terminalState"),
        column("Restarts", "string", ".status.restarts"),
        column("Completed", "string", r#".status.conditions[?(@.type=="Completed")].status"#),
        column("Suspended", "string", ".spec.suspend"),
    ];
    let job_set = definition(JobSet::KIND, &columns, &spec, Some("replicatedJobs"));
    training.chain([job_set, leader_worker_set(), mpi_job()]).collect()
}

fn mpi_job() -> Value {
    let roles = json!({"type": "object", "description": "The pods of each role.",
        "properties": {"Launcher": role_spec(), "Worker": role_spec()}});
    let spec = json!({
        "mpiReplicaSpecs": roles,
        "runPolicy": run_policy(),
        "launcherCreationPolicy": {"type": "string", "default": "AtStartup", "enum": ["AtStartup", "WaitForWorkersReady"],
            "description": "When the launcher is created."},
        "runLauncherAsWorker": {"type": "boolean", "default": false, "description": "Whether the launcher works, too."},
    });
    definition(MpiJob::KIND, &[], &spec, Some("mpiReplicaSpecs"))
}

fn leader_worker_set() -> Value {
    let mut group = json!({
        "type": "object", "description": "A group of pods.", "required": ["workerTemplate"],
        "properties": {
            "size": {"type": "integer", "format": "int32", "default": 1, "description": "Pods of a group, with the leader."},
            "leaderTemplate": open_object("The leader. If it is missing, the leader is like the workers."),
            "workerTemplate": open_object("The workers."),
            "restartPolicy": {"type": "string", "default": "RecreateGroupOnPodRestart",
                "enum": ["Default", "RecreateGroupOnPodRestart", "RecreateGroupAfterStart", "None"],
                "description": "What happens to a group when one of its pods ends or starts again."},
        },
    });
    group["x-kubernetes-preserve-unknown-fields"] = json!(true);
    let spec = json!({
        "replicas": {"type": "integer", "format": "int32", "default": 1, "description": "Number of groups."},
        "leaderWorkerTemplate": group,
        "startupPolicy": {"type": "string", "default": "LeaderCreated", "enum": ["LeaderCreated", "LeaderReady"],
            "description": "When the workers of a group are created."},
        "rolloutStrategy": open_object("How groups are replaced when their templates change."),
        "networkConfig": open_object("The names of the pods in the network."),
    });
    let columns = [
        column("Ready", "integer", ".status.readyReplicas"),
        column("Desired", "integer", ".spec.replicas"),
        column("Up-to-date", "integer", ".status.updatedReplicas"),
    ];
    let mut definition = definition(LeaderWorkerSet::KIND, &columns, &spec, Some("leaderWorkerTemplate"));
    definition["spec"]["names"]["shortNames"] = json!(["lws"]);
    definition["spec"]["versions"][0]["subresources"]["scale"] = json!({"specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.hpaPodSelector"});
    definition
}

fn definition(kind: Kind, columns: &[Value], spec: &Value, required: Option<&str>) -> Value {
    let (group, version) = kind.api_version.split_once('/').unwrap_or_default();
    let mut spec = json!({"type": "object", "description": "What is to run.", "properties": spec});
    if spec["properties"].is_null() {
        spec["properties"] = json!({});
    }
    if let Some(required) = required {
        spec["required"] = json!([required]);
    }
    spec["x-kubernetes-preserve-unknown-fields"] = json!(true);
    let mut columns = columns.to_vec();
    columns.push(column("Age", "date", ".metadata.creationTimestamp"));
    let mut metadata = json!({"name": format!("{}.{group}", kind.plural)});
    if group.ends_with(".k8s.io") {
        // The API server asks for it in the groups of Kubernetes itself.
        metadata["annotations"] =
            json!({"api-approved.kubernetes.io": "unapproved, for a simulated cluster"});
    }
    json!({
        "apiVersion": CustomResourceDefinition::KIND.api_version,
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": {
            "group": group,
            "names": {"kind": kind.name, "listKind": format!("{}List", kind.name), "plural": kind.plural,
                "singular": kind.name.to_lowercase()},
            "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
            "versions": [{
                "name": version, "served": true, "storage": true, "subresources": {"status": {}},
                "additionalPrinterColumns": columns,
                "schema": {"openAPIV3Schema": {"type": "object", "required": ["spec"], "properties": {
                    "spec": spec, "status": open_object("Status, as reported by the operator.")}}},
            }],
        },
    })
}

fn replicated_job() -> Value {
    let mut job = json!({
        "type": "object", "description": "A Job and the number of its copies.", "required": ["name", "template"],
        "properties": {
            "name": string("Name of the Job."),
            "replicas": {"type": "integer", "format": "int32", "default": 1, "description": "Copies of the Job."},
            "template": open_object("The Job."),
        },
    });
    job["x-kubernetes-preserve-unknown-fields"] = json!(true);
    job
}

fn role_spec() -> Value {
    json!({
        "type": "object", "description": "Pods of a role.", "required": ["template"],
        "properties": {
            "replicas": {"type": "integer", "format": "int32", "description": "Number of pods."},
            "restartPolicy": string("What happens when a container ends with an error."),
            "template": open_object("The pod."),
        },
    })
}

fn run_policy() -> Value {
    let mut policy = json!({
        "type": "object", "description": "How the pods run.",
        "properties": {
            "suspend": {"type": "boolean", "default": false, "description": "Whether no pods run."},
            "cleanPodPolicy": string("Which pods are deleted at the end."),
            "ttlSecondsAfterFinished": integer("Seconds after which a finished job is deleted."),
            "activeDeadlineSeconds": integer("Seconds after which a running job fails."),
        },
    });
    policy["x-kubernetes-preserve-unknown-fields"] = json!(true);
    policy
}

fn column(name: &str, kind: &str, path: &str) -> Value {
    json!({"name": name, "type": kind, "jsonPath": path})
}

/// An object with arbitrary fields.
fn open_object(description: &str) -> Value {
    json!({"type": "object", "description": description, "x-kubernetes-preserve-unknown-fields": true})
}

fn boolean(description: &str) -> Value {
    json!({"type": "boolean", "description": description})
}

fn string(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

fn integer(description: &str) -> Value {
    json!({"type": "integer", "format": "int32", "description": description})
}
