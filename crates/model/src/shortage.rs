//! Why a gang is not admitted: one enum of causes with figures, for status, events, command line and dashboard.

mod pod_rules;
mod quota;
mod topology;

use std::fmt;
use std::sync::Arc;

use crate::constraints::Obstacle;
use crate::gang_key::GangKey;
use crate::quantity::Quantity;
use crate::topology::TopologyError;
pub use pod_rules::{PodRuleLimit, PodRuleShortage};
pub use quota::QuotaCause;
pub use topology::TopologyShortage;

/// Why a gang is not admitted, and which change makes another attempt worthwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// The causes, the most significant first; never empty.
    pub causes: Arc<[Cause]>,
    /// The changes after which the gang is requeued.
    pub queueing_hint: QueueingHint,
}

/// The changes after which a parked gang is requeued, after kube-scheduler's queueing hints. Later variants are
/// triggered more often.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QueueingHint {
    /// The head of its strict FIFO queue changes.
    QueueHeadChange,
    /// A node, flavor, quota node or queue is added, deleted or changed. Such a change requeues all parked gangs.
    ClusterChange,
    /// The pods of its previous run terminate.
    OwnPodsGone,
    /// Usage decreases in a quota tree that it is charged to. This also requeues gangs with one of the later hints.
    QuotaReleased,
    /// Capacity is released on an eligible node that can then hold at least one of its pods.
    EligibleNodeFreed,
    /// One of its resources is released on any node, or an aggregate reservation shrinks.
    ResourceFreed,
    /// One of its resources is released on any node, or a pod that its rules concern comes or goes.
    PodRulesChange,
    /// Any change of an eligible node: the search was cut short, so its result is not proven.
    AnyChange,
}

/// The capacity that figures about nodes refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// The free capacity of nodes.
    Free,
    /// The capacity of empty nodes.
    Empty,
}

/// The number of nodes with the same amount of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodesWithAmount {
    /// The number of nodes.
    pub nodes: u32,
    /// The amount on each of them.
    pub has: Quantity,
}

/// One reason why a gang is not admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// No node is eligible for a pod set.
    NoNode {
        /// The pod set.
        pod_set: String,
        /// The number of nodes per obstacle, most nodes first. Empty when the cluster has no node.
        excluded: Vec<(Obstacle, u32)>,
    },
    /// Too few pods of a pod set fit, for lack of one resource.
    InsufficientResource {
        /// The pod set.
        pod_set: String,
        /// The number of its pods.
        count: u32,
        /// The number of its pods that fit.
        room: u32,
        /// The request of one pod for the resource.
        needs: Quantity,
        /// The amounts left on the eligible nodes beside the pods that fit; the three highest amounts.
        levels: Vec<NodesWithAmount>,
        /// Whether `levels` refers to free or to empty nodes.
        basis: Basis,
        /// The number of ineligible nodes per obstacle.
        excluded: Vec<(Obstacle, u32)>,
    },
    /// Too few pods of a pod set fit: nodes have enough of each resource, but no node has enough of all.
    Combination {
        /// The pod set.
        pod_set: String,
        /// The number of its pods.
        count: u32,
        /// The number of its pods that fit.
        room: u32,
        /// The requests of one pod, and the number of eligible nodes with enough of that resource.
        needs: Vec<(Quantity, u32)>,
        /// Whether the figures refer to free or to empty nodes.
        basis: Basis,
        /// The number of ineligible nodes per obstacle.
        excluded: Vec<(Obstacle, u32)>,
    },
    /// The rules between the pods of a pod set and other pods cannot be satisfied at present.
    PodRules(PodRuleShortage),
    /// The topology request of a pod set cannot be satisfied at present.
    Topology(TopologyShortage),
    /// The topology request of a pod set is invalid.
    TopologyError {
        /// The pod set.
        pod_set: String,
        /// The error.
        fault: TopologyError,
    },
    /// The total request exceeds the total of the eligible nodes.
    Total {
        /// The total request.
        needs: Quantity,
        /// The free amount without aggregate reservations. `None` when even empty nodes are too small.
        free: Option<Quantity>,
        /// The capacity of the eligible nodes when they are empty.
        capacity: Quantity,
        /// The number of eligible nodes.
        nodes: u32,
        /// Whether the request is the declared one, which exceeds the pods.
        declared: bool,
    },
    /// The pods fit, but would use capacity of an aggregate reservation.
    AggregateReserved {
        /// The amount that would be left at best on the nodes of the aggregate reservation.
        left: Quantity,
        /// The amount that is reserved.
        reserved: Quantity,
    },
    /// Pods of its previous run are still bound.
    StillStopping {
        /// The number of pods.
        pods: u32,
    },
    /// The gang is not the head of its strict FIFO queue.
    Behind {
        /// The head of the queue.
        gang: GangKey,
    },
    /// The gang fits, but would delay a gang with a reservation.
    WouldDelay {
        /// The gang with the reservation.
        gang: GangKey,
    },
    /// The gang would fit after preemption, but its preemption gates are closed.
    PreemptionGated,
    /// Victims were preempted for the gang, but its assignment is no longer available. The gang is planned again.
    PlacesLost {
        /// The number of victims.
        victims: u32,
    },
    /// A queue, a flavor or quota.
    Quota(QuotaCause),
    /// A cause that applies to certain flavors.
    WithFlavors {
        /// The names of the flavors.
        flavors: Vec<String>,
        /// The cause.
        cause: Box<Cause>,
    },
    /// Each pod set fits alone, but no placement of all together was found.
    Together {
        /// The pod sets.
        pod_sets: Vec<String>,
        /// How the search ended.
        search: SearchOutcome,
    },
}

