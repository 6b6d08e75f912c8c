//! Dense indices of gangs and of rows of gangs.

/// A gang, as a dense index. Indices of deleted gangs are reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GangIx(pub u32);

/// A row of gangs with equal shape, queue, local queue, charges, priority, slope and expected run time, as a dense
/// index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShapeIx(pub u32);
