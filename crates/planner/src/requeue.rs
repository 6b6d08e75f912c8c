//! Selects the parked rows to try again after the cluster changed.
//!
//! Parked rows are indexed by their queueing hint. So the cost of an event depends on the rows that it may
//! help, not on the number of pending gangs.

use std::collections::BTreeSet;

use model::{
    DirtyNode, FreeResources, NodeIx, PreemptionPolicy, QueueingHint, QuotaIx, QuotaPreemption, Shape,
    ShapeIx, Snapshot, World,
};

use crate::held_quota;

/// The parked rows to try again.
pub(crate) fn to_requeue(snapshot: &Snapshot<'_>) -> BTreeSet<ShapeIx> {
    let world = snapshot.world;
    let dirty_nodes: Vec<(NodeIx, &DirtyNode)> = world.dirty_nodes().collect();
    // A changed node or quota may help any gang, and may turn `Wait` into `Never`.
    if world.have_quotas_changed() || dirty_nodes.iter().any(|(_, dirty_node)| dirty_node.changed) {
        return world.parked().collect();
    }
    let reservations = || world.reserved().iter();
    // A gang whose reserved start has passed without room gets another one. After its time, it holds nobody back.
    let mut to_requeue: BTreeSet<ShapeIx> = reservations()
        .filter(|reserved| reserved.due().any(|due| due <= snapshot.now))
        .filter_map(|reserved| world.shape_of(&reserved.gang))
        .collect();
    let expired =
        !to_requeue.is_empty() || reservations().any(|reserved| world.shape_of(&reserved.gang).is_none());
    let (freed, lent) = (world.trees_with_less_usage(), world.trees_with_more_borrowed());
    let (mut freed, mut lent) = (freed.peekable(), lent.peekable());
    let moved = freed.peek().is_some() || lent.peek().is_some() || !dirty_nodes.is_empty();
    if moved || world.aggregates_shrank() || expired {
        to_requeue.extend(world.parked_for(QueueingHint::AnyChange).flat_map(|(_, rows)| rows));
    }
    to_requeue.extend(freed.flat_map(|root| world.parked_under(root)));
    let unheld = held_quota::trees_with_new_heads(world).into_iter();
    to_requeue.extend(unheld.flat_map(|root| world.parked_under(root)));
    let may_reclaim = |root| world.parked_under(root).filter(move |ix| may_reclaim(world, *ix, root));
    to_requeue.extend(lent.flat_map(may_reclaim));
    if world.aggregates_shrank() || !dirty_nodes.is_empty() {
        let supplied = |shape: &Shape| {
            let wanted = shape.mask();
            world.aggregates_shrank()
                || dirty_nodes.iter().any(|(_, dirty_node)| dirty_node.freed.meets(wanted))
        };
        let supplied = world.parked_for(QueueingHint::ResourceFreed).filter(|(shape, _)| supplied(shape));
        to_requeue.extend(supplied.flat_map(|(_, rows)| rows));
        let roomy = world
            .parked_for(QueueingHint::EligibleNodeFreed)
            .filter(|(shape, _)| may_hold(world, &dirty_nodes, shape));
        to_requeue.extend(roomy.flat_map(|(_, rows)| rows));
    }
    to_requeue.extend(concerned_by_pods(world, &dirty_nodes));
    // With admission fair sharing, a gang that arrives may go before the one with the reserved start.
    let may_be_overtaken =
        |uid: &str| world.gang(uid).is_some_and(|gang| world.admission_fair_sharing(gang.queue).is_some());
    if (!to_requeue.is_empty() || world.active().next().is_some())
        && reservations().any(|reserved| may_be_overtaken(&reserved.gang))
    {
        to_requeue.extend(world.parked_for(QueueingHint::AnyChange).flat_map(|(_, rows)| rows));
    }
    to_requeue
}

/// The rows whose rules depend on other pods, after such pods came or went, or a resource that they request was freed.
fn concerned_by_pods(world: &World, dirty_nodes: &[(NodeIx, &DirtyNode)]) -> Vec<ShapeIx> {
    let mut parked = world.parked_for(QueueingHint::PodRulesChange).peekable();
    if parked.peek().is_none() {
        return Vec::new();
    }
    let changed = world.changed_pod_marks();
    let is_concerned = |shape: &Shape| {
        let wanted = shape.mask();
        let mut rules = shape.pod_sets.iter().filter_map(|pod_set| pod_set.rules.as_ref());
        world.aggregates_shrank()
            || dirty_nodes.iter().any(|(_, dirty_node)| dirty_node.freed.meets(wanted))
            || rules.any(|rules| changed.iter().any(|mark| rules.concerns(mark)))
    };
    let concerned = parked.filter(|(shape, _)| is_concerned(shape));
    concerned.flat_map(|(_, rows)| rows.iter().copied()).collect()
}

/// Whether the gangs of a row may reclaim borrowed quota in the tree with this root.
fn may_reclaim(world: &World, ix: ShapeIx, root: QuotaIx) -> bool {
    let row = world.shape(ix);
    let mut charged = world.quota_of(row.queue).into_iter().chain(row.charges.iter().copied());
    charged.any(|node| {
        let quota = world.quota_nodes().get(&node);
        world.forest().root(node) == root
            && quota.is_some_and(|quota| quota.preemption != QuotaPreemption::default())
    })
}

/// Whether a node gained a resource that a pod of the gang requests, is eligible for it, and can hold one
/// now, or could after preemption.
///
/// Without such a node no placement is possible that was not possible before.
fn may_hold(world: &World, dirty_nodes: &[(NodeIx, &DirtyNode)], shape: &Shape) -> bool {
    let may_preempt = world.policy().preemption != PreemptionPolicy::Never;
    dirty_nodes.iter().any(|(ix, dirty_node)| {
        let (Some(class), Some(node)) = (world.class_of(*ix), world.node(world.node_name(*ix))) else {
            return false;
        };
        let class = &world.class(class).class;
        let empty = may_preempt.then(|| FreeResources::from(node.allocatable.clone()));
        let room = empty.as_ref().unwrap_or_else(|| world.free(*ix));
        shape.pod_sets.iter().filter(|pod_set| pod_set.count > 0).any(|pod_set| {
            dirty_node.freed.meets(pod_set.mask())
                && pod_set.fits_in(room)
                && pod_set.constraints.obstacle(class).is_none()
        })
    })
}
