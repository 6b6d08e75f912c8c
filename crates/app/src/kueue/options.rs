//! What Kueue's configuration says about the plan and about metrics, as options of the controller.

use api::kueue::config::{
    GoDuration, PreemptionStrategy, QuotaCheckStrategy, RequeuingTimestamp, WaitForPodsReady,
};
use api::selector::LabelSelector;
use clusters::{ClustersConfig, Dispatcher};
use controllers::{
    FailedNodeRules, FairSharing, KueueOptions, KueueRules, MetricsConfig, PodsReady, ProvisioningConfig,
    TopologyPolicy, UsageRules,
};

use super::Kueue;

impl Kueue {
    /// How Kueue's objects are treated.
    pub(super) fn options(&self) -> KueueOptions {
        let gate = |name| self.configuration.gates.enabled(name);
        let fields = &self.configuration.fields;
        let sharing = fields.fair_sharing.as_ref().map(|sharing| {
            match sharing.preemption_strategies.as_deref().unwrap_or_default() {
                [PreemptionStrategy::LessThanOrEqualToFinalShare] => FairSharing::FinalShare,
                [PreemptionStrategy::LessThanInitialShare] => FairSharing::InitialShare,
                _ => FairSharing::FinalOrInitialShare,
            }
        });
        let workloads =
            fields.object_retention_policies.as_ref().and_then(|policies| policies.workloads.as_ref());
        let retention = workloads.and_then(|workloads| workloads.after_finished);
        KueueOptions {
            fair_sharing: sharing,
            topology: TopologyPolicy {
                fills_gaps: gate("TASProfileMixed"),
                balances: gate("TASBalancedPlacement"),
            },
            retention_us: retention
                .map(|retention| i64::try_from(retention.0.as_micros()).unwrap_or(i64::MAX)),
            rules: self.rules(),
            pods_ready: self.pods_ready(),
            names_causes: gate("UnadmittedWorkloadsObservability"),
            states_at_once: gate("UnadmittedWorkloadsExplicitStatus"),
        }
    }

    /// What the admission check that asks for nodes does, if it is answered.
    pub(super) fn provisioning_config(&self) -> Option<ProvisioningConfig> {
        let deletes_at_eviction = self.configuration.gates.enabled("CleanupProvisioningRequestsOnEviction");
        self.provisions.then_some(ProvisioningConfig { deletes_at_eviction })
    }

    /// How Workloads run in other clusters, if they do.
    pub(super) fn clusters_config(&self) -> Option<ClustersConfig> {
        if !self.clusters || !self.configuration.gates.enabled("MultiKueue") {
            return None;
        }
        let fields = &self.configuration.fields;
        let multi = fields.multi_kueue.clone().unwrap_or_default();
        let us = |time: Option<GoDuration>| {
            time.map_or(0, |time| i64::try_from(time.0.as_micros()).unwrap_or(i64::MAX))
        };
        let steps = multi.incremental_dispatcher_config.and_then(|config| config.step_size);
        let step = steps.and_then(|step| usize::try_from(step).ok()).filter(|step| *step > 0).unwrap_or(3);
        let dispatcher = match multi.dispatcher_name.as_deref() {
            Some("kueue.x-k8s.io/multikueue-dispatcher-incremental") => Dispatcher::Incremental { step },
            Some("kueue.x-k8s.io/multikueue-dispatcher-all-at-once") | None => Dispatcher::AllAtOnce,
            Some(_) => Dispatcher::External,
        };
        let defaults = ClustersConfig::default();
        Some(ClustersConfig {
            namespace: fields.namespace.clone().unwrap_or(defaults.namespace),
            origin: multi.origin.unwrap_or(defaults.origin),
            worker_lost_us: us(multi.worker_lost_timeout),
            collects: us(multi.gc_interval) > 0,
            dispatcher,
            ..ClustersConfig::default()
        })
    }

    /// What the configuration says about ready pods, if it counts.
    pub(super) fn wait_for_pods(&self) -> Option<&WaitForPodsReady> {
        let is_on = self.waits_for_pods && !self.configuration.gates.enabled("DisableWaitForPodsReady");
        self.configuration.fields.wait_for_pods_ready.as_ref().filter(|_| is_on)
    }

