//! What is found in clusters that are written down here.
#![allow(clippy::needless_pass_by_value, reason = "objects are written where they are used")]

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::Checked;
use super::cluster::{Cluster, Resource, Unread};
use super::finding::{Finding, Outcome};
use super::systems::Software;

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
fn a_plain_kueue_needs_the_commands_alone() {
    let mut cluster = kueue(&format!(
        "{CONFIGURATION}integrations: {{frameworks: [batch/job, pod]}}\nwaitForPodsReady: {{timeout: 5m}}\n"
    ));
    cluster.add(
        "mutatingwebhookconfigurations.admissionregistration.k8s.io",
        vec![object(
            "admissionregistration.k8s.io/v1",
            "MutatingWebhookConfiguration",
            "kueue-mutating-webhook-configuration",
            json!({"webhooks": [{"clientConfig": {"service": {"name": "kueue-webhook-service"}}}]}),
        )],
    );
    cluster.add("apiservices.apiregistration.k8s.io", vec![object("apiregistration.k8s.io/v1", "APIService",
        "v1beta2.visibility.kueue.x-k8s.io",
        json!({"spec": {"group": "visibility.kueue.x-k8s.io", "service": {"name": "kueue-visibility-server"}}}))]);
    let checked = check(cluster);
    assert_told(&checked, "kueue-mutating-webhook-configuration", Outcome::Kept, "Muster answers it");
    assert_told(&checked, "v1beta2.visibility.kueue.x-k8s.io", Outcome::Kept, "in Kueue's place");
    assert_told(&checked, "waitForPodsReady", Outcome::Set, "kueue.configuration.waitForPodsReady");
    assert_eq!(checked.exit_code(), 0, "{}", checked.text());
    assert_eq!(
        command(&checked),
        "kubectl -n kueue-system scale deployment/kueue-controller-manager --replicas=0\n\
         helm install muster charts/muster --namespace kueue-system \\\n  --set appWrappers.enabled=false \\\n  \
         --set kueue.enabled=true --set kueue.inPlace=true \\\n  --set 'kueue.jobs={batch/job,pod}' \\\n  \
         --set 'podLabels.app\\.kubernetes\\.io/instance=kueue' \\\n  \
         --set-json kueue.configuration='{\"waitForPodsReady\":{\"timeout\":\"5m\"}}'"
    );
    let text = checked.text();
    assert!(
        text.contains(
            "Kueue: v0.19.1, Deployment kueue-system/kueue-controller-manager runs: 1 of 1 replicas are ready"
        ),
        "{text}"
    );
    assert!(text.contains("workloads.kueue.x-k8s.io: serves v1beta2 and v1beta1, stores v1beta2"), "{text}");
}

