//! Gangs that run and are given more places, or others for those on nodes that failed: all that is missing or nothing, and
//! whoever runs stays where it is.

use std::collections::{BTreeMap, BTreeSet};

use model::{Assignment, Gang, GangState, Plan, Snapshot, TopologyMode, Verdict};

use crate::books::Books;
use crate::violation::Violation;
use crate::{check_nodes, elastic, fairness, rank, rules, topology};

/// The nodes of a pod set by rank.
fn by_rank(assignment: &Assignment, at: usize) -> Vec<&str> {
    let places = assignment.pod_sets.get(at).into_iter().flatten();
    places.flat_map(|(node, count)| (0..*count).map(move |_| node.as_str())).collect()
}

/// What a gang that runs lacks, as a gang of its own that still says what it has; none when it lacks nothing.
pub(crate) fn scale_up_request(gang: &Gang) -> Option<Gang> {
    let GangState::Reserved(given) = &gang.state else { return None };
    let (_, held) = elastic::held(gang, given);
    let failed = |at: usize| by_rank(&held, at).iter().filter(|node| gang.unhealthy.contains(**node)).count();
    let any_failed = (0..gang.pod_sets.len()).any(|at| failed(at) > 0);
    let grown = |at: usize, count: u32| {
        let done = gang.reclaimable.get(at).copied().unwrap_or(0);
        count.saturating_sub(done).saturating_sub(by_rank(&held, at).len().try_into().unwrap_or(u32::MAX))
    };
    let mut missing = elastic::resized(gang, |at, set| match (any_failed, gang.elastic) {
        (true, _) => failed(at).try_into().unwrap_or(u32::MAX),
        (false, true) => grown(at, set.count),
        (false, false) => 0,
    });
    missing.declared = None;
    missing.excluded = gang.excluded.union(&gang.unhealthy).cloned().collect::<BTreeSet<_>>().into();
    missing.state = GangState::Reserved(held);
    missing.pod_sets.iter().any(|set| set.count > 0).then_some(missing)
}

/// Checks what the `missing` pods of a gang are told.
pub(crate) fn check(
    books: &mut Books<'_>,
    missing: &Gang,
    verdict: Option<&Verdict>,
    held_up: bool,
    found: &mut Vec<Violation>,
) {
    let gang = missing.key.clone();
    match verdict {
        Some(Verdict::Admit(assignment)) => admitted(books, missing, assignment, found),
        Some(Verdict::Never(_))
            if !topology::is_asked(missing) && rules::would_fit_when_empty(books, missing) =>
        {
            found.push(Violation::FalseNever { gang });
        }
        None if books.world().verdict(&missing.uid).is_none() => found.push(Violation::NotTold { gang }),
        Some(Verdict::Wait(_) | Verdict::Never(_) | Verdict::Preempt(_)) | None => {
            if !held_up
                && !topology::is_asked(missing)
                && let Some(assignment) = rules::first_fit(books, missing)
            {
                found.push(Violation::Overlooked { gang, assignment });
            }
        }
    }
}

/// The gangs in the order in which they are decided, those that join others among those that start: those that the plan moves
/// where it says, and then by rank. With the rank of those that start.
pub(crate) fn among<'w>(
    books: &Books<'_>,
    snapshot: &Snapshot<'_>,
    plan: &Plan,
    sequence: Vec<(usize, &'w Gang)>,
    scale_up_request: &'w [Gang],
) -> Vec<(Option<usize>, &'w Gang)> {
    let moves = plan.verdicts.iter().filter(|(_, verdict)| verdict.shortage().is_none());
    let moves: Vec<&str> = moves.map(|(uid, _)| uid.as_str()).collect();
    let place = |gang: &Gang| moves.iter().position(|uid| *uid == gang.uid);
    let (mut moved, rest): (Vec<&Gang>, Vec<&Gang>) =
        scale_up_request.iter().partition(|gang| place(gang).is_some());
    moved.sort_by_key(|gang| place(gang));
    let mut moved = moved.into_iter().peekable();
    let mut all = Vec::new();
    for (at, gang) in sequence {
        let is_tied = fairness::node_of(books.world(), &books.quotas, gang).is_some();
        let precedes = |before: &&Gang| match place(gang) {
            Some(at) => place(before) < Some(at),
            None => is_tied || rank(before, snapshot.now) < rank(gang, snapshot.now),
        };
        while let Some(before) = moved.next_if(precedes) {
            all.push((None, before));
        }
        all.push((Some(at), gang));
    }
    all.into_iter().chain(moved.chain(rest).map(|gang| (None, gang))).collect()
}

/// How many more pods are on each device than of those that stay.
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

