//! An in-memory Kubernetes API server: a revisioned store, API validation and defaulting, and an HTTP interface for
//! `kubectl`, client-go and kube-rs.
//!
//! [`ApiServer`] is sans-IO. Its input is a request and the current time; its output is a response or a watch cursor.
//! It has no clock, no task and no socket, and the same sequence of calls gives the same responses. [`Service`] wraps
//! it as a `tower::Service` with a lock, a clock and watch wake-ups. [`serve`] accepts connections on a socket.
//!
//! The crate runs the controllers that belong to the API itself: the garbage collector, the namespace controller, the
//! controller that establishes custom resource definitions, and the expiry of events. It does not run workload
//! controllers, a scheduler or a kubelet.

mod admission;
mod aggregation;
mod allocator;
mod bootstrap;
pub mod builtin;
mod convert;
mod converter;
mod crds;
mod delete;
mod discovery;
mod documents;
mod encode;
mod field_error;
mod fields;
mod gc;
mod handler;
mod jsonpath;
mod labels;
mod list;
mod list_options;
mod managed_fields;
mod metadata;
mod names;
mod namespaces;
mod negotiate;
mod object;
pub mod openapi;
mod page;
pub mod patch;
mod plugins;
pub mod proto;
mod quotas;
mod rbac;
mod registry;
mod request;
mod response;
mod reviews;
mod rng;
pub mod schema;
mod selector;
mod serve;
mod server;
mod service;
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

pub use self::admission::{Reviewing, ValidatingWebhook};
pub use self::aggregation::{AggregatedApi, AggregatedResource, Answering};
pub use self::converter::Converter;
pub use self::plugins::{AdmissionPlugin, Write};
pub use self::response::Reply;
pub use self::serve::{Tls, TlsError, kubeconfig, names_for, serve};
pub use self::server::{ApiServer, Config};
pub use self::service::{Body, CLUSTERS, Clock, Service};
pub use self::table::human as human_duration;
pub use self::user::{Auth, User};
pub use self::watch::{Pull, Watch};
