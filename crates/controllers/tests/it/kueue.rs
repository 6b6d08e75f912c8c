//! Workloads of Kueue: admission, waiting, preemption, and the statuses of their queues.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use crate::common::kueue::*;
use crate::common::{Cluster, Group};
use controllers::{Config, Kueue};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use kube::Client;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::client::Body;
use serde_json::json;
use tower::ServiceExt;

#[tokio::test(start_paused = true)]
async fn a_workload_is_admitted_with_its_flavors_and_the_next_one_says_what_it_lacks() {
    let cluster = kueue_cluster().await;
    queue(&cluster, "team", 4, json!({})).await;
    let _controller = kueue_controller(&cluster);
    submit(&cluster, "first", "team", 0, 3, 1).await;
    let first = admitted(&cluster, "first").await;
    assert_eq!(
        first.data["status"]["admission"],
        json!({"clusterQueue": "team", "podSetAssignments": [
            {"name": "main", "count": 3, "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": "3"}}
        ]})
    );
    assert_eq!(condition(&first, "QuotaReserved").unwrap()["message"], "Quota reserved in ClusterQueue team");
    submit(&cluster, "second", "team", 0, 2, 1).await;
    assert_eq!(
        waits(&cluster, "second", "Pending").await,
        "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, 1 more needed"
    );
    submit(&cluster, "never", "team", 0, 5, 1).await;
    assert_eq!(
        waits(&cluster, "never", "Pending").await,
        "couldn't assign flavors to pod set main: insufficient quota for cpu in flavor default, previously considered \
         podsets requests (0) + current podset request (5) > maximum capacity (4)"
    );
    let status = queue_status(&cluster, "team", |status| status["pendingWorkloads"] == 2).await;
    assert_eq!((&status["reservingWorkloads"], &status["admittedWorkloads"]), (&json!(1), &json!(1)));
    let usage = json!([{"name": "default", "resources": [{"name": "cpu", "total": "3", "borrowed": "0"}]}]);
    assert_eq!((&status["flavorsReservation"], &status["flavorsUsage"]), (&usage, &usage));
    finish(&cluster, "first").await;
    admitted(&cluster, "second").await;
    let events = cluster.events().await;
    for expected in [
        "first QuotaReserved: Quota reserved in ClusterQueue team, wait time since queued was 0s",
        "first Admitted: Admitted by ClusterQueue team, wait time since reservation was 0s",
    ] {
        assert!(events.iter().any(|event| event.contains(expected)), "{expected}: {events:#?}");
    }
    assert_eq!(cluster.violations(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_workload_of_higher_priority_preempts_and_starts_when_the_quota_is_released() {
    let cluster = kueue_cluster().await;
    let preemption = json!({"preemption": {"withinClusterQueue": "LowerPriority"}});
    queue(&cluster, "team", 4, preemption).await;
    let _controller = kueue_controller(&cluster);
    submit(&cluster, "low", "team", 1, 4, 1).await;
    admitted(&cluster, "low").await;
    submit(&cluster, "high", "team", 2, 2, 1).await;
    let evicted = |object: &DynamicObject| is(object, "Evicted", "True", "Preempted");
    let low = cluster.wait(&workloads(), "default", "low", evicted).await;
    assert!(
        is(&low, "Preempted", "True", "InClusterQueue") && is(&low, "QuotaReserved", "True", "QuotaReserved")
    );
    let high = cluster.api(&workloads(), "default").get("high").await.unwrap();
    let uid = high.metadata.uid.unwrap();
    assert_eq!(
        condition(&low, "Preempted").unwrap()["message"],
        format!(
            "Preempted to accommodate a workload (UID: {uid}, JobUID: UNKNOWN) due to prioritization in the \
             ClusterQueue; preemptor path: /team; preemptee path: /team"
        )
    );
    assert_eq!(
        waits(&cluster, "high", "Pending").await,
        "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, 2 more needed. \
         Pending the preemption of 1 workload(s)"
    );
    release(&cluster, "low").await;
    admitted(&cluster, "high").await;
    let lacks = |object: &DynamicObject| {
        let known = condition(object, "QuotaReserved").and_then(|known| known["message"].as_str());
        known.is_some_and(|text| {
            text.ends_with("insufficient unused quota for cpu in flavor default, 2 more needed")
        })
    };
    cluster.wait(&workloads(), "default", "low", lacks).await;
    finish(&cluster, "high").await;
    let low = admitted(&cluster, "low").await;
    assert!(is(&low, "Evicted", "False", "QuotaReserved") && is(&low, "Preempted", "False", "QuotaReserved"));
}

#[tokio::test(start_paused = true)]
async fn a_workload_whose_queue_cannot_admit_says_which_and_why() {
    let cluster = kueue_cluster().await;
    let _controller = kueue_controller(&cluster);
    submit(&cluster, "w", "team", 0, 1, 1).await;
    assert_eq!(waits(&cluster, "w", "Inadmissible").await, "LocalQueue team doesn't exist");
    create(&cluster, "LocalQueue", "localqueues", "team", json!({"clusterQueue": "team"})).await;
    let message = |text: &'static str| {
        move |object: &DynamicObject| {
            condition(object, "QuotaReserved").is_some_and(|known| known["message"] == text)
        }
    };
    cluster.wait(&workloads(), "default", "w", message("ClusterQueue team doesn't exist")).await;
    let groups = json!([{"coveredResources": ["cpu"], "flavors": [
        {"name": "missing", "resources": [{"name": "cpu", "nominalQuota": 4}]}
    ]}]);
    let spec = json!({"namespaceSelector": {}, "resourceGroups": groups});
    create(&cluster, "ClusterQueue", "clusterqueues", "team", spec).await;
    cluster.wait(&workloads(), "default", "w", message("ClusterQueue team is inactive")).await;
    let status = queue_status(&cluster, "team", |status| status["conditions"].is_array()).await;
    assert_eq!(
        (&status["conditions"][0]["reason"], &status["conditions"][0]["message"]),
        (
            &json!("FlavorNotFound"),
            &json!("Can't admit new workloads: references missing ResourceFlavor(s): missing.")
        )
    );
    create(&cluster, "ResourceFlavor", "resourceflavors", "missing", json!({})).await;
    admitted(&cluster, "w").await;
    let api = cluster.api(&cluster_queues(), "");
    let drain = Patch::Merge(json!({"spec": {"stopPolicy": "HoldAndDrain"}}));
    api.patch("team", &PatchParams::default(), &drain).await.unwrap();
    let evicted = |object: &DynamicObject| is(object, "Evicted", "True", "ClusterQueueStopped");
    cluster.wait(&workloads(), "default", "w", evicted).await;
}

#[tokio::test(start_paused = true)]
async fn a_new_controller_keeps_what_was_admitted_and_admits_no_more_than_the_quota() {
    let cluster = kueue_cluster().await;
    queue(&cluster, "team", 4, json!({})).await;
    let first = kueue_controller(&cluster);
    submit(&cluster, "one", "team", 0, 3, 1).await;
    let before = admitted(&cluster, "one").await;
    cluster.settled().await;
    drop(first);
    submit(&cluster, "two", "team", 9, 2, 1).await;
    submit(&cluster, "three", "team", 0, 1, 1).await;
    let _second = kueue_controller(&cluster);
    admitted(&cluster, "three").await;
    let message = waits(&cluster, "two", "Pending").await;
    assert!(message.ends_with("1 more needed") || message.ends_with("2 more needed"), "{message}");
    let after = cluster.api(&workloads(), "default").get("one").await.unwrap();
    assert_eq!(before.metadata.resource_version, after.metadata.resource_version);
}

#[tokio::test(start_paused = true)]
async fn queues_of_a_cohort_lend_and_reclaim_their_quota() {
    let cluster = kueue_cluster().await;
    let reclaim = json!({"cohortName": "all", "preemption": {"reclaimWithinCohort": "Any"}});
    queue(&cluster, "lender", 2, reclaim).await;
    queue(&cluster, "borrower", 2, json!({"cohortName": "all"})).await;
    let _controller = kueue_controller(&cluster);
    submit(&cluster, "large", "borrower", 9, 3, 1).await;
    admitted(&cluster, "large").await;
    let status = queue_status(&cluster, "borrower", |status| status["admittedWorkloads"] == 1).await;
    assert_eq!(
        status["flavorsUsage"],
        json!([{"name": "default", "resources": [{"name": "cpu", "total": "3", "borrowed": "1"}]}])
    );
    submit(&cluster, "owner", "lender", 0, 2, 1).await;
    let evicted = |object: &DynamicObject| is(object, "Preempted", "True", "InCohortReclamation");
    let large = cluster.wait(&workloads(), "default", "large", evicted).await;
    let message = condition(&large, "Preempted").unwrap()["message"].as_str().unwrap();
    assert!(
        message.ends_with(
            "due to reclamation within the cohort; preemptor path: /all/lender; preemptee path: /all/borrower"
        ),
        "{message}"
    );
    release(&cluster, "large").await;
    admitted(&cluster, "owner").await;
}

#[tokio::test(start_paused = true)]
async fn admission_checks_come_between_reservation_and_admission() {
    let cluster = kueue_cluster().await;
    active_check(&cluster, "budget").await;
    let strategy = json!({"admissionChecksStrategy": {"admissionChecks": [{"name": "budget"}]}});
    queue(&cluster, "team", 4, strategy).await;
    let _controller = kueue_controller(&cluster);
    submit(&cluster, "w", "team", 0, 1, 1).await;
    let reserved = |object: &DynamicObject| is(object, "QuotaReserved", "True", "QuotaReserved");
    let workload = cluster.wait(&workloads(), "default", "w", reserved).await;
    assert_eq!(workload.data["status"]["admissionChecks"][0]["state"], "Pending");
    assert!(condition(&workload, "Admitted").is_none_or(|known| known["status"] == "False"));
    let state = |state: &str| {
        let checks = json!([{"name": "budget", "state": state, "message": "by hand",
            "lastTransitionTime": "2023-11-14T22:13:20Z"}]);
        let body = json!({"apiVersion": VERSION, "kind": "Workload", "metadata": {"name": "w"},
            "status": {"admissionChecks": checks}});
        Patch::Apply(body)
    };
    let api = cluster.api(&workloads(), "default");
    let params = PatchParams::apply("example.com/budget").force();
    api.patch_status("w", &params, &state("Ready")).await.unwrap();
    admitted(&cluster, "w").await;
    api.patch_status("w", &params, &state("Rejected")).await.unwrap();
    let deactivated = |object: &DynamicObject| {
        object.data["spec"]["active"] == false
            && is(object, "Evicted", "True", "DeactivatedDueToAdmissionCheck")
    };
    let workload = cluster.wait(&workloads(), "default", "w", deactivated).await;
    assert_eq!(
        condition(&workload, "Evicted").unwrap()["message"],
        "The workload is deactivated due to AdmissionCheck in Rejected state: \"budget\" (by hand)"
    );
}

#[tokio::test(start_paused = true)]
async fn a_queue_and_its_flavor_stay_until_no_workload_holds_their_quota() {
    let cluster = kueue_cluster().await;
    queue(&cluster, "team", 4, json!({})).await;
    let _controller = kueue_controller(&cluster);
    submit(&cluster, "w", "team", 0, 1, 1).await;
    admitted(&cluster, "w").await;
    let flavors = kind("ResourceFlavor", "resourceflavors");
    let kept =
        |object: &DynamicObject| object.metadata.finalizers.as_ref().is_some_and(|kept| !kept.is_empty());
    cluster.wait(&cluster_queues(), "", "team", kept).await;
    cluster.wait(&flavors, "", "default", kept).await;
    cluster.delete(&flavors, "", "default").await;
    cluster.delete(&cluster_queues(), "", "team").await;
    submit(&cluster, "late", "team", 0, 1, 1).await;
    assert_eq!(waits(&cluster, "late", "Inadmissible").await, "ClusterQueue team is inactive");
    let status =
        queue_status(&cluster, "team", |status| status["conditions"][0]["reason"] == "Terminating").await;
    assert_eq!(status["conditions"][0]["message"], "Can't admit new workloads; clusterQueue is terminating");
    finish(&cluster, "w").await;
    cluster.wait_gone(&cluster_queues(), "", "team").await;
    cluster.wait_gone(&flavors, "", "default").await;
}

#[tokio::test(start_paused = true)]
async fn a_workload_is_stopped_and_started_by_its_author_and_kept_out_of_foreign_queues() {
    let cluster = kueue_cluster().await;
    let selector = json!({"namespaceSelector": {"matchLabels": {"team": "red"}}});
    queue(&cluster, "team", 4, selector).await;
    let _controller = kueue_controller(&cluster);
    submit(&cluster, "w", "team", 0, 1, 1).await;
    assert_eq!(
        waits(&cluster, "w", "Pending").await,
        "workload namespace doesn't match ClusterQueue selector"
    );
    cluster.annotate_namespace("default", &json!({"labels": {"team": "red"}})).await;
    admitted(&cluster, "w").await;
    let api = cluster.api(&workloads(), "default");
    let set = |active: bool| Patch::Merge(json!({"spec": {"active": active}}));
    api.patch("w", &PatchParams::default(), &set(false)).await.unwrap();
    let evicted = |object: &DynamicObject| is(object, "Evicted", "True", "Deactivated");
    let workload = cluster.wait(&workloads(), "default", "w", evicted).await;
    assert_eq!(condition(&workload, "Evicted").unwrap()["message"], "The workload is deactivated");
    assert_eq!(
        workload.data["status"]["schedulingStats"]["evictions"],
        json!([{"reason": "Deactivated", "underlyingCause": "", "count": 1}])
    );
    release(&cluster, "w").await;
    api.patch("w", &PatchParams::default(), &set(true)).await.unwrap();
    let again = |object: &DynamicObject| {
        is(object, "Admitted", "True", "Admitted") && is(object, "Evicted", "False", "QuotaReserved")
    };
    cluster.wait(&workloads(), "default", "w", again).await;
}

#[tokio::test(start_paused = true)]
async fn a_held_local_queue_takes_no_workload_and_says_so() {
    let cluster = kueue_cluster().await;
    queue(&cluster, "team", 4, json!({})).await;
    let _controller = kueue_controller(&cluster);
    let queues = kind("LocalQueue", "localqueues");
    let api = cluster.api(&queues, "default");
    let policy = |policy: &str| Patch::Merge(json!({"spec": {"stopPolicy": policy}}));
    api.patch("team", &PatchParams::default(), &policy("Hold")).await.unwrap();
    submit(&cluster, "w", "team", 0, 1, 1).await;
    assert_eq!(waits(&cluster, "w", "Inadmissible").await, "LocalQueue team is inactive");
    let stopped = |object: &DynamicObject| is(object, "Active", "False", "Stopped");
    cluster.wait(&queues, "default", "team", stopped).await;
    api.patch("team", &PatchParams::default(), &policy("None")).await.unwrap();
    admitted(&cluster, "w").await;
    let ready = |object: &DynamicObject| {
        is(object, "Active", "True", "Ready") && object.data["status"]["admittedWorkloads"] == 1
    };
    cluster.wait(&queues, "default", "team", ready).await;
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_names_another_flavor_releases_the_first() {
    let cluster = kueue_cluster().await;
    queue(&cluster, "team", 4, json!({})).await;
    let _controller = kueue_controller(&cluster);
    let flavors = kind("ResourceFlavor", "resourceflavors");
    let kept =
        |object: &DynamicObject| object.metadata.finalizers.as_ref().is_some_and(|kept| !kept.is_empty());
    cluster.wait(&flavors, "", "default", kept).await;
    cluster.delete(&flavors, "", "default").await;
    let groups = json!([{"coveredResources": ["cpu"], "flavors": [
        {"name": "other", "resources": [{"name": "cpu", "nominalQuota": 4}]}
    ]}]);
    let patch = Patch::Merge(json!({"spec": {"resourceGroups": groups}}));
    cluster.api(&cluster_queues(), "").patch("team", &PatchParams::default(), &patch).await.unwrap();
    cluster.wait_gone(&flavors, "", "default").await;
}

#[tokio::test(start_paused = true)]
async fn without_the_scheduler_workloads_of_others_are_counted_and_none_is_admitted() {
    let cluster = kueue_cluster().await;
    queue(&cluster, "team", 4, json!({})).await;
    let _controller =
        cluster.start(cluster.client.clone(), Config { kueue: Kueue::Core, ..Config::default() });
    submit(&cluster, "w", "team", 0, 1, 1).await;
    queue_status(&cluster, "team", |status| status["pendingWorkloads"] == 1).await;
    let api = cluster.api(&workloads(), "default");
    assert!(api.get("w").await.unwrap().data["status"]["admission"].is_null());
    reserve(&cluster, "w", "team").await;
    admitted(&cluster, "w").await;
    queue_status(&cluster, "team", |status| status["admittedWorkloads"] == 1).await;
}

/// A client that may not read cohorts.
fn client_without_cohorts(cluster: &Cluster) -> Client {
    let service = cluster.service.clone();
    Client::new(
        tower::service_fn(move |request: Request<Body>| {
            let (service, is_refused) = (service.clone(), request.uri().path().ends_with("/cohorts"));
            async move {
                if is_refused {
                    let answer = Response::builder().status(403).header("Content-Type", "application/json");
                    return answer.body(Full::from("{}").boxed_unsync()).map_err(std::io::Error::other);
                }
                let answer = service.oneshot(request).await.unwrap();
                Ok(answer.map(|body| body.map_err(|never| match never {}).boxed_unsync()))
            }
        }),
        "default",
    )
}

#[tokio::test(start_paused = true)]
async fn a_kind_of_kueue_that_cannot_be_listed_holds_up_workloads_alone() {
    let cluster = kueue_cluster().await;
    queue(&cluster, "team", 4, json!({})).await;
    submit(&cluster, "w", "team", 0, 1, 1).await;
    let config = Config { kueue: Kueue::Scheduler, ..Config::default() };
    let blind = cluster.start(client_without_cohorts(&cluster), config);
    cluster.submit_config_map("other").await;
    cluster.wait_state(Group::Mcad, "other", "Running", "Dispatched").await;
    let message = waits(&cluster, "w", "Inadmissible").await;
    assert!(message.starts_with("cohorts.kueue.x-k8s.io cannot be listed, retrying: "), "{message}");
    drop(blind);
    let _controller = kueue_controller(&cluster);
    admitted(&cluster, "w").await;
}

#[tokio::test(start_paused = true)]
async fn a_workload_behind_the_first_of_a_strict_queue_says_nothing_in_its_conditions() {
    let cluster = kueue_cluster().await;
    queue(&cluster, "team", 4, json!({"queueingStrategy": "StrictFIFO"})).await;
    let _controller = kueue_controller(&cluster);
    submit(&cluster, "runs", "team", 9, 2, 1).await;
    admitted(&cluster, "runs").await;
    submit(&cluster, "first", "team", 5, 3, 1).await;
    waits(&cluster, "first", "Pending").await;
    submit(&cluster, "second", "team", 1, 1, 1).await;
    queue_status(&cluster, "team", |status| status["pendingWorkloads"] == 2).await;
    // Longer than a Workload waits before it says why.
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    let second = cluster.api(&workloads(), "default").get("second").await.unwrap();
    assert!(condition(&second, "QuotaReserved").is_none(), "{second:?}");
    finish(&cluster, "runs").await;
    admitted(&cluster, "first").await;
    admitted(&cluster, "second").await;
}
