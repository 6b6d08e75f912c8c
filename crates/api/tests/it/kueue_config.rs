//! Kueue's configuration file: strict parsing, defaults, both versions.

use api::kueue::config::{Configuration, GoDuration, PreemptionStrategy};
use serde_json::Value;

/// A file of v1beta2 with these fields.
fn parse(fields: &str) -> Result<Configuration, Vec<String>> {
    parse_version("v1beta2", fields)
}

fn parse_version(version: &str, fields: &str) -> Result<Configuration, Vec<String>> {
    let text = format!("apiVersion: config.kueue.x-k8s.io/{version}\nkind: Configuration\n{fields}");
    let document: Value = serde_saphyr::from_str(&text).expect("the test writes YAML");
    Configuration::parse(document, "kueue-system")
        .map_err(|errors| errors.iter().map(ToString::to_string).collect())
}

/// The only error of a file.
fn error(version: &str, fields: &str) -> String {
    match parse_version(version, fields).map_err(|errors| errors.join("; ")) {
        Ok(_) => "no error".into(),
        Err(error) => error,
    }
}

#[test]
fn an_empty_file_has_the_defaults_of_kueue() {
    let fields = parse("").unwrap().fields;
    let webhook = fields.webhook.unwrap();
    assert_eq!(
        (webhook.port, webhook.cert_dir.as_deref()),
        (Some(9443), Some("/tmp/k8s-webhook-server/serving-certs"))
    );
    assert_eq!(fields.metrics.unwrap().bind_address.as_deref(), Some(":8443"));
    let election = fields.leader_election.unwrap();
    assert_eq!(
        (election.leader_elect, election.resource_name.as_deref(), election.lease_duration),
        (Some(true), Some("c1f6bfd2.kueue.x-k8s.io"), Some(GoDuration::from_secs(15)))
    );
    let wait = fields.wait_for_pods_ready.unwrap();
    assert_eq!(
        (wait.timeout, wait.recovery_timeout, wait.block_admission),
        (Some(GoDuration::from_secs(1800)), Some(GoDuration::from_secs(1800)), Some(false))
    );
    assert_eq!(fields.integrations.unwrap().frameworks, Some(vec!["batch/job".to_owned()]));
    let selector = fields.managed_jobs_namespace_selector.unwrap().match_expressions.unwrap();
    assert_eq!(selector[0].values, Some(vec!["kube-system".to_owned(), "kueue-system".to_owned()]));
    assert!(fields.fair_sharing.is_none());
}

#[test]
fn the_form_that_kueue_writes_is_read() {
    let configuration = parse(
        "namespace: kueue-system
webhook: {host: 127.0.0.1, port: 41001, certDir: /certificates}
leaderElection: {leaderElect: false, leaseDuration: 15s, renewDeadline: 10s, resourceLock: leases, resourceName: c1f6bfd2.kueue.x-k8s.io, resourceNamespace: '', retryPeriod: 2s}
metrics: {bindAddress: '127.0.0.1:41002', enableClusterQueueResources: true, localQueueMetrics: {enable: true}}
health: {healthProbeBindAddress: '127.0.0.1:41003'}
controller: {groupKindConcurrency: {Job.batch: 5}, cacheSyncTimeout: 60000000000}
manageJobsWithoutQueueName: false
managedJobsNamespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, kueue-system]}]}
internalCertManagement: {enable: false}
waitForPodsReady: {timeout: 30m0s, blockAdmission: false, recoveryTimeout: 30m0s, requeuingStrategy: {timestamp: Eviction, backoffBaseSeconds: 60, backoffMaxSeconds: 3600}}
clientConnection: {qps: 1000, burst: 2000}
integrations: {frameworks: [batch/job, pod], externalFrameworks: [Foo.v1.example.com], labelKeysToCopy: [team]}
multiKueue: {gcInterval: 1m0s, origin: multikueue, workerLostTimeout: 15m0s, dispatcherName: kueue.x-k8s.io/multikueue-dispatcher-all-at-once}
fairSharing: {preemptionStrategies: [LessThanOrEqualToFinalShare, LessThanInitialShare]}
admissionFairSharing: {usageHalfLifeTime: 168h0m0s, usageSamplingInterval: 5m0s, resourceWeights: {cpu: 2.5}}
resources:
  excludeResourcePrefixes: [networking.example.com/]
  transformations: [{input: nvidia.com/mig-1g.5gb, strategy: Replace, outputs: {example.com/memory: 5Gi, credits: 10}}]
  deviceClassMappings: [{name: whole-gpus, deviceClassNames: [gpu.example.com]}]
