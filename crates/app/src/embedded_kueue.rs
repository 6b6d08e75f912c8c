//! Kueue's kinds on the embedded API server: their definitions, and what Kueue's webhooks do, in process.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use api::kueue::webhooks::{self, Context, Operation};
use apiserver::{AdmissionPlugin, Converter, Service, Write};
use kube::Client;
use serde_json::{Value, json};

/// Kueue's admission webhooks.
#[derive(Debug)]
struct Webhooks;

/// Serves Kueue's kinds in both versions.
pub(crate) async fn install(service: &Service, client: Client) -> Result<()> {
    service.with(|server, _| {
        let convert =
            |object: &mut Value, to: &str| api::kueue::convert(object, to).map_err(|error| error.to_string());
        server.convert_with(api::kueue::GROUP, Converter::new(convert));
        server.admit_with(api::kueue::GROUP, Arc::new(Webhooks));
    });
    // The converter takes the place of this webhook.
    let in_process = json!({"url": "https://localhost/convert"});
    controllers::install_kueue_crds(client, &in_process)
        .await
        .context("cannot install the resources of Kueue's API")
}

impl AdmissionPlugin for Webhooks {
    fn mutate(&self, write: &Write<'_>, new: &mut Value) {
        webhooks::default(write.plural, operation(write), new, None, &Context::default());
    }

    fn validate(&self, write: &Write<'_>, new: &Value, old: Option<&Value>) -> Result<Vec<String>, String> {
        webhooks::review(write.plural, operation(write), new, old, &Context::default())
    }
}

fn operation(write: &Write<'_>) -> Operation {
    if write.is_create { Operation::Create } else { Operation::Update }
}
