//! Protobuf bodies of imperative commands of kubectl 1.32, recorded in `fixtures/proto`.

use apiserver::proto::{ProtoError, decode};
use serde_json::{Value, json};

fn decoded(body: &[u8]) -> Value {
    decode(body).unwrap_or_else(|error| panic!("{error:?}"))
}

#[test]
fn a_deployment_keeps_zero_replicas_and_omits_empty_fields() {
    assert_eq!(
        decoded(include_bytes!("fixtures/proto/deployments.pb")),
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": { "name": "web", "labels": { "app": "web" } },
            "spec": {
                "replicas": 0,
                "selector": { "matchLabels": { "app": "web" } },
                "strategy": {},
                "template": {
                    "metadata": { "labels": { "app": "web" } },
                    "spec": { "containers": [
                        { "name": "web", "image": "registry.example/web:1", "ports": [{ "containerPort": 8080 }], "resources": {} },
                    ] },
                },
            },
            "status": {},
        })
    );
}

#[test]
fn jobs_and_cron_jobs_decode_with_their_commands() {
    let job = decoded(include_bytes!("fixtures/proto/jobs.pb"));
    assert_eq!(job["metadata"], json!({ "name": "sum" }));
    let pod = &job["spec"]["template"]["spec"];
    assert_eq!(pod["restartPolicy"], "Never");
    assert_eq!(pod["containers"][0]["command"], json!(["sh", "-c", "expr 1 + 1"]));
    let cron = decoded(include_bytes!("fixtures/proto/cronjobs.pb"));
    assert_eq!(cron["spec"]["schedule"], "*/5 * * * *");
    assert_eq!(
        cron["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]["command"],
        json!(["date"])
    );
}

#[test]
fn simple_kinds_decode_to_their_json_form() {
    for (body, expected) in [
        (
            &include_bytes!("fixtures/proto/namespaces.pb")[..],
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "team-a" }, "spec": {}, "status": {} }),
        ),
        (
            include_bytes!("fixtures/proto/configmaps.pb"),
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": { "a": "1", "b": "two" },
                    "metadata": { "name": "settings" } }),
        ),
        (
            include_bytes!("fixtures/proto/secrets.pb"),
            json!({ "apiVersion": "v1", "kind": "Secret", "data": { "token": "czNjcmV0" },
                    "metadata": { "name": "keys" } }),
        ),
        (
            include_bytes!("fixtures/proto/resourcequotas.pb"),
            json!({ "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "limits" },
                    "spec": { "hard": { "cpu": "1500m", "memory": "1Gi", "pods": "3" } }, "status": {} }),
        ),
        (
            include_bytes!("fixtures/proto/priorityclasses.pb"),
            json!({ "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": { "name": "high" },
                    "value": 1000, "description": "first", "preemptionPolicy": "Never" }),
        ),
        (
            include_bytes!("fixtures/proto/serviceaccounts.pb"),
            json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "robot" } }),
        ),
        (
            include_bytes!("fixtures/proto/roles.pb"),
            json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
                    "metadata": { "name": "reader" },
                    "rules": [{ "apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"] }] }),
        ),
        (
            include_bytes!("fixtures/proto/poddisruptionbudgets.pb"),
            json!({ "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
                    "metadata": { "name": "guard" },
                    "spec": { "minAvailable": "50%", "selector": { "matchLabels": { "app": "web" } } },
                    "status": { "currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0 } }),
        ),
        (
            include_bytes!("fixtures/proto/selfsubjectaccessreviews.pb"),
            json!({ "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "metadata": {},
                    "spec": { "resourceAttributes": { "namespace": "default", "resource": "pods", "verb": "create" } },
                    "status": { "allowed": false } }),
        ),
        (
            include_bytes!("fixtures/proto/selfsubjectreviews.pb"),
            json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview", "metadata": {},
                    "status": { "userInfo": {} } }),
        ),
        (
            include_bytes!("fixtures/proto/horizontalpodautoscalers.pb"),
            json!({ "apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": { "name": "d" },
                    "spec": { "maxReplicas": 3, "minReplicas": 1, "targetCPUUtilizationPercentage": 50,
                              "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "d" } },
                    "status": { "currentReplicas": 0, "desiredReplicas": 0 } }),
        ),
    ] {
        assert_eq!(decoded(body), expected);
    }
}

#[test]
fn bindings_services_tokens_and_ingresses_decode() {
    let binding = decoded(include_bytes!("fixtures/proto/rolebindings.pb"));
    assert_eq!(
        binding["roleRef"],
        json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader" })
    );
    assert_eq!(
        binding["subjects"][1],
        json!({ "kind": "ServiceAccount", "name": "robot", "namespace": "default" })
    );
    let service = decoded(include_bytes!("fixtures/proto/services.pb"));
    assert_eq!(
        service["spec"]["ports"],
        json!([{ "name": "80-8080", "port": 80, "protocol": "TCP", "targetPort": 8080 }])
    );
    let token = decoded(include_bytes!("fixtures/proto/tokenrequests.pb"));
    assert_eq!(token["spec"]["expirationSeconds"], 3600);
    let ingress = decoded(include_bytes!("fixtures/proto/ingresses.pb"));
    assert_eq!(
        ingress["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]["port"],
        json!({ "number": 80 })
    );
}

#[test]
fn embedded_structs_are_inlined_as_in_json() {
    // The Go types of volumes and probes embed their sources.
    let pod = encode_pod();
    let decoded = decoded(&pod);
    assert_eq!(decoded["spec"]["volumes"][0], json!({ "name": "v", "emptyDir": {} }));
    assert_eq!(
        decoded["spec"]["containers"][0]["livenessProbe"],
        json!({ "httpGet": { "path": "/", "port": "http" } })
    );
}

/// A pod with a volume and a probe, encoded by hand: `tag length value`.
fn encode_pod() -> Vec<u8> {
    fn field(number: u8, value: &[u8]) -> Vec<u8> {
        let mut bytes = vec![number << 3 | 2, u8::try_from(value.len()).expect("short")];
        bytes.extend_from_slice(value);
        bytes
    }
    let port = [vec![8, 1], field(3, b"http")].concat();
    let get = field(2, &[field(1, b"/"), field(2, &port)].concat());
    let probe = field(1, &get);
    // Tag 80 (livenessProbe is field 10).
    let container = [field(1, b"c"), field(10, &probe)].concat();
    let source = field(2, &[]);
    let volume = [field(1, b"v"), field(2, &source)].concat();
    let spec = [field(1, &volume), field(2, &container)].concat();
    let pod = field(2, &spec);
    let meta = [field(1, b"v1"), field(2, b"Pod")].concat();
    [b"k8s\0".to_vec(), field(1, &meta), field(2, &pod)].concat()
}

#[test]
fn an_invalid_message_is_rejected() {
    assert!(matches!(decode(b"{}"), Err(ProtoError::Magic)));
    assert!(matches!(decode(b"k8s\0\xff\xff"), Err(ProtoError::Malformed(_))));
    assert!(matches!(decode(b"k8s\0"), Err(ProtoError::UnknownKind { .. })));
    let body = include_bytes!("fixtures/proto/jobs.pb");
    for end in 0..body.len() {
        // A truncated message may decode or fail, but must not panic.
        drop(decode(&body[..end]));
    }
    for at in 4..body.len() {
        let mut changed = body.to_vec();
        changed[at] ^= 0x55;
        drop(decode(&changed));
    }
}
