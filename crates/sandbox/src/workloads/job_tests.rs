//! Tests of the decisions of the Job controller.

use serde_json::{Value, json};

use super::super::job_policies::FAILURES;
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
    assert_eq!(intervals(&indexes("7,3-9223372036854775807,x,,-,2-1")), format!("3-{INDEX_MAX}"));
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

/// A failed pod of an index that ended at 100 s, with an exit code and annotations.
fn failed_of(index: i64, name: &str, exit_code: i32, failures: i64) -> Arc<Pod> {
    let annotations = json!({ INDEX: index.to_string(), FAILURES: failures.to_string() });
    let mut pod = (*pod(name, "Failed", &json!({ "namespace": "d", "annotations": annotations }))).clone();
    let state = json!({ "terminated": { "exitCode": exit_code, "finishedAt": "1970-01-01T00:01:40Z" } });
    pod.status.container_statuses = serde_json::from_value(json!([{ "name": "c", "state": state }])).unwrap();
    Arc::new(pod)
}

fn of_target(decision: &Decision, kind: &str) -> (String, String) {
    let condition = condition(&decision.status.conditions, kind).unwrap();
    (condition.reason.clone(), condition.message.clone())
}

#[test]
fn an_index_is_retried_up_to_its_own_limit_and_then_the_others_go_on() {
    let spec =
        json!({ "completionMode": "Indexed", "parallelism": 3, "completions": 3, "backoffLimitPerIndex": 1 });
    let once = [failed_of(1, "a", 1, 0), failed_of(2, "b", 1, 1)];
    let early = decide_at(&job(&spec, &json!({})), &once, 103);
    assert_eq!((early.create, early.wake), (vec![Some(0)], Some(Duration::from_secs(7))));
    let decision = decide_at(&job(&spec, &json!({})), &once, 110);
    assert_eq!(decision.status.failed_indexes.as_deref(), Some("2"));
    assert_eq!(decision.create, [Some(0), Some(1)]);
    assert_eq!(decision.index_failures, BTreeMap::from([(0, (0, 0)), (1, (1, 0))]));
    assert!(truths(&decision.status).is_empty());
    let last = decide_at(&job(&spec, &json!({ "failedIndexes": "2", "completedIndexes": "0,1" })), &[], 110);
    assert_eq!(truths(&last.status), ["FailureTarget", "Failed"]);
    assert_eq!(of_target(&last, "Failed"), ("FailedIndexes".to_owned(), "Job has failed indexes".to_owned()));
}

#[test]
fn a_job_with_too_many_failed_indexes_fails_at_once() {
    let spec = json!({ "completionMode": "Indexed", "parallelism": 4, "completions": 4, "backoffLimitPerIndex": 0,
        "maxFailedIndexes": 1 });
    let pods = [
        failed_of(0, "a", 1, 0),
        failed_of(1, "b", 1, 0),
        pod("c", "Running", &json!({ "annotations": { INDEX: "2" } })),
    ];
    let decision = decide_at(&job(&spec, &json!({})), &pods, 110);
    assert_eq!((truths(&decision.status), decision.delete.len()), (vec!["FailureTarget"], 1));
    let why = "Job has exceeded the specified maximal number of failed indexes";
    assert_eq!(
        of_target(&decision, "FailureTarget"),
        ("MaxFailedIndexesExceeded".to_owned(), why.to_owned())
    );
    let deleted = json!({ "annotations": { INDEX: "2" }, "deletionTimestamp": "1970-01-01T00:01:50Z" });
    let ended = Job { status: decision.status, ..job(&spec, &json!({})) };
    let end = decide_at(&ended, &[pod("c", "Running", &deleted)], 111);
    assert_eq!((end.status.failed_indexes.as_deref(), end.uncounted().1), (Some("0,1"), 1));
    let one = decide_at(&job(&spec, &json!({})), &pods[1..], 110);
    assert_eq!((one.status.failed_indexes.as_deref(), one.create), (Some("1"), vec![Some(0), Some(3)]));
}

