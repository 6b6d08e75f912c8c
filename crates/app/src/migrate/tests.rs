//! What is found in clusters that are written down here.
#![allow(clippy::needless_pass_by_value, reason = "objects are written where they are used")]

mod kueue;
mod wrappers;

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::Checked;
use super::cluster::{Cluster, Unread};
use super::finding::{Finding, Outcome};

const CONFIGURATION: &str = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n";

fn object(version: &str, kind: &str, name: &str, rest: Value) -> Value {
    let mut object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}});
    if let (Some(fields), Value::Object(rest)) = (object.as_object_mut(), rest) {
        for (field, value) in rest {
            match (field.as_str(), fields.get_mut("metadata").and_then(Value::as_object_mut), value) {
                ("metadata", Some(meta), Value::Object(more)) => meta.extend(more),
                (_, _, value) => _ = fields.insert(field, value),
            }
        }
    }
    object
}

fn kueue_object(kind: &str, name: &str, rest: Value) -> Value {
    object("kueue.x-k8s.io/v1beta2", kind, name, rest)
}

fn definition(name: &str, versions: &[&str]) -> Value {
    let served: Vec<Value> =
        versions.iter().map(|name| json!({"name": name, "served": true, "storage": false})).collect();
    let rest = json!({"spec": {"versions": served}, "status": {"storedVersions": [versions[0]]}});
    object("apiextensions.k8s.io/v1", "CustomResourceDefinition", name, rest)
}

fn deployment(namespace: &str, name: &str, image: &str, container: Value, volumes: Value) -> Value {
    let mut container = container;
    container["image"] = image.into();
    object(
        "apps/v1",
        "Deployment",
        name,
        json!({"metadata": {"namespace": namespace}, "status": {"readyReplicas": 1},
            "spec": {"replicas": 1, "template": {"spec": {"containers": [container], "volumes": volumes}}}}),
    )
}

/// A cluster with Kueue and this configuration file.
fn kueue(configuration: &str) -> Cluster {
    let mut cluster = Cluster::default();
    let volumes = json!([{"name": "manager-config", "configMap": {"name": "kueue-manager-config"}}]);
    let image = "registry.k8s.io/kueue/kueue:v0.19.1";
    let manager = deployment("kueue-system", "kueue-controller-manager", image, json!({}), volumes);
    cluster.add("deployments.apps", vec![manager]);
    let of_kueue =
        api::kueue::kinds::KINDS.iter().map(|kind| definition(&kind.resource(), &["v1beta2", "v1beta1"]));
    cluster.add("customresourcedefinitions.apiextensions.k8s.io", of_kueue.collect());
    let data = json!({"metadata": {"namespace": "kueue-system"}, "data": {"controller_manager_config.yaml": configuration}});
    cluster.add("configmaps", vec![object("v1", "ConfigMap", "kueue-manager-config", data)]);
    let selector = json!({"app.kubernetes.io/name": "kueue", "app.kubernetes.io/instance": "kueue",
        "control-plane": "controller-manager"});
    let service = json!({"metadata": {"namespace": "kueue-system"}, "spec": {"selector": selector}});
    cluster.add("services", vec![object("v1", "Service", "kueue-webhook-service", service)]);
    cluster
}

/// A cluster with MCAD, whose container has these fields.
fn mcad(container: Value) -> Cluster {
    let mut cluster = Cluster::default();
    let image = "quay.io/project-codeflare/mcad-controller:v1.40.0";
    cluster.add(
        "deployments.apps",
        vec![deployment("kube-system", "mcad-controller", image, container, Value::Null)],
    );
    cluster.add(
        "customresourcedefinitions.apiextensions.k8s.io",
        vec![definition("appwrappers.mcad.ibm.com", &["v1beta1"])],
    );
    cluster
}

fn wrapper(name: &str, status: Value, items: Value) -> Value {
    object(
        "mcad.ibm.com/v1beta1",
        "AppWrapper",
        name,
        json!({"metadata": {"namespace": "team"}, "spec": {"resources": {"GenericItems": items}}, "status": status}),
    )
}