/// How a search without a placement ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchOutcome {
    /// All placements were ruled out.
    Exhausted,
    /// The search budget was exceeded.
    BudgetExceeded,
    /// Placements exist, but would use reserved capacity.
    Reserved,
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, cause) in self.causes.iter().enumerate() {
            let separator = if at == 0 { "" } else { ". " };
            write!(f, "{separator}{cause}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoNode { pod_set, excluded } => no_node(f, pod_set, excluded),
            Self::InsufficientResource { pod_set, count, room, needs, levels, basis, excluded } => {
                if *room == 0 {
                    write!(f, "{pod_set}: needs {needs} on one node")?;
                } else {
                    write!(f, "{pod_set}: room for {room} of {count} pods, each needs {needs}")?;
                }
                write_levels(f, levels, *basis, *room > 0)?;
                also_excluded(f, excluded)
            }
            Self::Combination { pod_set, count, room, needs, basis, excluded } => {
                let wanted: Vec<_> = needs.iter().map(|(quantity, _)| quantity.to_string()).collect();
                let wanted = wanted.join(" and ");
                if *room == 0 {
                    write!(f, "{pod_set}: needs {wanted} on one node; ")?;
                } else {
                    write!(
                        f,
                        "{pod_set}: room for {room} of {count} pods, each needs {wanted} on one node; "
                    )?;
                }
                for (quantity, have) in needs {
                    write!(f, "{} the {}, ", counted(*have, "has", "have"), quantity.resource)?;
                }
                f.write_str(if *room == 0 { "none has all" } else { "no other has all" })?;
                f.write_str(if *basis == Basis::Free { " free" } else { "" })?;
                also_excluded(f, excluded)
            }
            Self::Total { needs, free, capacity, nodes, declared } => {
                let declared = if *declared { " (declared)" } else { "" };
                let all = capacity.amount_text();
                write!(f, "needs {needs} in total{declared}; ")?;
                let Some(free) = free else {
                    let (have, eligible) = match nodes {
                        0 => return f.write_str("no node is eligible"),
                        1 => ("has", "eligible node"),
                        _ => ("have", "eligible nodes"),
                    };
                    return write!(f, "{nodes} {eligible} {have} {all} together");
                };
                let eligible = if *nodes == 1 { "eligible node" } else { "eligible nodes" };
                let (free, resource) = (free.amount_text(), &capacity.resource);
                let verb = if free == "1" { "is" } else { "are" };
                write!(f, "{free} of {all} {resource} {verb} free on {nodes} {eligible}")
            }
            Self::PodRules(shortage) => shortage.fmt(f),
            Self::Topology(too_far) => too_far.fmt(f),
            Self::TopologyError { pod_set, fault } => write!(f, "{pod_set}: {fault}"),
            Self::AggregateReserved { left, reserved } => {
                write!(
                    f,
                    "would leave {left}, but {} is reserved for gangs that are starting",
                    reserved.amount_text()
                )
            }
            Self::WouldDelay { gang } => write!(f, "fits, but would delay {gang}, which goes first"),
            Self::Behind { gang } => write!(f, "waits behind {gang}, which goes first in its queue"),
            Self::StillStopping { pods: 1 } => f.write_str("1 of its pods is still terminating"),
            Self::StillStopping { pods } => write!(f, "{pods} of its pods are still terminating"),
            Self::PreemptionGated => {
                f.write_str("it would fit after preemption, but its preemption gates are closed")
            }
            Self::PlacesLost { victims: 0 } => {
                f.write_str("other nodes have room now, or its nodes are taken or gone")
            }
            Self::PlacesLost { victims: 1 } => {
                f.write_str("1 gang was preempted for it, but the nodes are taken or gone")
            }
            Self::PlacesLost { victims } => {
                write!(f, "{victims} gangs were preempted for it, but the nodes are taken or gone")
            }
            Self::Quota(cause) => cause.fmt(f),
            Self::WithFlavors { flavors, cause } => write!(f, "with {}: {cause}", flavors.join(" and ")),
            Self::Together { pod_sets, search } => {
                let pod_sets = pod_sets.join(", ");
                match search {
                    SearchOutcome::Exhausted => {
                        write!(f, "{pod_sets}: each fits alone, but not together")
                    }
                    SearchOutcome::BudgetExceeded => {
                        write!(f, "{pod_sets}: each fits alone, but no placement of all was found")
                    }
                    SearchOutcome::Reserved => {
                        write!(f, "{pod_sets}: would use resources reserved for gangs that are starting")
                    }
                }
            }
        }
    }
}

