//! The values that a configuration may have. After `pkg/config/validation.go` of Kueue v0.19.1.

use std::collections::BTreeSet;

use super::{
    ConfigError, CustomLabel, Fields, GoDuration, LabelSelector, MultiKueue, PreemptionStrategy,
    QuotaCheckStrategy, Resources, SourceKind, Tls, WaitForPodsReady,
};

/// The kinds of jobs that Kueue knows, by the names of `integrations.frameworks`.
pub const FRAMEWORKS: &[&str] = &[
    "batch/job",
    "deployment",
    "jobset.x-k8s.io/jobset",
    "kubeflow.org/jaxjob",
    "kubeflow.org/mpijob",
    "kubeflow.org/paddlejob",
    "kubeflow.org/pytorchjob",
    "kubeflow.org/tfjob",
    "kubeflow.org/xgboostjob",
    "leaderworkerset.x-k8s.io/leaderworkerset",
    "pod",
    "ray.io/raycluster",
    "ray.io/rayjob",
    "ray.io/rayservice",
    "sparkoperator.k8s.io/sparkapplication",
    "statefulset",
    "trainer.kubeflow.org/trainjob",
    "workload.codeflare.dev/appwrapper",
];

const INCREMENTAL: &str = "kueue.x-k8s.io/multikueue-dispatcher-incremental";
const CUSTOM_LABELS_MAX: usize = 20;

/// All that is wrong with the values.
pub(super) fn check(fields: &Fields) -> Vec<ConfigError> {
    let mut errors = Errors(Vec::new());
    pods_ready(&mut errors, fields.wait_for_pods_ready.as_ref());
    integrations(&mut errors, fields);
    selectors(&mut errors, fields);
    fair_sharing(&mut errors, fields);
    if let Some(resources) = &fields.resources {
        quota(&mut errors, resources);
    }
    if let Some(multi) = &fields.multi_kueue {
        multi_kueue(&mut errors, multi);
    }
    if let Some(workloads) =
        fields.object_retention_policies.as_ref().and_then(|policies| policies.workloads.as_ref())
    {
        let path = "objectRetentionPolicies.workloads";
        errors.not_negative(&format!("{path}.afterFinished"), workloads.after_finished);
        errors.not_negative(&format!("{path}.afterDeactivatedByKueue"), workloads.after_deactivated_by_kueue);
    }
    if let Some(tls) = &fields.tls {
        transport(&mut errors, tls);
    }
    let labels = fields.metrics.as_ref().and_then(|metrics| metrics.custom_labels.as_deref());
    custom_labels(&mut errors, labels.unwrap_or_default());
    visibility(&mut errors, fields);
    errors.0
}

struct Errors(Vec<ConfigError>);

impl Errors {
    fn add(&mut self, path: &str, problem: impl Into<String>) {
        self.0.push(ConfigError { path: path.into(), problem: problem.into() });
    }

    fn not_negative(&mut self, path: &str, duration: Option<GoDuration>) {
        if let Some(duration) = duration.filter(|duration| duration.0.is_negative()) {
            self.add(path, format!("{duration} is negative"));
        }
    }

    fn number_not_negative(&mut self, path: &str, number: Option<i32>) {
        if let Some(number) = number.filter(|&number| number < 0) {
            self.add(path, format!("{number} is negative"));
        }
    }
}

fn pods_ready(errors: &mut Errors, wait: Option<&WaitForPodsReady>) {
    let Some(wait) = wait else { return };
    errors.not_negative("waitForPodsReady.timeout", wait.timeout);
    // Its default is the timeout.
    let recovery = wait.recovery_timeout.filter(|_| wait.recovery_timeout != wait.timeout);
    errors.not_negative("waitForPodsReady.recoveryTimeout", recovery);
    let Some(strategy) = &wait.requeuing_strategy else { return };
    let path = |field: &str| format!("waitForPodsReady.requeuingStrategy.{field}");
    errors.number_not_negative(&path("backoffLimitCount"), strategy.backoff_limit_count);
    errors.number_not_negative(&path("backoffBaseSeconds"), strategy.backoff_base_seconds);
    errors.number_not_negative(&path("backoffMaxSeconds"), strategy.backoff_max_seconds);
}

fn integrations(errors: &mut Errors, fields: &Fields) {
    let Some(integrations) = &fields.integrations else { return };
    let mut seen = BTreeSet::new();
    for (at, name) in integrations.frameworks.iter().flatten().enumerate() {
        let path = format!("integrations.frameworks[{at}]");
        if !FRAMEWORKS.contains(&name.as_str()) {
            errors.add(&path, format!("{name:?} is unknown; supported are {}", FRAMEWORKS.join(", ")));
        } else if !seen.insert(name.as_str()) {
            errors.add(&path, format!("{name:?} is there twice"));
        }
    }
    let names = integrations.external_frameworks.iter().flatten();
    external(errors, "integrations.externalFrameworks", "", names.map(String::as_str));
}

