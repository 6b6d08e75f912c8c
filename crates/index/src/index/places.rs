//! Keeps the places of a running gang where its pods are, and as many as its objects ask for.
//!
//! - A live pod that is bound outside of the assignment takes over a place that no pod of its pod set holds: the surge pod of a
//!   rolling update, a pod that was replaced before a restart of the controller, a pod on a cordoned node that stays there.
//! - After a restart, places that were not recorded are open: they count as lost until a bound pod or the planner takes them.
//! - When an object is scaled down, a place is released once no pod holds it.
//! - When an object is scaled up, the planner adds places, pod by pod ([`model::Gang::elastic`]). A pod that is bound already
//!   gets its place where it is.
//! - A gang that has grown gives up a lost place that the planner cannot replace, down to its size in the AppWrapper. Its pod
//!   waits like one of a scale-up, and the gang runs on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::{Assignment, Gang, GangState, NodeName, PodSet, ResourceVec};

use super::{GangPod, Index};
use crate::phase::Phase;
use crate::translate::places_by_node;
use crate::wrapper::Wrapper;

/// A number of pods by pod set and node.
type PodsByNode = BTreeMap<(usize, NodeName), u64>;

impl Index {
    /// Updates the places of a gang after a change of its pods or objects.
    pub(super) fn update_places(&mut self, uid: &str) {
        self.load_assignment(uid);
        let Some(wrapper) = self.wrappers.get(uid) else { return };
        let (Phase::Starting(Some(old)) | Phase::Running(Some(old))) = &wrapper.phase else { return };
        let wanted = self.wanted_pods(wrapper);
        let new = self.places_of_pods(wrapper, old, &wanted);
        let is_new = new.is_some();
        if let Some(new) = new
            && let Some(Phase::Starting(Some(places)) | Phase::Running(Some(places))) =
                self.wrappers.get_mut(uid).map(|wrapper| &mut wrapper.phase)
        {
            *places = new;
        }
        let Some(wrapper) = self.wrappers.get(uid) else { return };
        let growing = growing_pod_set(wrapper, &wanted);
        let awaits_request = || self.world.gang(uid).is_some_and(|gang| gang.scale_up_request().is_none());
        if is_new || growing != wrapper.growing || growing.is_some() && awaits_request() {
            if let Some(wrapper) = self.wrappers.get_mut(uid) {
                wrapper.growing = growing;
            }
            self.publish(uid);
            self.dirty.insert(uid.to_owned());
        }
    }

    /// The places where the pods are; `None` if they are the same as before.
    fn places_of_pods(
        &self,
        wrapper: &Wrapper,
        assignment: &Assignment,
        wanted: &[Option<u32>],
    ) -> Option<Assignment> {
        let sets = 0..assignment.pod_sets.len();
        let surplus: Vec<u64> =
            sets.map(|set| assignment.placed(set).saturating_sub(wanted_or_all(wanted, set))).collect();
        let has_surplus = surplus.iter().any(|count| *count > 0);
        let may_lose_growth = || {
            !wrapper.lost.is_empty() && wrapper.places_of_scale_ups(assignment).iter().any(|count| *count > 0)
        };
        if !has_surplus && !may_lose_growth() && !self.has_displaced_pods(&wrapper.uid, assignment) {
            return None;
        }
        let pods = self.pods_of(wrapper);
        let mut free = self.free_places(assignment, &pods);
        let mut new = assignment.clone();
        for (set, node) in displaced_pods(&pods, assignment) {
            if let Some(from) = free.get_mut(set).and_then(|free| take_place(free, &wrapper.lost)) {
                move_place(&mut new.pod_sets[set], &from, node);
            } else if wanted.get(set).copied().flatten().is_some_and(|count| new.placed(set) < count.into()) {
                new.pod_sets[set].push((node, 1));
            }
        }
        for (set, surplus) in surplus.into_iter().enumerate() {
            for _ in 0..surplus {
                let Some(from) = free.get_mut(set).and_then(|free| take_place(free, &wrapper.lost)) else {
                    break;
                };
                remove_place(&mut new.pod_sets[set], &from);
            }
        }
        for (set, count) in wrapper.places_of_scale_ups(&new).into_iter().enumerate() {
            for _ in 0..count {
                let Some(from) = free.get_mut(set).and_then(|free| take_lost_place(free, &wrapper.lost))
                else {
                    break;
                };
                remove_place(&mut new.pod_sets[set], &from);
            }
        }
        (new != *assignment).then_some(new)
    }

