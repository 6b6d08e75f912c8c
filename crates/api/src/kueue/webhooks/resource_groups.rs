//! The rules that cluster queues and cohorts share: resource groups and fair sharing.

use std::collections::BTreeSet;

use serde_json::Value;

use super::field_error::FieldError;
use super::names;
use crate::quantity::Quantity;
use crate::value::{at, list, text};

/// The text of an amount below zero.
const NEGATIVE: &str = "must be greater than or equal to 0";

/// What the rules of limits depend on.
pub(super) struct Owner {
    /// The word for the parent: `cohort` or `parent`.
    pub(super) parent: &'static str,
    /// Whether there is a parent.
    pub(super) has_parent: bool,
    /// Whether no more may be lent than the nominal quota.
    pub(super) lends_own_quota_only: bool,
}

/// The rules that a Cohort breaks.
pub(super) fn validate_cohort(cohort: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let owner = Owner {
        parent: "parent",
        has_parent: text(cohort, &["spec", "parentName"]).is_some(),
        lends_own_quota_only: false,
    };
    check_fair_sharing(at(cohort, &["spec", "fairSharing"]), &mut errors);
    check_groups(list(cohort, &["spec", "resourceGroups"]), &owner, &mut errors);
    errors
}

/// Checks the weight of `spec.fairSharing`.
pub(super) fn check_fair_sharing(fair_sharing: &Value, errors: &mut Vec<FieldError>) {
    let path = "spec.fairSharing";
    let Some((value, weight)) = quantity(at(fair_sharing, &["weight"])) else { return };
    if weight.is_negative() {
        errors.push(FieldError::invalid(path, value, NEGATIVE));
    } else if weight > Quantity::ZERO && weight <= Quantity::FINEST {
        errors.push(FieldError::invalid(path, value, "When not 0, weight must be > 10e-9"));
    }
}

/// Checks `spec.resourceGroups`.
pub(super) fn check_groups(groups: &[Value], owner: &Owner, errors: &mut Vec<FieldError>) {
    let (mut resources, mut flavors) = (BTreeSet::new(), BTreeSet::new());
    for (index, group) in groups.iter().enumerate() {
        let path = format!("spec.resourceGroups[{index}]");
        let covered: Vec<&str> =
            list(group, &["coveredResources"]).iter().map(|r| r.as_str().unwrap_or_default()).collect();
        for (index, resource) in covered.iter().enumerate() {
            let path = format!("{path}.coveredResources[{index}]");
            names::check_label_key(resource, &path, errors);
            if !resources.insert(*resource) {
                errors.push(FieldError::duplicate(&path, *resource, ""));
            }
        }
        for (index, flavor) in list(group, &["flavors"]).iter().enumerate() {
            let path = format!("{path}.flavors[{index}]");
            check_quotas(list(flavor, &["resources"]), &covered, owner, &path, errors);
            let name = text(flavor, &["name"]).unwrap_or_default();
            if !flavors.insert(name) {
                errors.push(FieldError::duplicate(&format!("{path}.name"), name, ""));
            }
        }
    }
}

/// Checks the quotas of one flavor: one for each covered resource, in the same order.
fn check_quotas(quotas: &[Value], covered: &[&str], owner: &Owner, path: &str, errors: &mut Vec<FieldError>) {
    for (index, (quota, resource)) in quotas.iter().zip(covered).enumerate() {
        let field = |name: &str| format!("{path}.resources[{index}].{name}");
        let name = text(quota, &["name"]).unwrap_or_default();
        if name != *resource {
            errors.push(FieldError::invalid(&field("name"), name, "must match the name in coveredResources"));
        }
        let nominal = quantity(at(quota, &["nominalQuota"]));
        check_sign(nominal.as_ref(), &field("nominalQuota"), errors);
        let borrowing = quantity(at(quota, &["borrowingLimit"]));
        check_parent(borrowing.as_ref(), owner, &field("borrowingLimit"), errors);
        check_sign(borrowing.as_ref(), &field("borrowingLimit"), errors);
        let lending = quantity(at(quota, &["lendingLimit"]));
        check_sign(lending.as_ref(), &field("lendingLimit"), errors);
        check_parent(lending.as_ref(), owner, &field("lendingLimit"), errors);
        let Some((value, limit)) = lending.filter(|_| owner.lends_own_quota_only) else { continue };
        if limit > nominal.map_or(Quantity::ZERO, |(_, nominal)| nominal) {
            let why = "must be less than or equal to the nominalQuota";
            errors.push(FieldError::invalid(&field("lendingLimit"), value, why));
        }
    }
}

fn check_sign(amount: Option<&(String, Quantity)>, path: &str, errors: &mut Vec<FieldError>) {
    if let Some((value, _)) = amount.filter(|(_, amount)| amount.is_negative()) {
        errors.push(FieldError::invalid(path, value.as_str(), NEGATIVE));
    }
}

/// Without a parent there is nothing to borrow from or to lend to.
fn check_parent(limit: Option<&(String, Quantity)>, owner: &Owner, path: &str, errors: &mut Vec<FieldError>) {
    if let Some((value, _)) = limit.filter(|_| !owner.has_parent) {
        let why = format!("must be nil when {} is empty", owner.parent);
        errors.push(FieldError::invalid(path, value.as_str(), &why));
    }
}

/// An amount with its text; nothing if it is absent or no quantity, which the schema rejects.
pub(super) fn quantity(value: &Value) -> Option<(String, Quantity)> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return None,
    };
    let quantity = Quantity::parse(&text).ok()?;
    Some((text, quantity))
}

/// Checks that an amount at `path` is not negative.
pub(super) fn check_not_negative(amount: &Value, path: &str, errors: &mut Vec<FieldError>) {
    check_sign(quantity(amount).as_ref(), path, errors);
}

/// The names of the flavors of all resource groups.
pub(super) fn flavor_names(queue: &Value) -> BTreeSet<&str> {
    let groups = list(queue, &["spec", "resourceGroups"]).iter();
    groups.flat_map(|group| list(group, &["flavors"])).filter_map(|flavor| text(flavor, &["name"])).collect()
}
