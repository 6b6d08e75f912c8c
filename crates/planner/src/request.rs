//! What a gang asks for, and what it could be given.

use std::collections::BTreeMap;

use model::{Cause, FlavorIx, Gang, QueueIx, QueueingHint, QuotaIx, ResourceIx, Shape, ShapeRow, World};

use crate::place::Placement;

/// The flavor of each declared resource, for each pod set; as in `model::Assignment`.
pub(crate) type Flavors = Vec<BTreeMap<ResourceIx, FlavorIx>>;

/// All that decides whether a gang fits: its pods, and whom they are charged to. Gangs that ask for the same fit or wait
/// alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct GangRequest<'g> {
    pub(crate) shape: &'g Shape,
    /// The queue whose flavors it may have, and whose quota it is charged to.
    pub(crate) queue: QueueIx,
    /// The further quota nodes that it is charged to.
    pub(crate) charges: &'g [QuotaIx],
}

/// Places and flavors for every pod of a gang, found but not taken.
#[derive(Clone, Debug)]
pub(crate) struct Fit {
    pub(crate) placement: Placement,
    pub(crate) flavors: Flavors,
}

/// Why a gang does not fit, and what could help.
pub(crate) type Refusal = (Vec<Cause>, QueueingHint);

impl<'g> GangRequest<'g> {
    /// What each of the gangs of a row asks for.
    pub(crate) fn of(row: &'g ShapeRow) -> Self {
        Self { shape: &row.shape, queue: row.queue, charges: &row.charges }.uncharged()
    }

    /// The same without the quota that is charged for it already.
    fn uncharged(self) -> Self {
        if self.is_charged() { Self { charges: &[], ..self } } else { self }
    }

    /// Whether its pods take the place of others that quota is charged for.
    pub(crate) fn is_charged(&self) -> bool {
        self.shape.scale_up.as_ref().is_some_and(|scale_up| scale_up.charged)
    }

    /// The quota node of its queue, if it is to be charged there.
    pub(crate) fn quota(&self, world: &World) -> Option<QuotaIx> {
        if self.is_charged() { None } else { world.quota_of(self.queue) }
    }

    /// What a gang of this shape asks for.
    pub(crate) fn of_gang(gang: &'g Gang, shape: &'g Shape) -> Self {
        Self { shape, queue: gang.queue, charges: &gang.charges }
    }
}
