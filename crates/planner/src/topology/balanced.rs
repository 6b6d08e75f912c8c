//! Balanced placement: pods with a preferred level are spread evenly over as few domains as possible, so that no domain gets a small
//! remainder.
//!
//! Among the groups of sibling domains at the preferred level, the one is selected whose domains get the largest least share. After
//! Kueue's balanced placement (`pkg/cache/scheduler/tas_balanced_placement.go`, v0.19, KEP 2724). Kueue finds the domains with the least
//! capacity by dynamic programming; here the largest ones are replaced by the smallest ones that still suffice, one after the other, so
//! the time does not grow with the number of pods.

use std::cmp::Reverse;

use super::Unit;
use super::choice::DomainShare;
use super::tree::Domain;

/// A domain, with the number of slices that it holds without the leader and beside it.
#[derive(Clone, Copy)]
struct Candidate<'t, 'w> {
    domain: &'t Domain<'w>,
    slices: u64,
    with_leader: Option<u64>,
}

/// The request in slices.
#[derive(Clone, Copy)]
struct Request {
    slices: u64,
    size: u64,
    has_leader: bool,
}

/// An even distribution over domains at the preferred level, or below it if slices are below it. None if there is none: the domains
/// would get no slice each, or too little room is left.
pub(super) fn balanced<'t, 'w>(
    unit: &Unit<'_>,
    root: &'t Domain<'w>,
    level: &str,
) -> Option<Vec<DomainShare<'t, 'w>>> {
    let slice = unit.request.slices.first();
    let size = slice.map_or(1, |slice| u64::from(slice.size.max(1)));
    let request = Request { slices: u64::from(unit.count) / size, size, has_leader: unit.leader.is_some() };
    let depth = unit.depth(level);
    let is_split = depth < slice.map_or(unit.levels.len(), |slice| unit.depth(&slice.level));
    let mut best: Option<(u64, Reverse<usize>, Vec<&'t Domain<'w>>)> = None;
    for parent in root.at_depth(depth.saturating_sub(1)) {
        let siblings = if depth == 0 { vec![parent] } else { parent.at_depth(1) };
        let Some((threshold, domains, left)) = request.threshold(&siblings, is_split) else { continue };
        let rank = (threshold, Reverse(domains));
        if threshold > 0 && best.as_ref().is_none_or(|(least, domains, _)| rank > (*least, *domains)) {
            best = Some((rank.0, rank.1, left));
        }
    }
    let (threshold, _, domains) = best?;
    let chosen = request.fewest(request.candidates(&domains, threshold, is_split))?;
    let lower = if is_split {
        let children = chosen.iter().flat_map(|chosen| &chosen.domain.children);
        request.fewest(request.lower(children, threshold))?
    } else {
        chosen
    };
    request.spread(lower, threshold)
}

impl Request {
    /// The least share of a domain among these siblings, the number of siblings that are needed, and those that can get such a share.
    fn threshold<'t, 'w>(
        self,
        siblings: &[&'t Domain<'w>],
        is_split: bool,
    ) -> Option<(u64, usize, Vec<&'t Domain<'w>>)> {
        let lower = if is_split {
            self.lower(siblings.iter().flat_map(|sibling| &sibling.children), 0)
        } else {
            self.candidates(siblings, 0, false)
        };
        let used = self.greedy(lower)?;
        let threshold = self.slices / u64::try_from(used.len().max(1)).unwrap_or(u64::MAX);
        let share = |at: usize, used: &Candidate<'_, '_>| match used.with_leader {
            Some(beside) if self.has_leader && at == 0 => beside,
            _ => used.slices,
        };
        let most =
            used.iter().enumerate().map(|(at, used)| share(at, used)).min().unwrap_or(0).min(threshold);
        // A domain that can hold the leader has less room for slices.
        let beside = used.iter().filter_map(|used| used.with_leader).min().unwrap_or(most).min(most);
        [most, beside].into_iter().find_map(|threshold| {
            let left = self.candidates(siblings, threshold, is_split);
            let domains = self.greedy(left.clone())?.len();
            Some((threshold, domains, left.into_iter().map(|left| left.domain).collect()))
        })
    }

    /// Domains with room for so many slices, counted in their children if the slices are below.
    fn candidates<'t, 'w>(
        self,
        domains: &[&'t Domain<'w>],
        threshold: u64,
        is_split: bool,
    ) -> Vec<Candidate<'t, 'w>> {
        let all = domains.iter().map(|domain| {
            if !is_split {
                return self.candidate(domain);
            }
            let children = self.lower(&domain.children, threshold);
            let slices = children.iter().map(|child| child.slices).sum();
            let loss = |child: &Candidate<'_, '_>| Some(child.slices - child.with_leader?.min(child.slices));
            let least = children.iter().filter_map(loss).min();
            Candidate { domain, slices, with_leader: least.map(|loss| slices - loss) }
        });
        all.filter(|candidate| candidate.slices >= threshold.max(1)).collect()
    }

