//! Nodes as planning sees them: what they are called, what they hold, and whom they turn away.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::resources::ResourceVec;

/// A machine that pods can be bound to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// The name of the Node object, unique in the cluster.
    pub name: String,
    /// The labels of the Node object.
    pub labels: BTreeMap<String, String>,
    /// The taints of the Node object, in its order.
    pub taints: Vec<Taint>,
    /// Cordoned: nothing new may be placed here.
    pub unschedulable: bool,
    /// Its condition Ready is true. What is not ready takes nothing new.
    pub ready: bool,
    /// What pods may ask for in total.
    pub allocatable: ResourceVec,
}

impl Node {
    /// Whether it may take anything new at all.
    pub fn is_open(&self) -> bool {
        self.ready && !self.unschedulable
    }
}

/// A mark on a node that keeps away pods that do not tolerate it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Taint {
    /// The key, never empty.
    pub key: String,
    /// The value, often empty.
    pub value: String,
    /// What it does to pods that do not tolerate it.
    pub effect: Effect,
}

impl fmt::Display for Taint {
    /// As `kubectl taint` writes it: `key=value:Effect`, or `key:Effect` without a value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let separator = if self.value.is_empty() { "" } else { "=" };
        write!(f, "{}{separator}{}:{}", self.key, self.value, self.effect)
    }
}

/// What a taint does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effect {
    /// Nothing new is placed.
    NoSchedule,
    /// Placed elsewhere if possible; never a reason to refuse.
    PreferNoSchedule,
    /// Nothing new is placed and what runs is evicted.
    NoExecute,
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoSchedule => "NoSchedule",
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoExecute => "NoExecute",
        })
    }
}

/// A pod's willingness to run beside a taint.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Toleration {
    /// The key that is tolerated; none with [`TolerationOperator::Exists`] tolerates every key.
    pub key: Option<String>,
    /// How the value is compared.
    pub operator: TolerationOperator,
    /// The value for [`TolerationOperator::Equal`].
    pub value: String,
    /// The effect that is tolerated; none tolerates every effect.
    pub effect: Option<Effect>,
}

/// How a toleration compares with a taint's value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TolerationOperator {
    /// The values are equal.
    #[default]
    Equal,
    /// Any value.
    Exists,
}

impl Toleration {
    /// Whether this toleration covers `taint`. After `k8s.io/component-helpers`, `ToleratesTaint`.
    pub fn covers(&self, taint: &Taint) -> bool {
        self.effect.is_none_or(|effect| effect == taint.effect)
            && self.key.as_ref().is_none_or(|key| *key == taint.key)
            && match self.operator {
                TolerationOperator::Exists => true,
                TolerationOperator::Equal => self.key.is_some() && self.value == taint.value,
            }
    }
}

/// What nodes have in common as far as any gang can tell: two nodes of one class are eligible for the same pods.
///
/// Only labels that some gang asked for are part of it, so that ten thousand nodes with a host name each are one class.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeClass {
    /// Labels whose key some gang's constraints mention.
    pub labels: BTreeMap<String, String>,
    /// The name, if some gang's constraints ask for nodes by name.
    pub name: Option<Arc<str>>,
    /// Taints that keep pods away, sorted.
    pub taints: Vec<Taint>,
    /// Cordoned.
    pub unschedulable: bool,
    /// Ready.
    pub ready: bool,
}

impl NodeClass {
    /// Whether nodes of this class may take anything new at all.
    pub fn is_open(&self) -> bool {
        self.ready && !self.unschedulable
    }
}
