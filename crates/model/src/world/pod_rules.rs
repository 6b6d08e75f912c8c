//! The pods that rules between pods concern: how many on each node, and what changed since the last plan.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::World;
use super::ledger::NodeIx;
use crate::pod_rules::{PodMark, PodRules};

/// Pods with equal rules on one node: their rules, whether they are bound or only planned, and their number.
pub(super) type RuledPods = BTreeMap<(Arc<PodRules>, bool), u32>;

/// See the module. Bound pods count, and planned places that no pod has taken yet.
#[derive(Clone, Debug, Default)]
pub(super) struct PodMarks {
    /// The number of pods with a mark on each node. Without zeros.
    nodes: BTreeMap<PodMark, BTreeMap<NodeIx, u32>>,
    /// The marks that came or went since the last accepted plan, with the generation of the last change.
    changed: BTreeMap<PodMark, u64>,
}

impl PodMarks {
    /// Whether no pod has rules, and no rule concerns any pod.
    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Replaces the pods of one holder on a node.
    pub(super) fn replace(&mut self, node: NodeIx, old: &RuledPods, new: &RuledPods, generation: u64) {
        if old == new {
            return;
        }
        let mut changes: BTreeMap<PodMark, i64> = BTreeMap::new();
        for (pods, sign) in [(old, -1), (new, 1)] {
            for ((rules, is_bound), count) in pods {
                for mark in rules.marks(*is_bound) {
                    *changes.entry(mark).or_default() += sign * i64::from(*count);
                }
            }
        }
        for (mark, by) in changes.into_iter().filter(|(_, by)| *by != 0) {
            self.change(mark, node, by, generation);
        }
    }

    fn change(&mut self, mark: PodMark, node: NodeIx, by: i64, generation: u64) {
        let nodes = self.nodes.entry(mark.clone()).or_default();
        let count = nodes.entry(node).or_default();
        *count = u32::try_from(i64::from(*count) + by).unwrap_or(0);
        if *count == 0 {
            nodes.remove(&node);
            if nodes.is_empty() {
                self.nodes.remove(&mark);
            }
        }
        self.changed.insert(mark, generation);
    }

    /// Forgets the changes up to a generation, which an accepted plan has seen.
    pub(super) fn clear_changes_up_to(&mut self, generation: u64) {
        self.changed.retain(|_, changed| *changed > generation);
    }
}

impl World {
    /// The nodes with pods of each mark from `first` on, in order of the marks, with the number of pods. Planned places
    /// without a pod count as pods.
    pub fn pod_marks(
        &self,
        first: &PodMark,
    ) -> impl Iterator<Item = (&PodMark, &BTreeMap<NodeIx, u32>)> + use<'_> {
        self.ledger.pod_marks.nodes.range(first.clone()..)
    }

    /// The marks of pods that came or went since the last plan was accepted.
    pub fn changed_pod_marks(&self) -> BTreeSet<&PodMark> {
        self.ledger.pod_marks.changed.keys().collect()
    }

    /// The pods of a gang with rules: their node, their rules, whether they are bound, and their number.
    pub fn ruled_pods_of(&self, gang: &str) -> Vec<(NodeIx, &PodRules, bool, u32)> {
        self.ledger.ruled_pods_of(gang)
    }
}
