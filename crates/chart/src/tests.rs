use std::collections::BTreeSet;
use std::path::Path;

use super::*;

fn release() -> Release {
    Release { name: "muster".into(), namespace: "muster-system".into() }
}

fn chart(change: Value) -> Result<Chart, ChartError> {
    Chart::new(&release(), [change])
}

/// Namespaces and names of the objects of a kind.
fn names(objects: &[Value], kind: &str) -> Vec<String> {
    let of_kind = objects.iter().filter(|object| object["kind"] == kind);
    of_kind.map(|object| object["metadata"]["name"].as_str().unwrap_or_default().to_owned()).collect()
}

/// All rules of all roles.
fn rules(objects: &[Value]) -> impl Iterator<Item = &Value> {
    objects.iter().flat_map(|object| object["rules"].as_array().into_iter().flatten())
}

fn texts(value: &Value) -> BTreeSet<&str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

#[test]
fn the_program_has_all_files_of_the_chart() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts/muster");
    let mut found = BTreeSet::new();
    for folder in ["", "templates", "files"] {
        for entry in std::fs::read_dir(root.join(folder)).into_iter().flatten() {
            let entry = entry.unwrap();
            let name = Path::new(folder).join(entry.file_name()).display().to_string();
            if entry.file_type().unwrap().is_file() && !name.starts_with('.') {
                found.insert(name);
            }
        }
    }
    let known: BTreeSet<String> = FILES.iter().map(|(name, _)| (*name).to_owned()).collect();
    let missing: Vec<_> = found.difference(&known).collect();
    assert!(missing.is_empty(), "add {missing:?} to crates/chart/src/files.rs");
}

#[test]
fn defaults_are_two_replicas_that_dispatch_app_wrappers() {
    let objects = chart(json!({})).unwrap().objects().unwrap();
    let deployment = objects.iter().find(|object| object["kind"] == "Deployment").unwrap();
    assert_eq!(deployment["spec"]["replicas"], 2);
    let arguments = texts(&deployment["spec"]["template"]["spec"]["containers"][0]["args"]);
    for argument in ["--parts=appwrappers", "--authorization=webhook", "--endpoint=0.0.0.0:8443"] {
        assert!(arguments.contains(argument), "{argument}: {arguments:?}");
    }
    assert_eq!(names(&objects, "Service"), ["muster-webhook"]);
    assert!(!names(&objects, "ClusterRole").contains(&"muster-kueue".into()));
    assert!(names(&objects, "Job").is_empty(), "hooks are no part of an installation");
}

#[test]
fn in_kueues_place_pods_have_the_labels_that_any_installation_of_kueue_selects() {
    let values = json!({"kueue": {"enabled": true, "inPlace": true},
        "podLabels": {"app.kubernetes.io/instance": "kueue", "team": "batch"}});
    let objects = chart(values).unwrap().objects().unwrap();
    let deployment = objects.iter().find(|object| object["kind"] == "Deployment").unwrap();
    let labels = &deployment["spec"]["template"]["metadata"]["labels"];
    let expected = json!({"app.kubernetes.io/instance": "kueue", "app.kubernetes.io/name": "kueue",
        "control-plane": "controller-manager", "muster.dev/controller": "muster", "team": "batch"});
    assert_eq!(*labels, expected);
    let selector = deployment["spec"]["selector"]["matchLabels"].as_object().unwrap();
    assert!(selector.iter().all(|(key, value)| labels[key] == *value), "{selector:?}");
}

#[test]
fn nobody_gets_all_verbs_kinds_or_groups() {
    let all = json!({"kueue": {"enabled": true, "provisioning": true, "multikueue": true}, "appWrappers": {"quota": true}});
    for change in [json!({}), all] {
        let objects = chart(change).unwrap().all_objects().unwrap();
        for rule in rules(&objects) {
            // Flow schemas have no verbs of roles.
            for key in ["apiGroups", "resources", "verbs"] {
                assert!(!texts(&rule[key]).contains("*"), "{rule}");
            }
        }
        for binding in objects.iter().filter(|object| !object["roleRef"].is_null()) {
            assert_ne!(binding["roleRef"]["name"], "cluster-admin");
        }
    }
}

