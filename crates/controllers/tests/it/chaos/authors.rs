//! AppWrappers of ordinary and of hostile authors.

use serde_json::{Value, json};

use crate::chaos::rng::Rng;
use crate::common::Group;

/// An AppWrapper to be created.
#[derive(Clone)]
pub(crate) struct Submission {
    pub(crate) name: String,
    pub(crate) manifest: Value,
    /// What is odd about it. None: it fits in the empty cluster and must run in the end.
    pub(crate) oddity: Option<&'static str>,
}

impl std::fmt::Debug for Submission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {}", self.name, self.oddity.unwrap_or("ordinary"), self.manifest["spec"])
    }
}

/// An AppWrapper that fits in the empty cluster.
pub(crate) fn ordinary(rng: &mut Rng, name: &str) -> Submission {
    let object = match rng.within(0, 9) {
        0..=3 => job(rng, name),
        4..=5 => deployment(rng, name),
        6 => stateful_set(rng, name),
        7..=8 => ray_cluster(rng, name),
        _ => pod(rng, name),
    };
    let mut item = json!({"generictemplate": object});
    let is_job = item["generictemplate"]["kind"] == "Job";
    if is_job && rng.percent(50) {
        item["completionstatus"] = json!("Complete");
    }
    if rng.percent(10) {
        item["custompodresources"] =
            json!([{"replicas": rng.within(1, 2), "requests": {"cpu": rng.within(1, 4)}}]);
    }
    let mut items = vec![item];
    if rng.percent(20) {
        items.push(json!({"generictemplate": config_map(name)}));
    }
    let mut manifest = wrapper(rng, name, &items);
    if rng.percent(30) {
        manifest["spec"]["priority"] = json!(rng.within(0, 9));
    }
    let growth = rng.pick(&["none", "linear", "exponential"]);
    manifest["spec"]["schedulingSpec"] =
        json!({"requeuing": {"timeInSeconds": rng.within(20, 90), "growthType": growth}});
    if rng.percent(20) {
        manifest["spec"]["schedulingSpec"]["minAvailable"] = json!(1);
    }
    if rng.percent(30) {
        manifest["spec"]["schedulingSpec"]["dispatchDuration"] = json!({"expected": rng.within(30, 900)});
    }
    Submission { name: name.to_owned(), manifest, oddity: None }
}

fn wrapper(rng: &mut Rng, name: &str, items: &[Value]) -> Value {
    let group = rng.pick(&Group::ALL);
    let mut labels = json!({});
    if rng.percent(50) {
        labels["quota_context"] = json!(rng.pick(&["gold", "bronze"]));
    }
    json!({
        "apiVersion": group.api_version(), "kind": "AppWrapper",
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {"resources": {"GenericItems": items}},
    })
}

/// A pod template; its pods request whole CPUs, or a GPU.
fn template(rng: &mut Rng, restarts: &str, cpus: u64) -> Value {
    let mut requests = json!({"cpu": cpus, "memory": format!("{}Gi", rng.within(1, 4))});
    let mut limits = json!({});
    if rng.percent(10) {
        requests["nvidia.com/gpu"] = json!(1);
        limits["nvidia.com/gpu"] = json!(1);
    }
    let container = json!({"name": "c", "image": "i", "resources": {"requests": requests, "limits": limits}});
    let mut annotations = json!({});
    if restarts != "Always" {
        annotations["sandbox.muster.dev/run-time"] = json!(format!("{}s", rng.pick(&[5, 60, 300, 3_000])));
        if rng.percent(10) {
            annotations["sandbox.muster.dev/fail"] = json!("exit=3,after=10s,times=1");
        }
    }
    json!({"metadata": {"annotations": annotations}, "spec": {"restartPolicy": restarts, "containers": [container]}})
}

/// The number of pods of a gang, such that it fits: the two GPUs permit two pods.
fn width(rng: &mut Rng, template: &Value, most: u64) -> u64 {
    let has_gpu = !template["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"].is_null();
    rng.within(1, if has_gpu { 2 } else { most })
}

