//! What Kubernetes sets in the containers of a namespace with a `LimitRange`, and in which order. Quota is counted after it.

use serde_json::{Map, Value};

/// Completes the `resources` of a container: its own limits are requests that it lacks, then come the default requests and the
/// default limits. Returns the names of the resources that got a default request, and of those that got a default limit.
///
/// The order is that of Kubernetes: `SetDefaults_Pod` runs before the plugin `LimitRanger`, so a container with a limit gets no
/// default request.
pub fn complete(resources: &mut Value, requests: &Value, limits: &Value) -> [Vec<String>; 2] {
    let own = resources["limits"].clone();
    set_missing(resources, "requests", &own);
    [("requests", requests), ("limits", limits)].map(|(field, of)| set_missing(resources, field, of))
}

/// Sets the amounts that are missing. Returns the names of their resources.
fn set_missing(resources: &mut Value, field: &str, amounts: &Value) -> Vec<String> {
    let Some(amounts) = amounts.as_object().filter(|amounts| !amounts.is_empty()) else { return Vec::new() };
    if !resources.is_object() {
        *resources = Value::Object(Map::new());
    }
    if !resources[field].is_object() {
        resources[field] = Value::Object(Map::new());
    }
    let Some(known) = resources[field].as_object_mut() else { return Vec::new() };
    let missing: Vec<String> = amounts.keys().filter(|name| !known.contains_key(*name)).cloned().collect();
    known.extend(missing.iter().map(|name| (name.clone(), amounts[name].clone())));
    missing
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn limits_fill_requests_before_the_defaults_of_the_namespace_do() {
        let defaults = [json!({"cpu": 1, "memory": 5}), json!({"cpu": 4, "memory": 6})];
        let of = |mut resources: Value| {
            let set = complete(&mut resources, &defaults[0], &defaults[1]);
            (resources, set.map(|names| names.join(",")))
        };
        let (resources, [requests, limits]) = of(json!({"limits": {"cpu": 3}}));
        let expected = json!({"limits": {"cpu": 3, "memory": 6}, "requests": {"cpu": 3, "memory": 5}});
        assert_eq!(resources, expected);
        assert_eq!((&*requests, &*limits), ("memory", "memory"));
        let (resources, [requests, limits]) = of(Value::Null);
        assert_eq!(resources, json!({"limits": defaults[1], "requests": defaults[0]}));
        assert_eq!((&*requests, &*limits), ("cpu,memory", "cpu,memory"));
    }
}
