//! `muster up` as a process: invalid flags, the kubeconfig, and termination.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use crate::common::{Up, muster, request, stderr_of_failure, up};

fn get(address: &str, path: &str) -> String {
    request(address, &format!("GET {path}"), "").unwrap()
}

fn post(address: &str, path: &str, body: &str) -> String {
    request(address, &format!("POST {path}"), body).unwrap()
}

#[test]
fn muster_up_serves_the_api_and_the_dashboard_until_sigterm() {
    let dir = tempfile::tempdir().unwrap();
    let running = Up::start(&[], dir.path());
    assert!(running.output.starts_with("muster is ready after "), "{}", running.output);
    let kubeconfig = dir.path().join(".muster/kubeconfig");
    let config: serde_json::Value = serde_json::from_slice(&std::fs::read(&kubeconfig).unwrap()).unwrap();
    let address = running.address("API server");
    let server = config["clusters"][0]["cluster"]["server"].as_str().unwrap();
    assert!(server.starts_with(&format!("http://{address}/clusters/")), "{server}");
    assert!(get(address, "/api/v1/nodes").contains("\"gpu\""));
    let groups = get(address, "/apis");
    assert!(groups.contains("workload.codeflare.dev") && !groups.contains("mcad.ibm.com"), "{groups}");
    assert!(get(running.address("dashboard"), "/").contains("<h1>Muster</h1>"));
    assert_eq!(running.end(), Some(0));
    assert!(!kubeconfig.exists(), "the kubeconfig remains after the end");
}

/// kubectl keeps what a server serves by the host, the port and the path of its URL.
#[test]
fn each_start_has_a_url_of_its_own_so_that_kubectl_takes_no_cluster_for_an_older_one() {
    let dir = tempfile::tempdir().unwrap();
    let server = || {
        let running = Up::start(&[], dir.path());
        let kubeconfig = std::fs::read(dir.path().join(".muster/kubeconfig")).unwrap();
        let config: serde_json::Value = serde_json::from_slice(&kubeconfig).unwrap();
        let server = config["clusters"][0]["cluster"]["server"].as_str().unwrap().to_owned();
        let address = running.address("API server").to_owned();
        let path = server.strip_prefix(&format!("http://{address}")).unwrap().to_owned();
        let found = get(&address, &format!("{path}/api/v1/nodes?fieldSelector=metadata.name%3Dgpu"));
        let hostname = |name: &str| format!("\"kubernetes.io/hostname\":\"{name}\"");
        assert!(found.contains(&hostname("gpu")) && !found.contains(&hostname("cpu")), "{found}");
        assert_eq!(running.end(), Some(0));
        path
    };
    let (first, second) = (server(), server());
    assert!(first.starts_with("/clusters/") && first != second, "{first} {second}");
}

#[test]
fn a_pod_with_a_queue_is_held_back_and_tolerates_the_taint_of_its_device() {
    let dir = tempfile::tempdir().unwrap();
    let running = Up::start(&[], dir.path());
    let requests = serde_json::json!({"limits": {"nvidia.com/gpu": "1"}});
    let pod = serde_json::json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "a", "labels": {"kueue.x-k8s.io/queue-name": "q"}},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": requests}]}});
    let created = post(running.address("API server"), "/api/v1/namespaces/default/pods", &pod.to_string());
    let created: serde_json::Value = serde_json::from_str(created.split_once("\r\n\r\n").unwrap().1).unwrap();
    assert_eq!(created["spec"]["schedulingGates"][0]["name"], "kueue.x-k8s.io/admission", "{created}");
    let tolerations = created["spec"]["tolerations"].as_array().unwrap();
    assert!(tolerations.iter().any(|toleration| toleration["key"] == "nvidia.com/gpu"), "{created}");
    assert_eq!(running.end(), Some(0));
}

