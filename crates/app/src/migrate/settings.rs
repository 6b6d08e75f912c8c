//! Kueue's configuration: what of it Muster takes, by which values of the chart, and what it does not do.

use std::collections::BTreeMap;

use api::kueue::config::{Configuration, FRAMEWORKS};
use api::kueue::feature_gates::FeatureGates;
use serde_json::{Map, Value, json};

use super::cluster::{Cluster, items, text};
use super::finding::{Finding, Subject};
use super::read::{WEBHOOK_SERVICE, config_maps};
use super::systems::Deployment;

/// The lease that Kueue holds by default, and Muster in its place.
const LEASE: &str = "c1f6bfd2.kueue.x-k8s.io";
/// Fields for which the chart has values of its own.
const OF_CHART: [&str; 5] = ["namespace", "health", "webhook", "internalCertManagement", "leaderElection"];
/// Fields without an effect, and why.
const WITHOUT_EFFECT: [(&str, &str); 4] = [
    ("clientConnection", "has no effect: Muster does not limit its requests in this way"),
    ("controller", "has no effect: Muster has one loop"),
    ("pprofBindAddress", "has no effect: Muster has no profiles of Go"),
    ("visibilityServer", "has no effect: the visibility API is served at Muster's endpoint"),
];
/// The feature gates that Muster reads. A test compares them with its code.
const READ_GATES: [&str; 37] = [
    "AdmissionFairSharing",
    "AdmissionGatedBy",
    "CleanupProvisioningRequestsOnEviction",
    "ConcurrentAdmission",
    "CustomMetricLabels",
    "DisableWaitForPodsReady",
    "ElasticJobsViaWorkloadSlices",
    "FastQuotaReleaseInPodIntegration",
    "LWSImmutableGroupSize",
    "LocalQueueMetrics",
    "MetricsForCohorts",
    "MultiKueue",
    "MultiKueueOrchestratedPreemption",
    "PartialAdmission",
    "PriorityBoost",
    "QuotaCheckStrategy",
    "ReclaimablePods",
    "RejectUpdatesToCQWithInvalidOnFlavors",
    "SkipReassignmentForPodOwnedWorkloads",
    "TASBalancedPlacement",
    "TASFailedNodeReplacement",
    "TASFailedNodeReplacementFailFast",
    "TASMultiLayerTopology",
    "TASProfileMixed",
    "TASReplaceNodeOnNodeTaints",
    "TASReplaceNodeOnPodTermination",
    "TASRespectNodeAffinityPreferred",
    "TASValidateWorkloadSliceSize",
    "TLSOptions",
    "TopologyAwareScheduling",
    "UnadmittedWorkloadsExplicitStatus",
    "UnadmittedWorkloadsObservability",
    "VisibilityOnDemand",
    "WorkloadPriorityClassDefaulting",
    "WorkloadValidateResourcesAreNonNegative",
    "WorkloadValidationForPodSetMetadata",
    // Its kind of jobs is managed without it.
    "SparkApplicationIntegration",
];
/// Gates that Muster does not read because it always does what they switch on.
const ALWAYS_ON: [&str; 4] = [
    "ElasticJobsViaWorkloadSlicesWithTAS",
    "PodIntegrationValidateGroupOwner",
    "PrioritizePreemptorWorkloads",
    "ValidateRayAndSparkJobUpdates",
];
/// The feature gates of controllers that Muster does not have.
const OF_MISSING_PARTS: [(&str, &str); 2] = [
    ("ConcurrentAdmission", "Muster does not try the flavors of a Workload at the same time"),
    ("FailureRecoveryPolicy", "Muster does not end pods that stay on a failed node"),
];

/// What Kueue's configuration means for Muster.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    pub(crate) findings: Vec<Finding>,
    /// `kueue.jobs`.
    pub(crate) jobs: Vec<String>,
    /// `kueue.configuration`.
    pub(crate) configuration: Map<String, Value>,
    /// `certificates.issuer`, if it is not Muster.
    pub(crate) issuer: Option<&'static str>,
    /// The whole configuration in `v1beta2`, if Muster takes it.
    pub(crate) document: Option<Value>,
    pub(crate) gates: FeatureGates,
}