fn job(rng: &mut Rng, name: &str) -> Value {
    let cpus = rng.within(1, 4);
    let template = template(rng, "Never", cpus);
    let parallelism = width(rng, &template, 8);
    let completions = if rng.percent(25) { parallelism * 2 } else { parallelism };
    let mut job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {"parallelism": parallelism, "completions": completions, "template": template},
    });
    if rng.percent(40) {
        job["spec"]["completionMode"] = json!("Indexed");
    }
    if rng.percent(10) {
        job["spec"]["ttlSecondsAfterFinished"] = json!(rng.pick(&[0, 100]));
    }
    job
}

fn deployment(rng: &mut Rng, name: &str) -> Value {
    let cpus = rng.within(1, 3);
    let mut template = template(rng, "Always", cpus);
    template["metadata"]["labels"] = json!({"app": name});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"replicas": width(rng, &template, 4), "selector": {"matchLabels": {"app": name}}, "template": template},
    })
}

fn stateful_set(rng: &mut Rng, name: &str) -> Value {
    let mut set = deployment(rng, name);
    set["kind"] = json!("StatefulSet");
    set["spec"]["serviceName"] = json!(name);
    set["spec"]["podManagementPolicy"] = json!(rng.pick(&["Parallel", "OrderedReady"]));
    set
}

fn ray_cluster(rng: &mut Rng, name: &str) -> Value {
    let replicas = rng.within(1, 3);
    let cpus = rng.within(1, 3);
    let worker = json!({"groupName": "small", "replicas": replicas, "minReplicas": 0, "maxReplicas": 8,
        "rayStartParams": {}, "template": {"spec": {"containers": [ray_container(cpus)]}}});
    json!({
        "apiVersion": rng.pick(&["ray.io/v1", "ray.io/v1alpha1"]), "kind": "RayCluster", "metadata": {"name": name},
        "spec": {"rayVersion": "2.9.0", "workerGroupSpecs": [worker],
            "headGroupSpec": {"rayStartParams": {}, "template": {"spec": {"containers": [ray_container(1)]}}}},
    })
}

fn ray_container(cpus: u64) -> Value {
    let amounts = json!({"cpu": cpus, "memory": "2Gi"});
    json!({"name": "ray", "image": "rayproject/ray:2.9.0", "resources": {"requests": amounts, "limits": amounts}})
}

fn pod(rng: &mut Rng, name: &str) -> Value {
    let restarts = rng.pick(&["Never", "Always"]);
    let cpus = rng.within(1, 6);
    let mut pod = template(rng, restarts, cpus);
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["metadata"]["name"] = json!(name);
    pod
}

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

/// An AppWrapper that cannot run, or that interferes with others.
pub(crate) fn hostile(rng: &mut Rng, name: &str, other: &str) -> Submission {
    let mut object = job(rng, name);
    let oddities: [(&str, &[&str], Value); 22] = [
        ("odd apiVersion", &["apiVersion"], json!("a b")),
        ("apiVersion with a query", &["apiVersion"], json!("batch/v1?x=")),
        ("kind of no API server", &["kind"], json!("../Pod")),
        ("kind without verbs", &["kind"], json!("Binding")),
        ("missing kind", &["apiVersion"], json!("missing.example/v1")),
        ("many pods", &["spec", "parallelism"], json!(140_000)),
        ("too many pods", &["spec", "parallelism"], json!(2_000_000_000)),
        ("negative pods", &["spec", "parallelism"], json!(-1)),
        ("text for a number", &["spec", "parallelism"], json!("many")),
        ("no template", &["spec", "template"], Value::Null),
        ("text for a template", &["spec", "template"], json!("x")),
        ("no containers", &["spec", "template", "spec", "containers"], json!([])),
        ("assigned node", &["spec", "template", "spec", "nodeName"], json!("n-0")),
        ("missing node", &["spec", "template", "spec", "nodeName"], json!("gone")),
        ("name of another object", &["metadata", "name"], json!(other)),
        ("another namespace", &["metadata", "namespace"], json!("kube-system")),
        (
            "forged tracking label",
            &["spec", "template", "metadata", "labels"],
            json!({"appwrapper.mcad.ibm.com": other}),
        ),
        (
            "forged assignment",
            &["metadata", "annotations"],
            json!({"muster.dev/assignment": "[{\"n-0\": 4000000000}]"}),
        ),
        ("nonsense assignment", &["metadata", "annotations"], json!({"muster.dev/assignment": "]["})),
        ("finalizer", &["metadata", "finalizers"], json!(["example.com/hold"])),
        ("suspended", &["spec", "suspend"], json!(true)),
        (
            "foreign owner",
            &["metadata", "ownerReferences"],
            json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "0", "controller": true}]),
        ),
    ];
    let (oddity, path, value) = match rng.within(0, 5) {
        0 => return odd_requests(rng, name, object),
        1 => return odd_wrapper(rng, name, &object),
        _ => rng.pick(&oddities),
    };
    set(&mut object, path, value);
    let manifest = wrapper(rng, name, &[json!({"generictemplate": object})]);
    Submission { name: name.to_owned(), manifest, oddity: Some(oddity) }
}

