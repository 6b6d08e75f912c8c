//! Runs all pods that are bound to simulated nodes, writes their status and terminates them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::address::Addresses;
use super::behaviour::Behaviour;
use super::pod_state::{Now, PodState};
use super::process::{GCS_WAIT, State};
use super::status::{self, PodAddresses};
use crate::LogSink;
use crate::cluster::{
    Change, Cluster, Delete, Error, EventKind, Precondition, Queue, Recorder, Resource, Store,
};
use crate::nodes;
use crate::pace::Pace;
use crate::wire::{Key, Node, Pod};

/// The longest termination of a pod, before division by the speed.
const MAX_TERMINATION_TIME: Duration = Duration::from_secs(1);

/// The kubelet of all simulated nodes.
pub(crate) struct Kubelet {
    cluster: Cluster,
    pods: Arc<Store<Pod>>,
    nodes: Arc<Store<Node>>,
    recorder: Recorder,
    pace: Pace,
    logs: Option<LogSink>,
    workers: Mutex<BTreeMap<Key, PodWorker>>,
    addresses: Mutex<Addresses>,
    pub(crate) queue: Queue<Key>,
}

/// The state that the kubelet keeps for a pod, as a pod worker does.
struct PodWorker {
    pod_state: PodState,
    /// The last written status.
    written_status: Option<Value>,
    /// When the termination of the pod started.
    terminating_since: Option<Instant>,
}

impl Kubelet {
    pub(crate) fn new(
        cluster: Cluster,
        nodes: Arc<Store<Node>>,
        pods: Arc<Store<Pod>>,
        recorder: &Recorder,
        pace: Pace,
        logs: Option<LogSink>,
    ) -> Self {
        Self {
            cluster,
            pods,
            nodes,
            recorder: recorder.for_component("kubelet"),
            pace,
            logs,
            workers: Mutex::default(),
            addresses: Mutex::default(),
            queue: Queue::new(),
        }
    }

    /// Queues a changed pod. If the readiness of a Ray head changed, queues all pods of the cluster: workers wait for
    /// it.
    pub(crate) fn pod_changed(&self, change: Change<'_, Pod>) {
        let pod = change.latest();
        if pod.spec.node_name.is_empty() {
            return;
        }
        self.queue.add(pod.metadata.key());
        if pod.metadata.label("ray.io/node-type") == Some("head")
            && change.new.is_some_and(|pod| pod.is_ready()) != change.old.is_some_and(|pod| pod.is_ready())
            && let Some(cluster) = pod.metadata.label("ray.io/cluster")
        {
            for other in self.pods.indexed(&format!("ray/{}/{cluster}", pod.metadata.namespace)) {
                self.queue.add(other.metadata.key());
            }
        }
    }

    /// Queues the pods of a node that was connected, disconnected, added or deleted.
    pub(crate) fn node_changed(&self, change: Change<'_, Node>) {
        if change.new.is_some_and(|node| has_live_kubelet(node))
            != change.old.is_some_and(|node| has_live_kubelet(node))
        {
            for pod in self.pods.indexed(&format!("node/{}", change.latest().metadata.name)) {
                self.queue.add(pod.metadata.key());
            }
        }
    }

    pub(crate) async fn reconcile(&self, key: Key) -> Result<Option<Instant>, Error> {
        let pod = self.pods.get(&key).filter(|pod| !pod.spec.node_name.is_empty());
        let held = self.workers().remove(&key);
        let Some(pod) = pod else {
            self.addresses().release(&key);
            return Ok(None);
        };
        let node = self.nodes.get(&Key::new("", &*pod.spec.node_name)).filter(|node| has_live_kubelet(node));
        let mut held = held.filter(|held| held.pod_state.uid == pod.metadata.uid);
        let Some(node) = node else {
            // The node is disconnected: its pods keep their state.
            if let Some(held) = held {
                self.workers().insert(key, held);
            }
            return Ok(None);
        };
        if held.is_none() && pod.is_finished() && !pod.metadata.is_deleting() {
            return Ok(None);
        }
        let mut worker = held.take().unwrap_or_else(|| self.start_worker(&pod));
        let result = self.sync_pod(&pod, &node, &mut worker).await;
        self.workers().insert(key, worker);
        result
    }

    /// Starts to manage a pod. The pod is new on the node, or was started before this process.
    fn start_worker(&self, pod: &Pod) -> PodWorker {
        let age = pod
            .status
            .start_time
            .and_then(|start| Duration::try_from(self.cluster.now().duration_since(start.0)).ok());
        let since = age.and_then(|age| Instant::now().checked_sub(age)).unwrap_or_else(Instant::now);
        PodWorker {
            pod_state: PodState::new(pod, since, self.pace),
            written_status: None,
            terminating_since: None,
        }
    }

    async fn sync_pod(
        &self,
        pod: &Arc<Pod>,
        node: &Node,
        worker: &mut PodWorker,
    ) -> Result<Option<Instant>, Error> {
        if pod.metadata.is_deleting() {
            return self.terminate(pod, node, worker).await;
        }
        let now = self.now();
        worker.pod_state.apply_annotations(Behaviour::of(pod), now.instant);
        let next_sync = worker.pod_state.sync(now.instant, self.head_is_ready(pod, &worker.pod_state));
        self.emit_logs_and_events(pod, node, worker);
        self.write(pod, node, worker, now).await?;
        if worker.pod_state.is_over() {
            self.addresses().release(&pod.metadata.key());
        }
        Ok(next_sync)
    }

