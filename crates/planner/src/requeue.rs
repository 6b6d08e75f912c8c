//! Which parked gangs could fare better than last time, after what changed.
//!
//! The world lists them by what could help them, so that an event costs what it helps and not what waits.

use std::collections::BTreeSet;

use model::{
    DirtyNodes, NodeIx, PreemptionPolicy, QueueingHint, QuotaIx, QuotaPreemption, Room, Shape, ShapeIx,
    Snapshot, World,
};

/// The parked shapes that are worth another try.
pub(crate) fn woken(snapshot: &Snapshot<'_>) -> BTreeSet<ShapeIx> {
    let world = snapshot.world;
    let dirty_nodes: Vec<(NodeIx, &DirtyNodes)> = world.dirty_nodes().collect();
    // A node or a limit that is another than before may help anyone, and may turn a wait into a never.
    if world.have_quotas_changed() || dirty_nodes.iter().any(|(_, dirty_nodes)| dirty_nodes.changed) {
        return world.parked().collect();
    }
    let promised = || world.reserved().iter();
    // Whose start has come without its room gets another one.
    let mut woken: BTreeSet<ShapeIx> = promised()
        .filter(|reserved| reserved.start <= snapshot.now)
        .filter_map(|reserved| world.shape_of(&reserved.gang))
        .collect();
    let expired = !woken.is_empty() || promised().any(|reserved| world.shape_of(&reserved.gang).is_none());
    let (freed, lent) = (world.trees_with_less_usage(), world.trees_with_more_borrowed());
    let (mut freed, mut lent) = (freed.peekable(), lent.peekable());
    let moved = freed.peek().is_some() || lent.peek().is_some() || !dirty_nodes.is_empty();
    if moved || world.aggregates_shrank() || expired {
        woken.extend(world.parked_for(QueueingHint::Change).flat_map(|(_, rows)| rows));
    }
    woken.extend(freed.flat_map(|root| world.parked_under(root)));
    let may_reclaim = |root| world.parked_under(root).filter(move |ix| may_reclaim(world, *ix, root));
    woken.extend(lent.flat_map(may_reclaim));
    if world.aggregates_shrank() || !dirty_nodes.is_empty() {
        let supplied = |shape: &Shape| {
            let wanted = shape.mask();
            world.aggregates_shrank()
                || dirty_nodes.iter().any(|(_, dirty_nodes)| dirty_nodes.risen.meets(wanted))
        };
        let supplied = world.parked_for(QueueingHint::Supply).filter(|(shape, _)| supplied(shape));
        woken.extend(supplied.flat_map(|(_, rows)| rows));
        let roomy =
            world.parked_for(QueueingHint::Room).filter(|(shape, _)| may_hold(world, &dirty_nodes, shape));
        woken.extend(roomy.flat_map(|(_, rows)| rows));
    }
    // Where local queues take turns, whoever comes may go before the one that others were held back for.
    let may_be_passed = |uid: &str| world.gang(uid).is_some_and(|gang| world.sharing(gang.queue).is_some());
    if (!woken.is_empty() || world.awake().next().is_some())
        && promised().any(|reserved| may_be_passed(&reserved.gang))
    {
        woken.extend(world.parked_for(QueueingHint::Change).flat_map(|(_, rows)| rows));
    }
    woken
}

/// Whether the gangs of a row may take back what others borrow in the tree of quota with this root.
fn may_reclaim(world: &World, ix: ShapeIx, root: QuotaIx) -> bool {
    let row = world.shape(ix);
    let mut charged = world.quota_of(row.queue).into_iter().chain(row.charges.iter().copied());
    charged.any(|node| {
        let quota = world.quota_nodes().get(&node);
        world.forest().root(node) == root
            && quota.is_some_and(|quota| quota.preemption != QuotaPreemption::default())
    })
}

/// Whether a node gained something that a pod of the gang asks for, is eligible for it and can hold one now,
/// or could if others made room.
///
/// Without such a node every placement would have been possible before as well.
fn may_hold(world: &World, dirty_nodes: &[(NodeIx, &DirtyNodes)], shape: &Shape) -> bool {
    let may_preempt = world.policy().preemption != PreemptionPolicy::Never;
    dirty_nodes.iter().any(|(ix, dirty_nodes)| {
        let (Some(class), Some(node)) = (world.class_of(*ix), world.node(world.node_name(*ix))) else {
            return false;
        };
        let class = &world.class(class).class;
        let empty = may_preempt.then(|| Room::from(node.allocatable.clone()));
        let room = empty.as_ref().unwrap_or_else(|| world.free(*ix));
        shape.pod_sets.iter().filter(|pod_set| pod_set.count > 0).any(|pod_set| {
            dirty_nodes.risen.meets(pod_set.mask())
                && pod_set.fits_in(room)
                && pod_set.constraints.obstacle(class).is_none()
        })
    })
}
