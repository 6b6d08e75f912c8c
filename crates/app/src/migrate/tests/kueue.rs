//! Kueue: its configuration, and the objects of its API.

use serde_json::{Value, json};

use super::*;

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
        ("multiKueue: {gcInterval: 1m}", "multiKueue", Outcome::Set, "kueue.configuration.multiKueue"),
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
            "featureGates: {SchedulerLongRequeueInterval: true}",
            "featureGates.SchedulerLongRequeueInterval",
            Outcome::Differs,
            "switched on",
        ),
        (
            "featureGates: {ValidateRayAndSparkJobUpdates: false}",
            "featureGates.ValidateRayAndSparkJobUpdates",
            Outcome::Differs,
            "always does",
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
    let checked = check(kueue(&format!(
        "{CONFIGURATION}featureGates: {{ElasticJobsViaWorkloadSlicesWithTAS: false}}\n"
    )));
    assert!(about(&checked, "featureGates.ElasticJobsViaWorkloadSlicesWithTAS").is_empty());
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
    let profile = json!({"spec": {"clusterSource": {"clusterProfileRef": {"name": "w1"}}}});
    cluster.add("multikueueclusters.kueue.x-k8s.io", vec![kueue_object("MultiKueueCluster", "w1", profile)]);
    let set =
        object("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "big", json!({"spec": {"replicas": 2000}}));
    cluster.add("queued leaderworkersets.leaderworkerset.x-k8s.io", vec![set]);
    let checked = check(cluster);
    for (name, outcome, text) in [
        ("remote", Outcome::Set, "kueue.multikueue=true"),
        ("nodes", Outcome::Set, "kueue.provisioning=true"),
        ("budget", Outcome::Kept, "its own controller example.com/budget goes on"),
        ("plain", Outcome::Kept, "keeps its quota"),
        ("far", Outcome::Kept, "keeps its quota"),
        ("waiting", Outcome::Kept, "keeps its place"),
        ("running", Outcome::Kept, "its pods run on"),
        ("held", Outcome::Kept, "waits for its admission checks"),
        ("stopping", Outcome::Kept, "is being evicted"),
        ("over", Outcome::Kept, "has ended"),
        ("lost", Outcome::Kept, "keeps its place"),
        ("away", Outcome::ToDo, "dispatched to another cluster"),
        ("w1", Outcome::NotServed, "names a ClusterProfile"),
        ("big", Outcome::Kept, "Kueue does not manage leaderworkerset"),
    ] {
        assert_told(&checked, name, outcome, text);
    }
    assert_eq!(checked.exit_code(), 4);
    assert!(command(&checked).contains("--set kueue.provisioning=true"));
    assert!(command(&checked).contains("--set kueue.multikueue=true"));
}
