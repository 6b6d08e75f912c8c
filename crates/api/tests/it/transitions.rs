//! Sequences of transitions, compared with the status that MCAD writes for the same events.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use api::MicroTime;
use api::appwrapper::transition::{self, PodCounts, RequeueReason};
use api::appwrapper::{AppWrapper, Group, Spec, State, Status};
use serde_json::{Value, json};

const FIRST_SEEN: &str = "2022-09-27T21:07:34.251877Z";

fn at(offset_us: i64) -> MicroTime {
    MicroTime(MicroTime::parse(FIRST_SEEN).unwrap().0 + offset_us)
}

fn spec(scheduling: &Value) -> Spec {
    Spec::read(&json!({"priority": 9, "schedulingSpec": scheduling, "resources": {}}), "w").unwrap()
}

/// Type, reason and message of each condition.
fn conditions(status: &Status) -> Vec<String> {
    let parts = |c: &api::appwrapper::Condition| {
        format!("{} {} {}", c.kind, c.reason, c.message).trim_end().to_owned()
    };
    status.conditions.iter().map(parts).collect()
}

/// The status as JSON, without conditions and time stamps.
fn fields(status: &Status) -> Value {
    let mut value = serde_json::to_value(status).unwrap();
    let fields = value.as_object_mut().unwrap();
    fields.retain(|key, _| key != "conditions" && !key.ends_with("timestamp"));
    value
}

fn assert_ordered_time_stamps(status: &Status) {
    let stamps =
        status.conditions.iter().flat_map(|c| [c.last_update_micro_time, c.last_transition_micro_time]);
    let stamps: Vec<_> = status.controllerfirsttimestamp.into_iter().chain(stamps).collect();
    assert!(stamps.is_sorted(), "{stamps:?}");
}

fn dispatched(spec: &Spec, group: Group) -> Status {
    let mut status = Status::default();
    transition::enqueue(&mut status, spec, group, at(0));
    transition::head_of_line(&mut status, at(9_000));
    transition::can_run(&mut status);
    transition::dispatched(&mut status, spec, at(64_000));
    status
}

#[test]
fn a_gang_that_fits_gets_four_conditions() {
    let status = dispatched(&spec(&Value::Null), Group::Mcad);
    assert_eq!(
        conditions(&status),
        ["Init", "Queueing AwaitingHeadOfLine", "HeadOfLine FrontOfQueue.", "Dispatched AppWrapperRunnable"]
    );
    assert_eq!(
        fields(&status),
        json!({
            "canrun": true, "filterignore": true, "queuejobstate": "Dispatched",
            "sender": "before manageQueueJob - afterEtcdDispatching", "state": "Running", "systempriority": 9,
        })
    );
    let wire = serde_json::to_value(&status).unwrap();
    assert_eq!(wire["controllerfirsttimestamp"], FIRST_SEEN);
    assert_eq!(
        wire["conditions"][0],
        json!({
            "lastTransitionMicroTime": "2022-09-27T21:07:34.251879Z", "lastUpdateMicroTime": "2022-09-27T21:07:34.251878Z",
            "status": "True", "type": "Init",
        })
    );
    assert_ordered_time_stamps(&status);
}

#[test]
fn a_gang_that_does_not_fit_backs_off_with_the_texts_of_its_api_group() {
    for (group, queuejobstate, sender) in [
        (Group::Mcad, "HeadOfLine", "before ScheduleNext - setHOL"),
        (Group::Codeflare, "Backoff", "before [backoff] - Rejoining"),
    ] {
        let (spec, mut status) = (spec(&Value::Null), Status::default());
        for round in 0..3 {
            transition::enqueue(&mut status, &spec, group, at(0));
            transition::head_of_line(&mut status, at(9_000 + round));
            transition::back_off(&mut status, group, at(17_000 + round));
        }
        assert_eq!(
            conditions(&status),
            [
                "Init",
                "Queueing AwaitingHeadOfLine",
                "HeadOfLine FrontOfQueue.",
                "Backoff AppWrapperNotRunnable. Insufficient resources to dispatch AppWrapper."
            ]
        );
        assert_eq!(
            fields(&status),
            json!({
                "filterignore": true, "queuejobstate": queuejobstate, "sender": sender, "state": "Pending", "systempriority": 9,
            })
        );
        assert_ordered_time_stamps(&status);

        // A later attempt succeeds: earlier conditions keep their time stamps.
        let queued = status.conditions.clone();
        transition::enqueue(&mut status, &spec, group, at(0));
        transition::head_of_line(&mut status, at(20_000_000));
        transition::can_run(&mut status);
        transition::dispatched(&mut status, &spec, at(20_050_000));
        assert_eq!(status.conditions[..4], queued);
        assert_eq!(conditions(&status)[4], "Dispatched AppWrapperRunnable");
        assert_ordered_time_stamps(&status);
    }
}

