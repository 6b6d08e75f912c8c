//! The world: the facts that were observed, and the indexes over them that planning needs.
//!
//! Facts come in as [`Event`]s. The indexes are kept event by event and can be rebuilt from the facts alone:
//! - `ledger`: what is bound and promised on every node, and as aggregates;
//! - `classes`: nodes grouped by class and by what they have free;
//! - `demand`: the kinds of pods that gangs ask for;
//! - `domains`: nodes by the domains of the topologies that gangs ask for;
//! - `quotas`: the trees of quota, and what is charged to them;
//! - `usages`: what local queues consume, where they take turns by it;
//! - `shapes`: waiting gangs by shape, in order, with what was last decided about them;
//! - `supply`: what the nodes of flavors hold, where quota follows it;
//! - `hints`: those that were tried in vain, by what could help them;
//! - `stopped`: who was stopped for whom;
//! - `moves`: whose promised start moved later, and why.
//!
//! What planning reads of them by index is in `lookup`; `forecast_copy` is a copy to try the future on.

mod accept;
mod classes;
mod demand;
mod domains;
mod forecast_copy;
mod flavor_capacity;
mod ledger;
mod lookup;
mod preemption_history;
mod queue_order;
mod queueing_hints;
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
pub use ledger::{AggregateReservation, NodeIx, NodeUsage};
pub use queue_order::{OrderKey, Position, SortKey};
pub use quotas::{Charges, charges};
pub use shapes::{GangIx, ShapeIx, ShapeRow};

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
use crate::slip::Slip;
use crate::snapshot::Snapshot;
use classes::Classes;
use demand::Demand;
use domains::Domains;
use ledger::{Claim, Holder, Ledger};
use preemption_history::PreemptionHistory;
use quotas::Quotas;
use sanitize::{sanitise, whole_or_part};
use shapes::Shapes;
use slips::Slips;
use usages::Usages;

/// A queue, as a dense index; see `World::queue_ix`. Zero is the implicit queue of a cluster that has no queue objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueIx(pub u32);

/// Facts and indexes; see the module.
#[derive(Clone, Debug, Default)]
pub struct World {
    generation: u64,
    policy: Policy,
    reserved: Vec<Reservation>,
    resources: ResourceNames,
    pods: BTreeMap<String, Pod>,
    pods_of: BTreeMap<String, BTreeSet<String>>,
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
    forecast: Forecast,
}

impl World {
    /// A world without nodes, pods and gangs.
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts the events that changed something.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The rules of the cluster.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The gangs that others must not delay, in order, as of the last plan.
    pub fn reserved(&self) -> &[Reservation] {
        &self.reserved
    }

    /// How the start that a waiting gang was promised moved later: from the time promised at first, for the last cause. None
    /// when it did not, or came back.
    pub fn slip_of(&self, gang: &str) -> Option<&Slip> {
        self.slips.of(gang)
    }

    /// When a waiting gang is expected to start, as was foreseen last.
    pub fn forecast_of(&self, gang: &Gang) -> Option<ForecastStart> {
        self.forecast.of(&gang.uid, gang.queued_at)
    }

    /// What was foreseen last.
    pub fn forecast(&self) -> &Forecast {
        &self.forecast
    }

    /// Notes what was foreseen, in place of what was before; tells that before. No decision depends on it, so this is no event.
    pub fn set_forecast(&mut self, forecast: Forecast) -> Forecast {
        std::mem::replace(&mut self.forecast, forecast)
    }

    /// The names behind resource indices.
    pub fn resources(&self) -> &ResourceNames {
        &self.resources
    }

    /// The names behind resource indices, to intern more.
    pub fn resources_mut(&mut self) -> &mut ResourceNames {
        &mut self.resources
    }

    /// Lends the world as it is at `now`.
    pub fn snapshot(&self, now: Time) -> Snapshot<'_> {
        Snapshot { world: self, now }
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

    /// The pods that name this gang as theirs, by uid.
    pub fn pods_of(&self, gang: &str) -> impl Iterator<Item = &Pod> {
        self.pods_of.get(gang).into_iter().flatten().filter_map(|uid| self.pods.get(uid))
    }

    /// What is bound and promised on the node of this name, and what is left of it.
    pub fn usage(&self, node: &str) -> Option<NodeUsage> {
        self.ledger.get(node).map(|ix| self.ledger.usage(ix))
    }

    /// What is promised as aggregates, by the nodes that are eligible for them.
    pub fn aggregate_reservations(&self) -> impl Iterator<Item = &AggregateReservation> {
        self.ledger.aggregate_reservations()
    }

