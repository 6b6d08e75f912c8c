//! Sets of nodes on which something is promised, or wanted, without saying where.
//!
//! What is promised on nodes of a set has to remain free somewhere in it: in every such set, what is free is at least
//! the sum of the promises that are bound to it or to a part of it.

use std::collections::{BTreeMap, BTreeSet};

use model::{Amount, Cause, ClassIx, Constraints, PodSet, QueueingHint, ResourceIx, ResourceVec, Shape, Sum};

use crate::candidates::is_eligible;
use crate::explain;
use crate::ledger::Ledger;
use crate::place::Placement;

/// The node_sets that matter to one gang: its own first, then those of other promises in a fixed order.
pub(crate) struct AggregateReservations {
    list: Vec<NodeSet>,
    /// What the pods take wherever they go.
    pods: Sum,
    excess: ResourceVec,
    /// How many devices the pods open depends on where they go.
    opens_devices: bool,
}

struct NodeSet {
    classes: BTreeSet<ClassIx>,
    free: Sum,
    /// What others are promised on nodes of this node_set only.
    promised: Sum,
    /// All nodes that the gang may use are in this node_set, so all of its pods land here.
    holds_gang: bool,
    /// So are all that are eligible for what it declares beyond its pods.
    holds_excess: bool,
}

impl AggregateReservations {
    /// The node_sets as a gang of this shape meets them. What it declares beyond its pods goes to nodes that are eligible for
    /// `asked`, the shape before it was narrowed to flavors.
    pub(crate) fn of(ledger: &Ledger<'_>, shape: &Shape, asked: &Shape) -> Self {
        let alternatives = shape.alternatives();
        let mine = eligible(ledger, &alternatives);
        let excess = shape.excess();
        let beyond = asked.alternatives();
        let beyond = (!excess.is_zero() && beyond != alternatives).then(|| eligible(ledger, &beyond));
        let promises: Vec<(BTreeSet<ClassIx>, Sum)> = ledger
            .aggregates()
            .into_iter()
            .map(|(alternatives, promised)| (eligible(ledger, alternatives), promised))
            .collect();
        let mut pods = Sum::default();
        for pod_set in &*shape.pod_sets {
            pods.add_times(&pod_set.request, pod_set.count);
        }
        let node_set = |classes: &BTreeSet<ClassIx>| {
            let mut node_set = NodeSet {
                classes: classes.clone(),
                free: Sum::default(),
                promised: Sum::default(),
                holds_gang: mine.is_subset(classes),
                holds_excess: beyond.as_ref().unwrap_or(&mine).is_subset(classes),
            };
            for class in classes {
                node_set.free.add_sum(&ledger.free(*class));
            }
            for (_, promised) in promises.iter().filter(|(inner, _)| inner.is_subset(classes)) {
                node_set.promised.add_sum(promised);
            }
            node_set
        };
        let own = std::iter::once(&mine).chain(&beyond);
        let list = own.chain(promises.iter().map(|(classes, _)| classes)).map(node_set).collect();
        Self { list, pods, excess, opens_devices: shape.shares_devices() }
    }

    /// In which node_sets nodes of a class are, as far as it depends on the placement whether they hold out.
    pub(crate) fn around(&self, class: ClassIx) -> Vec<bool> {
        let depends = |node_set: &NodeSet| !node_set.holds_gang || self.opens_devices;
        self.list.iter().map(|node_set| depends(node_set) && node_set.classes.contains(&class)).collect()
    }

    /// What proves that the gang does not fit, wherever its pods go.
    pub(crate) fn shortage(&self, ledger: &Ledger<'_>, shape: &Shape) -> Option<(Cause, QueueingHint)> {
        let concerned = |node_set: &NodeSet| node_set.holds_gang || node_set.holds_excess;
        for (at, node_set) in self.list.iter().enumerate().filter(|(_, node_set)| concerned(node_set)) {
            let mut needs = if node_set.holds_gang { self.pods.clone() } else { Sum::default() };
            if node_set.holds_excess {
                needs.add(&self.excess);
            }
            let broken = |(ix, needs): &(ResourceIx, i128)| {
                needs + node_set.promised.get(*ix) > node_set.free.get(*ix)
                    || self.excess.get(*ix) == Amount::MAX
            };
            let Some((ix, needs)) = needs.iter().filter(broken).max_by_key(|(ix, _)| *ix) else { continue };
            let (free, promised) = (node_set.free.get(ix), node_set.promised.get(ix));
            if at > 0 {
                return Some((
                    explain::promised(ledger.world, ix, free - needs, promised),
                    QueueingHint::Supply,
                ));
            }
            let cause = explain::total(ledger.world, shape, ix, needs, Some(free - promised));
            let only_room = promised == 0 && self.excess.get(ix) == Amount::ZERO;
            return Some((cause, if only_room { QueueingHint::Room } else { QueueingHint::Supply }));
        }
        None
    }

    /// Whether a placement leaves intact what is promised without a place.
    pub(crate) fn survive(&self, pod_sets: &[PodSet], placement: &Placement) -> bool {
        let mut taken: BTreeMap<usize, Sum> = BTreeMap::new();
        for stack in &placement.stacks {
            let Some(class) = stack.classes.first() else { continue };
            for at in self.around(*class).iter().enumerate().filter(|(_, inside)| **inside).map(|(at, _)| at)
            {
                taken.entry(at).or_default().add_times(&stack.taken(pod_sets), stack.nodes);
            }
        }
        self.hold_out(&taken)
    }

    /// Whether a node_set keeps what is promised in it when `taken` is taken out of each: see [`Self::around`] for the order.
    pub(crate) fn hold_out(&self, taken: &BTreeMap<usize, Sum>) -> bool {
        taken.iter().all(|(at, taken)| {
            let node_set = &self.list[*at];
            let excess = |ix| if node_set.holds_excess { i128::from(self.excess.get(ix).0) } else { 0 };
            taken
                .iter()
                .all(|(ix, taken)| taken + excess(ix) + node_set.promised.get(ix) <= node_set.free.get(ix))
        })
    }
}

/// The classes whose nodes are eligible for an aggregate.
fn eligible(ledger: &Ledger<'_>, alternatives: &[Constraints]) -> BTreeSet<ClassIx> {
    let classes = ledger.world.classes();
    classes.filter(|(_, row)| is_eligible(alternatives, &row.class)).map(|(ix, _)| ix).collect()
}
