//! Mutators: objects of the cluster by which admission changes or refuses pods. They tell which templates need a dry run.

use std::collections::BTreeMap;

use api::selector::{LabelSelector, Labels};
use serde_json::Value;

use crate::wire::mutators::{LimitRange, MutatingWebhook, MutatingWebhooks, RuntimeClass, WebhookRule};

/// A change of an object by which admission changes pods.
#[derive(Debug, Clone)]
pub enum MutatorChange {
    /// A `LimitRange` was added or modified.
    LimitRange(LimitRange),
    /// A `LimitRange` was deleted; its uid.
    LimitRangeDeleted(String),
    /// A runtime class was added or modified.
    RuntimeClass(RuntimeClass),
    /// A runtime class was deleted; its name.
    RuntimeClassDeleted(String),
    /// A configuration of mutating webhooks was added or modified.
    Webhooks(MutatingWebhooks),
    /// A configuration of mutating webhooks was deleted; its uid.
    WebhooksDeleted(String),
}

/// All mutators that concern pods.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mutators {
    /// The limits for containers and pods by namespace and uid.
    ranges: BTreeMap<String, BTreeMap<String, Vec<Value>>>,
    /// By name.
    classes: BTreeMap<String, RuntimeClass>,
    /// By uid of the configuration.
    webhooks: BTreeMap<String, Vec<Webhook>>,
}

/// What may change the pods of a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// Nothing.
    None,
    /// A `LimitRange` or a `RuntimeClass`, which read requests and the fields of scheduling only.
    Amounts,
    /// A webhook, which may read everything.
    Anything,
}

/// A pod template, as far as its mutators depend on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MutatedTemplate<'a> {
    pub(crate) namespace: &'a str,
    /// The labels of the namespace.
    pub(crate) namespace_labels: &'a Labels,
    /// The expected labels of the pods.
    pub(crate) labels: &'a Labels,
    pub(crate) runtime_class: Option<&'a str>,
}

/// A webhook that may change pods.
#[derive(Clone, Debug, PartialEq)]
struct Webhook {
    namespaces: LabelSelector,
    objects: LabelSelector,
    /// What it was read from: another one may change pods in another way.
    source: MutatingWebhook,
}

impl Webhook {
    fn read(source: MutatingWebhook) -> Option<Self> {
        let selector = |selector: &Value| {
            if selector.is_null() { LabelSelector::default() } else { LabelSelector::read(selector) }
        };
        source.rules.iter().any(WebhookRule::covers_pods).then(|| Self {
            namespaces: selector(&source.namespace_selector),
            objects: selector(&source.object_selector),
            source,
        })
    }
}

/// The namespaces whose pods a change of a mutator concerns.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Concerned {
    /// None.
    Nothing,
    /// One namespace.
    Namespace(String),
    /// The namespaces whose labels one of these selectors selects.
    Selected(Vec<LabelSelector>),
    /// The namespaces with a template that names this runtime class.
    RuntimeClass(String),
}

impl Mutators {
    /// What may change the pods of a template.
    pub(crate) fn mutation(&self, template: MutatedTemplate<'_>) -> Mutation {
        let selects = |webhook: &Webhook| {
            webhook.namespaces.matches(template.namespace_labels)
                && webhook.objects.may_match(template.labels)
        };
        if self.webhooks.values().flatten().any(selects) {
            return Mutation::Anything;
        }
        // A class that does not exist makes admission refuse the pod.
        let changes = |name| {
            self.classes
                .get(name)
                .is_none_or(|class| !class.overhead.is_null() || !class.scheduling.is_null())
        };
        if self.ranges.contains_key(template.namespace) || template.runtime_class.is_some_and(changes) {
            return Mutation::Amounts;
        }
        Mutation::None
    }

    /// The limits of a namespace, as items of its `LimitRange`s.
    pub(crate) fn limits(&self, namespace: &str) -> impl Iterator<Item = &Value> {
        self.ranges.get(namespace).into_iter().flat_map(BTreeMap::values).flatten()
    }

