//! Simulates the components of a cluster on top of any Kubernetes API server: nodes, scheduler, kubelet, the
//! controllers of Jobs, Deployments, `ReplicaSets`, `StatefulSets` and `DaemonSets`, the operators of KubeRay, `JobSet`,
//! `LeaderWorkerSet`, `MPIJob` and Kubeflow's training jobs, and a node autoscaler.
//!
//! Containers are not executed. Pods pass through the phases and conditions of real pods. Each transition takes as
//! long as in a real cluster, divided by the configured speed. All access goes through a [`kube::Client`], so the
//! same code runs against the in-process API server and against a real control plane without these components.
//!
//! # Annotations
//!
//! Set these annotations on a pod or on its pod template. On a RayJob they apply to the simulated job:
//!
//! | annotation | effect |
//! |---|---|
//! | `sandbox.muster.dev/run-time: 5m` | containers exit with 0 after this time, divided by the speed. Default: 60 s, or no end for pods with restart policy `Always` |
//! | `sandbox.muster.dev/fail: exit=3` | the first container exits with this code at the end of its run time, or after 5 s if it has none |
//! | `… oom` | as above, with exit code 137 and reason `OOMKilled` |
//! | `… crash-loop` | the first container exits with 1, one second after every start |
//! | `… init` | the first init container exits with 1 |
//! | `… image-pull` | the image pull fails |
//! | `… never-ready` | the container runs but never becomes ready |
//! | `… evict` | the kubelet evicts the pod after 5 s |
//!
//! Options of a fault: `,after=10s`, `,container=NAME`, `,times=N` (fails each container at most N times) and
//! `,index=I` (only this index of an indexed Job). A fault that is set on a running pod takes effect at once. An
//! annotation that cannot be parsed has no effect, and an Event reports it.
//!
//! The node annotation `sandbox.muster.dev/lost: "true"` disconnects a node: its heartbeats stop and after 40 s it is
//! unreachable. Its pods are evicted when their tolerations expire, and are then deleted as if the cloud provider had
//! confirmed the loss of the machine. Removing the annotation reconnects the node.
//!
//! # What is not simulated
//!
//! Images, Secrets and `ConfigMap`s are not resolved, and volumes are not mounted: claims are bound, and pods wait for them. Probes and hooks are not called. The scheduler does
//! not preempt. There is no network. Logs hold only what the kubelet knows: when a container started and how it
//! ended. Pods terminate within their grace period, at most one second, divided by the speed. Deadlines are divided
//! by the speed as well, but are never shorter than five seconds.

mod autoscaler;
mod cluster;
mod kubelet;
mod nodes;
mod operators;
mod pace;
mod ray;
mod sandbox;
mod scheduler;
mod selector;
mod storage;
mod wire;
mod workloads;

use std::sync::Arc;

use jiff::Timestamp;

pub use autoscaler::{NodePool, PoolError};
pub use nodes::{NodeError, NodeGroup, nodes_from_manifests};
pub use sandbox::{Config, Sandbox, StartError};
pub use wire::{Quantity, QuantityError};

/// Receives the log lines of a container: pod uid, container name, text.
///
/// The Kubernetes API has no request by which a kubelet uploads logs, so an in-process API server takes them from
/// here.
pub type LogSink = Arc<dyn Fn(&str, &str, &str) + Send + Sync>;

/// Returns the time for timestamps in objects.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;
