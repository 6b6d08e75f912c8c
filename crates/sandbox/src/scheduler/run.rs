//! The scheduling queue and loop: which pod is next, what its result means, and when it is retried.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};

use super::cache::{Cache, PodInfo};
use super::select_node::{self, FitError};
use super::volumes::ClaimPlan;
use crate::cluster::{Change, Cluster, Error, Precondition, Recorder, Resource, Store};
use crate::storage::{self, Referenced};
use crate::wire::{Condition, Key, Node, Pod, SELECTED_NODE};

/// Bindings and status updates in flight.
const IN_FLIGHT: usize = 32;
/// Delay after a failed binding.
const BIND_BACK_OFF: Duration = Duration::from_secs(1);
/// How long a pod waits until its claims are bound.
const CLAIMS_PATIENCE: Duration = Duration::from_secs(30);

/// Reason of the condition `PodScheduled` of a pod that fits no node.
const UNSCHEDULABLE: &str = "Unschedulable";

/// Order of the active queue: priority, then time of arrival, then name.
type QueueKey = (Reverse<i32>, u64, Key);

/// Assigns pods to nodes.
pub(crate) struct Scheduler {
    cluster: Cluster,
    pods: Arc<Store<Pod>>,
    recorder: Recorder,
    state: Mutex<State>,
    changed: Notify,
    claims_changed: Notify,
}

#[derive(Default)]
struct State {
    cache: Cache,
    pending: BTreeMap<Key, PendingPod>,
    active: BTreeSet<QueueKey>,
    /// Uids of pods whose binding is in flight.
    assumed: BTreeMap<Key, String>,
    /// Why equivalent pods are unschedulable. Cleared by every change that can help.
    unschedulable: BTreeMap<Arc<str>, FitError>,
    backing_off: BTreeSet<(Instant, Key)>,
    /// Pods with scheduling gates whose condition does not say so yet.
    gated: Vec<Arc<Pod>>,
    sequence: u64,
}

struct PendingPod {
    info: Arc<PodInfo>,
    queue_key: QueueKey,
    equivalence_class: Arc<str>,
}

enum Step {
    Bind { pod: Arc<Pod>, node: String, plans: Vec<ClaimPlan> },
    Report { pod: Arc<Pod>, reason: &'static str, message: String },
}

impl Scheduler {
    pub(crate) fn new(
        cluster: Cluster,
        pods: Arc<Store<Pod>>,
        objects: Referenced,
        recorder: &Recorder,
    ) -> Self {
        let recorder = recorder.for_component("default-scheduler");
        let state = Mutex::new(State { cache: Cache::new(objects), ..State::default() });
        Self { cluster, pods, recorder, state, changed: Notify::new(), claims_changed: Notify::new() }
    }

    /// An object has changed to which pods refer.
    pub(crate) fn reference_changed(&self) {
        self.lock().activate_all();
        self.changed.notify_one();
        self.claims_changed.notify_waiters();
    }

    pub(crate) fn node_changed(&self, change: Change<'_, Node>) {
        let mut state = self.lock();
        match change.new {
            Some(node) => {
                if state.cache.set_node(node.clone()) {
                    state.activate_all();
                    self.changed.notify_one();
                }
            }
            None => state.cache.remove_node(&change.latest().metadata.name),
        }
    }

