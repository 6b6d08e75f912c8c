//! The cases. The name of a case states its condition and outcome. A case needs a cluster without nodes.

mod cluster_faults;
mod controller_restarts;
mod gangs;
mod lifecycle;
mod missing;
mod multiple_controllers;
mod mutators;
mod pod_rules;
mod queues;
mod ray;
mod rbac;
mod rejected;
mod replacement;
mod scaling;
pub mod tenants;
mod webhook;
mod wrapped;

use anyhow::{Context as _, Result};
use futures::future::LocalBoxFuture;

use crate::environment::Environment;
use crate::fixture::Fixture;

/// The path of the collection of cluster roles.
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";

/// One end-to-end test.
#[derive(Clone, Copy)]
pub struct Case {
    /// The condition and the outcome.
    pub name: &'static str,
    body: for<'a> fn(&'a Fixture<'a>) -> LocalBoxFuture<'a, Result<()>>,
}

impl Case {
    /// Runs the case on a cluster, and cleans up.
    pub async fn run(&self, environment: &Environment) -> Result<()> {
        let fixture = Fixture::open(environment, self.name).await?;
        let result = (self.body)(&fixture).await;
        let closed = fixture.close().await.context("cannot clean up");
        result.and(closed)
    }
}

/// The case with this name.
pub fn named(name: &str) -> Option<Case> {
    all().copied().find(|case| case.name == name)
}

