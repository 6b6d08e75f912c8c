//! Label selectors, and the pods that they select.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::Value;

use crate::value::{at, list, text};

/// Labels by key.
pub type Labels = BTreeMap<String, String>;

/// A label selector: all requirements must hold. Without requirements it selects everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LabelSelector(BTreeSet<Requirement>);

/// A requirement on one label.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Requirement {
    key: String,
    operator: Operator,
    values: BTreeSet<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

/// The pods that all of its parts select.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodSelector {
    /// The parts: more than one for the terms of a required affinity.
    pub parts: BTreeSet<NamespacedSelector>,
    /// Whether terminating pods are not selected, as for spread constraints.
    pub skips_terminating: bool,
}

/// A label selector with the namespaces in which it selects pods.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamespacedSelector {
    /// Labels of the pods.
    pub labels: LabelSelector,
    /// Names of namespaces.
    pub namespaces: BTreeSet<String>,
    /// Labels of further namespaces.
    pub namespace_labels: Option<LabelSelector>,
    /// A claim that the pods use; `None`: whatever claims.
    pub claim: Option<String>,
}

/// What selectors read of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SelectedPod {
    /// Namespace.
    pub namespace: String,
    /// Labels.
    pub labels: Labels,
    /// The names of the persistent volume claims that it uses.
    pub claims: BTreeSet<String>,
    /// Whether it is terminating.
    pub is_terminating: bool,
}

impl LabelSelector {
    /// Parses a selector; an absent one selects nothing. A requirement with an unknown operator holds for no labels: the
    /// API server rejects such objects.
    pub fn read(selector: &Value) -> Self {
        if !selector.is_object() {
            return Self::nothing();
        }
        let equal = at(selector, &["matchLabels"]).as_object().into_iter().flatten();
        let equal =
            equal.map(|(key, value)| Requirement::is_in(key, value.as_str().unwrap_or_default().to_owned()));
        let expressions = list(selector, &["matchExpressions"]).iter().map(Requirement::read);
        Self(equal.chain(expressions).collect())
    }

    /// The selector that selects nothing.
    pub fn nothing() -> Self {
        Self(BTreeSet::from([Requirement::never(String::new())]))
    }

    /// Whether it has no requirement, so that it selects everything.
    pub fn is_everything(&self) -> bool {
        self.0.is_empty()
    }

    /// The selector with one more requirement: the label has this value, or does not have it.
    #[must_use]
    pub fn with(mut self, key: &str, value: &str, is_equal: bool) -> Self {
        let operator = if is_equal { Operator::In } else { Operator::NotIn };
        self.0.insert(Requirement { operator, ..Requirement::is_in(key, value.to_owned()) });
        self
    }

    /// Whether it selects these labels.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.0.iter().all(|requirement| requirement.holds(labels.get(&requirement.key)))
    }

    /// The requirements that do not hold for these labels, as kubectl's `--selector` has them.
    pub fn unmet(&self, labels: &Labels) -> Vec<String> {
        let unmet = self.0.iter().filter(|requirement| !requirement.holds(labels.get(&requirement.key)));
        unmet.filter(|requirement| !requirement.key.is_empty()).map(Requirement::to_string).collect()
    }

    /// Whether it has requirements on this label alone.
    pub fn reads_only(&self, key: &str) -> bool {
        self.0.iter().all(|requirement| requirement.key == key)
    }

    /// Whether it may select these expected labels: a value that begins with `?` is not known yet.
    pub fn may_match(&self, labels: &Labels) -> bool {
        self.0.iter().all(|requirement| {
            let value = labels.get(&requirement.key);
            value.is_some_and(|value| value.starts_with('?')) || requirement.holds(value)
        })
    }
}

impl Requirement {
    fn is_in(key: &str, value: String) -> Self {
        Self { key: key.to_owned(), operator: Operator::In, values: BTreeSet::from([value]) }
    }

    fn never(key: String) -> Self {
        Self { key, operator: Operator::In, values: BTreeSet::new() }
    }

    fn read(expression: &Value) -> Self {
        let key = text(expression, &["key"]).unwrap_or_default().to_owned();
        let operator = match text(expression, &["operator"]) {
            Some("In") => Operator::In,
            Some("NotIn") => Operator::NotIn,
            Some("Exists") => Operator::Exists,
            Some("DoesNotExist") => Operator::DoesNotExist,
            _ => return Self::never(key),
        };
        let values = list(expression, &["values"]).iter().filter_map(Value::as_str);
        Self { key, operator, values: values.map(str::to_owned).collect() }
    }

