//! Gangs and pods.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::amount::Time;
use crate::assignment::{Assignment, NodeName};
use crate::device::DeviceShare;
use crate::gang_key::GangKey;
use crate::plan::Preemption;
use crate::pod_rules::PodRules;
use crate::pod_set::PodSet;
use crate::queue::QueueIx;
use crate::quota::{FlavorIx, QuotaIx};
use crate::resources::{ResourceIx, ResourceVec};
use crate::shape::Shape;
use crate::usage::LocalQueueIx;

/// The unit of queueing: a workload whose pods are all admitted together, or not at all.
///
/// An event carries the complete state of a gang. A gang that is admitted must be upserted as
/// [`GangState::Reserved`], even before the admission is written to the API server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gang {
    /// The name.
    pub key: GangKey,
    /// The uid. A new object of the same name is another gang.
    pub uid: String,
    /// The queue that orders the gang and may charge it to a quota node.
    pub queue: QueueIx,
    /// The local queue that the gang was submitted to. It influences the order when the queue has an admission fair
    /// sharing rule.
    pub local_queue: LocalQueueIx,
    /// Further quota nodes that the gang is charged to, each in a tree of its own; the gang must fit in all of them.
    /// These charges use the flavor [`FlavorIx::ANY`](crate::FlavorIx::ANY).
    pub charges: Arc<[QuotaIx]>,
    /// The priority in thousandths; higher goes first.
    pub priority: i64,
    /// How much the priority for ordering increases while the gang is pending, in millionths of a priority per
    /// second: MCAD's `priorityslope`. It influences the queue order only. Preemption uses `priority`.
    pub slope: i64,
    /// The time since which the gang is pending. Among gangs of equal priority the earlier goes first, then the
    /// smaller key. The caller follows the rules of its API: the creation time, or the time of an eviction that
    /// requeues the gang behind others (after Kueue's `requeuingStrategy`).
    pub queued_at: Time,
    /// The pod sets, inferred from the wrapped objects; or declared pod sets when nothing can be inferred.
    pub pod_sets: Arc<[PodSet]>,
    /// Resources that the author declared for all pods together. The gang is charged the larger of this and the total
    /// of the pod sets, per resource. The excess over the pod sets is reserved as an aggregate over the eligible
    /// nodes.
    pub declared: Option<ResourceVec>,
    /// Whether the gang is pending or holds capacity.
    pub state: GangState,
    /// The time when it was dispatched.
    pub started_at: Option<Time>,
    /// The expected run time in microseconds.
    pub runs_us: Option<i64>,
    /// The time of the last checkpoint from which the gang can continue after preemption. `None`: it restarts from
    /// its beginning.
    pub checkpointed_at: Option<Time>,
    /// The gang is never preempted.
    pub protected: bool,
    /// The gang preempts no other gang while its gates are closed. After Kueue's `preemptionGates`.
    pub gated: bool,
    /// The number of pods of each pod set that have succeeded and released their capacity. Missing entries count as
    /// 0. When the gang is pending again, its pod sets shrink by these counts. After Kueue's `reclaimablePods`.
    pub reclaimable: Vec<u32>,
    /// Nodes that its pods must not use: pods failed there, or were bound there against the plan.
    pub excluded: Arc<BTreeSet<NodeName>>,
    /// A running gang gets more pods when its pod sets are larger than its assignment.
    pub elastic: bool,
    /// The running gang that this one takes the place of when it is admitted.
    pub replaces: Option<Arc<Replaced>>,
    /// When its pods get nodes.
    pub places: Places,
    /// Nodes that failed while the gang ran. Its pods there get replacements on other nodes, its other pods stay. A
    /// node stays in the set until no pod of the gang is left on it. After Kueue's `status.unhealthyNodes`.
    pub unhealthy: Arc<BTreeSet<NodeName>>,
}

impl Gang {
    /// The part of the gang that decides whether it fits.
    pub fn shape(&self) -> Shape {
        let Self { pod_sets, declared, excluded, gated, replaces, .. } = self;
        Shape {
            pod_sets: pod_sets.clone(),
            declared: declared.clone(),
            excluded: excluded.clone(),
            places_open: self.places == Places::Open,
            gated: *gated,
            replaces: replaces.clone(),
            scale_up: None,
        }
    }

