//! Why the rules between pods cannot be satisfied.

use std::fmt;

use super::Basis;
use crate::pod_rules::{HostPort, PodTerm};

/// Too few pods of a pod set fit because of the rules between pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRuleShortage {
    /// The pod set.
    pub pod_set: String,
    /// The number of its pods.
    pub count: u32,
    /// The number of its pods that fit at most.
    pub room: u32,
    /// The rules that limit the number, the most restrictive first; never empty.
    pub limits: Vec<PodRuleLimit>,
    /// Whether the figures refer to the present or to empty nodes without other pods.
    pub basis: Basis,
}

/// How one rule limits the number of pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodRuleLimit {
    /// Anti-affinity between the pods of the set: one pod in each of the eligible domains.
    AntiAffinity {
        /// The label key.
        topology_key: String,
        /// The number of eligible domains.
        domains: u32,
    },
    /// Anti-affinity with other pods: eligible nodes are in a domain with such a pod.
    OtherPods {
        /// The label key.
        topology_key: String,
        /// The number of these nodes.
        nodes: u32,
    },
    /// A host port that each pod occupies: one pod on each of the eligible nodes.
    HostPort {
        /// The port.
        port: HostPort,
        /// The number of eligible nodes on which it is taken.
        taken: u32,
        /// The number of eligible nodes.
        nodes: u32,
    },
    /// Eligible nodes without a label that affinity or spread needs.
    NoLabel {
        /// The label key.
        key: String,
        /// The number of these nodes.
        nodes: u32,
    },
    /// A topology spread constraint.
    Spread {
        /// The label key.
        topology_key: String,
        /// See [`SpreadConstraint::max_skew`](crate::SpreadConstraint::max_skew).
        max_skew: u32,
        /// The number of domains that count.
        domains: u32,
        /// See [`SpreadConstraint::min_domains`](crate::SpreadConstraint::min_domains).
        min_domains: u32,
    },
    /// Required affinity between the pods of the gang.
    OwnAffinity {
        /// The label keys.
        topology_keys: Vec<String>,
    },
    /// Pods of another gang are planned and not bound yet. Their affinity would find no pod in their domains if these
    /// pods were bound before them elsewhere.
    PlannedPods {
        /// The label keys.
        topology_keys: Vec<String>,
    },
    /// Spread constraints of planned pods of other gangs count these pods. Those pods must be bound first.
    PlannedSpread,
    /// Required affinity: eligible nodes are in no domain with a selected pod.
    Affinity {
        /// The label keys.
        topology_keys: Vec<String>,
        /// The number of these nodes.
        nodes: u32,
    },
}

impl fmt::Display for PodRuleShortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pod_set, count, room, limits, basis } = self;
        let empty = if *basis == Basis::Empty { " even without other pods" } else { "" };
        write!(f, "{pod_set}: room for {room} of {count} pods{empty}")?;
        for (at, limit) in limits.iter().enumerate() {
            write!(f, "{}{limit}", if at == 0 { "; " } else { ", " })?;
        }
        Ok(())
    }
}

impl fmt::Display for PodRuleLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes = |count: u32, one: &str, many: &str| match count {
            1 => format!("1 node {one}"),
            _ => format!("{count} nodes {many}"),
        };
        match self {
            Self::AntiAffinity { topology_key, .. } if topology_key == PodTerm::CLUSTER => {
                f.write_str("a ReadWriteOncePod claim allows one pod")
            }
            Self::OtherPods { topology_key, .. } if topology_key == PodTerm::CLUSTER => {
                f.write_str("another pod uses a ReadWriteOncePod claim of these pods")
            }
            Self::AntiAffinity { topology_key, domains } => {
                let domains =
                    if *domains == 1 { "1 domain".to_owned() } else { format!("{domains} domains") };
                write!(f, "anti-affinity by {topology_key} allows one in each of {domains}")
            }
            Self::OtherPods { topology_key, nodes: count } => {
                let nodes = nodes(*count, "is", "are");
                write!(f, "{nodes} excluded by anti-affinity with other pods by {topology_key}")
            }
            Self::HostPort { port, taken, nodes: count } => {
                let counted =
                    |count: u32| if count == 1 { "1 node".to_owned() } else { format!("{count} nodes") };
                match (*count, *taken) {
                    (0, taken) => write!(f, "host port {port} is taken on {}", counted(taken)),
                    (count, 0) => write!(f, "host port {port} allows one on each of {}", counted(count)),
                    (count, taken) => {
                        let (free, taken) = (counted(count), counted(taken));
                        write!(f, "host port {port} allows one on each of {free} and is taken on {taken}")
                    }
                }
            }
            Self::NoLabel { key, nodes: count } => {
                write!(f, "{} label {key}", nodes(*count, "lacks", "lack"))
            }
            Self::Spread { topology_key, max_skew, domains, min_domains } => {
                write!(f, "spread by {topology_key} allows a skew of {max_skew} over {domains} domains")?;
                if domains < min_domains { write!(f, " of at least {min_domains}") } else { Ok(()) }
            }
            Self::OwnAffinity { topology_keys } => {
                write!(f, "affinity needs one of its pods in the same {}", topology_keys.join(" and "))
            }
            Self::PlannedPods { topology_keys } => {
                let keys = topology_keys.join(" and ");
                write!(f, "planned pods with affinity by {keys} must be bound before pods in other domains")
            }
            Self::PlannedSpread => f.write_str(
                "planned pods whose spread constraints count these pods must be bound before them",
            ),
            Self::Affinity { topology_keys, nodes: count } => {
                let nodes = nodes(*count, "has", "have");
                write!(f, "{nodes} no pod that affinity requires in the same {}", topology_keys.join(" and "))
            }
        }
    }
}
