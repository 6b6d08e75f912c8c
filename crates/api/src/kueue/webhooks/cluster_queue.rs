//! The rules of `ClusterQueue`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::Gates;
use super::field_error::{FieldError, IMMUTABLE};
use super::names;
use super::resource_groups::{self, Owner, flavor_names};
use super::same::same;
use crate::value::{at, list, text};

/// Flavors of a queue, over all resource groups.
const FLAVORS_MAX: usize = 256;
/// Covered resources of a queue, over all resource groups.
const RESOURCES_MAX: usize = 256;
/// Pairs of flavor and resource in one resource group.
const PAIRS_MAX: usize = 512;
/// Flavors of a queue with concurrent admission.
const CONCURRENT_FLAVORS_MAX: usize = 16;

/// The rules that a queue breaks; `old` is the stored queue of an update.
pub(super) fn validate(queue: &Value, old: Option<&Value>, gates: &Gates) -> Vec<FieldError> {
    let mut errors = Vec::new();
    check_spec(queue, gates, &mut errors);
    check_flavors_of_checks(queue, &tolerated(queue, old, gates), &mut errors);
    if let Some(old) = old {
        let policy = |queue| at(queue, &["spec", "concurrentAdmissionPolicy"]);
        if !same(policy(queue), policy(old)) {
            let path = "spec.concurrentAdmissionPolicy";
            errors.push(FieldError::invalid(path, policy(queue).clone(), IMMUTABLE));
        }
    }
    errors
}

fn check_spec(queue: &Value, gates: &Gates, errors: &mut Vec<FieldError>) {
    let owner = Owner {
        parent: "cohort",
        has_parent: text(queue, &["spec", "cohortName"]).is_some(),
        lends_own_quota_only: true,
    };
    resource_groups::check_groups(list(queue, &["spec", "resourceGroups"]), &owner, errors);
    names::check_selector(at(queue, &["spec", "namespaceSelector"]), "spec.namespaceSelector", errors);
    check_preemption(at(queue, &["spec", "preemption"]), errors);
    check_fungibility(at(queue, &["spec", "flavorFungibility"]), errors);
    resource_groups::check_fair_sharing(at(queue, &["spec", "fairSharing"]), errors);
    check_totals(list(queue, &["spec", "resourceGroups"]), errors);
    if gates.concurrent_admission && at(queue, &["spec", "concurrentAdmissionPolicy"]).is_object() {
        check_concurrent_admission(queue, errors);
    }
}

fn check_preemption(preemption: &Value, errors: &mut Vec<FieldError>) {
    let never = at(preemption, &["reclaimWithinCohort"]) == "Never";
    let borrow = at(preemption, &["borrowWithinCohort"]);
    if never && borrow.is_object() && at(borrow, &["policy"]) != "Never" {
        let why = "reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never";
        errors.push(FieldError::invalid("spec.preemption", preemption.clone(), why));
    }
}

fn check_fungibility(fungibility: &Value, errors: &mut Vec<FieldError>) {
    let Some(preference) = text(fungibility, &["preference"]) else { return };
    let tries_next = |field| at(fungibility, &[field]) == "TryNextFlavor";
    if !tries_next("whenCanBorrow") || !tries_next("whenCanPreempt") {
        let why = format!(
            "preference \"{preference}\" requires both whenCanBorrow and whenCanPreempt to be TryNextFlavor"
        );
        errors.push(FieldError::invalid("spec.flavorFungibility.preference", preference, &why));
    }
}

fn check_totals(groups: &[Value], errors: &mut Vec<FieldError>) {
    let path = "spec.resourceGroups";
    let total = |field| groups.iter().map(|group| list(group, &[field]).len()).sum::<usize>();
    let totals = [
        (total("flavors"), FLAVORS_MAX, "flavors"),
        (total("coveredResources"), RESOURCES_MAX, "covered resources"),
    ];
    for (total, max, what) in totals {
        if total > max {
            let why =
                format!("total number of {what} across all resourceGroups must be ≤ {max}, got {total}");
            errors.push(FieldError::invalid(path, total, &why));
        }
    }
    for (index, group) in groups.iter().enumerate() {
        let pairs: usize =
            list(group, &["flavors"]).iter().map(|flavor| list(flavor, &["resources"]).len()).sum();
        if pairs > PAIRS_MAX {
            let why = format!(
                "number of flavor-resource combinations in a resourceGroup must be ≤ {PAIRS_MAX}, got {pairs}"
            );
            errors.push(FieldError::invalid(&format!("{path}[{index}]"), pairs, &why));
        }
    }
}

