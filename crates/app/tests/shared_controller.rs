//! `muster controller` as a process that plans AppWrappers and Workloads together.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::net::TcpListener;
use std::time::{Duration, Instant};

use common::{Process, Up, muster, request};

fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

#[test]
fn metrics_and_probes_of_kueue_are_those_of_the_controller_of_appwrappers() {
    let dir = tempfile::tempdir().unwrap();
    let running = Up::start(&["--node", "count=1,name=n,cpu=4,memory=16Gi"], dir.path());
    let cluster = running.address("API server").to_owned();
    let queue = r#"{"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "shared"},
        "spec": {"namespaceSelector": {}}}"#;
    let created = request(&cluster, "POST /apis/kueue.x-k8s.io/v1beta2/clusterqueues", queue).unwrap();
    assert!(created.starts_with("HTTP/1.1 201"), "{created}");
    let (health, metrics) = (free_address(), free_address());
    let config = format!(
        "{{apiVersion: config.kueue.x-k8s.io/v1beta2, kind: Configuration, health: {{healthProbeBindAddress: \"{health}\"}}, \
            metrics: {{bindAddress: \"{metrics}\"}}}}\n"
    );
    std::fs::write(dir.path().join("config.yaml"), config).unwrap();
    let arguments = [
        "controller",
        "--kubeconfig",
        ".muster/kubeconfig",
        "--parts",
        "appwrappers,core,scheduler",
        "--config",
        "config.yaml",
        "--leader-elect=false",
    ];
    let _controller = Process(muster(&arguments, dir.path()).spawn().unwrap());
    let began = Instant::now();
    let is_ready =
        || request(&health, "GET /readyz", "").is_some_and(|answer| answer.starts_with("HTTP/1.1 200"));
    while !is_ready() {
        assert!(began.elapsed() < Duration::from_mins(1), "it does not become ready");
        std::thread::yield_now();
    }
    let text = request(&metrics, "GET /metrics", "").unwrap();
    let active =
        r#"kueue_cluster_queue_status{cluster_queue="shared",status="active",replica_role="standalone"} 1"#;
    assert!(text.contains(active), "{text}");
    assert_eq!(running.end(), Some(0));
}
