//! A cluster's components, simulated over any Kubernetes API server: nodes, scheduler, kubelet, the controllers of Jobs,
//! Deployments, `ReplicaSets` and `StatefulSets`, and a stand-in for the KubeRay operator.
//!
//! Nothing is executed: pods pass through the states that real ones pass through, and take the time that real ones take,
//! divided by a speed. It talks to the API server through a [`kube::Client`] alone, so the same code runs on the in-process
//! server and on a real control plane that lacks these components.
//!
//! # What annotations ask for
//!
//! On a pod, or on the template it is made from; on a RayJob for the job itself:
//!
//! | annotation | effect |
//! |---|---|
//! | `sandbox.muster.dev/run-time: 5m` | containers exit with 0 after that time, divided by the speed. Without it pods that are not restarted always run 60 s, others for ever |
//! | `sandbox.muster.dev/fail: exit=3` | the first container exits with that code at the end of its run time, or after 5 s |
//! | `… oom` | the same, killed for its memory (137, `OOMKilled`) |
//! | `… crash-loop` | it exits with 1 a second after every start |
//! | `… init` | the first init container exits with 1 |
//! | `… image-pull` | its image is never found |
//! | `… never-ready` | it runs, but does not become ready |
//! | `… evict` | the node throws the pod out after 5 s |
//!
//! A fault takes `,after=10s`, `,container=NAME`, `,times=N` (it strikes a container that often) and `,index=I` (only that
//! index of an indexed Job). Set on a pod that runs, it strikes at once. What is not understood has no effect and is told in
//! an Event. On a node, `sandbox.muster.dev/lost: "true"` cuts it off: heartbeats stop, after 40 s it is unreachable, its pods
//! are evicted when their tolerations end and removed, as if a cloud provider had confirmed its death. Without the
//! annotation it comes back.
//!
//! # What is not simulated
//!
//! Images, Secrets, `ConfigMap`s and volumes are not resolved; probes and hooks are not called; the scheduler does not
//! preempt; there is no network. Logs hold what the kubelet knows of a container: when it began and how it ended. Pods end
//! within their grace period, at most one second, which the speed divides too. Deadlines are divided as well, but never fall
//! below five seconds.

mod cluster;
mod kubelet;
mod nodes;
mod pace;
mod ray;
mod sandbox;
mod scheduler;
mod selector;
mod wire;
mod workloads;

use std::sync::Arc;

use jiff::Timestamp;

pub use nodes::{NodeError, NodeGroup, nodes_from_manifests};
pub use sandbox::{Config, Sandbox, StartError};
pub use wire::{Quantity, QuantityError};

/// Takes text that a container has written: uid of the pod, name of the container, lines.
///
/// The API has no call by which a node hands its logs in; a server within the process has one.
pub type LogSink = Arc<dyn Fn(&str, &str, &str) + Send + Sync>;

/// Tells the time that stamps show.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;
