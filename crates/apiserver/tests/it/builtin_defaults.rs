//! Defaults of built-in kinds, and the fields that the server generates.

use apiserver::builtin::{self, Gvk};
use apiserver::openapi;
use serde_json::{Value, json};

/// Decodes an object and applies its defaults, as a write does.
fn stored(group: &str, version: &str, kind: &str, mut object: Value, old: Option<&Value>) -> Value {
    let kind_type = openapi::builtin(group, version, kind).expect("the kind is built in");
    let unknown = kind_type.decode(&mut object).expect("the object matches the type of its kind");
    assert_eq!(unknown, [""; 0]);
    builtin::prepare(Gvk { group, version, kind }, &mut object, old);
    if old.is_none() {
        builtin::generate(Gvk { group, version, kind }, &mut object);
    }
    let mut again = object.clone();
    kind_type.decode(&mut again).expect("the stored object matches the type of its kind");
    builtin::prepare(Gvk { group, version, kind }, &mut again, Some(&object));
    assert_eq!(again, object, "applying defaults again changes nothing");
    let errors = builtin::validate(Gvk { group, version, kind }, &object, Some(&object));
    assert_eq!(errors, [], "the defaulted object is valid");
    object
}

fn created(group: &str, kind: &str, object: Value) -> Value {
    stored(group, "v1", kind, object, None)
}

