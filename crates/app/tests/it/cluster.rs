//! `muster cluster add` as a process, with a hub and a worker of `muster up`.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Output;

use crate::common::{Up, muster, printed, request, stderr_of_failure};

fn add(dir: &Path, arguments: &[&str]) -> Output {
    let flags = ["cluster", "add", "far", "--kubeconfig", "far/.muster/kubeconfig"];
    let hub = ["--hub-kubeconfig", "hub/.muster/kubeconfig"];
    muster(&[&flags[..], &hub, arguments].concat(), dir).output().unwrap()
}

#[test]
fn a_cluster_that_is_added_is_connected_by_the_token_of_its_new_account() {
    let dir = tempfile::tempdir().unwrap();
    let folder = |name: &str| {
        let folder = dir.path().join(name);
        std::fs::create_dir(&folder).unwrap();
        folder
    };
    let node = ["--node", "count=1,name=n,cpu=4,memory=16Gi"];
    let worker = Up::start(&node, &folder("far"));
    let error = stderr_of_failure(&add(dir.path(), &["--server", "http://192.0.2.1"]));
    assert!(error.contains("the hub would refuse the kubeconfig of far: plain HTTP"), "{error}");
    let hub = Up::start(&["--cluster", "east,count=1,cpu=4"], &folder("hub"));

    let text = printed(&add(dir.path(), &["--print"]));
    assert!(text.contains("kubectl get secret muster-hub-token -n kueue-system"), "{text}");
    let account = "GET /api/v1/namespaces/kueue-system/serviceaccounts/muster-hub";
    let answer = request(worker.address("API server"), account, "").unwrap();
    assert!(answer.starts_with("HTTP/1.1 404"), "nothing is changed: {answer}");

    // Twice: it may be repeated.
    for _ in 0..2 {
        let text = printed(&add(dir.path(), &["--token-lifetime", "24h"]));
        for line in [
            "far: ServiceAccount kueue-system/muster-hub",
            "far: ClusterRole muster-hub",
            "far: ClusterRoleBinding muster-hub",
            "the hub: Secret kueue-system/far-kubeconfig",
            "the hub: MultiKueueCluster far",
            "far is connected. Jobs go there when a MultiKueueConfig names it:",
        ] {
            assert!(text.lines().any(|known| known == line), "{line} in {text}");
        }
    }
    let answer = request(worker.address("API server"), account, "").unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(hub.end(), Some(0));
    assert_eq!(worker.end(), Some(0));
}