/// Reads the configuration of Kueue's Deployment.
pub(crate) fn settings(cluster: &Cluster, deployment: Option<&Deployment>) -> Settings {
    let mut settings = Settings::default();
    if deployment.is_none() {
        // Whoever runs Kueue's API here has no configuration to take over, and may manage all kinds of jobs.
        settings.jobs = FRAMEWORKS.iter().map(|kind| (*kind).to_owned()).collect();
        settings.document = Some(default_document());
        return settings;
    }
    let found = deployment.and_then(|deployment| file(cluster, deployment));
    let document = match found {
        Some((map, Ok(document))) => {
            settings.findings.push(Finding::kept(map, "is read: its fields follow"));
            document
        }
        Some((map, Err(problem))) => {
            settings.findings.push(Finding::to_do(
                map,
                problem,
                "correct it, so that its fields can be checked",
            ));
            default_document()
        }
        None => {
            settings.findings.extend(deployment.map(|found| without_file(cluster, found)));
            default_document()
        }
    };
    let document = with_flags(document, deployment);
    settings.read(cluster, &document);
    settings
}

fn default_document() -> Value {
    json!({"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration"})
}

/// The configuration in the `ConfigMap` that the Deployment mounts, with the subject of that `ConfigMap`.
fn file(cluster: &Cluster, deployment: &Deployment) -> Option<(Subject, Result<Value, String>)> {
    for name in config_maps(&deployment.pods) {
        let Some(map) = cluster.named("configmaps", &deployment.namespace, name) else { continue };
        let subject = Subject { kind: "ConfigMap".into(), ..Subject::of(map) };
        for content in map["data"].as_object().into_iter().flat_map(Map::values) {
            match serde_saphyr::from_str::<Value>(text(content)) {
                Ok(document) if document["kind"] == "Configuration" => return Some((subject, Ok(document))),
                Err(error) if text(content).contains("kind: Configuration") => {
                    return Some((subject, Err(format!("is not YAML: {error}"))));
                }
                Ok(_) | Err(_) => {}
            }
        }
    }
    None
}

fn without_file(cluster: &Cluster, deployment: &Deployment) -> Finding {
    let subject = Subject {
        kind: "Deployment".into(),
        namespace: deployment.namespace.clone(),
        name: deployment.name.clone(),
    };
    if cluster.unread.iter().any(|unread| unread.resource.starts_with("configmaps ")) {
        let what = "its configuration could not be read, so the commands below have the defaults of Kueue";
        return Finding::to_do(subject, what, "run this check with the right to get its ConfigMap");
    }
    Finding::kept(subject, "has no configuration file: the defaults of Kueue apply")
}

/// Adds the feature gates of the flag `--feature-gates`, which Kueue takes in place of those of the file.
fn with_flags(mut document: Value, deployment: Option<&Deployment>) -> Value {
    let Some(deployment) = deployment else { return document };
    let containers = || items(&deployment.pods["containers"]);
    let arguments =
        containers().flat_map(|container| items(&container["command"]).chain(items(&container["args"])));
    let flags = arguments
        .filter_map(|argument| text(argument).trim_start_matches('-').strip_prefix("feature-gates="));
    for assignment in flags.flat_map(|flag| flag.split(',')) {
        if let Some((gate, value)) = assignment.split_once('=')
            && document.is_object()
        {
            document["featureGates"][gate.trim()] = json!(value.trim() == "true");
        }
    }
    document
}

