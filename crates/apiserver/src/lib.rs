//! apiserver.

pub mod typeinfo;
