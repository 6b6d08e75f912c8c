//! The pod sets of each kind of object, and of AppWrappers with several, listed or no objects.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use api::appwrapper::Spec;
use api::demand;
use api::wrapped_kinds::{WRAPPED_KINDS, WrappedKind};
use serde_json::{Value, json};

fn pod(cpu: &str) -> Value {
    json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]})
}

fn sets(object: &Value) -> Vec<String> {
    let sets = demand::of_object(object).unwrap().unwrap();
    sets.iter().map(|set| format!("{} {}x {}", set.name, set.count, set.shape.request)).collect()
}

#[test]
fn every_known_kind_has_its_pod_sets() {
    struct Case {
        name: &'static str,
        object: Value,
        sets: &'static [&'static str],
    }
    let object = |api_version: &str, kind: &str, spec: Value| json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}, "spec": spec});
    let template = json!({"spec": pod("1")});
    let cases = [
        Case { name: "Pod", object: object("v1", "Pod", pod("1")), sets: &["pod 1x cpu 1, pods 1"] },
        Case {
            name: "Deployment without replicas",
            object: object("apps/v1", "Deployment", json!({"template": template})),
            sets: &["deployment 1x cpu 1, pods 1"],
        },
        Case {
            name: "StatefulSet",
            object: object("apps/v1", "StatefulSet", json!({"replicas": 3, "template": template})),
            sets: &["statefulset 3x cpu 1, pods 1"],
        },
        Case {
            name: "Job with fewer completions than parallelism",
            object: object(
                "batch/v1",
                "Job",
                json!({"parallelism": 4, "completions": 2, "template": template}),
            ),
            sets: &["job 2x cpu 1, pods 1"],
        },
        Case {
            name: "JobSet",
            object: object(
                "jobset.x-k8s.io/v1alpha2",
                "JobSet",
                json!({"replicatedJobs": [
                    {"name": "leader", "template": {"spec": {"template": template}}},
                    {"name": "workers", "replicas": 2, "template": {"spec": {"parallelism": 3, "template": template}}}]}),
            ),
            sets: &["leader 1x cpu 1, pods 1", "workers 6x cpu 1, pods 1"],
        },
        Case {
            name: "PyTorchJob",
            object: object(
                "kubeflow.org/v1",
                "PyTorchJob",
                json!({"pytorchReplicaSpecs": {"Master": {"template": template}, "Worker": {"replicas": 2, "template": template}}}),
            ),
            sets: &["master 1x cpu 1, pods 1", "worker 2x cpu 1, pods 1"],
        },
        Case {
            name: "RayCluster with bounds and hosts",
            object: object(
                "ray.io/v1",
                "RayCluster",
                json!({"headGroupSpec": {"template": template}, "workerGroupSpecs": [
                    {"groupName": "a", "replicas": 0, "minReplicas": 3, "template": template},
                    {"groupName": "b", "replicas": 9, "maxReplicas": 2, "numOfHosts": 4, "template": template},
                    {"groupName": "c", "replicas": 1, "suspend": true, "template": template},
                    {"groupName": "tiny", "replicas": 1, "template": {"spec": pod("50m")}}]}),
            ),
            sets: &[
                "head 1x cpu 1, pods 1",
                "a 3x cpu 1, memory 256Mi, pods 1",
                "b 8x cpu 1, memory 256Mi, pods 1",
                "c 0x cpu 1, memory 256Mi, pods 1",
                "tiny 1x cpu 200m, memory 256Mi, pods 1",
            ],
        },
        Case {
            name: "RayJob with an autoscaler and the default submitter",
            object: object(
                "ray.io/v1",
                "RayJob",
                json!({"rayClusterSpec": {"enableInTreeAutoscaling": true, "headGroupSpec": {"template": template}}}),
            ),
            sets: &["head 1x cpu 1500m, memory 512Mi, pods 1", "submitter 1x cpu 500m, memory 200Mi, pods 1"],
        },
        Case {
            name: "any object with a pod template",
            object: object("example.com/v1", "Trainer", json!({"replicas": "2", "template": template})),
            sets: &["trainer 2x cpu 1, pods 1"],
        },
    ];
    for Case { name, object, sets: expected } in cases {
        assert_eq!(sets(&object), expected, "{name}");
    }
}

fn read(resources: &Value) -> Spec {
    Spec::read(&json!({"resources": resources}), "w").unwrap()
}

