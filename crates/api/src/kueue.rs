//! Kueue's API.
//!
//! - [`config`]: the configuration file of the controller;
//! - [`feature_gates`]: Kueue's feature gates.

pub mod config;
pub mod feature_gates;
