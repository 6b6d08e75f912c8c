//! Limits of an AppWrapper: what exceeds them is an error before anything is expanded.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use api::appwrapper::Spec;
use api::appwrapper::limits;
use api::{demand, validate};
use serde_json::{Value, json};

fn read(resources: &Value) -> Result<Spec, String> {
    Spec::read(&json!({"resources": resources}), "w").map_err(|error| error.to_string())
}

fn named(kind: &str, spec: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "n"}, "spec": spec})
}

fn legacy(replicas: u32, spec: &Value) -> Value {
    json!({"type": "Pod", "replicas": replicas, "template": {"template": {"spec": spec}}})
}

#[test]
fn objects_are_counted_before_they_are_expanded() {
    let many = vec![legacy(1_000, &json!({})); 500];
    assert_eq!(
        read(&json!({"Items": many})).unwrap_err(),
        "resources: 500000 objects exceed the limit of 1000; split it into several AppWrappers, or wrap a Job that \
         creates the pods"
    );
    assert!(
        read(&json!({"Items": [legacy(u32::MAX, &json!({}))]})).unwrap_err().contains("4294967295 objects")
    );
    let list =
        json!({"apiVersion": "v1", "kind": "List", "items": vec![named("ConfigMap", &json!({})); 1_000]});
    let item = |template: &Value| json!({"generictemplate": template});
    let two = [item(&list), item(&named("ConfigMap", &json!({})))];
    assert!(read(&json!({"GenericItems": two})).unwrap_err().starts_with("resources: 1001 objects"));
    assert_eq!(read(&json!({"GenericItems": [item(&list)]})).unwrap().objects().count(), 1_000);
}

#[test]
fn pods_of_a_large_legacy_template_are_limited_by_their_size() {
    let spec = json!({"volumes": "x".repeat(50_000)});
    let error = read(&json!({"Items": [legacy(1_000, &spec)]})).unwrap_err();
    assert!(
        error.contains("bytes of pods exceed the limit of 16777216; wrap a Job in GenericItems instead"),
        "{error}"
    );
    assert_eq!(read(&json!({"Items": [legacy(300, &spec)]})).unwrap().objects().count(), 300);
}

#[test]
fn rows_words_and_levels_are_limited() {
    let deep = (0..101).fold(json!(1), |inner, _| json!([inner]));
    let item = |field: &str, value: Value| json!({"GenericItems": [{"generictemplate": named("Pod", &json!({})), field: value}]});
    let cases = [
        (
            item("custompodresources", json!(vec![json!({"replicas": 1}); 1_001])),
            "1001 rows of custompodresources",
        ),
        (item("completionstatus", json!("a,".repeat(100))), "101 words of completionstatus"),
        (json!({"GenericItems": [{"generictemplate": named("Pod", &deep)}]}), "102 nested levels"),
    ];
    for (resources, says) in cases {
        let error = read(&resources).unwrap_err();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn pods_pod_sets_and_resources_of_a_gang_are_limited() {
    let container =
        |requests: &Value| json!({"containers": [{"name": "c", "resources": {"requests": requests}}]});
    let job = |parallelism: u32, requests: &Value| {
        json!({"GenericItems": [{"generictemplate": {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"},
            "spec": {"parallelism": parallelism, "template": {"spec": container(requests)}}}}]})
    };
    let names: serde_json::Map<_, _> = (0..100).map(|n| (format!("example.com/r{n}"), json!(1))).collect();
    let group = json!({"template": {"spec": container(&json!({}))}});
    let cluster = json!({"GenericItems": [{"generictemplate": {"apiVersion": "ray.io/v1", "kind": "RayCluster",
        "metadata": {"name": "r"}, "spec": {"headGroupSpec": group, "workerGroupSpecs": vec![group.clone(); 1_000]}}}]});
    let cases = [
        (job(1_000_000, &json!({"cpu": 1})), "resources: 1000000 pods exceed the limit of 150000"),
        (job(1, &Value::Object(names)), "resources: 101 different resources exceed the limit of 64"),
        (cluster, "resources: 1001 pod sets exceed the limit of 1000"),
    ];
    for (resources, says) in cases {
        let demand = demand::of_spec(&read(&resources).unwrap()).unwrap();
        let error = limits::check_demand(&demand).unwrap_err().to_string();
        assert!(error.starts_with(says), "{error}");
    }
}

#[test]
fn reported_texts_are_the_first_ones_and_the_number_of_the_others() {
    let cluster = json!({"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "r"},
        "spec": {"workerGroupSpecs": vec![json!({"groupName": "a"}); 500]}});
    let problems = validate::problems(&cluster);
    let reported = limits::first_of(problems.clone());
    assert_eq!((reported.len(), reported[20].clone()), (21, format!("{} more", problems.len() - 20)));
    assert_eq!(limits::first_of(vec!["a".into()]), ["a"]);
}

#[test]
fn a_large_assignment_is_written_once_and_refused_when_it_does_not_fit() {
    let assignment = "x".repeat(200_000);
    let on: Vec<_> = (0..3).map(|position| limits::has_assignment(position, 3, &assignment)).collect();
    assert_eq!(on, [true, false, false]);
    assert!((0..3).all(|position| limits::has_assignment(position, 3, "{}")));
    let mut template = named("Pod", &json!({}));
    assert_eq!(limits::check_assignment(&template, &assignment), Ok(()));
    template["metadata"]["annotations"] = json!({"own": "y".repeat(100_000)});
    let error = limits::check_assignment(&template, &assignment).unwrap_err().to_string();
    assert!(error.starts_with("metadata.annotations: 300024 bytes exceed the limit of 262144"), "{error}");
}