    async fn write(
        &self,
        pod: &Arc<Pod>,
        node: &Node,
        worker: &mut PodWorker,
        now: Now,
    ) -> Result<(), Error> {
        let addresses = self.addresses_of(pod, node, &worker.pod_state, now.instant);
        let status = status::render(&mut worker.pod_state, pod, &addresses, now);
        let ready = worker.pod_state.conditions.iter().any(|c| c.kind == "Ready" && c.status == "True");
        if worker.written_status.as_ref() == Some(&status) && pod.is_ready() == ready {
            return Ok(());
        }
        match self.cluster.patch_status(&self.pods, &pod.metadata, status.clone(), Precondition::Uid).await {
            Ok(_) => {
                worker.written_status = Some(status);
                Ok(())
            }
            // The pod is gone or was replaced. The watch will deliver that.
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Terminates the containers of a pod that is being deleted, then deletes the object.
    async fn terminate(
        &self,
        pod: &Arc<Pod>,
        node: &Node,
        worker: &mut PodWorker,
    ) -> Result<Option<Instant>, Error> {
        let now = self.now();
        let grace = u64::try_from(pod.metadata.deletion_grace_period_seconds.unwrap_or(30)).unwrap_or(0);
        let since = *worker.terminating_since.get_or_insert_with(|| {
            for process in worker.pod_state.inits.iter().chain(&worker.pod_state.apps) {
                if matches!(process.state, State::Running { .. }) {
                    let message = format!("Stopping container {}", process.name);
                    let recorder = self.recorder.on_node(&node.metadata.name);
                    let path = &process.field_path;
                    recorder.record(Pod::KIND, &pod.metadata, path, EventKind::Normal, "Killing", message);
                }
            }
            now.instant
        });
        let due = since + self.pace.scaled(Duration::from_secs(grace).min(MAX_TERMINATION_TIME));
        if now.instant < due {
            return Ok(Some(due));
        }
        // A pod with finalizers stays after termination, and other controllers read its final status, for instance
        // the Job controller.
        if !pod.metadata.finalizers.is_empty() && !pod.is_finished() {
            worker.pod_state.terminate_containers(now.instant, 143, "Error");
            worker.pod_state.fail_unless_over();
            self.write(pod, node, worker, now).await?;
        }
        self.addresses().release(&pod.metadata.key());
        if pod.metadata.deletion_grace_period_seconds == Some(0) {
            return Ok(None);
        }
        self.cluster.delete(&self.pods, &pod.metadata, Delete { grace: Some(0), propagation: None }).await?;
        Ok(None)
    }

    fn emit_logs_and_events(&self, pod: &Pod, node: &Node, worker: &mut PodWorker) {
        for (container, line) in worker.pod_state.log_lines.drain(..) {
            if let Some(logs) = &self.logs {
                logs(&pod.metadata.uid, &container, &line);
            }
        }
        let recorder = self.recorder.on_node(&node.metadata.name);
        for event in worker.pod_state.events.drain(..) {
            recorder.record(
                Pod::KIND,
                &pod.metadata,
                &event.field_path,
                event.kind,
                event.reason,
                event.message,
            );
        }
    }

    fn addresses_of(&self, pod: &Pod, node: &Node, pod_state: &PodState, now: Instant) -> PodAddresses {
        let host_ip = node.internal_ip().to_owned();
        let pod_ip = if now < pod_state.sandbox_ready_at {
            String::new()
        } else if pod.spec.host_network {
            host_ip.clone()
        } else if pod.status.pod_ip.is_empty() {
            let assigned =
                self.addresses().assign(&pod.metadata.key(), &node.metadata.name, &node.spec.pod_cidr);
            assigned.map(|address| address.to_string()).unwrap_or_default()
        } else {
            let (name, range) = (&node.metadata.name, &node.spec.pod_cidr);
            self.addresses().reserve(&pod.metadata.key(), name, range, &pod.status.pod_ip);
            pod.status.pod_ip.clone()
        };
        PodAddresses { pod_ip, host_ip }
    }

    /// Whether the head of the pod's Ray cluster is ready. True for pods that do not wait for a head.
    fn head_is_ready(&self, pod: &Pod, pod_state: &PodState) -> bool {
        if !pod_state.inits.iter().any(|init| init.name == GCS_WAIT) {
            return true;
        }
        let Some(cluster) = pod.metadata.label("ray.io/cluster") else { return true };
        let pods = self.pods.indexed(&format!("ray/{}/{cluster}", pod.metadata.namespace));
        pods.iter().any(|other| other.metadata.label("ray.io/node-type") == Some("head") && other.is_ready())
    }

    fn now(&self) -> Now {
        Now { instant: Instant::now(), timestamp: self.cluster.now() }
    }

    fn workers(&self) -> MutexGuard<'_, BTreeMap<Key, PodWorker>> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn addresses(&self) -> MutexGuard<'_, Addresses> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the node is simulated and connected.
fn has_live_kubelet(node: &Node) -> bool {
    nodes::is_simulated(node) && !nodes::is_lost(node)
}
