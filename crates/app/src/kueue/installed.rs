//! How a controller in the place of an installation of Kueue plans.

use std::path::Path;

use anyhow::Result;
use serde_json::Value;

use super::{Kueue, parse, waits_for_pods};

impl Kueue {
    /// The planning configuration of a controller with this configuration of Kueue, as the chart starts it.
    pub(crate) fn planning(document: Value) -> Result<controllers::Config> {
        let waits_for_pods = waits_for_pods(&document);
        let configuration = parse(document, Path::new("of Kueue"))?;
        let kueue = Self { waits_for_pods, ..Self::shared(configuration, &[]) };
        Ok(controllers::Config {
            kueue: kueue.acts,
            kueue_options: kueue.options(),
            ..controllers::Config::default()
        })
    }
}
