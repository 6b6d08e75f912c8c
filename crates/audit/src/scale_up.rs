//! Running gangs that scale up, or replace pods on unhealthy nodes: all missing pods or none, and the other pods stay
//! on their nodes.

use std::collections::{BTreeMap, BTreeSet};

use model::{Assignment, Gang, GangState, Places, Plan, Snapshot, TopologyMode, Verdict};

use crate::cluster_state::ClusterState;
use crate::quota::in_flavors;
use crate::violation::Violation;
use crate::{check_nodes, elastic, fairness, fit, queue_order, quota_only, topology};

/// The nodes of a pod set by rank.
fn by_rank(assignment: &Assignment, at: usize) -> Vec<&str> {
    let places = assignment.pod_sets.get(at).into_iter().flatten();
    places.flat_map(|(node, count)| (0..*count).map(move |_| node.as_str())).collect()
}

/// The missing pods of a running gang, as a gang that keeps the assignment of the running pods; `None` when no pod is
/// missing.
pub(crate) fn scale_up_request(gang: &Gang) -> Option<Gang> {
    let GangState::Reserved(assignment) = &gang.state else { return None };
    let (_, held) = elastic::held(gang, assignment);
    let failed = |at: usize| by_rank(&held, at).iter().filter(|node| gang.unhealthy.contains(**node)).count();
    let asks = gang.places == Places::Requested;
    let open = |at: usize| if asks { held.unplaced_in(at) } else { 0 };
    let any_failed = (0..gang.pod_sets.len()).any(|at| failed(at) > 0 || open(at) > 0);
    let are_all_open = asks && (0..gang.pod_sets.len()).all(|at| held.placed(at) == 0);
    let grown = |at: usize, count: u32| {
        let done = gang.reclaimable.get(at).copied().unwrap_or(0);
        count.saturating_sub(done).saturating_sub(u32::try_from(held.count(at)).unwrap_or(u32::MAX))
    };
    let mut missing = elastic::resized(gang, |at, set| match (any_failed, gang.elastic) {
        (true, _) => u32::try_from(failed(at)).unwrap_or(u32::MAX).saturating_add(open(at)),
        (false, true) => grown(at, set.count),
        (false, false) => 0,
    });
    if !are_all_open {
        missing.declared = None;
    }
    missing.excluded = gang.excluded.union(&gang.unhealthy).cloned().collect::<BTreeSet<_>>().into();
    missing.state = GangState::Reserved(held);
    missing.pod_sets.iter().any(|set| set.count > 0).then_some(missing)
}

/// Checks the verdict for the `missing` pods of a gang.
pub(crate) fn check(
    cluster: &mut ClusterState<'_>,
    missing: &Gang,
    verdict: Option<&Verdict>,
    may_be_held_back: bool,
    found: &mut Vec<Violation>,
) {
    let gang = missing.key.clone();
    match verdict {
        Some(Verdict::Admit(assignment)) => check_admitted(cluster, missing, assignment, found),
        Some(Verdict::Never(_))
            if !topology::has_topology_request(missing) && fit::would_fit_when_empty(cluster, missing) =>
        {
            found.push(Violation::WronglyInfeasible { gang });
        }
        None if cluster.world().verdict(&missing.uid).is_none() => {
            found.push(Violation::VerdictMissing { gang });
        }
        Some(Verdict::Wait(_) | Verdict::Never(_) | Verdict::Preempt(_)) | None => {
            if !may_be_held_back
                && !cluster.quotas.may_be_held(missing)
                && !topology::has_topology_request(missing)
                && let Some(assignment) = fit::first_fit(cluster, missing)
            {
                found.push(Violation::FitsButPending { gang, assignment });
            }
        }
    }
}

