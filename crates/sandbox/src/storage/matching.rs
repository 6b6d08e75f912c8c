//! Which volumes satisfy a claim, and which nodes can use a volume.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::wire::{Claim, Node, Quantity, StorageClass, TopologyTerm, Volume};

/// Labels of a volume that name its zones and regions; several values are separated by `__`.
const ZONE_LABELS: [&str; 2] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];

/// The smallest of the volumes that satisfy a claim. A volume that is reserved for the claim comes first.
pub(crate) fn best_volume(
    volumes: Vec<Arc<Volume>>,
    claim: &Claim,
    may: impl Fn(&Volume) -> bool,
) -> Option<Arc<Volume>> {
    let fitting = volumes.into_iter().filter(|volume| satisfies(volume, claim) && may(volume));
    fitting.min_by_key(|volume| {
        (volume.spec.claim_ref.is_none(), storage(&volume.spec.capacity), volume.metadata.name.clone())
    })
}

fn satisfies(volume: &Volume, claim: &Claim) -> bool {
    let spec = &volume.spec;
    let is_free = match &spec.claim_ref {
        Some(reference) => reference.is_of(claim),
        None => !matches!(&*volume.status.phase, "Released" | "Failed"),
    };
    let mode = |mode: &Option<String>| mode.as_deref().unwrap_or("Filesystem") == "Block";
    let selected = claim.spec.selector.as_ref();
    is_free
        && !volume.metadata.is_deleting()
        && spec.storage_class_name == claim.class()
        && mode(&spec.volume_mode) == mode(&claim.spec.volume_mode)
        && claim.spec.access_modes.iter().all(|mode| spec.access_modes.contains(mode))
        && storage(&spec.capacity) >= storage(&claim.spec.resources.requests)
        && selected.is_none_or(|selector| selector.matches(&volume.metadata.labels))
}

fn storage(amounts: &BTreeMap<String, Quantity>) -> i64 {
    amounts.get("storage").map_or(0, |amount| amount.milli())
}

/// Whether the node affinity of the volume matches the node.
pub(crate) fn is_usable_on(volume: &Volume, node: &Node) -> bool {
    let required = volume.spec.node_affinity.as_ref().and_then(|affinity| affinity.required.as_ref());
    required.is_none_or(|required| required.node_selector_terms.iter().any(|term| term.matches(node)))
}

impl Volume {
    /// Whether the labels of the volume name zones and regions in which the node is not. A node without such labels is in all.
    pub(crate) fn is_in_another_zone(&self, node: &Node) -> bool {
        let labels = &node.metadata.labels;
        ZONE_LABELS.iter().any(|key| labels.contains_key(*key))
            && ZONE_LABELS.iter().any(|key| {
                let zones = self.metadata.label(key);
                zones.is_some_and(|zones| {
                    !zones.split("__").any(|zone| node.metadata.label(key) == Some(zone))
                })
            })
    }
}

/// Whether the class creates volumes for a node.
pub(crate) fn provisions_for(class: &StorageClass, node: &Node) -> bool {
    class.provisions() && (class.allowed_topologies.is_empty() || topology_of(class, node).is_some())
}

/// The topology of the class in which a node is.
pub(super) fn topology_of<'a>(class: &'a StorageClass, node: &Node) -> Option<&'a TopologyTerm> {
    let is_in = |term: &&TopologyTerm| {
        term.match_label_expressions.iter().all(|expression| {
            node.metadata.labels.get(&expression.key).is_some_and(|value| expression.values.contains(value))
        })
    };
    class.allowed_topologies.iter().find(is_in)
}
