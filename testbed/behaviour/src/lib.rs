//! What users of AppWrappers rely on, as cases that are written once and run on any cluster.
//!
//! A case ([`cases`]) describes nodes, creates objects, and waits for what has to become of them, through nothing but a client
//! ([`scene`]). Where it runs is an [`Environment`]: on the sandbox in memory (`cargo test -p behaviour`, virtual time, every plan
//! audited), or on the cluster of a kubeconfig with real controllers (`cargo run -p behaviour`), where the controller is a
//! process of its own ([`process`]), with the rights that are deployed ([`rights`]). What can befall a cluster is played as well ([`faults`], [`link`]). What differs between them are values of the environment; no case asks where it runs.
//!
//! How it does with thousands of them is measured by a command of its own ([`scale`]); no test runs it.
//!
//! What KubeRay's operator and the simulated one make of KubeRay's samples is compared by a command as well ([`samples`]).
//!
//! What MCAD makes of the same AppWrappers is recorded, and compared with what Muster makes of them ([`oracle`]).

pub mod cases;
pub mod environment;
pub mod faults;
pub mod link;
pub mod objects;
pub mod oracle;
pub mod process;
pub mod rights;
pub mod samples;
pub mod scale;
pub mod scene;

pub use cases::{Case, all};
pub use environment::{Controller, Environment, Manner};
pub use faults::{Fault, Faults};
pub use scene::Scene;
