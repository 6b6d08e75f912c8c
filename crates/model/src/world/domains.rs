//! Topology domains: the nodes of each domain, for the topologies that some gang requests.
//!
//! Domains are separate from node classes. So a cluster of a thousand racks has one class for gangs without topology
//! request.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::World;
use super::ledger::NodeIx;
use crate::node::Node;
use crate::pod_set::PodSet;
use crate::quota::Flavor;
use crate::topology::TopologyRequest;

/// A domain of the lowest level of a topology: the label values of all levels, broadest first.
pub type DomainPath = Arc<[Arc<str>]>;

/// The requested topologies, by the label keys of their levels.
#[derive(Clone, Debug, Default)]
pub(super) struct Domains {
    trees: BTreeMap<Arc<[String]>, Tree>,
}

#[derive(Clone, Debug, Default)]
struct Tree {
    /// The nodes of each domain. No domain is empty.
    leaves: BTreeMap<DomainPath, BTreeSet<NodeIx>>,
    path_by_node: BTreeMap<NodeIx, DomainPath>,
}

impl Domains {
    fn track<'n>(&mut self, levels: Arc<[String]>, nodes: impl Iterator<Item = (NodeIx, &'n Node)>) {
        if let Entry::Vacant(entry) = self.trees.entry(levels) {
            let mut tree = Tree::default();
            for (ix, node) in nodes {
                tree.set(entry.key(), ix, Some(node));
            }
            entry.insert(tree);
        }
    }

    /// A node was added or changed; with `None`, it was deleted.
    pub(super) fn node_changed(&mut self, ix: NodeIx, node: Option<&Node>) {
        for (levels, tree) in &mut self.trees {
            tree.set(levels, ix, node);
        }
    }
}

impl Tree {
    fn set(&mut self, levels: &[String], ix: NodeIx, node: Option<&Node>) {
        if let Some(path) = self.path_by_node.remove(&ix)
            && let Some(nodes) = self.leaves.get_mut(&path)
        {
            nodes.remove(&ix);
            if nodes.is_empty() {
                self.leaves.remove(&path);
            }
        }
        let value = |node: &Node, key: &String| node.labels.get(key).map(|value| Arc::from(value.as_str()));
        let path = node.and_then(|node| levels.iter().map(|key| value(node, key)).collect::<Option<_>>());
        let Some(path): Option<DomainPath> = path else { return };
        let path = self.shared(path);
        self.leaves.entry(path.clone()).or_default().insert(ix);
        self.path_by_node.insert(ix, path);
    }

    /// The same path with the values of its neighbours, as far as they are equal: domains of one parent have the same allocation
    /// for its value, so that they are told apart without a look at the text.
    fn shared(&self, path: DomainPath) -> DomainPath {
        if let Some((known, _)) = self.leaves.get_key_value(&path) {
            return known.clone();
        }
        let before = self.leaves.range::<DomainPath, _>(..&path).next_back();
        let after = self.leaves.range::<DomainPath, _>(&path..).next();
        let common =
            |known: &DomainPath| known.iter().zip(&*path).take_while(|(known, value)| known == value).count();
        let neighbour =
            before.into_iter().chain(after).map(|(known, _)| known).max_by_key(|known| common(known));
        let Some(neighbour) = neighbour else { return path };
        let shared = common(neighbour);
        neighbour[..shared].iter().chain(&path[shared..]).cloned().collect()
    }
}

impl World {
    /// The levels that apply to a request, broadest first: those of the flavors of the pods, or of the first flavor by name
    /// whose topology contains all requested levels. Without such a flavor, only the requested levels.
    pub fn levels(&self, pod_set: &PodSet, request: &TopologyRequest) -> Arc<[String]> {
        if !pod_set.levels.is_empty() {
            return pod_set.levels.clone();
        }
        let first = self.flavors_with(request).min_by_key(|flavor| &flavor.name);
        first.map_or_else(|| own_levels(request), |flavor| flavor.topology.as_slice().into())
    }

    /// The flavors whose topology contains all requested levels.
    fn flavors_with(&self, request: &TopologyRequest) -> impl Iterator<Item = &Flavor> {
        let keys = own_levels(request);
        let has_all = move |flavor: &&Flavor| {
            !flavor.topology.is_empty() && keys.iter().all(|key| flavor.topology.contains(key))
        };
        self.quotas.flavors().values().filter(has_all)
    }

    /// The domains of the lowest of these levels, with their nodes. Empty for levels that no gang requests. A node
    /// that lacks the label of a level is in no domain.
    pub fn domains(&self, levels: &[String]) -> impl Iterator<Item = (&DomainPath, &BTreeSet<NodeIx>)> {
        self.domains.trees.get(levels).into_iter().flat_map(|tree| &tree.leaves)
    }

    /// The domain of a node at the lowest of these levels.
    pub fn domain_of(&self, levels: &[String], node: NodeIx) -> Option<&DomainPath> {
        self.domains.trees.get(levels).and_then(|tree| tree.path_by_node.get(&node))
    }

    /// Tracks the topologies that these requests refer to.
    pub(super) fn track_topologies(&mut self, requests: &[TopologyRequest]) {
        for request in requests {
            let topologies: BTreeSet<Arc<[String]>> =
                self.flavors_with(request).map(|flavor| flavor.topology.as_slice().into()).collect();
            let topologies =
                if topologies.is_empty() { BTreeSet::from([own_levels(request)]) } else { topologies };
            for levels in topologies {
                self.domains.track(levels, self.ledger.nodes());
            }
        }
    }

    /// Tracks the topologies that all gangs request, after a flavor changed.
    pub(super) fn track_all_topologies(&mut self) {
        let sets = self.gangs().flat_map(|gang| gang.pod_sets.iter());
        let requests: BTreeSet<TopologyRequest> = sets.filter_map(|set| set.topology.clone()).collect();
        self.track_topologies(&requests.into_iter().collect::<Vec<_>>());
    }
}

/// The levels that a request names.
fn own_levels(request: &TopologyRequest) -> Arc<[String]> {
    request.keys().into_iter().map(str::to_owned).collect()
}