featureGates: {ConcurrentAdmission: true}
objectRetentionPolicies: {workloads: {afterFinished: 1h, afterDeactivatedByKueue: null}}
visibilityServer: {bindAddress: 127.0.0.1, bindPort: 8082}
tls: {minVersion: VersionTLS12, cipherSuites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]}
",
    )
    .unwrap();
    assert!(configuration.gates.enabled("ConcurrentAdmission"));
    let sharing = configuration.fields.admission_fair_sharing.unwrap();
    assert_eq!(sharing.usage_half_life_time, GoDuration::parse("168h"));
}

#[test]
fn an_error_has_its_path() {
    for (fields, expected) in [
        (
            "webhook: {prot: 1}",
            "webhook.prot: unknown field `prot`, expected one of `port`, `host`, `certDir`",
        ),
        ("webhoook: {}", "webhoook: unknown field `webhoook`, expected one of "),
        (
            "fairSharing: {enable: true}",
            "fairSharing.enable: unknown field `enable`, expected `preemptionStrategies`",
        ),
        (
            "resources: {transformations: [{input: a}, {inptu: b}]}",
            "resources.transformations[1].inptu: unknown field",
        ),
        ("webhook: {port: many}", "webhook.port: invalid type: string \"many\", expected u16"),
        (
            "waitForPodsReady: {timeout: 5 minutes}",
            "waitForPodsReady.timeout: \"5 minutes\" is not a duration such as 30s or 1h30m",
        ),
        ("waitForPodsReady: {timeout: -1s}", "waitForPodsReady.timeout: -1s is negative"),
        (
            "waitForPodsReady: {requeuingStrategy: {timestamp: Never}}",
            "waitForPodsReady.requeuingStrategy.timestamp: unknown variant `Never`, expected `Creation` or `Eviction`",
        ),
        (
            "integrations: {frameworks: [batch/jobs]}",
            "integrations.frameworks[0]: \"batch/jobs\" is unknown; supported are batch/job, ",
        ),
        (
            "integrations: {externalFrameworks: [Foo]}",
            "integrations.externalFrameworks[0]: \"Foo\" is not of the form Kind.version.group",
        ),
        (
            "integrations: {frameworks: [pod]}\nmanagedJobsNamespaceSelector: {}",
            "managedJobsNamespaceSelector: it matches the namespace \"kube-system\"",
        ),
        ("fairSharing: {}", "fairSharing.preemptionStrategies: it must be [LessThanOrEqualToFinalShare]"),
        (
            "admissionFairSharing: {resourceWeights: {cpu: -1}}",
            "admissionFairSharing.resourceWeights[cpu]: -1 is negative",
        ),
        (
            "resources: {quotaCheckStrategy: IgnoreUndeclared, excludeResourcePrefixes: [a]}",
            "resources.quotaCheckStrategy: excludeResourcePrefixes cannot",
        ),
        (
            "resources: {deviceClassMappings: [{name: a, deviceClassNames: []}]}",
            "resources.deviceClassMappings[0].deviceClassNames: at least one class is needed",
        ),
        (
            "multiKueue: {incrementalDispatcherConfig: {stepSize: 2}}",
            "multiKueue.incrementalDispatcherConfig: it needs dispatcherName: ",
        ),
        (
            "tls: {minVersion: VersionTLS11}",
            "tls.minVersion: \"VersionTLS11\" is not VersionTLS12 or VersionTLS13",
        ),
        ("metrics: {customLabels: [{name: 1a}]}", "metrics.customLabels[0].name: a letter is needed first"),
        (
            "visibilityServer: {bindAddress: localhost}",
            "visibilityServer.bindAddress: \"localhost\" is not an IP address",
        ),
        (
            "featureGates: {NoSuchGate: true}",
            "featureGates.NoSuchGate: there is no such feature gate in Kueue v0.19",
        ),
        (
            "objectRetentionPolicies: {workloads: {afterFinished: -1h}}",
            "objectRetentionPolicies.workloads.afterFinished: ",
        ),
    ] {
        let error = error("v1beta2", fields);
        assert!(error.starts_with(expected), "{fields}\n  {error}\n  expected {expected}");
    }
}

