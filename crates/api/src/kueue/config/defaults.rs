//! The defaults of the configuration.

use super::{
    Fields, GoDuration, LabelRequirement, LabelSelector, LocalQueueMetrics, PreemptionStrategy,
    RequeuingTimestamp, TransformationStrategy,
};

/// Sets the defaults. A file of v1beta1 differs: there, `waitForPodsReady` is off unless it is turned on.
pub(super) fn set(fields: &mut Fields, namespace: &str, is_v1beta1: bool) {
    let namespace = fields.namespace.get_or_insert_with(|| namespace.into()).clone();
    manager(fields);
    if fields.wait_for_pods_ready.is_some() || !is_v1beta1 {
        pods_ready(fields, if is_v1beta1 { 5 * 60 } else { 30 * 60 });
    }
    let frameworks = &mut fields.integrations.get_or_insert_default().frameworks;
    if frameworks.as_ref().is_none_or(Vec::is_empty) {
        *frameworks = Some(vec!["batch/job".into()]);
    }
    fields.managed_jobs_namespace_selector.get_or_insert_with(|| LabelSelector {
        match_labels: None,
        match_expressions: Some(vec![LabelRequirement {
            key: "kubernetes.io/metadata.name".into(),
            operator: "NotIn".into(),
            values: Some(vec!["kube-system".into(), namespace]),
        }]),
    });
    multi_kueue(fields);
    if let Some(sharing) = fields.fair_sharing.as_mut().filter(|_| is_v1beta1) {
        let strategies = sharing.preemption_strategies.get_or_insert_default();
        if strategies.is_empty() {
            *strategies = vec![
                PreemptionStrategy::LessThanOrEqualToFinalShare,
                PreemptionStrategy::LessThanInitialShare,
            ];
        }
    }
    if let Some(sharing) = &mut fields.admission_fair_sharing {
        or_zero(&mut sharing.usage_sampling_interval, 5 * 60);
        sharing.usage_half_life_time.get_or_insert_default();
    }
    if let Some(resources) = &mut fields.resources {
        for transformation in resources.transformations.iter_mut().flatten() {
            transformation.strategy.get_or_insert(TransformationStrategy::Retain);
        }
    }
}

fn manager(fields: &mut Fields) {
    let webhook = fields.webhook.get_or_insert_default();
    webhook.port.get_or_insert(9443);
    or_empty(&mut webhook.cert_dir, "/tmp/k8s-webhook-server/serving-certs");
    let metrics = fields.metrics.get_or_insert_default();
    or_empty(&mut metrics.bind_address, ":8443");
    metrics
        .local_queue_metrics
        .get_or_insert(LocalQueueMetrics { enable: Some(true), local_queue_selector: None });
    let health = fields.health.get_or_insert_default();
    or_empty(&mut health.health_probe_bind_address, ":8081");
    or_empty(&mut health.readiness_endpoint_name, "readyz");
    or_empty(&mut health.liveness_endpoint_name, "healthz");
    let election = fields.leader_election.get_or_insert_default();
    election.leader_elect.get_or_insert(true);
    or_zero(&mut election.lease_duration, 15);
    or_zero(&mut election.renew_deadline, 10);
    or_zero(&mut election.retry_period, 2);
    or_empty(&mut election.resource_lock, "leases");
    or_empty(&mut election.resource_name, "c1f6bfd2.kueue.x-k8s.io");
    let certificates = fields.internal_cert_management.get_or_insert_default();
    if *certificates.enable.get_or_insert(true) {
        certificates.webhook_service_name.get_or_insert_with(|| "kueue-webhook-service".into());
        certificates.webhook_secret_name.get_or_insert_with(|| "kueue-webhook-server-cert".into());
    }
    let client = fields.client_connection.get_or_insert_default();
    client.qps.get_or_insert(300.0);
    client.burst.get_or_insert(500);
    fields.visibility_server.get_or_insert_default().bind_port.get_or_insert(8082);
}

fn pods_ready(fields: &mut Fields, timeout_s: i64) {
    let wait = fields.wait_for_pods_ready.get_or_insert_default();
    or_zero(&mut wait.timeout, timeout_s);
    wait.block_admission.get_or_insert(false);
    wait.recovery_timeout = wait.recovery_timeout.or(wait.timeout);
    let strategy = wait.requeuing_strategy.get_or_insert_default();
    strategy.timestamp.get_or_insert(RequeuingTimestamp::Eviction);
    strategy.backoff_base_seconds.get_or_insert(60);
    strategy.backoff_max_seconds.get_or_insert(3600);
}

fn multi_kueue(fields: &mut Fields) {
    let multi = fields.multi_kueue.get_or_insert_default();
    multi.gc_interval.get_or_insert(GoDuration::from_secs(60));
    or_empty(&mut multi.origin, "multikueue");
    multi.worker_lost_timeout.get_or_insert(GoDuration::from_secs(15 * 60));
    let dispatcher = multi
        .dispatcher_name
        .get_or_insert_with(|| "kueue.x-k8s.io/multikueue-dispatcher-all-at-once".into());
    if dispatcher == "kueue.x-k8s.io/multikueue-dispatcher-incremental" {
        multi.incremental_dispatcher_config.get_or_insert_default().step_size.get_or_insert(3);
    }
}

fn or_empty(field: &mut Option<String>, default: &str) {
    if field.as_ref().is_none_or(String::is_empty) {
        *field = Some(default.into());
    }
}

fn or_zero(field: &mut Option<GoDuration>, default_s: i64) {
    if field.is_none_or(|duration| duration.0.is_zero()) {
        *field = Some(GoDuration::from_secs(default_s));
    }
}
