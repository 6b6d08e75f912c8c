//! Where the pods of a pod set may go, and what keeps them off a node.

use std::collections::BTreeMap;
use std::fmt;

use crate::node::{Effect, NodeClass, Taint, Toleration};

/// What a pod demands of its node beside resources. The default demands nothing and tolerates nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Constraints {
    /// Labels that the node must have.
    pub node_selector: BTreeMap<String, String>,
    /// Required node affinity: at least one term must match. Empty: any node.
    pub node_affinity: Vec<Term>,
    /// Taints that do not matter.
    pub tolerations: Vec<Toleration>,
}

/// One term of a node affinity: all of its requirements must hold. A term without any matches no node.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term {
    /// Requirements on labels.
    pub expressions: Vec<Requirement>,
    /// Requirements on fields; the only field is `metadata.name`.
    pub fields: Vec<Requirement>,
}

/// A condition on one label or field.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Requirement {
    /// The label's key or the field's path.
    pub key: String,
    /// How it is compared.
    pub operator: Operator,
    /// What it is compared with; one integer for `Gt` and `Lt`, empty for `Exists` and `DoesNotExist`.
    pub values: Vec<String>,
}

/// The operators of Kubernetes' node selector requirements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operator {
    /// The value is one of those given.
    In,
    /// The key is absent or its value is none of those given.
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

/// Why nodes of a class are closed to a pod set.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Obstacle {
    /// A label of the node selector is absent or different.
    Selector {
        /// The label's key.
        key: String,
        /// The value that is demanded.
        value: String,
    },
    /// No term of the required node affinity matches.
    Affinity,
    /// A taint that is not tolerated.
    Taint(Taint),
    /// The node is not ready.
    NotReady,
    /// The node is cordoned.
    Unschedulable,
    /// The gang must not go to this node again.
    Excluded,
}

impl Obstacle {
    /// Whether the obstacle lies in the state of the node, which may pass, rather than in what it is.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::NotReady | Self::Unschedulable)
    }
}

impl Constraints {
    /// The first thing that keeps the pods off nodes of `class`, or nothing.
    ///
    /// The order is selector, affinity, taints, readiness, cordon: what would still be wrong after the later ones
    /// are repaired comes first.
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

    /// The keys of all labels that the constraints look at.
    pub fn label_keys(&self) -> impl Iterator<Item = &str> {
        let expressions = self.node_affinity.iter().flat_map(|term| &term.expressions);
        self.node_selector.keys().map(String::as_str).chain(expressions.map(|wanted| wanted.key.as_str()))
    }

    /// Whether the constraints look at a node's name.
    pub fn uses_node_name(&self) -> bool {
        self.node_affinity.iter().any(|term| !term.fields.is_empty())
    }
}

impl Term {
    fn matches(&self, class: &NodeClass) -> bool {
        let empty = self.expressions.is_empty() && self.fields.is_empty();
        !empty
            && self.expressions.iter().all(|wanted| wanted.matches(class.labels.get(&wanted.key)))
            && self.fields.iter().all(|wanted| match wanted.key.as_str() {
                "metadata.name" => wanted.matches(class.name.as_deref()),
                _ => false,
            })
    }
}

impl Requirement {
    /// Whether the requirement holds for a label's or field's value; none when it is absent.
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
    /// Completes the sentence "n nodes …", with plural verbs.
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