    /// How long pods may take to become ready.
    fn pods_ready(&self) -> Option<PodsReady> {
        let wait = self.wait_for_pods()?.clone();
        let strategy = wait.requeuing_strategy.unwrap_or_default();
        let us = |time: GoDuration| i64::try_from(time.0.as_micros()).unwrap_or(i64::MAX);
        Some(PodsReady {
            timeout_us: us(wait.timeout?),
            recovery_us: wait.recovery_timeout.map(us).filter(|us| *us > 0),
            retries_max: strategy.backoff_limit_count.map(i64::from),
            pause_s: strategy.backoff_base_seconds.unwrap_or_default().into(),
            pause_max_s: strategy.backoff_max_seconds.unwrap_or_default().into(),
        })
    }

    /// How Workloads are counted and ordered.
    fn rules(&self) -> KueueRules {
        let gate = |name| self.configuration.gates.enabled(name);
        let resources = self.configuration.fields.resources.clone().unwrap_or_default();
        let wait = self.configuration.fields.wait_for_pods_ready.as_ref();
        let timestamp = wait.and_then(|wait| wait.requeuing_strategy.as_ref()?.timestamp);
        let strategy = resources.quota_check_strategy.filter(|_| gate("QuotaCheckStrategy"));
        KueueRules {
            reclaims_pods: gate("ReclaimablePods"),
            excluded_prefixes: resources.exclude_resource_prefixes.unwrap_or_default(),
            transformations: resources.transformations.unwrap_or_default(),
            ignores_undeclared: strategy == Some(QuotaCheckStrategy::IgnoreUndeclared),
            boosts_priority: gate("PriorityBoost"),
            gates_admission: gate("AdmissionGatedBy"),
            requeues_at_end: timestamp != Some(RequeuingTimestamp::Creation),
            usage: self.usage_rules().filter(|_| gate("AdmissionFairSharing")),
            slices: gate("ElasticJobsViaWorkloadSlices"),
            admits_in_part: gate("PartialAdmission"),
            places_pods: self.places_pods,
            prefers_nodes: gate("TASRespectNodeAffinityPreferred"),
            failed_nodes: FailedNodeRules {
                replaces: gate("TASFailedNodeReplacement"),
                fails_fast: gate("TASFailedNodeReplacementFailFast"),
                heeds_taints: gate("TASReplaceNodeOnNodeTaints"),
                awaits_pods: gate("TASReplaceNodeOnPodTermination"),
                skips_lone_pods: gate("SkipReassignmentForPodOwnedWorkloads"),
            },
            gates_preemption: gate("ConcurrentAdmission") || gate("MultiKueueOrchestratedPreemption"),
            blocks_admission: self.wait_for_pods().and_then(|wait| wait.block_admission) == Some(true),
        }
    }

    fn usage_rules(&self) -> Option<UsageRules> {
        let sharing = self.configuration.fields.admission_fair_sharing.clone()?;
        let us = |time: Option<GoDuration>| {
            time.map_or(0, |time| i64::try_from(time.0.as_micros()).unwrap_or(i64::MAX))
        };
        let weights = sharing.resource_weights.unwrap_or_default();
        Some(UsageRules {
            half_life_us: us(sharing.usage_half_life_time),
            sampling_us: us(sharing.usage_sampling_interval),
            resource_weights: weights.into_iter().map(|(name, weight)| (name, millionths(weight))).collect(),
        })
    }

    /// Which of Kueue's metrics are served.
    pub(super) fn metrics_config(&self) -> MetricsConfig {
        let gate = |name| self.configuration.gates.enabled(name);
        let fields = &self.configuration.fields;
        let metrics = fields.metrics.clone().unwrap_or_default();
        let of_local = metrics.local_queue_metrics.unwrap_or_default();
        let selector =
            of_local.local_queue_selector.map_or_else(LabelSelector::default, |selector| selector.compiled());
        let shows_local = of_local.enable != Some(false) && gate("LocalQueueMetrics");
        MetricsConfig {
            cluster_queue_resources: metrics.enable_cluster_queue_resources == Some(true),
            local_queues: shows_local.then_some(selector),
            cohorts: gate("MetricsForCohorts"),
            shares: fields.fair_sharing.is_some(),
            causes: gate("UnadmittedWorkloadsObservability"),
            custom_labels: metrics.custom_labels.filter(|_| gate("CustomMetricLabels")).unwrap_or_default(),
        }
    }
}

/// A weight in millionths, saturating; zero if it is negative.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the conversion saturates")]
fn millionths(weight: f64) -> u64 {
    (weight * 1e6).round() as u64
}