fn admitted(books: &mut Books<'_>, missing: &Gang, whole: &Assignment, found: &mut Vec<Violation>) {
    let before = found.len();
    let Some(held) = missing.state.assignment() else { return };
    let replaces = |at: usize| by_rank(held, at).iter().any(|node| missing.unhealthy.contains(*node));
    let replaces = (0..missing.pod_sets.len()).any(replaces);
    let mut given = Assignment { flavors: whole.flavors.clone(), ..Assignment::default() };
    for (at, set) in missing.pod_sets.iter().enumerate() {
        let (old, new) = (by_rank(held, at), by_rank(whole, at));
        let (gang, pod_set) = (missing.key.clone(), set.name.clone());
        let stays = |rank: usize| old.get(rank).is_some_and(|node| !missing.unhealthy.contains(*node));
        if (0..old.len()).any(|rank| stays(rank) && new.get(rank) != old.get(rank)) {
            found.push(Violation::Moved { gang: gang.clone(), pod_set: pod_set.clone() });
        }
        let mut joined: BTreeMap<String, u32> = BTreeMap::new();
        for rank in (0..new.len()).filter(|rank| !stays(*rank)) {
            *joined.entry(new[rank].to_owned()).or_default() += 1;
        }
        let placed = joined.values().copied().map(u64::from).sum();
        if placed != u64::from(set.count) {
            found.push(Violation::WrongCount { gang, pod_set, wanted: set.count, placed });
        }
        given.pod_sets.push(joined.into_iter().collect());
        given.devices.push(new_devices(missing, held.devices.get(at), whole.devices.get(at)));
        let (before, after) = (held.flavors.get(at), whole.flavors.get(at));
        for (resource, flavor) in before.into_iter().flatten() {
            if after.and_then(|after| after.get(resource)) != Some(flavor) {
                found.push(Violation::WrongFlavor { gang: missing.key.clone(), resource: resource.0 });
            }
        }
    }
    if given.devices.iter().all(Vec::is_empty) {
        given.devices.clear();
    }
    if found.len() == before && check_nodes(books, missing, &given, found) {
        near(books, missing, held, whole, found);
        if replaces {
            books.check_room(missing, &given, found);
            books.charge_room(missing, &given);
        } else {
            books.check(missing, &given, found);
            books.charge(missing, &given);
        }
    }
}

/// Notes pods that joined others, but not in the domain in which these are together.
fn near(books: &Books<'_>, gang: &Gang, held: &Assignment, whole: &Assignment, found: &mut Vec<Violation>) {
    let sets = elastic::resized(gang, |at, _| by_rank(whole, at).len().try_into().unwrap_or(u32::MAX));
    for (at, set) in sets.pod_sets.iter().enumerate().filter(|(_, set)| set.count > 0) {
        let Some(request) = set.topology.as_ref().filter(|_| !topology::leads(&sets, at)) else { continue };
        let levels = topology::levels(books.world(), request);
        let stays = |at: usize, rank: usize| {
            by_rank(held, at).get(rank).is_some_and(|node| !gang.unhealthy.contains(*node))
        };
        let is_apart = |pods: &[(usize, usize)], level: &str| {
            let spot = |(at, rank): &(usize, usize)| {
                books.node(by_rank(whole, *at)[*rank]).and_then(|node| topology::domain(node, &levels, level))
            };
            let (old, new): (Vec<_>, Vec<_>) = pods.iter().partition(|(at, rank)| stays(*at, *rank));
            let old: BTreeSet<_> = old.iter().filter_map(spot).collect();
            let new: BTreeSet<_> = new.iter().map(spot).collect();
            // Those that stay may have come apart when labels changed; then nothing is claimed.
            let joined: BTreeSet<_> = old.iter().cloned().map(Some).chain(new.iter().cloned()).collect();
            !new.is_empty() && old.len() < 2 && (joined.len() > 1 || new.contains(&None))
        };
        let ranks = |at: usize| (0..by_rank(whole, at).len()).map(move |rank| (at, rank));
        if let TopologyMode::Required(level) = &request.mode {
            let all = topology::company(&sets, at).into_iter().flat_map(|(member, _)| ranks(member));
            if is_apart(&all.collect::<Vec<_>>(), level) {
                let (gang, pod_set, level) = (gang.key.clone(), set.name.clone(), level.clone());
                found.push(Violation::Apart { gang, pod_set, level });
            }
        }
        for slice in &request.slices {
            let all: Vec<_> = ranks(at).collect();
            let size = usize::try_from(slice.size).unwrap_or(usize::MAX).max(1);
            if all.chunks(size).any(|block| is_apart(block, &slice.level)) {
                let (gang, pod_set) = (gang.key.clone(), set.name.clone());
                found.push(Violation::Apart { gang, pod_set, level: slice.level.clone() });
            }
        }
    }
}
