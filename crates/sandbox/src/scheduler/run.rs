//! The scheduling queue and loop: which pod is next, what its result means, and when it is retried.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::cache::{Cache, PodInfo};
use super::verdict::{self, Unfit};
use crate::cluster::{Change, Cluster, Error, Guard, Recorder, Resource, Store};
use crate::wire::{Condition, Key, Node, Pod};

/// Bindings and status updates in flight.
const IN_FLIGHT: usize = 32;
/// Delay after a failed binding.
const BIND_AGAIN: Duration = Duration::from_secs(1);

/// Reason of the condition `PodScheduled` of a pod that fits no node.
const UNSCHEDULABLE: &str = "Unschedulable";

/// Order of the active queue: priority, then time of arrival, then name.
type Turn = (Reverse<i32>, u64, Key);

/// Assigns pods to nodes.
pub(crate) struct Scheduler {
    cluster: Cluster,
    pods: Arc<Store<Pod>>,
    recorder: Recorder,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    cache: Cache,
    waiting: BTreeMap<Key, Waiting>,
    turns: BTreeSet<Turn>,
    /// Uids of pods whose binding is in flight.
    assumed: BTreeMap<Key, String>,
    /// Why equivalent pods are unschedulable. Cleared by every change that can help.
    hopeless: BTreeMap<Arc<str>, Unfit>,
    again: BTreeSet<(Instant, Key)>,
    /// Pods with scheduling gates whose condition does not say so yet.
    gated: Vec<Arc<Pod>>,
    serial: u64,
}

struct Waiting {
    info: Arc<PodInfo>,
    turn: Turn,
    shape: Arc<str>,
}

enum Step {
    Bind { pod: Arc<Pod>, node: String },
    Report { pod: Arc<Pod>, reason: &'static str, message: String },
}

impl Scheduler {
    pub(crate) fn new(cluster: Cluster, pods: Arc<Store<Pod>>, recorder: &Recorder) -> Self {
        let recorder = recorder.of("default-scheduler");
        Self { cluster, pods, recorder, state: Mutex::default(), changed: Notify::new() }
    }

