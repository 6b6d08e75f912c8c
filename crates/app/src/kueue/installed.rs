//! How a controller in the place of an installation of Kueue plans.

use std::path::Path;

use anyhow::Result;
use serde_json::Value;
use server::Issuer;

use super::{Kueue, parse, parts, waits_for_pods};

impl Kueue {
    /// The planning configuration of a controller with this configuration of Kueue, as the chart starts it.
    pub(crate) fn planning(document: Value) -> Result<controllers::Config> {
        let waits_for_pods = waits_for_pods(&document);
        let kueue = Self {
            configuration: parse(document, Path::new("of Kueue"))?,
            acts: controllers::Kueue::Scheduler,
            is_shared: true,
            webhooks: false,
            jobs: parts::managed(&[]),
            provisions: true,
            clusters: false,
            reviewed: parts::reviewed(&[]),
            metrics_port: None,
            places_pods: false,
            waits_for_pods,
            installs: false,
            issuer: Issuer::Other,
        };
        Ok(controllers::Config {
            kueue: kueue.acts,
            kueue_options: kueue.options(),
            ..controllers::Config::default()
        })
    }
}
