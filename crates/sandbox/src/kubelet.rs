//! One kubelet for all simulated nodes: pods come up, become ready, run, end, fail on demand, and go.
//!
//! Nothing is executed and nothing is resolved: images are not pulled, Secrets, `ConfigMaps` and volumes are not looked up,
//! probes and hooks are not called. `behaviour` says what a pod does instead.

mod address;
mod behaviour;
mod machine;
mod process;
mod run;
mod status;

pub(crate) use behaviour::{FAIL, RUN_TIME, run_time};
pub(crate) use run::Kubelet;
