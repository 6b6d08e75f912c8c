//! What planning is allowed to do: values in the world, not switches in the code.

/// The rules of one cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Whether waiting gangs may take the place of running ones.
    pub preemption: Preempting,
    /// Whether those who fit may pass one that does not.
    pub backfill: Backfill,
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
}

/// Who may take whose place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preempting {
    /// Nobody.
    #[default]
    Never,
    /// A gang may take the place of gangs of strictly lower priority that are not protected.
    LowerPriority,
}