fn external<'a>(errors: &mut Errors, list: &str, field: &str, names: impl Iterator<Item = &'a str>) {
    let mut seen = BTreeSet::new();
    for (at, name) in names.enumerate() {
        let path = format!("{list}[{at}]{field}");
        if name.split('.').filter(|part| !part.is_empty()).count() < 3 {
            errors.add(&path, format!("{name:?} is not of the form Kind.version.group"));
        } else if !seen.insert(name) {
            errors.add(&path, format!("{name:?} is there twice"));
        }
    }
}

fn selectors(errors: &mut Errors, fields: &Fields) {
    let path = "managedJobsNamespaceSelector";
    let Some(selector) = &fields.managed_jobs_namespace_selector else { return };
    requirements(errors, path, selector);
    let has_pods = fields.integrations.as_ref().and_then(|integrations| integrations.frameworks.as_ref());
    if !has_pods.is_some_and(|names| names.iter().any(|name| name == "pod")) {
        return;
    }
    for namespace in ["kube-system"].into_iter().chain(fields.namespace.as_deref()) {
        if matches_name(selector, namespace) {
            errors.add(
                path,
                format!(
                    "it matches the namespace {namespace:?}, whose pods must not wait for the controller"
                ),
            );
        }
    }
}

fn requirements(errors: &mut Errors, path: &str, selector: &LabelSelector) {
    for (at, requirement) in selector.match_expressions.iter().flatten().enumerate() {
        let count = requirement.values.as_ref().map_or(0, Vec::len);
        let problem = match requirement.operator.as_str() {
            "In" | "NotIn" if count == 0 => "In and NotIn need values",
            "Exists" | "DoesNotExist" if count > 0 => "Exists and DoesNotExist have no values",
            "In" | "NotIn" | "Exists" | "DoesNotExist" => continue,
            _ => "the operator is one of In, NotIn, Exists and DoesNotExist",
        };
        errors.add(&format!("{path}.matchExpressions[{at}]"), problem);
    }
}

/// Whether a selector matches a namespace that has only the label with its name.
fn matches_name(selector: &LabelSelector, namespace: &str) -> bool {
    let is_name = |key: &str| key == "kubernetes.io/metadata.name";
    let labels = selector.match_labels.iter().flatten();
    let requirements = selector.match_expressions.iter().flatten();
    labels.into_iter().all(|(key, value)| is_name(key) && value == namespace)
        && requirements.into_iter().all(|requirement| {
            let has = is_name(&requirement.key);
            let values = requirement.values.iter().flatten();
            let listed = has && values.into_iter().any(|value| value == namespace);
            match requirement.operator.as_str() {
                "In" => listed,
                "NotIn" => !listed,
                "Exists" => has,
                _ => !has,
            }
        })
}

fn fair_sharing(errors: &mut Errors, fields: &Fields) {
    use PreemptionStrategy::{LessThanInitialShare as Initial, LessThanOrEqualToFinalShare as Final};
    if let Some(sharing) = &fields.fair_sharing {
        let strategies = sharing.preemption_strategies.as_deref().unwrap_or_default();
        if !matches!(strategies, [Final | Initial] | [Final, Initial]) {
            errors.add(
                "fairSharing.preemptionStrategies",
                "it must be [LessThanOrEqualToFinalShare], [LessThanInitialShare], or both in this order",
            );
        }
    }
    let Some(sharing) = &fields.admission_fair_sharing else { return };
    errors.not_negative("admissionFairSharing.usageHalfLifeTime", sharing.usage_half_life_time);
    if sharing.usage_sampling_interval.is_some_and(|interval| !interval.0.is_positive()) {
        errors.add("admissionFairSharing.usageSamplingInterval", "it must be above zero");
    }
    for (resource, weight) in sharing.resource_weights.iter().flatten() {
        if *weight < 0.0 {
            errors.add(
                &format!("admissionFairSharing.resourceWeights[{resource}]"),
                format!("{weight} is negative"),
            );
        }
    }
}

