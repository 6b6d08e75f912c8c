//! The request of a gang, and what it is assigned.

use std::collections::BTreeMap;

use model::{Cause, FlavorIx, Gang, QueueIx, QueueingHint, QuotaIx, ResourceIx, Shape, ShapeRow, World};

use crate::place::Placement;

/// The flavor of each declared resource, for each pod set; as in `model::Assignment`.
pub(crate) type Flavors = Vec<BTreeMap<ResourceIx, FlavorIx>>;

/// All that determines whether a gang fits: its pods, its queue and its quota nodes. Equal requests get equal
/// answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct GangRequest<'g> {
    pub(crate) shape: &'g Shape,
    /// The cluster queue whose flavors the gang may use and whose quota it is charged to.
    pub(crate) queue: QueueIx,
    /// Further quota nodes that the gang is charged to.
    pub(crate) charges: &'g [QuotaIx],
}

/// The placement and flavors of a gang, not yet reserved.
#[derive(Clone, Debug)]
pub(crate) struct Fit {
    pub(crate) placement: Placement,
    pub(crate) flavors: Flavors,
    /// The pods that get no node; as in `model::Assignment`.
    pub(crate) unplaced: Vec<u32>,
}

/// Why a gang does not fit, and which event may help it.
pub(crate) type Refusal = (Vec<Cause>, QueueingHint);

impl<'g> GangRequest<'g> {
    /// The request of each gang of a row.
    pub(crate) fn of(row: &'g ShapeRow) -> Self {
        Self { shape: &row.shape, queue: row.queue, charges: &row.charges }.uncharged()
    }

    /// The same request without charges, if its quota is charged already.
    fn uncharged(self) -> Self {
        if self.is_charged() { Self { charges: &[], ..self } } else { self }
    }

    /// Whether its pods replace pods whose quota is still charged.
    pub(crate) fn is_charged(&self) -> bool {
        self.shape.scale_up.as_ref().is_some_and(|scale_up| scale_up.charged)
    }

    /// The quota node of its queue, if it is charged there.
    pub(crate) fn quota(&self, world: &World) -> Option<QuotaIx> {
        if self.is_charged() { None } else { world.quota_of(self.queue) }
    }

    /// The pods that get no node with these flavors; as in `model::Assignment`.
    pub(crate) fn unplaced(&self, world: &World, flavors: &Flavors) -> Vec<u32> {
        world.unplaced(self.queue, self.shape, flavors)
    }

    /// The request of a gang with this shape.
    pub(crate) fn of_gang(gang: &'g Gang, shape: &'g Shape) -> Self {
        Self { shape, queue: gang.queue, charges: &gang.charges }
    }
}