impl Settings {
    fn read(&mut self, cluster: &Cluster, document: &Value) {
        let parsed = Configuration::parse(document.clone(), "kueue-system");
        // In v1beta1, nothing waits for pods unless the file says so.
        let has_default_wait = is_v1beta2(document);
        let document = Configuration::in_v1beta2(document.clone()).unwrap_or_else(|_| document.clone());
        match parsed {
            Ok(configuration) => {
                self.gates = configuration.gates.clone();
                let names = configuration.fields.integrations.and_then(|jobs| jobs.frameworks);
                self.jobs = names.unwrap_or_default();
                self.document = Some(document.clone());
            }
            Err(errors) => {
                let named = items(&document["integrations"]["frameworks"]).map(|name| text(name).to_owned());
                self.jobs = named.collect();
                self.findings.extend(errors.into_iter().map(|error| {
                    let what = format!("is refused by Muster: {}", error.problem);
                    Finding::to_do(
                        setting(&error.path),
                        what,
                        "correct it, or leave it out of kueue.configuration",
                    )
                }));
            }
        }
        self.certificates(cluster, &document);
        self.lease(&document);
        for (field, value) in document.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null())
        {
            self.field(field, value);
        }
        if document["waitForPodsReady"].is_null() && self.document.is_some() && has_default_wait {
            let what = "is not in the file: Kueue evicts Workloads whose pods are not ready after 30 minutes, Muster does not";
            let remedy = "name waitForPodsReady in kueue.configuration, if it is wanted";
            self.findings.push(Finding::differs(setting("waitForPodsReady"), what).with(remedy));
        }
    }

    /// Who makes the certificate of the webhooks.
    fn certificates(&mut self, cluster: &Cluster, document: &Value) {
        let management = &document["internalCertManagement"];
        if management["enable"] == false {
            let issuer = if cluster.definition("certificates.cert-manager.io").is_some() {
                "cert-manager"
            } else {
                "other"
            };
            self.issuer = Some(issuer);
            let value = format!("certificates.issuer={issuer}");
            let what = "is off: somebody else makes the certificate of Kueue's webhooks";
            self.findings.push(Finding::set(setting("internalCertManagement.enable"), what, value));
        }
        let service = text(&management["webhookServiceName"]);
        if !matches!(service, "" | WEBHOOK_SERVICE) {
            let what =
                format!("is {service}: the chart answers webhooks at the Service {WEBHOOK_SERVICE} alone");
            let remedy = format!(
                "give Kueue's Service and its webhook configurations the name {WEBHOOK_SERVICE} first"
            );
            self.findings.push(Finding::not_served(
                setting("internalCertManagement.webhookServiceName"),
                what,
                remedy,
            ));
        }
    }

    /// The lease that keeps both from acting at the same time.
    fn lease(&mut self, document: &Value) {
        let election = &document["leaderElection"];
        let name = text(&election["resourceName"]);
        let problem = if election["leaderElect"] == false {
            Some("Kueue holds no lease".to_owned())
        } else if !matches!(name, "" | LEASE) {
            Some(format!("Kueue holds the lease {name}, and not {LEASE}"))
        } else {
            None
        };
        if let Some(problem) = problem {
            let what = format!("{problem}: Muster does not notice a Kueue that still runs");
            let remedy = "install Muster when no pod of Kueue is left";
            self.findings.push(Finding::to_do(setting("leaderElection"), what, remedy));
        }
    }

    fn field(&mut self, field: &str, value: &Value) {
        let subject = setting(field);
        if matches!(field, "apiVersion" | "kind") {
            return;
        }
        if OF_CHART.contains(&field) {
            self.findings.push(Finding::kept(subject, "is not taken over: the chart has its own"));
            return;
        }
        if let Some((_, why)) = WITHOUT_EFFECT.iter().find(|(known, _)| *known == field) {
            self.findings.push(Finding::differs(subject, *why));
            return;
        }
        match field {
            "integrations" => self.integrations(value),
            "metrics" => self.metrics(value),
            "resources" => self.resources(value),
            "featureGates" => self.feature_gates(value),
            _ => self.take(field, value.clone()),
        }
    }

    /// Takes a field over.
    fn take(&mut self, field: &str, value: Value) {
        let what = "is served as in Kueue";
        self.findings.push(Finding::set(setting(field), what, format!("kueue.configuration.{field}")));
        self.configuration.insert(field.into(), value);
    }

    fn integrations(&mut self, value: &Value) {
        let mut rest = value.clone();
        if let Some(fields) = rest.as_object_mut() {
            fields.remove("frameworks");
        }
        let what = "the kinds of jobs are managed as in Kueue";
        self.findings.push(Finding::set(setting("integrations.frameworks"), what, "kueue.jobs"));
        let external: Vec<&str> = items(&value["externalFrameworks"]).map(text).collect();
        if !external.is_empty() {
            let what = format!(
                "{}: the Workloads that their controllers make are admitted; a job that one of them owns is taken for a job of its own",
                external.join(", ")
            );
            self.findings.push(Finding::differs(setting("integrations.externalFrameworks"), what));
        }
        if rest.as_object().is_some_and(|fields| !fields.is_empty()) {
            self.take("integrations", rest);
        }
    }

    fn metrics(&mut self, value: &Value) {
        let mut rest = value.clone();
        if let Some(fields) = rest.as_object_mut() {
            fields.remove("bindAddress");
        }
        let what = "Muster serves Kueue's metrics at port 8080 of the Service muster-metrics, with the value metrics.enabled=true";
        let remedy = "set it, and change what scrapes Kueue's metrics";
        self.findings.push(Finding::differs(setting("metrics.bindAddress"), what).with(remedy));
        if rest.as_object().is_some_and(|fields| !fields.is_empty()) {
            self.take("metrics", rest);
        }
    }

    fn resources(&mut self, value: &Value) {
        if items(&value["deviceClassMappings"]).next().is_some() {
            let what = "devices of ResourceClaims are not counted: Workloads use them without quota";
            let remedy = "request devices as resources of containers, or keep Kueue for these queues";
            self.findings.push(Finding::not_served(setting("resources.deviceClassMappings"), what, remedy));
        }
        self.take("resources", value.clone());
    }

    fn feature_gates(&mut self, value: &Value) {
        let named: BTreeMap<String, bool> = serde_json::from_value(value.clone()).unwrap_or_default();
        let default = FeatureGates::default();
        for (gate, is_on) in &named {
            let subject = setting(&format!("featureGates.{gate}"));
            let is_switched = *is_on != default.enabled(gate);
            if let Some((_, why)) = OF_MISSING_PARTS.iter().find(|(known, _)| known == gate)
                && *is_on
            {
                let remedy = "leave the gate out, and do without what it switches on";
                self.findings.push(Finding::not_served(subject, format!("is on: {why}"), remedy));
            } else if ALWAYS_ON.contains(&gate.as_str()) {
                if is_switched && !is_on {
                    let what = "is switched off: Muster always does what it switches on";
                    self.findings.push(Finding::differs(subject, what));
                }
            } else if is_switched && !READ_GATES.contains(&gate.as_str()) && !is_group(gate) {
                let state = if *is_on { "on" } else { "off" };
                let what = format!("is switched {state}: Muster accepts it and does not read it");
                self.findings.push(Finding::differs(subject, what));
            }
        }
        self.take("featureGates", value.clone());
    }
}

