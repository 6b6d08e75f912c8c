//! Folds what the API server shows into the world that is planned on.
//!
//! The only place where wire types become nouns of `model`. Holds beside the world what decisions about single wrappers
//! need: their status, the objects that exist for them, their pods. Neither watches nor writes: `controllers` does.

mod index;
mod kinds;
mod objects;
mod phase;
mod pods;
mod spec_summary;
mod translate;
pub mod wire;
mod wrapper;

pub use index::{Accepted, Evidence, Index, Ungating, UnschedulablePods};
pub use kinds::{Kind, KindState};
pub use objects::{ObjectKey, ObjectRow};
pub use phase::{Phase, Preemptor, Stop};
pub use pods::{PodPhase, PodRow};
pub use spec_summary::{ItemSummary, SpecSummary};
pub use translate::{assignment_from_json, assignment_to_json};
pub use wrapper::{Wrapper, WrapperKey};