    /// What a runtime class adds to the requests of a pod.
    pub(crate) fn overhead(&self, class: &str) -> Option<&Value> {
        let overhead = &self.classes.get(class)?.overhead["podFixed"];
        (!overhead.is_null()).then_some(overhead)
    }

    /// Applies a change.
    pub(crate) fn apply(&mut self, change: MutatorChange) -> Concerned {
        match change {
            MutatorChange::LimitRange(range) => self.upsert_range(range),
            MutatorChange::LimitRangeDeleted(uid) => self.delete_range(&uid),
            MutatorChange::RuntimeClass(class) => self.upsert_class(class),
            MutatorChange::RuntimeClassDeleted(name) => self.delete_class(&name),
            MutatorChange::Webhooks(webhooks) => self.upsert_webhooks(webhooks),
            MutatorChange::WebhooksDeleted(uid) => self.delete_webhooks(&uid),
        }
    }

    /// Adds or updates a `LimitRange`. Its limits for claims do not matter.
    fn upsert_range(&mut self, range: LimitRange) -> Concerned {
        let namespace = range.metadata.namespace;
        let limits: Vec<Value> =
            range.spec.limits.into_iter().filter(|limit| limit["type"] != "PersistentVolumeClaim").collect();
        if limits.is_empty() {
            return self.delete_range(&range.metadata.uid);
        }
        let of_namespace = self.ranges.entry(namespace.clone()).or_default();
        if of_namespace.insert(range.metadata.uid, limits.clone()) == Some(limits) {
            return Concerned::Nothing;
        }
        Concerned::Namespace(namespace)
    }

    /// Removes a deleted `LimitRange`.
    fn delete_range(&mut self, uid: &str) -> Concerned {
        let mut all = self.ranges.iter_mut();
        let removed = all.find_map(|(namespace, ranges)| ranges.remove(uid).map(|_| namespace.clone()));
        self.ranges.retain(|_, ranges| !ranges.is_empty());
        removed.map_or(Concerned::Nothing, Concerned::Namespace)
    }

    /// Adds or updates a `RuntimeClass`.
    fn upsert_class(&mut self, class: RuntimeClass) -> Concerned {
        let name = class.metadata.name.clone();
        let content = |class: &RuntimeClass| (class.overhead.clone(), class.scheduling.clone());
        let new = content(&class);
        match self.classes.insert(name.clone(), class) {
            Some(old) if content(&old) == new => Concerned::Nothing,
            Some(_) | None => Concerned::RuntimeClass(name),
        }
    }

    /// Removes a deleted `RuntimeClass`.
    fn delete_class(&mut self, name: &str) -> Concerned {
        let removed = self.classes.remove(name);
        removed.map_or(Concerned::Nothing, |_| Concerned::RuntimeClass(name.to_owned()))
    }

    /// Adds or updates a `MutatingWebhookConfiguration`. A new certificate changes nothing.
    fn upsert_webhooks(&mut self, configuration: MutatingWebhooks) -> Concerned {
        let new: Vec<Webhook> = configuration.webhooks.into_iter().filter_map(Webhook::read).collect();
        let uid = configuration.metadata.uid;
        if self.webhooks.get(&uid).map_or(&[][..], Vec::as_slice) == new {
            return Concerned::Nothing;
        }
        let old = self.webhooks.remove(&uid).unwrap_or_default();
        let concerned = selected(old.iter().chain(&new));
        if !new.is_empty() {
            self.webhooks.insert(uid, new);
        }
        concerned
    }

    /// Removes a deleted `MutatingWebhookConfiguration`.
    fn delete_webhooks(&mut self, uid: &str) -> Concerned {
        let removed = self.webhooks.remove(uid);
        removed.map_or(Concerned::Nothing, |webhooks| selected(webhooks.iter()))
    }

    /// Whether the labels of namespaces matter.
    pub(crate) fn reads_namespaces(&self) -> bool {
        self.webhooks.values().flatten().any(|webhook| !webhook.namespaces.is_everything())
    }
}