    /// Domains of the lower level with room for so many slices.
    fn lower<'t, 'w: 't>(
        self,
        domains: impl IntoIterator<Item = &'t Domain<'w>>,
        threshold: u64,
    ) -> Vec<Candidate<'t, 'w>> {
        let all = domains.into_iter().map(|domain| self.candidate(domain));
        let kept = all.filter(|candidate| candidate.slices >= threshold.max(1));
        kept.map(|kept| Candidate {
            with_leader: kept.with_leader.filter(|beside| *beside >= threshold),
            ..kept
        })
        .collect()
    }

    fn candidate<'t, 'w>(self, domain: &'t Domain<'w>) -> Candidate<'t, 'w> {
        let slices = domain.capacity.without_leader / self.size;
        Candidate { domain, slices, with_leader: domain.capacity.with_leader.map(|room| room / self.size) }
    }

    /// The largest domains that hold the request, that of the leader first.
    fn greedy<'t, 'w>(self, mut domains: Vec<Candidate<'t, 'w>>) -> Option<Vec<Candidate<'t, 'w>>> {
        let (mut used, mut left) = (Vec::new(), self.slices);
        if self.has_leader {
            let hosts = domains.iter().enumerate().filter_map(|(at, host)| Some((at, host.with_leader?)));
            let (at, beside) = hosts.max_by_key(|(at, beside)| (*beside, Reverse(*at)))?;
            used.push(domains.remove(at));
            left = left.saturating_sub(beside);
        }
        domains.sort_by_key(|domain| (Reverse(domain.slices), domain.domain.path));
        let mut others = domains.into_iter();
        while left > 0 {
            let next = others.next()?;
            left = left.saturating_sub(next.slices);
            used.push(next);
        }
        Some(used)
    }

    /// As few domains as possible, and the smallest ones of which so many suffice.
    fn fewest<'t, 'w>(self, domains: Vec<Candidate<'t, 'w>>) -> Option<Vec<Candidate<'t, 'w>>> {
        let mut used = self.greedy(domains.clone())?;
        let is_used = |domain: &Candidate<'_, '_>, used: &[Candidate<'_, '_>]| {
            used.iter().any(|used| used.domain.path == domain.domain.path)
        };
        let mut others: Vec<Candidate<'t, 'w>> =
            domains.into_iter().filter(|domain| !is_used(domain, &used)).collect();
        others.sort_by_key(|domain| (domain.slices, domain.domain.path));
        let share = |at: usize, used: &Candidate<'_, '_>| {
            if self.has_leader && at == 0 { used.with_leader.unwrap_or(0) } else { used.slices }
        };
        let mut spare = used.iter().enumerate().map(|(at, used)| share(at, used)).sum::<u64>() - self.slices;
        for at in (0..used.len()).rev() {
            let own = share(at, &used[at]);
            let suffices = |other: &Candidate<'_, '_>| {
                let room = if self.has_leader && at == 0 { other.with_leader } else { Some(other.slices) };
                room.is_some_and(|room| room < own && own - room <= spare)
            };
            let Some(found) = others.iter().position(suffices) else { continue };
            let other = others.remove(found);
            spare -= own - share(at, &other);
            used[at] = other;
        }
        used.sort_by_key(|used| used.domain.path);
        Some(used)
    }

    /// So many slices in each domain, and the rest where there is room.
    fn spread<'t, 'w>(
        self,
        mut domains: Vec<Candidate<'t, 'w>>,
        threshold: u64,
    ) -> Option<Vec<DomainShare<'t, 'w>>> {
        domains
            .sort_by_key(|domain| (Reverse(domain.with_leader), Reverse(domain.slices), domain.domain.path));
        let count = u64::try_from(domains.len()).ok()?;
        let mut extra = self.slices.checked_sub(count.checked_mul(threshold)?)?;
        let shares =
            domains.into_iter().enumerate().map(|(at, Candidate { domain, slices, with_leader })| {
                let has_leader = self.has_leader && at == 0;
                let room = if has_leader { with_leader? } else { slices };
                let more = room.checked_sub(threshold)?.min(extra);
                extra -= more;
                Some(DomainShare { domain, pods: (threshold + more) * self.size, has_leader })
            });
        let shares: Vec<DomainShare<'t, 'w>> = shares.collect::<Option<_>>()?;
        (extra == 0).then_some(shares)
    }
}
