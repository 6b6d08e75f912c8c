//! The rules of Kueue's webhook for Workloads: each with an object that holds it and one that breaks it.

#![allow(clippy::needless_pass_by_value, reason = "test code")]

use crate::kueue_cases::{Case, case, check, errors, reserved, workload};
use api::kueue::webhooks::{Context, Gates, Operation, warnings};
use serde_json::{Value, json};

const ELASTIC: (&str, &str) = ("/metadata/annotations", "kueue.x-k8s.io/elastic-job");

fn elastic(changes: &[(&str, Value)]) -> Value {
    let mut all = vec![(ELASTIC.0, json!({(ELASTIC.1): "true"}))];
    all.extend(changes.iter().cloned());
    reserved(&all)
}

#[test]
fn pod_sets_are_checked() {
    let set = |pointer: &str, value: Value| workload(&[(pointer, value)]);
    let labels = "/spec/podSets/0/template/metadata/labels";
    let annotations = "/spec/podSets/0/template/metadata/annotations";
    let resources = "/spec/podSets/0/template/spec/containers/0/resources";
    let request = "/spec/podSets/0/topologyRequest";
    let min = ("/spec/podSets/0/minCount", json!(1));
    let elastic_annotation = (ELASTIC.0, json!({(ELASTIC.1): "true"}));
    check(&[
        case(
            "workloads",
            workload(std::slice::from_ref(&min)),
            workload(&[min.clone(), ("/spec/podSets/1/minCount", json!(1))]),
            "spec.podSets: Invalid value: 2: at most one podSet can use minCount",
        ),
        case(
            "workloads",
            workload(std::slice::from_ref(&elastic_annotation)),
            workload(&[min, elastic_annotation]),
            "spec.podSets: Invalid value: 1: partial admission and elastic job cannot be used together",
        ),
        case(
            "workloads",
            set(labels, json!({"a": "b"})),
            set(labels, json!({"a": "b c"})),
            "spec.podSets[0].template.metadata.labels: Invalid value: \"b c\": a valid label...",
        ),
        case(
            "workloads",
            set(annotations, json!({"A.com/b": "any text"})),
            set(annotations, json!({"@": "b"})),
            "spec.podSets[0].template.metadata.annotations: Invalid value: \"@\": name part must consist...",
        ),
        case(
            "workloads",
            set(annotations, json!({"a": "x".repeat(1000)})),
            set(annotations, json!({"a": "x".repeat(256 << 10)})),
            "spec.podSets[0].template.metadata.annotations: Too long: may not be more than 262144 bytes",
        ),
        case(
            "workloads",
            set(resources, json!({"requests": {"cpu": 1}})),
            set(resources, json!({"requests": {"pods": 1}})),
            "spec.podSets[0].template.spec.containers[0].resources.requests[pods]: Invalid value: \"pods\": the key is reserved for internal kueue use",
        ),
        case(
            "workloads",
            set(resources, json!({"limits": {"cpu": 0}})),
            set(resources, json!({"limits": {"cpu": "-1"}})),
            "spec.podSets[0].template.spec.containers[0].resources.limits[cpu]: Invalid value: \"-1\": must be greater than or equal to 0",
        ),
        case(
            "workloads",
            set("/spec/podSets/0/template/spec/initContainers", json!([{"resources": {}}])),
            set(
                "/spec/podSets/0/template/spec/initContainers",
                json!([{"resources": {"requests": {"pods": 1}}}]),
            ),
            "spec.podSets[0].template.spec.initContainers[0].resources.requests[pods]: Invalid value: \"pods\": the key is reserved for internal kueue use",
        ),
        case(
            "workloads",
            set("/spec/podSets/0/template/spec/resources", json!({"requests": {"cpu": 1}})),
            set("/spec/podSets/0/template/spec/resources", json!({"requests": {"cpu": "-2"}})),
            "spec.podSets[0].template.spec.resources.requests[cpu]: Invalid value: \"-2\": must be greater than or equal to 0",
        ),
        case(
            "workloads",
            set(request, json!({"podSetSliceRequiredTopology": "rack", "podSetSliceSize": 1})),
            set(request, json!({"podSetSliceRequiredTopology": "rack"})),
            "spec.podSets[0].topologyRequest.podSetSliceSize: Required value: must be set when podSetSliceRequiredTopology is specified",
        ),
        case(
            "workloads",
            set(request, json!({"required": "rack"})),
            set(request, json!({"podSetSliceRequiredTopology": "rack", "podSetSliceSize": 0})),
            "spec.podSets[0].topologyRequest.podSetSliceSize: Invalid value: 0: must be greater than 0",
        ),
        case(
            "workloads",
            set(request, json!({})),
            set(request, json!({"podSetSliceSize": 2})),
            "spec.podSets[0].topologyRequest.podSetSliceSize: Forbidden: may not be set when podSetSliceRequiredTopology is not specified",
        ),
        case(
            "workloads",
            set(request, json!({"podsetSliceRequiredTopologyConstraints": [{"size": 1}]})),
            set(request, json!({"podsetSliceRequiredTopologyConstraints": [{"size": 1}, {"size": 0}]})),
            "spec.podSets[0].topologyRequest.podsetSliceRequiredTopologyConstraints[1].size: Invalid value: 0: must be greater than 0",
        ),
    ]);
    let negative = set(request, json!({"subGroupCount": -1}));
    let text = "spec.podSets[0].topologyRequest.subGroupCount: negative value -1 is deprecated and will be rejected in a future release";
    let warnings = |workload: &Value| warnings("workloads", Operation::Create, workload, &Context::default());
    assert_eq!(warnings(&negative), [text]);
    assert_eq!(warnings(&workload(&[])), Vec::<String>::new());
}

