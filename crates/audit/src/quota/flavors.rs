//! Pods confined to the nodes of their flavors.

use std::collections::BTreeMap;

use model::{Flavor, FlavorIx, Gang, PodSet, ResourceIx, World};

use crate::quota_only;

/// A copy of the gang with the pods that get nodes, confined to the nodes of their flavors.
pub(crate) fn with_flavors(world: &World, gang: &Gang, flavors: &[BTreeMap<ResourceIx, FlavorIx>]) -> Gang {
    let confined = in_flavors(world, gang, flavors);
    quota_only::placed_part(world, &confined, flavors).unwrap_or(confined)
}

/// A copy of the gang whose pods are confined to the nodes of their flavors.
pub(crate) fn in_flavors(world: &World, gang: &Gang, flavors: &[BTreeMap<ResourceIx, FlavorIx>]) -> Gang {
    let mut restricted = gang.clone();
    let mut pod_sets = gang.pod_sets.to_vec();
    for (pod_set, flavors) in pod_sets.iter_mut().zip(flavors) {
        for flavor in flavors.values().filter_map(|ix| world.flavors().get(ix)) {
            restrict_to_flavor(pod_set, flavor);
        }
    }
    restricted.pod_sets = pod_sets.into();
    restricted
}

fn restrict_to_flavor(pod_set: &mut PodSet, flavor: &Flavor) {
    if pod_set.levels.is_empty() {
        pod_set.levels = flavor.topology.as_slice().into();
    }
    let constraints = &mut pod_set.constraints;
    constraints.tolerations.extend(flavor.tolerations.iter().cloned());
    for (key, value) in &flavor.node_labels {
        if constraints.node_selector.insert(key.clone(), value.clone()).is_some_and(|old| old != *value) {
            constraints.node_affinity = vec![model::Term::default()]; // No node matches: a label has one value only.
        }
    }
}