/// Merges scale-up requests into the sequence of decisions: admitted ones in plan order, the others in queue order.
/// New gangs keep their rank; scale-up requests have none.
pub(crate) fn merge_into_sequence<'w>(
    cluster: &ClusterState<'_>,
    snapshot: &Snapshot<'_>,
    plan: &Plan,
    sequence: Vec<(usize, &'w Gang)>,
    requests: &'w [Gang],
) -> Vec<(Option<usize>, &'w Gang)> {
    let decided = plan.verdicts.iter().filter(|(_, verdict)| verdict.shortage().is_none());
    let decided: Vec<&str> = decided.map(|(uid, _)| uid.as_str()).collect();
    let position = |gang: &Gang| decided.iter().position(|uid| *uid == gang.uid);
    let (mut admitted, rest): (Vec<&Gang>, Vec<&Gang>) =
        requests.iter().partition(|gang| position(gang).is_some());
    admitted.sort_by_key(|gang| position(gang));
    let mut admitted = admitted.into_iter().peekable();
    let mut all = Vec::new();
    for (at, gang) in sequence {
        let shares_quota = fairness::node_of(cluster.world(), &cluster.quotas, gang).is_some();
        let precedes = |before: &&Gang| match position(gang) {
            Some(at) => position(before) < Some(at),
            None => shares_quota || queue_order(before, snapshot.now) < queue_order(gang, snapshot.now),
        };
        while let Some(before) = admitted.next_if(precedes) {
            all.push((None, before));
        }
        all.push((Some(at), gang));
    }
    all.into_iter().chain(admitted.chain(rest).map(|gang| (None, gang))).collect()
}

/// The number of added pods per device.
fn new_devices(
    gang: &Gang,
    old: Option<&Vec<(String, u32, u32)>>,
    new: Option<&Vec<(String, u32, u32)>>,
) -> Vec<(String, u32, u32)> {
    let before = |node: &str, device: u32| -> u32 {
        let stay = old.into_iter().flatten().filter(|(on, ..)| !gang.unhealthy.contains(on));
        stay.filter(|(on, number, _)| on == node && *number == device).map(|(.., count)| *count).sum()
    };
    let more = new.into_iter().flatten();
    let more = more
        .map(|(node, device, count)| (node.clone(), *device, count.saturating_sub(before(node, *device))));
    more.filter(|(.., count)| *count > 0).collect()
}

fn check_admitted(
    cluster: &mut ClusterState<'_>,
    missing: &Gang,
    whole: &Assignment,
    found: &mut Vec<Violation>,
) {
    let before = found.len();
    let Some(held) = missing.state.assignment() else { return };
    let replaces = |at: usize| by_rank(held, at).iter().any(|node| missing.unhealthy.contains(*node));
    let asks = missing.places == Places::Requested;
    let replaces = (0..missing.pod_sets.len()).any(|at| replaces(at) || asks && held.unplaced_in(at) > 0);
    let mut added_pods = Assignment { flavors: whole.flavors.clone(), ..Assignment::default() };
    for (at, set) in missing.pod_sets.iter().enumerate() {
        let (old, new) = (by_rank(held, at), by_rank(whole, at));
        let (gang, pod_set) = (missing.key.clone(), set.name.clone());
        let stays = |rank: usize| old.get(rank).is_some_and(|node| !missing.unhealthy.contains(*node));
        if (0..old.len()).any(|rank| stays(rank) && new.get(rank) != old.get(rank)) {
            found.push(Violation::RunningPodMoved { gang: gang.clone(), pod_set: pod_set.clone() });
        }
        let mut added: BTreeMap<String, u32> = BTreeMap::new();
        for rank in (0..new.len()).filter(|rank| !stays(*rank)) {
            *added.entry(new[rank].to_owned()).or_default() += 1;
        }
        let without_node = if asks { 0 } else { held.unplaced_in(at) };
        let without_node = whole.unplaced_in(at).saturating_sub(without_node);
        let placed: u64 = added.values().chain([&without_node]).copied().map(u64::from).sum();
        if placed != u64::from(set.count) {
            found.push(Violation::WrongCount { gang, pod_set, wanted: set.count, placed });
        }
        added_pods.unplaced.push(without_node);
        added_pods.pod_sets.push(added.into_iter().collect());
        added_pods.devices.push(new_devices(missing, held.devices.get(at), whole.devices.get(at)));
        let (before, after) = (held.flavors.get(at), whole.flavors.get(at));
        for (resource, flavor) in before.into_iter().flatten() {
            if after.and_then(|after| after.get(resource)) != Some(flavor) {
                found.push(Violation::WrongFlavor { gang: missing.key.clone(), resource: resource.0 });
            }
        }
    }
    if added_pods.devices.iter().all(Vec::is_empty) {
        added_pods.devices.clear();
    }
    if added_pods.unplaced.iter().all(|count| *count == 0) {
        added_pods.unplaced.clear();
    }
    quota_only::check(cluster.world(), missing, &added_pods, found);
    if found.len() == before && check_nodes(cluster, missing, &added_pods, found) {
        check_topology(cluster, missing, held, whole, found);
        if replaces {
            cluster.check_node_resources(missing, &added_pods, found);
            cluster.charge_nodes(missing, &added_pods);
            cluster.charge_excess(missing, &added_pods);
        } else {
            cluster.check(missing, &added_pods, found);
            cluster.charge(missing, &added_pods);
        }
    }
}

