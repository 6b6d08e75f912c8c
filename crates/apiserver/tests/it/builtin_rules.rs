//! Validation of built-in kinds, with the messages of kube-apiserver.

use apiserver::builtin::{self, Gvk};
use serde_json::{Value, json};

fn prepared(group: &str, kind: &str, mut object: Value) -> Value {
    builtin::prepare(Gvk { group, version: "v1", kind }, &mut object, None);
    builtin::generate(Gvk { group, version: "v1", kind }, &mut object);
    object
}

fn errors(group: &str, kind: &str, new: &Value, old: Option<&Value>) -> Vec<String> {
    let found = builtin::validate(Gvk { group, version: "v1", kind }, new, old);
    found.iter().map(ToString::to_string).collect()
}

fn refused(group: &str, kind: &str, object: Value) -> Vec<String> {
    errors(group, kind, &prepared(group, kind, object), None)
}

fn pod(spec: &Value) -> Value {
    json!({ "metadata": { "name": "p", "uid": "u" }, "spec": spec })
}

#[test]
fn invalid_pod_specs_are_rejected() {
    for (spec, expected) in [
        (json!({}), vec!["spec.containers: Required value"]),
        (
            json!({ "nodeName": "n", "schedulingGates": [{ "name": "example.com/g" }], "containers": [{ "name": "a", "image": "i" }] }),
            vec!["spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared"],
        ),
        (
            json!({ "containers": [{}] }),
            vec!["spec.containers[0].name: Required value", "spec.containers[0].image: Required value"],
        ),
        (
            json!({ "containers": [{ "name": "a", "image": "i" }, { "name": "a", "image": "i" }] }),
            vec![r#"spec.containers[1].name: Duplicate value: "a""#],
        ),
        (
            json!({ "restartPolicy": "Sometimes", "containers": [{ "name": "a", "image": "i", "imagePullPolicy": "Maybe" }] }),
            vec![
                r#"spec.containers[0].imagePullPolicy: Unsupported value: "Maybe": supported values: "Always", "IfNotPresent", "Never""#,
                r#"spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never""#,
            ],
        ),
        (
            json!({ "containers": [{ "name": "a", "image": "i", "resources": { "requests": { "cpu": "2" }, "limits": { "cpu": "1" } } }] }),
            vec![
                r#"spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1"#,
            ],
        ),
        (
            json!({ "containers": [{ "name": "a", "image": "i", "resources": { "requests": { "nvidia.com/gpu": "1" }, "limits": { "nvidia.com/gpu": "2" } } }] }),
            vec![
                r#"spec.containers[0].resources.requests: Invalid value: "1": must be equal to nvidia.com/gpu limit of 2"#,
            ],
        ),
        (
            json!({ "containers": [{ "name": "a", "image": "i", "resources": { "requests": { "nvidia.com/gpu": "1" } } }] }),
            vec![
                "spec.containers[0].resources.limits: Required value: Limit must be set for non overcommitable resources",
            ],
        ),
        (
            json!({ "containers": [{ "name": "a", "image": "i", "volumeMounts": [{ "name": "v", "mountPath": "/v" }] }] }),
            vec![r#"spec.containers[0].volumeMounts[0].name: Not found: "v""#],
        ),
        (
            json!({ "containers": [{ "name": "a", "image": "i", "ports": [{ "containerPort": 70_000 }] }] }),
            vec![
                "spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
            ],
        ),
        (
            json!({ "containers": [{ "name": "a", "image": "i", "readinessProbe": {} }] }),
            vec!["spec.containers[0].readinessProbe: Required value: must specify a handler type"],
        ),
        (
            json!({ "containers": [{ "name": "a", "image": "i" }], "tolerations": [{ "operator": "Equal", "value": "x" }] }),
            vec![
                r#"spec.tolerations[0].operator: Invalid value: "Equal": operator must be Exists when `key` is empty, which means "match all values and all keys""#,
            ],
        ),
    ] {
        assert_eq!(refused("", "Pod", pod(&spec)), expected, "{spec}");
    }
    let upper = refused("", "Pod", pod(&json!({ "containers": [{ "name": "A_b", "image": "i" }] })));
    assert!(upper[0].starts_with(
        r#"spec.containers[0].name: Invalid value: "A_b": a lowercase RFC 1123 label must consist of"#
    ));
}

#[test]
fn only_images_tolerations_deadline_and_gates_of_a_pod_are_mutable() {
    let old = prepared(
        "",
        "Pod",
        pod(&json!({ "containers": [{ "name": "a", "image": "i" }],
        "schedulingGates": [{ "name": "example.com/wait" }] })),
    );
    let change = |edit: &dyn Fn(&mut Value)| {
        let mut new = old.clone();
        edit(&mut new["spec"]);
        errors("", "Pod", &new, Some(&old))
    };
    assert_eq!(change(&|spec| spec["containers"][0]["image"] = json!("j")), [""; 0]);
    assert_eq!(change(&|spec| spec["activeDeadlineSeconds"] = json!(10)), [""; 0]);
    assert_eq!(change(&|spec| spec["schedulingGates"] = json!([])), [""; 0]);
    assert_eq!(change(&|spec| spec["nodeSelector"] = json!({ "a": "b" })), [""; 0]);
    assert_eq!(
        change(
            &|spec| spec["affinity"] = json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{ "matchExpressions": [{ "key": "a", "operator": "Exists" }] }] } } })
        ),
        [""; 0]
    );
    assert_eq!(
        change(&|spec| spec["tolerations"]
            .as_array_mut()
            .unwrap()
            .push(json!({ "key": "k", "operator": "Exists" }))),
        [""; 0]
    );
    assert!(change(&|spec| spec["restartPolicy"] = json!("Never"))[0].starts_with(
        "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    ));
    assert_eq!(
        change(&|spec| spec["schedulingGates"].as_array_mut().unwrap().push(json!({ "name": "x" }))),
        [
            "spec.schedulingGates[1].name: Forbidden: only deletion is allowed, but found new scheduling gate 'x'"
        ]
    );
    assert_eq!(
        change(&|spec| spec["tolerations"] = json!([])),
        ["spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"]
    );
    assert_eq!(
        change(&|spec| spec["containers"].as_array_mut().unwrap().push(json!({ "name": "b", "image": "i",
            "imagePullPolicy": "Never", "terminationMessagePolicy": "File" }))),
        ["spec.containers: Forbidden: pod updates may not add or remove containers"]
    );
}

fn deployment() -> Value {
    json!({ "metadata": { "name": "d" }, "spec": { "selector": { "matchLabels": { "a": "b" } },
        "template": { "metadata": { "labels": { "a": "b" } }, "spec": { "containers": [{ "name": "c", "image": "i" }] } } } })
}

#[test]
fn a_workload_selector_must_match_its_template_and_is_immutable() {
    let mut other = deployment();
    other["spec"]["template"]["metadata"]["labels"] = json!({ "a": "c" });
    assert_eq!(
        refused("apps", "Deployment", other),
        [
            r#"spec.template.metadata.labels: Invalid value: {"a":"c"}: `selector` does not match template `labels`"#
        ]
    );
    let mut none = deployment();
    none["spec"]["selector"] = Value::Null;
    assert_eq!(
        refused("apps", "Deployment", none),
        [
            "spec.selector: Required value",
            r#"spec.template.metadata.labels: Invalid value: {"a":"b"}: `selector` does not match template `labels`"#,
        ]
    );
    let mut empty = deployment();
    empty["spec"]["selector"] = json!({});
    assert_eq!(
        refused("apps", "Deployment", empty),
        ["spec.selector: Invalid value: {}: empty selector is invalid for deployment"]
    );
    let mut never = deployment();
    never["spec"]["template"]["spec"]["restartPolicy"] = json!("Never");
    assert_eq!(
        refused("apps", "Deployment", never),
        [r#"spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always""#]
    );
    let old = prepared("apps", "Deployment", deployment());
    let mut new = old.clone();
    new["spec"]["selector"]["matchLabels"]["x"] = json!("y");
    new["spec"]["template"]["metadata"]["labels"]["x"] = json!("y");
    assert_eq!(
        errors("apps", "Deployment", &new, Some(&old)),
        [r#"spec.selector: Invalid value: {"matchLabels":{"a":"b","x":"y"}}: field is immutable"#]
    );
    let mut negative = deployment();
    negative["spec"]["replicas"] = json!(-1);
    assert_eq!(
        refused("apps", "Deployment", negative),
        ["spec.replicas: Invalid value: -1: must be greater than or equal to 0"]
    );
}

fn job() -> Value {
    json!({ "metadata": { "name": "j", "uid": "u" }, "spec": { "template": {
        "spec": { "restartPolicy": "Never", "containers": [{ "name": "c", "image": "i" }] } } } })
}

#[test]
fn a_job_template_is_immutable_unless_the_job_is_suspended() {
    let mut always = job();
    always["spec"]["template"]["spec"]["restartPolicy"] = Value::Null;
    assert_eq!(
        refused("batch", "Job", always),
        [r#"spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never""#]
    );
    let running = prepared("batch", "Job", job());
    assert_eq!(errors("batch", "Job", &running, Some(&running)), [""; 0]);
    let select_node = |job: &Value| {
        let mut new = job.clone();
        new["spec"]["template"]["spec"]["nodeSelector"] = json!({ "gpu": "yes" });
        new["spec"]["template"]["spec"]["tolerations"] = json!([{ "operator": "Exists" }]);
        new["spec"]["template"]["metadata"]["annotations"] = json!({ "k": "v" });
        new
    };
    assert!(
        errors("batch", "Job", &select_node(&running), Some(&running))[0].ends_with(": field is immutable")
    );
    let mut suspended = job();
    suspended["spec"]["suspend"] = json!(true);
    let suspended = prepared("batch", "Job", suspended);
    assert_eq!(errors("batch", "Job", &select_node(&suspended), Some(&suspended)), [""; 0]);
    let mut image = suspended.clone();
    image["spec"]["template"]["spec"]["containers"][0]["image"] = json!("other");
    assert_eq!(errors("batch", "Job", &image, Some(&suspended)).len(), 1);
    let mut completions = running.clone();
    completions["spec"]["completions"] = json!(2);
    assert_eq!(
        errors("batch", "Job", &completions, Some(&running)),
        ["spec.completions: Invalid value: 2: field is immutable"]
    );
    let mut parallel = running.clone();
    parallel["spec"]["parallelism"] = json!(2);
    assert_eq!(errors("batch", "Job", &parallel, Some(&running)), [""; 0]);
}

#[test]
fn invalid_objects_of_kinds_without_a_pod_template_are_rejected() {
    assert_eq!(refused("", "Service", json!({ "spec": {} })), ["spec.ports: Required value"]);
    assert_eq!(
        refused(
            "scheduling.k8s.io",
            "PriorityClass",
            json!({ "metadata": { "name": "big" }, "value": 2_000_000_000 })
        ),
        ["value: Forbidden: maximum allowed value of a user defined priority is 1000000000"]
    );
    let class =
        prepared("scheduling.k8s.io", "PriorityClass", json!({ "metadata": { "name": "p" }, "value": 1 }));
    let mut changed = class.clone();
    changed["value"] = json!(2);
    assert_eq!(
        errors("scheduling.k8s.io", "PriorityClass", &changed, Some(&class)),
        ["value: Forbidden: may not be changed in an update."]
    );
    let locked = json!({ "immutable": true, "data": { "a": "1" } });
    assert_eq!(
        errors("", "ConfigMap", &json!({ "immutable": true, "data": { "a": "2" } }), Some(&locked)),
        ["data: Forbidden: field is immutable when `immutable` is set"]
    );
    assert!(
        refused("", "ConfigMap", json!({ "data": { "a b": "1" } }))[0]
            .starts_with(r#"data[a b]: Invalid value: "a b": a valid config key"#)
    );
    assert_eq!(
        refused("", "Node", json!({ "spec": { "taints": [{ "key": "k", "effect": "Never" }] } })),
        [
            r#"metadata.taints[0].effect: Unsupported value: "Never": supported values: "NoSchedule", "PreferNoSchedule", "NoExecute""#
        ]
    );
    assert_eq!(
        refused("rbac.authorization.k8s.io", "Role", json!({ "rules": [{ "resources": ["pods"] }] })),
        [
            "rules[0].verbs: Required value: verbs must contain at least one value",
            "rules[0].apiGroups: Required value: resource rules must supply at least one api group",
        ]
    );
    assert_eq!(
        refused("coordination.k8s.io", "Lease", json!({ "spec": { "leaseDurationSeconds": 0 } })),
        ["spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0"]
    );
}

#[test]
fn invalid_custom_resource_definitions_are_rejected() {
    let definition = |name: &str| {
        json!({ "metadata": { "name": name }, "spec": { "group": "example.com", "scope": "Namespaced",
            "names": { "plural": "things", "kind": "Thing" }, "versions": [{ "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object" } } }] } })
    };
    let refused = |object: Value| refused("apiextensions.k8s.io", "CustomResourceDefinition", object);
    assert_eq!(refused(definition("things.example.com")), [""; 0]);
    assert_eq!(
        refused(definition("thing.example.com")),
        [r#"metadata.name: Invalid value: "thing.example.com": must be spec.names.plural+"."+spec.group"#]
    );
    let mut bare = definition("things.example.com");
    bare["spec"]["versions"][0]["schema"] = Value::Null;
    assert_eq!(refused(bare), ["spec.versions[0].schema.openAPIV3Schema: Required value"]);
    let mut rule = definition("things.example.com");
    rule["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["x-kubernetes-validations"] =
        json!([{ "rule": "self.nothing" }]);
    assert!(
        refused(rule)[0]
            .starts_with("spec.validation.openAPIV3Schema.x-kubernetes-validations[0].rule: Invalid value: ")
    );
    let mut stored = definition("things.example.com");
    stored["spec"]["versions"][0]["storage"] = json!(false);
    let errors_of_none = refused(stored);
    assert!(errors_of_none[0].ends_with("must have exactly one version marked as storage version"));
    assert_eq!(
        errors_of_none[1],
        "status.storedVersions: Invalid value: null: must have at least one stored version"
    );
    let old = prepared("apiextensions.k8s.io", "CustomResourceDefinition", definition("things.example.com"));
    let mut scope = old.clone();
    scope["spec"]["scope"] = json!("Cluster");
    assert_eq!(
        errors("apiextensions.k8s.io", "CustomResourceDefinition", &scope, Some(&old)),
        [r#"spec.scope: Invalid value: "Cluster": field is immutable"#]
    );
}
