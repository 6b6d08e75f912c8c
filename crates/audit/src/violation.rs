//! What can be wrong with a plan.

use std::fmt;

use model::{Assignment, GangKey};

/// One broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// A verdict names no gang.
    UnknownGang {
        /// The uid that it names.
        uid: String,
    },
    /// A verdict is about a gang that does not wait.
    NotWaiting {
        /// The gang.
        gang: GangKey,
    },
    /// Two verdicts are about the same gang.
    DecidedTwice {
        /// The gang.
        gang: GangKey,
    },
    /// An assignment has more or fewer pod sets than the gang.
    WrongShape {
        /// The gang.
        gang: GangKey,
    },
    /// Not every pod of a set has exactly one place.
    WrongCount {
        /// The gang.
        gang: GangKey,
        /// The pod set.
        pod_set: String,
        /// How many pods it has.
        wanted: u32,
        /// How many places were assigned.
        placed: u64,
    },
    /// A pod is placed on a node that does not exist.
    UnknownNode {
        /// The gang.
        gang: GangKey,
        /// The node's name.
        node: String,
    },
    /// A pod is placed on a node that may not take it.
    NotEligible {
        /// The gang.
        gang: GangKey,
        /// The pod set.
        pod_set: String,
        /// The node.
        node: String,
    },
    /// Pods that have to be in one domain of a level are in several; or they prefer that and plainly could be.
    Apart {
        /// The gang.
        gang: GangKey,
        /// The pod set.
        pod_set: String,
        /// The label key of the level.
        level: String,
    },
    /// An admission takes more of a resource than its node has left.
    OverCommitted {
        /// The gang that was admitted.
        gang: GangKey,
        /// The node.
        node: String,
        /// The index of the resource.
        resource: u16,
        /// By how much, in base units.
        over: i128,
    },
    /// An admission takes more of a shared device than there is of it.
    DeviceOverCommitted {
        /// The gang that was admitted.
        gang: GangKey,
        /// The node.
        node: String,
        /// The index of the resource.
        resource: u16,
        /// The number of the device.
        device: u32,
        /// By how many thousandths.
        over: i128,
    },
    /// A pod is to share a device, but not told which one.
    NoDevice {
        /// The gang.
        gang: GangKey,
        /// The pod set.
        pod_set: String,
        /// The node.
        node: String,
    },
    /// An admission leaves less on a set of nodes than is promised there without a place.
    PromiseBroken {
        /// The gang that was admitted.
        gang: GangKey,
        /// The index of the resource.
        resource: u16,
        /// By how much, in base units.
        over: i128,
    },
    /// An admission takes more of a resource than a quota node has left.
    OverQuota {
        /// The gang that was admitted.
        gang: GangKey,
        /// The quota node.
        quota: String,
        /// The index of the resource.
        resource: u16,
        /// By how much, in base units.
        over: i128,
    },
    /// A gang is admitted in a flavor that it may not have, or in none where its queue declares some.
    WrongFlavor {
        /// The gang that was admitted.
        gang: GangKey,
        /// The index of the resource.
        resource: u16,
    },
    /// A gang is admitted although its queue or quota is absent, stopped or broken, or does not declare what it asks for.
    NotOpen {
        /// The gang that was admitted.
        gang: GangKey,
    },
    /// A gang is admitted before one that goes first.
    OutOfTurn {
        /// The gang that was admitted first.
        first: GangKey,
        /// The one that should have been.
        then: GangKey,
    },
    /// A gang of a strict queue is admitted while the first one waits.
    Passed {
        /// The gang that was admitted.
        gang: GangKey,
        /// The first of its queue.
        first: GangKey,
    },
    /// A gang waits although it plainly fits when its turn comes.
    Overlooked {
        /// The gang.
        gang: GangKey,
        /// Where it fits.
        assignment: Assignment,
    },
    /// A gang is said to fit never, but fits on empty nodes.
    FalseNever {
        /// The gang.
        gang: GangKey,
    },
    /// A gang is admitted while pods of its former life are still bound.
    StillStopping {
        /// The gang.
        gang: GangKey,
    },
    /// A gang is stopped that may not be.
    NotStoppable {
        /// The gang it is stopped for.
        gang: GangKey,
        /// The uid of the victim.
        victim: String,
    },
    /// A gang is stopped for one that was stopped for it.
    TurnsInCircles {
        /// The gang it is stopped for.
        gang: GangKey,
        /// The uid of the victim.
        victim: String,
    },
    /// A gang is stopped although its place is not needed.
    NotNeeded {
        /// The gang it is stopped for.
        gang: GangKey,
        /// The uid of the victim.
        victim: String,
    },
    /// A gang is to wait for others to leave although it fits now.
    NeedlessPreemption {
        /// The gang.
        gang: GangKey,
    },
    /// A nominated gang is admitted elsewhere than where it was nominated.
    OtherPlaces {
        /// The gang.
        gang: GangKey,
    },
    /// A gang comes first of those that wait and has a start that can be foreseen, but others may delay it.
    NotReserved {
        /// The gang.
        gang: GangKey,
    },
    /// A promised start moved, which the plan does not say as it is; or it did not, and the plan says so.
    PromiseMoved {
        /// The gang.
        gang: GangKey,
    },
    /// What a plan calls the cause why a promised start moved is not so.
    WrongCause {
        /// The gang.
        gang: GangKey,
        /// What it says.
        cause: String,
    },
    /// More gangs are promised a start than the policy says.
    TooManyPromises {
        /// How many.
        promises: usize,
    },
    /// A gang cannot start when the plan says, with all that is admitted.
    Delayed {
        /// The gang.
        gang: GangKey,
    },
    /// A gang is admitted before another one of its quota tree that has the better claim.
    Unfair {
        /// The gang.
        gang: GangKey,
        /// The other one.
        before: GangKey,
    },
    /// A pod of a gang that runs is given another place although its node did not fail.
    Moved {
        /// The gang.
        gang: GangKey,
        /// The pod set.
        pod_set: String,
    },
    /// A gang waits and was never told why.
    NotTold {
        /// The gang.
        gang: GangKey,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownGang { uid } => write!(f, "a verdict names the unknown gang {uid}"),
            Self::NotWaiting { gang } => write!(f, "{gang} is decided but does not wait"),
            Self::DecidedTwice { gang } => write!(f, "{gang} is decided twice"),
            Self::WrongShape { gang } => {
                write!(f, "the assignment of {gang} has other pod sets than the gang")
            }
            Self::WrongCount { gang, pod_set, wanted, placed } => {
                write!(f, "{gang} has {wanted} pods in {pod_set}, {placed} are placed")
            }
            Self::UnknownNode { gang, node } => write!(f, "{gang} is placed on {node}, which does not exist"),
            Self::NotEligible { gang, pod_set, node } => {
                write!(f, "{pod_set} of {gang} is placed on {node}, which may not take it")
            }
            Self::Apart { gang, pod_set, level } => {
                write!(f, "pods of {pod_set} of {gang} that belong into one {level} are apart")
            }
            Self::OverCommitted { gang, node, resource, over } => {
                write!(f, "admitting {gang} takes {over} too much of resource {resource} on {node}")
            }
            Self::DeviceOverCommitted { gang, node, resource, device, over } => {
                write!(
                    f,
                    "admitting {gang} takes {over}m too much of device {device} of resource {resource} on {node}"
                )
            }
            Self::NoDevice { gang, pod_set, node } => {
                write!(
                    f,
                    "pods of {pod_set} of {gang} share devices on {node}, but not all are told which ones"
                )
            }
            Self::PromiseBroken { gang, resource, over } => {
                write!(f, "admitting {gang} takes {over} of resource {resource} that others are promised")
            }
            Self::OverQuota { gang, quota, resource, over } => {
                write!(f, "admitting {gang} takes {over} too much of resource {resource} from quota {quota}")
            }
            Self::WrongFlavor { gang, resource } => {
                write!(f, "{gang} is admitted without a flavor that it may have for resource {resource}")
            }
            Self::NotOpen { gang } => {
                write!(f, "{gang} is admitted although its queue or quota admits nothing like it")
            }
            Self::OutOfTurn { first, then } => {
                write!(f, "{first} is admitted before {then}, which goes first")
            }
            Self::Passed { gang, first } => {
                write!(f, "{gang} is admitted before {first}, the first of its strict queue")
            }
            Self::Overlooked { gang, .. } => write!(f, "{gang} waits although it fits when its turn comes"),
            Self::FalseNever { gang } => write!(f, "{gang} is said to fit never, but fits on empty nodes"),
            Self::NotStoppable { gang, victim } => {
                write!(f, "{victim} is stopped for {gang}, but may not be")
            }
            Self::TurnsInCircles { gang, victim } => {
                write!(f, "{victim} is stopped for {gang}, which was stopped for it")
            }
            Self::NotNeeded { gang, victim } => {
                write!(f, "{victim} is stopped for {gang}, which fits without that")
            }
            Self::NeedlessPreemption { gang } => {
                write!(f, "{gang} waits for others to leave although it fits now")
            }
            Self::OtherPlaces { gang } => {
                write!(f, "{gang} is admitted elsewhere than where it was nominated")
            }
            Self::StillStopping { gang } => {
                write!(f, "{gang} is to start while its old pods are still there")
            }
            Self::NotReserved { gang } => {
                write!(f, "{gang} waits first in order, but no start is reserved for it")
            }
            Self::PromiseMoved { gang } => {
                write!(f, "what becomes of the start that {gang} was promised is not said as it is")
            }
            Self::WrongCause { gang, cause } => {
                write!(f, "the start of {gang} is said to have moved because {cause}, which is not so")
            }
            Self::TooManyPromises { promises } => {
                write!(f, "{promises} gangs are promised a start, more than the policy says")
            }
            Self::Delayed { gang } => write!(f, "{gang} cannot start at the time that is reserved for it"),
            Self::Unfair { gang, before } => {
                write!(f, "{gang} is admitted before {before}, which has the better claim to their quota")
            }
            Self::Moved { gang, pod_set } => write!(f, "a pod of {pod_set} of {gang} is moved while it runs"),
            Self::NotTold { gang } => write!(f, "{gang} waits and was never told why"),
        }
    }
}
