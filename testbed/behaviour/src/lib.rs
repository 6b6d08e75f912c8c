//! End-to-end tests of AppWrappers that run on any cluster.
//!
//! A case ([`cases`]) adds nodes, creates objects and waits for their expected state. It uses only a Kubernetes client
//! ([`fixture`]). An [`Environment`] describes the cluster and the controller under test. On the sandbox in memory
//! (`cargo test -p behaviour`), time is virtual and every plan is audited. On the cluster of a kubeconfig (`cargo run -p
//! behaviour`), the other controllers are real, and the controller under test is a process ([`process`]) with the permissions of
//! `deploy/rbac.yaml` ([`rbac`]). Faults can be injected on both ([`faults`], [`proxy`], [`balancer`]). A case does not depend on the
//! environment.
//!
//! Further commands, which no test runs:
//! - [`installation`] installs the Helm chart, uses it, upgrades it and uninstalls it.
//! - [`scale`] measures the controller with thousands of AppWrappers.
//! - [`pod_rules_oracle`] plays random gangs with rules between pods, and judges what starts and what waits.
//! - [`samples`] compares the real KubeRay operator with the simulated one on the samples of KubeRay.
//! - [`schedulers`] compares the simulated scheduler with kube-scheduler by random pods.
//!
//! [`webhook`] injects a sidecar into pods. [`oracle`] compares the statuses and objects of AppWrappers under Muster with recordings of MCAD.

pub mod balancer;
pub mod cases;
pub mod environment;
pub mod faults;
pub mod fixture;
pub mod installation;
pub mod objects;
pub mod oracle;
pub mod pod_rules_oracle;
pub mod process;
pub mod proxy;
pub mod rbac;
pub mod samples;
pub mod scale;
pub mod schedulers;
pub mod webhook;

pub use cases::{Case, all};
pub use environment::{Controller, Environment, Flags, LeaderElection, Review};
pub use faults::{Fault, FaultInjector};
pub use fixture::Fixture;
