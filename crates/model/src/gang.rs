//! Gangs, their pod sets and assignments, and pods.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use crate::amount::{Amount, Time};
use crate::constraints::Constraints;
use crate::device::{DeviceShare, FreeResources};
use crate::plan::Preemption;
use crate::quota::{FlavorIx, QuotaIx};
use crate::resources::{ResourceIx, ResourceMask, ResourceVec};
use crate::scale_up::ScaleUp;
use crate::topology::TopologyRequest;
use crate::usage::LocalQueueIx;
use crate::world::QueueIx;

/// The name of a node. Assignments use names, so that they stay valid when a node is deleted and returns.
pub type NodeName = String;

/// Identical pods of one gang. It corresponds to Kueue's `PodSet`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodSet {
    /// The name, such as `head` or `worker`; unique in its gang.
    pub name: String,
    /// The number of pods.
    pub count: u32,
    /// The fewest pods with which the gang may start when not all of them fit; at least one. After Kueue's
    /// `minCount`.
    pub min_count: Option<u32>,
    /// The request of one pod, including one of `pods`.
    pub request: ResourceVec,
    /// The share of one device that a pod requests in addition. `request` then holds no device of this resource.
    pub share: Option<DeviceShare>,
    /// The scheduling constraints of the pods.
    pub constraints: Constraints,
    /// Pod sets of a gang with the same group name get the same flavors. Those with a topology request are a leader
    /// of one pod and its workers. They go to the same domain, and the request of the workers applies to both. After
    /// Kueue's `podSetGroupName`.
    pub group: Option<String>,
    /// The topology request, if there is one.
    pub topology: Option<TopologyRequest>,
}

impl PodSet {
    /// The request of all pods, saturating. Device shares count as the whole devices that they add up to, rounded up.
    pub fn total(&self) -> ResourceVec {
        let mut total = self.request.times(self.count);
        if let Some(share) = self.share {
            let devices = (u64::from(share.milli()) * u64::from(self.count)).div_ceil(1000);
            let devices = i64::try_from(devices).unwrap_or(i64::MAX);
            total.add(&ResourceVec::new().with(share.device(), devices));
        }
        total
    }

    /// The request of all pods for one resource, in base units; see [`Self::total`].
    pub fn requested(&self, resource: ResourceIx) -> i128 {
        let whole = i128::from(self.request.get(resource).0) * i128::from(self.count);
        let share = self.share.filter(|share| share.device() == resource);
        let shared =
            share.map_or(0, |share| (i128::from(share.milli()) * i128::from(self.count) + 999) / 1000);
        whole + shared
    }

    /// The resources that a pod requests.
    pub fn mask(&self) -> ResourceMask {
        let mask = self.request.mask();
        self.share.map_or(mask, |share| mask.with(share.device()))
    }

    /// Whether one pod fits.
    pub fn fits_in(&self, free: &FreeResources) -> bool {
        self.request.fits_in(&free.amounts) && self.share.is_none_or(|share| free.shares_in(share, 1) == 1)
    }

    /// The number of pods that fit; at most `most`.
    pub fn copies_in(&self, free: &FreeResources, most: u32) -> u32 {
        let copies = self.request.copies_in(&free.amounts, most);
        self.share.map_or(copies, |share| free.shares_in(share, copies))
    }
}

/// The name of a gang. Its order breaks ties.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GangKey {
    /// The full resource name of its kind, such as `appwrappers.mcad.ibm.com`.
    pub kind: String,
    /// The namespace.
    pub namespace: String,
    /// The name within kind and namespace.
    pub name: String,
}

impl fmt::Display for GangKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

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
    /// These charges use the flavor [`FlavorIx::ANY`].
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
    /// The number of pods of each pod set that have succeeded and released their capacity. Missing entries count as
    /// 0. When the gang is pending again, its pod sets shrink by these counts. After Kueue's `reclaimablePods`.
    pub reclaimable: Vec<u32>,
    /// Nodes that its pods must not use: pods failed there, or were bound there against the plan.
    pub excluded: Arc<BTreeSet<NodeName>>,
    /// A running gang gets more pods when its pod sets are larger than its assignment.
    pub elastic: bool,
    /// Nodes that failed while the gang ran. Its pods there get replacements on other nodes, its other pods stay. A
    /// node stays in the set until no pod of the gang is left on it. After Kueue's `status.unhealthyNodes`.
    pub unhealthy: Arc<BTreeSet<NodeName>>,
}

impl Gang {
    /// The part of the gang that decides whether it fits.
    pub fn shape(&self) -> Shape {
        let Self { pod_sets, declared, excluded, .. } = self;
        Shape {
            pod_sets: pod_sets.clone(),
            declared: declared.clone(),
            excluded: excluded.clone(),
            scale_up: None,
        }
    }

