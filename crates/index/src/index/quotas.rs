//! MCAD's quota trees: converts `QuotaSubtree` objects to quota nodes, and charges a gang to one node of each tree.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::Amounts;
use api::quota::{Child, DEFAULT_GROUP, QuotaSubtree};
use model::{
    Amount, BorrowWithinCohort, Event, FlavorIx, FlavorResource, Gang, Limits, QuotaIx, QuotaNode,
    QuotaPreemption, ReclaimWithinCohort, ResourceNames, ResourceVec, WithinClusterQueue,
};
use serde_json::json;

use super::Index;
use crate::reserved_quota::ReservedQuota;
use crate::wrapper::Wrapper;

/// The watched `QuotaSubtree` objects, and the quota nodes made of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Trees {
    /// By namespace, name and uid. If two subtrees define a group of the same name, the last one applies.
    subtrees: BTreeMap<(String, String, String), QuotaSubtree>,
    /// The quota nodes in the World, by name.
    nodes: BTreeMap<String, QuotaNode>,
    /// The names of the trees.
    names: BTreeSet<String>,
    /// Whether gangs may preempt for quota.
    has_preemption: bool,
}

impl Index {
    /// Adds or updates a `QuotaSubtree`.
    pub fn upsert_quota(&mut self, subtree: QuotaSubtree) {
        self.trees.subtrees.retain(|(_, _, uid), _| *uid != subtree.metadata.uid);
        let meta = &subtree.metadata;
        let key = (meta.namespace.clone(), meta.name.clone(), meta.uid.clone());
        self.trees.subtrees.insert(key, subtree);
        self.publish_quota();
    }

    /// Removes a deleted `QuotaSubtree`.
    pub fn delete_quota(&mut self, uid: &str) {
        self.trees.subtrees.retain(|(_, _, other), _| other != uid);
        self.publish_quota();
    }

    /// Sets whether gangs may reclaim lent quota and preempt gangs of lower priority in their own quota node.
    pub(super) fn set_quota_preemption(&mut self, has_preemption: bool) {
        self.trees.has_preemption = has_preemption;
        self.publish_quota();
    }

    /// Updates the quota nodes in the World, and all gangs if the set of trees changed.
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
        let names = self.trees.subtrees.values().filter_map(QuotaSubtree::tree).map(str::to_owned).collect();
        if std::mem::replace(&mut self.trees.names, names) != self.trees.names {
            let uids: Vec<String> = self.wrappers.keys().cloned().collect();
            for uid in uids {
                self.publish(&uid);
            }
        }
    }

    /// Whether a quota node is a group of a quota tree.
    pub fn is_tree_group(&self, name: &str) -> bool {
        self.trees.nodes.contains_key(name)
    }

    /// The quota nodes that a wrapper is charged to: one of each tree.
    pub(super) fn charges(&mut self, uid: &str) -> Arc<[QuotaIx]> {
        let Some(wrapper) = self.wrappers.get_mut(uid) else { return Arc::default() };
        if wrapper.phase.is_queued() && wrapper.labels != wrapper.present_labels {
            wrapper.labels = wrapper.present_labels.clone();
        }
        let groups = self.trees.groups(wrapper, wrapper.reserved_quota().as_ref());
        let world = &mut self.world;
        groups.iter().map(|(tree, group)| world.quota_ix(&node_name(tree, group))).collect()
    }

    /// The gang, with the total of its admission at least: a smaller spec counts when it is requeued.
    pub(super) fn charged_as_admitted(&self, wrapper: &Wrapper, gang: Gang) -> Gang {
        let Some(reserved) = wrapper.reserved_quota() else { return gang };
        let names = self.world.resources();
        let total =
            reserved.total.iter().filter_map(|(name, amount)| Some((names.get(name)?, Amount(amount))));
        let total: ResourceVec = total.collect();
        let demand = demand(&gang);
        let at_least = demand.clone().max(&total);
        if at_least == demand { gang } else { Gang { declared: Some(at_least), ..gang } }
    }

    /// What the status of an admitted gang is to say about its charge; `None` without quota trees.
    pub fn quota_record(&self, wrapper: &Wrapper) -> Option<String> {
        if self.trees.names.is_empty() {
            return None;
        }
        let reserved = wrapper.reserved_quota();
        let groups = self.trees.groups(wrapper, reserved.as_ref());
        let total = if let Some(reserved) = reserved {
            reserved.total
        } else {
            let gang = self.world.gang(&wrapper.uid)?;
            let total = demand(gang);
            total.iter().map(|(ix, amount)| (self.world.resources().name(ix), amount.0)).collect()
        };
        Some(ReservedQuota { groups, total }.to_string())
    }

    /// What the labels of an admitted gang ask for, if that is not what it is charged: by tree, the group that it is
    /// charged to and the group of the label.
    pub fn ignored_groups<'a>(&self, wrapper: &'a Wrapper) -> Vec<(String, String, &'a str)> {
        let charged = self.trees.groups(wrapper, wrapper.reserved_quota().as_ref()).into_iter();
        let asked = charged.map(|(tree, charged)| {
            let asked = wrapper.group(&wrapper.present_labels, &tree);
            (tree, charged, asked)
        });
        asked.filter(|(_, charged, asked)| charged != asked).collect()
    }

    /// Whether other labels would charge a waiting wrapper to other groups.
    pub(super) fn has_other_groups(&self, wrapper: &Wrapper, labels: &BTreeMap<String, String>) -> bool {
        self.trees
            .names
            .iter()
            .any(|tree| wrapper.group(&wrapper.labels, tree) != wrapper.group(labels, tree))
    }
}

