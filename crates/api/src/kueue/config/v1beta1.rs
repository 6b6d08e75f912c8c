//! A configuration of v1beta1 as one of v1beta2.

use serde_json::{Value, json};

use super::ConfigError;

/// Fields of v1beta2 only. `*` is every item of a list.
const NEW: &[&[&str]] = &[
    &["visibilityServer"],
    &["metrics", "customLabels", "*", "sourceKind"],
    &["metrics", "customLabels", "*", "trackedValues"],
    &["multiKueue", "clusterProfile"],
    &["multiKueue", "incrementalDispatcherConfig"],
    &["resources", "quotaCheckStrategy"],
    &["resources", "deviceClassMappings", "*", "sources"],
];

/// Converts a configuration. A field of v1beta2 in it is an error.
pub(super) fn convert(document: &mut Value) -> Result<(), ConfigError> {
    for path in NEW {
        if is_set(document, path) {
            let problem = "this field is of v1beta2: change apiVersion, or remove the field".into();
            return Err(ConfigError { path: path.join("."), problem });
        }
    }
    // Nothing reads them any more.
    remove(document, "queueVisibility");
    if let Some(integrations) = document.get_mut("integrations") {
        remove(integrations, "podOptions");
    }
    if is_enabled(document, "waitForPodsReady")?
        && let Some(wait) = document["waitForPodsReady"].as_object_mut()
        && wait.get("blockAdmission").is_none_or(Value::is_null)
    {
        wait.insert("blockAdmission".into(), true.into());
    }
    is_enabled(document, "fairSharing")?;
    write_defaults(document);
    document["apiVersion"] = json!("config.kueue.x-k8s.io/v1beta2");
    Ok(())
}

/// Writes out the defaults that v1beta2 has otherwise.
fn write_defaults(document: &mut Value) {
    let strategies = json!(["LessThanOrEqualToFinalShare", "LessThanInitialShare"]);
    let defaults =
        [("waitForPodsReady", "timeout", json!("5m0s")), ("fairSharing", "preemptionStrategies", strategies)];
    for (section, field, default) in defaults {
        if let Some(fields) = document.get_mut(section).and_then(Value::as_object_mut) {
            let is_empty = |value: &mut Value| value.is_null() || *value == json!([]);
            if fields.get_mut(field).is_none_or(is_empty) {
                fields.insert(field.into(), default);
            }
        }
    }
}

/// Removes the field `enable` of a section, and the section if it is not enabled. In v1beta2, the section is enabled by
/// its presence.
fn is_enabled(document: &mut Value, section: &str) -> Result<bool, ConfigError> {
    let Some(fields) = document.get_mut(section).and_then(Value::as_object_mut) else { return Ok(false) };
    let enable = fields.remove("enable").unwrap_or(Value::Null);
    if enable == true {
        return Ok(true);
    }
    if enable != false && !enable.is_null() {
        let problem = format!("expected true or false, found {enable}");
        return Err(ConfigError { path: format!("{section}.enable"), problem });
    }
    remove(document, section);
    Ok(false)
}

fn is_set(value: &Value, path: &[&str]) -> bool {
    match path {
        [] => true,
        ["*", rest @ ..] => value.as_array().is_some_and(|items| items.iter().any(|item| is_set(item, rest))),
        [field, rest @ ..] => value.get(field).is_some_and(|value| is_set(value, rest)),
    }
}

fn remove(value: &mut Value, field: &str) {
    if let Some(fields) = value.as_object_mut() {
        fields.remove(field);
    }
}