#[test]
fn permissions_are_those_of_the_kinds_that_the_values_name() {
    let values = json!({
        "appWrappers": {"wraps": {"example.com": ["widgets"], "kubeflow.org": null, "ray.io": null}},
        "kueue": {"enabled": true, "jobs": ["batch/job"]},
    });
    let objects = chart(values).unwrap().objects().unwrap();
    let role = |name: &str| objects.iter().find(|object| object["metadata"]["name"] == name).unwrap();
    let wrapped = role("muster-wrapped-kinds");
    let groups: BTreeSet<_> =
        rules(std::slice::from_ref(wrapped)).flat_map(|rule| texts(&rule["apiGroups"])).collect();
    assert!(groups.contains("example.com") && groups.contains("batch"), "{groups:?}");
    assert!(!groups.contains("kubeflow.org") && !groups.contains("ray.io"), "{groups:?}");
    let kueue = role("muster-kueue");
    let groups: BTreeSet<_> =
        rules(std::slice::from_ref(kueue)).flat_map(|rule| texts(&rule["apiGroups"])).collect();
    assert!(!groups.contains("ray.io") && !groups.contains("kubeflow.org"), "{groups:?}");
    let pods =
        rules(std::slice::from_ref(kueue)).any(|rule| texts(&rule["resources"]).contains("pods/status"));
    assert!(!pods, "pods are managed only if the values say so");
}

/// The default values and those of `charts/muster/ci`.
fn profiles() -> Vec<(String, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts/muster/ci");
    let read = |file: std::path::PathBuf| {
        let values = serde_saphyr::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
        (file.display().to_string(), values)
    };
    let mut found: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| read(entry.unwrap().path())).collect();
    assert!(found.len() > 3, "the profiles of the chart are elsewhere");
    found.push(("values.yaml".into(), json!({})));
    found
}

#[test]
fn one_namespace_for_all_objects_moves_none_and_makes_no_two_equal() {
    // What the namespace transformer of kustomize does, which sets the namespace of every object that has one.
    for (profile, values) in profiles() {
        let mut seen = BTreeSet::new();
        for object in chart(values).unwrap().objects().unwrap() {
            let (kind, metadata) = (&object["kind"], &object["metadata"]);
            let namespace = metadata["namespace"].as_str();
            assert!(namespace.is_none_or(|name| name == "muster-system"), "{profile}: {object}");
            assert!(
                seen.insert(format!("{kind} {}", metadata["name"])),
                "{profile}: two of {kind} {metadata}"
            );
        }
    }
}

#[test]
fn values_that_contradict_each_other_are_refused_with_the_remedy() {
    for (change, expected) in [
        (
            json!({"appWrappers": {"enabled": false}}),
            "nothing is managed: set appWrappers.enabled or kueue.enabled",
        ),
        (
            json!({"appWrappers": {"preemption": true, "dynamicPriority": true}}),
            "appWrappers.dynamicPriority excludes appWrappers.preemption: set one of them",
        ),
        (json!({"kueue": {"inPlace": true}}), "kueue.inPlace needs kueue.enabled"),
        (
            json!({"kueue": {"enabled": true, "namespace": "kueue-system"}}),
            "kueue.namespace is kueue-system, but the Service of the webhooks there reaches pods of its namespace only: install the chart into that namespace",
        ),
        (
            json!({"kueue": {"enabled": true, "configuration": {"leaderElection": {}}}}),
            "kueue.configuration.leaderElection is the chart's own: remove it",
        ),
        (
            json!({"appWrappers": {"authorization": "none", "wraps": {"": ["secrets"]}}}),
            "appWrappers.wraps has secrets of group \"\": who may create AppWrappers could create them. Set appWrappers.authorization to webhook, or remove them",
        ),
        (
            json!({"kueue": {"enabled": true, "jobs": ["workload.codeflare.dev/appwrapper"]}}),
            "kueue.jobs has workload.codeflare.dev/appwrapper, whose AppWrappers have an operator of their own: remove it, or remove workload.codeflare.dev from appWrappers.groups",
        ),
        (
            json!({"metrics": {"rules": {"enabled": true}}}),
            "metrics.serviceMonitor, metrics.rules and metrics.dashboard need metrics.enabled",
        ),
    ] {
        let refused = chart(change.clone()).unwrap().objects().unwrap_err().to_string();
        assert_eq!(refused, expected, "{change}");
    }
}

