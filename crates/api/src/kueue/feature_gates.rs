//! The feature gates of Kueue v0.19.2: their names, stages, defaults and dependencies (`pkg/features` and `pkg/config` of
//! its module).

use std::collections::BTreeMap;

use super::config::ConfigError;

/// How mature a feature is. It decides what the gates `AllAlpha` and `AllBeta` switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Alpha,
    Beta,
    /// Locked: the gate cannot be switched.
    Stable,
    Deprecated,
    /// Locked: the gate cannot be switched.
    Removed,
}

use Stage::{Alpha, Beta, Deprecated, Removed, Stable};

/// Name, stage and default of each gate, by name.
const GATES: &[(&str, Stage, bool)] = &[
    ("AdmissionFairSharing", Beta, true),
    ("AdmissionGatedBy", Beta, true),
    ("AssignQueueLabelsForPods", Beta, true),
    ("CleanupProvisioningRequestsOnEviction", Beta, true),
    ("ConcurrentAdmission", Alpha, false),
    ("CustomMetricLabels", Alpha, false),
    ("DeferRayServiceFinalizationForRedisCleanup", Beta, true),
    ("DisableWaitForPodsReady", Alpha, false),
    ("ElasticJobsViaWorkloadSlices", Beta, true),
    ("ElasticJobsViaWorkloadSlicesWithTAS", Alpha, false),
    ("FailureRecoveryPolicy", Alpha, false),
    ("FairSharingPreemptWithinNominal", Beta, true),
    ("FairSharingPrioritizeNonBorrowing", Beta, true),
    ("FastQuotaReleaseInPodIntegration", Alpha, false),
    ("FinishOrphanedWorkloads", Beta, true),
    ("FlavorFungibility", Beta, true),
    ("FlavorFungibilityPreserveScanProgress", Beta, true),
    ("HierarchicalCohorts", Stable, true),
    ("KueueDRAIntegration", Beta, true),
    ("KueueDRAIntegrationConsumableCapacity", Alpha, false),
    ("KueueDRAIntegrationExtendedResource", Beta, true),
    ("KueueDRAIntegrationPartitionableDevices", Beta, true),
    ("KueueDRARejectWorkloadsWhenDRADisabled", Beta, true),
    ("LWSImmutableGroupSize", Beta, true),
    ("LocalQueueMetrics", Beta, true),
    ("ManagedJobsNamespaceSelectorAlwaysRespected", Stable, true),
    ("MetricForWorkloadCreationLatency", Beta, true),
    ("MetricsForCohorts", Beta, true),
    ("MultiKueue", Beta, true),
    ("MultiKueueAdaptersForCustomJobs", Beta, true),
    ("MultiKueueAllowInsecureKubeconfigs", Removed, false),
    ("MultiKueueClusterProfile", Alpha, false),
    ("MultiKueueIncrementalDispatcherConfig", Beta, true),
    ("MultiKueueIncrementalDispatcherRespectConfigOrder", Beta, true),
    ("MultiKueueKubeConfigPathValidation", Alpha, false),
    ("MultiKueueManagerQuotaAutomation", Alpha, false),
    ("MultiKueueOrchestratedPreemption", Alpha, false),
    ("MultiKueueRedoAdmissionOnEvictionInWorker", Stable, true),
    ("MultiKueueRemoteSpecSync", Beta, true),
    ("MultiKueueWaitForWorkloadAdmitted", Stable, true),
    ("ObjectRetentionPolicies", Stable, true),
    ("PartialAdmission", Beta, true),
    ("PodIntegrationValidateGroupOwner", Beta, true),
    ("PrioritizePreemptorWorkloads", Alpha, false),
    ("PriorityBoost", Alpha, false),
    ("PrioritySortingWithinCohort", Beta, true),
    ("PropagateBatchJobLabelsToWorkload", Stable, true),
    ("QuotaCheckStrategy", Beta, true),
    ("ReclaimablePods", Beta, true),
    ("RecomputeAssignmentUponPreemptionTargetsOverlap", Alpha, false),
    ("RejectUpdatesToCQWithInvalidOnFlavors", Alpha, false),
    ("RemoveFinalizersWithStrictPatch", Beta, true),
    ("SchedulerLibraryIntegration", Alpha, false),
    ("SchedulerLongRequeueInterval", Alpha, false),
    ("SchedulerTimestampPreemptionBuffer", Alpha, false),
    ("SchedulingEquivalenceHashing", Beta, true),
    ("ShortWorkloadNames", Alpha, false),
    ("SkipAncestorCheckForDeletedWorkloads", Beta, true),
    ("SkipFinalizersForPodsSuspendedByParent", Stable, true),
    ("SkipReassignmentForPodOwnedWorkloads", Beta, true),
    ("SparkApplicationIntegration", Alpha, false),
    ("TASAssignmentsEncodingByHostnamePrefix", Beta, true),
    ("TASBalancedPlacement", Alpha, false),
    ("TASCacheNodeMatchResults", Beta, true),
    ("TASCacheTopologyTree", Alpha, false),
    ("TASCachingRemainingResources", Beta, true),
    ("TASFailedNodeReplacement", Beta, true),
    ("TASFailedNodeReplacementFailFast", Beta, true),
    ("TASHandleOverlappingFlavors", Beta, true),
    ("TASMultiLayerTopology", Beta, true),
    ("TASProfileMixed", Beta, true),
    ("TASRecomputeAssignmentWithinSchedulingCycle", Beta, true),
    ("TASReplaceNodeDueToNotReadyOverFixedTime", Deprecated, false),
    ("TASReplaceNodeOnNodeTaints", Beta, true),
    ("TASReplaceNodeOnPodTermination", Beta, true),
    ("TASRespectNodeAffinityPreferred", Alpha, false),
    ("TASValidateWorkloadSliceSize", Beta, true),
    ("TLSOptions", Beta, true),
    ("TopologyAwareScheduling", Beta, true),
    ("UnadmittedWorkloadsExplicitStatus", Beta, false),
    ("UnadmittedWorkloadsObservability", Beta, false),
    ("ValidateRayAndSparkJobUpdates", Beta, true),
    ("VectorizedResourceRequests", Beta, true),
    ("VisibilityOnDemand", Beta, true),
    ("WorkloadIdentifierAnnotations", Beta, true),
    ("WorkloadPriorityClassDefaulting", Alpha, false),
    ("WorkloadRequestUseMergePatch", Alpha, false),
    ("WorkloadValidateResourcesAreNonNegative", Beta, true),
    ("WorkloadValidationForPodSetMetadata", Beta, true),
];

