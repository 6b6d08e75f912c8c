//! `muster release` as a process.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use crate::common::{Up, muster, request, stderr_of_failure};
use serde_json::{Value, json};

const GATE: &str = "muster.dev/placement";

fn send(address: &str, method: &str, path: &str, body: &str) -> String {
    request(address, &format!("{method} {path}"), body).unwrap()
}

fn create(address: &str, path: &str, object: &Value) {
    let answer = send(address, "POST", path, &object.to_string());
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
}

fn release(dir: &Path, arguments: &[&str]) -> std::process::Output {
    muster(&[&["release", "--kubeconfig", ".muster/kubeconfig"], arguments].concat(), dir).output().unwrap()
}

/// The specs of pods that wait for a place that nothing assigns.
fn gated() -> Value {
    json!({"schedulingGates": [{"name": GATE}, {"name": "example.com/other"}], "containers": [{"name": "c", "image": "i"}]})
}

#[test]
fn release_removes_the_gates_that_are_left_when_muster_is_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let running = Up::start(&["--node", "count=1,name=n,cpu=4,memory=16Gi"], dir.path());
    let address = running.address("API server").to_owned();
    let mut template = json!({"metadata": {"labels": {"app": "d"}}, "spec": gated()});
    create(
        &address,
        "/apis/apps/v1/namespaces/default/deployments",
        &json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
            "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "d"}}, "template": template}}),
    );
    template["spec"]["restartPolicy"] = json!("Never");
    create(
        &address,
        "/apis/batch/v1/namespaces/default/jobs",
        &json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"},
            "spec": {"parallelism": 0, "template": template}}),
    );
    create(
        &address,
        "/api/v1/namespaces/default/pods",
        &json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": gated()}),
    );
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();

    let elsewhere = release(dir.path(), &["--namespace", "kube-public"]);
    assert!(elsewhere.status.success());
    assert_eq!(text(&elsewhere.stdout), "removed the scheduling gate of 0 pods and 0 pod templates\n");
    let planned = text(&release(dir.path(), &["--dry-run"]).stdout);
    assert!(planned.starts_with("Deployment default/d\nJob default/j\n"), "{planned}");
    let deployment = "/apis/apps/v1/namespaces/default/deployments/d";
    assert!(send(&address, "GET", deployment, "").contains(GATE));

    // The template of a Job cannot be changed.
    let released = release(dir.path(), &["--all-namespaces"]);
    assert!(text(&released.stdout).starts_with("Deployment default/d\n"), "{released:?}");
    let error = stderr_of_failure(&released);
    assert!(error.contains("Job default/j keeps its gate: ") && error.contains("immutable"), "{error}");
    assert!(error.contains("1 objects keep their gate"), "{error}");
    let now = send(&address, "GET", deployment, "");
    assert!(!now.contains(GATE) && now.contains("example.com/other"), "{now}");
    let pod = send(&address, "GET", "/api/v1/namespaces/default/pods/p", "");
    assert!(!pod.contains(GATE) && pod.contains("example.com/other"), "{pod}");
    assert_eq!(running.end(), Some(0));
}