/// An item with a Job of so many CPUs.
fn job(cpu: &str) -> Value {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}});
    json!({"generictemplate": {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}}})
}

fn check(cluster: Cluster) -> Checked {
    Checked::of(cluster)
}

/// The findings about a name.
fn about<'a>(checked: &'a Checked, name: &str) -> Vec<&'a Finding> {
    checked.findings.iter().filter(|finding| finding.subject.name == name).collect()
}

#[track_caller]
fn assert_told(checked: &Checked, name: &str, outcome: Outcome, text: &str) {
    let found = about(checked, name);
    let is_told = found.iter().any(|finding| {
        finding.outcome == outcome && format!("{} -> {}", finding.what, finding.remedy).contains(text)
    });
    assert!(is_told, "{name}: {outcome:?} {text}: {found:?}");
}

/// The values of the command, as Helm reads them.
fn values(command: &str) -> Vec<Value> {
    let command = command.replace("\\\n", " ");
    let mut found = Vec::new();
    for (flag, is_json) in [("--set-json ", true), ("--set ", false)] {
        for rest in command.split(flag).skip(1) {
            let word = rest.split(" --set").next().unwrap().trim();
            let text = word.replace('\'', "");
            found.push(match text.split_once('=').filter(|_| is_json) {
                Some((path, value)) => {
                    let names = path.split('.').rev();
                    names.fold(serde_json::from_str(value).unwrap(), |value, name| json!({name: value}))
                }
                None => chart::assignment(&text).unwrap(),
            });
        }
    }
    found
}

/// The command, whose values the chart takes.
#[track_caller]
fn command(checked: &Checked) -> String {
    let command = lines(checked);
    let namespace = if command.contains("inPlace") { "kueue-system" } else { "muster-system" };
    let release = chart::Release { name: "muster".into(), namespace: namespace.into() };
    let chart = chart::Chart::new(&release, values(&command)).and_then(|chart| chart.objects());
    assert!(chart.is_ok(), "{command}: {chart:?}");
    command
}

fn lines(checked: &Checked) -> String {
    checked.commands.as_ref().map(|commands| commands.lines.join("\n")).unwrap_or_default()
}

#[test]
fn a_cluster_without_any_of_the_systems_is_told_so() {
    let checked = check(Cluster::default());
    assert!(
        checked.text().starts_with("Neither Kueue, MCAD nor the controller of AppWrappers 1.2 was found")
    );
    assert_eq!((checked.exit_code(), checked.commands), (0, None));
}

#[test]
fn a_thousand_objects_without_news_are_counted_and_json_has_all() {
    let mut cluster = kueue(&format!("{CONFIGURATION}waitForPodsReady: {{timeout: 5m}}\n"));
    let of = |number: u32| {
        kueue_object("Workload", &format!("w{number}"), json!({"metadata": {"namespace": "team"}}))
    };
    cluster.add("workloads.kueue.x-k8s.io", (0..1_000).map(of).collect());
    let checked = check(cluster);
    let text = checked.text();
    assert!(text.contains("Workload (1,000): waits: it keeps its place by priority and time"), "{text}");
    assert!(!text.contains("w17"), "{text}");
    let findings = checked.value()["findings"].as_array().unwrap().clone();
    assert_eq!(findings.iter().filter(|finding| finding["kind"] == "Workload").count(), 1_000);
}

