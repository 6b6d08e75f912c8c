//! Kueue's webhooks as a pure function: reviews in, reviews out.

use api::kueue::feature_gates::FeatureGates;
use api::kueue::webhooks::JobRules;
use base64::Engine as _;
use serde_json::{Value, json};
use server::kueue::{Namespaces, Webhooks};

fn answer(path: &str, request: &Value) -> Value {
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request});
    let answer = Webhooks::new(&FeatureGates::default(), JobRules::default()).answer(path, review);
    answer.expect("the path is served").expect("the review is well-formed")["response"].clone()
}

fn queue(finalizers: &Value, quota: &str) -> Value {
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue",
        "metadata": {"name": "a", "finalizers": finalizers},
        "spec": {"resourceGroups": [{
            "coveredResources": ["cpu"],
            "flavors": [{"name": "default", "resources": [{"name": "cpu", "nominalQuota": quota}]}],
        }]},
    })
}

/// The operations of the patch in a response.
fn patch(response: &Value) -> Value {
    let patch = response["patch"].as_str().expect("there is a patch");
    let bytes = base64::engine::general_purpose::STANDARD.decode(patch).expect("it is base64");
    serde_json::from_slice(&bytes).expect("it is JSON")
}

#[test]
fn defaults_come_as_a_json_patch() {
    let path = "/mutate-kueue-x-k8s-io-v1beta2-clusterqueue";
    let request = json!({"uid": "1", "operation": "CREATE", "object": queue(&json!(["other"]), "1")});
    let response = answer(path, &request);
    assert_eq!((&response["uid"], &response["allowed"]), (&json!("1"), &json!(true)));
    assert_eq!(response["patchType"], "JSONPatch");
    let expected =
        json!([{"op": "add", "path": "/metadata/finalizers/1", "value": "kueue.x-k8s.io/resource-in-use"}]);
    assert_eq!(patch(&response), expected);
    let request = json!({"uid": "1", "operation": "CREATE", "object": queue(&json!(["kueue.x-k8s.io/resource-in-use"]), "1")});
    assert_eq!(answer(path, &request), json!({"uid": "1", "allowed": true}), "nothing to default");
}

#[test]
fn a_broken_rule_is_a_denial_with_the_text_of_kueue() {
    let path = "/validate-kueue-x-k8s-io-v1beta2-clusterqueue";
    let request = json!({"uid": "1", "operation": "CREATE", "object": queue(&json!([]), "-1")});
    let response = answer(path, &request);
    assert_eq!(response["allowed"], false);
    assert_eq!(
        response["status"],
        json!({
            "code": 403, "reason": "Forbidden",
            "message": "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota: Invalid value: \"-1\": must be greater than or equal to 0",
        })
    );
    let request = json!({"uid": "1", "operation": "CREATE", "object": queue(&json!([]), "1")});
    assert_eq!(answer(path, &request), json!({"uid": "1", "allowed": true}));
    let deletion =
        json!({"uid": "1", "operation": "DELETE", "object": null, "oldObject": queue(&json!([]), "-1")});
    assert_eq!(answer(path, &deletion), json!({"uid": "1", "allowed": true}));
}

#[test]
fn jobs_are_allowed_without_a_patch() {
    for path in ["/mutate-batch-v1-job", "/validate-batch-v1-job", "/mutate--v1-pod"] {
        let request = json!({"uid": "1", "operation": "CREATE", "object": {"kind": "Job"}});
        assert_eq!(answer(path, &request), json!({"uid": "1", "allowed": true}), "{path}");
    }
}

fn convert(version: &str, objects: &Value) -> Value {
    let request = json!({"uid": "7", "desiredAPIVersion": version, "objects": objects});
    let review =
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request});
    let answer = Webhooks::new(&FeatureGates::default(), JobRules::default()).answer("/convert", review);
    answer.expect("the path is served").expect("the review is well-formed")
}