#[test]
fn a_minimal_pod_gets_the_defaults_of_kube_apiserver() {
    let pod = created(
        "",
        "Pod",
        json!({ "metadata": { "name": "p" }, "spec": { "containers": [{ "name": "c", "image": "busybox",
            "ports": [{ "containerPort": 80 }],
            "resources": { "limits": { "cpu": "1", "memory": "1Gi" } },
            "livenessProbe": { "httpGet": { "port": 80 } } }],
            "volumes": [{ "name": "v" }, { "name": "s", "secret": { "secretName": "x" } }] } }),
    );
    let toleration = |key: &str| json!({ "effect": "NoExecute", "key": key, "operator": "Exists", "tolerationSeconds": 300 });
    assert_eq!(
        pod,
        json!({
            "metadata": { "name": "p" },
            "spec": {
                "containers": [{
                    "name": "c", "image": "busybox", "imagePullPolicy": "Always",
                    "ports": [{ "containerPort": 80, "protocol": "TCP" }],
                    "resources": { "limits": { "cpu": "1", "memory": "1Gi" }, "requests": { "cpu": "1", "memory": "1Gi" } },
                    "livenessProbe": { "httpGet": { "path": "/", "port": 80, "scheme": "HTTP" },
                        "failureThreshold": 3, "periodSeconds": 10, "successThreshold": 1, "timeoutSeconds": 1 },
                    "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                }],
                "dnsPolicy": "ClusterFirst", "enableServiceLinks": true, "restartPolicy": "Always",
                "schedulerName": "default-scheduler", "securityContext": {},
                "serviceAccount": "default", "serviceAccountName": "default",
                "terminationGracePeriodSeconds": 30,
                "tolerations": [toleration("node.kubernetes.io/not-ready"), toleration("node.kubernetes.io/unreachable")],
                "volumes": [{ "name": "v", "emptyDir": {} }, { "name": "s", "secret": { "secretName": "x", "defaultMode": 420 } }],
            },
            "status": { "phase": "Pending", "qosClass": "Guaranteed" },
        })
    );
}

#[test]
fn the_qos_class_is_derived_from_requests_and_limits() {
    for (resources, class) in [
        (json!({}), "BestEffort"),
        (json!({ "requests": { "cpu": "1" } }), "Burstable"),
        (json!({ "limits": { "cpu": "1" } }), "Burstable"),
        (
            json!({ "limits": { "cpu": "1", "memory": "1Gi" }, "requests": { "cpu": "1000m", "memory": "1024Mi" } }),
            "Guaranteed",
        ),
        (json!({ "limits": { "cpu": "1", "memory": "1Gi" }, "requests": { "cpu": "500m" } }), "Burstable"),
        (json!({ "limits": { "nvidia.com/gpu": "1" } }), "BestEffort"),
    ] {
        let pod =
            json!({ "spec": { "containers": [{ "name": "c", "image": "i", "resources": resources }] } });
        assert_eq!(created("", "Pod", pod)["status"]["qosClass"], class, "{resources}");
    }
}

#[test]
fn a_deployment_gets_a_strategy_and_pod_defaults_in_its_template() {
    let deployment = created(
        "apps",
        "Deployment",
        json!({ "spec": { "selector": { "matchLabels": { "a": "b" } }, "template": { "metadata": { "labels": { "a": "b" } },
            "spec": { "containers": [{ "name": "c", "image": "i:1" }] } } } }),
    );
    let spec = &deployment["spec"];
    assert_eq!(spec["replicas"], 1);
    assert_eq!(
        spec["strategy"],
        json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": "25%", "maxUnavailable": "25%" } })
    );
    assert_eq!((&spec["revisionHistoryLimit"], &spec["progressDeadlineSeconds"]), (&json!(10), &json!(600)));
    assert_eq!(
        spec["template"]["spec"],
        json!({
            "containers": [{ "name": "c", "image": "i:1", "imagePullPolicy": "IfNotPresent", "resources": {},
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File" }],
            "dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "schedulerName": "default-scheduler",
            "securityContext": {}, "terminationGracePeriodSeconds": 30,
        })
    );
}

#[test]
fn a_job_gets_a_generated_selector_and_matching_pod_labels() {
    let job = created(
        "batch",
        "Job",
        json!({ "metadata": { "name": "sum", "uid": "0-1" }, "spec": { "template": {
            "spec": { "restartPolicy": "Never", "containers": [{ "name": "c", "image": "i" }] } } } }),
    );
    let labels = json!({ "batch.kubernetes.io/controller-uid": "0-1", "batch.kubernetes.io/job-name": "sum",
                         "controller-uid": "0-1", "job-name": "sum" });
    assert_eq!(job["metadata"]["labels"], labels);
    assert_eq!(job["spec"]["template"]["metadata"]["labels"], labels);
    assert_eq!(
        job["spec"]["selector"],
        json!({ "matchLabels": { "batch.kubernetes.io/controller-uid": "0-1" } })
    );
    for (name, value) in [
        ("completions", json!(1)),
        ("parallelism", json!(1)),
        ("backoffLimit", json!(6)),
        ("completionMode", json!("NonIndexed")),
        ("suspend", json!(false)),
        ("manualSelector", json!(false)),
        ("podReplacementPolicy", json!("TerminatingOrFailed")),
    ] {
        assert_eq!(job["spec"][name], value, "{name}");
    }
}

#[test]
fn a_job_with_parallelism_gets_no_default_completions() {
    let job = created(
        "batch",
        "Job",
        json!({ "metadata": { "name": "queue", "uid": "u" }, "spec": { "parallelism": 3, "template": {
            "spec": { "restartPolicy": "OnFailure", "containers": [{ "name": "c", "image": "i" }] } } } }),
    );
    assert_eq!(job["spec"].get("completions"), None);
    assert_eq!(job["spec"]["parallelism"], 3);
}

#[test]
fn stateful_sets_and_daemon_sets_get_their_default_policies() {
    let template = json!({ "metadata": { "labels": { "a": "b" } }, "spec": { "containers": [{ "name": "c", "image": "i",
        "volumeMounts": [{ "name": "data", "mountPath": "/data" }] }] } });
    let set = created(
        "apps",
        "StatefulSet",
        json!({ "spec": { "serviceName": "s", "selector": { "matchLabels": { "a": "b" } }, "template": template,
            "volumeClaimTemplates": [{ "metadata": { "name": "data" }, "spec": { "accessModes": ["ReadWriteOnce"],
                "resources": { "requests": { "storage": "1Gi" } } } }] } }),
    );
    let spec = &set["spec"];
    assert_eq!(spec["podManagementPolicy"], "OrderedReady");
    assert_eq!(
        spec["updateStrategy"],
        json!({ "type": "RollingUpdate", "rollingUpdate": { "partition": 0 } })
    );
    assert_eq!(
        spec["persistentVolumeClaimRetentionPolicy"],
        json!({ "whenDeleted": "Retain", "whenScaled": "Retain" })
    );
    assert_eq!(spec["volumeClaimTemplates"][0]["status"], json!({ "phase": "Pending" }));
    let plain = json!({ "metadata": { "labels": { "a": "b" } }, "spec": { "containers": [{ "name": "c", "image": "i" }] } });
    let set = created(
        "apps",
        "DaemonSet",
        json!({ "spec": { "selector": { "matchLabels": { "a": "b" } }, "template": plain } }),
    );
    assert_eq!(
        set["spec"]["updateStrategy"],
        json!({ "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 1, "maxSurge": 0 } })
    );
}

#[test]
fn kinds_without_a_pod_template_get_their_defaults() {
    let service = created(
        "",
        "Service",
        json!({ "spec": { "ports": [{ "port": 80 }], "clusterIP": "None", "selector": { "a": "b" } } }),
    );
    assert_eq!(
        service["spec"],
        json!({ "clusterIP": "None", "clusterIPs": ["None"], "internalTrafficPolicy": "Cluster", "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack", "selector": { "a": "b" }, "ports": [{ "port": 80, "protocol": "TCP", "targetPort": 80 }],
            "sessionAffinity": "None", "type": "ClusterIP" })
    );
    let secret = created("", "Secret", json!({ "stringData": { "b": "two" }, "data": { "a": "MQ==" } }));
    assert_eq!(secret, json!({ "metadata": {}, "type": "Opaque", "data": { "a": "MQ==", "b": "dHdv" } }));
    let namespace = created("", "Namespace", json!({ "metadata": { "name": "n" } }));
    assert_eq!(namespace["metadata"]["labels"], json!({ "kubernetes.io/metadata.name": "n" }));
    assert_eq!(namespace["spec"], json!({ "finalizers": ["kubernetes"] }));
    assert_eq!(namespace["status"], json!({ "phase": "Active" }));
    let class =
        created("scheduling.k8s.io", "PriorityClass", json!({ "metadata": { "name": "p" }, "value": 1 }));
    assert_eq!(class["preemptionPolicy"], "PreemptLowerPriority");
    let node =
        created("", "Node", json!({ "status": { "capacity": { "cpu": "4", "nvidia.com/gpu": "2" } } }));
    assert_eq!(node["status"]["allocatable"], json!({ "cpu": "4", "nvidia.com/gpu": "2" }));
    let binding = created(
        "rbac.authorization.k8s.io",
        "RoleBinding",
        json!({ "roleRef": { "kind": "Role", "name": "r" }, "subjects": [{ "kind": "User", "name": "ada" }] }),
    );
    assert_eq!(binding["roleRef"]["apiGroup"], "rbac.authorization.k8s.io");
    assert_eq!(binding["subjects"][0]["apiGroup"], "rbac.authorization.k8s.io");
    let definition = created(
        "apiextensions.k8s.io",
        "CustomResourceDefinition",
        json!({ "metadata": { "name": "things.example.com" }, "spec": { "group": "example.com", "scope": "Namespaced",
            "names": { "plural": "things", "kind": "Thing" }, "versions": [{ "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object" } } }] } }),
    );
    assert_eq!(
        definition["spec"]["names"],
        json!({ "kind": "Thing", "listKind": "ThingList", "plural": "things", "singular": "thing" })
    );
    assert_eq!(definition["spec"]["conversion"], json!({ "strategy": "None" }));
}

#[test]
fn an_autoscaler_gets_min_replicas_and_a_cpu_metric_in_v2_only() {
    let object = json!({ "spec": { "maxReplicas": 3, "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "d" } } });
    let v2 = stored("autoscaling", "v2", "HorizontalPodAutoscaler", object.clone(), None);
    assert_eq!(v2["spec"]["minReplicas"], 1);
    assert_eq!(
        v2["spec"]["metrics"][0]["resource"]["target"],
        json!({ "type": "Utilization", "averageUtilization": 80 })
    );
    let v1 = stored("autoscaling", "v1", "HorizontalPodAutoscaler", object, None);
    assert_eq!(v1["spec"].get("metrics"), None);
}

#[test]
fn malformed_objects_are_defaulted_and_validated_without_a_panic() {
    let shapes = [json!(null), json!(1), json!("x"), json!([]), json!({})];
    let kinds = [
        ("", "Pod"),
        ("", "Service"),
        ("", "Secret"),
        ("", "ConfigMap"),
        ("", "Namespace"),
        ("", "Node"),
        ("", "LimitRange"),
        ("", "PersistentVolume"),
        ("", "PersistentVolumeClaim"),
        ("", "Endpoints"),
        ("", "ResourceQuota"),
        ("", "PodTemplate"),
        ("", "ReplicationController"),
        ("apps", "Deployment"),
        ("apps", "ReplicaSet"),
        ("apps", "StatefulSet"),
        ("apps", "DaemonSet"),
        ("batch", "Job"),
        ("batch", "CronJob"),
        ("policy", "PodDisruptionBudget"),
        ("autoscaling", "HorizontalPodAutoscaler"),
        ("scheduling.k8s.io", "PriorityClass"),
        ("coordination.k8s.io", "Lease"),
        ("rbac.authorization.k8s.io", "Role"),
        ("rbac.authorization.k8s.io", "ClusterRoleBinding"),
        ("networking.k8s.io", "NetworkPolicy"),
        ("networking.k8s.io", "IngressClass"),
        ("storage.k8s.io", "StorageClass"),
        ("discovery.k8s.io", "EndpointSlice"),
        ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"),
        ("apiextensions.k8s.io", "CustomResourceDefinition"),
    ];
    let nested = |field: &str, inner: &Value| json!({ field: inner, "metadata": inner, "status": inner });
    for (group, kind) in kinds {
        let gvk = Gvk { group, version: "v1", kind };
        for shape in &shapes {
            let mut objects = vec![shape.clone(), nested("spec", shape), nested("data", shape)];
            for field in [
                "containers",
                "template",
                "strategy",
                "updateStrategy",
                "versions",
                "names",
                "jobTemplate",
                "ports",
                "limits",
                "volumes",
                "tolerations",
                "securityContext",
                "selector",
                "conversion",
                "metrics",
                "behavior",
            ] {
                objects.push(nested("spec", &json!({ field: shape })));
                objects.push(nested("spec", &json!({ field: [shape] })));
                objects.push(nested(
                    "spec",
                    &json!({ field: { "spec": shape, "metadata": shape, "type": shape } }),
                ));
            }
            for object in objects {
                let old = object.clone();
                let mut new = object;
                builtin::prepare(gvk, &mut new, None);
                builtin::generate(gvk, &mut new);
                builtin::validate(gvk, &new, None);
                builtin::prepare(gvk, &mut new, Some(&old));
                builtin::validate(gvk, &new, Some(&old));
            }
        }
    }
}