    /// Whether more pods of a pod set are bound to a node than have places there. Terminating pods count, so this is only the
    /// first, fast check.
    fn has_displaced_pods(&self, uid: &str, assignment: &Assignment) -> bool {
        let mut bound: BTreeMap<(usize, &str), u64> = BTreeMap::new();
        for pod in self.world.pods_of(uid) {
            if let (Some(node), Some((_, set))) = (&pod.node, &pod.gang) {
                *bound.entry((*set, node)).or_default() += 1;
            }
        }
        let places = places(assignment);
        bound.into_iter().any(|((set, node), count)| {
            set < assignment.pod_sets.len()
                && places.get(&(set, node.to_owned())).is_none_or(|places| count > *places)
        })
    }

    /// The number of further pods of each pod set that get places as soon as the planner finds them.
    pub(super) fn pods_awaiting_growth(&self, wrapper: &Wrapper, assignment: &Assignment) -> Vec<u64> {
        let is_running = matches!(wrapper.phase, Phase::Running(Some(_)));
        let wanted = if is_running { self.wanted_pods(wrapper) } else { Vec::new() };
        let missing = |set: usize| {
            let wanted = wanted.get(set).copied().flatten().map_or(0, u64::from);
            wanted.saturating_sub(assignment.placed(set))
        };
        (0..assignment.pod_sets.len()).map(missing).collect()
    }

    /// The gang in its present size: the pods with places and the next pod of a scale-up; or, of a gang without a known
    /// assignment, without the pods that have ended.
    pub(super) fn sized(&self, wrapper: &Wrapper, gang: Gang) -> Gang {
        match &gang.state {
            GangState::Reserved(assignment) => {
                let placed = (0..gang.pod_sets.len()).map(|set| assignment.placed(set));
                let placed: Vec<u32> = placed.map(|count| u32::try_from(count).unwrap_or(u32::MAX)).collect();
                let grows = matches!(wrapper.phase, Phase::Running(_)) && !wrapper.is_deleting;
                sized_as_placed(gang, &placed, wrapper.growing.filter(|_| grows))
            }
            GangState::Unplaced if matches!(wrapper.phase, Phase::Running(_)) => {
                let wanted = self.wanted_pods(wrapper);
                let sets = gang.pod_sets.iter().zip(wanted);
                let ended = |(set, wanted): (&PodSet, Option<u32>)| {
                    set.count.saturating_sub(wanted.unwrap_or(set.count))
                };
                let reclaimable: Vec<u32> = sets.map(ended).collect();
                let declared = declared_without(&gang, &reclaimable);
                Gang { reclaimable, declared, ..gang }
            }
            GangState::Waiting | GangState::Nominated(_) | GangState::Unplaced => gang,
        }
    }
}