#[test]
fn objects_are_converted_together() {
    let old = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ClusterQueue", "metadata": {"name": "a"},
        "spec": {"cohort": "team", "admissionChecks": ["check"]},
    });
    let answer = convert("kueue.x-k8s.io/v1beta2", &json!([old, old]));
    assert_eq!((&answer["kind"], &answer["response"]["uid"]), (&json!("ConversionReview"), &json!("7")));
    assert_eq!(answer["response"]["result"]["status"], "Success");
    let converted = &answer["response"]["convertedObjects"];
    assert_eq!(converted.as_array().map(Vec::len), Some(2));
    assert_eq!(converted[1]["apiVersion"], "kueue.x-k8s.io/v1beta2");
    assert_eq!(
        converted[1]["spec"],
        json!({"cohortName": "team", "admissionChecksStrategy": {"admissionChecks": [{"name": "check"}]}})
    );
    let foreign = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "b"}});
    let failed = convert("kueue.x-k8s.io/v1beta2", &json!([old, foreign]))["response"].clone();
    assert_eq!(failed["result"]["status"], "Failure");
    let message = failed["result"]["message"].as_str().unwrap_or_default();
    assert!(message.starts_with("Thing b: "), "{message}");
    assert!(failed.get("convertedObjects").is_none());
}

#[tokio::test]
async fn a_controller_that_is_not_there_takes_no_new_pod_past_its_queue() {
    let server = apiserver::ApiServer::new(apiserver::Config::default());
    let service = apiserver::Service::new(server, std::sync::Arc::new(jiff::Timestamp::now));
    let client = kube::Client::new(service, "default");
    let (namespaces, _) = Namespaces::watch(&client, false);
    let rules = JobRules { frameworks: vec!["pod".into(), "batch/job".into()], ..JobRules::default() };
    let webhooks = Webhooks::new(&FeatureGates::default(), rules).knowing(namespaces);
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "there"}, "spec": {"template": template}});
    let jobs = kube::core::ApiResource::from_gvk(&kube::core::GroupVersionKind::gvk("batch", "v1", "Job"));
    let api: kube::Api<kube::core::DynamicObject> = kube::Api::namespaced_with(client, "default", &jobs);
    let job = serde_json::from_value(job).expect("it is an object");
    let job = api.create(&kube::api::PostParams::default(), &job).await.expect("the Job is created");
    let real = ("batch/v1", "Job", "there", job.metadata.uid.expect("it has a uid"));
    let gone = ("batch/v1", "Job", "there", "another".to_owned());
    let app_wrapper = ("workload.codeflare.dev/v1beta1", "AppWrapper", "gone", "u".to_owned());
    let other_group = ("example.com/v1", "AppWrapper", "gone", "u".to_owned());
    for ((version, kind, name, uid), is_gated) in
        [(real, false), (gone, true), (app_wrapper, true), (other_group, true)]
    {
        let owner =
            json!({"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": true});
        let metadata = json!({"name": "p", "namespace": "default", "ownerReferences": [owner],
            "labels": {"kueue.x-k8s.io/queue-name": "team"}});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]});
        let request = json!({"uid": "1", "operation": "CREATE", "namespace": "default", "object": pod});
        let answer = webhooks.review("/mutate--v1-pod", json!({ "request": request })).await;
        let answer = answer.expect("the path is served").expect("the review is well-formed");
        assert_eq!(answer["response"]["patch"].is_string(), is_gated, "{version} {kind} {name} {uid}");
    }
}

#[test]
fn an_odd_request_is_no_panic() {
    let webhooks = Webhooks::new(&FeatureGates::default(), JobRules::default());
    assert!(webhooks.answer("/validate-example-com-v1-thing", json!({})).is_none());
    for path in [
        "/convert",
        "/mutate-batch-v1-job",
        "/mutate-kueue-x-k8s-io-v1beta2-workload",
        "/validate-kueue-x-k8s-io-v1beta2-workload",
    ] {
        for review in [
            json!(null),
            json!([]),
            json!({"request": null}),
            json!({"request": {"uid": 1}}),
            json!({"request": {"operation": "CREATE", "object": {}}}),
        ] {
            let answer = webhooks.answer(path, review.clone()).expect("the path is served");
            let error = answer.expect_err("the review is malformed").to_string();
            assert!(error.starts_with("the body is not a "), "{path} {review}: {error}");
        }
        for object in [json!({}), json!({"spec": 1, "metadata": []}), json!({"spec": {"podSets": [null]}})] {
            let request = json!({"uid": "1", "operation": "UPDATE", "object": object, "oldObject": object});
            if path != "/convert" {
                assert_eq!(answer(path, &request)["uid"], "1");
            }
        }
    }
}
