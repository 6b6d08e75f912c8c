//! The pods that rules concern, in the course of one cycle: an overlay on those of the cluster state.

use std::collections::BTreeMap;

use model::{Assignment, NodeIx, PodMark, PodRules, Shape, World};

/// The number of pods with each mark on each node that the cycle added, less those that it released.
#[derive(Clone, Debug, Default)]
pub(crate) struct PodMarkChanges(BTreeMap<PodMark, BTreeMap<NodeIx, i64>>);

impl PodMarkChanges {
    /// Adds the planned pods of an assignment for sign 1, and removes them for sign -1.
    pub(crate) fn apply_assignment(
        &mut self,
        world: &World,
        shape: &Shape,
        assignment: &Assignment,
        sign: i64,
    ) {
        for (pod_set, places) in shape.pod_sets.iter().zip(&assignment.pod_sets) {
            let Some(rules) = &pod_set.rules else { continue };
            for (name, count) in places {
                if let Some(node) = world.node_ix(name) {
                    self.apply(node, rules, false, sign * i64::from(*count));
                }
            }
        }
    }

    /// Adds or removes all pods of a gang in the cluster state.
    pub(crate) fn apply_gang(&mut self, world: &World, gang: &str, sign: i64) {
        for (node, rules, is_bound, count) in world.ruled_pods_of(gang) {
            self.apply(node, rules, is_bound, sign * i64::from(count));
        }
    }

    fn apply(&mut self, node: NodeIx, rules: &PodRules, is_bound: bool, by: i64) {
        for mark in rules.marks(is_bound) {
            *self.0.entry(mark).or_default().entry(node).or_default() += by;
        }
    }

    /// The number of pods on each node with each mark, from `first` on, for which `belongs` holds. The marks that
    /// belong must be adjacent.
    pub(crate) fn pods(
        &self,
        world: &World,
        first: &PodMark,
        belongs: impl Fn(&PodMark) -> bool,
    ) -> BTreeMap<PodMark, BTreeMap<NodeIx, i64>> {
        let mut pods: BTreeMap<PodMark, BTreeMap<NodeIx, i64>> = BTreeMap::new();
        for (mark, nodes) in world.pod_marks(first).take_while(|(mark, _)| belongs(mark)) {
            let counts = nodes.iter().map(|(node, count)| (*node, i64::from(*count)));
            pods.insert(mark.clone(), counts.collect());
        }
        for (mark, changes) in self.0.range(first.clone()..).take_while(|(mark, _)| belongs(mark)) {
            let nodes = pods.entry(mark.clone()).or_default();
            for (node, by) in changes {
                *nodes.entry(*node).or_default() += by;
            }
        }
        for nodes in pods.values_mut() {
            nodes.retain(|_, count| *count > 0);
        }
        pods.retain(|_, nodes| !nodes.is_empty());
        pods
    }
}
