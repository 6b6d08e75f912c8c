//! Whether queues are active, and the figures of their status. Texts after `inactiveReason` of Kueue's
//! `pkg/cache/scheduler/clusterqueue.go` and its `localqueue_controller.go`.

use std::collections::{BTreeMap, BTreeSet};

use api::kueue::jobs::remote::CONTROLLER as MULTIKUEUE;
use api::kueue::objects::{CheckRule, ClusterQueue, ResourceGroup};
use api::kueue::provisioning;
use api::kueue::status::ADMITTED;
use api::kueue::workload::Workload;
use model::{Cause, FlavorResource, Gang, QueueingStrategy, QuotaCause, QuotaIx, World};

use super::queues::queue_node;
use super::workloads::counted_queue;
use super::{Kueue, QueueKey, WorkloadPhase, WorkloadRow};
use crate::{Index, remove_from};

/// Whether a queue admits Workloads: its condition `Active`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Activity {
    /// Whether it does.
    pub is_active: bool,
    /// The reason of the condition.
    pub reason: &'static str,
    /// The message of the condition.
    pub message: String,
}

/// The figures of a `ClusterQueue`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueFigures {
    /// The number of its pending Workloads.
    pub pending: u32,
    /// The number of its Workloads that hold quota.
    pub reserving: u32,
    /// The number of its admitted Workloads.
    pub admitted: u32,
    /// What Workloads with quota hold, by flavor in the order of the queue.
    pub reservation: Vec<FlavorFigures>,
    /// What admitted Workloads hold.
    pub usage: Vec<FlavorFigures>,
}

/// The figures of a `LocalQueue`: those of its Workloads alone.
pub type LocalQueueFigures = QueueFigures;

/// How a pending Workload counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pending {
    /// It is to be tried: it is new, waits for its victims, or keeps its place at the head of a strict queue.
    Active,
    /// It was tried, or cannot be tried, until something changes.
    Inadmissible,
}

/// What is held in a flavor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlavorFigures {
    /// The flavor.
    pub name: String,
    /// By resource: the amount in base units, and how much of it is borrowed.
    pub resources: BTreeMap<String, (i64, i64)>,
}

/// What Workloads hold by flavor and resource, in base units.
type Held = BTreeMap<FlavorResource, i128>;

impl Activity {
    fn active(message: &str) -> Self {
        Self { is_active: true, reason: "Ready", message: message.into() }
    }

    fn inactive(reason: &'static str, message: impl Into<String>) -> Self {
        Self { is_active: false, reason, message: message.into() }
    }
}

