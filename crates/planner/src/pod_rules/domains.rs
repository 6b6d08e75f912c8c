//! The domains in which pods that belong together are tried: by affinity, or by a topology request.

use std::collections::{BTreeMap, BTreeSet};

use super::constraint::Rules;
use super::node::CandidateNode;
use crate::topology::OneDomain;

/// The number of domains that are tried for pods that belong together.
const DOMAINS_MAX: usize = 64;

/// A domain to which some pod sets are restricted.
pub(super) struct Focus {
    /// The label keys and the domains that its nodes have, by index.
    pub(super) path: Vec<(usize, usize)>,
    /// Whether it is the domain of a topology level, not of an affinity.
    pub(super) is_level: bool,
    /// The pod sets that it restricts.
    pub(super) sets: Vec<bool>,
}

/// All domains in which pods that belong together by affinity or by a required level could be, those with the most nodes
/// first; at most [`DOMAINS_MAX`] for each label key.
pub(super) fn focuses(rules: &Rules<'_>, nodes: &[CandidateNode<'_>], required: &[OneDomain]) -> Vec<Focus> {
    let mut together: BTreeSet<(usize, Vec<bool>)> = BTreeSet::new();
    for affinity in rules.affinities.iter().filter(|affinity| affinity.carriers.contains(&true)) {
        let concerned = affinity.carriers.iter().zip(&affinity.selected);
        let sets: Vec<bool> = concerned.map(|(carrier, selected)| *carrier || *selected).collect();
        together.extend(affinity.domains.iter().map(|key| (*key, sets.clone())));
    }
    let near = together.into_iter().flat_map(|(key, sets)| {
        let all = by_size(&[key], nodes).into_iter();
        all.map(move |path| Focus { path, is_level: false, sets: sets.clone() })
    });
    let levels = required.iter().flat_map(|domain| {
        let all = by_size(&keys(rules, domain), nodes).into_iter();
        all.map(|path| Focus { path, is_level: true, sets: members(rules, domain) })
    });
    near.chain(levels).collect()
}

/// The domains that may hold the pod sets of a preferred level, the tightest first; at most [`DOMAINS_MAX`].
pub(super) fn focuses_within(
    rules: &Rules<'_>,
    nodes: &[CandidateNode<'_>],
    domain: &OneDomain,
) -> Vec<Focus> {
    let keys = keys(rules, domain);
    let workers = &rules.shape.pod_sets[domain.workers];
    let mut rooms: BTreeMap<Vec<(usize, usize)>, u64> = BTreeMap::new();
    for node in nodes.iter().filter(|node| node.is_open[domain.workers]) {
        if let Some(path) = path(&keys, node) {
            let room = rooms.entry(path).or_default();
            *room = room.saturating_add(workers.copies_in(node.free, workers.count).into());
        }
    }
    let values = |path: &[(usize, usize)]| -> Vec<String> {
        path.iter().map(|(key, domain)| rules.domains[*key].values[*domain].clone()).collect()
    };
    let mut rooms: Vec<_> = rooms.into_iter().filter(|(_, room)| *room >= workers.count.into()).collect();
    rooms.sort_by_cached_key(|(path, room)| (*room, values(path)));
    rooms.truncate(DOMAINS_MAX);
    let sets = members(rules, domain);
    rooms.into_iter().map(|(path, _)| Focus { path, is_level: true, sets: sets.clone() }).collect()
}

/// The label keys of a domain, by index in [`Rules::domains`].
fn keys(rules: &Rules<'_>, domain: &OneDomain) -> Vec<usize> {
    let known = |level: &String| rules.domains.iter().position(|domains| domains.key == *level);
    domain.levels.iter().filter_map(known).collect()
}

fn members(rules: &Rules<'_>, domain: &OneDomain) -> Vec<bool> {
    (0..rules.sets.len()).map(|set| domain.members.contains(&set)).collect()
}

/// The domains of a node; none if it lacks one of the labels.
fn path(keys: &[usize], node: &CandidateNode<'_>) -> Option<Vec<(usize, usize)>> {
    keys.iter().map(|key| Some((*key, node.domains[*key]?))).collect()
}

/// The domains with nodes, those with the most nodes first; at most [`DOMAINS_MAX`].
fn by_size(keys: &[usize], nodes: &[CandidateNode<'_>]) -> Vec<Vec<(usize, usize)>> {
    let mut counts: BTreeMap<Vec<(usize, usize)>, usize> = BTreeMap::new();
    for path in nodes.iter().filter_map(|node| path(keys, node)) {
        *counts.entry(path).or_default() += 1;
    }
    let mut paths: Vec<_> = counts.into_iter().collect();
    paths.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    paths.truncate(DOMAINS_MAX);
    paths.into_iter().map(|(path, _)| path).collect()
}
