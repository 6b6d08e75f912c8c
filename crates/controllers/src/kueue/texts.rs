//! Kueue's messages about pending and preempted Workloads, after `pkg/scheduler` of Kueue v0.19.

use std::collections::BTreeSet;

use api::kueue::quantity::canonical;
use model::{
    Amount, Cause, FlavorIx, FlavorResource, Gang, Preemption, PreemptionReason, Quantity, QueueingHint,
    QuotaCause, QuotaIx, ResourceIx, Shortage, Taint, World,
};

/// Why a Workload gets no flavors: for each pod set that lacks some, the sorted reasons.
pub(crate) fn no_fit(world: &World, gang: &Gang, shortage: &Shortage) -> String {
    if is_gated(shortage) {
        return "Workload requires preemption, but it's gated".into();
    }
    let mut by_set: Vec<(&str, Vec<String>)> = Vec::new();
    for cause in &*shortage.causes {
        let (pod_set, text) = reason(world, gang, cause);
        let pod_set = pod_set.unwrap_or_else(|| gang.pod_sets.first().map_or("main", |set| &set.name));
        match by_set.iter_mut().find(|(known, _)| *known == pod_set) {
            Some((_, texts)) => texts.push(text),
            None => by_set.push((pod_set, vec![text])),
        }
    }
    let texts = by_set.into_iter().map(|(pod_set, mut texts)| {
        texts.sort();
        texts.dedup();
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
    let mut causes = Vec::new();
    let flavors: BTreeSet<(ResourceIx, FlavorIx)> = preemption
        .assignment
        .flavors
        .iter()
        .flatten()
        .map(|(resource, flavor)| (*resource, *flavor))
        .collect();
    if let Some(node) = world.quota_of(gang.queue) {
        for (resource, flavor) in flavors {
            causes.extend(lacking(world, gang, node, FlavorResource { flavor, resource }));
        }
    }
    let shortage = Shortage { causes: causes.into(), queueing_hint: QueueingHint::QuotaReleased };
    let lacks = no_fit(world, gang, &shortage);
    let separator = if lacks.is_empty() { "" } else { ". " };
    format!("{lacks}{separator}Pending the preemption of {} workload(s)", preemption.victims.len())
}

/// What a nominated gang lacks of a flavor, if it lacks any. Its own request is charged already.
fn lacking(world: &World, gang: &Gang, node: QuotaIx, of: FlavorResource) -> Option<Cause> {
    let amount = |amount: i128| {
        let name = world.resources().name(of.resource);
        Quantity::new(name, Amount(i64::try_from(amount).unwrap_or(i64::MAX)))
    };
    let own =
        world.charged(&gang.uid).and_then(|charges| charges.get(&(node, of))).copied().unwrap_or_default();
    let needs: i128 = gang.pod_sets.iter().map(|set| set.requested(of.resource)).sum();
    let available = world.quota_available(node, of) + own;
    (needs > available).then(|| {
        Cause::Quota(QuotaCause::Short {
            quota: String::new(),
            flavor: Some(world.flavor_name(of.flavor).to_owned()),
            needs: amount(needs),
            available: Some(amount(available)),
            potential: amount(world.forest().potential_available(node, of)),
        })
    })
}

/// One reason, and the pod set that it is about if it is about one.
fn reason<'a>(world: &World, gang: &'a Gang, cause: &'a Cause) -> (Option<&'a str>, String) {
    match cause {
        Cause::Quota(QuotaCause::Short { flavor, needs, available, potential, .. }) => {
            let flavor = flavor.as_deref().unwrap_or_default();
            short(world, gang, flavor, needs, available.as_ref(), potential)
        }
        Cause::Quota(QuotaCause::Undeclared { resource, .. }) => {
            (None, format!("resource {resource} unavailable in ClusterQueue"))
        }
        Cause::Quota(QuotaCause::Untolerated { pod_set, flavor, taint }) => {
            (Some(pod_set), format!("untolerated taint {} in flavor {flavor}", go_taint(taint)))
        }
        Cause::Quota(QuotaCause::Unmatched { pod_set, flavor }) => {
            (Some(pod_set), format!("flavor {flavor} doesn't match node affinity"))
        }
        Cause::Quota(QuotaCause::NoTopology { pod_set, flavor }) => {
            (Some(pod_set), format!("Flavor {flavor:?} does not support TopologyAwareScheduling"))
        }
        Cause::Quota(QuotaCause::TopologyOnly { pod_set, flavor }) => {
            (Some(pod_set), format!("Flavor {flavor:?} supports only TopologyAwareScheduling"))
        }
        Cause::Quota(QuotaCause::NoFlavor { flavor }) => (None, format!("flavor {flavor} not found")),
        Cause::Quota(
            QuotaCause::NoQueue { .. }
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
fn of_nodes<'a>(gang: &'a Gang, cause: &Cause) -> (Option<&'a str>, String) {
    let text = cause.to_string();
    let named = gang.pod_sets.iter().find_map(|set| {
        let name = format!("{}: ", set.name);
        let rest = match text.strip_prefix(&name) {
            Some(rest) => rest.to_owned(),
            None => {
                text.split_once(&format!(": {name}")).map(|(flavors, rest)| format!("{flavors}: {rest}"))?
            }
        };
        Some((set.name.as_str(), rest))
    });
    named.map_or((None, text.clone()), |(pod_set, rest)| (Some(pod_set), rest))
}

/// Too little quota. The pod sets are counted in their order: the first one that exceeds the quota is named.
fn short<'a>(
    world: &World,
    gang: &'a Gang,
    flavor: &str,
    needs: &Quantity,
    available: Option<&Quantity>,
    potential: &Quantity,
) -> (Option<&'a str>, String) {
    let name = needs.resource.as_str();
    let limit = available.unwrap_or(potential).amount.0;
    let resource = world.resources().get(name);
    let (mut before, mut found) = (0, None);
    for set in &*gang.pod_sets {
        let own = resource.map_or(0, |ix| i64::try_from(set.requested(ix)).unwrap_or(i64::MAX));
        if found.is_none() && own > 0 && before + own > limit {
            found = Some((set.name.as_str(), before, own));
        }
        before = before.saturating_add(own);
    }
    let (pod_set, before, own) = match found {
        Some((pod_set, before, own)) => (Some(pod_set), before, own),
        None => (None, 0, needs.amount.0),
    };
    let text = if available.is_some() {
        let more = canonical(name, before.saturating_add(own).saturating_sub(limit));
        format!("insufficient unused quota for {name} in flavor {flavor}, {more} more needed")
    } else {
        format!(
            "insufficient quota for {name} in flavor {flavor}, previously considered podsets requests ({}) + current podset \
             request ({}) > maximum capacity ({})",
            canonical(name, before),
            canonical(name, own),
            canonical(name, limit),
        )
    };
    (pod_set, text)
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
