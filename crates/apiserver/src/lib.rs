//! apiserver.

pub mod patch;
pub mod ssa;
pub mod typeinfo;