    /// What was last decided about a waiting gang, or about one of the same shape since. None when it was not tried
    /// yet, or does not wait.
    pub fn verdict(&self, uid: &str) -> Option<&Verdict> {
        self.gangs.get(uid).and_then(|&ix| self.shapes.verdict(ix))
    }

    /// The gangs that hold known places, by uid.
    pub fn placed_gangs(&self) -> impl Iterator<Item = &Gang> {
        self.shapes.holding().filter_map(|uid| self.gang(uid))
    }

    /// The gangs that hold places which others are being stopped for, by uid.
    pub fn nominated(&self) -> impl Iterator<Item = &Gang> {
        self.shapes.nominated().filter_map(|uid| self.gang(uid))
    }

    /// The uids of gangs that hold nothing any more, or do not exist, but whose pods are still bound: they are leaving.
    pub fn terminating_gangs(&self) -> impl Iterator<Item = &str> {
        let uids = self.pods_of.keys().map(String::as_str);
        uids.filter(|uid| self.gang(uid).is_none_or(|gang| gang.state == GangState::Waiting))
    }

    /// What a gang and its pods take of each node, whatever the state of the gang.
    pub fn allocated_to(&self, gang: &str) -> Vec<(NodeIx, AllocatedResources)> {
        self.ledger.allocated_to(gang)
    }

    /// What a gang is promised without a place, with the constraints of which a node must satisfy one.
    pub fn aggregate_reservation_of(&self, gang: &str) -> Option<(&[Constraints], &ResourceVec)> {
        self.ledger.aggregate_reservation_of(gang)
    }

    /// Folds one event into the facts and all indexes. What tells nothing new about nodes, pods or gangs is no change.
    pub fn apply(&mut self, event: Event) {
        self.generation += 1;
        let mut is_news = true;
        match event {
            Event::NodeUpserted(node) => is_news = self.upsert_node(node),
            Event::NodeRemoved(name) => is_news = self.remove_node(&name),
            Event::PodUpserted(pod) => is_news = self.upsert_pod(pod),
            Event::PodRemoved(uid) => is_news = self.remove_pod(&uid),
            Event::GangUpserted(gang) => is_news = self.upsert_gang(gang),
            Event::GangRemoved(uid) => is_news = self.remove_gang(&uid),
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
            Event::Clock(now) => self.set_clock(now),
            Event::Planned(plan) => self.accept(plan),
        }
        self.generation -= u64::from(!is_news);
    }

    // The following tell whether anything is new.

    fn upsert_node(&mut self, mut node: Node) -> bool {
        node.allocatable = node.allocatable.positive();
        let ix = self.ledger.ix(&node.name);
        let is_news = self.ledger.node(ix) != Some(&node);
        if is_news {
            self.set_node(ix, Some(node));
        }
        is_news
    }

    fn remove_node(&mut self, name: &str) -> bool {
        let Some(ix) = self.ledger.get(name).filter(|ix| self.ledger.node(*ix).is_some()) else {
            return false;
        };
        self.set_node(ix, None);
        self.ledger.forget_unused(ix);
        true
    }

    fn set_node(&mut self, ix: NodeIx, node: Option<Node>) {
        let before = self.ledger.free(ix).clone();
        let held = self.held_at(ix);
        self.ledger.set_node(ix, node);
        self.supply_changed(ix, held);
        self.domains.changed(ix, self.ledger.node(ix));
        let after = self.ledger.node(ix).map(|node| (node, self.ledger.free(ix)));
        self.classes.changed(ix, self.ledger.name(ix), &before, after, self.generation);
    }

    fn upsert_pod(&mut self, mut pod: Pod) -> bool {
        pod.request = pod.request.positive();
        whole_or_part(&mut pod.request, &mut pod.share);
        let old = self.pods.insert(pod.uid.clone(), pod.clone());
        if old.as_ref() == Some(&pod) {
            return false;
        }
        let owner = pod.gang.as_ref().map(|(gang, _)| gang.clone());
        if let Some(gang) = &owner {
            self.unreserve(gang);
            self.pods_of.entry(gang.clone()).or_default().insert(pod.uid.clone());
        }
        if let Some(old) = old
            && old.gang.as_ref().map(|(gang, _)| gang) != owner.as_ref()
        {
            self.disown(&old);
        }
        self.reclaim(owner.as_deref(), &pod.uid);
        true
    }

    fn remove_pod(&mut self, uid: &str) -> bool {
        let old = self.pods.remove(uid);
        old.inspect(|old| self.disown(old)).is_some()
    }

    /// Takes a pod's former self out of its gang and out of the ledger.
    fn disown(&mut self, old: &Pod) {
        let Some((gang, _)) = &old.gang else {
            self.charge(Holder::Pod(old.uid.clone()), Claim::default());
            return;
        };
        if let Some(pods) = self.pods_of.get_mut(gang) {
            pods.remove(&old.uid);
            if pods.is_empty() {
                self.pods_of.remove(gang);
            }
        }
        self.reclaim(Some(gang), &old.uid);
    }

