//! The node capacity that quota includes.

use model::{Constraints, FlavorIx, FlavorResource, Toleration, TolerationOperator, World};

use crate::fit;

/// The capacity of the nodes of a flavor: nodes with the labels and taints of the flavor that accept its pods. For
/// the flavor `ANY`, all schedulable nodes.
pub(super) fn node_capacity(world: &World, of: FlavorResource) -> i128 {
    let Some(flavor) = world.flavors().get(&of.flavor) else { return 0 };
    let is_any = of.flavor == FlavorIx::ANY;
    let tolerated = flavor.node_taints.iter().map(|taint| Toleration {
        key: Some(taint.key.clone()),
        operator: TolerationOperator::Equal,
        value: taint.value.clone(),
        effect: Some(taint.effect),
    });
    let all = Toleration { operator: TolerationOperator::Exists, ..Toleration::default() };
    let constraints = Constraints {
        node_selector: flavor.node_labels.clone(),
        tolerations: flavor
            .tolerations
            .iter()
            .cloned()
            .chain(tolerated)
            .chain(is_any.then_some(all))
            .collect(),
        ..Constraints::default()
    };
    let nodes = world.nodes().filter(|node| {
        let mut missing = flavor.node_taints.iter().filter(|taint| !node.taints.contains(taint));
        fit::is_eligible(node, &constraints) && missing.next().is_none()
    });
    nodes.map(|node| i128::from(node.allocatable.get(of.resource).0)).sum()
}
