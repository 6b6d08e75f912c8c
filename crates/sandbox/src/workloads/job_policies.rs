//! What failed and succeeded pods mean for a Job: its pod failure policy, its success policy and the back-off limit per index.
//! After `pkg/controller/job` of Kubernetes.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::job_rules::{index_of, indexes, is_failed, ranges, tracked};
use crate::wire::{FailureRule, Job, Pod, Stamp};

/// Annotation of a pod: how many pods of its index failed before it.
pub(super) const FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
/// Annotation of a pod: how many pods of its index failed before it and did not count.
pub(super) const IGNORED_FAILURES: &str = "batch.kubernetes.io/job-index-ignored-failure-count";

/// What becomes of a Job whose pod has failed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// The Job fails, for this reason.
    FailJob(String),
    FailIndex,
    Ignore,
    Count,
}

/// The action of the first rule of the pod failure policy that matches; without one the failure counts.
pub(super) fn action(job: &Job, pod: &Pod) -> Action {
    let rules = job.spec.pod_failure_policy.iter().flat_map(|policy| &policy.rules);
    let found = rules.enumerate().find_map(|(at, rule)| Some((at, rule, matching(rule, pod)?)));
    let Some((at, rule, what)) = found else { return Action::Count };
    match &*rule.action {
        "FailJob" => Action::FailJob(format!("{what} matching FailJob rule at index {at}")),
        "FailIndex" => Action::FailIndex,
        "Ignore" => Action::Ignore,
        _ => Action::Count,
    }
}

/// What of a failed pod a rule matches.
fn matching(rule: &FailureRule, pod: &Pod) -> Option<String> {
    let key = pod.metadata.key();
    if let Some(wanted) = &rule.on_exit_codes {
        let statuses = pod.status.container_statuses.iter().chain(&pod.status.init_container_statuses);
        let named = statuses.filter(|s| wanted.container_name.as_ref().is_none_or(|name| *name == s.name));
        return named
            .filter_map(|status| Some((status, status.state.terminated.as_ref()?.exit_code)))
            .find_map(|(status, code)| {
                let is_listed = wanted.values.contains(&code);
                let matches = code != 0 && if wanted.operator == "NotIn" { !is_listed } else { is_listed };
                matches
                    .then(|| format!("Container {} for pod {key} failed with exit code {code}", status.name))
            });
    }
    let mut patterns = rule.on_pod_conditions.iter();
    let found = patterns.find_map(|pattern| {
        pod.condition(&pattern.kind).filter(|condition| condition.status == pattern.status)
    });
    found.map(|condition| format!("Pod {key} has condition {}", condition.kind))
}

/// Why a failed pod ends the Job.
pub(super) fn fails_job(job: &Job, pods: &[Arc<Pod>]) -> Option<String> {
    job.spec.pod_failure_policy.as_ref()?;
    pods.iter().filter(|pod| is_failed(pod)).find_map(|pod| match action(job, pod) {
        Action::FailJob(why) => Some(why),
        Action::FailIndex | Action::Ignore | Action::Count => None,
    })
}

/// Whether a pod is replaced only after it has ended.
pub(super) fn replaces_ended_only(job: &Job) -> bool {
    job.spec.pod_failure_policy.is_some() || job.spec.pod_replacement_policy.as_deref() == Some("Failed")
}

/// The indexes that have failed. `None` without a limit per index.
pub(super) fn failed_indexes(job: &Job, pods: &[Arc<Pod>]) -> Option<BTreeSet<i64>> {
    let limit = job.spec.backoff_limit_per_index?;
    let mut failed = indexes(job.status.failed_indexes.as_deref().unwrap_or_default());
    let ended = pods.iter().filter(|pod| is_failed(pod) && tracked(pod));
    failed.extend(ended.filter_map(|pod| {
        let has_failed = match action(job, pod) {
            Action::FailIndex => true,
            Action::Count | Action::FailJob(_) => number(pod, FAILURES) >= limit,
            Action::Ignore => false,
        };
        index_of(pod).filter(|index| has_failed && (0..job.spec.completions.unwrap_or(0)).contains(index))
    }));
    Some(failed)
}

/// The failed pods of an index: how many counted and how many did not, and the end of the last one.
pub(super) fn failures(job: &Job, pods: &[Arc<Pod>], index: i64) -> (i64, i64, Option<Stamp>) {
    let before =
        |pod: &&Arc<Pod>| (number(pod, FAILURES) + number(pod, IGNORED_FAILURES), pod.metadata.name.clone());
    // The pods of a suspended Job are deleted without a failure.
    let has_failed = |pod: &Pod| is_failed(pod) && (tracked(pod) || !pod.metadata.is_deleting());
    let of_index = pods.iter().filter(|pod| has_failed(pod) && index_of(pod) == Some(index));
    let Some(last) = of_index.max_by_key(before) else { return (0, 0, None) };
    let is_ignored = action(job, last) == Action::Ignore;
    let ends = last.status.container_statuses.iter();
    let end = ends.filter_map(|status| status.state.terminated.as_ref()?.finished_at).max();
    (
        number(last, FAILURES) + i64::from(!is_ignored),
        number(last, IGNORED_FAILURES) + i64::from(is_ignored),
        end.or(last.metadata.deletion_timestamp),
    )
}

fn number(pod: &Pod, annotation: &str) -> i64 {
    pod.metadata.annotation(annotation).and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// The rule of the success policy that these succeeded indexes satisfy.
pub(super) fn success(job: &Job, succeeded: &BTreeSet<i64>) -> Option<String> {
    let mut rules = job.spec.success_policy.iter().flat_map(|policy| &policy.rules).enumerate();
    let met = rules.find(|(_, rule)| {
        let count = |count: usize| {
            rule.succeeded_count.is_none_or(|wanted| i64::try_from(count).unwrap_or(i64::MAX) >= wanted)
        };
        match &rule.succeeded_indexes {
            Some(text) => {
                let there = |range| succeeded.range(range).count();
                if rule.succeeded_count.is_some() {
                    count(ranges(text).map(there).sum())
                } else {
                    ranges(text).all(|range| {
                        let last_but_first = range.end().saturating_sub(*range.start());
                        usize::try_from(last_but_first).is_ok_and(|others| there(range) > others)
                    })
                }
            }
            None => rule.succeeded_count.is_some() && count(succeeded.len()),
        }
    });
    met.map(|(at, _)| format!("Matched rules at index {at}"))
}
