//! All parts of Kueue's API for the cluster of `muster up`, as a configuration of Kueue says.

use std::path::Path;

use anyhow::{Result, anyhow};
use api::kueue::config::Configuration;
use api::kueue::webhooks::Context;
use serde_json::Value;
use server::Issuer;

use super::parts::{self, Part};
use super::{Kueue, KueueArgs, parse, read, waits_for_pods};
use crate::embedded_kueue;

/// The fields that are for a process of its own.
const OF_PROCESS: [&str; 10] = [
    "clientConnection",
    "controller",
    "health",
    "internalCertManagement",
    "leaderElection",
    "metrics",
    "multiKueue",
    "pprofBindAddress",
    "tls",
    "webhook",
];

impl Kueue {
    /// What a configuration says, for all kinds of jobs or those that it names. Tells which of its fields have no effect.
    pub(crate) fn embedded(file: &Path, is_hub: bool) -> Result<Self> {
        let document = read(file)?;
        let waits_for_pods = waits_for_pods(&document);
        let is_unused = |field: &&str| !(document[*field].is_null() || is_hub && *field == "multiKueue");
        let unused: Vec<&str> = OF_PROCESS.into_iter().filter(is_unused).collect();
        if !unused.is_empty() {
            eprintln!("muster: {}: no effect in a simulated cluster: {}", file.display(), unused.join(", "));
        }
        let named = document["integrations"]["frameworks"].as_array().cloned();
        let configuration = parse(document, file)?;
        let kinds: Vec<String> = match named {
            Some(named) => named.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect(),
            None => embedded_kueue::frameworks().map(str::to_owned).collect(),
        };
        let started = kinds.iter().map(|kind| Part::parse(&format!("job={kind}")));
        let started = started.collect::<Result<Vec<_>, _>>();
        let mut parts =
            started.map_err(|why| anyhow!("{}: integrations.frameworks: {why}", file.display()))?;
        // Kinds that others create have no webhook.
        parts.extend(kinds.iter().filter_map(|kind| Part::parse(&format!("webhook={kind}")).ok()));
        Ok(Self {
            webhooks: true,
            clusters: is_hub,
            places_pods: true,
            waits_for_pods,
            installs: true,
            ..Self::shared(configuration, &parts)
        })
    }

    /// What the Helm chart starts: the parts of its flags, with its configuration.
    pub(crate) fn of_chart(args: &KueueArgs, document: Value) -> Result<Self> {
        let waits_for_pods = waits_for_pods(&document);
        let configuration = parse(document, Path::new("of the chart"))?;
        Ok(Self {
            webhooks: args.has(|part| matches!(part, Part::Webhooks)),
            places_pods: args.place_pods,
            provisions: args.has(|part| matches!(part, Part::Provisioning)),
            waits_for_pods,
            installs: true,
            ..Self::shared(configuration, &args.parts)
        })
    }

    /// What a shared controller with these parts for jobs plans and answers, and nothing else.
    pub(super) fn shared(configuration: Configuration, parts: &[Part]) -> Self {
        Self {
            configuration,
            acts: controllers::Kueue::Scheduler,
            is_shared: true,
            webhooks: false,
            jobs: parts::managed(parts),
            provisions: true,
            clusters: false,
            reviewed: parts::reviewed(parts),
            metrics_port: None,
            places_pods: false,
            waits_for_pods: false,
            installs: false,
            issuer: Issuer::Other,
        }
    }

    /// What the webhooks have to know.
    pub(crate) fn context(&self) -> Context {
        Context { gates: (&self.configuration.gates).into(), jobs: self.job_rules() }
    }
}
