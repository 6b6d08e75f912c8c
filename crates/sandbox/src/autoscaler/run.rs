//! The loop of the autoscaler.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::provisioning::PROVISIONED;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

use super::pool::NodePool;
use super::request::{RequestObject, Track, consumes};
use super::round::{Answer, Round, State};
use super::size::{Boot, Pools};
use crate::cluster::{Cluster, Delete, Error, Kind, Precondition, Recorder, Store};
use crate::nodes::NodeController;
use crate::pace::Pace;
use crate::scheduler::Simulation;
use crate::storage::Referenced;
use crate::wire::{Condition, Key, Node, Pod};

/// Time between two rounds without a change; divided by the speed.
const SCAN_INTERVAL: Duration = Duration::from_secs(10);
/// Time from a change to the next round; divided by the speed, but not shorter than the second one.
const REACTION: (Duration, Duration) = (Duration::from_secs(1), Duration::from_millis(50));

/// Adds and removes nodes.
pub(crate) struct Autoscaler {
    cluster: Cluster,
    nodes: Arc<Store<Node>>,
    pods: Arc<Store<Pod>>,
    requests: Arc<Store<RequestObject>>,
    objects: Referenced,
    controller: Arc<NodeController>,
    recorder: Recorder,
    pace: Pace,
    changed: Notify,
}

/// What the autoscaler watches.
pub(crate) struct Stores {
    pub(crate) nodes: Arc<Store<Node>>,
    pub(crate) pods: Arc<Store<Pod>>,
    pub(crate) requests: Arc<Store<RequestObject>>,
    pub(crate) objects: Referenced,
}

impl Autoscaler {
    pub(crate) fn new(
        cluster: Cluster,
        stores: Stores,
        controller: Arc<NodeController>,
        recorder: &Recorder,
        pace: Pace,
    ) -> Self {
        let Stores { nodes, pods, requests, objects } = stores;
        let recorder = recorder.for_component("cluster-autoscaler");
        Self { cluster, nodes, pods, requests, objects, controller, recorder, pace, changed: Notify::new() }
    }

    /// An object has changed that decides about nodes.
    pub(crate) fn changed(&self) {
        self.changed.notify_one();
    }

    /// Runs without end.
    pub(crate) async fn run(&self, pools: Vec<NodePool>) {
        let pools = Pools::new(pools, self.pace);
        let mut state = State { pools, tracks: BTreeMap::new(), backing_off: BTreeMap::new() };
        self.nodes.synced().await;
        self.pods.synced().await;
        loop {
            self.round(&mut state).await;
            let scan = Instant::now() + self.pace.scaled(SCAN_INTERVAL).max(REACTION.1);
            let wake = state.pools.next_event().unwrap_or(scan).min(scan);
            tokio::select! {
                () = self.changed.notified() => sleep(self.pace.scaled(REACTION.0).max(REACTION.1)).await,
                () = sleep_until(wake) => {}
            }
        }
    }

    async fn round(&self, state: &mut State) {
        let now = Instant::now();
        for boot in state.pools.ready(now) {
            if let Err(error) = self.controller.create(boot.manifest.clone()).await {
                tracing::warn!(node = boot.name, %error, "cannot create a node, trying again");
                state.pools.booting.push(boot);
            }
        }
        let (nodes, mut simulation) = (self.nodes.all(), Simulation::new(&self.objects));
        for node in nodes.iter().cloned().chain(state.pools.booting.iter().map(Boot::node)) {
            simulation.add_node(node);
        }
        let pods = self.pods.all();
        let (bound, pending): (Vec<_>, Vec<_>) =
            pods.into_iter().filter(|pod| !pod.is_finished()).partition(|pod| !pod.spec.node_name.is_empty());
        for pod in &bound {
            simulation.add_bound(pod.clone());
        }
        let objects = self.objects.clone();
        let mut round = Round { now, nodes, bound, objects, simulation, state };
        round.keep_smallest_sizes();
        let requests = self.open_requests(&mut round).await;
        for request in &requests {
            let (answers, details) = round.answer(request, self.pace);
            if let Err(error) = self.write(request, answers, details).await {
                tracing::debug!(request = %request.metadata.key(), %error, "cannot answer a request");
            }
        }
        self.scale_up(&mut round, &pending, &requests);
        self.scale_down(&mut round, &requests).await;
    }

