//! Selects domains: the tightest one that holds all pods, else as few as possible.

use std::cmp::Reverse;

use model::TopologyMode;

use super::Unit;
use super::balanced::balanced;
use super::tree::Domain;

/// The pods of a unit in one domain.
#[derive(Clone, Copy)]
pub(crate) struct DomainShare<'t, 'w> {
    pub(crate) domain: &'t Domain<'w>,
    pub(crate) pods: u64,
    /// The domain holds the leader.
    pub(crate) has_leader: bool,
}

/// The possible domains for a unit, the best choice first; none when there is too little room.
pub(crate) fn domain_choices<'t, 'w>(unit: &Unit<'_>, root: &'t Domain<'w>) -> Vec<Vec<DomainShare<'t, 'w>>> {
    let depth_max = match (&unit.request.mode, unit.request.slices.first()) {
        (TopologyMode::Required(level), _) => return single_domains(unit, &root.at_depth(unit.depth(level))),
        (TopologyMode::Preferred(level), _) => unit.depth(level),
        (TopologyMode::Unconstrained, Some(slice)) => unit.depth(&slice.level),
        (TopologyMode::Unconstrained, None) => unit.levels.len(),
    };
    if let (TopologyMode::Preferred(level), true) = (&unit.request.mode, unit.policy.balances)
        && let Some(shares) = balanced(unit, root, level)
    {
        let rest = domain_choices(&unit.unbalanced(), root);
        return std::iter::once(shares).chain(rest).collect();
    }
    if is_gap_filling(unit) {
        let all = root.at_depth(depth_max);
        return distribute(unit, &all, u64::from(unit.count), unit.leader.is_some()).into_iter().collect();
    }
    let mut domain_choices: Vec<_> =
        (1..=depth_max).rev().flat_map(|depth| single_domains(unit, &root.at_depth(depth))).collect();
    let broadest = root.at_depth(depth_max.min(1));
    domain_choices.extend(distribute(unit, &broadest, u64::from(unit.count), unit.leader.is_some()));
    domain_choices
}

/// Whether the smallest gaps are filled first, for pod sets without a preferred or required level. After
/// Kueue's `LeastFreeCapacity`.
fn is_gap_filling(unit: &Unit<'_>) -> bool {
    let is_free = unit.request.mode == TopologyMode::Unconstrained && unit.request.slices.is_empty();
    unit.policy.fills_gaps && is_free
}

/// The single domains that hold the whole unit, the tightest first.
fn single_domains<'t, 'w>(unit: &Unit<'_>, domains: &[&'t Domain<'w>]) -> Vec<Vec<DomainShare<'t, 'w>>> {
    let pods = u64::from(unit.count);
    let has_leader = unit.leader.is_some();
    let large = |domain: &&&'t Domain<'w>| capacity(domain, has_leader).is_some_and(|room| room >= pods);
    let mut large: Vec<&Domain<'w>> = domains.iter().filter(large).copied().collect();
    large.sort_by_key(|domain| (Reverse(domain.affinity), capacity(domain, has_leader), domain.path));
    large.into_iter().map(|domain| vec![DomainShare { domain, pods, has_leader }]).collect()
}

/// Distributes pods over domains. All go to the tightest domain that holds them. Otherwise the largest
/// domains are filled until the tightest of the others holds the rest; when gaps are filled, the smallest
/// domains are. None when there is too little room.
///
/// After Kueue's `BestFit` and `LeastFreeCapacity`.
pub(crate) fn distribute<'t, 'w>(
    unit: &Unit<'_>,
    domains: &[&'t Domain<'w>],
    pods: u64,
    has_leader: bool,
) -> Option<Vec<DomainShare<'t, 'w>>> {
    let mut others: Vec<&Domain<'w>> = domains.to_vec();
    let mut shares = Vec::new();
    let mut left = pods;
    if has_leader {
        let (at, room) = leader_domain(&others, pods)?;
        let domain = others.remove(at);
        let here = room.min(left);
        shares.push(DomainShare { domain, pods: here, has_leader });
        left -= here;
    }
    others.sort_by_key(|domain| (Reverse(domain.affinity), domain.capacity.without_leader, domain.path));
    while left > 0 {
        // Of those that are preferred most.
        let best = others.partition_point(|domain| domain.affinity == others[0].affinity);
        let room = |at: usize| others[at].capacity.without_leader;
        let at = match (0..best).find(|at| room(*at) >= left) {
            Some(at) => at,
            None if is_gap_filling(unit) => 0,
            None => {
                let most = room(best.checked_sub(1)?);
                (0..best).find(|at| room(*at) == most)?
            }
        };
        let at = if others.is_empty() { return None } else { at };
        let domain = others.remove(at);
        let here = domain.capacity.without_leader.min(left);
        if here > 0 {
            shares.push(DomainShare { domain, pods: here, has_leader: false });
        }
        left -= here;
    }
    Some(shares)
}

/// The domain of the leader, and the number of pods that fit beside it: the tightest domain that holds all
/// pods; else the one with the most room, among those that leave enough room in the other domains for the
/// rest.
fn leader_domain(domains: &[&Domain<'_>], pods: u64) -> Option<(usize, u64)> {
    let all: u64 = domains.iter().map(|domain| domain.capacity.without_leader).fold(0, u64::saturating_add);
    let rooms = domains.iter().enumerate();
    let rooms = rooms.filter_map(|(at, domain)| domain.capacity.with_leader.map(|room| (at, domain, room)));
    let rooms = rooms.filter(|(_, domain, room)| all - domain.capacity.without_leader + room >= pods);
    let rank = |(_, domain, room): &(usize, &&Domain<'_>, u64)| {
        let whole = *room >= pods;
        (
            Reverse(domain.affinity),
            !whole,
            if whole { *room } else { 0 },
            Reverse(*room),
            domain.path.to_vec(),
        )
    };
    rooms.min_by_key(rank).map(|(at, _, room)| (at, room))
}

fn capacity(domain: &Domain<'_>, has_leader: bool) -> Option<u64> {
    if has_leader { domain.capacity.with_leader } else { Some(domain.capacity.without_leader) }
}
