//! Kueue's messages about pending and preempted Workloads, after `pkg/scheduler` of Kueue v0.19.

mod pod_sets;
mod topology;

use std::collections::BTreeMap;

use index::Index;
use model::{
    Cause, FlavorIx, Gang, PodSet, Preemption, PreemptionReason, QuotaCause, Shortage, Taint, World,
};
use planner::LackReason;
use pod_sets::{Unfit, lacking_quota, not_left, not_offered};
use topology::lacking_places;

/// Why a Workload gets no flavors: for each pod set that lacks some, the sorted reasons.
pub(crate) fn no_fit(index: &Index, gang: &Gang, shortage: &Shortage) -> String {
    let world = index.world();
    if is_gated(shortage) {
        return "Workload requires preemption, but it's gated".into();
    }
    // The time decides between victims alone, which are not named.
    if let Some(lacks) = planner::lacks(&world.snapshot(gang.queued_at), &gang.uid) {
        let told = lacks.iter().map(|lack| (&lack.pod_sets, lack_text(world, gang, &lack.reason)));
        let each = |(pod_sets, text): (&Vec<usize>, String)| -> Vec<_> {
            pod_sets.iter().map(|at| (*at, vec![text.clone()])).collect()
        };
        return by_pod_set(gang, told.flat_map(each));
    }
    let is_short = |cause: &&Cause| matches!(cause, Cause::Quota(QuotaCause::Short { flavor: Some(_), .. }));
    let (short, mut others): (Vec<&Cause>, Vec<&Cause>) = shortage.causes.iter().partition(is_short);
    let places =
        lacking_places(index, gang, &others).filter(|_| others.iter().any(|cause| is_about_nodes(cause)));
    if places.is_some() {
        others.retain(|cause| !is_about_nodes(cause));
    }
    let places = places.map(|(at, text)| (at, vec![text]));
    let told: Vec<(Option<usize>, Option<FlavorIx>, String)> =
        others.into_iter().map(|cause| reason(world, gang, cause)).collect();
    let unfit: Vec<Unfit> =
        told.iter().filter_map(|(at, flavor, text)| Some(((*at)?, (*flavor)?, text.clone()))).collect();
    let lacking = if short.is_empty() { Vec::new() } else { lacking_quota(world, gang, &unfit, None) };
    if lacking.is_empty() {
        // Quota is held for others, or was free in the meantime.
        let short = short.into_iter().map(|cause| reason(world, gang, cause));
        let all = told.into_iter().chain(short);
        let all = all.map(|(at, _, text)| (at.unwrap_or_default(), vec![text]));
        return by_pod_set(gang, all.chain(places));
    }
    let told = told.into_iter().filter(|(_, flavor, _)| flavor.is_none());
    let others = told.map(|(at, _, text)| (at.unwrap_or_default(), vec![text]));
    by_pod_set(gang, lacking.into_iter().chain(others).chain(places))
}

/// What pod sets lack in a flavor.
fn lack_text(world: &World, gang: &Gang, lack: &LackReason) -> String {
    match lack {
        LackReason::Refused(cause) => reason(world, gang, cause).2,
        LackReason::Quota { of, before, needs, available } => {
            let (resource, flavor) = (world.resources().name(of.resource), world.flavor_name(of.flavor));
            match (available, world.quota_of(gang.queue)) {
                (None, Some(node)) => {
                    let most = world.forest().potential_available(node, *of).max(0);
                    not_offered(resource, flavor, *before, *needs, most)
                }
                (available, _) => not_left(resource, flavor, before + needs - available.unwrap_or_default()),
            }
        }
    }
}

/// Whether a cause is that nodes have no room.
fn is_about_nodes(cause: &Cause) -> bool {
    match cause {
        Cause::NoNode { .. }
        | Cause::InsufficientResource { .. }
        | Cause::Combination { .. }
        | Cause::Topology(_)
        | Cause::Total { .. }
        | Cause::WithFlavors { .. }
        | Cause::Together { .. } => true,
        Cause::Quota(_)
        | Cause::PodRules(_)
        | Cause::TopologyError { .. }
        | Cause::AggregateReserved { .. }
        | Cause::StillStopping { .. }
        | Cause::Behind { .. }
        | Cause::WouldDelay { .. }
        | Cause::PlacesLost { .. }
        | Cause::PreemptionGated => false,
    }
}

/// The sorted reasons of each pod set.
fn by_pod_set(gang: &Gang, reasons: impl Iterator<Item = (usize, Vec<String>)>) -> String {
    let mut by_set: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for (at, texts) in reasons {
        by_set.entry(at).or_default().extend(texts);
    }
    let texts = by_set.into_iter().map(|(at, mut texts)| {
        texts.sort();
        texts.dedup();
        let pod_set = gang.pod_sets.get(at).map_or("main", |set| &set.name);
        format!("couldn't assign flavors to pod set {pod_set}: {}", texts.join(", "))
    });
    texts.collect::<Vec<_>>().join("; ")
}

/// Whether only closed preemption gates keep a Workload from being admitted.
pub(crate) fn is_gated(shortage: &Shortage) -> bool {
    shortage.causes.contains(&Cause::PreemptionGated)
}

/// The reason of a Workload that does not fit, with Kueue's feature gate `UnadmittedWorkloadsObservability`.
pub(crate) fn cause(shortage: &Shortage) -> &'static str {
    if is_gated(shortage) {
        return "AdmissionGated";
    }
    let is_short = |is_full: bool| {
        let of = |cause: &Cause| matches!(cause, Cause::Quota(QuotaCause::Short { available, .. }) if available.is_some() == is_full);
        shortage.causes.iter().any(of)
    };
    let is_quota = shortage.causes.iter().all(|cause| matches!(cause, Cause::Quota(_)));
    match (is_short(true), is_short(false)) {
        (false, true) => "ExceedsMaxQuota",
        (false, false) if is_quota => "NoMatchingFlavor",
        (true | false, _) => "WaitingForQuota",
    }
}

