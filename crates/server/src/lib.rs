//! The HTTPS endpoint of the controller: an aggregated API server for the group `visibility.muster.dev`, and a
//! validating webhook for AppWrappers.
//!
//! The Kubernetes API server authenticates and authorizes each request, then forwards it here. So a tenant needs no
//! permission but the one for the resource in the own namespace, and the controller answers from its own state
//! instead of reading the cluster again.
//!
//! - `visibility`: the resources of the group
//! - `admission`: the validating webhook for AppWrappers
//! - `report`: a report about one AppWrapper, as text and as JSON
//! - `listener`: accepts connections of the API server
//! - `front_proxy`: which client certificates the API server has
//! - `certificate`: the serving certificate
//! - `registration`: the objects through which the API server finds the endpoint

pub mod admission;
mod certificate;
mod front_proxy;
mod listener;
mod registration;
mod report;
pub mod visibility;

pub use listener::{BoundEndpoint, Endpoint, EndpointError};
pub use registration::remove_webhook;
pub use report::{Mode, Report};
