//! The loop of the scheduler: which pod is next, what its verdict means, when it is tried again.

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

/// Bindings and status writes on their way at a time.
const IN_FLIGHT: usize = 32;
/// Pause before a pod is tried again whose binding failed.
const BIND_AGAIN: Duration = Duration::from_secs(1);

/// Reason of the condition of a pod that no node takes.
const UNSCHEDULABLE: &str = "Unschedulable";

/// Order of the queue: priority first, then age, then name.
type Turn = (Reverse<i32>, u64, Key);

/// Gives pods their nodes.
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
    /// Pods with a binding on its way, by uid.
    assumed: BTreeMap<Key, String>,
    /// Demands that no node met since something last changed for the better.
    hopeless: BTreeMap<Arc<str>, Unfit>,
    again: BTreeSet<(Instant, Key)>,
    /// Pods behind scheduling gates that do not say so yet.
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

    /// Schedules for ever.
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
    /// The next thing to do; otherwise when to look again, if ever.
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

    /// A pod wants a node.
    fn enter(&mut self, info: Arc<PodInfo>) {
        let key = info.key();
        self.leave(&key);
        self.serial += 1;
        let turn = (Reverse(info.pod.spec.priority), self.serial, key.clone());
        self.turns.insert(turn.clone());
        let shape = shape(&info.pod);
        self.waiting.insert(key, Waiting { info, turn, shape });
    }

    /// A pod has its node, or does not want one any more.
    fn leave(&mut self, key: &Key) {
        if let Some(waiting) = self.waiting.remove(key) {
            self.turns.remove(&waiting.turn);
        }
    }

    /// A pod is not tried before a pause, whatever changes.
    fn delay(&mut self, key: Key) {
        if let Some(waiting) = self.waiting.get(&key) {
            self.turns.remove(&waiting.turn);
            self.again.insert((Instant::now() + BIND_AGAIN, key));
        }
    }

    /// Something changed for the better: all that wait are tried again.
    fn hope(&mut self) {
        self.hopeless.clear();
        for (key, waiting) in &self.waiting {
            if !self.assumed.contains_key(key) {
                self.turns.insert(waiting.turn.clone());
            }
        }
    }

    /// A pod was placed: that can help those who want to be near it or wait for a smaller skew.
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

/// What a verdict depends on: pods of equal shape share it.
fn shape(pod: &Pod) -> Arc<str> {
    format!("{:?}{:?}{}", pod.spec, pod.metadata.labels, pod.metadata.namespace).into()
}
