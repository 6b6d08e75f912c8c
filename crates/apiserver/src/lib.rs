//! A Kubernetes API server in memory: a revisioned store, the rules of the API around it, and the HTTP face that
//! `kubectl`, client-go and kube-rs talk to.
//!
//! The heart, [`ApiServer`], is sans-IO: a request and the time go in, a response or a watch cursor comes out. It has no
//! clock, no task and no socket, and equal calls give equal answers. [`Service`] puts a lock, a clock and wake-ups
//! around it as a `tower::Service`; [`serve`] listens on a socket.
//!
//! What runs *on* a cluster (controllers of workloads, scheduler, kubelet) is left to others. What the API itself
//! promises is here: garbage collection, the life of namespaces, the establishing of custom resources.

mod bootstrap;
pub mod builtin;
mod convert;
mod crds;
mod delete;
mod discovery;
mod documents;
mod fields;
mod gc;
mod jsonpath;
mod list;
mod metadata;
mod names;
mod namespaces;
mod negotiate;
mod object;
pub mod openapi;
pub mod patch;
pub mod proto;
mod rbac;
mod registry;
mod request;
mod reviews;
mod rng;
pub mod schema;
mod selector;
mod serve;
mod server;
mod service;
mod show;
pub mod ssa;
mod status;
mod store;
mod strategy;
mod subresources;
mod table;
pub mod typeinfo;
mod user;
mod watch;
mod write;

pub use self::serve::{Tls, TlsError, kubeconfig, names_for, serve};
pub use self::server::{ApiServer, Config, Reply};
pub use self::service::{Body, Clock, Service};
pub use self::user::{Auth, User};
pub use self::watch::{Pull, Watch};