#[test]
fn custom_pod_resources_count_as_pods_only_for_unknown_kinds() {
    let rows = json!([{"replicas": 2, "requests": {"cpu": 0, "nvidia.com/gpu": 1}, "limits": {"cpu": 3}}]);
    let unknown = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}});
    let known = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "k"}, "spec": pod("1")});
    let spec = read(&json!({"GenericItems": [
        {"generictemplate": unknown, "custompodresources": rows},
        {"generictemplate": known, "custompodresources": [{"replicas": 1, "requests": {"cpu": 2}}]},
        {"generictemplate": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "w"}, "spec": pod("500m")}},
        {"generictemplate": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}},
    ]}));
    let demand = demand::of_spec(&spec).unwrap();
    let sets: Vec<_> = demand.pod_sets.iter().map(|set| (set.name.as_str(), set.object, set.count)).collect();
    assert_eq!(sets, [("declared-1", 0, 2), ("pod", 1, 1), ("pod-2", 2, 1)]);
    assert_eq!(demand.declared.unwrap().to_string(), "cpu 8500m, nvidia.com/gpu 2, pods 3");
}

#[test]
fn a_list_counts_as_its_items_and_an_empty_appwrapper_has_no_pods() {
    let pod =
        |name: &str| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": pod("1")});
    let inner = json!({"apiVersion": "v1", "kind": "List", "items": [pod("b"), pod("c")]});
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [pod("a"), inner], "status": {}});
    let spec = read(&json!({"Items": [], "metadata": {}, "GenericItems": [{"generictemplate": list}]}));
    assert_eq!(spec.objects().count(), 3);
    assert_eq!(demand::of_spec(&read(&json!({"GenericItems": []}))).unwrap(), demand::Demand::default());
    assert_eq!(demand::of_spec(&read(&Value::Null)).unwrap(), demand::Demand::default());
}

#[test]
fn typed_items_of_early_versions_convert_to_plain_objects() {
    let item = json!({"type": "Pod", "replicas": 2, "template": {"template": {"metadata": {"labels": {"app": "x"}}, "spec": pod("1")}}});
    let spec = read(&json!({"Items": [item, {"type": "Service", "template": {"metadata": {"name": "s"}}}]}));
    let objects: Vec<_> =
        spec.objects().map(|object| format!("{} {}", object["kind"], object["metadata"]["name"])).collect();
    assert_eq!(objects, ["\"Pod\" \"w-0-0\"", "\"Pod\" \"w-0-1\"", "\"Service\" \"s\""]);
    assert_eq!(demand::of_spec(&spec).unwrap().pod_sets.len(), 2);
}

#[test]
fn an_invalid_spec_is_an_error_with_its_location() {
    let error = |resources: Value| Spec::read(&json!({"resources": resources}), "w").unwrap_err().to_string();
    assert_eq!(
        error(json!({"GenericItems": [{}]})),
        "resources.GenericItems[0] has no generictemplate; write the object to create there"
    );
    assert_eq!(
        error(json!({"GenericItems": [{"generictemplate": {"kind": "Pod"}}]})),
        "resources.GenericItems[0].generictemplate: apiVersion is missing; every object needs apiVersion, kind and metadata.name"
    );
    assert_eq!(
        error(json!({"GenericItems": [{
            "generictemplate": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}},
            "custompodresources": [{"replicas": 1, "requests": {"cpu": "two"}}]}]})),
        "resources.GenericItems[0].custompodresources[0]: resource cpu: \"two\" is not a quantity; write a number such as 500m or 16Gi"
    );
    assert_eq!(
        error(json!({"Items": [{"type": "Namespace", "template": {}}]})),
        "resources.Items[0]: type \"Namespace\" is not supported; wrap the object in GenericItems"
    );
}

#[test]
fn memory_beyond_32_bits_does_not_overflow() {
    let object = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}, "spec": {"parallelism": 2000,
        "template": {"spec": {"containers": [{"resources": {"requests": {"memory": "2Ti"}}}]}}}});
    let set = &demand::of_object(&object).unwrap().unwrap()[0];
    assert_eq!(set.shape.request.times(set.count).get("memory"), 2000 * (2_i64 << 40));
}

/// `docs/appwrapper.md` shows the table of the kinds whose pods are followed.
#[test]
fn the_documented_table_has_exactly_the_kinds_that_are_followed() {
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/appwrapper.md")).unwrap();
    let after = page.split_once("| gated pod templates |").unwrap().1;
    let documented: Vec<&str> = after.lines().skip(2).take_while(|line| line.starts_with('|')).collect();
    let row = |entry: &WrappedKind| {
        let group = if entry.group.is_empty() { "core".into() } else { format!("`{}`", entry.group) };
        let paths: Vec<_> = entry.pod_specs.iter().map(|path| format!("`{path}`")).collect();
        let children: Vec<_> = entry.children.iter().map(|(_, kind)| *kind).collect();
        let row = format!("| {group} | {} | {} | {} |", entry.kind, paths.join(", "), children.join(", "));
        row.replace("|  |", "| |")
    };
    assert_eq!(documented, WRAPPED_KINDS.iter().map(row).collect::<Vec<_>>());
}
