//! Tests of the decisions of the RayJob controller.

use super::*;

fn job(spec: &Value, status: &Value) -> RayJob {
    let template = json!({ "spec": { "containers": [{ "name": "head" }] } });
    let mut job = json!({
        "metadata": { "name": "demo", "namespace": "d", "uid": "u", "generation": 1 },
        "spec": { "entrypoint": "true", "rayClusterSpec": { "headGroupSpec": { "template": template } } },
        "status": status,
    });
    for (field, value) in spec.as_object().into_iter().flatten() {
        job["spec"][field] = value.clone();
    }
    serde_json::from_value(job).unwrap()
}

fn cluster(state: &str) -> RayCluster {
    serde_json::from_value(
        json!({ "metadata": { "name": "demo-x", "namespace": "d" }, "status": { "state": state } }),
    )
    .unwrap()
}

fn observe<'a>(job: &'a RayJob, cluster: Option<&'a RayCluster>, second: i64) -> Observed<'a> {
    Observed {
        job,
        cluster,
        submitter: Some(Submitter::Active),
        submitter_exists: false,
        submitter_ended_at: None,
        ray_info: RayInfo::NotFound,
        serial: 0,
        now: Timestamp::from_second(second).unwrap(),
        pace: Pace::new(1.0, 0),
    }
}

fn known(status: &'static str) -> RayInfo {
    RayInfo::Found { status, message: String::new(), start: Stamp::of(Timestamp::UNIX_EPOCH), end: None }
}

fn state(decision: &Decision) -> &str {
    decision.status.job_deployment_status.as_deref().unwrap_or_default()
}

#[test]
fn a_new_job_gets_names_then_a_cluster_then_a_submitter() {
    let new = job(&json!({}), &json!({}));
    let begun = decide(&observe(&new, None, 5));
    assert_eq!(state(&begun), "Initializing");
    let name = begun.status.ray_cluster_name.clone().unwrap();
    assert!(name.starts_with("demo-") && name.len() == 10, "{name}");
    assert!(begun.status.job_id.as_ref().unwrap().starts_with("demo-"));
    let begun = RayJob { status: begun.status, ..new };
    assert_eq!(decide(&observe(&begun, None, 5)).steps, [Step::CreateCluster(name)]);
    assert_eq!(decide(&observe(&begun, Some(&cluster("")), 5)).steps, []);
    let ready = cluster("ready");
    let decision = decide(&observe(&begun, Some(&ready), 5));
    assert_eq!((state(&decision), decision.steps.as_slice()), ("Running", &[Step::CreateSubmitter][..]));
    assert_eq!(decision.status.dashboard_url.as_deref(), Some("demo-x-head-svc.d.svc.cluster.local:8265"));
}

#[test]
fn a_job_finishes_with_its_submitter_and_is_retried_up_to_its_backoff_limit() {
    let running =
        json!({ "jobDeploymentStatus": "Running", "jobId": "i", "startTime": "1970-01-01T00:00:00Z" });
    let ready = cluster("ready");
    for (name, backoff, submitter, ray_info, expected, reason) in [
        ("both succeeded", 0, Submitter::Succeeded, known("SUCCEEDED"), "Complete", None),
        ("waits for the submitter", 0, Submitter::Active, known("SUCCEEDED"), "Running", None),
        ("failed for good", 0, Submitter::Failed, known("FAILED"), "Failed", Some("AppFailed")),
        ("failed, again", 1, Submitter::Failed, known("FAILED"), "Retrying", Some("AppFailed")),
        ("never submitted", 0, Submitter::Failed, RayInfo::NotFound, "Failed", Some("SubmissionFailed")),
    ] {
        let job = job(&json!({ "backoffLimit": backoff }), &running);
        let mut observed = observe(&job, Some(&ready), 5);
        observed.submitter = Some(submitter);
        observed.submitter_exists = true;
        observed.ray_info = ray_info;
        let decision = decide(&observed);
        assert_eq!((state(&decision), decision.status.reason.as_deref()), (expected, reason), "{name}");
    }
}

#[test]
fn suspension_resets_the_status_once_cluster_and_submitter_are_deleted() {
    let status =
        json!({ "jobDeploymentStatus": "Running", "jobId": "i", "rayClusterName": "demo-x", "failed": 1 });
    let suspended = job(&json!({ "suspend": true, "shutdownAfterJobFinishes": true }), &status);
    let ready = cluster("ready");
    let mut observed = observe(&suspended, Some(&ready), 5);
    observed.submitter_exists = true;
    let decision = decide(&observed);
    assert_eq!(state(&decision), "Suspending");
    let suspending = RayJob { status: decision.status, ..suspended.clone() };
    let mut observed = observe(&suspending, Some(&ready), 5);
    observed.submitter_exists = true;
    let decision = decide(&observed);
    assert_eq!(decision.steps, [Step::DeleteCluster, Step::DeleteSubmitter]);
    assert!(
        decision.wake.is_some(),
        "KubeRay polls, as nobody may tell it of the end of what it does not own"
    );
    let decision = decide(&observe(&suspending, None, 5));
    assert_eq!((state(&decision), decision.status.job_id.as_ref()), ("Suspended", None));
    assert_eq!(decision.status.failed, Some(1));
    let resumed = job(&json!({}), &json!(decision.status));
    assert_eq!(state(&decide(&observe(&resumed, None, 5))), "");
}

#[test]
fn a_job_that_failed_validation_stays_in_this_state() {
    let invalid = job(&json!({ "suspend": true }), &json!({}));
    let decision = decide(&observe(&invalid, None, 5));
    assert_eq!(state(&decision), "ValidationFailed");
    let corrected = job(&json!({}), &json!(decision.status));
    let decision = decide(&observe(&corrected, None, 5));
    assert_eq!((state(&decision), decision.steps.len()), ("ValidationFailed", 0));
}

#[test]
fn an_exceeded_deadline_fails_a_job_without_retry_and_its_cluster_is_deleted_after_the_ttl() {
    let spec = json!({
        "activeDeadlineSeconds": 100, "backoffLimit": 3, "shutdownAfterJobFinishes": true, "ttlSecondsAfterFinished": 20,
    });
    let status = json!({ "jobDeploymentStatus": "Running", "startTime": "1970-01-01T00:00:00Z" });
    let running = job(&spec, &status);
    assert_eq!(decide(&observe(&running, None, 40)).wake, Some(Duration::from_mins(1)));
    let late = decide(&observe(&running, None, 100));
    assert_eq!((state(&late), late.status.reason.as_deref()), ("Failed", Some("DeadlineExceeded")));
    let failed = RayJob { status: late.status, ..running };
    let ready = cluster("ready");
    assert_eq!(decide(&observe(&failed, Some(&ready), 110)).wake, Some(Duration::from_secs(10)));
    assert_eq!(decide(&observe(&failed, Some(&ready), 120)).steps, [Step::DeleteCluster]);
}
