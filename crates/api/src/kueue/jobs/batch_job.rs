//! `batch/v1` Jobs. After `pkg/controller/jobs/job` of Kueue v0.19.

use serde_json::{Value, json};

use super::{Finished, Integration, JobKind, MAIN, annotation};
use crate::appwrapper::components::COMPLETION_INDEX;
use crate::kueue::status::ReclaimablePods;

/// The annotation with the fewest pods with which a Job may start.
pub const LEAST_PARALLELISM: &str = "kueue.x-k8s.io/job-min-parallelism";
/// The annotation of a Job whose completions follow its parallelism.
pub const COMPLETIONS_FOLLOW: &str = "kueue.x-k8s.io/job-completions-equal-parallelism";

/// Labels of the template that the Job controller of Kubernetes writes.
const OWN_LABELS: [&str; 4] =
    ["job-name", "controller-uid", "batch.kubernetes.io/job-name", "batch.kubernetes.io/controller-uid"];
/// The one of them that a Workload has, too.
const JOB_NAME: &str = "batch.kubernetes.io/job-name";

/// The row of Jobs.
pub(super) const KIND: JobKind = JobKind {
    framework: "batch/job",
    api_version: "batch/v1",
    kind: "Job",
    plural: "jobs",
    integration: &BatchJob,
};

/// `batch/v1` Jobs.
#[derive(Debug)]
struct BatchJob;

impl Integration for BatchJob {
    fn pod_sets(&self, job: &Value) -> Vec<Value> {
        let mut template = job["spec"]["template"].clone();
        if let Some(labels) = template["metadata"]["labels"].as_object_mut() {
            labels.retain(|key, _| key == JOB_NAME || !OWN_LABELS.contains(&key.as_str()));
        }
        let mut set = json!({"name": MAIN, "count": pods(job), "template": template});
        if let Some(fewest) = fewest_pods(job) {
            set["minCount"] = fewest.into();
        }
        vec![set]
    }

    fn can_grow(&self) -> bool {
        true
    }

    fn index_label(&self) -> Option<&'static str> {
        Some(COMPLETION_INDEX)
    }

    fn templates(&self, _: &Value) -> Vec<String> {
        vec!["/spec/template".into()]
    }

    /// Only a Job that may start with fewer pods changes its parallelism.
    fn set_counts(&self, job: &mut Value, counts: &[u32]) {
        let (Some(count), Some(_)) = (counts.first(), fewest_pods(job)) else { return };
        job["spec"]["parallelism"] = (*count).into();
        if annotation(job, COMPLETIONS_FOLLOW) == Some("true") {
            job["spec"]["completions"] = (*count).into();
        }
    }

    fn own_labels(&self) -> &[&str] {
        &OWN_LABELS
    }

    fn stops_in_steps(&self) -> bool {
        true
    }

    fn has_conditions(&self) -> bool {
        true
    }

    fn is_active(&self, job: &Value) -> bool {
        job["status"]["active"].as_i64().is_some_and(|active| active != 0)
    }

    fn are_pods_ready(&self, job: &Value) -> bool {
        let count = |field: &str| number(job, &format!("/status/{field}")).unwrap_or_default();
        let uncounted = job["status"]["uncountedTerminatedPods"]["succeeded"].as_array().map_or(0, Vec::len);
        u64::from(count("succeeded")) + u64::from(count("ready")) + uncounted as u64 >= u64::from(pods(job))
    }

    fn finished(&self, job: &Value) -> Option<Finished> {
        let conditions = job["status"]["conditions"].as_array()?;
        let ended = conditions.iter().find(|condition| {
            condition["status"] == "True"
                && (condition["type"] == "Complete" || condition["type"] == "Failed")
        })?;
        let message = ended["message"].as_str().unwrap_or_default().to_owned();
        Some(Finished { succeeded: ended["type"] == "Complete", message })
    }

    /// The places of a Job that no pod will use again.
    fn reclaimable(&self, job: &Value) -> Vec<ReclaimablePods> {
        let pods = pods(job);
        let completions = number(job, "/spec/completions").unwrap_or_else(|| parallelism(job));
        let ended = if job["spec"]["completionMode"] == "Indexed" {
            let status = &job["status"];
            ended_indexes(
                ["completedIndexes", "failedIndexes"].map(|field| status[field].as_str().unwrap_or_default()),
                completions,
            )
        } else {
            number(job, "/status/succeeded").unwrap_or_default()
        };
        let left = completions.saturating_sub(ended);
        if pods <= 1 || ended == 0 || left >= pods {
            return Vec::new();
        }
        vec![ReclaimablePods { name: MAIN.into(), count: pods - left }]
    }
}

fn number(job: &Value, pointer: &str) -> Option<u32> {
    job.pointer(pointer)?.as_u64().and_then(|number| u32::try_from(number).ok())
}

fn parallelism(job: &Value) -> u32 {
    number(job, "/spec/parallelism").unwrap_or(1)
}

fn pods(job: &Value) -> u32 {
    number(job, "/spec/completions").unwrap_or(u32::MAX).min(parallelism(job))
}

fn fewest_pods(job: &Value) -> Option<u32> {
    annotation(job, LEAST_PARALLELISM)?.parse().ok()
}

/// The number of indexes in lists such as `1,3-5`, below a limit, each counted once. Intervals that cannot be read are left out.
fn ended_indexes(lists: [&str; 2], limit: u32) -> u32 {
    let interval = |text: &str| -> Option<(u32, u32)> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last) = (first.parse().ok()?, last.parse::<u32>().ok()?.min(limit.checked_sub(1)?));
        (first <= last).then_some((first, last))
    };
    let mut intervals: Vec<(u32, u32)> =
        lists.iter().flat_map(|list| list.split(',')).filter_map(interval).collect();
    intervals.sort_unstable();
    let (mut count, mut next) = (0, 0);
    for (first, last) in intervals {
        let first = first.max(next);
        if first <= last {
            count += last - first + 1;
            next = last + 1;
        }
    }
    count
}