#[test]
fn all_wrong_values_are_told_at_once() {
    let errors =
        parse("tls: {minVersion: x}\nvisibilityServer: {bindPort: 0}\nfeatureGates: {Nothing: true}");
    assert_eq!(errors.unwrap_err().len(), 3);
}

#[test]
fn another_document_is_refused() {
    for (text, expected) in [
        ("[]", ".: the file is not a Configuration"),
        ("kind: ConfigMap", "kind: expected Configuration, found \"ConfigMap\""),
        (
            "kind: Configuration",
            "apiVersion: expected config.kueue.x-k8s.io/v1beta1 or config.kueue.x-k8s.io/v1beta2, found nothing",
        ),
        (
            "kind: Configuration\napiVersion: config.kueue.x-k8s.io/v1",
            "apiVersion: expected config.kueue.x-k8s.io/v1beta1 or",
        ),
    ] {
        let document: Value = serde_saphyr::from_str(text).unwrap();
        let errors = Configuration::parse(document, "kueue-system").unwrap_err();
        assert!(errors.len() == 1 && errors[0].to_string().starts_with(expected), "{text}: {errors:?}");
    }
}

#[test]
fn the_older_version_turns_features_on_by_a_field() {
    let off =
        parse_version("v1beta1", "fairSharing: {enable: false}\nwaitForPodsReady: {timeout: 1m}").unwrap();
    assert!(off.fields.fair_sharing.is_none() && off.fields.wait_for_pods_ready.is_none());
    let on =
        parse_version("v1beta1", "fairSharing: {enable: true}\nwaitForPodsReady: {enable: true}").unwrap();
    let wait = on.fields.wait_for_pods_ready.unwrap();
    assert_eq!((wait.timeout, wait.block_admission), (Some(GoDuration::from_secs(300)), Some(true)));
    assert_eq!(
        on.fields.fair_sharing.unwrap().preemption_strategies,
        Some(vec![PreemptionStrategy::LessThanOrEqualToFinalShare, PreemptionStrategy::LessThanInitialShare])
    );
    let dropped =
        "queueVisibility: {updateIntervalSeconds: 5}\nintegrations: {podOptions: {podSelector: {}}}";
    assert!(parse_version("v1beta1", dropped).is_ok());
    assert!(parse(dropped).is_err(), "v1beta2 has no such fields");
    for (fields, expected) in [
        (
            "visibilityServer: {}",
            "visibilityServer: this field is of v1beta2: change apiVersion, or remove the field",
        ),
        (
            "metrics: {customLabels: [{name: a, trackedValues: []}]}",
            "metrics.customLabels.*.trackedValues: this field is of v1beta2",
        ),
        ("fairSharing: {enable: maybe}", "fairSharing.enable: expected true or false, found \"maybe\""),
    ] {
        let error = error("v1beta1", fields);
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn a_duration_is_one_of_go() {
    for (text, milliseconds) in [
        ("0", Some(0)),
        ("300ms", Some(300)),
        ("1h30m0s", Some(5_400_000)),
        ("-1.5h", Some(-5_400_000)),
        ("+2s", Some(2_000)),
        (".5s", Some(500)),
        ("1000us", Some(1)),
        ("", None),
        ("-", None),
        ("5", None),
        ("s", None),
        ("1 s", None),
        ("1d", None),
        ("1.2.3s", None),
        ("99999999999999999999h", None),
    ] {
        assert_eq!(GoDuration::parse(text).map(|duration| duration.0.as_millis()), milliseconds, "{text:?}");
    }
}