/// The message about a Workload that waits for its victims: what it lacks in its flavors until they are gone.
pub(crate) fn pending_preemption(world: &World, gang: &Gang, preemption: &Preemption) -> String {
    let lacking = lacking_quota(world, gang, &[], Some(&preemption.assignment));
    let lacks = by_pod_set(gang, lacking.into_iter());
    let separator = if lacks.is_empty() { "" } else { ". " };
    format!("{lacks}{separator}Pending the preemption of {} workload(s)", preemption.victims.len())
}

/// One reason, with the pod set and the flavor that it is about if it is about such.
fn reason(world: &World, gang: &Gang, cause: &Cause) -> (Option<usize>, Option<FlavorIx>, String) {
    let about = |pod_set: &str, flavor: &str, text: String| {
        let at = gang.pod_sets.iter().position(|set| set.name == pod_set);
        let flavor = world.flavors().iter().find(|(_, known)| known.name == flavor).map(|(ix, _)| *ix);
        (at, flavor, text)
    };
    match cause {
        Cause::Quota(QuotaCause::Short { flavor: Some(flavor), needs, available, potential, .. }) => {
            let name = &needs.resource;
            let resource = world.resources().get(name);
            let requests = |set: &PodSet| resource.is_some_and(|resource| set.requested(resource) > 0);
            let text = match available {
                Some(left) => not_left(name, flavor, i128::from(needs.amount.0) - i128::from(left.amount.0)),
                None => not_offered(name, flavor, 0, needs.amount.0.into(), potential.amount.0.into()),
            };
            (gang.pod_sets.iter().position(requests), None, text)
        }
        Cause::Quota(QuotaCause::Undeclared { resource, .. }) => {
            (None, None, format!("resource {resource} unavailable in ClusterQueue"))
        }
        Cause::Quota(QuotaCause::Untolerated { pod_set, flavor, taint }) => {
            about(pod_set, flavor, format!("untolerated taint {} in flavor {flavor}", go_taint(taint)))
        }
        Cause::Quota(QuotaCause::Unmatched { pod_set, flavor }) => {
            about(pod_set, flavor, format!("flavor {flavor} doesn't match node affinity"))
        }
        Cause::Quota(QuotaCause::OtherFlavor { pod_set, flavor, given }) => {
            let text =
                format!("could not assign {flavor} flavor since the original workload is assigned: {given}");
            about(pod_set, flavor, text)
        }
        Cause::Quota(QuotaCause::NoTopology { pod_set, flavor }) => {
            about(pod_set, flavor, format!("Flavor {flavor:?} does not support TopologyAwareScheduling"))
        }
        Cause::Quota(QuotaCause::TopologyOnly { pod_set, flavor }) => {
            about(pod_set, flavor, format!("Flavor {flavor:?} supports only TopologyAwareScheduling"))
        }
        Cause::Quota(QuotaCause::NoFlavor { flavor }) => (None, None, format!("flavor {flavor} not found")),
        Cause::Quota(
            QuotaCause::Short { .. }
            | QuotaCause::NoQueue { .. }
            | QuotaCause::Stopped { .. }
            | QuotaCause::NoQuota { .. }
            | QuotaCause::Cycle { .. }
            | QuotaCause::NotOffered { .. },
        )
        | Cause::NoNode { .. }
        | Cause::InsufficientResource { .. }
        | Cause::Combination { .. }
        | Cause::PodRules(_)
        | Cause::Topology(_)
        | Cause::TopologyError { .. }
        | Cause::Total { .. }
        | Cause::AggregateReserved { .. }
        | Cause::StillStopping { .. }
        | Cause::Behind { .. }
        | Cause::WouldDelay { .. }
        | Cause::PlacesLost { .. }
        | Cause::PreemptionGated
        | Cause::WithFlavors { .. }
        | Cause::Together { .. } => of_nodes(gang, cause),
    }
}

/// What nodes or other gangs lack, in Muster's own words. If they are about a pod set, its name comes before them, or behind the
/// names of flavors.
fn of_nodes(gang: &Gang, cause: &Cause) -> (Option<usize>, Option<FlavorIx>, String) {
    let text = cause.to_string();
    let named = gang.pod_sets.iter().enumerate().find_map(|(at, set)| {
        let name = format!("{}: ", set.name);
        let rest = match text.strip_prefix(&name) {
            Some(rest) => rest.to_owned(),
            None => {
                text.split_once(&format!(": {name}")).map(|(flavors, rest)| format!("{flavors}: {rest}"))?
            }
        };
        Some((at, rest))
    });
    named.map_or((None, None, text.clone()), |(at, rest)| (Some(at), None, rest))
}

/// A taint as Go prints the structure.
fn go_taint(taint: &Taint) -> String {
    format!("{{{} {} {} <nil>}}", taint.key, taint.value, taint.effect)
}

/// The reason of the condition `Preempted`, and the words of its message.
pub(crate) fn preemption_reason(reason: PreemptionReason) -> (&'static str, &'static str) {
    match reason {
        PreemptionReason::InClusterQueue | PreemptionReason::Priority => {
            ("InClusterQueue", "prioritization in the ClusterQueue")
        }
        PreemptionReason::InCohortReclamation => ("InCohortReclamation", "reclamation within the cohort"),
        PreemptionReason::InCohortFairSharing => ("InCohortFairSharing", "Fair Sharing within the cohort"),
        PreemptionReason::InCohortReclaimWhileBorrowing => {
            ("InCohortReclaimWhileBorrowing", "reclamation within the cohort while borrowing")
        }
    }
}
