//! Whether a complete placement satisfies the rules, so that kube-scheduler binds every pod on its node in any order.
//!
//! Anti-affinity and host ports hold for a placement at any time ([`PartialPlacement::may_place`]). Spread constraints
//! and affinity are judged here, with all pods in place.

use std::collections::BTreeSet;

use model::NodeIx;

use super::constraint::{Affinity, Rules};
use super::place::PartialPlacement;

/// See the module.
pub(super) fn holds(placement: &PartialPlacement<'_>) -> bool {
    spreads_hold(placement)
        && !may_block_each_other(placement)
        && placement.rules.affinities.iter().all(|affinity| is_one_domain_or_bound(placement, affinity))
        && is_grounded(placement)
}

fn spreads_hold(placement: &PartialPlacement<'_>) -> bool {
    let Rules { spreads, .. } = placement.rules;
    spreads.iter().zip(&placement.spreads).all(|(spread, counts)| {
        let most = counts.fewest().saturating_add(spread.constraint.max_skew.max(1));
        placement.used().filter(|at| placement.load(*at, spread.carrier) > 0).all(|at| {
            let domain = placement.nodes[at].domains[spread.domains];
            domain.and_then(|domain| counts.pods[domain]).is_some_and(|pods| pods <= most)
        })
    })
}

/// Whether spread constraints could block each other, depending on the order in which pods are bound.
///
/// With one constraint, a pod of the domain with the fewest pods can always be bound next. With several, that pod may
/// itself be blocked by another rule. A pinned pod has one domain only, so just constraints that do not honor its node
/// selector count; and a constraint blocks no pod in any order if the pods that are bound already suffice for it.
fn may_block_each_other(placement: &PartialPlacement<'_>) -> bool {
    let Rules { spreads, affinities, .. } = placement.rules;
    let blocks = |at: &usize| {
        let (spread, counts) = (&spreads[*at], &placement.spreads[*at]);
        let fewest = spread.present.iter().flatten().min().copied().unwrap_or(0);
        let few = spread.present.iter().flatten().count() < spread.constraint.min_domains as usize;
        let most = if few { 0 } else { fewest }.saturating_add(spread.constraint.max_skew.max(1));
        !spread.constraint.honors_affinity
            && placement.used().any(|at| {
                let domain = placement.nodes[at].domains[spread.domains];
                placement.load(at, spread.carrier) > 0
                    && domain.and_then(|domain| counts.pods[domain]).is_some_and(|pods| pods > most)
            })
    };
    let blocking: Vec<usize> = (0..spreads.len()).filter(blocks).collect();
    // One rule waits for another if it counts pods that the other one may block.
    let rules = blocking.iter().map(|at| {
        let Some(spread) = spreads.get(*at) else { return (Vec::new(), BTreeSet::new()) };
        (spread.selected.clone(), BTreeSet::from([spread.carrier]))
    });
    let affinities = affinities.iter().filter(|_| !blocking.is_empty()).map(|affinity| {
        let carriers = (0..affinity.carriers.len()).filter(|set| affinity.carriers[*set]);
        (affinity.selected.clone(), carriers.collect())
    });
    let rules: Vec<(Vec<bool>, BTreeSet<usize>)> = rules.chain(affinities).collect();
    let waits = |one: usize, other: usize| {
        one != other && rules[other].1.iter().any(|set| rules[one].0.get(*set) == Some(&true))
    };
    has_cycle(rules.len(), waits)
}

/// Whether a directed graph has a cycle: after all nodes without a successor are removed in turn, some are left.
fn has_cycle(count: usize, has_edge: impl Fn(usize, usize) -> bool) -> bool {
    let mut left: BTreeSet<usize> = (0..count).collect();
    loop {
        let is_last = |one: &usize| !left.iter().any(|other| has_edge(*one, *other));
        let last: Vec<usize> = left.iter().copied().filter(is_last).collect();
        if last.is_empty() {
            return !left.is_empty();
        }
        left.retain(|one| !last.contains(one));
    }
}

/// While no selected pod is bound, the first pod of a set with affinity to itself may be bound anywhere, and the others
/// only beside it. So all selected pods must be in one domain.
fn is_one_domain_or_bound(placement: &PartialPlacement<'_>, affinity: &Affinity) -> bool {
    let first = |set: usize| affinity.carriers[set] && affinity.selected[set];
    let may_be_first = (0..affinity.carriers.len()).any(first) && !is_provided(placement, affinity);
    if affinity.is_any_bound || !(may_be_first || affinity.is_joined) {
        return true;
    }
    affinity.domains.iter().all(|key| {
        let domain = |node: NodeIx| placement.rules.domains[*key].of(node);
        let planned = placement.used().filter(|at| selected_on(placement, affinity, *at) > 0);
        let planned = planned.map(|at| placement.nodes[at].node);
        let domains: BTreeSet<_> =
            affinity.present.keys().copied().chain(planned).filter_map(domain).collect();
        domains.len() <= 1
    })
}

