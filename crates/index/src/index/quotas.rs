//! MCAD's quota trees: parts of trees become nodes of quota, and gangs are charged to one node of each tree.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::Amounts;
use api::quota::{Child, DEFAULT_GROUP, QuotaSubtree};
use model::{
    Amount, Event, FlavorIx, FlavorResource, Limits, QuotaIx, QuotaNode, QuotaPreemption, Reclaim,
    ResourceNames, WhileBorrowing, Within,
};
use serde_json::json;

use super::Index;
use crate::wrapper::Wrapper;

/// The observed parts, and what was made of them.
#[derive(Debug, Default)]
pub(super) struct Trees {
    /// By namespace, name and uid: of two groups of one name the last counts.
    parts: BTreeMap<(String, String, String), QuotaSubtree>,
    /// Nodes as the world has them, by name.
    nodes: BTreeMap<String, QuotaNode>,
    names: BTreeSet<String>,
    preempts: bool,
}

impl Index {
    /// A part of a quota tree as it is.
    pub fn quota_seen(&mut self, part: QuotaSubtree) {
        self.trees.parts.retain(|(_, _, uid), _| *uid != part.metadata.uid);
        let meta = &part.metadata;
        let key = (meta.namespace.clone(), meta.name.clone(), meta.uid.clone());
        self.trees.parts.insert(key, part);
        self.publish_quota();
    }

    /// A part of a quota tree is gone.
    pub fn quota_gone(&mut self, uid: &str) {
        self.trees.parts.retain(|(_, _, other), _| other != uid);
        self.publish_quota();
    }

    /// Whether gangs may take quota back from those who borrowed it, and the quota of weaker ones.
    pub(super) fn set_quota_preemption(&mut self, preempts: bool) {
        self.trees.preempts = preempts;
        self.publish_quota();
    }

    fn publish_quota(&mut self) {
        let nodes = self.trees.nodes(self.world.resources_mut());
        let gone = self.trees.nodes.keys().filter(|name| !nodes.contains_key(*name));
        for name in gone {
            self.world.apply(Event::QuotaRemoved(name.clone()));
        }
        for node in nodes.values().filter(|node| self.trees.nodes.get(&node.name) != Some(*node)) {
            self.world.apply(Event::QuotaUpserted(node.clone()));
        }
        self.trees.nodes = nodes;
        let names = self.trees.parts.values().filter_map(QuotaSubtree::tree).map(str::to_owned).collect();
        if std::mem::replace(&mut self.trees.names, names) != self.trees.names {
            let uids: Vec<String> = self.wrappers.keys().cloned().collect();
            for uid in uids {
                self.publish(&uid);
            }
        }
    }

    /// The group of each tree that a wrapper is charged to.
    pub(super) fn charges(&mut self, uid: &str) -> Arc<[QuotaIx]> {
        let Some(wrapper) = self.wrappers.get(uid) else { return Arc::default() };
        let world = &mut self.world;
        self.trees.names.iter().map(|tree| world.quota_ix(&node_name(tree, group(wrapper, tree)))).collect()
    }
}

fn group<'a>(wrapper: &'a Wrapper, tree: &str) -> &'a str {
    wrapper.labels.get(tree).map_or(DEFAULT_GROUP, String::as_str)
}

fn node_name(tree: &str, group: &str) -> String {
    format!("{tree}/{group}")
}

/// A group and where it is.
struct Place<'a> {
    parent: Option<String>,
    child: &'a Child,
    owns: BTreeMap<FlavorResource, i64>,
}

impl Trees {
    /// The nodes of all trees, by name. A group owns what it says less what the groups below it say.
    fn nodes(&self, names: &mut ResourceNames) -> BTreeMap<String, QuotaNode> {
        let mut places: BTreeMap<String, Place<'_>> = BTreeMap::new();
        for part in self.parts.values() {
            let Some(tree) = part.tree() else { continue };
            let parent = &part.spec.parent;
            for child in part.spec.children.iter().filter(|child| !child.name.is_empty()) {
                let parent = (!parent.is_empty()).then(|| node_name(tree, parent));
                let owns = owned(child, names);
                places.insert(node_name(tree, &child.name), Place { parent, child, owns });
            }
        }
        let mut below: BTreeMap<(&str, FlavorResource), i64> = BTreeMap::new();
        for place in places.values() {
            let Some(parent) = place.parent.as_deref() else { continue };
            for (of, amount) in &place.owns {
                let sum = below.entry((parent, *of)).or_default();
                *sum = sum.saturating_add(*amount);
            }
        }
        let node = |(name, place): (&String, &Place<'_>)| {
            let keys = place.owns.keys().copied();
            let inherited = below.keys().filter(|(parent, _)| parent == name).map(|(_, of)| *of);
            let listed: BTreeSet<FlavorResource> = keys.chain(inherited).collect();
            let limits = listed.into_iter().map(|of| {
                let own = place.owns.get(&of).copied().unwrap_or(0);
                let lower = below.get(&(name.as_str(), of)).copied().unwrap_or(0);
                let borrowing = place.child.quotas.hard_limit.then_some(Amount::ZERO);
                (of, Limits { nominal: Amount(own.saturating_sub(lower)), borrowing, ..Limits::default() })
            });
            let node = QuotaNode {
                name: name.clone(),
                parent: place.parent.clone(),
                limits: limits.collect(),
                preemption: self.preemption(),
                ..QuotaNode::default()
            };
            (name.clone(), node)
        };
        places.iter().map(node).collect()
    }

    /// Who stays within its own evicts whoever borrowed of it; who does not, only weaker ones. After MCAD's
    /// `quota-manager/quota/core/quotatree.go`.
    fn preemption(&self) -> QuotaPreemption {
        if !self.preempts {
            return QuotaPreemption::default();
        }
        QuotaPreemption {
            within: Within::LowerPriority,
            reclaim: Reclaim::Any,
            borrowing: Some(WhileBorrowing::default()),
        }
    }
}

/// What a group says that it owns. An amount that cannot be read is nothing: the safe side.
fn owned(child: &Child, names: &mut ResourceNames) -> BTreeMap<FlavorResource, i64> {
    let requests = child.quotas.requests.as_object().into_iter().flatten();
    let owned = requests.map(|(name, quantity)| {
        let amounts = Amounts::read(&json!({ name: quantity })).unwrap_or_default();
        let resource = names.intern(if name == "gpu" { "nvidia.com/gpu" } else { name });
        (FlavorResource { flavor: FlavorIx::ANY, resource }, amounts.get(name))
    });
    owned.collect()
}
