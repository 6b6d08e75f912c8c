//! The page of `muster up`: what it lists is complete.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::common::{Up, request};

const KUEUE: &str = "/apis/kueue.x-k8s.io/v1beta2";

fn create(address: &str, path: &str, object: &Value) {
    let answer = request(address, &format!("POST {path}"), &object.to_string()).unwrap();
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
}

fn kueue(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

fn template() -> Value {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": 4}}});
    json!({"spec": {"restartPolicy": "Never", "containers": [container]}})
}

/// Creates queues, and Workloads, jobs and AppWrappers in every state.
fn fill(address: &str) {
    let local = format!("{KUEUE}/namespaces/default/localqueues");
    let quota = json!([{"coveredResources": ["cpu"], "flavors": [{"name": "main", "resources": [{"name": "cpu", "nominalQuota": 4}]}]}]);
    create(address, &format!("{KUEUE}/resourceflavors"), &kueue("ResourceFlavor", "main", &json!({})));
    for (name, policy) in [("open", "None"), ("closed", "Hold")] {
        let spec = json!({"namespaceSelector": {}, "resourceGroups": quota, "stopPolicy": policy});
        create(address, &format!("{KUEUE}/clusterqueues"), &kueue("ClusterQueue", name, &spec));
        create(address, &local, &kueue("LocalQueue", name, &json!({"clusterQueue": name})));
    }
    create(address, &local, &kueue("LocalQueue", "dangling", &json!({"clusterQueue": "nowhere"})));
    for (name, queue, active) in [
        ("runs", "open", true),
        ("waits", "open", true),
        ("held", "open", false),
        ("stopped", "closed", true),
        ("lost", "missing", true),
        ("unbound", "dangling", true),
        ("over", "open", false),
    ] {
        let spec = json!({"queueName": queue, "priority": 3, "active": active,
            "podSets": [{"name": "main", "count": 1, "template": template()}]});
        let workloads = format!("{KUEUE}/namespaces/default/workloads");
        create(address, &workloads, &kueue("Workload", name, &spec));
    }
    let finished = json!({"status": {"conditions": [{"type": "Finished", "status": "True", "reason": "Succeeded", "message": "done",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    let path = format!("PUT {KUEUE}/namespaces/default/workloads/over/status");
    let began = Instant::now();
    loop {
        let mut over: Value = body(&request(address, &path.replace("PUT", "GET"), "").unwrap());
        over["status"] = finished["status"].clone();
        let answer = request(address, &path, &over.to_string()).unwrap();
        if answer.starts_with("HTTP/1.1 200") {
            break;
        }
        // The controller has written it in between.
        assert!(answer.starts_with("HTTP/1.1 409") && began.elapsed() < Duration::from_mins(1), "{answer}");
    }

    let labels = json!({"kueue.x-k8s.io/queue-name": "open", "kueue.x-k8s.io/priority-class": "urgnet"});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "classless", "labels": labels},
        "spec": {"template": template()}});
    create(address, "/apis/batch/v1/namespaces/default/jobs", &job);
    let unknown = json!({"apiVersion": "example.com/v1", "kind": "Nope", "metadata": {"name": "a"}});
    let wrapper = json!({"apiVersion": "workload.codeflare.dev/v1beta1", "kind": "AppWrapper", "metadata": {"name": "wrapper"},
        "spec": {"resources": {"GenericItems": [{"generictemplate": unknown}]}}});
    create(address, "/apis/workload.codeflare.dev/v1beta1/namespaces/default/appwrappers", &wrapper);
}

fn body(answer: &str) -> Value {
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

#[test]
fn what_is_held_back_or_cannot_be_queued_is_listed_with_the_cause_and_what_has_ended_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let running = Up::start(&["--node", "count=1,name=n,cpu=4,memory=16Gi"], dir.path());
    fill(running.address("API server"));
    let expected = [
        ("held", "not queued", "it is deactivated: spec.active is false"),
        ("stopped", "not queued", "ClusterQueue closed is inactive; Can't admit new workloads: is stopped."),
        ("lost", "not queued", "LocalQueue missing doesn't exist; create it, or name another one"),
        (
            "unbound",
            "not queued",
            "ClusterQueue nowhere doesn't exist; create it, or change LocalQueue dangling",
        ),
        ("classless", "not queued", "urgnet"),
        ("wrapper", "not queued", "this cluster serves no Nope in example.com/v1"),
        ("waits", "waits", "needs 4 cpu"),
        ("runs", "placed", "n (1 pod)"),
    ];
    let began = Instant::now();
    loop {
        let answer = request(running.address("dashboard"), "GET /api/view", "").unwrap();
        let view = body(&answer);
        let is_shown = |(name, state, cause): &(&str, &str, &str)| {
            view["gangs"].as_array().unwrap().iter().any(|gang| {
                gang["name"] == *name
                    && gang["state"] == *state
                    && gang["detail"].as_str().unwrap().contains(cause)
            })
        };
        let missing: Vec<_> = expected.iter().filter(|one| !is_shown(one)).collect();
        if missing.is_empty() && view["ended"] == json!({"workloads.kueue.x-k8s.io": 1}) {
            assert_eq!(view["gangs"].as_array().unwrap().len(), expected.len(), "{view}");
            break;
        }
        assert!(began.elapsed() < Duration::from_mins(1), "{missing:?} are not in {view}");
        std::thread::yield_now();
    }
    let page = request(running.address("dashboard"), "GET /", "").unwrap();
    assert!(page.contains("1 nodes, 1 gangs placed, 1 waiting, 6 not queued"), "{page}");
    assert!(page.contains("Ended, and not listed: 1 workloads.kueue.x-k8s.io."), "{page}");
    assert_eq!(running.end(), Some(0));
}
