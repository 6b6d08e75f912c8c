//! The webhook configurations where Kueue is not installed: for Kueue's kinds, and for the jobs that are managed.

use api::kueue::jobs::QUEUE_NAME;
use api::kueue::jobs::pods::{MANAGED, SUSPENDED_BY};
use api::kueue::webhooks::ReviewedKind;
use kube::api::ApiResource;
use serde_json::{Value, json};

use super::paths::{self, Hook};
use crate::registration::resource;

/// So long the API server waits for an answer.
const TIMEOUT_S: u32 = 10;
/// So long it waits for the defaults of a job without a queue, which it creates without them.
const UNNAMED_TIMEOUT_S: u32 = 2;
/// What a webhook of Kueue's kinds reviews.
const OWN_CONTENT: [&str; 3] = ["spec", "status", "metadata.annotations"];
/// What a webhook of jobs reviews.
const JOB_CONTENT: [&str; 3] = ["spec", "metadata.labels", "metadata.annotations"];

/// Whether a request creates an object or changes one of the fields, in CEL. Other requests, such as those that remove
/// finalizers, go on without a webhook.
fn is_new(fields: &[&str]) -> String {
    let changed = |field: &&str| {
        format!(
            "has(object.{field}) != has(oldObject.{field}) || has(object.{field}) && object.{field} != oldObject.{field}"
        )
    };
    let changed: Vec<String> = fields.iter().map(changed).collect();
    format!("request.operation == 'CREATE' || {}", changed.join(" || "))
}

/// Whether an object has a key in its labels or annotations, in CEL.
fn has_key(object: &str, field: &str, key: &str) -> String {
    format!("has({object}.metadata.{field}) && '{key}' in {object}.metadata.{field}")
}

/// The jobs for which webhooks are registered.
#[derive(Debug, Clone, Default)]
pub struct RegisteredJobs {
    /// Their kinds.
    pub kinds: Vec<ReviewedKind>,
    /// Whether jobs without the label of a queue are managed, too.
    pub manages_unnamed: bool,
    /// The selector of their namespaces, as it is written in an object.
    pub namespaces: Value,
    /// Pods wait only if a set of pods holds them back.
    pub pods_of_sets_only: bool,
}

/// The two kinds of configurations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Mutating,
    Validating,
}

impl Verb {
    pub(super) const ALL: [Self; 2] = [Self::Mutating, Self::Validating];

    /// The word in names.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Mutating => "mutating",
            Self::Validating => "validating",
        }
    }

    /// The name of the webhook for a resource.
    fn webhook(self, resource: &str) -> String {
        format!("{}{}.kb.io", &self.word()[..1], resource.trim_end_matches('s'))
    }

    pub(super) fn resource(self) -> ApiResource {
        let (kind, plural) = match self {
            Self::Mutating => ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
            Self::Validating => ("ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
        };
        resource("admissionregistration.k8s.io", "v1", kind, plural)
    }
}

impl RegisteredJobs {
    /// The configuration. `client_config` says where a path is served.
    pub(super) fn configuration(&self, verb: Verb, client_config: &dyn Fn(&str) -> Value) -> Value {
        let mut webhooks = Vec::new();
        for (path, hook) in paths::all() {
            let (resource, of, operations) = match hook {
                Hook::Default(resource) => (resource, Verb::Mutating, &["CREATE"][..]),
                Hook::Validate(resource) => (resource, Verb::Validating, &["CREATE", "UPDATE"][..]),
                Hook::DefaultJob(resource) => {
                    webhooks.extend(self.of_kind(verb, Verb::Mutating, resource, &client_config(&path)));
                    continue;
                }
                Hook::ValidateJob(resource) => {
                    webhooks.extend(self.of_kind(verb, Verb::Validating, resource, &client_config(&path)));
                    continue;
                }
                Hook::Convert => continue,
            };
            if of != verb {
                continue;
            }
            let mut resources = vec![resource.to_owned()];
            if (resource, verb) == ("workloads", Verb::Validating) {
                resources.push("workloads/status".into());
            }
            let rule = json!({"apiGroups": [api::kueue::GROUP], "apiVersions": [api::kueue::V1BETA2],
                "resources": resources, "operations": operations});
            let condition =
                json!({"name": "spec-status-or-annotations-are-new", "expression": is_new(&OWN_CONTENT)});
            webhooks.push(json!({
                "name": verb.webhook(resource), "admissionReviewVersions": ["v1"], "sideEffects": "None",
                "failurePolicy": "Fail", "matchPolicy": "Equivalent", "timeoutSeconds": TIMEOUT_S,
                "rules": [rule], "matchConditions": [condition], "clientConfig": client_config(&path),
            }));
        }
        json!({"webhooks": webhooks})
    }

    /// The webhooks of a kind of jobs, if it is managed. An outage blocks managed jobs alone: those with the label of a queue,
    /// unless others are managed, too. A job without the label may get a queue by default, so its creation asks, and goes on
    /// without an answer.
    fn of_kind(&self, verb: Verb, of: Verb, resource: &str, client_config: &Value) -> Vec<Value> {
        let kind = self.kinds.iter().find(|kind| kind.plural == resource).filter(|_| of == verb);
        let Some(kind) = kind else { return Vec::new() };
        let has_updates = verb == Verb::Validating || kind.is_set_of_pods();
        let operations = if has_updates { &["CREATE", "UPDATE"][..] } else { &["CREATE"] };
        let rule = json!({"apiGroups": [kind.group()], "apiVersions": [kind.version()], "resources": [resource],
            "operations": operations});
        let webhook = |name: String, policy: &str, timeout_s: u32, named: Option<String>| {
            let named = named.map(|named| json!({"name": "the-queue-decides", "expression": named}));
            let new =
                json!({"name": "spec-labels-or-annotations-are-new", "expression": is_new(&JOB_CONTENT)});
            let conditions: Vec<Value> = named.into_iter().chain([new]).collect();
            json!({
                "name": name, "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": policy,
                "matchPolicy": "Equivalent", "timeoutSeconds": timeout_s, "rules": [rule],
                "namespaceSelector": self.namespaces, "matchConditions": conditions,
                "clientConfig": client_config,
            })
        };
        let name = verb.webhook(resource);
        // Pods that no queue is for have to start even then.
        if self.manages_unnamed && !kind.is_pod() {
            return vec![webhook(name, "Fail", TIMEOUT_S, None)];
        }
        let (is_named, was_named) = (self.is_for_queue(kind, "object"), self.is_for_queue(kind, "oldObject"));
        let either = format!("{is_named} || request.operation == 'UPDATE' && ({was_named})");
        let may_be_named = verb == Verb::Mutating && !(kind.is_pod() && self.pods_of_sets_only);
        let unnamed = may_be_named.then(|| {
            let name = format!("unnamed-{name}");
            webhook(name, "Ignore", UNNAMED_TIMEOUT_S, Some(format!("!({is_named})")))
        });
        [webhook(name, "Fail", TIMEOUT_S, Some(either))].into_iter().chain(unnamed).collect()
    }

    /// Whether an object is for a queue, in CEL.
    fn is_for_queue(&self, kind: &ReviewedKind, object: &str) -> String {
        let is_named = has_key(object, "labels", QUEUE_NAME);
        if !kind.is_pod() {
            return is_named;
        }
        let is_held = has_key(object, "annotations", SUSPENDED_BY);
        if self.pods_of_sets_only {
            is_held
        } else {
            format!("{is_named} || {} || {is_held}", has_key(object, "labels", MANAGED))
        }
    }
}