#[test]
fn fields_of_the_configuration_are_taken_over_or_named() {
    for (lines, name, outcome, text) in [
        ("multiKueue: {gcInterval: 1m}", "multiKueue", Outcome::Differs, "no AdmissionCheck uses it"),
        ("clientConnection: {qps: 50}", "clientConnection", Outcome::Differs, "has no effect"),
        ("webhook: {port: 9443}", "webhook", Outcome::Kept, "the chart has its own"),
        (
            "fairSharing: {preemptionStrategies: [LessThanInitialShare]}",
            "fairSharing",
            Outcome::Set,
            "kueue.configuration.fairSharing",
        ),
        (
            "fairSharing: {preemptionStrategies: [LessThanInitialShare, LessThanInitialShare]}",
            "fairSharing.preemptionStrategies",
            Outcome::ToDo,
            "is refused by Muster: it must be [LessThanOrEqualToFinalShare], [LessThanInitialShare], or both in this order",
        ),
        ("newField: 1", "newField", Outcome::ToDo, "unknown field `newField`"),
        (
            "resources: {deviceClassMappings: [{name: a, deviceClassNames: [b]}]}",
            "resources.deviceClassMappings",
            Outcome::NotServed,
            "not counted",
        ),
        (
            "integrations: {externalFrameworks: [Foo.v1.example.com]}",
            "integrations.externalFrameworks",
            Outcome::Differs,
            "Foo.v1.example.com",
        ),
        (
            "featureGates: {FailureRecoveryPolicy: true}",
            "featureGates.FailureRecoveryPolicy",
            Outcome::NotServed,
            "failed node",
        ),
        (
            "featureGates: {TASBalancedPlacement: true}",
            "featureGates.TASBalancedPlacement",
            Outcome::Differs,
            "switched on",
        ),
        (
            "featureGates: {NoSuchGate: true}",
            "featureGates.NoSuchGate",
            Outcome::ToDo,
            "there is no such feature gate in Kueue v0.19",
        ),
        (
            "internalCertManagement: {enable: false}",
            "internalCertManagement.enable",
            Outcome::Set,
            "certificates.issuer=other",
        ),
        (
            "internalCertManagement: {webhookServiceName: mine}",
            "internalCertManagement.webhookServiceName",
            Outcome::NotServed,
            "is mine",
        ),
        ("leaderElection: {leaderElect: false}", "leaderElection", Outcome::ToDo, "Kueue holds no lease"),
        ("leaderElection: {resourceName: mine}", "leaderElection", Outcome::ToDo, "the lease mine"),
        (
            "metrics: {bindAddress: ':8443', enableClusterQueueResources: true}",
            "metrics",
            Outcome::Set,
            "kueue.configuration.metrics",
        ),
        ("", "waitForPodsReady", Outcome::Differs, "after 30 minutes"),
    ] {
        assert_told(&check(kueue(&format!("{CONFIGURATION}{lines}\n"))), name, outcome, text);
    }
    // A gate at its default changes nothing.
    let checked = check(kueue(&format!("{CONFIGURATION}featureGates: {{TASBalancedPlacement: false}}\n")));
    assert!(about(&checked, "featureGates.TASBalancedPlacement").is_empty());
    let broken = check(kueue(&format!("{CONFIGURATION}integrations: [\n")));
    assert_told(&broken, "kueue-manager-config", Outcome::ToDo, "is not YAML");
    assert_eq!(broken.exit_code(), 3);
}

#[test]
fn a_configuration_of_the_older_version_is_written_in_the_newer_one() {
    let file = "apiVersion: config.kueue.x-k8s.io/v1beta1\nkind: Configuration\nwaitForPodsReady: {enable: true}\nfairSharing: {enable: true}\n";
    let command = command(&check(kueue(file)));
    let expected = r#"kueue.configuration='{"fairSharing":{"preemptionStrategies":["LessThanOrEqualToFinalShare","LessThanInitialShare"]},"waitForPodsReady":{"blockAdmission":true,"timeout":"5m0s"}}'"#;
    assert!(command.contains(expected), "{command}");
    let off = check(kueue("apiVersion: config.kueue.x-k8s.io/v1beta1\nkind: Configuration\n"));
    assert!(about(&off, "waitForPodsReady").is_empty());
}

