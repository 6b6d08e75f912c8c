//! Gauges, computed from the index when they are read: a queue that is gone has none.

use std::collections::{BTreeMap, BTreeSet};

use api::kueue::config::SourceKind;
use api::kueue::objects::{ClusterQueue, LocalQueue};
use api::kueue::status::{ADMITTED, FINISHED, QUOTA_RESERVED, Status};
use api::{Meta, MicroTime};
use index::{Index, Pending, QuotaNodes, WorkloadRow};
use model::{FlavorResource, QuotaIx, ResourceIx};

use super::MetricsConfig;
use crate::meter::series::{Families, Labels, Number};

/// The figures of the Workloads of one queue.
#[derive(Default)]
struct Tally {
    active: u64,
    inadmissible: u64,
    reserving: u64,
    admitted: u64,
    finished: u64,
    /// Of admitted Workloads, by their further labels.
    admitted_by: BTreeMap<Labels, u64>,
    reserved: BTreeMap<FlavorResource, i128>,
    used: BTreeMap<FlavorResource, i128>,
    requested: BTreeMap<ResourceIx, i128>,
    /// Of Workloads that are not admitted, by the reasons of `Admitted` and of `QuotaReserved`.
    unadmitted: BTreeMap<(String, String), u64>,
}

/// The figures of all queues.
#[derive(Default)]
struct Tallies<'a> {
    cluster: BTreeMap<&'a str, Tally>,
    local: BTreeMap<(String, String), Tally>,
}

impl<'a> Tallies<'a> {
    fn of(index: &'a Index, config: &MetricsConfig, nodes: &QuotaNodes<'_>) -> Self {
        let mut tallies = Self::default();
        for row in index.workloads() {
            let queue = index.cluster_queue_of(row);
            let node = queue.and_then(|queue| nodes.queues.get(queue)).copied();
            let labels = config.custom(SourceKind::Workload, Some(&row.object.metadata));
            tallies.local.entry(row.queue_key()).or_default().add(index, row, node, &labels);
            if let Some(queue) = queue {
                tallies.cluster.entry(queue).or_default().add(index, row, node, &labels);
            }
        }
        tallies
    }
}

impl Tally {
    fn add(&mut self, index: &Index, row: &WorkloadRow, node: Option<QuotaIx>, labels: &Labels) {
        if row.object.status.is(FINISHED) {
            self.finished += 1;
            return;
        }
        if !row.object.status.is(ADMITTED) && !row.object.metadata.is_deleting() {
            *self.unadmitted.entry(causes(&row.object.status)).or_default() += 1;
        }
        match index.pending(row) {
            Some(Pending::Active) => self.active += 1,
            Some(Pending::Inadmissible) => self.inadmissible += 1,
            None if row.holds_quota() => return self.add_holder(index, row, node, labels),
            None => return,
        }
        for (set, gone) in row.pod_sets().iter().zip(index.reclaimed(row)) {
            let pods = set.count.saturating_sub(gone);
            for (resource, amount) in set.quota_request().iter().filter(|(_, amount)| amount.0 > 0) {
                *self.requested.entry(resource).or_default() += i128::from(amount.0) * i128::from(pods);
            }
        }
    }

    fn add_holder(&mut self, index: &Index, row: &WorkloadRow, node: Option<QuotaIx>, labels: &Labels) {
        self.reserving += 1;
        let is_admitted = row.object.status.is(ADMITTED);
        if is_admitted {
            self.admitted += 1;
            *self.admitted_by.entry(labels.clone()).or_default() += 1;
        }
        for ((charged, of), amount) in index.world().charged(row.uid()).into_iter().flatten() {
            if Some(*charged) == node {
                *self.reserved.entry(*of).or_default() += amount;
                if is_admitted {
                    *self.used.entry(*of).or_default() += amount;
                }
            }
        }
    }
}

/// Why a Workload is not admitted: the reason of `Admitted`, and what lies below it.
fn causes(status: &Status) -> (String, String) {
    let reason = status.condition(ADMITTED).map_or("NoReservation", |admitted| &admitted.reason);
    let cause = match status.condition(QUOTA_RESERVED) {
        None => "PendingEvaluation",
        Some(reserved) if reserved.is_true() => "",
        Some(reserved) => &reserved.reason,
    };
    (reason.to_owned(), cause.to_owned())
}

/// Adds all gauges.
pub(super) fn write(index: &Index, config: &MetricsConfig, families: &mut Families) {
    let nodes = index.quota_nodes();
    let tallies = Tallies::of(index, config, &nodes);
    let none = Tally::default();
    let mut gauges = Gauges { index, config, nodes: &nodes, families };
    for queue in index.cluster_queues() {
        let tally = tallies.cluster.get(queue.metadata.name.as_str()).unwrap_or(&none);
        gauges.cluster_queue(queue, tally);
    }
    for queue in index.local_queues().filter(|queue| config.shows(&queue.metadata)) {
        let key = (queue.metadata.namespace.clone(), queue.metadata.name.clone());
        gauges.local_queue(queue, tallies.local.get(&key).unwrap_or(&none));
    }
    if config.cohorts {
        let objects = index.cohorts().map(|cohort| cohort.metadata.name.as_str());
        let names: BTreeSet<&str> = objects.chain(nodes.cohorts.keys().copied()).collect();
        for name in names {
            gauges.cohort(name, &tallies);
        }
    }
}

