//! Which parked gangs could fare better than last time, after what changed.

use std::collections::BTreeSet;

use model::{
    Dirt, NodeIx, Preempting, QuotaIx, Reclaim, Room, Shape, ShapeIx, ShapeRow, Snapshot, Verdict, Wake,
    World,
};

/// The parked shapes that are worth another try.
pub(crate) fn woken(snapshot: &Snapshot<'_>) -> Vec<ShapeIx> {
    let world = snapshot.world;
    let dirt: Vec<(NodeIx, &Dirt)> = world.dirt().collect();
    let promised = || world.reserved().iter();
    // Whose start has come without its room gets another one.
    let due: BTreeSet<ShapeIx> = promised()
        .filter(|reserved| reserved.start <= snapshot.now)
        .filter_map(|reserved| world.shape_of(&reserved.gang))
        .collect();
    let expired = !due.is_empty() || promised().any(|reserved| world.shape_of(&reserved.gang).is_none());
    let everyone = world.have_quotas_changed() || dirt.iter().any(|(_, dirt)| dirt.changed);
    let (freed, lent) = (world.has_any_usage_fallen(), world.has_any_usage_risen());
    if dirt.is_empty() && !world.aggregates_shrank() && !expired && !everyone && !freed && !lent {
        return Vec::new();
    }
    let mut woken = Vec::new();
    for (shape, rows) in world.parked() {
        let mut has_room = None;
        for &ix in rows {
            let row = world.shape(ix);
            let Some(shortage) = row.parked.as_ref().and_then(Verdict::shortage) else {
                continue;
            };
            // A node or a limit that is another than before may help anyone, and may turn a wait into a never.
            let helped = everyone
                || due.contains(&ix)
                || (freed && shortage.wake >= Wake::Quota && has_more_quota(world, row))
                || (lent && shortage.wake >= Wake::Quota && may_take_back_more(world, row))
                || match shortage.wake {
                    Wake::Turn | Wake::Nodes | Wake::Pods | Wake::Quota => false,
                    Wake::Room if !gives_flavors(world, row) => {
                        *has_room.get_or_insert_with(|| may_hold(world, &dirt, shape))
                    }
                    // Flavors open nodes that the gang itself would not tolerate.
                    Wake::Room | Wake::Supply => {
                        let wanted = shape.mask();
                        world.aggregates_shrank() || dirt.iter().any(|(_, dirt)| dirt.risen.meets(wanted))
                    }
                    Wake::Change => true,
                };
            if helped {
                woken.push(ix);
            }
        }
    }
    woken
}

/// Whether usage fell in a tree of quota that the gangs of a row are charged to.
fn has_more_quota(world: &World, row: &ShapeRow) -> bool {
    let mut charged = world.quota_of(row.queue).into_iter().chain(row.charges.iter().copied());
    charged.any(|node| world.has_usage_fallen(world.forest().root(node)))
}

/// Whether usage rose in a tree of quota where the gangs of a row may take back what is borrowed.
fn may_take_back_more(world: &World, row: &ShapeRow) -> bool {
    let reclaims = |node: &QuotaIx| {
        world.quota_nodes().get(node).is_some_and(|node| node.preemption.reclaim != Reclaim::Never)
    };
    let charged = world.quota_of(row.queue).into_iter().chain(row.charges.iter().copied());
    charged.filter(reclaims).any(|node| world.has_usage_risen(world.forest().root(node)))
}

fn gives_flavors(world: &World, row: &ShapeRow) -> bool {
    world.queues().get(&row.queue).is_some_and(|queue| !queue.groups.is_empty())
}

/// Whether a node gained something that a pod of the gang asks for, is eligible for it and can hold one now,
/// or could if others made room.
///
/// Without such a node every placement would have been possible before as well.
fn may_hold(world: &World, dirt: &[(NodeIx, &Dirt)], shape: &Shape) -> bool {
    let may_preempt = world.policy().preemption != Preempting::Never;
    dirt.iter().any(|(ix, dirt)| {
        let (Some(class), Some(node)) = (world.class_of(*ix), world.node(world.node_name(*ix))) else {
            return false;
        };
        let class = &world.class(class).class;
        let empty = may_preempt.then(|| Room::from(node.allocatable.clone()));
        let room = empty.as_ref().unwrap_or_else(|| world.free(*ix));
        shape.pod_sets.iter().filter(|pod_set| pod_set.count > 0).any(|pod_set| {
            dirt.risen.meets(pod_set.mask())
                && pod_set.fits_in(room)
                && pod_set.constraints.obstacle(class).is_none()
        })
    })
}
