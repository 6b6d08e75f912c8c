//! Inter-pod affinity and anti-affinity.

use std::collections::BTreeMap;

use super::cache::{Cache, NodeInfo, PodInfo};
use super::filter::Rejection;
use crate::storage::Referenced;
use crate::wire::{Key, Pod, PodAffinity, PodAffinityTerm};

/// Topology key and value.
type Domain = (String, String);

/// Counts of matching pods in every topology domain, for one incoming pod.
#[derive(Default)]
pub(super) struct PodAffinityState {
    /// Domains with existing pods whose required anti-affinity matches the incoming pod.
    existing_anti_affinity: BTreeMap<Domain, usize>,
    /// Topology keys of the required affinity terms, and the domains with pods that match all terms.
    required: Vec<String>,
    affinity_domains: BTreeMap<Domain, usize>,
    /// No existing pod matches the required affinity, but the incoming pod matches it itself. The first pod of such a
    /// group may go to any node.
    first_of_group: bool,
    /// Domains with pods that match a required anti-affinity term of the incoming pod.
    anti_affinity_domains: BTreeMap<Domain, usize>,
    /// Sum of the weights of preferred terms in every domain.
    preferred: BTreeMap<Domain, i64>,
}

impl PodAffinityState {
    pub(super) fn of(cache: &Cache, pod: &PodInfo) -> Self {
        let mut state = Self::default();
        state.count_existing(cache, &pod.pod);
        let none = PodAffinity::default();
        let affinity = pod.pod.spec.affinity.as_deref();
        let pod_affinity = affinity.and_then(|affinity| affinity.pod_affinity.as_ref()).unwrap_or(&none);
        let pod_anti_affinity =
            affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref()).unwrap_or(&none);
        let terms = pod_affinity.required.len()
            + pod_affinity.preferred.len()
            + pod_anti_affinity.required.len()
            + pod_anti_affinity.preferred.len();
        if terms == 0 {
            return state;
        }
        let own = &pod.pod;
        let selects =
            |term: &PodAffinityTerm, owner: &Pod, other: &Pod| selects(&cache.objects, term, owner, other);
        for info in cache.nodes.values() {
            for other in info.pods.values().map(|other| &other.pod) {
                if !pod_affinity.required.is_empty()
                    && pod_affinity.required.iter().all(|term| selects(term, own, other))
                {
                    pod_affinity
                        .required
                        .iter()
                        .for_each(|term| add_weight(&mut state.affinity_domains, term, info, 1));
                }
                let matching = pod_anti_affinity.required.iter().filter(|term| selects(term, own, other));
                matching.for_each(|term| add_weight(&mut state.anti_affinity_domains, term, info, 1));
                for (list, sign) in [(&pod_affinity.preferred, 1), (&pod_anti_affinity.preferred, -1)] {
                    let preferred = list.iter().filter(|term| selects(&term.pod_affinity_term, own, other));
                    preferred.for_each(|term| {
                        add_weight(&mut state.preferred, &term.pod_affinity_term, info, sign * term.weight);
                    });
                }
            }
        }
        state.required = pod_affinity.required.iter().map(|term| term.topology_key.clone()).collect();
        state.first_of_group = state.affinity_domains.is_empty()
            && pod_affinity.required.iter().all(|term| selects(term, own, own));
        state
    }

    /// Counts the required anti-affinity terms of existing pods.
    fn count_existing(&mut self, cache: &Cache, pod: &Pod) {
        for (node, key) in &cache.with_anti_affinity {
            let Some(info) = cache.nodes.get(node) else { continue };
            let Some(other) = info.pods.get(key) else { continue };
            let anti =
                other.pod.spec.affinity.as_ref().and_then(|affinity| affinity.pod_anti_affinity.as_ref());
            let terms = anti.into_iter().flat_map(|anti| &anti.required);
            terms
                .filter(|term| selects(&cache.objects, term, &other.pod, pod))
                .for_each(|term| add_weight(&mut self.existing_anti_affinity, term, info, 1));
        }
    }

    pub(super) fn check(&self, info: &NodeInfo) -> Result<(), Rejection> {
        let within = |domains: &BTreeMap<Domain, usize>| {
            !domains.is_empty() && domains.keys().any(|(key, value)| info.label(key) == Some(value))
        };
        let matches_affinity = self.required.iter().all(|key| {
            info.label(key).is_some_and(|value| {
                self.first_of_group || self.affinity_domains.contains_key(&(key.clone(), value.to_owned()))
            })
        });
        if !matches_affinity {
            return Err(Rejection::new("node(s) didn't match pod affinity rules", false));
        }
        if within(&self.anti_affinity_domains) {
            return Err(Rejection::new("node(s) didn't match pod anti-affinity rules", true));
        }
        if within(&self.existing_anti_affinity) {
            return Err(Rejection::new("node(s) didn't satisfy existing pods anti-affinity rules", true));
        }
        Ok(())
    }

    /// Sum of the preferred weights in the node's domains.
    pub(super) fn preference(&self, info: &NodeInfo) -> i64 {
        let here = self.preferred.iter().filter(|((key, value), _)| info.label(key) == Some(value));
        here.map(|(_, weight)| weight).sum()
    }
}

fn add_weight<N: std::ops::AddAssign + Default>(
    domains: &mut BTreeMap<Domain, N>,
    term: &PodAffinityTerm,
    info: &NodeInfo,
    weight: N,
) {
    if let Some(value) = info.label(&term.topology_key) {
        *domains.entry((term.topology_key.clone(), value.to_owned())).or_default() += weight;
    }
}

/// Whether a term of `owner` matches `other`. An empty namespace selector matches all namespaces.
fn selects(objects: &Referenced, term: &PodAffinityTerm, owner: &Pod, other: &Pod) -> bool {
    let namespace = &other.metadata.namespace;
    let is_selected = term.namespace_selector.as_ref().is_some_and(|selector| {
        let found = objects.namespaces.get(&Key::new("", &**namespace));
        selector.is_empty() || found.is_some_and(|found| selector.matches(&found.metadata.labels))
    });
    let namespaces = if term.namespaces.is_empty() && term.namespace_selector.is_none() {
        *namespace == owner.metadata.namespace
    } else {
        is_selected || term.namespaces.contains(namespace)
    };
    let same = |key: &String| owner.metadata.labels.get(key) == other.metadata.labels.get(key);
    let keyed = |keys: &[String]| {
        keys.iter().filter(|key| owner.metadata.labels.contains_key(*key)).cloned().collect::<Vec<_>>()
    };
    namespaces
        && term.label_selector.as_ref().is_some_and(|selector| selector.matches(&other.metadata.labels))
        && keyed(&term.match_label_keys).iter().all(same)
        && !keyed(&term.mismatch_label_keys).iter().any(same)
}
