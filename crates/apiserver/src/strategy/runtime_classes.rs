//! The admission plugin `RuntimeClass`: overhead, node selector and tolerations of a pod's runtime class. After
//! `plugin/pkg/admission/runtimeclass` of Kubernetes.

use serde_json::{Value, json};

use crate::object;
use crate::server::ApiServer;

/// Applies the runtime class of a pod. The error says why the pod is rejected.
pub(super) fn apply(server: &ApiServer, pod: &mut Value) -> Result<(), String> {
    let name = object::text(pod, &["spec", "runtimeClassName"]).to_owned();
    let given = listed_overhead(pod);
    if name.is_empty() {
        let why = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";
        return if given.is_null() { Ok(()) } else { Err(why.to_owned()) };
    }
    let class = server.store.get("runtimeclasses.node.k8s.io", &name).map(|class| class.value());
    let class = class.ok_or_else(|| format!("pod rejected: RuntimeClass {name:?} not found"))?;
    let overhead = class["overhead"]["podFixed"].clone();
    match (given.is_null(), overhead.is_null()) {
        (true, true) => {}
        (false, true) => {
            return Err("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
                .to_owned());
        }
        (false, false) if given != overhead => {
            return Err(
                "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead".to_owned()
            );
        }
        (_, false) => object::set(pod, &["spec", "overhead"], overhead),
    }
    for (key, value) in class["scheduling"]["nodeSelector"].as_object().into_iter().flatten() {
        let old = object::text(pod, &["spec", "nodeSelector", key]);
        if object::get(pod, &["spec", "nodeSelector", key]).is_some() && value != old {
            let wanted = value.as_str().unwrap_or_default();
            return Err(format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {wanted}; pod.spec.nodeSelector[{key}] = {old}"
            ));
        }
        object::set(pod, &["spec", "nodeSelector", key], value.clone());
    }
    let mut tolerations = object::items(pod, &["spec", "tolerations"]).to_vec();
    let added = object::items(&class, &["scheduling", "tolerations"]);
    tolerations.extend(
        added.iter().filter(|new| !object::items(pod, &["spec", "tolerations"]).contains(new)).cloned(),
    );
    if !tolerations.is_empty() {
        object::set(pod, &["spec", "tolerations"], json!(tolerations));
    }
    Ok(())
}

/// The overhead that the author of a pod has set; null without one.
fn listed_overhead(pod: &Value) -> Value {
    let overhead = pod["spec"]["overhead"].clone();
    if overhead.as_object().is_none_or(serde_json::Map::is_empty) { Value::Null } else { overhead }
}
