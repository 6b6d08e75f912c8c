//! Random clusters and gangs with rules between pods: what Muster admits is bound completely by the real scheduler, on the
//! planned nodes, and what Muster refuses is compared with an exhaustive search.
//!
//! Many cases share one cluster. Their nodes, labels and topology keys are their own, so that no pod of one case counts in
//! another. A seed determines a case ([`case`]), `manifests` makes its objects, `run` plays it, and `search` judges what
//! was refused, with a scheduler of its own.

pub mod case;
pub mod manifests;
pub mod run;
pub mod search;

pub use run::{Options, run};