fn no_node(f: &mut fmt::Formatter<'_>, pod_set: &str, excluded: &[(Obstacle, u32)]) -> fmt::Result {
    match excluded {
        [] => write!(f, "{pod_set}: there is no node"),
        [(Obstacle::Selector { key, value }, nodes)] => {
            write!(f, "{pod_set}: no node matches node selector {key}={value} ({})", plural(*nodes))
        }
        [(Obstacle::Affinity, nodes)] => {
            write!(f, "{pod_set}: no node matches the required node affinity ({})", plural(*nodes))
        }
        _ => {
            write!(f, "{pod_set}: no node is eligible; ")?;
            write_excluded(f, excluded)
        }
    }
}

fn also_excluded(f: &mut fmt::Formatter<'_>, excluded: &[(Obstacle, u32)]) -> fmt::Result {
    if excluded.is_empty() {
        return Ok(());
    }
    f.write_str("; ")?;
    write_excluded(f, excluded)
}

fn write_excluded(f: &mut fmt::Formatter<'_>, excluded: &[(Obstacle, u32)]) -> fmt::Result {
    for (at, (obstacle, nodes)) in excluded.iter().enumerate() {
        let separator = if at == 0 { "" } else { ", " };
        let plural_form = obstacle.to_string();
        let text = match (*nodes, plural_form.split_once(' ')) {
            (1, Some(("do", rest))) => format!("does {rest}"),
            (1, Some(("have", rest))) => format!("has {rest}"),
            (1, Some(("are", rest))) => format!("is {rest}"),
            _ => plural_form,
        };
        write!(f, "{separator}{} {text}", plural(*nodes))?;
    }
    Ok(())
}

fn write_levels(
    f: &mut fmt::Formatter<'_>,
    levels: &[NodesWithAmount],
    basis: Basis,
    some_fit: bool,
) -> fmt::Result {
    let telling: Vec<&NodesWithAmount> = levels.iter().filter(|level| level.has.amount.0 > 0).collect();
    if telling.is_empty() {
        let nodes: u32 = levels.iter().map(|level| level.nodes).sum();
        return match (some_fit, nodes, basis) {
            (true, _, _) => Ok(()),
            (false, 1, Basis::Free) => f.write_str("; the only eligible node has none free"),
            (false, _, Basis::Free) => write!(f, "; none of {nodes} eligible nodes has any free"),
            (false, 1, Basis::Empty) => f.write_str("; the only eligible node has none"),
            (false, _, Basis::Empty) => write!(f, "; none of {nodes} eligible nodes has any"),
        };
    }
    for (at, level) in telling.into_iter().enumerate() {
        let separator = if at == 0 { "; " } else { ", " };
        write!(f, "{separator}{} {}", counted(level.nodes, "has", "have"), level.has.amount_text())?;
    }
    f.write_str(match (some_fit, basis) {
        (false, basis) => basis.text(),
        (true, Basis::Free) => " left",
        (true, Basis::Empty) => " left when empty",
    })
}

impl Basis {
    fn text(self) -> &'static str {
        match self {
            Self::Free => " free",
            Self::Empty => " even when empty",
        }
    }
}

fn plural(nodes: u32) -> String {
    if nodes == 1 { "1 node".to_owned() } else { format!("{nodes} nodes") }
}

fn counted(nodes: u32, one: &str, many: &str) -> String {
    match nodes {
        0 => format!("no node {one}"),
        1 => format!("1 node {one}"),
        _ => format!("{nodes} nodes {many}"),
    }
}
