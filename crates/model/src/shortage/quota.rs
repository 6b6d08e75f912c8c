//! Why quota, or the queue in front of it, keeps a gang waiting whatever room there is on nodes.

use std::fmt;

use crate::node::Taint;
use crate::quantity::Quantity;

/// One thing about queues, flavors or quota that stands in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuotaCause {
    /// Its queue does not exist.
    NoQueue {
        /// The queue.
        queue: String,
    },
    /// Its queue admits nothing.
    Stopped {
        /// The queue.
        queue: String,
    },
    /// A quota node that it is charged to does not exist.
    NoQuota {
        /// The quota node.
        quota: String,
    },
    /// A quota node that it is charged to has no root.
    Cycle {
        /// The quota node.
        quota: String,
    },
    /// It asks for a resource that its queue does not declare.
    Undeclared {
        /// The queue.
        queue: String,
        /// The resource.
        resource: String,
    },
    /// A flavor that its queue names does not exist.
    NoFlavor {
        /// The flavor.
        flavor: String,
    },
    /// A gang that runs in a flavor could only have more pods in it, but its queue no longer offers it.
    NotOffered {
        /// The queue.
        queue: String,
        /// The flavor.
        flavor: String,
    },
    /// A pod set does not tolerate a taint of a flavor.
    Untolerated {
        /// The pod set.
        pod_set: String,
        /// The flavor.
        flavor: String,
        /// The taint.
        taint: Taint,
    },
    /// The node selector or the required affinity of a pod set contradicts the labels of a flavor.
    Unmatched {
        /// The pod set.
        pod_set: String,
        /// The flavor.
        flavor: String,
    },
    /// Too little quota is left.
    Short {
        /// The quota node.
        quota: String,
        /// The flavor; none where quota says nothing of flavors.
        flavor: Option<String>,
        /// What is needed there, with what the gang's other pod sets take of it.
        needs: Quantity,
        /// What is left; none where the node could never have as much.
        available: Option<Quantity>,
        /// The most that it could have if nobody else used anything.
        potential: Quantity,
    },
}

impl fmt::Display for QuotaCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoQueue { queue } => write!(f, "queue {queue} does not exist"),
            Self::Stopped { queue } => write!(f, "queue {queue} is stopped"),
            Self::NoQuota { quota } => write!(f, "quota {quota} does not exist"),
            Self::Cycle { quota } => write!(f, "quota {quota} has no root: its ancestors form a cycle"),
            Self::Undeclared { queue, resource } => write!(f, "queue {queue} has no quota for {resource}"),
            Self::NoFlavor { flavor } => write!(f, "flavor {flavor} does not exist"),
            Self::NotOffered { queue, flavor } => {
                write!(f, "runs in flavor {flavor}, which queue {queue} no longer offers")
            }
            Self::Untolerated { pod_set, flavor, taint } => {
                write!(f, "{pod_set}: does not tolerate taint {taint} of flavor {flavor}")
            }
            Self::Unmatched { pod_set, flavor } => {
                write!(f, "{pod_set}: flavor {flavor} does not match its node selector or affinity")
            }
            Self::Short { quota, flavor, needs, available, potential } => {
                write!(f, "needs {needs}")?;
                if let Some(flavor) = flavor {
                    write!(f, " in flavor {flavor}")?;
                }
                match available {
                    Some(left) => {
                        write!(
                            f,
                            "; quota {quota} has {} of at most {} left",
                            left.amount_text(),
                            potential.amount_text()
                        )
                    }
                    None => write!(f, "; quota {quota} has at most {}", potential.amount_text()),
                }
            }
        }
    }
}
