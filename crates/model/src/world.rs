//! The world: the observed objects and the indexes over them that planning needs.
//!
//! [`Event`]s change the objects. Each event updates the indexes; they could be rebuilt from the objects alone.
//! - `ledger`: bound and reserved resources per node, and aggregate reservations;
//! - `pod_rules`: the pods that rules between pods concern, by node;
//! - `classes`: nodes grouped by class and by free resources, and changes of nodes since the last plan;
//! - `domains`: nodes by topology domain;
//! - `demand`: the kinds of pods that gangs request;
//! - `quotas`: queues, flavors, quota trees and what is charged to them;
//! - `flavor_capacity`: the node capacity of flavors that quota nodes add to their quota;
//! - `usages`: the decayed usage of local queues;
//! - `shapes`: gangs, and pending gangs grouped by shape with their verdict;
//! - `queue_order`: the order of pending gangs, and their position;
//! - `queueing_hints`: parked gangs by the change that requeues them;
//! - `preemption_history`: which gang was preempted for which;
//! - `quota_only`: pods that get no node, and what the nodes lack for them;
//! - `slips`: reserved starts that moved to a later time; `holds`: until when guessed ones hold others back.
//!
//! `indices` holds the dense indices of gangs and rows. `sanitize` corrects invalid input, `accept` folds plans, `lookup`
//! is the planner's read access by index, and `forecast_copy` copies the world for a forecast.

mod accept;
mod charged;
mod classes;
mod demand;
mod domains;
mod flavor_capacity;
mod forecast_copy;
mod holds;
mod indices;
mod ledger;
mod lookup;
mod pod_rules;
mod preemption_history;
mod queue_order;
mod queueing_hints;
mod quota_only;
mod quotas;
mod sanitize;
mod shapes;
mod slips;
mod usages;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use classes::{ClassIx, ClassRow, DirtyNode};
pub use demand::PodKind;
pub use domains::DomainPath;
pub use forecast_copy::ForecastCopy;
pub use indices::{GangIx, ShapeIx};
pub use ledger::{AggregateReservation, NodeIx, NodeUsage};
pub use queue_order::{OrderKey, Position, SortKey};
pub use quotas::{Charges, charges};
pub use shapes::ShapeRow;

use crate::amount::Time;
use crate::constraints::Constraints;
use crate::device::AllocatedResources;
use crate::event::Event;
use crate::forecast::{Forecast, ForecastStart};
use crate::gang::{Gang, GangState, Pod};
use crate::node::Node;
use crate::plan::{Reservation, Verdict};
use crate::policy::Policy;
use crate::resources::{ResourceNames, ResourceVec};
use crate::shortage::Shortage;
use crate::slip::Slip;
use classes::Classes;
use demand::Demand;
use domains::Domains;
use holds::Holds;
use ledger::{Claim, Holder, Ledger};
use preemption_history::PreemptionHistory;
use quotas::Quotas;
use sanitize::{resolve_share, sanitize};
use shapes::Shapes;
use slips::Slips;
use usages::Usages;

/// The objects and the indexes; see the module.
#[derive(Clone, Debug, Default)]
pub struct World {
    generation: u64,
    policy: Policy,
    reserved: Vec<Reservation>,
    resources: ResourceNames,
    pods: BTreeMap<String, Pod>,
    pods_of: BTreeMap<String, BTreeSet<String>>,
    /// Gangs whose pods changed since their claim was computed.
    unsettled: BTreeSet<String>,
    gangs: BTreeMap<Arc<str>, GangIx>,
    ledger: Ledger,
    classes: Classes,
    demand: Demand,
    domains: Domains,
    quotas: Quotas,
    usages: Usages,
    shapes: Shapes,
    preemptions: PreemptionHistory,
    slips: Slips,
    holds: Holds,
    /// See [`Plan::without_room`](crate::Plan::without_room).
    without_room: BTreeMap<String, Shortage>,
    forecast: Forecast,
}

