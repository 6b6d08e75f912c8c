//! Admission of pods and claims: `LimitRange` and `RuntimeClass`.

use crate::harness::{Cluster, PODS};
use serde_json::{Value, json};

const RANGES: &str = "/api/v1/namespaces/default/limitranges";

fn pod(resources: &Value) -> Value {
    json!({ "metadata": { "name": "p" }, "spec": {
        "containers": [{ "name": "c", "image": "i", "resources": resources }] } })
}

fn range(limit: &Value) -> Value {
    json!({ "metadata": { "name": "r" }, "spec": { "limits": [limit] } })
}

#[test]
fn a_limit_range_sets_default_requests_and_limits() {
    let mut cluster = Cluster::new();
    let limit = json!({ "type": "Container", "default": { "cpu": "1", "memory": "1Gi" },
        "defaultRequest": { "cpu": "500m" } });
    cluster.create(RANGES, range(&limit));
    let created = cluster.create(PODS, pod(&json!({ "limits": { "memory": "2Gi" } })));
    let resources = &created["spec"]["containers"][0]["resources"];
    assert_eq!(
        resources,
        &json!({ "requests": { "cpu": "500m", "memory": "2Gi" }, "limits": { "cpu": "1", "memory": "2Gi" } })
    );
    assert_eq!(
        created["metadata"]["annotations"]["kubernetes.io/limit-ranger"],
        "LimitRanger plugin set: cpu request for container c; cpu limit for container c"
    );
    assert_eq!(created["status"]["qosClass"], "Burstable");
    assert!(created["spec"].get("initContainers").is_none(), "a pod that was given none has none");
}

#[test]
fn pods_beyond_a_limit_range_are_forbidden() {
    let cases = [
        (
            json!({ "type": "Container", "max": { "cpu": "1" } }),
            json!({ "requests": { "cpu": "2" }, "limits": { "cpu": "2" } }),
            "maximum cpu usage per Container is 1, but limit is 2",
        ),
        (
            json!({ "type": "Container", "min": { "cpu": "1" } }),
            json!({ "requests": { "cpu": "500m" } }),
            "minimum cpu usage per Container is 1, but request is 500m",
        ),
        (
            json!({ "type": "Pod", "max": { "memory": "1Gi" } }),
            json!({ "requests": { "memory": "1Gi" } }),
            "maximum memory usage per Pod is 1Gi.  No limit is specified",
        ),
        (
            json!({ "type": "Container", "maxLimitRequestRatio": { "cpu": "2" } }),
            json!({ "requests": { "cpu": "1" }, "limits": { "cpu": "3" } }),
            "cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000",
        ),
    ];
    for (limit, resources, why) in cases {
        let mut cluster = Cluster::new();
        cluster.create(RANGES, range(&limit));
        let refused = cluster.post(PODS, pod(&resources));
        assert_eq!(refused.failure(), (403, &*format!("pods \"p\" is forbidden: {why}")));
    }
}

#[test]
fn a_claim_beyond_a_limit_range_is_forbidden() {
    let mut cluster = Cluster::new();
    cluster.create(RANGES, range(&json!({ "type": "PersistentVolumeClaim", "max": { "storage": "1Gi" } })));
    let claim = json!({ "metadata": { "name": "c" }, "spec": { "accessModes": ["ReadWriteOnce"],
        "resources": { "requests": { "storage": "2Gi" } } } });
    let refused = cluster.post("/api/v1/namespaces/default/persistentvolumeclaims", claim);
    let why = "persistentvolumeclaims \"c\" is forbidden: maximum storage usage per PersistentVolumeClaim is 1Gi, but request is 2Gi";
    assert_eq!(refused.failure(), (403, why));
}

#[test]
fn a_runtime_class_adds_its_overhead_node_selector_and_tolerations() {
    let mut cluster = Cluster::new();
    let class = json!({ "metadata": { "name": "kata" }, "handler": "kata",
        "overhead": { "podFixed": { "cpu": "250m" } },
        "scheduling": { "nodeSelector": { "kata": "yes" },
            "tolerations": [{ "key": "kata", "operator": "Exists", "effect": "NoSchedule" }] } });
    cluster.create("/apis/node.k8s.io/v1/runtimeclasses", class);
    let mut with_class = pod(&json!({}));
    with_class["spec"]["runtimeClassName"] = json!("kata");
    let created = cluster.create(PODS, with_class.clone());
    assert_eq!(created["spec"]["overhead"], json!({ "cpu": "250m" }));
    assert_eq!(created["spec"]["nodeSelector"], json!({ "kata": "yes" }));
    let tolerations = created["spec"]["tolerations"].as_array().unwrap();
    assert!(tolerations.iter().any(|toleration| toleration["key"] == "kata"), "{tolerations:?}");
    with_class["metadata"]["name"] = json!("q");
    with_class["spec"]["nodeSelector"] = json!({ "kata": "no" });
    let why = "conflict: runtimeClass.scheduling.nodeSelector[kata] = yes; pod.spec.nodeSelector[kata] = no";
    let refused = cluster.post(PODS, with_class.clone());
    assert_eq!(refused.failure(), (403, &*format!("pods \"q\" is forbidden: {why}")));
    with_class["spec"]["runtimeClassName"] = json!("gone");
    let refused = cluster.post(PODS, with_class);
    let why = "pods \"q\" is forbidden: pod rejected: RuntimeClass \"gone\" not found";
    assert_eq!(refused.failure(), (403, why));
    let mut overhead = pod(&json!({}));
    overhead["spec"]["overhead"] = json!({ "cpu": "1" });
    assert_eq!(cluster.post(PODS, overhead).code, 403);
}
