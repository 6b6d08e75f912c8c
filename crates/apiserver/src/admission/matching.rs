//! Which webhooks are called for a write: rules, selectors and match conditions.

use std::sync::Arc;

use serde_json::Value;

use super::conditions;
use super::configuration::Webhook;
use crate::convert;
use crate::object;
use crate::registry::Resource;
use crate::selector::Selector;
use crate::server::ApiServer;
use crate::status::Status;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Create,
    Update,
    Delete,
}

impl Operation {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }
}

/// A write that webhooks review. Objects are in the version of the resource.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attributes<'a> {
    pub(super) resource: &'a Arc<Resource>,
    /// Empty for the object itself.
    pub(super) subresource: &'a str,
    pub(super) operation: Operation,
    pub(super) object: Option<&'a Value>,
    pub(super) old: Option<&'a Value>,
    pub(super) is_dry_run: bool,
    /// The `CreateOptions`, `UpdateOptions`, `PatchOptions` or `DeleteOptions` of the request.
    pub(super) options: &'a Value,
}

impl<'a> Attributes<'a> {
    /// The new object, else the stored one.
    pub(super) fn any_object(&self) -> &'a Value {
        self.object.or(self.old).unwrap_or(&Value::Null)
    }

    fn is_namespace(&self) -> bool {
        &*self.resource.storage == "namespaces"
    }

    /// The namespace of the object; of a namespace, its own name.
    pub(super) fn namespace(&self) -> &'a str {
        let object = self.any_object();
        if self.is_namespace() { object::name(object) } else { object::namespace(object) }
    }
}

/// What a webhook is asked about a write.
#[derive(Debug)]
pub(super) struct Question {
    /// The version of the resource that it reviews. It differs from that of the request if the rules name another one
    /// (`matchPolicy: Equivalent`).
    pub(super) version: Arc<Resource>,
    /// The `request` of the review, without its uid.
    pub(super) request: Value,
}

impl ApiServer {
    /// What a webhook is asked about the write; `None` if it does not review it.
    ///
    /// # Errors
    /// The version cannot express an object, or a match condition cannot be evaluated and the webhook does not ignore
    /// failures.
    pub(super) fn question(
        &self,
        webhook: &Webhook,
        write: &Attributes<'_>,
    ) -> Result<Option<Question>, Status> {
        let Some(version) = self.matched_version(webhook, write) else { return Ok(None) };
        if !self.is_selected(webhook, write) {
            return Ok(None);
        }
        let request = self.request(write, &version)?;
        match conditions::all_hold(object::items(&webhook.spec, &["matchConditions"]), &request) {
            Ok(holds) => Ok(holds.then_some(Question { version, request })),
            Err(why) if webhook.ignores_failures() => {
                tracing::warn!(webhook = webhook.name, "cannot evaluate a match condition: {why}");
                Ok(None)
            }
            Err(why) => {
                let Resource { group, plural, .. } = &**write.resource;
                Err(Status::forbidden(group, plural, object::name(write.any_object()), &why))
            }
        }
    }

    fn matched_version(&self, webhook: &Webhook, write: &Attributes<'_>) -> Option<Arc<Resource>> {
        let rules = object::items(&webhook.spec, &["rules"]);
        let matches = |resource: &Resource| rules.iter().any(|rule| matches_rule(rule, resource, write));
        if matches(write.resource) {
            return Some(write.resource.clone());
        }
        if object::text(&webhook.spec, &["matchPolicy"]) == "Exact" || !is_of_resource(write) {
            return None;
        }
        let mut others = self.registry.all().filter(|other| other.storage == write.resource.storage);
        others.find(|other| matches(other)).cloned()
    }

    fn is_selected(&self, webhook: &Webhook, write: &Attributes<'_>) -> bool {
        let selector = |name: &str| webhook.spec.get(name).map(Selector::from_value).unwrap_or_default();
        let (by_namespace, by_object) = (selector("namespaceSelector"), selector("objectSelector"));
        let has_labels = |selector: &Selector, value: &Value| {
            selector.matches(|key| object::get(value, &["metadata", "labels", key]).and_then(Value::as_str))
        };
        let in_namespace = if write.is_namespace() {
            has_labels(&by_namespace, write.any_object())
        } else if write.resource.namespaced && !by_namespace.is_empty() {
            let stored = self.store.get("namespaces", write.namespace());
            stored.is_some_and(|namespace| has_labels(&by_namespace, &namespace.value()))
        } else {
            true
        };
        let candidates = [write.object, write.old];
        in_namespace
            && (by_object.is_empty()
                || candidates.into_iter().flatten().any(|object| has_labels(&by_object, object)))
    }

    /// The object, which is in the version `from`, in another version of the resource.
    pub(super) fn converted(&self, from: &Resource, to: &Resource, value: Value) -> Result<Value, Status> {
        if from.api_version() == to.api_version() {
            return Ok(value);
        }
        Ok(convert::from_storage(to, self.to_store(from, value)?))
    }
}

/// Whether the written object is one of the resource. It is not for a scale, a binding or an eviction.
fn is_of_resource(write: &Attributes<'_>) -> bool {
    object::text(write.any_object(), &["kind"]) == write.resource.kind
}

fn matches_rule(rule: &Value, resource: &Resource, write: &Attributes<'_>) -> bool {
    let lists = |field: &str, wanted: &str| {
        object::texts(rule, &[field]).any(|listed| listed == "*" || listed == wanted)
    };
    let in_scope = match object::text(rule, &["scope"]) {
        "Namespaced" => resource.namespaced,
        "Cluster" => !resource.namespaced,
        _ => true,
    };
    let names_resource = object::texts(rule, &["resources"]).any(|listed| {
        let (plural, subresource) = listed.split_once('/').unwrap_or((listed, ""));
        (plural == "*" || plural == resource.plural)
            && (subresource == "*" || subresource == write.subresource)
    });
    in_scope
        && names_resource
        && lists("operations", write.operation.name())
        && lists("apiGroups", &resource.group)
        && lists("apiVersions", &resource.version)
}
