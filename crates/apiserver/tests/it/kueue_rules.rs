//! The CEL rules of Kueue's kinds: each with an object that holds it and one that breaks it.

#![allow(clippy::unwrap_used, reason = "test code")]

use std::collections::BTreeSet;

use apiserver::schema::Structural;
use serde_json::{Value, json};

const OLD: &str = "v1beta1";
const NEW: &str = "v1beta2";

/// A rule: `good` holds it, `bad` breaks it. With `old`, both are updates of it.
struct Case {
    resource: &'static str,
    version: &'static str,
    message: &'static str,
    old: Option<Value>,
    good: Value,
    bad: Value,
}

fn schema_of(resource: &str, version: &str) -> Value {
    let definitions = api::kueue::crds(&json!({"url": "https://127.0.0.1/convert"}));
    let definition = definitions.iter().find(|d| d["spec"]["names"]["plural"] == resource).unwrap();
    let versions = definition["spec"]["versions"].as_array().unwrap();
    versions.iter().find(|v| v["name"] == version).unwrap()["schema"]["openAPIV3Schema"].clone()
}

/// The messages of all rules in a schema.
fn messages(schema: &Value, found: &mut BTreeSet<String>) {
    match schema {
        Value::Object(fields) => {
            for rule in fields.get("x-kubernetes-validations").and_then(Value::as_array).into_iter().flatten()
            {
                found.insert(rule["message"].as_str().unwrap().to_owned());
            }
            fields.values().for_each(|field| messages(field, found));
        }
        Value::Array(items) => items.iter().for_each(|item| messages(item, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn spec(spec: &Value) -> Value {
    json!({"apiVersion": "kueue.x-k8s.io/x", "kind": "x", "metadata": {"name": "x"}, "spec": spec})
}

/// A workload with one pod set, with these fields set by JSON pointer.
fn workload(changes: &[(&str, Value)]) -> Value {
    let mut workload = spec(&json!({"podSets": [{"name": "main", "count": 2, "template": {"spec": {
        "containers": [{"name": "c", "image": "i"}]}}}]}));
    workload["status"] = json!({"conditions": []});
    for (pointer, value) in changes {
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        workload.pointer_mut(parent).unwrap()[field] = value.clone();
    }
    workload
}

fn condition(kind: &str) -> Value {
    json!([{"type": kind, "status": "True", "reason": "r", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}])
}

fn reserved(changes: &[(&str, Value)]) -> Value {
    let mut all = vec![("/status/conditions", condition("QuotaReserved"))];
    all.extend(changes.iter().cloned());
    workload(&all)
}

fn admitted(changes: &[(&str, Value)]) -> Value {
    let mut all = vec![("/status/conditions", condition("Admitted"))];
    all.extend(changes.iter().cloned());
    workload(&all)
}

fn class(group: &str, kind: &str, name: &str) -> Value {
    json!({"group": group, "kind": kind, "name": name})
}

fn groups(resources: &[&str], limit: bool) -> Value {
    let quota = |name: &&str| {
        if limit {
            json!({"name": name, "nominalQuota": 1, "borrowingLimit": 1})
        } else {
            json!({"name": name, "nominalQuota": 1})
        }
    };
    json!([{"coveredResources": ["cpu"], "flavors": [{"name": "f",
        "resources": resources.iter().map(quota).collect::<Vec<_>>()}]}])
}

fn places(slices: &Value) -> Value {
    workload(&[(
        "/status/admission",
        json!({"clusterQueue": "q", "podSetAssignments": [
        {"name": "main", "topologyAssignment": {"levels": ["rack"], "slices": slices}}]}),
    )])
}

fn slice(counts: &Value, values: &Value) -> Value {
    json!({"domainCount": 2, "podCounts": counts, "valuesPerLevel": values})
}

fn tolerated(resource: &str, toleration: &Value) -> Value {
    if resource == "resourceflavors" {
        return spec(&json!({"tolerations": [toleration]}));
    }
    workload(&[(
        "/status/admissionChecks",
        json!([{"name": "c", "state": "Ready", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "podSetUpdates": [{"name": "main", "tolerations": [toleration]}]}]),
    )])
}

fn cases() -> Vec<Case> {
    let mut cases = queue_cases();
    cases.extend(other_cases());
    cases.extend(toleration_cases());
    cases.extend(workload_cases());
    cases.extend(immutability_cases());
    cases
}

fn case(resource: &'static str, message: &'static str, good: Value, bad: Value) -> Case {
    Case { resource, version: NEW, message, old: None, good, bad }
}

fn queue_cases() -> Vec<Case> {
    let number = "flavors must have the same number of resources as the coveredResources";
    let limit = "borrowingLimit must be nil when cohort is empty";
    vec![
        case(
            "clusterqueues",
            number,
            spec(&json!({"resourceGroups": groups(&["cpu"], false)})),
            spec(&json!({"resourceGroups": groups(&["cpu", "memory"], false)})),
        ),
        case(
            "cohorts",
            number,
            spec(&json!({"resourceGroups": groups(&["cpu"], false)})),
            spec(&json!({"resourceGroups": groups(&["cpu", "memory"], false)})),
        ),
        case(
            "clusterqueues",
            limit,
            spec(&json!({"cohortName": "c", "resourceGroups": groups(&["cpu"], true)})),
            spec(&json!({"resourceGroups": groups(&["cpu"], true)})),
        ),
        Case {
            version: OLD,
            ..case(
                "clusterqueues",
                limit,
                spec(&json!({"cohort": "c", "resourceGroups": groups(&["cpu"], true)})),
                spec(&json!({"resourceGroups": groups(&["cpu"], true)})),
            )
        },
        case(
            "clusterqueues",
            "preference can only be set when both whenCanBorrow and whenCanPreempt are TryNextFlavor",
            spec(
                &json!({"flavorFungibility": {"whenCanBorrow": "TryNextFlavor", "preference": "BorrowingOverPreemption"}}),
            ),
            spec(&json!({"flavorFungibility": {"preference": "BorrowingOverPreemption"}})),
        ),
        case(
            "clusterqueues",
            "reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never",
            spec(
                &json!({"preemption": {"reclaimWithinCohort": "Any", "borrowWithinCohort": {"policy": "LowerPriority"}}}),
            ),
            spec(&json!({"preemption": {"borrowWithinCohort": {"policy": "LowerPriority"}}})),
        ),
    ]
}

fn other_cases() -> Vec<Case> {
    let update = |resource, message, old: &Value, good, bad| Case {
        old: Some(old.clone()),
        ..case(resource, message, good, bad)
    };
    let queue = spec(&json!({"clusterQueue": "a"}));
    let check = spec(&json!({"controllerName": "a"}));
    let levels = |labels: &[&str]| {
        spec(&json!({"levels": labels.iter().map(|label| json!({"nodeLabel": label})).collect::<Vec<_>>()}))
    };
    let flavor = spec(&json!({"topologyName": "t", "nodeLabels": {"a": "b"}}));
    let changed = |pointer: &str, value: Value| {
        let mut changed = flavor.clone();
        changed["spec"][pointer] = value;
        changed
    };
    let without_topology = spec(&json!({"nodeLabels": {"a": "b"}}));
    vec![
        update(
            "localqueues",
            "field is immutable",
            &queue,
            queue.clone(),
            spec(&json!({"clusterQueue": "b"})),
        ),
        update(
            "admissionchecks",
            "field is immutable",
            &check,
            check.clone(),
            spec(&json!({"controllerName": "b"})),
        ),
        update("topologies", "field is immutable", &levels(&["a"]), levels(&["a"]), levels(&["b"])),
        case("topologies", "must be unique", levels(&["a", "b"]), levels(&["a", "a"])),
        case(
            "topologies",
            "the kubernetes.io/hostname label can only be used at the lowest level of topology",
            levels(&["a", "kubernetes.io/hostname"]),
            levels(&["kubernetes.io/hostname", "a"]),
        ),
        case(
            "multikueueconfigs",
            "must be unique",
            spec(&json!({"clusters": ["a", "b"]})),
            spec(&json!({"clusters": ["a", "a"]})),
        ),
        case(
            "multikueueclusters",
            "exactly one of the fields in [kubeConfig clusterProfileRef] must be set",
            spec(&json!({"clusterSource": {"kubeConfig": {"location": "a"}}})),
            spec(&json!({"clusterSource": {}})),
        ),
        case(
            "resourceflavors",
            "supported taint effect values: 'NoSchedule', 'PreferNoSchedule', 'NoExecute'",
            spec(&json!({"nodeTaints": [{"key": "a", "effect": "NoSchedule"}]})),
            spec(&json!({"nodeTaints": [{"key": "a", "effect": "No"}]})),
        ),
        case(
            "resourceflavors",
            "at least one nodeLabel is required when topology is set",
            flavor.clone(),
            spec(&json!({"topologyName": "t", "nodeLabels": {}})),
        ),
        update(
            "resourceflavors",
            "nodeLabels are immutable when topologyName is set",
            &flavor,
            changed("nodeTaints", json!([{"key": "a", "effect": "NoSchedule"}])),
            changed("nodeLabels", json!({"a": "c"})),
        ),
        update(
            "resourceflavors",
            "tolerations are immutable when topologyName is set",
            &flavor,
            flavor.clone(),
            changed("tolerations", json!([{"key": "a", "operator": "Exists"}])),
        ),
        update(
            "resourceflavors",
            "topologyName is immutable when topologyName is set",
            &flavor,
            flavor.clone(),
            without_topology,
        ),
    ]
}

fn toleration_cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for resource in ["resourceflavors", "workloads"] {
        for (message, good, bad) in [
            (
                "operator must be Exists when 'key' is empty, which means 'match all values and all keys'",
                json!({"operator": "Exists"}),
                json!({"operator": "Equal"}),
            ),
            (
                "effect must be 'NoExecute' when 'tolerationSeconds' is set",
                json!({"key": "a", "effect": "NoExecute", "tolerationSeconds": 1}),
                json!({"key": "a", "effect": "NoSchedule", "tolerationSeconds": 1}),
            ),
            (
                "supported toleration values: 'Equal'(default), 'Exists'",
                json!({"key": "a"}),
                json!({"key": "a", "operator": "x"}),
            ),
            (
                "a value must be empty when 'operator' is 'Exists'",
                json!({"key": "a", "value": "v"}),
                json!({"key": "a", "operator": "Exists", "value": "v"}),
            ),
            (
                "supported taint effect values: 'NoSchedule', 'PreferNoSchedule', 'NoExecute'",
                json!({"key": "a"}),
                json!({"key": "a", "effect": "No"}),
            ),
        ] {
            cases.push(case(resource, message, tolerated(resource, &good), tolerated(resource, &bad)));
        }
    }
    cases
}

fn workload_cases() -> Vec<Case> {
    let workload_case = |message, good, bad| case("workloads", message, good, bad);
    let one_of = "exactly one of the fields in [universal individual] must be set";
    let (counts, values) = (json!({"universal": 1}), json!([{"universal": "a"}]));
    let kueue = class("kueue.x-k8s.io", "WorkloadPriorityClass", "high");
    let pods = class("scheduling.k8s.io", "PriorityClass", "high");
    let with_class =
        |class: Value| workload(&[("/spec/priorityClassRef", class), ("/spec/priority", json!(1))]);
    vec![
        workload_case(
            "minCount should be positive and less or equal to count",
            workload(&[("/spec/podSets/0/minCount", json!(2))]),
            workload(&[("/spec/podSets/0/minCount", json!(3))]),
        ),
        workload_case(
            "priority should not be nil when priorityClassRef is set",
            with_class(kueue.clone()),
            workload(&[("/spec/priorityClassRef", kueue.clone())]),
        ),
        Case {
            version: OLD,
            ..workload_case(
                "priority should not be nil when priorityClassName is set",
                workload(&[("/spec/priorityClassName", json!("a")), ("/spec/priority", json!(1))]),
                workload(&[("/spec/priorityClassName", json!("a"))]),
            )
        },
        workload_case(
            "only the PriorityClass kind is allowed for the scheduling.k8s.io group",
            with_class(pods),
            with_class(class("scheduling.k8s.io", "WorkloadPriorityClass", "high")),
        ),
        workload_case(
            "only the WorkloadPriorityClass kind is allowed for the kueue.x-k8s.io group",
            with_class(kueue),
            with_class(class("kueue.x-k8s.io", "PriorityClass", "high")),
        ),
        workload_case(
            one_of,
            places(&json!([slice(&counts, &values)])),
            places(&json!([slice(&json!({}), &values)])),
        ),
        workload_case(
            one_of,
            places(&json!([slice(&counts, &json!([{"individual": {"roots": ["a", "b"]}}]))])),
            places(&json!([slice(&counts, &json!([{}]))])),
        ),
        workload_case(
            "podCounts.individual must have length equal to domainCount",
            places(&json!([slice(&json!({"individual": [1, 2]}), &values)])),
            places(&json!([slice(&json!({"individual": [1]}), &values)])),
        ),
        workload_case(
            "valuesPerLevel.individual, if set, must have roots of length equal to domainCount of this TopologyAssignmentSlice",
            places(&json!([slice(&counts, &values)])),
            places(&json!([slice(&counts, &json!([{"individual": {"roots": ["a"]}}]))])),
        ),
        workload_case(
            "valuesPerLevel must have the same length as the number of levels in this TopologyAssignment",
            places(&json!([slice(&counts, &values)])),
            places(&json!([slice(&counts, &json!([{"universal": "a"}, {"universal": "b"}]))])),
        ),
        workload_case(
            "clusterName and nominatedClusterNames are mutually exclusive",
            workload(&[("/status/clusterName", json!("a")), ("/status/nominatedClusterNames", json!([]))]),
            workload(&[("/status/clusterName", json!("a")), ("/status/nominatedClusterNames", json!(["a"]))]),
        ),
        workload_case(
            "podSetAssignments must have the same number of podSets as the spec",
            reserved(&[("/status/admission", json!({"podSetAssignments": [{"name": "main"}]}))]),
            reserved(&[("/status/admission", json!({"podSetAssignments": []}))]),
        ),
    ]
}

fn immutability_cases() -> Vec<Case> {
    let update = |message, old: &Value, good, bad| Case {
        old: Some(old.clone()),
        ..case("workloads", message, good, bad)
    };
    let with_class =
        |class: Value| reserved(&[("/spec/priorityClassRef", class), ("/spec/priority", json!(1))]);
    let kueue = |name| with_class(class("kueue.x-k8s.io", "WorkloadPriorityClass", name));
    let pods = |name| with_class(class("scheduling.k8s.io", "PriorityClass", name));
    let old_class = |source: &str, name: &str| {
        reserved(&[
            ("/spec/priorityClassSource", json!(source)),
            ("/spec/priorityClassName", json!(name)),
            ("/spec/priority", json!(1)),
        ])
    };
    let in_old = |case: Case| Case { version: OLD, ..case };
    let (pod_source, kueue_source) =
        ("scheduling.k8s.io/priorityclass", "kueue.x-k8s.io/workloadpriorityclass");
    let cluster = |name: &str| workload(&[("/status/clusterName", json!(name))]);
    let time = |seconds: u32| admitted(&[("/spec/maximumExecutionTimeSeconds", json!(seconds))]);
    vec![
        update("clusterName is immutable once set", &cluster("a"), workload(&[]), cluster("b")),
        update(
            "priorityClassRef is immutable while workload quota reserved",
            &kueue("a"),
            kueue("b"),
            reserved(&[]),
        ),
        update(
            "priorityClassRef.group is immutable while workload quota reserved",
            &kueue("a"),
            kueue("a"),
            pods("a"),
        ),
        update(
            "priorityClassRef.kind is immutable while workload quota reserved",
            &kueue("a"),
            kueue("a"),
            pods("a"),
        ),
        update(
            "priorityClassRef.name is immutable for scheduling.k8s.io/priorityclass while workload quota reserved",
            &pods("a"),
            pods("a"),
            pods("b"),
        ),
        in_old(update(
            "priorityClassSource is immutable while workload quota reserved",
            &old_class(pod_source, "a"),
            old_class(pod_source, "a"),
            old_class(kueue_source, "a"),
        )),
        in_old(update(
            "priorityClassName is immutable while workload quota reserved and priorityClassSource is not equal to kueue.x-k8s.io/workloadpriorityclass",
            &old_class(pod_source, "a"),
            old_class(pod_source, "a"),
            old_class(pod_source, "b"),
        )),
        update(
            "queueName is immutable while workload quota reserved",
            &reserved(&[("/spec/queueName", json!("a"))]),
            workload(&[("/spec/queueName", json!("b"))]),
            reserved(&[("/spec/queueName", json!("b"))]),
        ),
        update(
            "maximumExecutionTimeSeconds is immutable while workload quota reserved",
            &time(1),
            time(1),
            time(2),
        ),
    ]
}

#[test]
fn every_rule_accepts_one_object_and_refuses_another() {
    let mut tested = BTreeSet::new();
    for Case { resource, version, message, old, good, bad } in cases() {
        let schema = Structural::parse(&schema_of(resource, version)).unwrap();
        let complete = |object: &Value| {
            let mut object = object.clone();
            assert_eq!(schema.prune(&mut object), Vec::<String>::new(), "{resource}: {message}");
            schema.default(&mut object);
            object
        };
        let old = old.as_ref().map(complete);
        let errors = schema.validate(&complete(&good), old.as_ref());
        assert!(errors.is_empty(), "{resource}: {message}: {errors:?}");
        let errors = schema.validate(&complete(&bad), old.as_ref());
        assert!(
            errors.iter().any(|error| error.message.contains(message)),
            "{resource}: {message}: {errors:?}"
        );
        tested.insert((resource, version, message.to_owned()));
    }
    for kind in api::kueue::kinds::KINDS {
        for version in [OLD, NEW] {
            let mut found = BTreeSet::new();
            messages(&schema_of(kind.plural, version), &mut found);
            for message in found {
                let is_tested = [OLD, NEW]
                    .iter()
                    .any(|version| tested.contains(&(kind.plural, version, message.clone())));
                assert!(is_tested, "no case for {} {version}: {message}", kind.plural);
            }
        }
    }
}
