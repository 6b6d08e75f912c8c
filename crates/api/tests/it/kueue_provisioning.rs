//! The requests for nodes of Workloads: names, pods, templates.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]
#![allow(clippy::needless_pass_by_value, reason = "JSON literals are values")]

use api::Meta;
use api::kueue::jobs::Flavor;
use api::kueue::objects::ProvisioningConfigSpec;
use api::kueue::provisioning::*;
use api::kueue::status::Status;
use serde_json::{Value, json};

#[test]
fn names_tell_workload_check_and_attempt() {
    let workload = "rayjob-pytorch-text-classifier-nv77q-e95ec";
    let name = request_name(workload, "rayjob-gpu", 1);
    assert_eq!(name, "rayjob-pytorch-text-classifier-nv77q-e95ec-rayjob-gpu-1");
    assert_eq!(template_name(&name, "head"), format!("ppt-{name}-head"));
    for (request, check, expected) in [
        (&*name, "rayjob-gpu", Some(1)),
        (&*name, "rayjob", None),
        (&*format!("{workload}-rayjob-gpu-12"), "rayjob-gpu", Some(12)),
        (&*format!("{workload}-rayjob-gpu-"), "rayjob-gpu", None),
        (&*format!("{workload}-rayjob-gpu-1x"), "rayjob-gpu", None),
    ] {
        assert_eq!(attempt(request, workload, check), expected, "{request} of {check}");
    }
    let long = "w".repeat(240);
    let names = [1, 2, 10].map(|number| request_name(&long, "check-with-a-name", number));
    assert_eq!(names.each_ref().map(String::len), [253; 3]);
    assert_eq!(
        names.each_ref().map(|name| attempt(name, &long, "check-with-a-name")),
        [Some(1), Some(2), Some(10)]
    );
    assert_eq!(attempt(&names[0], &long, "check-with-another-name"), None);
}

fn pod_set(name: &str, count: u32, spec: Value) -> Value {
    json!({"name": name, "count": count, "template": {"spec": spec}})
}

fn container(resources: Value) -> Value {
    json!({"containers": [{"name": "c", "resources": resources}]})
}

/// The pod sets of the entries of a request, with their numbers of pods, as texts.
fn entries(sets: &[Value], counts: &[(&str, u32)], config: Value) -> Result<String, String> {
    let assignments: Vec<Value> =
        counts.iter().map(|(name, count)| json!({"name": name, "count": count})).collect();
    let workload = json!({"spec": {"podSets": sets}});
    let status: Status =
        serde_json::from_value(json!({"admission": {"clusterQueue": "q", "podSetAssignments": assignments}}))
            .unwrap();
    let config: ProvisioningConfigSpec = serde_json::from_value(config).unwrap();
    let needed = needed_pods(&workload, &status, &config).map_err(|error| error.to_string())?;
    let text = |pods: &NeededPods<'_>| format!("{} x{}", pods.names.join("+"), pods.count);
    Ok(needed.iter().map(text).collect::<Vec<_>>().join(", "))
}