struct Gauges<'a> {
    index: &'a Index,
    config: &'a MetricsConfig,
    nodes: &'a QuotaNodes<'a>,
    families: &'a mut Families,
}

impl Gauges<'_> {
    fn cluster_queue(&mut self, queue: &ClusterQueue, tally: &Tally) {
        let name = queue.metadata.name.as_str();
        let custom = self.config.custom(SourceKind::ClusterQueue, Some(&queue.metadata));
        let of = ("cluster_queue", name);
        for (status, number) in [("active", tally.active), ("inadmissible", tally.inadmissible)] {
            self.families.gauge("pending_workloads", &[of, ("status", status)], &custom, number);
        }
        self.families.gauge("reserving_active_workloads", &[of], &custom, tally.reserving);
        self.families.gauge("finished_workloads", &[of], &custom, tally.finished);
        let nothing = self.config.custom(SourceKind::Workload, None);
        let admitted = &tally.admitted_by;
        let zero = nothing.is_empty().then_some((&nothing, &0)).filter(|_| admitted.is_empty());
        for (labels, number) in admitted.iter().chain(zero) {
            let custom = [custom.clone(), labels.clone()].concat();
            self.families.gauge("admitted_active_workloads", &[of], &custom, *number);
        }
        let activity = self.index.cluster_queue_activity(name);
        let status = match (queue.metadata.is_deleting(), activity.is_active) {
            (true, _) => "terminating",
            (false, true) => "active",
            (false, false) => "pending",
        };
        for known in ["pending", "active", "terminating"] {
            let labels = [of, ("status", known)];
            self.families.gauge("cluster_queue_status", &labels, &custom, known == status);
        }
        for ((reason, cause), number) in tally.unadmitted.iter().filter(|_| self.config.causes) {
            let labels = [of, ("reason", reason.as_str()), ("underlying_cause", cause.as_str())];
            self.families.gauge("unadmitted_workloads", &labels, &custom, *number);
        }
        let path = self.index.cohorts_of(name);
        let parent = path.first().copied().unwrap_or_default();
        if self.config.cohorts {
            let root = path.last().copied().unwrap_or_default();
            let labels = [of, ("parent_cohort", parent), ("root_cohort", root)];
            self.families.gauge("cluster_queue_info", &labels, &custom, true);
        }
        if self.config.cluster_queue_resources {
            self.resources(queue, parent, tally, &custom);
        }
        if self.config.shares
            && let Some(node) = self.nodes.queues.get(name)
        {
            let share = self.share(*node);
            let labels = [of, ("cohort", parent)];
            self.families.gauge("cluster_queue_weighted_share", &labels, &custom, share);
        }
    }

    /// Quota and usage of a cluster queue.
    fn resources(&mut self, queue: &ClusterQueue, cohort: &str, tally: &Tally, custom: &Labels) {
        let world = self.index.world();
        let name = queue.metadata.name.as_str();
        let Some(node) = self.nodes.queues.get(name) else { return };
        let mut covered = BTreeSet::new();
        for of in world.forest().flavor_resources(*node) {
            let Some(limits) = world.forest().limits(*node, of) else { continue };
            covered.insert(of.resource);
            let resource = world.resources().name(of.resource);
            let labels = [
                ("cohort", cohort),
                ("cluster_queue", name),
                ("flavor", world.flavor_name(of.flavor)),
                ("resource", resource),
            ];
            let limit = |limit: Option<model::Amount>| {
                limit.map_or_else(Number::infinite, |limit| Number::amount(resource, limit.0.into()))
            };
            let held = |held: &BTreeMap<FlavorResource, i128>| {
                Number::amount(resource, held.get(&of).copied().unwrap_or_default())
            };
            for (gauge, value) in [
                ("cluster_queue_nominal_quota", Number::amount(resource, limits.nominal.0.into())),
                ("cluster_queue_borrowing_limit", limit(limits.borrowing)),
                ("cluster_queue_lending_limit", limit(limits.lending)),
                ("cluster_queue_resource_reservation", held(&tally.reserved)),
                ("cluster_queue_resource_usage", held(&tally.used)),
            ] {
                self.families.gauge(gauge, &labels, custom, value);
            }
        }
        covered.extend(tally.requested.keys().copied());
        for ix in covered {
            let resource = world.resources().name(ix);
            let labels = [("cluster_queue", name), ("resource", resource)];
            let requested = tally.requested.get(&ix).copied().unwrap_or_default();
            let requested = Number::amount(resource, requested);
            self.families.gauge("cluster_queue_resource_pending", &labels, custom, requested);
        }
    }

    fn local_queue(&mut self, queue: &LocalQueue, tally: &Tally) {
        let Meta { name, namespace, .. } = &queue.metadata;
        let custom = self.config.custom(SourceKind::LocalQueue, Some(&queue.metadata));
        let of = [("name", name.as_str()), ("namespace", namespace.as_str())];
        let labels = |more: (&'static str, &'static str)| [of[0], of[1], more];
        for (status, number) in [("active", tally.active), ("inadmissible", tally.inadmissible)] {
            let labels = labels(("status", status));
            self.families.gauge("local_queue_pending_workloads", &labels, &custom, number);
        }
        for (gauge, number) in [
            ("local_queue_reserving_active_workloads", tally.reserving),
            ("local_queue_admitted_active_workloads", tally.admitted),
            ("local_queue_finished_workloads", tally.finished),
        ] {
            self.families.gauge(gauge, &of, &custom, number);
        }
        let now = MicroTime(self.index.world().clock().0);
        if let Some(usage) = self.index.weighted_usage(namespace, name, now) {
            let usage =
                if usage == u128::MAX { Number::infinite() } else { Number::fraction(usage, 1_000_000) };
            self.families.gauge("local_queue_admission_fair_sharing_usage", &of, &custom, usage);
        }
        for ((reason, cause), number) in tally.unadmitted.iter().filter(|_| self.config.causes) {
            let labels = [
                of[0],
                of[1],
                ("cluster_queue", queue.spec.cluster_queue.as_str()),
                ("reason", reason.as_str()),
                ("underlying_cause", cause.as_str()),
            ];
            self.families.gauge("local_queue_unadmitted_workloads", &labels, &custom, *number);
        }
        let status =
            if self.index.local_queue_activity(namespace, name).is_active { "True" } else { "False" };
        for known in ["True", "False", "Unknown"] {
            let labels = labels(("active", known));
            self.families.gauge("local_queue_status", &labels, &custom, known == status);
        }
        let world = self.index.world();
        let Some(node) = self.nodes.queues.get(queue.spec.cluster_queue.as_str()) else { return };
        for flavor in world.forest().flavor_resources(*node) {
            let resource = world.resources().name(flavor.resource);
            let labels = [of[0], of[1], ("flavor", world.flavor_name(flavor.flavor)), ("resource", resource)];
            for (gauge, held) in [
                ("local_queue_resource_reservation", &tally.reserved),
                ("local_queue_resource_usage", &tally.used),
            ] {
                let held = Number::amount(resource, held.get(&flavor).copied().unwrap_or_default());
                self.families.gauge(gauge, &labels, &custom, held);
            }
        }
    }

    fn cohort(&mut self, name: &str, tallies: &Tallies<'_>) {
        let object = self.index.cohort(name);
        let custom = self.config.custom(SourceKind::Cohort, object.map(|cohort| &cohort.metadata));
        let path = self.index.cohort_path(name);
        let labels = [
            ("cohort", name),
            ("parent_cohort", path.get(1).copied().unwrap_or_default()),
            ("root_cohort", path.last().copied().unwrap_or_default()),
        ];
        self.families.gauge("cohort_info", &labels, &custom, true);
        let inside: Vec<&ClusterQueue> = self
            .index
            .cluster_queues()
            .filter(|queue| self.index.cohorts_of(&queue.metadata.name).contains(&name))
            .collect();
        let of_queue = |queue: &&ClusterQueue| tallies.cluster.get(queue.metadata.name.as_str());
        let admitted: u64 = inside.iter().filter_map(of_queue).map(|tally| tally.admitted).sum();
        // Its further labels are those of each cluster queue, as in Kueue.
        let labels: BTreeSet<Labels> = inside
            .iter()
            .map(|queue| self.config.custom(SourceKind::ClusterQueue, Some(&queue.metadata)))
            .collect();
        for custom in labels {
            let labels = [("cohort", name)];
            self.families.gauge("cohort_subtree_admitted_active_workloads", &labels, &custom, admitted);
        }
        let mut reserved: BTreeMap<FlavorResource, i128> = BTreeMap::new();
        for (of, amount) in inside.iter().filter_map(of_queue).flat_map(|tally| &tally.reserved) {
            *reserved.entry(*of).or_default() += amount;
        }
        let Some(node) = self.nodes.cohorts.get(name) else { return };
        let world = self.index.world();
        for of in world.forest().flavor_resources(world.forest().root(*node)) {
            let resource = world.resources().name(of.resource);
            let labels = [("cohort", name), ("flavor", world.flavor_name(of.flavor)), ("resource", resource)];
            for (gauge, amount) in [
                ("cohort_subtree_quota", world.forest().subtree_quota(*node, of)),
                ("cohort_subtree_resource_reservations", reserved.get(&of).copied().unwrap_or_default()),
            ] {
                if amount > 0 {
                    self.families.gauge(gauge, &labels, &custom, Number::amount(resource, amount));
                }
            }
        }
        if self.config.shares {
            let share = self.share(*node);
            self.families.gauge("cohort_weighted_share", &[("cohort", name)], &custom, share);
        }
    }

    /// The share of a quota node, in thousandths as Kueue's; not a number if it is unbounded.
    fn share(&self, node: QuotaIx) -> Number {
        let share = self.index.world().quota_share(node).exact_thousandths();
        share.map_or_else(Number::none, |(numerator, denominator)| Number::fraction(numerator, denominator))
    }
}
