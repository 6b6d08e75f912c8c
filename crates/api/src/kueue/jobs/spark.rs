//! Spark applications: a driver and its executors. Their pods are described by fields of the application, not by templates; a
//! template is read for its labels and annotations alone. After `pkg/controller/jobs/sparkapplication` of Kueue v0.19.

mod amounts;

use serde_json::{Map, Value, json};

use self::amounts::{Role, resources};
use super::{Finished, Injection, InjectionError, Integration, JobKind, Operator, injection, set_at};
use crate::value::{list, text};

/// The row of Spark applications.
pub(super) const SPARK_APPLICATION: JobKind = JobKind {
    framework: "sparkoperator.k8s.io/sparkapplication",
    api_version: "sparkoperator.k8s.io/v1beta2",
    kind: "SparkApplication",
    plural: "sparkapplications",
    integration: &SparkApplication,
};

/// The roles, in the order of the pod sets, whose names they are.
pub(crate) const ROLES: [&str; 2] = ["driver", "executor"];
/// The states in which an application has ended. After `SUBMISSION_FAILED` the operator tries again, or goes on to `FAILED`.
const ENDED: [&str; 2] = ["COMPLETED", "FAILED"];
/// The beginning of the names of volumes that Spark mounts by itself.
const LOCAL_DIRECTORY: &str = "spark-local-dir-";

#[derive(Debug)]
pub(super) struct SparkApplication;

impl Integration for SparkApplication {
    fn operator(&self) -> Option<&dyn Operator> {
        Some(self)
    }

    fn pod_sets(&self, app: &Value) -> Vec<Value> {
        let set = |role: &str| json!({"name": role, "count": Role::of(app, role).pods(), "template": template(app, role)});
        ROLES.map(set).into()
    }

    fn templates(&self, _: &Value) -> Vec<String> {
        Vec::new()
    }

    /// The node selector of the application excludes those of the roles: it becomes theirs, and stays theirs when the application
    /// stops.
    fn inject(&self, app: &mut Value, injections: &[Injection]) -> Result<(), InjectionError> {
        if injections.len() != ROLES.len() {
            return Err(InjectionError::Sets { expected: ROLES.len(), found: injections.len() });
        }
        let global = app["spec"]["nodeSelector"].clone();
        for (role, injection) in ROLES.iter().zip(injections) {
            let mut fields = admission_fields(&app["spec"][*role]);
            if global.is_object() {
                set_at(&mut fields, &["spec", "nodeSelector"], global.clone());
            }
            injection.inject(&mut fields)?;
            write_fields(app, role, &fields);
        }
        set_or_remove(app, &["spec"], "nodeSelector", &Value::Null);
        Ok(())
    }

    fn restore(&self, app: &mut Value, sets: &[Value]) {
        for (role, set) in ROLES.iter().zip(sets) {
            let mut fields = admission_fields(&app["spec"][*role]);
            injection::restore(&mut fields, &set["template"], &[]);
            write_fields(app, role, &fields);
        }
    }

    fn is_active(&self, app: &Value) -> bool {
        matches!(state(app), Some("RUNNING" | "SUSPENDING"))
    }

    /// The driver runs, and so do all executors: the application runs as soon as its driver does.
    fn are_pods_ready(&self, app: &Value) -> bool {
        let executors = app["status"]["executorState"].as_object().into_iter().flatten();
        let ready = executors.filter(|(_, state)| *state == "RUNNING" || *state == "COMPLETED").count();
        state(app) == Some("RUNNING")
            && u32::try_from(ready).is_ok_and(|ready| ready >= Role::of(app, ROLES[1]).pods())
    }

    fn finished(&self, app: &Value) -> Option<Finished> {
        let state = state(app).filter(|state| ENDED.contains(state))?;
        let message = text(app, &["status", "applicationState", "errorMessage"]).unwrap_or_default();
        Some(Finished { succeeded: state == "COMPLETED", message: message.to_owned() })
    }
}

fn state(app: &Value) -> Option<&str> {
    text(app, &["status", "applicationState", "state"])
}