    fn holds(&self, value: Option<&String>) -> bool {
        match self.operator {
            Operator::In => value.is_some_and(|value| self.values.contains(value)),
            Operator::NotIn => value.is_none_or(|value| !self.values.contains(value)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values: Vec<&str> = self.values.iter().map(String::as_str).collect();
        let key = &self.key;
        match (self.operator, &*values) {
            (Operator::In, [value]) => write!(f, "{key}={value}"),
            (Operator::NotIn, [value]) => write!(f, "{key}!={value}"),
            (Operator::In, values) => write!(f, "{key} in ({})", values.join(",")),
            (Operator::NotIn, values) => write!(f, "{key} notin ({})", values.join(",")),
            (Operator::Exists, _) => write!(f, "{key}"),
            (Operator::DoesNotExist, _) => write!(f, "!{key}"),
        }
    }
}

impl PodSelector {
    /// Whether it selects a pod. `namespace`: the labels of the pod's namespace.
    pub fn selects(&self, pod: &SelectedPod, namespace: &Labels) -> bool {
        !(self.skips_terminating && pod.is_terminating)
            && self.parts.iter().all(|part| part.selects(pod, namespace))
    }

    /// The only namespace in which it can select pods, if there is one.
    pub fn namespace(&self) -> Option<&str> {
        let mut only = self.parts.iter().filter(|part| part.namespace_labels.is_none());
        let only = only.find(|part| part.namespaces.len() == 1)?;
        only.namespaces.first().map(String::as_str)
    }

    /// Whether it depends on labels of namespaces.
    pub fn reads_namespaces(&self) -> bool {
        let mut selectors = self.parts.iter().filter_map(|part| part.namespace_labels.as_ref());
        selectors.any(|selector| !selector.is_everything())
    }
}

impl NamespacedSelector {
    /// The pods that use a claim.
    pub fn users_of(namespace: &str, claim: &str) -> Self {
        Self { namespaces: [namespace.to_owned()].into(), claim: Some(claim.to_owned()), ..Self::default() }
    }

    fn selects(&self, pod: &SelectedPod, namespace: &Labels) -> bool {
        let is_in_namespace = || {
            let by_labels = || self.namespace_labels.as_ref().is_some_and(|labels| labels.matches(namespace));
            self.namespaces.contains(&pod.namespace) || by_labels()
        };
        let uses_claim = self.claim.as_ref().is_none_or(|claim| pod.claims.contains(claim));
        uses_claim && is_in_namespace() && self.labels.matches(&pod.labels)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selectors_match_as_in_kubernetes() {
        let labels = Labels::from([("app".into(), "a".into()), ("tier".into(), String::new())]);
        let expression = |key: &str, operator: &str, values: &[&str]| json!({ "matchExpressions": [{ "key": key, "operator": operator, "values": values }] });
        let cases = [
            (Value::Null, false),
            (json!({}), true),
            (json!({ "matchLabels": {}, "matchExpressions": null }), true),
            (json!({ "matchLabels": { "app": "a" } }), true),
            (json!({ "matchLabels": { "app": "a", "other": "b" } }), false),
            (json!({ "matchLabels": { "tier": "" } }), true),
            (expression("app", "In", &["b", "a"]), true),
            (expression("app", "In", &["b"]), false),
            (expression("none", "In", &["b"]), false),
            (expression("app", "NotIn", &["b"]), true),
            (expression("app", "NotIn", &["a"]), false),
            (expression("none", "NotIn", &["a"]), true),
            (expression("app", "Exists", &[]), true),
            (expression("none", "Exists", &[]), false),
            (expression("none", "DoesNotExist", &[]), true),
            (expression("app", "DoesNotExist", &[]), false),
            (expression("app", "Gt", &["1"]), false),
            (json!({ "matchExpressions": [3, { "key": 4 }] }), false),
            (json!([{ "matchLabels": { "app": "a" } }]), false),
        ];
        for (selector, expected) in cases {
            assert_eq!(LabelSelector::read(&selector).matches(&labels), expected, "{selector}");
        }
        assert!(!LabelSelector::nothing().with("app", "a", true).matches(&labels));
        assert!(!LabelSelector::default().with("app", "a", false).matches(&labels));
    }
}
