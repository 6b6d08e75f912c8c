//! Kueue's kinds on the embedded API server: their definitions, and what Kueue's webhooks do, in process.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use api::kueue::jobs::JOB_KINDS;
use api::kueue::webhooks::{self, Context, JobRules, Operation, ReviewedKind};
use api::selector::LabelSelector;
use apiserver::{AdmissionPlugin, Converter, Service, Write};
use controllers::{JobsConfig, KueueOptions, KueueRules, ProvisioningConfig};
use kube::Client;
use serde_json::{Value, json};
use server::kueue::{NamespaceWatches, Namespaces};

use crate::kueue::{Duties, Kueue};

/// What is done for Kueue's API.
pub(crate) enum Queues {
    /// All parts, for all kinds of jobs.
    Everything,
    /// What a configuration says.
    Configured(Box<Kueue>),
    /// Nothing, nor is it served.
    Off,
}

impl Queues {
    /// Whether Kueue's API is served.
    pub(crate) fn are_served(&self) -> bool {
        !matches!(self, Self::Off)
    }
}

/// Kueue's admission webhooks.
#[derive(Debug)]
struct Webhooks {
    context: Context,
    namespaces: Namespaces,
}

/// Serves Kueue's kinds in both versions, with the rules of a configuration; a hub gives jobs to other clusters. Returns what
/// must run meanwhile: the watches of its webhooks.
pub(crate) async fn install(
    service: &Service,
    client: Client,
    queues: &Queues,
    is_hub: bool,
) -> Result<NamespaceWatches> {
    let (namespaces, watches) = Namespaces::watch(&client, is_hub);
    service.with(|server, _| {
        let convert =
            |object: &mut Value, to: &str| api::kueue::convert(object, to).map_err(|error| error.to_string());
        server.convert_with(api::kueue::GROUP, Converter::new(convert));
        let context = if let Queues::Configured(kueue) = queues { kueue.context() } else { context() };
        let names = context.jobs.frameworks.iter();
        let reviewed: Vec<ReviewedKind> = names.filter_map(|name| ReviewedKind::of_framework(name)).collect();
        let plugin = Arc::new(Webhooks { context, namespaces });
        server.admit_with(api::kueue::GROUP, plugin.clone());
        for kind in reviewed {
            server.admit_with(kind.group(), plugin.clone());
        }
    });
    // The converter takes the place of this webhook.
    let in_process = json!({"url": "https://localhost/convert"});
    controllers::install_kueue_crds(client, &in_process)
        .await
        .context("cannot install the resources of Kueue's API")?;
    Ok(watches)
}

/// The rules of the webhooks without a configuration.
fn context() -> Context {
    let frameworks = frameworks().map(str::to_owned).collect();
    let jobs = JobRules { frameworks, namespaces: jobs().namespaces, ..JobRules::default() };
    Context { jobs, ..Context::default() }
}

/// What the controller does for Kueue's objects: everything, as a configuration says.
pub(crate) fn duties(queues: &Queues) -> Result<Duties> {
    match queues {
        Queues::Configured(kueue) => kueue.duties(),
        Queues::Off => Ok(Duties::default()),
        Queues::Everything => Ok(Duties {
            acts: controllers::Kueue::Scheduler,
            options: options(),
            jobs: jobs(),
            provisioning: Some(ProvisioningConfig::default()),
            ..Duties::default()
        }),
    }
}

/// The kinds of jobs whose webhooks are served.
pub(crate) fn frameworks() -> impl Iterator<Item = &'static str> {
    JOB_KINDS.iter().map(|kind| kind.framework).chain(["deployment"])
}

/// How Workloads are planned: their pods get nodes.
fn options() -> KueueOptions {
    KueueOptions {
        rules: KueueRules { places_pods: true, ..KueueRules::default() },
        ..KueueOptions::default()
    }
}

/// The jobs that are managed: those with the label of a queue, in all namespaces but that of the system.
fn jobs() -> JobsConfig {
    let system = LabelSelector::default().with("kubernetes.io/metadata.name", "kube-system", false);
    JobsConfig { kinds: JOB_KINDS.iter().collect(), namespaces: system, ..JobsConfig::default() }
}

impl AdmissionPlugin for Webhooks {
    /// Of subresources, only the status of Workloads has rules.
    fn covers(&self, write: &Write<'_>) -> bool {
        webhooks::validating_webhook(write.plural).is_some()
            && (write.subresource.is_empty() || write.plural == "workloads")
    }

    fn mutate(&self, write: &Write<'_>, new: &mut Value) {
        let namespace = new["metadata"]["namespace"].as_str().unwrap_or_default();
        let defaults = self.namespaces.defaults(namespace);
        webhooks::default(write.plural, operation(write), new, &defaults, &self.context);
    }

    fn validate(&self, write: &Write<'_>, new: &Value, old: Option<&Value>) -> Result<Vec<String>, String> {
        let namespace = new["metadata"]["namespace"].as_str().unwrap_or_default();
        let known = self.namespaces.defaults(namespace);
        webhooks::review(write.plural, operation(write), new, old, &known, &self.context)
    }
}

fn operation(write: &Write<'_>) -> Operation {
    if write.is_create { Operation::Create } else { Operation::Update }
}
