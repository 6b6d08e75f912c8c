//! What the configuration says about jobs.

use api::kueue::config::{LabelSource, SourceKind};
use api::kueue::jobs::{CopiedKeys, JobKind};
use api::kueue::webhooks::JobRules;
use api::selector::LabelSelector;
use controllers::JobsConfig;
use server::kueue::RegisteredJobs;

use super::Kueue;

impl Kueue {
    /// Which jobs are managed, and how.
    pub(super) fn jobs_config(&self) -> JobsConfig {
        let gate = |name| self.configuration.gates.enabled(name);
        let fields = &self.configuration.fields;
        JobsConfig {
            kinds: self.jobs.kinds.clone(),
            others: self.other_kinds(),
            manages_unnamed: fields.manage_jobs_without_queue_name == Some(true),
            namespaces: self.namespaces(),
            waits_for_pods: self.wait_for_pods().is_some(),
            reclaims_pods: gate("ReclaimablePods"),
            gates_admission: gate("AdmissionGatedBy"),
            slices: gate("ElasticJobsViaWorkloadSlices"),
            copied: self.copied_keys(),
            pods_of_sets_only: self.jobs.pods_of_sets_only,
            parks_lone_pods: gate("SkipReassignmentForPodOwnedWorkloads"),
            frees_deleted_pods: gate("FastQuotaReleaseInPodIntegration"),
            retention_us: self.deactivated_retention_us(),
        }
    }

    /// Which jobs the webhooks suspend and check.
    pub(super) fn job_rules(&self) -> JobRules {
        JobRules {
            frameworks: self.reviewed.kinds.iter().map(|kind| kind.framework.to_owned()).collect(),
            others: self.other_kinds().iter().map(|kind| kind.framework.to_owned()).collect(),
            manages_unnamed: self.configuration.fields.manage_jobs_without_queue_name == Some(true),
            namespaces: self.namespaces(),
            pods_of_sets_only: self.reviewed.pods_of_sets_only,
        }
    }

    /// The kinds that the file names, and another process starts and stops. Pods own no jobs.
    fn other_kinds(&self) -> Vec<&'static JobKind> {
        let named = self.configuration.fields.integrations.as_ref().and_then(|jobs| jobs.frameworks.as_ref());
        let named = named.into_iter().flatten().filter_map(|name| JobKind::of_framework(name));
        let is_own = |kind: &JobKind| self.jobs.kinds.iter().any(|own| own.framework == kind.framework);
        named.filter(|kind| !kind.is_pod() && !is_own(kind)).collect()
    }

    /// The jobs for which webhooks are registered.
    pub(super) fn registered_jobs(&self) -> RegisteredJobs {
        let selector = self.configuration.fields.managed_jobs_namespace_selector.clone().unwrap_or_default();
        RegisteredJobs {
            kinds: self.reviewed.kinds.clone(),
            manages_unnamed: self.configuration.fields.manage_jobs_without_queue_name == Some(true),
            namespaces: selector.value(),
            pods_of_sets_only: self.reviewed.pods_of_sets_only,
        }
    }

    /// What Workloads get from their jobs: what the file names, and what metrics are labelled with.
    fn copied_keys(&self) -> CopiedKeys {
        let fields = &self.configuration.fields;
        let named = fields.integrations.as_ref().and_then(|jobs| jobs.label_keys_to_copy.clone());
        let mut copied =
            CopiedKeys { labels: named.into_iter().flatten().collect(), ..CopiedKeys::default() };
        for label in &self.metrics_config().custom_labels {
            match label.source() {
                _ if label.source_kind != Some(SourceKind::Workload) => {}
                LabelSource::Label(key) => _ = copied.labels.insert(key.to_owned()),
                LabelSource::Annotation(key) => _ = copied.annotations.insert(key.to_owned()),
            }
        }
        copied
    }

    /// The namespaces whose jobs are managed.
    fn namespaces(&self) -> LabelSelector {
        let selector = self.configuration.fields.managed_jobs_namespace_selector.as_ref();
        selector.map_or_else(LabelSelector::default, api::kueue::config::LabelSelector::compiled)
    }

    fn deactivated_retention_us(&self) -> Option<i64> {
        let policies = self.configuration.fields.object_retention_policies.as_ref()?;
        let retention = policies.workloads.as_ref()?.after_deactivated_by_kueue?;
        Some(i64::try_from(retention.0.as_micros()).unwrap_or(i64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::kueue::KueueArgs;

    #[derive(clap::Parser)]
    struct Flags {
        #[command(flatten)]
        kueue: KueueArgs,
    }

    /// What is done about jobs with these lines of the configuration.
    fn jobs_with(lines: &str) -> JobsConfig {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = format!("apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n{lines}");
        std::fs::write(file.path(), text).unwrap();
        let config = file.path().to_str().unwrap();
        let flags = Flags::parse_from(["muster", "--parts", "job=batch/job", "--config", config]);
        flags.kueue.load(true, server::Issuer::Other).unwrap().unwrap().jobs_config()
    }

    #[test]
    fn kinds_that_the_file_names_and_no_part_starts_are_those_of_others() {
        let file = "integrations: {frameworks: [batch/job, pod, ray.io/rayjob]}\n";
        for (lines, expected) in [("", &[][..]), (file, &["ray.io/rayjob"])] {
            let others: Vec<_> = jobs_with(lines).others.iter().map(|kind| kind.framework).collect();
            assert_eq!(others, expected, "{lines}");
        }
    }

    #[test]
    fn ready_pods_are_reported_if_the_file_says_so_and_the_feature_gate_does_not_forbid_it() {
        let waits = "waitForPodsReady: {timeout: 5m}\n";
        let forbidden = format!("{waits}featureGates: {{DisableWaitForPodsReady: true}}\n");
        for (lines, expected) in [("", false), (waits, true), (&*forbidden, false)] {
            assert_eq!(jobs_with(lines).waits_for_pods, expected, "{lines}");
        }
    }
}