fn odd_requests(rng: &mut Rng, name: &str, mut object: Value) -> Submission {
    let oddities = [
        ("zero requests", json!({"cpu": 0, "memory": "0"})),
        ("no requests", json!({})),
        ("negative requests", json!({"cpu": "-4"})),
        ("huge requests", json!({"cpu": "9223372036854775807", "memory": "8Ei"})),
        ("unreadable requests", json!({"cpu": "1 0"})),
        ("unknown resource", json!({"example.com/unknown": 1})),
    ];
    let (oddity, requests) = rng.pick(&oddities);
    object["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({"requests": requests});
    let manifest = wrapper(rng, name, &[json!({"generictemplate": object})]);
    Submission { name: name.to_owned(), manifest, oddity: Some(oddity) }
}

fn odd_wrapper(rng: &mut Rng, name: &str, object: &Value) -> Submission {
    let item = json!({"generictemplate": object});
    let deep = (0..90).fold(json!(1), |inner, _| json!({"a": inner}));
    let oddities = [
        ("no items", json!({"resources": {"GenericItems": []}})),
        ("empty spec", json!({})),
        ("same object twice", json!({"resources": {"GenericItems": [item, item]}})),
        (
            "deep template",
            json!({"resources": {"GenericItems": [{"generictemplate": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": deep}}]}}),
        ),
        (
            "declared beyond the cluster",
            json!({"resources": {"GenericItems": [
            {"generictemplate": object, "custompodresources": [{"replicas": 1_000_000_000, "requests": {"cpu": 1000}}]}]}}),
        ),
        (
            "dispatch limit",
            json!({"resources": {"GenericItems": [item]}, "schedulingSpec": {"dispatchDuration": {"limit": rng.within(1, 60)}}}),
        ),
        (
            "minimum above the pods",
            json!({"resources": {"GenericItems": [item]}, "schedulingSpec": {"minAvailable": 50, "requeuing": {"timeInSeconds": 10}}}),
        ),
        (
            "few requeuings",
            json!({"resources": {"GenericItems": [item]}, "schedulingSpec": {"minAvailable": 50, "requeuing": {"timeInSeconds": 10, "maxNumRequeuings": 1}}}),
        ),
        (
            "always complete",
            json!({"resources": {"GenericItems": [{"generictemplate": object, "completionstatus": "e"}]}}),
        ),
    ];
    let (oddity, spec) = rng.pick(&oddities);
    let mut manifest = wrapper(rng, name, &[]);
    manifest["spec"] = spec;
    Submission { name: name.to_owned(), manifest, oddity: Some(oddity) }
}

fn set(object: &mut Value, path: &[&str], value: Value) {
    let at = path.iter().fold(object, |at, key| &mut at[*key]);
    *at = value;
}