impl World {
    /// A world without nodes, pods and gangs.
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of events that changed something.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The policy of the cluster.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The reservations of the last plan, in queue order.
    pub fn reserved(&self) -> &[Reservation] {
        &self.reserved
    }

    /// The slip of a pending gang: from the first reserved start, with the last cause. `None` when the reserved start
    /// did not move, or moved back.
    pub fn slip_of(&self, gang: &str) -> Option<&Slip> {
        self.slips.of(gang)
    }

    /// Until when a pending gang may hold others back for a guessed start; `None` before it has held any back.
    pub fn hold_of(&self, gang: &str) -> Option<Time> {
        self.holds.until(gang)
    }

    /// All pending gangs that have held others back for a guessed start, and until when they may.
    pub fn holds(&self) -> impl Iterator<Item = (&str, Time)> {
        self.holds.iter()
    }

    /// The expected start of a pending gang in the last forecast.
    pub fn forecast_of(&self, gang: &Gang) -> Option<ForecastStart> {
        self.forecast.of(&gang.uid, gang.queued_at)
    }

    /// The last forecast.
    pub fn forecast(&self) -> &Forecast {
        &self.forecast
    }

    /// Replaces the forecast and returns the old one. No decision depends on the forecast, so this is not an event.
    pub fn set_forecast(&mut self, forecast: Forecast) -> Forecast {
        std::mem::replace(&mut self.forecast, forecast)
    }

    /// The resource names.
    pub fn resources(&self) -> &ResourceNames {
        &self.resources
    }

    /// The resource names, to intern more.
    pub fn resources_mut(&mut self) -> &mut ResourceNames {
        &mut self.resources
    }

    /// The gang of this uid.
    pub fn gang(&self, uid: &str) -> Option<&Gang> {
        self.gangs.get(uid).map(|&ix| &self.shapes.row(ix).gang)
    }

    /// All gangs by uid.
    pub fn gangs(&self) -> impl Iterator<Item = &Gang> {
        self.gangs.values().map(|&ix| &self.shapes.row(ix).gang)
    }