/// Reports added pods that are outside of the topology domain of the pods that stay.
fn check_topology(
    cluster: &ClusterState<'_>,
    gang: &Gang,
    held: &Assignment,
    whole: &Assignment,
    found: &mut Vec<Violation>,
) {
    let sets = elastic::resized(gang, |at, _| by_rank(whole, at).len().try_into().unwrap_or(u32::MAX));
    let sets = in_flavors(cluster.world(), &sets, &whole.flavors);
    for (at, set) in sets.pod_sets.iter().enumerate().filter(|(_, set)| set.count > 0) {
        let Some(request) = set.topology.as_ref().filter(|_| !topology::is_leader(&sets, at)) else {
            continue;
        };
        let levels = topology::levels(cluster.world(), set, request);
        let stays = |at: usize, rank: usize| {
            by_rank(held, at).get(rank).is_some_and(|node| !gang.unhealthy.contains(*node))
        };
        let is_apart = |pods: &[(usize, usize)], level: &str| {
            let domain_of = |(at, rank): &(usize, usize)| {
                cluster
                    .node(by_rank(whole, *at)[*rank])
                    .and_then(|node| topology::domain(node, &levels, level))
            };
            let (old, new): (Vec<_>, Vec<_>) = pods.iter().partition(|(at, rank)| stays(*at, *rank));
            let old: BTreeSet<_> = old.iter().filter_map(domain_of).collect();
            let new: BTreeSet<_> = new.iter().map(domain_of).collect();
            // The pods that stay may span several domains after labels changed. Then nothing is reported.
            let joined: BTreeSet<_> = old.iter().cloned().map(Some).chain(new.iter().cloned()).collect();
            !new.is_empty() && old.len() < 2 && (joined.len() > 1 || new.contains(&None))
        };
        let ranks = |at: usize| (0..by_rank(whole, at).len()).map(move |rank| (at, rank));
        if let TopologyMode::Required(level) = &request.mode {
            let all = topology::pod_set_group(&sets, at).into_iter().flat_map(|(member, _)| ranks(member));
            if is_apart(&all.collect::<Vec<_>>(), level) {
                let (gang, pod_set, level) = (gang.key.clone(), set.name.clone(), level.clone());
                found.push(Violation::TopologyNotSatisfied { gang, pod_set, level });
            }
        }
        for slice in &request.slices {
            let all: Vec<_> = ranks(at).collect();
            let size = usize::try_from(slice.size).unwrap_or(usize::MAX).max(1);
            if all.chunks(size).any(|block| is_apart(block, &slice.level)) {
                let (gang, pod_set) = (gang.key.clone(), set.name.clone());
                found.push(Violation::TopologyNotSatisfied { gang, pod_set, level: slice.level.clone() });
            }
        }
    }
}