    fn upsert_gang(&mut self, mut gang: Gang) -> bool {
        sanitise(&mut gang);
        let uid: Arc<str> = gang.uid.as_str().into();
        let mut turned = true;
        if let Some(&ix) = self.gangs.get(&uid) {
            let old = &self.shapes.row(ix).gang;
            if *old == gang {
                return false;
            }
            turned =
                old.priority != gang.priority || old.protected != gang.protected || old.state != gang.state;
            let moved =
                old.priority != gang.priority || old.queue != gang.queue || old.charges != gang.charges;
            self.demand.sub(&old.pod_sets);
            self.shapes.take(ix);
            if moved && self.preemptions.forget(&uid) {
                self.invalidate_everything();
            }
        }
        self.unreserve(&uid);
        let keys_grew = self.classes.learn(&gang.pod_sets);
        let asked: Vec<_> = gang.pod_sets.iter().filter_map(|set| set.topology.clone()).collect();
        self.learn_domains(&asked);
        self.count_demand(&gang);
        let ix = self.shapes.put(gang, self.generation);
        self.gangs.insert(uid.clone(), ix);
        if keys_grew {
            self.reclass_all();
        }
        self.reclaim(Some(&uid), "");
        if turned {
            self.invalidate_places_of(&uid); // It may be leaving now, or may be stopped for someone who found too few.
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

    /// Makes whoever was refused worth another try.
    fn invalidate_everything(&mut self) {
        for (ix, _) in self.ledger.nodes() {
            self.classes.invalidate(ix, self.generation);
        }
        self.classes.supply_rose(self.generation);
        self.quotas.invalidate_all(self.generation);
    }

    /// A gang that others must not delay is another one now, or gone: who was held back for it may be free to go.
    fn unreserve(&mut self, uid: &str) {
        self.slips.forget(uid);
        let before = self.reserved.len();
        self.reserved.retain(|reserved| reserved.gang != uid);
        if self.reserved.len() < before {
            self.classes.supply_rose(self.generation);
        }
    }

    fn remove_gang(&mut self, uid: &str) -> bool {
        let Some(ix) = self.gangs.remove(uid) else { return false };
        self.unreserve(uid);
        if self.preemptions.forget(uid) {
            self.invalidate_everything(); // Who may stop whom is decided by fewer gangs now.
        }
        self.demand.sub(&self.shapes.row(ix).gang.pod_sets);
        self.shapes.take(ix);
        self.reclaim(Some(uid), "");
        self.invalidate_places_of(uid); // Its pods are leaving.
        true
    }

    /// Makes whoever was refused on the nodes of a gang worth another try.
    ///
    /// Pods that a gang had before it was admitted take over slots that were planned elsewhere, so the plan counted more
    /// on those nodes than is taken now.
    fn invalidate_places_of(&mut self, uid: &str) {
        for (ix, _) in self.ledger.allocated_to(uid) {
            self.classes.invalidate(ix, self.generation);
        }
        if self.aggregate_reservation_of(uid).is_some() {
            self.classes.supply_rose(self.generation);
        }
        self.quotas.invalidate(uid, self.generation);
    }

    /// Recomputes what a gang, or a pod without one, takes from nodes and promises.
    fn reclaim(&mut self, gang: Option<&str>, pod: &str) {
        let Some(uid) = gang else {
            self.charge(Holder::Pod(pod.to_owned()), Claim::of_pod(self.pods.get(pod)));
            return;
        };
        self.recharge(uid);
        let pods: Vec<&Pod> = self.pods_of(uid).filter(|pod| pod.node.is_some()).collect();
        let claim = Claim::of_gang(self.gang(uid), &pods);
        self.charge(Holder::Gang(uid.to_owned()), claim);
    }

    /// Replaces what one holder takes, and keeps the groups of the nodes concerned in step.
    fn charge(&mut self, holder: Holder, claim: Claim) {
        let touched = self.ledger.replace(holder, claim);
        if touched.aggregate_shrank {
            self.classes.supply_rose(self.generation);
        }
        for (ix, before) in touched.nodes {
            let after = self.ledger.free(ix);
            if *after != before {
                self.classes.moved(ix, self.ledger.name(ix), &before, after, self.generation);
            }
            self.ledger.forget_unused(ix);
        }
    }

    fn reclass_all(&mut self) {
        for (ix, node) in self.ledger.nodes() {
            self.classes.reclass(ix, self.ledger.name(ix), node, self.ledger.free(ix));
        }
    }
}
