//! Prints reports about AppWrappers and Workloads, as text or JSON.

use std::process::ExitCode;

use anyhow::Result;
use serde_json::Value;
use server::Report;

use crate::gang::Gang;
use crate::up;

/// Output format.
#[derive(Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Output {
    /// Text.
    #[default]
    Text,
    /// A JSON array.
    Json,
    /// A YAML sequence.
    Yaml,
}

/// Prints reports.
pub(crate) fn print(reports: &[Report], output: Output) -> Result<()> {
    let values = || -> Vec<Value> { reports.iter().map(|report| report.status.clone()).collect() };
    up::print(&match output {
        Output::Text => reports.iter().map(|report| &*report.text).collect(),
        Output::Json => format!("{:#}\n", Value::from(values())),
        Output::Yaml => serde_saphyr::to_string(&values())?,
    });
    Ok(())
}

/// The exit code that tells the state of all gangs, if it is asked for: that of the worst.
pub(crate) fn exit_code(reports: &[Report], is_asked_for: bool) -> ExitCode {
    let worst = reports.iter().map(|report| Gang(report.status.clone()).outcome()).max();
    worst.filter(|_| is_asked_for).map_or(ExitCode::SUCCESS, |worst| worst.exit_code().into())
}