/// Gates that have no effect unless others are on.
const DEPENDENCIES: &[(&str, &[&str])] = &[
    ("ElasticJobsViaWorkloadSlicesWithTAS", &["ElasticJobsViaWorkloadSlices", "TopologyAwareScheduling"]),
    ("KueueDRAIntegrationConsumableCapacity", &["KueueDRAIntegration"]),
    ("KueueDRAIntegrationExtendedResource", &["KueueDRAIntegration"]),
    ("KueueDRAIntegrationPartitionableDevices", &["KueueDRAIntegration"]),
    ("TASBalancedPlacement", &["TopologyAwareScheduling"]),
    ("TASFailedNodeReplacement", &["TopologyAwareScheduling"]),
    ("TASFailedNodeReplacementFailFast", &["TopologyAwareScheduling", "TASFailedNodeReplacement"]),
    ("TASHandleOverlappingFlavors", &["TopologyAwareScheduling"]),
    ("TASMultiLayerTopology", &["TopologyAwareScheduling"]),
    ("TASProfileMixed", &["TopologyAwareScheduling"]),
    ("TASRecomputeAssignmentWithinSchedulingCycle", &["TopologyAwareScheduling"]),
    ("TASReplaceNodeDueToNotReadyOverFixedTime", &["TopologyAwareScheduling", "TASFailedNodeReplacement"]),
    ("TASReplaceNodeOnNodeTaints", &["TopologyAwareScheduling"]),
    ("TASReplaceNodeOnPodTermination", &["TopologyAwareScheduling", "TASFailedNodeReplacement"]),
    ("TASRespectNodeAffinityPreferred", &["TopologyAwareScheduling"]),
    ("UnadmittedWorkloadsExplicitStatus", &["UnadmittedWorkloadsObservability"]),
];

/// Which features are on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FeatureGates {
    /// The gates that differ from their default.
    switched: BTreeMap<&'static str, bool>,
}

