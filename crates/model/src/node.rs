//! Nodes as the planner sees them: labels, taints, readiness and allocatable resources.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::resources::ResourceVec;

/// A node of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// The name of the Node object, unique in the cluster.
    pub name: String,
    /// The labels of the Node object.
    pub labels: BTreeMap<String, String>,
    /// The taints of the Node object, in its order.
    pub taints: Vec<Taint>,
    /// Cordoned: no new pod may be placed here.
    pub unschedulable: bool,
    /// The condition Ready is true. A node that is not ready takes no new pod.
    pub ready: bool,
    /// The total that pods may request.
    pub allocatable: ResourceVec,
}

impl Node {
    /// Whether the node is ready and not cordoned.
    pub fn is_open(&self) -> bool {
        self.ready && !self.unschedulable
    }
}

/// A taint of a node. Pods that do not tolerate it are kept off.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Taint {
    /// The key, never empty.
    pub key: String,
    /// The value, often empty.
    pub value: String,
    /// The effect on pods that do not tolerate the taint.
    pub effect: Effect,
}

impl fmt::Display for Taint {
    /// Writes the taint as `kubectl taint` does: `key=value:Effect`, or `key:Effect` without a value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let separator = if self.value.is_empty() { "" } else { "=" };
        write!(f, "{}{separator}{}:{}", self.key, self.value, self.effect)
    }
}

/// The effect of a taint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effect {
    /// No new pod is placed.
    NoSchedule,
    /// Other nodes are preferred. The node stays eligible.
    PreferNoSchedule,
    /// No new pod is placed, and running pods are evicted.
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

/// A toleration of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Toleration {
    /// The tolerated key. `None` with [`TolerationOperator::Exists`] tolerates every key.
    pub key: Option<String>,
    /// How the value is compared.
    pub operator: TolerationOperator,
    /// The value for [`TolerationOperator::Equal`].
    pub value: String,
    /// The tolerated effect. `None` tolerates every effect.
    pub effect: Option<Effect>,
}

/// How a toleration compares its value with the value of a taint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TolerationOperator {
    /// The values are equal.
    #[default]
    Equal,
    /// Any value.
    Exists,
}

impl Toleration {
    /// Whether this toleration tolerates `taint`. After `k8s.io/component-helpers`, `ToleratesTaint`.
    pub fn covers(&self, taint: &Taint) -> bool {
        self.effect.is_none_or(|effect| effect == taint.effect)
            && self.key.as_ref().is_none_or(|key| *key == taint.key)
            && match self.operator {
                TolerationOperator::Exists => true,
                TolerationOperator::Equal => self.key.is_some() && self.value == taint.value,
            }
    }
}

/// The properties of nodes that decide eligibility. All nodes of one class are eligible for the same pods.
///
/// The class contains only labels that the constraints of some gang refer to. So ten thousand nodes that differ only
/// in their host name form one class.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeClass {
    /// The labels whose key the constraints of some gang mention.
    pub labels: BTreeMap<String, String>,
    /// The node name, when the constraints of some gang refer to node names.
    pub name: Option<Arc<str>>,
    /// The taints that keep pods off, sorted.
    pub taints: Vec<Taint>,
    /// Cordoned.
    pub unschedulable: bool,
    /// Ready.
    pub ready: bool,
}

impl NodeClass {
    /// Whether nodes of this class are ready and not cordoned.
    pub fn is_open(&self) -> bool {
        self.ready && !self.unschedulable
    }
}