#[test]
fn values_that_do_not_fit_the_schema_are_named_with_their_path() {
    for (change, expected) in [
        (json!({"replica": 3}), "replica: there is no such value"),
        (json!({"replicas": 0}), "replicas: 0 is less than 1"),
        (json!({"replicas": "2"}), "replicas: got string, want integer"),
        (
            json!({"appWrappers": {"wraps": {"*": ["*"]}}}),
            "appWrappers.wraps.*[0]: \"*\" does not match ^[a-z][a-z0-9]*$",
        ),
        (
            json!({"appWrappers": {"wraps": {"batch": ["jobs/status"]}}}),
            "appWrappers.wraps.batch[0]: \"jobs/status\" does not match ^[a-z][a-z0-9]*$",
        ),
        (json!({"appWrappers": {"groups": []}}), "appWrappers.groups: 0 items are less than 1"),
        (
            json!({"appWrappers": {"authorization": "rbac"}}),
            "appWrappers.authorization: \"rbac\" is none of \"webhook\", \"none\"",
        ),
    ] {
        let Err(ChartError::Values(faults)) = chart(change.clone()) else { panic!("{change} is accepted") };
        assert!(faults.iter().any(|fault| fault == expected), "{change}: {faults:?}");
    }
    let Err(ChartError::Values(faults)) = chart(json!({"kueue": {"jobs": ["jobs"]}})) else { panic!() };
    assert!(faults[0].starts_with("kueue.jobs[0]: \"jobs\" is none of \"batch/job\","), "{faults:?}");
}

/// The roles that an aggregated role selects.
fn selected<'a>(objects: &'a [Value], name: &str) -> Vec<&'a Value> {
    let role = objects.iter().find(|object| object["metadata"]["name"] == name).unwrap();
    let labels = role["aggregationRule"]["clusterRoleSelectors"][0]["matchLabels"].as_object().unwrap();
    let has = |object: &&Value| labels.iter().all(|(key, value)| object["metadata"]["labels"][key] == *value);
    objects.iter().filter(|object| object["kind"] == "ClusterRole").filter(has).collect()
}

#[test]
fn the_roles_of_kueue_for_admins_and_tenants_are_installed_unless_kueue_has_installed_them() {
    let values = |in_place| {
        json!({"appWrappers": {"enabled": false},
            "kueue": {"enabled": true, "inPlace": in_place, "jobs": ["batch/job", "pod", "deployment"]}})
    };
    let objects = chart(values(false)).unwrap().objects().unwrap();
    let may = |role: &str, group: &str, resource: &str, verb: &str| {
        selected(&objects, role).into_iter().flat_map(|role| rules(std::slice::from_ref(role))).any(|rule| {
            let has = |key: &str, text: &str| texts(&rule[key]).contains(text);
            has("apiGroups", group) && has("resources", resource) && has("verbs", verb)
        })
    };
    let (admin, user, kueue) = ("kueue-batch-admin-role", "kueue-batch-user-role", "kueue.x-k8s.io");
    let visibility = "visibility.kueue.x-k8s.io";
    for (role, group, resource, verb, expected) in [
        (admin, kueue, "clusterqueues", "create", true),
        (admin, visibility, "clusterqueues/pendingworkloads", "get", true),
        (user, visibility, "localqueues/pendingworkloads", "get", true),
        (user, visibility, "clusterqueues/pendingworkloads", "get", false),
        (user, kueue, "localqueues", "list", true),
        (user, kueue, "localqueues", "create", false),
        (user, kueue, "clusterqueues", "get", false),
        (user, kueue, "workloads", "get", true),
        (user, kueue, "workloads", "patch", false),
        (user, "batch", "jobs", "create", true),
        (user, "", "pods", "create", true),
        (user, "apps", "deployments", "create", true),
        (user, "ray.io", "rayjobs", "create", false),
    ] {
        assert_eq!(may(role, group, resource, verb), expected, "{role}: {verb} {resource}.{group}");
    }
    let in_place = chart(values(true)).unwrap().objects().unwrap();
    assert!(!names(&in_place, "ClusterRole").iter().any(|name| name.contains("batch")));
    assert!(names(&in_place, "ClusterRole").contains(&"muster-endpoint".into()));
}
