//! Converts API types to types of `model`, and assignments to JSON and back.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::Amounts;
use api::pod::{Scheduling, Term, Toleration};
use model::{
    Amount, Assignment, Constraints, Effect, Operator, ResourceNames, ResourceVec, TolerationOperator,
};

use crate::wire;

/// Converts amounts; interns new resource names.
pub(crate) fn amounts(amounts: &Amounts, names: &mut ResourceNames) -> ResourceVec {
    amounts.iter().map(|(name, amount)| (names.intern(name), Amount(amount))).collect()
}

/// Converts a pod set.
pub(crate) fn pod_set(set: &api::demand::PodSet, names: &mut ResourceNames) -> model::PodSet {
    model::PodSet {
        name: set.name.clone(),
        count: set.count,
        request: amounts(&set.shape.request, names),
        constraints: constraints(&set.shape.scheduling),
        ..model::PodSet::default()
    }
}

pub(crate) fn constraints(rules: &Scheduling) -> Constraints {
    Constraints {
        node_selector: rules.node_selector.clone(),
        node_affinity: rules.node_affinity.iter().map(term).collect(),
        tolerations: rules.tolerations.iter().filter_map(toleration).collect(),
    }
}

/// The terms of nodes that pods prefer.
pub(crate) fn preferred(rules: &Scheduling) -> Arc<[(u32, model::Term)]> {
    rules.preferred.iter().map(|(weight, wanted)| (*weight, term(wanted))).collect()
}

pub(crate) fn term(term: &Term) -> model::Term {
    let requirements = |list: &[api::pod::Requirement]| list.iter().map(requirement).collect();
    model::Term { expressions: requirements(&term.expressions), fields: requirements(&term.fields) }
}

/// Converts a node selector requirement. An unknown operator matches no node; the API server rejects such pods.
fn requirement(requirement: &api::pod::Requirement) -> model::Requirement {
    let operator = match requirement.operator.as_str() {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        "Gt" => Operator::Gt,
        "Lt" => Operator::Lt,
        _ => {
            return model::Requirement {
                key: requirement.key.clone(),
                operator: Operator::In,
                values: Vec::new(),
            };
        }
    };
    model::Requirement { key: requirement.key.clone(), operator, values: requirement.values.clone() }
}

/// Converts a toleration; `None` for an unknown effect, which tolerates nothing.
pub(crate) fn toleration(toleration: &Toleration) -> Option<model::Toleration> {
    let known = match &toleration.effect {
        None => None,
        Some(text) => Some(effect(text)?),
    };
    let operator = if toleration.exists { TolerationOperator::Exists } else { TolerationOperator::Equal };
    Some(model::Toleration {
        key: toleration.key.clone(),
        operator,
        value: toleration.value.clone(),
        effect: known,
    })
}

pub(crate) fn effect(text: &str) -> Option<Effect> {
    match text {
        "NoSchedule" => Some(Effect::NoSchedule),
        "PreferNoSchedule" => Some(Effect::PreferNoSchedule),
        "NoExecute" => Some(Effect::NoExecute),
        _ => None,
    }
}

/// Converts a node. An invalid `allocatable` counts as empty, so that no pod is placed on the node.
pub(crate) fn node(node: wire::Node, names: &mut ResourceNames) -> model::Node {
    let allocatable = Amounts::read(&node.status.allocatable).unwrap_or_default();
    let taint = |taint: wire::Taint| {
        let effect = effect(&taint.effect)?;
        Some(model::Taint { key: taint.key, value: taint.value, effect })
    };
    model::Node {
        allocatable: amounts(&allocatable, names),
        ready: node.status.conditions.iter().any(|c| c.kind == "Ready" && c.status == "True"),
        unschedulable: node.spec.unschedulable,
        taints: node.spec.taints.into_iter().filter_map(taint).collect(),
        labels: node.metadata.labels,
        name: node.metadata.name,
    }
}

/// Formats an assignment as JSON: for each pod set, the number of pods by node.
///
/// ```
/// let pod_sets = vec![vec![("a".into(), 1), ("b".into(), 2)], vec![]];
/// let assignment = model::Assignment { pod_sets, ..Default::default() };
/// let text = index::assignment_to_json(&assignment);
/// assert_eq!(text, r#"[{"a":1,"b":2},{}]"#);
/// assert_eq!(index::assignment_from_json(&text), Some(assignment));
/// ```
pub fn assignment_to_json(assignment: &Assignment) -> String {
    let sets: Vec<BTreeMap<String, u32>> =
        assignment.pod_sets.iter().map(|set| places_by_node(set)).collect();
    serde_json::to_string(&sets).unwrap_or_default()
}

/// The number of places of a pod set by node. A node may occur several times in an assignment.
pub(crate) fn places_by_node(places: &[(String, u32)]) -> BTreeMap<String, u32> {
    let mut by_node = BTreeMap::new();
    for (node, pods) in places {
        *by_node.entry(node.clone()).or_default() += pods;
    }
    by_node
}

/// Parses the output of [`assignment_to_json`]; `None` for other text.
pub fn assignment_from_json(text: &str) -> Option<Assignment> {
    let sets: Vec<BTreeMap<String, u32>> = serde_json::from_str(text).ok()?;
    Some(Assignment {
        pod_sets: sets.into_iter().map(|set| set.into_iter().collect()).collect(),
        ..Assignment::default()
    })
}
