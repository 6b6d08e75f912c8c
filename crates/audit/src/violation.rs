//! The rules that a plan can violate.

use std::fmt;

use model::{Assignment, GangKey};

/// One violation of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// A verdict names a gang that does not exist.
    UnknownGang {
        /// The uid that it names.
        uid: String,
    },
    /// A verdict is about a gang that is not pending.
    NotPending {
        /// The gang.
        gang: GangKey,
    },
    /// Two verdicts are about the same gang.
    DecidedTwice {
        /// The gang.
        gang: GangKey,
    },
    /// A pod set has nodes although its flavors are quota-only or its places are open, or pods have no node otherwise.
    WrongPlacement {
        /// The gang.
        gang: GangKey,
        /// The pod set.
        pod_set: String,
    },
    /// The plan is wrong about the room on nodes for a gang that gets no nodes.
    WrongRoom {
        /// The gang.
        gang: GangKey,
    },
    /// An assignment has more or fewer pod sets than the gang.
    WrongPodSets {
        /// The gang.
        gang: GangKey,
    },
    /// The number of placed pods is not the number of pods of the set.
    WrongCount {
        /// The gang.
        gang: GangKey,
        /// The pod set.
        pod_set: String,
        /// The number of pods of the set.
        wanted: u32,
        /// The number of placed pods.
        placed: u64,
    },
    /// A pod is placed on a node that does not exist.
    UnknownNode {
        /// The gang.
        gang: GangKey,
        /// The node's name.
        node: String,
    },
    /// A pod is placed on a node that is not eligible for it.
    NotEligible {
        /// The gang.
        gang: GangKey,
        /// The pod set.
        pod_set: String,
        /// The node.
        node: String,
    },
    /// Pods are not in the required domain of a level, or not in a preferred one that first fit finds.
    TopologyNotSatisfied {
        /// The gang.
        gang: GangKey,
        /// The pod set.
        pod_set: String,
        /// The label key of the level.
        level: String,
    },
    /// A pod is in a domain with a pod that required anti-affinity forbids.
    AntiAffinityBroken {
        /// The gang.
        gang: GangKey,
        /// The pod set.
        pod_set: String,
        /// The node of the pod.
        node: String,
        /// The label key of the domain.
        topology_key: String,
    },
    /// A host port of a pod is taken by another pod of the node.
    HostPortTaken {
        /// The gang.
        gang: GangKey,
        /// The pod set.
        pod_set: String,
        /// The node.
        node: String,
    },
    /// A domain gets more pods than a topology spread constraint allows.
    SpreadBroken {
        /// The gang.
        gang: GangKey,
        /// The pod set.
        pod_set: String,
        /// The label key of the domain.
        topology_key: String,
    },
    /// A pod with required affinity has no selected pod in its domains that can be bound before it.
    AffinityNotSatisfied {
        /// The gang.
        gang: GangKey,
        /// The pod set.
        pod_set: String,
        /// The node of the pod.
        node: String,
    },
    /// Planned pods are not bound yet, and may not be bound after pods of this gang: because of their affinity to
    /// themselves, or because of spread constraints that depend on other nodes.
    PlannedPodsBlocked {
        /// The gang.
        gang: GangKey,
        /// The node of the planned pods.
        node: String,
    },
    /// An admission uses more of a resource than is free on the node.
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
    /// An admission uses more of a shared device than is free.
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
    /// A pod shares a device but has no assigned device.
    DeviceNotAssigned {
        /// The gang.
        gang: GangKey,
        /// The pod set.
        pod_set: String,
        /// The node.
        node: String,
    },
    /// An admission uses resources of an aggregate reservation.
    AggregateReservationExceeded {
        /// The gang that was admitted.
        gang: GangKey,
        /// The index of the resource.
        resource: u16,
        /// By how much, in base units.
        over: i128,
    },
    /// An admission exceeds the available quota of a quota node.
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
    /// A gang is admitted with a flavor that is not allowed, or without one where its queue declares some.
    WrongFlavor {
        /// The gang that was admitted.
        gang: GangKey,
        /// The index of the resource.
        resource: u16,
    },
    /// A gang is admitted although its queue or quota is missing, stopped or invalid, or does not declare a requested
    /// resource.
    QueueInactive {
        /// The gang that was admitted.
        gang: GangKey,
    },
    /// A gang is admitted before one that precedes it in queue order.
    OutOfOrder {
        /// The gang that was admitted first.
        first: GangKey,
        /// The gang that precedes it.
        then: GangKey,
    },
    /// A gang of a strict queue is admitted while the head is pending.
    StrictHeadPassed {
        /// The gang that was admitted.
        gang: GangKey,
        /// The head of its queue.
        first: GangKey,
    },
    /// A gang is admitted ahead of one that waits for its victims, in a queue in which quota alone decides.
    AwaitingPassed {
        /// The gang that was admitted.
        gang: GangKey,
        /// The gang that waits for its victims.
        first: GangKey,
    },
    /// A gang stays pending although first fit places it.
    FitsButPending {
        /// The gang.
        gang: GangKey,
        /// The placement.
        assignment: Assignment,
    },
    /// A gang has the verdict `Never`, but fits on empty nodes.
    WronglyInfeasible {
        /// The gang.
        gang: GangKey,
    },
    /// A gang preempts others while its gates are closed.
    Gated {
        /// The gang.
        gang: GangKey,
    },
    /// A gang is admitted while its old pods are still bound.
    StillTerminating {
        /// The gang.
        gang: GangKey,
    },
    /// A gang is preempted although no rule allows it.
    NotPreemptible {
        /// The gang it is stopped for.
        gang: GangKey,
        /// The uid of the victim.
        victim: String,
    },
    /// A gang is preempted for one that was preempted for it.
    PreemptionCycle {
        /// The gang it is stopped for.
        gang: GangKey,
        /// The uid of the victim.
        victim: String,
    },
    /// A gang is preempted although it is not needed as a victim.
    NeedlessVictim {
        /// The gang it is stopped for.
        gang: GangKey,
        /// The uid of the victim.
        victim: String,
    },
    /// A gang preempts others although it fits now.
    NeedlessPreemption {
        /// The gang.
        gang: GangKey,
    },
    /// A gang is admitted with flavors although its queue would preempt in earlier ones first.
    FlavorPassedOver {
        /// The gang.
        gang: GangKey,
    },
    /// A gang takes quota that the first gang of a strict queue holds.
    HeldQuotaTaken {
        /// The gang.
        gang: GangKey,
        /// The gang that holds the quota.
        first: GangKey,
    },
    /// A nominated gang is admitted on other nodes than the nominated ones.
    NominationChanged {
        /// The gang.
        gang: GangKey,
    },
    /// The first pending gang has a computable start, but no reservation.
    ReservationMissing {
        /// The gang.
        gang: GangKey,
    },
    /// A reserved start slips and the plan does not report it, or the plan reports a slip that does not exist.
    SlipNotReported {
        /// The gang.
        gang: GangKey,
    },
    /// The reported cause of a slip is false.
    WrongSlipCause {
        /// The gang.
        gang: GangKey,
        /// The reported cause.
        cause: String,
    },
    /// The plan has more reservations than the policy allows.
    TooManyReservations {
        /// The number of reservations.
        reservations: usize,
    },
    /// A gang cannot start at its reserved time beside all admissions.
    ReservationDelayed {
        /// The gang.
        gang: GangKey,
    },
    /// A reserved start that relies on a guessed end holds others back longer than the policy allows, or not as long.
    WrongHold {
        /// The gang with the reserved start.
        gang: GangKey,
    },
    /// A gang waits for a reserved start that relies on a guessed end, although its own nominal quota has what it needs.
    HeldFromOwnQuota {
        /// The gang that waits.
        gang: GangKey,
        /// The gang with the reserved start.
        first: GangKey,
    },
    /// A gang is admitted before another one that precedes it in the order of their quota tree.
    QuotaOrderViolated {
        /// The gang.
        gang: GangKey,
        /// The gang that precedes it.
        before: GangKey,
    },
    /// A running pod is moved although its node is healthy.
    RunningPodMoved {
        /// The gang.
        gang: GangKey,
        /// The pod set.
        pod_set: String,
    },
    /// A gang is pending and has no verdict.
    VerdictMissing {
        /// The gang.
        gang: GangKey,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownGang { uid } => write!(f, "a verdict names the unknown gang {uid}"),
            Self::NotPending { gang } => write!(f, "the plan decides {gang}, which is not pending"),
            Self::DecidedTwice { gang } => write!(f, "the plan has two verdicts for {gang}"),
            Self::WrongPlacement { gang, pod_set } => {
                write!(f, "{pod_set} of {gang} has nodes in a quota-only flavor, or none in another one")
            }
            Self::WrongRoom { gang } => {
                write!(f, "the plan is wrong about the room on nodes for {gang}, which gets none")
            }
            Self::WrongPodSets { gang } => {
                write!(f, "the assignment of {gang} has other pod sets than the gang")
            }
            Self::WrongCount { gang, pod_set, wanted, placed } => {
                write!(f, "{gang} has {wanted} pods in {pod_set}, {placed} are placed")
            }
            Self::UnknownNode { gang, node } => write!(f, "{gang} is placed on {node}, which does not exist"),
            Self::NotEligible { gang, pod_set, node } => {
                write!(f, "{pod_set} of {gang} is placed on {node}, which is not eligible for it")
            }
            Self::TopologyNotSatisfied { gang, pod_set, level } => {
                write!(f, "pods of {pod_set} of {gang} are not in one domain of {level}")
            }
            Self::AntiAffinityBroken { gang, pod_set, node, topology_key } => {
                write!(f, "{pod_set} of {gang} on {node} breaks anti-affinity by {topology_key}")
            }
            Self::HostPortTaken { gang, pod_set, node } => {
                write!(f, "a host port of {pod_set} of {gang} is taken on {node}")
            }
            Self::SpreadBroken { gang, pod_set, topology_key } => {
                write!(f, "{pod_set} of {gang} is not spread by {topology_key} as required")
            }
            Self::AffinityNotSatisfied { gang, pod_set, node } => {
                write!(f, "{pod_set} of {gang} on {node} has no pod beside it that its affinity requires")
            }
            Self::PlannedPodsBlocked { gang, node } => {
                write!(f, "admitting {gang} may keep planned pods from being bound on {node}")
            }
            Self::OverCommitted { gang, node, resource, over } => {
                write!(f, "admitting {gang} overcommits resource {resource} on {node} by {over}")
            }
            Self::DeviceOverCommitted { gang, node, resource, device, over } => {
                write!(
                    f,
                    "admitting {gang} overcommits device {device} of resource {resource} on {node} by {over}m"
                )
            }
            Self::DeviceNotAssigned { gang, pod_set, node } => {
                write!(
                    f,
                    "pods of {pod_set} of {gang} share devices on {node}, but not all have an assigned device"
                )
            }
            Self::AggregateReservationExceeded { gang, resource, over } => {
                write!(
                    f,
                    "admitting {gang} uses {over} of resource {resource} that is reserved for other gangs"
                )
            }
            Self::OverQuota { gang, quota, resource, over } => {
                write!(f, "admitting {gang} exceeds quota {quota} by {over} of resource {resource}")
            }
            Self::WrongFlavor { gang, resource } => {
                write!(f, "{gang} is admitted without an allowed flavor for resource {resource}")
            }
            Self::QueueInactive { gang } => {
                write!(f, "{gang} is admitted although its queue or quota cannot admit it")
            }
            Self::OutOfOrder { first, then } => {
                write!(f, "{first} is admitted before {then}, which precedes it in queue order")
            }
            Self::StrictHeadPassed { gang, first } => {
                write!(f, "{gang} is admitted before {first}, the head of its strict queue")
            }
            Self::AwaitingPassed { gang, first } => {
                write!(f, "{gang} is admitted before {first}, which waits for its victims")
            }
            Self::FitsButPending { gang, .. } => {
                write!(f, "{gang} stays pending although it fits")
            }
            Self::WronglyInfeasible { gang } => {
                write!(f, "{gang} has the verdict never, but fits on empty nodes")
            }
            Self::NotPreemptible { gang, victim } => {
                write!(f, "{victim} is preempted for {gang}, but no rule allows it")
            }
            Self::PreemptionCycle { gang, victim } => {
                write!(f, "{victim} is preempted for {gang}, which was preempted for it")
            }
            Self::NeedlessVictim { gang, victim } => {
                write!(f, "{victim} is preempted for {gang}, which fits without this victim")
            }
            Self::NeedlessPreemption { gang } => {
                write!(f, "{gang} preempts other gangs although it fits now")
            }
            Self::FlavorPassedOver { gang } => {
                write!(f, "{gang} is admitted in a flavor behind one in which it would preempt first")
            }
            Self::HeldQuotaTaken { gang, first } => {
                write!(f, "{gang} is admitted with quota that {first}, which goes first, holds")
            }
            Self::NominationChanged { gang } => {
                write!(f, "{gang} is admitted on other nodes than the nominated ones")
            }
            Self::Gated { gang } => write!(f, "{gang} preempts others, but its preemption gates are closed"),
            Self::StillTerminating { gang } => {
                write!(f, "{gang} is admitted while its old pods are still bound")
            }
            Self::ReservationMissing { gang } => {
                write!(f, "{gang} is the first pending gang, but has no reservation")
            }
            Self::SlipNotReported { gang } => {
                write!(f, "the plan does not report correctly whether the reserved start of {gang} slips")
            }
            Self::WrongSlipCause { gang, cause } => {
                write!(f, "the reported cause of the slip of {gang} is false: {cause}")
            }
            Self::TooManyReservations { reservations } => {
                write!(f, "the plan has {reservations} reservations, more than the policy allows")
            }
            Self::ReservationDelayed { gang } => {
                write!(f, "{gang} cannot start at its reserved time")
            }
            Self::WrongHold { gang } => {
                write!(f, "the guessed start of {gang} holds others back for a wrong time")
            }
            Self::HeldFromOwnQuota { gang, first } => {
                write!(f, "{gang} waits for the guessed start of {first}, although it stays within its quota")
            }
            Self::QuotaOrderViolated { gang, before } => {
                write!(f, "{gang} is admitted before {before}, which precedes it in their quota tree")
            }
            Self::RunningPodMoved { gang, pod_set } => {
                write!(f, "a running pod of {pod_set} of {gang} is moved")
            }
            Self::VerdictMissing { gang } => write!(f, "{gang} is pending without a verdict"),
        }
    }
}
