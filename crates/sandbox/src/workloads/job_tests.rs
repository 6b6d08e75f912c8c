//! Tests of the decisions of the Job controller.

use serde_json::{Value, json};

use super::*;

fn job(spec: &Value, status: &Value) -> Job {
    serde_json::from_value(json!({ "metadata": { "name": "j", "uid": "u" }, "spec": spec, "status": status }))
        .unwrap()
}

fn pod(name: &str, phase: &str, more: &Value) -> Arc<Pod> {
    let mut pod = json!({
        "metadata": { "name": name, "uid": name, "finalizers": [TRACKING] },
        "status": { "phase": phase },
    });
    for (field, value) in more.as_object().into_iter().flatten() {
        pod["metadata"][field] = value.clone();
    }
    Arc::new(serde_json::from_value(pod).unwrap())
}

fn decide_at(job: &Job, pods: &[Arc<Pod>], second: i64) -> Decision {
    decide(job, pods, Timestamp::from_second(second).unwrap(), Pace::new(1.0, 0))
}

fn truths(status: &JobStatus) -> Vec<&str> {
    status.conditions.iter().filter(|c| c.status == "True").map(|c| &*c.kind).collect()
}

#[test]
fn completed_indexes_round_trip_as_intervals() {
    for text in ["", "0", "0,1", "0-2", "0,2-4,7,8"] {
        assert_eq!(intervals(&indexes(text)), text);
    }
}

#[test]
fn active_pods_are_limited_by_parallelism_and_completions() {
    let spec = json!({ "parallelism": 3, "completions": 4 });
    let running = [pod("a", "Running", &json!({}))];
    assert_eq!(decide_at(&job(&spec, &json!({})), &[], 0).create.len(), 3);
    assert_eq!(decide_at(&job(&spec, &json!({ "succeeded": 2 })), &running, 0).create.len(), 1);
    let less = job(&json!({ "parallelism": 0, "completions": 4 }), &json!({}));
    let decision = decide_at(&less, &running, 0);
    assert_eq!((decision.delete.len(), decision.counted_deletes), (1, false));
}

#[test]
fn a_finished_pod_is_uncounted_then_loses_its_finalizer_then_is_counted() {
    let spec = json!({ "parallelism": 1, "completions": 1 });
    let done = [pod("a", "Succeeded", &json!({}))];
    let uncounted = decide_at(&job(&spec, &json!({})), &done, 0);
    assert_eq!((uncounted.status.succeeded, uncounted.uncounted(), uncounted.release.len()), (0, (1, 0), 1));
    assert_eq!(truths(&uncounted.status), ["SuccessCriteriaMet"]);
    let released = [pod("a", "Succeeded", &json!({ "finalizers": [] }))];
    let counted = decide_at(&Job { status: uncounted.status, ..job(&spec, &json!({})) }, &released, 0);
    assert_eq!((counted.status.succeeded, counted.uncounted()), (1, (0, 0)));
    assert_eq!(truths(&counted.status), ["SuccessCriteriaMet", "Complete"]);
}

#[test]
fn failed_pods_are_replaced_after_a_back_off_up_to_the_backoff_limit() {
    let spec = json!({ "backoffLimit": 1 });
    let failed = |name: &str, at: &str| {
        let mut pod = (*pod(name, "Failed", &json!({ "finalizers": [] }))).clone();
        let ended = json!([{ "name": "c", "state": { "terminated": { "exitCode": 1, "finishedAt": at } } }]);
        pod.status.container_statuses = serde_json::from_value(ended).unwrap();
        Arc::new(pod)
    };
    let once = [failed("a", "1970-01-01T00:01:40Z")];
    let decision = decide_at(&job(&spec, &json!({ "failed": 1 })), &once, 103);
    assert_eq!((decision.create.len(), decision.wake), (0, Some(Duration::from_secs(7))));
    assert_eq!(decide_at(&job(&spec, &json!({ "failed": 1 })), &once, 110).create.len(), 1);
    let exceeded = decide_at(&job(&spec, &json!({ "failed": 2 })), &once, 110);
    assert_eq!(truths(&exceeded.status), ["FailureTarget", "Failed"]);
    assert_eq!(exceeded.events, [(true, EXCEEDED.0, EXCEEDED.1)]);
}

#[test]
fn suspension_deletes_pods_without_failures_and_resumption_resets_the_start_time() {
    let running = [pod("a", "Running", &json!({}))];
    let suspended = decide_at(
        &job(&json!({ "suspend": true }), &json!({ "startTime": "1970-01-01T00:00:00Z" })),
        &running,
        9,
    );
    assert_eq!((suspended.delete.len(), suspended.counted_deletes), (1, false));
    assert_eq!(truths(&suspended.status), ["Suspended"]);
    let resumed = decide_at(&Job { status: suspended.status, ..job(&json!({}), &json!({})) }, &[], 50);
    assert_eq!(truths(&resumed.status), Vec::<&str>::new());
    assert_eq!(resumed.status.start_time, Some(Stamp::of(Timestamp::from_second(50).unwrap())));
    assert_eq!(resumed.create.len(), 1);
}

#[test]
fn a_job_past_its_active_deadline_fails() {
    let late = job(&json!({ "activeDeadlineSeconds": 30 }), &json!({ "startTime": "1970-01-01T00:00:00Z" }));
    let running = [pod("a", "Running", &json!({}))];
    assert_eq!(decide_at(&late, &running, 10).wake, Some(Duration::from_secs(20)));
    let decision = decide_at(&late, &running, 30);
    assert_eq!((truths(&decision.status), decision.delete.len()), (vec!["FailureTarget"], 1));
}

#[test]
fn an_indexed_job_creates_the_lowest_free_indexes_and_counts_each_once() {
    let spec = json!({ "completionMode": "Indexed", "parallelism": 3, "completions": 5 });
    let at = |index: &str| json!({ "annotations": { INDEX: index } });
    let pods = [pod("a", "Succeeded", &at("1")), pod("b", "Running", &at("2"))];
    let decision = decide_at(&job(&spec, &json!({ "completedIndexes": "0" })), &pods, 0);
    assert_eq!(decision.create, [Some(3), Some(4)]);
    assert_eq!(decision.status.completed_indexes.as_deref(), Some("0,1"));
    assert_eq!(decision.status.succeeded, 2);
}
