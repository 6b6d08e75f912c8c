//! What `muster install` prints, in the cluster of `muster up`; the profile of the chart, and the roles of tenants.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use serde_json::{Value, json};

use crate::common::{Up, apply, muster, printed, request, stderr_of_failure, up};

fn json_of(answer: &str) -> Value {
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

fn get(address: &str, path: &str) -> Value {
    json_of(&request(address, &format!("GET {path}"), "").unwrap())
}

/// The path of an object, by discovery.
fn path_of(address: &str, object: &Value) -> String {
    let version = object["apiVersion"].as_str().unwrap();
    let root = if version.contains('/') { "/apis" } else { "/api" };
    let known = get(address, &format!("{root}/{version}"));
    let resources =
        known["resources"].as_array().unwrap_or_else(|| panic!("{version} is not served: {known}"));
    let is_it =
        |known: &&Value| known["kind"] == object["kind"] && !known["name"].as_str().unwrap().contains('/');
    let found = resources
        .iter()
        .find(is_it)
        .unwrap_or_else(|| panic!("{} of {version} is not served", object["kind"]));
    let namespace = if found["namespaced"] == true {
        format!("/namespaces/{}", object["metadata"]["namespace"].as_str().unwrap())
    } else {
        String::new()
    };
    let [plural, name] = [&found["name"], &object["metadata"]["name"]].map(|name| name.as_str().unwrap());
    format!("{root}/{version}{namespace}/{plural}/{name}")
}

fn applied(address: &str, arguments: &[&str], dir: &Path) -> Vec<Value> {
    let text = printed(&muster(&[&["install"], arguments].concat(), dir).output().unwrap());
    let objects: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    let apply = |object: &Value| {
        let answer = json_of(&apply(address, &path_of(address, object), &object.to_string()).unwrap());
        assert!(answer["metadata"]["uid"].is_string(), "{object:#}\n{answer:#}");
        answer
    };
    objects.iter().map(apply).collect()
}

#[test]
fn all_objects_of_muster_install_are_served_and_accepted() {
    let dir = tempfile::tempdir().unwrap();
    let running = Up::start(&[], dir.path());
    let address = running.address("API server");
    let objects = applied(address, &[], dir.path());
    let level = objects.iter().find(|object| object["kind"] == "PriorityLevelConfiguration").unwrap();
    let queuing = json!({"queues": 16, "handSize": 4, "queueLengthLimit": 200});
    assert_eq!(level["spec"]["limited"]["limitResponse"]["queuing"], queuing);
    for (path, field, default) in [
        ("flowschemas/muster", "/spec/matchingPrecedence", json!(1000)),
        ("prioritylevelconfigurations/leader-election", "/spec/limited/nominalConcurrencyShares", json!(10)),
    ] {
        let found = get(address, &format!("/apis/flowcontrol.apiserver.k8s.io/v1/{path}"));
        assert_eq!(found.pointer(field), Some(&default), "{found:#}");
    }
    let all = [
        "--set",
        "kueue.enabled=true",
        "--set",
        "kueue.provisioning=true",
        "--set",
        "kueue.multikueue=true",
        "--set",
        "metrics.enabled=true",
        "--set",
        "metrics.dashboard.enabled=true",
        "--set",
        "crds.install=chart",
        "--set",
        "appWrappers.provisioningClasses={none,check-capacity.autoscaling.x-k8s.io}",
    ];
    applied(address, &all, dir.path());
    assert_eq!(running.end(), Some(0));
}

/// The versions of all definitions that are served.
fn served(address: &str) -> Vec<String> {
    let definitions = get(address, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions");
    let of = |definition: &Value| -> Vec<String> {
        let versions = definition["spec"]["versions"].as_array().unwrap().iter();
        let served = versions.filter(|version| version["served"] == true);
        served.map(|version| format!("{} {}", definition["metadata"]["name"], version["name"])).collect()
    };
    definitions["items"].as_array().unwrap().iter().flat_map(of).collect()
}

#[test]
fn the_definitions_of_the_chart_take_nothing_away() {
    let dir = tempfile::tempdir().unwrap();
    let running = Up::start(&[], dir.path());
    let address = running.address("API server");
    let before = served(address);
    let wrappers = "/apis/workload.codeflare.dev/v1beta2/namespaces/default/appwrappers";
    let inner = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "inner"}});
    let wrapper = json!({"apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper", "metadata": {"name": "a"},
        "spec": {"suspend": true, "components": [{"template": inner}]}});
    request(address, &format!("POST {wrappers}"), &wrapper.to_string()).unwrap();
    for columns in ["mcad", "queue"] {
        let columns = format!("appWrappers.columns={columns}");
        let arguments = ["--set", "kueue.enabled=true", "--set", "crds.install=chart", "--set", &columns];
        applied(address, &arguments, dir.path());
        assert_eq!(served(address), before);
        assert_eq!(get(address, &format!("{wrappers}/a"))["spec"], wrapper["spec"]);
    }
    assert_eq!(running.end(), Some(0));
}