fn quota(errors: &mut Errors, resources: &Resources) {
    let has_prefixes =
        resources.exclude_resource_prefixes.as_ref().is_some_and(|prefixes| !prefixes.is_empty());
    if has_prefixes && resources.quota_check_strategy == Some(QuotaCheckStrategy::IgnoreUndeclared) {
        errors.add(
            "resources.quotaCheckStrategy",
            "excludeResourcePrefixes cannot be combined with IgnoreUndeclared",
        );
    }
    let mut inputs = BTreeSet::new();
    for (at, transformation) in resources.transformations.iter().flatten().enumerate() {
        if !inputs.insert(&transformation.input) {
            let problem = format!("{:?} is transformed twice", transformation.input);
            errors.add(&format!("resources.transformations[{at}].input"), problem);
        }
    }
    let mappings = resources.device_class_mappings.as_deref().unwrap_or_default();
    at_most(errors, "resources.deviceClassMappings", mappings.len(), 16);
    let mut names = BTreeSet::new();
    for (at, mapping) in mappings.iter().enumerate() {
        let path = |field: &str| format!("resources.deviceClassMappings[{at}].{field}");
        if !names.insert(&mapping.name) {
            errors.add(&path("name"), format!("{:?} is there twice", mapping.name));
        }
        if mapping.device_class_names.is_empty() {
            errors.add(&path("deviceClassNames"), "at least one class is needed");
        }
        at_most(errors, &path("deviceClassNames"), mapping.device_class_names.len(), 8);
        for (source_at, source) in mapping.sources.iter().flatten().enumerate() {
            if source.counter.is_some() == source.capacity.is_some() {
                errors.add(
                    &path(&format!("sources[{source_at}]")),
                    "exactly one of counter and capacity is needed",
                );
            }
        }
    }
}

fn at_most(errors: &mut Errors, path: &str, count: usize, max: usize) {
    if count > max {
        errors.add(path, format!("{count} are too many, at most {max} are allowed"));
    }
}

fn multi_kueue(errors: &mut Errors, multi: &MultiKueue) {
    errors.not_negative("multiKueue.gcInterval", multi.gc_interval);
    errors.not_negative("multiKueue.workerLostTimeout", multi.worker_lost_timeout);
    let names = multi.external_frameworks.iter().flatten().map(|framework| framework.name.as_str());
    external(errors, "multiKueue.externalFrameworks", ".name", names);
    if let Some(profile) = &multi.cluster_profile
        && profile.access_providers.as_ref().is_some_and(|providers| !providers.is_empty())
        && profile.credentials_providers.as_ref().is_some_and(|providers| !providers.is_empty())
    {
        errors.add(
            "multiKueue.clusterProfile.credentialsProviders",
            "it cannot be combined with accessProviders",
        );
    }
    let Some(config) = &multi.incremental_dispatcher_config else { return };
    let path = "multiKueue.incrementalDispatcherConfig";
    if multi.dispatcher_name.as_deref() != Some(INCREMENTAL) {
        errors.add(path, format!("it needs dispatcherName: {INCREMENTAL}"));
    }
    if config.step_size.is_some_and(|size| size < 1) {
        errors.add(&format!("{path}.stepSize"), "it must be at least 1");
    }
}

fn transport(errors: &mut Errors, tls: &Tls) {
    let version = tls.min_version.as_deref().unwrap_or_default();
    if !matches!(version, "" | "VersionTLS12" | "VersionTLS13") {
        errors.add("tls.minVersion", format!("{version:?} is not VersionTLS12 or VersionTLS13"));
    }
    if version == "VersionTLS13" && tls.cipher_suites.as_ref().is_some_and(|suites| !suites.is_empty()) {
        errors.add("tls.cipherSuites", "the cipher suites of TLS 1.3 cannot be chosen");
    }
}

fn custom_labels(errors: &mut Errors, labels: &[CustomLabel]) {
    at_most(errors, "metrics.customLabels", labels.len(), CUSTOM_LABELS_MAX);
    let mut names = BTreeSet::new();
    for (at, label) in labels.iter().enumerate() {
        let path = |field: &str| format!("metrics.customLabels[{at}]{field}");
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if !label.name.starts_with(|c: char| c.is_ascii_alphabetic()) || !label.name.chars().all(is_word) {
            errors.add(&path(".name"), "a letter is needed first, then letters, digits and underscores");
        }
        if !names.insert(&label.name) {
            errors.add(&path(".name"), format!("{:?} is there twice", label.name));
        }
        let is_set = |key: &Option<String>| key.as_ref().is_some_and(|key| !key.is_empty());
        if is_set(&label.source_label_key) && is_set(&label.source_annotation_key) {
            errors.add(&path(""), "sourceLabelKey and sourceAnnotationKey exclude each other");
        }
        let values = label.tracked_values.as_deref().unwrap_or_default();
        let of_workload = label.source_kind == Some(SourceKind::Workload);
        if of_workload && values.is_empty() {
            errors.add(&path(".trackedValues"), "sourceKind Workload needs them");
        }
        at_most(errors, &path(".trackedValues"), values.len(), if of_workload { 12 } else { 16 });
        if values.iter().collect::<BTreeSet<_>>().len() < values.len() {
            errors.add(&path(".trackedValues"), "a value is there twice");
        }
    }
}

fn visibility(errors: &mut Errors, fields: &Fields) {
    let Some(server) = &fields.visibility_server else { return };
    if let Some(address) = &server.bind_address
        && address.parse::<std::net::IpAddr>().is_err()
    {
        errors.add("visibilityServer.bindAddress", format!("{address:?} is not an IP address"));
    }
    if server.bind_port == Some(0) {
        errors.add("visibilityServer.bindPort", "it must be between 1 and 65535");
    }
}
