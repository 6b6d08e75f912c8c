//! Pods that are charged to quota and get no node: only those whose flavors are quota-only or whose places are open, and
//! what the nodes lack for them is told.

use std::collections::BTreeMap;

use model::{Assignment, FlavorIx, Gang, Places, Plan, Queue, ResourceIx, Verdict, World};

use crate::cluster_state::ClusterState;
use crate::violation::Violation;
use crate::{elastic, fit, quota};

/// Whether a pod set gets nodes with these flavors.
pub(crate) fn has_nodes(
    world: &World,
    gang: &Gang,
    flavors: &[BTreeMap<ResourceIx, FlavorIx>],
    at: usize,
) -> bool {
    if gang.places == Places::Open {
        return false;
    }
    let Some(queue) = world.queues().get(&gang.queue) else { return true };
    let own: Vec<FlavorIx> = flavors.get(at).into_iter().flat_map(BTreeMap::values).copied().collect();
    let counted = if own.is_empty() { listed(queue) } else { own };
    queue.places_pods || counted.is_empty() || counted.iter().any(|ix| !is_quota_only(world, *ix))
}

/// Whether the queue of a gang, without placing all pods itself, accepts a pod set in a flavor.
pub(crate) fn accepts_topology(world: &World, gang: &Gang, at: usize, flavor: FlavorIx) -> bool {
    let Some(queue) = world.queues().get(&gang.queue).filter(|queue| !queue.places_pods) else { return true };
    let requests_topology = gang.pod_sets.get(at).is_some_and(|set| set.topology.is_some());
    let has_topology = world.flavors().get(&flavor).is_some_and(|flavor| !flavor.topology.is_empty());
    if requests_topology {
        !is_quota_only(world, flavor)
    } else {
        !has_topology || !listed(queue).iter().any(|ix| is_quota_only(world, *ix))
    }
}

/// The gang without the pods that get no node with these flavors.
pub(crate) fn placed_part(
    world: &World,
    gang: &Gang,
    flavors: &[BTreeMap<ResourceIx, FlavorIx>],
) -> Option<Gang> {
    let unplaced = |at: usize| !has_nodes(world, gang, flavors, at);
    if !(0..gang.pod_sets.len().max(1)).any(unplaced) {
        return None;
    }
    let part = elastic::resized(gang, |at, set| if unplaced(at) { 0 } else { set.count });
    Some(Gang { declared: None, ..part })
}

/// Reports pods with a node in a quota-only flavor, and pods without one in another flavor.
pub(crate) fn check(world: &World, gang: &Gang, assignment: &Assignment, found: &mut Vec<Violation>) {
    for (at, set) in gang.pod_sets.iter().enumerate() {
        let is_wrong = if has_nodes(world, gang, &assignment.flavors, at) {
            assignment.unplaced_in(at) > 0
        } else {
            assignment.placed(at) > 0
        };
        if is_wrong {
            found.push(Violation::WrongPlacement { gang: gang.key.clone(), pod_set: set.name.clone() });
        }
    }
}

/// Reports admitted gangs for whose pods without a node the plan is wrong about the room on nodes, after all decisions
/// of the plan are charged.
pub(crate) fn check_told(cluster: &ClusterState<'_>, plan: &Plan, found: &mut Vec<Violation>) {
    for (uid, verdict) in &plan.verdicts {
        let Verdict::Admit(assignment) = verdict else { continue };
        let Some(gang) = cluster.world().gang(uid).filter(|_| !assignment.unplaced.is_empty()) else {
            continue;
        };
        let is_told = plan.without_room.iter().any(|(told, _)| told == uid);
        let pods = elastic::resized(gang, |at, _| assignment.unplaced_in(at));
        let pods = Gang { declared: None, places: Places::AtAdmission, ..pods };
        let pods = quota::in_flavors(cluster.world(), &pods, &assignment.flavors);
        let is_wrong =
            if is_told { fit::fits_on_nodes(cluster, &pods) } else { !fit::could_place(cluster, &pods, &[]) };
        if is_wrong {
            found.push(Violation::WrongRoom { gang: gang.key.clone() });
        }
    }
}

fn listed(queue: &Queue) -> Vec<FlavorIx> {
    queue.groups.iter().flat_map(|group| &group.flavors).copied().collect()
}

pub(crate) fn is_quota_only(world: &World, ix: FlavorIx) -> bool {
    world.flavors().get(&ix).is_some_and(|flavor| flavor.quota_only)
}