#[test]
fn pods_need_a_request_by_resource_and_admitted_count_and_equal_ones_share_an_entry() {
    let gpu = || container(json!({"limits": {"nvidia.com/gpu": 1}, "requests": {"cpu": "1"}}));
    let cpu = || container(json!({"requests": {"cpu": "1000m"}}));
    let mut first_to_run = cpu();
    first_to_run["initContainers"] = gpu()["containers"].clone();
    let all = [
        pod_set("head", 1, cpu()),
        pod_set("gpu", 3, gpu()),
        pod_set("init", 1, first_to_run),
        pod_set("none", 0, gpu()),
    ];
    let full = [("head", 1), ("gpu", 2), ("init", 1)];
    let similar = json!({"podSetMergePolicy": "IdenticalWorkloadSchedulingRequirements"});
    let identical = json!({"podSetMergePolicy": "IdenticalPodTemplates"});
    let twins = [
        pod_set("a", 1, container(json!({"requests": {"cpu": "1"}}))),
        pod_set("b", 2, {
            let mut other = cpu();
            other["containers"][0]["image"] = "other".into();
            other["nodeSelector"] = json!({});
            other
        }),
        pod_set("c", 4, container(json!({"requests": {"cpu": "1000m"}}))),
    ];
    let of_twins = [("a", 1), ("b", 2), ("c", 4)];
    for (name, sets, counts, config, expected) in [
        ("all", &all[..], &full[..], json!({}), Ok("head x1, gpu x2, init x1")),
        ("managed", &all, &full, json!({"managedResources": ["nvidia.com/gpu"]}), Ok("gpu x2, init x1")),
        ("unknown resource", &all, &full, json!({"managedResources": ["tpu"]}), Ok("")),
        ("admitted without pods", &all[..2], &[("head", 0), ("gpu", 0)], json!({}), Ok("")),
        (
            "not assigned",
            &all,
            &full[..1],
            json!({}),
            Err("inconsistent podSet assignments: missing assignment for PodSet \"gpu\""),
        ),
        ("twins apart", &twins, &of_twins, json!({}), Ok("a x1, b x2, c x4")),
        ("similar twins", &twins, &of_twins, similar, Ok("a+b+c x7")),
        ("identical twins", &twins, &of_twins, identical, Ok("a+c x5, b x2")),
    ] {
        let found = entries(sets, counts, config);
        assert_eq!(found.as_deref(), expected.map_err(str::to_owned).as_ref().copied(), "{name}");
    }
}

#[test]
fn a_template_has_the_labels_of_its_flavor_and_requests_what_it_limits() {
    let spec = json!({"nodeSelector": {"zone": "a"}, "containers": [
        {"name": "c", "resources": {"limits": {"cpu": "2", "nvidia.com/gpu": 1}, "requests": {"cpu": "1"}}}]});
    let workload = json!({"spec": {"podSets": [pod_set("main", 2, spec)]}});
    let assignments = json!([{"name": "main", "count": 2, "flavors": {"cpu": "gpu"}}]);
    let status: Status =
        serde_json::from_value(json!({"admission": {"clusterQueue": "q", "podSetAssignments": assignments}}))
            .unwrap();
    let config: ProvisioningConfigSpec =
        serde_json::from_value(json!({"provisioningClassName": "class", "parameters": {"a": "1", "b": "1"}}))
            .unwrap();
    let needed = needed_pods(&workload, &status, &config).unwrap();
    let mut meta =
        Meta { name: "train".into(), namespace: "team".into(), uid: "u".into(), ..Meta::default() };
    meta.annotations.insert("provreq.kueue.x-k8s.io/b".into(), "2".into());
    meta.annotations.insert("other/c".into(), "3".into());
    let labels = |zone: &str| Flavor {
        node_labels: [("zone".to_owned(), zone.to_owned())].into(),
        tolerations: vec![json!({"key": "gpu"})],
    };
    let made = template("ppt", &meta, &needed[0], |_| Some(labels("a"))).unwrap();
    assert_eq!(made["template"]["spec"]["tolerations"], json!([{"key": "gpu"}]));
    assert_eq!(
        made["template"]["spec"]["containers"][0]["resources"]["requests"],
        json!({"cpu": "1", "nvidia.com/gpu": 1})
    );
    assert!(template("ppt", &meta, &needed[0], |_| Some(labels("b"))).unwrap_err().is_permanent());
    assert!(!template("ppt", &meta, &needed[0], |_| None).unwrap_err().is_permanent());
    let made = request("train-nodes-1", &meta, &config, &needed);
    assert_eq!(made["spec"]["parameters"], json!({"a": "1", "b": "2"}));
    assert_eq!(made["metadata"]["labels"], json!({"kueue.x-k8s.io/managed": "true"}));
}
