//! Custom resources and the objects they wrap, as they are on the wire.
//!
//! Holds what a client writes and reads: names of fields, defaults, leniency, custom resource definitions, the pods that an
//! object will ask for, and the order in which a status passes through its states. Everything here is a plain function of
//! its arguments. Watching belongs to `controllers`, turning wire types into decisions to `index` and `planner`.

pub mod amounts;
pub mod annotations;
pub mod appwrapper;
pub mod demand;
pub mod meta;
pub mod pod;
pub mod quantity;
pub mod quota;
pub mod scheduling_gate;
pub mod time;
pub mod validate;

mod value;

pub use amounts::Amounts;
pub use annotations::GangAnnotations;
pub use meta::{Meta, OwnerReference};
pub use time::MicroTime;
