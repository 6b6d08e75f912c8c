//! Used quota in the course of one cycle, and whether a gang's request fits into the unused quota.
//!
//! [`Quotas`] is an overlay, like `ledger`, over the usage in the quota trees: what this cycle charges and
//! releases. [`Trial`] is an overlay on top of it, for one gang. The arithmetic is in `model::Forest`.

use std::collections::BTreeMap;

use model::{
    Amount, Cause, Charges, FlavorIx, FlavorResource, Forest, Quantity, QueueingHint, QuotaCause, QuotaIx,
    QuotaUsage, World,
};

use crate::request::{GangRequest, Refusal};

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Quotas<'w> {
    world: &'w World,
    /// The usage where it differs from the cluster state.
    used: Charges,
}

impl<'w> Quotas<'w> {
    /// The usage of the cluster state.
    pub(crate) fn of(world: &'w World) -> Self {
        Self { world, used: Charges::new() }
    }

    /// The cluster state below the overlay.
    pub(crate) fn world(&self) -> &'w World {
        self.world
    }

    /// Charges a gang.
    pub(crate) fn charge(&mut self, charges: &Charges) {
        self.apply(charges, 1);
    }

    /// Releases the charges of a gang: undoes [`Self::charge`], or releases what the cluster state charges.
    pub(crate) fn release(&mut self, charges: &Charges) {
        self.apply(charges, -1);
    }

    fn apply(&mut self, charges: &Charges, sign: i128) {
        let forest = self.world.forest();
        for ((node, of), amount) in charges {
            forest.charge(self, *node, *of, sign * amount);
        }
    }

    /// Whether the charges fit into the unused quota.
    pub(crate) fn fits(&self, charges: &Charges) -> bool {
        self.insufficient(charges).next().is_none()
    }

    /// The quota nodes and resources with too little unused quota for these charges.
    pub(crate) fn insufficient<'c>(
        &self,
        charges: &'c Charges,
    ) -> impl Iterator<Item = (QuotaIx, FlavorResource)> + use<'c, '_> {
        let mut trial = Trial::of(self);
        let short = move |((node, of), amount): (&(QuotaIx, FlavorResource), &i128)| {
            let enough = !is_counted(trial.base.world, *node, *of) || *amount <= trial.available(*node, *of);
            trial.charge(*node, *of, *amount);
            (!enough).then_some((*node, *of))
        };
        charges.iter().filter_map(short)
    }
}

impl Quotas<'_> {
    /// The highest level at which these charges of a node would borrow; see [`Forest::borrowing_level`].
    pub(crate) fn borrowing_level(&self, charges: &Charges, node: Option<QuotaIx>) -> u32 {
        let forest = self.world.forest();
        let is_charged = |at: QuotaIx, of| Some(at) == node && is_counted(self.world, at, of);
        let charges = charges.iter().filter(|((at, of), _)| is_charged(*at, *of));
        charges.map(|((at, of), amount)| forest.borrowing_level(self, *at, *of, *amount)).max().unwrap_or(0)
    }
}

impl QuotaUsage for Quotas<'_> {
    fn used(&self, node: QuotaIx, of: FlavorResource) -> i128 {
        self.used.get(&(node, of)).copied().unwrap_or_else(|| self.world.quota_used(node, of))
    }

    fn set_used(&mut self, node: QuotaIx, of: FlavorResource, used: i128) {
        self.used.insert((node, of), used);
    }
}

/// The usage if one gang were charged as well.
pub(crate) struct Trial<'q> {
    base: &'q Quotas<'q>,
    used: BTreeMap<(QuotaIx, FlavorResource), i128>,
}

impl<'q> Trial<'q> {
    /// A trial without any charge.
    pub(crate) fn of(base: &'q Quotas<'_>) -> Self {
        Self { base, used: BTreeMap::new() }
    }

    fn forest(&self) -> &'q Forest {
        self.base.world.forest()
    }

    /// The unused quota of a node; see [`Forest::available`].
    pub(crate) fn available(&self, node: QuotaIx, of: FlavorResource) -> i128 {
        self.forest().available(self, node, of)
    }

    /// See [`Forest::borrowing_level`].
    pub(crate) fn borrowing_level(&self, node: QuotaIx, of: FlavorResource, more: i128) -> u32 {
        self.forest().borrowing_level(self, node, of, more)
    }

    /// Charges a node; a negative amount is released.
    pub(crate) fn charge(&mut self, node: QuotaIx, of: FlavorResource, amount: i128) {
        self.forest().charge(self, node, of, amount);
    }

    /// Whether the tree of a node has quota for a flavored resource.
    fn counts(&self, node: QuotaIx, of: FlavorResource) -> bool {
        self.forest().covers(self.forest().root(node), of)
    }

    /// Checks that an amount can be charged to a node.
    pub(crate) fn shortage(&self, node: QuotaIx, of: FlavorResource, needs: i128) -> Result<(), Refusal> {
        let available = self.available(node, of);
        if needs <= available.max(0) {
            return Ok(());
        }
        let cause = shortfall(self.base.world, node, of, needs, Some(available));
        Err((vec![Cause::Quota(cause)], QueueingHint::QuotaReleased))
    }

    /// Charges a gang at the quota nodes that it names itself, or returns why it does not fit there. A tree
    /// that has no quota for a resource does not count it.
    pub(crate) fn charge_named_nodes(&mut self, request: &GangRequest<'_>) -> Result<(), Refusal> {
        if request.charges.is_empty() {
            return Ok(());
        }
        let requested = request.shape.quota_request();
        for node in request.charges {
            check_node(self.base.world, *node)?;
            for (resource, amount) in requested.iter().filter(|(_, amount)| amount.0 > 0) {
                let of = FlavorResource { flavor: FlavorIx::ANY, resource };
                let needs = i128::from(amount.0);
                if self.counts(*node, of) {
                    self.shortage(*node, of, needs)?;
                }
                self.charge(*node, of, needs);
            }
        }
        Ok(())
    }
}

