//! The HTTP servers of the controller.
//!
//! The endpoint: an aggregated API server for the group `visibility.muster.dev`, and a
//! validating webhook for AppWrappers.
//!
//! The Kubernetes API server authenticates and authorizes each request, then forwards it here. So a tenant needs no
//! permission but the one for the resource in the own namespace, and the controller answers from its own state
//! instead of reading the cluster again.
//!
//! - `visibility`: the resources of the group
//! - `pending_workloads`: Kueue's group `visibility.kueue.x-k8s.io`, which the endpoint serves, too
//! - `admission`: the validating webhook for AppWrappers
//! - `report`: a report about one AppWrapper, as text and as JSON
//! - `listener`: accepts connections of the API server, on every replica
//! - `serving`: the certificate of a replica and the clients that it accepts
//! - `front_proxy`: which client certificates the API server has
//! - `certificate`: a serving certificate and its authority
//! - `certificates`: those of all replicas, in a Secret, and their renewal
//! - `registrar`: keeps the certificates and the registration; the leader runs it
//! - `registration`: the objects through which the API server finds the endpoint
//!
//! Beside the endpoint:
//!
//! - [`kueue`]: Kueue's webhooks: conversion, defaults and validation
//! - `webhook_server`, `certificate_files`: their HTTPS server, with a certificate from a folder or a Secret
//! - `uninstall`: removes what is registered
//! - `probes`, `metrics`: probes of Kubernetes; metrics for Prometheus
//! - `connections`: TLS connections

pub mod admission;
mod certificate;
mod certificate_files;
mod certificates;
mod connections;
mod front_proxy;
pub mod kueue;
mod listener;
mod metrics;
pub mod pending_workloads;
mod probes;
mod registrar;
mod registration;
mod report;
mod serving;
mod uninstall;
pub mod visibility;
mod webhook_server;

pub use certificate_files::{CertificateFilesError, TlsOptions};
pub use certificates::Issuer;
pub use listener::{BoundEndpoint, Endpoint, EndpointError, Server, Webhook};
pub use metrics::{MetricsServer, MetricsServerError, metrics};
pub use probes::{Condition, Readiness, probes};
pub use registrar::Registrar;
pub use registration::{Planned, remove_webhook};
pub use report::{Mode, Report};
pub use uninstall::unregister;
pub use webhook_server::{Managed, WebhookNames, WebhookServer};