/// The pod sets and nodes of live bound pods beyond the places on their nodes.
fn displaced_pods(pods: &[GangPod<'_>], assignment: &Assignment) -> Vec<(usize, NodeName)> {
    let mut left = places(assignment);
    let mut displaced = Vec::new();
    for pod in pods.iter().filter(|pod| pod.is_live() && !pod.is_deleting) {
        let Some(set) = pod.pod_set.filter(|set| *set < assignment.pod_sets.len()) else { continue };
        let Some(node) = pod.node.clone() else { continue };
        match left.get_mut(&(set, node.clone())).filter(|left| **left > 0) {
            Some(left) => *left -= 1,
            None => displaced.push((set, node)),
        }
    }
    displaced
}

/// The node of open places. No node has this name, so these places are lost, and the planner replaces them.
const NOT_KNOWN: &str = "?";

impl Wrapper {
    /// Places for all pods whose nodes are not known.
    pub(super) fn open_places(&self) -> Assignment {
        let places = |set: &PodSet| match set.count {
            0 => Vec::new(),
            count => vec![(NOT_KNOWN.to_owned(), count)],
        };
        let pod_sets = self.summary.pod_sets.iter().map(places).collect();
        Assignment { pod_sets, ..Assignment::default() }
    }

    /// For each pod set, the number of places beyond the size in the AppWrapper.
    pub(super) fn places_of_scale_ups(&self, assignment: &Assignment) -> Vec<u64> {
        let size = |set: usize| self.summary.pod_sets.get(set).map_or(u64::MAX, |set| set.count.into());
        let sets = 0..assignment.pod_sets.len();
        sets.map(|set| assignment.placed(set).saturating_sub(size(set))).collect()
    }
}

/// The first pod set of a running gang with fewer places than its object asks for.
fn growing_pod_set(wrapper: &Wrapper, wanted: &[Option<u32>]) -> Option<usize> {
    let Phase::Running(Some(assignment)) = &wrapper.phase else { return None };
    let is_short = |(set, wanted): (usize, &Option<u32>)| {
        wanted.is_some_and(|wanted| assignment.placed(set) < u64::from(wanted))
    };
    wanted.iter().enumerate().position(is_short).filter(|_| !wrapper.is_deleting)
}

/// The gang with pod sets of the size of its assignment, and one more pod in the set that grows. The declared total shrinks by
/// the pods without a place: a pod of a scale-up gets its own place within it.
fn sized_as_placed(gang: Gang, placed: &[u32], growing: Option<usize>) -> Gang {
    let missing = |(set, (pod_set, placed)): (usize, (&PodSet, &u32))| {
        pod_set.count.saturating_sub(*placed).max(u32::from(growing == Some(set)))
    };
    let missing: Vec<u32> = gang.pod_sets.iter().zip(placed).enumerate().map(missing).collect();
    let declared = declared_without(&gang, &missing);
    let size = |set: usize| placed[set].saturating_add(u32::from(growing == Some(set)));
    let is_sized = gang.pod_sets.iter().enumerate().all(|(set, pod_set)| pod_set.count == size(set));
    let pod_sets = if is_sized {
        gang.pod_sets.clone()
    } else {
        let sets = gang.pod_sets.iter().enumerate();
        sets.map(|(set, pod_set)| PodSet { count: size(set), ..pod_set.clone() }).collect::<Arc<[PodSet]>>()
    };
    Gang { pod_sets, declared, elastic: growing.is_some(), ..gang }
}

/// The declared total less the requests of this number of pods of each pod set; nothing when no pod is left.
fn declared_without(gang: &Gang, missing: &[u32]) -> Option<ResourceVec> {
    if missing.iter().all(|count| *count == 0) {
        return gang.declared.clone();
    }
    let mut requests = ResourceVec::new();
    for (set, count) in gang.pod_sets.iter().zip(missing) {
        requests.add(&set.request.times(*count));
    }
    let has_pods_left = gang.pod_sets.iter().zip(missing).any(|(set, count)| set.count > *count);
    let mut declared = gang.declared.clone().filter(|_| has_pods_left)?;
    declared.sub(&requests);
    Some(declared.positive())
}

/// The number of pods that the object asks for; without an object, all that have places.
fn wanted_or_all(wanted: &[Option<u32>], set: usize) -> u64 {
    wanted.get(set).copied().flatten().map_or(u64::MAX, u64::from)
}

/// The number of places by pod set and node.
fn places(assignment: &Assignment) -> PodsByNode {
    let sets = assignment.pod_sets.iter().enumerate();
    let by_node = |(set, places): (usize, &Vec<(NodeName, u32)>)| {
        places_by_node(places).into_iter().map(move |(node, count)| ((set, node), u64::from(count)))
    };
    sets.flat_map(by_node).collect()
}

/// Takes a place that no pod holds: on a lost node if there is one, else the last by the name of the node.
fn take_place(free: &mut BTreeMap<NodeName, u32>, lost: &BTreeSet<NodeName>) -> Option<NodeName> {
    take_lost_place(free, lost).or_else(|| {
        let (node, left) = free.iter_mut().rfind(|(_, left)| **left > 0)?;
        *left -= 1;
        Some(node.clone())
    })
}

/// Takes a place on a lost node that no pod holds.
fn take_lost_place(free: &mut BTreeMap<NodeName, u32>, lost: &BTreeSet<NodeName>) -> Option<NodeName> {
    let (node, left) = free.iter_mut().find(|(node, left)| **left > 0 && lost.contains(*node))?;
    *left -= 1;
    Some(node.clone())
}

fn move_place(places: &mut Vec<(NodeName, u32)>, from: &str, to: NodeName) {
    remove_place(places, from);
    places.push((to, 1));
}

fn remove_place(places: &mut Vec<(NodeName, u32)>, from: &str) {
    if let Some(at) = places.iter().rposition(|(node, count)| node == from && *count > 0) {
        places[at].1 -= 1;
        places.retain(|(_, count)| *count > 0);
    }
}