impl QuotaUsage for Trial<'_> {
    fn used(&self, node: QuotaIx, of: FlavorResource) -> i128 {
        self.used.get(&(node, of)).copied().unwrap_or_else(|| self.base.used(node, of))
    }

    fn set_used(&mut self, node: QuotaIx, of: FlavorResource, used: i128) {
        self.used.insert((node, of), used);
    }
}

/// Whether a charge at a node counts. A resource without quota in the tree does not count, unless a queue
/// assigns it a flavor.
pub(crate) fn is_counted(world: &World, node: QuotaIx, of: FlavorResource) -> bool {
    let forest = world.forest();
    of.flavor != FlavorIx::ANY || forest.covers(forest.root(node), of)
}

/// Whether the queue of a gang, and all quota nodes that it is charged to, exist and are valid.
pub(crate) fn is_open(world: &World, request: &GangRequest<'_>) -> bool {
    check_open(world, request).is_ok() && request.charges.iter().all(|node| check_node(world, *node).is_ok())
}

/// Checks that the queue of a gang admits gangs at all.
pub(crate) fn check_open(world: &World, request: &GangRequest<'_>) -> Result<(), Refusal> {
    let name = || world.queue_name(request.queue).to_owned();
    let cause = |cause| Err((vec![Cause::Quota(cause)], QueueingHint::ClusterChange));
    match world.queues().get(&request.queue) {
        None => cause(QuotaCause::NoQueue { queue: name() }),
        Some(queue) if queue.stopped => cause(QuotaCause::Stopped { queue: name() }),
        Some(_) => world.quota_of(request.queue).map_or(Ok(()), |node| check_node(world, node)),
    }
}

fn check_node(world: &World, node: QuotaIx) -> Result<(), Refusal> {
    let quota = || world.quota_name(node).to_owned();
    let refuse = |cause| Err((vec![Cause::Quota(cause)], QueueingHint::ClusterChange));
    if !world.quota_nodes().contains_key(&node) {
        return refuse(QuotaCause::NoQuota { quota: quota() });
    }
    if !world.forest().has_root(node) {
        return refuse(QuotaCause::Cycle { quota: quota() });
    }
    Ok(())
}

/// Why the quota nodes that a gang names itself could not admit it even if no other gang used them.
pub(crate) fn permanent_causes(world: &World, request: &GangRequest<'_>) -> Option<Cause> {
    let requested = request.shape.quota_request();
    let forest = world.forest();
    request.charges.iter().filter(|node| check_node(world, **node).is_ok()).find_map(|node| {
        requested.iter().filter(|(_, amount)| amount.0 > 0).find_map(|(resource, amount)| {
            let of = FlavorResource { flavor: FlavorIx::ANY, resource };
            if !forest.covers(forest.root(*node), of) {
                return None;
            }
            exceeds_potential(world, *node, of, i128::from(amount.0))
        })
    })
}

/// Why a node could not admit an amount even if all other usage were released; none if it could.
pub(crate) fn exceeds_potential(
    world: &World,
    node: QuotaIx,
    of: FlavorResource,
    needs: i128,
) -> Option<Cause> {
    let potential = world.forest().potential_available(node, of);
    (needs > potential.max(0)).then(|| Cause::Quota(shortfall(world, node, of, needs, None)))
}

/// The shortage of an amount at a node.
pub(crate) fn shortfall(
    world: &World,
    node: QuotaIx,
    of: FlavorResource,
    needs: i128,
    available: Option<i128>,
) -> QuotaCause {
    let quantity = |sum: i128| Quantity::new(world.resources().name(of.resource), Amount::clamped(sum));
    let potential = world.forest().potential_available(node, of).max(0);
    QuotaCause::Short {
        quota: world.quota_name(node).to_owned(),
        flavor: (of.flavor != FlavorIx::ANY).then(|| world.flavor_name(of.flavor).to_owned()),
        needs: quantity(needs),
        available: available.filter(|_| needs <= potential).map(|left| quantity(left.max(0))),
        potential: quantity(potential),
        own: quantity(world.forest().subtree_quota(node, of).max(0)),
    }
}