    pub(crate) fn pod_changed(&self, change: Change<'_, Pod>) {
        let latest = change.latest();
        let key = latest.metadata.key();
        let mut state = self.lock();
        let alive = change.new.filter(|pod| !pod.is_finished());
        match alive {
            Some(pod) if !pod.spec.node_name.is_empty() => {
                state.assumed.remove(&key);
                state.dequeue(&key);
                let relabelled = change.old.is_some_and(|old| old.metadata.labels != pod.metadata.labels);
                let known = state.cache.pod(&key).is_some_and(|(node, held)| {
                    node == pod.spec.node_name && held.pod.metadata.uid == pod.metadata.uid
                });
                if !known
                    || relabelled
                    || change.old.is_some_and(|old| old.metadata.is_deleting() != pod.metadata.is_deleting())
                {
                    state.cache.add_pod(Arc::new(PodInfo::new(pod.clone())), &pod.spec.node_name);
                    state.activate_affinity_pods();
                }
            }
            Some(pod)
                if is_responsible_for(pod)
                    && !pod.metadata.is_deleting()
                    && pod.spec.scheduling_gates.is_empty() =>
            {
                let unchanged = change.old.is_some_and(|old| {
                    old.metadata.uid == pod.metadata.uid
                        && old.spec == pod.spec
                        && old.metadata.labels == pod.metadata.labels
                });
                if state.assumed.contains_key(&key) || (unchanged && state.pending.contains_key(&key)) {
                    return;
                }
                state.enqueue(Arc::new(PodInfo::new(pod.clone())));
            }
            _ => {
                let gated =
                    alive.filter(|pod| is_responsible_for(pod) && !pod.spec.scheduling_gates.is_empty());
                state.gated.extend(gated.filter(|pod| pod.condition("PodScheduled").is_none()).cloned());
                state.dequeue(&key);
                state.assumed.remove(&key);
                if state.cache.remove_pod(&key) {
                    state.activate_all();
                }
            }
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Schedules pods without end.
    pub(crate) async fn run(&self) {
        let mut running = FuturesUnordered::new();
        loop {
            let changed = self.changed.notified();
            let mut wake = None;
            while running.len() < IN_FLIGHT {
                match self.lock().next() {
                    Ok(Some(step)) => running.push(self.act(step)),
                    Ok(None) => break,
                    Err(at) => {
                        wake = Some(at);
                        break;
                    }
                }
            }
            tokio::select! {
                Some(()) = running.next() => {}
                () = changed => {}
                () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {}
            }
        }
    }

    async fn act(&self, step: Step) {
        match step {
            Step::Bind { pod, node, plans } => {
                let bound = match self.claims_ready(&plans).await {
                    Ok(true) => self.bind(&pod, &node).await.map(|()| true),
                    other => other,
                };
                let key = pod.metadata.key();
                let mut state = self.lock();
                state.cache.claim_plans.remove(&key);
                if !matches!(bound, Ok(true)) {
                    tracing::debug!(pod = %key, node, ?bound, "binding failed");
                    if state.assumed.get(&key) == Some(&pod.metadata.uid) {
                        state.assumed.remove(&key);
                        state.cache.remove_pod(&key);
                        state.activate_all();
                        state.back_off(key);
                    }
                }
            }
            Step::Report { pod, reason, message } => {
                if let Err(error) = self.report(&pod, reason, message).await {
                    tracing::debug!(pod = %pod.metadata.key(), %error, "cannot update the condition of a pod");
                }
            }
        }
    }

    async fn bind(&self, pod: &Arc<Pod>, node: &str) -> Result<(), Error> {
        let meta = &pod.metadata;
        let binding = json!({
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": { "name": meta.name, "namespace": meta.namespace, "uid": meta.uid },
            "target": { "apiVersion": "v1", "kind": "Node", "name": node },
        });
        self.cluster.post(Pod::KIND, &meta.key(), "binding", &binding).await?;
        let message = format!("Successfully assigned {} to {node}", meta.key());
        self.recorder.normal(&**pod, "Scheduled", message);
        Ok(())
    }

    /// Lets claims be bound that waited for a pod. Returns whether they are bound in time.
    async fn claims_ready(&self, plans: &[ClaimPlan]) -> Result<bool, Error> {
        for plan in plans {
            self.carry_out(plan).await?;
        }
        Ok(plans.is_empty() || timeout(CLAIMS_PATIENCE, self.claims_bound(plans)).await.is_ok())
    }

    /// Reserves a volume for a claim, or asks for one on the node.
    async fn carry_out(&self, plan: &ClaimPlan) -> Result<(), Error> {
        let objects = self.lock().cache.objects.clone();
        match &plan.volume {
            Some(volume) => {
                let patch = json!({ "spec": { "claimRef": storage::reference(&plan.claim) } });
                let meta = &volume.metadata;
                self.cluster.patch(&objects.volumes, meta, patch, Precondition::ResourceVersion).await?;
            }
            None if plan.claim.selected_node().is_none() => {
                let patch = json!({ "metadata": { "annotations": { SELECTED_NODE: plan.node } } });
                self.cluster.patch(&objects.claims, &plan.claim.metadata, patch, Precondition::Uid).await?;
            }
            None => {}
        }
        Ok(())
    }

    async fn claims_bound(&self, plans: &[ClaimPlan]) {
        let claims = self.lock().cache.objects.claims.clone();
        let is_bound =
            |plan: &ClaimPlan| claims.get(&plan.claim.metadata.key()).is_some_and(|claim| claim.is_bound());
        loop {
            let changed = self.claims_changed.notified();
            if plans.iter().all(is_bound) {
                return;
            }
            changed.await;
        }
    }

    async fn report(&self, pod: &Arc<Pod>, reason: &'static str, message: String) -> Result<(), Error> {
        if pod.condition("PodScheduled").is_some_and(|condition| condition.message == message) {
            return Ok(());
        }
        if reason == UNSCHEDULABLE {
            self.recorder.warning(&**pod, "FailedScheduling", &*message);
        }
        let latest = self.pods.get(&pod.metadata.key()).unwrap_or_else(|| pod.clone());
        let mut conditions = latest.status.conditions.clone();
        let condition = Condition::new("PodScheduled", false, reason, message, self.cluster.stamp());
        condition.set_in(&mut conditions);
        let status = json!({ "conditions": conditions });
        self.cluster
            .patch_status(&self.pods, &latest.metadata, status, Precondition::ResourceVersion)
            .await
            .map(drop)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_responsible_for(pod: &Pod) -> bool {
    matches!(pod.spec.scheduler_name.as_str(), "" | "default-scheduler")
}

impl State {
    /// The next step. Without one: an error with the end of the next back-off, or none.
    fn next(&mut self) -> Result<Option<Step>, Instant> {
        let now = Instant::now();
        while let Some((_, key)) = self.backing_off.first().filter(|(at, _)| *at <= now).cloned() {
            self.backing_off.pop_first();
            if let Some(pending) = self.pending.get(&key) {
                self.active.insert(pending.queue_key.clone());
            }
        }
        if let Some(pod) = self.gated.pop() {
            let message = "Scheduling is blocked due to non-empty scheduling gates".to_owned();
            return Ok(Some(Step::Report { pod, reason: "SchedulingGated", message }));
        }
        let Some((_, _, key)) = self.active.pop_first() else {
            return self.backing_off.first().map_or(Ok(None), |(at, _)| Err(*at));
        };
        let Some(pending) = self.pending.get(&key) else { return self.next() };
        let info = pending.info.clone();
        let equivalence_class = pending.equivalence_class.clone();
        let result = match self.unschedulable.get(&equivalence_class) {
            Some(fit_error) => Err(fit_error.clone()),
            None => select_node::select_node(&mut self.cache, &info),
        };
        Ok(Some(match result {
            Ok((node, plans)) => {
                self.cache.add_pod(info.clone(), &node);
                self.assumed.insert(key.clone(), info.pod.metadata.uid.clone());
                if !plans.is_empty() {
                    self.cache.claim_plans.insert(key, plans.clone());
                }
                Step::Bind { pod: info.pod.clone(), node, plans }
            }
            Err(fit_error) => {
                let message = fit_error.to_string();
                self.unschedulable.insert(equivalence_class, fit_error);
                Step::Report { pod: info.pod.clone(), reason: UNSCHEDULABLE, message }
            }
        }))
    }

    /// Adds a pod to the active queue.
    fn enqueue(&mut self, info: Arc<PodInfo>) {
        let key = info.key();
        self.dequeue(&key);
        self.sequence += 1;
        let queue_key = (Reverse(info.pod.spec.priority), self.sequence, key.clone());
        self.active.insert(queue_key.clone());
        let equivalence_class = equivalence_class(&info.pod);
        self.pending.insert(key, PendingPod { info, queue_key, equivalence_class });
    }

    /// Removes a pod that is bound or must not be scheduled any more.
    fn dequeue(&mut self, key: &Key) {
        if let Some(pending) = self.pending.remove(key) {
            self.active.remove(&pending.queue_key);
        }
    }

    /// Delays a pod whose binding failed. [`Self::activate_all`] ends the delay early.
    fn back_off(&mut self, key: Key) {
        if let Some(pending) = self.pending.get(&key) {
            self.active.remove(&pending.queue_key);
            self.backing_off.insert((Instant::now() + BIND_BACK_OFF, key));
        }
    }

    /// Moves all pending pods to the active queue, after a change that can make them schedulable.
    fn activate_all(&mut self) {
        self.unschedulable.clear();
        for (key, pending) in &self.pending {
            if !self.assumed.contains_key(key) {
                self.active.insert(pending.queue_key.clone());
            }
        }
    }

    /// Moves pods with affinity or spread constraints to the active queue, after another pod was assigned to a node.
    fn activate_affinity_pods(&mut self) {
        let has_affinity = |pod: &Pod| {
            pod.spec.affinity.as_ref().is_some_and(|affinity| affinity.pod_affinity.is_some())
                || !pod.spec.topology_spread_constraints.is_empty()
        };
        let movable: Vec<QueueKey> = self
            .pending
            .values()
            .filter(|pending| has_affinity(&pending.info.pod))
            .map(|w| w.queue_key.clone())
            .collect();
        if !movable.is_empty() {
            self.unschedulable.clear();
            self.active.extend(movable);
        }
    }
}

/// The fields that a scheduling result depends on. Pods with equal fields share the result. The claims of ephemeral volumes
/// are named for the pod.
fn equivalence_class(pod: &Pod) -> Arc<str> {
    let own = pod.claims().any(|(_, is_created)| is_created).then_some(&pod.metadata.name);
    format!("{:?}{:?}{}{own:?}", pod.spec, pod.metadata.labels, pod.metadata.namespace).into()
}
