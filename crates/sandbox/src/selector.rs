//! Matching of label selectors, node selector terms and tolerations.

use std::collections::BTreeMap;

use crate::wire::{LabelSelector, Node, NodeSelectorTerm, Requirement, Taint, Toleration};

impl LabelSelector {
    /// Whether there is no requirement.
    pub(crate) fn is_empty(&self) -> bool {
        self.match_labels.is_empty() && self.match_expressions.is_empty()
    }

    /// Whether labels satisfy all requirements. An empty selector matches any labels.
    pub(crate) fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self
                .match_expressions
                .iter()
                .all(|requirement| requirement.holds(labels.get(&requirement.key)))
    }
}

impl Requirement {
    /// Whether the value of the label or field satisfies the requirement.
    fn holds(&self, value: Option<&String>) -> bool {
        let listed = || value.is_some_and(|value| self.values.contains(value));
        let compare = |wanted: std::cmp::Ordering| {
            let (Some(value), [bound]) = (value, self.values.as_slice()) else { return false };
            let (Ok(value), Ok(bound)) = (value.parse::<i64>(), bound.parse::<i64>()) else { return false };
            value.cmp(&bound) == wanted
        };
        match self.operator.as_str() {
            "In" => listed(),
            "NotIn" => !listed(),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            "Gt" => compare(std::cmp::Ordering::Greater),
            "Lt" => compare(std::cmp::Ordering::Less),
            _ => false,
        }
    }
}

impl NodeSelectorTerm {
    /// Whether the node satisfies all requirements. An empty term matches no node, as in Kubernetes.
    pub(crate) fn matches(&self, node: &Node) -> bool {
        if self.match_expressions.is_empty() && self.match_fields.is_empty() {
            return false;
        }
        let labels = &node.metadata.labels;
        let field = |key: &str| (key == "metadata.name").then_some(&node.metadata.name);
        self.match_expressions.iter().all(|requirement| requirement.holds(labels.get(&requirement.key)))
            && self.match_fields.iter().all(|requirement| requirement.holds(field(&requirement.key)))
    }
}

impl Toleration {
    /// Whether the toleration tolerates the taint.
    pub(crate) fn tolerates(&self, taint: &Taint) -> bool {
        if (!self.effect.is_empty() && self.effect != taint.effect)
            || (!self.key.is_empty() && self.key != taint.key)
        {
            return false;
        }
        match self.operator.as_str() {
            "Exists" => true,
            "" | "Equal" => self.value == taint.value && !self.key.is_empty(),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn requirements_match_as_in_kubernetes() {
        let labels: BTreeMap<String, String> =
            [("zone", "a"), ("cores", "8")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        for (key, operator, values, expected) in [
            ("zone", "In", vec!["a", "b"], true),
            ("zone", "NotIn", vec!["b"], true),
            ("none", "NotIn", vec!["b"], true),
            ("none", "In", vec!["b"], false),
            ("zone", "Exists", vec![], true),
            ("zone", "DoesNotExist", vec![], false),
            ("cores", "Gt", vec!["7"], true),
            ("cores", "Lt", vec!["8"], false),
            ("zone", "Gt", vec!["7"], false),
        ] {
            let selector: LabelSelector = serde_json::from_value(
                json!({ "matchExpressions": [{ "key": key, "operator": operator, "values": values }] }),
            )
            .unwrap();
            assert_eq!(selector.matches(&labels), expected, "{key} {operator} {values:?}");
        }
    }

    #[test]
    fn tolerations_match_taints_by_key_value_and_effect() {
        let taint: Taint =
            serde_json::from_value(json!({ "key": "gpu", "value": "yes", "effect": "NoSchedule" })).unwrap();
        for (toleration, expected) in [
            (json!({ "operator": "Exists" }), true),
            (json!({ "key": "gpu", "operator": "Exists" }), true),
            (json!({ "key": "gpu", "value": "yes" }), true),
            (json!({ "key": "gpu", "value": "no" }), false),
            (json!({ "key": "gpu", "operator": "Exists", "effect": "NoExecute" }), false),
            (json!({ "key": "other", "operator": "Exists" }), false),
        ] {
            let parsed: Toleration = serde_json::from_value(toleration.clone()).unwrap();
            assert_eq!(parsed.tolerates(&taint), expected, "{toleration}");
        }
    }
}