fn selected<'a>(webhooks: impl Iterator<Item = &'a Webhook>) -> Concerned {
    Concerned::Selected(webhooks.map(|webhook| webhook.namespaces.clone()).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn mutation(mutators: &Mutators, pod: &Labels, class: Option<&str>) -> Mutation {
        let namespace_labels = labels(&[("team", "a")]);
        mutators.mutation(MutatedTemplate {
            namespace: "a",
            namespace_labels: &namespace_labels,
            labels: pod,
            runtime_class: class,
        })
    }

    fn with_webhook(change: impl FnOnce(&mut Value)) -> Mutators {
        let mut webhook = json!({ "name": "sidecar.example.com", "sideEffects": "None",
            "rules": [{ "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"] }] });
        change(&mut webhook);
        let configuration = json!({ "metadata": { "name": "w", "uid": "w" }, "webhooks": [webhook] });
        let mut mutators = Mutators::default();
        mutators.upsert_webhooks(serde_json::from_value(configuration).unwrap());
        mutators
    }

    #[test]
    fn a_webhook_concerns_the_pods_that_its_rules_and_selectors_select() {
        let rule =
            |field: &'static str, value: Value| move |webhook: &mut Value| webhook["rules"][0][field] = value;
        let selector = |field: &'static str, value: Value| move |webhook: &mut Value| webhook[field] = value;
        let pod = labels(&[("app", "x"), ("controller-uid", "?")]);
        let is_found = |mutators: Mutators| mutation(&mutators, &pod, None) == Mutation::Anything;
        assert!(is_found(with_webhook(|_| {})));
        assert!(is_found(with_webhook(rule("resources", json!(["*/*"])))));
        assert!(is_found(with_webhook(rule("scope", json!("Namespaced")))));
        assert!(is_found(with_webhook(selector(
            "namespaceSelector",
            json!({ "matchLabels": { "team": "a" } })
        ))));
        assert!(is_found(with_webhook(selector("objectSelector", json!({ "matchLabels": { "app": "x" } })))));
        let unknown = json!({ "matchLabels": { "controller-uid": "7" } });
        assert!(is_found(with_webhook(selector("objectSelector", unknown))), "the value is not known yet");
        assert!(!is_found(with_webhook(rule("operations", json!(["UPDATE"])))));
        assert!(!is_found(with_webhook(rule("apiGroups", json!(["apps"])))));
        assert!(!is_found(with_webhook(rule("resources", json!(["pods/status"])))));
        assert!(!is_found(with_webhook(rule("scope", json!("Cluster")))));
        assert!(!is_found(with_webhook(selector(
            "namespaceSelector",
            json!({ "matchLabels": { "team": "b" } })
        ))));
        assert!(!is_found(with_webhook(selector(
            "objectSelector",
            json!({ "matchLabels": { "app": "y" } })
        ))));
    }

    #[test]
    fn a_limit_range_concerns_its_namespace_and_a_class_the_templates_that_name_it() {
        let pod = Labels::new();
        let range = |namespace: &str, kind: &str| {
            let range = json!({ "metadata": { "namespace": namespace, "name": "r", "uid": "r" },
                "spec": { "limits": [{ "type": kind }] } });
            serde_json::from_value::<LimitRange>(range).unwrap()
        };
        let mut mutators = Mutators::default();
        assert_eq!(mutation(&mutators, &pod, None), Mutation::None);
        assert_eq!(mutation(&mutators, &pod, Some("gone")), Mutation::Amounts, "the pods are refused");
        mutators.upsert_class(serde_json::from_value(json!({ "metadata": { "name": "plain" } })).unwrap());
        assert_eq!(mutation(&mutators, &pod, Some("plain")), Mutation::None);
        mutators.upsert_range(range("b", "Container"));
        assert_eq!(mutation(&mutators, &pod, None), Mutation::None);
        assert_eq!(mutators.upsert_range(range("a", "Container")), Concerned::Namespace("a".into()));
        assert_eq!(mutators.upsert_range(range("a", "Container")), Concerned::Nothing);
        assert_eq!(mutation(&mutators, &pod, None), Mutation::Amounts);
        mutators.upsert_range(range("a", "PersistentVolumeClaim"));
        assert_eq!(mutation(&mutators, &pod, None), Mutation::None);
    }
}