/// Whether a name is for all gates of a stage.
fn is_group(gate: &str) -> bool {
    matches!(gate, "AllAlpha" | "AllBeta")
}

fn is_v1beta2(document: &Value) -> bool {
    document["apiVersion"] == "config.kueue.x-k8s.io/v1beta2"
}

fn setting(path: &str) -> Subject {
    Subject::new("Setting", path)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    /// All names in `enabled("…")` and `gate("…")` in a source, or in those below a folder.
    fn read_gates(path: &Path, found: &mut BTreeSet<String>) {
        if path.is_dir() {
            for entry in std::fs::read_dir(path).unwrap() {
                read_gates(&entry.unwrap().path(), found);
            }
            return;
        }
        let text = std::fs::read_to_string(path).unwrap();
        for call in ["enabled(\"", "gate(\""] {
            let names = text.split(call).skip(1).filter_map(|rest| rest.split('"').next());
            found.extend(names.map(str::to_owned));
        }
    }

    #[test]
    fn the_feature_gates_of_which_nothing_is_told_are_those_that_the_program_reads() {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut found = BTreeSet::from(["SparkApplicationIntegration".to_owned()]);
        for path in ["kueue", "kueue.rs", "../../api/src/kueue/webhooks.rs"] {
            read_gates(&sources.join(path), &mut found);
        }
        assert_eq!(READ_GATES.map(str::to_owned).into_iter().collect::<BTreeSet<_>>(), found);
    }
}
