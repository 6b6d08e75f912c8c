//! `xtask kueue-functions`: compares Muster's conversion and validation of Kueue's kinds with Kueue's own, on random objects.
//!
//! Reads the lines that the program `testbed/kueue-functions` prints: inputs, and what Kueue's functions make of them.

use std::collections::BTreeSet;
use std::io::BufRead;
use std::process::ExitCode;

use anyhow::Context as _;
use api::kueue::webhooks::{Context, JobDefaults, Operation, validate};
use serde_json::Value;

/// Counters that Kueue writes as 0 when they are absent.
const ZEROES: [&str; 4] = ["admittedWorkloads", "pendingWorkloads", "reservingWorkloads", "borrowed"];

/// Prints the differences, and fails if there are any.
pub(crate) fn compare(lines: impl BufRead) -> anyhow::Result<ExitCode> {
    let (mut conversions, mut validations, mut errors, mut differences) = (0, 0, 0, 0);
    for line in lines.lines() {
        let line: Value = serde_json::from_str(&line?).context("a line is not JSON")?;
        let (own, theirs) = if let Some(to) = line["to"].as_str() {
            conversions += 1;
            converted(&line, to)
        } else {
            validations += 1;
            errors += line["errors"].as_array().map_or(0, Vec::len);
            validated(&line)
        };
        if own != theirs {
            differences += 1;
            println!("object {}\nold    {}\nhere   {own}\nKueue  {theirs}\n", line["object"], line["old"]);
        }
    }
    println!(
        "{conversions} conversions, {validations} validations with {errors} errors: {differences} differences"
    );
    anyhow::ensure!(conversions + validations > 0, "no lines: pipe the output of testbed/kueue-functions");
    Ok(if differences == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn converted(line: &Value, to: &str) -> (Value, Value) {
    let mut own = line["object"].clone();
    if let Err(error) = api::kueue::convert(&mut own, to) {
        own = error.to_string().into();
    }
    let mut theirs = line["converted"].clone();
    // Kueue's functions do not set them: their caller does.
    theirs["apiVersion"] = to.into();
    theirs["kind"] = line["object"]["kind"].clone();
    (without_empty(&own), without_empty(&theirs))
}

/// The value without what Go's types write although it is absent.
fn without_empty(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let is_zero = |key: &str, value: &Value| ZEROES.contains(&key) && (*value == 0 || *value == "0");
            let kept = fields.iter().filter(|(key, value)| !is_zero(key, value));
            let kept = kept.map(|(key, value)| (key.clone(), without_empty(value)));
            kept.filter(|(_, value)| !is_empty(value)).collect()
        }
        Value::Array(items) => items.iter().map(without_empty).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

fn validated(line: &Value) -> (Value, Value) {
    let old = Some(&line["old"]).filter(|old| old.is_object());
    let operation = if old.is_some() { Operation::Update } else { Operation::Create };
    let resource = line["resource"].as_str().unwrap_or_default();
    let known = JobDefaults::default();
    let own = validate(resource, operation, &line["object"], old, &known, &Context::default());
    let own: BTreeSet<String> = own.iter().map(|error| comparable(&error.to_string())).collect();
    let theirs = line["errors"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let theirs: BTreeSet<String> = theirs.map(comparable).collect();
    (own.into_iter().collect(), theirs.into_iter().collect())
}

/// The text of an error without what differs on purpose: the order of the fields of an object and of supported values, and
/// the address of a pointer.
fn comparable(text: &str) -> String {
    let text = match text.split_once("is not a multiple of ") {
        Some((start, _)) => format!("{start}is not a multiple of"),
        None => text.to_owned(),
    };
    if let Some((start, values)) = text.split_once("supported values: ") {
        let values: BTreeSet<&str> = values.split(", ").collect();
        return format!("{start}supported values: {values:?}");
    }
    let object = text.find(" value: {").or_else(|| text.find(" value: ["));
    match (object, text.rfind(['}', ']'])) {
        (Some(start), Some(end)) if start < end => format!("{} value: …{}", &text[..start], &text[end + 1..]),
        _ => text,
    }
}
