//! What planning is allowed to do: values in the world, not switches in the code.

/// The rules of one cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Whether waiting gangs may take the place of running ones outside of quota trees.
    pub preemption: PreemptionPolicy,
    /// Whether those who fit may pass one that does not.
    pub backfill: Backfill,
    /// Whether the unused quota of a tree is divided by dominant resource shares; none: it goes to whoever comes first.
    pub fair_sharing: Option<FairSharing>,
    /// Which nodes are preferred.
    pub packing: Packing,
}

/// Which of the nodes that have room a pod goes to. Who fits and who waits does not depend on it, as far as the search for
/// places is exhaustive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Packing {
    /// Nodes without resources that the pod does not want, then those that are fullest afterwards.
    #[default]
    TightestFit,
    /// Each gang on as few nodes as possible.
    FewestNodes,
    /// Pod by pod where least becomes useless, as expected over the pods that the gangs of the world ask for. After Weng et
    /// al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent", ATC 2023.
    LeastFragmentation,
    /// Pod by pod where most is left, so that few are hit when a node fails.
    Spread,
}

impl Packing {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::TightestFit, Self::FewestNodes, Self::LeastFragmentation, Self::Spread];

    /// What people call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::TightestFit => "tightest-fit",
            Self::FewestNodes => "fewest-nodes",
            Self::LeastFragmentation => "least-fragmentation",
            Self::Spread => "spread",
        }
    }

    /// The one of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|packing| packing.name() == name)
    }
}

/// What happens behind a gang that does not fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backfill {
    /// Whoever fits starts. A large gang may wait for ever.
    #[default]
    BestEffort,
    /// The first gang in order that does not fit gets the earliest start that the expected ends of others allow, and only
    /// those pass who do not delay it. After Lifka, "The ANL/IBM SP Scheduling System", 1995 (EASY).
    Reserve,
    /// So do the first ones, each behind those before it; only those pass who delay none of them. After Mu'alem and
    /// Feitelson, "Utilization, Predictability, Workloads, and User Runtime Estimates in Scheduling the IBM SP2 with
    /// Backfilling", 2001 (conservative), bounded in depth as in Maui.
    Conservative {
        /// How many; at most [`Backfill::DEPTH_MAX`] count.
        depth: u32,
    },
}

impl Backfill {
    /// More starts than these are never promised at once: each is computed anew when anything is planned.
    pub const DEPTH_MAX: u32 = 64;

    /// How many gangs are promised a start.
    pub fn reservation_depth(self) -> u32 {
        match self {
            Self::BestEffort => 0,
            Self::Reserve => 1,
            Self::Conservative { depth } => depth.min(Self::DEPTH_MAX),
        }
    }
}

/// Who may take whose place, of gangs that are charged to no common quota tree. Between others the rules of the tree hold:
/// [`QuotaPreemption`](crate::QuotaPreemption).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PreemptionPolicy {
    /// Nobody.
    #[default]
    Never,
    /// A gang may take the place of gangs of strictly lower priority that are not protected.
    LowerPriority,
}

/// When a gang may take the place of one whose node has the larger share; with or without it, a node may take back what it owns.
/// After Kueue's `fairSharing.preemptionStrategies`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FairSharing {
    /// By either of the two rules below.
    #[default]
    FinalOrInitialShare,
    /// When afterwards its share is no larger than that of the other one (`LessThanOrEqualToFinalShare`).
    FinalShare,
    /// When afterwards its share is smaller than that of the other one was (`LessThanInitialShare`).
    InitialShare,
}
