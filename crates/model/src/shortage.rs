//! Why a gang does not start: one enum of reasons, in figures, for status, events, command line and dashboard alike.

mod quota;

use std::fmt;
use std::sync::Arc;

use crate::constraints::Obstacle;
use crate::gang::GangKey;
use crate::quantity::Quantity;
use crate::topology::{TopologyError, TopologyShortage};
pub use quota::QuotaCause;

/// Everything that stands in the way of a gang, and what could change that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// The causes, most telling first; never empty.
    pub causes: Arc<[Cause]>,
    /// What has to happen before it is worth trying again.
    pub queueing_hint: QueueingHint,
}

/// What could help a gang that was tried in vain; what comes later in this list happens more often.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QueueingHint {
    /// Only that another gang is the first of its strict queue.
    QueueHeadChange,
    /// Only a node, flavor, quota node or queue that appears, vanishes or changes in what it is; that hints all others too.
    ClusterChange,
    /// The end of its own pods.
    OwnPodsGone,
    /// Less usage in a quota tree that it is charged to. That hints those too who wait for what comes later here.
    QuotaReleased,
    /// More room on an eligible node that can then hold at least one of its pods.
    EligibleNodeFreed,
    /// More of one of its resources on any node, or an aggregate that shrinks.
    ResourceFreed,
    /// Any change of an eligible node: the search for places was cut short, so nothing is proven.
    AnyChange,
}

/// What figures about nodes are measured on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// The nodes as they are: what is free.
    Free,
    /// The nodes without anything on them: what they hold in all.
    Empty,
}

/// How many nodes have the same amount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodesWithAmount {
    /// How many nodes.
    pub nodes: u32,
    /// What each of them has.
    pub has: Quantity,
}

/// One thing that stands in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// No node at all is eligible for a pod set.
    NoNode {
        /// The pod set.
        pod_set: String,
        /// What keeps it off how many nodes, most nodes first. Empty when the cluster has no node.
        excluded: Vec<(Obstacle, u32)>,
    },
    /// Too few pods of a pod set find room, for lack of one resource.
    InsufficientResource {
        /// The pod set.
        pod_set: String,
        /// How many pods it has.
        count: u32,
        /// For how many of them there is room.
        room: u32,
        /// What one pod needs of the resource that is short.
        needs: Quantity,
        /// What is left on the eligible nodes beside those pods, highest first, at most three levels.
        levels: Vec<NodesWithAmount>,
        /// What the levels are measured on.
        basis: Basis,
        /// What keeps it off how many other nodes.
        excluded: Vec<(Obstacle, u32)>,
    },
    /// Too few pods of a pod set find room: nodes have enough of each resource, but not of all at once.
    Combination {
        /// The pod set.
        pod_set: String,
        /// How many pods it has.
        count: u32,
        /// For how many of them there is room.
        room: u32,
        /// What one pod needs, and how many eligible nodes have that much of this resource.
        needs: Vec<(Quantity, u32)>,
        /// What that is measured on.
        basis: Basis,
        /// What keeps it off how many other nodes.
        excluded: Vec<(Obstacle, u32)>,
    },
    /// Too few pods of a pod set find room near enough to each other.
    Topology(TopologyShortage),
    /// What a pod set asks of the topology makes no sense.
    TopologyError {
        /// The pod set.
        pod_set: String,
        /// What is wrong.
        fault: TopologyError,
    },
    /// The pods together need more than the eligible nodes have together.
    Total {
        /// What is needed.
        needs: Quantity,
        /// What is free, without what others are promised as aggregates; none where even empty nodes hold too little.
        free: Option<Quantity>,
        /// What the nodes hold when they are empty.
        capacity: Quantity,
        /// How many nodes are eligible.
        nodes: u32,
        /// Whether the need is what the author declared, beyond what the real pods need.
        declared: bool,
    },
    /// The pods have room, but would take what others are promised as an aggregate.
    AggregateReserved {
        /// What of the resource would be left on the nodes of the aggregate, at the best.
        left: Quantity,
        /// What of it is promised.
        reserved: Quantity,
    },
    /// It ran before, and some of its pods are still bound.
    StillStopping {
        /// How many.
        pods: u32,
    },
    /// It is not the first of its queue, which is strict.
    Behind {
        /// The gang that is.
        gang: GangKey,
    },
    /// It fits, but would delay a gang that goes first and waits for more room.
    WouldDelay {
        /// That gang.
        gang: GangKey,
    },
    /// Others left for it, but its places are taken or gone: it is tried again.
    PlacesLost {
        /// How many were stopped for it.
        victims: u32,
    },
    /// A queue, a flavor or quota.
    Quota(QuotaCause),
    /// What stands in the way with certain flavors.
    WithFlavors {
        /// The flavors, by name.
        flavors: Vec<String>,
        /// What it is.
        cause: Box<Cause>,
    },
    /// Every pod set has room alone, but not beside the others.
    Together {
        /// The pod sets.
        pod_sets: Vec<String>,
        /// How sure that is.
        search: SearchOutcome,
    },
}

/// How sure it is that there is no way to place a gang.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchOutcome {
    /// Every way was ruled out.
    Exhausted,
    /// The search was cut short.
    BudgetExceeded,
    /// Ways were found, but they would take what others are promised.
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
                    return write!(f, "{nodes} {eligible} {have} {all} in all");
                };
                let eligible = if *nodes == 1 { "eligible node" } else { "eligible nodes" };
                let (free, resource) = (free.amount_text(), &capacity.resource);
                let verb = if free == "1" { "is" } else { "are" };
                write!(f, "{free} of {all} {resource} {verb} free on {nodes} {eligible}")
            }
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
            Self::Empty => " in all",
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