    /// All nodes by name.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.ledger.nodes().map(|(_, node)| node)
    }

    /// The node of this name.
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.ledger.get(name).and_then(|ix| self.ledger.node(ix))
    }

    /// All pods by uid.
    pub fn pods(&self) -> impl Iterator<Item = &Pod> {
        self.pods.values()
    }

    /// The pod of this uid.
    pub fn pod(&self, uid: &str) -> Option<&Pod> {
        self.pods.get(uid)
    }

    /// The pods of a gang, by uid of the pod.
    pub fn pods_of(&self, gang: &str) -> impl Iterator<Item = &Pod> {
        self.pods_of.get(gang).into_iter().flatten().filter_map(|uid| self.pods.get(uid))
    }

    /// The resources of the node of this name that are bound, reserved and free.
    pub fn usage(&self, node: &str) -> Option<NodeUsage> {
        self.ledger.get(node).map(|ix| self.ledger.usage(ix))
    }

    /// The aggregate reservations, by the constraints of their eligible nodes.
    pub fn aggregate_reservations(&self) -> impl Iterator<Item = &AggregateReservation> {
        self.ledger.aggregate_reservations()
    }

    /// The last verdict on a pending gang or another gang of its row. `None` when it was not planned yet, or is not
    /// pending.
    pub fn verdict(&self, uid: &str) -> Option<&Verdict> {
        self.gangs.get(uid).and_then(|&ix| self.shapes.verdict(ix))
    }

    /// The gangs with a known assignment, by uid.
    pub fn placed_gangs(&self) -> impl Iterator<Item = &Gang> {
        self.shapes.placed().filter_map(|uid| self.gang(uid))
    }

    /// The gangs with an assignment that victims still occupy, by uid.
    pub fn nominated(&self) -> impl Iterator<Item = &Gang> {
        self.shapes.nominated().filter_map(|uid| self.gang(uid))
    }

    /// The uids of gangs that were deleted or hold no capacity any more, but still have bound pods.
    pub fn terminating_gangs(&self) -> impl Iterator<Item = &str> {
        let uids = self.pods_of.keys().map(String::as_str);
        uids.filter(|uid| self.gang(uid).is_none_or(|gang| gang.state == GangState::Waiting))
    }

    /// The resources of each node that are allocated to a gang and its pods, in any state of the gang.
    pub fn allocated_to(&self, gang: &str) -> Vec<(NodeIx, AllocatedResources)> {
        self.ledger.allocated_to(gang)
    }

    /// The aggregate reservation of a gang, with the constraints of its eligible nodes.
    pub fn aggregate_reservation_of(&self, gang: &str) -> Option<(&[Constraints], &ResourceVec)> {
        self.ledger.aggregate_reservation_of(gang)
    }

    /// Folds one event into the objects and the indexes. An event about a node, pod or gang that changes nothing does
    /// not increase the generation, and the clock does not.
    pub fn apply(&mut self, event: Event) {
        self.apply_deferred(event);
        self.settle();
    }

    /// As [`World::apply`], but the resources of gangs whose pods changed are charged by the next [`World::settle`]. A
    /// charge costs as much as the gang has pods, so many events about one gang are best followed by one `settle`.
    pub fn apply_deferred(&mut self, event: Event) {
        self.generation += 1;
        let mut has_changed = true;
        match event {
            Event::NodeUpserted(node) => has_changed = self.upsert_node(node),
            Event::NodeRemoved(name) => has_changed = self.remove_node(&name),
            Event::PodUpserted(pod) => has_changed = self.upsert_pod(pod),
            Event::PodRemoved(uid) => has_changed = self.remove_pod(&uid),
            Event::GangUpserted(gang) => has_changed = self.upsert_gang(gang),
            Event::GangRemoved(uid) => has_changed = self.remove_gang(&uid),
            Event::FlavorUpserted(flavor) => self.set_flavor(&flavor.name.clone(), Some(flavor)),
            Event::FlavorRemoved(name) => self.set_flavor(&name, None),
            Event::QuotaUpserted(node) => self.set_quota(&node.name.clone(), Some(node)),
            Event::QuotaRemoved(name) => self.set_quota(&name, None),
            Event::QueueUpserted(queue) => self.set_queue(&queue.name.clone(), Some(queue)),
            Event::QueueRemoved(name) => self.set_queue(&name, None),
            Event::PolicySet(policy) => self.set_policy(policy),
            Event::PreemptionRestored { victim, preemptor } => self.preemptions.record(&victim, &preemptor),
            Event::UsageRestored { queue, local_queue, consumed, at } => {
                self.set_usage(&queue, &local_queue, consumed, at);
            }
            Event::Clock(now) => {
                self.set_clock(now);
                has_changed = false; // Plans read usage at their own time.
            }
            Event::Planned(plan) => self.accept(plan),
        }
        self.generation -= u64::from(!has_changed);
    }

    /// Charges the gangs whose pods changed in [`World::apply_deferred`]. To be called before each snapshot that is
    /// planned.
    pub fn settle(&mut self) {
        for gang in std::mem::take(&mut self.unsettled) {
            self.recompute_claim(&gang);
            if let Some(&ix) = self.gangs.get(&*gang)
                && self.shapes.row(ix).gang.state == GangState::Waiting
                && !self.pods_of(&gang).any(|pod| pod.node.is_some())
            {
                self.shapes.note_stopped(ix);
            }
        }
    }

    // The following functions return whether anything changed.

    fn upsert_node(&mut self, mut node: Node) -> bool {
        node.allocatable = node.allocatable.positive();
        let ix = self.ledger.ix(&node.name);
        let has_changed = self.ledger.node(ix) != Some(&node);
        if has_changed {
            self.set_node(ix, Some(node));
        }
        has_changed
    }

    fn remove_node(&mut self, name: &str) -> bool {
        let Some(ix) = self.ledger.get(name).filter(|ix| self.ledger.node(*ix).is_some()) else {
            return false;
        };
        self.set_node(ix, None);
        self.ledger.release_unused_index(ix);
        true
    }

    fn set_node(&mut self, ix: NodeIx, node: Option<Node>) {
        let before = self.ledger.free(ix).clone();
        let before_capacity = self.capacity_at(ix);
        self.ledger.set_node(ix, node);
        self.update_flavor_capacity(ix, before_capacity);
        self.domains.node_changed(ix, self.ledger.node(ix));
        let after = self.ledger.node(ix).map(|node| (node, self.ledger.free(ix)));
        self.classes.node_changed(ix, self.ledger.name(ix), &before, after, self.generation);
    }

    fn upsert_pod(&mut self, mut pod: Pod) -> bool {
        pod.request = pod.request.positive();
        resolve_share(&mut pod.request, &mut pod.share);
        let old = self.pods.insert(pod.uid.clone(), pod.clone());
        if old.as_ref() == Some(&pod) {
            return false;
        }
        let owner = pod.gang.as_ref().map(|(gang, _)| gang.clone());
        if let Some(gang) = &owner {
            self.drop_reservation(gang);
            self.pods_of.entry(gang.clone()).or_default().insert(pod.uid.clone());
        }
        if let Some(old) = old
            && old.gang.as_ref().map(|(gang, _)| gang) != owner.as_ref()
        {
            self.detach_pod(&old);
        }
        match owner {
            Some(gang) => drop(self.unsettled.insert(gang)),
            None => self.replace_claim(Holder::Pod(pod.uid.clone()), Claim::of_pod(Some(&pod))),
        }
        true
    }

    fn remove_pod(&mut self, uid: &str) -> bool {
        let old = self.pods.remove(uid);
        old.inspect(|old| self.detach_pod(old)).is_some()
    }

    /// Removes the old state of a pod from its gang and from the ledger.
    fn detach_pod(&mut self, old: &Pod) {
        let Some((gang, _)) = &old.gang else {
            self.replace_claim(Holder::Pod(old.uid.clone()), Claim::default());
            return;
        };
        if let Some(pods) = self.pods_of.get_mut(gang) {
            pods.remove(&old.uid);
            if pods.is_empty() {
                self.pods_of.remove(gang);
            }
        }
        self.unsettled.insert(gang.clone());
    }

    fn upsert_gang(&mut self, mut gang: Gang) -> bool {
        sanitize(&mut gang);
        self.settle_places(&mut gang);
        let uid: Arc<str> = gang.uid.as_str().into();
        let (mut affects_preemption, mut gets_capacity) = (true, false);
        if let Some(&ix) = self.gangs.get(&uid) {
            let old = &self.shapes.row(ix).gang;
            if let (GangState::Nominated(old), GangState::Nominated(new)) = (&old.state, &mut gang.state)
                && old.assignment == new.assignment
            {
                new.victims.retain(|victim| old.victims.contains(victim)); // See `end_as_victim`.
            }
            if *old == gang {
                return false;
            }
            affects_preemption = old.priority != gang.priority
                || old.queued_at != gang.queued_at
                || old.protected != gang.protected
                || old.state != gang.state;
            gets_capacity = old.state == GangState::Waiting && gang.state.holds();
            let affects_order =
                old.priority != gang.priority || old.queue != gang.queue || old.charges != gang.charges;
            self.demand.sub(&old.pod_sets);
            self.shapes.remove(ix);
            if affects_order && self.preemptions.forget(&uid) {
                self.invalidate_everything();
            }
        }
        self.drop_reservation(&uid);
        if gang.state.assignment().is_none() {
            self.without_room.remove(&*uid);
        }
        let labels_added = self.classes.track_labels_of(&gang.pod_sets);
        let requests: Vec<_> = gang.pod_sets.iter().filter_map(|set| set.topology.clone()).collect();
        self.track_topologies(&requests);
        self.count_demand(&gang);
        let ix = self.shapes.insert(gang, self.generation);
        self.gangs.insert(uid.clone(), ix);
        if gets_capacity {
            self.end_as_victim(&uid);
        }
        if labels_added {
            self.reclassify_nodes();
        }
        self.recompute_claim(&uid);
        if affects_preemption {
            self.invalidate_places_of(&uid); // It may terminate, or may be a victim now.
        }
        true
    }

    fn set_policy(&mut self, policy: Policy) {
        if self.policy == policy {
            return;
        }
        self.policy = policy;
        self.recount_demand();
        self.preemptions.clear();
        self.invalidate_everything();
    }

    /// Marks all nodes, aggregate reservations and quota trees as changed, so that the next plan requeues all parked
    /// gangs.
    fn invalidate_everything(&mut self) {
        for (ix, _) in self.ledger.nodes() {
            self.classes.invalidate(ix, self.generation);
        }
        self.classes.record_aggregate_shrink(self.generation);
        self.quotas.invalidate_all(self.generation);
    }

    /// Drops the reservation of a gang that changed or was deleted. Gangs that it held back may fit now.
    fn drop_reservation(&mut self, uid: &str) {
        self.slips.forget(uid);
        let before = self.reserved.len();
        self.reserved.retain(|reserved| reserved.gang != uid);
        if self.reserved.len() < before {
            self.classes.record_aggregate_shrink(self.generation);
        }
    }

    fn remove_gang(&mut self, uid: &str) -> bool {
        let Some(ix) = self.gangs.remove(uid) else { return false };
        self.without_room.remove(uid);
        self.drop_reservation(uid);
        self.holds.forget(uid);
        if self.preemptions.forget(uid) {
            self.invalidate_everything(); // The preemption history has fewer entries now.
        }
        self.demand.sub(&self.shapes.row(ix).gang.pod_sets);
        self.shapes.remove(ix);
        self.recompute_claim(uid);
        self.invalidate_places_of(uid); // Its pods terminate.
        true
    }

    /// Marks the nodes and quota trees of a gang as changed, so that gangs that did not fit there are requeued.
    ///
    /// Pods that a gang had before its admission take over slots that were planned on other nodes. So the plan
    /// counted more on those nodes than is allocated now.
    fn invalidate_places_of(&mut self, uid: &str) {
        for (ix, _) in self.ledger.allocated_to(uid) {
            self.classes.invalidate(ix, self.generation);
        }
        if self.aggregate_reservation_of(uid).is_some() {
            self.classes.record_aggregate_shrink(self.generation);
        }
        self.quotas.invalidate(uid, self.generation);
    }

    /// Recomputes what a gang is charged on nodes, in aggregates and in quota.
    fn recompute_claim(&mut self, uid: &str) {
        self.update_charges(uid);
        let pods: Vec<&Pod> = self.pods_of(uid).filter(|pod| pod.node.is_some()).collect();
        let claim = Claim::of_gang(self.gang(uid), &pods);
        self.replace_claim(Holder::Gang(uid.to_owned()), claim);
    }

    /// Replaces the claim of one holder and updates the classes of the nodes it affects.
    fn replace_claim(&mut self, holder: Holder, claim: Claim) {
        let changes = self.ledger.replace(holder, claim, self.generation);
        if changes.aggregate_shrank {
            self.classes.record_aggregate_shrink(self.generation);
        }
        for (ix, before) in changes.nodes {
            let after = self.ledger.free(ix);
            if *after != before {
                self.classes.free_changed(ix, self.ledger.name(ix), &before, after, self.generation);
            }
            self.ledger.release_unused_index(ix);
        }
    }

    fn reclassify_nodes(&mut self) {
        for (ix, node) in self.ledger.nodes() {
            self.classes.reclassify(ix, self.ledger.name(ix), node, self.ledger.free(ix));
        }
    }
}
