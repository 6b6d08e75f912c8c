//! One round of the autoscaler: what it answers, and the nodes that it requests. Nothing is written here.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::provisioning::{ACCEPTED, BOOKING_EXPIRED, CAPACITY_REVOKED, FAILED, PROVISIONED};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::pool::POOL_LABEL;
use super::request::{Class, RequestObject, Track, unused};
use super::size::{Boot, Pools};
use crate::pace::Pace;
use crate::scheduler::Simulation;
use crate::storage::Referenced;
use crate::wire::{Node, Pod};

/// First and longest time until a request is tried again; divided by the speed.
const RETRY: (Duration, Duration) = (Duration::from_mins(1), Duration::from_mins(10));
/// How long capacity is kept for its pods; divided by the speed.
const BOOKING: Duration = Duration::from_mins(10);
/// How long a request waits for capacity; divided by the speed.
const EXPIRY: Duration = Duration::from_hours(7 * 24);
/// How long a pool adds no nodes for pods after a scale-up failed; divided by the speed.
const POOL_BACK_OFF: Duration = Duration::from_mins(5);
/// The label of nodes of queued provisioning with the request that they were made for.
const REQUEST_LABEL: &str = "autoscaling.cloud.google.com/provisioning-request";

/// What a round sees and changes.
pub(super) struct Round<'a> {
    pub(super) now: Instant,
    pub(super) nodes: Vec<Arc<Node>>,
    pub(super) bound: Vec<Arc<Pod>>,
    pub(super) objects: Referenced,
    pub(super) simulation: Simulation,
    pub(super) state: &'a mut State,
}

/// What is remembered between rounds.
pub(super) struct State {
    pub(super) pools: Pools,
    pub(super) tracks: BTreeMap<String, Track>,
    /// Until when a pool adds no nodes for pods.
    pub(super) backing_off: BTreeMap<usize, Instant>,
}

/// A condition to set: type, status, reason and message.
pub(super) type Answer = (&'static str, bool, &'static str, String);

fn told(kind: &'static str, is_true: bool, reason: &'static str, message: impl Into<String>) -> Answer {
    (kind, is_true, reason, message.into())
}