#[test]
fn feature_gates_of_the_flag_count() {
    let mut cluster = kueue(CONFIGURATION);
    let flags = json!({"args": ["--config=/c.yaml", "--feature-gates=ConcurrentAdmission=true,PartialAdmission=false"]});
    let image = "registry.k8s.io/kueue/kueue:v0.19.1";
    let volumes = json!([{"configMap": {"name": "kueue-manager-config"}}]);
    let mut other = Cluster::default();
    other.add(
        "deployments.apps",
        vec![deployment("kueue-system", "kueue-controller-manager", image, flags, volumes)],
    );
    other.add("configmaps", cluster.of("configmaps").to_vec());
    std::mem::swap(&mut cluster, &mut other);
    let checked = check(cluster);
    assert_told(&checked, "featureGates.ConcurrentAdmission", Outcome::NotServed, "is on");
    assert!(command(&checked).contains(r#""PartialAdmission":false"#), "{}", command(&checked));
}

#[test]
fn objects_of_kueue_are_told_one_by_one() {
    let mut cluster = kueue(&format!("{CONFIGURATION}waitForPodsReady: {{timeout: 5m}}\n"));
    let check_of =
        |name: &str, by: &str| kueue_object("AdmissionCheck", name, json!({"spec": {"controllerName": by}}));
    cluster.add(
        "admissionchecks.kueue.x-k8s.io",
        vec![
            check_of("remote", "kueue.x-k8s.io/multikueue"),
            check_of("nodes", "kueue.x-k8s.io/provisioning-request"),
            check_of("budget", "example.com/budget"),
        ],
    );
    let queue = |name: &str, checks: &[&str]| {
        let rules: Vec<Value> = checks.iter().map(|name| json!({"name": name})).collect();
        kueue_object(
            "ClusterQueue",
            name,
            json!({"spec": {"admissionChecksStrategy": {"admissionChecks": rules}}}),
        )
    };
    cluster.add("clusterqueues.kueue.x-k8s.io", vec![queue("plain", &["nodes"]), queue("far", &["remote"])]);
    let local = |name: &str, of: &str| {
        kueue_object(
            "LocalQueue",
            name,
            json!({"metadata": {"namespace": "team"}, "spec": {"clusterQueue": of}}),
        )
    };
    cluster.add("localqueues.kueue.x-k8s.io", vec![local("here", "plain"), local("there", "far")]);
    let workload = |name: &str, queue: &str, conditions: &[&str]| {
        let conditions: Vec<Value> =
            conditions.iter().map(|kind| json!({"type": kind, "status": "True"})).collect();
        kueue_object(
            "Workload",
            name,
            json!({"metadata": {"namespace": "team"},
            "spec": {"queueName": queue}, "status": {"conditions": conditions}}),
        )
    };
    cluster.add(
        "workloads.kueue.x-k8s.io",
        vec![
            workload("waiting", "here", &[]),
            workload("running", "here", &["QuotaReserved", "Admitted"]),
            workload("held", "here", &["QuotaReserved"]),
            workload("stopping", "here", &["QuotaReserved", "Evicted"]),
            workload("over", "there", &["Finished"]),
            workload("lost", "there", &[]),
            kueue_object(
                "Workload",
                "away",
                json!({"metadata": {"namespace": "team"}, "status": {"clusterName": "w1"}}),
            ),
        ],
    );
    cluster
        .add("multikueueclusters.kueue.x-k8s.io", vec![kueue_object("MultiKueueCluster", "w1", json!({}))]);
    let set =
        object("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "big", json!({"spec": {"replicas": 2000}}));
    cluster.add("queued leaderworkersets.leaderworkerset.x-k8s.io", vec![set]);
    let checked = check(cluster);
    for (name, outcome, text) in [
        ("remote", Outcome::NotServed, "answered by MultiKueue"),
        ("nodes", Outcome::Set, "kueue.provisioning=true"),
        ("budget", Outcome::Kept, "its own controller example.com/budget goes on"),
        ("plain", Outcome::Kept, "keeps its quota"),
        ("far", Outcome::NotServed, "take remote out of spec.admissionChecksStrategy"),
        ("waiting", Outcome::Kept, "keeps its place"),
        ("running", Outcome::Kept, "its pods run on"),
        ("held", Outcome::Kept, "waits for its admission checks"),
        ("stopping", Outcome::Kept, "is being evicted"),
        ("over", Outcome::Kept, "has ended"),
        ("lost", Outcome::NotServed, "it waits for ever"),
        ("away", Outcome::NotServed, "dispatched to another cluster"),
        ("w1", Outcome::NotServed, "belongs to MultiKueue"),
        ("big", Outcome::Kept, "Kueue does not manage leaderworkerset"),
    ] {
        assert_told(&checked, name, outcome, text);
    }
    assert_eq!(checked.exit_code(), 4);
    assert!(command(&checked).contains("--set kueue.provisioning=true"));
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
fn settings_of_mcad_become_values() {
    for (container, name, outcome, text) in [
        (
            json!({"env": [{"name": "QUOTA_ENABLED", "value": "True"}]}),
            "QUOTA_ENABLED",
            Outcome::Set,
            "appWrappers.quota=true",
        ),
        (json!({"args": ["--quotaEnabled"]}), "QUOTA_ENABLED", Outcome::Set, "appWrappers.quota=true"),
        (
            json!({"args": ["--preemption", "true"]}),
            "PREEMPTION",
            Outcome::Set,
            "appWrappers.preemption=true",
        ),
        (
            json!({"args": ["-preemption=false"], "env": [{"name": "PREEMPTION", "value": "true"}]}),
            "PREEMPTION",
            Outcome::Kept,
            "is off",
        ),
        (
            json!({"env": [{"name": "DISPATCHER_MODE", "value": "true"}]}),
            "DISPATCHER_MODE",
            Outcome::NotServed,
            "no other cluster",
        ),
        (
            json!({"env": [{"name": "DISPATCHER_MODE", "value": "false"}]}),
            "DISPATCHER_MODE",
            Outcome::Kept,
            "is off",
        ),
        (json!({"args": ["--backofftime=20"]}), "BACKOFFTIME", Outcome::Differs, "has no effect"),
    ] {
        assert_told(&check(mcad(container)), name, outcome, text);
    }
    let both = json!({"env": [{"name": "DYNAMICPRIORITY", "value": "true"}, {"name": "PREEMPTION", "value": "true"}]});
    let checked = check(mcad(both));
    assert!(command(&checked).contains("appWrappers.dynamicPriority=true"), "{}", command(&checked));
    assert!(!command(&checked).contains("appWrappers.preemption"), "{}", command(&checked));
    // As in the ConfigMap of its chart.
    let mut cluster = mcad(json!({"envFrom": [{"configMapRef": {"name": "mcad"}}]}));
    let data = json!({"metadata": {"namespace": "kube-system"}, "data": {"QUOTA_ENABLED": "true"}});
    cluster.add("configmaps", vec![object("v1", "ConfigMap", "mcad", data)]);
    assert_eq!(
        command(&check(cluster)),
        "kubectl -n kube-system scale deployment/mcad-controller --replicas=0\n\
         helm install muster charts/muster --namespace muster-system --create-namespace \\\n  \
         --set 'appWrappers.groups={mcad.ibm.com}' \\\n  --set appWrappers.quota=true"
    );
}

#[test]
fn app_wrappers_are_told_one_by_one() {
    let mut cluster = mcad(json!({}));
    let running = json!({"canrun": true, "state": "Running"});
    let template = |version: &str, kind: &str| json!([{"generictemplate": {"apiVersion": version, "kind": kind, "metadata": {"name": "o"}}}]);
    let elsewhere = json!([{"generictemplate": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "o", "namespace": "other"}}}]);
    let mut declares = job("4");
    declares["custompodresources"] = json!([{"replicas": 1, "requests": {"cpu": 2}}]);
    let all = [
        ("waits", json!({"state": "Pending"}), json!([job("1")])),
        ("new", Value::Null, json!([job("1")])),
        ("runs", running.clone(), json!([job("1")])),
        ("starting", json!({"canrun": true, "state": "Pending"}), json!([job("1")])),
        ("over", json!({"state": "Completed"}), json!([job("1")])),
        ("failed", json!({"state": "Failed"}), json!([job("1")])),
        ("broken", Value::Null, json!([{"custompodresources": []}])),
        ("bad-amount", Value::Null, json!([job("many")])),
        ("elsewhere", Value::Null, elsewhere),
        ("widget", running, template("example.com/v1", "Widget")),
        ("gadget", Value::Null, template("example.com/v1", "Gadget")),
        ("global", Value::Null, template("v1", "Namespace")),
        ("declares", Value::Null, json!([declares])),
    ];
    let all = all.into_iter().map(|(name, status, items)| wrapper(name, status, items));
    cluster.add("appwrappers.mcad.ibm.com", all.collect());
    let known = |version: &str, kind: &str| (version.to_owned(), kind.to_owned());
    cluster.wrapped = [
        (known("example.com/v1", "Widget"), Resource::Namespaced("widgets".into())),
        (known("example.com/v1", "Gadget"), Resource::Missing),
        (known("v1", "Namespace"), Resource::ClusterScoped("namespaces".into())),
        (known("v1", "ConfigMap"), Resource::Namespaced("configmaps".into())),
        (known("batch/v1", "Job"), Resource::Namespaced("jobs".into())),
    ]
    .into();
    let checked = check(cluster);
    for (name, outcome, text) in [
        ("waits", Outcome::Kept, "it stays queued"),
        ("new", Outcome::Kept, "it stays queued"),
        ("runs", Outcome::Kept, "runs on"),
        ("starting", Outcome::Kept, "those that are missing are created"),
        ("over", Outcome::Kept, "has ended"),
        ("failed", Outcome::Differs, "MCAD would try it again"),
        ("broken", Outcome::ToDo, "resources.GenericItems[0] has no generictemplate"),
        ("bad-amount", Outcome::ToDo, "waits and cannot start: Job j"),
        ("elsewhere", Outcome::ToDo, "other"),
        ("widget", Outcome::Kept, "runs on"),
        ("widget", Outcome::Set, "appWrappers.wraps.example.com with widgets"),
        ("gadget", Outcome::ToDo, "waits until the cluster serves Gadget of example.com/v1"),
        ("global", Outcome::ToDo, "Namespace is cluster-scoped"),
        ("declares", Outcome::Differs, "(cpu): the larger amount counts"),
        ("order of the queue", Outcome::Differs, "by priority, then by age"),
    ] {
        assert_told(&checked, name, outcome, text);
    }
    assert_eq!(checked.exit_code(), 3);
    let command = command(&checked);
    assert!(command.contains(r#"--set-json appWrappers.wraps='{"example.com":["widgets"]}'"#), "{command}");
}

#[test]
fn app_wrappers_with_components_need_their_own_controller() {
    let components = |name: &str, labels: Value| {
        object(
            "workload.codeflare.dev/v1beta2",
            "AppWrapper",
            name,
            json!({"metadata": {"namespace": "team", "labels": labels}, "spec": {"components": []}}),
        )
    };
    let queue = json!({"kueue.x-k8s.io/queue-name": "q"});
    let mut cluster =
        kueue(&format!("{CONFIGURATION}integrations: {{frameworks: [workload.codeflare.dev/appwrapper]}}\n"));
    let wrappers = vec![components("queued", queue), components("alone", json!({}))];
    cluster.add("appwrappers.workload.codeflare.dev", wrappers);
    cluster.add(
        "customresourcedefinitions.apiextensions.k8s.io",
        vec![definition("appwrappers.workload.codeflare.dev", &["v1beta2"])],
    );
    let stopped = check(cluster.clone());
    assert_told(&stopped, "queued", Outcome::ToDo, "start that controller");
    let image = "quay.io/ibm/appwrapper:v1.2.0";
    cluster.add(
        "deployments.apps",
        vec![deployment("appwrapper-system", "appwrapper-controller-manager", image, json!({}), Value::Null)],
    );
    let checked = check(cluster);
    assert_told(&checked, "queued", Outcome::Kept, "its own controller must go on");
    assert_told(&checked, "alone", Outcome::Kept, "Muster leaves it alone");
    let of = |software| checked.systems.iter().any(|system| system.software == software);
    assert!(of(Software::AppWrapper) && of(Software::Kueue) && !of(Software::Mcad));
    assert!(!command(&checked).contains("appwrapper-controller-manager"), "{}", command(&checked));
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
    assert!(checked.text().contains("Not served by Muster"));
}

#[test]
fn app_wrappers_without_their_controller_are_managed_by_muster() {
    let mut cluster = Cluster::default();
    let of = definition("appwrappers.workload.codeflare.dev", &["v1beta1"]);
    cluster.add("customresourcedefinitions.apiextensions.k8s.io", vec![of]);
    let mut left = wrapper("left", Value::Null, json!([job("1")]));
    left["apiVersion"] = "workload.codeflare.dev/v1beta1".into();
    cluster.add("appwrappers.workload.codeflare.dev", vec![left]);
    let checked = check(cluster);
    assert_eq!(
        command(&checked),
        "helm install muster charts/muster --namespace muster-system --create-namespace"
    );
    assert!(checked.text().contains("MCAD: no Deployment of it was found"), "{}", checked.text());
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
