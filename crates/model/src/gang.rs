//! Gangs: workloads whose pods start together or not at all, and the pods themselves.

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

/// The name of a node. Assignments use names, so that they survive nodes that go and come back.
pub type NodeName = String;

/// Identical pods of one gang.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodSet {
    /// What people call it: `head`, `worker`; unique in its gang.
    pub name: String,
    /// How many pods.
    pub count: u32,
    /// With how few of them, one at least, the gang may start when there is no room for all.
    pub min_count: Option<u32>,
    /// What one pod takes from its node, `pods` included.
    pub request: ResourceVec,
    /// The part of one device that a pod takes beside; of that device the request then has none.
    pub share: Option<DeviceShare>,
    /// Where the pods may go.
    pub constraints: Constraints,
    /// Pod sets of a gang that name the same group are given the same flavors. Those of them that ask for nearness are a
    /// leader of one pod and its workers, and go to the same domain; what the workers ask for holds for both.
    pub group: Option<String>,
    /// How near to each other they are to be, if that is asked.
    pub topology: Option<TopologyRequest>,
}

impl PodSet {
    /// What all pods take together, saturating; shares count as the whole devices that they add up to, rounded up.
    pub fn total(&self) -> ResourceVec {
        let mut total = self.request.times(self.count);
        if let Some(share) = self.share {
            let devices = (u64::from(share.milli()) * u64::from(self.count)).div_ceil(1000);
            let devices = i64::try_from(devices).unwrap_or(i64::MAX);
            total.add(&ResourceVec::new().with(share.device(), devices));
        }
        total
    }

    /// How much of a resource all pods take together, in base units; see [`Self::total`].
    pub fn requested(&self, resource: ResourceIx) -> i128 {
        let whole = i128::from(self.request.get(resource).0) * i128::from(self.count);
        let share = self.share.filter(|share| share.device() == resource);
        let shared =
            share.map_or(0, |share| (i128::from(share.milli()) * i128::from(self.count) + 999) / 1000);
        whole + shared
    }

    /// Every resource that a pod asks for.
    pub fn mask(&self) -> ResourceMask {
        let mask = self.request.mask();
        self.share.map_or(mask, |share| mask.with(share.device()))
    }

    /// Whether there is room for a pod.
    pub fn fits_in(&self, room: &FreeResources) -> bool {
        self.request.fits_in(&room.amounts) && self.share.is_none_or(|share| room.shares_in(share, 1) == 1)
    }

    /// For how many pods there is room; at most `most`.
    pub fn copies_in(&self, room: &FreeResources, most: u32) -> u32 {
        let copies = self.request.copies_in(&room.amounts, most);
        self.share.map_or(copies, |share| room.shares_in(share, copies))
    }
}

/// What a gang is called by people. Its order breaks ties.
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

/// The unit of queueing: all of its pods get a place at once, or none does.
///
/// An event states the whole truth about a gang: what was admitted and is being carried out must be upserted as
/// [`GangState::Reserved`], even before that is written anywhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gang {
    /// Its name.
    pub key: GangKey,
    /// Its identity: another object of the same name is another gang.
    pub uid: String,
    /// The queue that orders it, and that may charge it to a quota node.
    pub queue: QueueIx,
    /// The local queue that it came through; it says whose turn it is where the queue has a rule for that (`Queue::sharing`).
    pub local_queue: LocalQueueIx,
    /// Further nodes of quota trees, each in a tree of its own, that it is charged to; all of them or none. Counted in
    /// [`FlavorIx::ANY`].
    pub charges: Arc<[QuotaIx]>,
    /// In thousandths; higher goes first.
    pub priority: i64,
    /// By how much its rank rises while it waits, in millionths of a priority a second: MCAD's `priorityslope`. It decides
    /// whose turn it is and nothing else; whose place it may take goes by `priority` alone.
    pub slope: i64,
    /// From when it waits. Within a rank, earlier goes first; then by key. The caller gives what the rules of its API
    /// say: the time of creation, or of an eviction that puts it behind the others (after Kueue's `requeuingStrategy`).
    pub queued_at: Time,
    /// The pods that it will really have; or the declared rows when nothing can be inferred.
    pub pod_sets: Arc<[PodSet]>,
    /// What its author declared for all pods together, beside the real ones. The promise is the larger of the two
    /// totals per resource; what is declared beyond the real pods counts as an aggregate over the eligible nodes.
    pub declared: Option<ResourceVec>,
    /// Whether it waits or holds capacity.
    pub state: GangState,
    /// When it was dispatched, if it was.
    pub started_at: Option<Time>,
    /// How long it is expected to run, in microseconds.
    pub runs_us: Option<i64>,
    /// The last moment from which it could continue after being stopped, if it was not its start.
    pub checkpointed_at: Option<Time>,
    /// It is never stopped for another gang.
    pub protected: bool,
    /// For each pod set: how many of its pods have succeeded, so that their share is free again. Missing ones count as
    /// none. Once it waits again, its pod sets have so many pods less.
    pub reclaimable: Vec<u32>,
    /// Nodes that its pods must not go to: they failed there, or were put there against the plan.
    pub excluded: Arc<BTreeSet<NodeName>>,
    /// It may be given more places while it runs, when its pod sets are stated larger than what it has.
    pub elastic: bool,
    /// Nodes that failed under it: its pods there get other places, and those on other nodes stay. To be kept until no pod of it
    /// is left there. After Kueue's `status.unhealthyNodes`.
    pub unhealthy: Arc<BTreeSet<NodeName>>,
}

