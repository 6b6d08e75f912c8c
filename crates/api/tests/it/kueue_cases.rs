//! A table of rules of Kueue's webhooks.

#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, clippy::needless_pass_by_value, reason = "test code")]

use api::kueue::webhooks::{Context, Gates, JobDefaults, Operation, validate};
use serde_json::{Value, json};

/// A rule: `good` holds it, `bad` breaks it with this error alone. With `old`, both are updates of it.
pub(crate) struct Case {
    pub(crate) resource: &'static str,
    pub(crate) gates: Gates,
    pub(crate) old: Option<Value>,
    pub(crate) good: Value,
    pub(crate) bad: Value,
    pub(crate) error: &'static str,
}

pub(crate) fn case(resource: &'static str, good: Value, bad: Value, error: &'static str) -> Case {
    Case { resource, gates: Gates::default(), old: None, good, bad, error }
}

pub(crate) fn errors(case: &Case, object: &Value) -> Vec<String> {
    let operation = if case.old.is_some() { Operation::Update } else { Operation::Create };
    let context = Context { gates: case.gates, ..Context::default() };
    let found =
        validate(case.resource, operation, object, case.old.as_ref(), &JobDefaults::default(), &context);
    found.iter().map(ToString::to_string).collect()
}

pub(crate) fn check(cases: &[Case]) {
    for case in cases {
        assert_eq!(
            errors(case, &case.good),
            Vec::<String>::new(),
            "of the object that holds: {}",
            case.error
        );
        let found = errors(case, &case.bad);
        assert_eq!(found.len(), 1, "{}: {found:?}", case.error);
        let is_expected = case
            .error
            .strip_suffix("...")
            .map_or(found[0] == case.error, |start| found[0].starts_with(start));
        assert!(is_expected, "expected {}\n   found {}", case.error, found[0]);
    }
}

pub(crate) fn workload(changes: &[(&str, Value)]) -> Value {
    let mut workload = json!({
        "metadata": {"name": "w", "annotations": {}},
        "spec": {"podSets": [
            {"name": "main", "count": 4, "template": {"metadata": {}, "spec": {"containers": [{"name": "c", "resources": {}}]}}},
            {"name": "side", "count": 1, "template": {"spec": {"containers": []}}},
        ]},
        "status": {"admission": {"clusterQueue": "q", "podSetAssignments": [
            {"name": "main", "count": 4, "resourceUsage": {"cpu": "4"}}, {"name": "side", "count": 1}]}},
    });
    for (pointer, value) in changes {
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        let parent = workload.pointer_mut(parent).unwrap();
        match (parent.is_array(), field.parse::<usize>()) {
            (true, Ok(index)) => parent[index] = value.clone(),
            _ => parent[field] = value.clone(),
        }
    }
    workload
}

pub(crate) fn reserved(changes: &[(&str, Value)]) -> Value {
    let condition = json!([{"type": "QuotaReserved", "status": "True", "reason": "r", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    let mut all = vec![("/status/conditions", condition)];
    all.extend(changes.iter().cloned());
    workload(&all)
}
