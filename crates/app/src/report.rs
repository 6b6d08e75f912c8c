//! Prints reports about AppWrappers and Workloads, as text or JSON.

use serde_json::Value;
use server::Report;

use crate::up;

/// Output format.
#[derive(Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Output {
    /// Text.
    #[default]
    Text,
    /// A JSON array.
    Json,
}

/// Prints reports.
pub(crate) fn print(reports: Vec<Report>, output: Output) {
    match output {
        Output::Text => reports.iter().for_each(|report| up::print(&report.text)),
        Output::Json => {
            let reports: Vec<Value> = reports.into_iter().map(|report| report.status).collect();
            up::print(&format!("{:#}\n", Value::from(reports)));
        }
    }
}