#[test]
fn other_versions_and_leftovers_are_named() {
    let mut cluster = mcad(json!({}));
    let image = "registry.k8s.io/kueue/kueue:v0.9.1";
    cluster.add(
        "deployments.apps",
        vec![deployment("kueue-system", "kueue-controller-manager", image, json!({}), Value::Null)],
    );
    cluster.add(
        "customresourcedefinitions.apiextensions.k8s.io",
        vec![definition("workloads.kueue.x-k8s.io", &["v1beta1"])],
    );
    let service =
        json!({"spec": {"group": "custom.metrics.k8s.io", "service": {"name": "custom-metrics-apiserver"}}});
    cluster.add(
        "apiservices.apiregistration.k8s.io",
        vec![object("apiregistration.k8s.io/v1", "APIService", "v1beta1.custom.metrics.k8s.io", service)],
    );
    let webhook =
        json!({"webhooks": [{"clientConfig": {"service": {"name": "appwrapper-webhook-service"}}}]});
    cluster.add(
        "validatingwebhookconfigurations.admissionregistration.k8s.io",
        vec![object(
            "admissionregistration.k8s.io/v1",
            "ValidatingWebhookConfiguration",
            "appwrapper-validating",
            webhook,
        )],
    );
    let labels = json!({"metadata": {"namespace": "muster-system", "labels": {"app.kubernetes.io/name": "muster"}}, "spec": {"replicas": 2}});
    cluster.add("deployments.apps", vec![object("apps/v1", "Deployment", "muster", labels)]);
    let checked = check(cluster);
    assert_told(
        &checked,
        "kueue-controller-manager",
        Outcome::Differs,
        "Kueue 0.9.1: this check knows Kueue 0.19",
    );
    assert_told(&checked, "workloads.kueue.x-k8s.io", Outcome::ToDo, "update Kueue to 0.19 first");
    assert_told(&checked, "v1beta1.custom.metrics.k8s.io", Outcome::ToDo, "kubectl delete apiservice");
    assert_told(&checked, "appwrapper-validating", Outcome::ToDo, "nobody answers it");
    assert_told(&checked, "mcad-controller", Outcome::ToDo, "runs beside Muster");
    let command = command(&checked);
    let both = [
        "scale deployment/kueue-controller-manager",
        "scale deployment/mcad-controller",
        "--namespace kueue-system",
    ];
    assert!(
        both.iter().all(|text| command.contains(text)) && !command.contains("appWrappers.enabled=false"),
        "{command}"
    );
}

#[test]
fn what_could_not_be_read_is_named_and_the_rest_is_checked() {
    let mut cluster = kueue(&format!("{CONFIGURATION}waitForPodsReady: {{timeout: 5m}}\n"));
    let why = "clusterqueues.kueue.x-k8s.io is forbidden: User \"u\" cannot list resource \"clusterqueues\""
        .to_owned();
    cluster.unread.push(Unread { resource: "clusterqueues.kueue.x-k8s.io".into(), why, lacks: Some("list") });
    cluster.add("workloads.kueue.x-k8s.io", vec![kueue_object("Workload", "w", json!({}))]);
    let checked = check(cluster);
    let text = checked.text();
    let told = "no right to list clusterqueues.kueue.x-k8s.io\n    -> a ClusterRole with the verb list";
    assert!(text.contains(told), "{text}");
    assert_told(&checked, "w", Outcome::Kept, "keeps its place");
    assert_eq!(checked.exit_code(), 3);
}

#[test]
fn odd_objects_lose_nothing() {
    let odd = [
        json!({}),
        json!({"spec": null}),
        json!({"spec": 7, "status": "x"}),
        json!({"spec": {"queueName": 3, "components": "x", "resources": []}, "status": {"conditions": {}}}),
        json!({"spec": {"resourceGroups": "x", "admissionChecksStrategy": 1, "replicas": -1}}),
        json!({"spec": {"replicas": 1e300, "priority": 18_446_744_073_709_551_615_u64}}),
        json!({"spec": {"resources": {"GenericItems": {"a": 1}}}, "status": {"canrun": "x", "state": 3}}),
        json!({"apiVersion": "kueue.x-k8s.io/v9", "spec": {"podSets": [{"count": "many"}]}}),
    ];
    let mut cluster = kueue("apiVersion: 7\nkind: Configuration\nfeatureGates: [1]\n");
    let mut names = BTreeSet::new();
    let kinds = api::kueue::kinds::KINDS.iter().map(|kind| (kind.resource(), kind.kind));
    let wrappers = api::appwrapper::Group::ALL.map(|group| (group.resource(), "AppWrapper"));
    let jobs = [("queued pods".to_owned(), "Pod"), ("queued deployments.apps".to_owned(), "Deployment")];
    for (resource, kind) in kinds.chain(wrappers).chain(jobs) {
        for (at, rest) in odd.iter().enumerate() {
            let name = format!("{}-{at}", resource.replace(' ', "-"));
            cluster.add(&resource, vec![object("kueue.x-k8s.io/v1beta2", kind, &name, rest.clone())]);
            names.insert(name);
        }
    }
    cluster.add(
        "deployments.apps",
        vec![object("apps/v1", "Deployment", "kueue-controller-manager", json!({"spec": 1}))],
    );
    let checked = check(cluster);
    let found: BTreeSet<String> =
        checked.findings.iter().map(|finding| finding.subject.name.clone()).collect();
    let lost: Vec<_> = names.difference(&found).collect();
    assert!(lost.is_empty(), "{lost:?}");
    assert_ne!(checked.exit_code(), 0);
    assert!(checked.text().contains("To do"));
}