/// The list of all cases: calls the macro `$make` with `module::case`, separated by commas.
#[macro_export]
macro_rules! each_case {
    ($make:ident) => {
        $make! {
            gangs::a_gang_waits_whole_until_all_its_pods_fit,
            gangs::a_gang_that_fits_only_in_total_waits,
            gangs::the_gang_with_higher_priority_is_dispatched_first,
            gangs::gangs_of_equal_priority_are_dispatched_in_creation_order,
            gangs::a_small_gang_with_a_deadline_is_backfilled_past_a_large_one,
            gangs::one_of_two_gangs_that_exclude_each_other_runs_whole,
            gangs::twenty_gangs_that_fit_together_all_run,
            gangs::a_pending_gang_is_dispatched_when_enough_nodes_join,
            gangs::deleting_a_running_gang_releases_its_capacity,
            gangs::a_pending_gang_that_is_deleted_never_starts,
            lifecycle::a_completed_job_releases_its_capacity,
            lifecycle::a_failed_job_completes_when_completionstatus_lists_failed,
            lifecycle::a_running_second_item_holds_completion,
            lifecycle::a_gang_without_completing_items_keeps_running,
            lifecycle::a_gang_below_min_available_is_requeued_then_deleted,
            lifecycle::a_gang_past_its_dispatch_limit_fails_and_releases_its_capacity,
            wrapped::a_wrapped_job_gets_mcad_labels_counts_and_conditions,
            wrapped::a_wrapped_deployment_and_service_run_and_are_deleted_together,
            wrapped::a_wrapped_stateful_set_starts_all_its_pods,
            wrapped::items_without_pods_are_dispatched_at_once,
            wrapped::a_wrapped_list_creates_each_of_its_objects,
            wrapped::a_gang_of_an_unknown_kind_waits_for_its_definition,
            ray::the_second_of_two_glue_ray_clusters_waits_for_the_first,
            ray::an_autoscaling_ray_cluster_of_the_old_api_group_queues_and_runs,
            ray::a_condensed_wrapper_waits_for_the_gpus_of_its_worker,
            ray::a_wrapped_ray_job_completes_and_is_deleted,
            ray::a_ray_job_completes_beside_a_plain_job,
            ray::an_invalid_ray_cluster_is_not_queued,
            ray::a_cluster_of_the_codeflare_sdk_runs_beside_its_ingresses,
            missing::a_deployment_that_is_deleted_by_hand_releases_its_places,
            missing::a_job_that_was_removed_while_no_controller_ran_is_complete,
            missing::a_suspended_job_is_requeued_after_its_patience_with_the_reason,
            missing::a_deployment_that_is_orphaned_gets_its_later_pods_without_a_gate,
            pod_rules::pods_that_name_their_node_start_there_together,
            pod_rules::trainers_with_anti_affinity_wait_for_a_node_each,
            pod_rules::pods_with_a_host_port_wait_for_a_node_each,
            pod_rules::pods_with_a_hard_spread_start_only_when_all_keep_the_skew,
            pod_rules::pods_join_a_foreign_pod_in_its_zone,
            pod_rules::a_foreign_pod_keeps_a_gang_away_with_its_anti_affinity,
            pod_rules::a_replacement_keeps_the_rules_of_its_gang_also_after_a_restart,
            pod_rules::pods_run_in_the_zone_of_the_volume_of_their_claim,
            mutators::the_overhead_of_a_runtime_class_counts,
            mutators::the_default_requests_of_a_limit_range_count,
            mutators::a_gang_beyond_a_limit_range_waits_with_the_refusal,
            mutators::a_gang_leaves_room_for_the_daemons_of_a_new_node,
            rejected::a_template_without_a_kind_fails_validation,
            rejected::an_item_in_another_namespace_fails_the_gang,
            rejected::an_item_that_the_api_server_rejects_fails_the_gang,
            rejected::an_item_that_already_exists_fails_the_gang,
            rejected::a_gang_that_can_never_fit_reports_it_and_blocks_no_other,
            rbac::a_gang_of_a_forbidden_kind_waits_until_a_role_grants_it,
            controller_restarts::a_killed_controller_leaves_no_gang_half_started,
            controller_restarts::a_restarted_controller_recovers_running_and_pending_gangs,
            controller_restarts::a_restarted_controller_sees_gangs_that_ended_meanwhile,
            cluster_faults::an_api_server_restart_loses_no_gang,
            cluster_faults::an_etcd_restart_loses_no_gang,
            cluster_faults::changes_during_a_disconnect_are_found_by_a_new_list,
            cluster_faults::concurrent_writes_to_a_wrapper_lose_no_update,
            replacement::a_stateful_set_keeps_running_while_its_nodes_are_drained,
            replacement::the_head_and_the_worker_of_a_ray_cluster_move_from_drained_nodes,
            replacement::a_failed_pod_of_a_job_is_retried_at_its_place,
            replacement::a_rolling_update_of_a_deployment_moves_its_places_with_its_pods,
            replacement::a_rolling_update_on_a_full_cluster_passes_each_place_on,
            replacement::a_node_that_flaps_disturbs_no_gang,
            replacement::a_gang_moves_as_a_whole_from_a_drained_rack,
            replacement::a_gang_without_a_free_node_is_requeued_after_its_whole_patience,
            scaling::workers_of_an_autoscaling_ray_cluster_get_places_and_give_them_back,
            scaling::a_stateful_set_that_is_scaled_up_and_down_is_charged_for_its_pods,
            multiple_controllers::only_the_leader_of_two_controllers_dispatches,
            multiple_controllers::two_controllers_without_election_start_no_gang_twice_or_half,
            queues::a_job_in_a_queue_waits_until_its_quota_is_free,
            queues::two_ray_jobs_take_turns_on_one_gpu,
            queues::a_preempted_ray_job_comes_back_and_leaves_no_suspended_cluster,
            queues::a_borrowed_gpu_is_reclaimed_by_its_team,
            queues::jobs_in_a_queue_outlive_killed_controllers,
            tenants::a_tenant_does_no_more_through_an_app_wrapper_with_the_webhook,
            tenants::a_tenant_does_what_the_table_says_without_the_webhook,
        }
    };
}

macro_rules! table {
    ($($module:ident :: $case:ident),* $(,)?) => {
        [$(Case { name: stringify!($case), body: |fixture| Box::pin($module::$case(fixture)) }),*]
    };
}

/// The cases that run with every controller.
const EVERYWHERE: &[Case] = &each_case!(table);

/// The cases for controllers that are processes, whose webhook the API server calls over HTTPS.
const WITH_WEBHOOKS: &[Case] = &table![
    webhook::renewed_certificates_and_a_new_leader_hold_up_no_author,
    webhook::without_a_replica_only_app_wrappers_are_refused,
    mutators::a_sidecar_that_a_webhook_injects_counts,
];

/// All cases.
pub fn all() -> impl Iterator<Item = &'static Case> {
    EVERYWHERE.iter().chain(WITH_WEBHOOKS)
}