#[test]
fn tracked_pods_lead_to_running_hold_completion_and_completed() {
    let mut status = dispatched(&spec(&Value::Null), Group::Codeflare);
    let counts = PodCounts {
        running: 1,
        succeeded: 1,
        cpu_milli: 1000,
        memory_bytes: 3 << 31,
        gpus: 1,
        ..PodCounts::default()
    };
    transition::count_pods(&mut status, &counts, Group::Codeflare, at(1_000_000));
    assert_eq!(
        (status.state, status.sender.as_str()),
        (State::Running, "before [syncQueueJob] Update pod counts")
    );
    transition::hold_completion(&mut status, at(2_000_000));
    assert_eq!(status.sender, "before [UpdateQueueJobs]  setRunningHoldCompletion");
    let counts = PodCounts { running: 0, succeeded: 2, ..counts };
    transition::count_pods(&mut status, &counts, Group::Codeflare, at(3_000_000));
    transition::completed(&mut status, at(3_000_000));
    assert_eq!(
        conditions(&status)[4..],
        ["Running PodsRunning", "RunningHoldCompletion SomeItemsCompleted", "Completed PodsCompleted"]
    );
    assert_eq!(
        fields(&status),
        json!({
            "Succeeded": 2, "filterignore": true, "queuejobstate": "Completed", "sender": "before [UpdateQueueJobs] setCompleted",
            "state": "Completed", "systempriority": 9, "totalcpu": 1000, "totalgpu": 1, "totalmemory": 6_442_450_944_i64,
        })
    );
    assert_ordered_time_stamps(&status);
}

#[test]
fn a_gang_with_too_few_pods_is_requeued_with_growing_times_and_then_deleted() {
    let spec = spec(
        &json!({"minAvailable": 2, "requeuing": {"timeInSeconds": 60, "maxTimeInSeconds": 200, "maxNumRequeuings": 3}}),
    );
    let mut status = dispatched(&spec, Group::Codeflare);
    let reason = RequeueReason::MinPodsNotRunning { minimum: 2, running: 1, completed: 0 };
    let mut times = Vec::new();
    for round in 1..=3 {
        transition::requeue(&mut status, &spec, Group::Codeflare, reason, at(round * 60_000_000));
        assert!(!status.canrun);
        times.push(status.requeueing_s);
        transition::requeued(&mut status, &spec, at(round * 60_000_000 + 10));
        if round < 3 {
            assert_eq!((status.state, status.queuejobstate.as_str()), (State::Pending, "Backoff"));
            transition::enqueue(&mut status, &spec, Group::Codeflare, at(round * 60_000_000 + 20));
            assert_eq!(status.queuejobstate, "Queueing");
            transition::head_of_line(&mut status, at(round * 60_000_000 + 30));
            transition::can_run(&mut status);
            transition::dispatched(&mut status, &spec, at(round * 60_000_000 + 40));
        }
    }
    let message = "Insufficient number of Running and Completed pods, minimum=2, running=1, completed=0.";
    assert_eq!(
        conditions(&status),
        [
            "Init".to_owned(),
            "Queueing AwaitingHeadOfLine".into(),
            "HeadOfLine FrontOfQueue.".into(),
            "Dispatched AppWrapperRunnable".into(),
            format!("PreemptCandidate MinPodsNotRunning {message}"),
            format!("Backoff PreemptionTriggered {message}"),
        ]
    );
    assert_eq!(times, [60, 120, 200]);
    assert_eq!((status.state, status.requeueings), (State::Deleted, 3));
}

#[test]
fn a_gang_past_its_dispatch_limit_fails_with_the_limit_in_its_message() {
    let spec = spec(&json!({"dispatchDuration": {"limit": 30}}));
    let mut status = dispatched(&spec, Group::Mcad);
    assert_eq!(
        status.controllerfirstdispatchtimestamp,
        Some(status.conditions[3].last_transition_micro_time)
    );
    transition::deadline_exceeded(&mut status, spec.dispatch_limit_s, at(30_000_000));
    assert_eq!(
        conditions(&status)[4],
        "PreemptCandidate DispatchDeadlineExceeded Dispatch deadline exceeded. allowed to run for 30 seconds"
    );
    assert_eq!(
        (status.state, status.queuejobstate.as_str(), status.canrun),
        (State::Failed, "Failed", false)
    );
}

#[test]
fn a_gang_with_a_failed_creation_fails_with_the_cause() {
    let mut status = dispatched(&spec(&Value::Null), Group::Mcad);
    transition::creation_failed(&mut status, "default/w", "jobs.batch \"x\" already exists", at(1_000_000));
    assert_eq!(
        conditions(&status)[4],
        "Failed ItemCreationFailure. default/w creation failure: jobs.batch \"x\" already exists"
    );
    assert_eq!((status.state, status.canrun), (State::Failed, false));
}

#[test]
fn a_merge_patch_sets_changed_fields_and_removes_absent_ones() {
    let old = dispatched(&spec(&Value::Null), Group::Mcad);
    assert_eq!(old.merge_patch_from(&old), None);
    let mut new = old.clone();
    new.canrun = false;
    new.message = "waits".into();
    assert_eq!(new.merge_patch_from(&old), Some(json!({"canrun": null, "message": "waits"})));
}

#[test]
fn an_invalid_status_decodes_as_default() {
    let read = |status: Value| {
        serde_json::from_value::<AppWrapper>(json!({"spec": null, "status": status})).unwrap().status
    };
    assert_eq!(read(json!({"conditions": "many"})), Status::default());
    assert_eq!(read(json!({"state": "Unheard"})).state, State::None);
    assert_eq!(read(json!({"systempriority": 1.5})).priority_milli, 1500);
    let status = dispatched(&spec(&Value::Null), Group::Mcad);
    assert_eq!(read(serde_json::to_value(&status).unwrap()), status);
}
