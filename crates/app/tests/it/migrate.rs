//! `muster migrate check` as a process: what it says of a cluster, to whom, and with which exit code.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::common::{Process, Up, muster, request, run};
use crate::get::Cluster;

/// The exit code of a check, and what it has printed.
fn check(dir: &Path, flags: &[&str]) -> (Option<i32>, String) {
    let output = run(dir, &[&["migrate", "check"], flags].concat());
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

fn create(address: &str, path: &str, object: &Value) {
    let answer = request(address, &format!("POST {path}"), &object.to_string()).unwrap();
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
}

fn deployment(address: &str, namespace: &str, name: &str, image: &str) {
    let labels = json!({"app": name});
    create(
        address,
        &format!("/apis/apps/v1/namespaces/{namespace}/deployments"),
        &json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
            "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels},
                "spec": {"containers": [{"name": "manager", "image": image}],
                    "volumes": [{"name": "c", "configMap": {"name": "kueue-manager-config"}}]}}}}),
    );
}

fn kueue(address: &str) {
    let meta = json!({"name": "kueue-system"});
    create(
        address,
        "/api/v1/namespaces",
        &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": meta}),
    );
    deployment(address, "kueue-system", "kueue-controller-manager", "registry.k8s.io/kueue/kueue:v0.19.1");
    let file =
        "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nwaitForPodsReady: {timeout: 5m}\n";
    create(
        address,
        "/api/v1/namespaces/kueue-system/configmaps",
        &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kueue-manager-config"},
            "data": {"controller_manager_config.yaml": file}}),
    );
    create(
        address,
        "/api/v1/namespaces/kueue-system/services",
        &json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "kueue-webhook-service"},
            "spec": {"ports": [{"port": 443}], "selector": {"app.kubernetes.io/name": "kueue"}}}),
    );
}

/// The JSON of a check, once it has so many gangs with a fate.
fn await_fate(dir: &Path, fate: &str, count: u64) -> Value {
    let begin = Instant::now();
    loop {
        let (_, text) = check(dir, &["-o", "json"]);
        let found: Value = serde_json::from_str(&text).unwrap();
        if found["forecast"]["counts"][fate] == count {
            return found;
        }
        assert!(begin.elapsed() < Duration::from_mins(1), "{fate}: {text}");
    }
}

/// The text of a check, once it ends with this code: the cluster acts meanwhile.
fn await_code(dir: &Path, wanted: i32) -> String {
    let begin = Instant::now();
    loop {
        let (code, text) = check(dir, &[]);
        if code == Some(wanted) {
            return text;
        }
        assert!(begin.elapsed() < Duration::from_mins(1), "{code:?}: {text}");
    }
}

#[test]
fn a_cluster_with_kueue_is_read_page_by_page_and_planned() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let cluster = Cluster::start(dir);
    kueue(&cluster.address);
    cluster.job("first", 2, json!({}));
    await_fate(dir, "runsOn", 1);
    for number in 0..5 {
        cluster.job(&format!("next-{number}"), 1, json!({}));
    }
    // More than a page.
    for number in 0..510 {
        let class = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "value": 1,
            "metadata": {"name": format!("c{number}")}});
        cluster.create("/apis/kueue.x-k8s.io/v1beta2/workloadpriorityclasses", &class);
    }
    let found = await_fate(dir, "waits", 5);
    assert_eq!(found["exitCode"], 0, "{found:#}");
    let named = |kind: &str| {
        let findings = found["findings"].as_array().unwrap().iter();
        findings.filter(|finding| finding["kind"] == kind).count()
    };
    assert_eq!((named("Workload"), named("Job"), named("WorkloadPriorityClass")), (6, 6, 510));
    let (code, text) = check(dir, &[]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("Workload (5): waits: it keeps its place by priority and time"), "{text}");
    assert!(
        text.contains("Workload: runs on as it is (1), waits (5)\n  no gang that runs would be evicted"),
        "{text}"
    );
    assert!(
        text.contains("kubectl -n kueue-system scale deployment/kueue-controller-manager --replicas=0"),
        "{text}"
    );

    let check_of = json!({"controllerName": "kueue.x-k8s.io/multikueue"});
    cluster.queue("admissionchecks", "AdmissionCheck", "remote", check_of);
    let text = await_code(dir, 0);
    assert!(text.contains("AdmissionCheck remote: runs Workloads in other clusters"), "{text}");
    assert!(text.contains("--set kueue.multikueue=true"), "{text}");
    let profile = json!({"clusterSource": {"clusterProfileRef": {"name": "west"}}});
    cluster.queue("multikueueclusters", "MultiKueueCluster", "west", profile);
    let text = await_code(dir, 4);
    assert!(text.contains("MultiKueueCluster west: names a ClusterProfile"), "{text}");
    assert_eq!(cluster.running.end(), Some(0));
}

