//! Node selectors, node affinity and tolerations of a pod set, and the reasons why a node is not eligible.

use std::collections::BTreeMap;
use std::fmt;

use crate::node::{Effect, Node, NodeClass, Taint, Toleration};

/// The scheduling constraints of a pod other than resources. The default has no requirement and no toleration.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Constraints {
    /// Labels that the node must have.
    pub node_selector: BTreeMap<String, String>,
    /// Required node affinity: at least one term must match. Empty: every node matches.
    pub node_affinity: Vec<Term>,
    /// Tolerations for taints of the node.
    pub tolerations: Vec<Toleration>,
}

/// A node selector term: all of its requirements must hold. A term without requirements matches no node.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term {
    /// Requirements on labels.
    pub expressions: Vec<Requirement>,
    /// Requirements on fields. The only field is `metadata.name`.
    pub fields: Vec<Requirement>,
}

/// A node selector requirement on one label or field.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Requirement {
    /// The label's key or the field's path.
    pub key: String,
    /// The operator.
    pub operator: Operator,
    /// The values; one integer for `Gt` and `Lt`, none for `Exists` and `DoesNotExist`.
    pub values: Vec<String>,
}

/// The operators of Kubernetes' node selector requirements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operator {
    /// The value is one of the given values.
    In,
    /// The key is absent, or its value is none of the given values.
    NotIn,
    /// The key is present.
    Exists,
    /// The key is absent.
    DoesNotExist,
    /// The value is an integer above the given one.
    Gt,
    /// The value is an integer below the given one.
    Lt,
}

/// Why the nodes of a class are not eligible for a pod set.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Obstacle {
    /// A label of the node selector is absent or has another value.
    Selector {
        /// The label's key.
        key: String,
        /// The required value.
        value: String,
    },
    /// No term of the required node affinity matches.
    Affinity,
    /// The pod set does not tolerate a taint.
    Taint(Taint),
    /// The node is not ready.
    NotReady,
    /// The node is cordoned.
    Unschedulable,
    /// The gang excludes this node: its pods failed there.
    Excluded,
}

impl Obstacle {
    /// Whether the obstacle is a state of the node that may change (not ready, cordoned), and not a property of the
    /// node.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::NotReady | Self::Unschedulable)
    }
}

impl Constraints {
    /// Returns the first obstacle that makes nodes of `class` ineligible, or `None` when they are eligible.
    ///
    /// The order is node selector, node affinity, taints, readiness, cordon. Obstacles that remain after a node
    /// becomes ready and is uncordoned come first.
    pub fn obstacle(&self, class: &NodeClass) -> Option<Obstacle> {
        for (key, value) in &self.node_selector {
            if class.labels.get(key) != Some(value) {
                return Some(Obstacle::Selector { key: key.clone(), value: value.clone() });
            }
        }
        if !self.node_affinity.is_empty() && !self.node_affinity.iter().any(|term| term.matches(class)) {
            return Some(Obstacle::Affinity);
        }
        for taint in &class.taints {
            let matters = taint.effect != Effect::PreferNoSchedule;
            if matters && !self.tolerations.iter().any(|toleration| toleration.covers(taint)) {
                return Some(Obstacle::Taint(taint.clone()));
            }
        }
        if !class.ready {
            return Some(Obstacle::NotReady);
        }
        class.unschedulable.then_some(Obstacle::Unschedulable)
    }

    /// The keys of all labels that the constraints refer to.
    pub fn label_keys(&self) -> impl Iterator<Item = &str> {
        let expressions = self.node_affinity.iter().flat_map(|term| &term.expressions);
        self.node_selector.keys().map(String::as_str).chain(expressions.map(|wanted| wanted.key.as_str()))
    }

    /// Whether the constraints refer to the name of a node.
    pub fn uses_node_name(&self) -> bool {
        self.node_affinity.iter().any(|term| !term.fields.is_empty())
    }
}

impl Term {
    /// Whether a node matches, by all its labels.
    pub fn matches_node(&self, node: &Node) -> bool {
        self.holds(&node.labels, Some(&node.name))
    }

    fn matches(&self, class: &NodeClass) -> bool {
        self.holds(&class.labels, class.name.as_deref())
    }

    fn holds(&self, labels: &BTreeMap<String, String>, name: Option<&str>) -> bool {
        let empty = self.expressions.is_empty() && self.fields.is_empty();
        !empty
            && self.expressions.iter().all(|wanted| wanted.matches(labels.get(&wanted.key)))
            && self.fields.iter().all(|wanted| match wanted.key.as_str() {
                "metadata.name" => wanted.matches(name),
                _ => false,
            })
    }
}

impl Requirement {
    /// Whether the requirement holds for the value of a label or field; `None` when the label or field is absent.
    pub fn matches<S: AsRef<str> + ?Sized>(&self, value: Option<&S>) -> bool {
        let value = value.map(AsRef::as_ref);
        let listed = |value: &str| self.values.iter().any(|wanted| wanted == value);
        match self.operator {
            Operator::In => value.is_some_and(listed),
            Operator::NotIn => !value.is_some_and(listed),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::Gt => self.compares(value, |value, bound| value > bound),
            Operator::Lt => self.compares(value, |value, bound| value < bound),
        }
    }

    fn compares(&self, value: Option<&str>, holds: fn(i64, i64) -> bool) -> bool {
        let [bound] = self.values.as_slice() else { return false };
        let (Some(Ok(value)), Ok(bound)) = (value.map(str::parse), bound.parse()) else { return false };
        holds(value, bound)
    }
}

impl fmt::Display for Obstacle {
    /// Writes the end of the sentence "n nodes …", with plural verbs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Selector { key, value } => write!(f, "do not match node selector {key}={value}"),
            Self::Affinity => f.write_str("do not match the required node affinity"),
            Self::Taint(taint) => write!(f, "have taint {taint}"),
            Self::NotReady => f.write_str("are not ready"),
            Self::Unschedulable => f.write_str("are unschedulable"),
            Self::Excluded => f.write_str("are where it failed before"),
        }
    }
}