    /// The requests that are served, the oldest first, with the pods of each in its track. What is booked is placed.
    async fn open_requests(&self, round: &mut Round<'_>) -> Vec<Arc<RequestObject>> {
        let mut requests = self.requests.all();
        requests.retain(|request| request.class().is_some() && !request.metadata.is_deleting());
        requests.sort_by_key(|request| (request.metadata.creation_timestamp, request.metadata.key()));
        round.state.tracks.retain(|uid, _| requests.iter().any(|request| request.metadata.uid == *uid));
        for request in &requests {
            let track = round
                .state
                .tracks
                .entry(request.metadata.uid.clone())
                .or_insert_with(|| Track::new(round.now));
            if track.pods.is_none() && !request.is_over() {
                track.pods = request.pods(&self.templates(request).await);
            }
        }
        for request in requests.iter().filter(|request| !request.is_over()) {
            round.book(request);
        }
        requests
    }

    async fn templates(&self, request: &RequestObject) -> BTreeMap<String, Value> {
        let mut templates = BTreeMap::new();
        for set in &request.spec.pod_sets {
            let key = Key::new(&*request.metadata.namespace, &*set.pod_template_ref.name);
            if let Ok(Some(template)) = self.cluster.get(Kind::POD_TEMPLATE, &key).await {
                templates.insert(key.name, template);
            }
        }
        templates
    }

    async fn write(
        &self,
        request: &RequestObject,
        answers: Vec<Answer>,
        details: Value,
    ) -> Result<(), Error> {
        let mut conditions = request.status.conditions.clone();
        let mut changed = false;
        for (kind, is_true, reason, message) in answers {
            let mut condition = Condition::new(kind, is_true, reason, message, self.cluster.stamp());
            condition.observed_generation = Some(request.metadata.generation);
            changed |= condition.set_in(&mut conditions);
        }
        if !changed {
            return Ok(());
        }
        // The definition demands a message.
        let conditions: Vec<Value> = conditions
            .iter()
            .map(|condition| {
                let mut value = json!(condition);
                value["message"] = json!(condition.message);
                value
            })
            .collect();
        let mut status = json!({ "conditions": conditions });
        if !details.is_null() {
            status["provisioningClassDetails"] = details;
        }
        self.cluster
            .patch_status(&self.requests, &request.metadata, status, Precondition::ResourceVersion)
            .await
            .map(drop)
    }

    /// Adds nodes for pods that fit nowhere.
    fn scale_up(&self, round: &mut Round<'_>, pending: &[Arc<Pod>], requests: &[Arc<RequestObject>]) {
        for pod in pending {
            let is_unschedulable =
                pod.condition("PodScheduled").is_some_and(|condition| condition.reason == "Unschedulable");
            let has_booking = requests
                .iter()
                .any(|request| consumes(pod, request) && !request.is_over() && request.is_booked());
            if !is_unschedulable || pod.metadata.is_deleting() || has_booking {
                continue;
            }
            if round.simulation.place(pod.clone()).is_some() {
                continue;
            }
            let Some((name, from, max)) = round.grow_for(pod, self.pace) else { continue };
            let message = format!("pod triggered scale-up: [{{{name} {from}->{} (max: {max})}}]", from + 1);
            self.recorder.normal(&**pod, "TriggeredScaleUp", message);
        }
    }

    async fn scale_down(&self, round: &mut Round<'_>, requests: &[Arc<RequestObject>]) {
        let tracks = &mut round.state.tracks;
        let keeps = |request: &&Arc<RequestObject>| {
            request.is_booked() || !request.is_over() && !request.is(PROVISIONED)
        };
        let kept: BTreeSet<String> = requests
            .iter()
            .filter(keeps)
            .filter_map(|request| tracks.get(&request.metadata.uid))
            .flat_map(|track| track.nodes.clone())
            .collect();
        let pods = |node: &Node| self.pods.indexed(&format!("node/{}", node.metadata.name));
        for node in round.state.pools.idle(&round.nodes, pods, &kept, round.now) {
            for track in tracks.values_mut() {
                track.nodes.remove(&node.metadata.name);
            }
            self.recorder.normal(&*node, "ScaleDown", "node removed by cluster autoscaler");
            if let Err(error) = self.cluster.delete(&self.nodes, &node.metadata, Delete::default()).await {
                tracing::warn!(node = node.metadata.name, %error, "cannot remove a node");
            }
        }
    }
}
