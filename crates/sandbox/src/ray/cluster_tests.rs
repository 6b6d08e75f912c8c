//! Tests of the decisions of the RayCluster controller.

use serde_json::json;

use super::*;
use crate::ray::types::ClusterStatus;
use crate::wire::Stamp;

fn cluster(group: &Value) -> RayCluster {
    let template = json!({ "spec": { "containers": [{ "name": "ray", "image": "ray", "resources": {
        "limits": { "cpu": "1", "memory": "1G" } } }] } });
    let mut group = group.clone();
    group["groupName"] = json!("small");
    group["template"] = template.clone();
    serde_json::from_value(json!({
        "metadata": { "name": "demo", "namespace": "d", "uid": "u", "generation": 1 },
        "spec": { "headGroupSpec": { "template": template }, "workerGroupSpecs": [group] },
    }))
    .unwrap()
}

fn pod(name: &str, role: &str, status: &Value) -> Arc<Pod> {
    let index = name.rsplit('-').next().unwrap();
    Arc::new(
        serde_json::from_value(json!({
            "metadata": { "name": name, "namespace": "d", "labels": {
                "ray.io/node-type": role, "ray.io/group": if role == "head" { "headgroup" } else { "small" },
                "ray.io/worker-group-replica-index": index } },
            "spec": { "containers": [{ "name": "ray" }] },
            "status": status,
        }))
        .unwrap(),
    )
}

fn running() -> Value {
    json!({ "phase": "Running", "podIP": "10.0.0.2", "conditions": [{ "type": "Ready", "status": "True" }] })
}

fn described(steps: Vec<Step>) -> Vec<String> {
    steps
        .into_iter()
        .map(|step| match step {
            Step::CreateHead => "create head".to_owned(),
            Step::CreateWorker { host: worker, .. } => match worker.multi_host {
                None => format!("create {}", worker.replica),
                Some((_, host)) => format!("create {}/{host}", worker.replica),
            },
            Step::Delete { pod, .. } => format!("delete {}", pod.name),
        })
        .collect()
}

fn next(cluster: &RayCluster, pods: &[Arc<Pod>], now: Stamp) -> ClusterStatus {
    status::next(cluster, &Observed { pods, service: None, failure: None }, now)
}

fn check(name: &str, cluster: &RayCluster, pods: &[Arc<Pod>], expected: &[&str]) {
    assert_eq!(described(decide(cluster, pods, |_| 7)), expected, "{name}");
}

#[test]
fn head_and_workers_are_created_together_and_missing_pods_are_replaced() {
    let two = cluster(&json!({ "replicas": 2, "minReplicas": 0, "maxReplicas": 5 }));
    check("new", &two, &[], &["create head", "create 0", "create 1"]);
    let head = pod("demo-head-a", "head", &running());
    check("one missing", &two, &[head.clone(), pod("w-1", "worker", &running())], &["create 0"]);
    let failed = json!({ "phase": "Failed" });
    check("broken worker first", &two, &[head.clone(), pod("w-0", "worker", &failed)], &["delete w-0"]);
    check("broken head first", &two, &[pod("h", "head", &failed)], &["delete h"]);
    let three = ["w-0", "w-1", "w-2"].map(|name| pod(name, "worker", &running()));
    check("too many", &two, &[&[head][..], &three].concat(), &["delete w-0"]);
}

#[test]
fn replicas_are_limited_to_minimum_and_maximum() {
    let head = pod("h", "head", &running());
    let few = cluster(&json!({ "replicas": 0, "minReplicas": 3, "maxReplicas": 5 }));
    check("at least min", &few, std::slice::from_ref(&head), &["create 0", "create 1", "create 2"]);
    let many = cluster(&json!({ "replicas": 9, "minReplicas": 0, "maxReplicas": 1 }));
    check("at most max", &many, std::slice::from_ref(&head), &["create 0"]);
    let hosts = cluster(&json!({ "replicas": 1, "minReplicas": 0, "maxReplicas": 1, "numOfHosts": 2 }));
    check("all hosts of a replica", &hosts, &[head], &["create 0/0", "create 0/1"]);
}

#[test]
fn surplus_workers_are_kept_for_the_autoscaler() {
    let mut scaled = cluster(&json!({ "replicas": 0, "minReplicas": 0, "maxReplicas": 5 }));
    scaled.spec.enable_in_tree_autoscaling = true;
    let pods =
        [pod("h", "head", &running()), pod("w-0", "worker", &running()), pod("w-1", "worker", &running())];
    check("surplus stays", &scaled, &pods, &[]);
    scaled.spec.worker_group_specs[0].scale_strategy.workers_to_delete = vec!["w-1".to_owned()];
    check("named worker goes", &scaled, &pods, &["delete w-1"]);
}

