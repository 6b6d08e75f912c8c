//! The constraints between pod sets and flavors: which flavors pods may use, and which nodes they may use then.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use model::{
    Cause, Constraints, DeviceShare, Effect, Flavor, FlavorIx, NodeClass, PodSet, QueueingHint, QuotaCause,
    ResourceIx, Shape, World,
};

use crate::request::{Flavors, GangRequest, Refusal};

/// Checks that pod sets may use a flavor: they tolerate its taints, and their node selectors and affinities
/// match its labels, as far as they refer to keys that the flavor defines. A pod set with a topology request needs a
/// flavor with nodes. In a queue that has quota-only flavors too, flavors with a topology take no other pod sets.
pub(super) fn check_compatible(
    world: &World,
    request: &GangRequest<'_>,
    pod_sets: &[usize],
    ix: FlavorIx,
) -> Result<(), Refusal> {
    let shape = request.shape;
    let add_refusal = |cause| Err((vec![Cause::Quota(cause)], QueueingHint::ClusterChange));
    let name = || world.flavor_name(ix).to_owned();
    let Some(flavor) = world.flavors().get(&ix) else {
        return add_refusal(QuotaCause::NoFlavor { flavor: name() });
    };
    let queue = world.queues().get(&request.queue);
    if let Some((pod_set, given)) = other_given(world, request, pod_sets, ix) {
        let given = world.flavor_name(given).to_owned();
        return add_refusal(QuotaCause::OtherFlavor { pod_set, flavor: name(), given });
    }
    let places_pods = queue.is_none_or(|queue| queue.places_pods);
    let mixes_quota_only = || queue.is_some_and(|queue| world.has_quota_only_flavor(queue));
    // A flavor may count what no pod requests: resources that others are counted as.
    let groups =
        queue.into_iter().flat_map(|queue| &queue.groups).filter(|group| group.flavors.contains(&ix));
    let offered: BTreeSet<ResourceIx> = groups.flat_map(|group| group.resources.iter().copied()).collect();
    let gives_requested = |set: &PodSet| {
        let share = set.share.map(DeviceShare::device);
        set.request
            .iter()
            .map(|(resource, _)| resource)
            .chain(share)
            .any(|resource| offered.contains(&resource))
    };
    for pod_set in pod_sets.iter().filter_map(|at| shape.pod_sets.get(*at)).filter(|set| set.count > 0) {
        let constraints = &pod_set.constraints;
        let tolerated = |taint| {
            let mut tolerations = constraints.tolerations.iter().chain(&flavor.tolerations);
            tolerations.any(|toleration| toleration.covers(taint))
        };
        let mut taints = flavor.node_taints.iter().filter(|taint| taint.effect != Effect::PreferNoSchedule);
        if let Some(taint) = taints.find(|taint| !tolerated(taint)) {
            let (pod_set, taint) = (pod_set.name.clone(), taint.clone());
            return add_refusal(QuotaCause::Untolerated { pod_set, flavor: name(), taint });
        }
        if pod_set.topology.is_some() && flavor.quota_only && !places_pods && gives_requested(pod_set) {
            return add_refusal(QuotaCause::NoTopology { pod_set: pod_set.name.clone(), flavor: name() });
        }
        if pod_set.topology.is_none() && !flavor.topology.is_empty() && !places_pods && mixes_quota_only() {
            return add_refusal(QuotaCause::TopologyOnly { pod_set: pod_set.name.clone(), flavor: name() });
        }
        if !matches(constraints, flavor) {
            return add_refusal(QuotaCause::Unmatched { pod_set: pod_set.name.clone(), flavor: name() });
        }
    }
    Ok(())
}

