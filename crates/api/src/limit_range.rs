//! What the API server sets in the containers of a namespace with a `LimitRange`, and in which order. Quota is counted after it.

use serde_json::{Map, Value};

use crate::pod::complete_whole_pod;

/// The default requests and limits of the containers in a namespace.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ContainerDefaults {
    requests: Map<String, Value>,
    limits: Map<String, Value>,
}

impl ContainerDefaults {
    /// Adds an item of `spec.limits` of a `LimitRange`. A default that is known already stays, as in the plugin `LimitRanger`,
    /// which sets what is missing of one `LimitRange` after the other. Items about pods and claims have no defaults.
    pub fn add(&mut self, item: &Value) {
        if item["type"] == "Container" {
            fill(&mut self.requests, item["defaultRequest"].as_object());
            fill(&mut self.limits, item["default"].as_object());
        }
    }

    /// Completes the requests and limits of a pod: first its own limits are the requests that it lacks, then containers get the
    /// default requests and the default limits.
    ///
    /// The order is that of Kubernetes: `SetDefaults_Pod` runs before the plugin `LimitRanger`, so a container with a limit gets
    /// no default request, and the default request of a container is no part of a pod-level request.
    pub fn complete(&self, spec: &mut Value) {
        for container in containers(spec) {
            let resources = &mut container["resources"];
            if let Some(own) = resources["limits"].as_object().cloned() {
                set_missing(resources, "requests", &own);
            }
        }
        complete_whole_pod(spec);
        for container in containers(spec) {
            set_missing(&mut container["resources"], "requests", &self.requests);
            set_missing(&mut container["resources"], "limits", &self.limits);
        }
    }
}

fn containers(spec: &mut Value) -> impl Iterator<Item = &mut Value> {
    let lists = spec.as_object_mut().into_iter().flat_map(Map::iter_mut);
    let lists = lists.filter(|(field, _)| ["containers", "initContainers"].contains(&field.as_str()));
    lists
        .flat_map(|(_, list)| list.as_array_mut().into_iter().flatten())
        .filter(|container| container.is_object())
}

/// Sets the amounts that are missing in a field of `resources`. What has another type than an object is left to the API server.
fn set_missing(resources: &mut Value, field: &str, amounts: &Map<String, Value>) {
    if amounts.is_empty() {
        return;
    }
    let Some(resources) = object_mut(resources) else { return };
    if let Some(known) = object_mut(resources.entry(field).or_insert(Value::Null)) {
        fill(known, Some(amounts));
    }
}

/// The map of an object, which null becomes.
fn object_mut(value: &mut Value) -> Option<&mut Map<String, Value>> {
    if value.is_null() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut()
}

/// Adds the entries that a map lacks.
fn fill(known: &mut Map<String, Value>, amounts: Option<&Map<String, Value>>) {
    for (name, amount) in amounts.into_iter().flatten() {
        known.entry(name).or_insert_with(|| amount.clone());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn limits_fill_requests_before_the_defaults_of_the_namespace_do() {
        let mut defaults = ContainerDefaults::default();
        for item in [
            json!({"type": "Container", "defaultRequest": {"cpu": 1, "memory": 5}, "default": {"cpu": 4}}),
            json!({"type": "Container", "defaultRequest": {"cpu": 2}, "default": {"cpu": 5, "memory": 6}}),
            json!({"type": "Pod", "default": {"gpu": 1}}),
        ] {
            defaults.add(&item);
        }
        let of = |resources: Value| {
            let mut spec = json!({"containers": [{"resources": resources}]});
            defaults.complete(&mut spec);
            spec["containers"][0]["resources"].take()
        };
        assert_eq!(
            of(json!({"limits": {"cpu": 3}})),
            json!({"limits": {"cpu": 3, "memory": 6}, "requests": {"cpu": 3, "memory": 5}})
        );
        let all = json!({"limits": {"cpu": 4, "memory": 6}, "requests": {"cpu": 1, "memory": 5}});
        assert_eq!(of(Value::Null), all);
        assert_eq!(of(json!({"requests": null})), all);
        assert_eq!(of(json!([1])), json!([1]), "the API server refuses it");
    }

    #[test]
    fn default_requests_of_containers_are_no_part_of_a_request_of_the_whole_pod() {
        let mut defaults = ContainerDefaults::default();
        defaults.add(&json!({"type": "Container", "defaultRequest": {"cpu": 1, "memory": 5}}));
        let asks = json!({"resources": {"requests": {"cpu": 2}}});
        let mut spec =
            json!({"containers": [asks, {}], "resources": {"limits": {"cpu": 8, "memory": "1Gi"}}});
        defaults.complete(&mut spec);
        assert_eq!(spec["resources"]["requests"], json!({"cpu": "2", "memory": "1Gi"}));
        assert_eq!(spec["containers"][1]["resources"]["requests"], json!({"cpu": 1, "memory": 5}));
    }
}
