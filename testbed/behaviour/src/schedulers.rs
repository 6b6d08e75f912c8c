//! Compares the simulated scheduler with kube-scheduler by random pods.
//!
//! A case ([`case`]) has nodes and pods on them, which both clusters get. Then [`pods`] that have no node are created in both, one after the other
//! ([`run`]). Both schedulers must bind the pod, or give the same reason and the same message. If they bind it to different nodes, each
//! must accept the node of the other one.

pub mod case;
pub mod pods;
pub mod run;
