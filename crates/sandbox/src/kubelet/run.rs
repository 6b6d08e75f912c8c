//! Runs all pods that are bound to simulated nodes, writes their status and terminates them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::address::Addresses;
use super::behaviour::Behaviour;
use super::machine::{Machine, Now};
use super::process::{GCS_WAIT, State};
use super::status::{self, Place};
use crate::LogSink;
use crate::cluster::{Change, Cluster, Delete, Error, EventKind, Guard, Queue, Recorder, Resource, Store};
use crate::nodes;
use crate::pace::Pace;
use crate::wire::{Key, Node, Pod};

/// The longest termination of a pod, before division by the speed.
const LONGEST_END: Duration = Duration::from_secs(1);

/// The kubelet of all simulated nodes.
pub(crate) struct Kubelet {
    cluster: Cluster,
    pods: Arc<Store<Pod>>,
    nodes: Arc<Store<Node>>,
    recorder: Recorder,
    pace: Pace,
    logs: Option<LogSink>,
    machines: Mutex<BTreeMap<Key, Hosted>>,
    addresses: Mutex<Addresses>,
    pub(crate) queue: Queue<Key>,
}

/// The state that the kubelet keeps for a pod, as a pod worker does.
struct Hosted {
    machine: Machine,
    /// The last written status.
    written: Option<Value>,
    /// When the termination of the pod started.
    ending: Option<Instant>,
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
            recorder: recorder.of("kubelet"),
            pace,
            logs,
            machines: Mutex::default(),
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
        if change.new.is_some_and(|node| serves(node)) != change.old.is_some_and(|node| serves(node)) {
            for pod in self.pods.indexed(&format!("node/{}", change.latest().metadata.name)) {
                self.queue.add(pod.metadata.key());
            }
        }
    }

    pub(crate) async fn reconcile(&self, key: Key) -> Result<Option<Instant>, Error> {
        let pod = self.pods.get(&key).filter(|pod| !pod.spec.node_name.is_empty());
        let held = self.machines().remove(&key);
        let Some(pod) = pod else {
            self.addresses().release(&key);
            return Ok(None);
        };
        let node = self.nodes.get(&Key::new("", &*pod.spec.node_name)).filter(|node| serves(node));
        let mut held = held.filter(|held| held.machine.uid == pod.metadata.uid);
        let Some(node) = node else {
            // The node is disconnected: its pods keep their state.
            if let Some(held) = held {
                self.machines().insert(key, held);
            }
            return Ok(None);
        };
        if held.is_none() && pod.is_finished() && !pod.metadata.is_deleting() {
            return Ok(None);
        }
        let mut hosted = held.take().unwrap_or_else(|| self.host(&pod));
        let result = self.attend(&pod, &node, &mut hosted).await;
        self.machines().insert(key, hosted);
        result
    }

    /// Starts to manage a pod. The pod is new on the node, or was started before this process.
    fn host(&self, pod: &Pod) -> Hosted {
        let age = pod
            .status
            .start_time
            .and_then(|start| Duration::try_from(self.cluster.now().duration_since(start.0)).ok());
        let since = age.and_then(|age| Instant::now().checked_sub(age)).unwrap_or_else(Instant::now);
        Hosted { machine: Machine::new(pod, since, self.pace), written: None, ending: None }
    }

    async fn attend(
        &self,
        pod: &Arc<Pod>,
        node: &Node,
        hosted: &mut Hosted,
    ) -> Result<Option<Instant>, Error> {
        if pod.metadata.is_deleting() {
            return self.end(pod, node, hosted).await;
        }
        let now = self.now();
        hosted.machine.adapt(Behaviour::of(pod), now.instant);
        let wake = hosted.machine.advance(now.instant, self.head_is_ready(pod, &hosted.machine));
        self.tell(pod, node, hosted);
        self.write(pod, node, hosted, now).await?;
        if hosted.machine.is_over() {
            self.addresses().release(&pod.metadata.key());
        }
        Ok(wake)
    }

    async fn write(&self, pod: &Arc<Pod>, node: &Node, hosted: &mut Hosted, now: Now) -> Result<(), Error> {
        let place = self.place(pod, node, &hosted.machine, now.instant);
        let status = status::render(&mut hosted.machine, pod, &place, now);
        let ready = hosted.machine.conditions.iter().any(|c| c.kind == "Ready" && c.status == "True");
        if hosted.written.as_ref() == Some(&status) && pod.is_ready() == ready {
            return Ok(());
        }
        match self.cluster.patch_status(&self.pods, &pod.metadata, status.clone(), Guard::Uid).await {
            Ok(_) => {
                hosted.written = Some(status);
                Ok(())
            }
            // The pod is gone or was replaced. The watch will deliver that.
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Terminates the containers of a pod that is being deleted, then deletes the object.
    async fn end(&self, pod: &Arc<Pod>, node: &Node, hosted: &mut Hosted) -> Result<Option<Instant>, Error> {
        let now = self.now();
        let grace = u64::try_from(pod.metadata.deletion_grace_period_seconds.unwrap_or(30)).unwrap_or(0);
        let since = *hosted.ending.get_or_insert_with(|| {
            for process in hosted.machine.inits.iter().chain(&hosted.machine.apps) {
                if matches!(process.state, State::Running { .. }) {
                    let message = format!("Stopping container {}", process.name);
                    let recorder = self.recorder.on(&node.metadata.name);
                    let path = &process.field_path;
                    recorder.record(Pod::KIND, &pod.metadata, path, EventKind::Normal, "Killing", message);
                }
            }
            now.instant
        });
        let due = since + self.pace.scaled(Duration::from_secs(grace).min(LONGEST_END));
        if now.instant < due {
            return Ok(Some(due));
        }
        // A pod with finalizers stays after termination, and other controllers read its final status, for instance
        // the Job controller.
        if !pod.metadata.finalizers.is_empty() && !pod.is_finished() {
            hosted.machine.kill(now.instant, 143, "Error");
            hosted.machine.stop();
            self.write(pod, node, hosted, now).await?;
        }
        self.addresses().release(&pod.metadata.key());
        if pod.metadata.deletion_grace_period_seconds == Some(0) {
            return Ok(None);
        }
        self.cluster.delete(&self.pods, &pod.metadata, Delete { grace: Some(0), propagation: None }).await?;
        Ok(None)
    }

    fn tell(&self, pod: &Pod, node: &Node, hosted: &mut Hosted) {
        for (container, line) in hosted.machine.lines.drain(..) {
            if let Some(logs) = &self.logs {
                logs(&pod.metadata.uid, &container, &line);
            }
        }
        let recorder = self.recorder.on(&node.metadata.name);
        for note in hosted.machine.notes.drain(..) {
            recorder.record(Pod::KIND, &pod.metadata, &note.field_path, note.kind, note.reason, note.message);
        }
    }

    fn place(&self, pod: &Pod, node: &Node, machine: &Machine, now: Instant) -> Place {
        let host_ip = node.internal_ip().to_owned();
        let pod_ip = if now < machine.sandbox_at {
            String::new()
        } else if pod.spec.host_network {
            host_ip.clone()
        } else if pod.status.pod_ip.is_empty() {
            let assigned =
                self.addresses().assign(&pod.metadata.key(), &node.metadata.name, &node.spec.pod_cidr);
            assigned.map(|address| address.to_string()).unwrap_or_default()
        } else {
            let (name, range) = (&node.metadata.name, &node.spec.pod_cidr);
            self.addresses().keep(&pod.metadata.key(), name, range, &pod.status.pod_ip);
            pod.status.pod_ip.clone()
        };
        Place { pod_ip, host_ip }
    }

    /// Whether the head of the pod's Ray cluster is ready. True for pods that do not wait for a head.
    fn head_is_ready(&self, pod: &Pod, machine: &Machine) -> bool {
        if !machine.inits.iter().any(|init| init.name == GCS_WAIT) {
            return true;
        }
        let Some(cluster) = pod.metadata.label("ray.io/cluster") else { return true };
        let pods = self.pods.indexed(&format!("ray/{}/{cluster}", pod.metadata.namespace));
        pods.iter().any(|other| other.metadata.label("ray.io/node-type") == Some("head") && other.is_ready())
    }

    fn now(&self) -> Now {
        Now { instant: Instant::now(), timestamp: self.cluster.now() }
    }

    fn machines(&self) -> MutexGuard<'_, BTreeMap<Key, Hosted>> {
        self.machines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn addresses(&self) -> MutexGuard<'_, Addresses> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the node is simulated and connected.
fn serves(node: &Node) -> bool {
    nodes::is_ours(node) && !nodes::is_lost(node)
}