#[test]
fn flow_schemas_and_priority_levels_without_meaning_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let running = Up::start(&["--api-only"], dir.path());
    let address = running.address("API server");
    for (kind, plural, spec, why) in [
        (
            "FlowSchema",
            "flowschemas",
            json!({"priorityLevelConfiguration": {}}),
            "spec.priorityLevelConfiguration.name: Required value",
        ),
        (
            "FlowSchema",
            "flowschemas",
            json!({"priorityLevelConfiguration": {"name": "a"}, "matchingPrecedence": 10_001}),
            "spec.matchingPrecedence: Invalid value: 10001",
        ),
        (
            "PriorityLevelConfiguration",
            "prioritylevelconfigurations",
            json!({"type": "Limited"}),
            "spec.limited: Required value",
        ),
        (
            "PriorityLevelConfiguration",
            "prioritylevelconfigurations",
            json!({"type": "Other"}),
            "spec.type: Unsupported value: \"Other\"",
        ),
    ] {
        let group = "flowcontrol.apiserver.k8s.io/v1";
        let object = json!({"apiVersion": group, "kind": kind, "metadata": {"name": "mine"}, "spec": spec});
        let answer = request(address, &format!("POST /apis/{group}/{plural}"), &object.to_string()).unwrap();
        let answer = json_of(&answer);
        assert!(answer["message"].as_str().unwrap().contains(why), "{answer:#}");
    }
    assert_eq!(running.end(), Some(0));
}

#[test]
fn the_profile_of_the_chart_leaves_out_what_the_chart_leaves_out() {
    let dir = tempfile::tempdir().unwrap();
    let running = Up::start(&["--profile", "chart"], dir.path());
    let address = running.address("API server");
    let values = printed(&muster(&["install", "--show-values"], dir.path()).output().unwrap());
    let values: Value = serde_saphyr::from_str(&values).unwrap();
    let groups: Vec<Value> = get(address, "/apis")["groups"]
        .as_array()
        .unwrap()
        .iter()
        .map(|group| group["name"].clone())
        .collect();
    for group in ["mcad.ibm.com", "workload.codeflare.dev"] {
        let is_managed = values["appWrappers"]["groups"].as_array().unwrap().contains(&group.into());
        assert!(groups.contains(&group.into()) || !is_managed, "{group}: {groups:?}");
    }
    assert!(!groups.contains(&"mcad.ibm.com".into()), "{groups:?}");
    for group in ["kueue.x-k8s.io", "visibility.kueue.x-k8s.io"] {
        assert_eq!(groups.contains(&group.into()), values["kueue"]["enabled"] == true, "{group}");
    }
    assert_eq!(running.end(), Some(0));
    let error = stderr_of_failure(&up(&["--profile", "chart", "--quota"], dir.path()).output().unwrap());
    assert!(error.contains("--profile") && error.contains("--quota"), "{error}");
}

#[test]
fn tenants_have_the_roles_of_the_chart() {
    let dir = tempfile::tempdir().unwrap();
    let running = Up::start(&[], dir.path());
    let address = running.address("API server");
    let bind = |user: &str, role: &str| {
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": user},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]});
        let path = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
        request(address, &format!("POST {path}"), &binding.to_string()).unwrap();
    };
    bind("tenant", "kueue-batch-user-role");
    bind("reader", "view");
    bind("admin", "kueue-batch-admin-role");
    for (user, verb, group, resource, is_allowed) in [
        ("tenant", "create", "batch", "jobs", true),
        ("tenant", "create", "trainer.kubeflow.org", "trainjobs", true),
        ("tenant", "get", "kueue.x-k8s.io", "workloads", true),
        ("tenant", "update", "kueue.x-k8s.io", "localqueues", false),
        ("reader", "get", "visibility.muster.dev", "workloadreports", true),
        ("reader", "create", "batch", "jobs", false),
        ("admin", "update", "kueue.x-k8s.io", "localqueues", true),
        ("nobody", "get", "visibility.muster.dev", "workloadreports", false),
    ] {
        let attributes = json!({"namespace": "default", "verb": verb, "group": group, "resource": resource});
        let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {"user": user, "resourceAttributes": attributes}});
        let answer =
            request(address, "POST /apis/authorization.k8s.io/v1/subjectaccessreviews", &review.to_string());
        let answer = json_of(&answer.unwrap());
        assert_eq!(answer["status"]["allowed"], is_allowed, "{user} {verb} {resource}: {answer:#}");
    }
    assert_eq!(running.end(), Some(0));
}
