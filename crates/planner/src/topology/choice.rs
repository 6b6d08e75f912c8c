//! Which domains: the tightest one that holds all pods, else as few as possible.

use std::cmp::Reverse;

use model::TopologyMode;

use super::Unit;
use super::tree::Domain;

/// The part of a unit that goes to one domain.
#[derive(Clone, Copy)]
pub(crate) struct Share<'t, 'w> {
    pub(crate) domain: &'t Domain<'w>,
    pub(crate) pods: u64,
    /// The leader goes here.
    pub(crate) leads: bool,
}

/// The ways to choose domains for a unit, the best first; none when there is too little room.
pub(crate) fn choices<'t, 'w>(unit: &Unit<'_>, root: &'t Domain<'w>) -> Vec<Vec<Share<'t, 'w>>> {
    let near = match (&unit.request.mode, unit.request.slices.first()) {
        (TopologyMode::Required(level), _) => return singles(unit, &root.at_depth(unit.depth(level))),
        (TopologyMode::Preferred(level), _) => unit.depth(level),
        (TopologyMode::Unconstrained, Some(slice)) => unit.depth(&slice.level),
        (TopologyMode::Unconstrained, None) => unit.levels.len(),
    };
    if is_gap_filling(unit) {
        let all = root.at_depth(near);
        return spread(unit, &all, u64::from(unit.count), unit.leader.is_some()).into_iter().collect();
    }
    let mut choices: Vec<_> =
        (1..=near).rev().flat_map(|depth| singles(unit, &root.at_depth(depth))).collect();
    let broadest = root.at_depth(near.min(1));
    choices.extend(spread(unit, &broadest, u64::from(unit.count), unit.leader.is_some()));
    choices
}

/// Gaps are filled first where nearness was not asked for. After Kueue's `LeastFreeCapacity`.
fn is_gap_filling(unit: &Unit<'_>) -> bool {
    unit.request.mode == TopologyMode::Unconstrained && unit.request.slices.is_empty()
}

/// The domains that hold the whole unit, the tightest first.
fn singles<'t, 'w>(unit: &Unit<'_>, domains: &[&'t Domain<'w>]) -> Vec<Vec<Share<'t, 'w>>> {
    let pods = u64::from(unit.count);
    let leads = unit.leader.is_some();
    let large = |domain: &&&'t Domain<'w>| holds(domain, leads).is_some_and(|room| room >= pods);
    let mut large: Vec<&Domain<'w>> = domains.iter().filter(large).copied().collect();
    large.sort_by_key(|domain| (holds(domain, leads), domain.path));
    large.into_iter().map(|domain| vec![Share { domain, pods, leads }]).collect()
}

/// Hands pods out to domains: all to the tightest that holds them; else the largest are filled until the tightest of the
/// others holds the rest, or, where gaps are to be filled, the smallest are. None when there is too little room.
///
/// After Kueue's `BestFit` and `LeastFreeCapacity`.
pub(crate) fn spread<'t, 'w>(
    unit: &Unit<'_>,
    domains: &[&'t Domain<'w>],
    pods: u64,
    leads: bool,
) -> Option<Vec<Share<'t, 'w>>> {
    let mut others: Vec<&Domain<'w>> = domains.to_vec();
    let mut shares = Vec::new();
    let mut left = pods;
    if leads {
        let (at, room) = leading(&others, pods)?;
        let domain = others.remove(at);
        let here = room.min(left);
        shares.push(Share { domain, pods: here, leads });
        left -= here;
    }
    others.sort_by_key(|domain| (domain.holds.alone, domain.path));
    while left > 0 {
        let tightest = others.iter().position(|domain| domain.holds.alone >= left);
        let at = match tightest {
            Some(at) => at,
            None if is_gap_filling(unit) => 0,
            None => {
                let most = others.last()?.holds.alone;
                others.iter().position(|domain| domain.holds.alone == most)?
            }
        };
        let at = if others.is_empty() { return None } else { at };
        let domain = others.remove(at);
        let here = domain.holds.alone.min(left);
        if here > 0 {
            shares.push(Share { domain, pods: here, leads: false });
        }
        left -= here;
    }
    Some(shares)
}

/// Where the leader goes, and for how many pods there is room beside it: the tightest domain that holds all; else the
/// one with the most room of those beside which the others hold the rest.
fn leading(domains: &[&Domain<'_>], pods: u64) -> Option<(usize, u64)> {
    let all: u64 = domains.iter().map(|domain| domain.holds.alone).fold(0, u64::saturating_add);
    let rooms = domains.iter().enumerate();
    let rooms = rooms.filter_map(|(at, domain)| domain.holds.beside.map(|room| (at, domain, room)));
    let rooms = rooms.filter(|(_, domain, room)| all - domain.holds.alone + room >= pods);
    let rank = |(_, domain, room): &(usize, &&Domain<'_>, u64)| {
        let whole = *room >= pods;
        (!whole, if whole { *room } else { 0 }, Reverse(*room), domain.path.to_vec())
    };
    rooms.min_by_key(rank).map(|(at, _, room)| (at, room))
}

fn holds(domain: &Domain<'_>, leads: bool) -> Option<u64> {
    if leads { domain.holds.beside } else { Some(domain.holds.alone) }
}
