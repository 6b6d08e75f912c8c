//! What is used of quota in the course of one pass, and whether there is enough for a gang.
//!
//! [`Quotas`] is an overlay like the one of `ledger`, over the usage of the trees: the world, less and more what this pass
//! gave and let go. [`Trial`] is another one on top of it, for one gang. The arithmetic is `model::Forest`'s.

use std::collections::BTreeMap;

use model::{
    Amount, Cause, Charges, FlavorIx, FlavorResource, Forest, Quantity, QueueingHint, QuotaCause, QuotaIx,
    Usage, World,
};

use crate::request::{GangRequest, Refusal};

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

    /// The world that this is laid over.
    pub(crate) fn world(&self) -> &'w World {
        self.world
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

    /// Whether there is enough left for all of this.
    pub(crate) fn suffice(&self, charges: &Charges) -> bool {
        self.short(charges).next().is_none()
    }

    /// Of what there is too little left, and where.
    pub(crate) fn short<'c>(
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

impl Usage for Quotas<'_> {
    fn used(&self, node: QuotaIx, of: FlavorResource) -> i128 {
        self.used.get(&(node, of)).copied().unwrap_or_else(|| self.world.quota_used(node, of))
    }

    fn set_used(&mut self, node: QuotaIx, of: FlavorResource, used: i128) {
        self.used.insert((node, of), used);
    }
}

/// What would be used if one gang were charged this and that as well.
pub(crate) struct Trial<'q> {
    base: &'q Quotas<'q>,
    used: BTreeMap<(QuotaIx, FlavorResource), i128>,
}

impl<'q> Trial<'q> {
    /// Nothing is charged yet.
    pub(crate) fn of(base: &'q Quotas<'_>) -> Self {
        Self { base, used: BTreeMap::new() }
    }

    fn forest(&self) -> &'q Forest {
        self.base.world.forest()
    }

    /// What is left for a node; see [`Forest::available`].
    pub(crate) fn available(&self, node: QuotaIx, of: FlavorResource) -> i128 {
        self.forest().available(self, node, of)
    }

    /// See [`Forest::borrowing_level`].
    pub(crate) fn borrowing_level(&self, node: QuotaIx, of: FlavorResource, more: i128) -> u32 {
        self.forest().borrowing_level(self, node, of, more)
    }

    /// Charges a node, or gives back when negative.
    pub(crate) fn charge(&mut self, node: QuotaIx, of: FlavorResource, amount: i128) {
        self.forest().charge(self, node, of, amount);
    }

    /// Whether the tree of a node says anything of a flavored resource.
    fn counts(&self, node: QuotaIx, of: FlavorResource) -> bool {
        self.forest().counts(self.forest().root(node), of)
    }

    /// Whether so much can be charged to a node.
    pub(crate) fn shortage(&self, node: QuotaIx, of: FlavorResource, needs: i128) -> Result<(), Refusal> {
        let available = self.available(node, of);
        if needs <= available.max(0) {
            return Ok(());
        }
        let cause = short(self.base.world, node, of, needs, Some(available));
        Err((vec![Cause::Quota(cause)], QueueingHint::Quota))
    }

    /// Charges what a gang is charged at the nodes that it names itself, or says what keeps it out. What no node of a tree
    /// mentions is not counted there.
    pub(crate) fn charge_named(&mut self, request: &GangRequest<'_>) -> Result<(), Refusal> {
        let promise = request.shape.promise();
        for node in request.charges {
            sound(self.base.world, *node)?;
            for (resource, amount) in promise.iter().filter(|(_, amount)| amount.0 > 0) {
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

impl Usage for Trial<'_> {
    fn used(&self, node: QuotaIx, of: FlavorResource) -> i128 {
        self.used.get(&(node, of)).copied().unwrap_or_else(|| self.base.used(node, of))
    }

    fn set_used(&mut self, node: QuotaIx, of: FlavorResource, used: i128) {
        self.used.insert((node, of), used);
    }
}

/// Whether what is charged to a node counts. A tree that says nothing of a resource does not count it, unless a queue gives
/// it a flavor there.
pub(crate) fn is_counted(world: &World, node: QuotaIx, of: FlavorResource) -> bool {
    let forest = world.forest();
    of.flavor != FlavorIx::ANY || forest.counts(forest.root(node), of)
}

/// Whether a gang's queue and all quota that it is charged to exist and are in order.
pub(crate) fn is_open(world: &World, request: &GangRequest<'_>) -> bool {
    closed(world, request).is_ok() && request.charges.iter().all(|node| sound(world, *node).is_ok())
}

/// What keeps a gang out of its queue, whatever it asks for.
pub(crate) fn closed(world: &World, request: &GangRequest<'_>) -> Result<(), Refusal> {
    let name = || world.queue_name(request.queue).to_owned();
    let cause = |cause| Err((vec![Cause::Quota(cause)], QueueingHint::Nodes));
    match world.queues().get(&request.queue) {
        None => cause(QuotaCause::NoQueue { queue: name() }),
        Some(queue) if queue.stopped => cause(QuotaCause::Stopped { queue: name() }),
        Some(_) => world.quota_of(request.queue).map_or(Ok(()), |node| sound(world, node)),
    }
}

fn sound(world: &World, node: QuotaIx) -> Result<(), Refusal> {
    let quota = world.quota_name(node).to_owned();
    if !world.quota_nodes().contains_key(&node) {
        return Err((vec![Cause::Quota(QuotaCause::NoQuota { quota })], QueueingHint::Nodes));
    }
    if !world.forest().is_sound(node) {
        return Err((vec![Cause::Quota(QuotaCause::Cycle { quota })], QueueingHint::Nodes));
    }
    Ok(())
}

/// Why a gang could not have what it names itself even if nobody else used anything.
pub(crate) fn never(world: &World, request: &GangRequest<'_>) -> Option<Cause> {
    let promise = request.shape.promise();
    let forest = world.forest();
    request.charges.iter().filter(|node| sound(world, **node).is_ok()).find_map(|node| {
        promise.iter().filter(|(_, amount)| amount.0 > 0).find_map(|(resource, amount)| {
            let of = FlavorResource { flavor: FlavorIx::ANY, resource };
            if !forest.counts(forest.root(*node), of) {
                return None;
            }
            beyond(world, *node, of, i128::from(amount.0))
        })
    })
}

/// Why a node could not have so much even if nobody else used anything, if it could not.
pub(crate) fn beyond(world: &World, node: QuotaIx, of: FlavorResource, needs: i128) -> Option<Cause> {
    let potential = world.forest().potential(node, of);
    (needs > potential.max(0)).then(|| Cause::Quota(short(world, node, of, needs, None)))
}

fn short(
    world: &World,
    node: QuotaIx,
    of: FlavorResource,
    needs: i128,
    available: Option<i128>,
) -> QuotaCause {
    let quantity = |sum: i128| Quantity::new(world.resources().name(of.resource), Amount::clamped(sum));
    let potential = world.forest().potential(node, of).max(0);
    QuotaCause::Short {
        quota: world.quota_name(node).to_owned(),
        flavor: (of.flavor != FlavorIx::ANY).then(|| world.flavor_name(of.flavor).to_owned()),
        needs: quantity(needs),
        available: available.filter(|_| needs <= potential).map(|left| quantity(left.max(0))),
        potential: quantity(potential),
    }
}