    /// The assignment that the gang still holds, and the shape of these pods. `None` without a known assignment. Pods
    /// that succeeded and pods removed by a scale-down release their places, highest rank first.
    pub fn held(&self) -> Option<(Shape, Cow<'_, Assignment>)> {
        let mut assignment = Cow::Borrowed(self.state.assignment()?);
        for (at, pod_set) in self.pod_sets.iter().enumerate() {
            let mut left = self.pods_left(at, pod_set);
            if assignment.count(at) <= u64::from(left) {
                continue;
            }
            let assignment = assignment.to_mut();
            for (_, count) in assignment.pod_sets.get_mut(at).into_iter().flatten() {
                *count = left.min(*count);
                left -= *count;
            }
            assignment.pod_sets[at].retain(|(_, count)| *count > 0);
            if let Some(unplaced) = assignment.unplaced.get_mut(at) {
                *unplaced = left.min(*unplaced);
            }
        }
        let shape = self.shape().placed(&assignment).into_owned();
        Some((shape, assignment))
    }

    /// The shape without the pods that have succeeded.
    pub fn remaining(&self) -> Shape {
        let sets = self.pod_sets.iter().enumerate();
        self.shape().with_counts(sets.map(|(at, set)| self.pods_left(at, set)))
    }

    /// The number of pods of a pod set that have not succeeded.
    pub(crate) fn pods_left(&self, at: usize, pod_set: &PodSet) -> u32 {
        pod_set.count.saturating_sub(self.reclaimable.get(at).copied().unwrap_or(0))
    }

    /// The expected end of a gang that holds capacity at `now`, and whether the run time was declared.
    ///
    /// A gang that exceeds its declared run time is expected to overrun by twice its current overrun. A gang without
    /// a declared run time is expected to run twice as long as so far. Both end at least one minute after `now`.
    pub fn expected_end(&self, now: Time) -> (Time, bool) {
        const LEAST_US: i64 = 60_000_000;
        let started = self.started_at.unwrap_or(now);
        match self.runs_us.map(|run| started.after(run)) {
            Some(end) if end > now => (end, true),
            Some(end) => (now.after(now.since(end).max(LEAST_US)), false),
            None => (now.after(now.since(started).max(LEAST_US)), false),
        }
    }
}

/// A running gang that another one takes the place of. The pod sets of the other one are the increase alone: what the running
/// gang holds counts as its own. After Kueue's workload slices.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Replaced {
    /// The uid of the running gang. It is not preempted for the increase.
    pub uid: String,
    /// Its flavors by pod set: the increase gets the same ones. A pod set without any may use all.
    pub flavors: Vec<BTreeMap<ResourceIx, FlavorIx>>,
}

/// When the pods of a gang get nodes, in flavors that have nodes.
///
/// A gang that waits for an admission check, or for nodes that are to be provisioned, reserves quota in flavors first
/// ([`Places::Open`]). Its second pass asks for the nodes alone and keeps the flavors ([`Places::Requested`]). After
/// Kueue's two-phase admission and its `delayedTopologyRequest`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Places {
    /// With the admission.
    #[default]
    AtAdmission,
    /// Not yet: the gang is admitted to quota and flavors alone.
    Open,
    /// Now: the pods of an admitted gang that have no node ask for one, all or none. Of a pending gang the same as
    /// [`Places::AtAdmission`].
    Requested,
}

/// Whether a gang is pending or holds capacity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum GangState {
    /// The gang is pending and holds nothing.
    #[default]
    Waiting,
    /// The gang is admitted and its capacity is reserved until it ends, whether its pods exist yet or not.
    Reserved(Assignment),
    /// The gang has an assignment that victims still occupy. It is admitted when they are gone.
    Nominated(Preemption),
    /// The gang was started by another controller. Its nodes are unknown, so its request is reserved as an aggregate.
    Unplaced,
}

impl GangState {
    /// Whether the gang holds capacity.
    pub fn holds(&self) -> bool {
        *self != Self::Waiting
    }

    /// The assignment, if it is known.
    pub fn assignment(&self) -> Option<&Assignment> {
        match self {
            Self::Reserved(assignment) | Self::Nominated(Preemption { assignment, .. }) => Some(assignment),
            Self::Waiting | Self::Unplaced => None,
        }
    }
}

/// A pod that has neither succeeded nor failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    /// The uid.
    pub uid: String,
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The node that the pod is bound to. An unbound pod is not charged.
    pub node: Option<NodeName>,
    /// The request, including one of `pods`.
    pub request: ResourceVec,
    /// The share of one device that the pod uses in addition.
    pub share: Option<DeviceShare>,
    /// The number of that device on the node, if it is known.
    pub device: Option<u32>,
    /// The rules between this pod and other pods; `None` when there are none.
    pub rules: Option<Arc<PodRules>>,
    /// The uid of its gang and the index of its pod set.
    pub gang: Option<(String, usize)>,
    /// It is being deleted. A place of its gang on another node is its successor's.
    pub is_leaving: bool,
}
