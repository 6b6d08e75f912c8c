//! The index: folds watch events into the [`model::World`] that the planner reads.
//!
//! The only crate that converts API types to types of `model`. It also keeps what the controller needs for a single
//! AppWrapper: its status, its objects and its pods. It sends no requests; `controllers` watches and writes.
//!
//! - `index`: one method for each watch event, and the queries of the controller;
//! - `wrapper`, `phase`, `spec_summary`: an AppWrapper, its state in this process, and what is kept of its spec;
//! - `reserved_quota`: what an admitted gang is charged, whatever its labels and spec say later;
//! - `reserved_places`: the record of the places of an admitted gang;
//! - `objects`, `pods`, `kinds`: the objects of AppWrappers, the pods of the cluster, and the kinds of the objects;
//! - `selectors`: the selectors of rules between pods, and the label sets that they select;
//! - `mutators`, `dry_run`: by what admission changes pods, and how this is found out;
//! - `volumes`: the nodes on which pods can use their claims;
//! - `wire`: API objects with only the fields that decisions read;
//! - `kueue`: Kueue's queues and Workloads;
//! - `translate`: API types to types of `model`.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};

mod dry_run;
mod index;
mod kinds;
mod kueue;
mod mutators;
mod objects;
mod phase;
mod pods;
mod reserved_places;
mod reserved_quota;
mod selectors;
mod similar;
mod spec_summary;
mod translate;
mod volumes;
pub mod wire;
mod wrapper;

pub use dry_run::{DryRun, DryRunAnswer, TemplateId};
pub use index::{
    AppliedPlan, CachedPods, DryRunOutcome, GangPod, Index, MissingPods, OrphanOwner, Overrun,
    ReferencedChange, ReferencedKind, References, TroubledPods, Ungating, UnschedulablePods,
};
pub use kinds::{Kind, KindState};
pub use kueue::{
    Activity, Blocker, BlockerKind, Eviction, FailedNodeRules, FlavorFigures, KueueChange, KueueKind,
    KueueRules, LocalQueueFigures, Pending, QueueFigures, QueueKey, QuotaNodes, UsageRules, WORKLOADS,
    WorkloadPhase, WorkloadRow,
};
pub use mutators::MutatorChange;
pub use objects::{ObjectKey, ObjectRow};
pub use phase::{Phase, Preemptor, StopReason};
pub use pods::{PodPhase, PodRow};
pub use reserved_places::ReservedPlaces;
pub use spec_summary::{ItemSummary, SpecSummary};
pub use translate::{assignment_from_json, assignment_to_json};
pub use wrapper::{Wrapper, WrapperKey, is_newer};

/// Removes an element of a set in a map, and the set with its last element.
pub fn remove_from<K, Q, E, F>(map: &mut BTreeMap<K, BTreeSet<E>>, key: &Q, element: &F)
where
    K: Ord + Borrow<Q>,
    Q: Ord + ?Sized,
    E: Ord + Borrow<F>,
    F: Ord + ?Sized,
{
    if let Some(set) = map.get_mut(key) {
        set.remove(element);
        if set.is_empty() {
            map.remove(key);
        }
    }
}