#[test]
fn suspension_deletes_pods_after_its_condition_and_ready_persists() {
    let mut demo = cluster(&json!({ "replicas": 1, "minReplicas": 0, "maxReplicas": 5 }));
    let now = Stamp::of(jiff::Timestamp::UNIX_EPOCH);
    let pods = [pod("h", "head", &running()), pod("w-0", "worker", &running())];
    demo.status = next(&demo, &pods, now);
    assert_eq!(demo.status.state.as_deref(), Some("ready"));
    let holds = |demo: &RayCluster, kind: &str| {
        crate::wire::condition(&demo.status.conditions, kind).map(|c| (c.status.clone(), c.reason.clone()))
    };
    let condition = |status: &str, reason: &str| Some((status.to_owned(), reason.to_owned()));
    assert_eq!(holds(&demo, "RayClusterProvisioned"), condition("True", "AllPodRunningAndReadyFirstTime"));
    demo.status = next(&demo, &pods[..1], now);
    assert_eq!((demo.status.state.as_deref(), demo.status.ready_worker_replicas), (Some("ready"), None));

    demo.spec.suspend = Some(true);
    check("no step before the condition", &demo, &pods, &[]);
    demo.status = next(&demo, &pods, now);
    assert_eq!(holds(&demo, "RayClusterSuspending"), condition("True", "RayClusterSuspending"));
    check("then pods go", &demo, &pods, &["delete h", "delete w-0"]);
    demo.spec.suspend = Some(false);
    check("a change of mind waits", &demo, &pods, &["delete h", "delete w-0"]);
    demo.spec.suspend = Some(true);
    demo.status = next(&demo, &[], now);
    assert_eq!(demo.status.state.as_deref(), Some("suspended"));
    assert_eq!(holds(&demo, "RayClusterSuspended"), condition("True", "RayClusterSuspended"));
    assert_eq!(holds(&demo, "RayClusterProvisioned"), condition("False", "RayClusterPodsProvisioning"));
    demo.spec.suspend = None;
    demo.status = next(&demo, &[], now);
    check("absence does not resume", &demo, &[], &[]);
    demo.spec.suspend = Some(false);
    demo.status = next(&demo, &[], now);
    check("false does", &demo, &[], &["create head", "create 0"]);
}

#[test]
fn totals_are_formatted_as_by_kuberay() {
    let mut demo = cluster(&json!({ "replicas": 1, "minReplicas": 1, "maxReplicas": 1 }));
    demo.spec.enable_in_tree_autoscaling = true;
    let status = json!(next(&demo, &[], Stamp::of(jiff::Timestamp::UNIX_EPOCH)));
    for (field, expected) in
        [("desiredCPU", "2"), ("desiredMemory", "2G"), ("desiredGPU", "0"), ("desiredTPU", "0")]
    {
        assert_eq!(status[field], expected, "{field}");
    }
    assert_eq!(status["endpoints"]["dashboard"], "8265");
    assert_eq!(status["head"]["serviceName"], "demo-head-svc");
}

#[test]
fn pods_have_the_names_commands_and_containers_of_kuberay() {
    let mut demo = cluster(&json!({ "replicas": 1, "minReplicas": 1, "maxReplicas": 1 }));
    demo.spec.enable_in_tree_autoscaling = true;
    let head = pods::head(&demo);
    assert_eq!(head["metadata"]["generateName"], "demo-head-");
    let names: Vec<_> =
        head["spec"]["containers"].as_array().unwrap().iter().map(|c| c["name"].clone()).collect();
    assert_eq!(names, ["ray", "autoscaler"]);
    assert_eq!(
        head["spec"]["containers"][0]["args"][0],
        "ulimit -n 65536; ray start --head  --block  --dashboard-agent-listen-port=52365  --dashboard-host=0.0.0.0  \
         --memory=1000000000  --metrics-export-port=8080  --no-monitor  --num-cpus=1 "
    );
    let worker =
        pods::worker(&demo, &demo.spec.worker_group_specs[0], &ReplicaHost { replica: 0, multi_host: None });
    assert_eq!(worker["metadata"]["generateName"], "demo-small-worker-");
    assert_eq!(worker["metadata"]["labels"]["ray.io/identifier"], "demo-worker");
    assert_eq!(worker["spec"]["initContainers"][0]["name"], "wait-gcs-ready");
    assert!(
        worker["spec"]["containers"][0]["args"][0]
            .as_str()
            .unwrap()
            .contains("ray start  --address=demo-head-svc.d.svc.cluster.local:6379  --block ")
    );
}

/// Expected values are what the KubeRay operator wrote to kube-apiserver for the same sample.
#[test]
fn environment_variables_have_kuberays_order_and_the_init_container_has_fewer() {
    let demo = cluster(&json!({ "replicas": 1 }));
    let worker =
        pods::worker(&demo, &demo.spec.worker_group_specs[0], &ReplicaHost { replica: 0, multi_host: None });
    let names = |container: &Value| -> Vec<String> {
        let env = container["env"].as_array().unwrap();
        env.iter().map(|variable| variable["name"].as_str().unwrap().to_owned()).collect()
    };
    let container = &worker["spec"]["containers"][0];
    assert_eq!(
        names(container),
        [
            "FQ_RAY_IP",
            "RAY_IP",
            "RAY_CLUSTER_NAME",
            "RAY_CLUSTER_NAMESPACE",
            "RAY_CLOUD_INSTANCE_ID",
            "RAY_NODE_TYPE_NAME",
            "KUBERAY_GEN_RAY_START_CMD",
            "RAY_PORT",
            "RAY_ADDRESS",
            "RAY_USAGE_STATS_KUBERAY_IN_USE",
            "RAY_DASHBOARD_ENABLE_K8S_DISK_USAGE",
        ]
    );
    assert_eq!(container["ports"][0]["name"], "metrics");
    let wait = &worker["spec"]["initContainers"][0];
    assert_eq!(
        (names(wait), &wait["volumeMounts"]),
        (vec!["FQ_RAY_IP".into(), "RAY_IP".into()], &Value::Null)
    );
    let head = pods::head(&demo);
    let probe = head["spec"]["containers"][0]["livenessProbe"]["exec"]["command"][2].as_str().unwrap();
    assert!(probe.contains("-T 2") && probe.contains("-T 10"), "{probe}");
}
