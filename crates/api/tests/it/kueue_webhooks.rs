//! Defaults, and the rules of Kueue's webhooks for queues, cohorts and flavors: each with an object that holds it and one
//! that breaks it.

#![allow(clippy::unwrap_used, clippy::needless_pass_by_value, reason = "test code")]

use crate::kueue_cases::{Case, case, check, errors, reserved, workload};
use api::kueue::webhooks::{
    Context, FieldError, Gates, JobDefaults, Operation, Reason, aggregate, default, validate,
};
use serde_json::{Value, json};

fn spec(spec: &Value) -> Value {
    json!({"metadata": {"name": "x"}, "spec": spec})
}

fn quota(fields: &Value) -> Value {
    let mut quota = json!({"name": "cpu", "nominalQuota": "2"});
    for (key, value) in fields.as_object().unwrap() {
        quota[key] = value.clone();
    }
    json!([{"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [quota]}]}])
}

fn queue(fields: &Value) -> Value {
    spec(&json!({"cohortName": "all", "resourceGroups": quota(fields)}))
}

/// A queue with this number of groups, flavors in a group, and resources.
fn large_queue(groups: usize, flavors: usize, resources: usize) -> Value {
    let group = |group: usize| {
        let names: Vec<String> = (0..resources).map(|n| format!("r{group}-{n}")).collect();
        let quotas: Vec<Value> = names.iter().map(|name| json!({"name": name, "nominalQuota": 1})).collect();
        let flavors: Vec<Value> =
            (0..flavors).map(|n| json!({"name": format!("f{group}-{n}"), "resources": quotas})).collect();
        json!({"coveredResources": names, "flavors": flavors})
    };
    spec(&json!({"resourceGroups": (0..groups).map(group).collect::<Vec<_>>()}))
}

#[test]
fn resource_groups_are_checked() {
    let two_groups = |resource: &str, flavor: &str| {
        let group = |resource: &str, flavor: &str| json!({"coveredResources": [resource], "flavors": [{"name": flavor, "resources": [{"name": resource, "nominalQuota": 1}]}]});
        spec(&json!({"resourceGroups": [group("cpu", "f"), group(resource, flavor)]}))
    };
    let with_name =
        |name: &str| spec(&json!({"resourceGroups": [{"coveredResources": [name], "flavors": []}]}));
    let path = "spec.resourceGroups[0].flavors[0].resources[0]";
    let all = [
        case(
            "clusterqueues",
            with_name("a.b/c"),
            with_name("@cpu"),
            "spec.resourceGroups[0].coveredResources[0]: Invalid value: \"@cpu\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
        ),
        case(
            "clusterqueues",
            two_groups("memory", "g"),
            two_groups("cpu", "g"),
            "spec.resourceGroups[1].coveredResources[0]: Duplicate value: \"cpu\"",
        ),
        case(
            "cohorts",
            two_groups("memory", "g"),
            two_groups("memory", "f"),
            "spec.resourceGroups[1].flavors[0].name: Duplicate value: \"f\"",
        ),
        case(
            "clusterqueues",
            queue(&json!({})),
            queue(&json!({"name": "memory"})),
            "spec.resourceGroups[0].flavors[0].resources[0].name: Invalid value: \"memory\": must match the name in coveredResources",
        ),
        case(
            "clusterqueues",
            queue(&json!({"nominalQuota": "0"})),
            queue(&json!({"nominalQuota": "-1"})),
            "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota: Invalid value: \"-1\": must be greater than or equal to 0",
        ),
        case(
            "clusterqueues",
            queue(&json!({"borrowingLimit": 1})),
            queue(&json!({"borrowingLimit": -1})),
            "spec.resourceGroups[0].flavors[0].resources[0].borrowingLimit: Invalid value: \"-1\": must be greater than or equal to 0",
        ),
        case(
            "clusterqueues",
            queue(&json!({"lendingLimit": "2"})),
            queue(&json!({"lendingLimit": "-1m"})),
            "spec.resourceGroups[0].flavors[0].resources[0].lendingLimit: Invalid value: \"-1m\": must be greater than or equal to 0",
        ),
        case(
            "clusterqueues",
            queue(&json!({"lendingLimit": "2000m"})),
            queue(&json!({"lendingLimit": "3"})),
            "spec.resourceGroups[0].flavors[0].resources[0].lendingLimit: Invalid value: \"3\": must be less than or equal to the nominalQuota",
        ),
        case(
            "clusterqueues",
            queue(&json!({"borrowingLimit": "1"})),
            spec(&json!({"resourceGroups": quota(&json!({"borrowingLimit": "1"}))})),
            "spec.resourceGroups[0].flavors[0].resources[0].borrowingLimit: Invalid value: \"1\": must be nil when cohort is empty",
        ),
        case(
            "cohorts",
            spec(&json!({"parentName": "root", "resourceGroups": quota(&json!({"lendingLimit": "3"}))})),
            spec(&json!({"resourceGroups": quota(&json!({"lendingLimit": "3"}))})),
            "spec.resourceGroups[0].flavors[0].resources[0].lendingLimit: Invalid value: \"3\": must be nil when parent is empty",
        ),
        case(
            "cohorts",
            spec(&json!({"fairSharing": {"weight": 0}})),
            spec(&json!({"fairSharing": {"weight": "-1"}})),
            "spec.fairSharing: Invalid value: \"-1\": must be greater than or equal to 0",
        ),
        case(
            "clusterqueues",
            spec(&json!({"fairSharing": {"weight": "2n"}})),
            spec(&json!({"fairSharing": {"weight": "1n"}})),
            "spec.fairSharing: Invalid value: \"1n\": When not 0, weight must be > 10e-9",
        ),
        case(
            "clusterqueues",
            large_queue(4, 64, 1),
            large_queue(4, 65, 1),
            "spec.resourceGroups: Invalid value: 260: total number of flavors across all resourceGroups must be ≤ 256, got 260",
        ),
        case(
            "clusterqueues",
            large_queue(4, 1, 64),
            large_queue(4, 1, 65),
            "spec.resourceGroups: Invalid value: 260: total number of covered resources across all resourceGroups must be ≤ 256, got 260",
        ),
        case(
            "clusterqueues",
            large_queue(1, 64, 8),
            large_queue(1, 57, 9),
            "spec.resourceGroups[0]: Invalid value: 513: number of flavor-resource combinations in a resourceGroup must be ≤ 512, got 513",
        ),
    ];
    check(&all);
    let none = FieldError { field: format!("{path}.name"), reason: Reason::Invalid, message: "x".into() };
    assert_eq!(aggregate(&[none.clone(), none.clone()]), format!("{path}.name: x"));
    let other = FieldError { field: "spec".into(), ..none.clone() };
    assert_eq!(aggregate(&[none, other]), format!("[{path}.name: x, spec: x]"));
}

#[test]
fn policies_of_cluster_queues_are_checked() {
    let selector =
        |expression: Value| spec(&json!({"namespaceSelector": {"matchExpressions": [expression]}}));
    check(&[
        case(
            "clusterqueues",
            selector(json!({"key": "a", "operator": "In", "values": ["b"]})),
            selector(json!({"key": "a", "operator": "In"})),
            "spec.namespaceSelector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
        ),
        case(
            "clusterqueues",
            selector(json!({"key": "a", "operator": "Exists"})),
            selector(json!({"key": "a", "operator": "Exists", "values": ["b"]})),
            "spec.namespaceSelector.matchExpressions[0].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        ),
        case(
            "clusterqueues",
            selector(json!({"key": "a", "operator": "DoesNotExist"})),
            selector(json!({"key": "a", "operator": "Gt", "values": ["b"]})),
            "spec.namespaceSelector.matchExpressions[0].operator: Invalid value: \"Gt\": not a valid selector operator",
        ),
        case(
            "clusterqueues",
            selector(json!({"key": "a", "operator": "NotIn", "values": ["b"]})),
            selector(json!({"key": "a", "operator": "NotIn", "values": ["b c"]})),
            "spec.namespaceSelector.matchExpressions[0].values[0]: Invalid value: \"b c\": a valid label must be...",
        ),
        case(
            "clusterqueues",
            spec(&json!({"namespaceSelector": {"matchLabels": {"a": "b"}}})),
            spec(&json!({"namespaceSelector": {"matchLabels": {"a": "b c"}}})),
            "spec.namespaceSelector.matchLabels: Invalid value: \"b c\": a valid label must be...",
        ),
        case(
            "clusterqueues",
            spec(
                &json!({"preemption": {"reclaimWithinCohort": "Never", "borrowWithinCohort": {"policy": "Never"}}}),
            ),
            spec(
                &json!({"preemption": {"reclaimWithinCohort": "Never", "borrowWithinCohort": {"policy": "LowerPriority"}}}),
            ),
            "spec.preemption: Invalid value: {\"borrowWithinCohort\":{\"policy\":\"LowerPriority\"},\"reclaimWithinCohort\":\"Never\"}: reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never",
        ),
        case(
            "clusterqueues",
            spec(
                &json!({"flavorFungibility": {"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "TryNextFlavor", "preference": "PreemptionOverBorrowing"}}),
            ),
            spec(
                &json!({"flavorFungibility": {"whenCanBorrow": "TryNextFlavor", "preference": "PreemptionOverBorrowing"}}),
            ),
            "spec.flavorFungibility.preference: Invalid value: \"PreemptionOverBorrowing\": preference \"PreemptionOverBorrowing\" requires both whenCanBorrow and whenCanPreempt to be TryNextFlavor",
        ),
    ]);
}

#[test]
fn flavors_of_admission_checks_are_flavors_of_the_queue() {
    let queue = |flavor: &str, check: &str| {
        json!({"spec": {"resourceGroups": [{"flavors": [{"name": flavor}]}],
            "admissionChecksStrategy": {"admissionChecks": [{"name": "c", "onFlavors": [check]}]}}})
    };
    let error = "spec.admissionChecksStrategy.admissionChecks[0].onFlavors[0]: Unsupported value: \"x\": supported values: \"f\"";
    let strict = Gates { reject_updates_to_cq_with_invalid_on_flavors: true, ..Gates::default() };
    check(&[
        case("clusterqueues", queue("f", "f"), queue("f", "x"), error),
        Case { old: Some(queue("f", "f")), ..case("clusterqueues", queue("f", "f"), queue("f", "x"), error) },
        // What was stored like this may stay, unless the flavors of the queue change.
        Case { old: Some(queue("f", "y")), ..case("clusterqueues", queue("f", "y"), queue("f", "x"), error) },
        Case { old: Some(queue("g", "x")), ..case("clusterqueues", queue("g", "x"), queue("f", "x"), error) },
        Case {
            old: Some(queue("f", "x")),
            gates: strict,
            ..case("clusterqueues", queue("f", "f"), queue("f", "x"), error)
        },
    ]);
}

#[test]
fn concurrent_admission_is_checked_if_its_gate_is_on() {
    let gates = Gates { concurrent_admission: true, ..Gates::default() };
    let queue = |fields: &Value| {
        let mut queue = large_queue(1, 2, 1);
        queue["spec"]["concurrentAdmissionPolicy"] = json!({"migration": {"mode": "TryPreferredFlavors"}});
        for (pointer, value) in fields.as_object().unwrap() {
            let (parent, field) = pointer.rsplit_once('/').unwrap();
            queue.pointer_mut(parent).unwrap()[field] = value.clone();
        }
        queue
    };
    let constraints = "/spec/concurrentAdmissionPolicy/migration/constraints";
    let good = queue(&json!({constraints: {"lastAcceptableFlavorName": "f0-1"}}));
    let groups = |groups, flavors| {
        queue(&json!({"/spec/resourceGroups": large_queue(groups, flavors, 1)["spec"]["resourceGroups"]}))
    };
    let on = |bad: Value, error| Case { gates, ..case("clusterqueues", good.clone(), bad, error) };
    check(&[
        on(
            groups(2, 1),
            "spec.resourceGroups: Invalid value: 2: must have exactly one ResourceGroup when ConcurrentAdmissionPolicy is defined",
        ),
        on(
            groups(1, 17),
            "spec.resourceGroups[0].flavors: Invalid value: 17: cannot have more than 16 resource flavors in the ResourceGroup when ConcurrentAdmissionPolicy is defined",
        ),
        on(
            queue(&json!({"/spec/queueingStrategy": "StrictFIFO"})),
            "spec.queueingStrategy: Invalid value: \"StrictFIFO\": StrictFIFO queueing strategy cannot be used when ConcurrentAdmissionPolicy is defined",
        ),
        on(
            queue(
                &json!({constraints: {}, "/spec/concurrentAdmissionPolicy/migration/mode": "RetainFirstAdmission"}),
            ),
            "spec.concurrentAdmissionPolicy.migration.constraints: Forbidden: may only be set when migration.mode is \"TryPreferredFlavors\" (got \"RetainFirstAdmission\")",
        ),
        on(
            queue(&json!({constraints: {"lastAcceptableFlavorName": "x"}})),
            "spec.concurrentAdmissionPolicy.migration.constraints.lastAcceptableFlavorName: Invalid value: \"x\": must be one of the flavors defined in the ClusterQueue: [f0-0 f0-1]",
        ),
        Case {
            old: Some(queue(&json!({}))),
            ..case(
                "clusterqueues",
                queue(&json!({})),
                large_queue(1, 2, 1),
                "spec.concurrentAdmissionPolicy: Invalid value: null: field is immutable",
            )
        },
    ]);
    let off = case("clusterqueues", Value::Null, Value::Null, "");
    assert_eq!(errors(&off, &groups(2, 1)), Vec::<String>::new());
}

#[test]
fn resource_flavors_are_checked() {
    let taint = |key: &str, value: &str| json!({"key": key, "value": value, "effect": "NoSchedule"});
    let taints = |taints: &[Value]| spec(&json!({"nodeTaints": taints}));
    check(&[
        case(
            "resourceflavors",
            spec(&json!({"nodeLabels": {"a/b": "c"}})),
            spec(&json!({"nodeLabels": {"@a": "c"}})),
            "spec.nodeLabels: Invalid value: \"@a\": name part must consist of alphanumeric characters...",
        ),
        case(
            "resourceflavors",
            taints(&[taint("a", "")]),
            taints(&[taint("@a", "")]),
            "spec.nodeTaints[0].key: Invalid value: \"@a\": name part must consist...",
        ),
        case(
            "resourceflavors",
            taints(&[taint("a", "b")]),
            taints(&[taint("a", "b c")]),
            "spec.nodeTaints[0].value: Invalid value: \"b c\": a valid label must be...",
        ),
        case(
            "resourceflavors",
            taints(&[taint("a", "b"), taint("b", "b")]),
            taints(&[taint("a", "b"), taint("a", "c")]),
            "spec.nodeTaints[1]: Duplicate value: {\"effect\":\"NoSchedule\",\"key\":\"a\",\"value\":\"c\"}: taints must be unique by key and effect pair",
        ),
        case(
            "resourceflavors",
            spec(&json!({"tolerations": [{"operator": "Exists"}]})),
            spec(&json!({"tolerations": [{"key": "@a"}]})),
            "spec.tolerations[0].key: Invalid value: \"@a\": name part must consist...",
        ),
    ]);
}

#[test]
fn defaults_are_filled_in_at_creation() {
    let filled = |resource: &str, operation, object: &Value, gates: Gates| {
        let mut object = object.clone();
        default(
            resource,
            operation,
            &mut object,
            &JobDefaults::default(),
            &Context { gates, ..Context::default() },
        );
        object
    };
    let (on, finalizer) = (Gates::default(), "kueue.x-k8s.io/resource-in-use");
    for resource in ["clusterqueues", "resourceflavors"] {
        let bare = json!({"metadata": {"name": "x"}});
        let complete = json!({"metadata": {"name": "x", "finalizers": [finalizer]}});
        assert_eq!(filled(resource, Operation::Create, &bare, on), complete);
        assert_eq!(filled(resource, Operation::Create, &complete, on), complete);
        assert_eq!(filled(resource, Operation::Update, &bare, on), bare);
        let other = json!({"metadata": {"finalizers": ["a"]}});
        assert_eq!(
            filled(resource, Operation::Create, &other, on),
            json!({"metadata": {"finalizers": ["a", finalizer]}})
        );
    }
    let partial = workload(&[("/spec/podSets/0/minCount", json!(1))]);
    assert_eq!(filled("workloads", Operation::Create, &partial, on), partial);
    let off = Gates { partial_admission: false, ..on };
    assert_eq!(filled("workloads", Operation::Create, &partial, off), workload(&[]));
    assert_eq!(filled("cohorts", Operation::Create, &json!({"metadata": {}}), on), json!({"metadata": {}}));
}

#[test]
fn wrong_types_are_no_panic() {
    let gates = Gates { concurrent_admission: true, priority_boost: true, ..Gates::default() };
    let context = Context { gates, ..Context::default() };
    for odd in [
        json!(null),
        json!(3),
        json!("x"),
        json!([1, {}, []]),
        json!({}),
        json!([{"name": 1, "count": "x", "resources": 3}]),
    ] {
        let objects = [
            odd.clone(),
            json!({"metadata": odd, "spec": odd, "status": odd}),
            json!({"metadata": {"annotations": odd, "finalizers": odd}, "spec": {"resourceGroups": odd, "podSets": odd,
                "namespaceSelector": odd, "concurrentAdmissionPolicy": odd, "admissionChecksStrategy": {"admissionChecks": odd},
                "fairSharing": {"weight": odd}, "nodeTaints": odd, "tolerations": odd}, "status": {"admission": odd,
                "conditions": odd, "reclaimablePods": odd, "admissionChecks": odd}}),
            reserved(&[
                ("/status/admission/podSetAssignments", odd.clone()),
                ("/spec/podSets", odd.clone()),
                ("/status/reclaimablePods", odd.clone()),
                ("/status/admissionChecks", odd.clone()),
            ]),
        ];
        for resource in ["clusterqueues", "cohorts", "resourceflavors", "workloads", "localqueues"] {
            for object in &objects {
                default(resource, Operation::Create, &mut object.clone(), &JobDefaults::default(), &context);
                let _ =
                    validate(resource, Operation::Create, object, None, &JobDefaults::default(), &context);
                let _ = validate(
                    resource,
                    Operation::Update,
                    object,
                    Some(&reserved(&[])),
                    &JobDefaults::default(),
                    &context,
                );
                let _ = validate(
                    resource,
                    Operation::Update,
                    &reserved(&[]),
                    Some(object),
                    &JobDefaults::default(),
                    &context,
                );
            }
        }
    }
}
