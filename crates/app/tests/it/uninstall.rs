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

#[test]
fn release_in_a_namespace_that_does_not_exist_fails() {
    let dir = tempfile::tempdir().unwrap();
    let running = Up::start(&["--node", "count=1,name=n,cpu=4,memory=16Gi"], dir.path());
    let flags = ["release", "--kubeconfig", ".muster/kubeconfig", "--namespace", "typo"];
    let error = stderr_of_failure(&muster(&flags, dir.path()).output().unwrap());
    assert!(error.contains("there is no namespace typo"), "{error}");
    assert_eq!(running.end(), Some(0));
}