#[test]
fn the_status_of_workloads_is_checked() {
    let update = |fields: Value| {
        reserved(&[(
            "/status/admissionChecks",
            json!([{"name": "c", "state": "Ready", "podSetUpdates": [fields]}]),
        )])
    };
    let condition = |fields: &Value| {
        let mut condition = json!({"type": "t", "status": "True", "reason": "r", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        for (key, value) in fields.as_object().unwrap() {
            condition[key] = value.clone();
        }
        workload(&[("/status/conditions", json!([condition]))])
    };
    let reclaim = |name: &str, count: u32| {
        workload(&[("/status/reclaimablePods", json!([{"name": name, "count": count}]))])
    };
    let good = || reserved(&[]);
    check(&[
        case(
            "workloads",
            workload(&[("/status/admission", Value::Null)]),
            reserved(&[("/status/admission", Value::Null)]),
            "status.admission: Required value: must be set while the QuotaReserved condition is true",
        ),
        case(
            "workloads",
            good(),
            reserved(&[("/status/admission/podSetAssignments/1/name", json!("x"))]),
            "status.admission.podSetAssignments[1].name: Not found: \"x\"",
        ),
        case(
            "workloads",
            good(),
            reserved(&[("/status/admission/podSetAssignments/0/resourceUsage/cpu", json!("1001m"))]),
            "status.admission.podSetAssignments[0].resourceUsage[cpu]: Invalid value: \"1001m\": is not a multiple of 4",
        ),
        case(
            "workloads",
            good(),
            reserved(&[("/status/admission/podSetAssignments/0/resourceUsage/memory", json!("1025"))]),
            "status.admission.podSetAssignments[0].resourceUsage[memory]: Invalid value: \"1025\": is not a multiple of 4",
        ),
        case(
            "workloads",
            reclaim("main", 4),
            reclaim("x", 1),
            "status.reclaimablePods[x].name: Unsupported value: \"x\": supported values: \"main\", \"side\"",
        ),
        case(
            "workloads",
            reclaim("main", 0),
            reclaim("main", 5),
            "status.reclaimablePods[main].count: Invalid value: 5: should be less or equal to 4",
        ),
        case(
            "workloads",
            condition(&json!({})),
            condition(&json!({"status": "Maybe"})),
            "status.conditions[0].status: Unsupported value: \"Maybe\": supported values: \"False\", \"True\", \"Unknown\"",
        ),
        case(
            "workloads",
            condition(&json!({"observedGeneration": 0})),
            condition(&json!({"observedGeneration": -1})),
            "status.conditions[0].observedGeneration: Invalid value: -1: must be greater than or equal to zero",
        ),
        case(
            "workloads",
            condition(&json!({})),
            condition(&json!({"lastTransitionTime": null})),
            "status.conditions[0].lastTransitionTime: Required value",
        ),
        case(
            "workloads",
            condition(&json!({"reason": "A_"})),
            condition(&json!({"reason": ""})),
            "status.conditions[0].reason: Required value",
        ),
        case(
            "workloads",
            condition(&json!({"reason": "A"})),
            condition(&json!({"reason": "9"})),
            "status.conditions[0].reason: Invalid value: \"9\": a condition reason must start...",
        ),
        case(
            "workloads",
            condition(&json!({})),
            condition(&json!({"reason": "a".repeat(1025)})),
            "status.conditions[0].reason: Too long: may not be more than 1024 bytes",
        ),
        case(
            "workloads",
            condition(&json!({})),
            condition(&json!({"message": "a".repeat(32769)})),
            "status.conditions[0].message: Too long: may not be more than 32768 bytes",
        ),
        case(
            "workloads",
            update(json!({"name": "main"})),
            update(json!({"name": "x"})),
            "status.admissionChecks[0].podSetUpdates[0].name: Unsupported value: \"x\": supported values: \"main\", \"side\"",
        ),
        case(
            "workloads",
            update(json!({"name": "main", "labels": {"a": "b"}})),
            update(json!({"name": "main", "labels": {"@": "b"}})),
            "status.admissionChecks[0].podSetUpdates[0].labels: Invalid value: \"@\"...",
        ),
        case(
            "workloads",
            update(json!({"name": "main", "annotations": {"a": "b c"}})),
            update(json!({"name": "main", "annotations": {"@": "b"}})),
            "status.admissionChecks[0].podSetUpdates[0].annotations: Invalid value: \"@\"...",
        ),
        case(
            "workloads",
            update(json!({"name": "main", "nodeSelector": {"a": "b"}})),
            update(json!({"name": "main", "nodeSelector": {"a": "b c"}})),
            "status.admissionChecks[0].podSetUpdates[0].nodeSelector: Invalid value: \"b c\"...",
        ),
        case(
            "workloads",
            update(json!({"name": "main", "tolerations": [{"key": "a"}]})),
            update(json!({"name": "main", "tolerations": [{"key": "@"}]})),
            "status.admissionChecks[0].podSetUpdates[0].tolerations[0].key: Invalid value: \"@\"...",
        ),
    ]);
    let twice = workload(&[(
        "/status/conditions",
        json!([
        {"type": "t", "status": "True", "reason": "r", "lastTransitionTime": "x"}, {"type": "t", "status": "True", "reason": "r", "lastTransitionTime": "x"}]),
    )]);
    let all = case("workloads", Value::Null, Value::Null, "");
    assert_eq!(errors(&all, &twice), ["status.conditions[1].type: Duplicate value: \"t\""]);
}

#[test]
fn annotations_of_workloads_are_checked() {
    let gated = |value: &str| {
        workload(&[("/metadata/annotations", json!({"kueue.x-k8s.io/admission-gated-by": value}))])
    };
    let boost =
        |value: &str| workload(&[("/metadata/annotations", json!({"kueue.x-k8s.io/priority-boost": value}))]);
    let gates = Gates { priority_boost: true, ..Gates::default() };
    let from = |old: &str, good: &str, bad: &str, error| Case {
        old: Some(gated(old)),
        ..case("workloads", gated(good), gated(bad), error)
    };
    check(&[
        case(
            "workloads",
            gated("a.b/c, d.e/f"),
            gated("a.b/c,,d.e/f"),
            "metadata.annotations[kueue.x-k8s.io/admission-gated-by]: Invalid value: \"a.b/c,,d.e/f\": cannot contain empty gate names",
        ),
        case(
            "workloads",
            gated(" "),
            gated("a.b/c,a.b/c"),
            "metadata.annotations[kueue.x-k8s.io/admission-gated-by]: Invalid value: \"a.b/c,a.b/c\": duplicate gate name: a.b/c",
        ),
        case(
            "workloads",
            gated("a/b/c"),
            gated("a"),
            "metadata.annotations[kueue.x-k8s.io/admission-gated-by]: Invalid value: \"a\": must be a domain-prefixed path (such as \"acme.io/foo\")",
        ),
        case(
            "workloads",
            gated("a/b"),
            gated("A/b"),
            "metadata.annotations[kueue.x-k8s.io/admission-gated-by]: Invalid value: \"A\": a lowercase RFC 1123 subdomain...",
        ),
        case(
            "workloads",
            gated("a/b"),
            gated("a/b c"),
            "metadata.annotations[kueue.x-k8s.io/admission-gated-by]: Invalid value: \"b c\": Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')",
        ),
        case(
            "workloads",
            gated(&format!("a/{}", "b".repeat(61))),
            gated(&format!("a/{}", "b".repeat(62))),
            "metadata.annotations[kueue.x-k8s.io/admission-gated-by]: Too long: may not be more than 63 bytes",
        ),
        from(
            "",
            "",
            "a/b",
            "metadata.annotations[kueue.x-k8s.io/admission-gated-by]: Forbidden: cannot add admission gate after creation",
        ),
        from(
            "a/b,a/c",
            "a/c",
            "a/b,a/d",
            "metadata.annotations[kueue.x-k8s.io/admission-gated-by]: Forbidden: can only remove gates, not add new ones",
        ),
        Case {
            gates,
            ..case(
                "workloads",
                boost("-7"),
                boost(""),
                "metadata.annotations[kueue.x-k8s.io/priority-boost]: Invalid value: \"\": must be a valid signed integer; use \"0\" explicitly, empty string is not allowed",
            )
        },
        Case {
            gates,
            ..case(
                "workloads",
                boost("2147483647"),
                boost("2147483648"),
                "metadata.annotations[kueue.x-k8s.io/priority-boost]: Invalid value: \"2147483648\": must be a valid signed integer",
            )
        },
    ]);
    assert_eq!(
        errors(&case("workloads", Value::Null, Value::Null, ""), &boost("x")),
        Vec::<String>::new(),
        "the gate is off"
    );
}

#[test]
fn updates_of_workloads_are_checked() {
    let update = |old: Value, good: Value, bad: Value, error| Case {
        old: Some(old),
        ..case("workloads", good, bad, error)
    };
    let priority =
        |class: &str| reserved(&[("/spec/podSets/0/template/spec/priorityClassName", json!(class))]);
    let requests = |amount: &str| {
        reserved(&[(
            "/spec/podSets/0/template/spec/containers/0/resources",
            json!({"requests": {"cpu": amount}}),
        )])
    };
    let count = |count: u32| reserved(&[("/spec/podSets/0/count", json!(count))]);
    let queue = |queue: &str| reserved(&[("/status/admission/clusterQueue", json!(queue))]);
    let reclaim = |pods: Value| reserved(&[("/status/reclaimablePods", pods)]);
    let shrunk =
        |pods: Value| elastic(&[("/spec/podSets/0/count", json!(2)), ("/status/reclaimablePods", pods)]);
    let main = |count: u32| json!([{"name": "main", "count": count}]);
    let check_update = |state: &str, label: &str| {
        reserved(&[(
            "/status/admissionChecks",
            json!([{"name": "c", "state": state, "podSetUpdates": [{"name": "main", "labels": {"a": label}}]}]),
        )])
    };
    let cluster = |name: Value, nominated: Value| {
        workload(&[("/status/clusterName", name), ("/status/nominatedClusterNames", nominated)])
    };
    let places =
        |places: Value| reserved(&[("/status/admission/podSetAssignments/0/topologyAssignment", places)]);
    let no_admission = || reserved(&[("/status/admission", Value::Null)]);
    check(&[
        update(priority("a"), priority("a"), priority("b"), "spec.podSets.0: Invalid value: {..."),
        update(requests("1"), requests("1000m"), requests("2"), "spec.podSets.0: Invalid value: {..."),
        update(reserved(&[]), count(3), count(5), "spec.podSets.0: Invalid value: {..."),
        update(
            queue("q"),
            places(json!({"levels": ["a"]})),
            queue("r"),
            "status.admission: Invalid value: {...",
        ),
        update(queue("q"), no_admission_cleared(), queue("r"), "status.admission: Invalid value: {..."),
        update(
            no_admission(),
            no_admission(),
            reserved(&[("/status/admission/podSetAssignments/1/name", json!("x"))]),
            "status.admission.podSetAssignments[1].name: Not found: \"x\"",
        ),
        update(
            reclaim(main(2)),
            reclaim(main(3)),
            reclaim(main(1)),
            "status.reclaimablePods[main].count: Invalid value: 1: cannot be less than 2",
        ),
        update(
            reclaim(main(2)),
            reclaim(main(2)),
            reclaim(json!([])),
            "status.reclaimablePods[main]: Required value: cannot be removed",
        ),
        update(
            elastic(&[("/status/reclaimablePods", main(3))]),
            shrunk(main(3)),
            shrunk(main(4)),
            "status.reclaimablePods[main].count: Invalid value: 4: should be less or equal to 2",
        ),
        update(
            elastic(&[("/status/reclaimablePods", main(3))]),
            shrunk(json!([])),
            shrunk(main(4)),
            "status.reclaimablePods[main].count: Invalid value: 4: should be less or equal to 2",
        ),
        update(
            check_update("Ready", "x"),
            check_update("Ready", "x"),
            check_update("Ready", "y"),
            "status.admissionChecks[0].podSetUpdates: Invalid value: [{\"labels\":{\"a\":\"y\"},\"name\":\"main\"}]: field is immutable",
        ),
        update(
            check_update("Ready", "x"),
            check_update("Pending", "y"),
            check_update("Ready", "y"),
            "status.admissionChecks[0].podSetUpdates: Invalid value: [...",
        ),
        update(
            cluster(Value::Null, json!(["a"])),
            cluster(json!("a"), json!([])),
            cluster(json!("b"), json!([])),
            "status.clusterName: Invalid value: \"b\": when setting clusterName it must be one of the nominatedClusterNames",
        ),
    ]);
    let removed = reserved(&[("/spec/podSets", json!([]))]);
    let all = Case { old: Some(reserved(&[])), ..case("workloads", Value::Null, Value::Null, "") };
    assert!(
        errors(&all, &removed).contains(&"spec.podSets: Invalid value: []: field is immutable".to_owned())
    );
    // Without a reservation the pod sets may change.
    let free = Case { old: Some(workload(&[])), ..case("workloads", Value::Null, Value::Null, "") };
    assert_eq!(errors(&free, &workload(&[("/spec/podSets/0/count", json!(9))])), Vec::<String>::new());
}

/// A workload that gives its admission back.
fn no_admission_cleared() -> Value {
    workload(&[("/status/admission", Value::Null)])
}