#[test]
fn the_pod_failure_policy_ignores_counts_or_fails() {
    let spec = |action: &str| {
        json!({ "completionMode": "Indexed", "parallelism": 1, "completions": 2, "backoffLimitPerIndex": 5, "podFailurePolicy": { "rules": [
            { "action": action, "onExitCodes": { "containerName": "c", "operator": "In", "values": [3, 42] } },
            { "action": "Ignore", "onPodConditions": [{ "type": "DisruptionTarget" }] },
        ] } })
    };
    let failed = [failed_of(0, "a", 42, 0)];
    let decision = decide_at(&job(&spec("FailJob"), &json!({})), &failed, 200);
    let why = "Container c for pod d/a failed with exit code 42 matching FailJob rule at index 0";
    assert_eq!(of_target(&decision, "FailureTarget"), ("PodFailurePolicy".to_owned(), why.to_owned()));
    let decision = decide_at(&job(&spec("FailIndex"), &json!({})), &failed, 200);
    assert_eq!((decision.status.failed_indexes.as_deref(), decision.uncounted().1), (Some("0"), 1));
    assert_eq!(decision.create, [Some(1)]);
    let decision = decide_at(&job(&spec("Ignore"), &json!({})), &failed, 200);
    assert_eq!((decision.uncounted().1, decision.release.len(), &decision.create), (0, 1, &vec![Some(0)]));
    assert_eq!(decision.index_failures, BTreeMap::from([(0, (0, 1))]));
    let mut disrupted = (*failed_of(0, "a", 1, 0)).clone();
    disrupted.status.conditions =
        serde_json::from_value(json!([{ "type": "DisruptionTarget", "status": "True" }])).unwrap();
    let decision = decide_at(&job(&spec("FailJob"), &json!({})), &[Arc::new(disrupted)], 200);
    assert_eq!((decision.uncounted().1, truths(&decision.status).len()), (0, 0));
    let decision = decide_at(&job(&spec("FailJob"), &json!({})), &[failed_of(0, "a", 7, 0)], 200);
    assert_eq!((decision.uncounted().1, &decision.index_failures), (1, &BTreeMap::from([(0, (1, 0))])));
}

#[test]
fn the_success_policy_ends_a_job_before_all_indexes_have_succeeded() {
    let running = [pod("c", "Running", &json!({ "annotations": { INDEX: "3" } }))];
    for (rule, done, met) in [
        (json!({ "succeededIndexes": "0,2" }), "0,2", true),
        (json!({ "succeededIndexes": "0,2" }), "0,1", false),
        (json!({ "succeededIndexes": "0-2", "succeededCount": 2 }), "1,2", true),
        (json!({ "succeededIndexes": "0-2", "succeededCount": 2 }), "2,4", false),
        (json!({ "succeededCount": 2 }), "1,4", true),
        (json!({ "succeededIndexes": "0-9223372036854775807" }), "0-3", false),
        (json!({ "succeededIndexes": "0-9223372036854775807", "succeededCount": 2 }), "1,4", true),
        (json!({ "succeededIndexes": "4-1,0" }), "0", true),
    ] {
        let spec = json!({ "completionMode": "Indexed", "parallelism": 5, "completions": 5,
            "successPolicy": { "rules": [{ "succeededCount": 9 }, rule] } });
        let decision = decide_at(&job(&spec, &json!({ "completedIndexes": done })), &running, 0);
        assert_eq!(holds(&decision.status, "SuccessCriteriaMet"), met, "{rule} with {done}");
        if met {
            let told = ("SuccessPolicy".to_owned(), "Matched rules at index 1".to_owned());
            assert_eq!(of_target(&decision, "SuccessCriteriaMet"), told);
            assert_eq!(decision.delete.len(), 1);
            let ended = decide_at(&Job { status: decision.status, ..job(&spec, &json!({})) }, &[], 0);
            assert_eq!(
                (of_target(&ended, "Complete"), ended.status.completed_indexes.as_deref()),
                (told, Some(done))
            );
        }
    }
}

#[test]
fn a_pod_that_is_deleted_at_once_is_replaced_once_a_second() {
    let leaving = json!({ "creationTimestamp": "1970-01-01T00:00:07Z", "deletionTimestamp": "1970-01-01T00:00:07Z",
        "deletionGracePeriodSeconds": 30 });
    let mut pod = (*pod("a", "Pending", &leaving)).clone();
    pod.spec.node_name = "n".to_owned();
    let pods = [Arc::new(pod)];
    let at = |second: i64| {
        let decision = decide_at(&job(&json!({}), &json!({})), &pods, second);
        (decision.create.len(), decision.wake)
    };
    assert_eq!((at(7), at(8)), ((0, Some(Duration::from_secs(1))), (1, None)));
}

#[test]
fn a_pod_is_replaced_after_it_has_ended_if_the_job_says_so() {
    let leaving = json!({ "deletionTimestamp": "1970-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30 });
    let mut pod = (*pod("a", "Running", &leaving)).clone();
    pod.spec.node_name = "n".to_owned();
    let pods = [Arc::new(pod)];
    let create = |spec: &Value| decide_at(&job(spec, &json!({})), &pods, 0).create.len();
    assert_eq!(create(&json!({})), 1);
    assert_eq!(create(&json!({ "podReplacementPolicy": "TerminatingOrFailed" })), 1);
    assert_eq!(create(&json!({ "podReplacementPolicy": "Failed" })), 0);
}
