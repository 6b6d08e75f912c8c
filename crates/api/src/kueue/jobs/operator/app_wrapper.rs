//! The operator of AppWrappers `v1beta2`: it makes the objects of the components. After AppWrapper v1.2, which starts the objects of one
//! that has failed again, three times at most: here it fails at once.

use serde_json::{Map, Value, json};

use super::super::app_wrapper::AppWrapper;
use super::super::declared::true_condition;
use super::super::{Integration as _, set_at};
use super::{Column, Condition, Operator, Seen, known_status, label, name};
use crate::appwrapper::components::{ComponentPodSet, of_component, pod_sets, pointer};
use crate::value::list;

/// The label of the pods of an AppWrapper `v1beta2` with its name.
pub const WRAPPER_LABEL: &str = "workload.codeflare.dev/appwrapper";

impl Operator for AppWrapper {
    fn short_names(&self) -> &'static [&'static str] {
        &["aw"]
    }

    fn columns(&self) -> &'static [Column] {
        &[
            ("Status", "string", ".status.phase"),
            ("Quota Reserved", "string", r#".status.conditions[?(@.type=="QuotaReserved")].status"#),
            ("Resources Deployed", "string", r#".status.conditions[?(@.type=="ResourcesDeployed")].status"#),
        ]
    }

    fn manager(&self) -> Option<&'static str> {
        Some("workload.codeflare.dev/appwrapper-controller")
    }

    fn pod_label(&self) -> Option<&'static str> {
        Some(WRAPPER_LABEL)
    }

    /// One of the older version has no components.
    fn objects(&self, wrapper: &Value, _: &Seen<'_>) -> Vec<Value> {
        let components = list(wrapper, &["spec", "components"]).iter().zip(pod_sets(wrapper));
        components.enumerate().map(|(at, (component, sets))| object(wrapper, at, component, &sets)).collect()
    }

    fn wants(&self, wrapper: &Value, _: &Seen<'_>, _: &Value) -> bool {
        wrapper["status"]["phase"] != "Failed"
    }

    fn status(&self, wrapper: &Value, seen: &Seen<'_>) -> Value {
        let mut status = known_status(wrapper);
        if self.is_skipped(wrapper) || self.finished(wrapper).is_some() {
            return status;
        }
        if status["componentStatus"].is_null() {
            status["componentStatus"] =
                list(wrapper, &["spec", "components"]).iter().map(component_status).collect();
        }
        let expected: usize = pod_sets(wrapper).iter().flatten().map(|set| set.replicas as usize).sum();
        let [succeeded, running, pending] =
            ["Succeeded", "Running", "Pending"].map(|phase| seen.in_phase(phase));
        let is_there = !seen.objects.is_empty() || !seen.pods.is_empty();
        let has_failed = status["phase"] == "Failed"
            || seen.objects.iter().any(failed)
            || seen.pods.iter().any(|pod| pod.is_own && pod.phase == "Failed");
        let phase = match self.is_suspended(wrapper) {
            true if is_there => "Suspending",
            true => "Suspended",
            false if has_failed => "Failed",
            false if expected > 0 && succeeded >= expected && running + pending == 0 => "Succeeded",
            false if is_there => "Running",
            false => "Resuming",
        };
        status["phase"] = phase.into();
        let has_quota = !matches!(phase, "Suspended" | "Failed" | "Succeeded");
        let ready = seen.pods.iter().filter(|pod| pod.is_ready || pod.phase == "Succeeded").count();
        for (kind, is_true) in [
            ("QuotaReserved", has_quota),
            ("ResourcesDeployed", is_there),
            ("PodsReady", is_there && ready >= expected),
        ] {
            seen.set(&mut status, &Condition { kind, is_true, reason: phase, message: "" });
        }
        status
    }
}

/// The object of a component, with what an admission adds to its pods.
fn object(wrapper: &Value, at: usize, component: &Value, sets: &[ComponentPodSet]) -> Value {
    let mut component = component.clone();
    for (at, set) in sets.iter().enumerate() {
        let info = component["podSetInfos"][at].clone();
        let template = pointer(&set.path).ok().and_then(|pointer| component.pointer_mut(&pointer));
        if let Some(template) = template {
            add(template, &info);
            label(template, WRAPPER_LABEL, name(wrapper));
        }
    }
    let mut object = component["template"].take();
    label(&mut object, WRAPPER_LABEL, name(wrapper));
    if object["metadata"]["name"].is_null() {
        object["metadata"]["name"] = format!("{}-{at}", name(wrapper)).into();
    }
    object
}

/// Adds what an admission says of a pod set to its template.
fn add(template: &mut Value, info: &Value) {
    for path in [["metadata", "labels"], ["metadata", "annotations"], ["spec", "nodeSelector"]] {
        for (key, value) in info[path[1]].as_object().into_iter().flatten() {
            set_at(template, &[path[0], path[1], key], value.clone());
        }
    }
    for field in ["tolerations", "schedulingGates"] {
        let added = list(info, &[field]);
        let mut all = list(template, &["spec", field]).to_vec();
        all.extend(added.iter().filter(|one| !all.contains(one)).cloned().collect::<Vec<_>>());
        if !added.is_empty() {
            set_at(template, &["spec", field], all.into());
        }
    }
}

fn component_status(component: &Value) -> Value {
    let template = &component["template"];
    let sets: Vec<Value> = of_component(component).iter().map(ComponentPodSet::recorded).collect();
    let mut status = Map::new();
    for (field, value) in [
        ("apiVersion", template["apiVersion"].clone()),
        ("kind", template["kind"].clone()),
        ("name", template["metadata"]["name"].clone()),
        ("podSets", json!(sets)),
    ] {
        if !value.is_null() {
            status.insert(field.into(), value);
        }
    }
    status.into()
}

/// Whether the operator of a component says that it has failed.
fn failed(object: &Value) -> bool {
    true_condition(object, "Failed").is_some() || object["status"]["jobDeploymentStatus"] == "Failed"
}