impl Gang {
    /// What decides whether it fits.
    pub fn shape(&self) -> Shape {
        let Self { pod_sets, declared, excluded, .. } = self;
        Shape {
            pod_sets: pod_sets.clone(),
            declared: declared.clone(),
            excluded: excluded.clone(),
            scale_up: None,
        }
    }

    /// What it still holds of the places that it was given, and the shape of just that; none without known places. Pods
    /// that succeeded, and those by which a pod set shrank, give up places from the last rank on.
    pub fn held(&self) -> Option<(Shape, Cow<'_, Assignment>)> {
        let mut assignment = Cow::Borrowed(self.state.assignment()?);
        for (at, pod_set) in self.pod_sets.iter().enumerate() {
            let mut left = self.left_of(at, pod_set);
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

    /// Its shape without the pods that have succeeded.
    pub fn remaining(&self) -> Shape {
        let sets = self.pod_sets.iter().enumerate();
        self.shape().with_counts(sets.map(|(at, set)| self.left_of(at, set)))
    }

    /// How many pods of a set have not succeeded yet.
    pub(crate) fn left_of(&self, at: usize, pod_set: &PodSet) -> u32 {
        pod_set.count.saturating_sub(self.reclaimable.get(at).copied().unwrap_or(0))
    }

    /// When it will presumably end, if it holds its places at `now`; and whether that was declared.
    ///
    /// Who runs longer than declared, or declared nothing, is taken to run as long again as it has overrun or run so
    /// far, and for a minute at least.
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

/// Whether a gang waits or holds capacity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum GangState {
    /// It holds nothing and waits for a plan.
    #[default]
    Waiting,
    /// Its capacity is promised: decided, or being made, or running. Held until the gang ends.
    Reserved(Assignment),
    /// It holds places that others are being stopped for, and is admitted once these are free.
    Nominated(Preemption),
    /// Started by somebody else: where its pods will go is unknown, so its promise counts as an aggregate.
    Unplaced,
}

impl GangState {
    /// Whether it holds capacity, known places or not.
    pub fn holds(&self) -> bool {
        *self != Self::Waiting
    }

    /// The places that it holds, if they are known.
    pub fn assignment(&self) -> Option<&Assignment> {
        match self {
            Self::Reserved(assignment) | Self::Nominated(Preemption { assignment, .. }) => Some(assignment),
            Self::Waiting | Self::Unplaced => None,
        }
    }
}

/// Where every pod of a gang goes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Assignment {
    /// For each pod set, in the gang's order: how many pods on which node, in the order of the pods' ranks: by topology
    /// domain where the set asks for one, then by name; those that joined later come last, or where those were that they replace.
    pub pod_sets: Vec<Vec<(NodeName, u32)>>,
    /// For each pod set, in the gang's order: the flavor of each resource that it asks for and its queue declares; the
    /// first one says it for what is declared without any pod. Empty when the queue declares none.
    pub flavors: Vec<BTreeMap<ResourceIx, FlavorIx>>,
    /// For each pod set, in the gang's order, if its pods share devices: how many of them on the device of which number on
    /// which node, sorted. Empty when no pod does; pods that are not counted here are on devices that nobody knows.
    pub devices: Vec<Vec<(NodeName, u32, u32)>>,
}

impl Assignment {
    /// How many pods of a set have a place.
    pub fn placed(&self, pod_set: usize) -> u64 {
        self.pod_sets.get(pod_set).into_iter().flatten().map(|(_, count)| u64::from(*count)).sum()
    }

