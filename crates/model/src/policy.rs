//! The policy of a cluster: preemption, backfill, fair sharing and packing.

/// The policy of one cluster. It is a value in the world, not a compile-time switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Whether pending gangs may preempt running gangs outside of quota trees.
    pub preemption: PreemptionPolicy,
    /// Whether gangs may pass a gang that does not fit.
    pub backfill: Backfill,
    /// Whether unused quota of a tree is divided by dominant resource share. `None`: first come, first served.
    pub fair_sharing: Option<FairSharing>,
    /// Which nodes are preferred.
    pub packing: Packing,
    /// How domains of a topology are selected.
    pub topology: TopologyPolicy,
    /// How long a gang whose reserved start depends on an end that nobody declared may hold others back, in
    /// microseconds, counted from the first gang that it holds back. Zero: never.
    pub guessed_hold_us: i64,
}

impl Policy {
    /// Ten minutes.
    pub const GUESSED_HOLD_US: i64 = 600_000_000;
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            preemption: PreemptionPolicy::default(),
            backfill: Backfill::default(),
            fair_sharing: None,
            packing: Packing::default(),
            topology: TopologyPolicy::default(),
            guessed_hold_us: Self::GUESSED_HOLD_US,
        }
    }
}

/// How domains of a topology are selected. Kueue's gates of topology-aware scheduling (`pkg/features`, v0.19).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopologyPolicy {
    /// Pods without a preferred or required level fill the smallest gaps first (`TASProfileMixed`). Otherwise they are in as few
    /// domains as possible.
    pub fills_gaps: bool,
    /// Pods with a preferred level are spread evenly over as few domains as possible (`TASBalancedPlacement`).
    pub balances: bool,
}

impl Default for TopologyPolicy {
    fn default() -> Self {
        Self { fills_gaps: true, balances: false }
    }
}

/// How nodes are scored among those that can hold a pod. As long as the search is exhaustive, packing does not decide
/// whether a gang fits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Packing {
    /// Prefers nodes without resources that the pod does not request, then nodes with the least capacity left.
    #[default]
    TightestFit,
    /// Places each gang on as few nodes as possible.
    FewestNodes,
    /// Places pod by pod on the node where the expected fragmentation grows least, measured with the pods that all
    /// gangs of the world request. After Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with
    /// Fragmentation Gradient Descent", ATC 2023.
    LeastFragmentation,
    /// Places pod by pod on the node with the most free capacity, so that a node failure affects few pods.
    Spread,
}

impl Packing {
    /// All packing rules.
    pub const ALL: [Self; 4] = [Self::TightestFit, Self::FewestNodes, Self::LeastFragmentation, Self::Spread];

    /// The name in flags and configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::TightestFit => "tightest-fit",
            Self::FewestNodes => "fewest-nodes",
            Self::LeastFragmentation => "least-fragmentation",
            Self::Spread => "spread",
        }
    }

    /// The packing rule of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|packing| packing.name() == name)
    }
}

/// Whether gangs may pass a gang that does not fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backfill {
    /// Every gang that fits starts. A large gang may starve.
    #[default]
    BestEffort,
    /// The first gang that does not fit gets a reservation at its earliest start, from the expected ends of other
    /// gangs. Gangs behind it start only when they do not delay it. After Lifka, "The ANL/IBM SP Scheduling System",
    /// 1995 (EASY).
    Reserve,
    /// The first gangs that do not fit get reservations, each behind the reservations before it. Gangs behind them
    /// start only when they delay none of them. After Mu'alem and Feitelson, "Utilization, Predictability, Workloads,
    /// and User Runtime Estimates in Scheduling the IBM SP2 with Backfilling", 2001 (conservative), with a bounded
    /// depth as in Maui.
    Conservative {
        /// The number of reservations, at most [`Backfill::DEPTH_MAX`].
        depth: u32,
    },
}

impl Backfill {
    /// The maximum number of reservations. Every cycle recomputes all of them.
    pub const DEPTH_MAX: u32 = 64;

    /// The number of gangs that get a reservation.
    pub fn reservation_depth(self) -> u32 {
        match self {
            Self::BestEffort => 0,
            Self::Reserve => 1,
            Self::Conservative { depth } => depth.min(Self::DEPTH_MAX),
        }
    }
}

/// Which gangs may preempt each other when they share no quota tree. Inside a quota tree,
/// [`QuotaPreemption`](crate::QuotaPreemption) applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PreemptionPolicy {
    /// No gang preempts another one.
    #[default]
    Never,
    /// A gang may preempt gangs of strictly lower priority that are not protected.
    LowerPriority,
}

/// When a gang may preempt a gang whose quota node has the larger dominant share. Independent of this rule, a node
/// may reclaim its own quota. After Kueue's `fairSharing.preemptionStrategies`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FairSharing {
    /// When one of the two rules below holds.
    #[default]
    FinalOrInitialShare,
    /// When the preemptor's share after the preemption is not larger than the victim's share after it
    /// (`LessThanOrEqualToFinalShare`).
    FinalShare,
    /// When the preemptor's share after the preemption is smaller than the victim's share before it
    /// (`LessThanInitialShare`).
    InitialShare,
}

impl FairSharing {
    const ALL: [Self; 3] = [Self::FinalOrInitialShare, Self::FinalShare, Self::InitialShare];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::FinalOrInitialShare => "final-or-initial-share",
            Self::FinalShare => "final-share",
            Self::InitialShare => "initial-share",
        }
    }

    /// The one of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.name() == name)
    }
}