#[test]
fn without_the_right_to_look_nothing_is_said_to_be_missing() {
    let mut cluster = Cluster::default();
    for resource in ["deployments.apps", "customresourcedefinitions.apiextensions.k8s.io"] {
        cluster.unread.push(Unread {
            resource: resource.into(),
            why: "forbidden".into(),
            lacks: Some("list"),
        });
    }
    let checked = check(cluster);
    let text = checked.text();
    assert!(
        text.starts_with("Whether Kueue, MCAD or the controller of AppWrappers 1.2 is there is not known"),
        "{text}"
    );
    assert_eq!(checked.exit_code(), 3);
}

#[test]
fn what_starts_kueue_again_or_hides_its_labels_is_named() {
    for (meta, text) in [
        (
            json!({"ownerReferences": [{"kind": "Kueue", "name": "cluster"}]}),
            "its owner, the Kueue cluster, would start it again",
        ),
        (json!({"annotations": {"argocd.argoproj.io/tracking-id": "a"}}), "Argo CD would start it again"),
        (json!({"labels": {"kustomize.toolkit.fluxcd.io/name": "a"}}), "Flux would start it again"),
    ] {
        let mut manager = kueue(CONFIGURATION).of("deployments.apps")[0].clone();
        manager["metadata"].as_object_mut().unwrap().extend(meta.as_object().unwrap().clone());
        let mut cluster = Cluster::default();
        cluster.add("deployments.apps", vec![manager]);
        let checked = check(cluster);
        assert_told(&checked, "kueue-controller-manager", Outcome::ToDo, text);
        assert_told(&checked, "kueue-webhook-service", Outcome::ToDo, "set podLabels to its selector");
    }
}

#[test]
fn an_operator_with_mcad_in_it_is_to_be_stopped() {
    let mut cluster = Cluster::default();
    let image = "quay.io/project-codeflare/codeflare-operator:v0.2.3";
    let name = "codeflare-operator-manager";
    cluster.add(
        "deployments.apps",
        vec![deployment("openshift-operators", name, image, json!({}), Value::Null)],
    );
    let of = definition("appwrappers.workload.codeflare.dev", &["v1beta1"]);
    cluster.add("customresourcedefinitions.apiextensions.k8s.io", vec![of]);
    assert_told(&check(cluster), name, Outcome::ToDo, "stop it before Muster is installed");
}

#[test]
fn where_kueue_has_no_deployment_its_settings_are_not_guessed() {
    let mut cluster = Cluster::default();
    let of = definition("workloads.kueue.x-k8s.io", &["v1beta2"]);
    cluster.add("customresourcedefinitions.apiextensions.k8s.io", vec![of]);
    cluster.add("queued rayjobs.ray.io", vec![object("ray.io/v1", "RayJob", "r", json!({}))]);
    let checked = check(cluster);
    assert_told(&checked, "r", Outcome::Kept, "waits or runs with its Workload");
    let text = checked.text();
    assert!(
        !text.contains("Setting") && text.contains("none: no Deployment of Kueue or MCAD was found"),
        "{text}"
    );
}