/// The pod set of a gang that takes the place of a running one in another flavor than this, and that other flavor.
fn other_given(
    world: &World,
    request: &GangRequest<'_>,
    pod_sets: &[usize],
    ix: FlavorIx,
) -> Option<(String, FlavorIx)> {
    let replaced = request.shape.replaces.as_ref()?;
    let groups = &world.queues().get(&request.queue)?.groups;
    let group = groups.iter().find(|group| group.flavors.contains(&ix))?;
    pod_sets.iter().find_map(|at| {
        let given = replaced.flavors.get(*at)?;
        let other =
            group.resources.iter().filter_map(|resource| given.get(resource)).find(|of| **of != ix)?;
        Some((request.shape.pod_sets.get(*at)?.name.clone(), *other))
    })
}

/// Whether nodes with the labels of a flavor could match. Ignores all other labels.
fn matches(constraints: &Constraints, flavor: &Flavor) -> bool {
    let labels = &flavor.node_labels;
    if labels.is_empty() || constraints.node_selector.is_empty() && constraints.node_affinity.is_empty() {
        return true;
    }
    let is_known = |key: &String| labels.contains_key(key);
    let mut known =
        Constraints { node_selector: constraints.node_selector.clone(), ..Constraints::default() };
    known.node_selector.retain(|key, _| is_known(key));
    known.node_affinity.clone_from(&constraints.node_affinity);
    for term in &mut known.node_affinity {
        term.expressions.retain(|wanted| is_known(&wanted.key));
        term.fields.clear();
    }
    // A term without any of these keys matches.
    if known.node_affinity.iter().any(|term| term.expressions.is_empty()) {
        known.node_affinity.clear();
    }
    let class = NodeClass {
        labels: labels.clone(),
        name: None,
        taints: Vec::new(),
        unschedulable: false,
        ready: true,
    };
    known.obstacle(&class).is_none()
}

/// A shape restricted to the nodes of its flavors, with their tolerations and the levels of their topologies.
pub(crate) fn with_flavor_constraints<'s>(
    world: &World,
    shape: &'s Shape,
    flavors: &Flavors,
) -> Cow<'s, Shape> {
    let has_topologies = shape.pod_sets.iter().any(|pod_set| pod_set.topology.is_some());
    let says_nothing = |flavor: &Flavor| {
        let has_levels = has_topologies && !flavor.topology.is_empty();
        flavor.node_labels.is_empty() && flavor.tolerations.is_empty() && !has_levels
    };
    let mut assigned = flavors.iter().take(shape.pod_sets.len()).flat_map(BTreeMap::values);
    if assigned.all(|ix| world.flavors().get(ix).is_none_or(says_nothing)) {
        return Cow::Borrowed(shape);
    }
    let given = |at: usize| {
        let ixs: BTreeSet<FlavorIx> =
            flavors.get(at).into_iter().flat_map(BTreeMap::values).copied().collect();
        ixs.into_iter().filter_map(|ix| world.flavors().get(&ix))
    };
    let mut pod_sets = shape.pod_sets.to_vec();
    for (at, pod_set) in pod_sets.iter_mut().enumerate() {
        for flavor in given(at) {
            add_flavor_constraints(&mut pod_set.constraints, flavor);
            if pod_set.topology.is_some() && !flavor.topology.is_empty() && pod_set.levels.is_empty() {
                pod_set.levels = flavor.topology.as_slice().into();
            }
        }
    }
    Cow::Owned(Shape { pod_sets: pod_sets.into(), ..shape.clone() })
}

/// Adds the node labels and the tolerations of a flavor. Contradicting flavors leave no eligible node.
fn add_flavor_constraints(constraints: &mut Constraints, flavor: &Flavor) {
    for (key, value) in &flavor.node_labels {
        match constraints.node_selector.get(key) {
            // Matches nothing.
            Some(wanted) if wanted != value => constraints.node_affinity = vec![model::Term::default()],
            _ => {
                constraints.node_selector.insert(key.clone(), value.clone());
            }
        }
    }
    constraints.tolerations.extend(flavor.tolerations.iter().cloned());
}
