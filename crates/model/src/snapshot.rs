//! A read-only view of the world at one time, as planner and audit receive it.

use crate::amount::Time;
use crate::world::World;

/// A borrow of the world and the time of the decision. Making a snapshot copies nothing.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot<'a> {
    /// The objects and their indexes.
    pub world: &'a World,
    /// The time of the decision.
    pub now: Time,
}

impl World {
    /// A snapshot of the world at `now`.
    pub fn snapshot(&self, now: Time) -> Snapshot<'_> {
        Snapshot { world: self, now }
    }
}
