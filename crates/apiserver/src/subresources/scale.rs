//! The `scale` subresource (`autoscaling/v1` `Scale`) of built-in and custom resources.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::convert;
use crate::object;
use crate::patch;
use crate::registry::Resource;
use crate::request::{Call, Target, parse_json};
use crate::response::Answer;
use crate::server::ApiServer;
use crate::status::{Cause, Status};
use crate::store::Object;
use crate::write::WriteOptions;

/// Field paths of the values in a `Scale`.
struct Paths {
    spec_replicas: Vec<String>,
    status_replicas: Vec<String>,
    selector: Vec<String>,
}

fn paths(resource: &Resource) -> Paths {
    let path = |text: &str| text.split('.').filter(|part| !part.is_empty()).map(String::from).collect();
    match resource.custom.as_ref().and_then(|custom| custom.scale.as_ref()) {
        Some(scale) => Paths {
            spec_replicas: path(object::text(scale, &["specReplicasPath"])),
            status_replicas: path(object::text(scale, &["statusReplicasPath"])),
            selector: path(object::text(scale, &["labelSelectorPath"])),
        },
        None => Paths {
            spec_replicas: path("spec.replicas"),
            status_replicas: path("status.replicas"),
            selector: Vec::new(),
        },
    }
}

fn as_strs(path: &[String]) -> Vec<&str> {
    path.iter().map(String::as_str).collect()
}

/// Formats a label selector as a query string: terms sorted by key, values sorted.
fn selector_text(selector: Option<&Value>) -> String {
    let Some(selector) = selector else { return String::new() };
    // The selector of a replication controller is a plain map of labels.
    let labels = object::map(selector, &["matchLabels"])
        .or_else(|| selector.as_object().filter(|map| map.values().all(Value::is_string)));
    let mut terms: Vec<(&str, String)> = labels
        .into_iter()
        .flatten()
        .map(|(key, value)| (key.as_str(), format!("{key}={}", value.as_str().unwrap_or_default())))
        .collect();
    for expression in object::items(selector, &["matchExpressions"]) {
        let key = object::text(expression, &["key"]);
        let mut values: Vec<&str> = object::texts(expression, &["values"]).collect();
        values.sort_unstable();
        let term = match object::text(expression, &["operator"]) {
            "In" => format!("{key} in ({})", values.join(",")),
            "NotIn" => format!("{key} notin ({})", values.join(",")),
            "Exists" => key.to_owned(),
            _ => format!("!{key}"),
        };
        terms.push((key, term));
    }
    terms.sort_by_key(|(key, _)| *key);
    terms.into_iter().map(|(_, term)| term).collect::<Vec<_>>().join(",")
}

pub(crate) fn scale_of(resource: &Resource, value: &Value) -> Value {
    let paths = paths(resource);
    let number = |path: &[String]| object::int(value, &as_strs(path));
    let mut metadata = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(found) = object::get(value, &["metadata", field]) {
            metadata[field] = found.clone();
        }
    }
    let mut status = json!({ "replicas": number(&paths.status_replicas).unwrap_or(0) });
    let selector = if resource.custom.is_some() {
        object::text(value, &as_strs(&paths.selector)).to_owned()
    } else {
        selector_text(object::get(value, &["spec", "selector"]))
    };
    if !selector.is_empty() {
        status["selector"] = selector.into();
    }
    json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": { "replicas": number(&paths.spec_replicas).unwrap_or(0) },
        "status": status,
    })
}

impl ApiServer {
    pub(super) fn read_scale(&self, target: &Target, resource: &Arc<Resource>) -> Result<Answer, Status> {
        let live = self.find(target, resource)?;
        let value = convert::from_storage(resource, live.value());
        Ok(Answer::Value { code: 200, value: scale_of(resource, &value) })
    }

    pub(super) fn write_scale(
        &mut self,
        call: &mut Call<'_>,
        target: &Target,
        resource: &Arc<Resource>,
    ) -> Result<Answer, Status> {
        let live = self.find(target, resource)?;
        let value = convert::from_storage(resource, live.value());
        let scale = requested_scale(call, &scale_of(resource, &value))?;
        check(resource, &live, &scale)?;
        let replicas = object::int(&scale, &["spec", "replicas"]).unwrap_or(0);
        let mut new = value;
        let path = paths(resource).spec_replicas;
        object::set(&mut new, &as_strs(&path), replicas);
        let options = WriteOptions::of(call, "scale")?;
        let written = self.replace(&options, target, resource, &live, new, &mut call.warnings)?;
        let value = convert::from_storage(resource, written.into_value());
        Ok(Answer::Value { code: 200, value: scale_of(resource, &value) })
    }
}

/// The requested scale: the body of a PUT, or a patch applied to the current scale.
fn requested_scale(call: &Call<'_>, current: &Value) -> Result<Value, Status> {
    if call.method == http::Method::PUT {
        return call.decode_body();
    }
    let document = parse_json(&call.body)?;
    let patched = match call.content_type() {
        "application/json-patch+json" => patch::json(current, &document),
        // A scale has no lists, so a strategic merge patch equals a JSON merge patch.
        "application/merge-patch+json" | "application/strategic-merge-patch+json" => {
            patch::merge(current, &document)
        }
        "application/apply-patch+yaml" => patch::merge(current, &document),
        _ => {
            return Err(Status::unsupported_media(
                "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
            ));
        }
    };
    patched.map_err(|error| Status::other(error.code(), error.reason(), error.message()))
}

fn check(resource: &Resource, live: &Object, scale: &Value) -> Result<(), Status> {
    let name = object::name(scale);
    if !name.is_empty() && name != live.name() {
        return Err(Status::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            live.name()
        )));
    }
    let uid = object::uid(scale);
    if !uid.is_empty() && uid != &*live.uid {
        let why =
            format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {}", live.uid);
        return Err(Status::conflict(&resource.group, &resource.plural, live.name(), &why));
    }
    let version = object::text(scale, &["metadata", "resourceVersion"]);
    if !version.is_empty() && version != live.revision.to_string() {
        return Err(Status::modified(&resource.group, &resource.plural, live.name()));
    }
    match object::get(scale, &["spec", "replicas"]) {
        None => Ok(()),
        Some(number) if number.as_i64().is_some_and(|n| (0..=i64::from(i32::MAX)).contains(&n)) => Ok(()),
        Some(other) => {
            let cause = Cause::invalid("spec.replicas", other, "must be greater than or equal to 0");
            Err(Status::invalid("autoscaling", "Scale", live.name(), vec![cause]))
        }
    }
}
