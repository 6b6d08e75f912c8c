//! `muster controller` as a process that plans AppWrappers and Workloads together.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::File;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::{Process, Up, muster, request};

fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// A controller of these parts, with a configuration of Kueue, for the cluster of `muster up` in the same folder.
fn controller(parts: &str, config: &str, dir: &Path) -> Command {
    std::fs::write(dir.join("config.yaml"), config).unwrap();
    let flags = ["--kubeconfig", ".muster/kubeconfig", "--parts", parts, "--config", "config.yaml"];
    let mut command = muster(&["controller"], dir);
    command.args(flags);
    command
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
    let mut command = controller("appwrappers,core,scheduler", &config, dir.path());
    let _controller = Process(command.arg("--leader-elect=false").spawn().unwrap());
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

#[test]
fn a_standby_says_that_kueue_holds_the_lease() {
    for parts in ["core,scheduler", "appwrappers,core,scheduler"] {
        waits_for_kueue(parts);
    }
}

/// A controller of these parts does not act while a Kueue does.
fn waits_for_kueue(parts: &str) {
    let dir = tempfile::tempdir().unwrap();
    let running = Up::start(&["--node", "count=1,name=n,cpu=4,memory=16Gi"], dir.path());
    let lease = r#"{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "c1f6bfd2.kueue.x-k8s.io"},
        "spec": {"holderIdentity": "kueue-controller-manager-0_7", "leaseDurationSeconds": 600}}"#;
    let path = "POST /apis/coordination.k8s.io/v1/namespaces/default/leases";
    let created = request(running.address("API server"), path, lease).unwrap();
    assert!(created.starts_with("HTTP/1.1 201"), "{created}");
    let config = "{apiVersion: config.kueue.x-k8s.io/v1beta2, kind: Configuration, namespace: default, \
        health: {healthProbeBindAddress: \"0\"}, metrics: {bindAddress: \"0\"}, \
        leaderElection: {leaderElect: true, resourceNamespace: default}}\n";
    let log = dir.path().join("log");
    let mut command = controller(parts, config, dir.path());
    let _controller = Process(command.stderr(File::create(&log).unwrap()).spawn().unwrap());
    let began = Instant::now();
    loop {
        let logged = std::fs::read_to_string(&log).unwrap();
        if logged.contains("waits for leadership") && logged.contains("kueue-controller-manager-0_7") {
            break;
        }
        assert!(began.elapsed() < Duration::from_mins(1), "{parts}: {logged}");
        std::thread::yield_now();
    }
    assert_eq!(running.end(), Some(0));
}
