//! The cases. Each says in its name what users may rely on, and needs a cluster without nodes of its own.

mod faults;
mod gangs;
mod lifecycle;
mod ray;
mod refused;
mod restarts;
mod rights;
mod rivals;
mod wrapped;

use anyhow::{Context as _, Result};
use futures::future::LocalBoxFuture;

use crate::environment::Environment;
use crate::scene::Scene;

/// Where roles for all namespaces are.
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";

/// One story that has to end well on every cluster.
#[derive(Clone, Copy)]
pub struct Case {
    /// What users may rely on.
    pub name: &'static str,
    play: for<'a> fn(&'a Scene<'a>) -> LocalBoxFuture<'a, Result<()>>,
}

impl Case {
    /// Plays the story on a cluster, and leaves nothing behind.
    pub async fn run(&self, environment: &Environment) -> Result<()> {
        let scene = Scene::open(environment, self.name).await?;
        let played = (self.play)(&scene).await;
        let closed = scene.close().await.context("cannot clean up");
        played.and(closed)
    }
}

/// The case of a name.
pub fn named(name: &str) -> Option<Case> {
    all().iter().copied().find(|case| case.name == name)
}

/// Names all cases once: `$make` gets them as `module::case`, separated by commas.
#[macro_export]
macro_rules! each_case {
    ($make:ident) => {
        $make! {
            gangs::a_gang_waits_whole_until_all_its_pods_have_a_place,
            gangs::what_fits_in_total_but_on_no_node_waits,
            gangs::the_higher_priority_goes_first,
            gangs::within_a_priority_the_older_goes_first,
            gangs::small_gangs_that_end_in_time_pass_a_large_one_that_waits,
            gangs::of_two_gangs_that_exclude_each_other_one_runs_whole,
            gangs::many_gangs_start_together,
            gangs::a_new_node_starts_what_waits_for_it,
            gangs::deleting_a_running_gang_frees_its_place,
            gangs::deleting_a_waiting_gang_leaves_nothing,
            lifecycle::a_job_runs_to_completed_and_its_place_is_free,
            lifecycle::a_failed_job_completes_when_its_author_says_so,
            lifecycle::pods_of_other_items_hold_completion,
            lifecycle::what_never_completes_keeps_running,
            lifecycle::a_gang_with_too_few_pods_is_taken_back_and_given_up,
            lifecycle::the_time_limit_ends_a_gang_and_frees_its_place,
            wrapped::a_job_is_labelled_counted_and_told_as_ever,
            wrapped::a_deployment_and_its_service_run_together,
            wrapped::a_stateful_set_gets_all_its_pods,
            wrapped::objects_without_pods_are_created_at_once,
            wrapped::a_list_is_the_objects_in_it,
            wrapped::a_kind_is_waited_for_until_it_is_defined,
            ray::the_glue_pair_runs_one_after_the_other,
            ray::the_story_of_2022_plays,
            ray::the_condensed_form_waits_for_the_two_gpus_of_its_worker,
            ray::a_ray_job_runs_to_its_end,
            ray::a_ray_job_finds_its_submitter_where_plain_jobs_ran_before,
            ray::a_ray_cluster_that_its_operator_would_ignore_is_held,
            refused::a_template_without_a_kind_does_not_come_in,
            refused::an_object_of_another_namespace_fails_the_gang,
            refused::an_object_that_the_cluster_refuses_fails_the_gang,
            refused::what_belongs_to_somebody_else_is_not_taken,
            refused::what_can_never_fit_says_so_and_blocks_nobody,
            rights::what_may_not_be_wrapped_waits_until_a_role_allows_it,
            restarts::a_controller_killed_at_any_moment_leaves_nothing_half_started,
            restarts::a_new_controller_knows_what_runs_and_what_waits,
            restarts::what_ended_while_nobody_looked_is_noticed,
            faults::an_api_server_that_restarts_leaves_nothing_lost_or_half_started,
            faults::a_store_that_restarts_leaves_nothing_lost_or_half_started,
            faults::what_changed_while_nobody_could_tell_is_noticed,
            faults::who_writes_the_same_wrapper_all_the_time_loses_nothing_and_stops_nobody,
            rivals::of_two_elected_controllers_one_acts_and_the_other_follows,
            rivals::two_controllers_by_mistake_start_no_gang_twice_or_half,
        }
    };
}

macro_rules! table {
    ($($module:ident :: $case:ident),* $(,)?) => {
        const ALL: &[Case] = &[$(Case { name: stringify!($case), play: |scene| Box::pin($module::$case(scene)) }),*];
    };
}
each_case!(table);

/// All cases.
pub fn all() -> &'static [Case] {
    ALL
}
