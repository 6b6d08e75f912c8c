//! apiserver.

pub mod patch;
pub mod typeinfo;
