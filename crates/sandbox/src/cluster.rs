//! Access to the API server for all components: cached watches, work queues, guarded writes and Events.
//!
//! Every component is level-triggered. A change adds a key to a [`Queue`]; a reconciler reads the caches, decides and
//! writes. A component sees its own writes in the cache at once ([`Store::observe_write`]), so it does not repeat
//! them.

mod client;
mod definitions;
mod events;
mod kinds;
mod merge_patch;
mod queue;
mod reflector;
mod room;
mod store;

pub(crate) use client::{Cluster, Delete, Error, Precondition};
pub(crate) use definitions::install as install_definitions;
pub(crate) use events::{EventKind, Recorder};
pub(crate) use kinds::{Cached, Kind, Resource, labelled};
pub(crate) use merge_patch::merge_patch;
pub(crate) use queue::{Controller, Queue, run_controller};
pub(crate) use reflector::reflect;
pub(crate) use room::{Counted, Room};
pub(crate) use store::{Change, Store};
