//! Scheduling rules between pods: inter-pod affinity and anti-affinity, topology spread constraints, and host ports.
//!
//! The rules name other pods by label selector. Selectors are resolved outside: the model knows an index for each
//! selector, and for each pod the selectors that select it.

use std::collections::BTreeSet;

/// A label selector with the namespaces in which it selects pods, as a dense index. Equal selectors have equal indices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SelectorIx(pub u32);

/// The rules of identical pods that concern other pods, and the rules of other pods that concern them.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodRules {
    /// The selectors of affinity terms and spread constraints in the cluster that select these pods.
    pub selected_by: BTreeSet<SelectorIx>,
    /// Required anti-affinity: no selected pod may be in the domain of a pod with such a term. The rule holds in both
    /// directions: neither may join the other.
    pub anti_affinity: BTreeSet<PodTerm>,
    /// Required affinity.
    pub affinity: Option<PodAffinity>,
    /// Topology spread constraints with `DoNotSchedule`.
    pub spread: Vec<SpreadConstraint>,
    /// Ports that the pods occupy on their node.
    pub host_ports: BTreeSet<HostPort>,
}

/// A required anti-affinity term.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodTerm {
    /// The pods to keep away from.
    pub selector: SelectorIx,
    /// The label key whose value names the domain of a node. A node without the label is in no domain, and the term
    /// does not concern it.
    pub topology_key: String,
}

/// The required affinity of a pod: a selected pod must be in its domain for each of the keys. A pod that the selector
/// selects too may be the first one: it is allowed anywhere while no selected pod exists. After kube-scheduler
/// (`plugins/interpodaffinity`), where only pods that all terms select count.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodAffinity {
    /// The pods that all terms select.
    pub selector: SelectorIx,
    /// The label keys of the terms. A node must have all of them.
    pub topology_keys: BTreeSet<String>,
}

/// A topology spread constraint with `DoNotSchedule`: a domain may have at most `max_skew` selected pods more than the
/// eligible domain that has the fewest. After kube-scheduler (`plugins/podtopologyspread`).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpreadConstraint {
    /// The pods that are counted.
    pub selector: SelectorIx,
    /// The label key whose value names the domain of a node. A node needs the keys of all constraints of the pod.
    pub topology_key: String,
    /// At least 1.
    pub max_skew: u32,
    /// With fewer eligible domains the fewest pods count as 0. At least 1.
    pub min_domains: u32,
    /// Only nodes that match the pod's node selector and node affinity count as domains (`nodeAffinityPolicy: Honor`).
    pub honors_affinity: bool,
    /// Only nodes whose taints the pod tolerates count as domains (`nodeTaintsPolicy: Honor`).
    pub honors_taints: bool,
}

/// A port of a node. Two pods on one node conflict when protocol and port are equal and their addresses are equal, or
/// one of them has every address.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPort {
    /// 1 to 65535.
    pub port: u16,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// The address on the node. `None`: every address.
    pub address: Option<String>,
}

impl PodRules {
    /// Whether the pods have no rule and no rule concerns them.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl HostPort {
    /// Whether two pods with these ports cannot run on one node.
    pub fn conflicts(&self, other: &Self) -> bool {
        let any = self.address.is_none() || other.address.is_none();
        self.port == other.port && self.protocol == other.protocol && (any || self.address == other.address)
    }
}
