//! The world at an instant, as it is lent to a planner or an auditor.

use crate::amount::Time;
use crate::world::World;

/// A borrow of the world with the time at which it is looked at; never a copy.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot<'a> {
    /// The facts and their indexes.
    pub world: &'a World,
    /// The time of the decision.
    pub now: Time,
}