/// The pod of a role, as far as it matters to its admission.
fn template(app: &Value, role: &str) -> Value {
    let fields = &app["spec"][role];
    let container = json!({"name": format!("spark-kubernetes-{role}"), "resources": resources(app, role)});
    let mut spec = json!({"containers": [container]});
    for (from, to) in
        [("initContainers", "initContainers"), ("affinity", "affinity"), ("tolerations", "tolerations")]
    {
        if !fields[from].is_null() {
            spec[to] = fields[from].clone();
        }
    }
    for field in ["nodeSelector", "priorityClassName"] {
        if !fields[field].is_null() && fields[field] != "" {
            spec[field] = fields[field].clone();
        }
    }
    if app["spec"]["nodeSelector"].is_object() {
        spec["nodeSelector"] = app["spec"]["nodeSelector"].clone();
    }
    if let Some(containers) = spec["containers"].as_array_mut() {
        containers.extend(list(fields, &["sidecars"]).iter().cloned());
    }
    mount(app, fields, &mut spec);
    let mut metadata = Map::new();
    for field in ["labels", "annotations"] {
        let mut all = fields["template"]["metadata"][field].as_object().cloned().unwrap_or_default();
        all.extend(fields[field].as_object().cloned().unwrap_or_default());
        if !all.is_empty() {
            metadata.insert(field.into(), all.into());
        }
    }
    json!({"metadata": metadata, "spec": spec})
}

/// The template of the pods of a role, with what the admission adds.
pub(super) fn pod_template(app: &Value, role: &str) -> Value {
    let mut template = template(app, role);
    let gates = &admission_fields(&app["spec"][role])["spec"]["schedulingGates"];
    if gates.is_array() {
        template["spec"]["schedulingGates"] = gates.clone();
    }
    template
}

/// The volumes of the application that a role mounts.
fn mount(app: &Value, fields: &Value, spec: &mut Value) {
    let name = |object: &Value| object["name"].as_str().unwrap_or_default().to_owned();
    let known = list(app, &["spec", "volumes"]);
    let volume = |mount: &Value| known.iter().find(|volume| volume["name"] == mount["name"]);
    let mounts = list(fields, &["volumeMounts"]).iter();
    let mounts: Vec<_> =
        mounts.filter(|mount| !name(mount).starts_with(LOCAL_DIRECTORY) && volume(mount).is_some()).collect();
    if mounts.is_empty() {
        return;
    }
    let mut volumes: Vec<Value> = Vec::new();
    for found in mounts.iter().filter_map(|mount| volume(mount)) {
        if !volumes.contains(found) {
            volumes.push(found.clone());
        }
    }
    spec["volumes"] = volumes.into();
    spec["containers"][0]["volumeMounts"] = mounts.into_iter().cloned().collect();
}

/// The fields of a role that an admission changes, in the places of a template.
fn admission_fields(role: &Value) -> Value {
    json!({
        "metadata": {"annotations": role["annotations"], "labels": role["labels"]},
        "spec": {"nodeSelector": role["nodeSelector"], "tolerations": role["tolerations"],
            "schedulingGates": role["template"]["spec"]["schedulingGates"]},
    })
}

/// Writes these fields of a role. Scheduling gates have no field but that of the template, which needs a container.
fn write_fields(app: &mut Value, role: &str, fields: &Value) {
    let gates = fields["spec"]["schedulingGates"].clone();
    let has_template = app["spec"][role]["template"].is_object();
    if gates.is_array() && !has_template {
        let container = json!({"name": format!("spark-kubernetes-{role}")});
        set_at(app, &["spec", role, "template"], json!({"spec": {"containers": [container]}}));
    }
    if gates.is_array() || has_template {
        set_or_remove(app, &["spec", role, "template", "spec"], "schedulingGates", &gates);
    }
    let [metadata, spec] = [&fields["metadata"], &fields["spec"]];
    for (field, value) in [
        ("annotations", &metadata["annotations"]),
        ("labels", &metadata["labels"]),
        ("nodeSelector", &spec["nodeSelector"]),
        ("tolerations", &spec["tolerations"]),
    ] {
        set_or_remove(app, &["spec", role], field, value);
    }
}

fn set_or_remove(object: &mut Value, path: &[&str], field: &str, value: &Value) {
    if value.is_null() {
        let found = object.pointer_mut(&format!("/{}", path.join("/")));
        found.and_then(Value::as_object_mut).map(|found| found.remove(field));
    } else {
        set_at(object, &[path, &[field]].concat(), value.clone());
    }
}
