//! The time to create an AppWrapper with and without the webhook, on the API server in memory.
//!
//! `cargo bench -p server --bench admission [COUNT]`

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement that cannot go on should say where"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use api::appwrapper::{Group, PLURAL};
use apiserver::{ApiServer, Service, User, ValidatingWebhook};
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use server::admission::{Admission, WEBHOOK};

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--test") {
        return; // `cargo test --benches` only checks that it builds.
    }
    let count = arguments.iter().find_map(|argument| argument.parse().ok()).unwrap_or(5_000);
    for has_webhook in [false, true] {
        let mut times = measure(count, has_webhook).await;
        times.sort_unstable();
        let at = |percent: usize| times[(times.len() - 1) * percent / 100].as_micros();
        let with = if has_webhook { "with" } else { "without" };
        println!("{count} creations {with} the webhook: p50 {} us, p99 {} us", at(50), at(99));
    }
}

async fn measure(count: usize, has_webhook: bool) -> Vec<Duration> {
    let service = Service::new(ApiServer::new(apiserver::Config::default()), Arc::new(jiff::Timestamp::now));
    let client = Client::new(service.as_user(User::admin()), "default");
    controllers::install_crds(client.clone(), &[Group::Codeflare], api::appwrapper::Columns::default())
        .await
        .unwrap();
    if has_webhook {
        let admission = Admission::new(client.clone());
        let webhook = ValidatingWebhook::new(WEBHOOK, "workload.codeflare.dev", PLURAL, move |review| {
            let admission = admission.clone();
            Box::pin(async move { admission.review(&review).await })
        });
        service.with(|server, _| server.validate_with(webhook));
    }
    let kind = GroupVersionKind::gvk("workload.codeflare.dev", "v1beta1", "AppWrapper");
    let api: Api<DynamicObject> =
        Api::namespaced_with(client, "default", &ApiResource::from_gvk_with_plural(&kind, PLURAL));
    let mut times = Vec::with_capacity(count);
    for at in 0..count {
        let wrapper = serde_json::from_value(wrapper(at)).unwrap();
        let began = Instant::now();
        api.create(&PostParams::default(), &wrapper).await.unwrap();
        times.push(began.elapsed());
    }
    times
}

/// An AppWrapper with a Job and a Service.
fn wrapper(at: usize) -> Value {
    let object = |api_version: &str, kind: &str| json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}});
    json!({
        "apiVersion": "workload.codeflare.dev/v1beta1", "kind": "AppWrapper", "metadata": {"name": format!("aw-{at}")},
        "spec": {"resources": {"GenericItems": [
            {"generictemplate": object("batch/v1", "Job")}, {"generictemplate": object("v1", "Service")},
        ]}},
    })
}
