//! The controller: watches a cluster, asks the planner for a plan, and carries the plan out.
//!
//! One loop applies all watch events to the [`index`], asks the planner for a [`model::Plan`], and starts one step
//! for each AppWrapper that changed. A bounded number of steps writes at the same time; each outcome returns to the
//! loop as an observation. [`step`] is a pure function that decides the next step of one AppWrapper; [`execute`]
//! performs the step. The controller does not poll. All its state can be rebuilt from the API server.
//!
//! Modules:
//!
//! - `controller`: the loop and its state
//! - `observations`, `watches`, `watched`: what the loop receives, and the watches that report it
//! - `json_depth`: the field of an object that is nested too deeply
//! - `jobs`: the jobs of Kueue's API, in a loop of their own
//! - `provisioning`: the admission check that asks for nodes, in a loop of its own
//! - `work_queue`: the items of these two loops
//! - `discovery`, `crds`: which resource serves a kind; installation of the custom resource definitions
//! - `step`, `execute`: decides the next step of an AppWrapper; performs it
//! - `api_calls`, `backoff`, `error`, `forbidden`: single requests, retries, and why a request failed
//! - `events`: Kubernetes Events
//! - `meter`, `traces`: Muster's metrics; traces for OpenTelemetry
//! - `lease`, `leadership`: leader election: keeps the lease; until when the leader may write
//! - `dry_run`: the objects of an AppWrapper in a dry run, for `muster plan`
//! - `owners`, `release`: the owners of a gated pod; removal of all scheduling gates when Muster is given up
//! - `config`, `published_config`, `overruns`: the configuration, and its copy in a `ConfigMap`; the overruns in it

mod api_calls;
mod backoff;
mod config;
mod controller;
mod crds;
mod discovery;
mod dry_run;
mod error;
mod events;
mod execute;
mod forbidden;
mod jobs;
mod json_depth;
mod kueue;
mod leadership;
mod lease;
mod meter;
mod observations;
mod overruns;
mod owners;
mod provisioning;
mod published_config;
mod release;
mod step;
mod traces;
mod watch_failures;
mod watched;
mod watches;
mod work_queue;

pub use api_calls::ResourcePath;
pub use config::{Clock, Config, Inspect, Kueue, KueueOptions, PodsReady};
pub use controller::{
    Controller, GangKind, GangObject, GangReport, NewGang, NodeAmounts, NodeReport, Observer, Page,
    PendingWorkload, QuotaGroup, Reported, Reports, Unplanned, WorkloadPlaces, WorkloadQueue, WorkloadReport,
    WorkloadReportPhase, WrapperPhase, WrapperReport, workload_named,
};
pub use crds::{install_crds, install_kueue_crds, install_provisioning_crd, install_quota_crd};
pub use dry_run::refused_object;
pub use error::{Error, describe as describe_error};
pub use events::{Recorder, Subject};
pub use forbidden::ForbiddenRequest;
pub use index::{FailedNodeRules, KueueRules, UsageRules};
pub use jobs::{BlockedJob, JobsConfig, workload_problem};
pub use kueue::metrics::{KueueMetrics, MetricsConfig};
pub use kueue::write::without_finalizer;
pub use leadership::{Leadership, Shutdown};
pub use lease::{LeaderElectionConfig, LeaseKeeper};
pub use meter::{METRICS, Meter, Metric, MetricType, Metrics, Role};
pub use model::{FairSharing, GangStatus, Packing, PendingStatus, PodsPerNode, TopologyPolicy};
pub use provisioning::ProvisioningConfig;
pub use published_config::{publish_config, publish_kueue_options, published_config};
pub use release::{Release, Released, lease_holder, live_lease_holder, release, release_finalizers};
pub use watched::{Watched, Whole};
pub use watches::api_resource;
pub use work_queue::WorkQueue;
