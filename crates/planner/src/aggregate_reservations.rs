//! Aggregate reservations: resources that are reserved on a set of nodes, without a specific node.
//!
//! A gang that declares more resources than its pods request has such a reservation. The invariant: in each
//! node set, the free resources are at least the sum of the reservations on that set and on its subsets.

use std::collections::{BTreeMap, BTreeSet};

use model::{Amount, Cause, ClassIx, Constraints, PodSet, QueueingHint, ResourceIx, ResourceVec, Shape, Sum};

use crate::candidates::is_eligible;
use crate::explain;
use crate::ledger::Ledger;
use crate::place::Placement;

/// The node sets that concern one gang: its own first, then those of other reservations in a fixed order.
pub(crate) struct AggregateReservations {
    list: Vec<NodeSet>,
    /// The sum of the requests of its pods.
    pods: Sum,
    excess: ResourceVec,
    /// The number of devices that its pods start to share depends on the placement.
    opens_devices: bool,
}

struct NodeSet {
    classes: BTreeSet<ClassIx>,
    free: Sum,
    /// What other gangs have reserved on this node set and its subsets.
    reserved: Sum,
    /// All eligible nodes of the gang are in this node set, so all its pods are placed here.
    holds_gang: bool,
    /// The same for the nodes that are eligible for what it declares beyond its pods.
    holds_excess: bool,
}

impl AggregateReservations {
    /// The node sets for a gang of this shape. What it declares beyond its pods is reserved on the nodes that
    /// are eligible for `requested`, the shape without the constraints of its flavors.
    pub(crate) fn of(ledger: &Ledger<'_>, shape: &Shape, requested: &Shape) -> Self {
        let alternatives = shape.eligible_constraints();
        let own = eligible(ledger, &alternatives);
        let excess = shape.declared_excess();
        let requested_constraints = (!excess.is_zero()).then(|| requested.eligible_constraints());
        let requested_classes = requested_constraints
            .filter(|requested| *requested != alternatives)
            .map(|requested| eligible(ledger, &requested));
        let reservations: Vec<(BTreeSet<ClassIx>, Sum)> = ledger
            .aggregates()
            .into_iter()
            .map(|(alternatives, reserved)| (eligible(ledger, alternatives), reserved))
            .collect();
        let mut pods = Sum::default();
        for pod_set in &*shape.pod_sets {
            pods.add_times(&pod_set.request, pod_set.count);
        }
        let node_set = |classes: &BTreeSet<ClassIx>| {
            let mut node_set = NodeSet {
                classes: classes.clone(),
                free: Sum::default(),
                reserved: Sum::default(),
                holds_gang: own.is_subset(classes),
                holds_excess: requested_classes.as_ref().unwrap_or(&own).is_subset(classes),
            };
            for class in classes {
                node_set.free.add_sum(&ledger.free(*class));
            }
            for (_, reserved) in reservations.iter().filter(|(inner, _)| inner.is_subset(classes)) {
                node_set.reserved.add_sum(reserved);
            }
            node_set
        };
        let sets = std::iter::once(&own).chain(&requested_classes);
        let list = sets.chain(reservations.iter().map(|(classes, _)| classes)).map(node_set).collect();
        Self { list, pods, excess, opens_devices: shape.shares_devices() }
    }

    /// Which node sets contain the nodes of a class, as far as keeping their reservations depends on the
    /// placement.
    pub(crate) fn containing(&self, class: ClassIx) -> Vec<bool> {
        let depends = |node_set: &NodeSet| !node_set.holds_gang || self.opens_devices;
        self.list.iter().map(|node_set| depends(node_set) && node_set.classes.contains(&class)).collect()
    }

    /// Why the gang does not fit with any placement, if that is proven.
    pub(crate) fn shortage(&self, ledger: &Ledger<'_>, shape: &Shape) -> Option<(Cause, QueueingHint)> {
        let concerned = |node_set: &NodeSet| node_set.holds_gang || node_set.holds_excess;
        for (at, node_set) in self.list.iter().enumerate().filter(|(_, node_set)| concerned(node_set)) {
            let mut needs = if node_set.holds_gang { self.pods.clone() } else { Sum::default() };
            if node_set.holds_excess {
                needs.add(&self.excess);
            }
            let broken = |(ix, needs): &(ResourceIx, i128)| {
                needs + node_set.reserved.get(*ix) > node_set.free.get(*ix)
                    || self.excess.get(*ix) == Amount::MAX
            };
            let Some((ix, needs)) = needs.iter().filter(broken).max_by_key(|(ix, _)| *ix) else { continue };
            let (free, reserved) = (node_set.free.get(ix), node_set.reserved.get(ix));
            if at > 0 {
                return Some((
                    explain::reserved_for_others(ledger.world, ix, free - needs, reserved),
                    QueueingHint::ResourceFreed,
                ));
            }
            let cause = explain::insufficient_total(ledger.world, shape, ix, needs, Some(free - reserved));
            let only_room = reserved == 0 && self.excess.get(ix) == Amount::ZERO;
            return Some((
                cause,
                if only_room { QueueingHint::EligibleNodeFreed } else { QueueingHint::ResourceFreed },
            ));
        }
        None
    }

    /// Whether a placement keeps all aggregate reservations.
    pub(crate) fn allow(&self, pod_sets: &[PodSet], placement: &Placement) -> bool {
        let mut taken: BTreeMap<usize, Sum> = BTreeMap::new();
        for node_load in &placement.node_loads {
            let Some(class) = node_load.classes.first() else { continue };
            for at in
                self.containing(*class).iter().enumerate().filter(|(_, inside)| **inside).map(|(at, _)| at)
            {
                taken.entry(at).or_default().add_times(&node_load.taken(pod_sets), node_load.nodes);
            }
        }
        self.stay_satisfied(&taken)
    }

    /// Whether the node sets keep their reservations when `taken` is allocated in each, by the index of
    /// [`Self::containing`].
    pub(crate) fn stay_satisfied(&self, taken: &BTreeMap<usize, Sum>) -> bool {
        taken.iter().all(|(at, taken)| {
            let node_set = &self.list[*at];
            let excess = |ix| if node_set.holds_excess { i128::from(self.excess.get(ix).0) } else { 0 };
            taken
                .iter()
                .all(|(ix, taken)| taken + excess(ix) + node_set.reserved.get(ix) <= node_set.free.get(ix))
        })
    }
}

/// The classes whose nodes are eligible for an aggregate reservation.
fn eligible(ledger: &Ledger<'_>, alternatives: &[Constraints]) -> BTreeSet<ClassIx> {
    let classes = ledger.world.classes();
    classes.filter(|(_, row)| is_eligible(alternatives, &row.class)).map(|(ix, _)| ix).collect()
}
