//! One kubelet for all simulated nodes: it starts, runs, fails and terminates pods.
//!
//! Containers are not executed. Images are not pulled. Secrets, `ConfigMaps` and volumes are not resolved. Probes and
//! hooks are not called. The module `behaviour` defines what containers do instead.

mod address;
mod behaviour;
mod pod_state;
mod process;
mod run;
mod status;

pub(crate) use behaviour::{FAIL, RUN_TIME, run_time};
pub(crate) use run::Kubelet;
