//! The domains of the topologies that some gang asks for: which nodes are in which rack of which block.
//!
//! Apart from the classes of nodes, so that a cluster of a thousand racks stays one class for gangs that ask for none.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::World;
use super::ledger::NodeIx;
use crate::node::Node;
use crate::quota::Flavor;
use crate::topology::TopologyRequest;

/// A domain of the lowest level of a topology: the values of the labels of all levels, broadest first.
pub type DomainPath = Arc<[Arc<str>]>;

/// By the keys of their levels, the topologies that somebody asked for.
#[derive(Clone, Debug, Default)]
pub(super) struct Domains {
    trees: BTreeMap<Arc<[String]>, Tree>,
}

#[derive(Clone, Debug, Default)]
struct Tree {
    /// No domain is empty.
    leaves: BTreeMap<DomainPath, BTreeSet<NodeIx>>,
    of: BTreeMap<NodeIx, DomainPath>,
}

impl Domains {
    fn learn<'n>(&mut self, levels: Arc<[String]>, nodes: impl Iterator<Item = (NodeIx, &'n Node)>) {
        if let Entry::Vacant(entry) = self.trees.entry(levels) {
            let mut tree = Tree::default();
            for (ix, node) in nodes {
                tree.set(entry.key(), ix, Some(node));
            }
            entry.insert(tree);
        }
    }

    /// A node appeared, changed or, with none, vanished.
    pub(super) fn changed(&mut self, ix: NodeIx, node: Option<&Node>) {
        for (levels, tree) in &mut self.trees {
            tree.set(levels, ix, node);
        }
    }
}

impl Tree {
    fn set(&mut self, levels: &[String], ix: NodeIx, node: Option<&Node>) {
        if let Some(path) = self.of.remove(&ix)
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
        let path = self.leaves.get_key_value(&path).map_or(path, |(known, _)| known.clone());
        self.leaves.entry(path.clone()).or_default().insert(ix);
        self.of.insert(ix, path);
    }
}

impl World {
    /// The levels that a request is measured by, broadest first: those of the first flavor by name whose topology has all
    /// that it names; where there is none, just those that it names.
    pub fn levels(&self, request: &TopologyRequest) -> Arc<[String]> {
        let keys = request.keys();
        let has_all = |flavor: &&Flavor| {
            !flavor.topology.is_empty() && keys.iter().all(|key| flavor.topology.iter().any(|one| one == key))
        };
        let flavors = self.quotas.flavors().values().filter(has_all);
        match flavors.min_by_key(|flavor| &flavor.name) {
            Some(flavor) => flavor.topology.as_slice().into(),
            None => keys.into_iter().map(str::to_owned).collect(),
        }
    }

    /// The domains of the lowest of these levels, with their nodes; empty for levels that no gang asks for. What lacks the
    /// label of one of the levels is in no domain.
    pub fn domains(&self, levels: &[String]) -> impl Iterator<Item = (&DomainPath, &BTreeSet<NodeIx>)> {
        self.domains.trees.get(levels).into_iter().flat_map(|tree| &tree.leaves)
    }

    /// The domain of the lowest of these levels that a node is in.
    pub fn domain_of(&self, levels: &[String], node: NodeIx) -> Option<&DomainPath> {
        self.domains.trees.get(levels).and_then(|tree| tree.of.get(&node))
    }

    /// Notes which topologies a gang asks for.
    pub(super) fn learn_domains(&mut self, requests: &[TopologyRequest]) {
        for request in requests {
            let levels = self.levels(request);
            self.domains.learn(levels, self.ledger.nodes());
        }
    }

    /// Notes which topologies all gangs ask for, after flavors changed.
    pub(super) fn relearn_domains(&mut self) {
        let sets = self.gangs().flat_map(|gang| gang.pod_sets.iter());
        let requests: BTreeSet<TopologyRequest> = sets.filter_map(|set| set.topology.clone()).collect();
        self.learn_domains(&requests.into_iter().collect::<Vec<_>>());
    }
}