#[test]
fn who_may_read_all_gets_all_and_others_are_told_which_rights_are_missing() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let cluster = Cluster::start(dir);
    kueue(&cluster.address);
    cluster.wrapper("default", "wrapped", 1);
    await_fate(dir, "runsOn", 1);
    let reader = |user: &str, rule: Value| {
        let (of, rbac) = (json!({"name": user}), "rbac.authorization.k8s.io");
        let (version, path) = (format!("{rbac}/v1"), format!("/apis/{rbac}/v1"));
        let role = json!({"apiVersion": version, "kind": "ClusterRole", "metadata": of, "rules": [rule]});
        create(&cluster.address, &format!("{path}/clusterroles"), &role);
        let binding = json!({"apiVersion": version, "kind": "ClusterRoleBinding", "metadata": of,
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": user},
            "subjects": [{"apiGroup": rbac, "kind": "User", "name": user}]});
        create(&cluster.address, &format!("{path}/clusterrolebindings"), &binding);
    };
    // Without a right to write.
    reader("all", json!({"apiGroups": ["*"], "verbs": ["get", "list", "watch"], "resources": ["*"]}));
    let (code, text) = check(dir, &["--as", "all"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("AppWrapper: runs on as it is (1)"), "{text}");

    reader(
        "ann",
        json!({"apiGroups": ["apps", "apiextensions.k8s.io", "workload.codeflare.dev"], "verbs": ["list"],
            "resources": ["deployments", "customresourcedefinitions", "appwrappers"]}),
    );
    let (code, text) = check(dir, &["--as", "ann"]);
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("AppWrapper default/wrapped: runs"), "{text}");
    assert!(text.contains("no right to list") && text.contains("clusterqueues.kueue.x-k8s.io"), "{text}");
    assert!(text.contains("no right to get configmaps kueue-system/kueue-manager-config"), "{text}");
    assert!(text.contains("not made: no right to list nodes, watch nodes"), "{text}");
    let (code, text) = check(dir, &["--as", "nobody"]);
    assert_eq!(code, Some(3), "{text}");
    assert!(text.starts_with("Whether Kueue, MCAD"), "{text}");
    assert_eq!(cluster.running.end(), Some(0));
}