impl FeatureGates {
    /// The gates of `featureGates` in a configuration. A name may also be `AllAlpha` or `AllBeta`, for all gates of this
    /// stage that are not named.
    ///
    /// # Errors
    /// An unknown name, a gate that is locked to its default, and a gate that needs another one which is off.
    pub fn new(named: &BTreeMap<String, bool>) -> Result<Self, Vec<ConfigError>> {
        let mut errors = Vec::new();
        let mut switched = BTreeMap::new();
        for &(gate, stage, default) in GATES {
            let of_stage = match stage {
                Alpha => named.get("AllAlpha"),
                Beta => named.get("AllBeta"),
                Stable | Deprecated | Removed => None,
            };
            let Some(&is_on) = named.get(gate).or(of_stage) else { continue };
            if is_on == default {
                continue;
            }
            if matches!(stage, Stable | Removed) {
                let state = if default { "on" } else { "off" };
                errors.push(error(gate, format!("the feature is always {state}: remove the gate")));
            }
            switched.insert(gate, is_on);
        }
        for name in named.keys().filter(|name| !matches!(name.as_str(), "AllAlpha" | "AllBeta")) {
            if !GATES.iter().any(|(gate, ..)| gate == name) {
                errors.push(error(name, "there is no such feature gate in Kueue v0.19".into()));
            }
        }
        let gates = Self { switched };
        errors.extend(gates.missing_dependencies());
        if errors.is_empty() { Ok(gates) } else { Err(errors) }
    }

    /// Whether a feature is on. A name that is no gate is off.
    pub fn enabled(&self, gate: &str) -> bool {
        let default = || GATES.iter().any(|&(name, _, default)| name == gate && default);
        self.switched.get(gate).copied().unwrap_or_else(default)
    }

    fn missing_dependencies(&self) -> Vec<ConfigError> {
        let on = DEPENDENCIES.iter().filter(|(gate, _)| self.enabled(gate));
        let missing = on.flat_map(|(gate, needed)| {
            let off = needed.iter().filter(|needed| !self.enabled(needed));
            off.map(move |needed| error(gate, format!("{gate} requires {needed} to be enabled")))
        });
        missing.collect()
    }
}

fn error(gate: &str, problem: String) -> ConfigError {
    ConfigError { path: format!("featureGates.{gate}"), problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gates(named: &[(&str, bool)]) -> Result<FeatureGates, Vec<String>> {
        let named = named.iter().map(|&(name, is_on)| (name.to_owned(), is_on)).collect();
        FeatureGates::new(&named).map_err(|errors| errors.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_gate_has_the_default_of_kueue_unless_it_is_switched() {
        let gates = gates(&[("PartialAdmission", false), ("ConcurrentAdmission", true)]).unwrap();
        let enabled = [
            "PartialAdmission",
            "ConcurrentAdmission",
            "TopologyAwareScheduling",
            "PriorityBoost",
            "Nonsense",
        ]
        .map(|gate| gates.enabled(gate));
        assert_eq!(enabled, [false, true, true, false, false]);
    }

    #[test]
    fn the_gates_that_came_with_corrections_may_be_named() {
        let named = [
            ("PodIntegrationValidateGroupOwner", false),
            ("PrioritizePreemptorWorkloads", true),
            ("TASCacheTopologyTree", true),
            ("ValidateRayAndSparkJobUpdates", false),
        ];
        assert!(gates(&named).is_ok());
        assert_eq!(GATES.len(), 89);
        assert!(GATES.is_sorted_by_key(|(name, ..)| name), "by name");
    }

    #[test]
    fn a_stage_switches_the_gates_that_are_not_named() {
        let gates = gates(&[("AllAlpha", true), ("PriorityBoost", false)]).unwrap();
        assert!(gates.enabled("ConcurrentAdmission") && !gates.enabled("PriorityBoost"));
    }

    #[test]
    fn an_impossible_gate_is_refused() {
        for (named, expected) in [
            (("NoSuchGate", true), "featureGates.NoSuchGate: there is no such feature gate in Kueue v0.19"),
            (
                ("HierarchicalCohorts", false),
                "featureGates.HierarchicalCohorts: the feature is always on: remove the gate",
            ),
            (
                ("UnadmittedWorkloadsExplicitStatus", true),
                "featureGates.UnadmittedWorkloadsExplicitStatus: UnadmittedWorkloadsExplicitStatus requires UnadmittedWorkloadsObservability to be enabled",
            ),
        ] {
            assert_eq!(gates(&[named]), Err(vec![expected.to_owned()]));
        }
        assert!(gates(&[("HierarchicalCohorts", true)]).is_ok(), "the default of a locked gate may be named");
        assert_eq!(gates(&[("TopologyAwareScheduling", false)]).unwrap_err().len(), 8);
    }
}