    /// The names of all nodes with a place, some of them more than once.
    pub fn nodes(&self) -> impl Iterator<Item = &str> {
        self.pod_sets.iter().flatten().map(|(node, _)| node.as_str())
    }
}

/// A pod that is neither succeeded nor failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    /// Its identity.
    pub uid: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The node that it is bound to. Without one it takes nothing.
    pub node: Option<NodeName>,
    /// What it takes from its node, `pods` included.
    pub request: ResourceVec,
    /// The part of one device that it takes beside.
    pub share: Option<DeviceShare>,
    /// The number of that device on its node, if it is known.
    pub device: Option<u32>,
    /// The uid of the gang that it belongs to and the index of its pod set there.
    pub gang: Option<(String, usize)>,
}

/// All that decides whether a gang fits: gangs of one shape fit or wait alike, and share one verdict.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shape {
    /// As in [`Gang::pod_sets`].
    pub pod_sets: Arc<[PodSet]>,
    /// As in [`Gang::declared`].
    pub declared: Option<ResourceVec>,
    /// As in [`Gang::excluded`].
    pub excluded: Arc<BTreeSet<NodeName>>,
    /// For pods that join a gang that runs; none for a gang that starts.
    pub scale_up: Option<Arc<ScaleUp>>,
}

impl Shape {
    /// The same with pod sets of these sizes.
    #[must_use]
    pub fn with_counts(&self, counts: impl IntoIterator<Item = u32>) -> Self {
        let sets = self.pod_sets.iter().zip(counts);
        let pod_sets = sets.map(|(pod_set, count)| PodSet { count, ..pod_set.clone() }).collect();
        Self { pod_sets, ..self.clone() }
    }

    /// The same with as many pods in each set as have a place.
    pub fn placed(&self, assignment: &Assignment) -> Cow<'_, Self> {
        let placed = |at: usize| u32::try_from(assignment.placed(at)).unwrap_or(u32::MAX);
        self.resized((0..self.pod_sets.len()).map(placed).collect())
    }

    /// The same with the fewest pods with which the gang may start.
    pub fn with_min_counts(&self) -> Cow<'_, Self> {
        self.resized(self.min_counts())
    }

    fn resized(&self, counts: Vec<u32>) -> Cow<'_, Self> {
        if self.pod_sets.iter().zip(&counts).all(|(pod_set, count)| pod_set.count == *count) {
            return Cow::Borrowed(self);
        }
        Cow::Owned(self.with_counts(counts))
    }

    /// For each pod set, the fewest pods with which the gang may start: whole slices where it asks for any.
    pub fn min_counts(&self) -> Vec<u32> {
        let least = |pod_set: &PodSet| {
            let slice = pod_set.topology.as_ref().and_then(|request| request.slices.first());
            let size = slice.map_or(1, |slice| slice.size.max(1));
            let least = pod_set.min_count.unwrap_or(pod_set.count).max(1);
            least.div_ceil(size).saturating_mul(size).min(pod_set.count)
        };
        self.pod_sets.iter().map(least).collect()
    }

    /// What all real pods take together, saturating.
    pub fn total(&self) -> ResourceVec {
        let mut total = ResourceVec::new();
        for pod_set in &*self.pod_sets {
            total.add(&pod_set.total());
        }
        total
    }

    /// What is declared beyond the real pods: counted as an aggregate over the eligible nodes. What is declared
    /// beyond counting stays so.
    pub fn declared_excess(&self) -> ResourceVec {
        let Some(declared) = &self.declared else { return ResourceVec::new() };
        let mut excess = declared.clone();
        excess.sub(&self.total());
        for (ix, _) in declared.iter().filter(|(_, amount)| *amount == Amount::MAX) {
            excess.set(ix, Amount::MAX);
        }
        excess.positive()
    }

    /// What is promised when it is admitted: the larger of real and declared per resource.
    pub fn effective_request(&self) -> ResourceVec {
        let mut promise = self.total();
        if let Some(declared) = &self.declared {
            promise.raise_to(declared);
        }
        promise
    }

    /// Whether a pod takes a part of a device.
    pub fn shares_devices(&self) -> bool {
        self.pod_sets.iter().any(|pod_set| pod_set.share.is_some())
    }

    /// Every resource that is asked for by a pod or declared.
    pub fn mask(&self) -> ResourceMask {
        self.effective_request().mask()
    }

    /// The constraints of all pod sets that have pods, sorted, each once: a node is eligible for the aggregate when
    /// it is for one of them. Empty when there are no pods: every open node is eligible.
    pub fn eligible_constraints(&self) -> Vec<Constraints> {
        let sets = self.pod_sets.iter().filter(|pod_set| pod_set.count > 0);
        let mut alternatives: Vec<_> = sets.map(|pod_set| pod_set.constraints.clone()).collect();
        alternatives.sort();
        alternatives.dedup();
        alternatives
    }
}