#[test]
fn what_is_predicted_of_gangs_of_mcad_comes_true() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let running = Up::start(&["--api-only"], dir);
    let address = running.address("API server").to_owned();
    let (code, text) = check(dir, &[]);
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.starts_with("Neither Kueue, MCAD nor the controller of AppWrappers 1.2 was found"),
        "{text}"
    );

    deployment(
        &address,
        "kube-system",
        "mcad-controller",
        "quay.io/project-codeflare/mcad-controller:v1.40.0",
    );
    create(
        &address,
        "/api/v1/nodes",
        &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {
            "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "20"},
            "conditions": [{"type": "Ready", "status": "True"}]}}),
    );
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    create(
        &address,
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        &json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "appwrappers.workload.codeflare.dev"},
            "spec": {"group": "workload.codeflare.dev", "scope": "Namespaced",
                "names": {"kind": "AppWrapper", "plural": "appwrappers", "singular": "appwrapper", "listKind": "AppWrapperList"},
                "versions": [{"name": "v1beta1", "served": true, "storage": true, "schema": schema}]}}),
    );
    let wrappers = "/apis/workload.codeflare.dev/v1beta1/namespaces/default/appwrappers";
    let begin = Instant::now();
    while !request(&address, &format!("GET {wrappers}"), "").unwrap().starts_with("HTTP/1.1 200") {
        assert!(begin.elapsed() < Duration::from_mins(1), "the definition is not established");
    }
    let wrapper = |name: &str, cpu: u32, status: Value, object: Value| {
        let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}});
        let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
            "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}});
        let object = if object.is_null() { job } else { object };
        create(
            &address,
            wrappers,
            &json!({"apiVersion": "workload.codeflare.dev/v1beta1", "kind": "AppWrapper", "metadata": {"name": name},
                "spec": {"resources": {"GenericItems": [{"generictemplate": object}]}}, "status": status}),
        );
    };
    wrapper(
        "runs",
        2,
        json!({"canrun": true, "state": "Running", "queuejobstate": "Dispatched"}),
        Value::Null,
    );
    let answer = request(&address, &format!("GET {wrappers}/runs"), "").unwrap();
    let owner: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
    let reference = json!({"apiVersion": "workload.codeflare.dev/v1beta1", "kind": "AppWrapper", "name": "runs",
        "uid": owner["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true});
    let labels = json!({"appwrapper.mcad.ibm.com": "runs", "resourceName": "runs"});
    create(
        &address,
        "/apis/batch/v1/namespaces/default/jobs",
        &json!({"apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": "runs", "labels": labels, "ownerReferences": [reference]},
            "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i",
                "resources": {"requests": {"cpu": 2}}}]}}}}),
    );
    wrapper("fits", 1, json!({"state": "Pending"}), Value::Null);
    wrapper("huge", 9, json!({"state": "Pending"}), Value::Null);
    let elsewhere =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "other"}});
    wrapper("elsewhere", 1, json!({"state": "Pending"}), elsewhere);
    wrapper("broken", 1, Value::Null, json!({"kind": "Job"}));
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}});
    wrapper("secret", 1, json!({"state": "Pending"}), secret);
    let (code, text) = check(dir, &["-o", "json"]);
    assert_eq!(code, Some(3), "{text}");
    let found: Value = serde_json::from_str(&text).unwrap();
    let fate = |name: &str| {
        let gangs = found["forecast"]["gangs"].as_array().unwrap();
        gangs.iter().find(|gang| gang["name"] == name).unwrap()["fate"].clone()
    };
    for (name, expected) in [
        ("runs", "runsOn"),
        ("fits", "starts"),
        ("huge", "neverFits"),
        ("broken", "fails"),
        ("elsewhere", "fails"),
        ("secret", "starts"),
    ] {
        assert_eq!(fate(name), expected, "{name}: {:#}", found["forecast"]);
    }
    let (_, text) = check(dir, &[]);
    assert!(
        text.contains("AppWrapper default/secret: wraps secrets, which the chart does not permit"),
        "{text}"
    );
    assert!(text.contains("AppWrapper default/broken: fails at once: resources.GenericItems[0].generictemplate: apiVersion is missing"), "{text}");
    assert!(text.contains(r#"--set-json appWrappers.wraps='{"":["configmaps","persistentvolumeclaims","pods","secrets","services"]}'"#), "{text}");

    let flags = [
        "controller",
        "--kubeconfig",
        ".muster/kubeconfig",
        "--authorization",
        "none",
        "--leader-elect=false",
    ];
    let mut controller = muster(&flags, dir);
    controller.args(["--appwrapper-group", "workload.codeflare.dev", "--metrics-bind-address", "0"]);
    let _controller = Process(controller.spawn().unwrap());
    let states = || -> Vec<(String, String)> {
        let answer = request(&address, &format!("GET {wrappers}"), "").unwrap();
        let list: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let items = list["items"].as_array().unwrap().iter();
        items.map(|item| (text(&item["metadata"]["name"]), text(&item["status"]["state"]))).collect()
    };
    let expected = [
        ("broken", "Failed"),
        ("elsewhere", "Failed"),
        ("fits", "Running"),
        ("huge", "Pending"),
        ("runs", "Running"),
        ("secret", "Running"),
    ];
    let expected = expected.map(|(name, state)| (name.to_owned(), state.to_owned()));
    let begin = Instant::now();
    while states() != expected {
        assert!(begin.elapsed() < Duration::from_mins(1), "{:?}", states());
    }
    assert_eq!(running.end(), Some(0));
}