fn check_concurrent_admission(queue: &Value, errors: &mut Vec<FieldError>) {
    let groups = list(queue, &["spec", "resourceGroups"]);
    if let [group] = groups {
        let flavors = list(group, &["flavors"]).len();
        if flavors > CONCURRENT_FLAVORS_MAX {
            let why = "cannot have more than 16 resource flavors in the ResourceGroup when ConcurrentAdmissionPolicy is \
                       defined";
            errors.push(FieldError::invalid("spec.resourceGroups[0].flavors", flavors, why));
        }
    } else {
        let why = "must have exactly one ResourceGroup when ConcurrentAdmissionPolicy is defined";
        errors.push(FieldError::invalid("spec.resourceGroups", groups.len(), why));
    }
    check_migration(queue, errors);
    if at(queue, &["spec", "queueingStrategy"]) == "StrictFIFO" {
        let why = "StrictFIFO queueing strategy cannot be used when ConcurrentAdmissionPolicy is defined";
        errors.push(FieldError::invalid("spec.queueingStrategy", "StrictFIFO", why));
    }
}

fn check_migration(queue: &Value, errors: &mut Vec<FieldError>) {
    let path = "spec.concurrentAdmissionPolicy.migration.constraints";
    let migration = at(queue, &["spec", "concurrentAdmissionPolicy", "migration"]);
    let constraints = at(migration, &["constraints"]);
    if !constraints.is_object() {
        return;
    }
    let mode = text(migration, &["mode"]).unwrap_or("TryPreferredFlavors");
    if mode != "TryPreferredFlavors" {
        let why = format!("may only be set when migration.mode is \"TryPreferredFlavors\" (got \"{mode}\")");
        errors.push(FieldError::forbidden(path, &why));
        return;
    }
    let flavors = flavor_names(queue);
    if let Some(last) = at(constraints, &["lastAcceptableFlavorName"]).as_str()
        && !flavors.contains(last)
    {
        let known: Vec<&str> = flavors.into_iter().collect();
        let why = format!("must be one of the flavors defined in the ClusterQueue: [{}]", known.join(" "));
        errors.push(FieldError::invalid(&format!("{path}.lastAcceptableFlavorName"), last, &why));
    }
}

/// The flavors of an admission check.
type OnFlavors<'a> = BTreeSet<&'a str>;

/// The checks of the stored queue that may keep their flavors, although the queue does not have them: queues that were
/// stored before the rule existed stay editable, as long as the flavors of the queue do not change.
fn tolerated<'a>(queue: &Value, old: Option<&'a Value>, gates: &Gates) -> BTreeMap<&'a str, OnFlavors<'a>> {
    let Some(old) = old.filter(|_| !gates.reject_updates_to_cq_with_invalid_on_flavors) else {
        return BTreeMap::new();
    };
    if flavor_names(old) != flavor_names(queue) {
        return BTreeMap::new();
    }
    checks(old).iter().map(|check| (text(check, &["name"]).unwrap_or_default(), on_flavors(check))).collect()
}

fn check_flavors_of_checks(
    queue: &Value,
    tolerated: &BTreeMap<&str, OnFlavors<'_>>,
    errors: &mut Vec<FieldError>,
) {
    let known = flavor_names(queue);
    for (index, check) in checks(queue).iter().enumerate() {
        let name = text(check, &["name"]).unwrap_or_default();
        if tolerated.get(name).is_some_and(|flavors| *flavors == on_flavors(check)) {
            continue;
        }
        for (at, flavor) in list(check, &["onFlavors"]).iter().enumerate() {
            let flavor = flavor.as_str().unwrap_or_default();
            if !known.contains(flavor) {
                let path = format!("spec.admissionChecksStrategy.admissionChecks[{index}].onFlavors[{at}]");
                errors.push(FieldError::not_supported(&path, flavor, known.iter().copied()));
            }
        }
    }
}

fn checks(queue: &Value) -> &[Value] {
    list(queue, &["spec", "admissionChecksStrategy", "admissionChecks"])
}

fn on_flavors(check: &Value) -> OnFlavors<'_> {
    list(check, &["onFlavors"]).iter().filter_map(Value::as_str).collect()
}