    pub(crate) fn node_changed(&self, change: Change<'_, Node>) {
        let mut state = self.lock();
        match change.new {
            Some(node) => {
                if state.cache.set_node(node.clone()) {
                    state.hope();
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
                state.leave(&key);
                let relabelled = change.old.is_some_and(|old| old.metadata.labels != pod.metadata.labels);
                let known = state.cache.placed(&key).is_some_and(|(node, held)| {
                    node == pod.spec.node_name && held.pod.metadata.uid == pod.metadata.uid
                });
                if !known
                    || relabelled
                    || change.old.is_some_and(|old| old.metadata.is_deleting() != pod.metadata.is_deleting())
                {
                    state.cache.place(Arc::new(PodInfo::new(pod.clone())), &pod.spec.node_name);
                    state.hope_of_affine();
                }
            }
            Some(pod) if ours(pod) && !pod.metadata.is_deleting() && pod.spec.scheduling_gates.is_empty() => {
                let unchanged = change.old.is_some_and(|old| {
                    old.metadata.uid == pod.metadata.uid
                        && old.spec == pod.spec
                        && old.metadata.labels == pod.metadata.labels
                });
                if state.assumed.contains_key(&key) || (unchanged && state.waiting.contains_key(&key)) {
                    return;
                }
                state.enter(Arc::new(PodInfo::new(pod.clone())));
            }
            _ => {
                let gated = alive.filter(|pod| ours(pod) && !pod.spec.scheduling_gates.is_empty());
                state.gated.extend(gated.filter(|pod| pod.condition("PodScheduled").is_none()).cloned());
                state.leave(&key);
                state.assumed.remove(&key);
                if state.cache.remove_pod(&key) {
                    state.hope();
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
            Step::Bind { pod, node } => {
                if let Err(error) = self.bind(&pod, &node).await {
                    tracing::debug!(pod = %pod.metadata.key(), node, %error, "a binding failed");
                    let mut state = self.lock();
                    let key = pod.metadata.key();
                    if state.assumed.get(&key) == Some(&pod.metadata.uid) {
                        state.assumed.remove(&key);
                        state.cache.remove_pod(&key);
                        state.hope();
                        state.delay(key);
                    }
                }
            }
            Step::Report { pod, reason, message } => {
                if let Err(error) = self.report(&pod, reason, message).await {
                    tracing::debug!(pod = %pod.metadata.key(), %error, "a verdict is not written");
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
        self.cluster.patch_status(&self.pods, &latest.metadata, status, Guard::Version).await.map(drop)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn ours(pod: &Pod) -> bool {
    matches!(pod.spec.scheduler_name.as_str(), "" | "default-scheduler")
}

impl State {
    /// The next step. Without one: an error with the end of the next back-off, or none.
    fn next(&mut self) -> Result<Option<Step>, Instant> {
        let now = Instant::now();
        while let Some((_, key)) = self.again.first().filter(|(at, _)| *at <= now).cloned() {
            self.again.pop_first();
            if let Some(waiting) = self.waiting.get(&key) {
                self.turns.insert(waiting.turn.clone());
            }
        }
        if let Some(pod) = self.gated.pop() {
            let message = "Scheduling is blocked due to non-empty scheduling gates".to_owned();
            return Ok(Some(Step::Report { pod, reason: "SchedulingGated", message }));
        }
        let Some((_, _, key)) = self.turns.pop_first() else {
            return self.again.first().map_or(Ok(None), |(at, _)| Err(*at));
        };
        let Some(waiting) = self.waiting.get(&key) else { return self.next() };
        let info = waiting.info.clone();
        let shape = waiting.shape.clone();
        let verdict = match self.hopeless.get(&shape) {
            Some(unfit) => Err(unfit.clone()),
            None => verdict::choose(&mut self.cache, &info),
        };
        Ok(Some(match verdict {
            Ok(node) => {
                self.cache.place(info.clone(), &node);
                self.assumed.insert(key, info.pod.metadata.uid.clone());
                Step::Bind { pod: info.pod.clone(), node }
            }
            Err(unfit) => {
                let message = unfit.to_string();
                self.hopeless.insert(shape, unfit);
                Step::Report { pod: info.pod.clone(), reason: UNSCHEDULABLE, message }
            }
        }))
    }

    /// Adds a pod to the active queue.
    fn enter(&mut self, info: Arc<PodInfo>) {
        let key = info.key();
        self.leave(&key);
        self.serial += 1;
        let turn = (Reverse(info.pod.spec.priority), self.serial, key.clone());
        self.turns.insert(turn.clone());
        let shape = shape(&info.pod);
        self.waiting.insert(key, Waiting { info, turn, shape });
    }

    /// Removes a pod that is bound or must not be scheduled any more.
    fn leave(&mut self, key: &Key) {
        if let Some(waiting) = self.waiting.remove(key) {
            self.turns.remove(&waiting.turn);
        }
    }

    /// Delays a pod. Events do not end the delay.
    fn delay(&mut self, key: Key) {
        if let Some(waiting) = self.waiting.get(&key) {
            self.turns.remove(&waiting.turn);
            self.again.insert((Instant::now() + BIND_AGAIN, key));
        }
    }

    /// Moves all pending pods to the active queue, after a change that can make them schedulable.
    fn hope(&mut self) {
        self.hopeless.clear();
        for (key, waiting) in &self.waiting {
            if !self.assumed.contains_key(key) {
                self.turns.insert(waiting.turn.clone());
            }
        }
    }

    /// Moves pods with affinity or spread constraints to the active queue, after another pod was assigned to a node.
    fn hope_of_affine(&mut self) {
        let affine = |pod: &Pod| {
            pod.spec.affinity.as_ref().is_some_and(|affinity| affinity.pod_affinity.is_some())
                || !pod.spec.topology_spread_constraints.is_empty()
        };
        let hopeful: Vec<Turn> = self
            .waiting
            .values()
            .filter(|waiting| affine(&waiting.info.pod))
            .map(|w| w.turn.clone())
            .collect();
        if !hopeful.is_empty() {
            self.hopeless.clear();
            self.turns.extend(hopeful);
        }
    }
}

/// The fields that a scheduling result depends on. Pods with equal fields share the result.
fn shape(pod: &Pod) -> Arc<str> {
    format!("{:?}{:?}{}", pod.spec, pod.metadata.labels, pod.metadata.namespace).into()
}