impl Round<'_> {
    pub(super) fn keep_smallest_sizes(&mut self) {
        for pool in 0..self.state.pools.all.len() {
            let lack = self.state.pools.lack(pool, &self.nodes);
            let boots = self.state.pools.next(pool, lack, &[]);
            self.state.pools.boot(boots);
        }
    }

    /// Places the pods of a request whose capacity is booked, or whose nodes boot.
    pub(super) fn book(&mut self, request: &RequestObject) {
        let Some(track) = self.state.tracks.get(&request.metadata.uid) else { return };
        let has_nodes = !request.is(PROVISIONED) && !track.nodes.is_empty();
        if !request.is_booked() && !has_nodes {
            return;
        }
        for pod in unused(request, track.pods.clone().unwrap_or_default(), &self.bound) {
            self.simulation.place(pod);
        }
    }

    /// The conditions to set on a request, and its details.
    pub(super) fn answer(&mut self, request: &RequestObject, pace: Pace) -> (Vec<Answer>, Value) {
        let (uid, now) = (&request.metadata.uid, self.now);
        let Some(class) = request.class().filter(|_| !request.is_over()) else { return Default::default() };
        if request.is_new() {
            return (accept(class), Value::Null);
        }
        if request.is(PROVISIONED) {
            return (self.watch_booking(request, class, pace), Value::Null);
        }
        let Some(track) = self.state.tracks.get_mut(uid) else { return Default::default() };
        if track.fails_at.is_some_and(|at| at <= now) {
            let message = "The pool has no resources left for the request";
            return (vec![told(FAILED, true, "OutOfResources", message)], Value::Null);
        }
        if now >= track.first_seen + pace.scaled(EXPIRY) {
            return (vec![told(FAILED, true, "Expired", "ProvisioningRequest is expired")], Value::Null);
        }
        let Some(pods) = track.pods.clone() else {
            let message = "a PodTemplate of the request is missing or invalid";
            return (vec![told(FAILED, true, "FailedToCreatePods", message)], Value::Null);
        };
        if !track.nodes.is_empty() {
            return self.await_nodes(request);
        }
        if track.fails_at.is_some() || track.retry_at > now {
            return Default::default();
        }
        let answers = self.provide(request, class, &pods);
        let is_there = answers.iter().any(|(kind, is_true, ..)| *kind == PROVISIONED && *is_true);
        if let Some(track) = self.state.tracks.get_mut(uid) {
            let pause = RETRY.0.saturating_mul(1 << track.tries.min(8)).min(RETRY.1);
            track.retry_at = now + pace.scaled(pause);
            track.tries += 1;
            track.provisioned_at = is_there.then_some(now);
        }
        (answers, Value::Null)
    }

    /// Tries to find or to make the capacity of a request.
    fn provide(&mut self, request: &RequestObject, class: Class, pods: &[Arc<Pod>]) -> Vec<Answer> {
        const FOUND: &str = "Capacity is found in the cluster";
        const MISSING: &str = "Capacity is not found, CA will try to find it later.";
        match class {
            Class::CheckCapacity if self.place_all(pods) => {
                vec![told(PROVISIONED, true, "CapacityIsFound", FOUND)]
            }
            Class::CheckCapacity
                if request.spec.parameters.get("noRetry").is_some_and(|value| value == "true") =>
            {
                vec![told(FAILED, true, "CapacityIsNotFound", "CA could not find requested capacity")]
            }
            Class::CheckCapacity => vec![told(PROVISIONED, false, "CapacityIsNotFound", MISSING)],
            Class::AtomicScaleUp => {
                let is_there =
                    self.place_all(pods) || self.grow(request, pods, false, &[]).is_some_and(|grown| grown.1);
                if is_there {
                    vec![told(PROVISIONED, true, "CapacityIsProvisioned", FOUND)]
                } else {
                    vec![told(PROVISIONED, false, "CapacityIsNotFound", MISSING)]
                }
            }
            Class::QueuedProvisioning => {
                let label =
                    [(REQUEST_LABEL, &*resize_request(request))].map(|(key, value)| (key, value.to_owned()));
                let labels: Vec<(&str, &str)> = label.iter().map(|(key, value)| (*key, &**value)).collect();
                let Some((boots, succeeds)) = self.grow(request, pods, true, &labels) else {
                    let message = "No pool has room for all nodes of the request, it stays queued";
                    return vec![told(PROVISIONED, false, "NotProvisioned", message)];
                };
                let pool = boots.first().map_or("", |boot| &self.state.pools.all[boot.pool].name).to_owned();
                let ready_at = boots.iter().map(|boot| boot.ready_at).max();
                if !succeeds && let Some(track) = self.state.tracks.get_mut(&request.metadata.uid) {
                    track.fails_at = ready_at;
                }
                let message = format!("Nodes of the pool {pool} are requested: {}", boots.len());
                vec![told(PROVISIONED, false, "NotProvisioned", message)]
            }
        }
    }

    /// Places all pods, or none.
    fn place_all(&mut self, pods: &[Arc<Pod>]) -> bool {
        for (at, pod) in pods.iter().enumerate() {
            if self.simulation.place(pod.clone()).is_none() {
                for placed in &pods[..at] {
                    self.simulation.remove(placed);
                }
                return false;
            }
        }
        true
    }

    /// Requests the nodes of one pool that the pods need beyond what is free, all or none. Queued provisioning uses new nodes
    /// alone. Returns the nodes, and whether they come; `None` if no pool suffices.
    fn grow(
        &mut self,
        request: &RequestObject,
        pods: &[Arc<Pod>],
        queued: bool,
        labels: &[(&str, &str)],
    ) -> Option<(Vec<Boot>, bool)> {
        let uid = &request.metadata.uid;
        for pool in 0..self.state.pools.all.len() {
            if self.state.pools.all[pool].queued && !queued {
                continue;
            }
            let room = self.state.pools.room(pool, &self.nodes);
            let candidates = self.state.pools.next(pool, room, labels);
            let Some(count) = self.needed(pods, &candidates, queued) else { continue };
            let boots = candidates[..count].to_vec();
            let succeeds = self.state.pools.boot(boots.clone());
            if succeeds {
                let names = boots.iter().map(|boot| boot.name.clone());
                self.state.tracks.get_mut(uid)?.nodes.extend(names);
                for boot in &boots {
                    self.simulation.add_node(boot.node());
                }
                self.place_all(pods);
            }
            return Some((boots, succeeds));
        }
        None
    }

    /// How many of the nodes the pods need; `None` if all do not suffice.
    fn needed(&self, pods: &[Arc<Pod>], candidates: &[Boot], only_new: bool) -> Option<usize> {
        let mut simulation = Simulation::new(&self.objects);
        if !only_new {
            for node in self.nodes.iter().cloned().chain(self.state.pools.booting.iter().map(Boot::node)) {
                simulation.add_node(node);
            }
            for pod in &self.bound {
                simulation.add_bound(pod.clone());
            }
        }
        let mut count = 0;
        for pod in pods {
            while simulation.place(pod.clone()).is_none() {
                simulation.add_node(candidates.get(count)?.node());
                count += 1;
            }
        }
        Some(count)
    }

    /// A request is provisioned when its nodes are ready.
    fn await_nodes(&mut self, request: &RequestObject) -> (Vec<Answer>, Value) {
        let Some(track) = self.state.tracks.get_mut(&request.metadata.uid) else { return Default::default() };
        let is_ready = |name: &String| self.nodes.iter().any(|node| node.metadata.name == *name);
        if !track.nodes.iter().all(is_ready) {
            return Default::default();
        }
        track.provisioned_at = Some(self.now);
        let pool = self.nodes.iter().find(|node| track.nodes.contains(&node.metadata.name));
        let pool = pool.and_then(|node| node.metadata.label(POOL_LABEL)).unwrap_or_default();
        let details = json!({"NodePoolName": pool, "ResizeRequestName": resize_request(request)});
        let message = "Provisioning Request was successfully provisioned.";
        (vec![told(PROVISIONED, true, "Provisioned", message)], details)
    }

    /// Ends the booking in time, and reports nodes that were taken away.
    fn watch_booking(&mut self, request: &RequestObject, class: Class, pace: Pace) -> Vec<Answer> {
        let Some(track) = self.state.tracks.get_mut(&request.metadata.uid) else { return Vec::new() };
        let since = *track.provisioned_at.get_or_insert(self.now);
        let is_there = |name: &String| {
            self.nodes.iter().any(|node| node.metadata.name == *name)
                || self.state.pools.booting.iter().any(|boot| boot.name == *name)
        };
        if class == Class::QueuedProvisioning && !track.nodes.iter().all(is_there) {
            let message = "A node of the request was removed";
            return vec![told(CAPACITY_REVOKED, true, "CapacityRevoked", message)];
        }
        if request.is_booked() && self.now >= since + pace.scaled(BOOKING) {
            let message = "Capacity reservation time is expired";
            return vec![told(BOOKING_EXPIRED, true, "CapacityReservationTimeExpired", message)];
        }
        Vec::new()
    }

    /// Requests a node for a pod. Returns the name of its pool, the size before and the largest size.
    pub(super) fn grow_for(&mut self, pod: &Arc<Pod>, pace: Pace) -> Option<(String, u32, u32)> {
        for pool in 0..self.state.pools.all.len() {
            let backs_off = self.state.backing_off.get(&pool).is_some_and(|until| *until > self.now);
            let room = self.state.pools.room(pool, &self.nodes);
            if self.state.pools.all[pool].queued || backs_off || room == 0 {
                continue;
            }
            let boots = self.state.pools.next(pool, 1, &[]);
            if self.needed(std::slice::from_ref(pod), &boots, true).is_none() {
                continue;
            }
            let node = boots.first()?.node();
            if !self.state.pools.boot(boots) {
                self.state.backing_off.insert(pool, self.now + pace.scaled(POOL_BACK_OFF));
                continue;
            }
            self.simulation.add_node(node);
            self.simulation.place(pod.clone());
            let pool = &self.state.pools.all[pool];
            return Some((pool.name.clone(), pool.max - room, pool.max));
        }
        None
    }
}

/// The conditions of a request that was seen for the first time. GKE sets all three at once.
fn accept(class: Class) -> Vec<Answer> {
    let mut answers =
        vec![told(ACCEPTED, true, "Accepted", "ProvisioningRequest is accepted by ClusterAutoscaler")];
    if class == Class::QueuedProvisioning {
        let message = "Provisioning Request wasn't provisioned.";
        answers.push(told(PROVISIONED, false, "NotProvisioned", message));
        answers.push(told(FAILED, false, "NotFailed", "Provisioning Request hasn't failed."));
    }
    answers
}

/// The name under which a provider knows the nodes of a request.
fn resize_request(request: &RequestObject) -> String {
    let uid = request.metadata.uid.split('-').next().unwrap_or_default();
    format!("resize-{uid}")
}
