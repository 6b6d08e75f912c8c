//! The admission that is written for a decision of the planner.

use api::kueue::quantity::canonical;
use api::kueue::status::{Admission, DELAYED, PodSetAssignment};
use index::{Index, WorkloadRow};
use model::{Assignment, Effect, FlavorIx, Places, PodSet, World};

/// The admission of a Workload with this assignment; `None` if it cannot be admitted so any more. A pod set without pods gets
/// the first flavors of its queue whose taints it tolerates.
pub(super) fn of(index: &Index, row: &WorkloadRow, assignment: &Assignment) -> Option<Admission> {
    let world = index.world();
    let gang = world.gang(row.uid())?;
    let delayed = match gang.places {
        Places::Open => world.open_pod_sets(gang, assignment),
        Places::AtAdmission | Places::Requested => Vec::new(),
    };
    let groups = world.queues().get(&gang.queue).map_or(&[][..], |queue| &queue.groups);
    let sets = row.pod_sets().iter().enumerate().map(|(at, set)| {
        let count = u32::try_from(assignment.count(at)).unwrap_or(u32::MAX);
        let mut flavors = assignment.flavors.get(at).cloned().unwrap_or_default();
        for group in groups.iter().filter(|_| count == 0) {
            for resource in
                group.resources.iter().filter(|resource| set.quota_request().get(**resource).0 > 0)
            {
                let first = group.flavors.iter().find(|flavor| tolerates(world, set, **flavor));
                flavors.extend(first.map(|first| (*resource, *first)));
            }
        }
        let usage = flavors.keys().map(|resource| {
            let amount = set.quota_request().get(*resource).0.saturating_mul(i64::from(count));
            let name = world.resources().name(*resource);
            (name.to_owned(), canonical(name, amount).into())
        });
        let named = flavors.iter().map(|(resource, flavor)| {
            (world.resources().name(*resource).to_owned(), world.flavor_name(*flavor).to_owned())
        });
        PodSetAssignment {
            name: set.name.clone(),
            flavors: named.collect(),
            resource_usage: usage.collect(),
            count: Some(count),
            topology_assignment: index
                .topology_assignment(row, assignment, at)
                .map(|places| places.to_v1beta2()),
            delayed_topology_request: delayed.contains(&at).then(|| DELAYED.to_owned()),
        }
    });
    let admission = Admission {
        cluster_queue: world.queue_name(gang.queue).to_owned(),
        pod_set_assignments: sets.collect(),
    };
    index.slice_admission(row, admission)
}

fn tolerates(world: &World, set: &PodSet, flavor: FlavorIx) -> bool {
    let Some(flavor) = world.flavors().get(&flavor) else { return false };
    let mut keeps_out = flavor.node_taints.iter().filter(|taint| taint.effect != Effect::PreferNoSchedule);
    keeps_out.all(|taint| {
        let mut tolerations = set.constraints.tolerations.iter().chain(&flavor.tolerations);
        tolerations.any(|toleration| toleration.covers(taint))
    })
}
