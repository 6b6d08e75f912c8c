//! How simulated components see and change a cluster: caches fed by watches, work queues, guarded writes, Events.
//!
//! Every component is level-triggered: a change puts a key into a [`Queue`], a reconciler looks at the caches, decides
//! and writes. Caches show a component its own writes at once ([`Store::absorb`]), so nothing is done twice.

mod client;
mod difference;
mod events;
mod kinds;
mod queue;
mod reflector;
mod store;

pub(crate) use client::{Cluster, Delete, Error, Guard};
pub(crate) use difference::difference;
pub(crate) use events::{EventKind, Recorder};
pub(crate) use kinds::{Kind, Resource};
pub(crate) use queue::{Controller, Queue, drive};
pub(crate) use reflector::reflect;
pub(crate) use store::{Change, Store};