/// Whether each pod with this affinity has a selected pod in its domains that is present, or of a set without affinity.
/// Then none has to be the first.
fn is_provided(placement: &PartialPlacement<'_>, affinity: &Affinity) -> bool {
    let Rules { affinities, domains, sets, .. } = placement.rules;
    let has_pods = |at: usize, is_meant: &dyn Fn(usize) -> bool| {
        (0..sets.len()).any(|set| is_meant(set) && placement.load(at, set) > 0)
    };
    let is_free = |set: usize| affinity.selected[set] && !affinities.iter().any(|other| other.carriers[set]);
    let carries = |set: usize| affinity.carriers[set];
    affinity.domains.iter().all(|key| {
        let present = affinity.present.keys().filter_map(|node| domains[*key].of(*node));
        let placed = placement.used().filter(|at| has_pods(*at, &is_free));
        let placed = placed.filter_map(|at| placement.nodes[at].domains[*key]);
        let provided: BTreeSet<usize> = present.chain(placed).collect();
        let mut carriers = placement.used().filter(|at| has_pods(*at, &carries));
        carriers.all(|at| placement.nodes[at].domains[*key].is_some_and(|domain| provided.contains(&domain)))
    })
}

fn selected_on(placement: &PartialPlacement<'_>, affinity: &Affinity, at: usize) -> u32 {
    let selected = (0..affinity.selected.len()).filter(|set| affinity.selected[*set]);
    selected.map(|set| placement.load(at, set)).sum()
}

/// Whether every pod with affinity has a selected pod in its domains that is present, or that can be bound before it.
fn is_grounded(placement: &PartialPlacement<'_>) -> bool {
    let Rules { affinities, domains, .. } = placement.rules;
    let carries = |affinity: &Affinity, at: usize| {
        (0..affinity.carriers.len()).any(|set| affinity.carriers[set] && placement.load(at, set) > 0)
    };
    // For each affinity and label key: the domains with a selected pod that can be bound.
    let mut near: Vec<Vec<BTreeSet<usize>>> = Vec::new();
    for affinity in affinities {
        let present = |key: &usize| {
            affinity.present.keys().filter_map(|node| domains[*key].of(*node)).collect::<BTreeSet<_>>()
        };
        near.push(affinity.domains.iter().map(present).collect());
    }
    let mut waiting: BTreeSet<(usize, usize)> = BTreeSet::new();
    for (ix, affinity) in affinities.iter().enumerate() {
        waiting.extend(placement.used().filter(|at| carries(affinity, *at)).map(|at| (ix, at)));
    }
    loop {
        for at in placement.used() {
            for set in (0..placement.rules.sets.len()).filter(|set| placement.load(at, *set) > 0) {
                let own = affinities.iter().position(|affinity| affinity.carriers[set]);
                if own.is_some_and(|own| waiting.contains(&(own, at))) {
                    continue;
                }
                for (affinity, near) in
                    affinities.iter().zip(&mut near).filter(|(other, _)| other.selected[set])
                {
                    for (key, near) in affinity.domains.iter().zip(near) {
                        near.extend(placement.nodes[at].domains[*key]);
                    }
                }
            }
        }
        let before = waiting.len();
        waiting.retain(|(ix, at)| {
            let keys = affinities[*ix].domains.iter().zip(&near[*ix]);
            let is_near = |(key, near): (&usize, &BTreeSet<usize>)| {
                placement.nodes[*at].domains[*key].is_some_and(|domain| near.contains(&domain))
            };
            !keys.into_iter().all(is_near)
        });
        if waiting.is_empty() {
            return true;
        }
        if waiting.len() == before && !bind_first(placement, &mut waiting, &near) {
            return false;
        }
    }
}

/// Lets the pods with affinity to themselves be bound that have no selected pod yet. They are in one domain; see
/// [`is_one_domain_or_bound`].
fn bind_first(
    placement: &PartialPlacement<'_>,
    waiting: &mut BTreeSet<(usize, usize)>,
    near: &[Vec<BTreeSet<usize>>],
) -> bool {
    let affinities = &placement.rules.affinities;
    let may_be_first = |(ix, at): &(usize, usize)| {
        let affinity = &affinities[*ix];
        let is_own =
            |set: usize| affinity.carriers[set] && affinity.selected[set] && placement.load(*at, set) > 0;
        near[*ix].iter().all(BTreeSet::is_empty) && (0..affinity.carriers.len()).any(is_own)
    };
    let Some(first) = waiting.iter().find(|one| may_be_first(one)).copied() else { return false };
    waiting.remove(&first)
}
