//! What planning is allowed to do: values in the world, not switches in the code.

/// The rules of one cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Whether waiting gangs may take the place of running ones.
    pub preemption: Preempting,
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