impl Index {
    /// Whether a `ClusterQueue` admits Workloads.
    pub fn cluster_queue_activity(&self, name: &str) -> Activity {
        let Some(queue) = self.kueue.cluster_queues.get(name) else {
            return Activity::inactive("Unknown", "Can't admit new workloads.");
        };
        if queue.metadata.is_deleting() {
            return Activity::inactive(
                "Terminating",
                "Can't admit new workloads; clusterQueue is terminating",
            );
        }
        let mut problems: Vec<(&'static str, String)> = Vec::new();
        if queue.is_stopped() {
            problems.push(("Stopped", "is stopped".into()));
        }
        let flavors: Vec<&str> =
            queue.spec.resource_groups.iter().flat_map(|group| &group.flavors).map(|of| &*of.name).collect();
        let missing = flavors.iter().copied().filter(|name| !self.kueue.flavors.contains_key(*name));
        let missing: Vec<&str> = missing.collect();
        if !missing.is_empty() {
            let text = format!("references missing ResourceFlavor(s): {}", missing.join(","));
            problems.push(("FlavorNotFound", text));
        }
        let rules = &queue.spec.admission_checks_strategy.admission_checks;
        let checks: BTreeSet<&str> = rules.iter().map(|rule| &*rule.name).collect();
        let (known, missing): (Vec<&str>, Vec<&str>) =
            checks.into_iter().partition(|name| self.kueue.checks.contains_key(*name));
        if !missing.is_empty() {
            let text = format!("references missing AdmissionCheck(s): {}", missing.join(","));
            problems.push(("AdmissionCheckNotFound", text));
        }
        let is_inactive = |name: &&str| self.kueue.checks.get(*name).is_some_and(|check| !check.is_active());
        let inactive: Vec<&str> = known.into_iter().filter(is_inactive).collect();
        if !inactive.is_empty() {
            let text = format!("references inactive AdmissionCheck(s): {}", inactive.join(","));
            problems.push(("AdmissionCheckInactive", text));
        }
        self.multikueue_problems(queue, &mut problems);
        for name in flavors {
            let topology = self.kueue.flavors.get(name).map_or("", |flavor| &flavor.spec.topology_name);
            if topology.is_empty() {
                continue;
            }
            if !self.kueue.topologies.contains_key(topology) {
                let text = format!("there is no Topology \"{topology}\" for TAS flavor \"{name}\"");
                problems.push(("TopologyNotFound", text));
            }
        }
        let Some((reason, _)) = problems.first() else { return Activity::active("Can admit new workloads") };
        let texts: Vec<&str> = problems.iter().map(|(_, text)| text.as_str()).collect();
        Activity::inactive(reason, format!("Can't admit new workloads: {}.", texts.join(", ")))
    }

    /// What the rules of `MultiKueue` forbid among the admission checks of a queue.
    fn multikueue_problems(&self, queue: &ClusterQueue, problems: &mut Vec<(&'static str, String)>) {
        let mut rules: Vec<&CheckRule> =
            queue.spec.admission_checks_strategy.admission_checks.iter().collect();
        rules.sort_by_key(|rule| &rule.name);
        let is_by = |rule: &CheckRule, controller: &str| {
            self.kueue.checks.get(&rule.name).is_some_and(|check| check.spec.controller_name == controller)
        };
        let joined = |controller: &str, is_meant: &dyn Fn(&CheckRule) -> bool| {
            let names = rules.iter().filter(|rule| is_by(rule, controller) && is_meant(rule));
            let names: Vec<&str> = names.map(|rule| rule.name.as_str()).collect();
            (names.len(), names.join(","))
        };
        let (count, remote) = joined(MULTIKUEUE, &|_| true);
        if count > 1 {
            let text = format!(
                "Cannot use multiple MultiKueue AdmissionChecks on the same ClusterQueue, found: {remote}"
            );
            problems.push(("MultipleMultiKueueAdmissionChecks", text));
        }
        let (per_flavor, names) = joined(MULTIKUEUE, &|rule| !rule.on_flavors.is_empty());
        if per_flavor > 0 {
            let text = format!("Cannot specify MultiKueue AdmissionCheck per flavor, found: {names}");
            problems.push(("MultiKueueAdmissionCheckAppliedPerFlavor", text));
        }
        let (provisioning, names) = joined(provisioning::CONTROLLER, &|_| true);
        if count > 0 && provisioning > 0 {
            let text = format!(
                "Cannot use both MultiKueue and ProvisioningRequest AdmissionChecks together, found: {remote}, {names}"
            );
            problems.push(("MultiKueueWithProvisioningRequest", text));
        }
    }

    /// Whether a `LocalQueue` takes Workloads.
    pub fn local_queue_activity(&self, namespace: &str, name: &str) -> Activity {
        const NO_QUEUE: &str = "Can't submit new workloads to clusterQueue";
        let Some(queue) = self.local_queue(namespace, name) else {
            return Activity::inactive("Unknown", NO_QUEUE);
        };
        if queue.is_stopped() {
            return Activity::inactive("Stopped", "LocalQueue is stopped");
        }
        let cluster_queue = &queue.spec.cluster_queue;
        if !self.kueue.cluster_queues.contains_key(cluster_queue) {
            return Activity::inactive("ClusterQueueDoesNotExist", NO_QUEUE);
        }
        if !self.cluster_queue_activity(cluster_queue).is_active {
            return Activity::inactive("ClusterQueueIsInactive", NO_QUEUE);
        }
        Activity::active("Can submit new workloads to localQueue")
    }

    /// How a Workload counts among the pending ones of its queues; `None` if no queue has it. After
    /// `pkg/cache/queue/cluster_queue.go` of Kueue.
    pub fn pending(&self, row: &WorkloadRow) -> Option<Pending> {
        let queue = self.queue_of_pending(row)?;
        let is_parked = match &row.phase {
            WorkloadPhase::Nominated(_) | WorkloadPhase::AwaitsPods => false,
            WorkloadPhase::Waiting => {
                queue.spec.queueing_strategy != "StrictFIFO"
                    && self.is_short(row)
                    && !self.is_behind_nominated(row)
            }
            WorkloadPhase::Inactive
            | WorkloadPhase::Inadmissible(_)
            | WorkloadPhase::Starting(_)
            | WorkloadPhase::Reserved(_) => true,
        };
        Some(if is_parked { Pending::Inadmissible } else { Pending::Active })
    }

    /// The queue that has a Workload among its pending ones, however it counts there.
    fn queue_of_pending(&self, row: &WorkloadRow) -> Option<&ClusterQueue> {
        if !(row.is_pending() || row.phase == WorkloadPhase::Inactive && row.is_backing_off()) {
            return None;
        }
        let local = self.kueue.local_queues.get(&row.queue_key())?;
        self.kueue.cluster_queues.get(&local.spec.cluster_queue).filter(|_| !local.is_stopped())
    }

    /// Whether a Workload of its queue with no lower priority waits for its victims: Kueue tries no other one meanwhile.
    fn is_behind_nominated(&self, row: &WorkloadRow) -> bool {
        let Some(gang) = self.world.gang(row.uid()) else { return false };
        let comes_before = |other: &Gang| other.queue == gang.queue && other.priority >= gang.priority;
        self.world.nominated().any(comes_before)
    }

    /// Whether an equal Workload that comes before it in its queue is parked, and says why by its condition: what Kueue takes
    /// as the answer for this one, too.
    pub fn has_equal_before(&self, row: &WorkloadRow, says_why: impl Fn(&Workload) -> bool) -> bool {
        let Some(ix) = self.world.shape_of(row.uid()) else { return false };
        let equal = self.world.shape(ix);
        let is_strict = self
            .world
            .queues()
            .get(&equal.queue)
            .is_some_and(|queue| queue.queueing_strategy == QueueingStrategy::StrictFifo);
        let before = equal.waiting.iter().take_while(|key| *key.uid != *row.uid());
        let mut before = before.filter_map(|key| self.kueue.workloads.get(&*key.uid));
        !is_strict && equal.parked.is_some() && before.next().is_some_and(|first| says_why(&first.object))
    }

    /// Whether a Workload was tried and lacks something. What other Workloads of the same plan take ahead of it, or hold
    /// back, is not lacking: it is tried again.
    fn is_short(&self, row: &WorkloadRow) -> bool {
        let Some(shortage) = self.world.verdict(row.uid()).and_then(model::Verdict::shortage) else {
            return false;
        };
        let node = self.world.gang(row.uid()).and_then(|gang| self.world.quota_of(gang.queue));
        let is_free = |cause: &Cause| {
            let Cause::Quota(QuotaCause::Short { flavor: Some(flavor), needs, available: Some(_), .. }) =
                cause
            else {
                return false;
            };
            let flavor = self.world.flavors().iter().find(|(_, known)| known.name == *flavor);
            let resource = self.world.resources().get(&needs.resource);
            let (Some(node), Some((flavor, _)), Some(resource)) = (node, flavor, resource) else {
                return false;
            };
            let of = FlavorResource { flavor: *flavor, resource };
            let available = self.world.quota_available(node, of) + self.held_by_nominated(node, of);
            available >= i128::from(needs.amount.0)
        };
        !shortage.causes.iter().any(is_free)
    }

    /// What Workloads hold in the tree of a node while they wait for their victims.
    fn held_by_nominated(&self, node: QuotaIx, of: FlavorResource) -> i128 {
        let forest = self.world.forest();
        let root = forest.root(node);
        let charges = self.world.nominated().filter_map(|gang| self.world.charged(&gang.uid)).flatten();
        let held = charges.filter(|((at, held), _)| *held == of && forest.root(*at) == root);
        held.map(|(_, amount)| *amount).sum()
    }

    /// The figures of a `ClusterQueue`.
    pub fn cluster_queue_figures(&self, name: &str) -> QueueFigures {
        let Some(queue) = self.kueue.cluster_queues.get(name) else { return QueueFigures::default() };
        let local = self.kueue.local_queues.iter().filter(|(_, local)| local.spec.cluster_queue == name);
        let waiting = local.filter_map(|(key, _)| self.kueue.by_queue.get(key)).flatten();
        // One that is admitted counts where it is, although its local queue may belong to another queue since.
        let has_none = |uid: &&String| {
            self.kueue.workloads.get(*uid).is_some_and(|row| row.object.status.admission.is_none())
        };
        let admitted = self.kueue.by_cluster_queue.get(name).into_iter().flatten();
        let uids = waiting.filter(has_none).chain(admitted).map(String::as_str);
        self.figures(uids, name, &queue.spec.resource_groups, !queue.spec.cohort_name.is_empty())
    }

    /// The pending Workloads of a `ClusterQueue`, as its status counts them.
    pub fn pending_of(&self, cluster_queue: &str) -> impl Iterator<Item = &WorkloadRow> {
        let local = self.kueue.local_queues.iter();
        let local = local.filter(move |(_, local)| local.spec.cluster_queue == cluster_queue);
        let waiting = local.filter_map(|(key, _)| self.kueue.by_queue.get(key)).flatten();
        let rows = waiting.filter_map(|uid| self.kueue.workloads.get(uid));
        rows.filter(|row| row.object.status.admission.is_none() && self.queue_of_pending(row).is_some())
    }

    /// The figures of a `LocalQueue`.
    pub fn local_queue_figures(&self, namespace: &str, name: &str) -> LocalQueueFigures {
        let key = (namespace.to_owned(), name.to_owned());
        let Some(queue) = self.kueue.local_queues.get(&key) else { return QueueFigures::default() };
        let cluster_queue = &queue.spec.cluster_queue;
        let Some(spec) = self.kueue.cluster_queues.get(cluster_queue) else { return QueueFigures::default() };
        let groups = &spec.spec.resource_groups;
        let uids = self.kueue.by_queue.get(&key).into_iter().flatten().map(String::as_str);
        self.figures(uids, cluster_queue, groups, false)
    }

    fn figures<'a>(
        &self,
        uids: impl Iterator<Item = &'a str>,
        queue: &str,
        groups: &[ResourceGroup],
        is_in_cohort: bool,
    ) -> QueueFigures {
        let mut figures = QueueFigures::default();
        let node_name = queue_node(queue);
        let (mut reserved, mut admitted) = (Held::new(), Held::new());
        for row in uids.filter_map(|uid| self.kueue.workloads.get(uid)) {
            figures.pending += u32::from(self.queue_of_pending(row).is_some());
            if !row.holds_quota() {
                continue;
            }
            let is_admitted = row.object.status.is(ADMITTED);
            figures.reserving += 1;
            figures.admitted += u32::from(is_admitted);
            for ((node, of), amount) in self.world.charged(row.uid()).into_iter().flatten() {
                if self.world.quota_name(*node) != node_name {
                    continue;
                }
                *reserved.entry(*of).or_default() += amount;
                if is_admitted {
                    *admitted.entry(*of).or_default() += amount;
                }
            }
        }
        figures.reservation = by_flavor(&self.world, groups, &reserved, is_in_cohort);
        figures.usage = by_flavor(&self.world, groups, &admitted, is_in_cohort);
        figures
    }
}

/// The amounts of all flavors of a queue. What exceeds the nominal quota is borrowed.
fn by_flavor(world: &World, groups: &[ResourceGroup], held: &Held, is_in_cohort: bool) -> Vec<FlavorFigures> {
    let named: BTreeMap<(&str, &str), i128> = held
        .iter()
        .map(|(of, amount)| ((world.flavor_name(of.flavor), world.resources().name(of.resource)), *amount))
        .collect();
    let flavors = groups.iter().flat_map(|group| &group.flavors);
    let figures = flavors.map(|flavor| {
        let resources = flavor.resources.iter().map(|quota| {
            let amount = named.get(&(&*flavor.name, &*quota.name)).copied().unwrap_or_default();
            let amount = i64::try_from(amount).unwrap_or(i64::MAX);
            let nominal = super::queues::amount(&quota.name, &quota.nominal_quota);
            let borrowed = if is_in_cohort { (amount - nominal).max(0) } else { 0 };
            (quota.name.clone(), (amount, borrowed))
        });
        FlavorFigures { name: flavor.name.clone(), resources: resources.collect() }
    });
    figures.collect()
}

impl Kueue {
    /// Notes the `ClusterQueue` that counts a Workload with a new status.
    pub(super) fn note_cluster_queue(&mut self, uid: &str, new: Option<&str>) {
        let known = self.workloads.get(uid).and_then(|row| counted_queue(&row.object.status));
        if known == new {
            return;
        }
        if let Some(known) = known.map(str::to_owned) {
            remove_from(&mut self.by_cluster_queue, &known, uid);
        }
        if let Some(new) = new {
            self.by_cluster_queue.entry(new.to_owned()).or_default().insert(uid.to_owned());
        }
    }

    /// Marks the status of the queues of a Workload as changed.
    pub(super) fn note_figures_of(&mut self, uid: &str) {
        let Some(row) = self.workloads.get(uid) else { return };
        let (namespace, name) = row.queue_key();
        let queue = self.cluster_queue_of(row).map(|name| QueueKey::Cluster(name.to_owned()));
        self.dirty_queues.insert(QueueKey::Local(namespace, name));
        self.dirty_queues.extend(queue);
    }

    /// The `ClusterQueue` of a Workload: that of its admission, else that of its local queue.
    pub(super) fn cluster_queue_of<'a>(&'a self, row: &'a WorkloadRow) -> Option<&'a str> {
        let admitted = row.object.status.admission.as_ref().map(|admission| admission.cluster_queue.as_str());
        admitted.or_else(|| Some(self.local_queues.get(&row.queue_key())?.spec.cluster_queue.as_str()))
    }
}
