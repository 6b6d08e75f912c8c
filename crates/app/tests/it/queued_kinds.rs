//! Jobs of the kinds that one operator simulates, in a queue of `muster up`.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::common::{Up, request, stderr_of_failure, up};

const KUEUE: &str = "/apis/kueue.x-k8s.io/v1beta2";
const KINDS: &str = "kinds:
- apiVersion: example.com/v1
  kind: TrainingRun
  resource: trainingruns
  podSets: {at: /spec/groups, count: [[/replicas]], template: /template}
  active: /status/groups/*/active
  ready: {numbers: {wanted: /spec/groups/*/replicas, ready: [/status/groups/*/ready]}}
  succeeded: Complete
";

fn send(address: &str, head: &str, body: &Value) -> Value {
    let answer = request(address, head, &body.to_string()).unwrap();
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

fn create(address: &str, collection: &str, object: &Value) -> Value {
    let created = send(address, &format!("POST {collection}"), object);
    assert!(created["metadata"]["uid"].is_string(), "{created:#}");
    created
}

/// Creates a queue with 8 CPUs.
fn queue(address: &str) {
    let version = "kueue.x-k8s.io/v1beta2";
    let flavor = json!({"apiVersion": version, "kind": "ResourceFlavor", "metadata": {"name": "cpu"},
        "spec": {"nodeLabels": {"kubernetes.io/hostname": "cpu"}}});
    create(address, &format!("{KUEUE}/resourceflavors"), &flavor);
    let group = json!({"coveredResources": ["cpu", "memory"], "flavors": [{"name": "cpu", "resources": [
        {"name": "cpu", "nominalQuota": "8"}, {"name": "memory", "nominalQuota": "64Gi"}]}]});
    let cluster_queue = json!({"apiVersion": version, "kind": "ClusterQueue", "metadata": {"name": "q"},
        "spec": {"namespaceSelector": {}, "resourceGroups": [group]}});
    create(address, &format!("{KUEUE}/clusterqueues"), &cluster_queue);
    let local = json!({"apiVersion": version, "kind": "LocalQueue", "metadata": {"name": "q"}, "spec": {"clusterQueue": "q"}});
    create(address, &format!("{KUEUE}/namespaces/default/localqueues"), &local);
}

fn job(api_version: &str, kind: &str, spec: &Value) -> Value {
    json!({"apiVersion": api_version, "kind": kind,
        "metadata": {"name": kind.to_lowercase(), "labels": {"kueue.x-k8s.io/queue-name": "q"}}, "spec": spec})
}

/// A job of each kind, with the plural of the kind: each needs 6 of the 8 CPUs.
fn jobs() -> [(&'static str, Value); 4] {
    let container =
        |cpu: &str| json!({"name": "main", "image": "i", "resources": {"requests": {"cpu": cpu}}});
    let template = |cpu: &str| json!({"spec": {"restartPolicy": "Never", "containers": [container(cpu)]}});
    let inner = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "inner"},
        "spec": {"parallelism": 2, "completions": 2, "template": template("3")}});
    [
        (
            "trainjobs",
            job(
                "trainer.kubeflow.org/v1alpha1",
                "TrainJob",
                &json!({"runtimeRef": {"name": "torch-distributed"},
            "trainer": {"numNodes": 2, "resourcesPerNode": {"requests": {"cpu": "3"}}}}),
            ),
        ),
        (
            "sparkapplications",
            job(
                "sparkoperator.k8s.io/v1beta2",
                "SparkApplication",
                &json!({
            "type": "Python", "mode": "cluster", "sparkVersion": "4.0.0",
            "driver": {"cores": 2, "memory": "1g"}, "executor": {"instances": 2, "cores": 2, "memory": "1g"}}),
            ),
        ),
        (
            "appwrappers",
            job(
                "workload.codeflare.dev/v1beta2",
                "AppWrapper",
                &json!({"components": [{"template": inner}]}),
            ),
        ),
        (
            "trainingruns",
            job(
                "example.com/v1",
                "TrainingRun",
                &json!({"suspend": true,
            "groups": [{"name": "worker", "replicas": 2, "template": template("3")}]}),
            ),
        ),
    ]
}

#[test]
fn a_queued_job_of_every_kind_is_suspended_admitted_and_ends() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("kinds.yaml"), KINDS).unwrap();
    let running = Up::start(&["--speed", "60", "--job-kinds", "kinds.yaml"], dir.path());
    let address = running.address("API server");
    queue(address);
    for (plural, job) in jobs() {
        let group = job["apiVersion"].as_str().unwrap();
        let created = create(address, &format!("/apis/{group}/namespaces/default/{plural}"), &job);
        assert_eq!(created["spec"]["suspend"], true, "{created:#}");
    }
    let begin = Instant::now();
    let workloads = loop {
        let list = send(address, &format!("GET {KUEUE}/namespaces/default/workloads"), &Value::Null);
        let items = list["items"].as_array().unwrap().clone();
        let is = |item: &Value, kind: &str| {
            let conditions = item["status"]["conditions"].as_array().into_iter().flatten();
            conditions.into_iter().any(|found| found["type"] == kind && found["status"] == "True")
        };
        // Two of them have no room at the same time.
        let holders = items.iter().filter(|item| is(item, "QuotaReserved") && !is(item, "Finished"));
        assert!(holders.count() <= 1, "{list:#}");
        if items.len() == 4 && items.iter().all(|item| is(item, "Finished")) {
            break items;
        }
        assert!(begin.elapsed() < Duration::from_mins(2), "{list:#}");
        std::thread::yield_now();
    };
    for workload in workloads {
        let conditions = workload["status"]["conditions"].as_array().unwrap();
        let finished = conditions.iter().find(|found| found["type"] == "Finished").unwrap();
        assert_eq!(finished["reason"], "Succeeded", "{workload:#}");
    }
    // The other version of AppWrappers is served as before.
    let wrappers = send(
        address,
        "GET /apis/workload.codeflare.dev/v1beta1/namespaces/default/appwrappers",
        &Value::Null,
    );
    assert_eq!(wrappers["items"].as_array().unwrap().len(), 1);
    assert_eq!(running.end(), Some(0));
}

#[test]
fn a_file_with_a_kind_that_is_served_already_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let known = KINDS.replace("example.com/v1", "batch/v1").replace("TrainingRun", "Job");
    std::fs::write(dir.path().join("kinds.yaml"), known).unwrap();
    let error = stderr_of_failure(&up(&["--job-kinds", "kinds.yaml"], dir.path()).output().unwrap());
    assert!(
        error.contains("kinds.yaml is not valid: kinds[0]: Job of batch/v1 is served already"),
        "{error}"
    );
}
