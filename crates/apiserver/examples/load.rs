//! Load test of `ApiServer::handle`: creates, binds, updates and lists pods. Usage: `load [PODS]`, default 10000.

use std::time::Instant;

use apiserver::{ApiServer, Config, Pull, Reply, User};
use bytes::Bytes;
use http::Request;
use serde_json::json;

fn main() {
    let pods: usize = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(10_000);
    let mut server = ApiServer::new(Config::default());
    let admin = User::admin();
    let now = jiff::Timestamp::UNIX_EPOCH;
    let mut call = |method: &str, path: &str, kind: &str, body: String| {
        let request = Request::builder().method(method).uri(path).header("content-type", kind);
        server.handle(now, &admin, request.body(Bytes::from(body)).expect("the request is well-formed"))
    };
    let path = "/api/v1/namespaces/default/pods";
    let Reply::Watch(mut watch) = call("GET", &format!("{path}?watch=true"), "", String::new()) else {
        panic!("not a watch");
    };
    let timed = |what: &str, count: usize, started: Instant| {
        let seconds = started.elapsed().as_secs_f64();
        #[allow(clippy::cast_precision_loss, reason = "an approximate rate for display")]
        let rate = count as f64 / seconds;
        println!("{what:<10} {count:>8} in {seconds:>7.2} s = {rate:>9.0}/s");
    };
    let json = "application/json";
    let started = Instant::now();
    for at in 0..pods {
        let body = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": format!("pod-{at}"), "labels": { "app": format!("app-{}", at % 100) } },
            "spec": { "containers": [{ "name": "main", "image": "busybox", "resources": {
                "requests": { "cpu": "1", "memory": "1Gi" }, "limits": { "cpu": "1", "memory": "1Gi" } } }] },
        });
        let Reply::Response(response) = call("POST", path, json, body.to_string()) else {
            panic!("no response")
        };
        assert_eq!(response.status(), 201, "{:?}", response.body());
    }
    timed("create", pods, started);
    let started = Instant::now();
    for at in 0..pods {
        let body = json!({ "target": { "kind": "Node", "name": format!("node-{}", at % 1000) } });
        call("POST", &format!("{path}/pod-{at}/binding"), json, body.to_string());
    }
    timed("bind", pods, started);
    let started = Instant::now();
    for at in 0..pods {
        let body = json!({ "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] } });
        let merge = "application/merge-patch+json";
        call("PATCH", &format!("{path}/pod-{at}/status"), merge, body.to_string());
    }
    timed("status", pods, started);
    let started = Instant::now();
    let Reply::Response(list) = call("GET", path, "", String::new()) else { panic!("no response") };
    timed("list", pods, started);
    println!("           {} bytes", list.body().len());
    let started = Instant::now();
    call("GET", &format!("{path}?fieldSelector=spec.nodeName%3Dnode-1"), "", String::new());
    timed("select", pods, started);
    let started = Instant::now();
    let mut events = 0;
    while let Pull::Chunk(bytes) = server.pull(now, &mut watch) {
        events += bytes.split(|byte| *byte == b'\n').count() - 1;
    }
    timed("watch", events, started);
}