/// The larger of the declared total and the pod sets, per resource.
fn demand(gang: &Gang) -> ResourceVec {
    let total = gang.shape().total();
    gang.declared.as_ref().map_or(total.clone(), |declared| total.max(declared))
}

impl Wrapper {
    /// The group in a tree: that of its namespace if the namespace has a label, else that of its own labels.
    fn group<'a>(&'a self, labels: &'a BTreeMap<String, String>, tree: &str) -> &'a str {
        self.limits.labels.get(tree).or_else(|| labels.get(tree)).map_or(DEFAULT_GROUP, String::as_str)
    }
}

fn node_name(tree: &str, group: &str) -> String {
    format!("{tree}/{group}")
}

/// A group of a quota tree with its parent.
struct TreeGroup<'a> {
    parent: Option<String>,
    child: &'a Child,
    /// The quota that the group declares, including its descendants.
    declared: BTreeMap<FlavorResource, i64>,
}

impl Trees {
    /// The group of a wrapper in each tree: that of its admission, else that of its labels.
    fn groups(&self, wrapper: &Wrapper, reserved: Option<&ReservedQuota>) -> BTreeMap<String, String> {
        let group = |tree: &String| {
            let admitted = reserved.and_then(|reserved| reserved.groups.get(tree)).map(String::as_str);
            let group = admitted.unwrap_or_else(|| wrapper.group(&wrapper.labels, tree));
            (tree.clone(), group.to_owned())
        };
        self.names.iter().map(group).collect()
    }

    /// The quota nodes of all trees, by name. The nominal quota of a group is its declared quota minus that of its
    /// children.
    fn nodes(&self, names: &mut ResourceNames) -> BTreeMap<String, QuotaNode> {
        let mut groups: BTreeMap<String, TreeGroup<'_>> = BTreeMap::new();
        for subtree in self.subtrees.values() {
            let Some(tree) = subtree.tree() else { continue };
            let parent = &subtree.spec.parent;
            for child in subtree.spec.children.iter().filter(|child| !child.name.is_empty()) {
                let parent = (!parent.is_empty()).then(|| node_name(tree, parent));
                let declared = declared_quota(child, names);
                groups.insert(node_name(tree, &child.name), TreeGroup { parent, child, declared });
            }
        }
        let mut below: BTreeMap<(&str, FlavorResource), i64> = BTreeMap::new();
        for group in groups.values() {
            let Some(parent) = group.parent.as_deref() else { continue };
            for (of, amount) in &group.declared {
                let sum = below.entry((parent, *of)).or_default();
                *sum = sum.saturating_add(*amount);
            }
        }
        let node = |(name, group): (&String, &TreeGroup<'_>)| {
            let declared = group.declared.keys().copied();
            let inherited = below.keys().filter(|(parent, _)| parent == name).map(|(_, of)| *of);
            let listed: BTreeSet<FlavorResource> = declared.chain(inherited).collect();
            let limits = listed.into_iter().map(|of| {
                let total = group.declared.get(&of).copied().unwrap_or(0);
                let children = below.get(&(name.as_str(), of)).copied().unwrap_or(0);
                let borrowing = group.child.quotas.hard_limit.then_some(Amount::ZERO);
                let nominal = Amount(total.saturating_sub(children));
                (of, Limits { nominal, borrowing, ..Limits::default() })
            });
            let node = QuotaNode {
                name: name.clone(),
                parent: group.parent.clone(),
                limits: limits.collect(),
                preemption: self.preemption(),
                ..QuotaNode::default()
            };
            (name.clone(), node)
        };
        groups.iter().map(node).collect()
    }

    /// A gang within its nominal quota preempts any gang that borrows it; otherwise it preempts only gangs of lower
    /// priority. After MCAD's `quota-manager/quota/core/quotatree.go`.
    fn preemption(&self) -> QuotaPreemption {
        if !self.has_preemption {
            return QuotaPreemption::default();
        }
        QuotaPreemption {
            within_cluster_queue: WithinClusterQueue::LowerPriority,
            reclaim_within_cohort: ReclaimWithinCohort::Any,
            borrow_within_cohort: Some(BorrowWithinCohort::default()),
        }
    }
}

/// The quota that a group declares. An invalid quantity counts as zero.
fn declared_quota(child: &Child, names: &mut ResourceNames) -> BTreeMap<FlavorResource, i64> {
    let requests = child.quotas.requests.as_object().into_iter().flatten();
    let declared = requests.map(|(name, quantity)| {
        let amounts = Amounts::read(&json!({ name: quantity })).unwrap_or_default();
        let resource = names.intern(if name == "gpu" { "nvidia.com/gpu" } else { name });
        (FlavorResource { flavor: FlavorIx::ANY, resource }, amounts.get(name))
    });
    declared.collect()
}
