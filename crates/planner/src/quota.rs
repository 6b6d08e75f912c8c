//! What is used of quota in the course of one pass: the world, less and more what this pass gave and let go.
//!
//! An overlay like the one of `ledger`, over the usage of the trees. The arithmetic is `model::Forest`'s.

use model::{Charges, FlavorResource, QuotaIx, Usage, World};

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Quotas<'w> {
    world: &'w World,
    /// What is used now where that is not what the world says.
    used: Charges,
}

impl<'w> Quotas<'w> {
    /// The world as it is.
    pub(crate) fn of(world: &'w World) -> Self {
        Self { world, used: Charges::new() }
    }

    /// Takes what a gang is charged.
    pub(crate) fn charge(&mut self, charges: &Charges) {
        self.turn(charges, 1);
    }

    /// Undoes [`Self::charge`], or lets go what the world says is charged.
    pub(crate) fn give_back(&mut self, charges: &Charges) {
        self.turn(charges, -1);
    }

    fn turn(&mut self, charges: &Charges, sign: i128) {
        let forest = self.world.forest();
        for ((node, of), amount) in charges {
            forest.charge(self, *node, *of, sign * amount);
        }
    }
}

impl Usage for Quotas<'_> {
    fn used(&self, node: QuotaIx, of: FlavorResource) -> i128 {
        self.used.get(&(node, of)).copied().unwrap_or_else(|| self.world.quota_used(node, of))
    }

    fn set_used(&mut self, node: QuotaIx, of: FlavorResource, used: i128) {
        self.used.insert((node, of), used);
    }
}
