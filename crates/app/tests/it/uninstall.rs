//! `muster uninstall` as a process.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};

use crate::common::{Up, muster, request, stderr_of_failure};

fn uninstall(dir: &Path, arguments: &[&str]) -> Output {
    muster(&[&["uninstall", "--kubeconfig", ".muster/kubeconfig"], arguments].concat(), dir).output().unwrap()
}

fn create(address: &str, path: &str, object: &Value) {
    let answer = request(address, &format!("POST {path}"), &object.to_string()).unwrap();
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn uninstall_finds_the_deployment_in_whatever_namespace_and_says_stopped_only_of_what_has_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let running = Up::start(&["--api-only"], dir.path());
    let address = running.address("API server").to_owned();

    let text = stdout(&uninstall(dir.path(), &[]));
    assert!(text.starts_with("no namespace has a Deployment of Muster"), "{text}");
    assert!(!text.contains("stopped"), "{text}");
    let renewed = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(1);
    create(
        &address,
        "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases",
        &json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "muster"},
            "spec": {"holderIdentity": "laptop-1", "leaseDurationSeconds": 15, "renewTime": format!("{renewed:.6}")}}),
    );
    let error = stderr_of_failure(&uninstall(dir.path(), &[]));
    assert!(
        error.contains("laptop-1 renews the lease kube-system/muster: stop this controller first"),
        "{error}"
    );

    let labels = json!({"app.kubernetes.io/name": "muster", "muster.dev/controller": "muster"});
    create(
        &address,
        "/api/v1/namespaces",
        &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "muster-system"}}),
    );
    let deployments = "/apis/apps/v1/namespaces/muster-system/deployments";
    create(
        &address,
        deployments,
        &json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "muster", "labels": labels},
            "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels},
                "spec": {"containers": [{"name": "muster", "image": "muster"}]}}}}),
    );
    let error = stderr_of_failure(&uninstall(dir.path(), &["--namespace", "muster"]));
    assert!(error.contains("Muster is in namespace muster-system, not in muster"), "{error}");
    let text = stdout(&uninstall(dir.path(), &[]));
    assert!(text.contains("stopped Deployment muster-system/muster"), "{text}");
    let now = request(&address, &format!("GET {deployments}/muster"), "").unwrap();
    assert!(now.contains(r#""replicas":0"#), "{now}");
    assert_eq!(running.end(), Some(0));
}

/// Whoever gives up Kueue's API with Muster keeps no pod and no template that waits for a controller.
#[test]
fn all_gates_of_kueues_api_go_if_no_kueue_takes_over() {
    let dir = tempfile::tempdir().unwrap();
    let running = Up::start(&["--api-only"], dir.path());
    let address = running.address("API server").to_owned();
    let gates = json!([{"name": "muster.dev/placement"}, {"name": "kueue.x-k8s.io/admission"}, {"name": "kueue.x-k8s.io/topology"},
        {"name": "kueue.x-k8s.io/elastic-job"}, {"name": "example.com/other"}]);
    let spec = json!({"schedulingGates": gates, "containers": [{"name": "c", "image": "c"}]});
    let (pods, sets) = ("/api/v1/namespaces/default/pods", "/apis/apps/v1/namespaces/default/replicasets");
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "worker", "labels": {"app": "serve"},
        "finalizers": ["kueue.x-k8s.io/managed"]}, "spec": spec});
    create(&address, pods, &pod);
    let labels = json!({"app": "serve"});
    create(
        &address,
        sets,
        &json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "serve"}, "spec": {"replicas": 0,
            "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}}}),
    );
    let read = |path: &str| {
        let answer = request(&address, &format!("GET {path}"), "").unwrap();
        let mut object: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
        object["metadata"]["managedFields"].take();
        object.to_string()
    };
    let left = |object: &str| object.matches("kueue.x-k8s.io/").count();
    let (pod, set) = (format!("{pods}/worker"), format!("{sets}/serve"));

    stdout(&uninstall(dir.path(), &[]));
    assert_eq!((left(&read(&pod)), left(&read(&set))), (4, 3), "a Kueue that takes over removes them");
    assert!(!read(&pod).contains("muster.dev/placement"), "{}", read(&pod));

    let text = stdout(&uninstall(dir.path(), &["--kueue"]));
    for name in ["ReplicaSet default/serve", "Pod default/worker"] {
        assert_eq!(text.matches(&format!("released {name}\n")).count(), 1, "{text}");
    }
    for object in [read(&pod), read(&set)] {
        assert_eq!(left(&object), 0, "{object}");
        assert!(object.contains("example.com/other"), "{object}");
    }
    assert_eq!(running.end(), Some(0));
}

#[test]
fn release_in_a_namespace_that_does_not_exist_fails() {
    let dir = tempfile::tempdir().unwrap();
    let running = Up::start(&["--node", "count=1,name=n,cpu=4,memory=16Gi"], dir.path());
    let flags = ["release", "--kubeconfig", ".muster/kubeconfig", "--namespace", "typo"];
    let error = stderr_of_failure(&muster(&flags, dir.path()).output().unwrap());
    assert!(error.contains("there is no namespace typo"), "{error}");
    assert_eq!(running.end(), Some(0));
}
