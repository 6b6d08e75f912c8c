//! `muster controller --otlp-endpoint` sends traces to a collector.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::mpsc;
use std::time::Duration;

use crate::common::{Process, muster, request, up};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;

/// A collector: its address, and what it receives.
fn collector() -> (String, mpsc::Receiver<ExportTraceServiceRequest>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (sender, received) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            assert!(line.starts_with("POST /v1/traces "), "{line}");
            let mut length = 0;
            loop {
                line.clear();
                reader.read_line(&mut line).unwrap();
                let Some((name, value)) = line.trim().split_once(':') else { break };
                if name.eq_ignore_ascii_case("content-length") {
                    length = value.trim().parse().unwrap();
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").unwrap();
            sender.send(ExportTraceServiceRequest::decode(body.as_slice()).unwrap()).ok();
        }
    });
    (address, received)
}

#[test]
fn an_admission_is_one_trace_from_the_object_to_the_decision_to_the_write() {
    let dir = tempfile::tempdir().unwrap();
    let (collector, received) = collector();
    let mut api = Process(up(&["--api-only"], dir.path()).spawn().unwrap());
    let mut lines = BufReader::new(api.0.stdout.take().unwrap()).lines();
    let server = loop {
        let line = lines.next().unwrap().unwrap();
        if line.contains("API server") {
            break line.rsplit_once("://").unwrap().1.to_owned();
        }
    };
    let arguments = [
        "controller",
        "--kubeconfig",
        ".muster/kubeconfig",
        "--leader-elect=false",
        "--appwrapper-group",
        "mcad.ibm.com",
        "--otlp-endpoint",
        &format!("http://{collector}"),
    ];
    let mut controller = muster(&arguments, dir.path());
    controller.env("OTEL_BSP_SCHEDULE_DELAY", "100").env("OTEL_RESOURCE_ATTRIBUTES", "k8s.cluster.name=test");
    let _controller = Process(controller.spawn().unwrap());
    let wrapper = r#"{"apiVersion": "mcad.ibm.com/v1beta1", "kind": "AppWrapper", "metadata": {"name": "traced"}, "spec": {"resources":
        {"GenericItems": [{"generictemplate": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "traced"}}}]}}}"#;
    let path = "POST /apis/mcad.ibm.com/v1beta1/namespaces/default/appwrappers";
    let began = std::time::Instant::now();
    // The controller installs the definition first.
    while !request(&server, path, wrapper).unwrap().starts_with("HTTP/1.1 201") {
        assert!(began.elapsed() < Duration::from_mins(1), "the definition is not installed");
        std::thread::yield_now();
    }
    let export = received.recv_timeout(Duration::from_mins(1)).unwrap();
    let resource = &export.resource_spans[0];
    let attributes = format!("{:?}", resource.resource);
    assert!(attributes.contains("muster") && attributes.contains("k8s.cluster.name"), "{attributes}");
    let spans: Vec<&Span> = resource.scope_spans.iter().flat_map(|scope| &scope.spans).collect();
    let named = |name: &str| *spans.iter().find(|span| span.name == name).unwrap();
    let (gang, queue, plan, write) = (named("gang"), named("queue"), named("plan"), named("write"));
    assert!(gang.parent_span_id.is_empty());
    for child in [queue, plan, write] {
        assert_eq!(
            (&child.parent_span_id, &child.trace_id),
            (&gang.span_id, &gang.trace_id),
            "{}",
            child.name
        );
    }
    let times = [
        gang.start_time_unix_nano,
        plan.start_time_unix_nano,
        plan.end_time_unix_nano,
        write.start_time_unix_nano,
        write.end_time_unix_nano,
    ];
    assert!(times.is_sorted(), "{times:?}");
    assert_eq!((queue.end_time_unix_nano, gang.end_time_unix_nano), (times[1], times[4]));
    let attributes = format!("{:?}", gang.attributes);
    assert!(attributes.contains("traced") && attributes.contains("AppWrapper"), "{attributes}");
}
