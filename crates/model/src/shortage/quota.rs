//! Causes in queues, flavors and quota that keep a gang pending, independent of free capacity on nodes.

use std::fmt;

use crate::amount::Amount;
use crate::node::Taint;
use crate::quantity::Quantity;

/// A queue, flavor or quota that keeps a gang pending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuotaCause {
    /// The queue of the gang does not exist.
    NoQueue {
        /// The queue.
        queue: String,
    },
    /// The queue of the gang is stopped.
    Stopped {
        /// The queue.
        queue: String,
    },
    /// A quota node that the gang is charged to does not exist.
    NoQuota {
        /// The quota node.
        quota: String,
    },
    /// A quota node that the gang is charged to is on a cycle or below one.
    Cycle {
        /// The quota node.
        quota: String,
    },
    /// The gang requests a resource that its queue does not declare.
    Undeclared {
        /// The queue.
        queue: String,
        /// The resource.
        resource: String,
    },
    /// A flavor that the queue lists does not exist.
    NoFlavor {
        /// The flavor.
        flavor: String,
    },
    /// A running gang can scale up only in its flavor, but its queue no longer lists this flavor.
    NotOffered {
        /// The queue.
        queue: String,
        /// The flavor.
        flavor: String,
    },
    /// A gang that takes the place of a running one gets its flavors alone.
    OtherFlavor {
        /// The pod set.
        pod_set: String,
        /// The flavor.
        flavor: String,
        /// The flavor of the running gang.
        given: String,
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
    /// The node selector or the required node affinity of a pod set contradicts the labels of a flavor.
    Unmatched {
        /// The pod set.
        pod_set: String,
        /// The flavor.
        flavor: String,
    },
    /// A pod set with a topology request cannot use a flavor without nodes.
    NoTopology {
        /// The pod set.
        pod_set: String,
        /// The flavor.
        flavor: String,
    },
    /// A pod set without a topology request cannot use a flavor with a topology, since the queue has flavors without.
    TopologyOnly {
        /// The pod set.
        pod_set: String,
        /// The flavor.
        flavor: String,
    },
    /// Too little quota is available.
    Short {
        /// The quota node.
        quota: String,
        /// The flavor; `None` for quota without flavors.
        flavor: Option<String>,
        /// The requested amount, including the other pod sets of the gang.
        needs: Quantity,
        /// The available quota. `None` when the request exceeds even the potentially available quota.
        available: Option<Quantity>,
        /// The potentially available quota, if no other node used anything.
        potential: Quantity,
        /// The quota of the node itself, without what it may borrow.
        own: Quantity,
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
            Self::OtherFlavor { pod_set, flavor, given } => {
                write!(f, "{pod_set}: runs in flavor {given} and cannot grow in flavor {flavor}")
            }
            Self::Untolerated { pod_set, flavor, taint } => {
                write!(f, "{pod_set}: does not tolerate taint {taint} of flavor {flavor}")
            }
            Self::Unmatched { pod_set, flavor } => {
                write!(f, "{pod_set}: flavor {flavor} does not match its node selector or affinity")
            }
            Self::NoTopology { pod_set, flavor } => {
                write!(f, "{pod_set}: requests a topology, which flavor {flavor} does not have")
            }
            Self::TopologyOnly { pod_set, flavor } => {
                write!(f, "{pod_set}: flavor {flavor} takes only pods with a topology request")
            }
            Self::Short { quota, flavor, needs, available, potential, own } => {
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
                        )?;
                    }
                    None => write!(f, "; quota {quota} has at most {}", potential.amount_text())?,
                }
                let borrowed = potential.amount.0.saturating_sub(own.amount.0);
                if borrowed <= 0 {
                    return Ok(());
                }
                let borrowed = Quantity::new(&own.resource, Amount(borrowed));
                write!(f, " ({} of its own, {} to borrow)", own.amount_text(), borrowed.amount_text())
            }
        }
    }
}