#[test]
fn a_configuration_of_kueue_says_what_is_managed_and_that_pods_must_be_ready() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("kueue.yaml");
    let head = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n";
    std::fs::write(&file, format!("{head}waitForPodsReady: {{timeout: never}}\n")).unwrap();
    let error = stderr_of_failure(&up(&["--config", "kueue.yaml"], dir.path()).output().unwrap());
    assert!(
        error.contains("the configuration kueue.yaml is not valid") && error.contains("timeout"),
        "{error}"
    );
    let lines = "waitForPodsReady: {timeout: 1s}\nintegrations: {frameworks: [batch/job]}\n";
    std::fs::write(&file, format!("{head}{lines}")).unwrap();
    let running = Up::start(&["--config", "kueue.yaml"], dir.path());
    let address = running.address("API server");
    let create = |path: &str, kind: &str, mut object: serde_json::Value| {
        let (_, version) = path.split_once("/apis/").or_else(|| path.split_once("/api/")).unwrap();
        let version = version.split('/').take(if path.starts_with("/apis/") { 2 } else { 1 });
        object["apiVersion"] = version.collect::<Vec<_>>().join("/").into();
        object["kind"] = kind.into();
        let created = post(address, path, &object.to_string());
        let created: serde_json::Value =
            serde_json::from_str(created.split_once("\r\n\r\n").unwrap().1).unwrap();
        assert!(created["metadata"]["uid"].is_string(), "{created}");
        created
    };
    let group = "/apis/kueue.x-k8s.io/v1beta2";
    create(
        &format!("{group}/resourceflavors"),
        "ResourceFlavor",
        serde_json::json!({"metadata": {"name": "f"}}),
    );
    let quota = serde_json::json!({"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": "9"}]}]});
    create(
        &format!("{group}/clusterqueues"),
        "ClusterQueue",
        serde_json::json!({"metadata": {"name": "q"}, "spec": {"namespaceSelector": {}, "resourceGroups": [quota]}}),
    );
    create(
        &format!("{group}/namespaces/default/localqueues"),
        "LocalQueue",
        serde_json::json!({"metadata": {"name": "q"}, "spec": {"clusterQueue": "q"}}),
    );
    let labels = serde_json::json!({"kueue.x-k8s.io/queue-name": "q"});
    let fault = serde_json::json!({"sandbox.muster.dev/fail": "never-ready"});
    let spec = serde_json::json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]});
    create(
        "/apis/batch/v1/namespaces/default/jobs",
        "Job",
        serde_json::json!({"metadata": {"name": "j", "labels": labels}, "spec": {
        "template": {"metadata": {"annotations": fault}, "spec": spec}}}),
    );
    let begin = std::time::Instant::now();
    while !get(address, &format!("{group}/namespaces/default/workloads")).contains("PodsReadyTimeout") {
        assert!(begin.elapsed() < std::time::Duration::from_mins(1), "the Workload keeps its quota");
        std::thread::yield_now();
    }
    // A pod is no job that is managed.
    let pod = create(
        "/api/v1/namespaces/default/pods",
        "Pod",
        serde_json::json!({"metadata": {"name": "a", "labels": labels}, "spec": spec}),
    );
    assert!(pod["spec"]["schedulingGates"].is_null(), "{pod}");
    assert_eq!(running.end(), Some(0));
}

#[test]
fn a_second_muster_up_in_the_same_directory_fails() {
    let dir = tempfile::tempdir().unwrap();
    let running = Up::start(&["--dir", "here"], dir.path());
    let error = stderr_of_failure(&up(&["--dir", "here"], dir.path()).output().unwrap());
    assert!(error.contains("another `muster up` runs in here"), "{error}");
    assert_eq!(running.end(), Some(0));
    assert_eq!(Up::start(&["--dir", "here"], dir.path()).end(), Some(0));
}

#[test]
fn an_address_in_use_is_an_error_that_names_the_flag() {
    let dir = tempfile::tempdir().unwrap();
    let in_use = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = in_use.local_addr().unwrap().to_string();
    let error = stderr_of_failure(&muster(&["up", "--listen", &address], dir.path()).output().unwrap());
    assert!(error.contains(&address) && error.contains("--listen"), "{error}");
}

#[test]
fn a_non_loopback_address_without_tls_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let arguments = ["up", "--listen", "0.0.0.0:0", "--dashboard", "127.0.0.1:0"];
    let error = stderr_of_failure(&muster(&arguments, dir.path()).output().unwrap());
    assert!(error.contains("--tls"), "{error}");
}

#[test]
fn an_invalid_flag_fails_before_the_cluster_starts() {
    let dir = tempfile::tempdir().unwrap();
    for (arguments, expected) in [
        (["--node", "cpu=many,memory=1Gi"], "cpu"),
        (["--nodes", "missing.yaml"], "missing.yaml"),
        (["--speed", "0"], "speed"),
        (["--appwrapper-group", "example.org"], "mcad.ibm.com"),
        (["--config", "missing.yaml"], "cannot read the configuration missing.yaml"),
    ] {
        let error = stderr_of_failure(&up(&arguments, dir.path()).output().unwrap());
        assert!(error.contains(expected), "{arguments:?}: {error}");
        assert!(!dir.path().join(".muster/kubeconfig").exists());
    }
}

#[test]
fn with_tls_the_kubeconfig_has_a_ca_and_a_token_and_mode_0600() {
    let dir = tempfile::tempdir().unwrap();
    let running = Up::start(&["--tls"], dir.path());
    let file = dir.path().join(".muster/kubeconfig");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let config: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert!(config["clusters"][0]["cluster"]["server"].as_str().unwrap().starts_with("https://"));
    assert!(config["clusters"][0]["cluster"]["certificate-authority-data"].is_string());
    assert!(config["users"][0]["user"]["token"].is_string());
    assert_eq!(running.end(), Some(0));
}

#[test]
fn muster_up_holds_the_lease_so_that_no_other_controller_acts_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    let running = Up::start(&[], dir.path());
    let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/muster";
    let begin = std::time::Instant::now();
    while !get(running.address("API server"), lease).contains("muster-up-") {
        assert!(begin.elapsed() < std::time::Duration::from_mins(1), "nothing holds the lease");
        std::thread::yield_now();
    }
    let error = stderr_of_failure(
        &muster(&["uninstall", "--kubeconfig", ".muster/kubeconfig"], dir.path()).output().unwrap(),
    );
    assert!(error.contains("renews the lease kube-system/muster: stop this controller first"), "{error}");
    assert_eq!(running.end(), Some(0));
}