    /// The assignment that the gang still holds, and the shape of these pods. `None` without a known assignment. Pods
    /// that succeeded and pods removed by a scale-down release their places, highest rank first.
    pub fn held(&self) -> Option<(Shape, Cow<'_, Assignment>)> {
        let mut assignment = Cow::Borrowed(self.state.assignment()?);
        for (at, pod_set) in self.pod_sets.iter().enumerate() {
            let mut left = self.pods_left(at, pod_set);
            if assignment.placed(at) <= u64::from(left) {
                continue;
            }
            let places = assignment.to_mut().pod_sets.get_mut(at).into_iter().flatten();
            for (_, count) in places {
                *count = left.min(*count);
                left -= *count;
            }
            assignment.to_mut().pod_sets[at].retain(|(_, count)| *count > 0);
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

/// The nodes, flavors and devices of all pods of a gang.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Assignment {
    /// For each pod set of the gang: the number of pods per node, in rank order. Ranks follow topology domains when
    /// the pod set has a topology request, then node names. Pods of a scale-up come last; replacements take the rank
    /// of the pod they replace.
    pub pod_sets: Vec<Vec<(NodeName, u32)>>,
    /// For each pod set of the gang: the flavor of each requested resource that the queue declares. The first pod set
    /// also holds the flavors of resources that are declared without any pod. Empty when the queue declares none.
    pub flavors: Vec<BTreeMap<ResourceIx, FlavorIx>>,
    /// For each pod set of the gang whose pods share devices: node, device number and number of pods, sorted. Empty
    /// when no pod shares a device. The device of pods that are not counted here is unknown.
    pub devices: Vec<Vec<(NodeName, u32, u32)>>,
}

impl Assignment {
    /// The number of pods of a pod set that have a node.
    pub fn placed(&self, pod_set: usize) -> u64 {
        self.pod_sets.get(pod_set).into_iter().flatten().map(|(_, count)| u64::from(*count)).sum()
    }

    /// The names of all assigned nodes; a name may occur more than once.
    pub fn nodes(&self) -> impl Iterator<Item = &str> {
        self.pod_sets.iter().flatten().map(|(node, _)| node.as_str())
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
    /// The uid of its gang and the index of its pod set.
    pub gang: Option<(String, usize)>,
}

/// The part of a gang that decides whether it fits. Gangs of one shape get the same verdict.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shape {
    /// See [`Gang::pod_sets`].
    pub pod_sets: Arc<[PodSet]>,
    /// See [`Gang::declared`].
    pub declared: Option<ResourceVec>,
    /// See [`Gang::excluded`].
    pub excluded: Arc<BTreeSet<NodeName>>,
    /// The scale-up of a running gang; `None` for a gang that starts.
    pub scale_up: Option<Arc<ScaleUp>>,
}

impl Shape {
    /// The shape with these pod counts.
    #[must_use]
    pub fn with_counts(&self, counts: impl IntoIterator<Item = u32>) -> Self {
        let sets = self.pod_sets.iter().zip(counts);
        let pod_sets = sets.map(|(pod_set, count)| PodSet { count, ..pod_set.clone() }).collect();
        Self { pod_sets, ..self.clone() }
    }

    /// The shape with the pod counts of the assignment.
    pub fn placed(&self, assignment: &Assignment) -> Cow<'_, Self> {
        let placed = |at: usize| u32::try_from(assignment.placed(at)).unwrap_or(u32::MAX);
        self.resized((0..self.pod_sets.len()).map(placed).collect())
    }

    /// The shape with the fewest pods with which the gang may start.
    pub fn with_min_counts(&self) -> Cow<'_, Self> {
        self.resized(self.min_counts())
    }

    fn resized(&self, counts: Vec<u32>) -> Cow<'_, Self> {
        if self.pod_sets.iter().zip(&counts).all(|(pod_set, count)| pod_set.count == *count) {
            return Cow::Borrowed(self);
        }
        Cow::Owned(self.with_counts(counts))
    }

    /// For each pod set, the fewest pods with which the gang may start, rounded up to whole slices.
    pub fn min_counts(&self) -> Vec<u32> {
        let least = |pod_set: &PodSet| {
            let slice = pod_set.topology.as_ref().and_then(|request| request.slices.first());
            let size = slice.map_or(1, |slice| slice.size.max(1));
            let least = pod_set.min_count.unwrap_or(pod_set.count).max(1);
            least.div_ceil(size).saturating_mul(size).min(pod_set.count)
        };
        self.pod_sets.iter().map(least).collect()
    }

    /// The request of all pods, saturating.
    pub fn total(&self) -> ResourceVec {
        let mut total = ResourceVec::new();
        for pod_set in &*self.pod_sets {
            total.add(&pod_set.total());
        }
        total
    }

    /// The part of the declared resources that exceeds the pod sets. It is reserved as an aggregate over the eligible
    /// nodes. A declared amount of [`Amount::MAX`] stays [`Amount::MAX`].
    pub fn declared_excess(&self) -> ResourceVec {
        let Some(declared) = &self.declared else { return ResourceVec::new() };
        let mut excess = declared.clone();
        excess.sub(&self.total());
        for (ix, _) in declared.iter().filter(|(_, amount)| *amount == Amount::MAX) {
            excess.set(ix, Amount::MAX);
        }
        excess.positive()
    }

    /// The resources that the gang is charged: the larger of the total of its pods and the declared amount, per
    /// resource.
    pub fn effective_request(&self) -> ResourceVec {
        let mut request = self.total();
        if let Some(declared) = &self.declared {
            request.raise_to(declared);
        }
        request
    }

    /// Whether a pod requests a share of a device.
    pub fn shares_devices(&self) -> bool {
        self.pod_sets.iter().any(|pod_set| pod_set.share.is_some())
    }

    /// The resources that a pod requests or that are declared.
    pub fn mask(&self) -> ResourceMask {
        self.effective_request().mask()
    }

    /// The distinct constraints of all pod sets that have pods, sorted. A node is eligible for the aggregate
    /// reservation when it satisfies one of them. Empty when the gang has no pods: every open node is eligible.
    pub fn eligible_constraints(&self) -> Vec<Constraints> {
        let sets = self.pod_sets.iter().filter(|pod_set| pod_set.count > 0);
        let mut alternatives: Vec<_> = sets.map(|pod_set| pod_set.constraints.clone()).collect();
        alternatives.sort();
        alternatives.dedup();
        alternatives
    }
}
